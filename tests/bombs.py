"""Parquet files that stand for more than they have, and files that lie about it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.builders import NOW_MS
from txnscan.tables.delta import By
from txnscan.tables.maintain import kept, maintain
from txnscan.tables.schema import SWEEPS
from txnscan.tables.tables import Tables

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


def file_added(path: str, **changes: Any) -> dict[str, Any]:
    """The action of a commit that adds a file."""
    values = {"cluster_id": "c"}
    add = {"path": path, "partitionValues": values, "size": 1, "modificationTime": 0, "dataChange": True}
    return {"add": {**add, **changes}}


def file_removed(path: str) -> dict[str, Any]:
    """The action of a commit that removes a file."""
    return {"remove": {"path": path, "dataChange": True}}


def with_statistics(size: int) -> str:
    """Statistics of a file with a text of this size."""
    return json.dumps({"numRecords": 1, "minValues": {"sweep_id": "x" * size}})


def commit(table: Path, actions: Iterable[Mapping[str, Any]], *, commits: int = 1) -> None:
    """Adds these actions to the log of a table, in so many commits."""
    log = table / "_delta_log"
    version, lines = len(list(log.glob("*.json"))), [json.dumps(one, separators=(",", ":")) for one in actions]
    size = -(-len(lines) // commits)
    for number in range(commits):
        text = "\n".join(lines[number * size : (number + 1) * size])
        (log / f"{version + number:020}.json").write_text(text + "\n")


def checkpoint(table: Path, files: int, statistics: str) -> None:
    """Makes a checkpoint of a table, with so many more files, all of which have these statistics."""
    from deltalake import DeltaTable

    DeltaTable(str(table)).create_checkpoint()
    (path,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    actions = pq.read_table(path)
    rows = actions.to_pylist()
    (*_, first) = (row for row in rows if row["add"])
    added = [{**first, "add": {**first["add"], "path": f"{one:x}", "stats": statistics}} for one in range(files)]
    pq.write_table(pa.Table.from_pylist([*rows, *added], schema=actions.schema), path, compression="zstd")
    (table / "_delta_log" / "_last_checkpoint").unlink()


BOMB = "cluster_id=cluster-1/part-bomb.parquet"


def with_text(size: int, count: int = 1) -> Callable[[pa.Table], pa.Table]:
    """The row, this many times, with a text of this size, which compresses to almost nothing."""

    def made(row: pa.Table) -> pa.Table:
        field = row.schema.field("settings")
        rows = pa.concat_tables([row] * count).combine_chunks()
        texts = equal_texts(size, count)
        return rows.set_column(rows.schema.get_field_index("settings"), field.with_type(texts.type), texts)

    return made


def with_list(size: int) -> Callable[[pa.Table], pa.Table]:
    """The row, with a list of so many texts."""

    def made(row: pa.Table) -> pa.Table:
        texts = one_list(equal_texts(10, size))
        field = row.schema.field("warnings").with_type(texts.type)
        return row.set_column(row.schema.get_field_index("warnings"), field, texts)

    return made


def planted(template: Path, place: Path, rows: Callable[[pa.Table], pa.Table], **options: Any) -> Path:
    """Tables in which somebody added a file with these rows, without statistics. options: of `write_table`."""
    shutil.copytree(template, place)
    plant(place / "sweeps", rows, **options)
    return place


def plant(table: Path, rows: Callable[[pa.Table], pa.Table], **options: Any) -> None:
    """Adds such a file to a table."""
    (part,) = table.rglob("part-*.parquet")
    pq.write_table(rows(pq.ParquetFile(part).read()), table / BOMB, **{"compression": "zstd", **options})
    log = sorted((table / "_delta_log").glob("*.json"))
    lines = (json.loads(line) for path in log for line in path.read_text().splitlines())
    add: dict[str, Any] = next(line["add"] for line in lines if "add" in line)
    add = {**add, "path": BOMB, "size": (table / BOMB).stat().st_size, "stats": None}
    (table / "_delta_log" / f"{len(log):020}.json").write_text(json.dumps({"add": add}))


def uses(tables: Tables) -> dict[str, Callable[[], object]]:
    return {
        "the last sweeps": tables.last_sweeps,
        "rows": lambda: tables.rows(SWEEPS),
        "rows in order": lambda: tables.rows(SWEEPS, order=(By("started_at"),)),
        "the newest": lambda: tables.delta.newest(SWEEPS, ("cluster_id",), "started_at"),
        "compact": lambda: tables.delta.compact(SWEEPS),
        "maintain": lambda: maintain(tables, kept(tables, 0, NOW_MS), vacuum_after_hours=1),
    }


PLAIN = {"use_dictionary": False}
