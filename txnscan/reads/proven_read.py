"""Read partitions: `(batch, send) -> rows`, with rows for errors. Pure except for `send` and `now_ms`.

The wide read is only a filter: it finds the partitions with open transactions. For those partitions the proven reads
prove that the answers came from the leader:

    ListOffsets(latest, read_uncommitted, leader epoch)  -> high watermark, before
    DescribeProducers                                    -> the open transactions
    ListOffsets(latest, read_committed, leader epoch)    -> last stable offset, after
    ListOffsets(earliest, leader epoch)                  -> log start, if that is beyond something open

Followers answer DescribeProducers without an error. But ListOffsets with a leader epoch succeeds only on the leader at
that epoch, and a broker never goes back to an earlier epoch. So if both ListOffsets succeed at the same epoch, the
leader answered every DescribeProducers between them (the obligation leader). The two reads of a sweep share one such
pair: the first read opens it, the second read closes it, and the coordinators are asked in between. A single read
(`read_proven`) has a pair of its own.

Two kinds of open transactions are not proven: a transaction that starts at or above the high watermark may still be
truncated, and a transaction that the last stable offset has passed has ended meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.protocol.describe_producers import DescribedPartition, by_topic, describe_open, describe_producers
from txnscan.kafka.protocol.frames import CountingSend
from txnscan.kafka.protocol.list_offsets import ListedOffset, Offset, list_offsets
from txnscan.kafka.security.acls import needing
from txnscan.kafka.security.needs import DESCRIBE_TOPICS, READ_TOPICS, Acl
from txnscan.kafka.topology import Key, Partition
from txnscan.reads.rows import OffsetsRow, ProvenRow, ReadBatch, WideAnswer, WideBatch, WideRow

# Reads the partitions of a batch. The last argument is the clock.
ProvenReading = Callable[[ReadBatch, Send, Callable[[], int]], Iterable[ProvenRow]]

_PASSED = Failure("the last stable offset passed the open transaction during the read", FailureCode.ENDED_MEANWHILE)


def read_wide(batch: WideBatch, send: Send) -> WideAnswer:
    """A row for each partition with open transactions or with a failure, and for each with closed producers of the
    batch's producer ids. If the batch says so, also one for each with producers that have ended a transaction.
    """
    counted = CountingSend(send)
    try:
        described = describe_open(counted, batch.leader, batch.indexes, batch.producer_ids, with_ended=batch.with_ended)
    except RequestFailed as failed:
        every = ((topic, index) for topic, indexes in batch.indexes.items() for index in indexes)
        return WideAnswer(0, 0, 0, tuple(WideRow(batch.leader, *key, failure=failed.failure) for key in every))
    rows: list[WideRow] = []
    for (topic, index), answer in described.partitions.items():
        if answer.failure is not None:
            rows.append(WideRow(batch.leader, topic, index, failure=of_topic(answer.failure, READ_TOPICS, topic)))
        else:
            rows.append(WideRow(batch.leader, topic, index, open_producers=answer.open_producers))
    rows += (WideRow(batch.leader, *key, closed_producers=closed) for key, closed in described.closed.items())
    rows += (
        WideRow(batch.leader, *key, ended=ended.count, newest_ended_ms=ended.newest_ms)
        for key, ended in described.ended.items()
    )
    return WideAnswer(described.answered, described.producers, counted.read_bytes, tuple(rows))


def read_first(batch: ReadBatch, send: Send, now_ms: Callable[[], int]) -> Iterator[ProvenRow]:
    """The first read of a sweep: one row for each partition, with a failure or with the open transactions. The row is
    proven only with a second read at the same leader epoch.
    """
    try:
        before = list_offsets(send, batch.leader, batch.partitions, Offset.HIGH_WATERMARK)
        described = describe_producers(send, batch.leader, by_topic(p.key for p in batch.partitions))
    except RequestFailed as failed:
        yield from _all_failed(batch, failed.failure, now_ms())
        return
    read_at_ms = now_ms()
    for partition in batch.partitions:
        high, open_now = before[partition.key], described[partition.key]
        yield ProvenRow(
            **_where(partition),
            read_at_ms=read_at_ms,
            high_watermark=high.offset if high.failure is None else None,
            open_producers=open_now.open_producers,
            failure=_failure(partition.topic, high, open_now),
        )


def read_second(batch: ReadBatch, send: Send, now_ms: Callable[[], int]) -> Iterator[ProvenRow]:
    """The second read of a sweep: one row for each partition, with a failure or with the open transactions. The row has
    no high watermark, and is proven only with a first read at the same leader epoch.
    """
    try:
        described = describe_producers(send, batch.leader, by_topic(p.key for p in batch.partitions))
        read_at_ms = now_ms()
        after = list_offsets(send, batch.leader, batch.partitions, Offset.LAST_STABLE)
        passed = [p for p in batch.partitions if _is_passed(described[p.key], after[p.key])]
        log_start = _log_starts(send, batch.leader, passed)
    except RequestFailed as failed:
        yield from _all_failed(batch, failed.failure, now_ms())
        return
    for partition in batch.partitions:
        key = partition.key
        start = log_start.get(key)
        yield ProvenRow(
            **_where(partition),
            read_at_ms=read_at_ms,
            last_stable_offset=_stable(after[key], start),
            open_producers=described[key].open_producers,
            failure=_unproven(partition.topic, described[key], after[key], start),
        )


def read_proven(batch: ReadBatch, send: Send, now_ms: Callable[[], int]) -> Iterator[ProvenRow]:
    """One row for each partition: proven to come from the leader at the batch's leader epochs, or with the failure."""
    try:
        before = list_offsets(send, batch.leader, batch.partitions, Offset.HIGH_WATERMARK)
    except RequestFailed as failed:
        yield from _all_failed(batch, failed.failure, now_ms())
        return
    for row in read_second(batch, send, now_ms):
        high = before[row.key]
        failure = row.failure if high.failure is None else of_topic(high.failure, DESCRIBE_TOPICS, row.topic)
        yield replace(row, high_watermark=high.offset if high.failure is None else None, failure=failure)


def read_ends(batch: ReadBatch, send: Send, now_ms: Callable[[], int]) -> Iterator[ProvenRow]:
    """As `read_proven`, without the open transactions: only the high watermark, then the last stable offset, then the
    log start where something is open. That needs no permission but Describe. For `waiting/complete_up_to.py`.
    """
    try:
        before = list_offsets(send, batch.leader, batch.partitions, Offset.HIGH_WATERMARK)
        read_at_ms = now_ms()
        after = list_offsets(send, batch.leader, batch.partitions, Offset.LAST_STABLE)
        held = [p for p in batch.partitions if _is_held(after[p.key], before[p.key])]
        log_start = _log_starts(send, batch.leader, held)
    except RequestFailed as failed:
        yield from _all_failed(batch, failed.failure, now_ms())
        return
    for partition in batch.partitions:
        high, stable, start = before[partition.key], after[partition.key], log_start.get(partition.key)
        failure = high.failure or stable.failure or (start.failure if start is not None else None)
        yield ProvenRow(
            **_where(partition),
            read_at_ms=read_at_ms,
            high_watermark=high.offset if high.failure is None else None,
            last_stable_offset=_stable(stable, start),
            failure=None if failure is None else of_topic(failure, DESCRIBE_TOPICS, partition.topic),
        )


def read_offsets(batch: ReadBatch, send: Send) -> Iterator[OffsetsRow]:
    """A row for each partition whose leader reports offsets. They show how much a claimed transaction blocks."""
    try:
        high = list_offsets(send, batch.leader, batch.partitions, Offset.HIGH_WATERMARK)
        stable = list_offsets(send, batch.leader, batch.partitions, Offset.LAST_STABLE)
        held = [p for p in batch.partitions if _is_held(stable[p.key], high[p.key])]
        log_start = _log_starts(send, batch.leader, held)
    except RequestFailed:
        return
    for key in (partition.key for partition in batch.partitions):
        last_stable = _stable(stable[key], log_start.get(key))
        if high[key].failure is None and last_stable is not None:
            yield OffsetsRow(*key, high_watermark=high[key].offset, last_stable_offset=last_stable)


def unproven_row(partition: Partition, failure: Failure, read_at_ms: int) -> ProvenRow:
    """The row of a partition that could not be read."""
    return ProvenRow(**_where(partition), read_at_ms=read_at_ms, failure=failure)


def _all_failed(batch: ReadBatch, failure: Failure, read_at_ms: int) -> Iterator[ProvenRow]:
    for partition in batch.partitions:
        yield unproven_row(partition, failure, read_at_ms)


def _where(partition: Partition) -> dict[str, Any]:
    """The fields of a row that name the partition and its leader."""
    return {
        "topic": partition.topic,
        "topic_id": partition.topic_id,
        "partition": partition.partition,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
    }


def _is_held(stable: ListedOffset, high: ListedOffset) -> bool:
    """Whether an open transaction holds the last stable offset, by the answers about it and the high watermark."""
    return stable.failure is None and high.failure is None and stable.offset < high.offset


def _is_passed(described: DescribedPartition, after: ListedOffset) -> bool:
    """Whether the last stable offset is beyond a transaction that was open a moment before. Either the transaction has
    ended, or its first records are deleted. The log start decides.
    """
    return any(after.offset > one.start_offset for one in described.open_producers)


def _log_starts(send: Send, leader: int, partitions: Sequence[Partition]) -> dict[Key, ListedOffset]:
    """The log start of these partitions. Raises RequestFailed.

    The last stable offset may be below the log start, where readers begin: DeleteRecords may cut the first batch of a
    transaction in two, and the last stable offset is at the start of the batch
    (`UnifiedLog.convertToOffsetMetadataOrThrow`).
    """
    return list_offsets(send, leader, partitions, Offset.LOG_START) if partitions else {}


def _stable(stable: ListedOffset, log_start: ListedOffset | None) -> int | None:
    """The offset from which read_committed readers get nothing, by the answers about the last stable offset and the log
    start. None if it is not known.
    """
    if stable.failure is not None or (log_start is not None and log_start.failure is not None):
        return None
    return stable.offset if log_start is None else max(stable.offset, log_start.offset)


def _unproven(
    topic: str, described: DescribedPartition, after: ListedOffset, log_start: ListedOffset | None
) -> Failure | None:
    """Why this read is not proven to be the leader's. None if it is proven."""
    failure = _failure(topic, None, described, after, log_start)
    if failure is None and log_start is not None and after.offset > log_start.offset:
        return _PASSED
    return failure


def _failure(
    topic: str,
    before: ListedOffset | None,
    described: DescribedPartition,
    *later: ListedOffset | None,
) -> Failure | None:
    """The first failure of these answers, in the order of the requests."""
    for acl, answer in (
        (DESCRIBE_TOPICS, before),
        (READ_TOPICS, described),
        *((DESCRIBE_TOPICS, one) for one in later),
    ):
        if answer is not None and answer.failure is not None:
            return of_topic(answer.failure, acl, topic)
    return None


def of_topic(failure: Failure, acl: Acl, topic: str) -> Failure:
    """The failure of a request that needs this ACL on a topic."""
    return needing(failure, acl.on(topic))


def failed_partitions(rows: Iterable[ProvenRow]) -> frozenset[Key]:
    """The partitions that a proven read did not prove. A second try may prove them."""
    return frozenset(row.key for row in rows if row.failure is not None)
