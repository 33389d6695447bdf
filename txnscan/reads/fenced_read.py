"""Read partitions: `(batch, send) -> rows`, with rows for errors. Pure except for `send` and `now_ms`.

The wide read is only a filter: it finds the partitions with open transactions. For those partitions the fenced read
proves that the answer came from the leader:

    ListOffsets(latest, read_uncommitted, leader epoch)  -> high watermark, before
    DescribeProducers                                    -> the open transactions
    ListOffsets(latest, read_committed, leader epoch)    -> last stable offset, after

Followers answer DescribeProducers without an error. But ListOffsets with a leader epoch succeeds only on the leader at
that epoch. So if both ListOffsets succeed at the same epoch, the leader answered the DescribeProducers between them
(the obligation leader). Two kinds of open transactions are not proven: a transaction that starts at or above the high
watermark may still be truncated, and a transaction that the last stable offset has passed has ended meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure, FailureCode, Permission
from txnscan.kafka.protocol.describe_producers import DescribedPartition, by_topic, describe_open, describe_producers
from txnscan.kafka.protocol.frames import Counted
from txnscan.kafka.protocol.list_offsets import ListedOffset, Offset, list_offsets
from txnscan.kafka.security.acls import needing
from txnscan.kafka.topology import Key, Partition
from txnscan.reads.rows import FencedRow, OffsetsRow, ReadBatch, WideBatch, WideRow

_PASSED = Failure("the last stable offset passed the open transaction during the read", FailureCode.ENDED_MEANWHILE)


def read_wide(batch: WideBatch, send: Send) -> Iterator[WideRow]:
    """One count row for the batch, then a row for each partition with open transactions or with a failure, and for each
    with closed producers of the batch's producer ids.
    """
    counted = Counted(send)
    try:
        described = describe_open(counted, batch.leader, batch.indexes, batch.producer_ids)
    except RequestFailed as failed:
        for topic, indexes in batch.indexes.items():
            for index in indexes:
                yield WideRow(batch.leader, topic, index, failure=failed.failure)
        return
    yield WideRow(
        batch.leader, answered=described.answered, producers=described.producers, read_bytes=counted.read_bytes
    )
    for (topic, index), answer in described.partitions.items():
        if answer.failure is not None:
            yield WideRow(batch.leader, topic, index, failure=of_topic(answer.failure, "Read", topic))
        else:
            yield WideRow(batch.leader, topic, index, open_producers=answer.open_producers)
    for (topic, index), closed in described.closed.items():
        yield WideRow(batch.leader, topic, index, closed_producers=closed)


def read_fenced(batch: ReadBatch, send: Send, now_ms: Callable[[], int]) -> Iterator[FencedRow]:
    """One row for each partition: proven to come from the leader at the batch's leader epochs, or with the failure."""
    try:
        before = list_offsets(send, batch.leader, batch.partitions, Offset.HIGH_WATERMARK)
        described = describe_producers(send, batch.leader, by_topic(p.key for p in batch.partitions))
        read_at_ms = now_ms()
        after = list_offsets(send, batch.leader, batch.partitions, Offset.LAST_STABLE)
        passed = [p for p in batch.partitions if _stable_past_open(described[p.key], after[p.key])]
        log_start = list_offsets(send, batch.leader, passed, Offset.LOG_START) if passed else {}
    except RequestFailed as failed:
        for partition in batch.partitions:
            yield fenced_failed(partition, failed.failure, now_ms())
        return
    for partition in batch.partitions:
        key = partition.key
        start = log_start.get(key)
        yield FencedRow(
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            read_at_ms=read_at_ms,
            high_watermark=before[key].offset if before[key].failure is None else None,
            last_stable_offset=after[key].offset if after[key].failure is None else None,
            log_start_offset=start.offset if start is not None and start.failure is None else None,
            open_producers=described[key].open_producers,
            failure=_unproven(partition.topic, before[key], described[key], after[key], start),
        )


def read_ends(batch: ReadBatch, send: Send, now_ms: Callable[[], int]) -> Iterator[FencedRow]:
    """As `read_fenced`, without the open transactions: only the high watermark, then the last stable offset. That takes
    two requests, and no permission but Describe. For `waiting/complete_up_to.py`.
    """
    try:
        before = list_offsets(send, batch.leader, batch.partitions, Offset.HIGH_WATERMARK)
        read_at_ms = now_ms()
        after = list_offsets(send, batch.leader, batch.partitions, Offset.LAST_STABLE)
    except RequestFailed as failed:
        for partition in batch.partitions:
            yield fenced_failed(partition, failed.failure, now_ms())
        return
    for partition in batch.partitions:
        high, stable = before[partition.key], after[partition.key]
        failure = high.failure or stable.failure
        yield FencedRow(
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            read_at_ms=read_at_ms,
            high_watermark=high.offset if high.failure is None else None,
            last_stable_offset=stable.offset if stable.failure is None else None,
            failure=None if failure is None else of_topic(failure, "Describe", partition.topic),
        )


def read_offsets(batch: ReadBatch, send: Send) -> Iterator[OffsetsRow]:
    """A row for each partition whose leader reports offsets. They show how much a claimed transaction blocks."""
    try:
        high = list_offsets(send, batch.leader, batch.partitions, Offset.HIGH_WATERMARK)
        stable = list_offsets(send, batch.leader, batch.partitions, Offset.LAST_STABLE)
    except RequestFailed:
        return
    for key in (partition.key for partition in batch.partitions):
        if high[key].failure is None and stable[key].failure is None:
            yield OffsetsRow(*key, high_watermark=high[key].offset, last_stable_offset=stable[key].offset)


def fenced_failed(partition: Partition, failure: Failure, read_at_ms: int) -> FencedRow:
    """The row of a partition that could not be read."""
    return FencedRow(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        read_at_ms=read_at_ms,
        failure=failure,
    )


def _stable_past_open(described: DescribedPartition, after: ListedOffset) -> bool:
    """Whether the last stable offset is beyond a transaction that was open a moment before.

    Either the transaction has ended, or its first records are deleted: the last stable offset is never below the log
    start (`UnifiedLog.maybeIncrementFirstUnstableOffset`). The log start then decides.
    """
    first_open = min((p.start_offset for p in described.open_producers), default=None)
    return first_open is not None and after.offset > first_open


def _unproven(
    topic: str,
    before: ListedOffset,
    described: DescribedPartition,
    after: ListedOffset,
    log_start: ListedOffset | None,
) -> Failure | None:
    """Why this read is not proven to be the leader's. None if it is proven."""
    for operation, failure in (
        ("Describe", before.failure),
        ("Read", described.failure),
        ("Describe", after.failure),
        ("Describe", log_start.failure if log_start is not None else None),
    ):
        if failure is not None:
            return of_topic(failure, operation, topic)
    if log_start is not None and after.offset > log_start.offset:
        return _PASSED
    return None


def of_topic(failure: Failure, operation: str, topic: str) -> Failure:
    """The failure of a request that needs this operation on a topic."""
    return needing(failure, Permission(operation, "Topic", topic))


def failed_partitions(rows: Iterable[FencedRow]) -> frozenset[Key]:
    """The partitions that a fenced read did not prove. A second try may prove them."""
    return frozenset(row.key for row in rows if row.failure is not None)
