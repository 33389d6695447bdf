"""What is in record batches, decoded by kafka-python."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from kafka.errors import CorruptRecordError, KafkaError
from kafka.record import MemoryRecords

from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.record_batch import (
    ABORT,
    ATTRIBUTES_AT,
    COMMIT,
    CONTROL,
    CONTROL_KEY,
    HEADER,
    MAGIC,
    MARKER_VALUE,
    Batch,
    Marker,
)

# A batch is 1 MB by default (`max.message.bytes`), and Kafka compresses none in `__transaction_state`.
EXPANDED_BYTES_MAX = 64 * 1024 * 1024
_PIECE_BYTES = 1024 * 1024
_GZIP, _ZSTD = 1, 4
# With a header of gzip's or zlib's.
_GZIP_WINDOW_BITS = 47
# What kafka-python raises for bytes that are no batch.
_DAMAGED = (KafkaError, ValueError, IndexError, TypeError, OSError, EOFError, OverflowError, struct.error, zlib.error)


def decoded(data: bytes, records: bool) -> list[Batch]:
    """The whole batches in the data. The last may be cut off, as Fetch answers may be. Raises RequestFailed."""
    try:
        return [_batch(batch, records) for batch in MemoryRecords(data)]
    except _DAMAGED as damaged:
        raise RequestFailed(f"a record batch cannot be decoded ({type(damaged).__name__}: {damaged})") from damaged


def marker(data: bytes) -> Marker | None:
    """The marker in a control batch; None where it ends no transaction. The checksum is not checked.

    Raises RequestFailed where it cannot be one (`ControlRecordType.parse`, `EndTransactionMarker.deserialize`).
    """
    # Read as a batch of data: kafka-python does not accept control records that later versions have made longer.
    as_data = bytearray(data)
    as_data[ATTRIBUTES_AT + 1] &= ~CONTROL & 0xFF
    try:
        held = [(r.timestamp, r.key, r.value) for batch in MemoryRecords(bytes(as_data)) for r in batch]
    except _DAMAGED as damaged:
        raise RequestFailed(f"a control batch cannot be decoded ({type(damaged).__name__}: {damaged})") from damaged
    if not held:
        # Its records were compacted away, with the whole transaction (`ProducerAppendInfo.append`).
        return None
    timestamp_ms, key, value = held[0]
    if key is None or len(key) < CONTROL_KEY.size:
        raise RequestFailed("the key of a control record is cut short")
    version, kind = CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise RequestFailed(f"a control record has version {version}")
    if kind not in (ABORT, COMMIT):
        return None
    if value is None or len(value) < MARKER_VALUE.size:
        raise RequestFailed("the value of a marker is cut short")
    version, coordinator_epoch = MARKER_VALUE.unpack_from(value)
    if version < 0:
        raise RequestFailed(f"a marker has version {version}")
    return Marker(kind == COMMIT, coordinator_epoch, timestamp_ms)


def _commits(keys: Iterable[bytes | None]) -> bool:
    """Whether these keys of a control batch's records are those of a COMMIT marker (`ControlRecordType`)."""
    known = (key for key in keys if key is not None and len(key) >= CONTROL_KEY.size)
    return any(CONTROL_KEY.unpack_from(key)[1] == COMMIT for key in known)


def _check_expanded(data: bytes, codec: int) -> None:
    """Raises ValueError if this becomes too large: 19 kB of zstd can become more than a gigabyte."""
    size_bytes = 0
    for piece in (_unzipped if codec == _GZIP else _unpacked)(data):
        size_bytes += piece
        if size_bytes > EXPANDED_BYTES_MAX:
            raise ValueError(f"it expands to more than {EXPANDED_BYTES_MAX >> 20} MiB")


def _unzipped(data: bytes) -> Iterator[int]:
    """The sizes of the pieces that it expands to."""
    unzip = zlib.decompressobj(_GZIP_WINDOW_BITS)
    while data and not unzip.eof:
        yield len(unzip.decompress(data, _PIECE_BYTES))
        data = unzip.unconsumed_tail


def _unpacked(data: bytes) -> Iterator[int]:
    """As `_unzipped`, of zstd. Nothing where its library is not installed: kafka-python then refuses the batch."""
    with suppress(ImportError):
        import zstandard

        with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True) as reader:
            while piece := reader.read(_PIECE_BYTES):
                yield len(piece)


def _batch(batch: Any, records: bool) -> Batch:
    if batch.magic != MAGIC:
        raise CorruptRecordError(f"its format is version {batch.magic}, which knows no producers")
    if not batch.validate_crc():
        raise CorruptRecordError(f"the batch at offset {batch.base_offset} fails its checksum")
    if records and batch.compression_type in (_GZIP, _ZSTD):
        _check_expanded(bytes(batch._buffer[HEADER.size :]), batch.compression_type)
    # Control batches are never compressed, and a batch can be iterated only once.
    held = tuple((r.offset, r.key, r.value) for r in batch) if records or batch.is_control_batch else ()
    return Batch(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_control=batch.is_control_batch,
        is_transactional=batch.is_transactional,
        commits=batch.is_control_batch and _commits(key for _, key, _ in held),
        records_count=batch.records_count,
        records=held if records else None,
        leader_epoch=batch.leader_epoch,
    )
