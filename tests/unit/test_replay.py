"""What a reader takes for the log of a table, and its limit."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.bombs import commit, file_added, file_removed, with_statistics
from tests.cases import Cases
from tests.fakes.delta import SAFE, ZERO, written
from txnscan.tables import replay
from txnscan.tables.delta_log import Examination
from txnscan.tables.metadata import TableRefused
from txnscan.tables.replay import Room, is_replayed, newest_checkpoint, of_checkpoint
from txnscan.tables.schema import CANDIDATES, SWEEPS
from txnscan.tables.thrift import Malformed

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

FIVE, SEVEN = f"{5:020}", f"{7:020}"


def part(version: str, number: int, of: int) -> str:
    return f"{version}.checkpoint.{number:010}.{of:010}.parquet"


def test_the_newest_whole_checkpoint_counts() -> None:
    lists: dict[str, tuple[tuple[str, ...], str]] = {
        "none": ((ZERO, "_last_checkpoint"), ""),
        "one": ((f"{FIVE}.checkpoint.parquet",), FIVE),
        "two": ((f"{SEVEN}.checkpoint.parquet", f"{FIVE}.checkpoint.parquet"), SEVEN),
        "all parts": ((part(SEVEN, 1, 2), part(SEVEN, 2, 2), f"{FIVE}.checkpoint.parquet"), SEVEN),
        "a part of two": ((part(SEVEN, 1, 2), f"{FIVE}.checkpoint.parquet"), FIVE),
        "parts of two checkpoints": ((part(SEVEN, 1, 2), part(SEVEN, 2, 3)), ""),
        "part 2 of 1": ((part(SEVEN, 2, 1), f"{FIVE}.checkpoint.parquet"), FIVE),
        "parts 0 and 1 of 2": ((part(SEVEN, 0, 2), part(SEVEN, 1, 2)), ""),
        "a version above 64 bits": ((f"{'9' * 20}.checkpoint.parquet", f"{FIVE}.checkpoint.parquet"), FIVE),
        "version 2, which not all readers take": ((f"{SEVEN}.checkpoint.0e7f.parquet",), ""),
    }
    with Cases() as cases:
        for name, (names, newest) in lists.items():
            with cases.case(name):
                assert newest_checkpoint(names) == newest


def test_the_newest_checkpoint_and_what_follows_are_replayed() -> None:
    replayed = {
        f"{FIVE}.json": False,
        f"{6:020}.json": True,
        f"{FIVE}.checkpoint.parquet": True,
        f"{4:020}.checkpoint.parquet": False,
        f"{SEVEN}.checkpoint.0e7f.json": True,
        f"{0:020}.{4:020}.compacted.json": False,
        f"{0:020}.{6:020}.compacted.json": True,
        f"{6:020}.crc": False,
        "_last_checkpoint": False,
    }
    with Cases() as cases:
        for name, expected in replayed.items():
            with cases.case(name):
                assert is_replayed(name, FIVE) is expected


def test_the_logs_of_all_tables_count_together(wording: SnapshotAssertion) -> None:
    room = Room(10)
    room.take(SWEEPS, 6)
    room.take(SWEEPS, 7)
    room.take(CANDIDATES, 3)
    with pytest.raises(TableRefused) as error:
        room.take(CANDIDATES, 4)
    assert str(error.value) == wording
    # The refused table is not open.
    room.take(SWEEPS, 10)
    Room(None).take(SWEEPS, 1 << 60)


def test_maintain_names_no_maintain() -> None:
    with pytest.raises(TableRefused) as error:
        Room(replay.MAINTAIN_BYTES_MAX).take(SWEEPS, replay.MAINTAIN_BYTES_MAX + 1)
    assert "maintain" not in str(error.value)


def weighed(table: Path) -> int:
    """The memory for the log of a table: below it there is no room."""
    low, high = 0, 1 << 40
    while low < high:
        most = (low + high) // 2
        try:
            Examination(SWEEPS, table, Room(most)).check()
            high = most
        except TableRefused:
            low = most + 1
    return low


def test_a_log_is_weighed_by_its_files_texts_and_commits(tmp_path: Path) -> None:
    empty = weighed(written(tmp_path / "empty", {ZERO: SAFE}))
    logs = {
        "files": ([file_added(f"{one}") for one in range(1_000)], 1, 2_000 * 1_000),
        "removed files": ([file_removed(f"{one}") for one in range(1_000)], 1, 2_000 * 1_000),
        "other actions": ([{"x": one} for one in range(1_000)], 1, 2_000 * 1_000),
        "texts": ([file_added(f"{one}", stats=with_statistics(1_000)) for one in range(500)], 1, 5_000 * 500),
        "long texts": ([file_added(f"{one}", stats=with_statistics(50_000)) for one in range(10)], 1, 8 * 500_000),
        "commits": ([{"x": one} for one in range(10)], 10, 200_000 * 10),
    }
    with Cases() as cases:
        for name, (actions, commits, least) in logs.items():
            with cases.case(name):
                table = written(tmp_path / name, {ZERO: SAFE})
                commit(table, actions, commits=commits)
                assert least < weighed(table) - empty < 2 * least


def test_a_checkpoint_is_weighed_by_its_texts_as_readers_expand_them() -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 0, 1, None], pa.int32()), ["a" * 1_000, "bb"])
    add = pa.StructArray.from_arrays([texts, pa.array([1, 2, 3, 4])], ["path", "size"])
    pairs = pa.array([[("k", "vvv")], None, [], [("k", "v"), ("l", "v")]], pa.map_(pa.string(), pa.string()))
    lists = pa.array([["abc"], None, [], ["d", "e"]], pa.list_(pa.string()))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"add": add, "pairs": pairs, "lists": lists}), sink)
    written = io.BytesIO(sink.getvalue().to_pybytes())
    elements = 6 * 64
    expected = 4 * 2_000 + 3 * (2 * 1_000 + 2) + 3 * (4 + 2 + 2) + 3 * 5 + elements
    for rows in (1, 3, 100):
        assert sum(of_checkpoint(written, rows)) == expected
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"add": pa.array([b"a"], pa.binary(1))}), sink)
    with pytest.raises(Malformed):
        list(of_checkpoint(io.BytesIO(sink.getvalue().to_pybytes()), 10))
