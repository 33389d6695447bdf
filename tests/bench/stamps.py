"""When each request of a wide read began and ended, and in which process: the read itself, wrapped."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from txnscan.engine import Engine
from txnscan.reads.rows import WideBatch
from txnscan.reads.tasks import ReadWide


@dataclass(frozen=True, slots=True)
class Stamp:
    """One request. Times are of this machine's monotonic clock, which all its processes share.

    process: the Python process, which is an executor's where an executor has one core. task: of Spark, or -1.
    """

    leader: int
    partitions: int
    began_ns: int
    ended_ns: int
    process: int
    task: int


@dataclass(frozen=True, slots=True)
class ReadStamped:
    """Picklable: the wide read of one batch, which gives its stamp and not what it saw.

    Raises RuntimeError where a partition was not answered: a read that failed may look fast.
    """

    read: ReadWide

    def __call__(self, batch: WideBatch) -> Iterable[Stamp]:
        began_ns = time.monotonic_ns()
        answered = sum(row.answered for row in self.read(batch))
        ended_ns = time.monotonic_ns()
        if answered != batch.size:
            raise RuntimeError(f"broker {batch.leader} answered {answered} of {batch.size} partitions")
        return [Stamp(batch.leader, answered, began_ns, ended_ns, os.getpid(), _task())]


def _task() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context is not None else -1


def stamped(engine: Engine, read: ReadWide, batches: Sequence[WideBatch]) -> tuple[float, float, list[Stamp]]:
    """Runs the wide read: when it began and ended, in seconds of the same clock, and the stamps."""
    began_s = time.monotonic()
    stamps = engine.map(ReadStamped(read), batches, Stamp, lambda done, total: None)
    return began_s, time.monotonic(), stamps


def busy_by(stamps: Iterable[Stamp], whose: Callable[[Stamp], int]) -> list[float]:
    """For how many seconds each process or task was reading, in the order of their numbers."""
    of_each: dict[int, list[Stamp]] = defaultdict(list)
    for stamp in stamps:
        of_each[whose(stamp)].append(stamp)
    return [busy_s(of_each[one]) for one in sorted(of_each)]


def busy_s(stamps: Iterable[Stamp]) -> float:
    """For how long at least one of these requests was under way."""
    total_ns = until_ns = 0
    for stamp in sorted(stamps, key=lambda s: s.began_ns):
        total_ns += max(0, stamp.ended_ns - max(stamp.began_ns, until_ns))
        until_ns = max(until_ns, stamp.ended_ns)
    return total_ns / 1e9
