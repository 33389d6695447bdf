"""Every kind of hostile file in a table, in a process of its own: each use of the table ends soon, below 300 MB."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.bombs import (
    BOMB,
    MIB,
    PLAIN,
    checkpoint,
    commit,
    file_added,
    file_removed,
    plant,
    sizes,
    with_list,
    with_numbers,
    with_statistics,
    with_text,
)
from tests.cases import Cases
from tests.fakes.deletion_vectors import bitmaps, full, inline
from tests.process import PEAK_KIB, run_python
from txnscan.tables.parquet import FOOTER_BYTES_MAX

# Of processor time, for each use after those of a table without such files. An idle machine takes half of it.
# `maintain` has three times the room for a log.
SECONDS_MAX, SECONDS_OF_MAINTAIN_MAX = 4.0, 12.0
BYTES_MAX = 300e6
Plant = Callable[[Path], object]


def data(rows: Callable[[pa.Table], pa.Table], **options: Any) -> Plant:
    """A data file with these rows."""
    return lambda table: plant(table, rows, **options)


def page_that_lies(compression: str) -> Plant:
    """A page that says 100 bytes, and has a text of 200 MiB."""

    def planted(table: Path) -> None:
        plant(table, with_text(200 * MIB), **PLAIN, compression=compression)
        footer = pq.read_metadata(table / BOMB).row_group(0)
        leaf = next(one for one in range(footer.num_columns) if footer.column(one).path_in_schema == "settings")
        with_numbers(table / BOMB, dict.fromkeys(sizes(table / BOMB, leaf), 100))

    return planted


def footer(length: int, content: bytes) -> Plant:
    """A data file with a footer that says this length."""

    def planted(table: Path) -> None:
        (table / BOMB).write_bytes(b"PAR1" + content + length.to_bytes(4, "little") + b"PAR1")
        commit(table, [file_added(BOMB, size=(table / BOMB).stat().st_size)])

    return planted


def vectors(count: int, key: int) -> Plant:
    """Files with deletion vectors whose highest row is in this container."""
    vector = inline(bitmaps((0, full(key))))

    def planted(table: Path) -> None:
        (part,) = table.rglob("part-*.parquet")
        paths = [f"cluster_id=cluster-1/part-{number}.parquet" for number in range(count)]
        for path in paths:
            shutil.copy(part, table / path)
        commit(table, [file_added(path, deletionVector={**vector, "cardinality": 1}) for path in paths])

    return planted


def files(count: int, **changes: Any) -> Plant:
    """A commit that adds so many files."""
    return lambda table: commit(table, (file_added(f"{one:x}", **changes) for one in range(count)))


def pipe(name: str) -> Plant:
    return lambda table: os.mkfifo(table / name)


def link(name: str, to: str) -> Plant:
    return lambda table: (table / name).symlink_to(to)


def written(name: str, text: bytes) -> Plant:
    return lambda table: (table / name).write_bytes(text)


# The tables have two commits.
COMMIT = f"_delta_log/{2:020}.json"
LONG = with_statistics(100_000)
HOSTILE: dict[str, Plant] = {
    "a text of 200 MiB": data(with_text(200 * MIB), **PLAIN),
    "a text of 200 MiB in a dictionary": data(with_text(200 * MIB)),
    "a text of 15 MiB that 1,000 rows share": data(with_text(15 * MIB, 1_000)),
    "a list of 30,000,000 texts": data(with_list(30_000_000)),
    **{f"a page that lies, in {one}": page_that_lies(one) for one in ("zstd", "gzip", "brotli")},
    "a footer of 5 MiB": footer(5 << 20, bytes(5 << 20)),
    "a footer that is longer than its file": footer(FOOTER_BYTES_MAX, b""),
    "a footer of 4 MiB that nests structs": footer(FOOTER_BYTES_MAX, b"\x1c" * FOOTER_BYTES_MAX),
    "a footer of 4 MiB that is a list": footer(FOOTER_BYTES_MAX, b"\x29\xf5\xff\xff\xff\x7f".ljust(FOOTER_BYTES_MAX)),
    "a deletion vector for four billion rows": vectors(1, 65_535),
    "a hundred deletion vectors": vectors(100, 299),
    "a pipe among the data": pipe("part-0.parquet"),
    "a pipe in the log": pipe(COMMIT),
    "a pipe for the hint": pipe("_delta_log/_last_checkpoint"),
    "a device in the log": link(COMMIT, "/dev/zero"),
    "a device among the data": link("part-0.parquet", "/dev/zero"),
    "500,000 files": files(500_000),
    "files with long statistics": files(1_000, stats=LONG),
    "500,000 removed files": lambda table: commit(table, (file_removed(f"{one:x}") for one in range(500_000))),
    "2,000 commits": lambda table: commit(table, (file_added(f"{one:x}") for one in range(2_000)), commits=2_000),
    "a checkpoint whose rows share statistics": lambda table: checkpoint(table, 2_000, LONG),
    "empty objects": written(COMMIT, b"{}\n" * 5_000_000),
    "a line of 100 MiB": written(COMMIT, b" " * (100 * MIB)),
    "a deep line": written(COMMIT, b"[" * MIB),
    "a long hint": written("_delta_log/_last_checkpoint", b'{"v2Checkpoint":{"sidecarFiles":[' + b"{}," * MIB),
    "a long checksum": written(f"_delta_log/{0:020}.crc", b'{"allFiles":[' + b"{}," * MIB),
}

# Uses tables without such files, and then these. Prints how many uses failed, the most processor time of a use and of
# `maintain`, and the most memory in KiB.
USES = f"""
import sys, time
from pyarrow import ArrowInvalid
from tests.bombs import uses
from txnscan.config import ConfigError
from txnscan.tables.data_files import TooLarge
from txnscan.tables.open import open_tables

honest, hostile = sys.argv[1:]
for call in (*uses(open_tables(honest, None)).values(), open_tables(honest, None).create):
    call()
failed, most = 0, [0.0, 0.0]
for maintains in (False, True):
    tables = open_tables(hostile, None, to_maintain=maintains)
    for name, call in {{"create": tables.create, **uses(tables)}}.items():
        if (name == "maintain") is maintains:
            began = time.process_time()
            try:
                call()
            except (ConfigError, TooLarge, ArrowInvalid):
                failed += 1
            most[maintains] = max(most[maintains], time.process_time() - began)
print(failed, *most, {PEAK_KIB})
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc")
def test_each_use_of_a_hostile_table_ends_soon_and_below_300_mb(template: Path, tmp_path: Path) -> None:
    honest = tmp_path / "honest"
    with Cases() as cases:
        for name, planted in HOSTILE.items():
            location = tmp_path / "hostile"
            for place in (honest, location):
                shutil.rmtree(place, ignore_errors=True)
                shutil.copytree(template, place)
            planted(location / "sweeps")
            with cases.case(name):
                ran = run_python("-c", USES, str(honest), str(location))
                assert ran.returncode == 0, ran.stderr
                failed, seconds, of_maintain, peak_kib = map(float, ran.stdout.split())
                assert failed >= 1
                assert seconds < SECONDS_MAX and of_maintain < SECONDS_OF_MAINTAIN_MAX
                assert peak_kib * 1024 < BYTES_MAX
