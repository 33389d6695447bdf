"""Sweeps to write, and tables that they were written to, for tests of either store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tests.builders import MINUTE_MS, NOW_MS, judged, scan, view
from txnscan.judge.outcome import with_outcome
from txnscan.store.schema import INCIDENTS, TABLES

if TYPE_CHECKING:
    from tests.conftest import Opens
    from txnscan.findings import Scan
    from txnscan.model import Judged, KnownOutcome
    from txnscan.store.delta import Row
    from txnscan.store.tables import Tables

ORPHAN = judged()
STALE = judged(view("Empty", 5), partition=1)
YOUNG = judged(start_offset=200, second_start_offset=200, first_seen_ms=NOW_MS, last_timestamp_ms=NOW_MS,
               first_high_watermark=300, second_high_watermark=300)  # fmt: skip
ONGOING = judged(view("Ongoing", 3, ("p-0",)), start_offset=90, second_start_offset=90)
ENDED = judged(start_offset=80, second_start_offset=None)
DOUBTFUL = judged(view("Empty", 5, coverage_error="x"), partition=1)
LATER_MS = 5 * MINUTE_MS


def next_sweep(number: int, *transactions: Judged, **changes: Any) -> Scan:
    """The sweep `sweep-<number>`, five minutes after the sweep before it."""
    when_ms = NOW_MS + number * LATER_MS
    return scan(
        *transactions, sweep_id=f"sweep-{number}", started_at_ms=when_ms, finished_at_ms=when_ms + 500, **changes
    )


def incidents(tables: Tables) -> dict[str, Row]:
    """The stored incidents by their id."""
    return {row["incident_id"]: row for row in tables.rows(INCIDENTS)}


def hanging(start_offset: int, outcome: KnownOutcome) -> Judged:
    """A hanging transaction from this offset on, with this outcome."""
    marks = {"first_high_watermark": 300, "second_high_watermark": 300}
    return with_outcome(judged(start_offset=start_offset, second_start_offset=start_offset, **marks), outcome)


def versions(location: str) -> list[int]:
    """The version of each table."""
    from deltalake import DeltaTable

    return [DeltaTable(f"{location}/{table.name}").version() for table in TABLES]


# Opens tables to which these sweeps were written.
After = Callable[..., "Tables"]


class Prepared:
    """Directories of tables, made once for each list of sweeps, and copied for each test."""

    def __init__(self, opens: Opens, directory: Path) -> None:
        self._opens = opens
        self._directory = directory
        self._made: list[tuple[tuple[Scan, ...], Path]] = []

    def copy(self, location: str, *sweeps: Scan) -> Tables:
        """Copies the tables with these sweeps to the location, and opens them as a process that did not write them."""
        shutil.copytree(self._find(*sweeps), location)
        return self._opens(location)

    def _find(self, *sweeps: Scan) -> Path:
        for written, there in self._made:
            if written == sweeps:
                return there
        there = self._directory / uuid4().hex
        if sweeps:
            self.copy(str(there), *sweeps[:-1]).write(sweeps[-1])
        else:
            self._opens(str(there)).create()
        self._made.append((sweeps, there))
        return there
