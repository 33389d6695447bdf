"""One orphan beside a long `__transaction_state`: what the sweep takes that reads it, and what later sweeps do.

Three clusters at work: one with a transaction that hangs and a long log, one with such a transaction and the log of the
other benchmarks, one with a long log where nothing hangs. A process for each sweeps, in threads, with tables through
delta-rs. The first sweep looks for the orphan's producer id in the whole log, and what that shows is kept on the
incident: later sweeps should take no longer than without that log, and hardly longer than where nothing hangs.

Timed: later sweeps. Shown of the first: seconds, MB from the brokers, and the most memory that the process has had
behind it. Not timed: a call of another process, for which the brokers make their answers for the first time.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from tests.bench.clusters import asked, described, shaped
from tests.bench.harness import Finding, Grid, Options, Ratio, Side, Work, most_memory_mb, timed_in_turn
from tests.bench.processes import Worker, apart
from tests.sim.wire import WireCluster
from txnscan import ScanConfig, find_hanging, sweep

ORPHAN, SHORT, NOTHING = "one orphan, long log", "one orphan, short log", "nothing hangs, long log"
# What later sweeps beside both may take, in sweeps without one of the two.
_TARGET = 1.1
_COLUMNS = ("cluster", "seconds", "MB received", "driver MB", "MB of a later one")


def run(options: Options) -> Finding:
    """All three clusters."""
    long = replace(options, quiet=False, log_records=options.long_log_records)
    short = replace(options, quiet=False)
    shapes = {
        name: shaped(each, options.brokers, options.partitions, hanging=hanging)
        for name, each, hanging in ((ORPHAN, long, 1), (SHORT, short, 1), (NOTHING, long, 0))
    }
    rows: list[list[Any]] = []
    with ExitStack() as stack:
        clusters = {name: stack.enter_context(WireCluster(shape)) for name, shape in shapes.items()}
        sides = []
        for name, cluster in clusters.items():
            apart(made, cluster.bootstrap_servers)
            cluster.reset_stats()
            worker = stack.enter_context(Worker(sweeping, cluster.bootstrap_servers))
            began_s = time.perf_counter()
            worker.ask()
            took_s = time.perf_counter() - began_s
            rows.append([name, took_s, asked(cluster, 1)[1], worker.ask("memory")])
            sides.append(Side(name, _swept(name, worker)))
            cluster.reset_stats()
        timed, work = timed_in_turn(sides, options.runs)
        for row, cluster in zip(rows, clusters.values(), strict=True):
            row.append(asked(cluster, options.runs + 1)[1])
    return Finding(
        "long-log",
        "one orphan beside a long __transaction_state",
        described(shapes[ORPHAN]),
        timed,
        [Ratio(ORPHAN, SHORT, _TARGET), Ratio(ORPHAN, NOTHING, _TARGET)],
        work,
        grids=[Grid("the first sweep, and MB later", _COLUMNS, rows)],
    )


def made(bootstrap_servers: str) -> int:
    """In a process of its own: has the brokers make their answers."""
    return find_hanging(ScanConfig(bootstrap_servers)).partitions_planned


def _swept(name: str, worker: Worker) -> Callable[[], Work]:
    return lambda: {f"{what}; {name}": count for what, count in worker.ask().items()}


@contextmanager
def sweeping(bootstrap_servers: str) -> Iterator[Callable[..., Any]]:
    """In a process of its own: sweeps with tables, and tells the most memory that it has had."""
    with tempfile.TemporaryDirectory(prefix="txnscan-bench-tables-") as tables:
        config = ScanConfig(bootstrap_servers, tables=tables, engine="threads")

        def work(what: str = "sweep") -> Any:
            if what == "memory":
                return most_memory_mb()
            scan = sweep(None, config).scan
            return {"failed": scan.partitions_failed, "hanging": scan.counts["hanging"]}

        yield work
