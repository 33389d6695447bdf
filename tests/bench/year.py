"""Tables after a year of sweeps every five minutes, beside their first day: opening, `show`, and writing one sweep.

A year is 105,000 sweeps, which would take a day to make. So the tables are made as `txnscan maintain` leaves them: each
day's sweeps in one file of a table. The table's log is prepared: a checkpoint at the version after so many commits,
and the commits of as many days as the log is kept. A few more sweeps are written as usual. The first day is made in the
same way.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from tests.bench.harness import Finding, Options, Ratio, Side, Work, say, timed_in_turn
from tests.builders import NOW_MS, judged, scan
from txnscan.sweeps.result import Scan
from txnscan.tables.delta import LOG_DAYS, arrow_rows
from txnscan.tables.open import open_tables
from txnscan.tables.schema import CANDIDATES, FIRST_SEEN, INCIDENTS, OPEN_TRANSACTIONS, SWEEPS
from txnscan.tables.tables import items_of

DAY_MS, EVERY_MS = 86_400_000, 300_000
SWEEPS_A_DAY = DAY_MS // EVERY_MS
DAYS = 365
# Sweeps since the last `txnscan maintain`.
SINCE = 20
FIRST, YEAR = "the first day", "a year"
# A year may take at most this many times as long as the first day.
TARGET = 2.0
_OF_SWEEPS = (SWEEPS, OPEN_TRANSACTIONS, CANDIDATES)
_EACH_SWEEP = (*_OF_SWEEPS, FIRST_SEEN, INCIDENTS)


def run(options: Options) -> Finding:
    """Each operation in turn on both tables. All but the write are whole processes."""
    with tempfile.TemporaryDirectory(prefix="txnscan-bench-year-") as scratch:
        locations = {FIRST: f"{scratch}/day/tables", YEAR: f"{scratch}/year/tables"}
        numbers: dict[str, Iterator[int]] = {}
        for name, days in ((FIRST, 1), (YEAR, DAYS)):
            say(f"  {days * SWEEPS_A_DAY:,} sweeps beforehand")
            numbers[name] = count(make(locations[name], days))
        sides = [
            Side(f"{what}, {name}", lambda d=do, n=name: d(locations[n], numbers[n]))  # type: ignore[misc]
            for what, do in (("opening", _open), ("txnscan show", _show), ("writing a sweep", _write))
            for name in (FIRST, YEAR)
        ]
        timed, work = timed_in_turn(sides, options.runs)
    ratios = tuple(
        Ratio(f"{what}, {YEAR}", f"{what}, {FIRST}", TARGET) for what in ("opening", "txnscan show", "writing a sweep")
    )
    setting = {"sweeps in a year": DAYS * SWEEPS_A_DAY, "tables": "delta-rs"}
    return Finding("year", "tables after a year of sweeps", setting, timed, ratios, work)


def make(location: str, days: int, *, sweeps_a_day: int = SWEEPS_A_DAY) -> int:
    """Makes tables with so many days of sweeps. Returns the number of the next sweep."""
    tables = open_tables(location, None)
    tables.create()
    for day in range(days):
        some = [_sweep(day * sweeps_a_day + number) for number in range(sweeps_a_day)]
        for table in _OF_SWEEPS:
            rows = [row for one in some for row in table.rows(one, items_of(one, table))]
            tables.delta.append(table, arrow_rows(table.columns, rows))
    written = days * sweeps_a_day
    # The incident, and the time since which it is open.
    tables.write(_sweep(written))
    for table in _EACH_SWEEP:
        _age(Path(location) / table.name, written, min(days, LOG_DAYS) * sweeps_a_day)
    for number in range(written + 1, written + 1 + SINCE):
        tables.write(_sweep(number))
    return written + 1 + SINCE


def _sweep(number: int) -> Scan:
    """A sweep that finds the same hanging transaction as the sweep before."""
    at_ms = NOW_MS + number * EVERY_MS
    return scan(judged(), sweep_id=f"sweep-{number:07d}", started_at_ms=at_ms, finished_at_ms=at_ms + 500)


def _age(directory: Path, version: int, kept: int) -> None:
    """Changes the table's log as if the table had `version` commits. Only the last `kept` commits still exist."""
    from deltalake import DeltaTable

    found, log = DeltaTable(str(directory)), directory / "_delta_log"
    found.create_checkpoint()
    for commit in log.glob("*.json"):
        commit.unlink()
    *earlier, last = sorted(log.glob("*.checkpoint.parquet"))
    for checkpoint in earlier:
        checkpoint.unlink()
    last.rename(log / f"{version:020d}.checkpoint.parquet")
    pointer = log / "_last_checkpoint"
    pointer.write_text(json.dumps(json.loads(pointer.read_text()) | {"version": version}))
    filler = json.dumps({"commitInfo": {"timestamp": NOW_MS, "operation": "WRITE", "engineInfo": "txnscan"}})
    for one in range(version - kept + 1, version + 1):
        (log / f"{one:020d}.json").write_text(filler)


def _open(location: str, numbers: Iterator[int]) -> Work:
    script = (
        "import sys\nfrom txnscan.tables.open import open_tables\n"
        "tables = open_tables(sys.argv[1], None)\ntables.create()\nprint(len(tables.last_sweeps()))"
    )
    return {"last sweeps": int(_ran(sys.executable, "-c", script, location))}


def _show(location: str, numbers: Iterator[int]) -> Work:
    shown = _ran(sys.executable, "-m", "txnscan", "show", "--tables", location, "--format", "json")
    return {"shown": len(json.loads(shown)["transactions"])}


def _write(location: str, numbers: Iterator[int]) -> Work:
    tables, one = open_tables(location, None), _sweep(next(numbers))
    tables.write(replace(one, finished_at_ms=one.started_at_ms + 1_000))
    return {}


def _ran(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {ran.stderr.strip()}")
    return ran.stdout
