"""Find the groups that have no more records to read below the last stable offset. Pure except for `send`.

A committed offset below the last stable offset does not show that there are records to read: the offsets between may be
only markers, aborted records and gaps of compaction. Even the offset before it may have any of these, or a record. So
the partition is read in the way of consumers, which drop control batches and aborted records
(`CompletedFetch.nextFetchedRecord`). If there is a record after a group's offset, then every group with a lower offset
has that record to read, too. So reads go from the highest offset down, and most partitions take a single read.

If the records at an offset are deleted, the group goes on where its `auto.offset.reset` says: at the start of the log,
or at the last stable offset. So it waits if there is no record between the two. Otherwise it is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import FailureCode
from txnscan.kafka.protocol.fetch import LONG_READ_BYTES_MAX, FetchedCommitted, fetch, fetch_committed
from txnscan.kafka.protocol.list_offsets import Offset, offset_of
from txnscan.kafka.protocol.record_batch import Batch
from txnscan.kafka.topology import Partition
from txnscan.kafka.units import size

# If a group only lags, its first batch has a record, and a broker returns the first batch whole. More is read only if
# that batch has no record for the group.
_FIRST_BYTES, _PIECE_BYTES = 16 * 1024, 1024 * 1024


@dataclass(frozen=True, slots=True)
class Starved:
    """offsets: committed offsets with no record to deliver before the last stable offset. unknown: offsets that the
    read did not decide. failure: the reason for unknown offsets. record_at: where the next record of the highest offset
    is that may get one; at or before it, if its batch has gaps. log_start: where the log begins, if records from that
    offset or a starved one on are deleted.
    """

    offsets: frozenset[int] = frozenset()
    unknown: frozenset[int] = frozenset()
    failure: RequestFailed | None = None
    record_at: int | None = field(default=None, compare=False)
    log_start: int | None = field(default=None, compare=False)

    def delivers(self, offset: int) -> bool | None:
        """Whether a read_committed consumer gets a record between this offset and the last stable offset. None if the
        read did not decide it.
        """
        return None if offset in self.unknown else offset not in self.offsets


class _Budget:
    """The bytes that may be read of one partition, for all its groups. Each request counts as some bytes at least."""

    def __init__(self) -> None:
        self.left_bytes = LONG_READ_BYTES_MAX

    def check(self, offset: int, end: int) -> None:
        if self.left_bytes <= 0:
            read = f"were read only up to offset {offset}, before offset {end}, in {size(LONG_READ_BYTES_MAX)}"
            raise RequestFailed(f"the next records of groups {read}", FailureCode.NOT_ASKED)

    def take(self, size_bytes: int) -> None:
        self.left_bytes -= max(size_bytes, _FIRST_BYTES)


def starved(send: Send, partition: Partition, committed: Iterable[int], last_stable_offset: int) -> Starved:
    """Returns which of these committed offsets, all below the last stable offset, have no record to deliver."""
    offsets = sorted(set(committed), reverse=True)
    budget, end, log_start = _Budget(), last_stable_offset, None
    found: set[int] = set()
    for number, offset in enumerate(offsets):
        try:
            record_at, log_start = _record_or_log_start(send, partition, offset, end, budget)
        except RequestFailed as failed:
            return Starved(frozenset(found), frozenset(offsets[number:]), failed)
        if record_at is None:
            found.add(offset)
            end = offset
        elif log_start is None:
            return Starved(frozenset(found), record_at=record_at)
        else:
            unknown = frozenset(offsets[number:])
            return Starved(frozenset(found), unknown, _resets(offset, log_start), record_at, log_start)
    return Starved(frozenset(found), log_start=log_start)


def _record_or_log_start(
    send: Send, partition: Partition, offset: int, end: int, budget: _Budget
) -> tuple[int | None, int | None]:
    """See `_record_at`; and the start of the log, if the records from the offset on are deleted: then the next record
    from there on.
    """
    try:
        return _record_at(send, partition, offset, end, budget), None
    except RequestFailed as failed:
        if failed.failure.code != ErrorCode.OFFSET_OUT_OF_RANGE.name:
            raise
        log_start = offset_of(send, partition, Offset.LOG_START)
        if log_start <= offset:
            raise
        return _record_at(send, partition, log_start, end, budget), log_start


def _resets(offset: int, log_start: int) -> RequestFailed:
    deleted = f"the records from offset {offset} to {log_start - 1} are deleted, and the reader's auto.offset.reset"
    return RequestFailed(f"{deleted} decides whether it reads the next ones", ErrorCode.OFFSET_OUT_OF_RANGE.name)


def _record_at(send: Send, partition: Partition, offset: int, end: int, budget: _Budget) -> int | None:
    """The offset of the next record that a read_committed reader gets from this offset on, before the end. None
    without such a record.
    """
    start = offset
    while offset < end:
        budget.check(offset, end)
        size_bytes = _FIRST_BYTES if offset == start else _PIECE_BYTES
        fetched = fetch_committed(send, partition, offset, size_bytes)
        budget.take(fetched.size_bytes)
        for batch in _kept(fetched):
            if batch.base_offset < end and _has_record(send, partition, batch, start, end, budget):
                return max(batch.base_offset, start)
        reached = fetched.next_offset(offset)
        if reached == offset:
            _expect_gap(send, partition, offset, end, budget)
            return None
        offset = reached
    return None


def _kept(fetched: FetchedCommitted) -> Iterable[Batch]:
    """The batches of an answer that a consumer does not drop."""
    # The first is the last in the list: there may be hundreds of thousands.
    pending = sorted(fetched.aborted, key=lambda one: one.first_offset, reverse=True)
    aborted: set[int] = set()
    for batch in fetched.batches:
        while pending and pending[-1].first_offset <= batch.last_offset:
            aborted.add(pending.pop().producer_id)
        if batch.is_control:
            if batch.records_count and not batch.commits:
                aborted.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborted):
            yield batch


def _has_record(send: Send, partition: Partition, batch: Batch, start: int, end: int, budget: _Budget) -> bool:
    """Whether a record of the batch is at or after the start, and before the end. Compaction does not change the first
    and the last offset of a batch. So if a batch has gaps and crosses a bound, its records are read.
    """
    if not batch.records_count or batch.last_offset < start:
        return False
    has_gaps = batch.records_count <= batch.last_offset - batch.base_offset
    if not has_gaps or (start <= batch.base_offset and batch.last_offset < end):
        return True
    budget.check(batch.base_offset, end)
    read = fetch(send, partition, max(start, batch.base_offset), 1, records=True)
    budget.take(read.size_bytes)
    same = [one for one in read.batches if one.base_offset == batch.base_offset]
    if not same:
        raise RequestFailed(f"the batch at offset {batch.base_offset} was not returned again")
    return any(start <= at < end for one in same for at, _, _ in one.records or ())


def _expect_gap(send: Send, partition: Partition, offset: int, end: int, budget: _Budget) -> None:
    """Raises RequestFailed unless the next batch after this offset is at or after the end. An empty answer alone shows
    no gap, because a broker may return it for other reasons.
    """
    budget.check(offset, end)
    read = fetch(send, partition, offset, 1, records=False)
    budget.take(read.size_bytes)
    after = read.batches
    if not after or after[0].base_offset < end:
        raise RequestFailed(f"the leader returned no records at offset {offset}, before offset {end}")
