"""A cluster at work beside a cluster at rest: the same brokers and partitions, in one run, in turn.

On the busy cluster a share of the partitions has a live transaction. It has transactional ids in every state, with
their records in `__transaction_state`. Both clusters have consumer groups, and some wait behind a hanging transaction.

- find_hanging, no Spark.
- sweep with tables. The session is up and the tables exist; each cluster has its own tables.

Timed: the calls as a whole. Not timed: the start of Spark, the first sweep, and the time in which the brokers make an
answer for the first time.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.bench.clusters import asked, big, described, session
from tests.bench.harness import Finding, Grid, Options, Ratio, Side, Work, timed_in_turn
from tests.sim.wire import WireCluster
from txnscan import ScanConfig, find_hanging, sweep
from txnscan.sweeps.result import Scan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIND_HANGING, SWEEP = "find_hanging", "sweep, warm"
QUIET, BUSY = "quiet", "busy"
# The busy cluster may take at most this many times as long as the quiet one.
_TARGET = 1.3
_MASTER = "local[2]"


def run(options: Options) -> Finding:
    """Both, of both."""
    with session(_MASTER) as spark:
        return compare(options, spark)


def compare(options: Options, spark: SparkSession | None) -> Finding:
    """Both, or find_hanging alone, which needs no Spark."""
    shapes = {QUIET: big(replace(options, quiet=True)), BUSY: big(replace(options, quiet=False))}
    with ExitStack() as stack:
        clusters = {name: stack.enter_context(WireCluster(shape)) for name, shape in shapes.items()}
        sides = [_found(name, cluster) for name, cluster in clusters.items()]
        if spark is not None:
            for name, cluster in clusters.items():
                tables = stack.enter_context(tempfile.TemporaryDirectory(prefix="txnscan-bench-tables-"))
                sides.append(_swept(spark, name, cluster, tables))
        for cluster in clusters.values():
            cluster.reset_stats()
        timed, work = timed_in_turn(sides, options.runs)
        calls = len(sides) // 2 * (options.runs + 1)
        averages = [[name, *asked(cluster, calls)] for name, cluster in clusters.items()]
    whats = [FIND_HANGING, SWEEP][: len(sides) // 2]
    return Finding(
        "busy",
        "a cluster at work beside one at rest",
        described(shapes[BUSY]),
        timed,
        [Ratio(f"{what}, {BUSY}", f"{what}, {QUIET}", _TARGET) for what in whats],
        work,
        grids=[Grid("what a call asked of the brokers, on average", ("cluster", "requests", "MB received"), averages)],
    )


def _found(name: str, cluster: WireCluster) -> Side:
    return Side(f"{FIND_HANGING}, {name}", lambda: _seen(name, find_hanging(ScanConfig(cluster.bootstrap_servers))))


def _swept(spark: SparkSession, name: str, cluster: WireCluster, tables: str) -> Side:
    config = ScanConfig(cluster.bootstrap_servers, tables=tables)
    return Side(f"{SWEEP}, {name}", lambda: _seen(name, sweep(spark, config).scan))


def _seen(name: str, scan: Scan) -> Work:
    counted = {verdict: count for verdict, count in scan.counts.items() if count}
    impacts = [impact for judged in scan.transactions if (impact := scan.impact(judged)) is not None]
    # Not the warnings: a minute after its start the cluster has more old live transactions than a sweep looks at.
    blocked = sum(impact.groups_blocked or 0 for impact in impacts)
    seen = {"failed": scan.partitions_failed, "groups blocked": blocked, **counted}
    return {f"{what}, {name}": count for what, count in seen.items()}
