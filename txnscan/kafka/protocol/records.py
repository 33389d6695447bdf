"""The contents of record batches, decoded by kafka-python.

kafka-python expands whatever it gets. So batches are expanded here, in pieces and with one ceiling, and kafka-python
gets them as batches without compression. Brokers never compress control batches: such a batch is damaged
(`DefaultRecordBatch.writeEmptyHeader`, `MemoryRecords.writeEndTransactionalMarker`).
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from kafka import codec as codecs
from kafka.errors import CorruptRecordError, KafkaError, UnsupportedCodecError
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.util import decode_varint

from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import FailureCode
from txnscan.kafka.protocol.primitives import Reader
from txnscan.kafka.protocol.record_batch import (
    ABORT,
    ATTRIBUTES_AT,
    COMMIT,
    COMPRESSED,
    CONTROL,
    CONTROL_KEY,
    HEADER,
    LENGTH_AT,
    LENGTH_FROM,
    MAGIC,
    MARKER_VALUE,
    Batch,
    Marker,
)

# The limit of the expanded batches of an answer. By default a batch has at most 1 MB (`max.message.bytes`), and Kafka
# compresses no batch in `__transaction_state`.
EXPANDED_BYTES_MAX = 64 * 1024 * 1024
# A record of seven bytes takes a hundred in memory.
RECORDS_MAX = 500_000
# Of an answer and of a record. A header has two numbers, and a record seven others. Each takes part of a microsecond,
# and a header of two bytes a hundred bytes in memory.
NUMBERS_MAX, NUMBERS_OF_RECORD_MAX = 3_500_000, 200_000
# 400 bytes of zstd can become 500,000 equal records. So the numbers are also limited by the size of an answer: for any
# size, and for each byte. Records differ at least in their offsets, so that a record takes some bytes.
NUMBERS_OF_ANY_SIZE, NUMBERS_PER_BYTE = 50_000, 50
# A file has all batches of a log, one after another. What each may use is given back by its size: Kafka compresses no
# batch of `__transaction_state` or of the cluster's metadata, and a number takes a byte at least.
_FILE_NUMBERS_PER_BYTE, _FILE_EXPANDED_PER_BYTE = 1, 100
_PIECE_BYTES = 1024 * 1024
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
# Kafka writes snappy in blocks, each with its length before it. This header and two version numbers come first.
_SNAPPY_BLOCKS, _SNAPPY_HEADER_BYTES = b"\x82SNAPPY\0", 16
# An empty block takes the time of some bytes.
_SNAPPY_BLOCK_BYTES_MIN = 1024
_LENGTH = struct.Struct(">i")
# For data with a header of gzip.
_GZIP_WINDOW_BITS = 31
# Writers make one. Java reads several.
_GZIP_MEMBERS_MAX = 100
# The exceptions of kafka-python for bytes that are no batch.
_DAMAGED = (
    *(KafkaError, ValueError, IndexError, TypeError, OSError, EOFError, OverflowError, struct.error, zlib.error),
    RuntimeError,
)


def decoded(data: bytes, records: bool, room: BatchRoom | None = None) -> list[Batch]:
    """The whole batches in the data. The last batch may be cut off, as in Fetch answers. Raises RequestFailed.

    room: of the answer or the file that the data is a part of.
    """
    room = room if room is not None else BatchRoom(len(data))
    try:
        return [_batch(batch, records, room) for batch in MemoryRecords(data)]
    except _DAMAGED as damaged:
        why = f"a record batch cannot be decoded ({type(damaged).__name__}: {damaged})"
        raise RequestFailed(why, FailureCode.DAMAGED_BATCH) from damaged


def marker(data: bytes) -> Marker | None:
    """The marker in a control batch. None if the batch ends no transaction. The checksum is not checked.

    Raises RequestFailed if the batch is invalid (`ControlRecordType.parse`, `EndTransactionMarker.deserialize`).
    """
    # Read as a data batch, because kafka-python rejects control records that later versions have made longer.
    as_data = bytearray(data)
    if len(data) > ATTRIBUTES_AT + 1:
        if as_data[ATTRIBUTES_AT + 1] & COMPRESSED:
            raise RequestFailed("a control batch is compressed")
        as_data[ATTRIBUTES_AT + 1] &= ~CONTROL & 0xFF
    try:
        held = [(r.timestamp, r.key, r.value) for batch in MemoryRecords(bytes(as_data)) for r in batch]
    except _DAMAGED as damaged:
        why = f"a control batch cannot be decoded ({type(damaged).__name__}: {damaged})"
        raise RequestFailed(why, FailureCode.DAMAGED_BATCH) from damaged
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
    if len(held) > 1:
        raise RequestFailed(f"a marker's batch has {len(held)} records")
    if value is None or len(value) < MARKER_VALUE.size:
        raise RequestFailed("the value of a marker is cut short")
    version, coordinator_epoch = MARKER_VALUE.unpack_from(value)
    if version < 0:
        raise RequestFailed(f"a marker has version {version}")
    return Marker(kind == COMMIT, coordinator_epoch, timestamp_ms)


def _commits(keys: Iterable[bytes | None]) -> bool:
    """Whether these keys of a control batch's records are those of a COMMIT marker (`ControlRecordType`).

    Kafka writes a marker as the only record of its batch, and reads the first. So a marker beside other records is
    damage (`MemoryRecords.writeEndTransactionalMarker`, `ProducerAppendInfo.append`).
    """
    kinds = [CONTROL_KEY.unpack_from(key)[1] if key and len(key) >= CONTROL_KEY.size else None for key in keys]
    if len(kinds) > 1 and not {ABORT, COMMIT}.isdisjoint(kinds):
        raise CorruptRecordError(f"a marker's batch has {len(kinds)} records")
    return kinds == [COMMIT]


class BatchRoom:
    """What is left for the batches of an answer, all together: the bytes that they may still expand to, the records
    that may still be kept, and the numbers in them that may still be read. size_bytes: of these batches, as they came.
    """

    def __init__(self, size_bytes: int) -> None:
        self._free_bytes = EXPANDED_BYTES_MAX
        self._free_records = RECORDS_MAX
        self._free_numbers = min(NUMBERS_MAX, NUMBERS_OF_ANY_SIZE + NUMBERS_PER_BYTE * size_bytes)
        self._of_record = NUMBERS_OF_RECORD_MAX

    @classmethod
    def of_file(cls) -> BatchRoom:
        """For the batches of a file, which are decoded one by one. `for_next` begins each."""
        return cls(NUMBERS_MAX)

    def for_next(self, size_bytes: int) -> BatchRoom:
        """This room, for the next batch of a file. A batch may use as much as an answer. All together may use little
        more than their sizes allow.
        """
        self._free_bytes = min(EXPANDED_BYTES_MAX, self._free_bytes + _FILE_EXPANDED_PER_BYTE * size_bytes)
        self._free_records = RECORDS_MAX
        self._free_numbers = min(NUMBERS_MAX, self._free_numbers + _FILE_NUMBERS_PER_BYTE * size_bytes)
        return self

    def take(self, size_bytes: int) -> None:
        """Raises ValueError if they are too many: 19 kB of zstd can become more than a gigabyte."""
        self._free_bytes -= size_bytes
        if self._free_bytes < 0:
            raise ValueError("it expands to too many bytes")

    def take_record(self) -> None:
        """Raises ValueError if they are too many."""
        self._free_records -= 1
        if self._free_records < 0:
            raise ValueError(f"it has more than {RECORDS_MAX:,} records")
        self._of_record = NUMBERS_OF_RECORD_MAX

    def number(self, data: Any, at: int) -> Any:
        """As `decode_varint`. Raises ValueError if they are too many, as in a record with millions of headers, or in
        many records that take almost no bytes.
        """
        self._free_numbers -= 1
        self._of_record -= 1
        if min(self._free_numbers, self._of_record) < 0:
            raise ValueError("it has too many records or headers for its size")
        return decode_varint(data, at)


def _expanded(batch: bytes, codec: int, room: BatchRoom) -> bytes:
    """The batch without compression. Its checksum is that of the compressed batch. Raises ValueError."""
    expanded = bytearray(batch[: HEADER.size])
    for piece in _EXPANDERS[codec](batch[HEADER.size :], room):
        expanded += piece
    expanded[ATTRIBUTES_AT + 1] &= ~COMPRESSED & 0xFF
    _LENGTH.pack_into(expanded, LENGTH_AT, len(expanded) - LENGTH_FROM)
    return bytes(expanded)


def _unzipped(data: bytes, room: BatchRoom) -> Iterator[bytes]:
    """The expanded pieces of gzip data, of all its members."""
    for _ in range(_GZIP_MEMBERS_MAX):
        unzip = zlib.decompressobj(_GZIP_WINDOW_BITS)
        while not unzip.eof:
            piece = unzip.decompress(data, _PIECE_BYTES)
            data = unzip.unconsumed_tail
            if not (piece or data or unzip.eof):
                raise EOFError("its gzip is cut off")
            room.take(len(piece))
            yield piece
        data = unzip.unused_data
        if not data:
            return
    raise ValueError(f"its gzip has more than {_GZIP_MEMBERS_MAX} members")


def _unpacked(data: bytes, room: BatchRoom) -> Iterator[bytes]:
    """As `_unzipped`, for zstd."""
    try:
        import zstandard
    except ImportError:
        raise UnsupportedCodecError("it is compressed with zstd, and the library zstandard is not installed") from None
    try:
        with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True) as reader:
            while piece := reader.read(_PIECE_BYTES):
                room.take(len(piece))
                yield piece
    except zstandard.ZstdError as error:
        raise ValueError(f"its zstd is damaged ({error})") from None


def _of_lz4(data: bytes, room: BatchRoom) -> Iterator[bytes]:
    """As `_unzipped`, for lz4. Kafka writes one frame."""
    try:
        from lz4.frame import LZ4FrameDecompressor
    except ImportError:
        raise UnsupportedCodecError("it is compressed with lz4, and the library lz4 is not installed") from None
    unpack = LZ4FrameDecompressor()
    piece = unpack.decompress(data, _PIECE_BYTES)
    while piece or not (unpack.eof or unpack.needs_input):
        room.take(len(piece))
        yield piece
        piece = b"" if unpack.eof else unpack.decompress(b"", _PIECE_BYTES)
    if not unpack.eof or unpack.unused_data:
        raise ValueError("its lz4 is cut off, or more than a frame")


def _of_snappy(data: bytes, room: BatchRoom) -> Iterator[bytes]:
    """As `_unzipped`, for snappy. Each block begins with its expanded size, which snappy's library allocates."""
    if not data.startswith(_SNAPPY_BLOCKS) or len(data) <= _SNAPPY_HEADER_BYTES:
        yield _unsnapped(data, room)
        return
    at = _SNAPPY_HEADER_BYTES
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if not 0 < length <= len(data) - at:
            raise ValueError(f"a block of it claims {length} bytes")
        yield _unsnapped(data[at : at + length], room)
        at += length


def _unsnapped(block: bytes, room: BatchRoom) -> bytes:
    room.take(max(_Sizes(block).uvarint(), _SNAPPY_BLOCK_BYTES_MIN))
    snappy = codecs.snappy
    if snappy is None:
        raise UnsupportedCodecError("it is compressed with snappy, and the library python-snappy is not installed")
    try:
        return bytes(snappy.decompress(block))
    except Exception as error:
        # The error of snappy's libraries is no ValueError.
        raise ValueError(f"its snappy is damaged ({type(error).__name__})") from None


class _Sizes(Reader):
    __slots__ = ()

    def error(self, why: str) -> ValueError:
        """See Reader."""
        return ValueError(why)


_EXPANDERS: Mapping[int, Callable[[bytes, BatchRoom], Iterator[bytes]]] = MappingProxyType(
    {_GZIP: _unzipped, _SNAPPY: _of_snappy, _LZ4: _of_lz4, _ZSTD: _unpacked}
)


def _batch(batch: Any, records: bool, room: BatchRoom) -> Batch:
    if batch.magic != MAGIC:
        raise CorruptRecordError(f"its format is version {batch.magic}, which knows no producers")
    if not batch.validate_crc():
        raise CorruptRecordError(f"the batch at offset {batch.base_offset} fails its checksum")
    if min(batch.base_offset, batch.records_count, batch.last_offset - batch.base_offset) < 0:
        said = f"{batch.records_count} records from offset {batch.base_offset} to {batch.last_offset}"
        raise CorruptRecordError(f"a batch claims {said}")
    held = tuple(_held(batch, room)) if _is_opened(batch, records) else ()
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


def _held(batch: Any, room: BatchRoom) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    for record in _records(batch, room):
        room.take_record()
        yield record.offset, record.key, record.value


def _is_opened(batch: Any, records: bool) -> bool:
    """Whether the records of a batch are read. A marker is recognised by its record."""
    if batch.is_control_batch and batch.compression_type:
        raise CorruptRecordError(f"the control batch at offset {batch.base_offset} is compressed")
    return records or bool(batch.is_control_batch)


def _records(batch: Any, room: BatchRoom) -> Iterator[Any]:
    if not batch.compression_type:
        # Each number has a byte at least, and the transaction log has small batches.
        yield from batch if len(batch._buffer) <= NUMBERS_OF_RECORD_MAX else _LimitedBatch(batch._buffer, room)
        return
    if batch.compression_type not in _EXPANDERS:
        raise UnsupportedCodecError(f"it is compressed with codec {batch.compression_type}, which is unknown")
    yield from _LimitedBatch(_expanded(bytes(batch._buffer), batch.compression_type, room), room)


class _LimitedBatch(DefaultRecordBatch):  # type: ignore[misc]
    """kafka-python's batch, without compression. It makes a list of all headers of a record: these are limited here."""

    __slots__ = ("_room",)

    def __init__(self, batch: bytes, room: BatchRoom) -> None:
        super().__init__(batch)
        self._room = room

    def _read_msg(self) -> Any:
        return super()._read_msg(self._room.number)
