"""The obligation visibility: no transactional id is hidden from this principal.

A listing silently leaves out the ids that its principal may not describe. The ACLs alone do not show these ids:
- Brokers may build principals and groups in their own ways.
- A rule may apply to one host only.
- Super users pass all rules.
- With `allow.everyone.if.no.acl.found`, a rule that allows an id to one principal hides the id from principals without
  such a rule.

So the broker is asked. It decides about an id by the rules on the id's name, on prefixes of the name, and on '*'. So
the decision is the same for all ids to which the same of these rules apply (`StandardAuthorizerData.findAclRule`). The
probes describe one id of each such class: every literal name, a random continuation of every prefix, and a random id to
which only '*' applies. A broker checks authorization first. So an authorization error means that the class is hidden,
and any other answer of a coordinator means that it is not. Each broker has its own copy of the rules, so each broker is
probed, before its listing and after it.

The probes do not depend on the principal. The rule that hides a class and the permission to grant do, so
`visibility_failures` takes the principal.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, error_name
from txnscan.kafka.failure import Failure, FailureCode, Permission
from txnscan.kafka.protocol.describe_acls import transactional_id_rules
from txnscan.kafka.protocol.describe_transactions import describe_transactions
from txnscan.kafka.security.acls import (
    UNKNOWN_PRINCIPAL,
    WILDCARD,
    AclRule,
    denied,
    needing,
)
from txnscan.kafka.security.needs import DESCRIBE_CLUSTER, DESCRIBE_IDS

# A broker answers these codes for an id only after it has authorized the principal
# (`handleDescribeTransactionsRequest`).
_AUTHORISED = (
    ErrorCode.NONE,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_REASONS_MAX = 3


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of ids that a broker's rules distinguish.

    rules: on transactional ids, None if the broker did not list them. ids: an id of each class, with the permission
    that allows the class. unknown: why there may be other classes.
    """

    rules: frozenset[AclRule] | None
    ids: Mapping[str, Permission]
    unknown: frozenset[Failure] = frozenset()


@dataclass(frozen=True, slots=True)
class Probed:
    """A broker's answers to one round of probes, as error codes.

    partitions: by `__transaction_state` partition. classes: by the id of each class, None if the answer left it out.
    any_refused: whether the broker refused to describe any of the ids.
    """

    partitions: Mapping[int, int]
    classes: Mapping[str, int | None]
    any_refused: bool


@dataclass(frozen=True, slots=True)
class Visibility:
    """A broker's answers about which ids the principal may describe.

    probed: the rounds of probes that it answered. changed: why there may be new classes since the first probe
    (`changes`).
    """

    classes: Classes
    probed: tuple[Probed, ...] = ()
    changed: frozenset[Failure] = frozenset()


def read_classes(send: Send, broker_id: int, probes: Mapping[str, int]) -> Classes:
    """The classes of ids on a broker. Never raises: the result includes the failure.

    probes: random ids, one for each `__transaction_state` partition.
    """
    rules, unknown = _rules(send, broker_id)
    # Without probes no proof is possible: no partition of `__transaction_state` was visible.
    if not probes:
        return Classes(rules, {}, unknown)
    try:
        return Classes(rules, class_probes(rules or (), next(iter(probes))), unknown)
    except Unprobed as unprobed:
        # Only rules can leave no random id. So the rules were read, and there is no other unknown.
        return Classes(rules, {}, frozenset({Failure(str(unprobed), FailureCode.ACLS_TOO_MANY)}))


def probe(send: Send, broker_id: int, probes: Mapping[str, int], classes: Classes) -> Probed:
    """Describes the random ids and an id of each class, all with one request. Raises RequestFailed."""
    answers = describe_transactions(send, broker_id, {**probes, **classes.ids})
    return Probed(
        {probes[name]: answer.error_code for name, answer in answers.items() if name in probes},
        {name: answers[name].error_code if name in answers else None for name in classes.ids},
        any(answer.error_code == _REFUSED for answer in answers.values()),
    )


def changes(send: Send, broker_id: int, classes: Classes) -> frozenset[Failure]:
    """Why there may be new classes since the first probe, which did not cover them."""
    if classes.rules is None:
        return frozenset()
    rules, unknown = _rules(send, broker_id)
    known = {(rule.name, rule.prefixed) for rule in classes.rules}
    new = rules is not None and any((rule.name, rule.prefixed) not in known for rule in rules)
    return frozenset({_changed(broker_id)}) if new else unknown


def visibility_failures(broker_id: int, seen: Visibility, principal: str) -> tuple[Failure, ...]:
    """Why ids may be missing in this broker's listing. Empty if visibility holds for the broker. Pure.

    principal: the principal that asked, if the settings have it.
    """
    classes = seen.classes
    codes = [(name, code) for one in seen.probed for name, code in one.classes.items()]
    refused = {name: classes.ids[name] for name, code in codes if code == _REFUSED}
    unknown = (classes.unknown | seen.changed).union(
        _answered(broker_id, code, classes.ids[name])
        for name, code in codes
        if code != _REFUSED and code not in _AUTHORISED
    )
    why = (*denials(refused, classes.rules or (), principal), *sorted(unknown, key=str))
    # Every random id is in one of the classes. If a random id was refused and no class was, the rules have changed.
    return why or ((_changed(broker_id),) if any(one.any_refused for one in seen.probed) else ())


def _answered(broker_id: int, code: int | None, asked_for: Permission) -> Failure:
    said = error_name(code) if code is not None else "nothing"
    error = f"broker {broker_id} answered {said} when asked for {asked_for}"
    return Failure(error, FailureCode.LEFT_OUT if code is None else said)


def _changed(broker_id: int) -> Failure:
    changed = f"the ACLs on transactional ids changed while broker {broker_id} was asked"
    return Failure(changed, FailureCode.ACLS_CHANGED)


def _rules(send: Send, broker_id: int) -> tuple[frozenset[AclRule] | None, frozenset[Failure]]:
    try:
        return transactional_id_rules(send, broker_id), frozenset()
    except RequestFailed as failed:
        return None, frozenset({needing(failed.failure, DESCRIBE_CLUSTER.permission)})


class Unprobed(Exception):
    """There is no random id for a class of ids. The message is for users."""


def class_probes(rules: Iterable[AclRule], token: str) -> dict[str, Permission]:
    """One id for each class of ids that the rules distinguish, with the permission that allows it. Raises Unprobed.

    token: random, so that no application has an id that ends in it.
    """
    prefixes: set[str] = {""}
    literals: set[str] = set()
    for rule in rules:
        (prefixes if rule.prefixed else literals).add(rule.name)
    found = {name: DESCRIBE_IDS.on(name) for name in literals - {WILDCARD, ""}}
    for prefix in prefixes:
        permission = DESCRIBE_IDS.on(prefix, prefixed=True) if prefix else DESCRIBE_IDS.permission
        found[_continued(prefix, prefixes, token)] = permission
    return found


def _continued(prefix: str, prefixes: set[str], token: str) -> str:
    """An id that begins with this prefix, and with no longer prefix of the rules."""
    for lead in ("", *string.ascii_letters):
        name = f"{prefix}{lead}{token}"
        if not any(name[:end] in prefixes for end in range(len(prefix) + 1, len(name) + 1)):
            return name
    raise Unprobed(f"the rules on transactional ids that begin with '{prefix}' are too many to tell apart")


def denials(refused: Mapping[str, Permission], rules: Iterable[AclRule], principal: str) -> tuple[Failure, ...]:
    """The rules that deny these classes of ids to this principal, and the permissions that it lacks.

    refused: ids and permissions from `class_probes`. principal: its name, if the settings have it.
    """
    denying = sorted(
        (rule for rule in rules if rule.denies_describe and _may_be_for(principal, rule)),
        key=lambda rule: (rule.principal != principal, rule.name, rule.host),
    )
    rules_against, lacking = set(), set()
    for name, permission in refused.items():
        rule = next((rule for rule in denying if rule.covers(name)), None)
        if rule is not None:
            rules_against.add(Failure(denied(rule), _REFUSED.name))
        else:
            lacking.add(permission)
    # Suggest a rule on '*' only if no rule allows all ids yet. If other ids are visible because there is no rule about
    # them (`allow.everyone.if.no.acl.found`), a rule on '*' would hide them from all other principals.
    if DESCRIBE_IDS.permission in lacking:
        lacking = {DESCRIBE_IDS.permission}
    missing = {Failure("", _REFUSED.name, needs=permission) for permission in lacking}
    reasons = sorted(rules_against | missing, key=str)
    more = len(reasons) - _REASONS_MAX
    cut = [Failure(f"{more} more rules hide transactional ids", _REFUSED.name)] if more > 0 else []
    return (*reasons[:_REASONS_MAX], *cut)


def _may_be_for(principal: str, rule: AclRule) -> bool:
    """Whether a rule may be for this principal. Only for advice: only the broker knows which rules apply."""
    another = rule.principal.startswith("User:") and rule.principal not in (principal, "User:*")
    return principal == UNKNOWN_PRINCIPAL or not another
