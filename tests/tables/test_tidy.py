"""A sweep keeps its own tables small, also where nobody runs `maintain`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from tests.cases import Cases
from tests.tables.stored import ORPHAN, next_sweep
from txnscan.tables import delta_rs
from txnscan.tables.delta_log import Examination
from txnscan.tables.replay import COMMIT_BYTES, REPLAY_BYTES_MAX, Room
from txnscan.tables.schema import OPEN_TRANSACTIONS, SWEEPS

if TYPE_CHECKING:
    from tests.conftest import Opens
    from txnscan.tables.schema import Table

FEW = 4


def files(location: str, table: Table) -> int:
    return len(DeltaTable(str(Path(location) / table.name)).file_uris())


def test_a_table_of_many_small_files_is_compacted_by_a_sweep(
    opens: Opens, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_rs, "SMALL_FILES_MAX", FEW)
    tables = opens(location)
    tables.create()
    counts = []
    for number in range(2 * FEW + 2):
        tables.write(next_sweep(number, ORPHAN))
        counts.append((files(location, SWEEPS), files(location, OPEN_TRANSACTIONS)))
    assert [one for one, _ in counts] == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
    assert {two for _, two in counts} == {1, 2, 3, 4}
    assert len(opens(location).rows(SWEEPS)) == len(opens(location).rows(OPEN_TRANSACTIONS)) == 2 * FEW + 2


def test_a_panic_of_a_merge_fails_no_sweep(opens: Opens, location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def panics(*_: object) -> None:
        raise type("PanicException", (BaseException,), {})

    monkeypatch.setattr(delta_rs, "SMALL_FILES_MAX", 1)
    monkeypatch.setattr(delta_rs, "_merged", panics)
    tables = opens(location)
    tables.create()
    for number in range(3):
        tables.write(next_sweep(number))
    assert (files(location, SWEEPS), len(opens(location).rows(SWEEPS))) == (3, 3)


def test_small_files_of_many_bytes_are_merged_and_large_files_are_left_alone(
    opens: Opens, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = opens(location)
    tables.create()
    tables.write(next_sweep(0))
    (first,) = DeltaTable(str(Path(location) / SWEEPS.name)).file_uris()
    size = Path(first).stat().st_size
    monkeypatch.setattr(delta_rs, "_SMALL_BYTES_MAX", 3 * size + size // 2)
    counts = []
    for number in range(1, 5):
        tables.write(next_sweep(number))
        counts.append(files(location, SWEEPS))
    assert counts == [2, 3, 1, 2]
    # The merged file is above this size, so only the other files are merged.
    monkeypatch.setattr(delta_rs, "_MERGED_BYTES", 2 * size + size // 2)
    merged = max(DeltaTable(str(Path(location) / SWEEPS.name)).file_uris(), key=lambda one: Path(one).stat().st_size)
    monkeypatch.setattr(delta_rs, "_SMALL_BYTES", Path(merged).stat().st_size)
    for number in range(5, 8):
        tables.write(next_sweep(number))
    assert merged in DeltaTable(str(Path(location) / SWEEPS.name)).file_uris()
    assert len(opens(location).rows(SWEEPS)) == 8


def test_a_process_that_goes_on_counts_no_commit_before_the_checkpoint(location: str, opens: Opens) -> None:
    tables = opens(location)
    tables.create()
    room = Room(REPLAY_BYTES_MAX)
    examination = Examination(SWEEPS, Path(location) / SWEEPS.name, room)
    for number in range(20):
        tables.write(next_sweep(number))
    examination.check()
    before = room.taken_bytes
    DeltaTable(str(Path(location) / SWEEPS.name)).create_checkpoint()
    examination.check()
    after, new = room.taken_bytes, Room(REPLAY_BYTES_MAX)
    Examination(SWEEPS, Path(location) / SWEEPS.name, new).check()
    assert before > 20 * COMMIT_BYTES > 5 * after
    assert new.taken_bytes == pytest.approx(after, rel=0.05)


def test_a_sweep_is_stored_though_its_table_cannot_be_compacted_or_is_large(
    opens: Opens, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object) -> None:
        # delta-rs raises many kinds, and after the rows are stored.
        raise ValueError("no room")

    monkeypatch.setattr(delta_rs, "SMALL_FILES_MAX", FEW)
    tables = opens(location)
    tables.create()
    with Cases() as cases:
        for first, (what, change) in enumerate(
            {"it fails": (delta_rs, "_merged", fails), "it is large": (delta_rs, "_TIDY_BYTES_MAX", 0)}.items()
        ):
            with cases.case(what), monkeypatch.context() as patch:
                patch.setattr(*change)
                for number in range(FEW + 1):
                    tables.write(next_sweep(first * (FEW + 1) + number))
                assert files(location, SWEEPS) == (first + 1) * (FEW + 1)
    tables.write(next_sweep(99))
    assert files(location, SWEEPS) == 1
    assert len(opens(location).rows(SWEEPS)) == 2 * (FEW + 1) + 1
