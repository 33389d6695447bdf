"""Whether the logs that open transactions need for their end take writes, in a sweep. No verdict depends on it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice

from txnscan.coordinators.agreed_metadata import AgreedMetadata
from txnscan.coordinators.cluster import Cluster
from txnscan.coordinators.transactions import Transaction, key_of, list_on
from txnscan.kafka.answers import IN_TRANSACTION
from txnscan.kafka.failure import Unobserved
from txnscan.kafka.protocol.list_transactions import ListingFilter
from txnscan.kafka.topology import NO_LEADER_ID, Key, Topic
from txnscan.kafka.units import duration, plural
from txnscan.sweeps.state import AllRead, Run
from txnscan.verdict.evidence import Judged, Verdict
from txnscan.verdict.predicates import TWO_PHASE_COMMIT_TIMEOUT_MS
from txnscan.waiting.blocking import timeout_end_ms
from txnscan.waiting.in_sync import read_write_states
from txnscan.waiting.writability import (
    UNREAD,
    WriteState,
    WriteStates,
    claim_of,
    doubt_warning,
    log_warning,
    partition_warning,
    remedy,
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
    states, in_danger = read_in_danger(run.cluster, asked, wanted, leaderless, run.now_ms)
    warnings = (log_warning(states), partition_warning(states.stopped), doubt_warning(states), in_danger)
    return [with_reason(one, states) for one in judged], states, tuple(one for one in warnings if one is not None)


def read_in_danger(
    cluster: Cluster, asked: int, keys: Collection[Key], leaderless: Collection[Key], now_ms: Callable[[], int]
) -> tuple[WriteStates, str | None]:
    """The write states of the transaction log and of these partitions; and a warning about ids in a transaction that
    list a partition without a leader. asked: see `read_write_states`. leaderless: all partitions without a leader.
    """
    ids = _in_transaction(cluster, leaderless, now_ms)
    states = read_write_states(cluster, asked, {*keys, *(leaderless if ids else ())})
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
    clauses = []
    for one in sorted(ids, key=lambda each: (each.start_time_ms or 0, each.transactional_id)):
        dropped = states.in_danger(one.transactional_id, _keys_of(one))
        listed = [each for each in map(states.partitions.get, _keys_of(one)) if each is not None]
        clauses += [_clause(now_ms, one, each, each in dropped) for each in listed if each.replicas.has_no_leader]
    if not clauses:
        return None
    more = len(clauses) - _IDS_NAMED_MAX
    return "; ".join(clauses[:_IDS_NAMED_MAX]) + (f"; and {plural(more, 'more partition')} like it" if more > 0 else "")


def _clause(now_ms: int, one: Transaction, state: WriteState, is_dropped: bool) -> str:
    what = f"'{one.transactional_id}' has a transaction open on {state.name}, which has no leader"
    if not is_dropped:
        return f"{what}: it cannot end there before the partition has one. {remedy(state)}"
    by_ms = timeout_end_ms(one.start_time_ms, one.timeout_ms)
    due = "it ends"
    if by_ms is not None:
        due = f"that, at the latest in {duration(by_ms - now_ms)}" if by_ms > now_ms else "that, at any moment"
    elif one.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS:
        due = "its external coordinator ends it"
    return (
        f"{what}: when it ends, its coordinator drops the marker there, and the partition hangs (KAFKA-20734). "
        f"{remedy(state)}, before {due}"
    )
