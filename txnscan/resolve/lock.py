"""One apply at a time on a cluster: a lease in the tables.

The lease is one row for each cluster, taken with a MERGE. If commits are exclusive (`exclusive.py`), Delta lets only
one of two concurrent MERGEs succeed. The holder reads its row before each marker, and renews it in time.

If an apply ends without giving the lease back, another apply can take it:

- at once, if the holder ran on this machine in this pid namespace, and its process is gone;
- otherwise, once the row says that it has expired *and* has not changed for a whole lease, by the monotonic clock of
  the apply that wants it. The times in the row are by another host's clock, which may be wrong. They can refuse the
  lock, but never grant it.

No lease can fence a marker that is already on its way. If an apply is paused between its last read of the row and its
request, it may send the marker after another apply has begun. This does no more harm than a pause without another
apply: both have proven that the same transaction hangs, and the marker carries the exact epochs that were read.

On a local path Delta checks for the commit file and then renames to it (Hadoop's `AbstractFileSystem.renameInternal`),
so two processes may both succeed. There, apply also takes the operating system's lock on a file in the table's
directory. The kernel releases it whenever the process ends. The file stays; VACUUM ignores its name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import pyarrow as pa

from txnscan.config import ConfigError, is_local, local_path, printable, scheme_of
from txnscan.errors import system_reason
from txnscan.kafka.clock import wall_clock_ms
from txnscan.parallel import OnProgress
from txnscan.resolve.apply import ApplyRunning, JournalLost
from txnscan.sweeps.column import epoch_ms
from txnscan.tables.conditions import Is
from txnscan.tables.creation import check_files
from txnscan.tables.delta import Matched, NotMatched, arrow_rows, tried_again
from txnscan.tables.schema import APPLY_LOCKS, RESOLUTIONS, Table
from txnscan.tables.tables import Tables

try:
    import fcntl
except ImportError:
    # Windows has no fcntl: the lease is the only lock there.
    fcntl = None  # type: ignore[assignment]

LEASE_MS = 300_000
# How often an expired lease is read while waiting for it.
_LOOK_S = 10.0
# Characters of a holder that are shown.
_ACTOR_MAX = 300


@dataclass(frozen=True, slots=True)
class Process:
    """A process: its host, its id, and the boot and pid namespace of that id ("" if these are not known)."""

    host: str
    pid: int
    space: str

    def __str__(self) -> str:
        return f"{self.host} process {self.pid}" + (f" of {self.space}" if self.space else "")

    @property
    def is_gone(self) -> bool:
        """Whether the process is known to have ended. False if that cannot be checked from here."""
        here = this_process()
        if not self.space or (self.host, self.space) != (here.host, here.space) or self.pid == here.pid:
            return False
        return not Path(f"/proc/{self.pid}").exists()


def this_process() -> Process:
    """The process that runs this code."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        space = ""
    return Process(platform.node(), os.getpid(), space)


def parse_process(text: str) -> Process | None:
    """The process that has this text as its `str`, if it is such a text."""
    match = re.fullmatch(r"(\S+) process (\d{1,10})(?: of (\S+))?", text)
    return Process(match[1], int(match[2]), match[3] or "") if match else None


@dataclass(frozen=True, slots=True)
class _Row:
    """The row of the lock. renewals: counts the writes of one holder."""

    cluster_id: str
    taken_ms: int
    holder: str | None
    actor: str
    expires_ms: int
    renewals: int


def _unwatched(done: int, total: int) -> None:
    """Does nothing."""


class Lock:
    """The lease of one apply on a cluster. A context manager: entering raises ApplyRunning if another apply has the
    lease.

    now_ms: for the times in the row. monotonic_s: decides when a lease has expired. on_wait: called with progress in
    seconds while the lease of an apply that seems dead is watched.
    """

    def __init__(
        self,
        tables: Tables,
        cluster_id: str,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        on_wait: OnProgress = _unwatched,
        lease_ms: int = LEASE_MS,
    ) -> None:
        self._tables = tables
        self._cluster_id = cluster_id
        self._now_ms = now_ms
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._on_wait = on_wait
        self._lease_ms = lease_ms
        self._me = str(uuid.uuid4())
        self._taken_ms = 0
        self._renewals = 0
        self._renewed_s = 0.0
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Lock:
        with contextlib.ExitStack() as until_taken:
            location = location_of(self._tables, APPLY_LOCKS)
            if is_local(scheme_of(location)):
                check_files(self._tables.delta)
                until_taken.enter_context(
                    _file_lock(local_path(location) / f"_{quote(self._cluster_id, safe='')}.lock")
                )
            self._taken_ms = self._now_ms()
            other = self._write(over=self._dead())
            if other is not None:
                raise ApplyRunning("--tables", other)
            self._open = until_taken.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        # After an error, report that error. A lease that cannot be given back will expire.
        with self._open, contextlib.suppress(*(() if exc_info[0] is None else (Exception,))):
            self._merge(None, over=(self._me, self._renewals))

    def hold(self) -> None:
        """Checks that this apply has the lease, and renews it once half of it has run out. Raises JournalLost."""
        row = self._row()
        other = self._running(row) if row is None or row["holder"] != self._me else None
        if other is None and self._monotonic_s() - self._renewed_s >= self._lease_ms / 2_000:
            other = self._write(over=(self._me, self._renewals))
        if other is not None:
            raise JournalLost(f"this apply was too slow and lost the lock: {other}")

    def _dead(self) -> tuple[str, int] | None:
        """The dead holder, with its renewals, if there is a holder. Raises ApplyRunning if the holder may be alive."""
        row = self._row()
        if row is None or row["holder"] is None:
            return None
        process = parse_process(row["actor"])
        if process is None or not process.is_gone:
            if epoch_ms(row["expires_at"]) > self._now_ms():
                raise ApplyRunning("--tables", self._running(row))
            self._watch(row)
        return row["holder"], row["renewals"]

    def _watch(self, before: dict[str, Any]) -> None:
        """Waits for a whole lease. Raises ApplyRunning if the row changes."""
        began_s, lease_s = self._monotonic_s(), self._lease_ms / 1_000
        while (watched_s := self._monotonic_s() - began_s) < lease_s:
            self._on_wait(round(watched_s), round(lease_s))
            self._sleep(min(_LOOK_S, lease_s - watched_s))
            row = self._row()
            if row != before:
                raise ApplyRunning("--tables", self._running(row))

    def _write(self, over: tuple[str, int] | None) -> str | None:
        """Takes or renews the lease. Returns a sentence if another apply has it. over: the holder and renewals that may
        be replaced.
        """
        began_s, now_ms = self._monotonic_s(), self._now_ms()
        self._merge(now_ms + self._lease_ms, over=over)
        row = self._row()
        if row is None or row["holder"] != self._me:
            return self._running(row)
        self._renewals, self._renewed_s = row["renewals"], began_s
        return None

    def _running(self, row: dict[str, Any] | None) -> str:
        return f"{_under_way(row)}: wait until it ends, or, if it is dead, for {self._lease_ms // 1_000} s"

    def _row(self) -> dict[str, Any] | None:
        rows = self._tables.rows(APPLY_LOCKS, Is("cluster_id", self._cluster_id))
        return rows[0] if rows else None

    def _merge(self, expires_ms: int | None, *, over: tuple[str, int] | None) -> None:
        """Writes the row if it has no holder, or has exactly the holder `over`. If `expires_ms` is None, gives the
        lease back.
        """
        row = _Row(
            self._cluster_id,
            self._taken_ms,
            None if expires_ms is None else self._me,
            str(this_process()),
            self._now_ms() if expires_ms is None else expires_ms,
            self._renewals + 1,
        )
        columns = APPLY_LOCKS.columns
        rows = arrow_rows(columns, APPLY_LOCKS.rows(None, [row]))
        holder, renewals = over if over is not None else (None, None)
        source = rows.append_column("over", pa.array([holder], pa.string()))
        source = source.append_column("over_renewals", pa.array([renewals], pa.int64()))
        updated = [column.name for column in columns if column.name not in ("cluster_id", "sweep_date")]
        clauses = (
            Matched(
                "(t.holder IS NULL OR (t.holder = s.over AND t.renewals = s.over_renewals))",
                {name: f"s.{name}" for name in updated},
            ),
            NotMatched("true", [column.name for column in columns]),
        )
        delta = self._tables.delta
        tried_again(delta, lambda: delta.merge(APPLY_LOCKS, source, "t.cluster_id = s.cluster_id", clauses))


def check_exclusive(tables: Tables) -> None:
    """Checks that one of two concurrent applies to these tables fails. Raises ConfigError.

    A URL is judged by its scheme alone; for others, the locations of the tables' files show the scheme.
    """
    location = tables.delta.location
    of_files = location.in_catalog or location.path is not None
    journal = (RESOLUTIONS, APPLY_LOCKS)
    for found in [scheme_of(location_of(tables, one)) for one in journal] if of_files else [location.scheme]:
        why = tables.delta.why_shared(found)
        if why is not None:
            raise ConfigError("--tables", f"apply --execute refuses {location}: {why}")


def location_of(tables: Tables, table: Table) -> str:
    """The location of a table's files, with the scheme. Raises ConfigError if there is no such table."""
    files = tables.delta.files(table)
    if files is None:
        raise ConfigError("--tables", f"there is no table {table.name} of txnscan at the location")
    return files


@contextlib.contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    """The operating system's lock on the file, which stays. Raises ApplyRunning if another process has it, and
    ConfigError if the file cannot be written or the file system has no locks.
    """
    if fcntl is None:
        yield
        return
    with contextlib.ExitStack() as opened:
        try:
            file = opened.enter_context(_own_file(path))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            # Another writer of the tables may have locked a file of any size.
            who = {"actor": file.read(_ACTOR_MAX) or "unknown"}
            raise ApplyRunning("--tables", f"{_under_way(who)}: wait until it ends") from None
        except OSError as error:
            raise ConfigError("--tables", f"{path} cannot be locked: {system_reason(error)}") from None
        file.truncate(0)
        file.write(str(this_process()))
        file.flush()
        yield


def _own_file(path: Path) -> IO[str]:
    """The file, made if it is missing. Raises OSError if the name stands for another file: a link, a pipe, a device, or
    a file that has a second name, as a writer of the tables could plant it. The lock overwrites its file.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.fdopen(os.open(path, flags, 0o666), "r+", encoding="utf-8", errors="replace")
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        file.close()
        raise OSError(errno.EPERM, "it is no file of its own; remove it")
    return file


def _under_way(row: dict[str, Any] | None) -> str:
    who = printable(row["actor"][:_ACTOR_MAX]) if row is not None else "unknown"
    return f"another apply is running on this cluster ({who})"
