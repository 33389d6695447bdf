"""Parquet files that stand for more than readers can hold. The check decodes no page."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.bombs import MIB, equal_texts, one_list, sizes, varint, with_numbers, written
from tests.cases import Cases
from txnscan.tables import parquet
from txnscan.tables.data_files import TooLarge
from txnscan.tables.parquet import NotParquet
from txnscan.tables.thrift import ABSENT, BINARY, INTEGER, Malformed, read_struct

TEXT = pa.table({"n": [1], "text": ["a" * (17 * MIB)]})
MANY = pa.table({"n": range(50_000), "text": [f"text {number % 1_000}" for number in range(50_000)]})
NESTED = pa.table({
    "n": [1, 2],
    "rows": [[{"a": "x", "b": [1, None]}, None], None],
    "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
})  # fmt: skip
PLAIN: dict[str, Any] = {"use_dictionary": False}


def check(path: Path, *unused: str, groups: bool = True) -> None:
    with path.open("rb") as file:
        parquet.check(file, path.stat().st_size, unused, groups=groups)


# Options of honest files.
HONEST: tuple[dict[str, Any], ...] = (
    {},
    PLAIN,
    {"write_page_index": True},
    {"data_page_version": "2.0", "write_page_index": True},
    {"row_group_size": 1_000},
    *({"compression": name} for name in ("none", "snappy", "gzip", "brotli", "lz4")),
    {"compression": "gzip", "data_page_version": "2.0"},
)


def test_files_as_writers_make_them_are_allowed(tmp_path: Path) -> None:
    with Cases() as cases:
        for options in HONEST:
            for number, rows in enumerate((MANY, NESTED, MANY.slice(0, 0))):
                with cases.case(f"{number} {options}"):
                    check(written(tmp_path / "file", rows, **options))


def _lists(file: Path) -> Path:
    return written(file, pa.table({"rows": one_list(equal_texts(1, parquet.VALUES_MAX + 1))}))


def _fixed(file: Path) -> Path:
    return written(file, pa.table({"n": pa.array([b"a" * 1_000], pa.binary(1_000))}))


def _repeating(file: Path) -> Path:
    """A value is written as the number of bytes that it shares with the one before."""
    return written(file, MANY, use_dictionary=False, column_encoding={"n": "PLAIN", "text": "DELTA_BYTE_ARRAY"})


def _small_by_its_footer(file: Path) -> Path:
    column, *_ = sizes(written(file, TEXT, **PLAIN), 1)
    return with_numbers(file, {column: 100})


def _long_dictionary(file: Path) -> Path:
    """A dictionary of more values than it has bytes: a reader makes room for them."""
    written(file, pa.table({"n": pa.array(["a"] * 20_000).dictionary_encode()}), data_page_version="1.0")
    header = bytes((0x15, *varint(1), 0x15))
    data = file.read_bytes()
    # Page 2 is the dictionary: its header ends with the number of values, the encoding and whether they are sorted.
    at = data.index(b"\x4c" + header)
    file.write_bytes(data[: at + 2] + varint(60) + data[at + 3 :])
    return file


TOO_LARGE: dict[str, Callable[[Path], Path]] = {
    "a long text": lambda file: written(file, TEXT, **PLAIN),
    "a long text in a dictionary": lambda file: written(file, TEXT),
    "a long text, in GZIP": lambda file: written(file, TEXT, compression="gzip"),
    "a long text in a page of version 2": lambda file: written(file, TEXT, **PLAIN, data_page_version="2.0"),
    "a long text, by the page alone": _small_by_its_footer,
    "many values in a list": _lists,
    "values of a long fixed size": _fixed,
    "an encoding that repeats values": _repeating,
}


def test_files_that_readers_cannot_hold_are_refused(tmp_path: Path) -> None:
    with Cases() as cases:
        for name, made in TOO_LARGE.items():
            with cases.case(name), pytest.raises(TooLarge):
                check(made(tmp_path / "file"))
    check(written(tmp_path / "file", TEXT), "text")
    check(_lists(tmp_path / "file"), groups=False)


# A limit, its value, and the options of a file.
LIMITS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("ROWS_MAX", 49_999, {}),
    ("FOOTER_BYTES_MAX", 100, {}),
    ("PAGES_BYTES_MAX", 100_000, PLAIN),
    ("GROUP_BYTES_MAX", 10_000, {}),
    ("INDEX_BYTES_MAX", 10, {"write_page_index": True}),
)


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Cases() as cases:
        for limit, most, options in LIMITS:
            with cases.case(limit), monkeypatch.context() as limits:
                file = written(tmp_path / "file", MANY, **options)
                check(file)
                limits.setattr(parquet, limit, most)
                with pytest.raises(TooLarge):
                    check(file)


def _lying(compression: str) -> Callable[[Path], Path]:
    """A text of 17 MiB in a page that says 100 bytes."""

    def made(file: Path) -> Path:
        written(file, TEXT, **PLAIN, compression=compression)
        return with_numbers(file, dict.fromkeys(sizes(file, 1), 100))

    return made


def _with_index(of: Callable[[bytes], bytes]) -> Callable[[Path], Path]:
    def made(file: Path) -> Path:
        data = written(file, MANY, write_page_index=True).read_bytes()
        page = pq.read_metadata(file).row_group(0).column(0).data_page_offset
        old = varint(page)
        # The last places: the index of the offsets stands after the pages.
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        at = data.rindex(old, 0, footer)
        file.write_bytes(data[:at] + of(old) + data[at + len(old) :])
        return file

    return made


def _changed(find: bytes, put: bytes, options: dict[str, Any]) -> Callable[[Path], Path]:
    def made(file: Path) -> Path:
        data = written(file, MANY, **options).read_bytes()
        assert find in data
        file.write_bytes(data.replace(find, put))
        return file

    return made


MALFORMED: dict[str, Callable[[Path], Path]] = {
    "a page in GZIP that is longer than it says": _lying("gzip"),
    "a page in Brotli that is longer than it says": _lying("brotli"),
    "an index of other pages": _with_index(lambda old: varint(70_000, len(old))),
    "a dictionary of more values than bytes": _long_dictionary,
    "cut short": lambda file: _rewritten(file, lambda data: data[:-2_000] + data[-8:]),
    "no pages": lambda file: _rewritten(file, lambda data: bytes(len(data) // 2) + data[len(data) // 2 :]),
}


def _rewritten(file: Path, to: Callable[[bytes], bytes]) -> Path:
    file.write_bytes(to(written(file, MANY).read_bytes()))
    return file


def test_files_that_readers_read_in_different_ways_are_refused(tmp_path: Path) -> None:
    with Cases() as cases:
        for name, made in MALFORMED.items():
            with cases.case(name), pytest.raises(Malformed):
                check(made(tmp_path / "file"))
    # The others stop at the size that the page says.
    for compression in ("zstd", "snappy", "lz4"):
        check(_lying(compression)(tmp_path / "file"))


def test_other_files_are_no_parquet_files(tmp_path: Path) -> None:
    with Cases() as cases:
        for data in (b"", b"PAR1", b"not a Parquet file"):
            (tmp_path / "file").write_bytes(data)
            with cases.case(repr(data)), pytest.raises(NotParquet):
                check(tmp_path / "file")


def test_damaged_files_raise_nothing_else(tmp_path: Path) -> None:
    """Every third byte of a small file, changed."""
    file = written(tmp_path / "file", NESTED, write_page_index=True)
    data = file.read_bytes()
    with Cases() as cases:
        for at in range(0, len(data) - 4, 3):
            with cases.case(f"byte {at}"):
                file.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
                with suppress(Malformed, TooLarge):
                    check(file)


# Bytes, their declared struct, and the fields; None if they are refused.
STRUCTS: tuple[tuple[str, str, dict[int, Any], dict[int, Any] | None], ...] = (
    ("an integer", "15 02 00", {1: INTEGER}, {1: 1}),
    ("another field is skipped", "18 01 61 15 02 00", {2: INTEGER}, {2: 1}),
    ("a long number", "16 ff ff ff ff ff ff ff ff 7f 00", {1: INTEGER}, {1: -(1 << 62)}),
    ("a number that is too long", "16 ff ff ff ff ff ff ff ff ff ff 01 00", {1: INTEGER}, None),
    ("a text in place of a number", "18 01 61 00", {1: INTEGER}, None),
    ("a number in place of a text", "15 02 00", {1: BINARY}, None),
    ("a number in place of a list", "15 02 00", {1: [INTEGER]}, None),
    ("a set in place of a list", "1a 15 02 00", {1: [INTEGER]}, None),
    ("a list of texts in place of numbers", "19 18 01 61 00", {1: [INTEGER]}, None),
    ("a struct in place of a number", "1c 00 00", {1: INTEGER}, None),
    ("a field twice", "15 02 05 02 04 00", {1: INTEGER}, None),
    ("a field that no reader may find", "15 02 00", {1: ABSENT}, None),
    ("the same with a list", "19 15 02 00", {1: ABSENT}, None),
    ("structs in structs", "1c" * 20 + "00" * 21, {}, None),
    ("a list of a billion numbers", "19 f5 80 94 eb dc 03 00", {1: [INTEGER]}, None),
    ("an unknown type", "1e 00", {}, None),
)


def test_structs_are_read_strictly() -> None:
    with Cases() as cases:
        for name, data, declared, found in STRUCTS:
            with cases.case(name):
                if found is None:
                    with pytest.raises(Malformed):
                        read_struct(bytes.fromhex(data), declared)
                else:
                    assert read_struct(bytes.fromhex(data), declared)[0].items() >= found.items()
