"""The size of deletion vectors. 31 bytes name any row number, and readers make a list of all rows up to the highest.

Source: Delta's PROTOCOL.md, "Deletion Vectors"; RoaringFormatSpec.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import IO, Any
from uuid import UUID

from txnscan.tables.metadata import UnreadableLog, named

# The rows of a file that may have a vector. A vector of so many rows has at most 2.5 MB.
ROWS_MAX = 20_000_000
BYTES_MAX = 4 << 20
_MAGIC = 1681511377
_DIGITS = {digit: number for number, digit in enumerate(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)}  # fmt: skip
_UUID_DIGITS = 20
_ROWS_OF_CONTAINER = 1 << 16
_WITH_RUNS, _WITHOUT_RUNS = 12347, 12346


def rows_of(vector: Mapping[str, Any], opened: Callable[[str], IO[bytes]]) -> int:
    """How many rows a reader lists for a vector, at most. opened: opens a file of the table.

    Raises UnreadableLog, and OSError for a missing file.
    """
    size, where = named(vector, "sizeInBytes"), named(vector, "pathOrInlineDv")
    if not isinstance(size, int) or not 0 <= size <= BYTES_MAX:
        raise UnreadableLog("has a deletion vector that is too large")
    try:
        if named(vector, "storageType") == "i":
            data = _decoded(where)
        else:
            with opened(_file(where)) as file:
                data = _of_file(file, named(vector, "offset"), size)
        return _rows(data)
    except UnreadableLog:
        raise
    except (struct.error, AttributeError, LookupError, OverflowError, TypeError, ValueError):
        raise UnreadableLog("has a deletion vector that is damaged") from None


def _rows(data: bytes) -> int:
    magic, bitmaps = struct.unpack_from("<IQ", data)
    if magic != _MAGIC:
        raise UnreadableLog("has a deletion vector of an unknown format")
    if bitmaps == 0:
        return 0
    key, cookie = struct.unpack_from("<II", data, 12)
    if bitmaps > 1 or key != 0:
        raise UnreadableLog("has a deletion vector of more rows than a file has")
    if cookie & 0xFFFF == _WITH_RUNS:
        containers = (cookie >> 16) + 1
        at = 20 + (containers + 7) // 8
    elif cookie == _WITHOUT_RUNS:
        (containers,) = struct.unpack_from("<I", data, 20)
        at = 24
    else:
        raise UnreadableLog("has a deletion vector of an unknown format")
    if containers > _ROWS_OF_CONTAINER:
        raise UnreadableLog("has a deletion vector that is damaged")
    keys = struct.unpack_from(f"<{2 * containers}H", data, at)[::2]
    return (max(keys) + 1) * _ROWS_OF_CONTAINER if keys else 0


def _decoded(text: str) -> bytes:
    """Bytes in Z85: five digits for four bytes."""
    if len(text) > BYTES_MAX * 5 // 4 + 5:
        raise UnreadableLog("has a deletion vector that is too large")
    found = bytearray()
    for at in range(0, len(text), 5):
        number = 0
        for digit in text[at : at + 5]:
            number = number * 85 + _DIGITS[digit]
        found += number.to_bytes(4, "big")
    return bytes(found)


def _file(name: str) -> str:
    """The path of a vector's file in the table's folder: a random folder, if any, and an encoded UUID."""
    folder, uuid = name[:-_UUID_DIGITS], name[-_UUID_DIGITS:]
    file = f"deletion_vector_{UUID(bytes=_decoded(uuid))}.bin"
    return f"{folder}/{file}" if folder else file


def _of_file(file: IO[bytes], offset: int, size: int) -> bytes:
    file.seek(offset)
    if struct.unpack(">I", file.read(4)) != (size,):
        raise UnreadableLog("has a deletion vector of another size")
    return file.read(size)
