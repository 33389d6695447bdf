"""The wide read of the big cluster: every partition described by its leader, the same requests on all sides.

Timed: from the first request to the last answer, with what each side makes of the answers in this process. Not timed:
Metadata, the plan, starting processes and Spark, and the time in which the brokers make an answer for the first time.

- the drain: two processes, raw sockets, requests encoded beforehand, one connection and one request in flight for each
  broker; the answers are thrown away. This is about the lower bound.
- ours without Spark: two processes with half of the brokers each, through `txnscan.reads.tasks` and the lanes of
  `txnscan.engine.threads`; connections stay open from run to run, as in the drain.
- kafka-python alone: `KafkaAdminClient.describe_producers` for one request after the other, in one thread.
- kafka-python on Spark: `mapInArrow`, each task with a KafkaAdminClient of its own, and two tasks for each core.
- ours on Spark: `SparkEngine.read`, on the same warm session. Both open their connections within the clock, as every
  sweep does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

from kafka import KafkaAdminClient

from tests.bench.clusters import (
    added,
    answers_of,
    big,
    connect_to,
    described,
    halves,
    session,
    tally,
    view_of,
    wide_plan,
)
from tests.bench.harness import Finding, Options, Ratio, Side, Work, timed_in_turn
from tests.bench.peers import Drain, fan_out, one_after_the_other
from tests.bench.processes import crew, together
from tests.sim.wire import WireCluster
from txnscan.engine.threads import THREADS, in_lanes, lanes
from txnscan.kafka.client.factory import ClientFactory
from txnscan.kafka.topology import ClusterView
from txnscan.reads.rows import WideAnswer, WideBatch
from txnscan.reads.tasks import ReadWide

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRAIN, OURS = "drain, 2 processes", "txnscan without Spark, 2 processes"
ALONE = "kafka-python, one after the other"
FAN_OUT, OURS_ON_SPARK = "kafka-python in mapInArrow", "txnscan on Spark"
RATIOS = (Ratio(OURS, DRAIN, 3), Ratio(OURS, ALONE), Ratio(OURS_ON_SPARK, FAN_OUT, 0.25), Ratio(OURS_ON_SPARK, OURS))
_MASTER = "local[2]"
_TASKS_PER_CORE = 2


def run(options: Options) -> Finding:
    """All five sides."""
    with session(_MASTER) as spark:
        return compare(options, spark)


def compare(options: Options, spark: SparkSession | None) -> Finding:
    """All five sides, or without a session the sides that need no Spark."""
    shape = big(options)
    with ExitStack() as stack:
        cluster = stack.enter_context(WireCluster(shape))
        view = view_of(cluster.bootstrap_servers)
        batches = wide_plan(view)
        sides = _without_spark(stack, cluster, view, batches)
        if spark is not None:
            sides += _on_spark(spark, cluster, view, batches)
        timed, work = timed_in_turn(sides, options.runs, before=cluster.reset_stats, after=lambda: answers_of(cluster))
    names = {side.name for side in sides}
    return Finding(
        "wide",
        "the wide read, every partition described by its leader",
        {**described(shape), "requests": len(batches)},
        timed,
        [ratio for ratio in RATIOS if {ratio.ours, ratio.peer} <= names],
        work,
    )


def _without_spark(
    stack: ExitStack, cluster: WireCluster, view: ClusterView, batches: Sequence[WideBatch]
) -> list[Side]:
    shares = halves(batches)
    drainers = crew(stack, draining, [(cluster.ports, share) for share in shares])
    readers = crew(stack, reading, [(connect_to(view), share) for share in shares])
    admin = stack.enter_context(closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)))
    return [
        Side(DRAIN, lambda: added(together(drainers))),
        Side(OURS, lambda: added(together(readers))),
        Side(ALONE, lambda: one_after_the_other(admin, batches)),
    ]


def _on_spark(spark: SparkSession, cluster: WireCluster, view: ClusterView, batches: Sequence[WideBatch]) -> list[Side]:
    from txnscan.engine.spark.executors import SparkEngine

    tasks = spark.sparkContext.defaultParallelism * _TASKS_PER_CORE

    def ours() -> Work:
        # A ClientFactory of its own, as each sweep has.
        rows = SparkEngine(spark).map(ReadWide(connect_to(view)), batches, WideAnswer, lambda done, total: None)
        return tally(rows)

    return [
        Side(FAN_OUT, lambda: fan_out(spark, cluster.bootstrap_servers, batches, tasks)),
        Side(OURS_ON_SPARK, ours),
    ]


@contextmanager
def draining(share: tuple[Mapping[int, int], Sequence[WideBatch]]) -> Iterator[Callable[[], Work]]:
    """In a process of its own: a share of the drain."""
    with Drain(*share) as drain:
        yield drain


@contextmanager
def reading(share: tuple[ClientFactory, Sequence[WideBatch]]) -> Iterator[Callable[[], Work]]:
    """In a process of its own: a share of our read, without Spark."""
    connect, batches = share
    queues = lanes(batches)

    def read() -> Work:
        found: list[Any] = []
        for _, rows in in_lanes(ReadWide(connect), queues, THREADS):
            found += rows
        return tally(found)

    connect.client()
    yield read
    connect.close()
