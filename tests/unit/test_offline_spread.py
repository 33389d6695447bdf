"""Reading many directories in parallel processes gives the sequential result. tests/spark has the same on Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.offline import data, end, partition_directory
from txnscan.errors import ExitStatus
from txnscan.offline import paths
from txnscan.offline.contents import Replica, ReplicaFiles
from txnscan.offline.paths import ReadingEnded, read_paths

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Partitions of all sizes: ended, open, damaged, and one with a foreign file."""
    for index in range(8):
        log = b"".join(data(offset, pid=index, sequence=offset) for offset in range(index * 3 + 1))
        log += end(index * 3 + 1, pid=index) if index % 2 else b""
        partition_directory(tmp_path, f"t-{index}", {0: log[: -(index == 6) or None]})
    return tmp_path


def test_parallel_processes_give_the_sequential_result(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = read_paths([str(root)], late_after_ms=0)
    monkeypatch.setattr(paths, "_PARALLEL_FROM_BYTES", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    told: list[tuple[str, int, int]] = []
    together = read_paths([str(root)], late_after_ms=0, progress=lambda *one: told.append(one))
    assert together == alone
    assert [one.key for one in together.replicas] == [("t", index) for index in range(8)]
    assert told[:8] == [("read files", done, 8) for done in range(1, 9)]
    assert len(together.transactions) == 4 and len(together.errors) == 1


def test_replicas_are_accepted_in_any_order(root: Path) -> None:
    def backwards(
        read: paths.ReadOne, files: Sequence[ReplicaFiles], sizes: Sequence[int]
    ) -> Iterator[tuple[int, Replica]]:
        assert [size > 0 for size in sizes] == [True] * len(files)
        return ((number, read(files[number])) for number in reversed(range(len(files))))

    assert read_paths([str(root)], late_after_ms=0, spread=backwards) == read_paths([str(root)], late_after_ms=0)


def _ended(*_: Any, **__: Any) -> Replica:
    os._exit(9)


def test_a_killed_process_is_reported_in_a_sentence(
    root: Path, monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    monkeypatch.setattr(paths, "_PARALLEL_FROM_BYTES", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(paths, "read_replica", _ended)
    with pytest.raises(ReadingEnded) as ended:
        read_paths([str(root)], late_after_ms=0)
    assert str(ended.value) == wording
    assert ended.value.exit_status is ExitStatus.FAILED
