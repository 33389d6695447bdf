"""Record batches (`DefaultRecordBatch`, version 2), as brokers send them and as log segments have them: the layout of
their headers. `records.py` decodes their contents.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from mmap import mmap
from typing import NamedTuple

MAGIC = 2
# Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, base timestamp, greatest timestamp,
# producer id, producer epoch, base sequence, count of records; then the records.
HEADER = struct.Struct(">qiibIhiqqqhii")
# The length counts the bytes after itself. The magic byte has the same position in every version. The checksum covers
# all bytes after it.
LENGTH_AT, LENGTH_FROM, MAGIC_AT, CRC_AT, CRC_FROM = 8, 12, 16, 17, 21
ATTRIBUTES_AT = CRC_FROM
# Bits of the attributes.
COMPRESSED, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
NO_SEQUENCE = -1
# Version and type of a control record's key; version and coordinator epoch of the value of an end marker.
CONTROL_KEY, MARKER_VALUE = struct.Struct(">hh"), struct.Struct(">hi")
ABORT, COMMIT = 0, 1
# The only record of a marker, as every broker writes it: its length; attributes and deltas, all 0; the length and
# version of its key; its type; the length and version of its value; the coordinator epoch; no headers.
MARKER_BODY = struct.Struct(">7sh3sib")
PLAIN_MARKER = bytes((16 << 1, 0, 0, 0, 4 << 1, 0, 0))
MARKER_SIZE = HEADER.size + MARKER_BODY.size
_SEQUENCES = 2**31


class BatchHeader(NamedTuple):
    """The header of a record batch: the fields of `HEADER`, in their order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    greatest_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @classmethod
    def read(cls, data: bytes | mmap, at: int = 0) -> BatchHeader:
        """The header at a position."""
        # `_make` takes three times as long.
        return tuple.__new__(cls, HEADER.unpack_from(data, at))

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch."""
        return LENGTH_FROM + self.length

    @property
    def last_offset(self) -> int:
        """The offset of the last record, even if compaction removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record (`DefaultRecordBatch.incrementSequence`)."""
        first = self.base_sequence
        return first if first == NO_SEQUENCE else (first + self.last_offset_delta) % _SEQUENCES

    @property
    def is_compressed(self) -> bool:
        """Whether a codec compressed the records."""
        return bool(self.attributes & COMPRESSED)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is a part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the records are control records, such as markers."""
        return bool(self.attributes & CONTROL)


@dataclass(frozen=True, slots=True)
class Batch:
    """A record batch: its offsets, the producer fields of its header, and its records as (offset, key, value).

    commits: whether it is a COMMIT marker. records_count: the number of its records; less than the number of offsets if
    compaction removed some. records: None if they were not requested. leader_epoch: of the leader that appended it.
    """

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_control: bool
    is_transactional: bool
    commits: bool = False
    records_count: int = 0
    records: tuple[tuple[int, bytes | None, bytes | None], ...] | None = None
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a transaction, from a control record. timestamp_ms: by the clock of the broker."""

    commits: bool
    coordinator_epoch: int
    timestamp_ms: int
