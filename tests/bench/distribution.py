"""Executors and threads: from which size on Spark pays for itself, and whether a busy broker leaves executors idle.

Three processes, all prepared beforehand: threads in the driver, `local[2]`, and `local-cluster[2,1,1024]` (two
executors with a core each, in JVMs of their own). All have a session, because `sweep` needs one for its tables. Only
one process works at a time. For each size and latency: the wide read alone, and a whole sweep with tables that exist.

Timed: the calls. Not timed: starting Spark, Metadata and plan of the wide read, the first call of each. All this runs
on one machine with the brokers: executors are a gain in cores only where there are cores.

Then a skewed cluster, broker 1 with half of the partitions: for how much of the time from the first request to the last
answer each Python worker (in `local-cluster` that is each executor) had a request under way.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from typing import Any

from tests.bench.clusters import connect_to, session, shaped, tally, view_of, wide_plan
from tests.bench.harness import Finding, Grid, Options, Ratio, Side, Timed, Work, say, timed_in_turn
from tests.bench.processes import Worker
from tests.bench.stamps import busy_by, stamped
from tests.sim.wire import ClusterShape, WireCluster
from txnscan import ScanConfig, sweep
from txnscan.engine import Engine
from txnscan.engine.threads import ThreadsEngine
from txnscan.kafka.topology import ClusterView
from txnscan.reads.rows import WideAnswer, WideBatch
from txnscan.reads.tasks import ReadWide

THREADS, LOCAL, CLUSTER = "threads", "local[2]", "local-cluster[2,1,1024]"
WIDE, SWEEP, BUSY = "wide read", "whole sweep", "busy"
# Partitions, brokers.
_SIZES = ((5_000, 10), (50_000, 25), (100_000, 50), (300_000, 100))
_LATENCIES_MS = (0, 20)
_BUSY_SHARE = 0.5
# Rounds of whole sweeps: there are twenty-four of them in each, with all sizes and latencies.
_SWEEPS_MAX = 3


def run(options: Options) -> Finding:
    """Every size and latency, then the skewed cluster."""
    largest = min(options.largest, 3 * options.partitions)
    sizes = [size for size in _SIZES if size[0] <= largest] or [(options.partitions, options.brokers)]
    timed: list[Timed] = []
    ratios: list[Ratio] = []
    notes: list[str] = []
    with ExitStack() as stack:
        workers = {}
        for master in (THREADS, LOCAL, CLUSTER):
            say(f"  starting {master}")
            workers[master] = stack.enter_context(Worker(working, master))
        for latency_ms in _LATENCIES_MS:
            for partitions, brokers in sizes:
                shape = shaped(options, brokers, partitions, latency_ms=latency_ms)
                with WireCluster(shape) as cluster:
                    for what, runs in ((WIDE, options.runs), (SWEEP, min(options.runs, _SWEEPS_MAX))):
                        found = _compared(workers, what, shape, cluster, runs)
                        timed += found
                        ratios += [Ratio(each.name, found[0].name) for each in found[1:]]
                        notes.append(_quickest(found))
        skew = _skewed(options, workers, *sizes[-1])
    return Finding(
        "distribution",
        "executors and threads",
        {"sizes": ", ".join(f"{size[0]:,} on {size[1]}" for size in sizes), "hanging": shape.hanging},
        timed,
        ratios,
        grids=[skew],
        notes=[*notes, "seconds are of whole calls; threads stand in the driver, beside a session that idles"],
    )


def _compared(
    workers: dict[str, Worker], what: str, shape: ClusterShape, cluster: WireCluster, runs: int
) -> tuple[Timed, ...]:
    where = f"{what}, {shape.partitions:,} at {shape.latency_ms} ms"
    sides = [
        Side(f"{where}: {master}", _asked(worker, what, cluster.bootstrap_servers))
        for master, worker in workers.items()
    ]
    return timed_in_turn(sides, runs)[0]


def _asked(worker: Worker, what: str, bootstrap_servers: str) -> Callable[[], Work]:
    return lambda: worker.ask(what, bootstrap_servers)


def _quickest(found: tuple[Timed, ...]) -> str:
    where = found[0].name.rpartition(": ")[0]
    return f"{where}: {min(found, key=lambda each: each.median_s).name.rpartition(': ')[2]} is quickest"


def _skewed(options: Options, workers: dict[str, Worker], partitions: int, brokers: int) -> Grid:
    """The wide read of a cluster with one broker that leads half of it, twice each; shown is the second."""
    rows: list[list[Any]] = []
    for latency_ms in _LATENCIES_MS:
        shape = shaped(options, brokers, partitions, busy_share=_BUSY_SHARE, latency_ms=latency_ms)
        with WireCluster(shape) as cluster:
            for master in (LOCAL, CLUSTER):
                for number in (1, 2):
                    told = workers[master].ask(BUSY, cluster.bootstrap_servers)
                    say(f"  skewed, {latency_ms} ms, {master}, run {number}: {told}")
                shares = ", ".join(f"{seconds / told['reading_s']:.0%}" for seconds in told["processes_s"])
                tasks = ", ".join(f"{seconds:.2f}" for seconds in told["tasks_s"])
                rows.append([latency_ms, master, told["took_s"], told["reading_s"], shares, tasks])
    columns = ("latency ms", "on", "seconds", "first request to last answer", "each worker busy", "each task busy s")
    return Grid(f"the wide read where broker 1 leads {_BUSY_SHARE:.0%}", columns, rows)


@contextmanager
def working(master: str) -> Iterator[Callable[[str, str], Any]]:
    """In a process of its own: one way to read, with a session and tables of its own."""
    with (
        session(LOCAL if master == THREADS else master) as spark,
        tempfile.TemporaryDirectory(prefix="txnscan-bench-tables-") as tables,
    ):
        from txnscan.engine.spark.executors import SparkEngine

        planned: dict[str, tuple[ClusterView, tuple[WideBatch, ...]]] = {}
        engine: Engine = ThreadsEngine() if master == THREADS else SparkEngine(spark)

        def work(what: str, bootstrap_servers: str) -> Any:
            if what == SWEEP:
                name = "threads" if master == THREADS else "spark"
                scan = sweep(spark, ScanConfig(bootstrap_servers, tables=tables, engine=name)).scan
                return {"partitions": scan.partitions_planned, "failed": scan.partitions_failed, **scan.counts}
            if bootstrap_servers not in planned:
                view = view_of(bootstrap_servers)
                planned[bootstrap_servers] = view, wide_plan(view)
            view, batches = planned[bootstrap_servers]
            connect = connect_to(view)
            try:
                if what == WIDE:
                    return tally(engine.map(ReadWide(connect), batches, WideAnswer, lambda done, total: None))
                began_s, ended_s, stamps = stamped(engine, ReadWide(connect), batches)
            finally:
                connect.close()
            return {
                "took_s": ended_s - began_s,
                "reading_s": (max(s.ended_ns for s in stamps) - min(s.began_ns for s in stamps)) / 1e9,
                "processes_s": busy_by(stamps, attrgetter("process")),
                "tasks_s": busy_by(stamps, attrgetter("task")),
            }

        yield work
