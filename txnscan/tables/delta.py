"""The operations of Delta that the tables need, done by Spark (`spark.py`) or by delta-rs (`delta_rs.py`). The same
tests run against both.

Names of columns and tables, and the expressions of a merge, are the program's own. Input from outside is
only used as a value, in a condition or in rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import stamina

from txnscan.config import Location
from txnscan.engine.rows import arrow_type, plain
from txnscan.sweeps.column import StoredColumn
from txnscan.tables.conditions import Condition
from txnscan.tables.schema import READABLE_SINCE, SCHEMA_VERSION, Table

Row = dict[str, Any]
Answer = TypeVar("Answer")

CONFLICT_TRIES = 5
# Commits from one checkpoint of a table's log to the next. Delta's own 10 makes every tenth sweep take twice as long,
# and fifty small commits are read as quickly as ten.
CHECKPOINT_INTERVAL = 50
# As long as Delta keeps files that were removed. Its default for the log is 30 days, and each sweep lists all of it.
LOG_DAYS = 7
VERSION_PROPERTY = "txnscan.schemaVersion"
READABLE_PROPERTY = "txnscan.readableSince"
_CONSTRAINT = "delta.constraints."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ARROW = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "ARRAY<STRING>": pa.list_(pa.string()),
}


@dataclass(frozen=True, slots=True)
class By:
    """An expression to order rows by. Nulls come first in ascending order, last in descending order."""

    expression: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Matched:
    """Part of a merge: expressions by column, for each row `t` of the table that matches a row `s` of the source."""

    condition: str
    to: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NotMatched:
    """Part of a merge: inserts source rows `s` without a match in the table, with these columns."""

    condition: str
    columns: Sequence[str]


@dataclass(frozen=True, slots=True)
class Compacted:
    """The number of replaced files, and of new files."""

    removed: int
    added: int


class Delta(Protocol):
    """The Delta tables of one location. Everything may raise what its library raises; `said` puts it into words."""

    @property
    def location(self) -> Location:
        """Where they are."""
        ...

    def name(self, table: Table) -> str:
        """The table's name for people."""
        ...

    def check_files(self, table: Table, *, whole: bool = True) -> None:
        """Checks that a table on this machine is whole, that none of its files would run, read or change something
        else, and that its log does not exhaust the library. Raises a ConfigError that names the file.

        whole: the names of data files count, too: they may be links. They are many.
        """
        ...

    def columns(self, table: Table) -> frozenset[str] | None:
        """The columns of the table, if it exists."""
        ...

    def properties(self, table: Table) -> dict[str, str]:
        """The table's properties. Delta keeps CHECK constraints among them."""
        ...

    def create(self, table: Table) -> None:
        """Makes the table if it does not exist, with its comments, constraints and properties."""
        ...

    def add_columns(self, table: Table, columns: Sequence[StoredColumn]) -> None:
        """Adds columns that may be null, with their comments. Rows that are there have null."""
        ...

    def set_properties(self, table: Table, changed: Mapping[str, str]) -> None:
        """Sets some of the table's properties."""
        ...

    def read(
        self,
        table: Table,
        *where: Condition,
        columns: Sequence[str] | None = None,
        order: Sequence[By] = (),
        limit: int | None = None,
    ) -> list[Row]:
        """The rows to which all conditions apply, timestamps in UTC. columns: None for all."""
        ...

    def newest(self, table: Table, by: Sequence[str], at: str, *where: Condition) -> list[Row]:
        """For each value of the expressions `by` the rows whose column `at` is greatest."""
        ...

    def append(self, table: Table, rows: pa.Table, *, once: str | None = None) -> None:
        """Adds the rows. A second append with the same `once`, by any process, has no effect."""
        ...

    def replace(self, table: Table, rows: pa.Table, *where: Condition) -> None:
        """Replaces the rows to which the conditions apply by these."""
        ...

    def merge(self, table: Table, rows: pa.Table, on: str, clauses: Sequence[Matched | NotMatched]) -> None:
        """Merges the rows `s` into the table `t`. The first clause that fits a row counts."""
        ...

    def update(self, table: Table, column: str, value: str, *where: Condition) -> None:
        """Sets a column of text to this value in the rows to which the conditions apply."""
        ...

    def delete(self, table: Table, *where: Condition) -> int:
        """Deletes the rows to which the conditions apply, and returns how many."""
        ...

    def compact(self, table: Table) -> Compacted:
        """Makes few files of many. Others may read and append meanwhile."""
        ...

    def vacuum(self, table: Table, older_than_hours: int) -> int | None:
        """Removes files that no version of the table since then has, and commits that are older than the log is kept.
        Returns the number of files, if it is known.
        """
        ...

    def files(self, table: Table) -> str | None:
        """The location of the table's files, with the scheme, if it exists."""
        ...

    def why_shared(self, scheme: str) -> str | None:
        """Why two processes could both make the same commit at a location of this scheme, in a sentence. None if one
        of the two commits fails.
        """
        ...

    def check_place(self) -> None:
        """Checks that there is a place for new tables, such as a schema of the catalog. Raises any error."""
        ...

    def can_write(self) -> bool:
        """Whether this implementation knows every feature of the tables."""
        ...

    def for_thread(self, call: Callable[[], Answer]) -> Callable[[], Answer]:
        """Prepares a call for another thread. Its work is done in the name of this thread."""
        ...

    def is_conflict(self, error: BaseException) -> bool:
        """Whether the error reports a conflicting write."""
        ...

    def said(self, error: BaseException) -> str:
        """The words of an error, on one line."""
        ...


def properties(table: Table) -> dict[str, str]:
    """The Delta properties of a table, whoever creates it: the version of its schema, and its constraints."""
    return {
        **of_version(SCHEMA_VERSION),
        "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
        "delta.logRetentionDuration": f"interval {LOG_DAYS} days",
        **({"delta.enableChangeDataFeed": "true"} if table.change_feed else {}),
        **{f"{_CONSTRAINT}{check}": condition for check, condition in table.checks},
    }


def of_version(version: int) -> dict[str, str]:
    """The properties of tables of this schema version. The oldest version that can read them is not above it."""
    return {VERSION_PROPERTY: str(version), READABLE_PROPERTY: str(min(version, READABLE_SINCE))}


def tried_again(delta: Delta, write: Callable[[], Answer]) -> Answer:
    """Writes, and tries again after a conflicting write. Raises the error of the last try."""
    return stamina.retry(on=delta.is_conflict, attempts=CONFLICT_TRIES, timeout=None)(write)()


def arrow_rows(columns: Iterable[StoredColumn], rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """The rows in Arrow. Missing values become null."""
    every = tuple(rows)
    schema = pa.schema([pa.field(column.name, arrow_of(column)) for column in columns])
    return pa.Table.from_arrays([_array(field, every) for field in schema], schema=schema)


def _array(field: pa.Field, rows: Sequence[Mapping[str, Any]]) -> pa.Array:
    values = [row.get(field.name) for row in rows]
    is_plain = pa.types.is_integer(field.type) or pa.types.is_boolean(field.type) or pa.types.is_temporal(field.type)
    return pa.array(values if is_plain else map(plain, values), field.type, size=len(values))


def arrow_of(column: StoredColumn) -> pa.DataType:
    """The column's type in Arrow."""
    return _ARROW[column.type] if isinstance(column.type, str) else arrow_type(column.type)


def from_arrow(rows: pa.Table, columns: Sequence[str] | None = None) -> list[Row]:
    """The rows of an Arrow table, timestamps in UTC. Columns that the table lacks are null."""
    missing = dict.fromkeys(name for name in columns or () if name not in rows.column_names)
    names = rows.column_names
    values = [_times(column) if pa.types.is_timestamp(column.type) else column.to_pylist() for column in rows.columns]
    return [missing | dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def _times(column: pa.ChunkedArray) -> list[datetime | None]:
    """Timestamps in UTC. Arrow's own conversion to Python takes six times as long."""
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return [None if value is None else _EPOCH + timedelta(microseconds=value) for value in micros]
