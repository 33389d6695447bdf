"""Search record batches: decode the few batches that may have wanted records, and skip the others.

For a skipped batch, only its offsets are known, and that it is undamaged. Skipped batches that follow one another
without a gap are returned as one batch. If there are several such runs between two decoded batches, only the last run
is returned. There is a gap before it, so no log can be contiguous from further back (`LogRow.contiguous_from`). The
headers of many batches are read as columns, if numpy is installed.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise, zip_longest

from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import FailureCode
from txnscan.kafka.protocol.checksum import crc32c
from txnscan.kafka.protocol.record_batch import (
    COMPRESSED,
    CONTROL,
    CRC_FROM,
    HEADER,
    LENGTH_AT,
    LENGTH_FROM,
    MAGIC,
    Batch,
)
from txnscan.kafka.protocol.records import BatchRoom, decoded

# Called with data, and with the positions at which its batches begin and the last batch ends. Returns which batches may
# have wanted records. Compressed batches and control batches are decoded in any case.
Wanted = Callable[[bytes, Sequence[int]], Sequence[bool]]
# The batches from one number to another, and whether they are decoded.
Section = tuple[int, int, bool]

# With fewer batches, loading numpy takes longer than it saves.
_MANY = 2_000
# The length, the magic byte and the checksum.
_LENGTH_TO_CRC = struct.Struct(">i4xbI")
# Base offset, magic byte, attributes, last offset delta and count of records: unpacked in half the time of all fields.
_OFFSETS = struct.Struct(">q8xb4xhi30xi")
_LEADER_EPOCH = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Undecoded:
    """Batches that are whole and undamaged. bounds: the positions at which each begins, and the last batch ends."""

    data: bytes
    bounds: Sequence[int]

    def next_offset(self, offset: int) -> int:
        """The offset for the next fetch, after a fetch from this offset."""
        if len(self.bounds) < 2:
            return offset
        base_offset, _, _, last_delta, _ = _OFFSETS.unpack_from(self.data, self.bounds[-2])
        return int(max(offset, base_offset + last_delta + 1))

    def epoch_ends(self) -> dict[int, int]:
        """The offset after the last batch of each leader epoch that batches have. Leader epochs only rise in a log, so
        each is found by bisection.
        """
        found: dict[int, int] = {}
        at, count = 0, len(self.bounds) - 1
        while at < count:
            epoch = self._leader_epoch(self.bounds[at])
            at = bisect_right(self.bounds, epoch, hi=count, key=self._leader_epoch)
            last = self.bounds[at - 1]
            if self._leader_epoch(last) == epoch:
                base_offset, _, _, last_delta, _ = _OFFSETS.unpack_from(self.data, last)
                found[epoch] = base_offset + last_delta + 1
        return found

    def _leader_epoch(self, at: int) -> int:
        (epoch,) = _LEADER_EPOCH.unpack_from(self.data, at + LENGTH_FROM)
        return int(epoch)

    def before(self, end: int) -> Undecoded:
        """The batches that begin before this offset."""
        count = len(self.bounds) - 1
        kept = bisect_left(self.bounds, end, hi=count, key=lambda at: _OFFSETS.unpack_from(self.data, at)[0])
        return Undecoded(self.data, self.bounds[: kept + 1])


def undecoded(data: bytes) -> Undecoded:
    """The batches in order, without a batch that is cut off at the end. Raises RequestFailed for a damaged batch."""
    return Undecoded(data, _bounds(data))


def searched(batches: Undecoded, wanted: Wanted) -> Iterator[Batch]:
    """The batches in order. Raises RequestFailed for a batch that cannot be decoded."""
    data, bounds = batches.data, batches.bounds
    flags = wanted(data, bounds)
    if are_many(bounds):
        from txnscan.kafka.protocol.search_columns import sections
    else:
        sections = _sections
    # Skipped batches between two bombs give the second one no room of its own.
    room = BatchRoom(len(data))
    for first, behind, decodes in sections(data, bounds, flags):
        if decodes:
            yield from decoded(data[bounds[first] : bounds[behind]], records=True, room=room)
        else:
            yield _passed_over(data, bounds[first : behind + 1])


def are_many(bounds: Sequence[int]) -> bool:
    """Whether there are enough batches to read them as columns, and numpy is installed."""
    return len(bounds) > _MANY and find_spec("numpy") is not None


def _bounds(data: bytes) -> list[int]:
    """The positions at which batches begin, and the last whole batch ends. Raises RequestFailed for a damaged batch."""
    found, at, end = [0], 0, len(data)
    view, unpack, take, checksum = memoryview(data), _LENGTH_TO_CRC.unpack_from, found.append, crc32c
    shortest = HEADER.size - LENGTH_FROM
    while at + HEADER.size <= end:
        length, magic, crc = unpack(data, at + LENGTH_AT)
        if length < shortest:
            raise RequestFailed(f"a record batch cannot be decoded (its length is {length})", FailureCode.DAMAGED_BATCH)
        begin, at = at, at + LENGTH_FROM + length
        if at > end:
            break
        if checksum(view[begin + CRC_FROM : at]) != crc and magic == MAGIC:
            base_offset = HEADER.unpack_from(data, begin)[0]
            raise RequestFailed(
                f"a record batch cannot be decoded (the batch at offset {base_offset} fails its checksum)",
                FailureCode.DAMAGED_BATCH,
            )
        take(at)
    return found


def _sections(data: bytes, bounds: Sequence[int], wanted: Sequence[bool]) -> Iterable[Section]:
    """As `search_columns.sections`, batch by batch."""
    begun: dict[int, bool] = {}
    # Of the batch before: whether it is decoded, whether it is whole, and the offset after its records.
    before: tuple[bool, bool, int] | tuple[()] = ()
    for number, (at, flag) in enumerate(zip(bounds[:-1], wanted, strict=True)):
        base_offset, magic, attributes, last_delta, count = _OFFSETS.unpack_from(data, at)
        decodes = bool(flag) or magic != MAGIC or bool(attributes & (COMPRESSED | CONTROL))
        whole = count == last_delta + 1
        follows = whole and before == (False, True, base_offset)
        if not before or decodes is not before[0] or not (decodes or follows):
            begun[number] = decodes
        before = decodes, whole, base_offset + count
    sections = [(first, behind, begun[first]) for first, behind in pairwise([*begun, len(wanted)])]
    return [one for one, after in zip_longest(sections, sections[1:]) if one[2] or after is None or after[2]]


def _passed_over(data: bytes, bounds: Sequence[int]) -> Batch:
    """Batches that follow one another without a gap, as one batch."""
    base_offset, *_ = _OFFSETS.unpack_from(data, bounds[0])
    of_last, _, _, last_delta, count = _OFFSETS.unpack_from(data, bounds[-2])
    return Batch(
        base_offset,
        of_last + last_delta,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        is_control=False,
        is_transactional=False,
        records_count=of_last - base_offset + count,
    )
