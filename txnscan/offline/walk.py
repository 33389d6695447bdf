"""Walk through a log segment from batch to batch by headers, without decompressing records. Pure.

A segment is a sequence of batches, and only a batch shows where the next one begins. So the walk ends at a damaged
batch, without guesses about later bytes. Kafka truncates a log at the same place when it recovers. Headers are checked
as `DefaultRecordBatch` and `FileLogInputStream` do; checksums only on request.

`columns.py` does the same for many batches at a time, and leaves unusual batches to this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from mmap import MADV_DONTNEED, PAGESIZE, mmap

from txnscan.kafka.protocol.record_batch import (
    CRC_FROM,
    HEADER,
    LENGTH_AT,
    LENGTH_FROM,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    MARKER_BODY,
    MARKER_SIZE,
    PLAIN_MARKER,
    BatchHeader,
)
from txnscan.offline.producer_snapshots import LogState

Data = bytes | mmap
# The minimum lengths of a batch: of the older formats, and of this format (`LegacyRecord.RECORD_OVERHEAD_V0`).
LENGTH_MIN, LENGTH_MIN_V2 = 14, HEADER.size - LENGTH_FROM
_OFFSET_MAX = 2**63 - 1
# A marker has 78 bytes.
_CONTROL_BYTES_MAX = 1 << 16
_LOOK_BYTES = 1 << 20
_ZEROS = bytes(_LOOK_BYTES)
# After this much of a mapped file, its pages are released: the file may be larger than memory.
RELEASE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """The position of the first invalid byte of a file, and the reason. cut: the file ends within a batch, for example
    because the batch was being written.
    """

    position: int
    why: str
    cut: bool = False

    def __str__(self) -> str:
        return f"{self.why} (at byte {self.position})"


class Damaged(Exception):
    """An invalid batch. The message gives the reason."""


def fold(
    data: Data,
    state: LogState,
    base_offset: int,
    *,
    at: int = 0,
    crc32c: Callable[[memoryview], int] | None = None,
    before: Callable[[int], None] = lambda _: None,
) -> Damage | None:
    """Reads a segment into the state of its log. Returns where and why it could not be read to its end, if so.

    base_offset: the offset in the file's name. crc32c: if given, checks each batch with it. before: called with the
    base offset of each batch, before it counts.
    """
    end, released = len(data), at
    stop = end_of(data, at, end)
    while stop is None:
        size = LENGTH_FROM + int.from_bytes(data[at + LENGTH_AT : at + LENGTH_FROM], signed=True)
        try:
            one_batch(data, at, size, state, base_offset, crc32c, before)
        except Damaged as damaged:
            return Damage(at, str(damaged))
        at += size
        if at - released > RELEASE_BYTES:
            release(data, released, at)
            released = at
        stop = end_of(data, at, end)
    return stop if isinstance(stop, Damage) else None


def end_of(data: Data, at: int, end: int) -> Damage | bool | None:
    """None if a complete batch begins here. True at the end of the file, even if reserved zeros follow. Otherwise the
    damage.
    """
    left = end - at
    if left == 0:
        return True
    if left < LENGTH_FROM:
        return Damage(at, f"it ends within the header of a batch, of which it has {left} bytes", cut=True)
    length = int.from_bytes(data[at + LENGTH_AT : at + LENGTH_FROM], signed=True)
    if length == 0:
        return True if _only_zeros(data, at, end) else Damage(at, "a batch claims a length of 0")
    if length < LENGTH_MIN:
        return Damage(at, f"a batch claims a length of {length}")
    if LENGTH_FROM + length > left:
        return Damage(at, f"a batch claims {LENGTH_FROM + length} bytes, and {left} are left", cut=True)
    return None


def _only_zeros(data: Data, at: int, end: int) -> bool:
    for begin in range(at, end, _LOOK_BYTES):
        looked_at = data[begin : min(begin + _LOOK_BYTES, end)]
        if looked_at != _ZEROS[: len(looked_at)]:
            return False
        # A preallocated segment may be larger than memory.
        release(data, begin, begin + len(looked_at))
    return True


def one_batch(
    data: Data,
    at: int,
    size: int,
    state: LogState,
    file_offset: int,
    crc32c: Callable[[memoryview], int] | None,
    before: Callable[[int], None],
) -> None:
    """Takes the complete batch at a position. Raises Damaged, and then leaves the state unchanged."""
    magic = data[at + MAGIC_AT]
    if magic > MAGIC:
        raise Damaged(f"a batch has the format version {magic - 256 if magic > 127 else magic}, which does not exist")
    if magic < MAGIC:
        offset = int.from_bytes(data[at : at + 8], signed=True)
        _check_offset(offset, offset, state, file_offset)
        before(offset)
        state.passed_legacy(offset, size)
        return
    if size - LENGTH_FROM < LENGTH_MIN_V2:
        raise Damaged(f"a batch claims a length of {size - LENGTH_FROM}, which is less than its header")
    header = BatchHeader.read(data, at)
    base_offset, producer_id, count = header.base_offset, header.producer_id, header.records_count
    if header.last_offset_delta < 0 or count < 0:
        raise Damaged(f"a batch claims {count} records up to {header.last_offset_delta} behind its first")
    _check_offset(base_offset, header.last_offset, state, file_offset)
    if crc32c is not None and crc32c(memoryview(data)[at + CRC_FROM : at + size]) != header.crc:
        raise Damaged(f"the batch at offset {base_offset} fails its checksum")
    control, found = header.is_control, None
    if control and header.is_transactional and producer_id >= 0 and count and not header.is_compressed:
        if size > _CONTROL_BYTES_MAX:
            raise Damaged(f"a control batch claims {size} bytes, which no marker has")
        found = _marker(header, data[at : at + size])
    before(base_offset)
    state.passed(header)
    if found is not None:
        state.marker(producer_id, header.producer_epoch, *found)
    elif control:
        _pass_over(header, state)
    elif producer_id >= 0:
        state.data(header)
    elif header.is_transactional:
        state.figures.odd["a transactional batch without a producer"] += 1


def _pass_over(header: BatchHeader, state: LogState) -> None:
    """Takes a control batch that ends no transaction."""
    transactional, compressed, has_producer = header.is_transactional, header.is_compressed, header.producer_id >= 0
    if transactional and (compressed or not has_producer):
        state.figures.odd["a control batch without a producer, or compressed"] += 1
    elif not transactional and has_producer:
        state.figures.odd["a control batch of a producer that is not transactional"] += 1
    if has_producer and (compressed or not transactional):
        # A broker that loads this batch ignores both bits, and treats it as the end of a transaction.
        state.unread_at = header.base_offset


def _check_offset(offset: int, last_offset: int, state: LogState, file_offset: int) -> None:
    if offset < file_offset:
        raise Damaged(f"a batch has offset {offset}, before that of its file, {file_offset}")
    if offset < state.next_offset:
        raise Damaged(f"a batch has offset {offset}, and the one before it ends at {state.next_offset - 1}")
    if last_offset > _OFFSET_MAX:
        raise Damaged(f"a batch ends at offset {last_offset}, which none can have")


def _marker(header: BatchHeader, batch: bytes) -> tuple[bool, int, int] | None:
    """Whether the marker commits, its coordinator epoch, its time. None if the batch ends no transaction. Raises
    Damaged.
    """
    if len(batch) == MARKER_SIZE and batch[HEADER.size :].startswith(PLAIN_MARKER):
        _, kind, opened, coordinator_epoch, closing = MARKER_BODY.unpack_from(batch, HEADER.size)
        if opened == b"\x0c\0\0" and closing == 0 and kind in (0, 1):
            by_broker = header.attributes & LOG_APPEND_TIME
            ms = header.greatest_timestamp_ms if by_broker else header.base_timestamp_ms
            return kind == 1, coordinator_epoch, ms
    # Rarely needed, and kafka-python takes a while to load.
    from txnscan.kafka.errors import RequestFailed
    from txnscan.kafka.protocol.records import marker

    try:
        found = marker(batch)
    except RequestFailed as failed:
        raise Damaged(str(failed)) from None
    return None if found is None else (found.commits, found.coordinator_epoch, found.timestamp_ms)


def release(data: Data, at: int, reached: int) -> None:
    """Releases the pages of a mapped file between these positions."""
    if isinstance(data, mmap):
        first = -(-at // PAGESIZE) * PAGESIZE
        if reached - first >= PAGESIZE:
            data.madvise(MADV_DONTNEED, first, (reached - first) // PAGESIZE * PAGESIZE)


def headers(data: Data, at: int = 0) -> Iterator[tuple[int, int]]:
    """The position and size of each complete batch, until the first invalid length."""
    end, released = len(data), at
    while end_of(data, at, end) is None:
        size = LENGTH_FROM + int.from_bytes(data[at + LENGTH_AT : at + LENGTH_FROM], signed=True)
        yield at, size
        at += size
        if at - released > RELEASE_BYTES:
            release(data, released, at)
            released = at
