"""Read the checkpoints of streaming queries: local files, object stores through obstore, and all that Spark's Hadoop
reads.

A failure is data, and changes no verdict. Everything has a limit: the bytes of a file, the files of a directory, the
checkpoints, and the time. A read that hangs, such as on a dead mount, is left in its thread.
"""

from __future__ import annotations

import os
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from txnscan.config import is_local, local_path, printable, scheme_of, shown_location, without_secrets
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.security.safe_files import read_limited
from txnscan.kafka.topology import Key
from txnscan.waiting.checkpoint import (
    CheckpointFailed,
    Positions,
    QueryPosition,
    parse_batch,
    parse_stream_id,
    unusable,
)

if TYPE_CHECKING:
    from obstore.store import ClientConfig

# A file of `offsets/` has about 20 bytes for each partition.
FILE_BYTES_MAX = 1 << 20
# Spark keeps the last 100 batches (`spark.sql.streaming.minBatchesToRetain`), and may have a checksum beside each.
FILES_MAX = 10_000
READ_S_MAX = 60.0
_THREADS = 8
_BATCH = re.compile(r"[0-9]{1,18}")
_SAID_MAX = 300
_NEEDS = "object stores need the library obstore; install txnscan[s3], or sweep with a Spark session"


class Files(Protocol):
    """The files of a checkpoint. Names are relative to it. Any method may raise any exception."""

    def names(self, directory: str) -> Iterable[str]:
        """The names of the files in a directory, read as they are taken."""
        ...

    def read(self, name: str) -> bytes:
        """The contents of a file, at most FILE_BYTES_MAX and one byte more."""
        ...

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        ...


# Opens a checkpoint by its path, as the user gave it.
OpenFiles = Callable[[str], Files]


class LocalFiles:
    """A checkpoint on a disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self, directory: str) -> Iterator[str]:
        """See Files."""
        with os.scandir(self._path / directory) as entries:
            for entry in entries:
                yield entry.name

    def read(self, name: str) -> bytes:
        """See Files."""
        return read_limited(self._path / name, FILE_BYTES_MAX)

    def has(self, name: str) -> bool:
        """See Files."""
        return (self._path / name).is_file()


class ObjectFiles:
    """A checkpoint in an object store. store: of obstore."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def names(self, directory: str) -> Iterator[str]:
        """See Files."""
        for chunk in self._store.list(prefix=directory):
            for entry in chunk:
                yield entry["path"].rsplit("/", 1)[-1]

    def read(self, name: str) -> bytes:
        """See Files."""
        size_bytes = self._store.head(name)["size"]
        if not 0 < size_bytes <= FILE_BYTES_MAX:
            # A range must not be empty.
            return bytes(min(size_bytes, FILE_BYTES_MAX + 1))
        return bytes(self._store.get_range(name, start=0, end=size_bytes))

    def has(self, name: str) -> bool:
        """See Files."""
        try:
            self._store.head(name)
        except FileNotFoundError:
            return False
        return True


def open_files(path: str) -> Files:
    """The files of a checkpoint, without Spark. Raises CheckpointFailed if the library for object stores is missing."""
    if is_local(scheme_of(path)):
        return LocalFiles(local_path(path))
    if find_spec("obstore") is None:
        raise CheckpointFailed(Failure(_NEEDS, FailureCode.FILE_UNREADABLE))
    from obstore.store import from_url

    # s3n is a name of Hadoop. The client has its own limits, because a thread that waits cannot be ended.
    url = re.sub(r"^s3n:", "s3:", path)
    plain = os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true"
    client: ClientConfig = {"timeout": "20s", "connect_timeout": "5s", "allow_http": plain}
    return ObjectFiles(from_url(url, config=None, client_options=client, retry_config={"max_retries": 2}))


def read_positions(
    paths: Sequence[str],
    wanted: Collection[Key] | None,
    *,
    open_files: OpenFiles = open_files,
    left_s: float = READ_S_MAX,
) -> Positions:
    """The streaming queries of these checkpoints. wanted: the partitions whose offsets are kept, None for all. left_s:
    the rest of the sweep's time.
    """
    results: queue.SimpleQueue[tuple[int, QueryPosition | Failure]] = queue.SimpleQueue()
    waiting = deque(enumerate(paths))

    def work() -> None:
        while True:
            try:
                number, path = waiting.popleft()
            except IndexError:
                return
            results.put((number, read_position(path, wanted, open_files)))

    for _ in range(min(_THREADS, len(paths))):
        threading.Thread(target=work, daemon=True, name="txnscan-checkpoint").start()
    ends_s = time.monotonic() + min(left_s, READ_S_MAX)
    found: dict[int, QueryPosition | Failure] = {}
    while len(found) < len(paths):
        try:
            number, one = results.get(timeout=max(ends_s - time.monotonic(), 0))
        except queue.Empty:
            break
        found[number] = one
    waiting.clear()
    late = Failure("it was not read in time", FailureCode.TIME_IS_UP)
    every = [found.get(number, late.within(shown_location(path))) for number, path in enumerate(paths)]
    return Positions(
        tuple(one for one in every if isinstance(one, QueryPosition)),
        tuple(one for one in every if isinstance(one, Failure)),
    )


def read_position(
    path: str, wanted: Collection[Key] | None = None, open_files: OpenFiles = open_files
) -> QueryPosition | Failure:
    """The streaming query of a checkpoint, or why it is not known. wanted: as for `parse_batch`."""
    shown = shown_location(path)
    try:
        return _read(open_files(path), shown, wanted)
    except CheckpointFailed as failed:
        return failed.failure.within(shown)
    # Each kind of storage fails in its own ways.
    except Exception as error:
        return Failure(_said(error), FailureCode.FILE_UNREADABLE).within(shown)


def _read(files: Files, shown: str, wanted: Collection[Key] | None) -> QueryPosition:
    stream_id = parse_stream_id(_text(files, "metadata"))
    names = list(islice(files.names("offsets"), FILES_MAX + 1))
    if len(names) > FILES_MAX:
        raise unusable(f"offsets has more than {FILES_MAX:,} files")
    batch_id = max((int(name) for name in names if _BATCH.fullmatch(name)), default=None)
    if batch_id is None:
        raise unusable("offsets has no batch yet")
    batch = parse_batch(_text(files, f"offsets/{batch_id}"), f"offsets/{batch_id}", wanted)
    return QueryPosition(shown, stream_id, batch_id, files.has(f"commits/{batch_id}"), batch)


def _text(files: Files, name: str) -> str:
    data = files.read(name)
    if len(data) > FILE_BYTES_MAX:
        raise unusable(f"{name} is larger than {FILE_BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise unusable(f"{name} is damaged: it is no text") from None


def _said(error: Exception) -> str:
    """An error on one line, without secrets. Errors of stores have URLs."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
    return printable(" ".join(without_secrets(said).split())[:_SAID_MAX])
