"""The setting of the benchmarks: the big cluster on the wire, the plan of its wide read, a Spark session."""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.bench.harness import ROOT, Options, Work
from tests.sim.wire import ClusterShape, WireCluster
from txnscan import ScanConfig
from txnscan.config import parse_bootstrap_servers
from txnscan.kafka.client.client import Client
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.factory import ClientFactory
from txnscan.kafka.protocol.metadata import read_metadata
from txnscan.kafka.topology import ClusterView
from txnscan.reads.planner import plan_wide
from txnscan.reads.rows import WideAnswer, WideBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HANGING = 100


def big(options: Options) -> ClusterShape:
    """The cluster of the targets, or a smaller one with as many producers on each partition."""
    return shaped(options, options.brokers, options.partitions)


def shaped(options: Options, brokers: int, partitions: int, **others: Any) -> ClusterShape:
    """A cluster of this size, at work unless a quiet one was asked for. others: further fields of the shape."""
    told = {"hanging": min(_HANGING, partitions), **others}
    if options.quiet:
        return ClusterShape(brokers=brokers, partitions=partitions, groups=options.groups, **told)
    return ClusterShape.busy(
        brokers,
        partitions,
        live_share=options.live_share,
        transactional_ids=options.transactional_ids,
        log_records=options.log_records,
        groups=options.groups,
        **told,
    )


def described(shape: ClusterShape) -> dict[str, Any]:
    """A shape as the tables head themselves."""
    return {
        "brokers": shape.brokers,
        "partitions": shape.partitions,
        "producers": shape.partitions * shape.producers_per_partition,
        "hanging": shape.hanging,
        "partitions with live transactions": shape.open_partitions_of_ids,
        "transactional ids at rest": shape.transactional_ids,
        "records in __transaction_state, at least": max(shape.log_records, shape.transactional_ids),
        "consumer groups": shape.groups,
        "latency_ms": shape.latency_ms,
    }


def view_of(bootstrap_servers: str) -> ClusterView:
    """The metadata of the first bootstrap server."""
    first, *_ = parse_bootstrap_servers(bootstrap_servers)
    with Client(ConnectionSettings(), [first]) as client:
        return read_metadata(client.send, first.broker_id)


def wide_plan(view: ClusterView, batch_size: int | None = None) -> tuple[WideBatch, ...]:
    """The requests of a wide read of all partitions, with the product's own bounds."""
    config = ScanConfig("localhost:9092")
    batches, _ = plan_wide(
        view.topics,
        batch_size=batch_size or config.batch_size,
        in_flight_max=config.in_flight_max,
    )
    return batches


def connect_to(view: ClusterView) -> ClientFactory:
    """The clients of a process. Each factory keeps its connections, as in one sweep."""
    return ClientFactory(str(uuid.uuid4()), ConnectionSettings(), view.brokers)


def tally(answers: Iterable[WideAnswer]) -> Work:
    """The counts of a wide read."""
    counts = [(one.answered, one.producers, sum(len(row.open_producers) for row in one.rows)) for one in answers]
    partitions, producers, still_open = map(sum, zip(*counts, strict=True))
    return {"partitions": partitions, "producers": producers, "open": still_open}


def added(works: Iterable[Mapping[str, int]]) -> Work:
    """The shares of a work, together."""
    total: dict[str, int] = {}
    for work in works:
        for what, count in work.items():
            total[what] = total.get(what, 0) + count
    return total


def answers_of(cluster: WireCluster) -> Work:
    """The brokers' counts since the last reset: DescribeProducers requests, and the bytes of their answers."""
    stats = cluster.stats().values()
    return {
        "requests": sum(each.requests.get("DescribeProducers", 0) for each in stats),
        "answer bytes": sum(each.bytes_by_api.get("DescribeProducers", 0) for each in stats),
    }


def asked(cluster: WireCluster, calls: int) -> tuple[int, float]:
    """How many requests each of so many calls sent since the brokers began to count, and the MB it got, on average."""
    stats = cluster.stats().values()
    requests, received = sum(sum(each.requests.values()) for each in stats), sum(each.bytes_sent for each in stats)
    return requests // calls, received / calls / 1e6


def halves(batches: Sequence[WideBatch], parts: int = 2) -> list[list[WideBatch]]:
    """The batches divided by leaders, so that a connection to a leader is needed in one part alone."""
    leaders = sorted({batch.leader for batch in batches})
    part_of = {leader: place % parts for place, leader in enumerate(leaders)}
    return [[batch for batch in batches if part_of[batch.leader] == part] for part in range(parts)]


@contextmanager
def session(master: str) -> Iterator[SparkSession]:
    """A session as the command line makes it, in a process that has none. Python workers can import the benchmarks."""
    from txnscan.engine.spark.session import spark_session

    with tempfile.TemporaryDirectory(prefix="txnscan-bench-spark-") as directory:
        settings = {
            "spark.sql.warehouse.dir": f"{directory}/warehouse",
            # local-cluster gives each executor a directory under the working one otherwise.
            "spark.local.dir": f"{directory}/local",
            "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT)),
        }
        spark = spark_session(master, app_name="txnscan-bench", settings=settings)
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def ordinary_session(master: str) -> Iterator[SparkSession]:
    """A session as users make it: Delta's extension and catalog, and Spark's own default for everything else."""
    from pyspark.sql import SparkSession

    from txnscan.engine.spark.java import delta_jars, jar_directory

    # PySpark starts its workers with `python3` of the path otherwise.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="txnscan-bench-spark-") as directory:
        settings = {
            "spark.jars": ",".join(map(str, sorted(jar_directory(delta_jars()).glob("*.jar")))),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.warehouse.dir": f"{directory}/warehouse",
            "spark.local.dir": f"{directory}/local",
            "spark.ui.showConsoleProgress": "false",
        }
        builder = SparkSession.builder.master(master).appName("txnscan-bench")
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
