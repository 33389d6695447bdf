"""The parts of a long run: each runs once at a commit, and is chosen by name or by what changed."""

from __future__ import annotations

from pathlib import Path

from tests.prove.__main__ import PARTS, inputs
from tests.prove.histories import PARTS as OF_HISTORIES
from tests.prove.mutants import TARGETS, chosen_by
from tests.prove.parts import Parts, changed_since, commit, git, imported_by

_SETTINGS = (
    "-c",
    "user.name=x",
    "-c",
    "user.email=x@x",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "commit.gpgsign=false",
)


def committed(root: Path, file: str, text: str) -> str:
    """The commit after a file was written."""
    (root / file).write_text(text)
    git("add", file, root=root)
    git(*_SETTINGS, "commit", "-q", "-m", text, root=root)
    return commit(root)


def test_a_result_holds_while_its_inputs_are_the_same(tmp_path: Path) -> None:
    project, kept = tmp_path / "project", tmp_path / "kept"
    project.mkdir()
    git("init", "-q", root=project)

    def at(commit: str, program: str = "prove") -> Parts:
        return Parts(program, commit, kept, project)

    first = committed(project, "rules", "1")
    assert at(first).result("a", {"rules"}) is None
    at(first).keep("a", ["x"])
    at(first).keep("b", "y")
    assert [at(first).result(part, {"rules"}) for part in "abc"] == [["x"], "y", None]
    second = committed(project, "document", "2")
    assert [at(second).result(part, {"rules"}) for part in "abc"] == [["x"], "y", None]
    assert at(second).result("a", {"rules", "document"}) is None
    third = committed(project, "rules", "3")
    assert at(third).result("a", {"rules"}) is None
    at(third).keep("b", "z")
    assert [at(third).result(part, {"rules"}) for part in "ab"] == [None, "z"]
    assert at(third, "mutants").result("b", {"rules"}) is None
    at("0" * 40).keep("c", "of a commit that is gone")
    assert at(third).result("c", {"rules"}) is None


def test_nothing_is_kept_with_changes(tmp_path: Path) -> None:
    changed = Parts("prove", "c1-changed", tmp_path)
    changed.keep("a", "x")
    assert list(tmp_path.iterdir()) == []
    Parts("prove", "c1", tmp_path).keep("a", "x")
    assert changed.result("a", {"rules"}) is None


def test_files_depend_on_what_they_import(tmp_path: Path) -> None:
    files = {
        "tests/one.py": "from tests.two import a\nfrom package import parts",
        "tests/two.py": "import json\nimport tests.three\n\ndef late() -> None:\n    from package.parts import b",
        "tests/three.py": "",
        "tests/four.py": "from package import everything",
        "package/__init__.py": "from package.other import everything",
        "package/other.py": "",
        "package/parts/__init__.py": "",
        "package/parts/b.py": "import os",
    }
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    found = imported_by(["tests/one.py"], tmp_path)
    assert found == {*list(files)[:3], "package/parts/__init__.py", "package/parts/b.py"}
    assert imported_by(["tests/four.py"], tmp_path) == {"tests/four.py", "package/__init__.py", "package/other.py"}
    assert {"tests/builders.py", "txnscan/verdict/rules.py"} <= imported_by(["tests/unit/test_rules.py"])


def test_the_parts_of_the_proof_depend_on_the_sweep_and_not_on_what_shows_it() -> None:
    for part in PARTS:
        assert "tests/golden" in inputs(part)
        # The simulator is compared with brokers without a sweep.
        assert ("txnscan/sweeps/pipeline.py" in inputs(part)) is (part != "conformance"), part
    assert not {file for file in inputs("histories-random") if file.startswith(("txnscan/cli/", "txnscan/watch/"))}


def test_the_commit_shows_changes_and_the_files_that_differ(tmp_path: Path) -> None:
    git("init", "-q", root=tmp_path)
    (tmp_path / "a").write_text("1")
    git("add", "a", root=tmp_path)
    git(*_SETTINGS, "commit", "-q", "-m", "one", root=tmp_path)
    first = git("rev-parse", "HEAD", root=tmp_path)
    assert commit(tmp_path) == first
    (tmp_path / "a").write_text("2")
    assert commit(tmp_path) == f"{first}-changed"
    assert changed_since("HEAD", tmp_path) == {"a"}
    git(*_SETTINGS, "commit", "-q", "-a", "-m", "two", root=tmp_path)
    assert commit(tmp_path) not in (first, f"{first}-changed")
    assert changed_since(first, tmp_path) == {"a"}
    assert not changed_since("HEAD", tmp_path)


def test_mutants_are_chosen_by_name_or_by_change() -> None:
    def files(arguments: list[str], *changed: str) -> list[str]:
        return [target.file for target in chosen_by(arguments, lambda ref: changed if ref == "main" else ())]

    assert files([]) == [target.file for target in TARGETS]
    assert files(["verdict/rules.py"]) == ["verdict/rules.py"]
    assert files(["--changed", "main"], "txnscan/txnlog/lineage.py", "README.md") == ["txnlog/lineage.py"]
    assert files(["--changed", "main"], "tests/unit/test_event.py") == ["waiting/event.py"]
    assert files(["--changed", "main"]) == []


def test_the_parts_of_a_proof_are_those_of_its_programs() -> None:
    histories = [arguments[-1] for part, arguments in PARTS.items() if part.startswith("histories-")]
    assert tuple(histories) == OF_HISTORIES
