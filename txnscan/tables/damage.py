"""Why tables cannot be written or read, in words: no room, no permission, or which file is damaged."""

from __future__ import annotations

import re

# Messages of the file systems that Spark writes to, in any language of the error.
_CAUSES = (
    (
        r"No space left on device|Disk quota exceeded|ENOSPC|EDQUOT|File too large|QuotaExceeded",
        "there is no space left; make room",
    ),
    (
        r"Permission denied|AccessControlException|AccessDenied|Access Denied|Operation not permitted|\(Forbidden\)",
        "this user may not write there; grant that",
    ),
    (r"Read-only file system", "the file system is read-only; mount it for writing"),
    (
        r"Unsupported table features required",
        "the table has features of Delta that delta-rs cannot write, as CLUSTER BY adds them; write it through Spark, "
        "or copy the tables as docs/tables.md says",
    ),
)
# Spark, delta-rs and Parquet name the file that they could not read.
_DAMAGED = re.compile(
    r"(?:FAILED_READ_FILE|is not a Parquet file|CANNOT_READ_FILE|Could not read footer|JsonParseException|"
    r"JsonEOFException|DELTA_TRUNCATED_TRANSACTION_LOG|DELTA_VERSIONS_NOT_CONTIGUOUS|"
    # Of delta-rs.
    r"Requested range was invalid|Invalid Parquet file)"
)
_GONE = re.compile(r"Object at location (?P<file>.+?\.(?:json|parquet)) not found")
_FILE = re.compile(r"[^\s'\"`(),\[\]]+\.(?:json|parquet|crc)\b")


def cause(said: str) -> str | None:
    """The meaning of a storage error and the remedy, in a clause. None for an unknown error."""
    for pattern, meaning in _CAUSES:
        if re.search(pattern, said):
            return meaning
    gone = _GONE.search(said)
    if gone is not None:
        return f"the file {gone['file']} is gone; restore it from a backup, or name another location"
    if _DAMAGED.search(said):
        named = _FILE.search(said)
        which = f"the file {_plain(named[0])}" if named else "one of the files"
        return f"{which} is damaged; restore it from a backup, or name another location"
    return None


def _plain(file: str) -> str:
    return re.sub(r"^file:/+", "/", file)
