"""One apply at a time on a cluster: a lease in the tables.

It is one row for each cluster, taken with a MERGE. Where commits are exclusive (`exclusive.py`), Delta lets only one of
two at the same time succeed. An apply that ends without giving it back loses it when it runs out, or at once where its
process is seen to be gone: on the same machine, in the same namespace of process ids.

On a local path Delta looks for the commit and then renames to it (Hadoop's `AbstractFileSystem.renameInternal`), so
that of two processes both may succeed. There the operating system's lock on a file in the table's directory is held as
well. The kernel gives it back when the process ends, however it ends. The file stays; VACUUM passes over its name.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from txnscan.clock import wall_clock_ms
from txnscan.config import ConfigError, local_path
from txnscan.resolve.apply import ApplyRunning, JournalLost
from txnscan.store.delta import Is, Matched, NotMatched, arrow_rows, tried_again
from txnscan.store.exclusive import is_local, scheme_of
from txnscan.store.schema import APPLY_LOCKS, RESOLUTIONS, Table, timestamp
from txnscan.store.tables import Tables

try:
    import fcntl
except ImportError:
    # Windows. There is only the lease there.
    fcntl = None  # type: ignore[assignment]

LEASE_MS = 300_000


@dataclass(frozen=True, slots=True)
class Process:
    """A process: its host, its id, and the boot and pid namespace that the id is of, "" where these are not known."""

    host: str
    pid: int
    space: str

    def __str__(self) -> str:
        return f"{self.host} process {self.pid}" + (f" of {self.space}" if self.space else "")

    @property
    def is_gone(self) -> bool:
        """Whether it is known to have ended."""
        here = this_process()
        if not self.space or (self.host, self.space) != (here.host, here.space) or self.pid == here.pid:
            return False
        return not Path(f"/proc/{self.pid}").exists()


def this_process() -> Process:
    """The process that this runs in."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        space = ""
    return Process(platform.node(), os.getpid(), space)


def parse_process(text: str) -> Process | None:
    """The process that `str` gave this text for; None where it is no such text."""
    match = re.fullmatch(r"(\S+) process (\d+)(?: of (\S+))?", text)
    return Process(match[1], int(match[2]), match[3] or "") if match else None


@dataclass(frozen=True, slots=True)
class _Row:
    """The row of the lock."""

    cluster_id: str
    at_ms: int
    holder: str | None
    actor: str
    expires_ms: int


class Lock:
    """The lease of one apply on a cluster. Use it as a context manager: raises ApplyRunning when another one has it."""

    def __init__(
        self, tables: Tables, cluster_id: str, *, now_ms: Callable[[], int] = wall_clock_ms, lease_ms: int = LEASE_MS
    ) -> None:
        self._tables = tables
        self._cluster_id = cluster_id
        self._now_ms = now_ms
        self._lease_ms = lease_ms
        self._me = str(uuid.uuid4())
        self._renewed_ms = 0
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Lock:
        with contextlib.ExitStack() as until_taken:
            location = location_of(self._tables, APPLY_LOCKS)
            if is_local(scheme_of(location)):
                until_taken.enter_context(
                    _file_lock(local_path(location) / f"_{quote(self._cluster_id, safe='')}.lock")
                )
            other = self._take()
            if other is not None:
                raise ApplyRunning("--tables", other)
            self._open = until_taken.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        row = _Row(self._cluster_id, self._now_ms(), None, str(this_process()), self._now_ms())
        # After an error, that error is what counts: a lease that cannot be given back then runs out.
        with self._open, contextlib.suppress(*(() if exc_info[0] is None else (Exception,))):
            self._merge(row, over=self._me)

    def hold(self) -> None:
        """Renews the lease once half of it has run out. Raises JournalLost when somebody else has taken it."""
        if self._now_ms() - self._renewed_ms < self._lease_ms / 2:
            return
        other = self._take()
        if other is not None:
            raise JournalLost(f"this apply was too slow and lost its turn: {other}")

    def _take(self) -> str | None:
        """Takes or renews the lease, or says who has it."""
        before = self._row()
        process = parse_process(before["actor"]) if before is not None else None
        dead = before["holder"] if before is not None and process is not None and process.is_gone else None
        now_ms = self._now_ms()
        row = _Row(self._cluster_id, now_ms, self._me, str(this_process()), now_ms + self._lease_ms)
        self._merge(row, over=dead or self._me)
        after = self._row()
        if after is not None and after["holder"] == self._me:
            self._renewed_ms = now_ms
            return None
        who = after["actor"] if after is not None else "unknown"
        return _running(who, f"wait for it, or, where it is dead, {self._lease_ms // 1000} s")

    def _row(self) -> dict[str, Any] | None:
        rows = self._tables.rows(APPLY_LOCKS, Is("cluster_id", self._cluster_id))
        return rows[0] if rows else None

    def _merge(self, row: _Row, *, over: str) -> None:
        """Writes the row, if nobody has the lock, or this holder has it, or its lease has run out."""
        columns = APPLY_LOCKS.columns
        rows = arrow_rows(columns, APPLY_LOCKS.rows(None, [row]))
        now = pa.array([timestamp(row.at_ms)], pa.timestamp("us", tz="UTC"))
        source = rows.append_column("over", pa.array([over])).append_column("now", now)
        updated = [column.name for column in columns if column.name not in ("cluster_id", "sweep_date")]
        clauses = (
            Matched(
                "(t.holder IS NULL OR t.holder = s.over OR t.expires_at < s.now)",
                {name: f"s.{name}" for name in updated},
            ),
            NotMatched("true", [column.name for column in columns]),
        )
        delta = self._tables.delta
        tried_again(delta, lambda: delta.merge(APPLY_LOCKS, source, "t.cluster_id = s.cluster_id", clauses))


def check_exclusive(tables: Tables, location: str) -> None:
    """Checks that of two applies at once at this location one fails. Raises ConfigError.

    A location with a scheme is judged by that, without a look at it; for others the tables' files show the scheme.
    """
    said = scheme_of(location) if "://" in location else ""
    for found in [said] if said else [scheme_of(location_of(tables, table)) for table in (RESOLUTIONS, APPLY_LOCKS)]:
        why = tables.delta.why_shared(found)
        if why is not None:
            raise ConfigError("--tables", f"apply --execute refuses {location}: {why}")


def location_of(tables: Tables, table: Table) -> str:
    """Where the files of a table are, with the scheme. Raises ConfigError where there is no such table."""
    files = tables.delta.files(table)
    if files is None:
        raise ConfigError("--tables", f"there is no table {table.name} of txnscan at the location")
    return files


@contextlib.contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    """The operating system's lock on the file, which stays there. Raises ApplyRunning, and ConfigError where the file
    cannot be written or the file system has no locks.
    """
    if fcntl is None:
        yield
        return
    with contextlib.ExitStack() as opened:
        try:
            file = opened.enter_context(path.open("a+", encoding="utf-8"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ApplyRunning("--tables", _running(file.read() or "unknown", "wait for it")) from None
        except OSError as error:
            raise ConfigError("--tables", f"{path} cannot be locked: {error.strerror}") from None
        file.truncate(0)
        file.write(str(this_process()))
        file.flush()
        yield


def _running(who: str, wait: str) -> str:
    return f"another apply is under way on this cluster ({who}): {wait}"
