"""The parts of a long run: each runs once at a commit, and is chosen by name or by what changed."""

from __future__ import annotations

from pathlib import Path

from tests.prove.__main__ import PARTS
from tests.prove.histories import PARTS as OF_HISTORIES
from tests.prove.mutants import TARGETS, chosen_by
from tests.prove.parts import Parts, changed_since, commit, git


def test_a_result_is_kept_for_its_commit_only(tmp_path: Path) -> None:
    one = Parts("prove", "c1", tmp_path)
    assert one.result("a") is None
    one.keep("a", ["x"])
    one.keep("b", "y")
    again = Parts("prove", "c1", tmp_path)
    assert (again.result("a"), again.result("b"), again.result("c")) == (["x"], "y", None)
    other = Parts("prove", "c2", tmp_path)
    assert other.result("a") is None
    other.keep("b", "z")
    assert (Parts("prove", "c1", tmp_path).result("a"), Parts("prove", "c2", tmp_path).result("b")) == (None, "z")
    assert Parts("mutants", "c2", tmp_path).result("b") is None


def test_nothing_is_kept_with_changes(tmp_path: Path) -> None:
    changed = Parts("prove", "c1-changed", tmp_path)
    changed.keep("a", "x")
    assert changed.result("a") is None
    assert list(tmp_path.iterdir()) == []


def test_the_commit_shows_changes_and_the_files_that_differ(tmp_path: Path) -> None:
    settings = (
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@x",
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "commit.gpgsign=false",
    )
    git("init", "-q", root=tmp_path)
    (tmp_path / "a").write_text("1")
    git("add", "a", root=tmp_path)
    git(*settings, "commit", "-q", "-m", "one", root=tmp_path)
    first = git("rev-parse", "HEAD", root=tmp_path)
    assert commit(tmp_path) == first
    (tmp_path / "a").write_text("2")
    assert commit(tmp_path) == f"{first}-changed"
    assert changed_since("HEAD", tmp_path) == {"a"}
    git(*settings, "commit", "-q", "-a", "-m", "two", root=tmp_path)
    assert commit(tmp_path) not in (first, f"{first}-changed")
    assert changed_since(first, tmp_path) == {"a"}
    assert not changed_since("HEAD", tmp_path)


def test_mutants_are_chosen_by_name_or_by_change() -> None:
    def files(arguments: list[str], *changed: str) -> list[str]:
        return [target.file for target in chosen_by(arguments, lambda ref: changed if ref == "main" else ())]

    assert files([]) == [target.file for target in TARGETS]
    assert files(["verdict/rules.py"]) == ["verdict/rules.py"]
    assert files(["--changed", "main"], "txnscan/txnlog/lineage.py", "README.md") == ["txnlog/lineage.py"]
    assert files(["--changed", "main"], "tests/unit/test_event.py") == ["impact/event.py"]
    assert files(["--changed", "main"]) == []


def test_the_parts_of_a_proof_are_those_of_its_programs() -> None:
    histories = [arguments[-1] for part, arguments in PARTS.items() if part.startswith("histories-")]
    assert tuple(histories) == OF_HISTORIES
