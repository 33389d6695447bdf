"""Many partitions of a broker's disk: how much sooner they are read with a second core.

The same files are read in one process, in one for each core, which is what `txnscan segments` does by itself, and on
Spark's executors with one core and with two, in sessions that are up. Each Spark is in a process of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from tests.bench.harness import Finding, Options, Ratio, Side, Work, timed_in_turn
from tests.bench.offline import write_segment
from txnscan.offline.paths import Spread, read_paths

_PARTITIONS = 16
_ONE, _ALL = "one process", "a process for each core"
_SPARK_1, _SPARK_2 = "Spark, local[1]", "Spark, local[2]"
_LATE_AFTER_MS = 900_000


def run(options: Options) -> Finding:
    """The four in turn."""
    with tempfile.TemporaryDirectory(prefix="txnscan-bench-cores-") as scratch, ExitStack() as stack:
        size = _write(Path(scratch), options.segment_batches)
        sides = [
            Side(_ONE, partial(_read, scratch, _one_after_another)),
            Side(_ALL, partial(_read, scratch, None)),
            *(
                Side(name, partial(_asked, stack.enter_context(_session(master, scratch))))
                for name, master in ((_SPARK_1, "local[1]"), (_SPARK_2, "local[2]"))
            ),
        ]
        timed, work = timed_in_turn(sides, options.runs)
    setting = {"cores": os.cpu_count() or 1, "partitions": _PARTITIONS, "MB": round(size / 1e6)}
    ratios = (Ratio(_ALL, _ONE, 0.6), Ratio(_SPARK_2, _SPARK_1, 0.6), Ratio(_SPARK_2, _ONE, None))
    return Finding("cores", "log segments from disk, with more cores", setting, timed, ratios, work)


def _write(directory: Path, batches: int) -> int:
    """A segment in each of the partitions, of which there is one copy on disk; the bytes of all of them."""
    first = directory / "cores-0" / f"{0:020d}.log"
    first.parent.mkdir()
    write_segment(first, batches, 1)
    for number in range(1, _PARTITIONS):
        other = directory / f"cores-{number}"
        other.mkdir()
        os.link(first, other / first.name)
    return first.stat().st_size * _PARTITIONS


_one_after_another: Spread = lambda read, files, sizes: enumerate(map(read, files))  # noqa: E731


def _read(directory: str, spread: Spread | None) -> Work:
    found = read_paths([directory], late_after_ms=_LATE_AFTER_MS, spread=spread)
    if found.errors:
        raise RuntimeError(str(found.errors[0]))
    return {"batches": sum(replica.figures.batches for replica in found.replicas)}


def _asked(session: Connection) -> Work:
    session.send(True)
    work: Work = session.recv()
    return work


@contextmanager
def _session(master: str, directory: str) -> Iterator[Connection]:
    """A process with a session of this master, which reads the directory each time that it is asked."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(master, directory, there))
    process.start()
    there.close()
    try:
        yield here
    finally:
        here.close()
        process.join()


def _serve(master: str, directory: str, asked: Connection) -> None:
    from txnscan.engine.spark.executors import spread_files
    from txnscan.engine.spark.session import spark_session

    spread = spread_files(spark_session(master), lambda done, total: None)
    try:
        while asked.recv():
            asked.send(_read(directory, spread))
    except EOFError:
        return
