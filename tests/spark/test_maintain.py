"""Tables that stay small: what is deleted, what never is, and who is not disturbed."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.builders import NOW_MS, judged, scan, view
from tests.conftest import Opens
from txnscan.cli import app
from txnscan.findings import Scan
from txnscan.model import Judged
from txnscan.store.maintain import Kept, kept, maintain
from txnscan.store.open import open_tables
from txnscan.store.schema import CANDIDATES, INCIDENTS, OPEN_TRANSACTIONS, RESOLUTIONS, SWEEPS, incident_id
from txnscan.store.tables import Tables

DAY_MS = 86_400_000
ORPHAN = judged()
STALE = judged(view("Empty", 5), partition=1)
DAYS = 8


def sweep(day: int, *transactions: Judged, **changes: Any) -> Scan:
    at_ms = NOW_MS + day * DAY_MS
    return scan(*transactions, sweep_id=f"sweep-{day}", started_at_ms=at_ms, finished_at_ms=at_ms + 500, **changes)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep a day. What the first three saw hanging has ended since."""
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
    return len(list(Path(location, "sweeps").glob("*.parquet")))


def test_sweeps_that_are_old_go_whole_and_nothing_else_goes(opens: Opens, tables: Tables, location: str) -> None:
    tables = opens(location)
    keep = kept(tables, 2 * DAY_MS, NOW_MS + (DAYS - 1) * DAY_MS)
    assert keep == Kept(datetime.fromtimestamp(NOW_MS / 1000 + (DAYS - 3) * 86_400, UTC).date())
    before = files(location)
    done = {one.table: one for one in maintain(tables, keep, vacuum_after_hours=1)}
    assert sweeps(tables) == {"sweep-5", "sweep-6", "sweep-7"}
    assert tables.rows(OPEN_TRANSACTIONS) == tables.rows(CANDIDATES) == []
    assert [row["resolved_how"] for row in tables.rows(INCIDENTS)] == ["ended"]
    assert (done["sweeps"].rows_deleted, done["open_transactions"].rows_deleted) == (5, 3)
    assert (done["sweeps"].files_compacted, done["sweeps"].files_made) == (3, 1)
    # Somebody may still be reading what was there a moment ago.
    assert files(location) > before and not done["sweeps"].files_vacuumed
    tables.write(sweep(DAYS, ORPHAN))
    assert len(tables.read(CANDIDATES, f"sweep-{DAYS}")) == 1


def test_of_an_incident_that_is_open_no_sweep_is_deleted_however_old(tables: Tables) -> None:
    tables.write(sweep(DAYS, ORPHAN))
    keep = kept(tables, 2 * DAY_MS, NOW_MS + 100 * DAY_MS)
    since = datetime.fromtimestamp(ORPHAN.observation.first_seen_ms / 1000, UTC).date()
    assert keep == Kept(since, incident_id("cluster-1", ORPHAN))
    maintain(tables, keep)
    assert len(tables.read(OPEN_TRANSACTIONS, f"sweep-{DAYS}")) == 1


def test_the_last_sweep_of_each_scope_stays(tables: Tables) -> None:
    tables.write(sweep(DAYS, scope="topic=x"))
    maintain(tables, kept(tables, 0, NOW_MS + 100 * DAY_MS))
    assert sweeps(tables) == {"sweep-7", "sweep-8"}


def test_doing_it_twice_finds_nothing_to_do(tables: Tables) -> None:
    keep = kept(tables, DAY_MS, NOW_MS + DAYS * DAY_MS)
    maintain(tables, keep)
    again = maintain(tables, keep)
    assert {(one.rows_deleted, one.files_compacted, one.files_vacuumed) for one in again} == {(0, 0, 0)}


def test_files_that_nobody_can_be_reading_any_more_are_removed(tables: Tables, location: str) -> None:
    maintain(tables, kept(tables, DAY_MS, NOW_MS + DAYS * DAY_MS), vacuum_after_hours=0)
    assert files(location) == 1
    assert sweeps(tables) == {"sweep-7"}


def test_the_lock_s_file_is_passed_over(tables: Tables, location: str) -> None:
    lock = Path(location, "apply_locks", "_cluster.lock")
    lock.write_text("host process 1")
    maintain(
        tables, kept(tables, DAY_MS, NOW_MS), vacuum_after_hours=0 if "delta_rs" in str(type(tables.delta)) else 168
    )
    assert lock.exists()


def test_the_command_says_what_it_kept_and_what_it_did(written: Path, tmp_path: Path) -> None:
    location = tmp_path / "tables"
    shutil.copytree(written, location)
    ran = CliRunner().invoke(app, ["maintain", "--tables", str(location), "--keep", "1d"])
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "  sweeps: 7 rows deleted" in ran.stdout and "  resolutions: nothing to do" in ran.stdout
    ran = CliRunner().invoke(app, ["maintain", "--tables", str(location), "--format", "json"])
    assert {one["table"]: one["rows_deleted"] for one in json.loads(ran.stdout)["tables"]}["sweeps"] == 0
    assert RESOLUTIONS.name in ran.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--keep", "x"), "--keep: 'x' is not a duration"),
        (("--vacuum-after", "5m"), "--vacuum-after: '5m' is below 1h, and somebody may be reading"),
    ],
)
def test_what_cannot_be_is_a_usage_error(written: Path, words: tuple[str, str], said: str) -> None:
    ran = CliRunner().invoke(app, ["maintain", "--tables", str(written), *words])
    assert ran.exit_code == 2 and ran.stderr.startswith(f"txnscan: {said}")
