"""Record batches (`DefaultRecordBatch`, version 2), and rows of equal ones that are made a thousand at a time. Pure.

A checksum (CRC-32C) is linear: where bytes of a batch are replaced, the checksum changes by an exclusive or that
follows from what the bytes change by and where they stand, and from nothing else in the batch. So batches of one length
are made once, and from then on copied and changed, a column of bytes at a time, with checksums that are right. What a
broker writes over a producer's batch, the base offset and the leader epoch, is not covered by the checksum at all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from crc32c import crc32c

from txnscan.kafka.protocol.primitives import unsigned
from txnscan.kafka.protocol.record_batch import CONTROL, CRC_AT, CRC_FROM, HEADER, LENGTH_FROM, MAGIC, TRANSACTIONAL

_POLYNOMIAL = 0x82F63B78
_NOBODY = -1
# Where a batch's two timestamps stand, and its records.
TIMESTAMPS_AT = (27, 35)
RECORDS_AT = HEADER.size
_XOR = tuple(bytes(value ^ one for value in range(256)) for one in range(256))


def _table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


_TABLE = _table()


@cache
def _changes(behind: int) -> tuple[int, ...]:
    """What a checksum changes by where a byte with so many bytes behind it changes by 0, 1, ... 255."""
    changes = [0] * 256
    for bit in range(8):
        change = _TABLE[1 << bit]
        for _ in range(behind):
            change = _TABLE[change & 0xFF] ^ change >> 8
        for value in range(1 << bit, 2 << bit):
            changes[value] = changes[value - (1 << bit)] ^ change
    return tuple(changes)


def _varint(value: int) -> bytes:
    """A signed number, zigzag."""
    return unsigned(value << 1 ^ value >> 63)


def _bytes(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def batch(
    base_offset: int,
    records: Sequence[tuple[bytes | None, bytes | None]],
    *,
    timestamp_ms: int,
    leader_epoch: int = 0,
    producer_id: int = _NOBODY,
    producer_epoch: int = _NOBODY,
    base_sequence: int = _NOBODY,
    attributes: int = 0,
) -> bytes:
    """A batch of keys and values, not compressed, all of one time."""
    written = []
    for delta, (key, value) in enumerate(records):
        body = b"\0" + _varint(0) + _varint(delta) + _bytes(key) + _bytes(value) + _varint(0)
        written.append(_varint(len(body)) + body)
    data = b"".join(written)
    count = len(records)
    header = HEADER.pack(
        *(base_offset, HEADER.size - LENGTH_FROM + len(data), leader_epoch, MAGIC, 0, attributes, count - 1),
        *(timestamp_ms, timestamp_ms, producer_id, producer_epoch, base_sequence, count),
    )
    crc = crc32c(header[CRC_FROM:] + data)
    return header[:CRC_AT] + crc.to_bytes(4) + header[CRC_FROM:] + data


def marker(offset: int, producer_id: int, producer_epoch: int, coordinator_epoch: int, commit: bool, ms: int) -> bytes:
    """A control batch with an EndTxnMarker, as a broker appends it."""
    return batch(
        offset,
        [(struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, coordinator_epoch))],
        timestamp_ms=ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL | CONTROL,
    )


@dataclass(frozen=True)
class Layout:
    """Where in a row of batches, one behind the other, each of them begins and ends."""

    batches: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """How long a row is."""
        return sum(map(len, self.batches))

    @property
    def starts(self) -> tuple[int, ...]:
        """Where its batches begin."""
        return tuple(sum(map(len, self.batches[:number])) for number in range(len(self.batches)))

    def changed(self, number: int, fields: Iterable[tuple[int, bytes]]) -> bytes:
        """One of the batches, with other bytes at these places in it, and its checksum."""
        made, size = bytearray(self.batches[number]), len(self.batches[number])
        crc = int.from_bytes(made[CRC_AT:CRC_FROM])
        for at, data in fields:
            for place, byte in enumerate(data, at):
                if made[place] != byte:
                    crc ^= _changes(size - 1 - place)[made[place] ^ byte]
                    made[place] = byte
        made[CRC_AT:CRC_FROM] = crc.to_bytes(4)
        return bytes(made)


class Rows:
    """Rows of batches, all of one layout. A batch holds one record.

    data: the rows, one behind the other; they may differ in anything but in what `with_fields` replaces.
    """

    def __init__(self, layout: Layout, data: bytes) -> None:
        self._layout = layout
        self._data = data
        self._size = layout.size

    @property
    def size_bytes(self) -> int:
        """How much they are."""
        return len(self._data)

    def of_batch(self, number: int, first: int, end: int) -> Rows:
        """The rows from `first` to `end` with one of their batches alone."""
        start, size = self._layout.starts[number], self._size
        length = len(self._layout.batches[number])
        data = b"".join(self._data[at : at + length] for at in range(first * size + start, end * size, size))
        return Rows(Layout((self._layout.batches[number],)), data)

    def with_fields(
        self, first: int, end: int, offsets: Sequence[int], step: int, fields: Sequence[Mapping[int, bytes]]
    ) -> bytes:
        """The rows from `first` to `end`, with other bytes at the same places in each of them.

        offsets: of the first row's batches; those of the next row are by `step` higher. fields: for each batch of a
        row, bytes by the place in the batch where they go.
        """
        size, count = self._size, end - first
        data = bytearray(self._data[first * size : end * size])
        for number, start in enumerate(self._layout.starts):
            original, length = self._layout.batches[number], len(self._layout.batches[number])
            crc = 0
            for at, replaced in fields[number].items():
                for place, byte in enumerate(replaced, at):
                    change = original[place] ^ byte
                    if change:
                        crc ^= _changes(length - 1 - place)[change]
                        data[start + place :: size] = bytes((byte,)) * count
            for place, byte in enumerate(crc.to_bytes(4), start + CRC_AT):
                if byte:
                    data[place::size] = data[place::size].translate(_XOR[byte])
            numbered = struct.pack(f">{count}q", *range(offsets[number], offsets[number] + count * step, step))
            for place in range(8):
                data[start + place :: size] = numbered[place::8]
        return bytes(data)
