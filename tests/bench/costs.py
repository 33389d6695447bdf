"""The costs of one broker, partition, producer and open transaction in `find_hanging`, and a check of their sum.

Each cost is the difference between two clusters that differ only in this, by the median of the runs.
`sweeps/capacity.py` adds the costs up for any cluster. The check uses two other clusters, one of them with a latency.
Timed: the call, in one process whose imports are done. Bytes for each partition are the difference between two sizes,
each measured in a process of its own.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from statistics import median

from tests.bench.harness import Finding, Grid, Options, machine, most_memory_mb, say
from tests.bench.processes import apart
from tests.sim.wire import ClusterShape, WireCluster
from txnscan import ScanConfig, find_hanging
from txnscan.sweeps.capacity import Costs, Planned, predict

_SMALL = ClusterShape(brokers=10, partitions=1_000, producers_per_partition=1)
_MANY_BROKERS = replace(_SMALL, brokers=110)
_MANY_PARTITIONS = replace(_SMALL, partitions=101_000)
# As `scale` has them: what a process needs anyway hides what the first partitions need.
_LARGE, _LARGER = (
    ClusterShape(brokers=50, partitions=100_000, hanging=100),
    ClusterShape(brokers=200, partitions=1_000_000, hanging=100),
)
_MANY_PRODUCERS = replace(_MANY_PARTITIONS, producers_per_partition=21)
_MANY_OPEN = replace(_SMALL, hanging=500)
_LARGE_TOPICS = replace(_MANY_PARTITIONS, partitions_per_topic=10_000)
_LARGE_TOPICS_OPEN = replace(_LARGE_TOPICS, hanging=10)
_CHECKED = (
    ClusterShape(brokers=50, partitions=100_000, hanging=100),
    ClusterShape(brokers=100, partitions=300_000, hanging=50, ongoing=50, latency_ms=5),
)


def run(options: Options) -> Finding:
    """The costs, then the check."""
    small_s = seconds(_SMALL, options)
    partitions_s = seconds(_MANY_PARTITIONS, options)
    large_s = seconds(_LARGE_TOPICS, options)
    broker_us = _difference_us(seconds(_MANY_BROKERS, options), small_s, 100)
    partition_us = _difference_us(partitions_s, small_s, 100_000)
    producer_us = _difference_us(seconds(_MANY_PRODUCERS, options), partitions_s, 20 * 101_000)
    open_us = _difference_us(seconds(_MANY_OPEN, options), small_s, 500)
    # Metadata costs the rest of the difference, without the cost of ten open transactions.
    more = (
        predict(planned(_LARGE_TOPICS_OPEN), _FREE).received_bytes
        - predict(planned(_LARGE_TOPICS), _FREE).received_bytes
    )
    metadata_byte_us = _difference_us(seconds(_LARGE_TOPICS_OPEN, options), large_s + 10 * open_us / 1e6, more)
    large_mb, larger_mb = memory_mb(_LARGE), memory_mb(_LARGER)
    partition_bytes = (larger_mb - large_mb) * 2**20 / (_LARGER.partitions - _LARGE.partitions)
    found = machine()
    costs = Costs(
        fixed_us=small_s * 1e6 - _SMALL.brokers * broker_us - _SMALL.partitions * partition_us,
        broker_us=broker_us,
        partition_us=partition_us - producer_us,
        producer_us=producer_us,
        open_us=open_us,
        metadata_byte_us=metadata_byte_us,
        process_bytes=int(large_mb * 2**20 - _LARGE.partitions * partition_bytes),
        partition_bytes=int(partition_bytes),
        measured_on=f"{found['cores']} cores, {found['processor']}, {datetime.now(UTC).date()}",
    )
    rows = [_checked(shape, costs, options) for shape in _CHECKED]
    columns = ("brokers", "partitions", "open", "latency_ms", "predicted s", "measured s", "measured / predicted")
    return Finding(
        "costs",
        "what each costs, and what follows for other clusters",
        {"runs": options.runs},
        grids=[
            Grid("costs", ("what", "value"), [(name, getattr(costs, name)) for name in Costs.__dataclass_fields__]),
            Grid("the prediction, checked", columns, rows),
        ],
        notes=["MEASURED of txnscan/sweeps/capacity.py holds the costs that `txnscan capacity` uses"],
    )


_FREE = Costs(0, 0, 0, 0, 0, 0, 0, 0, "")


def planned(shape: ClusterShape) -> Planned:
    """A cluster of this shape, to be predicted."""
    return Planned(
        brokers=shape.brokers,
        partitions=shape.partitions,
        producers_per_partition=shape.producers_per_partition,
        open_partitions=shape.hanging + shape.ongoing,
        hanging=shape.hanging,
        latency_ms=shape.latency_ms,
        partitions_per_topic=shape.partitions_per_topic,
        transaction_state_partitions=shape.transaction_state_partitions,
    )


def seconds(shape: ClusterShape, options: Options) -> float:
    """The median time of find_hanging on such a cluster, behind one run in which it makes its answers."""
    with WireCluster(shape) as cluster:
        config = ScanConfig(cluster.bootstrap_servers)
        samples = []
        for _ in range(options.runs + 1):
            began_s = time.perf_counter()
            find_hanging(config)
            samples.append(time.perf_counter() - began_s)
    say(f"  {shape.brokers} brokers, {shape.partitions:,} partitions: {median(samples[1:]):.3f} s")
    return median(samples[1:])


def memory_mb(shape: ClusterShape) -> float:
    """The most that a process has in memory that runs find_hanging once."""
    with WireCluster(shape) as cluster:
        return apart(most_memory_of_one, cluster.bootstrap_servers)


def most_memory_of_one(bootstrap_servers: str) -> float:
    """In a process of its own."""
    find_hanging(ScanConfig(bootstrap_servers))
    return most_memory_mb()


def _difference_us(more_s: float, less_s: float, count: int) -> float:
    return max(0.0, (more_s - less_s) * 1e6 / count)


def _checked(shape: ClusterShape, costs: Costs, options: Options) -> tuple[float, ...]:
    predicted_s, measured_s = predict(planned(shape), costs).seconds, seconds(shape, options)
    opened = shape.hanging + shape.ongoing
    ratio = measured_s / predicted_s
    return (shape.brokers, shape.partitions, opened, shape.latency_ms, predicted_s, measured_s, ratio)
