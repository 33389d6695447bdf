"""Data files that stand for gigabytes. Each use of the tables refuses them before it reads, or ends at its limit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.bombs import (
    BOMB,
    MIB,
    PLAIN,
    planted,
    sizes,
    uses,
    with_list,
    with_numbers,
    with_text,
)
from tests.builders import NOW_MS
from tests.cases import Cases
from tests.conftest import Opens
from tests.process import PEAK_KIB, run_python
from tests.tables.stored import next_sweep
from txnscan.config import ConfigError
from txnscan.tables import data_files, delta_rs, parquet
from txnscan.tables.delta import By, Compacted
from txnscan.tables.maintain import kept, maintain
from txnscan.tables.open import open_tables
from txnscan.tables.schema import INCIDENTS, SWEEPS, TOPIC_READS
from txnscan.waiting.complete_up_to import PartitionRead, TopicRead


def repeated(times: int) -> Callable[[pa.Table], pa.Table]:
    """The row of the sweep, many times: a run of the same values."""
    return lambda row: pa.concat_tables([row] * times).combine_chunks()


# Name, the limit, its value, and the rows.
BOMBS: tuple[tuple[str, str, int, Callable[[pa.Table], pa.Table]], ...] = (
    ("many equal rows in a file", "ROWS_MAX", 1_000, repeated(1_001)),
    ("a long text", "PAGE_BYTES_MAX", MIB, with_text(MIB)),
    ("a long footer", "FOOTER_BYTES_MAX", 10, repeated(1)),
)


def test_each_use_names_a_file_above_the_limits(
    opens: Opens, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cases() as cases:
        for name, limit, most, rows in BOMBS:
            location = str(planted(template, tmp_path / name.replace(" ", "-"), rows))
            with monkeypatch.context() as limits:
                limits.setattr(parquet, limit, most)
                for use, call in uses(opens(location)).items():
                    with cases.case(f"{name}: {use}"), pytest.raises(ConfigError, match="part-"):
                        call()
            for use, call in uses(opens(location)).items():
                with cases.case(f"{name}, within the limits: {use}"):
                    assert call()


def test_a_column_that_is_not_read_does_not_count(opens: Opens, template: Path, tmp_path: Path) -> None:
    tables = opens(str(planted(template, tmp_path / "tables", with_text(17 * MIB))))
    assert len(tables.rows(SWEEPS, columns=("sweep_id",))) == 2
    with pytest.raises(ConfigError, match="part-"):
        tables.rows(SWEEPS, columns=("sweep_id", "settings"))
    with pytest.raises(ConfigError, match="part-"):
        tables.rows(SWEEPS, columns=("sweep_id",), order=(By("settings"),))


def test_a_read_of_too_many_rows_or_bytes_fails(
    opens: Opens, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the footers lie, or the table has many such files."""
    tables = opens(str(planted(template, tmp_path / "tables", repeated(1_001))))
    with Cases() as cases:
        reads = uses(tables)
        # They write.
        del reads["maintain"], reads["compact"]
        for use, call in reads.items():
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


def test_tables_of_too_many_files_are_not_read_and_maintain_merges_them(
    opens: Opens, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = str(tmp_path / "tables")
    shutil.copytree(template, location)
    for number in range(2, 6):
        opens(location).write(next_sweep(number))
    # The first file has two sweeps.
    monkeypatch.setattr(delta_rs, "FILES_MAX", 4)
    tables = opens(location)
    with pytest.raises(ConfigError, match="run txnscan maintain"):
        tables.rows(SWEEPS)
    with pytest.raises(ConfigError, match="run txnscan maintain"):
        tables.rows(SWEEPS, columns=("sweep_id",), limit=1)
    # Tables with fewer files are read, and rows are stored.
    assert tables.rows(INCIDENTS) == []
    tables.write(next_sweep(6))
    allowed = open_tables(location, None, to_maintain=True)
    maintain(allowed, kept(allowed, 0, NOW_MS), vacuum_after_hours=1)
    assert opens(location).rows(SWEEPS)


# Uses the tables in each of these ways, and prints the most memory of the process in KiB, if all failed.
PEAK = f"""
import sys
from tests.bombs import uses
from txnscan.tables.data_files import TooLarge
from txnscan.tables.open import open_tables
from txnscan.config import ConfigError

location, *names = sys.argv[1:]
calls = uses(open_tables(location, None))
for name in names:
    try:
        calls[name]()
    except (ConfigError, TooLarge):
        continue
    sys.exit(f"{{name}} did not fail")
print({PEAK_KIB})
"""


def peak_bytes(place: Path, *names: str) -> int:
    """The most memory that a process took for these uses of the tables, all of which failed."""
    ran = run_python("-c", PEAK, str(place), *names)
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout) * 1024


def test_compaction_makes_small_row_groups(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of a million sentences in one row group exceeded the limit, and `maintain` refused its own file."""
    monkeypatch.setitem(delta_rs.ROWS_OF_GROUP_MAX, SWEEPS.name, 2)
    tables = open_tables(location, None)
    tables.create()
    for number in range(5):
        tables.write(next_sweep(number))
    assert tables.delta.compact(SWEEPS).added == 1
    (file,) = (path for path in Path(location, SWEEPS.name).rglob("part-*") if pq.read_metadata(path).num_rows == 5)
    footer = pq.read_metadata(file)
    assert [footer.row_group(number).num_rows for number in range(footer.num_row_groups)] == [2, 2, 1]
    assert footer.row_group(0).column(0).compression == "ZSTD"


def test_many_files_are_merged_in_two_steps(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one step, delta-rs took 500 MB for four thousand files."""
    tables = open_tables(location, None)
    tables.create()
    for number in range(5):
        tables.write(next_sweep(number))
    (size, *_) = sorted(path.stat().st_size for path in Path(location, SWEEPS.name).rglob("part-*"))
    monkeypatch.setattr(delta_rs, "_FILES_AT_ONCE", 4)
    monkeypatch.setattr(delta_rs, "_FIRST_BYTES", 3 * size)
    before = tables.rows(SWEEPS)
    assert tables.delta.compact(SWEEPS) == Compacted(5, 1)
    assert sorted(tables.rows(SWEEPS), key=str) == sorted(before, key=str)
    commits = sorted(Path(location, SWEEPS.name, "_delta_log").glob("*.json"))
    assert ["OPTIMIZE" in path.read_text() for path in commits[-2:]] == [True, True]


def test_no_writer_exceeds_the_values_that_lists_may_have(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`maintain` refused its own file of two thousand sweeps with a thousand positions each."""
    for module, limit in ((parquet, "VALUES_MAX"), (delta_rs, "VALUES_MAX")):
        monkeypatch.setattr(module, limit, 12_000)
    tables = open_tables(location, None)
    tables.create()
    partitions = tuple(PartitionRead(number, 0, 5, 5) for number in range(100))
    for number in range(3):
        reads = tuple(TopicRead(f"t{one}", "id", NOW_MS, partitions) for one in range(20))
        tables.write(replace(next_sweep(number), topic_reads=reads))
        assert len(tables.rows(TOPIC_READS)) == 20 * (number + 1)
    assert tables.delta.compact(TOPIC_READS).added == 1
    assert len(tables.rows(TOPIC_READS)) == 60


READS = ("the last sweeps", "rows", "rows in order", "the newest")
# With the real limits: the rows, the options of the file, and the uses. Each would take from 400 MB to 16 GB.
LARGE: dict[str, tuple[Callable[[pa.Table], pa.Table], dict[str, Any], tuple[str, ...]]] = {
    "a hundred thousand rows of 1 KB": (with_text(1_000, 100_000), {}, READS),
    "a text of 200 MiB": (with_text(200 * MIB), PLAIN, ("rows", "maintain")),
    "a text of 200 MiB in a dictionary": (with_text(200 * MIB), {}, ("rows", "maintain")),
    "a text of 15 MiB that 1,000 rows share": (with_text(15 * MIB, 1_000), {}, (*READS, "maintain")),
    "a text of 1 MiB that 1,000 rows share": (with_text(MIB, 1_000), {}, ("compact",)),
    "a list of 30,000,000 texts": (with_list(30_000_000), {}, ("rows", "maintain")),
}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc")
def test_no_use_takes_300_mb(template: Path, tmp_path: Path) -> None:
    with Cases() as cases:
        for number, (name, (rows, options, names)) in enumerate(LARGE.items()):
            with cases.case(name):
                assert peak_bytes(planted(template, tmp_path / str(number), rows, **options), *names) < 300e6


# Stores a sweep, and prints the most memory of the process in KiB.
STORE = f"""
import sys
from tests.tables.stored import next_sweep
from txnscan.tables import delta_rs
from txnscan.tables.open import open_tables

delta_rs.SMALL_FILES_MAX = 1
open_tables(sys.argv[1], None).write(next_sweep(9))
print({PEAK_KIB})
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc")
def test_a_sweep_merges_no_small_file_of_many_bytes(template: Path, tmp_path: Path) -> None:
    """A merge would write the shared text of 1 MiB a thousand times."""
    with Cases() as cases:
        for name, rows, merged in (("shared", with_text(MIB, 1_000), False), ("short", with_text(1_000, 100), True)):
            with cases.case(name):
                place = planted(template, tmp_path / name, rows)
                ran = run_python("-c", STORE, str(place))
                assert ran.returncode == 0, ran.stderr
                assert int(ran.stdout) * 1024 < 300e6
                present = DeltaTable(str(place / SWEEPS.name)).file_uris()
                assert any(BOMB in one for one in present) is not merged


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc")
def test_a_page_that_lies_about_its_size_takes_no_300_mb(template: Path, tmp_path: Path) -> None:
    """The page says 100 bytes, and has a text of 200 MiB."""
    with Cases() as cases:
        for compression in ("zstd", "gzip", "brotli"):
            place = planted(
                template, tmp_path / compression, with_text(200 * MIB), use_dictionary=False, compression=compression
            )
            file = place / "sweeps" / BOMB
            footer = pq.read_metadata(file).row_group(0)
            leaf = next(one for one in range(footer.num_columns) if footer.column(one).path_in_schema == "settings")
            with_numbers(file, dict.fromkeys(sizes(file, leaf), 100))
            with cases.case(compression):
                assert peak_bytes(place, "rows", "maintain") < 300e6
