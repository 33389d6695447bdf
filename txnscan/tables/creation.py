"""Create the Delta tables of a location, and say why they cannot be created, written or read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from txnscan.config import ConfigError, printable
from txnscan.tables.damage import cause
from txnscan.tables.delta import VERSION_PROPERTY, Delta
from txnscan.tables.schema import SCHEMA_VERSION, SWEEPS, TABLES, Table

# Makes all calls, each in a thread of its own.
AtOnce = Callable[[Iterable[Callable[[], Any]]], list[Any]]


def create(delta: Delta, at_once: AtOnce, say: Callable[[str], None]) -> None:
    """Creates missing tables.

    say: called with a sentence if a table is made again. Raises ConfigError if the location cannot be written, and the
    errors of `to_create`.
    """
    absent = to_create(delta, at_once)
    if all(table.made_anew for table in absent):
        for table in absent:
            name = delta.name(table)
            say(f"{name} is made anew: what is open and does not hang counts its age from now on")
    if absent:
        with _used(delta):
            at_once(partial(delta.create, table) for table in absent)


def to_create(delta: Delta, at_once: AtOnce) -> list[Table]:
    """The missing tables, which a sweep creates. Only reads.

    Raises ConfigError if a table is damaged or not of this schema, and if a table is gone while the others are in use:
    a new table would silently lack the earlier rows.
    """
    check_files(delta)
    with _used(delta):
        absent = [table for table in at_once(partial(_absent, delta, table) for table in TABLES) if table]
        if absent:
            delta.check_place()
        if len(absent) < len(TABLES) and not all(table.made_anew for table in absent):
            _check_unused(delta, absent)
    return absent


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


def _absent(delta: Delta, table: Table) -> Table | None:
    """The table if it does not exist, else None. Raises ConfigError if it is not of this version."""
    columns = _columns(delta, table)
    if columns is None:
        return table
    if table is SWEEPS:
        _check_version(delta)
    missing = next((column.name for column in table.columns if column.name not in columns), None)
    if missing is not None:
        raise ConfigError(
            "--tables", f"{delta.name(table)} has no column {missing}; it is not of this version of txnscan"
        )
    return None


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


def _check_version(delta: Delta) -> None:
    """Checks that the tables are of this schema."""
    version = delta.properties(SWEEPS).get(VERSION_PROPERTY, "")
    if version != str(SCHEMA_VERSION):
        raise ConfigError(
            "--tables",
            f"{shown(delta)} has tables of schema version {printable(version) or 0}, and this txnscan writes "
            f"{SCHEMA_VERSION}; use the version of txnscan that made them, or another location",
        )


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
    return printable(delta.location)
