"""The manual page and the completions of shells, which the wheel brings, are current and work."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.cases import Cases
from tests.manual import roff
from tests.process import ROOT, run_to_end
from tests.reference import SHARE, SHARED
from txnscan.cli.app import app

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
MANUAL = (SHARE / "man" / "man1" / "txnscan.1").read_text("utf-8")
# A shell that completes the last word of a command line, and the text that it is given.
SHELLS = {
    "bash": 'source "$1"; COMP_WORDS=($2); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _txnscan_completion txnscan; '
    'printf "%s\\n" "${COMPREPLY[@]}"',
    "fish": "source $argv[1]; complete --do-complete $argv[2]",
}


def test_the_files_are_current() -> None:
    """`python -m tests.reference` writes them."""
    assert {path.relative_to(SHARE).as_posix() for path in SHARE.rglob("*") if path.is_file()} == {*SHARED}
    with Cases() as cases:
        for name, made in SHARED.items():
            with cases.case(name):
                assert (SHARE / name).read_text("utf-8") == made()


def test_the_wheel_takes_them() -> None:
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"] == {"conf/share": "share"}


def test_the_manual_has_every_command_and_option() -> None:
    sections = dict(re.findall(r"^\.SS txnscan (\S+).*\n((?:(?!\.S[SH]).*\n)*)", MANUAL, re.M))
    commands: dict[str, Any] = {
        roff(name): command
        for name, command in get_command(app).commands.items()  # type: ignore[attr-defined]
        if not command.hidden
    }
    assert sections.keys() == commands.keys()
    with Cases() as cases:
        for name, command in commands.items():
            with cases.case(name):
                options = [one for parameter in command.params for one in parameter.opts if one.startswith("--")]
                assert [one for one in options if roff(one) not in sections[name]] == []


def test_no_text_of_the_manual_is_a_request_of_roff() -> None:
    requests = {"TH", "SH", "SS", "PP", "TP", "B", "BR", "nh", "ad", "nf", "fi"}
    assert {line[1:].split()[0] for line in MANUAL.splitlines() if line.startswith((".", "'"))} == requests
    cases = {"a-b": "a\\-b", ".x": "\\&.x", "a\n'b": "a\n\\&'b", "C:\\d": "C:\\ed", "`id`": "id"}
    assert {text: roff(text) for text in cases} == cases


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_commands_and_options(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    (name,) = (one for one in SHARED if shell in one)
    script = tmp_path / "script"
    script.write_text(SHELLS[shell], "utf-8")
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    cases = {"txnscan find-": {"find-hanging"}, "txnscan show --max": {"--max-age"}, "txnscan absent-": set()}
    with Cases() as checked:
        for line, expected in cases.items():
            with checked.case(line):
                ran = run_to_end([program, str(script), str(SHARE / name), line], environment=variables)
                assert ran.returncode in (0, 1), ran.stderr
                assert {one.split("\t")[0] for one in ran.stdout.split("\n") if one} == expected


def test_the_readme_has_every_extra_of_users() -> None:
    table = (ROOT / "README.md").read_text("utf-8").partition("| extra | adds |")[2].partition("\n\n")[0]
    extras = PROJECT["project"]["optional-dependencies"].keys() - {"dev"}
    named = {name for first in re.findall(r"^\| (.*?) \|", table, re.M) for name in re.findall(r"`([a-z0-9]+)`", first)}
    assert named == extras
