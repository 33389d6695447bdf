"""From 1,000 partitions on 10 brokers to 1,000,000 on 200: what find_hanging and a sweep take and ask for.

Each size and each of the two is measured in a process of its own that runs it twice, and whose brokers are other
processes' children. Timed: the second call; the first makes the brokers' answers and, for the sweep, the tables.
Requests and bytes are the average of both. Memory is the most that a process ever had (VmHWM), over both calls: of the
driver's Python, of its JVMs and of the largest Python worker. Bytes for each partition: by how much the memory grows
from the second largest size to the largest.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.bench.clusters import asked, session, shaped
from tests.bench.harness import (
    Finding,
    Grid,
    Options,
    Timed,
    most_memory_mb,
    most_memory_of_spark_mb,
    say,
)
from tests.bench.processes import apart
from tests.sim.wire import WireCluster
from txnscan import ScanConfig, find_hanging, sweep
from txnscan.sweeps.result import Scan

# Partitions, brokers.
SIZES = ((1_000, 10), (10_000, 20), (100_000, 50), (1_000_000, 200))
_MASTER = "local[2]"
_CALLS = 2
_MEMORY = ("driver", "worker", "jvm")
_COLUMNS = ("partitions", "brokers", "first s", "second s", "us a partition", "growth of time / of partitions")
_ASKED = ("requests", "MB received")


@dataclass(frozen=True, slots=True)
class Measured:
    """Two calls in one process: seconds, and memory by kind of process.

    requests, received_mb: of one call on average, which the brokers tell afterwards.
    """

    first_s: float
    second_s: float
    memory_mb: dict[str, float]
    requests: int = 0
    received_mb: float = 0.0


def run(options: Options) -> Finding:
    """All sizes up to the largest that was asked for."""
    sizes = [size for size in SIZES if size[0] < options.largest]
    sizes.append(next((size for size in SIZES if size[0] == options.largest), (options.largest, _brokers(options))))
    found: dict[str, list[Measured]] = {"find_hanging": [], "sweep": []}
    for partitions, brokers in sizes:
        shape = shaped(options, brokers, partitions)
        with WireCluster(shape) as cluster:
            for name, measure in (("find_hanging", without_spark), ("sweep", on_spark)):
                cluster.reset_stats()
                measured = apart(measure, cluster.bootstrap_servers, partitions, shape.hanging)
                requests, received_mb = asked(cluster, _CALLS)
                measured = replace(measured, requests=requests, received_mb=received_mb)
                say(f"  {name}, {partitions:,} partitions: {measured}")
                found[name].append(measured)
    return Finding(
        "scale",
        "time and memory, from small to large",
        {
            "producers a partition": shape.producers_per_partition,
            "hanging": shape.hanging,
            "live share": 0 if options.quiet else options.live_share,
            "transactional ids at rest": shape.transactional_ids,
            "Spark": _MASTER,
        },
        [
            Timed(f"{name}, {partitions:,} partitions", (each.second_s,))
            for name, measured in found.items()
            for each, (partitions, _) in zip(measured, sizes, strict=True)
        ],
        grids=[_grid(name, measured, sizes) for name, measured in found.items()],
        notes=[note for name, measured in found.items() for note in _growth(name, measured, sizes)],
    )


def _brokers(options: Options) -> int:
    return next((brokers for partitions, brokers in SIZES if partitions > options.largest), SIZES[-1][1])


def without_spark(bootstrap_servers: str, partitions: int, hanging: int) -> Measured:
    """In a process of its own: find_hanging, twice."""
    return _twice(lambda: find_hanging(ScanConfig(bootstrap_servers)), partitions, hanging)


def on_spark(bootstrap_servers: str, partitions: int, hanging: int) -> Measured:
    """In a process of its own: a sweep with tables, twice."""
    with session(_MASTER) as spark, tempfile.TemporaryDirectory(prefix="txnscan-bench-tables-") as tables:
        config = ScanConfig(bootstrap_servers, tables=tables)
        return _twice(lambda: sweep(spark, config).scan, partitions, hanging)


def _twice(call: Callable[[], Scan], partitions: int, hanging: int) -> Measured:
    first_s, second_s = (_checked_s(call, partitions, hanging) for _ in range(_CALLS))
    return Measured(first_s, second_s, {"driver": most_memory_mb(), **most_memory_of_spark_mb()})


def _checked_s(call: Callable[[], Scan], partitions: int, hanging: int) -> float:
    began_s = time.perf_counter()
    scan = call()
    took_s = time.perf_counter() - began_s
    if scan.partitions_planned < partitions or scan.partitions_failed or scan.counts["hanging"] != hanging:
        raise RuntimeError(
            f"{scan.counts['hanging']} of {hanging} hanging transactions found, "
            f"{scan.partitions_failed} of {scan.partitions_planned} partitions failed"
        )
    return took_s


def _grid(name: str, measured: list[Measured], sizes: list[tuple[int, int]]) -> Grid:
    kinds = [kind for kind in _MEMORY if any(m.memory_mb[kind] for m in measured)]
    rows: list[list[Any]] = []
    for place, (m, (partitions, brokers)) in enumerate(zip(measured, sizes, strict=True)):
        growth = None
        if place:
            growth = (m.second_s / measured[place - 1].second_s) / (partitions / sizes[place - 1][0])
        row = [partitions, brokers, m.first_s, m.second_s, m.second_s / partitions * 1e6, growth]
        rows.append([*row, m.requests, m.received_mb, *(round(m.memory_mb[kind]) for kind in kinds)])
    return Grid(name, (*_COLUMNS, *_ASKED, *(f"{kind} MB" for kind in kinds)), rows)


def _growth(name: str, measured: list[Measured], sizes: list[tuple[int, int]]) -> list[str]:
    """Bytes for each partition, between the two largest sizes."""
    if len(sizes) < 2:
        return []
    more = sizes[-1][0] - sizes[-2][0]
    return [
        f"{name}, {kind}: {(measured[-1].memory_mb[kind] - measured[-2].memory_mb[kind]) * 1024 * 1024 / more:,.0f} "
        f"bytes a partition from {sizes[-2][0]:,} to {sizes[-1][0]:,} partitions"
        for kind in _MEMORY
        if measured[-1].memory_mb[kind]
    ]
