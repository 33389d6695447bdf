"""I/O: find the files of brokers below the given paths, and read their bytes. No file is ever written.

A path is a file, the directory of a partition, a log directory with such directories, or a directory with log
directories. Files that are about to be deleted or replaced are listed but not read. A file is read up to its size when
it was opened, if it is a regular file and not larger than such a file can be. Directories that cannot be listed and
files that cannot be read become errors in the result. Before files are read, their sizes and times are recorded for
`running.py`.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from txnscan.config import printable
from txnscan.errors import ExitStatus, TxnscanError
from txnscan.kafka.security.safe_files import open_regular, read_limited
from txnscan.kafka.units import whole_number
from txnscan.offline.contents import METADATA_TOPIC, FileError, Found, LogDirectory, ReplicaFiles
from txnscan.offline.files import (
    CHECKPOINTS,
    CLEAN_SHUTDOWN,
    GOING,
    HIGH_WATERMARKS,
    META,
    OF_PARTITION,
    BadFile,
    broker_epoch,
    bytes_max,
    checkpoint,
    offset_of,
    partition_of,
    properties,
    why_unreadable,
)
from txnscan.offline.live_broker import is_directory, look_at_locks, names_of, stamp

_DEPTH_MAX = 4
# More entries than a broker has in one directory.
_ENTRIES_MAX = 500_000
_SUFFIXES = (".log", ".snapshot", ".txnindex", ".checkpoint")
_BESIDE = (".index", ".timeindex")


class PathError(TxnscanError):
    """The path has no readable files. `str()` is one sentence."""

    exit_status = ExitStatus.USAGE


def find(paths: Iterable[str]) -> Found:
    """The files below these paths. Raises PathError for a path that does not exist, or has no files of a broker."""
    found = Found()
    by_directory: dict[str, ReplicaFiles] = {}
    for given in paths:
        path = Path(given)
        before, errors = (len(found.replicas), len(found.log_directories), len(found.going)), len(found.errors)
        try:
            if path.is_dir():
                _directory(path, found, None, _DEPTH_MAX, set())
            elif path.exists():
                _single(path, found, by_directory)
            else:
                raise PathError(f"{printable(given)}: there is no such file or directory")
        except OSError as error:
            raise PathError(f"{printable(given)} cannot be read: {why_unreadable(error)}") from None
        if before == (len(found.replicas), len(found.log_directories), len(found.going)) and path.is_dir():
            if len(found.errors) > errors:
                raise PathError(f"{printable(found.errors[errors].path)}: {found.errors[errors].error}")
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
    """Records the state of the metadata log even if it is not read: a running broker writes to it twice a second."""
    if path.is_dir() and str(path) not in found.seen.names:
        try:
            _note(path, _entries(path), found)
        except OSError as error:
            found.errors.append(FileError(str(path), why_unreadable(error)))


def _note(path: Path, entries: Sequence[os.DirEntry[str]], found: Found) -> None:
    """Records the state of a directory's files before they are read. The first record counts."""
    names = found.seen.names.setdefault(str(path), names_of(entries)) or ()
    for entry in entries:
        if entry.name in names and not is_directory(entry):
            found.seen.files.setdefault(entry.path, stamp(entry.path))


def _entries(path: Path) -> list[os.DirEntry[str]]:
    """The entries of a directory, sorted by name. Raises OSError."""
    with os.scandir(path) as entries:
        listed = list(islice(entries, _ENTRIES_MAX + 1))
    if len(listed) > _ENTRIES_MAX:
        raise OSError(errno.E2BIG, f"it has more than {_ENTRIES_MAX} entries")
    return sorted(listed, key=lambda entry: entry.name)


def _below(path: Path, found: Found, parent: LogDirectory | None, depth: int, listed: set[tuple[int, int]]) -> None:
    """Like `_directory`, for a directory that the user did not name. If it cannot be listed, the others are
    still read.
    """
    try:
        _directory(path, found, parent, depth, listed)
    except OSError as error:
        _unlisted(path, found, parent, error)


def _unlisted(path: Path, found: Found, parent: LogDirectory | None, error: OSError) -> None:
    why = f"it cannot be listed: {why_unreadable(error)}"
    found.errors.append(FileError(str(path), why))
    key = partition_of(path.name)
    if key is not None:
        found.replicas.append(ReplicaFiles(str(path), key, whole=True, log_directory=parent, error=why))
    if key is None or parent is None:
        found.unlisted = found.unlisted or str(path)


def _directory(path: Path, found: Found, parent: LogDirectory | None, depth: int, listed: set[tuple[int, int]]) -> None:
    """listed: the device and inode of each directory that was visited. Links may lead back to them."""
    state = path.stat()
    if (state.st_dev, state.st_ino) in listed:
        return
    entries = _entries(path)
    names = {entry.name for entry in entries}
    if path.name.endswith(GOING):
        found.going.append(str(path))
        return
    _note(path, entries, found)
    if any(entry.name.endswith(".log") and offset_of(entry.name) is not None for entry in entries) or (
        names & set(OF_PARTITION)
    ):
        # If the user named the partition's directory, its log directory is the parent.
        beside = parent or _log_directory(path.absolute().parent, found, quiet=True)
        replica = ReplicaFiles(str(path), partition_of(path.absolute().name), whole=True, log_directory=beside)
        replica.changed_ms = state.st_mtime_ns // 1_000_000
        for entry in entries:
            if not is_directory(entry) or offset_of(entry.name) is not None or entry.name in OF_PARTITION:
                taken = _take(Path(entry.path), replica, found)
                _note_unread(entry, taken, replica, found)
        found.replicas.append(replica)
        return
    listed.add((state.st_dev, state.st_ino))
    own = _log_directory(path, found) if names & {META, *CHECKPOINTS} else None
    if own is not None:
        own.listed = True
    for entry in entries:
        # A broken link may be the link of a partition.
        is_link = entry.is_symlink() and partition_of(entry.name) is not None
        if depth and (is_link or is_directory(entry)):
            _below(Path(entry.path), found, own or parent, depth - 1, listed)


def _log_directory(path: Path, found: Found, quiet: bool = False) -> LogDirectory | None:
    """The data from a log directory's own files. quiet: the user did not name it, and it may be no log directory."""
    for one in found.log_directories:
        if one.path == str(path):
            return one
    names = {name for name in (META, CLEAN_SHUTDOWN, *CHECKPOINTS) if os.path.lexists(path / name)}
    if not names & {META, *CHECKPOINTS}:
        return None
    for name in names:
        found.seen.files.setdefault(str(path / name), stamp(str(path / name)))
    own = LogDirectory(str(path), clean=CLEAN_SHUTDOWN in names)
    if META in names:
        try:
            values = properties(read(path / META))
            own.cluster_id = values.get("cluster.id")
            number = whole_number(values.get("node.id", values.get("broker.id")))
            own.broker_id = number if number is not None and number >= 0 else None
            own.directory_id = values.get("directory.id")
        except (BadFile, OSError) as bad:
            found.errors.append(FileError(str(path / META), why_unreadable(bad)))
    if own.clean:
        try:
            own.broker_epoch = broker_epoch(read(path / CLEAN_SHUTDOWN))
        except (BadFile, OSError) as bad:
            own.clean = False
            found.errors.append(FileError(str(path / CLEAN_SHUTDOWN), why_unreadable(bad)))
    for name in names & set(CHECKPOINTS):
        written_ms = _age(path / name, found)
        if name == HIGH_WATERMARKS:
            own.watermarks_ms = written_ms
        try:
            own.offsets[name] = checkpoint(read(path / name))
        except (BadFile, OSError) as bad:
            found.errors.append(FileError(str(path / name), why_unreadable(bad)))
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
    if not name.endswith((*_SUFFIXES, *_BESIDE)) or offset is None:
        return False
    kinds = {
        ".index": replica.offset_indexes,
        ".timeindex": replica.time_indexes,
        ".log": replica.segments,
        ".snapshot": replica.snapshots,
        ".txnindex": replica.indexes,
        ".checkpoint": replica.checkpoints,
    }
    kinds[path.suffix][offset] = str(path)
    if path.suffix == ".log":
        replica.written_ms = max(replica.written_ms, age_ms)
        replica.changed_ms = max(replica.changed_ms, age_ms)
    return True


def _note_unread(entry: os.DirEntry[str], taken: bool, replica: ReplicaFiles, found: Found) -> None:
    """Records a file that is not read because of its name. It may contain a marker, unless it only summarises a log."""
    of_metadata = replica.key is None or replica.key[0] == METADATA_TOPIC
    if not taken and entry.name.endswith(_SUFFIXES):
        why = "brokers give no such file this name, and it is not read"
    elif taken and entry.name.endswith(".checkpoint") and not of_metadata:
        why = f"it is a snapshot of {METADATA_TOPIC}, and not of this partition"
    else:
        return
    found.errors.append(FileError(entry.path, why))
    if not entry.name.endswith((".snapshot", ".txnindex")):
        replica.error = replica.error or f"{entry.path}: {why}"


def _age(path: Path, found: Found) -> int:
    """When a file was last written, also added to `newest_ms`. -1 if unknown; then reading the file shows the error."""
    try:
        written_ms = path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return -1
    found.newest_ms = max(found.newest_ms, written_ms)
    return written_ms


def read(path: Path | str) -> bytes:
    """The content of a small file. Raises OSError, also if the file is too large."""
    return read_limited(path, bytes_max(Path(path).name))


@contextmanager
def mapped(path: str) -> Iterator[mmap.mmap | bytes]:
    """The content of a file at the time it was opened. Raises OSError, also if the file is larger than such a file can
    be.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        size, limit = os.fstat(file.fileno()).st_size, bytes_max(Path(path).name)
        if size > limit:
            raise OSError(errno.EFBIG, f"it is larger than {limit} bytes, which no such file is")
        if not size:
            yield b""
            return
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
            yield data
