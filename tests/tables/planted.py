"""Files that somebody else put into the folder of a table."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders import NOW_MS
from tests.cases import Cases
from tests.conftest import Opens
from txnscan.config import ConfigError
from txnscan.resolve.lock import Lock
from txnscan.tables.maintain import kept, maintain


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


def nothing_elsewhere_is_changed(opens: Opens, template: Path, tmp_path: Path) -> None:
    """Every use of the tables refuses what another writer planted."""
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
