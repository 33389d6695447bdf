"""Kafka's primitive types: writes them as in flexible versions (KIP-482), and reads them in all versions."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable

_INT8, _INT16, _INT32, _INT64 = (struct.Struct(f">{form}") for form in "bhiq")
# No tagged fields; a null string; an empty list. Each is one byte.
NO_TAGS = b"\0"
NULL = b"\0"
EMPTY = b"\1"
# The limit of tagged fields in one place. Kafka itself has only a few.
TAGS_MAX = 1_000
# The limit of a text: that of Kafka's older versions, in whose length it has 16 bits. Names of ids and groups still
# have it, because records have these lengths (`TransactionLogKey.json`, `OffsetCommitKey.json`).
TEXT_BYTES_MAX = 2**15 - 1
# The limit of the elements of all lists of an answer that becomes objects: an element takes some microseconds, and up
# to 500 bytes.
ELEMENTS_MAX = 400_000
# The varints of one byte. Nearly all varints have one byte.
_ONE_BYTE = tuple(bytes([value]) for value in range(0x80))


_ONE_NUMBER = _ONE_BYTE[2]


def unsigned(value: int) -> bytes:
    """An unsigned varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def string(text: str | None) -> bytes:
    """A compact string."""
    if text is None:
        return NULL
    data = text.encode("utf-8")
    return unsigned(len(data) + 1) + data


def items(written: Iterable[bytes]) -> bytes:
    """A compact list."""
    listed = tuple(written)
    return unsigned(len(listed) + 1) + b"".join(listed)


def numbers(values: Iterable[int]) -> bytes:
    """A compact list of 32-bit numbers."""
    listed = tuple(values)
    if len(listed) == 1:
        return _ONE_NUMBER + _INT32.pack(*listed)
    return unsigned(len(listed) + 1) + struct.pack(f">{len(listed)}i", *listed)


class Reader(ABC):
    """Reads primitive types from bytes, in order. Raises the exception of `error` if the bytes end too early or are
    invalid.
    """

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    @abstractmethod
    def error(self, why: str) -> Exception:
        """Returns the exception to raise for bytes that make no sense."""

    def skip(self, count: int) -> None:
        """Skips some bytes."""
        self.at += count
        if count < 0 or self.at > len(self.data):
            raise self.error("it is cut short")

    def take(self, count: int) -> bytes:
        """The next bytes, not decoded."""
        at = self.at
        self.skip(count)
        return self.data[at : self.at]

    def int8(self) -> int:
        return self._number(_INT8)

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def _number(self, kind: struct.Struct) -> int:
        at = self.at
        self.skip(kind.size)
        return int(kind.unpack_from(self.data, at)[0])

    def uvarint(self) -> int:
        """An unsigned varint of at most 32 bits."""
        at = self.at
        # Nearly always one byte.
        if at < len(self.data) and self.data[at] < 0x80:
            self.at = at + 1
            return self.data[at]
        value = shift = 0
        while True:
            at = self.at
            self.skip(1)
            byte = self.data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise self.error("a number in it is too long")

    def text(self, size: int) -> str:
        """The next bytes, as UTF-8."""
        if size > TEXT_BYTES_MAX:
            raise self.error("a text in it is too long")
        data = self.take(size)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise self.error("a text in it is not UTF-8") from None

    def string(self) -> str | None:
        """A compact nullable string."""
        length = self.uvarint() - 1
        return None if length < 0 else self.text(length)

    def length(self) -> int:
        """The length of a compact array. Raises an error for null, because null proves no absence."""
        length = self.uvarint() - 1
        if length < 0:
            raise self.error("it holds null in place of a list")
        return length

    def tags(self) -> dict[int, bytes]:
        """The tagged fields, as bytes. A later release may have added some."""
        count = self.uvarint()
        if count > TAGS_MAX:
            raise self.error(f"it holds more than {TAGS_MAX} tagged fields in one place")
        return {self.uvarint(): self.take(self.uvarint()) for _ in range(count)}

    def end(self) -> None:
        """Raises an error if bytes remain."""
        if self.at != len(self.data):
            raise self.error(f"it has {len(self.data) - self.at} bytes too many")
