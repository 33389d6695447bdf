"""Deletion vectors that make their readers list billions of rows."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.cases import Cases
from tests.fakes.deletion_vectors import bitmaps, full, inline
from txnscan.config import ConfigError
from txnscan.tables import deletion_vectors
from txnscan.tables.deletion_vectors import rows_of
from txnscan.tables.delta_log import Examination
from txnscan.tables.metadata import UnreadableLog
from txnscan.tables.schema import SWEEPS

# The example of Delta's protocol.
INLINE = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"


def no_file(name: str) -> Any:
    raise FileNotFoundError(name)


# Name, vector, and how many rows; None if it is refused.
VECTORS: tuple[tuple[str, dict[str, Any], int | None], ...] = (
    ("of the protocol", {"storageType": "i", "pathOrInlineDv": INLINE, "sizeInBytes": 44}, 65_536),
    ("no bitmap", inline(bitmaps()), 0),
    ("a run", inline(bitmaps((0, full(0)))), 65_536),
    ("a later run", inline(bitmaps((0, full(9)))), 655_360),
    ("out of order", inline(bitmaps((0, full(9, 0)))), 655_360),
    ("most rows of a bitmap", inline(bitmaps((0, full(65_535)))), 1 << 32),
    ("rows after 2^32", inline(bitmaps((5, full(0)))), None),
    ("two bitmaps", inline(bitmaps((0, full(0)), (1, full(0)))), None),
    ("another format", inline(b"\1\2\3\4" * 10), None),
    ("another bitmap", inline(bitmaps((0, b"\1\2\3\4" * 10))), None),
    ("cut short", inline(bitmaps((0, full(9)[:4]))), None),
    ("other digits", {"storageType": "i", "pathOrInlineDv": "~~~~~", "sizeInBytes": 4}, None),
    ("no text", {"storageType": "i", "pathOrInlineDv": None, "sizeInBytes": 4}, None),
    ("no size", {"storageType": "i", "pathOrInlineDv": INLINE}, None),
    ("a size of gigabytes", {"storageType": "i", "pathOrInlineDv": INLINE, "sizeInBytes": 1 << 31}, None),
)


def test_rows_of_vectors_in_the_log() -> None:
    with Cases() as cases:
        for name, vector, rows in VECTORS:
            with cases.case(name):
                if rows is None:
                    with pytest.raises(UnreadableLog):
                        rows_of(vector, no_file)
                else:
                    assert rows_of(vector, no_file) == rows


def test_rows_of_vectors_in_files() -> None:
    data = bitmaps((0, full(1)))
    in_file = b"\1" + struct.pack(">I", len(data)) + data
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 1, "sizeInBytes": len(data)}
    names = []

    def opened(name: str) -> io.BytesIO:
        names.append(name)
        return io.BytesIO(in_file)

    assert rows_of(vector, opened) == 131_072
    # The example of Delta's protocol.
    assert names == ["ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"]
    for other in ({"sizeInBytes": 5}, {"offset": 0}, {"offset": None}, {"pathOrInlineDv": "ab"}):
        with pytest.raises(UnreadableLog):
            rows_of({**vector, **other}, opened)


def test_a_table_whose_vectors_have_too_many_rows_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()

    def examination(*keys: int) -> Examination:
        files = (f"part {number}" for number in range(len(keys)))
        adds = [{"path": file.replace(" ", "%20"), "deletionVector": inline(bitmaps((0, full(key))))}
                for file, key in zip(files, keys, strict=True)]  # fmt: skip
        (log / f"{0:020}.json").write_text("\n".join(json.dumps({"add": add}) for add in adds))
        found = Examination(SWEEPS, tmp_path)
        found.check()
        return found

    most = deletion_vectors.ROWS_MAX // 65_536
    examination(0, most - 1).check_data(["part 1"])
    for keys, paths in (((0, most), ["part 1"]), ((most // 2,) * 2, ["part 0", "part 1"])):
        with pytest.raises(ConfigError, match="deletion vectors"):
            examination(*keys).check_data(paths)
    (log / f"{1:020}.json").write_text(json.dumps({"add": {"path": "a", "deletionVector": inline(b"")}}))
    with pytest.raises(ConfigError, match="damaged"):
        Examination(SWEEPS, tmp_path).check()
