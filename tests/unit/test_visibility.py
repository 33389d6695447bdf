"""The obligation visibility: when no transactional id is hidden from the principal, for any ACL rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import DescribeAclsResponse

from tests.builders import lacks
from tests.fakes.cluster import FakeCluster, acl_resource
from txnscan.coordinators.visibility import (
    Unprobed,
    Visibility,
    changes,
    class_probes,
    denials,
    probe,
    read_classes,
    visibility_failures,
)
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure, FailureCode, Permission
from txnscan.kafka.protocol.describe_acls import transactional_id_rules
from txnscan.kafka.security.acls import (
    UNKNOWN_PRINCIPAL,
    AclRule,
    denied,
    explained,
)
from txnscan.kafka.security.needs import DESCRIBE_CLUSTER, DESCRIBE_IDS
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

WHO = "User:bob"
TOKEN = "0f1e2d"
CHANGED = "the ACLs on transactional ids changed while broker 1 was asked"


def rule(name: str, *, prefixed: bool = False, deny: bool = False, principal: str = WHO, operation: int = 8) -> AclRule:
    return AclRule(name, prefixed, principal, "*", operation, deny)


def worded(failures: tuple[Failure, ...]) -> tuple[str, ...]:
    return tuple(explained(failure, WHO) for failure in failures)


def look(cluster: FakeCluster, meanwhile: Callable[[], object] = lambda: None, *others: str) -> tuple[str, ...]:
    """The reasons why a broker may hide ids, as text."""
    return worded(reasons(cluster, meanwhile, *others))


def reasons(cluster: FakeCluster, meanwhile: Callable[[], object] = lambda: None, *others: str) -> tuple[Failure, ...]:
    """Why a broker may hide ids. `meanwhile` happens between the probes. others: random ids beside the first."""
    probes = dict.fromkeys((TOKEN, *others), 0)
    classes = read_classes(cluster.send, 1, probes)
    first = probe(cluster.send, 1, probes, classes)
    meanwhile()
    second = probe(cluster.send, 1, probes, classes)
    seen = Visibility(classes, (first, second), changes(cluster.send, 1, classes))
    return visibility_failures(1, seen, WHO)


def without(name: str) -> Callable[[int, Any], Any]:
    """An edit that omits an id from an answer."""

    def edit(broker_id: int, answer: Any) -> Any:
        answer.transaction_states = [s for s in answer.transaction_states if s.transactional_id != name]
        return answer

    return edit


@pytest.fixture
def cluster() -> FakeCluster:
    fake = FakeCluster([1])
    fake.lead(TRANSACTION_STATE_TOPIC, [1])
    return fake


# --- probed ids -------------------------------------------------------------------------------------------------------


def test_each_name_each_prefix_and_a_random_id_are_probed() -> None:
    rules = [rule("x"), rule("*"), rule("app-", prefixed=True, deny=True), rule("app-1", principal="User:other")]
    assert class_probes(rules, TOKEN) == {
        TOKEN: DESCRIBE_IDS.permission,
        "x": Permission("Describe", "TransactionalId", "x"),
        "app-1": Permission("Describe", "TransactionalId", "app-1"),
        f"app-{TOKEN}": Permission("Describe", "TransactionalId", "app-", prefixed=True),
    }


def test_a_random_id_covered_by_a_longer_prefix_is_replaced() -> None:
    assert set(class_probes([rule("0", prefixed=True)], TOKEN)) == {f"a{TOKEN}", f"0{TOKEN}"}


@pytest.mark.parametrize("prefix", [TOKEN, TOKEN[:3], TOKEN[:1]])
def test_a_random_id_partly_covered_by_a_prefix_is_replaced(prefix: str) -> None:
    ids = [
        name for name, p in class_probes([rule(prefix, prefixed=True)], TOKEN).items() if p == DESCRIBE_IDS.permission
    ]
    assert ids == [f"a{TOKEN}"]


def test_a_rule_on_the_empty_name_needs_no_probe() -> None:
    assert class_probes([rule("")], TOKEN) == {TOKEN: DESCRIBE_IDS.permission}


EVERY_LETTER = [rule(chr(code), prefixed=True) for code in range(128)]


def test_without_a_random_id_visibility_is_unproven(cluster: FakeCluster, wording: SnapshotAssertion) -> None:
    with pytest.raises(Unprobed):
        class_probes(EVERY_LETTER, TOKEN)
    cluster.rules[1] = EVERY_LETTER
    assert look(cluster) == wording


def authorised(name: str, rules: Iterable[AclRule], everyone: bool) -> bool:
    """`StandardAuthorizerData.authorize` for Describe by WHO. `everyone` is allow.everyone.if.no.acl.found."""
    about = [r for r in rules if r.covers(name)]
    mine = [r for r in about if r.principal in (WHO, "User:*")]
    if any(r.denies_describe for r in mine):
        return False
    if any(not r.deny and r.operation in (2, 3, 4, 6, 7, 8) for r in mine):
        return True
    return everyone and not about


NAMES = st.text("0ab*", min_size=1, max_size=4)
RULES = st.lists(
    st.builds(
        AclRule,
        name=NAMES | st.just("*"),
        prefixed=st.booleans(),
        principal=st.sampled_from([WHO, "User:*", "User:other"]),
        host=st.just("*"),
        operation=st.sampled_from([2, 3, 4, 8, 10]),
        deny=st.booleans(),
    ),
    max_size=6,
)


@given(RULES, st.booleans(), st.lists(NAMES, max_size=8))
def test_if_each_class_is_visible_every_id_is_visible(rules: list[AclRule], everyone: bool, names: list[str]) -> None:
    if all(authorised(name, rules, everyone) for name in class_probes(rules, TOKEN)):
        assert all(authorised(name, rules, everyone) for name in names)


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [rule("*")],
        [rule("secret", deny=True)],
        [rule("secret", deny=True, principal="User:other")],
        [rule("app-", prefixed=True, principal="Group:apps")],
    ],
)
def test_no_id_is_hidden_if_each_class_is_described_under_any_rules(cluster: FakeCluster, rules: list[AclRule]) -> None:
    cluster.rules[1] = rules
    assert look(cluster) == ()


@pytest.mark.parametrize("code", [0, 14, 15, 16, 105])
def test_any_answer_of_a_coordinator_proves_authorization(cluster: FakeCluster, code: int) -> None:
    cluster.probe_codes[1, 0] = code
    assert look(cluster) == ()


@pytest.mark.parametrize(
    ("code", "said"), [(-1, "UNKNOWN"), (9999, "UNKNOWN_ERROR_CODE_9999"), (42, "INVALID_REQUEST")]
)
def test_an_answer_possible_before_authorization_proves_no_visibility(
    cluster: FakeCluster, code: int, said: str, wording: SnapshotAssertion
) -> None:
    cluster.probe_codes[1, 0] = code
    assert look(cluster) == wording


def test_the_code_of_an_unusable_answer_is_that_of_the_broker(cluster: FakeCluster) -> None:
    cluster.probe_codes[1, 0] = 42
    (why,) = reasons(cluster)
    assert why.code == "INVALID_REQUEST"
    cluster.probe_codes.clear()
    cluster.rules[1] = [rule("x")]
    cluster.edit["DescribeTransactions"] = without("x")
    (why,) = reasons(cluster)
    assert why.code == FailureCode.LEFT_OUT


def test_several_unknown_classes_are_reported_in_order(cluster: FakeCluster, wording: SnapshotAssertion) -> None:
    cluster.rules[1] = [rule(name) for name in "gcaebfd"]
    cluster.probe_codes[1, 0] = -1
    assert look(cluster) == wording


def test_an_id_omitted_from_the_answer_may_be_hidden(cluster: FakeCluster, wording: SnapshotAssertion) -> None:
    cluster.rules[1] = [rule("x")]
    cluster.edit["DescribeTransactions"] = without("x")
    assert look(cluster) == wording


def test_the_refusing_rule_is_named(cluster: FakeCluster) -> None:
    secret = rule("secret-", prefixed=True, deny=True)
    cluster.rules[1] = [rule("*"), secret]
    cluster.hides = lambda broker_id, name: name.startswith("secret-")
    assert look(cluster) == (denied(secret),)


def test_an_id_hidden_between_the_probes_is_hidden(cluster: FakeCluster) -> None:
    cluster.rules[1] = [rule("x")]

    def hide() -> None:
        cluster.hides = lambda broker_id, name: name == "x"

    assert look(cluster, hide) == (lacks(Permission("Describe", "TransactionalId", "x"), WHO),)


@pytest.mark.parametrize("refused", [{"other"}, set()], ids=["by the first probes", "by the second probes"])
def test_a_random_id_refused_temporarily_indicates_a_change(cluster: FakeCluster, refused: set[str]) -> None:
    cluster.hides = lambda broker_id, name: name in refused
    assert look(cluster, lambda: refused.symmetric_difference_update({"other"}), "other") == (CHANGED,)


def test_a_rule_on_new_names_after_the_probes_may_hide_ids(cluster: FakeCluster) -> None:
    def deny() -> None:
        cluster.rules[1] = [rule("new", deny=True)]

    assert look(cluster, deny) == (CHANGED,)


def test_a_removed_rule_is_no_reason_if_its_class_was_always_visible(cluster: FakeCluster) -> None:
    cluster.rules[1] = [rule("old", deny=True, principal="User:other")]
    assert look(cluster, lambda: cluster.rules.clear()) == ()


def test_unreadable_rules_may_hide_ids(cluster: FakeCluster) -> None:
    said = (
        f"broker 1 answered DescribeAcls with CLUSTER_AUTHORIZATION_FAILED: {lacks(DESCRIBE_CLUSTER.permission, WHO)}"
    )
    assert look(cluster, lambda: cluster.rules.update({1: None})) == (said,)
    assert look(cluster) == (said,)
    assert look(cluster, lambda: cluster.rules.clear()) == (said,)


# --- remedies ---------------------------------------------------------------------------------------------------------


def classes(rules: list[AclRule], *hidden: str) -> dict[str, Permission]:
    return {name: permission for name, permission in class_probes(rules, TOKEN).items() if name in hidden}


def test_one_grant_is_named_if_no_rule_allows_all_ids() -> None:
    rules = [rule("app-", prefixed=True, principal="User:app"), rule("x", principal="User:x")]
    assert worded(denials(class_probes(rules, TOKEN), rules, WHO)) == (lacks(DESCRIBE_IDS.permission, WHO),)


def test_if_ids_without_rules_are_visible_only_the_others_need_a_grant() -> None:
    rules = [rule("x", principal="User:x")]
    assert worded(denials(classes(rules, "x"), rules, WHO)) == (
        lacks(Permission("Describe", "TransactionalId", "x"), WHO),
    )


def test_a_rule_for_another_principal_is_not_to_be_removed() -> None:
    rules = [rule("*", deny=True, principal="User:other")]
    assert worded(denials(classes(rules, TOKEN), rules, WHO)) == (lacks(DESCRIBE_IDS.permission, WHO),)


@pytest.mark.parametrize("principal", [WHO, "User:*", "Group:apps"])
def test_a_rule_that_may_apply_to_the_principal_is_named(principal: str) -> None:
    rules = [rule("*", deny=True, principal=principal)]
    assert worded(denials(classes(rules, TOKEN), rules, WHO)) == (denied(rules[0]),)


def test_for_an_unknown_principal_any_rule_may_apply() -> None:
    rules = [rule("*", deny=True, principal="User:other")]
    assert worded(denials(classes(rules, TOKEN), rules, UNKNOWN_PRINCIPAL)) == (denied(rules[0]),)


@pytest.mark.parametrize(
    ("one", "two", "why"),
    [
        (
            rule("x", deny=True),
            rule("*", deny=True, principal="User:*"),
            "the principal's own comes before all others'",
        ),
        (rule("ap", prefixed=True, deny=True), rule("app", prefixed=True, deny=True), "then the name decides"),
        (
            replace(rule("*", deny=True), host="10.0.0.1"),
            replace(rule("*", deny=True), host="10.0.0.2"),
            "then the host",
        ),
    ],
)
def test_two_denying_rules_are_named_in_a_fixed_order(one: AclRule, two: AclRule, why: str) -> None:
    hidden = {next(name for name in ("x", "app-1") if one.covers(name) and two.covers(name)): DESCRIBE_IDS.permission}
    assert worded(denials(hidden, [one, two], WHO)) == worded(denials(hidden, [two, one], WHO)) == (denied(one),), why


@pytest.mark.parametrize(("hidden", "more"), [("ba", 0), ("cba", 0), ("dcba", 1), ("gfedcba", 4)])
def test_the_first_reasons_are_named_and_the_rest_counted(hidden: str, more: int) -> None:
    rules = [rule(name, deny=True) for name in hidden]
    first = tuple(denied(rule(name, deny=True)) for name in sorted(hidden)[:3])
    last = (f"{more} more rules hide transactional ids",) if more else ()
    assert worded(denials(classes(rules, *hidden), rules, WHO)) == (*first, *last)


# --- DescribeAcls -----------------------------------------------------------------------------------------------------


def rules_of(**answer: Any) -> frozenset[AclRule]:
    return transactional_id_rules(lambda broker_id, request: DescribeAclsResponse(**({"error_code": 0} | answer)), 1)


def test_all_rules_are_read_with_pattern_and_principal() -> None:
    rules = {rule("a"), rule("b", prefixed=True, deny=True, principal="User:x", operation=2)}
    assert rules_of(resources=[acl_resource(each) for each in rules]) == rules
    assert rules_of(resources=[]) == rules_of(error_code=54) == frozenset()


def with_changes(**changes: Any) -> Any:
    resource = acl_resource(rule("a"))
    for name, value in changes.items():
        setattr(resource, name, value)
    return resource


def with_rule(**changes: Any) -> Any:
    resource = acl_resource(rule("a"))
    for name, value in changes.items():
        setattr(resource.acls[0], name, value)
    return resource


@pytest.mark.parametrize(
    "answer",
    [
        {"error_code": 31},
        {"error_code": -1},
        {"resources": None},
        {"resources": [with_changes(acls=None)]},
        {"resources": [with_changes(acls=[])]},
        {"resources": [with_changes(pattern_type=9)]},
        {"resources": [with_changes(pattern_type=2)]},
        {"resources": [with_changes(resource_type=2)]},
        {"resources": [with_changes(resource_type=0)]},
        {"resources": [with_changes(resource_name=None)]},
        {"resources": [with_rule(permission_type=0)]},
        {"resources": [with_rule(permission_type=1)]},
        {"resources": [with_rule(permission_type=4)]},
        {"resources": [with_rule(operation=0)]},
        {"resources": [with_rule(operation=1)]},
        {"resources": [with_rule(principal=None)]},
        {"resources": [with_rule(host=None)]},
        {"resources": [acl_resource(rule("b")), with_rule(permission_type=0)]},
    ],
)
def test_unreadable_rules_are_a_failure_and_not_an_empty_list(answer: dict[str, Any]) -> None:
    with pytest.raises(RequestFailed):
        rules_of(**answer)
