"""The rows of a Parquet file, as a write has them: equal texts share memory until then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cases import Cases
from txnscan.tables import data_files
from txnscan.tables.data_files import ListValues, TooLarge

SIZE, ROWS = 1_000, 10
TEXT = "x" * SIZE
# Kinds of columns, and their values in one row. The first row has a short text, or none.
KINDS: dict[str, tuple[pa.DataType, Any, Any, int]] = {
    "a text": (pa.string(), "y", TEXT, 1),
    "bytes": (pa.binary(), b"y", TEXT.encode(), 1),
    "a text that may be absent": (pa.string(), None, TEXT, 1),
    "a list": (pa.list_(pa.string()), [], [TEXT] * 3, 3),
    "a struct": (pa.struct({"a": pa.string()}), None, {"a": TEXT}, 1),
    "lists in a struct": (pa.struct({"a": pa.list_(pa.string())}), {"a": None}, {"a": [TEXT, TEXT]}, 2),
    "structs in a list": (pa.list_(pa.struct({"a": pa.string()})), None, [{"a": TEXT}] * 2, 2),
    "a map": (pa.map_(pa.string(), pa.string()), [], [("k", TEXT), ("l", TEXT)], 2),
    "a list of maps": (pa.list_(pa.map_(pa.string(), pa.string())), [], [[("k", TEXT)], [("k", TEXT)]], 2),
}
Write = Callable[[pa.Table, Path], None]
WRITERS: dict[str, Write] = {
    "in dictionaries": lambda rows, path: pq.write_table(rows, path),
    "plain": lambda rows, path: pq.write_table(rows, path, use_dictionary=False),
    "in two row groups": lambda rows, path: pq.write_table(rows, path, row_group_size=ROWS // 2),
    "in dictionaries until they are full": lambda rows, path: pq.write_table(
        rows, path, dictionary_pagesize_limit=SIZE // 2, data_page_size=SIZE, write_batch_size=2
    ),
}


def test_the_bytes_of_rows_are_those_that_a_write_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.parquet"
    with Cases() as cases:
        for kind, (type_, first, value, texts) in KINDS.items():
            rows = pa.table({"one": pa.array([first, *[value] * ROWS], type_)})
            for how, write in WRITERS.items():
                write(rows, path)
                size = texts * SIZE * (ROWS // 2 if "two" in how else ROWS)
                with cases.case(f"{kind}, {how}"):
                    monkeypatch.setattr(data_files, "BATCH_BYTES_MAX", size - SIZE)
                    with pytest.raises(TooLarge):
                        ListValues().add_file(str(path))
                    monkeypatch.setattr(data_files, "BATCH_BYTES_MAX", size + SIZE)
                    ListValues().add_file(str(path))


def test_columns_count_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({name: [TEXT] * ROWS for name in "abc"}), path)
    monkeypatch.setattr(data_files, "BATCH_BYTES_MAX", 3 * SIZE * ROWS)
    with pytest.raises(TooLarge):
        ListValues().add_file(str(path))


def test_the_rows_of_a_group_have_limited_values_in_lists(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    many, few = [[1] * 100] * 16, [[1]] * 16
    with Cases() as cases:
        for name, columns, most in (
            ("no lists", {"a": [1] * 48}, 1_000),
            ("one column", {"a": many + few}, 16 * (10_000 // 1_600)),
            ("two columns, the same rows", {"a": few + many, "b": few + many}, 16 * (10_000 // 3_200)),
            ("two columns, other rows", {"a": few + many, "b": many + few}, 16 * (10_000 // 1_616)),
            ("a few rows at the end", {"a": few + many[:4]}, 16 * (10_000 // 1_600)),
        ):
            pq.write_table(pa.table(columns), path)
            values = ListValues()
            values.add_file(str(path))
            with cases.case(name):
                assert values.rows_max(10_000, 1_000) == most
