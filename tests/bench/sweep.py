"""Whole sweeps of the big cluster, beside Kafka's own tool run for one broker after the other.

- the tool: `TransactionsCommand find-hanging --broker-id N`. It covers a cluster with a process for each broker. With
  --tool-brokers K only the first K brokers are asked, and the seconds are multiplied. It describes each partition at
  every broker that has a replica of it.
- an ordinary session: `txnscan.sweep` with tables at a local path in a Spark session as users make it, with Delta and
  without other settings. The session is up and the tables exist: the second and later sweeps. delta-rs writes.
- a catalog: the same with tables in the session's catalog, which Spark writes.
- our session: the same in the session that `txnscan sweep` makes.
- in threads: the same with `engine="threads"` and no Spark, whose tables are written through delta-rs.
- without tables: `txnscan.find_hanging`.

Timed: the calls as a whole; for the tool also the start of its processes, which cannot be avoided with it. Not timed:
the start of Spark, the first sweep, and the time in which the brokers make an answer for the first time: each side has
a warm-up. The first sweep of each session, which creates the tables, has a table of its own. The tool is run in fewer
rounds, because it takes minutes. Each session is in a process of its own, and idles while others work.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from tests.bench.clusters import big, described, ordinary_session, session
from tests.bench.harness import Finding, Grid, Options, Ratio, Side, Work, say, timed_in_turn
from tests.bench.peers import tool, tool_broker_by_broker
from tests.bench.processes import Worker
from tests.sim.wire import WireCluster
from txnscan import ScanConfig, find_hanging, sweep
from txnscan.sweeps.result import Scan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOOL = "Kafka's tool, broker by broker"
ORDINARY = "txnscan sweep, ordinary session, warm"
IN_CATALOG = "txnscan sweep, ordinary session, catalog, warm"
ON_SPARK, IN_THREADS = "txnscan sweep, our session, warm", "txnscan sweep, threads and tables, warm"
WITHOUT = "txnscan find_hanging"
# How many times faster than the tool.
_TARGETS = {ORDINARY: 25, IN_CATALOG: 25, ON_SPARK: 25, IN_THREADS: 25, WITHOUT: 60}
RATIOS = (*(Ratio(ours, TOOL, times, faster=True) for ours, times in _TARGETS.items()), Ratio(ORDINARY, ON_SPARK, 1.2))
_SESSIONS: Mapping[str, Callable[[str], AbstractContextManager[SparkSession]]] = MappingProxyType(
    {ORDINARY: ordinary_session, IN_CATALOG: ordinary_session, ON_SPARK: session}
)
_CATALOG = "spark_catalog.default"
_MASTER = "local[2]"


def run(options: Options) -> Finding:
    """All in turn."""
    shape = big(options)
    broker_ids = list(shape.broker_ids)[: options.tool_brokers]
    replicas = [shape.replicas(shape.leader(shape.hanging_ordinal(number))) for number in range(shape.hanging)]
    hanging_there = sum(not {*broker_ids}.isdisjoint(those) for those in replicas)
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="txnscan-bench-tables-"))
        cluster = stack.enter_context(WireCluster(shape))
        kafka = tool(cluster.bootstrap_servers)
        config = ScanConfig(cluster.bootstrap_servers)
        in_threads = replace(config, tables=f"{directory}/threads", engine="threads")
        places = {ORDINARY: f"{directory}/ordinary", IN_CATALOG: _CATALOG, ON_SPARK: f"{directory}/ours"}
        of_session = {name: replace(config, tables=place) for name, place in places.items()}

        def by_tool() -> Work:
            found = tool_broker_by_broker(kafka, broker_ids)
            # If the tool asked all brokers, it must find as many as the other sides.
            return {"hanging": found} if hanging_there == shape.hanging else {"hanging at those brokers": found}

        workers: dict[str, Worker] = {}
        first = []
        for name, one in of_session.items():
            say(f"  starting: {name}")
            workers[name] = stack.enter_context(Worker(sweeping, name, one))
            began_s = time.perf_counter()
            workers[name].ask()
            first.append((name, time.perf_counter() - began_s))
        times = shape.brokers / len(broker_ids)
        timed, work = timed_in_turn(
            [
                Side(TOOL, by_tool, runs_max=options.tool_runs, times=times),
                *(Side(name, worker.ask) for name, worker in workers.items()),
                Side(IN_THREADS, lambda: _seen(sweep(None, in_threads).scan)),
                Side(WITHOUT, lambda: _seen(find_hanging(config))),
            ],
            options.runs,
        )
    scaled = f"the tool ran for {len(broker_ids)} of {shape.brokers} brokers; its seconds are multiplied by {times:g}"
    return Finding(
        "sweep",
        "a whole sweep, proven",
        described(shape),
        timed,
        RATIOS,
        work,
        grids=[Grid("the first sweep, which creates the tables", ("session", "seconds"), first)],
        notes=[scaled] if times > 1 else ["the tool ran for every broker"],
    )


@contextmanager
def sweeping(name: str, config: ScanConfig) -> Iterator[Callable[[], Work]]:
    """Sweeps in a Spark session of this kind."""
    with _SESSIONS[name](_MASTER) as spark:
        yield lambda: _seen(sweep(spark, config).scan)


def _seen(scan: Scan) -> Work:
    return {
        "partitions": scan.partitions_planned,
        "failed": scan.partitions_failed,
        "producers": scan.producers,
        "hanging": scan.counts["hanging"],
    }
