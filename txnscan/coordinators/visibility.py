"""Obligation A: that no transactional id is hidden from this principal.

A listing silently leaves out the ids that its principal may not describe. The ACLs alone do not show which those are:
brokers may build principals and groups in their own ways, rules may hold for one host alone, super users pass by all of
them, and with `allow.everyone.if.no.acl.found` an id is hidden by the mere existence of a rule that allows it to
somebody else. So the broker is asked. It decides about an id by the rules on the id's name, on prefixes of it and on
'*', so all ids to which the same of these apply are decided alike (`StandardAuthorizerData.findAclRule`). One id of
each such class is described: every literal name, a random continuation of every prefix, and a random id to which
nothing but '*' applies. Authorisation comes before all else, so an authorization error means that the class is hidden,
and every other answer of a coordinator that it is not. Each broker has its own copy of the rules; each is asked, before
its listing and after it.

What is asked does not depend on the principal. Which rule hides a class, and what to grant, does: `hidden` takes it.
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
    DESCRIBE_ALL_IDS,
    DESCRIBE_CLUSTER,
    UNKNOWN_PRINCIPAL,
    WILDCARD,
    AclRule,
    denied,
    needing,
)

# A broker answers these for an id only after it has authorised the principal (`handleDescribeTransactionsRequest`).
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

    rules: those on transactional ids, None where the broker did not list them. ids: one id of each class, with the
    permission that allows that class. unknown: why there may be other classes.
    """

    rules: frozenset[AclRule] | None
    ids: Mapping[str, Permission]
    unknown: frozenset[Failure] = frozenset()


@dataclass(frozen=True, slots=True)
class Probed:
    """A broker's answers to one round of probes, as error codes.

    partitions: by `__transaction_state` partition. classes: by the id of each class, None where the answer left it out.
    any_refused: whether any of all the ids may not be described.
    """

    partitions: Mapping[int, int]
    classes: Mapping[str, int | None]
    any_refused: bool


@dataclass(frozen=True, slots=True)
class Visibility:
    """What a broker's answers show about which ids may be described.

    probed: each round of probes that it answered. changed: why there may be new classes since the first probe
    (`changes`).
    """

    classes: Classes
    probed: tuple[Probed, ...] = ()
    changed: frozenset[Failure] = frozenset()


def read_classes(send: Send, broker_id: int, probes: Mapping[str, int]) -> Classes:
    """Which classes of ids there are. Never raises: what failed is in the result.

    probes: random ids, one for each `__transaction_state` partition.
    """
    rules, unknown = _rules(send, broker_id)
    # Without probes there is nothing to prove: no partition of `__transaction_state` was shown.
    if not probes:
        return Classes(rules, {}, unknown)
    try:
        return Classes(rules, class_probes(rules or (), next(iter(probes))), unknown)
    except Unprobed as unprobed:
        # Only rules can leave no random id, so they were read, and nothing else is unknown.
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


def hidden(broker_id: int, seen: Visibility, principal: str) -> tuple[Failure, ...]:
    """Why ids may be missing in this broker's listing; nothing when obligation A holds for it. Pure.

    principal: who asked, where the settings have it.
    """
    classes = seen.classes
    codes = [(name, code) for one in seen.probed for name, code in one.classes.items()]
    refused = {name: classes.ids[name] for name, code in codes if code == _REFUSED}
    unknown = (classes.unknown | seen.changed).union(
        _answered(broker_id, code, classes.ids[name])
        for name, code in codes
        if code != _REFUSED and code not in _AUTHORISED
    )
    why = (*why_hidden(refused, classes.rules or (), principal), *sorted(unknown, key=str))
    # Every random id is of one of the classes. Where one was refused and no class was, the rules have changed.
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
        return None, frozenset({needing(failed.failure, DESCRIBE_CLUSTER)})


class Unprobed(Exception):
    """A class of ids that no random id could be found for; the message is for users."""


def class_probes(rules: Iterable[AclRule], token: str) -> dict[str, Permission]:
    """One id for each class of ids that the rules distinguish, with the permission that allows it. Raises Unprobed.

    token: random, so that no application has an id that ends in it.
    """
    prefixes: set[str] = {""}
    literals: set[str] = set()
    for rule in rules:
        (prefixes if rule.prefixed else literals).add(rule.name)
    found = {name: Permission("Describe", "TransactionalId", name) for name in literals - {WILDCARD, ""}}
    for prefix in prefixes:
        permission = Permission("Describe", "TransactionalId", prefix, prefixed=True) if prefix else DESCRIBE_ALL_IDS
        found[_continued(prefix, prefixes, token)] = permission
    return found


def _continued(prefix: str, prefixes: set[str], token: str) -> str:
    """An id that begins with this prefix, and with no longer one of the prefixes."""
    for lead in ("", *string.ascii_letters):
        name = f"{prefix}{lead}{token}"
        if not any(name[:end] in prefixes for end in range(len(prefix) + 1, len(name) + 1)):
            return name
    raise Unprobed(f"the rules on transactional ids that begin with '{prefix}' are too many to tell apart")


def why_hidden(refused: Mapping[str, Permission], rules: Iterable[AclRule], principal: str) -> tuple[Failure, ...]:
    """What hides these classes of ids from this principal: the rules that deny it, and the permissions that it lacks.

    refused: ids and permissions from `class_probes`. principal: its name, where the settings have it.
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
    # Advise a rule on '*' only where nothing allows all ids yet. Where other ids are visible because no rule is about
    # them (`allow.everyone.if.no.acl.found`), a rule on '*' would hide them from everybody else.
    if DESCRIBE_ALL_IDS in lacking:
        lacking = {DESCRIBE_ALL_IDS}
    missing = {Failure("", _REFUSED.name, needs=permission) for permission in lacking}
    reasons = sorted(rules_against | missing, key=str)
    more = len(reasons) - _REASONS_MAX
    cut = [Failure(f"{more} more rules hide transactional ids", _REFUSED.name)] if more > 0 else []
    return (*reasons[:_REASONS_MAX], *cut)


def _may_be_for(principal: str, rule: AclRule) -> bool:
    """Whether a rule may be for this principal. For advice only: just the broker knows which rules apply."""
    another = rule.principal.startswith("User:") and rule.principal not in (principal, "User:*")
    return principal == UNKNOWN_PRINCIPAL or not another
