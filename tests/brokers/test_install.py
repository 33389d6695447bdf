"""The wheel installs without a checkout: with pip, pipx, uv, from Git and as in the image, in empty environments."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
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


# --- the image, without a container engine: its steps, in folders instead of an image

# Of Linux: the request that takes a capability from a process for ever, and the number of capabilities.
PR_CAPBSET_DROP, CAPABILITIES = 24, 41


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """A folder with the folders of the image, made by the steps of the Dockerfile."""
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        build, final = stages()
        # The folders that the steps name stand in this folder instead.
        inside = re.compile(r"(?<![\w./])/(?=opt/|wheels|source)")
        directory = root
        for step, rest in build:
            words = inside.sub(f"{root}/", rest).split()
            match step:
                case "WORKDIR":
                    directory = Path(words[0])
                    directory.mkdir()
                case "COPY":
                    for name in words[:-1]:
                        copy(ROOT / name, directory / words[-1] / ("" if words[-1] == name else name))
                case "RUN":
                    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
                    command = inside.sub(f"{root}/", rest)
                    ended("sh", "-c", command, directory=directory, PATH=path, HOME=str(root))
        assert ("COPY", "--from=build /opt/txnscan /opt/txnscan") in final
        shutil.rmtree(root / "source")
        yield root


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def stages() -> list[list[tuple[str, str]]]:
    """The steps of each stage of the Dockerfile, without its comments."""
    text = (ROOT / "docs" / "deployment" / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    steps = [tuple(line.split(None, 1)) for line in text.splitlines() if line and not line.startswith("#")]
    starts = [number for number, step in enumerate(steps) if step[0] == "FROM"]
    return [
        [(step, rest) for step, rest in steps[start + 1 : end]]
        for start, end in zip(starts, [*starts[1:], None], strict=True)
    ]


def in_image(image: Path, *arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs the entry point with the variables of the image. If the tests run as root, then without root's rights."""
    _, final = stages()
    settings = dict(re.findall(r"(\w+)=(\S+)", next(rest for step, rest in final if step == "ENV")))
    home = image / "tmp"
    home.mkdir(exist_ok=True)
    variables = {
        "PATH": settings["PATH"].replace("/opt/", f"{image}/opt/").replace("$PATH", "/usr/local/bin:/usr/bin:/bin"),
        "HOME": str(home) if settings["HOME"] == "/tmp" else settings["HOME"],
        "PYTHONUNBUFFERED": settings["PYTHONUNBUFFERED"],
    }
    (entry,) = json.loads(next(rest for step, rest in final if step == "ENTRYPOINT"))
    program = shutil.which(entry, path=variables["PATH"])
    assert program is not None

    return run_to_end([program, *arguments], environment=variables, directory=directory, limit=without_capabilities)


def without_capabilities() -> None:
    """Lets the permissions of files apply to root too."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None)
        for capability in range(CAPABILITIES):
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def test_the_image_has_the_packages_of_its_lock_and_the_files_of_the_wheel(image: Path, wheel: Path) -> None:
    programs = image / "opt" / "txnscan" / "bin"
    listed = json.loads(ended(programs / "pip", "list", "--format", "json", directory=image))
    lock = (ROOT / "conf" / "requirements-image.txt").read_text("utf-8")
    locked = dict(re.findall(r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==(\S+) \\$", lock, re.M))
    normal = {re.sub("[-_.]+", "-", one["name"]).lower(): one["version"] for one in listed}
    # Every environment starts with pip, and with setuptools on Python 3.11.
    assert {**normal, "pip": "", "setuptools": ""} == {**locked, "txnscan": __version__, "pip": "", "setuptools": ""}
    (built,) = (image / "wheels").iterdir()
    assert built.name == wheel.name
    assert zipfile.ZipFile(built).namelist() == zipfile.ZipFile(wheel).namelist()


def test_the_image_runs_without_rights_and_writes_only_tables_and_tmp(image: Path, shared: Shared) -> None:
    directory = image / "read-only"
    directory.mkdir()
    directory.chmod(0o555)
    (image / "data").mkdir()
    refused = run_to_end(["touch", str(directory / "x")], limit=without_capabilities)
    assert refused.returncode != 0

    def files() -> dict[Path, int]:
        kept = (path for name in ("opt", "read-only", "wheels") for path in (image / name).rglob("*"))
        return {path: path.lstat().st_mtime_ns for path in kept}

    before = files()
    ran = in_image(image, "--version", directory=directory)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"txnscan {__version__}\n", "")
    ran = in_image(image, "find-hanging", "--help", directory=directory)
    assert ran.returncode == 0 and ran.stdout.startswith("Usage: txnscan find-hanging")
    tables = str(image / "data" / "txnscan")
    words = [word for topic in SCENE_TOPICS for word in ("--topic", topic)]
    at = ("--bootstrap-server", shared.bootstrap_servers, *words, "--engine", "threads", "--tables", tables)
    ran = in_image(image, "sweep", *at, "--fail-on", "hanging", "--format", "json", directory=directory)
    assert ran.returncode == ExitStatus.HANGING, ran.stderr
    assert {"payments-solo", "clicks"} <= {topic for topic, _ in hanging(ran.stdout)}
    ran = in_image(image, "maintain", "--tables", tables, "--keep", "90d", directory=directory)
    assert ran.returncode == 0, ran.stderr
    assert before and files() == before
