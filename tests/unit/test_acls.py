"""What a missing ACL is called, and the command that puts it right."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import lacks
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.failure import Failure, Permission
from txnscan.kafka.security.acls import (
    DESCRIBE_ALL_IDS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    UNKNOWN_PRINCIPAL,
    AclRule,
    denied,
    explained,
    needing,
)

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

KAFKA_ACLS = "kafka-acls.sh --bootstrap-server HOST:PORT --command-config ADMIN.properties"


def rule(**changes: Any) -> AclRule:
    base: dict[str, Any] = {
        "name": "X",
        "prefixed": False,
        "principal": "User:bob",
        "host": "*",
        "operation": 8,
        "deny": True,
    }
    return AclRule(**(base | changes))


@pytest.mark.parametrize(
    ("permission", "name", "options"),
    [
        (Permission("Read", "Topic", "orders"), "Read on Topic 'orders'", "--operation Read --topic orders"),
        (
            DESCRIBE_ALL_IDS,
            "Describe on TransactionalId '*'",
            "--operation Describe --transactional-id '*'",
        ),
        (
            Permission("Describe", "TransactionalId", "app-", prefixed=True),
            "Describe on TransactionalId prefix 'app-'",
            "--operation Describe --transactional-id app- --resource-pattern-type prefixed",
        ),
        (DESCRIBE_CLUSTER, "Describe on Cluster", "--operation Describe --cluster"),
        (DESCRIBE_CONFIGS, "DescribeConfigs on Cluster", "--operation DescribeConfigs --cluster"),
    ],
)
def test_a_missing_permission_is_named_with_the_command_that_grants_it(
    permission: Permission, name: str, options: str, wording: SnapshotAssertion
) -> None:
    sentence = lacks(permission, "User:bob")
    assert name in sentence and f"`{KAFKA_ACLS} --add --allow-principal User:bob {options}`" in sentence
    assert sentence == wording


@pytest.mark.parametrize(
    ("changes", "name", "options"),
    [
        ({}, "Describe on TransactionalId 'X'", "--operation Describe --transactional-id X"),
        (
            {"operation": 2, "prefixed": True, "host": "10.0.0.1"},
            "All on TransactionalId prefix 'X'",
            "--deny-host 10.0.0.1 --operation All --transactional-id X --resource-pattern-type prefixed",
        ),
    ],
)
def test_a_rule_that_denies_is_named_with_the_command_that_removes_it(
    changes: dict[str, Any], name: str, options: str, wording: SnapshotAssertion
) -> None:
    sentence = denied(rule(**changes))
    assert name in sentence and f"`{KAFKA_ACLS} --remove --deny-principal User:bob {options}`" in sentence
    assert sentence == wording


@pytest.mark.parametrize("name", ["it's", "a b", "$(reboot)", "a;b", "*", "x\ny", "--force"])
def test_names_from_the_cluster_stay_one_word_in_a_command(name: str) -> None:
    for sentence in (
        denied(rule(name=name, principal=f"User:{name}")),
        lacks(Permission("Describe", "TransactionalId", name), f"User:{name}"),
    ):
        words = shlex.split(sentence.split("`")[1])
        assert words[words.index("--transactional-id") + 1] == name
        assert f"User:{name}" in words


@pytest.mark.parametrize("code", ["NOT_COORDINATOR", "SASL_AUTHENTICATION_FAILED", "UNREACHABLE"])
def test_an_error_that_no_acl_would_mend_is_left_as_it_is(code: str) -> None:
    error = "broker 1 says something of TOPIC_AUTHORIZATION_FAILED"
    assert explained(needing(Failure(error, code), DESCRIBE_CLUSTER), "User:bob") == error


def test_an_error_for_want_of_an_acl_keeps_its_words_and_says_what_is_wanted() -> None:
    error = "broker 1 answered X with CLUSTER_AUTHORIZATION_FAILED"
    failure = needing(Failure(error, "CLUSTER_AUTHORIZATION_FAILED"), DESCRIBE_CLUSTER)
    assert explained(failure, "User:bob") == f"{error}: {lacks(DESCRIBE_CLUSTER, 'User:bob')}"


def test_what_is_known_to_be_missing_stays_what_it_is() -> None:
    """A log is read by who may read it, and found by who may describe it: what failed first is what to grant."""
    needs = Permission("Describe", "Topic", "t")
    failure = needing(Failure("t: X", "TOPIC_AUTHORIZATION_FAILED"), needs)
    assert needing(failure, Permission("Read", "Topic", "t")) == failure and failure.needs == needs


def test_a_missing_permission_that_is_all_there_is_to_say_stands_alone() -> None:
    assert explained(Failure("", "REFUSED", needs=DESCRIBE_CLUSTER), "User:bob") == lacks(DESCRIBE_CLUSTER, "User:bob")


@pytest.mark.parametrize(
    ("changes", "denies"),
    [
        ({"operation": 8}, True),
        ({"operation": 2}, True),
        ({"operation": 3}, False),
        ({"operation": 4}, False),
        ({"operation": 8, "deny": False}, False),
    ],
    ids=["Describe", "All", "Read", "Write", "allowed"],
)
def test_only_a_denial_of_describe_or_of_all_denies_describe(changes: dict[str, Any], denies: bool) -> None:
    assert rule(**changes).denies_describe == denies


@pytest.mark.parametrize(
    ("changes", "covered", "spared"),
    [
        ({"name": "app"}, ["app"], ["app-1", "ap"]),
        ({"name": "app", "prefixed": True}, ["app", "app-1"], ["ap", "xapp"]),
        ({"name": "*"}, ["app", "*", "anything"], []),
        ({"name": "*", "prefixed": True}, ["*", "*x"], ["app"]),
    ],
)
def test_a_rule_covers_its_name_or_prefix_and_a_literal_star_covers_all(
    changes: dict[str, Any], covered: list[str], spared: list[str]
) -> None:
    assert [name for name in (*covered, *spared) if rule(**changes).covers(name)] == covered


def test_the_scanners_principal_is_its_sasl_user_where_the_settings_have_one() -> None:
    assert ConnectionSettings(sasl_mechanism="PLAIN", sasl_username="bob").principal == "User:bob"
    assert ConnectionSettings().principal == UNKNOWN_PRINCIPAL
