"""Record batches (`DefaultRecordBatch`, version 2), and rows of similar batches that are made a thousand at a time.
Pure.

A checksum (CRC-32C) is linear: if bytes of a batch are replaced, the checksum changes by an exclusive or that depends
only on the change of the bytes and on their position. So batches of one length are made once, and then copied and
changed, a column of bytes at a time, with correct checksums. The checksum does not cover the base offset and the leader
epoch, which a broker overwrites.
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
# The positions of a batch's two timestamps, and of its records.
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
    """The changes of a checksum if a byte that is followed by this many bytes changes by 0, 1, ... 255."""
    changes = [0] * 256
    for bit in range(8):
        change = _TABLE[1 << bit]
        for _ in range(behind):
            change = _TABLE[change & 0xFF] ^ change >> 8
        for value in range(1 << bit, 2 << bit):
            changes[value] = changes[value - (1 << bit)] ^ change
    return tuple(changes)


def _varint(value: int) -> bytes:
    """A signed number in zigzag encoding."""
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
    """An uncompressed batch of keys and values, all with one timestamp."""
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
    """The positions of the batches in a row; a row is several batches in sequence."""

    batches: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """The length of a row."""
        return sum(map(len, self.batches))

    @property
    def starts(self) -> tuple[int, ...]:
        """The positions of its batches."""
        return tuple(sum(map(len, self.batches[:number])) for number in range(len(self.batches)))

    def changed(self, number: int, fields: Iterable[tuple[int, bytes]]) -> bytes:
        """One of the batches, with these bytes at these positions, and the right checksum."""
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
    """Rows of batches, all with the same layout. A batch has one record.

    data: the rows in sequence. They may differ in any bytes except the bytes that `with_fields` replaces.
    """

    def __init__(self, layout: Layout, data: bytes) -> None:
        self._layout = layout
        self._data = data
        self._size = layout.size

    @property
    def size_bytes(self) -> int:
        """The size of all rows."""
        return len(self._data)

    def of_batch(self, number: int, first: int, end: int) -> Rows:
        """The rows from `first` to `end`, reduced to one of their batches."""
        start, size = self._layout.starts[number], self._size
        length = len(self._layout.batches[number])
        data = b"".join(self._data[at : at + length] for at in range(first * size + start, end * size, size))
        return Rows(Layout((self._layout.batches[number],)), data)

    def with_fields(
        self, first: int, end: int, offsets: Sequence[int], step: int, fields: Sequence[Mapping[int, bytes]]
    ) -> bytes:
        """The rows from `first` to `end`, with new bytes at the same positions in each of them.

        offsets: of the first row's batches; the offsets of the next row are higher by `step`. fields: for each batch of
        a row, the new bytes by their position in the batch.
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
