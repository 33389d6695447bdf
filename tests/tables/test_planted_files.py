"""Another writer of the tables' folder plants links: nothing elsewhere is read, copied, changed or deleted."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cases import Cases
from tests.conftest import Opens
from tests.tables.planted import nothing_elsewhere_is_changed
from txnscan.config import ConfigError, Location
from txnscan.resolve.apply import ApplyRunning
from txnscan.resolve.lock import Lock, parse_process
from txnscan.sweeps.preflight import Level
from txnscan.tables.preflight import check_tables
from txnscan.tables.schema import SWEEPS

LOCK = "apply_locks/_cluster-1.lock"


def test_nothing_elsewhere_is_changed(opens: Opens, template: Path, tmp_path: Path) -> None:
    nothing_elsewhere_is_changed(opens, template, tmp_path)


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


def test_a_lock_that_somebody_else_has_is_reported_in_few_words(opens: Opens, template: Path, tmp_path: Path) -> None:
    location = tmp_path / "tables"
    shutil.copytree(template, location)
    tables = opens(str(location))
    with Cases() as cases, (location / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for name, text, size in (
            ("a control sequence", "\x1b[31m", 0),
            ("a long text", "x" * 100_000, 0),
            ("gigabytes", "", 4 << 30),
        ):
            with cases.case(name):
                file.seek(0)
                file.truncate(0)
                file.write(text)
                file.flush()
                file.truncate(max(size, len(text)))
                began = time.monotonic()
                with pytest.raises(ApplyRunning) as error, Lock(tables, "cluster-1"):
                    pass
                assert time.monotonic() - began < 2
                assert len(str(error.value)) < 2_000 and str(error.value).isprintable()


def test_a_holder_with_an_endless_process_id_is_no_process() -> None:
    assert parse_process(f"host process {'9' * 5_000}") is None


def test_check_notes_a_folder_that_others_can_write(template: Path, tmp_path: Path, opens: Opens) -> None:
    location = tmp_path / "tables"
    shutil.copytree(template, location)
    with Cases() as cases:
        for folder in (location, location / SWEEPS.name, location / SWEEPS.name / "_delta_log"):
            for mode, noted in ((0o755, False), (0o700, False), (0o775, True), (0o757, True), (0o777, True)):
                with cases.case(f"{folder.name} {mode:o}"):
                    folder.chmod(mode)
                    found = list(check_tables(Location.of(str(location)), lambda: opens(str(location))))
                    notes = [one for one in found if one.level is Level.NOTE and "chmod" in one.said]
                    assert len(notes) == noted
            folder.chmod(0o755)
