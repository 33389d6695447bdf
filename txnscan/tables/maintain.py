"""Keeps the tables small: deletes old sweeps, merges small files, and removes unused files.

A sweep every five minutes makes 105,000 commits a year. Some rows are never deleted: the facts, the incidents and the
journal of apply, which are small, and may forbid an ABORT for ever; the last sweep of each cluster and scope; and every
sweep of a cluster since the first that saw an incident of it which is still open, so that its whole life can be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial

from txnscan.sweeps.column import timestamp
from txnscan.tables.conditions import Before, Condition, Is, NoneOf
from txnscan.tables.creation import check_files
from txnscan.tables.delta import By, tried_again
from txnscan.tables.schema import (
    CANDIDATES,
    INCIDENTS,
    OPEN_TRANSACTIONS,
    SCAN_ERRORS,
    SWEEPS,
    TABLES,
    TOPIC_READS,
    Table,
)
from txnscan.tables.tables import Tables

# The default of Delta's `delta.deletedFileRetentionDuration`: a read that began a week ago still finds its files.
VACUUM_AFTER_HOURS = 168
# Tables whose rows go with their sweep. `facts` has the date of a sweep, too, but outlives it.
_OF_SWEEPS = (CANDIDATES, OPEN_TRANSACTIONS, SCAN_ERRORS, TOPIC_READS, SWEEPS)


@dataclass(frozen=True, slots=True)
class Maintained:
    """The changes of a table: rows deleted, files replaced, files made, and files removed for good (None if that number
    is not known).
    """

    table: str
    rows_deleted: int
    files_compacted: int
    files_made: int
    files_vacuumed: int | None


@dataclass(frozen=True, slots=True)
class KeptLonger:
    """Sweeps of this cluster are kept from an earlier day on, the first day of this open incident."""

    cluster_id: str
    since: date
    incident_id: str


@dataclass(frozen=True, slots=True)
class Kept:
    """Sweeps of this day and later are kept. clusters: those with an older open incident."""

    since: date
    clusters: tuple[KeptLonger, ...] = ()


def kept(tables: Tables, keep_ms: int, now_ms: int) -> Kept:
    """The sweeps to keep. Raises ConfigError without tables."""
    # Only whole days are deleted.
    since = (timestamp(now_ms) - timedelta(milliseconds=keep_ms)).date()
    columns = ("cluster_id", "incident_id", "first_seen_at")
    oldest: dict[str, KeptLonger] = {}
    for row in tables.rows(INCIDENTS, Is("is_open", True), columns=columns, order=(By("first_seen_at"),)):
        first = row["first_seen_at"].date()
        if first < since:
            oldest.setdefault(row["cluster_id"], KeptLonger(row["cluster_id"], first, row["incident_id"]))
    return Kept(since, tuple(oldest.values()))


def maintain(
    tables: Tables,
    keep: Kept,
    *,
    vacuum_after_hours: int = VACUUM_AFTER_HOURS,
    on_table: Callable[[int, int], None] = lambda done, total: None,
) -> list[Maintained]:
    """Deletes sweeps that are not kept, and tidies all tables. on_table: called with how many are done, of how many.

    Raises ConfigError without tables.
    """
    last = NoneOf("sweep_id", frozenset(row["sweep_id"] for row in tables.last_sweeps()))
    longer = NoneOf("cluster_id", frozenset(one.cluster_id for one in keep.clusters))
    old: list[tuple[Condition, ...]] = [(Before("sweep_date", keep.since), longer, last)]
    old += [(Is("cluster_id", one.cluster_id), Before("sweep_date", one.since), last) for one in keep.clusters]
    done: list[Maintained] = []
    # `sweeps` is the last of TABLES: the rows that are left meanwhile are always of sweeps that are still visible.
    for table in TABLES:
        on_table(len(done), len(TABLES))
        with tables.writing():
            done.append(_maintained(tables, table, old, vacuum_after_hours))
    on_table(len(done), len(TABLES))
    return done


def _maintained(
    tables: Tables, table: Table, old: Sequence[tuple[Condition, ...]], vacuum_after_hours: int
) -> Maintained:
    delta = tables.delta
    # The changes follow links, and paths of the log.
    check_files(delta, [table])
    deletes = [partial(delta.delete, table, *which) for which in old] if table in _OF_SWEEPS else []
    deleted = sum(tried_again(delta, delete) for delete in deletes)
    compacted = tried_again(delta, lambda: delta.compact(table))
    check_files(delta, [table])
    vacuumed = delta.vacuum(table, vacuum_after_hours)
    return Maintained(table.name, deleted, compacted.removed, compacted.added, vacuumed)
