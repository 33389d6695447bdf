"""Spark executors: `mapInArrow`, the DataFrame form of mapPartitions that Spark Connect and Databricks also have.

A task reads several lanes at once, in threads, because reading is mostly waiting, and starting a task costs as much as
reading a thousand partitions. The number of tasks is the number that run at once, so that a task that waits for a slow
broker does not keep others from starting. A lane stays in one task, so that its batches are read one after another. The
work is sent with the task's function. All rows come back as Arrow before the call returns. Spark may run a task twice,
which does no harm to reads.
"""

from __future__ import annotations

import atexit
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from txnscan.engine import Batch, Engine, Row
from txnscan.engine.rows import from_arrow, spark_schema, to_arrow
from txnscan.engine.spark.errors import spark_reason
from txnscan.engine.spark.interrupts import is_interrupt
from txnscan.engine.spark.jobs import inheriting
from txnscan.engine.spark.nodes import remedy
from txnscan.engine.spark.python import map_in_arrow, unusable
from txnscan.engine.threads import THREADS, ThreadsEngine, in_lanes, lanes
from txnscan.parallel import OnProgress

Item = TypeVar("Item")
Result = TypeVar("Result")
# The minimum number of rows in a record batch that an executor sends, except for the last batch.
_ROWS_TOGETHER = 1_000
_POLL_S = 0.5
# How long the process waits at its end until Python has started on the executors.
_START_S = 10
# The number of tasks that run at once, if a Connect session does not report it.
_PARALLELISM = 8


class SparkEngine:
    """Maps on the executors of a Spark session, classic or Connect."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def driver(self) -> Engine:
        """See Engine."""
        return ThreadsEngine()

    def map(
        self,
        function: Callable[[Batch], Iterable[Row]],
        batches: Sequence[Batch],
        row_type: type[Row],
        on_progress: OnProgress,
    ) -> list[Row]:
        """See Engine."""
        if not batches:
            return []
        # From here on, jobs have the name of this stage.
        on_progress(0, len(batches))
        work = dealt(lanes(batches), self._parallelism)
        with self._watched(len(work), len(batches), on_progress), _with_remedy():
            return from_arrow(self._spread(function, work, row_type).toArrow(), row_type)

    def start_workers(self, trial: Callable[[], str | None]) -> Callable[[], str | None]:
        """Starts Python on the executors, and runs a trial on each, which gives why it fails, or None. Returns a
        function that waits for the result: why an executor cannot work, or None. It raises Spark's error if the user
        interrupts the trial.

        The first start takes seconds, in which the driver does other work.
        """
        failure: list[str | None] = []
        interrupt: list[Exception] = []

        def start() -> None:
            try:
                failure.append(self._tried(trial))
            except Exception as error:
                if is_interrupt(error):
                    interrupt.append(error)
                # With another engine than `auto`, the first read fails with the same error.
                failure.append(f"the executors failed: {spark_reason(error)}")
            atexit.unregister(starting.join)

        def wait() -> str | None:
            starting.join()
            if interrupt:
                raise interrupt[0]
            return failure[0]

        starting = threading.Thread(target=inheriting(self._spark, start), name="txnscan-start", daemon=True)
        # If a command fails at once, it must not stop Spark during this start: Spark would log another error.
        atexit.register(starting.join, _START_S)
        starting.start()
        return wait

    def _tried(self, trial: Callable[[], str | None]) -> str | None:
        """Why a trial fails on an executor. Raises Spark's error if its Python does not start."""
        if (said := unusable(self._spark)) is not None:
            raise RuntimeError(said)
        each = self._spark.range(0, self._parallelism, 1, self._parallelism)
        found = map_in_arrow(each, _on_each(trial), "failure string").toArrow()
        return next((one for one in found.column(0).to_pylist() if one is not None), None)

    def _spread(
        self, function: Callable[[Batch], Iterable[Row]], work: Sequence[bytes], row_type: type[Row]
    ) -> DataFrame:
        """The rows of all this work, with one task for each piece of work."""
        numbers = self._spark.range(0, len(work), 1, len(work))
        return map_in_arrow(numbers, _on_lanes(function, work, row_type), spark_schema(row_type))

    @property
    def _parallelism(self) -> int:
        """The number of tasks that run at once."""
        try:
            return self._spark.sparkContext.defaultParallelism
        except PySparkException:  # Spark Connect: the session has no context
            return int(self._spark.conf.get("spark.default.parallelism", None) or _PARALLELISM)

    def _watched(self, tasks: int, batches: int, on_progress: OnProgress) -> AbstractContextManager[None]:
        try:
            context = self._spark.sparkContext
        except PySparkException:  # Spark Connect: the session has no context, and so no status tracker
            return _unwatched()
        tracker = context.statusTracker()
        known = set(tracker.getActiveStageIds())

        def report() -> None:
            for stage_id in set(tracker.getActiveStageIds()) - known:
                stage = tracker.getStageInfo(stage_id)
                if stage is not None and stage.numTasks == tasks:
                    on_progress(batches * stage.numCompletedTasks // tasks, batches)

        return _polled(report)


@dataclass(frozen=True, slots=True)
class _Input:
    """An input that is read on its own, as its own lane, such as the files of a replica."""

    lane: int
    size: int
    file: Any


@dataclass(frozen=True, slots=True)
class _Read:
    """The pickled result of reading an input, with the input's number."""

    number: int
    result: bytes


def spread_files(
    spark: SparkSession, on_progress: OnProgress
) -> Callable[[Callable[[Item], Result], Sequence[Item], Sequence[int]], Iterator[tuple[int, Result]]]:
    """Calls a function on each of some files on the executors of a session, which must see them at the same paths. The
    return value is an `offline.paths.Spread`. Every result is in the driver before the first result is returned.
    """
    engine = SparkEngine(spark)

    def spread(
        read: Callable[[Item], Result], files: Sequence[Item], sizes: Sequence[int]
    ) -> Iterator[tuple[int, Result]]:
        batches = [_Input(number, max(sizes[number], 1), one) for number, one in enumerate(files)]

        def read_one(batch: _Input) -> Iterator[_Read]:
            yield _Read(batch.lane, pickle.dumps(read(batch.file)))

        for row in engine.map(read_one, batches, _Read, on_progress):
            yield row.number, pickle.loads(row.result)  # noqa: S301  this session's own executor pickled it

    return spread


def dealt(queues: Sequence[Sequence[Batch]], tasks: int) -> tuple[bytes, ...]:
    """The lanes of each task, pickled, so that a task decodes only its own lanes.

    The longest lanes are dealt first, and start first. Lanes of one leader go to different tasks, so that no executor
    has all lanes of a large broker.
    """
    longest_first = sorted(queues, key=lambda queue: -sum(batch.size for batch in queue))
    hands = [longest_first[task::tasks] for task in range(min(tasks, len(queues)))]
    return tuple(pickle.dumps(hand) for hand in hands)


def _on_each(trial: Callable[[], str | None]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            yield pa.RecordBatch.from_arrays([pa.array([trial()] * batch.num_rows, pa.string())], ["failure"])

    return run


def _on_lanes(
    function: Callable[[Batch], Iterable[Row]], work: Sequence[bytes], row_type: type[Row]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number.as_py() for batch in numbers for number in batch.column(0)):
            hand = pickle.loads(work[number])  # noqa: S301  the driver pickled it, as Spark does this function
            for rows in _together(rows for _, rows in in_lanes(function, hand, THREADS)):
                yield from to_arrow(rows, row_type).to_batches()

    return run


def _together(lanes: Iterable[list[Row]]) -> Iterator[list[Row]]:
    """The rows of several lanes. A record batch costs a millisecond to send, and most lanes have a row or two."""
    rows: list[Row] = []
    for found in lanes:
        rows += found
        if len(rows) >= _ROWS_TOGETHER:
            yield rows
            rows = []
    if rows:
        yield rows


@contextmanager
def _with_remedy() -> Iterator[None]:
    """If the executors' Python is the cause of an error, adds a sentence about it below Spark's trace of 100 lines."""
    try:
        yield
    except Exception as error:
        if (sentence := remedy(str(error))) is not None:
            error.add_note(sentence)
        raise


@contextmanager
def _unwatched() -> Iterator[None]:
    yield


@contextmanager
def _polled(report: Callable[[], None]) -> Iterator[None]:
    """Calls `report` periodically from another thread, until the block ends."""
    finished = threading.Event()

    def poll() -> None:
        while not finished.wait(_POLL_S):
            report()

    thread = threading.Thread(target=poll, name="txnscan-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
