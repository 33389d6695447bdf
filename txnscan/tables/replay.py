"""The memory that delta-rs takes for the log of a table, estimated from above, and its limit.

delta-rs replays the newest checkpoint and all later commits, and keeps every file of the table. As measured with
delta-rs 1.6: two kilobytes for a file, 170 KB for a commit, whatever is in it, and up to seven times the length of the
texts. A checkpoint of 20 KB can have a text of 16 MiB in each of 500,000 rows, so the decoded length counts.

Source: Delta's PROTOCOL.md, "Action Reconciliation" and "Checkpoints".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from threading import Lock
from typing import IO, TYPE_CHECKING

from txnscan.tables.metadata import REMEDY, TableRefused
from txnscan.tables.schema import Table
from txnscan.tables.thrift import Malformed

if TYPE_CHECKING:
    import pyarrow as pa

# Of all tables of a location. A process that has opened tables without rows has 130 MB.
REPLAY_BYTES_MAX = 128 << 20
# `maintain` makes few files of many, so it opens tables that nothing else opens any more.
MAINTAIN_BYTES_MAX = 3 * REPLAY_BYTES_MAX
# For the name of a file of the log, also of one that is not replayed.
NAME_BYTES = 1_500
COMMIT_BYTES = 200_000
_FILE_BYTES = 2_000
_ACTION_BYTES = 1_000
_ELEMENT_BYTES = 64
_TEXT_BYTES_FEW = 2_048
_TIMES, _TIMES_IF_LONG = 3, 8
# Files that are not replayed are examined, too, which takes time: as much as for this memory, for a line or a row, and
# for a byte.
EXAMINED_BYTES = 60
EXAMINED_SHARE = 64
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint(?:\.([0-9]{10})\.([0-9]{10}))?\.parquet")
_VERSION_MAX = f"{2**63 - 1:020}"
_VERSION = re.compile(r"[0-9]{20}\.")


class Room:
    """The memory for the logs of the tables of a location, which may all be open at the same time. bytes_max: None for
    any number.
    """

    def __init__(self, bytes_max: int | None) -> None:
        self.bytes_max = bytes_max
        self._taken: dict[str, int] = {}
        self._lock = Lock()

    @property
    def taken_bytes(self) -> int:
        """The memory for all logs that were examined."""
        with self._lock:
            return sum(self._taken.values())

    def take(self, table: Table, replay_bytes: int) -> None:
        """Notes what the log of a table takes now. Raises TableRefused if all logs together take too much."""
        if self.bytes_max is None:
            return
        with self._lock:
            self._taken[table.name] = replay_bytes
            if sum(self._taken.values()) <= self.bytes_max:
                return
            # Tables with smaller logs still open.
            del self._taken[table.name]
        maintain = "run txnscan maintain, " if self.bytes_max < MAINTAIN_BYTES_MAX else ""
        why = "its log is too large to be opened, as that of a table with very many files is"
        raise TableRefused(table, f"{why}; {maintain}{REMEDY}")


def newest_checkpoint(names: Iterable[str]) -> str:
    """The version of the newest whole checkpoint among these files of a log, in the form in which names begin. Empty
    if there is none. Readers pass over parts such as 2 of 1, and over versions above 64 bits.
    """
    parts: dict[tuple[str, str], set[str]] = {}
    for name in names:
        if found := _CHECKPOINT.fullmatch(name):
            version, part, of = (one or "1" for one in found.groups())
            if version <= _VERSION_MAX:
                parts.setdefault((version, of), set()).add(part)
    whole = (version for (version, of), some in parts.items() if _are_whole(some, int(of)))
    return max(whole, default="")


def _are_whole(parts: set[str], of: int) -> bool:
    return len(parts) == of and all(1 <= int(part) <= of for part in parts)


def is_replayed(name: str, checkpoint: str) -> bool:
    """Whether a reader with this newest checkpoint may take files of the table from a file of the log, directly in it.
    Checksums have none for delta-rs, nor has the hint.
    """
    if not name.endswith((".json", ".parquet")) or not _VERSION.match(name):
        return False
    # A compacted commit names its first and its last version.
    last = name[21:41] if name.endswith(".compacted.json") else name[:20]
    return last > checkpoint or (last == checkpoint and ".checkpoint." in name)


def of_text(length: int) -> int:
    """The memory for a text of this length."""
    return length * (_TIMES if length <= _TEXT_BYTES_FEW else _TIMES_IF_LONG)


def of_line(length: int) -> int:
    """The memory for a line of a commit. Most lines add a file, and the others take time."""
    return of_text(length) + _FILE_BYTES


def of_checkpoint(file: IO[bytes], batch_rows: int) -> Iterator[int]:
    """The memory for the rows of a checkpoint, in parts. All columns count: a write makes the next checkpoint of them.

    Raises Malformed, and as Arrow does.
    """
    import pyarrow.parquet as pq

    schema = pq.ParquetFile(file).schema
    columns = map(schema.column, range(len(schema)))
    # A text that is repeated a billion times stays one text.
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    checkpoint = pq.ParquetFile(file, read_dictionary=texts, buffer_size=1 << 20)
    for rows in checkpoint.iter_batches(batch_size=batch_rows):
        others = rows.column("add").null_count if "add" in rows.schema.names else rows.num_rows
        actions = (rows.num_rows - others) * _FILE_BYTES + others * _ACTION_BYTES
        yield actions + sum(map(_of_values, rows.columns))


def _of_values(values: pa.Array) -> int:
    """The memory for the texts in values, and for the elements of lists."""
    import pyarrow as pa

    type_ = values.type
    if pa.types.is_dictionary(type_):
        lengths = [of_text(length) for length in _lengths(values.dictionary)]
        return sum(lengths[one] for one in values.indices.to_pylist() if one is not None)
    if pa.types.is_struct(type_):
        return sum(map(_of_values, values.flatten()))
    if pa.types.is_map(type_) or pa.types.is_list(type_) or pa.types.is_large_list(type_):
        # The offsets are those of the whole array, of which this may be a part.
        first, last = int(values.offsets[0].as_py()), int(values.offsets[-1].as_py())
        parts = (values.keys, values.items) if pa.types.is_map(type_) else (values.values,)
        elements = (one.slice(first, last - first) for one in parts)
        return (last - first) * _ELEMENT_BYTES + sum(map(_of_values, elements))
    if pa.types.is_primitive(type_) or pa.types.is_decimal(type_) or pa.types.is_null(type_):
        return 0
    raise Malformed("has a type that Delta's writers do not use")


def _lengths(texts: pa.Array) -> list[int]:
    """The length of each text. `pyarrow.compute` imports pandas, which takes 50 MB."""
    import pyarrow as pa

    if texts.type not in (pa.string(), pa.binary()):
        raise Malformed("has a type that Delta's writers do not use")
    offsets = texts.buffers()[1]
    if offsets is None:
        return [0] * len(texts)
    ends = memoryview(offsets).cast("i")[texts.offset : texts.offset + len(texts) + 1]
    return [end - begin for begin, end in pairwise(ends)]
