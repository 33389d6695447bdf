"""Parquet files that stand for more than they have, and files that lie about it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

MIB = 1 << 20


def written(path: Path, rows: pa.Table, **options: Any) -> Path:
    """A file of these rows, with the options of `write_table`."""
    pq.write_table(rows, path, **{"compression": "zstd", **options})
    return path


def varint(number: int, length: int = 0) -> bytes:
    """A number as Thrift writes it, of at least this many bytes."""
    left, out = number << 1, bytearray()
    while left > 127 or len(out) + 1 < length:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes((*out, left))


def with_numbers(path: Path, numbers: Mapping[int, int]) -> Path:
    """The file, with other numbers of the same length in its footer and in the headers of its pages."""
    data = path.read_bytes()
    for number, other in numbers.items():
        old = varint(number)
        assert len(old) >= 3 and old in data, number
        data = data.replace(old, varint(other, len(old)))
    path.write_bytes(data)
    return path


def sizes(path: Path, column: int) -> list[int]:
    """The sizes that the file gives for a column and, if it has one page, for the page."""
    found = pq.read_metadata(path).row_group(0).column(column)
    data = path.read_bytes()
    total = found.total_uncompressed_size
    return [one for one in range(total, total - 200, -1) if varint(one) in data]


def equal_texts(size: int, count: int) -> pa.Array:
    """Texts of this size that share their bytes, also in a file."""
    indices = pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(bytes(4 * count))])
    return pa.DictionaryArray.from_arrays(indices, ["a" * size])


def one_list(values: pa.Array) -> pa.Array:
    """A row that is a list of all these values."""
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
