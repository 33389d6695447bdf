"""`check` and `sweep` with the same options, compared: for the matrix of engines, stores, machines and scopes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.process import run_here
from txnscan.errors import ExitStatus
from txnscan.tables.open import open_tables


@dataclass(frozen=True, slots=True)
class MachineOf:
    """A machine that lacks something. without: modules. variables: of the environment."""

    without: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def apply(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Makes this process such a machine."""
        for module in self.without:
            monkeypatch.setitem(__import__("sys").modules, module, None)
        for name, value in self.variables.items():
            monkeypatch.setenv(name, value)


NO_JAVA = {"JAVA_HOME": "/nonexistent"}
MACHINES = {
    "everything": MachineOf(),
    "no Java": MachineOf(variables=NO_JAVA),
    "neither Spark nor Java": MachineOf(("pyspark",), NO_JAVA),
    "no delta-rs": MachineOf(("deltalake",)),
    "threads alone": MachineOf(("pyspark", "deltalake"), NO_JAVA),
}


def _none(folder: Path) -> None:
    """A place without tables."""


def _tables(folder: Path) -> None:
    open_tables(str(folder), None).create()


def _other_version(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as another:
        another.setattr("txnscan.tables.delta.SCHEMA_VERSION", 1)
        _tables(folder)


def _damaged(folder: Path) -> None:
    _tables(folder)
    for file in (folder / "incidents" / "_delta_log").iterdir():
        file.write_text("no JSON")


def _without_log(folder: Path) -> None:
    _tables(folder)
    shutil.rmtree(folder / "sweeps" / "_delta_log")


def _begun(folder: Path) -> None:
    _tables(folder)
    shutil.rmtree(folder / "sweeps")


def _a_file(folder: Path) -> None:
    folder.write_text("")


# By name, what is at the location of the tables.
STORES: Mapping[str, Callable[[Path], None]] = {
    "nothing yet": _none,
    "tables": _tables,
    "tables of another version": _other_version,
    "damaged tables": _damaged,
    "a table without its log": _without_log,
    "a creation that was interrupted": _begun,
    "a file": _a_file,
}
GOOD = (ExitStatus.DONE,)


def disagreement(address: str, options: Sequence[str]) -> str | None:
    """How `check` and `sweep` differ with the same options. None if both work, or both refuse for what was asked."""
    checked = run_here("check", "--bootstrap-server", address, *options)
    swept = run_here("sweep", "--bootstrap-server", address, *options, "--fail-on", "incomplete")
    if (checked.returncode in GOOD) == (swept.returncode in GOOD):
        return None
    return f"check {checked.returncode}, sweep {swept.returncode}\n{checked.stdout}{checked.stderr}{swept.stderr}"
