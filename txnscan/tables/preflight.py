"""`check` of tables: can a sweep write them, and is there room?"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from txnscan.config import Location, printable, shown_location
from txnscan.errors import TxnscanError
from txnscan.kafka.units import plural
from txnscan.sweeps.preflight import Finding, Level
from txnscan.tables.schema import TABLES

if TYPE_CHECKING:
    from txnscan.tables.tables import Tables

# With less room than this a sweep cannot write, or may soon not.
_FREE_BYTES_MIN, _FREE_BYTES_FEW = 50 * 2**20, 2**30


def check_tables(location: Location, opens: Callable[[], Tables], *, applies: bool = False) -> Iterator[Finding]:
    """Whether a sweep could use the tables. opens: opens them as a sweep does. applies: whether to check, too, that one
    of two applies at once is kept out.
    """
    path = location.path
    unusable = _unusable_folder(path) if path is not None else None
    if unusable is not None:
        yield Finding("tables", Level.FAILED, unusable)
        return
    try:
        yield _opened(location, opens(), applies=applies)
    except TxnscanError as error:
        yield Finding("tables", Level.FAILED, str(error))
    if path is not None:
        yield from _others_write(path)
        yield from _space(path)


def _unusable_folder(path: Path) -> str | None:
    """Why no tables can be written in this folder, if they cannot."""
    shown = printable(str(path.absolute()))
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return f"{shown}: {printable(str(there))} is no directory; name another one"
    present = [path / table.name for table in TABLES if (path / table.name).is_dir()]
    folders = [there, *present, *(folder / "_delta_log" for folder in present)]
    locked = [folder for folder in folders if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK)]
    if locked:
        why = f"{printable(str(locked[0]))} may not be written by this user; grant that, or name another directory"
        return f"{shown} cannot be {'made' if there != path else 'used'}: {why}"
    return None


def _opened(location: Location, tables: Tables, *, applies: bool) -> Finding:
    """What a sweep finds when it opens the tables. Raises ConfigError if it would not begin."""
    shown = shown_location(location.text)
    changes, delta = tables.to_create(), tables.delta
    absent, lacking = changes.absent, sum(map(len, changes.lacking.values()))
    others = f"; the next sweep makes the other {len(absent)}" if absent else ""
    others += f"; the next sweep adds {plural(lacking, 'column')}" if lacking else ""
    there = f"{shown} has {len(TABLES) - len(absent)} of {len(TABLES)} tables{others}"
    if len(absent) == len(TABLES):
        there = f"{shown} has none yet; the first sweep makes them"
    elif not delta.can_write():
        why = "they have a feature of Delta that delta-rs does not know; sweep them with Spark (--engine spark)"
        return Finding("tables", Level.FAILED, f"{there}, and {why}")
    why_shared = delta.why_shared(location.scheme) if applies and not location.in_catalog else None
    if why_shared is not None:
        return Finding("tables", Level.FAILED, f"{there}; apply --execute is refused, as {why_shared}")
    return Finding("tables", Level.OK, there)


def _others_write(path: Path) -> Iterator[Finding]:
    """Whoever may write the tables chooses the facts of a plan."""
    of_tables = [path / table.name for table in TABLES]
    for folder in (path, *of_tables, *(folder / "_delta_log" for folder in of_tables)):
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
