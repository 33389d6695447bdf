"""The wording of messages: all of it stands in one file, `tests/__snapshots__/wording.ambr`. `make wording` renews it.

Tests assert verdicts, reasons, codes, numbers and exit statuses. A test that produces a sentence compares it with the
fixture `wording`, so that a rewrite of the English is one diff of one file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.amber import AmberSnapshotExtension

if TYPE_CHECKING:
    from syrupy.location import PyTestLocation
    from syrupy.types import SnapshotIndex

FILE = Path(__file__).parent / "__snapshots__" / "wording.ambr"


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
