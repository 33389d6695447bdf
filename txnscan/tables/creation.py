"""Create the Delta tables of a location, and say why they cannot be created, written or read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from txnscan.config import ConfigError, printable
from txnscan.sweeps.column import StoredColumn
from txnscan.tables.damage import cause
from txnscan.tables.delta import Delta, of_version, tried_again
from txnscan.tables.schema import SCHEMA_VERSION, SWEEPS, TABLES, Table
from txnscan.tables.versions import check_writable

# Makes all calls, each in a thread of its own.
AtOnce = Callable[[Iterable[Callable[[], Any]]], list[Any]]


@dataclass(frozen=True, slots=True)
class Changes:
    """What a sweep would change before it begins. absent: the missing tables. lost: those of them that tables of this
    version had. version: of the tables. lacking: the columns that tables of an earlier version lack.
    """

    absent: tuple[Table, ...]
    lost: tuple[Table, ...]
    version: int
    lacking: Mapping[Table, tuple[StoredColumn, ...]]


def create(delta: Delta, at_once: AtOnce, say: Callable[[str], None]) -> None:
    """Creates missing tables, and adds what earlier versions of txnscan lack (`versions.py`).

    say: called with a sentence if a table is made again, or gets columns. Raises ConfigError if the location cannot be
    written, and the errors of `to_create`.
    """
    changes = to_create(delta, at_once)
    if all(table.made_anew for table in changes.lost):
        for table in changes.lost:
            name = delta.name(table)
            say(f"{name} is made anew: what is open and does not hang counts its age from now on")
    with _used(delta):
        if changes.absent:
            at_once(partial(delta.create, table) for table in changes.absent)
        if changes.version != SCHEMA_VERSION:
            _grow(delta, at_once, changes.lacking, say)


def to_create(delta: Delta, at_once: AtOnce) -> Changes:
    """The changes that a sweep would make. Only reads.

    Raises ConfigError if a table is damaged or of a version that this release cannot write, and if a table is gone
    while the others are in use: a new table would silently lack the earlier rows.
    """
    check_files(delta)
    with _used(delta):
        there = dict(zip(TABLES, at_once(partial(_columns, delta, table) for table in TABLES), strict=True))
        version = check_writable(delta) if there[SWEEPS] is not None else SCHEMA_VERSION
        lacking = {table: _missing(delta, table, columns, version) for table, columns in there.items() if columns}
        absent = tuple(table for table, columns in there.items() if columns is None)
        lost = tuple(table for table in absent if table.since <= version)
        if absent:
            delta.check_place()
        if len(lost) < len(TABLES) and not all(table.made_anew for table in lost):
            _check_unused(delta, lost)
    return Changes(absent, lost, version, {table: columns for table, columns in lacking.items() if columns})


@contextmanager
def _used(delta: Delta) -> Iterator[None]:
    """Raises a ConfigError in place of any other error."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        # Storage fails in as many ways as there are kinds of it.
        raise ConfigError("--tables", f"{shown(delta)} cannot be written: {why_failed(delta, error)}") from None


def _missing(delta: Delta, table: Table, columns: frozenset[str], version: int) -> tuple[StoredColumn, ...]:
    """The columns that a table lacks. Raises ConfigError if they cannot be added: a later version has them."""
    missing = tuple(column for column in table.columns if column.name not in columns)
    if missing and (version == SCHEMA_VERSION or any(column.required for column in missing)):
        raise ConfigError(
            "--tables", f"{delta.name(table)} has no column {missing[0].name}; it is not of this version of txnscan"
        )
    return missing


def _grow(
    delta: Delta, at_once: AtOnce, lacking: Mapping[Table, tuple[StoredColumn, ...]], say: Callable[[str], None]
) -> None:
    """Adds columns to tables. The version of SWEEPS, which counts, rises last."""
    for table, columns in lacking.items():
        say(f"{delta.name(table)} gets {', '.join(column.name for column in columns)}")
    if lacking:
        at_once(partial(_add, delta, table) for table in lacking)
    tried_again(delta, lambda: delta.set_properties(SWEEPS, of_version(SCHEMA_VERSION)))


def _add(delta: Delta, table: Table) -> None:
    """Adds the columns that the table lacks now: another process may have added some."""

    def add() -> None:
        has = delta.columns(table) or frozenset()
        missing = [column for column in table.columns if column.name not in has]
        if missing:
            delta.add_columns(table, missing)

    tried_again(delta, add)


def _columns(delta: Delta, table: Table) -> frozenset[str] | None:
    """Its columns. None if it does not exist. Raises ConfigError if it is damaged."""
    try:
        return delta.columns(table)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            "--tables", f"the table {table.name} of {shown(delta)} cannot be read: {why_failed(delta, error)}"
        ) from None


def _check_unused(delta: Delta, absent: Sequence[Table]) -> None:
    """Checks that the tables that exist are empty: then their creation was interrupted, or is still going on."""
    for table in TABLES:
        if table not in absent and delta.read(table, limit=1):
            raise _gone(delta, absent)


def _gone(delta: Delta, absent: Sequence[Table]) -> ConfigError:
    names = " and ".join(table.name for table in absent)
    verb = "is" if len(absent) == 1 else "are"
    return ConfigError(
        "--tables",
        f"{names} of {shown(delta)} {verb} gone or without a _delta_log, though other tables are there; restore "
        "what is missing, or name another location",
    )


def check_files(delta: Delta, tables: Sequence[Table] = TABLES) -> None:
    """See `Delta.check_files`."""
    for table in tables:
        delta.check_files(table)


def unreadable(delta: Delta, table: Table, error: Exception) -> ConfigError:
    """The error of a table that could not be read. Raises ConfigError if one of the tables is damaged."""
    if _columns(delta, table) is not None:
        return ConfigError("--tables", f"{shown(delta)} cannot be read: {why_failed(delta, error)}")
    if any(_columns(delta, other) is not None for other in TABLES):
        return _gone(delta, [table])
    return ConfigError("--tables", f"there are no tables of txnscan at {shown(delta)}")


def why_failed(delta: Delta, error: BaseException) -> str:
    """Why tables cannot be written or read, in one line, with the remedy if it is known."""
    return cause(str(error)) or delta.said(error)


def shown(delta: Delta) -> str:
    """The location, for messages."""
    return printable(delta.location.text)
