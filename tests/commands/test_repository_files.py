"""The files of GitHub, pre-commit and editors are valid, and name existing targets."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.cases import Cases
from tests.process import ROOT

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PRE_COMMIT = ROOT / ".pre-commit-config.yaml"
FORM = GITHUB / "ISSUE_TEMPLATE" / "bug_report.yml"
YAML_FILES = [*sorted(GITHUB.rglob("*.yml")), PRE_COMMIT]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def parsed(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return found


def jobs() -> dict[str, dict[str, Any]]:
    return {name: job for path in WORKFLOWS for name, job in parsed(path)["jobs"].items()}


def commands() -> list[str]:
    return [step["run"] for job in jobs().values() for step in job["steps"] if "run" in step]


def targets_named() -> Iterator[str]:
    """The targets of make in workflows, hooks, and texts for contributors."""
    lines = [line.strip() for command in commands() for line in command.splitlines()]
    lines += [hook["entry"] for repo in parsed(PRE_COMMIT)["repos"] for hook in repo["hooks"]]
    texts = (PRE_COMMIT, GITHUB / "pull_request_template.md", GITHUB / "dependabot.yml", WORKFLOWS[0])
    lines += [code for path in texts for code in re.findall(r"`(make [^`]+)`", path.read_text("utf-8"))]
    for line in lines:
        if line.startswith("make "):
            yield from (word for word in line.split()[1:] if "=" not in word)


def test_a_yaml_file_parses() -> None:
    with Cases() as cases:
        for path in YAML_FILES:
            with cases.case(path.relative_to(ROOT)):
                assert isinstance(parsed(path), dict)


def test_every_named_make_target_exists() -> None:
    (declared,) = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    named = {*targets_named()}
    assert named <= {*declared.split()}
    assert {"lint", "types", "test", "test-all", "wheel", "check", "prove"} <= named


def test_every_action_is_pinned_by_its_commit() -> None:
    text = "\n".join(path.read_text("utf-8") for path in WORKFLOWS)
    used = re.findall(r"uses: (.*)", text)
    assert used and [one for one in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", one)] == []
    assert text.count("persist-credentials: false") == text.count("uses: actions/checkout@")


def test_fast_tests_run_on_all_pythons_and_slow_tests_on_the_oldest() -> None:
    (oldest,) = re.findall(r"^>=([\d.]+)$", PROJECT["requires-python"])
    versions = jobs()["tests"]["strategy"]["matrix"]["python-version"]
    assert versions == [oldest, "3.12", "3.13", "3.14"]
    for name in ("lint", "slow-tests", "wheel"):
        (python,) = [one["with"]["python-version"] for one in jobs()[name]["steps"] if "setup-python" in str(one)]
        assert python == oldest


def test_workflows_have_read_permissions_only() -> None:
    for path in WORKFLOWS:
        assert parsed(path)["permissions"] == {"contents": "read"}


def test_the_bug_report_asks_for_the_debug_log() -> None:
    fields = {one["id"]: one for one in parsed(FORM)["body"] if one["type"] != "markdown"}
    assert "--log-level debug" in fields["log"]["attributes"]["description"]
    assert fields["log"]["type"] == "textarea" and "validations" not in fields["log"]
    required = {name for name, one in fields.items() if one.get("validations", {}).get("required")}
    assert required == {"kind", "version", "kafka", "command", "expected"}


def test_hooks_run_the_tools_of_the_environment() -> None:
    (local,) = parsed(PRE_COMMIT)["repos"]
    assert local["repo"] == "local" and [hook["id"] for hook in local["hooks"]] == ["ruff-check", "ruff-format", "mypy"]
    for hook in local["hooks"]:
        assert hook["language"] == "system" and hook["entry"].startswith(".venv/bin/")


def test_a_text_file_follows_editorconfig() -> None:
    """Except Python files, which ruff formats."""
    with Cases() as cases:
        for path in (*YAML_FILES, *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "Makefile"):
            with cases.case(path.relative_to(ROOT)):
                data = path.read_bytes()
                assert data.endswith(b"\n") and b"\r" not in data
                assert not re.search(rb"[ \t]$", data, re.M)


def test_every_file_has_the_same_version() -> None:
    """CONTRIBUTING.md lists them under "Release"."""
    version = re.escape(PROJECT["version"])
    deployment = ROOT / "docs" / "deployment"
    patterns = {
        ROOT / "CHANGELOG.md": rf"\A.*?^## {version} ",
        ROOT / "README.md": rf"^    pip install \./txnscan-{version}-py3-none-any\.whl$",
        ROOT
        / "docs"
        / "monitoring"
        / "README.md": rf"^    pip install '\./txnscan-{version}-py3-none-any\.whl\[watch\]'$",
        deployment / "README.md": rf"/txnscan:{version} ",
        deployment / "kubernetes" / "kustomization.yaml": rf"newTag: {version}$",
        deployment / "helm" / "Chart.yaml": rf'^version: {version}$.*^appVersion: "{version}"$',
        deployment / "databricks" / "databricks.yml": rf"txnscan-{version}-py3-none-any\.whl$",
    }
    release = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Release")[2]
    with Cases() as cases:
        for path, pattern in patterns.items():
            with cases.case(path.relative_to(ROOT)):
                assert re.search(pattern, path.read_text("utf-8"), re.M | re.S)
                assert f"`{path.relative_to(ROOT)}`" in release
