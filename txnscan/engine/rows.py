"""Convert frozen dataclasses to Arrow and back, for data between driver and executors.

The annotations of a dataclass give the Arrow type, the Spark type and the conversion, so that the three cannot differ.
Supported types: int, bool, str, bytes, StrEnum, `X | None`, tuple[X, ...] and nested dataclasses.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

import pyarrow as pa

Row = TypeVar("Row")


def spark_schema(row_type: type) -> str:
    """The row type's columns as Spark DDL."""
    return ", ".join(f"{name} {spark_type(hint)}" for name, hint in _fields(row_type))


@cache
def arrow_schema(row_type: type) -> pa.Schema:
    """The row type's columns as an Arrow schema."""
    return pa.schema([pa.field(name, arrow_type(hint)) for name, hint in _fields(row_type)])


def to_arrow(rows: Iterable[Any], row_type: type) -> pa.Table:
    """The rows as an Arrow table."""
    return pa.Table.from_pylist([plain(row) for row in rows], schema=arrow_schema(row_type))


def from_arrow(table: pa.Table | pa.RecordBatch, row_type: type[Row]) -> list[Row]:
    """The rows of an Arrow table or record batch."""
    return [from_row(row_type, row) for row in table.to_pylist()]


def from_row(row_type: type[Row], row: Any) -> Row:
    """One row, from a dict, list and scalars."""
    built: Row = _build(row_type, row)
    return built


@cache
def _fields(row_type: type) -> tuple[tuple[str, Any], ...]:
    hints = typing.get_type_hints(row_type)
    return tuple((field.name, hints[field.name]) for field in dataclasses.fields(row_type))


def _required(hint: Any) -> Any:
    """X of `X | None`."""
    if isinstance(hint, types.UnionType):
        (hint,) = (choice for choice in typing.get_args(hint) if choice is not types.NoneType)
    return hint


def _item(hint: Any) -> Any:
    """X of `tuple[X, ...]`, or None for any other type."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is tuple else None


def spark_type(hint: Any) -> str:
    """An annotation as a Spark SQL type."""
    hint = _required(hint)
    if (item := _item(hint)) is not None:
        return f"ARRAY<{spark_type(item)}>"
    if dataclasses.is_dataclass(hint):
        inner = ", ".join(f"{name}: {spark_type(field)}" for name, field in _fields(typing.cast(type, hint)))
        return f"STRUCT<{inner}>"
    if issubclass(hint, str):
        return "STRING"
    return {bool: "BOOLEAN", int: "BIGINT", bytes: "BINARY"}[hint]


def arrow_type(hint: Any) -> pa.DataType:
    """An annotation as an Arrow type."""
    hint = _required(hint)
    if (item := _item(hint)) is not None:
        return pa.list_(arrow_type(item))
    if dataclasses.is_dataclass(hint):
        return pa.struct([pa.field(name, arrow_type(field)) for name, field in _fields(typing.cast(type, hint))])
    if issubclass(hint, str):
        return pa.string()
    return {bool: pa.bool_(), int: pa.int64(), bytes: pa.binary()}[hint]


def plain(value: Any) -> Any:
    """A value as dicts, lists and scalars."""
    if dataclasses.is_dataclass(value):
        row_type: Any = type(value)
        return {name: plain(getattr(value, name)) for name, _ in _fields(row_type)}
    if isinstance(value, tuple):
        return list(value) if value and type(value[0]) is int else [plain(item) for item in value]
    return str(value) if isinstance(value, StrEnum) else value


def _build(hint: Any, value: Any) -> Any:
    hint = _required(hint)
    if (item := _item(hint)) is not None:
        return tuple(_build(item, one) for one in value or ())
    if value is None:
        return None
    if dataclasses.is_dataclass(hint):
        row_type = typing.cast(type, hint)
        return row_type(**{name: _build(field, value[name]) for name, field in _fields(row_type)})
    return hint(value) if issubclass(hint, StrEnum) else value
