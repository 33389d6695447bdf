"""Another writer of the tables' folder plants links: nothing elsewhere is read, copied, changed or deleted."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders import NOW_MS
from tests.cases import Cases
from tests.conftest import Opens
from txnscan.config import ConfigError
from txnscan.resolve.lock import Lock
from txnscan.sweeps.preflight import Level
from txnscan.tables.maintain import kept, maintain
from txnscan.tables.preflight import check_tables
from txnscan.tables.schema import SWEEPS

LOCK = "apply_locks/_cluster-1.lock"


def link(to: str) -> Callable[[Path, Path], None]:
    """Plants a link to the folder of somebody else, at this name."""

    def plant(tables: Path, elsewhere: Path) -> None:
        path = tables / to
        if path.is_dir():
            shutil.rmtree(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(elsewhere)

    return plant


def action(**action: Any) -> Callable[[Path, Path], None]:
    """Adds a commit with this action. `{}` in its path stands for a Parquet file of somebody else."""

    def plant(tables: Path, elsewhere: Path) -> None:
        log = tables / "sweeps" / "_delta_log"
        text = json.dumps(action).replace("{}", str(elsewhere / "theirs.parquet"))
        (log / f"{len(list(log.glob('*.json'))):020}.json").write_text(text)

    return plant


STATS = {"partitionValues": {"cluster_id": "c"}, "size": 1, "modificationTime": 0, "dataChange": True}
PLANTED = {
    "a folder of data": link("sweeps/cluster_id=x"),
    "a folder beside the data": link("candidates/old"),
    "a table": link("facts"),
    "a log": link("scan_errors/_delta_log"),
    "a file, absolute": action(add={"path": "{}", **STATS}),
    "a file, with a scheme": action(add={"path": "file://{}", **STATS}),
    "a file, encoded": action(add={"path": "%2E%2E/%2E%2E/elsewhere/theirs.parquet", **STATS}),
    "a file to remove": action(remove={"path": "{}", "deletionTimestamp": 0, "dataChange": True}),
}


def test_nothing_elsewhere_is_changed(opens: Opens, template: Path, tmp_path: Path) -> None:
    with Cases() as cases:
        for name, plant in PLANTED.items():
            place = tmp_path / name.replace(" ", "-")
            location, elsewhere = place / "tables", place / "elsewhere"
            shutil.copytree(template, location)
            elsewhere.mkdir()
            theirs = elsewhere / "theirs.parquet"
            (source,) = (template / "sweeps").rglob("part-*.parquet")
            shutil.copy(source, theirs)
            os.utime(theirs, (0, 0))
            tables = opens(str(location))
            plant(location, elsewhere)

            def tidy(tables: Any = tables) -> object:
                return maintain(tables, kept(tables, 0, NOW_MS), vacuum_after_hours=1)

            def lock(tables: Any = tables) -> None:
                with Lock(tables, "cluster-1"):
                    pass

            uses: dict[str, Callable[[], object]] = {
                "maintain": tidy,
                "sweep": tables.create,
                "read": tables.last_sweeps,
                "lock": lock,
            }
            for use, call in uses.items():
                with cases.case(f"{name}: {use}"):
                    with pytest.raises(ConfigError):
                        call()
                    assert [one.name for one in elsewhere.iterdir()] == ["theirs.parquet"]
                    assert theirs.read_bytes() == source.read_bytes()


def test_the_lock_of_apply_is_a_file_of_its_own(opens: Opens, template: Path, tmp_path: Path) -> None:
    location, victim = tmp_path / "tables", tmp_path / "victim"
    shutil.copytree(template, location)
    planted: dict[str, Callable[[Path], None]] = {
        "a link": lambda path: path.symlink_to(victim),
        "a link to nothing": lambda path: path.symlink_to(tmp_path / "new"),
        "a second name": lambda path: path.hardlink_to(victim),
        "a pipe": lambda path: os.mkfifo(path),
        "a folder": lambda path: path.mkdir(),
        "a device": lambda path: path.symlink_to("/dev/full"),
    }
    tables = opens(str(location))
    with Cases() as cases:
        for name, plant in planted.items():
            with cases.case(name):
                victim.write_text("theirs")
                plant(location / LOCK)
                began = time.monotonic()
                with pytest.raises(ConfigError), Lock(tables, "cluster-1"):
                    pass
                assert time.monotonic() - began < 5
                assert victim.read_text() == "theirs" and not (tmp_path / "new").exists()
            path = location / LOCK
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        with cases.case("none"), Lock(tables, "cluster-1"):
            assert str(os.getpid()) in (location / LOCK).read_text()


def test_check_notes_a_folder_that_others_can_write(template: Path, tmp_path: Path, opens: Opens) -> None:
    location = tmp_path / "tables"
    shutil.copytree(template, location)
    with Cases() as cases:
        for folder in (location, location / SWEEPS.name):
            for mode, noted in ((0o755, False), (0o700, False), (0o775, True), (0o757, True), (0o777, True)):
                with cases.case(f"{folder.name} {mode:o}"):
                    folder.chmod(mode)
                    found = list(check_tables(str(location), lambda: opens(str(location))))
                    notes = [one for one in found if one.level is Level.NOTE and "chmod" in one.said]
                    assert len(notes) == noted
            folder.chmod(0o755)
