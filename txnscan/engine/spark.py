"""Spark executors: `mapInArrow`, the DataFrame form of mapPartitions that Spark Connect and Databricks also have.

Work goes out as a DataFrame with one Spark partition per lane, so that a lane's batches run one after another on one
executor. Rows come back as Arrow before the call returns. Spark may run a task twice; reads do not mind.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from txnscan.engine import OnProgress, Row
from txnscan.engine.rows import arrow_schema, from_arrow, spark_schema, to_arrow
from txnscan.model import Context, CoordinatorView, Judged, Observation, ReadBatch
from txnscan.rules import judge_observation

_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class _Left:
    """The left side of the join: an observation, by the producer id that it is joined on."""

    producer_id: int
    observation: Observation


@dataclass(frozen=True, slots=True)
class _Right:
    """The right side: every coordinator's view of a producer id."""

    producer_id: int
    coordinators: tuple[CoordinatorView, ...]


@dataclass(frozen=True, slots=True)
class _Joined:
    producer_id: int
    observation: Observation
    coordinators: tuple[CoordinatorView, ...]


class SparkEngine:
    """Reads and judges on the executors of a Spark session, classic or Connect."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(
        self,
        read: Callable[[ReadBatch], Iterable[Row]],
        batches: Sequence[ReadBatch],
        row_type: type[Row],
        on_progress: OnProgress,
    ) -> list[Row]:
        """See Engine."""
        if not batches:
            return []
        lane_numbers = {lane: number for number, lane in enumerate(sorted({batch.lane for batch in batches}))}
        numbered = [replace(batch, lane=lane_numbers[batch.lane]) for batch in batches]
        work = self._frame(to_arrow(numbered, ReadBatch))
        spread = _one_partition_per_lane(work, len(lane_numbers))
        rows = spread.mapInArrow(_read_batches(read, row_type), spark_schema(row_type))
        with self._watched(len(lane_numbers), len(batches), on_progress):
            return from_arrow(rows.toArrow(), row_type)

    def judge(
        self, observations: Sequence[Observation], views: Sequence[CoordinatorView], context: Context
    ) -> list[Judged]:
        """See Engine. The snapshot is the broadcast side of the join."""
        if not observations:
            return []
        by_producer_id: dict[int, list[CoordinatorView]] = defaultdict(list)
        for view in views:
            by_producer_id[view.producer_id].append(view)
        left = self._frame(to_arrow([_Left(o.producer_id, o) for o in observations], _Left))
        right = self._frame(to_arrow([_Right(p, tuple(v)) for p, v in by_producer_id.items()], _Right))
        joined = left.join(F.broadcast(right), "producer_id", "left").select(
            "producer_id", "observation", "coordinators"
        )
        return from_arrow(joined.mapInArrow(_judge_batches(context), spark_schema(Judged)).toArrow(), Judged)

    def _frame(self, table: pa.Table) -> DataFrame:
        return self._spark.createDataFrame(table)

    def _watched(self, lanes: int, batches: int, on_progress: OnProgress) -> AbstractContextManager[None]:
        try:
            context = self._spark.sparkContext
        except PySparkException:  # Spark Connect: the session has no context, and so no status tracker
            return _unwatched()
        tracker = context.statusTracker()
        known = set(tracker.getActiveStageIds())

        def report() -> None:
            for stage_id in set(tracker.getActiveStageIds()) - known:
                stage = tracker.getStageInfo(stage_id)
                if stage is not None and stage.numTasks == lanes:
                    on_progress(batches * stage.numCompletedTasks // lanes, batches)

        return _polled(report)


def _one_partition_per_lane(work: DataFrame, lanes: int) -> DataFrame:
    """`repartitionById` is exact (Spark 4.1); before it, a hash may put two lanes into one task and cost time."""
    if hasattr(work, "repartitionById"):
        return work.repartitionById(lanes, F.col("lane").cast("int"))
    return work.repartition(lanes, "lane")


def _read_batches(
    read: Callable[[ReadBatch], Iterable[Row]], row_type: type[Row]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(work: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for record_batch in work:
            for batch in from_arrow(record_batch, ReadBatch):
                yield from to_arrow(read(batch), row_type).to_batches()

    return run


def _judge_batches(context: Context) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(joined: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for record_batch in joined:
            rows = from_arrow(record_batch.cast(arrow_schema(_Joined)), _Joined)
            judged = [judge_observation(row.observation, row.coordinators, context) for row in rows]
            yield from to_arrow(judged, Judged).to_batches()

    return run


@contextmanager
def _unwatched() -> Iterator[None]:
    yield


@contextmanager
def _polled(report: Callable[[], None]) -> Iterator[None]:
    """Calls `report` now and then from another thread, until the block ends."""
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
