"""`check` of tables: can a sweep write them, and is there room?"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

from txnscan.config import ConfigError, is_catalog_schema, local_path, parse_location, printable, scheme_of
from txnscan.sweeps.preflight import Finding, Level, named
from txnscan.tables.exclusive import is_local
from txnscan.tables.open import open_tables
from txnscan.tables.schema import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# With less room than this a sweep cannot write, or may soon not.
_FREE_BYTES_MIN, _FREE_BYTES_FEW = 50 * 2**20, 2**30


def check_tables(location: str, spark: Callable[[], SparkSession]) -> Iterator[Finding]:
    """Whether the tables exist or can be created, and whether of two applies at once one would be kept out."""
    location = parse_location(location)
    scheme = scheme_of(location)
    if is_local(scheme) and not is_catalog_schema(location):
        path = local_path(location)
        yield _local_tables(path)
        yield from _others_write(path)
        yield from _space(path)
        return
    try:
        yield _tables_by_spark(location, spark())
    except ConfigError as error:
        yield Finding("tables", Level.FAILED, str(error))


def _local_tables(path: Path) -> Finding:
    shown = printable(str(path.absolute()))
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return Finding("tables", Level.FAILED, f"{shown}: {printable(str(there))} is no directory; name another one")
    if there != path:
        if not os.access(there, os.W_OK | os.X_OK):
            why = f"{printable(str(there))} may not be written by this user; grant that, or name another directory"
            return Finding("tables", Level.FAILED, f"{shown} cannot be made: {why}")
        return Finding("tables", Level.OK, f"{shown} is not there yet; the first sweep makes it")
    present = [table.name for table in TABLES if (path / table.name).exists()]
    broken = [name for name in present if not (path / name / "_delta_log").is_dir()]
    if broken:
        why = f"{printable(str(path / broken[0]))} is no Delta table; restore it, or name another directory"
        return Finding("tables", Level.FAILED, f"{shown} cannot be used: {why}")
    folders = [path, *(path / name for name in present), *(path / name / "_delta_log" for name in present)]
    locked = [folder for folder in folders if not os.access(folder, os.W_OK | os.X_OK)]
    if locked:
        why = f"{printable(str(locked[0]))} may not be written by this user; grant that, or name another directory"
        return Finding("tables", Level.FAILED, f"{shown} cannot be used: {why}")
    if not present:
        return Finding("tables", Level.OK, f"{shown} has none yet; the first sweep makes them")
    absent = [table.name for table in TABLES if table.name not in present and not table.made_anew]
    if absent:
        why = f"{named(absent)} is not there, though others are: restore it, or name another directory"
        return Finding("tables", Level.FAILED, f"{shown} is not whole: {why}")
    return Finding("tables", Level.OK, f"all {len(present)} are in {shown}; an apply there keeps others out by a lock")


def _others_write(path: Path) -> Iterator[Finding]:
    """Whoever may write the tables chooses the facts of a plan."""
    folders = [path, *(path / table.name for table in TABLES)]
    for folder in folders:
        try:
            mode = folder.stat().st_mode
        except OSError:
            continue
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            who = "every user" if mode & stat.S_IWOTH else "its group"
            shown = printable(str(folder.absolute()))
            why = "they could change the facts that decide between COMMIT and ABORT"
            yield Finding("tables", Level.NOTE, f"{shown} can be written by {who}: {why}; use chmod go-w")
            return


def _space(path: Path) -> Iterator[Finding]:
    there = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    free = shutil.disk_usage(there).free
    if free < _FREE_BYTES_FEW:
        level = Level.FAILED if free < _FREE_BYTES_MIN else Level.NOTE
        said = f"{free / 2**20:,.0f} MB are free on the disk of {printable(str(path.absolute()))}: make room"
        yield Finding("tables", level, said)


def _tables_by_spark(location: str, spark: SparkSession) -> Finding:
    shown = printable(location)
    tables = open_tables(location, spark)
    try:
        last = tables.last_sweep()
        at = last["started_at"].astimezone(UTC) if last is not None else None
        there = f"{shown} has tables, of which the last sweep is of {at:%Y-%m-%d %H:%M} UTC" if at is not None else ""
    except ConfigError:
        there = ""
    except Exception as error:
        return Finding("tables", Level.FAILED, f"{shown} cannot be read: {tables.why_failed(error)}")
    there = there or f"{shown} has none yet; the first sweep makes them"
    why = None if is_catalog_schema(location) else tables.delta.why_shared(scheme_of(location))
    if why is not None:
        return Finding("tables", Level.NOTE, f"{there}; apply --execute is refused, as {why}")
    return Finding("tables", Level.OK, there)
