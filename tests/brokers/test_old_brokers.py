"""Old brokers. Apache Kafka 3.5.2 (transactions v1, before KIP-890, without verification) is judged like any other.

Unsupported requests leave transactions indeterminate, with one warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.fakes.old_brokers import verdicts
from txnscan import ScanConfig, find_hanging
from txnscan.demo import plant
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.jars import OLD_KAFKA_VERSION
from txnscan.demo.kafka_tool import find_hanging as kafka_tool
from txnscan.demo.plant import HealthyTraffic, Planted
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.sweeps.result import Scan


@dataclass(frozen=True)
class World:
    cluster: KafkaCluster
    wire: Wire
    planted: dict[str, Planted]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[World]:
    """Three brokers of 3.5.2. Without their jars from `make setup`, the terminal reports the download."""

    def say(sentence: str) -> None:
        plugins = pytestconfig.pluginmanager
        with plugins.getplugin("capturemanager").global_and_fixture_disabled():
            plugins.getplugin("terminalreporter").write_line(sentence)

    directory = tmp_path_factory.mktemp("old")
    with KafkaCluster(directory, version=OLD_KAFKA_VERSION, say=say) as cluster, cluster.wire() as wire:
        planted = {
            "orphan": plant.orphan(wire),
            "stale_epoch": plant.stale_epoch(wire),
            "live_epoch": plant.live_epoch(wire),
            "owned": plant.live_with_old_timestamps(wire),
        }
        yield World(cluster, wire, planted)


def swept(world: World) -> Scan:
    return find_hanging(ScanConfig(world.cluster.bootstrap_servers))


def on(scan: Scan, planted: Planted) -> tuple[str, str]:
    return verdicts(scan)[planted.topic, planted.partition, planted.producer_id]


def test_transactions_planted_on_old_brokers_get_their_verdicts_in_a_complete_sweep(old: World) -> None:
    scan = swept(old)
    hanging = {what: on(scan, old.planted[what]) for what in ("orphan", "stale_epoch", "live_epoch")}
    assert hanging == {what: ("hanging", what) for what in hanging}
    assert on(scan, old.planted["owned"]) == ("ongoing", "owned")
    assert scan.complete
    assert (scan.errors, scan.warnings) == ((), ())


def test_healthy_traffic_on_old_brokers_is_never_hanging(old: World) -> None:
    with HealthyTraffic(old.cluster, "orders") as traffic:
        seen: set[str] = set()

        def caught_under_way() -> bool:
            seen.update(verdict for (topic, _, _), (verdict, _) in verdicts(swept(old)).items() if topic == "orders")
            return bool(seen) and traffic.count.committed > 10

        wait_until(caught_under_way, "a sweep had met the traffic")
    assert seen <= {"ongoing", "pending_marker", "gone", "indeterminate"}
    assert traffic.count.errors == ()


def test_a_pending_marker_of_old_brokers_has_the_same_epoch_until_it_is_written(old: World) -> None:
    pending = plant.pending_marker(old.cluster)
    try:
        (judged,) = [j for j in swept(old).transactions if j.observation.topic == pending.topic]
        assert (judged.judgement.verdict, judged.judgement.reason) == ("pending_marker", "decided")
        # All have one epoch, so a late record of the previous transaction would look the same.
        assert judged.outcome is None
        (owner,) = judged.evidence.coordinators
        assert owner.producer_epoch == judged.observation.producer_epoch == pending.producer_epoch
    finally:
        old.cluster.start_broker(3)
    wait_until(lambda: pending.topic not in {topic for topic, _, _ in verdicts(swept(old))}, "the marker was written")


def test_a_commit_waiting_for_a_leader_causes_a_warning_until_its_marker_is_written(
    old: World,
) -> None:
    """Kafka 4.3 would skip the partition. 3.5 waits for its leader, without an open transaction meanwhile."""
    create_topic(old.wire, "leaderless", [[3]])
    producer = plant.coordinated_by(old.wire, 1, "leaderless")
    producer.write("leaderless", 0, [b"a record"])

    def warnings() -> list[str]:
        found = find_hanging(ScanConfig(old.cluster.bootstrap_servers, late_after_ms=1))
        return [warning for warning in found.warnings if f"'{producer.transactional_id}' is in Prepare" in warning]

    old.cluster.stop_broker(3)
    try:
        old.cluster.wait_for_brokers(old.cluster.running)
        producer.end(commit=True)
        (warning,) = wait_until(warnings, "the decision was seen")
        assert "is in PrepareCommit" in warning and "leaderless-0" in warning
    finally:
        old.cluster.start_broker(3)
    wait_until(lambda: not warnings(), "the marker was written")


def test_kafkas_own_tool_of_that_version_runs_from_the_same_jars(old: World) -> None:
    orphan = old.planted["orphan"]
    reported = {h.producer_id for broker_id in old.cluster.broker_ids for h in kafka_tool(old.cluster, broker_id)}
    assert orphan.producer_id in reported
