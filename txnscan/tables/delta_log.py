"""Examines the tables of a local path before Spark or delta-rs opens them: no file of the tables may make this user
run, read, write or delete something elsewhere.

Delta has many files that may give a table's metadata: commits, compacted commits, checkpoints of two versions, their
sidecars, and checksums, which Spark prefers to the commits. A reader that chose among them by rules of its own would
look at another file than Spark does. So *every* file in the log counts, and one that cannot be read refuses the table.
Nothing is evaluated here: JSON and Parquet are read as data, in pieces, up to limits.

A writer of the tables can still change them between this look and the use. docs/trust.md has what remains of that.

Source: Delta's PROTOCOL.md; `FileNames`, `Checksum` and `Checkpoints` of Delta 4.4.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import unquote

from txnscan.config import ConfigError, printable
from txnscan.errors import system_reason
from txnscan.tables import parquet, replay
from txnscan.tables.data_files import TooLarge
from txnscan.tables.deletion_vectors import ROWS_MAX, rows_of
from txnscan.tables.metadata import (
    REMEDY,
    TableRefused,
    UnreadableLog,
    has_class,
    named,
    parsed,
    why_metadata_refused,
    why_protocol_refused,
)
from txnscan.tables.parquet import NotParquet
from txnscan.tables.replay import Room
from txnscan.tables.schema import Table
from txnscan.tables.thrift import Malformed

LOG = "_delta_log"
_HINT = "_last_checkpoint"
# A commit has a line for each file; its metadata is the longest line, below 100 KB in tables of txnscan.
_LINE_BYTES_MAX = 2 << 20
_FILE_BYTES_MAX = 256 << 20
# A checkpoint has a row for each file of the table.
_CHECKPOINT_ROWS_MAX = 500_000
_BATCH_ROWS = 1_000
# There is a look whether there is room after so many more.
_NOTED_BYTES = 1 << 20
_ENTRIES_MAX = 2_000_000
_DEPTH_MAX = 8
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# Parsers of URLs drop control characters and outer spaces before they resolve a path: `.\t./x` is `../x`, and ` /x` is
# absolute. A path ends before `?` and `#`.
_DROPPED = re.compile(r"[\x00-\x1f\x7f?#]|^ | $")
# The name of a deletion vector: a random folder, if any, and an encoded UUID.
_VECTOR = re.compile(r"[A-Za-z0-9]{0,32}[0-9A-Za-z.:+=^!/*?&<>()\[\]{}@%$#-]{20}")
_COMMIT = re.compile(r"[0-9]{20}\.json")
_PLAIN_BYTES_MAX = 1 << 20
# Words of actions that need a look, and spellings that could hide them: escaped letters, and UTF-16.
_NEEDS_A_LOOK = (b"metadata", b"protocol", b"sidecar", b"deletionvector", b"\\u", b"\0", b"..")
_PLAIN_PATH = re.compile(rb'"path":"[A-Za-z0-9_=-][A-Za-z0-9_=./-]*"')
_OF_FILES = ("add", "remove", "cdc", "sidecar")
_ACTIONS = (*_OF_FILES, "metaData", "protocol")
_FOLDED = {name.casefold(): name for name in _ACTIONS}


# Its path, inode, size, and the times of its last changes.
_File = tuple[str, int, int, int, int]
_Weigh = Callable[[int], None]
# No columns were examined.
_NEVER = frozenset(("",))


class _Examined(NamedTuple):
    """What a file of the log has: the rows of deletion vectors, by data file; sidecars; and the memory for its replay,
    if it is replayed. work_bytes: see `replay.EXAMINED_BYTES`.
    """

    rows: dict[str, int]
    sidecars: frozenset[str]
    replay_bytes: int | None
    work_bytes: int

    @property
    def taken_bytes(self) -> int:
        return self.work_bytes + (self.replay_bytes or 0)


class Examination:
    """Examines the table in a folder, each file once: files of the log are never changed, and a changed one is read
    again. room: for the logs of all tables of the location.
    """

    def __init__(self, table: Table, folder: Path, room: Room | None = None) -> None:
        self._table = table
        self._folder = folder
        self._room = room or Room(None)
        self._examined: dict[_File, _Examined] = {}
        # By data file: the columns that were not examined.
        self._examined_data: dict[_File, frozenset[str]] = {}

    def check(self, *, whole: bool = True) -> None:
        """Raises TableRefused. whole: the names of data files count, too: they may be links. They are many."""
        if not _is_folder(self._table, self._folder):
            return
        root = self._folder if whole else self._folder / LOG
        if not _is_folder(self._table, root):
            return
        log = f"{self._folder / LOG}{os.sep}"
        self._check_log(log, [path for path in _files(self._table, root) if _is_of_log(path, log)])

    def _check_log(self, log: str, paths: list[str]) -> None:
        names = {path: path[len(log) :] for path in paths}
        newest = replay.newest_checkpoint(names.values())
        some = max((_name(path)[:20] for path in paths if ".checkpoint." in path), default="")
        taken = noted = len(paths) * replay.NAME_BYTES
        self._room.take(self._table, taken)
        found: dict[_File, _Examined] = {}
        sidecars: set[str] = set()
        # Checkpoints name sidecars, which are in a folder.
        for path, name in sorted(names.items(), key=lambda one: os.sep in one[1]):
            last = _name(path)
            is_replayed = replay.is_replayed(name, newest) if last == name else last in sidecars
            one = self._examined_file(path, taken, is_old=last[:20] <= some, is_replayed=is_replayed)
            if one is None:
                continue
            which, examined = one
            found[which] = examined
            taken += examined.taken_bytes
            if taken > noted + _NOTED_BYTES:
                noted = taken
                self._room.take(self._table, taken)
            if is_replayed:
                sidecars |= examined.sidecars
        self._room.take(self._table, taken)
        self._examined = found

    def check_data(self, paths: Collection[str] | None = None, unused: Collection[str] = ()) -> None:
        """Checks that no data file exhausts its readers, at up to four milliseconds for each file. Each is examined
        once. Raises TableRefused.

        paths: those that delta-rs reads, in the table's folder, after `check`. None for all that are there, for Spark.
        unused: columns that are not read.
        """
        if paths is None:
            log = f"{self._folder / LOG}{os.sep}"
            for found in _files(self._table, self._folder):
                if not found.startswith(log):
                    self._check_data_file(found, frozenset(unused), is_listed=False)
            return
        rows = {path: rows for one in tuple(self._examined.values()) for path, rows in one.rows.items()}
        if sum(rows.get(path, 0) for path in paths) > ROWS_MAX:
            raise TableRefused(self._table, f"its deletion vectors have more than {ROWS_MAX:,} rows; {REMEDY}")
        for path in paths:
            self._check_data_file(str(self._folder / path), frozenset(unused), is_listed=True)

    def _examined_file(
        self, path: str, taken: int, *, is_old: bool, is_replayed: bool
    ) -> tuple[_File, _Examined] | None:
        """Examines a file, unless it is one that was. None if there is none any more. Raises TableRefused.

        taken: the memory for the files before it. is_old: a checkpoint has its actions. A log has thousands of such
        files, and most need no parser.
        """
        try:
            which = _file(path, os.lstat(path))
            seen = self._examined.get(which)
            if seen is not None and (not is_replayed or seen.replay_bytes is not None):
                # A commit is replayed until there is a checkpoint.
                return which, seen if is_replayed else seen._replace(replay_bytes=None)
            file = _opened(path)
        except FileNotFoundError:
            # Removed by Delta's clean-up in the meantime.
            return None
        except OSError:
            raise self._damaged(path) from None
        with file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise TableRefused(self._table, f"{_shown(path)} is no regular file; remove it")
            if found.st_size > _FILE_BYTES_MAX:
                raise TableRefused(self._table, f"{_shown(path)} has more than {_FILE_BYTES_MAX >> 20} MiB; {REMEDY}")
            which, work = _file(path, found), found.st_size // replay.EXAMINED_SHARE
            if is_old and not is_replayed and _COMMIT.fullmatch(_name(path)) and _is_plain(file):
                return which, _Examined({}, frozenset(), None, work)
            try:
                return which, self._read(path, file, taken, work, is_replayed=is_replayed)
            except TooLarge as error:
                raise TableRefused(self._table, f"{_shown(path)} {error}; {REMEDY}") from None
            except TableRefused:
                raise
            except (AttributeError, LookupError, TypeError, ValueError):
                raise self._damaged(path) from None

    def _read(self, path: str, file: IO[bytes], taken: int, work: int, *, is_replayed: bool) -> _Examined:
        """Reads the actions of a file, as long as there is room."""
        rows: dict[str, int] = {}
        sidecars: set[str] = set()
        replayed = replay.COMMIT_BYTES if is_replayed else 0
        noted = 0

        def weigh(memory: int) -> None:
            nonlocal replayed, noted
            replayed += memory
            if work + replayed > noted + _NOTED_BYTES:
                noted = work + replayed
                self._room.take(self._table, taken + noted)

        for action in _actions(path, file, weigh if is_replayed and self._room.bytes_max is not None else None):
            work += replay.EXAMINED_BYTES
            weigh(0)
            known = _known(action)
            self._check_action(path, known, rows)
            if (sidecar := known.get("sidecar")) is not None:
                sidecars.add(_name(unquote(named(sidecar, "path"))))
        return _Examined(rows, frozenset(sidecars), replayed if is_replayed else None, work)

    def _check_data_file(self, path: str, unused: frozenset[str], *, is_listed: bool) -> None:
        """is_listed: the table has this file, and delta-rs reads it. Otherwise it is any file that lies there, and
        Spark may read it.
        """
        try:
            with _opened(path) as file:
                found = os.fstat(file.fileno())
                which = _file(path, found)
                if not stat.S_ISREG(found.st_mode) or self._examined_data.get(which, _NEVER) <= unused:
                    return
                parquet.check(file, found.st_size, unused, groups=is_listed)
        except OSError:
            # Readers name it, if the table still has it.
            return
        except NotParquet:
            if is_listed:
                raise self._damaged(path) from None
            # No reader opens it.
            return
        except (TooLarge, Malformed) as error:
            raise TableRefused(self._table, f"{_shown(path)} {error}; {REMEDY}") from None
        self._examined_data[which] = unused

    def _damaged(self, path: str) -> ConfigError:
        why = f"the table {self._table.name} cannot be read: the file {_shown(path)} is damaged; {REMEDY}"
        return ConfigError("--tables", why)

    def _check_action(self, path: str, known: Mapping[str, Any], rows: dict[str, int]) -> None:
        """rows: gets the number of rows of deletion vectors, by data file."""
        for name, found in known.items():
            if name == "metaData":
                why = why_metadata_refused(self._table, found)
            elif name == "protocol":
                why = why_protocol_refused(found)
            else:
                why = why_outside(found)
            if name == "sidecar" and why is None:
                why = _why_not_examined(found["path"])
            if why is not None:
                raise TableRefused(self._table, f"{why} ({_shown(path)}); {REMEDY}")
            if name == "add" and (vector := named(found, "deletionVector")) is not None:
                file = unquote(found["path"])
                rows[file] = max(rows.get(file, 0), self._rows_of(vector))

    def _rows_of(self, vector: Mapping[str, Any]) -> int:
        try:
            return rows_of(vector, lambda name: _opened(str(self._folder / name)))
        except OSError:
            # Removed with the data file, and no reader needs it; or readers name it.
            return 0


def _known(action: Mapping[str, Any]) -> dict[str, Any]:
    """What counts in a line or a row of the log, by the names of `_ACTIONS`. Raises UnreadableLog for another
    spelling.
    """
    folded = (_FOLDED.get(key.casefold()) for key in action)
    found = {name: named(action, name) for name in folded if name is not None}
    return {name: value for name, value in found.items() if value is not None}


def _is_plain(file: IO[bytes]) -> bool:
    """Whether a commit has nothing but actions about files of the table, by its bytes alone. Leaves the file at its
    beginning.
    """
    data = file.read(_PLAIN_BYTES_MAX + 1)
    file.seek(0)
    lower = data.lower()
    if len(data) > _PLAIN_BYTES_MAX or any(word in lower for word in _NEEDS_A_LOOK):
        return False
    return len(_PLAIN_PATH.findall(data)) == lower.count(b"path")


def why_outside(action: Mapping[str, Any]) -> str | None:
    """Why an action about a file may be about a file outside its table, in a clause."""
    path = named(action, "path")
    if not isinstance(path, str):
        raise UnreadableLog("names no file")
    once = unquote(path)
    if _DROPPED.search(path) or not all(map(_is_inside, (path, once, unquote(once)))):
        return f"the file {printable(path[:100])} is not in the table's folder"
    vector = named(action, "deletionVector")
    if vector is None:
        return None
    kind, where = named(vector, "storageType"), named(vector, "pathOrInlineDv")
    if kind == "i" or (kind == "u" and isinstance(where, str) and _VECTOR.fullmatch(where)):
        return None
    return "a deletion vector is not in the table's folder"


def _is_inside(path: str) -> bool:
    parts = re.split(r"[/\\]", path)
    return bool(path) and parts[0] != "" and ".." not in parts and "\0" not in path and not _SCHEME.match(path)


def _why_not_examined(sidecar: str) -> str | None:
    """Why a reader may open a sidecar that the examination of the log passes over, in a clause."""
    name = _name(unquote(sidecar))
    if _is_of_log(name, "") and not name.casefold().endswith(".crc"):
        return None
    return f"the sidecar {printable(sidecar[:100])} has another name than Delta gives"


def _is_folder(table: Table, path: Path) -> bool:
    """Whether there is a folder. Raises TableRefused for anything else of that name."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise TableRefused(table, f"{_shown(path)} cannot be read: {system_reason(error)}") from None
    if not stat.S_ISDIR(mode):
        raise TableRefused(table, f"{_shown(path)} is a link, or no folder; remove it, or name another location")
    return True


def _files(table: Table, root: Path) -> Iterator[str]:
    """The files in a folder and below. Raises TableRefused for links, pipes and devices, and for too many entries."""
    waiting, entries = [(str(root), 0)], 0
    while waiting:
        folder, depth = waiting.pop()
        try:
            found = os.scandir(folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise TableRefused(table, f"{_shown(folder)} cannot be read: {system_reason(error)}") from None
        with found:
            for entry in found:
                entries += 1
                if entries > _ENTRIES_MAX or depth > _DEPTH_MAX:
                    raise TableRefused(table, f"{_shown(folder)} has too many files or folders; {REMEDY}")
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, depth + 1))
                elif entry.is_file(follow_symlinks=False):
                    yield entry.path
                elif os.path.lexists(entry.path):
                    raise TableRefused(table, f"{_shown(entry.path)} is a link, or no regular file; remove it")


def _name(path: str) -> str:
    """The name of a file. Logs have thousands, and `pathlib` takes ten times as long."""
    return path.rpartition(os.sep)[2]


def _is_of_log(path: str, log: str) -> bool:
    """Whether Delta may read it as a part of the log, a folder. Hidden files are temporary, or checksums of Hadoop."""
    name = _name(path)
    if not path.startswith(log) or name.startswith("."):
        return False
    return name == _HINT or name.casefold().endswith((".json", ".parquet", ".crc"))


def _file(path: str, found: os.stat_result) -> _File:
    return path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _opened(path: str) -> IO[bytes]:
    """The file, if it is no link. A pipe does not block."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def _actions(path: str, file: IO[bytes], weigh: _Weigh | None) -> Iterator[Mapping[str, Any]]:
    """The actions of a file of the log. Raises UnreadableLog.

    weigh: called with the memory for the replay of each part of the file, before its actions.
    """
    name = _name(path).casefold()
    if name == _HINT:
        yield from _of_hint(file)
    elif name.endswith(".crc"):
        yield from _of_checksum(file)
    elif name.endswith(".parquet"):
        yield from _of_checkpoint(file, weigh)
    else:
        yield from _of_lines(file, weigh)


def _of_lines(file: IO[bytes], weigh: _Weigh | None) -> Iterator[Mapping[str, Any]]:
    empty = True
    while line := file.readline(_LINE_BYTES_MAX + 1):
        if len(line) > _LINE_BYTES_MAX:
            raise UnreadableLog("has a line that is too long")
        if not line.strip():
            continue
        empty = False
        if weigh is not None:
            weigh(replay.of_line(len(line)))
        try:
            action = parsed(line.decode("utf-8"))
        except UnicodeDecodeError:
            raise UnreadableLog("is not in UTF-8") from None
        if not isinstance(action, dict):
            raise UnreadableLog("has a line that is no action")
        yield action
    if empty:
        raise UnreadableLog("is empty")


def _first_value(file: IO[bytes]) -> dict[str, Any]:
    """The first JSON value. Delta ignores the rest, and files in which there is none: then this is empty."""
    text = file.read(_LINE_BYTES_MAX + 1)
    if len(text) > _LINE_BYTES_MAX:
        raise UnreadableLog("is too long")
    # As Java reads text: bytes that are no UTF-8 are no reason to ignore a file.
    said = text.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    try:
        _, end = json.JSONDecoder(strict=False, parse_int=str).raw_decode(said)
    except ValueError:
        return {}
    except RecursionError:
        raise UnreadableLog("is too deep") from None
    found = parsed(said[:end])
    return found if isinstance(found, dict) else {}


def _of_hint(file: IO[bytes]) -> Iterator[Mapping[str, Any]]:
    """The files that the hint at the last checkpoint names. It has a schema of its own."""
    hint = _first_value(file)
    if has_class(hint):
        raise UnreadableLog("names a class")
    checkpoint = named(hint, "v2Checkpoint") or {}
    for one in (*([checkpoint] if checkpoint else ()), *(named(checkpoint, "sidecarFiles") or ())):
        yield {"sidecar": one}


def _of_checksum(file: IO[bytes]) -> Iterator[Mapping[str, Any]]:
    """What Spark takes from a checksum in place of the commits."""
    found = _first_value(file)
    yield {"metaData": named(found, "metadata"), "protocol": named(found, "protocol")}
    yield from ({"add": one} for one in named(found, "allFiles") or ())


def _of_checkpoint(file: IO[bytes], weigh: _Weigh | None) -> Iterator[Mapping[str, Any]]:
    # Parquet takes a moment to import, and most logs have no checkpoint yet.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        for schema_of_spark in parquet.check(file, os.fstat(file.fileno()).st_size):
            if has_class(parsed(schema_of_spark.decode("utf-8"))):
                raise UnreadableLog("names a class")
        schema = pq.read_schema(file)
        columns = dict.fromkeys(schema.names, True)
        if len(columns) != len(schema.names):
            raise UnreadableLog("has a column twice")
        for name in _ACTIONS:
            named(columns, name)
        chosen = [*chain.from_iterable(_columns(schema, name) for name in _ACTIONS if name in columns)]
        # A path that is repeated a billion times stays one path.
        checkpoint = pq.ParquetFile(file, read_dictionary=[name for name in chosen if name.endswith(".path")])
        if checkpoint.metadata.num_rows > _CHECKPOINT_ROWS_MAX:
            raise UnreadableLog("has too many rows")
        if weigh is not None:
            for memory in replay.of_checkpoint(file, _BATCH_ROWS):
                weigh(memory)
        for batch in checkpoint.iter_batches(batch_size=_BATCH_ROWS, columns=chosen):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError, ValueError):
        raise UnreadableLog("is no checkpoint") from None


def _columns(schema: Any, action: str) -> list[str]:
    """The columns of an action that count here. Those of files have many others."""
    if action not in _OF_FILES:
        return [action]
    fields = {field.name: True for field in schema.field(action).type}
    named(fields, "path")
    named(fields, "deletionVector")
    return [f"{action}.{name}" for name in ("path", "deletionVector") if name in fields]


def _shown(path: Path | str) -> str:
    return printable(str(path))
