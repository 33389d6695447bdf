"""A marker that no follower has yet ends no incident: the next leader may lack it.

The follower's fetches wait for 20 seconds, so that the high watermark is behind the end of the leader's log for that
long. Meanwhile all brokers answer.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from tests.brokers.losses import incidents_of, swept
from txnscan import ScanConfig, sweep
from txnscan.demo import plant
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.producer import PRODUCE_V1, Producer
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.protocol.list_offsets import Offset, offset_of
from txnscan.kafka.protocol.write_txn_markers import MarkerToWrite

TOPIC, LEADER, FOLLOWER = "slow", 1, 2
_SETTINGS = MappingProxyType(
    {
        "transaction.state.log.num.partitions": "3",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.partition.verification.enable": "false",
        "replica.fetch.wait.max.ms": "20000",
        "replica.fetch.min.bytes": "100000000",
        "replica.lag.time.max.ms": "120000",
        "replica.socket.timeout.ms": "120000",
    }
)
_PATIENT = ConnectionSettings(client_id="patient", request_timeout_ms=100_000)


def test_an_incident_ends_when_its_marker_is_replicated(tmp_path: Path) -> None:
    with (
        KafkaCluster(tmp_path, brokers=2, properties=_SETTINGS) as cluster,
        Wire(cluster.brokers, _PATIENT) as wire,
        ThreadPoolExecutor(1) as pool,
    ):
        create_topic(wire, TOPIC, [[LEADER, FOLLOWER]])
        # Without any transactional id there is no coordinator, and nothing is proven.
        Producer(wire, "somebody").init_producer_id()
        producer = Producer(wire, v2=False)
        producer.init_producer_id()
        producer.produce(TOPIC, 0, [b"late"], version=PRODUCE_V1)
        config = ScanConfig(cluster.bootstrap_servers, tables=str(tmp_path / "tables"), engine="threads")
        swept(config, minutes_ago=60)
        assert [row["is_open"] for row in incidents_of(config, TOPIC)] == [True]

        who = producer.known
        marker = MarkerToWrite(TOPIC, 0, who.producer_id, who.producer_epoch, -1, commit=False)
        with Wire(cluster.brokers, _PATIENT) as second:
            answer = pool.submit(second.send, LEADER, marker.request())
            wait_until(
                lambda: plant.open_transaction(wire, TOPIC, 0, who.producer_id) is None, "the leader had the marker"
            )
            during = sweep(None, config)
            offsets = [
                offset_of(wire.send, wire.partition(TOPIC, 0), which)
                for which in (Offset.LOG_END, Offset.HIGH_WATERMARK)
            ]
            assert offsets == [2, 1], "the follower was slow for long enough"
            assert not answer.done()
            assert (during.scan.transactions, during.scan.complete, during.scan.replicated) == ((), True, frozenset())
            assert [one.split(":")[0] for one in during.scan.warnings] == [f"{TOPIC}-0"]
            assert [row["is_open"] for row in incidents_of(config, TOPIC)] == [True]
            assert marker.answered(answer.result()) == 0

        after = sweep(None, config)
        assert (after.scan.replicated, after.scan.warnings) == (frozenset({(TOPIC, 0)}), ())
        assert [row["resolved_how"] for row in incidents_of(config, TOPIC)] == ["ended"]
        # A follower shows its own end, and an epoch that its leader does not have is refused.
        partition = wire.partition(TOPIC, 0)
        assert offset_of(wire.send, replace(partition, leader=FOLLOWER), Offset.LOG_END) == 2
