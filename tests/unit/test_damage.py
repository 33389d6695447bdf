"""Storage errors, explained with a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from txnscan.tables.damage import cause, damaged_commit

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

CAUSES = (
    "java.io.IOException: No space left on device",
    "java.io.IOException: Disk quota exceeded",
    "org.apache.hadoop.security.AccessControlException: x",
    "FileNotFoundException: /t/x.parquet (Permission denied)",
    "S3Exception: Access Denied (Service: S3)",
    "/t/x: Read-only file system",
    "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///t/_delta_log/03.json.  SQLSTATE: x",
    "java.lang.RuntimeException: file:/t/a.parquet is not a Parquet file.",
    "com.fasterxml.jackson.core.io.JsonEOFException: Unexpected end",
    "_internal.CommitFailedError: Unsupported table features required: [DomainMetadata, ClusteredTable]",
    "something else",
)


def test_a_known_cause_is_explained_with_a_remedy(wording: SnapshotAssertion) -> None:
    causes = {error: cause(f"An error occurred while calling o1.save.\n: {error}\n\tat x") for error in CAUSES}
    assert [error for error, worded in causes.items() if worded is None] == ["something else"]
    assert causes == wording


def log(directory: Path, files: dict[str, str]) -> Path:
    (directory / "_delta_log").mkdir()
    for name, text in files.items():
        (directory / "_delta_log" / name).write_text(text)
    return directory


@pytest.mark.parametrize(
    ("files", "damaged"),
    [
        ({}, None),
        ({f"{0:020}.json": '{"commitInfo":{}}\n{"add":{}}\n', f"{1:020}.crc": "x"}, None),
        ({f"{0:020}.json": "{}", f"{1:020}.json": '{"add":{"pa'}, f"{1:020}.json"),
        ({f"{0:020}.json": "{}", f"{1:020}.json": ""}, f"{1:020}.json"),
        ({f"{0:020}.json": "{}\n7\n", f"{1:020}.json": "{}"}, f"{0:020}.json"),
        # Checkpointed commits are not read.
        ({f"{3:020}.json": "x", f"{4:020}.checkpoint.parquet": "", f"{5:020}.json": "{}"}, None),
    ],
)
def test_an_unreadable_commit_is_found_and_named(tmp_path: Path, files: dict[str, str], damaged: str | None) -> None:
    found = damaged_commit(log(tmp_path, files))
    assert (found.name if found is not None else None) == damaged


def test_a_missing_table_is_not_damaged(tmp_path: Path) -> None:
    assert damaged_commit(tmp_path / "nowhere") is None
