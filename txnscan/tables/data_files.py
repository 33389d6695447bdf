"""The limit of one read of the tables: all rows that it returns, and their bytes.

Files have limits of their own (`parquet.py`). They allow many rows and many files, and equal values that share memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

READ_ROWS_MAX = 5_000_000
READ_BYTES_MAX = 80 << 20
# Of the rows that a write which reads rows expands at once.
BATCH_BYTES_MAX = 128 << 20
_BATCH_ROWS = 8_192
# Of all tables of a location that a process reads through delta-rs: each file takes 75 KB until the read ends.
FILES_MAX = 2_000
# `maintain` makes few files of many.
MAINTAIN_FILES_MAX = 2 * FILES_MAX
_ROWS_TOGETHER = 16
_ITEMS_TOGETHER = 1_024
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
    _check(batch.num_rows, sum(map(_bytes, batch.columns)))


def _check(rows: int, size_bytes: int) -> None:
    if size_bytes > BATCH_BYTES_MAX:
        raise TooLarge(f"has {rows:,} rows of more than {BATCH_BYTES_MAX >> 20} MiB")


class ListValues:
    """The values in lists, of the rows that have most of them. A file may have a limited number in a row group."""

    def __init__(self) -> None:
        self._most = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Notes the rows of a batch."""
        rows = _Rows(batch.num_rows)
        for column in batch.columns:
            rows.add(0, column)
        self._most = max(self._most, rows.list_values_max())

    def add_file(self, path: str) -> None:
        """Notes the rows of a Parquet file. Raises TooLarge for rows that a write would expand.

        Equal texts share their bytes in a dictionary. pyarrow has that four times, so one column is read at once.
        """
        import pyarrow.parquet as pq

        footer = pq.read_metadata(path)
        # pyarrow refuses lists with two dictionaries, and each row group has its own.
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            leaves = map(group.column, range(footer.num_columns))
            texts = [leaf.path_in_schema for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
            rows = _Rows(group.num_rows)
            with pq.ParquetFile(path, metadata=footer, read_dictionary=texts) as file:
                for name in file.schema_arrow.names:
                    first = 0
                    for batch in file.iter_batches(_BATCH_ROWS, row_groups=[number], columns=[name]):
                        rows.add(first, batch.column(0))
                        rows.check(first)
                        first += batch.num_rows
            self._most = max(self._most, rows.list_values_max())

    def rows_max(self, values_max: int, rows_max: int) -> int:
        """How many rows a row group may have: at most rows_max, and fewer if they had more than so many values."""
        return min(rows_max, max(values_max // self._most * _ROWS_TOGETHER, 1)) if self._most else rows_max


class _Rows:
    """The bytes of rows, as many together as a write has in memory, and their values in lists."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._bytes: Counter[int] = Counter()
        self._values: Counter[int] = Counter()

    def add(self, first: int, column: pa.Array) -> None:
        """Adds values of one column, from this row on."""
        self._bytes[first // _BATCH_ROWS] += _bytes(column)
        if column.type.num_fields:
            for begin in range(0, len(column), _ROWS_TOGETHER):
                values = _in_lists(column.slice(begin, _ROWS_TOGETHER), in_list=False)
                self._values[(first + begin) // _ROWS_TOGETHER] += values

    def check(self, first: int) -> None:
        """Raises TooLarge if the rows that a write has together with this one are too large."""
        batch = first // _BATCH_ROWS
        _check(min(_BATCH_ROWS, self._rows - batch * _BATCH_ROWS), self._bytes[batch])

    def list_values_max(self) -> int:
        """The most values in lists that so many rows have."""
        return max(
            (
                -(-values * _ROWS_TOGETHER // min(_ROWS_TOGETHER, self._rows - number * _ROWS_TOGETHER))
                for number, values in self._values.items()
            ),
            default=0,
        )


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
    """The bytes of values. Views and dictionaries share the bytes of equal texts, which Python's objects do not."""
    import pyarrow as pa

    type_ = values.type
    if pa.types.is_dictionary(type_):
        texts = values.dictionary
        ends = memoryview(texts.buffers()[1]).cast("i")[texts.offset :] if len(texts) else ()
        return 16 * len(values) + int(
            sum(ends[one + 1] - ends[one] for one in _items(values.indices) if one is not None)
        )
    if pa.types.is_string_view(type_) or pa.types.is_binary_view(type_):
        views = values.buffers()[1]
        if views is None:
            return 0
        # A view is four integers, and the first is the length. `pyarrow.compute` imports pandas, which takes 50 MB.
        lengths_of_views = memoryview(views).cast("i")[4 * values.offset : 4 * (values.offset + len(values)) : 4]
        return 16 * len(values) + sum(lengths_of_views)
    if pa.types.is_struct(type_):
        return sum(map(_bytes, values.flatten()))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return 8 * len(values) + _bytes(values.flatten())
    if pa.types.is_map(type_):
        # The slice has the keys and items of other rows, too.
        first, last = (values.offsets[end].as_py() for end in (0, len(values)))
        return 8 * len(values) + sum(_bytes(one.slice(first, last - first)) for one in (values.keys, values.items))
    return int(values.nbytes)


def _items(values: pa.Array) -> Iterator[Any]:
    """The values as Python's objects, a few in memory at once."""
    for begin in range(0, len(values), _ITEMS_TOGETHER):
        yield from values.slice(begin, _ITEMS_TOGETHER).to_pylist()
