"""The wording of messages: all of it stands in one file, `tests/__snapshots__/wording.ambr`. `make wording` renews it,
and `python -m tests.wording` removes what no test compares with any more.

Tests assert verdicts, reasons, codes, numbers and exit statuses. A test that produces a sentence compares it with the
fixture `wording`, so that a rewrite of the English is one diff of one file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.amber import AmberSnapshotExtension

if TYPE_CHECKING:
    from syrupy.location import PyTestLocation
    from syrupy.types import SnapshotIndex

TESTS = Path(__file__).parent
FILE = TESTS / "__snapshots__" / "wording.ambr"
# A snapshot: the test, perhaps with its case and a number, then its module.
_NAME = re.compile(r"# name: (?P<test>test_\w+).*\[(?P<module>test_\w+)\]\n")


class OneFile(AmberSnapshotExtension):
    """All snapshots of all tests in one file, by the name of the test and its module."""

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        """The folder of the file."""
        return str(FILE.parent)

    @classmethod
    def get_file_basename(cls, *, test_location: PyTestLocation, index: SnapshotIndex) -> str:
        """The name of the file."""
        return FILE.stem

    @classmethod
    def get_snapshot_name(cls, *, test_location: PyTestLocation, index: SnapshotIndex = 0) -> str:
        """The test and its module."""
        name = super().get_snapshot_name(test_location=test_location, index=index)
        return f"{name}[{Path(test_location.filepath).stem}]"

    @classmethod
    def matches_test_location(cls, *, test_location: PyTestLocation, snapshot_location: str) -> bool:
        """Every test may have snapshots in it."""
        return Path(snapshot_location) == FILE


@pytest.fixture
def wording(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """Equals the text in the file for this test and this place in the test."""
    return snapshot.use_extension(OneFile)


def modules() -> dict[str, str]:
    """The source of each module of tests, by its name."""
    return {file.stem: file.read_text("utf-8") for file in TESTS.rglob("test_*.py")}


def parts(text: str) -> list[str]:
    """The beginning of the file, then each snapshot with its name."""
    return re.split(r"(?m)^(?=# name: )", text)


def obsolete(snapshots: Iterable[str], sources: Mapping[str, str]) -> list[str]:
    """The snapshots whose test does not exist any more. A slow test that did not run exists."""
    return [one for one in snapshots if (found := _NAME.match(one)) is None or not _has(sources, found)]


def _has(sources: Mapping[str, str], name: re.Match[str]) -> bool:
    return re.search(rf"^def {name['test']}\(", sources.get(name["module"], ""), re.MULTILINE) is not None


if __name__ == "__main__":
    beginning, *snapshots = parts(FILE.read_text("utf-8"))
    dropped = obsolete(snapshots, modules())
    FILE.write_text("".join([beginning, *(one for one in snapshots if one not in dropped)]), "utf-8")
