"""The wheel installs without a checkout: with pip, pipx, uv and from Git, each in an empty environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.brokers.shared import SCENE_TOPICS, Shared
from tests.process import ROOT, run_to_end
from tests.reference import SHARED
from txnscan.errors import ExitStatus
from txnscan.version import __version__

# The image is built from these as well (.dockerignore).
SOURCES = ("conf", "txnscan", "pyproject.toml", "README.md", "LICENSE")


def out(*command: str | Path, directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a command without the variables of this environment that would let it find the checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return run_to_end([*map(str, command)], environment={**kept, **variables}, directory=directory)


def ended(*command: str | Path, directory: Path, **variables: str) -> str:
    """The stdout of a command that succeeds."""
    ran = out(*command, directory=directory, **variables)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def environment(directory: Path, *requirements: str) -> Path:
    """The programs of a new environment with these packages."""
    ended(sys.executable, "-m", "venv", directory, directory=directory.parent)
    ended(directory / "bin" / "pip", "install", "--quiet", "--no-compile", *requirements, directory=directory.parent)
    return directory / "bin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    ended("make", "wheel", f"PYTHON={sys.executable}", f"DIST={directory}", directory=ROOT)
    (built,) = directory.iterdir()
    return built


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """uv and pipx."""
    return environment(tmp_path_factory.mktemp("tools") / "venv", "uv", "pipx")


def sweep_of(shared: Shared) -> list[str]:
    topics = [word for topic in SCENE_TOPICS for word in ("--topic", topic)]
    return ["find-hanging", "--bootstrap-server", shared.bootstrap_servers, *topics, "--format", "json"]


def hanging(printed: str) -> set[tuple[str, int]]:
    found = json.loads(printed)["transactions"]
    return {(one["topic"], one["partition"]) for one in found if one["verdict"] == "hanging"}


def test_pip_installs_the_wheel_with_an_extra(wheel: Path, shared: Shared, tmp_path: Path) -> None:
    programs = environment(tmp_path / "venv", f"{wheel}[watch]")
    assert ended(programs / "txnscan", "--version", directory=tmp_path) == f"txnscan {__version__}\n"
    metrics = tmp_path / "x.prom"
    ran = out(
        programs / "txnscan", *sweep_of(shared), "--metrics-file", metrics, "--fail-on", "hanging", directory=tmp_path
    )
    assert ran.returncode == ExitStatus.HANGING, ran.stderr
    assert {"payments-solo", "clicks"} <= {topic for topic, _ in hanging(ran.stdout)}
    assert re.search(r"^txnscan_up\{.*\} 1", metrics.read_text("utf-8"), re.M)
    assert all((tmp_path / "venv" / "share" / name).is_file() for name in SHARED)


def test_uvx_runs_the_wheel(wheel: Path, tools: Path, shared: Shared, tmp_path: Path) -> None:
    variables = {"UV_CACHE_DIR": str(tmp_path / "cache"), "UV_PYTHON": sys.executable}
    uvx = (tools / "uvx", "--no-config", "--from", wheel, "txnscan")
    assert ended(*uvx, "--version", directory=tmp_path, **variables) == f"txnscan {__version__}\n"
    assert hanging(ended(*uvx, *sweep_of(shared), directory=tmp_path, **variables))


def test_pipx_runs_and_installs_the_wheel(wheel: Path, tools: Path, tmp_path: Path) -> None:
    variables = {f"PIPX_{name}": str(tmp_path / name) for name in ("HOME", "BIN_DIR", "MAN_DIR")}
    variables["PIPX_DEFAULT_PYTHON"] = sys.executable
    pipx = tools / "pipx"
    ran = ended(pipx, "run", "--spec", wheel, "txnscan", "--version", directory=tmp_path, **variables)
    assert ran == f"txnscan {__version__}\n"
    ended(pipx, "install", wheel, directory=tmp_path, **variables)
    assert ended(tmp_path / "BIN_DIR" / "txnscan", "--version", directory=tmp_path) == ran
    assert (tmp_path / "MAN_DIR" / "man1" / "txnscan.1").is_file()


def test_pip_installs_a_git_repository(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    for name in SOURCES:
        copied = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copied(ROOT / name, sources / name)
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
    for command in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "all")):
        ended(*git, *command, directory=sources)
    programs = environment(tmp_path / "venv", f"git+file://{sources}")
    assert ended(programs / "txnscan", "--version", directory=tmp_path) == f"txnscan {__version__}\n"
