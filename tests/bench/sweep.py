"""Whole sweeps of the big cluster, beside Kafka's own tool run for one broker after the other.

- the tool: `TransactionsCommand find-hanging --broker-id N`, a process for each broker, which is how it covers a
  cluster. With --tool-brokers K only the first K brokers are asked, and the seconds multiplied. It describes each
  partition at every broker that has a replica of it.
- ours on Spark: `txnscan.sweep` with tables, the session up and the tables there: the second and later sweeps.
- ours in threads: the same with `engine="threads"` and no Spark, whose tables are written through delta-rs.
- ours without tables: `txnscan.find_hanging`.

Timed: the calls as a whole; for the tool also the start of its processes, which cannot be avoided with it. Not timed:
the start of Spark, the first sweep, and what the brokers take to make an answer for the first time: each side has a
warm-up. The tool is run in fewer rounds, because it takes minutes.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace

from tests.bench.clusters import big, described, session
from tests.bench.harness import Finding, Options, Ratio, Side, Work, timed_in_turn
from tests.bench.peers import tool, tool_broker_by_broker
from tests.sim.wire import WireCluster
from txnscan import ScanConfig, find_hanging, sweep
from txnscan.sweeps.result import Scan

TOOL = "Kafka's tool, broker by broker"
ON_SPARK, IN_THREADS = "txnscan sweep, Spark and tables, warm", "txnscan sweep, threads and tables, warm"
WITHOUT = "txnscan find_hanging"
# How many times faster than the tool.
_TARGETS = {ON_SPARK: 20, IN_THREADS: 20, WITHOUT: 30}
RATIOS = tuple(Ratio(ours, TOOL, times, faster=True) for ours, times in _TARGETS.items())
_MASTER = "local[2]"


def run(options: Options) -> Finding:
    """All in turn."""
    shape = big(options)
    broker_ids = list(shape.broker_ids)[: options.tool_brokers]
    replicas = [shape.replicas(shape.leader(shape.hanging_ordinal(number))) for number in range(shape.hanging)]
    hanging_there = sum(not {*broker_ids}.isdisjoint(those) for those in replicas)
    with (
        session(_MASTER) as spark,
        tempfile.TemporaryDirectory(prefix="txnscan-bench-tables-") as directory,
        WireCluster(shape) as cluster,
    ):
        kafka = tool(cluster.bootstrap_servers)
        config = ScanConfig(cluster.bootstrap_servers)
        on_spark = replace(config, tables=f"{directory}/spark")
        in_threads = replace(config, tables=f"{directory}/threads", engine="threads")

        def by_tool() -> Work:
            found = tool_broker_by_broker(kafka, broker_ids)
            # Where it asked all brokers it must have found as much as the others.
            return {"hanging": found} if hanging_there == shape.hanging else {"hanging at those brokers": found}

        times = shape.brokers / len(broker_ids)
        timed, work = timed_in_turn(
            [
                Side(TOOL, by_tool, runs_max=options.tool_runs, times=times),
                Side(ON_SPARK, lambda: _seen(sweep(spark, on_spark).scan)),
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
        notes=[scaled] if times > 1 else ["the tool ran for every broker"],
    )


def _seen(scan: Scan) -> Work:
    return {
        "partitions": scan.partitions_planned,
        "failed": scan.partitions_failed,
        "producers": scan.producers,
        "hanging": scan.counts["hanging"],
    }
