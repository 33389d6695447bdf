"""Executors in separate processes return the same rows as one process, even if one is killed during the wide read."""

from __future__ import annotations

import json
import os
import pickle
import sys

from tests.process import ROOT, run_to_end
from tests.sim.wire import ClusterShape, WireCluster
from txnscan import ScanConfig, find_hanging
from txnscan.engine.threads import lanes
from txnscan.kafka.topology import Topic
from txnscan.reads.planner import plan_wide

# Long enough to interrupt a read. Broker 1 leads half of the partitions.
SHAPE = ClusterShape(brokers=6, partitions=6_000, hanging=7, ongoing=5, busy_share=0.5, latency_ms=150)
BATCH_SIZE = 100

SWEEP = """
import json, os, signal, sys
from tests.bench.harness import command_line, descendants
from txnscan import ScanConfig, sweep
from txnscan.engine.spark.session import spark_session

def executors():
    return [pid for pid in descendants(os.getpid()) if "CoarseGrainedExecutorBackend" in command_line(pid)]

killed = []
def progress(stage, done, total):
    if stage == "read every partition" and not killed:
        killed.append(max(executors()))
        os.kill(killed[0], signal.SIGKILL)

spark = spark_session("local-cluster[2,1,700]")
found = sweep(spark, ScanConfig(sys.argv[1], batch_size=int(sys.argv[2])), progress=progress).scan
rows = [[j.observation.topic, j.observation.partition, j.observation.producer_id, j.judgement.verdict.value]
        for j in found.transactions]
print(json.dumps({"rows": rows, "complete": found.complete, "producers": found.producers, "killed": len(killed)}))
"""


def test_an_executor_killed_during_the_read_loses_no_rows() -> None:
    with WireCluster(SHAPE) as cluster:
        here = find_hanging(ScanConfig(cluster.bootstrap_servers))
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        ran = run_to_end(
            [sys.executable, "-c", SWEEP, cluster.bootstrap_servers, str(BATCH_SIZE)], environment=variables
        )
        in_flight = {b: s.describe_producers_in_flight_max for b, s in cluster.stats().items()}
    assert ran.returncode == 0, ran.stderr
    there = json.loads(ran.stdout.splitlines()[-1])
    rows = [
        [o.topic, o.partition, o.producer_id, j.judgement.verdict.value]
        for j in here.transactions
        for o in (j.observation,)
    ]
    assert there == {"rows": rows, "complete": True, "producers": here.producers, "killed": 1}
    assert len(rows) == SHAPE.hanging + SHAPE.ongoing
    # A request of a killed executor may still be in flight when another executor repeats it.
    assert max(in_flight.values()) <= 2 * ScanConfig("unused:1").in_flight_max


def test_a_broker_leading_half_of_the_partitions_is_read_by_its_maximum_of_tasks() -> None:
    from txnscan.engine.spark.executors import dealt

    topics: dict[str, list[tuple[int, int, int]]] = {}
    for ordinal in range(SHAPE.partitions):
        name, index = SHAPE.key(ordinal)
        topics.setdefault(name, []).append((index, SHAPE.leader(ordinal), 0))
    columns = (Topic(name, "", *zip(*rows, strict=True)) for name, rows in topics.items())
    batches, _ = plan_wide(columns, batch_size=BATCH_SIZE, in_flight_max=2)
    hands = [pickle.loads(hand) for hand in dealt(lanes(batches), tasks=4)]
    leaders = [{queue[0].leader for queue in hand} for hand in hands]
    assert sum(1 in leading for leading in leaders) == 2, "one task for each of its two lanes"
    assert all(len(leading) > 1 for leading in leaders), "which have others to read from besides"
    assert all(queue == sorted(queue, key=batches.index) for hand in hands for queue in hand), "in order"
