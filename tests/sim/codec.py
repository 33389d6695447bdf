"""The protocol's types in their flexible ("compact") form, as simulated brokers read them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Reader:
    """Reads the fields of a request in order."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    @property
    def position(self) -> int:
        """The number of bytes that were read."""
        return self._at

    def number(self, layout: str) -> int:
        """A number as `struct` names its layout: b, h, i or q."""
        (value,) = struct.unpack_from(f">{layout}", self._data, self._at)
        self._at += struct.calcsize(layout)
        return int(value)

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        self._at += count
        return self._data[self._at - count : self._at]

    def unsigned(self) -> int:
        """An unsigned varint."""
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def string(self) -> str | None:
        """A compact string."""
        length = self.unsigned() - 1
        return None if length < 0 else self.take(length).decode("utf-8")

    def name(self) -> str:
        """A compact string that must not be null."""
        return self.string() or ""

    def items(self, read: Callable[[], T]) -> list[T] | None:
        """A compact list; None for null."""
        count = self.unsigned() - 1
        return None if count < 0 else [read() for _ in range(count)]

    def numbers(self, layout: str) -> tuple[int, ...]:
        """A compact list of numbers."""
        many = f">{max(self.unsigned() - 1, 0)}{layout}"
        values = struct.unpack_from(many, self._data, self._at)
        self._at += struct.calcsize(many)
        return values

    def numbered(self) -> list[tuple[str, tuple[int, ...]]]:
        """A compact list of names with 32-bit numbers: topics with their partitions, as in requests."""
        return self.items(self._named_numbers) or []

    def _named_numbers(self) -> tuple[str, tuple[int, ...]]:
        named = self.name(), self.numbers("i")
        self.tags()
        return named

    def tags(self) -> None:
        """Skips tagged fields."""
        for _ in range(self.unsigned()):
            self.unsigned()
            self.take(self.unsigned())
