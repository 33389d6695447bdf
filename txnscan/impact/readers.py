"""Find the streaming queries that transactions block, by the offsets of their checkpoints. Pure except for `send`.

No proof depends on this. A query waits under the same condition as a group, with its next offset in place of the
committed offset (`delivered.py`). Checkpoints have no isolation level. A query that reads read_uncommitted does not
stop at the last stable offset but at the high watermark, unless it was stopped, or is limited, exactly there.

A checkpoint does not name its cluster, so topic and partition alone identify the partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from txnscan.impact.checkpoint import QueryPosition
from txnscan.impact.delivered import NO_LSO, NOT_FIRST, Starved, further_back, not_read, read_behind
from txnscan.impact.impact import BlockedReader, BlockReason, Impact
from txnscan.impact.who_waits import InParallel, joined_reasons
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.topology import GROUP_TOPICS, Key
from txnscan.reads.observation import TransactionKey
from txnscan.verdict.evidence import Judged

# The limit of queries to keep per transaction. Queries with the greatest lag come first.
READERS_KEPT_MAX = 100
# The limit of partitions to read for queries further back.
PARTITIONS_READ_MAX = 100
_NOT_READ = RequestFailed(
    f"only {PARTITIONS_READ_MAX} partitions are read for streaming queries", FailureCode.NOT_ASKED
)


@dataclass(frozen=True, slots=True)
class Positions:
    """The streaming queries of the named checkpoints, and why some are missing."""

    queries: tuple[QueryPosition, ...] = ()
    failures: tuple[Failure, ...] = ()

    def warnings(self) -> tuple[str, ...]:
        """The checkpoints that could not be used, as a sentence."""
        reasons = joined_reasons(f"{failure} ({failure.code})" for failure in self.failures)
        return (f"streaming queries that wait for a transaction may be missing: {reasons}",) if reasons else ()


@dataclass(frozen=True, slots=True)
class BlockedReaders:
    """The first of the queries that a transaction blocks, or may block, and their number. unknown: why there may be
    more.
    """

    readers: tuple[BlockedReader, ...] = ()
    count: int = 0
    unknown: tuple[Failure, ...] = ()


def read_partitions(transactions: Iterable[Judged]) -> frozenset[Key]:
    """The partitions whose offsets matter for these transactions."""
    return frozenset(judged.observation.key for judged in _of_readers(transactions))


def blocked_readers(
    send: Send, in_parallel: InParallel, transactions: Sequence[Judged], positions: Positions
) -> dict[TransactionKey, BlockedReaders]:
    """The queries that these transactions block. Those at the start are read first if not all can be."""
    asked = list(_of_readers(transactions))
    offsets = {key: _offsets(positions, key) for key in read_partitions(asked)}
    holders = [judged.observation for judged in asked if judged.holds_lso]
    behind = [o for o in holders if further_back(o, offsets[o.key])]
    read, cut = behind[:PARTITIONS_READ_MAX], behind[PARTITIONS_READ_MAX:]
    found = in_parallel(lambda o: read_behind(send, o, offsets[o.key]), read)
    starving = dict(zip((o.transaction_key for o in read), found, strict=True))
    starving |= {o.transaction_key: Starved(unknown=further_back(o, offsets[o.key]), failure=_NOT_READ) for o in cut}
    of_each = ((judged, judged.observation.transaction_key) for judged in asked)
    return {which: _of_transaction(judged, positions, starving.get(which, Starved())) for judged, which in of_each}


def with_readers(impact: Impact, blocked: BlockedReaders | None) -> Impact:
    """The impact with the blocked queries. blocked: None if no checkpoint was named, or for topics of groups."""
    if blocked is None:
        return impact
    return replace(
        impact,
        readers=blocked.readers,
        readers_blocked=blocked.count if not blocked.unknown else None,
        readers_error=joined_reasons(map(str, blocked.unknown)) or None,
    )


def _of_readers(transactions: Iterable[Judged]) -> Iterable[Judged]:
    """Applications read no records of the topics of groups."""
    return (judged for judged in transactions if judged.observation.topic not in GROUP_TOPICS)


def _offsets(positions: Positions, key: Key) -> frozenset[int]:
    return frozenset(offset for query in positions.queries for offset in query.batch.offsets.get(key, ()))


def _of_transaction(judged: Judged, positions: Positions, behind: Starved) -> BlockedReaders:
    o = judged.observation
    lso, high_watermark = o.second.last_stable_offset, o.second.high_watermark
    if lso is None or high_watermark is None or judged.holds_lso is None:
        return BlockedReaders(unknown=(NO_LSO,))
    if not judged.holds_lso:
        return BlockedReaders(unknown=(NOT_FIRST,))
    found = []
    for query in positions.queries:
        # If several sources of a query read the partition, the first offset is reported.
        waiting = [
            offset for offset in query.batch.offsets.get(judged.observation.key, ()) if behind.waits(offset, lso)
        ]
        if waiting:
            found.append(_blocked(query, waiting[0], high_watermark))
    found.sort(key=lambda reader: (-reader.lag, reader.path))
    unread = [not_read(o, behind.failure)] if behind.failure is not None else []
    return BlockedReaders(tuple(found[:READERS_KEPT_MAX]), len(found), (*positions.failures, *unread))


def _blocked(query: QueryPosition, next_offset: int, high_watermark: int) -> BlockedReader:
    return BlockedReader(
        stream_id=query.stream_id,
        path=query.path,
        reason=BlockReason.AT_LSO,
        batch_id=query.batch_id,
        batch_committed=query.committed,
        batch_timestamp_ms=query.batch.timestamp_ms,
        next_offset=next_offset,
        lag=max(high_watermark - next_offset, 0),
    )
