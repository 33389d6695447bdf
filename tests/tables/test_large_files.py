"""A small data file that stands for gigabytes: a read has a limit, and `maintain` names the file before it reads it.

The limits are small here. Files of this kind took gigabytes and minutes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders import NOW_MS
from tests.cases import Cases
from tests.conftest import Opens
from tests.process import PEAK_KIB, run_python
from tests.tables.stored import next_sweep
from txnscan.config import ConfigError
from txnscan.tables import data_files, delta_rs
from txnscan.tables.delta import By
from txnscan.tables.maintain import kept, maintain
from txnscan.tables.open import open_tables
from txnscan.tables.schema import SWEEPS
from txnscan.tables.tables import Tables

BOMB = "cluster_id=cluster-1/part-bomb.parquet"
MIB = 1 << 20


def repeated(times: int) -> Callable[[pa.Table], pa.Table]:
    """The row of the sweep, many times: a run of the same values."""
    return lambda row: pa.concat_tables([row] * times).combine_chunks()


def with_text(size: int) -> Callable[[pa.Table], pa.Table]:
    """The row, with a text of this size, which compresses to almost nothing."""

    def made(row: pa.Table) -> pa.Table:
        field = row.schema.field("settings")
        return row.set_column(row.schema.get_field_index("settings"), field, pa.array(["a" * size], field.type))

    return made


def planted(template: Path, place: Path, rows: Callable[[pa.Table], pa.Table]) -> Path:
    """Tables in which somebody added a file with these rows, without statistics."""
    shutil.copytree(template, place)
    table = place / "sweeps"
    (part,) = table.rglob("part-*.parquet")
    pq.write_table(rows(pq.ParquetFile(part).read()), table / BOMB, compression="zstd")
    log = sorted((table / "_delta_log").glob("*.json"))
    lines = (json.loads(line) for path in log for line in path.read_text().splitlines())
    add: dict[str, Any] = next(line["add"] for line in lines if "add" in line)
    add = {**add, "path": BOMB, "size": (table / BOMB).stat().st_size, "stats": None}
    (table / "_delta_log" / f"{len(log):020}.json").write_text(json.dumps({"add": add}))
    return place


def uses(tables: Tables) -> dict[str, Callable[[], object]]:
    return {
        "the last sweeps": tables.last_sweeps,
        "rows": lambda: tables.rows(SWEEPS),
        "rows in order": lambda: tables.rows(SWEEPS, order=(By("started_at"),)),
        "the newest": lambda: tables.delta.newest(SWEEPS, ("cluster_id",), "started_at"),
    }


# Name, the limit, its value, and the rows.
BOMBS: tuple[tuple[str, str, int, Callable[[pa.Table], pa.Table]], ...] = (
    ("many equal rows in a file", "ROWS_MAX", 1_000, repeated(1_001)),
    ("a long text", "COLUMN_BYTES_MAX", MIB, with_text(MIB)),
    ("a long footer", "_FOOTER_BYTES_MAX", 10, repeated(1)),
)


def test_maintain_names_a_file_above_the_limits(
    opens: Opens, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cases() as cases:
        for name, limit, most, rows in BOMBS:
            location = planted(template, tmp_path / name.replace(" ", "-"), rows)
            tables = opens(str(location))
            with monkeypatch.context() as limits:
                limits.setattr(data_files, limit, most)
                with cases.case(name), pytest.raises(ConfigError, match="part-"):
                    maintain(tables, kept(tables, 0, NOW_MS), vacuum_after_hours=1)
            with cases.case(f"{name}, within the limits"):
                assert maintain(tables, kept(tables, 0, NOW_MS), vacuum_after_hours=1)


def test_a_read_of_too_many_rows_or_bytes_fails(
    opens: Opens, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the footers lie, or the table has many such files."""
    tables = opens(str(planted(template, tmp_path / "tables", repeated(1_001))))
    with Cases() as cases:
        for use, call in uses(tables).items():
            for limit, most in (("READ_ROWS_MAX", 1_000), ("READ_BYTES_MAX", 50_000)):
                with cases.case(f"{use}: {limit}"), monkeypatch.context() as limits:
                    limits.setattr(data_files, limit, most)
                    with pytest.raises((ConfigError, data_files.TooLarge)):
                        call()
            with cases.case(use):
                assert call()
        with cases.case("a limit of rows"), monkeypatch.context() as limits:
            limits.setattr(data_files, "READ_ROWS_MAX", 1_000)
            assert len(tables.rows(SWEEPS, order=(By("started_at"),), limit=10)) == 10


# Reads a table, and prints the most memory of the process in KiB, if the read failed.
PEAK = f"""
import sys
from tests.tables.test_large_files import uses
from txnscan.tables.data_files import TooLarge
from txnscan.tables.open import open_tables
from txnscan.config import ConfigError

location, use = sys.argv[1:]
try:
    uses(open_tables(location, None))[use]()
except (ConfigError, TooLarge):
    print({PEAK_KIB})
"""


def test_compaction_makes_small_row_groups(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of a million sentences in one row group exceeded the limit, and `maintain` refused its own file."""
    monkeypatch.setattr(delta_rs, "ROWS_OF_GROUP_MAX", 2)
    tables = open_tables(location, None)
    tables.create()
    for number in range(5):
        tables.write(next_sweep(number))
    assert tables.delta.compact(SWEEPS).added == 1
    (file,) = (path for path in Path(location, SWEEPS.name).rglob("part-*") if pq.read_metadata(path).num_rows == 5)
    footer = pq.read_metadata(file)
    assert [footer.row_group(number).num_rows for number in range(footer.num_row_groups)] == [2, 2, 1]
    assert footer.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc")
def test_no_read_takes_300_mb(template: Path, tmp_path: Path) -> None:
    """With the real limits. Each read gets all rows, a quarter of a million: 200 MB."""

    def doubled(row: pa.Table) -> pa.Table:
        for _ in range(18):
            row = pa.concat_tables([row, row])
        return row.combine_chunks()

    place = str(planted(template, tmp_path / "tables", doubled))
    with Cases() as cases:
        for use in uses(open_tables(place, None)):
            with cases.case(use):
                ran = run_python("-c", PEAK, place, use)
                assert 0 < int(ran.stdout) * 1024 < 300e6
