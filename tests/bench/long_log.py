"""One orphan beside a long `__transaction_state`: the cost of the first sweep, which reads the log, and of later ones.

Three clusters at work: a hanging transaction with a long log, a hanging transaction with the log of the other
benchmarks, and a long log without a hanging transaction. One process sweeps each cluster, in threads, with tables
through delta-rs. The first sweep searches the whole log for the orphan's producer id and keeps the result on the
incident. So later sweeps should take no longer than with a short log, and hardly longer than without an orphan.

Timed: later sweeps. Reported for the first sweep: seconds, MB from the brokers, and the most memory of the process up
to its end. Not timed: a call of another process, for which the brokers make their answers for the first time.
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
# With an orphan and a long log, later sweeps may take at most this many times as long as with one of the two.
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
    """In a process of its own: sweeps with tables, and reports its most memory."""
    with tempfile.TemporaryDirectory(prefix="txnscan-bench-tables-") as tables:
        config = ScanConfig(bootstrap_servers, tables=tables, engine="threads")

        def work(what: str = "sweep") -> Any:
            if what == "memory":
                return most_memory_mb()
            scan = sweep(None, config).scan
            return {"failed": scan.partitions_failed, "hanging": scan.counts["hanging"]}

        yield work
