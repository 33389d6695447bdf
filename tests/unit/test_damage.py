"""What storage says when it fails, in words that tell what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from txnscan.store.damage import cause, damaged_commit

DAMAGED = "is damaged; restore it from a backup, or name another location"
CAUSES = [
    ("java.io.IOException: No space left on device", "there is no space left; make room"),
    ("java.io.IOException: Disk quota exceeded", "there is no space left; make room"),
    ("org.apache.hadoop.security.AccessControlException: x", "this user may not write there; grant that"),
    ("FileNotFoundException: /t/x.parquet (Permission denied)", "this user may not write there; grant that"),
    ("S3Exception: Access Denied (Service: S3)", "this user may not write there; grant that"),
    ("/t/x: Read-only file system", "the file system is read-only; mount it for writing"),
    (
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///t/_delta_log/03.json.  SQLSTATE: x",
        f"the file /t/_delta_log/03.json {DAMAGED}",
    ),
    ("java.lang.RuntimeException: file:/t/a.parquet is not a Parquet file.", f"the file /t/a.parquet {DAMAGED}"),
    ("com.fasterxml.jackson.core.io.JsonEOFException: Unexpected end", f"one of the files {DAMAGED}"),
    (
        "_internal.CommitFailedError: Unsupported table features required: [DomainMetadata, ClusteredTable]",
        "the table has features of Delta that delta-rs cannot write, as CLUSTER BY adds them; write it through Spark, "
        "or copy the tables as docs/tables.md says",
    ),
    ("something else", None),
]


@pytest.mark.parametrize(("said", "means"), CAUSES)
def test_the_cause_is_told_in_a_clause_with_what_to_do(said: str, means: str | None) -> None:
    assert cause(f"An error occurred while calling o1.save.\n: {said}\n\tat x") == means


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
        # What a checkpoint holds is not read any more.
        ({f"{3:020}.json": "x", f"{4:020}.checkpoint.parquet": "", f"{5:020}.json": "{}"}, None),
    ],
)
def test_a_commit_that_nobody_could_read_is_found_and_named(
    tmp_path: Path, files: dict[str, str], damaged: str | None
) -> None:
    found = damaged_commit(log(tmp_path, files))
    assert (found.name if found is not None else None) == damaged


def test_where_there_is_no_table_nothing_is_damaged(tmp_path: Path) -> None:
    assert damaged_commit(tmp_path / "nowhere") is None
