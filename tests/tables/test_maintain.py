"""`txnscan maintain`: the sweeps and files that it deletes."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.builders import NOW_MS, judged, plan, stored
from tests.tables.stored import COMMIT, ORPHAN, STALE, read_for, reads_of, swept
from txnscan.cli.app import app
from txnscan.sweeps.row import incident_id
from txnscan.tables.open import open_tables
from txnscan.tables.schema import CANDIDATES, INCIDENTS, OPEN_TRANSACTIONS, SWEEPS
from txnscan.txnlog.facts import SeenCommit, SeenMarker

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from txnscan.sweeps.result import Scan
    from txnscan.tables.tables import Tables
    from txnscan.verdict.evidence import Judged

DAY_MS = 86_400_000
DAYS = 8


def sweep(day: int, *transactions: Judged, **changes: Any) -> Scan:
    at_ms = NOW_MS + day * DAY_MS
    return swept(*transactions, sweep_id=f"sweep-{day}", started_at_ms=at_ms, finished_at_ms=at_ms + 500, **changes)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep a day. The incident of the first three days is closed since the fourth."""
    location = tmp_path_factory.mktemp("maintained") / "tables"
    tables = open_tables(str(location), None)
    tables.create()
    for day in range(DAYS):
        tables.write(sweep(day, *([STALE] if day < 3 else [])))
    return location


@pytest.fixture
def tables(written: Path, location: str) -> Tables:
    shutil.copytree(written, location)
    return open_tables(location, None)


def sweeps(tables: Tables) -> set[str]:
    return {row["sweep_id"] for row in tables.rows(SWEEPS)}


def files(location: str) -> int:
    return len(list(Path(location, "sweeps").rglob("part-*.parquet")))


def data_files(location: str, table: str) -> int:
    return len(list(Path(location, table).rglob("part-*.parquet")))


def test_old_sweeps_are_deleted_with_their_rows_and_incidents_are_kept(tables: Tables, location: str) -> None:
    from txnscan.tables.maintain import Kept, kept, maintain

    keep = kept(tables, 2 * DAY_MS, NOW_MS + (DAYS - 1) * DAY_MS)
    assert keep == Kept(datetime.fromtimestamp(NOW_MS / 1000 + (DAYS - 3) * 86_400, UTC).date())
    before = files(location)
    done = {one.table: one for one in maintain(tables, keep, vacuum_after_hours=1)}
    assert sweeps(tables) == {"sweep-5", "sweep-6", "sweep-7"}
    assert tables.rows(OPEN_TRANSACTIONS) == tables.rows(CANDIDATES) == []
    assert [row["resolved_how"] for row in tables.rows(INCIDENTS)] == ["ended"]
    assert (done["sweeps"].rows_deleted, done["open_transactions"].rows_deleted) == (5, 3)
    assert (done["sweeps"].files_compacted, done["sweeps"].files_made) == (3, 1)
    # A reader may have opened a file a moment ago.
    assert files(location) > before and not done["sweeps"].files_vacuumed
    tables.write(sweep(DAYS, ORPHAN))
    assert len(tables.read(CANDIDATES, f"sweep-{DAYS}")) == 1


def test_facts_and_incidents_outlive_every_sweep(tables: Tables, location: str) -> None:
    """They may always forbid a marker. Their files are compacted, as in all tables."""
    from txnscan.resolve.journal import TablesJournal
    from txnscan.tables.maintain import kept, maintain

    commits = [SeenCommit("X", 7, epoch) for epoch in (3, 4, 5)]
    sweeps_read = [
        sweep(DAYS + n, STALE, **read_for(STALE, replace(COMMIT, leader_epoch=n), commits=[commit]))
        for n, commit in enumerate(commits)
    ]
    markers = [SeenMarker("q", 0, offset, 7, 3) for offset in (50, 60, 70)]
    for one, marker in zip(sweeps_read, markers, strict=True):
        tables.write(one)
        TablesJournal(tables).remember(plan(stored()), marker)
    tables.write(sweep(DAYS + 3))
    before = tables.rows(INCIDENTS)
    long_after_ms = NOW_MS + 1_000 * DAY_MS
    done = {one.table: one for one in maintain(tables, kept(tables, 0, long_after_ms), vacuum_after_hours=0)}
    assert sweeps(tables) == {f"sweep-{DAYS + 3}"}
    found = tables.facts("cluster-1", {7})()[7]
    assert (set(found.reads), set(found.markers)) == (set(reads_of(*sweeps_read)), set(markers))
    assert set(found.commits) == set(commits)
    assert tables.rows(INCIDENTS) == before and len(before) == 1
    assert (done["facts"].rows_deleted, done["facts"].files_compacted, done["facts"].files_made) == (0, 6, 1)
    assert (done["facts"].files_vacuumed, data_files(location, "facts")) == (6, 1)
    assert done["incidents"].rows_deleted == 0 and data_files(location, "incidents") == 1


def test_every_sweep_of_an_open_incident_is_kept(tables: Tables) -> None:
    from txnscan.tables.maintain import Kept, KeptLonger, kept, maintain

    tables.write(sweep(DAYS, ORPHAN))
    keep = kept(tables, 2 * DAY_MS, NOW_MS + 100 * DAY_MS)
    since = datetime.fromtimestamp(ORPHAN.observation.first_seen_ms / 1000, UTC).date()
    until = datetime.fromtimestamp(NOW_MS / 1000 + 98 * 86_400, UTC).date()
    assert keep == Kept(until, (KeptLonger("cluster-1", since, incident_id("cluster-1", ORPHAN)),))
    maintain(tables, keep)
    assert len(tables.read(OPEN_TRANSACTIONS, f"sweep-{DAYS}")) == 1


def test_an_open_incident_keeps_sweeps_of_its_own_cluster_only(tables: Tables, wording: SnapshotAssertion) -> None:
    """Only if it is older than the retention time."""
    from txnscan.report.history import print_maintained
    from txnscan.tables.maintain import kept, maintain

    for number in (2, 3):
        for day in (-3, 1, 2):
            found = sweep(day, *([ORPHAN, STALE] if number == 2 and day > 0 else []))
            tables.write(replace(found, cluster_id=f"cluster-{number}", sweep_id=f"{number}-{day}"))
    young = judged(first_seen_ms=NOW_MS + (DAYS + 20) * DAY_MS)
    tables.write(replace(sweep(DAYS + 20, young), cluster_id="cluster-4", sweep_id="4-20"))
    keep = kept(tables, DAY_MS, NOW_MS + (DAYS + 20) * DAY_MS)
    ids = {incident_id("cluster-2", one) for one in (ORPHAN, STALE)}
    assert [(one.cluster_id, one.incident_id in ids) for one in keep.clusters] == [("cluster-2", True)]
    deleted = {one.table: one.rows_deleted for one in maintain(tables, keep)}
    assert sweeps(tables) == {"sweep-7", "2-1", "2-2", "3-2", "4-20"}
    assert deleted["sweeps"] == DAYS - 1 + 1 + 2
    assert {row["sweep_id"] for row in tables.rows(OPEN_TRANSACTIONS)} == {"2-1", "2-2", "4-20"}
    console = Console(file=io.StringIO(), width=80)
    print_maintained(console, keep, [])
    said = console.file.getvalue().replace(keep.clusters[0].incident_id, "<id>")  # type: ignore[attr-defined]
    assert said.splitlines() == wording


def test_the_last_sweep_of_each_scope_is_kept(tables: Tables) -> None:
    from txnscan.tables.maintain import kept, maintain

    tables.write(sweep(DAYS, scope="topic=x"))
    maintain(tables, kept(tables, 0, NOW_MS + 100 * DAY_MS))
    assert sweeps(tables) == {"sweep-7", "sweep-8"}


def test_a_second_run_has_no_work(tables: Tables) -> None:
    from txnscan.tables.maintain import kept, maintain

    keep = kept(tables, DAY_MS, NOW_MS + DAYS * DAY_MS)
    maintain(tables, keep)
    again = maintain(tables, keep)
    assert {(one.rows_deleted, one.files_compacted, one.files_vacuumed) for one in again} == {(0, 0, 0)}


def test_old_files_are_removed_and_the_lock_file_is_kept(tables: Tables, location: str) -> None:
    from txnscan.tables.maintain import kept, maintain

    lock = Path(location, "apply_locks", "_cluster.lock")
    lock.write_text("host process 1")
    maintain(tables, kept(tables, DAY_MS, NOW_MS + DAYS * DAY_MS), vacuum_after_hours=0)
    assert (files(location), sweeps(tables), lock.exists()) == (1, {"sweep-7"}, True)


def test_the_command_reports_each_table(written: Path, tmp_path: Path, wording: SnapshotAssertion) -> None:
    """The first line has a date, and is not compared."""
    location = tmp_path / "tables"
    shutil.copytree(written, location)
    ran = CliRunner().invoke(app, ["maintain", "--tables", str(location), "--keep", "1d"])
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert [line for line in ran.stdout.splitlines() if line.startswith("  ")] == wording
    ran = CliRunner().invoke(app, ["maintain", "--tables", str(location), "--format", "json"])
    deleted = {one["table"]: one["rows_deleted"] for one in json.loads(ran.stdout)["tables"]}
    assert (deleted["sweeps"], deleted["resolutions"]) == (0, 0)


def test_bad_options_are_usage_errors(written: Path, wording: SnapshotAssertion) -> None:
    errors = {}
    for words in (("--keep", "x"), ("--vacuum-after", "5m")):
        ran = CliRunner().invoke(app, ["maintain", "--tables", str(written), *words])
        assert ran.exit_code == 2
        errors[" ".join(words)] = ran.stderr.strip()
    assert errors == wording
