"""README, docs and CHANGELOG describe every feature, and only existing ones."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

import pytest
from click import Command
from packaging.requirements import Requirement
from typer.main import get_command
from typer.testing import CliRunner

from tests.brokers.principals import LISTED
from tests.cases import Cases
from tests.process import ROOT
from tests.reference import PAGES as PAGES_MADE
from txnscan.cli.app import app
from txnscan.tables.schema import TABLES
from txnscan.verdict.evidence import Reason, Verdict
from txnscan.verdict.rules import RULES

README = (ROOT / "README.md").read_text("utf-8")
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
DOCS = "\n".join(page.read_text("utf-8") for page in PAGES)
# Handwritten pages.
WRITTEN = "\n".join(page.read_text("utf-8") for page in PAGES if page.name != "commands.md")
SHOWN = [line.strip() for line in DOCS.splitlines() if re.match(r"    (txnscan|MASTER=\S+ \./spark-submit\.sh) ", line)]
# In a sentence or a table, which may also name a command with a single option.
SHOWN += re.findall(r"`(txnscan [a-z][a-z-]* --bootstrap-server [^`]+)`", DOCS)


@cache
def commands() -> dict[str, Command]:
    found: dict[str, Command] = get_command(app).commands  # type: ignore[attr-defined]
    return found


def help_of(command: str) -> str:
    return CliRunner().invoke(app, [command, "--help"], terminal_width=200).stdout


def test_every_command_is_in_the_docs_and_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    with Cases() as cases:
        for command in sorted(commands()):
            with cases.case(command):
                assert re.search(rf"`?(txnscan|make) {command}\b", DOCS)
                assert f"`txnscan {command}`" in changelog


def test_every_option_has_a_help_text() -> None:
    with Cases() as cases:
        for command in sorted(commands()):
            for parameter in commands()[command].params:
                with cases.case(f"{command} {parameter.name}"):
                    assert getattr(parameter, "help", None) or parameter.name == "help"


def test_every_option_in_the_docs_exists() -> None:
    helps = [help_of(command) for command in sorted(commands())]
    before = {"--help", *(name for parameter in get_command(app).params for name in parameter.opts)}
    with Cases() as cases:
        for option in sorted(set(re.findall(r"`(--[a-z-]+)", DOCS)) - before):
            with cases.case(option):
                assert any(option in text for text in helps)


@pytest.mark.parametrize("option", ["sweep", "find-hanging"])
def test_the_options_of_the_sweeps_are_explained(option: str) -> None:
    for parameter in commands()[option].params:
        assert any(name in WRITTEN for name in parameter.opts) or parameter.name in ("help", "master"), parameter.name


def test_every_command_line_in_the_docs_parses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Up to the connection: an unknown option or a wrong value would exit with 2."""
    (named,) = (block for block in re.findall(r"```toml\n(.*?)```", DOCS, re.S) if "tables =" in block)
    (tmp_path / "orders.properties").write_text("client.id=orders\n")
    (tmp_path / "config.toml").write_text(named)
    monkeypatch.setenv("TXNSCAN_CONFIG", str(tmp_path / "config.toml"))
    with Cases() as cases:
        for line in SHOWN:
            with cases.case(line):
                words = shlex.split(line)
                arguments = words[words.index("txnscan") + 1 :] if words[0] == "txnscan" else words[2:]
                commands()[arguments[0]].make_context(arguments[0], arguments[1:])


def test_the_docs_have_command_lines() -> None:
    assert len(SHOWN) >= 4


def test_the_makefile_has_every_target_of_the_docs() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    assert set(re.findall(r"(?:`|^    )make ([a-z-]+)", DOCS, re.M)) <= targets


def test_the_ci_runs_the_test_command_lint_and_types_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert "make lint types" in script
    (tiers,) = re.findall(r"^for tier in (.+); do$", script, re.M)
    assert tiers.split() == ["test-all", "test"] and 'make "$tier"' in script


def test_every_verdict_reason_and_table_is_documented() -> None:
    for name in (*Verdict, *Reason, *(table.name for table in TABLES)):
        assert f"`{name}`" in DOCS, name


def test_every_reason_of_an_indeterminate_verdict_has_a_row_with_an_action() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    _, _, section = page.partition("\n## The verdict is indeterminate\n")
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", section, re.M)
    reasons = {rule.reason for rule in RULES if rule.verdict is Verdict.INDETERMINATE}
    assert len(rows) == len(set(rows)) and set(rows) == reasons


@pytest.mark.parametrize("page", PAGES_MADE)
def test_the_pages_of_commands_and_tables_are_generated_from_the_code(page: str) -> None:
    """`python -m tests.reference` writes them."""
    assert (ROOT / "docs" / page).read_text("utf-8") == PAGES_MADE[page]()


def test_linked_files_and_headings_exist() -> None:
    with Cases() as cases:
        for page in PAGES:
            with cases.case(page.relative_to(ROOT)):
                text = page.read_text("utf-8")
                for target in re.findall(r"\]\(([^)]+)\)", text):
                    file, _, heading = target.partition("#")
                    assert "://" in target or not file or (page.parent / file).exists(), target
                    if heading and "://" not in target:
                        pointed = (page.parent / file) if file else page
                        headings = re.findall(r"^#+ (.*)$", pointed.read_text("utf-8"), re.M)
                        assert heading in {
                            re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in headings
                        }, target
                named = re.findall(r"`([a-z_]+(?:/[a-z_]*)*(?:\.py|/))`", text)
                roots = (ROOT, ROOT / "txnscan", page.parent, *(ROOT / "tests").iterdir())
                assert [name for name in named if not any((root / name).exists() for root in roots)] == []


def test_the_python_example_of_the_readme_uses_existing_names() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    compile(code, "README.md", "exec")
    import txnscan

    (names,) = re.findall(r"from txnscan import (.*)", code)
    assert all(hasattr(txnscan, name) for name in names.split(", "))


def test_the_version_is_printed() -> None:
    ran = subprocess.run([sys.executable, "-m", "txnscan", "--version"], capture_output=True, text=True, cwd=ROOT)
    assert re.fullmatch(r"txnscan \S+\n", ran.stdout) and ran.returncode == 0


def locked(name: str) -> dict[str, str]:
    lock = (ROOT / "conf" / name).read_text("utf-8")
    assert "://" not in lock
    pinned = dict(re.findall(r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==(\S+) \\$", lock, re.M))
    assert lock.count("--hash=sha256:") > len(pinned)
    return pinned


def test_locks_have_hashes_and_no_addresses_and_users_get_the_tested_versions() -> None:
    users, developers = locked("requirements.txt"), locked("requirements-dev.txt")
    assert len(users) > 40 and users.items() <= developers.items()
    assert {"pytest", "ruff", "mypy"} <= developers.keys() - users.keys()
    image, build = locked("requirements-image.txt"), locked("requirements-build.txt")
    assert {"deltalake", "prometheus-client"} <= image.keys() and image.items() <= users.items()
    assert "pyspark" not in image and "hatchling" in build and build.items() <= developers.items()


def test_the_lock_of_developers_names_every_extra() -> None:
    """Without the extra, pip looks for the newest version of that package, which has no hash in the lock."""
    lock = (ROOT / "conf" / "requirements-dev.txt").read_text("utf-8")
    needed = {
        (requirement.name.lower(), extra)
        for installed in distributions()
        for requirement in map(Requirement, installed.requires or ())
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        for extra in requirement.extras
    }
    assert needed
    for name, extra in needed:
        if name in locked("requirements-dev.txt"):
            assert re.search(rf"^{name}\[[a-z,]*\b{extra}\b[a-z,]*\]==", lock, re.M), f"{name}[{extra}]"


def acls_under(heading: str) -> set[tuple[str, str]]:
    """Operation and resource type of each ACL in the table below a heading of docs/acls.md."""
    (section,) = re.findall(
        rf"^## {heading}$(.*?)(?=^## |\Z)", (ROOT / "docs" / "acls.md").read_text("utf-8"), re.M | re.S
    )
    return set(re.findall(r"^\| (\w+) on (\w+)[^|]*\|", section, re.M))


def test_the_acls_of_the_reading_principal_are_the_tested_ones() -> None:
    assert acls_under("Grant the reading principal") == {(acl.operation, acl.resource) for acl in LISTED}


def test_only_the_applying_principal_gets_permissions_to_change_a_cluster() -> None:
    assert acls_under("Grant the applying principal") == {("Alter", "Cluster"), ("Write", "TransactionalId")}
    assert {operation for operation, _ in acls_under("Grant the reading principal")} == {
        *("Describe", "DescribeConfigs", "Read")
    }


def test_notebooks_are_json_files() -> None:
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        json.loads(path.read_text("utf-8"))
