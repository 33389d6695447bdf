"""Planted transactions match their stories, on three real brokers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from txnscan.demo import brokers, plant
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.errors import DemoError
from txnscan.demo.kafka_tool import find_hanging, kafka_transactions
from txnscan.demo.plant import HealthyTraffic, Planted, TornCommit, TrafficCount
from txnscan.demo.ports import choose_ports, is_listening
from txnscan.demo.producer import PRODUCE_V1, Producer, ProducerError
from txnscan.demo.reader import read_values
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.client.client import Client
from txnscan.kafka.client.connection import ConnectionSettings, TlsSettings
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.describe_producers import by_topic, describe_producers
from txnscan.kafka.protocol.list_transactions import list_transactions
from txnscan.kafka.protocol.metadata import read_metadata


@dataclass(frozen=True)
class World:
    cluster: KafkaCluster
    wire: Wire
    torn: TornCommit
    orphan: Planted
    future: Planted
    stale: Planted
    live_epoch: Planted
    backfill: Planted
    traffic_topic: str
    traffic: TrafficCount


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """All planted transactions, beside healthy traffic that has ended."""
    with KafkaCluster(tmp_path_factory.mktemp("cluster")) as cluster, cluster.wire() as wire:
        with HealthyTraffic(cluster) as traffic:
            planted: dict[str, Any] = {
                "torn": plant.committed_but_hanging(cluster),
                "orphan": plant.orphan(wire),
                "future": plant.orphan_from_the_future(wire),
                "stale": plant.stale_epoch(wire),
                "live_epoch": plant.live_epoch(wire),
                "backfill": plant.live_with_old_timestamps(wire),
            }
        yield World(cluster=cluster, wire=wire, traffic_topic=traffic.topic, traffic=traffic.count, **planted)


def on_partition(world: World, planted: Planted) -> Any:
    return plant.open_transaction(world.wire, planted.topic, planted.partition, planted.producer_id)


def at_owner(world: World, planted: Planted) -> Any:
    assert planted.transactional_id is not None
    return plant.describe_owner(world.wire, planted.transactional_id)


def listed_producer_ids(world: World) -> set[int]:
    return {
        one.producer_id
        for broker in world.cluster.brokers
        for one in list_transactions(world.wire.send, broker.broker_id).values()
    }


def minutes_ago(timestamp_ms: int) -> float:
    return (time.time() * 1000 - timestamp_ms) / 60_000


def test_a_torn_commit_is_open_on_its_partition_and_complete_at_its_coordinator(world: World) -> None:
    hanging = world.torn.hanging
    found, owner = on_partition(world, hanging), at_owner(world, hanging)
    assert (found.producer_epoch, found.start_offset) == (0, hanging.start_offset)
    assert (owner.state, owner.producer_id, owner.producer_epoch, owner.partitions) == (
        "CompleteCommit",
        hanging.producer_id,
        1,
        (),
    )


def test_a_torn_commit_is_visible_on_one_topic_and_not_on_the_other(world: World) -> None:
    read = plant.read_both(world.wire, world.torn)
    assert (read.whole_committed, read.torn_committed, read.torn_uncommitted) == (5, 0, 5)


def test_a_torn_commit_is_reported_by_kafkas_own_tool(world: World) -> None:
    hanging = world.torn.hanging
    (found,) = [h for h in find_hanging(world.cluster, 3) if h.topic == hanging.topic]
    assert (found.producer_id, found.producer_epoch, found.start_offset) == (hanging.producer_id, 0, 0)
    assert found.duration_min >= 40


def test_an_orphan_is_open_and_its_producer_id_is_unknown_to_coordinators(world: World) -> None:
    found = on_partition(world, world.orphan)
    assert (found.producer_epoch, found.start_offset) == (0, 0)
    assert 49 < minutes_ago(found.last_timestamp_ms) < 60
    assert world.orphan.producer_id not in listed_producer_ids(world)


def test_an_orphan_from_the_future_is_not_reported_by_kafkas_own_tool(world: World) -> None:
    found = on_partition(world, world.future)
    assert minutes_ago(found.last_timestamp_ms) < -40
    assert world.future.producer_id not in listed_producer_ids(world)
    assert world.future.topic not in {h.topic for b in (1, 2, 3) for h in find_hanging(world.cluster, b)}


def test_a_stale_epoch_is_open_below_the_epoch_of_its_owner(world: World) -> None:
    found, owner = on_partition(world, world.stale), at_owner(world, world.stale)
    assert found.producer_epoch == 0
    assert (owner.state, owner.producer_id, owner.producer_epoch, owner.partitions) == (
        "Empty",
        world.stale.producer_id,
        1,
        (),
    )


def test_a_live_epoch_is_open_at_the_epoch_of_an_owner_that_did_not_add_it(world: World) -> None:
    found, owner = on_partition(world, world.live_epoch), at_owner(world, world.live_epoch)
    assert found.producer_epoch == owner.producer_epoch == 0
    assert (owner.state, owner.partitions) == ("Ongoing", (f"{world.live_epoch.topic}-0",))
    assert world.live_epoch.partition == 1


def test_a_live_transaction_with_old_timestamps_is_ongoing_and_listed(world: World) -> None:
    found, owner = on_partition(world, world.backfill), at_owner(world, world.backfill)
    assert minutes_ago(found.last_timestamp_ms) > 119
    assert (owner.state, owner.partitions) == ("Ongoing", (f"{world.backfill.topic}-0",))
    assert found.producer_epoch == owner.producer_epoch


def test_brokers_verify_transactions_again_after_the_planting(world: World) -> None:
    producer = Producer(world.wire, v2=False)
    producer.init_producer_id()
    with pytest.raises(ProducerError, match="Produce was refused"):
        producer.produce(world.orphan.topic, 0, [b"late"], version=PRODUCE_V1)


def test_healthy_traffic_leaves_no_open_transaction(world: World) -> None:
    assert world.traffic.errors == ()
    assert world.traffic.committed > 10
    assert world.traffic.aborted > 2
    partitions = world.wire.view([world.traffic_topic]).partitions
    assert len(partitions) == 6
    for partition in partitions:
        described = describe_producers(world.wire.send, partition.leader, by_topic([partition.key]))[partition.key]
        assert (described.failure, described.open_producers) == (None, ())
        assert described.producers > 0


def test_a_committed_reader_gets_no_aborted_records(world: World) -> None:
    topic = world.traffic_topic
    committed, written = (
        sum(len(read_values(world.wire, topic, partition, committed=only)) for partition in range(6))
        for only in (True, False)
    )
    assert (committed, written) == (
        2 * world.traffic.committed,
        2 * (world.traffic.committed + world.traffic.aborted),
    )


def test_a_v1_transaction_ends_at_its_own_epoch(world: World) -> None:
    producer = Producer(world.wire, "old-client", v2=False)
    before = producer.init_producer_id()
    for commit in (True, False):
        producer.add_partitions([(world.traffic_topic, 0)])
        producer.produce(world.traffic_topic, 0, [b"old"])
        producer.end(commit=commit)
    assert producer.identity == before


def test_a_v2_transaction_is_followed_by_the_next_epoch(world: World) -> None:
    producer = Producer(world.wire, "new-client")
    before = producer.init_producer_id()
    producer.produce(world.traffic_topic, 0, [b"new"])
    producer.end(commit=True)
    assert producer.known.producer_epoch == before.producer_epoch + 1


def test_kafkas_tool_runs_other_commands_and_reports_failures(world: World) -> None:
    answer = kafka_transactions(world.cluster, "list")
    assert world.torn.hanging.transactional_id in {row["TransactionalId"] for row in answer.rows}
    assert kafka_transactions(world.cluster, "find-hanging").exit_status != 0


def test_a_paused_broker_does_not_answer_until_it_is_resumed(world: World) -> None:
    impatient = ConnectionSettings(request_timeout_ms=300, connection_setup_timeout_ms=300)
    world.cluster.pause_broker(3)
    try:
        assert world.cluster.is_running(3)
        with Wire(world.cluster.brokers, impatient) as wire, pytest.raises(RequestFailed):
            read_metadata(wire.send, 3, [])
    finally:
        world.cluster.resume_broker(3)
    world.cluster.wait_for_brokers((1, 2, 3))


def test_a_marker_is_pending_until_its_broker_is_back(world: World) -> None:
    pending = plant.pending_marker(world.cluster)
    try:
        assert world.cluster.running == (1, 2)
        found, owner = on_partition(world, pending), at_owner(world, pending)
        assert (found.producer_epoch, owner.producer_epoch) == (0, 1)
        assert (owner.state, owner.partitions) == ("PrepareCommit", (f"{pending.topic}-0",))
    finally:
        world.cluster.start_broker(3)
    wait_until(lambda: at_owner(world, pending).state == "CompleteCommit", "the marker was written")
    assert on_partition(world, pending) is None


def test_a_killed_broker_loses_its_leadership_and_can_come_back(world: World) -> None:
    cluster = world.cluster
    torn = world.torn.hanging
    cluster.kill_broker(3)
    assert cluster.running == (1, 2)
    cluster.wait_for_leader(torn.topic, torn.partition, -1)
    with pytest.raises(DemoError, match="broker 3 does not run"):
        cluster.stop_broker(3)
    cluster.start_broker(3)
    cluster.wait_for_leader(torn.topic, torn.partition, 3)
    assert on_partition(world, torn).start_offset == torn.start_offset


# --- other clusters


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", choose_ports(1)[0]))
        holder.listen()
        yield holder.getsockname()[1]


def test_a_taken_port_is_one_sentence_and_starts_no_broker(tmp_path: Path, taken_port: int) -> None:
    cluster = KafkaCluster(tmp_path, base_port=taken_port - 1)
    with pytest.raises(DemoError, match=f"port {taken_port} on 127.0.0.1 is taken"):
        cluster.start()
    assert cluster.running == ()
    assert list(tmp_path.iterdir()) == []


def test_a_restarted_cluster_keeps_its_addresses_and_data(tmp_path: Path) -> None:
    with KafkaCluster(tmp_path, brokers=1) as cluster:
        addresses = cluster.bootstrap_servers
        with cluster.wire() as wire:
            create_topic(wire, "kept", [[1]])
        cluster.stop()
        cluster.start()
        assert cluster.bootstrap_servers == addresses
        with cluster.wire() as wire:
            assert [partition.key for partition in wire.view(["kept"]).partitions] == [("kept", 0)]


def test_a_failed_broker_is_reported_with_its_log_and_ends_the_others(tmp_path: Path) -> None:
    cluster = KafkaCluster(tmp_path, brokers=2, broker_properties={2: {"num.io.threads": "none"}})
    with pytest.raises(DemoError, match=r"broker 2 .*num\.io\.threads.*broker-2"):
        cluster.start()
    assert cluster.running == ()
    assert not any(is_listening(broker.port) for broker in cluster.brokers)


def test_a_port_taken_after_its_choice_is_the_reported_reason(
    tmp_path: Path, taken_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "choose_ports", lambda count, base_port: [taken_port, *choose_ports(count - 1)])
    with pytest.raises(DemoError, match=r"broker 1 .*taken.*; see "):
        KafkaCluster(tmp_path, brokers=1).start()


def pkcs8(key_pem: bytes) -> str:
    """The private key in the only format that Kafka reads."""
    key = serialization.load_pem_private_key(key_pem, password=None)
    no_encryption = serialization.NoEncryption()
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(pem, form, no_encryption).decode()


def test_a_further_listener_uses_tls_and_scram_and_all_brokers_end_with_the_cluster(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems).decode()
    of_listener = "listener.name.sasl_ssl"
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    cluster = KafkaCluster(
        tmp_path,
        brokers=1,
        listeners={"SASL_SSL": "SASL_SSL"},
        properties={
            f"{of_listener}.ssl.keystore.type": "PEM",
            f"{of_listener}.ssl.keystore.certificate.chain": chain,
            f"{of_listener}.ssl.keystore.key": pkcs8(certificate.private_key_pem.bytes()),
            f"{of_listener}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            f"{of_listener}.scram-sha-512.sasl.jaas.config": login,
        },
        add_scram=["SCRAM-SHA-512=[name=alice,password=alice-secret]"],
    )
    settings = ConnectionSettings(
        security_protocol="SASL_SSL",
        tls=TlsSettings(ca_pem=authority.cert_pem.bytes().decode()),
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="alice",
        sasl_password="alice-secret",
    )
    with cluster:
        (secured,) = cluster.brokers_of("SASL_SSL")
        assert cluster.bootstrap_servers_of("SASL_SSL") == secured.address != cluster.bootstrap_servers
        with Client(settings, [secured]) as client:
            assert read_metadata(client.send, 1, []).brokers == (secured,)
    assert cluster.running == ()
    assert not is_listening(secured.port)
    assert not any(is_listening(broker.port) for broker in cluster.brokers)


def exists(pid: int) -> bool:
    """Whether the process runs, other than as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes as Linux shows them")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_brokers_end_with_the_process_that_started_them(tmp_path: Path, end: int) -> None:
    code = (
        "import pathlib, sys, time\n"
        "from txnscan.demo.process import GuardedProcess\n"
        "command = ['sh', '-c', 'echo $$ > pid.new && mv pid.new pid && exec sleep 600']\n"
        "process = GuardedProcess(command, pathlib.Path('log'))\n"
        "time.sleep(600)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(plant.__file__).parents[2])}
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    try:
        wait_until((tmp_path / "pid").exists, "the child had started")
        pid = int((tmp_path / "pid").read_text())
        assert exists(pid)
    finally:
        parent.send_signal(end)
        parent.wait()
    wait_until(lambda: not exists(pid), "the child had ended", timeout_s=10)
