"""Limits of the data files of tables: a small Parquet file can stand for any number of rows, and a page of some
kilobytes for gigabytes of text.

Only the footer of a file is read. Its sizes are a writer's words, as everything in a file. docs/trust.md has what
remains.
"""

from __future__ import annotations

import os
from typing import IO

# Of one file. Delta's own compaction makes files of 128 MiB to 1 GiB, with row groups of 128 MiB or a million rows.
ROWS_MAX = 50_000_000
# Of one column in a row group. A single value can have all of it.
COLUMN_BYTES_MAX = 256 << 20
_FOOTER_BYTES_MAX = 16 << 20
_MAGIC = b"PAR1"
# The limits of all rows that one read of a table returns.
READ_ROWS_MAX = 5_000_000
READ_BYTES_MAX = 80 << 20
_REMEDY = "remove files that txnscan did not write, or run txnscan maintain with a shorter --keep"


class TooLarge(Exception):
    """A read of a table has more rows or bytes than its limit. The message is a clause."""


def why_too_large(file: IO[bytes], size: int) -> str | None:
    """Why readers should not open this file, in a clause. None also for a file that is not Parquet: no reader opens it.
    Raises OSError and Arrow's errors for a footer that cannot be read.
    """
    if size < 12:
        return None
    file.seek(-8, os.SEEK_END)
    tail = file.read(8)
    if tail[4:] != _MAGIC:
        return None
    if int.from_bytes(tail[:4], "little") > _FOOTER_BYTES_MAX:
        return f"has a footer of more than {_FOOTER_BYTES_MAX >> 20} MiB"
    # Parquet takes a moment to import, and most tables have few files.
    import pyarrow.parquet as pq

    file.seek(0)
    footer = pq.read_metadata(file)
    if footer.num_rows > ROWS_MAX:
        return f"has more than {ROWS_MAX:,} rows"
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        # Tables have many files, and most are small.
        if group.total_byte_size <= COLUMN_BYTES_MAX:
            continue
        for index in range(group.num_columns):
            if group.column(index).total_uncompressed_size > COLUMN_BYTES_MAX:
                return f"has a column of more than {COLUMN_BYTES_MAX >> 20} MiB"
    return None


class Counted:
    """Counts what a read of a table returns."""

    def __init__(self) -> None:
        self._rows = self._bytes = 0

    def add(self, rows: int, size: int) -> None:
        """Counts a batch. Raises TooLarge."""
        self._rows += rows
        self._bytes += size
        if self._rows > READ_ROWS_MAX:
            raise TooLarge(f"a read has more than {READ_ROWS_MAX:,} rows; {_REMEDY}")
        if self._bytes > READ_BYTES_MAX:
            raise TooLarge(f"a read has more than {READ_BYTES_MAX >> 20} MiB; {_REMEDY}")
