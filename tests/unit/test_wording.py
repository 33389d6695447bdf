"""The file of wordings has no sentence without a test, and renewing it keeps those of tests that did not run."""

from __future__ import annotations

from tests.wording import FILE, modules, obsolete, parts

SOURCES = {"test_a": "def test_one() -> None: ...\n\n\ndef test_other(case: str) -> None: ...\n", "test_slow": ""}


def test_a_snapshot_is_obsolete_if_its_test_is_gone() -> None:
    names = {
        "test_one[test_a]": False,
        "test_one.1[test_a]": False,
        "test_other[a case: with [brackets]][test_a]": False,
        "test_oth[test_a]": True,
        "test_one[test_b]": True,
        "test_one[test_slow]": True,
        "no name": True,
    }
    snapshots = [f"# name: {name}\n  'said'\n# ---\n" for name in names]
    text = "# serializer version: 1\n" + "".join(snapshots)
    assert parts(text) == ["# serializer version: 1\n", *snapshots]
    gone = obsolete(snapshots, SOURCES)
    assert [one in gone for one in snapshots] == list(names.values())


def test_each_sentence_has_a_test() -> None:
    assert obsolete(parts(FILE.read_text("utf-8"))[1:], modules()) == []
