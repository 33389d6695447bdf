"""`gate` on brokers that stop: what it cannot observe, and a marker that is not replicated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process import run_here
from txnscan.demo import plant
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.wait import wait_until
from txnscan.kafka.protocol.describe_quorum import describe_quorum
from txnscan.kafka.protocol.list_offsets import Offset, offset_of

KEEPER, AWAY = 1, 3


# Each coordinator is on one broker alone.
PROPERTIES = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KafkaCluster]:
    """Brokers that can stop and start. A session that lasts longer could refuse a broker that starts again."""
    with KafkaCluster(tmp_path, properties=PROPERTIES) as started:
        yield started


@pytest.fixture
def patient_cluster(tmp_path: Path) -> Iterator[KafkaCluster]:
    """Brokers that wait long for a broker that is paused."""
    waits = {"broker.session.timeout.ms": "120000", "replica.lag.time.max.ms": "120000"}
    with KafkaCluster(tmp_path, properties=PROPERTIES | waits) as started:
        yield started


def gate(cluster: KafkaCluster, topic: str, status: int, *options: str) -> dict[str, Any]:
    ran = run_here(
        *("gate", "--bootstrap-server", cluster.bootstrap_servers, "--topic", topic),
        *("--wait", "0s", *options, "--format", "json"),
    )
    assert ran.returncode == status, (ran.stdout, ran.stderr)
    (found,) = json.loads(ran.stdout)["topics"]
    return dict(found)


def test_a_partition_without_a_leader_is_not_observed(cluster: KafkaCluster) -> None:
    with cluster.wire() as wire:
        create_topic(wire, "solo", [[KEEPER], [AWAY]])
    assert gate(cluster, "solo", 0)["state"] == "complete"
    cluster.stop_broker(AWAY)
    cluster.wait_for_leader("solo", 1, -1)
    try:
        found = gate(cluster, "solo", 4)
        assert (found["state"], found["complete_up_to"]) == ("not_observed", None)
        assert found["not_observed"] == [{"partition": 1, "code": "NO_LEADER"}]
    finally:
        cluster.start_broker(AWAY)
        cluster.wait_for_leader("solo", 1, AWAY)
    assert gate(cluster, "solo", 0, "--wait", "60s")["state"] == "complete"


def test_a_transaction_that_no_partition_shows_as_open_may_still_block(patient_cluster: KafkaCluster) -> None:
    """Its marker is not replicated. So the last stable offset counts, and not what DescribeProducers shows.

    The paused follower need not confirm the leader: the controllers show that it knows no later one.
    """
    with patient_cluster.wire() as wire:
        # The active controller answers. If it hangs, brokers ask it for half a minute before they ask the next one.
        away = next(one for one in (3, 2) if one != describe_quorum(wire.send, KEEPER).leader)
        create_topic(wire, "pair", [[KEEPER, away]], {"min.insync.replicas": "2"})
        producer = plant.coordinated_by(wire, KEEPER, "pair")
        start_offset = producer.write("pair", 0, [b"1"])
        producer_id = producer.known.producer_id
        patient_cluster.pause_broker(away)
        try:
            producer.end(commit=True)
            wait_until(lambda: plant.open_transaction(wire, "pair", 0, producer_id) is None, "the marker is written")
            partition = wire.partition("pair", 0)
            assert offset_of(wire.send, partition, Offset.LAST_STABLE) == start_offset
            assert offset_of(wire.send, partition, Offset.HIGH_WATERMARK) == start_offset + 1
            found = gate(patient_cluster, "pair", 3)
            assert (found["state"], found["not_observed"]) == ("blocked", [])
        finally:
            patient_cluster.resume_broker(away)
    assert gate(patient_cluster, "pair", 0, "--wait", "60s")["state"] == "complete"
