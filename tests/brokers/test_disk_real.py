"""The disk behind blocked compaction, on real brokers: sizes, growth between sweeps, and a refused principal."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.brokers.locked import Locked
from tests.brokers.principals import CONFIGS, IDS, TOPICS, Acl
from tests.brokers.shared import Shared, set_topic
from tests.process import run_here
from txnscan import ScanConfig, sweep
from txnscan.demo.admin import create_topic, unverified
from txnscan.demo.producer import PRODUCE_V1, Producer
from txnscan.demo.wait import wait_until
from txnscan.engine.clock import BootTime
from txnscan.kafka.clock import wall_clock_ms
from txnscan.kafka.protocol.describe_configs import topic_cleaning
from txnscan.kafka.protocol.describe_log_dirs import describe_log_dirs
from txnscan.kafka.protocol.replicas import read_replicas
from txnscan.kafka.security.needs import DESCRIBE_CLUSTER
from txnscan.sweeps.result import Scan
from txnscan.verdict.evidence import Verdict
from txnscan.waiting.disk import Disk

TOPIC, DELETED = "disk-state", "disk-events"
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class World:
    """TOPIC is compacted, with replicas on brokers 1 and 2; DELETED is not. A transaction hangs on both."""

    shared: Shared
    config: ScanConfig


@pytest.fixture(scope="module")
def world(shared: Shared) -> World:
    wire = shared.wire
    create_topic(wire, TOPIC, [[1, 2]])
    create_topic(wire, DELETED, [[1]])
    late = Producer(wire, "disk-service", v2=False)
    late.init_producer_id()
    with unverified(wire):
        for topic in (TOPIC, DELETED):
            late.produce(topic, 0, [b"record"] * 5, version=PRODUCE_V1)
    made = World(shared, ScanConfig(shared.bootstrap_servers, topic_names=(TOPIC, DELETED), engine="threads"))
    # Only now: a compacted topic refuses records without a key.
    compact(made, TOPIC)
    return made


def compact(world: World, topic: str) -> None:
    wire = world.shared.wire
    set_topic(wire, topic, "cleanup.policy", "compact")

    def is_compacted(broker_id: int) -> bool:
        return topic_cleaning(wire.send, broker_id, [topic])[topic].cleanup_policy == "compact"

    wait_until(lambda: all(is_compacted(one.broker_id) for one in wire.brokers), "the topic was compacted")


def write(world: World, number: int, topic: str = TOPIC) -> None:
    """Writes so many records of 1 kB with one key, without a transaction, to both replicas."""
    producer = KafkaProducer(bootstrap_servers=world.shared.bootstrap_servers, acks="all")
    try:
        for _ in range(number):
            producer.send(topic, key=b"key", value=bytes(1_000), partition=0)
        producer.flush()
    finally:
        producer.close()


# Sweeps as if this many milliseconds had passed by the wall clock, and by the time since boot.
Later = Callable[[ScanConfig, int, int], Scan]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    def swept(config: ScanConfig, wall_ms: int, boot_ms: int) -> Scan:
        with monkeypatch.context() as ahead:
            ahead.setattr("txnscan.api.wall_clock_ms", lambda: wall_clock_ms() + wall_ms)
            ahead.setattr("txnscan.api.boot_time", lambda: BootTime("one", HOUR_MS + boot_ms))
            return sweep(None, config).scan

    return swept


def disks(scan: Scan) -> dict[str, Disk]:
    return {which.topic: impact.disk for which, impact in scan.impacts.items()}


def sizes(disk: Disk) -> dict[int, int]:
    assert disk.read is not None
    return {one.broker_id: one.partition_bytes for one in disk.read.replicas}


def test_the_growth_between_two_sweeps_is_known(world: World, later: Later, tmp_path: Path) -> None:
    config = replace(world.config, tables=str(tmp_path / "tables"))
    first = disks(later(config, 0, 0))
    assert first[DELETED] == Disk()
    assert first[TOPIC].error is None and set(sizes(first[TOPIC])) == {1, 2}
    usable, total = first[TOPIC].usable_bytes, first[TOPIC].total_bytes
    assert usable is not None and total is not None and 0 < usable <= total
    assert first[TOPIC].growth_bytes_per_hour is None and first[TOPIC].hours_until_full is None
    write(world, 200)
    # The clock was set back by five hours: half an hour has passed.
    second = disks(later(config, -5 * HOUR_MS, HOUR_MS // 2))[TOPIC]
    grown = {broker_id: size - sizes(first[TOPIC])[broker_id] for broker_id, size in sizes(second).items()}
    assert all(200_000 < one < 250_000 for one in grown.values())
    assert second.broker_id is not None and second.growth_bytes_per_hour == grown[second.broker_id] * 2
    hours = second.hours_until_full
    assert hours is not None and hours == (second.usable_bytes or 0) // second.growth_bytes_per_hour
    # Not written to meanwhile: it is not known when the disk is full.
    third = disks(later(config, HOUR_MS, HOUR_MS // 2 + 70_000))[TOPIC]
    assert third.growth_bytes_per_hour is not None and third.growth_bytes_per_hour < second.growth_bytes_per_hour


def test_brokers_report_only_requested_replicas(world: World) -> None:
    """The version is chosen by kafka-python: the highest that both know."""
    wire = world.shared.wire
    assert {key: one.replicas for key, one in read_replicas(wire.send, 3, {TOPIC: None}).items()} == {
        (TOPIC, 0): (1, 2)
    }
    for broker_id, held in ((1, {(TOPIC, 0)}), (3, set())):
        (found,) = describe_log_dirs(wire.send, broker_id, [(TOPIC, 0), (TOPIC, 7), ("disk-nowhere", 0)])
        assert (set(found.sizes_bytes), found.failure) == (held, None)
        assert found.usable_bytes is not None and Path(found.path).is_dir()
    assert describe_log_dirs(wire.send, 1, ())[0].sizes_bytes == {}


def explain(world: World, *options: str) -> dict[str, Any]:
    ran = run_here("explain", "--bootstrap-server", world.shared.bootstrap_servers, *options, "--format", "json")
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_explain_reports_the_size_of_a_compacted_topic_without_a_transaction(world: World) -> None:
    """Its only segment is active, so the cleaner need not clean it, although a key comes twice."""
    topic = "disk-closed"
    create_topic(world.shared.wire, topic, [[1, 2]], {"cleanup.policy": "compact"})
    write(world, 3, topic)
    found = explain(world, "--topic", topic)
    assert (found["cause"], found["compacted"]) == ("no_transaction", True)
    assert found["partition_bytes"] > 3_000 and found["usable_bytes"] > 0
    # A line of a broker's log, in which its cleaner gives up.
    found = explain(world, "--error", f"Marking its partition ({topic}-0) as uncleanable")
    assert (found["cause"], found["topic"], found["partition"]) == ("cleaner_stuck", topic, 0)


def test_a_dirty_log_is_detected_until_the_cleaner_has_cleaned_it(world: World) -> None:
    """The cleaner runs every 15 s. If it runs before the question, another topic is tried."""
    numbers = count()
    detected: list[str] = []

    def is_detected() -> bool:
        topic = f"disk-dirty-{next(numbers)}"
        create_topic(world.shared.wire, topic, [[1, 2]], {"segment.bytes": str(1 << 20)})
        write(world, 8_000, topic)
        compact(world, topic)
        if explain(world, "--topic", topic)["cause"] == "cleaner_stuck":
            detected.append(topic)
        return bool(detected)

    wait_until(is_detected, "the question came before the cleaner")
    wait_until(
        lambda: explain(world, "--topic", detected[0])["cause"] == "no_transaction", "the cleaner cleaned the log"
    )


def test_a_principal_that_may_not_describe_the_cluster_gets_the_reason(world: World, tmp_path: Path) -> None:
    """The verdict is the same. The warning has the grant."""
    shutil.copy(world.shared.directory / "ca.pem", tmp_path)
    locked = Locked(world.shared.cluster, world.shared.wire, tmp_path, (TOPIC,))
    rules = locked.add("no-acls", *TOPICS, *IDS, *CONFIGS, Acl("DescribeConfigs", "Topic"))
    try:
        scan = locked.swept("no-acls")
        lacking = locked.checked("no-acls").lacking
    finally:
        locked.remove(*rules)
    (judged,) = scan.transactions
    assert judged.judgement.verdict is Verdict.HANGING
    disk = disks(scan)[TOPIC]
    assert disk.partition_bytes is None and "DescribeLogDirs" in str(disk.error)
    (warning,) = (one for one in scan.warnings if "blocked compaction" in one)
    assert "--operation Describe --cluster" in warning and DESCRIBE_CLUSTER.permission in lacking
