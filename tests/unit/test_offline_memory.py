"""Files larger than the allowed memory: the peak of a separate process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.offline import MS, changed, data, end
from tests.process import ROOT, run_to_end
from txnscan.kafka.protocol.record_batch import HEADER, LENGTH_FROM, TRANSACTIONAL

MB = 1 << 20
# Memory of an idle process, and the allowed addition for any files. Pages of a file are released every 64 MB.
BESIDES_MB = 110
_SCRIPT = """
import json, sys
from txnscan.offline.paths import read_paths
read = read_paths([sys.argv[1]], late_after_ms=0, check_crc=sys.argv[2] == "crc")
(replica,) = read.replicas
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
figures = replica.figures
print(json.dumps([int(peak) // 1024, figures.batches, figures.size_bytes, len(replica.open), replica.unproven]))
"""


def peak_of(directory: Path, crc: bool = False) -> list[Any]:
    """The peak memory of a process in MB, its numbers of batches, bytes and open transactions, and its error."""
    command = [sys.executable, "-c", _SCRIPT, str(directory), "crc" if crc else ""]
    ran = run_to_end(command, directory=ROOT)
    assert ran.returncode == 0, ran.stderr
    found: list[Any] = json.loads(ran.stdout)
    return found


@pytest.fixture(scope="module")
def nothing_mb(tmp_path_factory: pytest.TempPathFactory) -> int:
    directory = tmp_path_factory.mktemp("memory") / "t-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(data(0))
    return int(peak_of(directory)[0])


def sparse(directory: Path, batches: int, size: int) -> Path:
    """A segment of batches whose records are holes: its size is real, and it needs no disk."""
    directory.mkdir()
    log = directory / f"{0:020d}.log"
    fields = (TRANSACTIONAL, 0, MS, MS, 7, 3, 0, 1)
    hollow = HEADER.pack(0, size - LENGTH_FROM, 0, 2, 0, *fields) + bytes(size - HEADER.size)
    header = changed(hollow, 0, b"")[: HEADER.size]
    with log.open("wb") as file:
        for offset in range(batches):
            file.seek(offset * size)
            file.write(offset.to_bytes(8) + header[8:])
        file.truncate(batches * size)
    return directory


@pytest.mark.parametrize("crc", [False, True], ids=["headers", "checksums"])
def test_a_segment_of_large_batches_stays_out_of_memory(tmp_path: Path, nothing_mb: int, crc: bool) -> None:
    """2 GB, or 512 MB with checksums, which read every byte."""
    size, count = 16 * MB, 32 if crc else 127
    peak_mb, *rest = peak_of(sparse(tmp_path / "t-0", count, size), crc)
    assert rest == [count, count * size, 1, None]
    assert peak_mb < nothing_mb + BESIDES_MB


def test_a_segment_of_small_batches_stays_out_of_memory(tmp_path: Path, nothing_mb: int) -> None:
    """900,000 batches of one record, and their transactions."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    some = [one[8:] for pid in range(20) for one in (data(0, pid), data(0, pid), end(0, pid))]
    rounds = 15_000
    with (directory / f"{0:020d}.log").open("wb") as file:
        for number in range(rounds):
            file.write(b"".join((number * len(some) + at).to_bytes(8) + one for at, one in enumerate(some)))
    peak_mb, batches, size_bytes, still_open, unproven = peak_of(directory)
    assert (batches, still_open, unproven) == (rounds * len(some), 0, None) and size_bytes > 50 * MB
    assert peak_mb < nothing_mb + BESIDES_MB


def test_a_preallocated_segment_stays_out_of_memory(tmp_path: Path, nothing_mb: int) -> None:
    """log.preallocate: the segment has its maximum size and is filled with zeros."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    log = directory / f"{0:020d}.log"
    log.write_bytes(data(0))
    with log.open("r+b") as file:
        file.truncate(384 * MB)
    peak_mb, batches, _, still_open, unproven = peak_of(directory)
    assert (batches, still_open, unproven) == (1, 1, None)
    assert peak_mb < nothing_mb + BESIDES_MB
