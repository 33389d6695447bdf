"""Deletion vectors, as Delta writes them."""

from __future__ import annotations

import struct
from typing import Any

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def encoded(data: bytes) -> str:
    text = ""
    for at in range(0, len(data), 4):
        number = int.from_bytes(data[at : at + 4].ljust(4, b"\0"), "big")
        text += "".join(DIGITS[number // 85**place % 85] for place in (4, 3, 2, 1, 0))
    return text


def bitmaps(*bitmaps: tuple[int, bytes]) -> bytes:
    """A vector of these bitmaps, each of 2^32 rows, with their numbers."""
    head = struct.pack("<IQ", 1681511377, len(bitmaps))
    return head + b"".join(struct.pack("<I", key) + bitmap for key, bitmap in bitmaps)


def full(*keys: int) -> bytes:
    """All rows of these containers, each of 65,536 rows, as one run."""
    head = struct.pack("<I", 12347 | (len(keys) - 1) << 16) + b"\xff" * ((len(keys) + 7) // 8)
    return head + b"".join(struct.pack("<HH", key, 65_535) for key in keys) + b"\1\0\0\0\xff\xff" * len(keys)


def inline(data: bytes) -> dict[str, Any]:
    return {"storageType": "i", "pathOrInlineDv": encoded(data), "sizeInBytes": len(data)}
