"""Why tables cannot be written or read, in words: no room, no permission, or which file is damaged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

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
# Spark and Parquet name the file that they could not read.
_DAMAGED = re.compile(
    r"(?:FAILED_READ_FILE|is not a Parquet file|CANNOT_READ_FILE|Could not read footer|JsonParseException|"
    r"JsonEOFException|DELTA_TRUNCATED_TRANSACTION_LOG|DELTA_VERSIONS_NOT_CONTIGUOUS)"
)
_FILE = re.compile(r"[^\s'\"`(),\[\]]+\.(?:json|parquet|crc)\b")
_COMMIT = re.compile(r"\d{20}\.json")


def cause(said: str) -> str | None:
    """The meaning of a storage error and the remedy, in a clause. None for an unknown error."""
    for pattern, meaning in _CAUSES:
        if re.search(pattern, said):
            return meaning
    if _DAMAGED.search(said):
        named = _FILE.search(said)
        which = f"the file {_plain(named[0])}" if named else "one of the files"
        return f"{which} is damaged; restore it from a backup, or name another location"
    return None


def _plain(file: str) -> str:
    return re.sub(r"^file:/+", "/", file)


def damaged_commit(table: Path) -> Path | None:
    """The first unreadable commit since the last checkpoint of a table on this machine. None if all are whole. A sweep
    appends to such a table without an error, but the table cannot be read again.
    """
    return next((path for path in _commits(table / "_delta_log") if not _is_whole(path)), None)


def _commits(log: Path) -> Iterator[Path]:
    try:
        names = sorted(path.name for path in log.iterdir())
    except OSError:
        return
    checkpoints = [name[:20] for name in names if ".checkpoint." in name]
    since = max(checkpoints, default="")
    yield from (log / name for name in names if _COMMIT.fullmatch(name) and name[:20] > since)


def _is_whole(commit: Path) -> bool:
    try:
        lines = commit.read_text("utf-8").splitlines()
        return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines if line.strip())
    except FileNotFoundError:
        # Removed by Delta's clean-up in the meantime.
        return True
    except (OSError, ValueError):
        return False
