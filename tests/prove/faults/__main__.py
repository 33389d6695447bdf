"""The run: both clusters, then the fault that chance hardly ever causes, then the figures."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cut_off import cluster_to_cut
from tests.prove.faults.faults import fault_order
from tests.prove.faults.figures import Figures, say
from tests.prove.faults.ledger import audit, overlooked, settle
from tests.prove.faults.skipped_marker import skipped_marker
from tests.prove.faults.sweeps import Sweeper, one_round
from tests.prove.faults.traffic import Sleepers, Traffic
from tests.prove.faults.world import CLUSTERS, World
from txnscan.demo.errors import DemoError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SessionFor = Callable[[int], "SparkSession | None"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program and prints the report. Returns 1 on any violation."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.prove.faults", description="Sweeps real brokers while they break, with the truth known."
    )
    parser.add_argument("--sweeps", type=int, default=100, help="at least so many, over both clusters")
    parser.add_argument("--seed", type=int, default=1, help="decides the faults and their order")
    parser.add_argument("--spark-every", type=int, default=12, help="every so many sweeps one on Spark; 0 for none")
    options = parser.parse_args(arguments)
    figures, started_s = Figures(), time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="txnscan-faults-"))
    of_first = options.sweeps * 3 // 5
    with ExitStack() as stack:
        session_for = spark_every(options.spark_every, stack)
        for name, sweeps in zip(CLUSTERS, (of_first, options.sweeps - of_first), strict=True):
            run_on(name, sweeps, options.seed, figures, directory, session_for)
        skipped_marker(figures, directory)
    for violation in figures.violations:
        say(f"VIOLATION: {violation}")
    print(json.dumps(figures.report(options.seed, time.monotonic() - started_s), indent=2))  # noqa: T201
    if figures.violations:
        say(f"The same faults again: python -m tests.prove.faults --sweeps {options.sweeps} --seed {options.seed}")
        say(f"The brokers' logs and data are in {directory}")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


def run_on(name: str, sweeps: int, seed: int, figures: Figures, directory: Path, session_for: SessionFor) -> None:
    """Runs this many sweeps on a new cluster, and the audit."""
    rng = random.Random(f"{seed}-{name}")
    wanted = figures.sweeps + sweeps
    with cluster_to_cut(directory / name, CLUSTERS[name]) as (cluster, controllers), cluster.wire() as wire:
        world = World(name, cluster, controllers, wire, Traffic(cluster, f"{seed}-{name}"))
        say(f"{name}: planting")
        world.plant()
        sleepers = Sleepers(wire)
        world.traffic.start()
        sweeper = Sweeper(world, figures, directory, session_for)
        try:
            for make in fault_order(rng):
                if figures.sweeps >= wanted - 1:
                    break
                # A separate random generator: a fault draws in its own thread, while the sweeps draw in this thread.
                fault = make(world, random.Random(rng.random()))
                figures.rounds[fault.kind] += 1
                one_round(sweeper, fault, rng)
                sweeper.sweep(None, "between two faults")
            say(f"{name}: waiting until nothing changes any more")
            for_ever = settle(world, sleepers)
        finally:
            # A client that did not stop must not hide another error.
            with suppress(DemoError):
                world.traffic.stop()
        figures.open_for_ever[name] = len(for_ever)
        figures.traffic.update(world.traffic.fates)
        final = sweeper.sweep(None, "in the end")
        audit(world, sweeper.accusations, for_ever, figures)
        figures.violations += [f"{name}: {wrong}" for wrong in overlooked(final, for_ever)]


def spark_every(many: int, stack: ExitStack) -> SessionFor:
    """Returns the session for every `many`-th sweep. It is created on first use, and stopped with the stack."""

    @cache
    def session() -> SparkSession:
        from txnscan.engine.spark.session import spark_session

        made = spark_session("local[2]", app_name="txnscan-faults")
        stack.callback(made.stop)
        return made

    return lambda number: session() if many and number % many == 0 else None


if __name__ == "__main__":
    sys.exit(main())
