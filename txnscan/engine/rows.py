"""Convert frozen dataclasses to Arrow and back, for data between driver and executors.

The annotations of a dataclass give the Arrow type, the Spark type and the conversion, so that the three cannot differ.
Supported types: int, bool, str, bytes, StrEnum, `X | None`, tuple[X, ...] and nested dataclasses.
"""

from __future__ import annotations

import dataclasses
import operator
import types
import typing
from collections.abc import Callable, Iterable
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
    return pa.Table.from_pylist(list(map(_flattener(row_type), rows)), schema=arrow_schema(row_type))


def from_arrow(table: pa.Table | pa.RecordBatch, row_type: type[Row]) -> list[Row]:
    """The rows of an Arrow table or record batch."""
    return list(map(_builder(typing.cast(Any, row_type)), table.to_pylist()))


def from_row(row_type: type[Row], row: Any) -> Row:
    """One row, from a dict, list and scalars."""
    built: Row = _builder(typing.cast(Any, row_type))(row)
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
        return _flattener(row_type)(value)
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, StrEnum) else value


# The conversions are worked out once a type, because a large cluster has many rows.


@cache
def _flattener(hint: Any) -> Callable[[Any], Any]:
    """How to make dicts, lists and scalars from a value of this type."""
    hint = _required(hint)
    if (item := _item(hint)) is not None:
        flatten = _flattener(item)
        return lambda value: None if value is None else list(map(flatten, value))
    if dataclasses.is_dataclass(hint):
        return _by_field(_flattener, typing.cast(type, hint), getattr, dict)
    return _text if issubclass(hint, StrEnum) else _unchanged


@cache
def _builder(hint: Any) -> Callable[[Any], Any]:
    """How to make a value of this type from dicts, lists and scalars."""
    hint = _required(hint)
    if (item := _item(hint)) is not None:
        build = _builder(item)
        return lambda value: tuple(map(build, value or ()))
    if dataclasses.is_dataclass(hint):
        return _by_field(_builder, typing.cast(type, hint), operator.getitem, typing.cast(Any, hint))
    if issubclass(hint, StrEnum):
        return lambda value: None if value is None else hint(value)
    return _unchanged


def _by_field(
    conversion: Callable[[Any], Callable[[Any], Any]],
    row_type: type,
    get: Callable[[Any, str], Any],
    make: Callable[..., Any],
) -> Callable[[Any], Any]:
    """How to convert a row of this type field by field. get: a field of a row. make: the result, from the converted
    fields by name.
    """
    converters = {name: conversion(field) for name, field in _fields(row_type)}
    names = tuple(converters)
    others = tuple((name, convert) for name, convert in converters.items() if convert is not _unchanged)

    def convert_row(row: Any) -> Any:
        if row is None:
            return None
        values = {name: get(row, name) for name in names}
        for name, convert in others:
            values[name] = convert(values[name])
        return make(**values)

    return convert_row


def _unchanged(value: Any) -> Any:
    return value


def _text(value: StrEnum | None) -> str | None:
    return None if value is None else str(value)
