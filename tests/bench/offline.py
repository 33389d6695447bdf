"""A broker's segments without brokers: `txnscan segments`, beside Kafka's own DumpLogSegments over the same files.

Whole processes, from their start to their end. DumpLogSegments says of a marker whether it commits only with
--deep-iteration, which is what people pipe into klog; without it, it reads headers as txnscan does. One file has
batches of one record, as transactional clients that do not batch write them, and one has batches of a hundred.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.harness import Finding, Options, Ratio, Side, Work, say, timed_in_turn
from tests.sim.wire.batches import batch, marker
from txnscan.demo.jars import KAFKA_VERSION, java, kafka_jars
from txnscan.demo.node import java_command
from txnscan.kafka.protocol.record_batch import TRANSACTIONAL
from txnscan.offline.columns import fold
from txnscan.offline.disk import mapped
from txnscan.offline.producer_snapshots import LogState

SMALL, LARGE = "batches of one record", "batches of 100 records"
_TOOL = "org.apache.kafka.tools.DumpLogSegments"
_PRODUCERS, _FIRST_PRODUCER_ID = 20, 1_000
_END_EVERY = 6
_MS = 1_700_000_000_000
# More than the tool prints of a batch of a hundred records.
_TAIL_BYTES = 1 << 16


def write_segment(path: Path, batches: int, records: int) -> None:
    """A segment of transactions of several producers, each of a few batches and a marker."""
    offset, sequences = 0, [0] * _PRODUCERS
    values = [[(None, bytes(80 + number * 7 % 60))] * records for number in range(16)]
    with path.open("wb") as file:
        for number in range(batches):
            who, ms = number * 7 // 5 % _PRODUCERS, _MS + number * 3
            if sequences[who] and number % _END_EVERY == 0:
                file.write(marker(offset, _FIRST_PRODUCER_ID + who, 3, 7, number % 5 > 0, ms))
                offset += 1
                continue
            data = batch(
                *(offset, values[number % len(values)]),
                timestamp_ms=ms,
                producer_id=_FIRST_PRODUCER_ID + who,
                producer_epoch=3,
                base_sequence=sequences[who],
                attributes=TRANSACTIONAL,
            )
            file.write(data)
            sequences[who] += records
            offset += records


def run(options: Options) -> Finding:
    """The tool, with and without deep iteration, and txnscan, in turn."""
    jars = kafka_jars(say=say)
    with tempfile.TemporaryDirectory(prefix="txnscan-bench-offline-") as scratch:
        directories = {SMALL: Path(scratch) / "small-0", LARGE: Path(scratch) / "large-0"}
        batches = {SMALL: options.segment_batches, LARGE: max(options.segment_batches // 100, 1)}
        for name, records in ((SMALL, 1), (LARGE, 100)):
            directories[name].mkdir()
            write_segment(_segment(directories[name]), batches[name], records)
        sides = [
            side
            for name, directory in directories.items()
            for side in (
                Side(_dump(name), lambda d=directory, n=name: _dumped(jars, d, n)),  # type: ignore[misc]
                Side(_deep(name), lambda d=directory, n=name: _dumped(jars, d, n, "--deep-iteration")),  # type: ignore[misc]
                Side(_ours(name), lambda d=directory, n=name: _segments(d, n)),  # type: ignore[misc]
                Side(_walk(name), lambda d=directory, n=name: _walked(d, n)),  # type: ignore[misc]
            )
        ]
        timed, work = timed_in_turn(sides, options.runs)
        sizes = {f"MB, {name}": round(_segment(d).stat().st_size / 1e6, 1) for name, d in directories.items()}
    ratios = (
        Ratio(_walk(SMALL), _dump(SMALL), 10, faster=True),
        Ratio(_ours(SMALL), _dump(SMALL), 10, faster=True),
        Ratio(_ours(SMALL), _deep(SMALL), 10, faster=True),
        Ratio(_ours(LARGE), _dump(LARGE), 1),
        Ratio(_ours(LARGE), _deep(LARGE), 1),
    )
    setting = {"Kafka": KAFKA_VERSION, **sizes}
    return Finding("offline", "log segments from disk", setting, timed, ratios, work)


def _segment(directory: Path) -> Path:
    return directory / f"{0:020d}.log"


def _dump(name: str) -> str:
    return f"DumpLogSegments, {name}"


def _deep(name: str) -> str:
    return f"DumpLogSegments --deep-iteration, {name}"


def _ours(name: str) -> str:
    return f"txnscan segments, {name}"


def _walk(name: str) -> str:
    return f"the walk alone, {name}"


def _dumped(jars: Path, directory: Path, name: str, *more: str) -> Work:
    command = java_command(
        *(java(), jars, directory.parent, _TOOL),
        [*more, "--files", str(_segment(directory))],
        log_level="WARN",
        to="SYSTEM_ERR",
    )
    out = directory.parent / "dump.txt"
    with out.open("wb") as file:
        subprocess.run(command, stdout=file, stderr=subprocess.PIPE, check=True)
    # Read only the last batch. A count of all batches would add time that the tool did not take.
    with out.open("rb") as file:
        file.seek(-min(_TAIL_BYTES, out.stat().st_size), 2)
        last = file.read().rpartition(b"lastOffset: ")[2]
    return {f"last offset, {name}": int(last.split()[0])}


def _segments(directory: Path, name: str) -> Work:
    command = [sys.executable, "-m", "txnscan", "segments", str(directory), "--format", "json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    (partition,) = json.loads(ran.stdout)["partitions"]
    return _work(name, partition["figures"]["batches"], partition["log_end_offset"])


def _walked(directory: Path, name: str) -> Work:
    state = LogState()
    with mapped(str(_segment(directory))) as data:
        damage = fold(data, state, 0, until=lambda: None)
    if damage is not None:
        raise RuntimeError(f"the segment is damaged: {damage}")
    return _work(name, state.figures.batches, state.next_offset)


def _work(name: str, batches: int, end: int) -> Work:
    return {f"batches, {name}": batches, f"last offset, {name}": end - 1}
