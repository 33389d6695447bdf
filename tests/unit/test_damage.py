"""Storage errors, explained with a remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txnscan.tables.damage import cause

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
    "Parquet error: Parquet error: Failed to fetch metadata for file t/a.parquet: Object Store error: Generic "
    "LocalFileSystem error: Requested range was invalid",
    "Failed to fetch metadata for file t/a.parquet: Parquet error: Parquet error: Invalid Parquet file. Corrupt footer",
    "Object Store error: Object at location /my t/a.parquet not found: No such file or directory (os error 2)",
    "something else",
)


def test_a_known_cause_is_explained_with_a_remedy(wording: SnapshotAssertion) -> None:
    causes = {error: cause(f"An error occurred while calling o1.save.\n: {error}\n\tat x") for error in CAUSES}
    assert [error for error, worded in causes.items() if worded is None] == ["something else"]
    assert causes == wording
