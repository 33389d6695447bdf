"""One slow or throttling broker among ten: the delay of its own answers, and of the others'.

Three clusters of the same size, every broker 5 ms away: an even cluster; a cluster whose broker 1 is ten times slower;
a cluster whose broker 1 tells clients to hold back for 50 ms after each answer. The wide read of each in turn, with the
threads engine and on Spark. Timed: from the start of the read to the last answer of broker 1, and to the last answer of
the nine others together, over new connections. Not timed: Metadata, plan, sessions, and the results of the executors.

The brokers count the DescribeProducers requests in flight, over all runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from tests.bench.clusters import connect_to, described, session, shaped, view_of, wide_plan
from tests.bench.harness import Finding, Grid, Options, Ratio, Timed, say
from tests.bench.stamps import stamped
from tests.sim.wire import WireCluster
from txnscan import ScanConfig
from txnscan.engine import Engine
from txnscan.engine.threads import ThreadsEngine
from txnscan.kafka.topology import ClusterView
from txnscan.reads.tasks import ReadWide

_BROKERS, _PARTITIONS, _LATENCY_MS = 10, 20_000, 5
_SLOW = 1
# Smaller than the product's, so that a broker is asked often enough for a wait to add up.
_BATCH_SIZE = 100
_MASTER = "local[2]"
# Beside a slow broker the others may take at most this many times as long. Two cores are not steadier than this.
_TARGET = 1.25
EVEN, SLOW, THROTTLING = "even", "one 10 times slower", "one throttles"


def run(options: Options) -> Finding:
    """The three clusters, with both engines."""
    even = shaped(options, _BROKERS, min(_PARTITIONS, options.partitions), hanging=10, latency_ms=_LATENCY_MS)
    shapes = {
        EVEN: even,
        SLOW: replace(even, slow_brokers={_SLOW: 10 * _LATENCY_MS}),
        THROTTLING: replace(even, throttle_ms={_SLOW: 10 * _LATENCY_MS}),
    }
    samples: dict[str, list[float]] = {}
    with ExitStack() as stack:
        spark = stack.enter_context(session(_MASTER))
        from txnscan.engine.spark.executors import SparkEngine

        engines: Mapping[str, Engine] = {"threads": ThreadsEngine(), "Spark": SparkEngine(spark)}
        clusters = {name: stack.enter_context(WireCluster(shape)) for name, shape in shapes.items()}
        views = {name: view_of(cluster.bootstrap_servers) for name, cluster in clusters.items()}
        for number in range(options.runs + 1):
            for engine_name, engine in engines.items():
                for name, view in views.items():
                    slow_s, others_s = last_answers_s(engine, view)
                    say(
                        f"  run {number}, {engine_name}, {name}: broker {_SLOW} {slow_s:.3f} s, others {others_s:.3f} s"
                    )
                    if number:
                        samples.setdefault(f"{engine_name}, {name}: the others", []).append(others_s)
                        samples.setdefault(f"{engine_name}, {name}: broker {_SLOW}", []).append(slow_s)
        most = {name: _most_in_flight(cluster) for name, cluster in clusters.items()}
    return Finding(
        "slow",
        "a slow broker delays its own partitions alone",
        {**described(even), "partitions in a request": _BATCH_SIZE, "warm-ups": 1},
        [Timed(name, tuple(each)) for name, each in samples.items()],
        [
            Ratio(f"{engine}, {name}: the others", f"{engine}, {EVEN}: the others", _TARGET)
            for engine in engines
            for name in (SLOW, THROTTLING)
        ],
        grids=[_in_flight_grid(most)],
    )


def last_answers_s(engine: Engine, view: ClusterView) -> tuple[float, float]:
    """From the start of a wide read to the last answer of broker 1, and to the last of all others."""
    connect = connect_to(view)
    began_s, _, stamps = stamped(engine, ReadWide(connect), wide_plan(view, _BATCH_SIZE))
    connect.close()
    ended_s: dict[bool, float] = {}
    for stamp in stamps:
        is_slow = stamp.leader == _SLOW
        ended_s[is_slow] = max(ended_s.get(is_slow, 0), stamp.ended_ns / 1e9)
    return ended_s[True] - began_s, ended_s[False] - began_s


def _most_in_flight(cluster: WireCluster) -> int:
    return max(each.describe_producers_in_flight_max for each in cluster.stats().values())


def _in_flight_grid(most: Mapping[str, int]) -> Grid:
    cap = ScanConfig("localhost:9092").in_flight_max
    rows: list[list[Any]] = [[name, count, cap, count <= cap] for name, count in most.items()]
    return Grid("DescribeProducers in flight at one broker", ("cluster", "at most", "cap", "met?"), rows)
