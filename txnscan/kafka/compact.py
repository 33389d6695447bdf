"""Kafka's primitive types as flexible versions write them (KIP-482); `frames.Cursor` reads them."""

from __future__ import annotations

import struct
from collections.abc import Iterable

# No tagged fields; a null string; an empty list. Each is one byte.
NO_TAGS = b"\0"
NULL = b"\0"
EMPTY = b"\1"
# What is short, which nearly everything is.
_ONE_BYTE = tuple(bytes([value]) for value in range(0x80))


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
    return unsigned(len(listed) + 1) + struct.pack(f">{len(listed)}i", *listed)
