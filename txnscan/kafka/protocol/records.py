"""The contents of record batches, decoded by kafka-python."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from kafka.errors import CorruptRecordError, KafkaError, UnsupportedCodecError
from kafka.record import MemoryRecords

from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.primitives import Reader
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

# The limit of a batch's expanded size. By default a batch has at most 1 MB (`max.message.bytes`), and Kafka compresses
# no batch in `__transaction_state`.
EXPANDED_BYTES_MAX = 64 * 1024 * 1024
_PIECE_BYTES = 1024 * 1024
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
# Kafka writes snappy in blocks, each with its length before it. This header and two version numbers come first.
_SNAPPY_BLOCKS, _SNAPPY_HEADER_BYTES = b"\x82SNAPPY\0", 16
_BLOCK_LENGTH = struct.Struct(">i")
# For data with a header of gzip or zlib.
_GZIP_WINDOW_BITS = 47
# The exceptions of kafka-python for bytes that are no batch.
_DAMAGED = (
    *(KafkaError, ValueError, IndexError, TypeError, OSError, EOFError, OverflowError, struct.error, zlib.error),
    RuntimeError,
)


def decoded(data: bytes, records: bool) -> list[Batch]:
    """The whole batches in the data. The last batch may be cut off, as in Fetch answers. Raises RequestFailed."""
    try:
        return [_batch(batch, records) for batch in MemoryRecords(data)]
    except _DAMAGED as damaged:
        raise RequestFailed(f"a record batch cannot be decoded ({type(damaged).__name__}: {damaged})") from damaged


def marker(data: bytes) -> Marker | None:
    """The marker in a control batch. None if the batch ends no transaction. The checksum is not checked.

    Raises RequestFailed if the batch is invalid (`ControlRecordType.parse`, `EndTransactionMarker.deserialize`).
    """
    # Read as a data batch, because kafka-python rejects control records that later versions have made longer.
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
    """Raises ValueError if the expanded data is too large: 19 kB of zstd can become more than a gigabyte."""
    size_bytes = 0
    for piece in _EXPANDERS[codec](data):
        size_bytes += piece
        if size_bytes > EXPANDED_BYTES_MAX:
            raise ValueError(f"it expands to more than {EXPANDED_BYTES_MAX >> 20} MiB")


def _unzipped(data: bytes) -> Iterator[int]:
    """The sizes of the expanded pieces of gzip data."""
    unzip = zlib.decompressobj(_GZIP_WINDOW_BITS)
    while data and not unzip.eof:
        yield len(unzip.decompress(data, _PIECE_BYTES))
        data = unzip.unconsumed_tail


def _unpacked(data: bytes) -> Iterator[int]:
    """As `_unzipped`, for zstd. Empty if its library is not installed. Then kafka-python refuses the batch."""
    with suppress(ImportError):
        import zstandard

        with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True) as reader:
            while piece := reader.read(_PIECE_BYTES):
                yield len(piece)


def _records(batch: Any) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    try:
        yield from ((r.offset, r.key, r.value) for r in batch)
    except Exception as error:
        # The error of snappy's libraries is no ValueError.
        if batch.compression_type != _SNAPPY:
            raise
        raise ValueError(f"its snappy is damaged ({type(error).__name__})") from None


def _of_lz4(data: bytes) -> Iterator[int]:
    """As `_unzipped`, for lz4."""
    try:
        from lz4.frame import LZ4FrameDecompressor, get_frame_info
    except ImportError:
        # kafka-python also accepts two other libraries for lz4. They have no limit.
        raise UnsupportedCodecError("it is compressed with lz4, and the library lz4 is not installed") from None
    # kafka-python allocates the size that the frame claims.
    if get_frame_info(data)["content_size"] > EXPANDED_BYTES_MAX:
        raise ValueError(f"it claims to expand to more than {EXPANDED_BYTES_MAX >> 20} MiB")
    unpack = LZ4FrameDecompressor()
    piece = unpack.decompress(data, _PIECE_BYTES)
    while piece or not (unpack.eof or unpack.needs_input):
        yield len(piece)
        piece = b"" if unpack.eof else unpack.decompress(b"", _PIECE_BYTES)


def _of_snappy(data: bytes) -> Iterator[int]:
    """As `_unzipped`, for snappy, without expanding it. Each block begins with its expanded size."""
    if not data.startswith(_SNAPPY_BLOCKS) or len(data) <= _SNAPPY_HEADER_BYTES:
        yield _Sizes(data).uvarint()
        return
    at = _SNAPPY_HEADER_BYTES
    while at < len(data):
        (length,) = _BLOCK_LENGTH.unpack_from(data, at)
        at += _BLOCK_LENGTH.size
        if not 0 < length <= len(data) - at:
            raise ValueError(f"a block of it claims {length} bytes")
        yield _Sizes(data, at).uvarint()
        at += length


class _Sizes(Reader):
    __slots__ = ()

    def error(self, why: str) -> ValueError:
        """See Reader."""
        return ValueError(why)


_EXPANDERS: Mapping[int, Callable[[bytes], Iterator[int]]] = MappingProxyType(
    {_GZIP: _unzipped, _SNAPPY: _of_snappy, _LZ4: _of_lz4, _ZSTD: _unpacked}
)


def _batch(batch: Any, records: bool) -> Batch:
    if batch.magic != MAGIC:
        raise CorruptRecordError(f"its format is version {batch.magic}, which knows no producers")
    if not batch.validate_crc():
        raise CorruptRecordError(f"the batch at offset {batch.base_offset} fails its checksum")
    if records and batch.compression_type in _EXPANDERS:
        _check_expanded(bytes(batch._buffer[HEADER.size :]), batch.compression_type)
    # Control batches are never compressed, and a batch can be iterated only once.
    held = tuple(_records(batch)) if records or batch.is_control_batch else ()
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
