"""The compact protocol of Thrift, in which Parquet has its footers and the headers of its pages. Pure.

Some readers take a known field by its declared type, whatever type the bytes give it. So a field of another type is
refused here: it would be read in two ways. All readers skip fields that are not declared.

Source: thrift-compact-protocol.md of Apache Thrift.
"""

from __future__ import annotations

from typing import Any

# Declared types beside structs (their types by field) and lists (their type in a list). ABSENT: no reader may find it.
BOOLEAN, BYTE, INTEGER, BINARY, ABSENT = "boolean", "byte", "integer", "binary", "absent"
Struct = dict[int, Any]
# Most structs and elements of lists in one call. A footer has 20 for each column of a row group.
_VALUES_MAX = 500_000
_DEPTH_MAX = 12
_LIST, _STRUCT = 9, 12
_PLAIN = {1: BOOLEAN, 2: BOOLEAN, 3: BYTE, 4: INTEGER, 5: INTEGER, 6: INTEGER, 8: BINARY}
_INTEGERS = frozenset({4, 5, 6})
_FIXED_BYTES = {7: 8, 13: 16}


class Malformed(ValueError):
    """Bytes that are not of the declared structs. The message is a clause."""


def read_struct(data: bytes, declared: Struct, at: int = 0) -> tuple[Struct, int]:
    """The declared fields of the struct at a position, and the position after it.

    Raises Malformed, and IndexError if the bytes end before the struct does.
    """
    return _struct(data, at, declared, _DEPTH_MAX, [_VALUES_MAX])


def _struct(data: bytes, at: int, declared: Struct, depth: int, room: list[int]) -> tuple[Struct, int]:
    room[0] -= 1
    if depth == 0 or room[0] < 0:
        raise Malformed("has too many values")
    found: Struct = {}
    field = 0
    while head := data[at]:
        at += 1
        if head < 16:
            after, at = _varint(data, at)
            after = after >> 1 ^ -(after & 1)
        else:
            after = field + (head >> 4)
        if after <= field:
            raise Malformed("has a field twice")
        field = after
        kind = head & 15
        type_ = declared.get(field)
        # The two most frequent kinds need no call.
        if kind in _INTEGERS and (type_ is INTEGER or type_ is None):
            value = data[at]
            at += 1
            if value > 127:
                value, at = _varint(data, at - 1)
            found[field] = value >> 1 ^ -(value & 1)
        elif kind < 3:
            if type_ is not BOOLEAN and type_ is not None:
                raise Malformed("has a field of another type")
            found[field] = kind == 1
        else:
            value, at = _value(data, at, kind, type_, depth, room)
            if type_ is not None:
                found[field] = value
    return found, at + 1


def _value(data: bytes, at: int, kind: int, type_: Any, depth: int, room: list[int]) -> tuple[Any, int]:
    if kind == _STRUCT and (type_ is None or type(type_) is dict):
        return _struct(data, at, type_ or {}, depth - 1, room)
    if kind == _LIST and (type_ is None or type(type_) is list):
        return _list(data, at, type_[0] if type_ else None, depth - 1, room)
    if type_ is not None and type_ is not _PLAIN.get(kind):
        raise Malformed("has a field of another type")
    if kind == 8:
        size, at = _varint(data, at)
        if at + size > len(data):
            raise IndexError
        return data[at : at + size], at + size
    if kind in _INTEGERS:
        value, at = _varint(data, at)
        return value >> 1 ^ -(value & 1), at
    if kind < 4:
        # In lists, booleans have a byte, too.
        return data[at], at + 1
    if kind in _FIXED_BYTES:
        return None, at + _FIXED_BYTES[kind]
    raise Malformed("has a field of another type")


def _list(data: bytes, at: int, type_: Any, depth: int, room: list[int]) -> tuple[list[Any], int]:
    head = data[at]
    at += 1
    size, kind = head >> 4, head & 15
    if size == 15:
        size, at = _varint(data, at)
    room[0] -= size
    if depth == 0 or room[0] < 0:
        raise Malformed("has too many values")
    found = []
    for _ in range(size):
        value, at = _value(data, at, kind, type_, depth, room)
        found.append(value)
    return found, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    at += 1
    if value < 128:
        return value, at
    value &= 127
    shift = 7
    while shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise Malformed("has a number that is too long")
