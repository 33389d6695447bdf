"""I/O: detect whether a broker runs on the files. This module writes no file and takes no lock.

Files of a running broker are read at different moments. A transaction that ends in between is open in its partition but
complete in the transaction log. There are two signs of a running broker: a file or directory changed while files were
read, or a process has locked `.lock` in a log directory, as a broker does from its start to its end.

Kafka takes that lock with Java's `FileChannel.tryLock` (`org.apache.kafka.server.util.FileLock`,
`LogManager.lockLogDirs`), which on Unix is a POSIX lock of `fcntl`. F_GETLK shows it. Taking a shared lock would show
it too, but would make a broker fail that starts at that moment. A copied `.lock` is not locked.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from txnscan.kafka.security.safe_files import open_regular
from txnscan.offline.files import (
    CHECKPOINTS,
    CLEAN_SHUTDOWN,
    GOING,
    LOCK,
    META,
    OF_PARTITION,
    offset_of,
    why_unreadable,
)

T = TypeVar("T")
_KNOWN = frozenset((META, CLEAN_SHUTDOWN, LOCK, *CHECKPOINTS, *OF_PARTITION))
# struct flock on 64-bit systems: its fields in order, and the index of l_type.
_FLOCK = {"linux": (struct.Struct("hhqqi4x"), 0), "darwin": (struct.Struct("qqihh"), 3)}

# Size, time of the last write and time of the last change of a file; times in ns.
Stamp = tuple[int, int, int]


@dataclass(slots=True)
class FileStates:
    """The state of files and directories before they were read.

    files: by path; None if the state is unknown. names: a broker's files in each directory, in order. lock_directories:
    directories that may have a `.lock`. locked: the first `.lock` that a process has locked. lock_error: why
    the state of a `.lock` is unknown, if it is.
    """

    files: dict[str, Stamp | None] = field(default_factory=dict)
    names: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    lock_directories: tuple[str, ...] = ()
    locked: str | None = None
    lock_error: str | None = None


def stamp(path: str) -> Stamp | None:
    """The state of a file; see FileStates."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Whether the entry is a directory. False for a broken link."""
    with suppress(OSError):
        return entry.is_dir()
    return False


def is_locked(path: str) -> bool:
    """Whether another process has locked this file. False if the file does not exist. Raises OSError if the state is
    unknown.
    """
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return False
    try:
        return _has_lock(descriptor)
    finally:
        os.close(descriptor)


def _has_lock(descriptor: int) -> bool:
    if sys.platform not in _FLOCK or sys.maxsize < 2**32:
        raise OSError("locks of other processes cannot be asked for on this system")
    layout, type_at = _FLOCK[sys.platform]
    # The range is the whole file.
    asked = [0] * 5
    asked[type_at] = fcntl.F_RDLCK
    answer = layout.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, layout.pack(*asked)))
    return bool(answer[type_at] != fcntl.F_UNLCK)


def look_at_locks(seen: FileStates, directories: Iterable[str]) -> None:
    """Checks the locks of these directories, which may be log directories."""
    seen.lock_directories = tuple(sorted({*directories}))
    for directory in seen.lock_directories:
        path = os.path.join(directory, LOCK)  # noqa: PTH118
        try:
            if is_locked(path):
                seen.locked = seen.locked or path
        except OSError as error:
            why = why_unreadable(error)
            seen.lock_error = seen.lock_error or f"{path} does not show if a broker runs: {why}"


def names_of(entries: Iterable[os.DirEntry[str]]) -> tuple[str, ...]:
    """The directories and the broker's files among the entries, in order. Other files are ignored: users may keep
    reports there.
    """
    return tuple(sorted(one.name for one in entries if _matters(one.name) or is_directory(one)))


def _matters(name: str) -> bool:
    return name in _KNOWN or name.endswith(GOING) or offset_of(name) is not None


def look_again(before: FileStates) -> str | None:
    """The sign that a broker ran, if there is one. Call it after all files were read."""
    now = FileStates()
    look_at_locks(now, before.lock_directories)
    locked = before.locked or now.locked
    if locked is not None:
        return f"a broker runs, for a process has the lock on {locked}; stop the broker, and read copies of its files"
    changed = _changed(before.names, _names) or _changed(before.files, stamp)
    return (
        f"{changed} changed while files were read; stop all brokers, and read copies of their files"
        if changed
        else None
    )


def _changed(before: Mapping[str, T], look: Callable[[str], T]) -> str | None:
    return next((path for path, was in before.items() if look(path) != was), None)


def _names(directory: str) -> tuple[str, ...] | None:
    try:
        with os.scandir(directory) as entries:
            return names_of(entries)
    except OSError:
        return None
