"""What transactions block: groups, streaming queries, and the cleaning of their topics. Pure except for `send`.

No proof depends on this. It sends requests only if a transaction hangs, or if a live one has been open for long
(`waiting/blocking.py`). Failed reads are reported with the results, and change no verdict. Limits keep the requests
few, and hanging transactions come first. `relation.py` decides who waits.

Lag is measured to the high watermark. A read_committed client measures it up to the last stable offset, and sees no
lag.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol, TypeVar

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.protocol.describe_configs import Cleaning, topic_cleaning
from txnscan.kafka.security.acls import needing
from txnscan.kafka.security.needs import CONFIGS_OF_TOPICS, READ_TOPICS
from txnscan.kafka.topology import (
    CONSUMER_OFFSETS_TOPIC,
    GROUP_TOPICS,
    SHARE_GROUP_STATE_TOPIC,
    ClusterView,
    Key,
    Partition,
)
from txnscan.kafka.units import plural
from txnscan.reads.observation import Observation, TransactionKey
from txnscan.txnlog.facts import LoggedTransaction
from txnscan.verdict.evidence import Judged, Verdict
from txnscan.waiting.cause import cause_of
from txnscan.waiting.checkpoint import Positions
from txnscan.waiting.delivered import Starved, starved
from txnscan.waiting.groups import CONNECT, GroupAnswers, ask_broker, hidden_groups
from txnscan.waiting.impact import BlockedGroup, BlockedReader, BlockReason, CarriedImpact, Impact
from txnscan.waiting.owner import NO_OWNERS, Owner, live_owner_of, owner_of
from txnscan.waiting.relation import Blocked, NotBlocked, One, Pair, kept, relation

Item = TypeVar("Item")
Result = TypeVar("Result")

# The limit of partitions to ask groups about, and of those to read for queries further back. Partitions with hanging
# transactions come first, and of these the partitions with the most blocked records.
PARTITIONS_MAX = 100
# The limit of partitions with live transactions to ask groups about. Each sweep may ask about them, so it is lower.
LIVE_PARTITIONS_MAX = 50
# The limit of live transactions on `__consumer_offsets` to ask about: a broker returns up to 4 MB for each.
LIVE_ON_OFFSETS_MAX = 10
_REASONS_MAX = 5


class InParallel(Protocol):
    """Calls the function on each item, possibly in parallel, and returns the results in order."""

    def __call__(self, call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]: ...


@dataclass(frozen=True, slots=True)
class Blockage:
    """The blocked groups and queries by transaction, and the cleaning by topic.

    queries: empty if no checkpoint was named. connect_groups: the listed groups of Kafka Connect's workers. unknown:
    why groups may be missing, with the reasons of a transaction together. unread: why queries may be missing.
    cleaning_failure: why the cleaning of a topic is not known.
    """

    groups: Mapping[TransactionKey, Blocked[BlockedGroup]]
    queries: Mapping[TransactionKey, Blocked[BlockedReader]]
    cleaning: Mapping[str, Cleaning]
    connect_groups: frozenset[str]
    unknown: tuple[tuple[Failure, ...], ...] = ()
    unread: tuple[Failure, ...] = ()
    cleaning_failure: Failure | None = None

    def warnings(self, format_failure: Callable[[Failure], str]) -> tuple[str, ...]:
        """The failed reads, as sentences. format_failure: puts a failure into words."""
        of_groups = joined_reasons(_said(failures, format_failure) for failures in self.unknown)
        of_queries = joined_reasons(f"{failure} ({failure.code})" for failure in self.unread)
        cleaning = format_failure(self.cleaning_failure) if self.cleaning_failure is not None else ""
        said = (
            ("groups that wait for a transaction may be missing", of_groups),
            ("the effect on compaction and retention is not known for every topic", cleaning),
            ("streaming queries that wait for a transaction may be missing", of_queries),
        )
        return tuple(f"{what}: {why}" for what, why in said if why)


def read_blockage(
    send: Send,
    in_parallel: InParallel,
    view: ClusterView,
    hanging: Sequence[Judged],
    *,
    random_token: Callable[[], str],
    live: Sequence[Judged] = (),
    positions: Positions | None = None,
) -> Blockage:
    """What these hanging and live transactions block.

    view: the newest Metadata. random_token: makes a name that no group has, to test whether groups may be invisible.
    live: the first of them are asked about if not all can be. positions: the streaming queries, None if no checkpoint
    was named.
    """
    every, broker_ids = [*hanging, *live], [broker.broker_id for broker in view.brokers]
    topics = sorted({judged.observation.topic for judged in every})
    cleaning, cleaning_failure = read_topic_cleaning(send, view.answered_by, topics)
    offsets_partitions = sum(len(one.indexes) for one in view.topics if one.name == CONSUMER_OFFSETS_TOPIC)
    live_on_offsets = _on_offsets(live)
    of_offsets = [j.observation for j in (*_on_offsets(hanging), *live_on_offsets[:LIVE_ON_OFFSETS_MAX])]
    of_hanging, of_live = _waited_for(hanging), _waited_for(live)
    hanging_keys, live_keys = _keys(of_hanging), _keys(of_live)
    asked_keys = list(dict.fromkeys((*hanging_keys, *live_keys[:LIVE_PARTITIONS_MAX])))[:PARTITIONS_MAX]
    hidden = hidden_groups(send, broker_ids, random_token())

    def ask(broker_id: int) -> GroupAnswers:
        here = [o for o in of_offsets if o.leader == broker_id]
        return ask_broker(send, broker_id, asked_keys, here, offsets_partitions)

    # The leader of a partition of __consumer_offsets coordinates the groups of that partition. Any broker may
    # coordinate the groups that read other topics.
    brokers = sorted(broker_ids) if asked_keys else sorted({o.leader for o in of_offsets})
    answers = in_parallel(ask, brokers)
    of_all = [*([hidden] if hidden else []), *(error for one in answers for error in one.errors)]
    asked = sum(one.failure is None for answer in answers for one in answer.offsets.values())
    groups, queries = _readers(answers, positions)
    reads = _read_logs(
        send, in_parallel, [*of_hanging, *of_live], lambda key: (*groups.get(key, ()), *queries.get(key, ()))
    )
    withheld = {which: blocked for answer in answers for which, blocked in answer.blocked.items()}
    found: dict[TransactionKey, Blocked[BlockedGroup]] = {}
    unread: list[Failure] = []
    for judged in every:
        which, key = judged.observation.transaction_key, judged.observation.key
        if which in withheld:
            found[which] = withheld[which]
        elif which.topic == SHARE_GROUP_STATE_TOPIC:
            found[which] = Blocked(unknown=(_SHARES_MAY_WAIT,))
        elif key in asked_keys and judged.holds_lso:
            waiting, failures = _waiting(judged, groups.get(key, ()), reads.get(which, Starved()))
            found[which] = kept(waiting, [*of_all, *failures], asked=asked)
            unread += failures
        else:
            found[which] = Blocked(unknown=(_why_not_asked(judged),))
    of_shares = [j.observation for j in hanging if j.observation.topic == SHARE_GROUP_STATE_TOPIC]
    cut = [
        *_cut(sum(key not in asked_keys for key in hanging_keys), "partition", "with a hanging transaction"),
        *_cut(sum(key not in asked_keys for key in live_keys), "partition", "with a live transaction"),
        *_cut(len(live_on_offsets) - LIVE_ON_OFFSETS_MAX, "live transaction", f"on {CONSUMER_OFFSETS_TOPIC}"),
    ]
    of_one = [one.unknown for one in withheld.values() if one.unknown]
    alone = [*(_SHARES_MAY_WAIT.within(o.topic_partition) for o in of_shares), *unread, *cut]
    return Blockage(
        found,
        _blocked_queries(every, queries, reads, positions.failures) if positions is not None else {},
        cleaning,
        frozenset(g.group for a in answers for g in a.listed if g.protocol_type == CONNECT),
        (*((failure,) for failure in of_all), *of_one, *((failure,) for failure in alone)),
        positions.failures if positions is not None else (),
        cleaning_failure,
    )


def impact_of(
    judged: Judged,
    blockage: Blockage,
    logged: Sequence[LoggedTransaction],
    carried: CarriedImpact | None,
    topics: Collection[str],
    own: Mapping[str, str] = NO_OWNERS,
) -> Impact:
    """The impact of one hanging transaction.

    logged: the records that `__transaction_state` still has of the ids that ever had its producer id; empty if they
    were not read. carried: the impact that earlier sweeps passed on. topics: the names of the cluster's topics.
    own: by id, the owner by the user's own patterns.
    """
    cause, reason = cause_of(judged, logged, (carried.cause, carried.cause_reason) if carried is not None else None)
    owner = owner_of(
        judged,
        logged,
        blockage.connect_groups,
        topics,
        earlier_id=carried.owner_id if carried is not None else None,
        own=own,
    )
    unmoved = carried is not None and carried.last_stable_offset == judged.observation.second.last_stable_offset
    since_ms = carried.lso_since_ms if carried is not None and unmoved else None
    return replace(_blocked(judged, blockage, owner), cause=cause, cause_reason=reason, lso_since_ms=since_ms)


def live_impact_of(
    judged: Judged,
    blockage: Blockage,
    topics: Collection[str],
    own: Mapping[str, str] = NO_OWNERS,
) -> Impact:
    """The impact of one live transaction. topics, own: see `impact_of`."""
    return _blocked(judged, blockage, live_owner_of(judged, blockage.connect_groups, topics, own))


def _blocked(judged: Judged, blockage: Blockage, owner: Owner) -> Impact:
    """The impact without a cause."""
    which = judged.observation.transaction_key
    groups, queries = blockage.groups.get(which, Blocked()), blockage.queries.get(which)
    cleaning = blockage.cleaning.get(which.topic, Cleaning())
    deleted = "delete" in (cleaning.cleanup_policy or "").split(",") and not cleaning.tiered
    return Impact(
        cause=None,
        cause_reason=None,
        owner=owner,
        groups=groups.readers,
        groups_blocked=groups.known_count,
        groups_asked=groups.asked,
        groups_error=_said(groups.unknown, str) or None,
        cleanup_policy=cleaning.cleanup_policy,
        tiering_blocked=cleaning.tiered if cleaning.cleanup_policy is not None else None,
        retention_ms=cleaning.retention_ms if deleted else None,
        readers=queries.readers if queries is not None else None,
        readers_blocked=queries.known_count if queries is not None else None,
        readers_error=(_said(queries.unknown, str) or None) if queries is not None else None,
    )


def read_partitions(transactions: Iterable[Judged]) -> frozenset[Key]:
    """The partitions on which offsets of streaming queries matter for these transactions."""
    return frozenset(j.observation.key for j in transactions if j.observation.topic not in GROUP_TOPICS)


_SHARES_MAY_WAIT = Failure("share groups may wait, and their names are not known", FailureCode.NOT_ASKED)
_NO_LSO = Failure("the last stable offset is not known", FailureCode.NOT_ASKED)
_NOT_FIRST = Failure("another open transaction starts before it", FailureCode.NOT_ASKED)


def _why_not_asked(judged: Judged) -> Failure:
    limit = f"only {PARTITIONS_MAX} partitions"
    if judged.observation.topic == CONSUMER_OFFSETS_TOPIC:
        limit = f"at most {LIVE_ON_OFFSETS_MAX} live transactions on {CONSUMER_OFFSETS_TOPIC}"
    elif judged.holds_lso is None:
        return _NO_LSO
    elif not judged.holds_lso:
        return _NOT_FIRST
    elif judged.judgement.verdict is not Verdict.HANGING:
        limit = f"at most {LIVE_PARTITIONS_MAX} partitions with live transactions"
    return Failure(f"groups were asked about {limit}", FailureCode.NOT_ASKED)


def _cut(more: int, what: str, which: str) -> list[Failure]:
    cut = f"no group was asked about {plural(more, f'more {what}')} {which}"
    return [Failure(cut, FailureCode.NOT_ASKED)] if more > 0 else []


def _on_offsets(transactions: Iterable[Judged]) -> list[Judged]:
    return [judged for judged in transactions if judged.observation.topic == CONSUMER_OFFSETS_TOPIC]


def _waited_for(transactions: Iterable[Judged]) -> list[Judged]:
    """Those that hold a last stable offset that consumers wait for, with the most blocked records first."""
    found = [j for j in transactions if j.observation.topic not in GROUP_TOPICS and j.holds_lso]
    return sorted(found, key=lambda judged: -(judged.blocked_records or 0))


def _keys(transactions: Iterable[Judged]) -> list[Key]:
    return list(dict.fromkeys(one.observation.key for one in transactions))


# --- readers of records -----------------------------------------------------------------------------------------------


def _readers(
    answers: Iterable[GroupAnswers], positions: Positions | None
) -> tuple[Mapping[Key, Sequence[BlockedGroup]], Mapping[Key, Sequence[BlockedReader]]]:
    """The groups and the queries that have an offset on each partition, as if they waited there."""
    groups: dict[Key, list[BlockedGroup]] = defaultdict(list)
    queries: dict[Key, list[BlockedReader]] = defaultdict(list)
    for broker in answers:
        for group in broker.listed:
            offsets = broker.offsets.get(group.group)
            for key, offset in offsets.committed.items() if offsets is not None else ():
                groups[key].append(BlockedGroup(group.group, BlockReason.AT_LSO, group.state, offset))
    for query in positions.queries if positions is not None else ():
        about = (query.stream_id, query.path, BlockReason.AT_LSO, query.batch_id, query.committed)
        for key, several in query.batch.offsets.items():
            queries[key] += [BlockedReader(*about, query.batch.timestamp_ms, offset, 0) for offset in several]
    return groups, queries


def _next_offset(reader: BlockedGroup | BlockedReader) -> int:
    return reader.next_offset if isinstance(reader, BlockedReader) else reader.committed_offset or 0


def _read_logs(
    send: Send,
    in_parallel: InParallel,
    firsts: Iterable[Judged],
    readers: Callable[[Key], Iterable[BlockedGroup | BlockedReader]],
) -> Mapping[TransactionKey, Starved]:
    """What readers further back than the last stable offset get before it. One read of a partition is for all of its
    readers. firsts: the transactions that hold a last stable offset, those to read first at the start.
    """

    def read(o: Observation) -> Starved:
        partition = Partition(o.topic, o.topic_id, o.partition, o.leader, o.leader_epoch)
        return starved(send, partition, wanted[o], o.second.last_stable_offset or 0)

    wanted = {}
    for o in (judged.observation for judged in firsts):
        lso = o.second.last_stable_offset or 0
        if behind := frozenset(offset for offset in map(_next_offset, readers(o.key)) if offset < lso):
            wanted[o] = behind
    every = list(wanted)
    found = dict(zip((o.transaction_key for o in every), in_parallel(read, every[:PARTITIONS_MAX]), strict=False))
    cut = {o.transaction_key: Starved(unknown=wanted[o], failure=_CUT) for o in every[PARTITIONS_MAX:]}
    return {**found, **cut}


_CUT = RequestFailed(f"only {PARTITIONS_MAX} partitions are read for streaming queries", FailureCode.NOT_ASKED)


def _waiting(judged: Judged, readers: Iterable[One], read: Starved) -> tuple[list[One], tuple[Failure, ...]]:
    """Those of the readers of its partition that wait for the transaction; and why there may be more."""
    o = judged.observation
    lso, high_watermark = o.second.last_stable_offset, o.second.high_watermark
    if lso is None or high_watermark is None:
        return [], (_NO_LSO,)
    if not judged.holds_lso:
        return [], (_NOT_FIRST,)

    @cache
    def answer(offset: int) -> BlockReason | NotBlocked:
        delivers = read.delivers(offset)
        return relation(Pair(is_first=True, last_stable_offset=lso, next_offset=offset, delivers=delivers))

    at = [(reader, _next_offset(reader)) for reader in readers]
    waiting = [
        replace(reader, lag=max(high_watermark - offset, 0))
        for reader, offset in at
        if answer(offset) is BlockReason.AT_LSO
    ]
    if read.failure is None or all(answer(offset) is not NotBlocked.UNKNOWN for _, offset in at):
        return waiting, ()
    return waiting, (needing(read.failure.failure, READ_TOPICS.permission).within(o.topic_partition),)


def _blocked_queries(
    transactions: Iterable[Judged],
    queries: Mapping[Key, Sequence[BlockedReader]],
    reads: Mapping[TransactionKey, Starved],
    unknown: Iterable[Failure],
) -> dict[TransactionKey, Blocked[BlockedReader]]:
    """The queries that each of these transactions blocks. Applications read no records of the topics of groups."""
    found = {}
    for judged in transactions:
        which, key = judged.observation.transaction_key, judged.observation.key
        if which.topic not in GROUP_TOPICS:
            waiting, failures = _waiting(judged, queries.get(key, ()), reads.get(which, Starved()))
            # If several sources of a query read the partition, the first offset is reported.
            by_query = {(one.path, one.stream_id): one for one in reversed(waiting)}
            found[which] = kept(by_query.values(), (*unknown, *failures))
    return found


# --- cleaning and words -----------------------------------------------------------------------------------------------


def read_topic_cleaning(send: Send, asked: int, topics: Sequence[str]) -> tuple[dict[str, Cleaning], Failure | None]:
    """The cleaning of these topics, and why it is not known for a topic. asked: the broker with the newest metadata.
    Another may still have earlier settings.
    """
    try:
        found = topic_cleaning(send, asked, topics) if topics else {}
    except RequestFailed as failed:
        return {}, failed.failure
    for topic, one in found.items():
        if one.failure is not None:
            return found, needing(one.failure, CONFIGS_OF_TOPICS.permission).within(topic)
    return found, None


def _said(failures: Iterable[Failure], format_failure: Callable[[Failure], str]) -> str:
    return joined_reasons(map(format_failure, failures))


def joined_reasons(why: Iterable[str]) -> str:
    """The first reasons without duplicates, and the number of the other reasons."""
    every = list(dict.fromkeys(why))
    more = len(every) - _REASONS_MAX
    return "; ".join(every[:_REASONS_MAX]) + (f"; and {plural(more, 'more reason')}" if more > 0 else "")
