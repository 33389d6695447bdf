"""Logs that take no writes, markers that will be lost, and a transaction log that cannot be made: real brokers in each
of these states, and what each command says about them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.offsets import commit_offset
from tests.cases import Cases
from tests.process import run_here
from txnscan import ScanConfig, find_hanging
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.errors import DemoError
from txnscan.demo.jars import KAFKA_VERSION, OLD_KAFKA_VERSION
from txnscan.demo.plant import describe_owner
from txnscan.demo.producer import Producer
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.replicas import read_replicas
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.report.metrics import families, watched_once
from txnscan.sweeps.result import Scan

# Broker 3 stops. With a short session a busy machine would fence the others, too.
AWAY, PATIENT = 3, {"broker.session.timeout.ms": "20000"}
LOG_OF_TWO = {"transaction.state.log.replication.factor": "2", "transaction.state.log.min.isr": "2"}
PAY, LEDGER, NEAR, FAR = "pay", "ledger", "near", "far"
TIMEOUT_MS = 900_000


@dataclass(frozen=True)
class World:
    """Transactions of these ids: `stopped`, whose log is on brokers 1 and 3; `decided`, which owes a marker to a
    partition on brokers 1 and 3; and `torn`, with a partition on broker 3 alone.
    """

    cluster: KafkaCluster
    wire: Wire
    stopped: Producer
    decided: Producer
    torn: Producer
    log: str


def answered(cluster: KafkaCluster, *words: str, status: int = 0) -> dict[str, Any]:
    ran = run_here(*words, "--bootstrap-server", cluster.bootstrap_servers, "--format", "json")
    assert ran.returncode == status, (ran.stdout, ran.stderr)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def in_log(wire: Wire, prefix: str, replicas: set[int]) -> tuple[Producer, int]:
    """A producer whose id has these brokers as replicas of its partition of the log, and that partition."""
    wait_until(Producer(wire, prefix).coordinator, "there was a transaction log")
    found = wait_until(lambda: read_replicas(wire.send, 1, {TRANSACTION_STATE_TOPIC: None}), "broker 1 showed the log")
    wanted = {index for (_, index), one in found.items() if {*one.replicas} == replicas}
    number = next(n for n in range(1_000) if coordinator_partition(f"{prefix}-{n}", len(found)) in wanted)
    producer = Producer(wire, f"{prefix}-{number}", timeout_ms=TIMEOUT_MS)
    producer.init_producer_id()
    return producer, coordinator_partition(f"{prefix}-{number}", len(found))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with (
        KafkaCluster(tmp_path_factory.mktemp("no-writes"), properties={**PATIENT, **LOG_OF_TWO}) as cluster,
        cluster.wire() as wire,
    ):
        for topic, replicas in ((PAY, [1]), (LEDGER, [1, AWAY]), (NEAR, [1]), (FAR, [AWAY])):
            configs = {"min.insync.replicas": "2"} if topic == LEDGER else {}
            create_topic(wire, topic, [replicas], configs)
        stopped, k = in_log(wire, "stopped", {1, AWAY})
        decided, _ = in_log(wire, "decided", {1, 2})
        torn, _ = in_log(wire, "torn", {1, 2})
        for producer, topics in ((stopped, [PAY]), (decided, [LEDGER]), (torn, [NEAR, FAR])):
            for topic in topics:
                producer.write(topic, 0, [b"a record"])
        for topic in (PAY, LEDGER, NEAR):
            commit_offset(cluster, f"of-{topic}", topic, 0)
        made = World(cluster, wire, stopped, decided, torn, f"{TRANSACTION_STATE_TOPIC}-{k}")
        before = answered(cluster, "explain", "--transactional-id", str(torn.transactional_id))
        assert (before["cause"], before["markers_at_risk"]) == ("owned", []) and before["ends_by"] is not None
        assert any(f"Broker {AWAY}" in line and f"{FAR}-0" in line for line in before["evidence"])
        cluster.stop_broker(AWAY)
        cluster.wait_for_brokers(cluster.running)
        cluster.wait_for_leader(FAR, 0, -1)
        decided.end(commit=True)
        name = str(decided.transactional_id)
        wait_until(lambda: describe_owner(wire, name).state == "PrepareCommit", f"{name} was decided")
        yield made


def test_explain_names_what_takes_no_writes_and_promises_no_end(world: World) -> None:
    stopped, decided = str(world.stopped.transactional_id), str(world.decided.transactional_id)
    of_log = {"no_writes": world.log, "transactional_id": stopped, "state": "Ongoing", "verdict": "ongoing"}
    of_partition = {"no_writes": f"{LEDGER}-0", "transactional_id": decided, "state": "PrepareCommit"}
    table: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
        (("--transactional-id", stopped), of_log),
        (("--group", f"of-{PAY}"), of_log),
        (("--topic", PAY), of_log),
        (("--transactional-id", decided), of_partition),
        (("--group", f"of-{LEDGER}"), of_partition),
        (("--producer-id", str(world.decided.known.producer_id)), of_partition),
        (("--error", f"[Producer transactionalId={decided}] initTransactions timed out"), of_partition),
        (("--error", "CONCURRENT_TRANSACTIONS"), of_partition),
    )
    replicas = {"in_sync_replicas": 1, "min_in_sync_replicas": 2, "replication_factor": 2, "restore_brokers": [AWAY]}
    with Cases() as cases:
        for words, expected in table:
            with cases.case(" ".join(words)):
                found = answered(world.cluster, "explain", *words)
                wanted = {"cause": "no_writes", "ends_by": None, **replicas, **expected}
                assert {name: found[name] for name in wanted} == wanted, found
                assert "ends by" not in found["sentence"] and f"broker {AWAY}" in " ".join(found["evidence"])


def test_explain_says_that_a_partition_has_no_leader(world: World) -> None:
    found = answered(world.cluster, "explain", "--topic", FAR)
    assert (found["cause"], found["no_writes"], found["restore_brokers"]) == ("no_writes", f"{FAR}-0", [AWAY])
    assert f"{FAR}-0" in found["sentence"] and any(f"Start broker {AWAY}" in line for line in found["evidence"])


def test_explain_warns_before_a_marker_is_lost(world: World) -> None:
    name = str(world.torn.transactional_id)
    found = answered(world.cluster, "explain", "--transactional-id", name)
    assert (found["cause"], found["markers_at_risk"]) == ("marker_at_risk", [f"{FAR}-0"])
    assert (found["restore_brokers"], found["ends_by"] is not None) == ([AWAY], True)
    group = answered(world.cluster, "explain", "--group", f"of-{NEAR}")
    assert (group["cause"], group["markers_at_risk"]) == ("owned", [f"{FAR}-0"]) and group["ends_by"] is not None
    assert any(f"{FAR}-0 has no leader" in line and f"Start broker {AWAY}" in line for line in group["evidence"])


def swept(world: World) -> Scan:
    return find_hanging(ScanConfig(world.cluster.bootstrap_servers, blocking_after_ms=1))


def test_a_sweep_warns_and_has_no_end_for_what_cannot_end(world: World) -> None:
    scan = swept(world)
    of_log, of_partition, of_marker = scan.warnings
    assert f"of {TRANSACTION_STATE_TOPIC} take no writes" in of_log and of_log.endswith(f"Restore broker {AWAY}")
    assert f"{LEDGER}-0 takes no writes" in of_partition and f"Restore broker {AWAY}" in of_partition
    assert f"'{world.torn.transactional_id}'" in of_marker and f"Start broker {AWAY}" in of_marker
    assert scan.writes.at_risk == {(FAR, 0)}
    logs = sum(one.is_transaction_log for one in scan.writes.stopped)
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families([watched_once("c", scan)])
        for sample in family.samples
    }
    assert samples["txnscan_unwritable_partitions", "c", "log"] == logs >= 2
    assert samples["txnscan_unwritable_partitions", "c", "data"] == samples["txnscan_markers_at_risk", "c"] == 1
    ran = run_here(
        *("find-hanging", "--bootstrap-server", world.cluster.bootstrap_servers, "--all", "--format", "json"),
        *("--blocking-after", "1ms"),
    )
    rows = {row["topic"]: row for row in json.loads(ran.stdout)["transactions"]}
    assert {topic: row["verdict"] for topic, row in rows.items()} == {
        PAY: "ongoing",
        LEDGER: "pending_marker",
        NEAR: "ongoing",
    }
    assert [rows[topic]["ends_by"] is None for topic in (PAY, LEDGER, NEAR)] == [True, True, False]
    for topic, what in ((PAY, world.log), (LEDGER, f"{LEDGER}-0")):
        assert f"{what} takes no writes" in rows[topic]["explanation"]


def test_check_notes_what_takes_no_writes(world: World) -> None:
    # A partition without a leader makes the check incomplete.
    found = answered(world.cluster, "check", status=4)
    notes = [
        one for one in found["findings"] if one["level"] == "note" and one["area"] in ("coordinators", "partitions")
    ]
    assert [one["area"] for one in notes] == ["coordinators", "partitions", "partitions"]
    of_log, of_partition, of_marker = (one["said"] for one in notes)
    assert f"of {TRANSACTION_STATE_TOPIC} take no writes" in of_log and f"{LEDGER}-0 takes no writes" in of_partition
    assert f"{FAR}-0 of '{world.torn.transactional_id}' (at the latest in " in of_marker


def test_with_the_broker_back_every_transaction_can_end(world: World) -> None:
    cluster, wire = world.cluster, world.wire
    cluster.start_broker(AWAY)
    cluster.wait_for_leader(FAR, 0, AWAY)
    topics = [TRANSACTION_STATE_TOPIC, LEDGER, FAR]
    wait_until(
        lambda: all(one.is_complete for one in read_replicas(wire.send, 1, dict.fromkeys(topics)).values()),
        "all replicas were in sync",
    )
    decided = str(world.decided.transactional_id)
    wait_until(lambda: describe_owner(wire, decided).state == "CompleteCommit", f"{decided} completed")
    for producer in (world.stopped, world.torn):
        found = answered(cluster, "explain", "--transactional-id", str(producer.transactional_id))
        assert (found["cause"], found["no_writes"], found["markers_at_risk"]) == ("owned", None, [])
        assert found["ends_by"] is not None
    assert swept(world).warnings == ()
    assert {one["level"] for one in answered(cluster, "check")["findings"] if one["area"] == "coordinators"} == {"ok"}
    for producer in (world.stopped, world.torn):
        producer.end(commit=True)


# --- a cluster of one broker


@dataclass(frozen=True)
class Alone:
    """A broker of this version whose transaction log is to have so many replicas, and to need so many in sync. begins:
    whether a producer gets an id. cause, of_error: of an id that never was, and of a timeout without an id.
    """

    version: str
    factor: int
    min_in_sync: int
    begins: bool
    cause: str
    of_error: str
    level: str


# Before Kafka 3.7 a log never takes writes that needs more replicas than it has.
ALONE = (
    Alone(KAFKA_VERSION, 3, 2, False, "no_transaction_log", "no_transaction_log", "note"),
    Alone(KAFKA_VERSION, 1, 2, True, "no_transaction", "no_transaction", "ok"),
    Alone(OLD_KAFKA_VERSION, 3, 2, False, "no_transaction_log", "no_transaction_log", "note"),
    Alone(OLD_KAFKA_VERSION, 1, 2, False, "no_writes", "no_writes", "note"),
)


@pytest.mark.parametrize("alone", ALONE, ids=lambda one: f"{one.version}, {one.factor} replicas")
def test_one_broker_and_a_log_that_needs_more(alone: Alone, tmp_path: Path) -> None:
    properties = {
        **PATIENT,
        "transaction.state.log.replication.factor": str(alone.factor),
        "transaction.state.log.min.isr": str(alone.min_in_sync),
    }
    with (
        KafkaCluster(tmp_path, brokers=1, version=alone.version, properties=properties) as cluster,
        cluster.wire() as wire,
    ):
        producer = Producer(wire, "first", deadline_s=5 if not alone.begins else 60)
        try:
            producer.init_producer_id()
            begins = True
        except DemoError:
            begins = False
        assert begins is alone.begins
        if alone.cause == "no_transaction":
            ran = run_here(
                "explain", "--transactional-id", "never-was", "--bootstrap-server", cluster.bootstrap_servers
            )
            assert ran.returncode == 2 and "'never-was'" in ran.stderr
            found: dict[str, Any] = {"cause": alone.cause}
        else:
            found = answered(cluster, "explain", "--transactional-id", "never-was")
        assert found["cause"] == alone.cause, found
        if alone.cause == "no_transaction_log":
            assert (found["replication_factor"], found["brokers"]) == (3, 1)
        if alone.cause == "no_writes":
            assert (found["in_sync_replicas"], found["min_in_sync_replicas"], found["replication_factor"]) == (1, 2, 1)
        of_error = answered(
            cluster, "explain", "--error", "TimeoutException: initTransactions InitProducerId timed out"
        )
        assert of_error["cause"] == alone.of_error, of_error
        levels = [one["level"] for one in answered(cluster, "check")["findings"] if one["area"] == "coordinators"]
        assert levels[-1] == alone.level
