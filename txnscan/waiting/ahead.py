"""Read ahead as a read_committed reader does: to records, or only to markers and aborted data.

`delivered.py` decides whether it gets a record. If it does not, a second read counts the markers and the aborted
records. Pure but for `send`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure
from txnscan.kafka.protocol.fetch import LONG_READ_BYTES_MAX, fetch_committed
from txnscan.kafka.security.acls import needing
from txnscan.kafka.security.needs import READ_TOPICS
from txnscan.kafka.topology import Partition
from txnscan.waiting.delivered import starved

_PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Ahead:
    """The stretch between an offset and the last stable offset, as a read_committed reader sees it.

    has_record: whether it gets a record. record_at: where its next record is; if the records at the offset are deleted,
    the first one left, which the reader's `auto.offset.reset` may skip. markers: control records before that, or on the
    whole stretch. aborted: records of aborted transactions there. begins_with_marker: whether the first batch is a
    control record. failure: of the read.
    """

    has_record: bool | None
    markers: int = 0
    aborted: int = 0
    failure: Failure | None = None
    record_at: int | None = None
    begins_with_marker: bool = False


def ahead(send: Send, partition: Partition, offset: int, last_stable_offset: int) -> Ahead:
    """Read from the offset, or from the start of the log if the records there are deleted, to the last stable offset.
    Never raises.
    """
    if offset >= last_stable_offset:
        return Ahead(has_record=False)
    found = starved(send, partition, [offset], last_stable_offset)
    if found.failure is not None:
        return Ahead(None, failure=_of_topic(found.failure.failure, partition), record_at=found.record_at)
    start = max(offset, found.log_start or 0)
    if found.record_at == start:
        return Ahead(has_record=True, record_at=start)
    if start >= last_stable_offset:
        return Ahead(has_record=False)
    try:
        counted = _counted(send, partition, start, found.record_at or last_stable_offset)
        return replace(counted, has_record=found.record_at is not None, record_at=found.record_at)
    except RequestFailed as failed:
        return Ahead(None, failure=_of_topic(failed.failure, partition))


def end_of_log(send: Send, partition: Partition, log_start: int, end: int) -> Ahead:
    """Read the last offset of a log without open transactions, and the aborted transaction that it ends."""
    if end <= log_start:
        return Ahead(has_record=None)
    try:
        fetched = fetch_committed(send, partition, end - 1, _PIECE_BYTES)
        last = next((batch for batch in fetched.batches if batch.last_offset >= end - 1), None)
        if last is None:
            return Ahead(has_record=None)
        if not last.is_control:
            return Ahead(has_record=True)
        if last.commits:
            return Ahead(has_record=False, markers=1)
        begins = [one.first_offset for one in fetched.aborted if one.producer_id == last.producer_id]
        return ahead(send, partition, max(min(begins, default=end - 1), log_start), end)
    except RequestFailed as failed:
        return Ahead(None, failure=_of_topic(failed.failure, partition))


def _counted(send: Send, partition: Partition, offset: int, end: int) -> Ahead:
    """The markers and the aborted records in a stretch without a record to deliver."""
    start, markers, aborted, left_bytes, is_marker = offset, 0, 0, LONG_READ_BYTES_MAX, False
    while left_bytes > 0:
        fetched = fetch_committed(send, partition, offset, _PIECE_BYTES)
        for batch in fetched.batches:
            if batch.last_offset < start or batch.base_offset >= end:
                continue
            is_marker |= batch.is_control and not markers and not aborted
            if batch.is_control:
                markers += 1
            else:
                aborted += min(batch.records_count, batch.last_offset + 1 - max(batch.base_offset, start))
        left_bytes -= max(fetched.size_bytes, _PIECE_BYTES // 16)
        reached = fetched.next_offset(offset)
        if reached >= end or reached == offset:
            break
        offset = reached
    return Ahead(has_record=False, markers=markers, aborted=aborted, begins_with_marker=is_marker)


def _of_topic(failure: Failure, partition: Partition) -> Failure:
    return needing(failure, READ_TOPICS.on(partition.topic)).within(f"{partition.topic}-{partition.partition}")
