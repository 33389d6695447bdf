"""Logs that take no writes, and markers that will be lost: what every answer about a transaction has of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from txnscan.coordinators.transactions import key_of
from txnscan.explain.answers.transaction_end import due
from txnscan.explain.cause import Numbers, Subject, Told
from txnscan.explain.facts import Facts, PartitionFacts
from txnscan.kafka.answers import IN_TRANSACTION, State
from txnscan.kafka.errors import ErrorCode
from txnscan.waiting.writability import WriteState, WriteStates, claim_of, danger, reason, with_reason

_NAMED_MAX = 5


def with_writes(facts: Facts, states: WriteStates) -> Facts:
    """The facts with these write states, which the explanations of their transactions then tell."""

    def told(one: PartitionFacts) -> PartitionFacts:
        return replace(one, open=tuple(with_reason(judged, states) for judged in one.open))

    pending = tuple(
        replace(one, log=told(one.log), holder=one.holder and with_reason(one.holder, states)) for one in facts.pending
    )
    failures = facts.failures
    if states.no_log is not None:
        # Without a transaction log there are no coordinators, so none of them was missed.
        failures = tuple(one for one in failures if one.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name)
    partitions = tuple(map(told, facts.partitions))
    return replace(facts, writes=states, partitions=partitions, pending=pending, failures=failures)


def completed(f: Facts, s: Subject, told: Told) -> Told:
    """The answer, with the doubts about the transaction's logs, its partitions in danger, and the numbers of both."""
    claim = claim_of(s.judged) if s.judged is not None else None
    one = claim if claim is not None else s.transaction
    if one is None:
        return replace(told, numbers=_with_replicas(f, s.stopped, (), told.numbers))
    keys = [key_of(name) for name in one.partitions]
    blocker = f.blocker_of(one, s.judged)
    in_danger = f.writes.in_danger(one.transactional_id, keys) if one.state in IN_TRANSACTION else ()
    numbers = _with_replicas(f, s.stopped or blocker, in_danger, told.numbers)
    due_text = due(f, one, blocker) if one.state == State.ONGOING else None
    # The explanation of a judged transaction has the doubt already (`with_reason`).
    in_doubt = s.judged is None and blocker is not None and blocker.takes_writes is None
    doubts = [f"{reason(blocker)}."] if in_doubt and blocker is not None else []
    dangers = [danger(state, due_text) for state in in_danger if state is not s.stopped]
    return replace(told, evidence=(*told.evidence, *doubts, *dangers[:_NAMED_MAX]), numbers=numbers)


def _with_replicas(f: Facts, stopped: WriteState | None, in_danger: Iterable[WriteState], numbers: Numbers) -> Numbers:
    no_log = f.writes.no_log
    if no_log is not None:
        numbers = replace(numbers, replication_factor=no_log.factor, brokers=no_log.brokers)
    lost = tuple(one.name for one in in_danger if one.replicas.has_no_leader)
    if stopped is None:
        return replace(numbers, markers_at_risk=lost)
    return replace(
        numbers,
        no_writes=stopped.name if stopped.takes_writes is False else None,
        in_sync_replicas=len(stopped.replicas.in_sync),
        min_in_sync_replicas=stopped.min_in_sync,
        replication_factor=len(stopped.replicas.replicas),
        restore_brokers=stopped.to_restore,
        markers_at_risk=lost,
    )
