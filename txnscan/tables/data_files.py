"""The limit of one read of the tables: all rows that it returns, and their bytes.

Files have limits of their own (`parquet.py`). They allow many rows and many files, and equal values that share memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

READ_ROWS_MAX = 5_000_000
READ_BYTES_MAX = 80 << 20
# Of 8,192 rows, which a write that reads rows expands at once.
BATCH_BYTES_MAX = 128 << 20
# Of all tables of a location that a process reads through delta-rs: each file takes 75 KB until the read ends.
FILES_MAX = 2_000
# `maintain` makes few files of many.
MAINTAIN_FILES_MAX = 2 * FILES_MAX
_ROWS_TOGETHER = 16
_REMEDY = "remove files that txnscan did not write, or run txnscan maintain with a shorter --keep"


class TooLarge(Exception):
    """A file, or a read of a table, has more rows or bytes than its limit. The message is a clause."""


class FileCount:
    """Counts the files of the tables that a process reads."""

    def __init__(self, files_max: int) -> None:
        self._files_max = files_max
        self._of: dict[str, int] = {}

    def add(self, table: str, files: int) -> None:
        """Notes how many files a table has now. Raises TooLarge if all tables have too many."""
        self._of[table] = files
        if sum(self._of.values()) <= self._files_max:
            return
        # Tables with fewer files can still be read.
        del self._of[table]
        tool = "txnscan maintain" if self._files_max < MAINTAIN_FILES_MAX else "Spark's OPTIMIZE"
        why = f"has {files:,} files, and all tables together may have {self._files_max:,}"
        raise TooLarge(f"{why}; run {tool}, or remove files that txnscan did not write")


class TableReadSize:
    """Counts what a read of a table returns."""

    def __init__(self) -> None:
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Counts a batch. Raises TooLarge."""
        self._rows += batch.num_rows
        self._bytes += sum(map(_bytes, batch.columns))
        if self._rows > READ_ROWS_MAX:
            raise TooLarge(f"a read has more than {READ_ROWS_MAX:,} rows; {_REMEDY}")
        if self._bytes > READ_BYTES_MAX:
            raise TooLarge(f"a read has more than {READ_BYTES_MAX >> 20} MiB; {_REMEDY}")


def check_batch(batch: pa.RecordBatch) -> None:
    """Raises TooLarge for rows that a write would expand."""
    if sum(map(_bytes, batch.columns)) > BATCH_BYTES_MAX:
        raise TooLarge(f"has {batch.num_rows:,} rows of more than {BATCH_BYTES_MAX >> 20} MiB")


class ListValues:
    """The values in lists, of the rows that have most of them. A file may have a limited number in a row group."""

    def __init__(self) -> None:
        self._most = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Notes the rows of a batch."""
        columns = [column for column in batch.columns if column.type.num_fields]
        for begin in range(0, batch.num_rows, _ROWS_TOGETHER):
            rows = [column.slice(begin, _ROWS_TOGETHER) for column in columns]
            values = sum(_in_lists(column, in_list=False) for column in rows)
            self._most = max(self._most, -(-values * _ROWS_TOGETHER // min(_ROWS_TOGETHER, batch.num_rows - begin)))

    def rows_max(self, values_max: int, rows_max: int) -> int:
        """How many rows a row group may have: at most rows_max, and fewer if they had more than so many values."""
        return min(rows_max, max(values_max // self._most * _ROWS_TOGETHER, 1)) if self._most else rows_max


def _in_lists(values: pa.Array, *, in_list: bool) -> int:
    """The values as Parquet counts them: an empty list has one in each column below it."""
    import pyarrow as pa

    type_ = values.type
    if pa.types.is_struct(type_):
        return sum(_in_lists(one, in_list=in_list) for one in values.flatten())
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _in_lists(values.flatten(), in_list=True) + len(values) * _leaves(type_)
    return len(values) if in_list else 0


def _leaves(type_: pa.DataType) -> int:
    return sum(_leaves(type_.field(one).type) for one in range(type_.num_fields)) if type_.num_fields else 1


def _bytes(values: pa.Array) -> int:
    """The bytes of values. Views share the bytes of equal texts, which Python's objects do not."""
    import pyarrow as pa

    type_ = values.type
    if pa.types.is_string_view(type_) or pa.types.is_binary_view(type_):
        views = values.buffers()[1]
        if views is None:
            return 0
        # A view is four integers, and the first is the length. `pyarrow.compute` imports pandas, which takes 50 MB.
        lengths = memoryview(views).cast("i")[4 * values.offset : 4 * (values.offset + len(values)) : 4]
        return 16 * len(values) + sum(lengths)
    if pa.types.is_struct(type_):
        return sum(map(_bytes, values.flatten()))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return 8 * len(values) + _bytes(values.flatten())
    return int(values.nbytes)
