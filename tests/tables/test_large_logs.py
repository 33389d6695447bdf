"""A log that takes gigabytes in delta-rs is not opened, and `maintain` makes it small again."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.bombs import commit, file_added, with_statistics
from tests.builders import NOW_MS
from tests.cases import Cases
from tests.conftest import Opens
from tests.process import PEAK_KIB, run_python
from tests.tables.stored import next_sweep
from txnscan.config import ConfigError
from txnscan.tables import delta_rs
from txnscan.tables.maintain import kept, maintain
from txnscan.tables.open import open_tables
from txnscan.tables.schema import SWEEPS

DAY_MS, DAY_OF_SWEEPS = 86_400_000, 288
# The statistics of a file with one sweep.
SWEEP_STATISTICS = 1_650


def files_of(days: int) -> Iterable[Mapping[str, Any]]:
    """The files of so many days with a sweep every five minutes, without `maintain`."""
    paths = (f"cluster_id=cluster-1/part-00000-{one:036}-c000.snappy.parquet" for one in range(days * DAY_OF_SWEEPS))
    return (file_added(path, stats=with_statistics(SWEEP_STATISTICS)) for path in paths)


def test_a_month_of_sweeps_without_maintain_opens_and_a_year_names_maintain(
    opens: Opens, template: Path, tmp_path: Path
) -> None:
    with Cases() as cases:
        for days in (30, 365):
            location = tmp_path / str(days)
            shutil.copytree(template, location)
            commit(location / SWEEPS.name, files_of(days), commits=10)
            with cases.case(f"{days} days"):
                if days == 30:
                    opens(str(location)).create()
                else:
                    with pytest.raises(ConfigError, match="run txnscan maintain"):
                        opens(str(location)).create()
                    with pytest.raises(ConfigError, match="run txnscan maintain"):
                        opens(str(location)).rows(SWEEPS)


def test_maintain_opens_a_log_that_is_too_large_for_others(
    opens: Opens, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = str(tmp_path / "tables")
    shutil.copytree(template, location)
    tables = opens(location)
    for number in range(2, 10):
        tables.write(next_sweep(number))
    monkeypatch.setattr(delta_rs, "REPLAY_BYTES_MAX", 3_000_000)
    with pytest.raises(ConfigError, match="run txnscan maintain"):
        opens(location).last_sweeps()
    allowed = open_tables(location, None, to_maintain=True)
    maintain(allowed, kept(allowed, 365 * DAY_MS, NOW_MS), vacuum_after_hours=1)
    assert len(opens(location).rows(SWEEPS)) == 9


def test_a_log_that_grows_while_the_tables_are_open_is_refused(opens: Opens, template: Path, tmp_path: Path) -> None:
    location = tmp_path / "tables"
    shutil.copytree(template, location)
    tables = opens(str(location))
    assert tables.last_sweeps()
    commit(location / SWEEPS.name, [file_added(f"{one}") for one in range(70_000)])
    with pytest.raises(ConfigError, match="run txnscan maintain"):
        tables.rows(SWEEPS, columns=("sweep_id",))


# Logs with almost all that there is room for.
ALMOST: dict[str, tuple[Iterable[Mapping[str, Any]], int]] = {
    "files": ([file_added(f"{one:x}") for one in range(50_000)], 1),
    "long names": ([file_added(f"{'a' * 1_000}{one}") for one in range(22_000)], 1),
    "statistics": ([file_added(f"{one}", stats=with_statistics(4_000)) for one in range(3_500)], 1),
    "long statistics": ([file_added(f"{one}", stats=with_statistics(100_000)) for one in range(148)], 1),
    "commits": ([file_added(f"{one}") for one in range(550)], 550),
    "a month of sweeps": (files_of(30), 10),
}
OPENING = f"""
import sys
from txnscan.tables.open import open_tables

open_tables(sys.argv[1], None).create()
print({PEAK_KIB})
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc")
def test_opening_takes_no_300_mb(template: Path, tmp_path: Path) -> None:
    with Cases() as cases:
        for name, (actions, commits) in ALMOST.items():
            location = tmp_path / name.replace(" ", "-")
            shutil.copytree(template, location)
            commit(location / SWEEPS.name, actions, commits=commits)
            with cases.case(name):
                ran = run_python("-c", OPENING, str(location))
                assert ran.returncode == 0, ran.stderr
                assert int(ran.stdout) * 1024 < 300e6
