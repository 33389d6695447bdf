"""What readers of a Parquet file have to hold, by its footer and the headers of its pages. Nothing is decoded.

The sizes in a footer are a writer's words. Those in the headers of pages are, too, but readers stop there: a page that
expands to more than its header says is an error for them before they have more (Snappy, ZSTD, LZ4). Pages in GZIP and
Brotli are expanded here, up to that size.

A page of some bytes can also stand for any number of values: equal ones, in lists, or such that repeat the value before
them. So the number of values is limited, and encodings that Delta's writers do not use are refused.

Source: parquet.thrift, Encodings.md and PageIndex.md of Apache Parquet; `parquet` 59 for Rust, of delta-rs 1.6.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from typing import IO, Any

from txnscan.tables.data_files import TooLarge
from txnscan.tables.thrift import ABSENT, BINARY, BOOLEAN, BYTE, INTEGER, Malformed, Struct, read_struct

_MAGIC = b"PAR1"
_SCHEMA_OF_SPARK = b"org.apache.spark.sql.parquet.row.metadata"
_TAIL_BYTES = 8
FOOTER_BYTES_MAX = 4 << 20
# Delta's own compaction makes files of 128 MiB to 1 GiB.
ROWS_MAX = 50_000_000
# Of a page without compression. Writers end a page when it has a MiB.
PAGE_BYTES_MAX = 16 << 20
# Of a page and a dictionary of each column of a row group, which readers hold.
PAGES_BYTES_MAX = 48 << 20
# Of a row group as it is stored, which delta-rs holds, too. Spark begins another one at 128 MiB.
GROUP_BYTES_MAX = 96 << 20
# In all lists of a row group. One row could have them all.
VALUES_MAX = 4_000_000
# Of the statistics of pages, in a file, and of a Bloom filter.
INDEX_BYTES_MAX = 4 << 20
_WHOLE_BYTES_MAX = 1 << 20
_HEADER_BYTES = 512
_HEADER_BYTES_MAX = 1 << 20
# A decimal has 16 bytes.
_FIXED_BYTES_MAX = 64

# PLAIN, RLE, BIT_PACKED, and dictionaries.
_ENCODINGS = frozenset({0, 2, 3, 4, 8})
# None, Snappy, ZSTD and LZ4.
_STOPS = frozenset({0, 1, 6, 7})
_EXPANDED_HERE = {2: "gzip", 4: "brotli"}
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_REPEATED = 2

_NONE: Struct = {}
_TIME: Struct = {1: BOOLEAN, 2: {1: _NONE, 2: _NONE, 3: _NONE}}
_LOGICAL_TYPE: Struct = dict.fromkeys((1, 2, 3, 4, 6, 11, 12, 13, 14, 15), _NONE) | {
    5: {1: INTEGER, 2: INTEGER},
    7: _TIME,
    8: _TIME,
    10: {1: BYTE, 2: BOOLEAN},
    16: {1: BYTE},
    17: {1: BINARY},
    18: {1: BINARY, 2: INTEGER},
}
_SCHEMA_ELEMENT: Struct = dict.fromkeys((1, 2, 3, 5, 6, 7, 8, 9), INTEGER) | {4: BINARY, 10: _LOGICAL_TYPE}
_STATISTICS: Struct = {1: BINARY, 2: BINARY, 3: INTEGER, 4: INTEGER, 5: BINARY, 6: BINARY, 7: BOOLEAN, 8: BOOLEAN}
_KEY_VALUE: Struct = {1: BINARY, 2: BINARY}
_COLUMN: Struct = dict.fromkeys((1, 4, 5, 6, 7, 9, 10, 11, 14, 15), INTEGER) | {
    2: [INTEGER],
    3: [BINARY],
    8: [_KEY_VALUE],
    12: _STATISTICS,
    13: [{1: INTEGER, 2: INTEGER, 3: INTEGER}],
    16: {1: INTEGER, 2: [INTEGER], 3: [INTEGER]},
    17: ABSENT,
}
# A chunk may be in another file, or encrypted.
_CHUNK: Struct = dict.fromkeys((2, 4, 5, 6, 7), INTEGER) | {1: ABSENT, 3: _COLUMN, 8: ABSENT, 9: ABSENT}
_ROW_GROUP: Struct = dict.fromkeys((2, 3, 5, 6, 7), INTEGER) | {
    1: [_CHUNK],
    4: [{1: INTEGER, 2: BOOLEAN, 3: BOOLEAN}],
}
_FOOTER: Struct = {
    1: INTEGER,
    2: [_SCHEMA_ELEMENT],
    3: INTEGER,
    4: [_ROW_GROUP],
    5: [_KEY_VALUE],
    6: BINARY,
    7: [{1: _NONE, 2: _NONE}],
    8: ABSENT,
    9: ABSENT,
}
_PAGE_HEADER: Struct = dict.fromkeys((1, 2, 3, 4), INTEGER) | {
    5: {1: INTEGER, 2: INTEGER, 3: INTEGER, 4: INTEGER, 5: _STATISTICS},
    6: ABSENT,
    7: {1: INTEGER, 2: INTEGER, 3: BOOLEAN},
    8: dict.fromkeys(range(1, 7), INTEGER) | {7: BOOLEAN, 8: _STATISTICS},
}
_OFFSET_INDEX: Struct = {1: [{1: INTEGER, 2: INTEGER, 3: INTEGER}], 2: [INTEGER]}
_BLOOM_HEADER: Struct = {1: INTEGER, 2: {1: _NONE}, 3: {1: _NONE}, 4: {1: _NONE}}


class NotParquet(Malformed):
    """A file that no reader takes for a Parquet file."""


def check(file: IO[bytes], size: int, unused: Collection[str] = (), *, groups: bool = True) -> list[bytes]:
    """Raises TooLarge if readers of this file would have to hold too much, and Malformed if it is no Parquet file that
    all of them read in one way. Also raises OSError.

    Returns every schema of Spark's in its footer, undecoded. There should be one at most. Readers differ about which of
    two counts.

    unused: columns that are not read. groups: row groups have limits, too. Spark makes larger ones.
    """
    return _ParquetFile(file, size, unused, groups=groups).check()


class _ParquetFile:
    def __init__(self, file: IO[bytes], size: int, unused: Collection[str], *, groups: bool) -> None:
        self._groups = groups
        self._descriptor = file.fileno()
        self._size = size
        self._unused = frozenset(name.encode() for name in unused)
        self._index_bytes = 0
        # A system call takes longer than the header that it reads.
        self._whole = os.pread(self._descriptor, size, 0) if size <= _WHOLE_BYTES_MAX else None

    def check(self) -> list[bytes]:
        tail = self._bytes(max(0, self._size - _TAIL_BYTES), _TAIL_BYTES)
        if tail[4:] != _MAGIC:
            raise NotParquet("is no Parquet file")
        length = int.from_bytes(tail[:4], "little")
        if length > FOOTER_BYTES_MAX:
            raise TooLarge(f"has a footer of more than {FOOTER_BYTES_MAX >> 20} MiB")
        try:
            footer, _ = read_struct(self._bytes(self._size - _TAIL_BYTES - length, length), _FOOTER)
            if footer[3] > ROWS_MAX:
                raise TooLarge(f"has more than {ROWS_MAX:,} rows")
            leaves = list(_leaves(footer[2]))
            for group in footer[4]:
                self._check_group(group, leaves)
            return [pair.get(2, b"") for pair in footer.get(5, ()) if pair[1] == _SCHEMA_OF_SPARK]
        except (IndexError, KeyError, OverflowError):
            raise Malformed("is damaged") from None

    def _check_group(self, group: Struct, leaves: list[tuple[bytes, bool]]) -> None:
        if len(group[1]) != len(leaves):
            raise Malformed("has a row group of other columns")
        stored = values = held = 0
        for chunk, (name, in_list) in zip(group[1], leaves, strict=True):
            if name in self._unused:
                continue
            column = chunk[3]
            stored += column[7]
            if self._groups and stored > GROUP_BYTES_MAX:
                raise TooLarge(f"has a row group of more than {GROUP_BYTES_MAX >> 20} MiB")
            counted, largest = self._check_chunk(chunk, column)
            held += largest
            if held > PAGES_BYTES_MAX:
                raise TooLarge(f"has pages of more than {PAGES_BYTES_MAX >> 20} MiB in a row group")
            values += counted if in_list else 0
            if self._groups and values > VALUES_MAX:
                raise TooLarge(f"has more than {VALUES_MAX:,} values in the lists of a row group")

    def _check_chunk(self, chunk: Struct, column: Struct) -> tuple[int, int]:
        """The number of its values, and the size of a page and a dictionary."""
        begin: int = column[11] if 11 in column else column[9]
        end = begin + column[7]
        expand = _expand(column[4])
        at: int = begin
        values = largest = dictionary = 0
        pages: list[tuple[int, int]] = []
        while at < end:
            header, data_at = self._struct(at, _PAGE_HEADER)
            kind, expanded, stored = header[1], header[2], header[3]
            if not 0 <= expanded <= PAGE_BYTES_MAX:
                raise TooLarge(f"has a page of more than {PAGE_BYTES_MAX >> 20} MiB")
            after = data_at + stored
            if stored < 0 or after > end:
                raise Malformed("has a page that ends after its column")
            if kind == _DICTIONARY:
                of, encoding = header[7], header[7][2]
                # A reader reserves their room.
                if at != begin or not 0 <= of[1] <= expanded:
                    raise Malformed("has an odd dictionary")
                dictionary = expanded
            elif kind in (_DATA, _DATA_V2):
                of = header[5] if kind == _DATA else header[8]
                encoding = of[2] if kind == _DATA else of[4]
                if of[1] < 0:
                    raise Malformed("has a page of fewer than no values")
                values += of[1]
                largest = max(largest, expanded)
                pages.append((at, after - at))
            else:
                raise Malformed("has a page of an unknown kind")
            if encoding not in _ENCODINGS:
                raise TooLarge("has an encoding that Delta's writers do not use")
            if expand is not None and of.get(7) is not False:
                apart = of.get(5, 0) + of.get(6, 0) if kind == _DATA_V2 else 0
                expand(self._bytes(data_at + apart, stored - apart), expanded - apart)
            at = after
        self._check_indexes(chunk, column, pages)
        return values, largest + dictionary

    def _check_indexes(self, chunk: Struct, column: Struct, pages: list[tuple[int, int]]) -> None:
        """A reader with an index goes by its offsets, and passes over the headers that were checked."""
        self._index_bytes += chunk.get(5, 0) + chunk.get(7, 0)
        if self._index_bytes > INDEX_BYTES_MAX:
            raise TooLarge(f"has more than {INDEX_BYTES_MAX >> 20} MiB of indexes")
        if 4 in chunk:
            index, _ = self._struct(chunk[4], _OFFSET_INDEX)
            if [(location[1], location[2]) for location in index[1]] != pages:
                raise Malformed("has an index of other pages")
        if 14 in column and self._struct(column[14], _BLOOM_HEADER)[0][1] > INDEX_BYTES_MAX:
            raise TooLarge(f"has a Bloom filter of more than {INDEX_BYTES_MAX >> 20} MiB")

    def _struct(self, at: int, declared: Struct) -> tuple[Struct, int]:
        if at < 0:
            raise Malformed("is damaged")
        if self._whole is not None:
            return read_struct(self._whole, declared, at)
        try:
            found, length = read_struct(self._bytes(at, _HEADER_BYTES), declared)
        except IndexError:
            found, length = read_struct(self._bytes(at, _HEADER_BYTES_MAX), declared)
        return found, at + length

    def _bytes(self, at: int, length: int) -> bytes:
        if at < 0 or length < 0:
            raise Malformed("is damaged")
        if self._whole is not None:
            return self._whole[at : at + length]
        return os.pread(self._descriptor, length, at)


def _leaves(elements: list[Struct]) -> Iterator[tuple[bytes, bool]]:
    """For each column of the file: the column of the table that it is of, and whether it is in a list."""
    # Of each group that is open: how many of its elements follow, its column, and whether it is in a list.
    waiting = [(elements[0].get(5, 0), b"", False)]
    for element in elements[1:]:
        while waiting[-1][0] == 0:
            waiting.pop()
        following, name, in_list = waiting.pop()
        waiting.append((following - 1, name, in_list))
        name, in_list = name or element[4], in_list or element.get(3) == _REPEATED
        if element.get(5, 0) > 0:
            waiting.append((element[5], name, in_list))
            continue
        if not 0 <= element.get(2, 0) <= _FIXED_BYTES_MAX:
            raise TooLarge("has values of a fixed size that Delta's writers do not use")
        yield name, in_list


def _expand(codec: int) -> Callable[[bytes, int], object] | None:
    """Expands a page up to a size, if readers would not stop there."""
    if codec in _STOPS:
        return None
    if codec not in _EXPANDED_HERE:
        raise TooLarge("has a compression that Delta's writers do not use")
    import pyarrow as pa

    decompress: Any = pa.Codec(_EXPANDED_HERE[codec]).decompress

    def expand(page: bytes, size: int) -> None:
        try:
            decompress(page, decompressed_size=size)
        except (OSError, ValueError):
            raise Malformed("has a page of another size than it says") from None

    return expand
