"""`explain` on real brokers with a decided transaction whose marker cannot be written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.brokers.offsets import commit_offset
from tests.cases import Cases
from tests.process import run_here
from txnscan.demo import plant
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.wait import wait_until
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.write_txn_markers import MarkerToWrite
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC

TOPIC, GROUP, REFUSED = "ledger", "ledger-group", "refused"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path_factory.mktemp("prepare")) as started:
        yield started


def explain(cluster: KafkaCluster, *words: str) -> dict[str, Any]:
    ran = run_here("explain", *words, "--bootstrap-server", cluster.bootstrap_servers, "--format", "json")
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_a_refused_marker_leaves_its_id_stuck(cluster: KafkaCluster) -> None:
    """A manual marker ended the transaction, with a coordinator epoch that is too high. The partition has no open
    transaction now, and the coordinator stays in PrepareCommit.
    """
    first, last = cluster.broker_ids[0], cluster.broker_ids[-1]
    with cluster.wire() as wire:
        create_topic(wire, REFUSED, [[first]])
        producer = plant.coordinated_by(wire, last, REFUSED)
        producer.write(REFUSED, 0, [b"a record"])
        identity, name = producer.known, str(producer.transactional_id)
        partitions = wire.view([TRANSACTION_STATE_TOPIC]).partitions
        k = coordinator_partition(name, len(partitions))
        epoch = next(found.leader_epoch for found in partitions if found.partition == k) + 1
        by_hand = MarkerToWrite(REFUSED, 0, identity.producer_id, identity.producer_epoch, epoch, False)
        assert by_hand.answered(wire.send(first, by_hand.request())) == 0
        producer.end(commit=True)
        wait_until(lambda: plant.describe_owner(wire, name).state == "PrepareCommit", f"{name} was in PrepareCommit")
    for words in (("--transactional-id", name), ("--error", "CONCURRENT_TRANSACTIONS")):
        found = explain(cluster, *words, "--late-after", "1ms")
        assert (found["cause"], found["transactional_id"], found["state"]) == ("stuck_prepare", name, "PrepareCommit")
        assert explain(cluster, *words)["cause"] == "marker_owed"
    # The topic has no open transaction.
    assert explain(cluster, "--topic", REFUSED)["cause"] == "aborted_data"


def test_a_decided_transaction_whose_partition_takes_no_writes_names_it(cluster: KafkaCluster) -> None:
    planted = plant.pending_marker(cluster, TOPIC)
    commit_offset(cluster, GROUP, TOPIC, 0)
    name = str(planted.transactional_id)
    asked = (
        ("--topic", TOPIC),
        ("--group", GROUP),
        ("--transactional-id", name),
        ("--producer-id", str(planted.producer_id)),
        ("--error", f"[Producer transactionalId={name}] initTransactions timed out"),
    )
    with Cases() as cases:
        for words in asked:
            with cases.case(" ".join(words)):
                for late in ((), ("--late-after", "1ms")):
                    found = explain(cluster, *words, *late)
                    assert (found["cause"], found["transactional_id"]) == ("no_writes", name), found
                    assert (found["state"], found["no_writes"]) == ("PrepareCommit", f"{TOPIC}-0"), found
