"""What README and CHANGELOG say is there is there, and what is there is said."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from txnscan.cli import app
from txnscan.model import Reason, Verdict
from txnscan.store.schema import TABLES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]
SHOWN = [
    line.strip() for line in README.splitlines() if re.match(r"    (txnscan|MASTER=\S+ \./spark-submit\.sh) ", line)
]


def help_of(command: str) -> str:
    return CliRunner().invoke(app, [command, "--help"], terminal_width=200).stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_readme_and_the_changelog(command: str) -> None:
    assert re.search(rf"`?(txnscan|make) {command}\b", README)
    assert f"`txnscan {command}`" in (ROOT / "CHANGELOG.md").read_text("utf-8")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_help_text(command: str) -> None:
    for parameter in get_command(app).commands[command].params:  # type: ignore[attr-defined]
        assert parameter.help or parameter.name == "help", parameter.name


@pytest.mark.parametrize("option", sorted(set(re.findall(r"`(--[a-z-]+)", README)) - {"--help"}))
def test_every_option_that_the_readme_names_exists(option: str) -> None:
    assert any(option in help_of(command) for command in COMMANDS)


@pytest.mark.parametrize("option", ["sweep", "find-hanging"])
def test_the_options_of_the_sweeps_are_in_the_readme(option: str) -> None:
    for parameter in get_command(app).commands[option].params:  # type: ignore[attr-defined]
        assert any(name in README for name in parameter.opts) or parameter.name in ("help", "master"), parameter.name


@pytest.mark.parametrize("line", SHOWN)
def test_every_command_line_that_the_readme_shows_is_understood(line: str) -> None:
    """Up to the point of connecting: an option that does not exist, or a wrong value, would exit with 2."""
    words = line.split()
    arguments = words[words.index("txnscan") + 1 :] if words[0] == "txnscan" else words[2:]
    command = get_command(app).commands[arguments[0]]  # type: ignore[attr-defined]
    command.make_context(arguments[0], arguments[1:])


def test_there_are_command_lines_in_the_readme_to_test() -> None:
    assert len(SHOWN) >= 4


def test_the_makefile_has_what_the_readme_tells_to_make() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    assert set(re.findall(r"(?:`|^    )make ([a-z]+)", README, re.M)) <= targets


def test_the_ci_runs_the_readmes_test_command_lint_and_types() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert "make lint types" in script and "make test" in script


def test_every_verdict_reason_and_table_is_in_the_readme() -> None:
    for name in (*Verdict, *Reason, *(table.name for table in TABLES)):
        assert f"`{name}`" in README, name


def test_files_that_the_readme_points_to_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert "://" in target or (ROOT / target).exists(), target
    named = re.findall(r"`([a-z_]+(?:/[a-z_]*)*(?:\.py|/))`", README)
    assert all((ROOT / "txnscan" / name).exists() or (ROOT / name).exists() for name in named), named


def test_the_python_of_the_readme_names_what_the_package_has() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    compile(code, "README.md", "exec")
    import txnscan

    (names,) = re.findall(r"from txnscan import (.*)", code)
    assert all(hasattr(txnscan, name) for name in names.split(", "))


def test_the_version_is_printed() -> None:
    ran = subprocess.run([sys.executable, "-m", "txnscan", "--version"], capture_output=True, text=True, cwd=ROOT)
    assert re.fullmatch(r"txnscan \S+\n", ran.stdout) and ran.returncode == 0


def test_the_lock_names_no_address_and_pins_every_package_with_a_hash() -> None:
    lock = (ROOT / "conf" / "requirements.txt").read_text("utf-8")
    assert "://" not in lock
    pinned = re.findall(r"^[a-z0-9-]+(?:\[[a-z,]+\])?==\S+ \\$", lock, re.M)
    assert len(pinned) > 50 and lock.count("--hash=sha256:") > len(pinned)


def test_notebooks_are_json_that_git_can_show() -> None:
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        json.loads(path.read_text("utf-8"))
