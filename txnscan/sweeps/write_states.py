"""Whether the logs that open transactions need for their end take writes, in a sweep. No verdict depends on it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from txnscan.coordinators.agreed_metadata import AgreedMetadata
from txnscan.coordinators.cluster import Cluster
from txnscan.coordinators.transactions import Transaction, key_of, list_on
from txnscan.kafka.answers import IN_TRANSACTION, State
from txnscan.kafka.failure import Failure, FailureCode, Unobserved
from txnscan.kafka.protocol.list_transactions import ListingFilter
from txnscan.kafka.topology import NO_LEADER_ID, Key, Topic
from txnscan.kafka.units import duration, first_of
from txnscan.sweeps.state import AllRead, Run
from txnscan.verdict.evidence import Judged, Verdict
from txnscan.waiting.blocking import aborts_by_ms
from txnscan.waiting.in_sync import read_behind_last, read_write_states
from txnscan.waiting.writability import (
    UNREAD,
    WriteState,
    WriteStates,
    claim_of,
    doubt_warning,
    log_warning,
    partition_warning,
    remedy_of,
    with_reason,
)

# A listing comes in lists of 1,000 ids. So many lists of each broker are searched for partitions without a leader.
_LISTS_MAX = 10
_IDS_NAMED_MAX = 5


def read_for(
    run: Run, everything: AllRead, judged: Sequence[Judged], live: Iterable[Judged], agreed: AgreedMetadata
) -> tuple[list[Judged], WriteStates, tuple[str, ...]]:
    """The same transactions, each explained by the write states; these; and warnings about them.

    live: the live transactions that the sweep looks at. agreed: the metadata after the second read.
    """
    asked = agreed.views[0].answered_by if agreed.views else None
    leaderless = leaderless_in(everything.topics)
    if asked is None or not (judged or leaderless):
        return [*judged], UNREAD, ()
    wanted = _keys(judged, live)
    states, in_danger = read_in_danger(run.cluster, asked, wanted, leaderless, run.now_ms, _silent(agreed))
    if run.reads_stops:
        opened = {key: len(row.open_producers) for key, row in everything.suspects.items()}
        states = replace(states, behind_last=read_behind_last(run.cluster, asked, opened))
    warnings = (log_warning(states), partition_warning(states.stopped), doubt_warning(states), in_danger)
    explained = [with_reason(one, states) for one in judged] if states.stopped or states.doubtful else [*judged]
    return explained, states, tuple(one for one in warnings if one is not None)


def _silent(agreed: AgreedMetadata) -> dict[int, Failure]:
    """The brokers that did not answer the last questions for metadata, and why."""
    unseen = (*agreed.errors, *agreed.unheard)
    return {
        one.broker: one.failure
        for one in unseen
        if one.broker is not None and one.failure.code != FailureCode.BROKER_BEHIND
    }


def read_in_danger(
    cluster: Cluster,
    asked: int,
    keys: Collection[Key],
    leaderless: Collection[Key],
    now_ms: Callable[[], int],
    silent: Mapping[int, Failure] | None = None,
) -> tuple[WriteStates, str | None]:
    """The write states of the transaction log and of these partitions; and a warning about ids in a transaction that
    list a partition without a leader. asked: see `read_write_states`. leaderless: all partitions without a leader.
    silent: see `read_write_states`.
    """
    ids = _in_transaction(cluster, leaderless, now_ms)
    states = read_write_states(cluster, asked, {*keys, *(leaderless if ids else ())}, silent=silent)
    found = [state for one in ids for state in states.in_danger(one.transactional_id, _keys_of(one))]
    at_risk = frozenset(state.replicas.key for state in found if state.replicas.has_no_leader)
    return replace(states, at_risk=at_risk), _danger_warning(now_ms(), ids, states)


def _keys(judged: Iterable[Judged], live: Iterable[Judged]) -> set[Key]:
    """The partitions of transactions that need a marker now, or soon: hanging, decided, overdue, or old."""
    wanted = (Verdict.HANGING, Verdict.PENDING_MARKER, Verdict.LATE_ONGOING)
    chosen = [*live, *(one for one in judged if one.judgement.verdict in wanted)]
    claims = (claim_of(one) for one in chosen)
    listed = {key_of(name) for claim in claims if claim is not None for name in claim.partitions}
    return {one.observation.key for one in chosen} | listed


def leaderless_in(topics: Iterable[Topic]) -> set[Key]:
    """The partitions of these topics that have no leader."""
    return {
        (topic.name, index)
        for topic in topics
        if NO_LEADER_ID in topic.leaders
        for index, leader in zip(topic.indexes, topic.leaders, strict=True)
        if leader == NO_LEADER_ID
    }


def _in_transaction(cluster: Cluster, leaderless: Collection[Key], now_ms: Callable[[], int]) -> list[Transaction]:
    """The ids in a transaction that list one of these partitions. A sweep does not know them: it sees no open
    transaction on a partition without a leader.
    """
    wanted = frozenset(leaderless)

    def ask(broker_id: int) -> list[Transaction]:
        found: list[Transaction] = []
        listed = list_on(cluster.send, broker_id, ListingFilter(states=tuple(IN_TRANSACTION)), now_ms)
        for some in islice(listed, _LISTS_MAX):
            if not isinstance(some, Unobserved):
                found += (one for one in some if not wanted.isdisjoint(_keys_of(one)))
        return found

    asked = cluster.broker_ids if leaderless else ()
    return [one for found in cluster.in_parallel(ask, asked) for one in found]


def _keys_of(one: Transaction) -> list[Key]:
    return [key_of(name) for name in one.partitions]


def _danger_warning(now_ms: int, ids: Iterable[Transaction], states: WriteStates) -> str | None:
    """One warning about the partitions without a leader that ids in a transaction list. None if there are none."""
    dropped: list[tuple[WriteState, Transaction]] = []
    waiting: list[tuple[WriteState, Transaction]] = []
    for one in sorted(ids, key=lambda each: (each.start_time_ms or 0, each.transactional_id)):
        in_danger = states.in_danger(one.transactional_id, _keys_of(one))
        listed = [each for each in map(states.partitions.get, _keys_of(one)) if each is not None]
        for state in (each for each in listed if each.replicas.has_no_leader):
            (dropped if state in in_danger else waiting).append((state, one))
    said = []
    if dropped:
        named = [f"{state.name} of '{one.transactional_id}' ({_due(now_ms, one, states)})" for state, one in dropped]
        what = "partitions without a leader will hang when a transaction ends, because its coordinator drops the marker"
        said.append(f"{what} there (KAFKA-20734): {first_of(named, _IDS_NAMED_MAX)}. Before that: {_start(dropped)}")
    if waiting:
        where = first_of([f"{state.name} of '{one.transactional_id}'" for state, one in waiting], _IDS_NAMED_MAX)
        said.append(f"transactions cannot end on partitions without a leader: {where}. {_start(waiting)}")
    return "; ".join(said) or None


def _due(now_ms: int, one: Transaction, states: WriteStates) -> str:
    """When the transaction ends."""
    blocker = states.blocker(one.transactional_id, one.state, _keys_of(one))
    if blocker is not None:
        return f"not before {blocker.name} takes writes"
    by_ms = aborts_by_ms(one.start_time_ms, one.timeout_ms, blocker)
    if one.state == State.ONGOING and by_ms is not None and by_ms > now_ms:
        return f"at the latest in {duration(by_ms - now_ms)}"
    return "by its external coordinator" if one.two_phase_commit else "at any moment"


def _start(lost: Iterable[tuple[WriteState, Transaction]]) -> str:
    """The remedy for these partitions."""
    return remedy_of([state for state, _ in lost])
