"""Capacity planning: predicted requests and bytes equal the counts of the brokers."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import pytest

from tests.fakes.cluster import broker
from tests.sim.wire import ClusterShape, WireCluster
from txnscan import ScanConfig, find_hanging
from txnscan.config import ConfigError
from txnscan.kafka.topology import ClusterView, Topic
from txnscan.sweeps.capacity import MEASURED, Costs, Planned, longest_expected_s, predict, predicted_lines, requests

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

COSTS = Costs(
    fixed_us=1e6,
    broker_us=1e4,
    partition_us=2,
    producer_us=0.1,
    open_us=100,
    metadata_byte_us=0.001,
    process_bytes=60_000_000,
    partition_bytes=100,
    measured_on="a table",
)
LARGE = Planned(brokers=200, partitions=1_000_000, latency_ms=1)


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        (ClusterShape(brokers=5, partitions=10_000), "nothing is open"),
        (ClusterShape(brokers=5, partitions=10_000, ongoing=60), "what is held is described by every coordinator"),
        (ClusterShape(brokers=5, partitions=10_000, hanging=20), "the logs are read for what hangs"),
        (ClusterShape(brokers=20, partitions=40_000, hanging=100), "more brokers"),
    ],
)
def test_a_sweep_costs_the_predicted_requests_and_bytes(shape: ClusterShape, why: str) -> None:
    planned = Planned(
        shape.brokers,
        shape.partitions,
        open_partitions=shape.hanging + shape.ongoing,
        hanging=shape.hanging,
        partitions_per_transaction=1,
    )
    counted: Counter[str] = Counter()
    received = 0
    with WireCluster(shape) as cluster:
        find_hanging(ScanConfig(cluster.bootstrap_servers))
        for stats in cluster.stats().values():
            counted.update(stats.requests)
            received += sum(stats.bytes_by_api[api] for api in ("Metadata", "DescribeProducers"))
    assert dict(counted) == {api: count for api, count in requests(planned).items() if count}, why
    assert predict(planned, COSTS).received_bytes == pytest.approx(received, rel=0.05), why


# The contract of docs/benchmarks.md: 5 % of the partitions in a live transaction, 100 that hang.
BUSY = ClusterShape(brokers=50, partitions=100_000, ongoing=5_000, hanging=100)
CONTRACT = {
    "ApiVersions": 153,
    "ListOffsets": 200,
    "DescribeProducers": 150,
    "DescribeTransactions": 154,
    "Fetch": 100,
    "ListTransactions": 100,
    "DescribeAcls": 100,
    "Metadata": 64,
    "DescribeConfigs": 52,
    "ListGroups": 50,
    "OffsetFetch": 1,
}
RECEIVED_MAX = 60_000_000


def test_a_busy_cluster_gets_no_more_requests_and_bytes_than_documented() -> None:
    counted: Counter[str] = Counter()
    with WireCluster(BUSY) as cluster:
        find_hanging(ScanConfig(cluster.bootstrap_servers))
        received = sum(sum(stats.bytes_by_api.values()) for stats in cluster.stats().values())
        for stats in cluster.stats().values():
            counted.update(stats.requests)
    assert {api: count for api, count in counted.items() if count > CONTRACT.get(api, 0)} == {}
    assert received <= RECEIVED_MAX


def test_the_prediction_is_the_sum_of_the_unit_costs() -> None:
    found = predict(replace(LARGE, open_partitions=0, hanging=0, latency_ms=0), COSTS)
    # A second of its own, 10 ms per broker, 2 µs per partition, 0.1 µs per producer; and the metadata of the log of
    # coordinators at the end.
    rounds_s = 50 * LARGE.metadata_partition_bytes * 0.001 / 1e6
    assert found.work_s == pytest.approx(1 + 200 * 0.01 + 2 + 1 + rounds_s)
    assert found.seconds == found.work_s
    assert found.memory_bytes == 60_000_000 + 100_000_000


def test_a_hanging_transaction_costs_metadata_of_one_broker_and_a_claimed_one_costs_none() -> None:
    none, held = replace(LARGE, open_partitions=0, hanging=0), replace(LARGE, open_partitions=1, hanging=0)
    # The replicas of the transaction log.
    log = 50 * none.metadata_partition_bytes
    assert predict(held, COSTS).received_bytes == predict(none, COSTS).received_bytes + log
    more = predict(replace(held, hanging=1), COSTS).received_bytes - predict(held, COSTS).received_bytes
    assert more == 2 * 100 * none.metadata_partition_bytes


@pytest.mark.parametrize(
    ("change", "trips", "why"),
    [
        (
            {},
            6 + 38 + 2 + 2 * 2 * 7 + 3 + 4 + 2 * 4 + 12 * 7,
            "sixteen to each of 200 brokers, by sixteen threads each time",
        ),
        ({"brokers": 8}, 6 + 62 + 2 + 2 * 2 + 3 + 1 + 2 * 4 + 12, "fewer brokers than threads: each has its own"),
        ({"hanging": 0}, 6 + 38 + 2 + 12 * 7, "all is held, and nothing is read again"),
        ({"hanging": 0, "open_partitions": 0}, 6 + 38 + 11 * 7, "nothing is open"),
    ],
)
def test_waiting_is_the_number_of_sequential_round_trips(change: dict[str, int], trips: int, why: str) -> None:
    planned = replace(LARGE, **change)
    assert predict(planned, COSTS).waiting_s == pytest.approx(trips / 1000), why


def test_every_unit_cost_of_the_command_is_measured() -> None:
    assert all(getattr(MEASURED, field.name) for field in fields(Costs))


@pytest.mark.parametrize(
    ("brokers", "partitions", "says"),
    [
        (50, 100_000, "1.23 times as long"),
        (100, 100_001, "1.32 times as long"),
        (200, 1_000_000, "2.25 times as long"),
        (200, 2_000_000, "were never measured: it may be longer"),
    ],
)
def test_a_prediction_reports_the_excess_of_measured_sweeps(brokers: int, partitions: int, says: str) -> None:
    lines = list(predicted_lines(brokers, partitions, 10, 10, 1.0))
    assert any(says in line for line in lines)


def test_the_predicted_span_contains_the_measured_sweep() -> None:
    """The largest quiet sweep of docs/benchmarks.md: 11.8 s for 200 brokers and a million partitions."""
    line = next(line for line in predicted_lines(200, 1_000_000, 10, 100, 1.0) if line.startswith("time"))
    least, most = map(float, re.findall(r"[\d.]+", line)[:2])
    assert least < 11.8 <= most


def test_a_cluster_without_brokers_or_partitions_is_refused(wording: SnapshotAssertion) -> None:
    with pytest.raises(ConfigError) as error:
        Planned(brokers=0, partitions=1)
    assert str(error.value) == wording


def test_the_expected_time_of_a_cluster_grows_with_it() -> None:
    def view(brokers: int, partitions: int) -> ClusterView:
        topic = Topic("t", "id", *(tuple(range(partitions)),) * 3)
        return ClusterView(1, "c", tuple(broker(number, 1) for number in range(brokers)), (topic,))

    assert longest_expected_s(ClusterView(1, "c", (), ())) == 0
    times_s = [longest_expected_s(view(*size)) for size in ((1, 1), (3, 90), (100, 1_000_000), (10_000, 1_000_000))]
    assert times_s == sorted(times_s) and times_s[1] < 30 < times_s[2]
