"""Batches of records, some with other bytes than a producer would write."""

from __future__ import annotations

import struct

import zstandard
from kafka.record.util import calc_crc32c

from tests.fakes.cluster import LAST_OFFSET_DELTA_AT
from tests.sim.encode import batch

LENGTH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT, COUNT_AT = 8, 16, 17, 21, 57
CONTROL, GZIP, ZSTD = 0x20, 1, 4
HEADER_BYTES = 61


def patched(data: bytes, at: int, form: str, value: int) -> bytes:
    """A batch with another number in its header and a valid checksum."""
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, CRC_AT, calc_crc32c(bytes(changed[ATTRIBUTES_AT:])))
    return bytes(changed)


def control(offset: int, producer_id: int, epoch: int, kind: int = 1) -> bytes:
    """A COMMIT marker, or a control record of another type."""
    marker = batch(
        offset, [(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 5))], producer_id=producer_id, producer_epoch=epoch
    )
    return patched(marker, ATTRIBUTES_AT, ">h", struct.unpack_from(">h", marker, ATTRIBUTES_AT)[0] | CONTROL)


def compacted(data: bytes, last_delta: int) -> bytes:
    """A batch that lost its last records to compaction."""
    return patched(data, LAST_OFFSET_DELTA_AT, ">i", last_delta)


def data(offset: int, sequence: int, producer_id: int = 7, count: int = 3, epoch: int = 3) -> bytes:
    return batch(offset, [(None, b"x")] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def compressed(plain: bytes, codec: int, payload: bytes) -> bytes:
    """A batch with this payload in place of its records."""
    one = patched(plain[:HEADER_BYTES] + payload, LENGTH_AT, ">i", HEADER_BYTES + len(payload) - 12)
    return patched(one, ATTRIBUTES_AT, ">h", struct.unpack_from(">h", one, ATTRIBUTES_AT)[0] | codec)


def of_equal_records(count: int, key: bytes | None = None) -> bytes:
    """A batch of so many equal records, of seven numbers each, with zstd. 500,000 of them take a few hundred bytes."""
    plain = batch(0, [(key, None)], producer_id=7, producer_epoch=3)
    claims = patched(patched(plain, COUNT_AT, ">i", count), LAST_OFFSET_DELTA_AT, ">i", count - 1)
    return compressed(claims, ZSTD, zstandard.ZstdCompressor().compress(plain[HEADER_BYTES:] * count))
