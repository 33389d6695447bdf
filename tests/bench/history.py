"""A long history: what each view, the page and the next sweep take on tables of many sweeps and incidents.

The tables are written as sweeps write them, one after the other, through delta-rs; after each day's worth of sweeps
they are kept small as `txnscan maintain` does. Each incident is seen by so many sweeps, and then it is over.

Timed: every view with all its rows, through `local[2]`; `txnscan history`, `txnscan report`; and the write of one more
sweep, by which incidents are merged, through delta-rs and through Spark. Not timed: Spark's start, and the first round.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from datetime import date
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.clusters import session
from tests.bench.harness import Finding, Grid, Options, Side, Work, say, timed_in_turn
from tests.builders import MINUTE_MS, NOW_MS, judged, known, scan
from txnscan import create_views
from txnscan.cli import main as txnscan
from txnscan.sweeps.result import Scan
from txnscan.tables.maintain import Kept, maintain
from txnscan.tables.open import open_tables, through_spark
from txnscan.tables.schema import INCIDENTS, OPEN_TRANSACTIONS
from txnscan.tables.tables import Tables
from txnscan.verdict.evidence import Judged
from txnscan.verdict.outcome import with_outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INTERVAL_MS = 5 * MINUTE_MS
_SWEEPS_A_DAY = 288
# Sweeps that see each incident: an hour and forty minutes.
_SEEN = 20
_TOPICS = 100
_PARTITIONS = 12
_OUTCOME = known("unknown", "the log holds nothing of this producer id")


def run(options: Options) -> Finding:
    """On tables of its own."""
    with session("local[2]") as spark:
        return compare(options, spark)


def compare(options: Options, spark: SparkSession) -> Finding:
    """Writes the history, and times the reads of it."""
    with tempfile.TemporaryDirectory(prefix="txnscan-bench-history-") as directory:
        location = f"{directory}/tables"
        tables = open_tables(location, None)
        tables.create()
        writes = _Writes(tables, options)
        grid = _written(writes, options)
        views = create_views(spark, location)
        by_spark = through_spark(location, spark)
        sides = [
            *(Side(f"view {name}", _rows(spark, view)) for name, view in views.items()),
            Side("txnscan history", _command("history", location)),
            Side("txnscan report", _command("report", location, "--out", f"{directory}/report.html")),
            Side("one more sweep, delta-rs", lambda: writes.write(tables)),
            Side("one more sweep, Spark", lambda: writes.write(by_spark)),
        ]
        timed, _ = timed_in_turn(sides, options.runs)
        incidents = len(tables.rows(INCIDENTS, columns=("incident_id",)))
        rows = len(tables.rows(OPEN_TRANSACTIONS, columns=("sweep_id",)))
        return Finding(
            "history",
            "a long history",
            {"sweeps": writes.number, "incidents": incidents, "rows of open transactions": rows},
            timed,
            grids=[grid],
            notes=["seconds of whole calls; Spark and its tables' logs were loaded before"],
        )


class _Writes:
    """Sweeps, one after the other."""

    def __init__(self, tables: Tables, options: Options) -> None:
        self.tables = tables
        self.number = 0
        self._new = max(1, options.incidents // options.sweeps)
        self._open: list[tuple[Judged, ...]] = []

    def write(self, tables: Tables) -> Work:
        """Writes the next sweep. First reads the unresolved incidents, as a sweep does."""
        tables.unresolved("cluster-1")()
        tables.write(self._next())
        return {}

    def _next(self) -> Scan:
        began_ms = NOW_MS + self.number * _INTERVAL_MS
        first = self.number * self._new
        self._open = [*self._open[1 - _SEEN :], tuple(map(_hanging, range(first, first + self._new)))]
        made = scan(
            *(one for each in self._open for one in each),
            sweep_id=f"sweep-{self.number:06}",
            started_at_ms=began_ms,
            finished_at_ms=began_ms + 2_000,
            proven={(f"topic-{t}", p): f"id-{t}" for t in range(_TOPICS) for p in range(_PARTITIONS)},
        )
        self.number += 1
        return made


def _hanging(number: int) -> Judged:
    topic = number % _TOPICS
    return with_outcome(
        judged(
            topic=f"topic-{topic}",
            topic_id=f"id-{topic}",
            partition=number % _PARTITIONS,
            producer_id=number,
            start_offset=100,
        ),
        _OUTCOME,
    )


def _written(writes: _Writes, options: Options) -> Grid:
    """Writes the history. Returns how long the writes of each day took."""
    rows = []
    while writes.number < options.sweeps:
        took_s = []
        for _ in range(min(_SWEEPS_A_DAY, options.sweeps - writes.number)):
            began_s = time.perf_counter()
            writes.write(writes.tables)
            took_s.append(time.perf_counter() - began_s)
        began_s = time.perf_counter()
        maintain(writes.tables, Kept(date(2000, 1, 1)))
        kept_s = time.perf_counter() - began_s
        rows.append((writes.number, median(took_s), max(took_s), kept_s))
        say(f"  {writes.number} sweeps, {median(took_s):.3f} s each, maintained in {kept_s:.1f} s")
    columns = ("sweeps", "write of one, median s", "longest s", "maintain s")
    return Grid("a sweep written through delta-rs, as the history grows", columns, rows)


def _rows(spark: SparkSession, view: str) -> Callable[[], Work]:
    return lambda: {view: min(1, len(spark.table(view).collect()))}


def _command(name: str, location: str, *options: str) -> Callable[[], Work]:
    def ran() -> Work:
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                txnscan([name, "--tables", location, *options])
        except SystemExit as ended:
            if ended.code:
                raise
        return {}

    return ran
