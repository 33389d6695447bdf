"""A column: its name, its type, its meaning, and the source of its value; and a declaration for each type.

    text("topic", "Topic", "observation.topic")

The third argument is where the value comes from: a path in the item that the row is about (without one, the attribute
of that name), or a function of the sweep and the item. A time comes from epoch milliseconds. The value of an `optional`
column may be null: a path through None gives None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from datetime import date as date_type
from operator import attrgetter
from types import GenericAlias
from typing import Any

# Of the sweep, and of the item that the row is about.
Value = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column of a row. type: in Spark SQL, or a dataclass, which becomes a struct, or a tuple of them, an array.
    value: computes the column from the sweep, and from the item that the row is about.
    """

    name: str
    type: str | type | GenericAlias
    meaning: str
    value: Value
    required: bool = False


def row_of(columns: Iterable[StoredColumn], scan: Any, item: Any) -> dict[str, Any]:
    """The row of an item. scan: its sweep, None if the columns need none."""
    return {column.name: column.value(scan, item) for column in columns}


def named(columns: Iterable[StoredColumn], *names: str) -> tuple[StoredColumn, ...]:
    """The columns of these names, in their own order."""
    return tuple(column for column in columns if column.name in names)


def timestamp(epoch_ms: int) -> datetime:
    """Epoch milliseconds as a UTC timestamp."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)


def epoch_ms(at: datetime) -> int:
    """The reverse of `timestamp`."""
    return round(at.timestamp() * 1_000)


def path_of(path: str) -> Callable[[Any], Any]:
    """Follows the path from an item. If something on it is None, so is the value."""
    names = path.split(".")

    def follow(item: Any) -> Any:
        for name in names:
            if item is None:
                return None
            item = getattr(item, name)
        return item

    return follow


def of_sweep(path: str) -> Value:
    """A value of the sweep, the same in all its rows."""
    follow = attrgetter(path)
    return lambda scan, _: follow(scan)


def through(find: Callable[[Any, Any], Any]) -> Callable[[str], Value]:
    """For paths in what the sweep knows about an item, as `find` gives it; null if that is None."""

    def of(path: str) -> Value:
        follow = path_of(path)
        return lambda scan, item: follow(find(scan, item))

    return of


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """Declares the columns of a type. convert: what the source gives to the stored value; None stays None."""

    type: str | type | GenericAlias
    required: bool = True
    convert: Callable[[Any], Any] | None = None

    def __call__(self, name: str, meaning: str, source: str | Value = "") -> StoredColumn:
        """A column. source: see the head of this module."""
        return StoredColumn(name, self.type, meaning, self._value(source if source != "" else name), self.required)

    def _value(self, source: str | Value) -> Value:
        if isinstance(source, str):
            follow = attrgetter(source) if self.required else path_of(source)
            return self._converted(lambda _, item: follow(item))
        return self._converted(source)

    def _converted(self, value: Value) -> Value:
        convert = self.convert
        if convert is None:
            return value

        def converted(scan: Any, item: Any) -> Any:
            found = value(scan, item)
            return None if found is None else convert(found)

        return converted


def _date(epoch_ms: int) -> date_type:
    return timestamp(epoch_ms).date()


text, optional_text = ColumnKind("STRING"), ColumnKind("STRING", required=False)
optional_texts = ColumnKind("ARRAY<STRING>", required=False)
integer, optional_integer = ColumnKind("INT"), ColumnKind("INT", required=False)
long, optional_long = ColumnKind("BIGINT"), ColumnKind("BIGINT", required=False)
boolean, optional_boolean = ColumnKind("BOOLEAN"), ColumnKind("BOOLEAN", required=False)
date = ColumnKind("DATE", convert=_date)
time = ColumnKind("TIMESTAMP", convert=timestamp)
optional_time = ColumnKind("TIMESTAMP", required=False, convert=timestamp)


def optional_struct(name: str, of: type, meaning: str, source: str | Value = "") -> StoredColumn:
    """A column of a dataclass."""
    return ColumnKind(of, required=False)(name, meaning, source)


def structs(name: str, of: type, meaning: str, source: str | Value = "") -> StoredColumn:
    """A column of a tuple of dataclasses."""
    return ColumnKind(_tuple_of(of))(name, meaning, source)


def optional_structs(name: str, of: type, meaning: str, source: str | Value = "") -> StoredColumn:
    """A column of a tuple of dataclasses, or null."""
    return ColumnKind(_tuple_of(of), required=False)(name, meaning, source)


def _tuple_of(of: type) -> GenericAlias:
    return GenericAlias(tuple, (of, ...))
