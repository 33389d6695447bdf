"""Decisions with undelivered markers on partitions without an open transaction: real brokers that need the warning."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from txnscan import ScanConfig, find_hanging
from txnscan.demo import plant
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.reader import read_values
from txnscan.demo.wait import wait_until
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.write_txn_markers import MarkerToWrite
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.sweeps.result import Scan


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path_factory.mktemp("undelivered")) as started:
        yield started


def swept(cluster: KafkaCluster) -> Scan:
    return find_hanging(ScanConfig(cluster.bootstrap_servers, late_after_ms=1))


def of_ids(scan: Scan) -> list[str]:
    return [warning for warning in scan.warnings if warning.startswith("transactional id")]


def test_a_refused_coordinator_causes_a_warning_and_resends_after_its_log_is_loaded(
    cluster: KafkaCluster,
) -> None:
    """A live transaction on q was ended manually, with a coordinator epoch that is too high. The real coordinator's
    marker is refused there (TRANSACTION_COORDINATOR_FENCED), q is closed, and the commit stays in PrepareCommit.
    """
    first, last = cluster.broker_ids[0], cluster.broker_ids[-1]
    with cluster.wire() as wire:
        for topic in ("taken", "refused"):
            create_topic(wire, topic, [[first]])
        producer = plant.coordinated_by(wire, last, "refused")
        for topic in ("taken", "refused"):
            producer.write(topic, 0, [b"a record"])
        identity = producer.known
        transactional_id = producer.transactional_id
        assert transactional_id is not None
        coordinator_epoch = _log_epoch(cluster, transactional_id) + 1
        by_hand = MarkerToWrite("refused", 0, identity.producer_id, identity.producer_epoch, coordinator_epoch, False)
        assert by_hand.answered(wire.send(first, by_hand.request())) == 0
        producer.end(commit=True)
        wait_until(lambda: read_values(wire, "taken", 0, committed=True) == [b"a record"], "the other got its marker")
        owner = plant.describe_owner(wire, transactional_id)
        assert (owner.state, owner.partitions) == ("PrepareCommit", ("refused-0",))

        found = swept(cluster)
        (warning,) = of_ids(found)
        assert f"'{producer.transactional_id}' is in PrepareCommit" in warning and "waits for refused-0," in warning
        assert (found.transactions, found.complete) == ((), True)

        cluster.stop_broker(last)
        cluster.wait_for_brokers(cluster.running)
        wait_until(
            lambda: plant.describe_owner(wire, transactional_id).state == "CompleteCommit",
            "the next coordinator's marker was taken",
        )
        assert of_ids(swept(cluster)) == []


def _log_epoch(cluster: KafkaCluster, transactional_id: str) -> int:
    """The leader epoch of the id's `__transaction_state` partition, which is its coordinator's epoch."""
    with cluster.wire() as wire:
        partitions = wire.view([TRANSACTION_STATE_TOPIC]).partitions
    k = coordinator_partition(transactional_id, len(partitions))
    return next(found.leader_epoch for found in partitions if found.partition == k)
