"""The edge: which files of a broker's disk the given paths hold, and their bytes. Nothing is ever written.

A path is a file, the directory of a partition, a log directory with such directories in it, or a directory with log
directories in it. Files that are on their way out are listed and not read. A file is read as large as it was when it
was opened. Before files are read, their sizes and times are noted for `running.py`.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from txnscan.config import printable
from txnscan.errors import ExitStatus, TxnscanError
from txnscan.offline.files import (
    CHECKPOINTS,
    CLEAN_SHUTDOWN,
    GOING,
    META,
    OF_PARTITION,
    BadFile,
    checkpoint,
    offset_of,
    partition_of,
    properties,
)
from txnscan.offline.found import METADATA_TOPIC, FileError, Found, LogDirectory, ReplicaFiles
from txnscan.offline.running import look_at_locks, names_of, stamp

_DEPTH_MAX = 4
_SMALL_BYTES_MAX = 64 * 1024 * 1024
_SUFFIXES = (".log", ".snapshot", ".txnindex", ".checkpoint")


class PathError(TxnscanError):
    """A path that nothing can be read from. `str()` is one sentence."""

    exit_status = ExitStatus.USAGE


def find(paths: Iterable[str]) -> Found:
    """The files below these paths. Raises PathError for a path that is not there, or holds nothing of a broker's."""
    found = Found()
    by_directory: dict[str, ReplicaFiles] = {}
    for given in paths:
        path = Path(given)
        before = (len(found.replicas), len(found.log_directories), len(found.going))
        try:
            if path.is_dir():
                _directory(path, found, None, _DEPTH_MAX)
            elif path.is_file():
                _single(path, found, by_directory)
            else:
                raise PathError(f"{printable(given)}: there is no such file or directory")
        except OSError as error:
            raise PathError(f"{printable(given)} cannot be read: {(error.strerror or str(error)).lower()}") from None
        if before == (len(found.replicas), len(found.log_directories), len(found.going)) and path.is_dir():
            raise PathError(
                f"{printable(given)} holds no log directory and no directory of a partition; name one with .log files"
            )
    found.replicas.sort(key=lambda r: (r.key or ("", -1), r.directory))
    for own in found.log_directories:
        _note_metadata_log(Path(own.path) / f"{METADATA_TOPIC}-0", found)
    parents = (str(Path(replica.directory).absolute().parent) for replica in found.replicas)
    look_at_locks(found.seen, (*(own.path for own in found.log_directories), *parents))
    return found


def _note_metadata_log(path: Path, found: Found) -> None:
    """Notes the metadata log even if it is not read: a running broker writes to it twice a second."""
    if path.is_dir() and str(path) not in found.seen.names:
        _note(path, sorted(os.scandir(path), key=lambda entry: entry.name), found)


def _note(path: Path, entries: Sequence[os.DirEntry[str]], found: Found) -> None:
    """Notes the files of a directory before they are read. The first note counts."""
    names = found.seen.names.setdefault(str(path), names_of(entries)) or ()
    for entry in entries:
        if entry.name in names and entry.is_file():
            found.seen.files.setdefault(entry.path, stamp(entry.path))


def _directory(path: Path, found: Found, parent: LogDirectory | None, depth: int) -> None:
    entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    names = {entry.name for entry in entries}
    if path.name.endswith(GOING):
        found.going.append(str(path))
        return
    _note(path, entries, found)
    if any(entry.name.endswith(".log") and offset_of(entry.name) is not None for entry in entries) or (
        names & set(OF_PARTITION)
    ):
        # What it belongs to may stand beside it, when it was named by itself.
        beside = parent or _log_directory(path.absolute().parent, found, quiet=True)
        replica = ReplicaFiles(str(path), partition_of(path.absolute().name), whole=True, log_directory=beside)
        for entry in entries:
            if entry.is_file():
                _take(Path(entry.path), replica, found)
        found.replicas.append(replica)
        return
    own = _log_directory(path, found) if names & {META, *CHECKPOINTS} else None
    for entry in entries:
        if entry.is_dir() and depth:
            _directory(Path(entry.path), found, own or parent, depth - 1)


def _log_directory(path: Path, found: Found, quiet: bool = False) -> LogDirectory | None:
    """What the files of a log directory say of it. quiet: it was not asked for, and may be none."""
    for one in found.log_directories:
        if one.path == str(path):
            return one
    names = {name for name in (META, CLEAN_SHUTDOWN, *CHECKPOINTS) if (path / name).is_file()}
    if not names & {META, *CHECKPOINTS}:
        return None
    for name in names:
        found.seen.files.setdefault(str(path / name), stamp(str(path / name)))
    own = LogDirectory(str(path), clean=CLEAN_SHUTDOWN in names)
    if META in names:
        try:
            values = properties(read(path / META))
            own.cluster_id = values.get("cluster.id")
            number = values.get("node.id", values.get("broker.id", ""))
            own.broker_id = int(number) if number.isdigit() else None
        except (BadFile, OSError) as bad:
            found.errors.append(FileError(str(path / META), _why(bad)))
    for name in names & set(CHECKPOINTS):
        _age(path / name, found)
        try:
            own.offsets[name] = checkpoint(read(path / name))
        except (BadFile, OSError) as bad:
            found.errors.append(FileError(str(path / name), _why(bad)))
    found.log_directories.append(own)
    return own


def _single(path: Path, found: Found, by_directory: dict[str, ReplicaFiles]) -> None:
    if path.name in (META, *CHECKPOINTS):
        _log_directory(path.parent, found)
        return
    if path.name.endswith(GOING):
        found.going.append(str(path))
        return
    found.seen.files.setdefault(str(path), stamp(str(path)))
    directory = str(path.parent)
    replica = by_directory.get(directory)
    if replica is None:
        key = partition_of(path.absolute().parent.name)
        replica = by_directory[directory] = ReplicaFiles(directory, key, whole=False)
        found.replicas.append(replica)
    if not _take(path, replica, found):
        raise PathError(
            f"{printable(str(path))} is none of the files that can be read: .log, .snapshot, .txnindex and "
            "checkpoints, with the names that brokers give them"
        )


def _take(path: Path, replica: ReplicaFiles, found: Found) -> bool:
    name, offset = path.name, offset_of(path.name)
    if name.endswith(GOING):
        replica.going.append(str(path))
        return True
    age_ms = _age(path, found)
    if name in OF_PARTITION:
        replica.others[name] = str(path)
        return True
    if not name.endswith(_SUFFIXES) or offset is None:
        return False
    kinds = {
        ".log": replica.segments,
        ".snapshot": replica.snapshots,
        ".txnindex": replica.indexes,
        ".checkpoint": replica.checkpoints,
    }
    kinds[path.suffix][offset] = str(path)
    if path.suffix == ".log":
        replica.written_ms = max(replica.written_ms, age_ms)
    return True


def _age(path: Path, found: Found) -> int:
    """When a file was last written; `newest_ms` takes it in."""
    try:
        written_ms = path.stat().st_mtime_ns // 1_000_000
    except OSError as error:
        found.errors.append(FileError(str(path), _why(error)))
        return -1
    found.newest_ms = max(found.newest_ms, written_ms)
    return written_ms


def read(path: Path | str) -> bytes:
    """A small file whole. Raises OSError, and BadFile where it is not small."""
    with Path(path).open("rb") as file:
        data = file.read(_SMALL_BYTES_MAX + 1)
    if len(data) > _SMALL_BYTES_MAX:
        raise BadFile(f"it is larger than {_SMALL_BYTES_MAX} bytes, which no such file is")
    return data


@contextmanager
def mapped(path: str) -> Iterator[mmap.mmap | bytes]:
    """A file as it was when it was opened. Raises OSError."""
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            yield b""
            return
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
            yield data


def _why(error: Exception) -> str:
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
