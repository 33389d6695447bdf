"""Obligation A: that no transactional id is hidden from this principal.

A listing leaves out, without a word, the ids that its principal may not describe. Which those are is not worked out
here from the ACLs: brokers may build principals and groups in their own ways, rules may hold for one host alone, super
users pass by all of them, and with `allow.everyone.if.no.acl.found` an id is hidden by the mere existence of a rule
that allows it to somebody else. Instead the broker is asked. It decides about an id by the rules on the id's name, on
prefixes of it and on '*', so all ids to which the same of these apply are decided alike (`StandardAuthorizerData.
findAclRule`). One id of each such class is described: every literal name, a random continuation of every prefix, and a
random id to which nothing but '*' applies. Authorisation comes before all else, so an authorization error says that the
class is hidden, and every other answer of a coordinator that it is not. Each broker has its own copy of the rules; each
is asked, before its listing and after it.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping

from txnscan.kafka.acls import (
    DESCRIBE_ALL_IDS,
    DESCRIBE_CLUSTER,
    UNKNOWN_PRINCIPAL,
    WILDCARD,
    AclRule,
    Permission,
    denied,
    explained,
    lacks,
)
from txnscan.kafka.client import Send
from txnscan.kafka.describe_acls import transactional_id_rules
from txnscan.kafka.describe_transactions import describe_transactions
from txnscan.kafka.errors import ErrorCode, RequestFailed, error_name

# A broker answers these for an id only after it has authorised the principal (`handleDescribeTransactionsRequest`).
_AUTHORISED = (
    ErrorCode.NONE,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_TOLD_MAX = 3


class Sight:
    """What one broker lets this principal see: the rules that it knows, and its answers to the probes.

    probes: random ids, one for each `__transaction_state` partition. principal: the scanner's name, for advice.
    """

    def __init__(self, send: Send, broker_id: int, probes: Mapping[str, int], principal: str) -> None:
        self._send = send
        self._broker_id = broker_id
        self._probes = probes
        self._principal = principal
        self._rules: frozenset[AclRule] | None = None
        self._classes: Mapping[str, Permission] = {}
        self._refused: set[str] = set()
        self._any_refused = False
        self._unknown: set[str] = set()

    def read_rules(self) -> None:
        """Which classes of ids there are. What fails is told by `hidden`."""
        self._rules = self._ask_rules()
        try:
            # Without probes there is nothing to prove: no partition of `__transaction_state` was shown.
            if self._probes:
                self._classes = class_probes(self._rules or (), next(iter(self._probes)))
        except Unprobed as unprobed:
            self._unknown.add(str(unprobed))

    def probe(self) -> dict[int, int]:
        """The answers to the probes, error code by `__transaction_state` partition. Raises RequestFailed.

        An id of each class is asked for with them.
        """
        answers = describe_transactions(self._send, self._broker_id, {**self._probes, **self._classes})
        if any(answer.error_code == _REFUSED for answer in answers.values()):
            self._any_refused = True
        for name, permission in self._classes.items():
            code = answers[name].error_code if name in answers else None
            if code == _REFUSED:
                self._refused.add(name)
            elif code not in _AUTHORISED:
                said = error_name(code) if code is not None else "nothing"
                self._unknown.add(f"broker {self._broker_id} answered {said} when asked for {permission}")
        return {self._probes[name]: answer.error_code for name, answer in answers.items() if name in self._probes}

    def compare_rules(self) -> None:
        """Rules that came after the probes may have hidden what these could not show. What fails is in `hidden`."""
        if self._rules is None or (rules := self._ask_rules()) is None:
            return
        known = {(rule.name, rule.prefixed) for rule in self._rules}
        if any((rule.name, rule.prefixed) not in known for rule in rules):
            self._unknown.add(self._changed)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Why ids may be missing in this broker's listing, in sentences; none when obligation A holds for it."""
        refused = {name: self._classes[name] for name in self._refused}
        why = (*why_hidden(refused, self._rules or (), self._principal), *sorted(self._unknown))
        # Every random id is of one of the classes: of one that was hidden for a moment, where none was refused.
        return why or ((self._changed,) if self._any_refused else ())

    @property
    def _changed(self) -> str:
        return f"the ACLs on transactional ids changed while broker {self._broker_id} was asked"

    def _ask_rules(self) -> frozenset[AclRule] | None:
        try:
            return transactional_id_rules(self._send, self._broker_id)
        except RequestFailed as failed:
            self._unknown.add(explained(failed.error, failed.code, DESCRIBE_CLUSTER, self._principal))
            return None


class Unprobed(Exception):
    """A class of ids that no random id could be found for; the message is for users."""


def class_probes(rules: Iterable[AclRule], token: str) -> dict[str, Permission]:
    """One id for each class of ids that the rules tell apart, with what allows that class. Raises Unprobed.

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
    """An id that begins with this prefix and with no longer one."""
    for lead in ("", *string.ascii_letters):
        name = f"{prefix}{lead}{token}"
        if not any(name[:end] in prefixes for end in range(len(prefix) + 1, len(name) + 1)):
            return name
    raise Unprobed(f"the rules on transactional ids that begin with '{prefix}' are too many to tell apart")


def why_hidden(refused: Mapping[str, Permission], rules: Iterable[AclRule], principal: str) -> tuple[str, ...]:
    """What hides these classes of ids from this principal, in sentences, each with the command that puts it right.

    refused: as `class_probes` gives them. principal: its name as far as the settings tell.
    """
    denying = sorted(
        (rule for rule in rules if rule.denies_describe and _may_be_for(principal, rule)),
        key=lambda rule: (rule.principal != principal, rule.name, rule.host),
    )
    sentences, lacking = set(), set()
    for name, permission in refused.items():
        rule = next((rule for rule in denying if rule.covers(name)), None)
        if rule is not None:
            sentences.add(denied(rule))
        else:
            lacking.add(permission)
    # Only where nothing allows all ids. Where the others are seen because no rule is about them
    # (`allow.everyone.if.no.acl.found`), a rule on '*' would take them from everybody else.
    if DESCRIBE_ALL_IDS in lacking:
        lacking = {DESCRIBE_ALL_IDS}
    told = sorted(sentences | {lacks(permission, principal) for permission in lacking})
    more = len(told) - _TOLD_MAX
    return (*told[:_TOLD_MAX], f"{more} more rules hide transactional ids") if more > 0 else tuple(told)


def _may_be_for(principal: str, rule: AclRule) -> bool:
    """Whether a rule is the likely reason, for advice alone: which rules hold for it, only the broker knows."""
    another = rule.principal.startswith("User:") and rule.principal not in (principal, "User:*")
    return principal == UNKNOWN_PRINCIPAL or not another
