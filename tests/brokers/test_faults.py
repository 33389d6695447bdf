"""Sweeps of a failing cluster: unobserved transactions are indeterminate, and the rest is still judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.brokers.shared import at_stage
from tests.prove.faults.admin import delete_topic
from txnscan import ScanConfig, find_hanging
from txnscan.demo import plant
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.plant import HealthyTraffic, Planted
from txnscan.demo.producer import Producer
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.sweeps.result import Scan
from txnscan.verdict.evidence import Judged

# Each broker coordinates some of the transactional ids, without a replica.
UNREPLICATED = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
VICTIM = 3


@dataclass(frozen=True)
class World:
    cluster: KafkaCluster
    wire: Wire
    orphan: Planted
    stale: Planted
    owned_by_victim: Planted


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with KafkaCluster(tmp_path_factory.mktemp("faulty"), properties=UNREPLICATED) as cluster, cluster.wire() as wire:
        create_topic(wire, "only-on-victim", [[VICTIM]])
        create_topic(wire, "owned", [[1, 2]])
        producer = plant.coordinated_by(wire, VICTIM, "owned")
        start_offset = producer.produce("owned", 0, [b"live"])
        owned = Planted("live", "owned", 0, producer.known.producer_id, 0, start_offset, producer.transactional_id)
        yield World(cluster, wire, plant.orphan(wire), _stale_owned_by(wire, 1), owned)


def _stale_owned_by(wire: Wire, coordinator: int) -> Planted:
    """A stale epoch whose owner is coordinated by a running broker."""
    for number in range(100):
        topic = f"shipments-{number}"
        if wait_until(Producer(wire, f"{topic}-service").coordinator, "it had a coordinator") == coordinator:
            return plant.stale_epoch(wire, topic)
    raise AssertionError("no transactional id is coordinated by that broker")


@pytest.fixture(autouse=True)
def mended(world: World) -> Iterator[None]:
    """Every test starts with all brokers running and in agreement."""
    for broker_id in set(world.cluster.broker_ids) - set(world.cluster.running):
        world.cluster.start_broker(broker_id)
    world.cluster.wait_for_brokers(world.cluster.broker_ids)
    world.cluster.wait_for_leader("only-on-victim", 0, VICTIM)
    wait_until(lambda: swept(world).complete, "everything was observed again")
    yield


def swept(
    world: World, progress: Callable[[str, int, int], None] = lambda *_: None, topic: tuple[str, ...] = ()
) -> Scan:
    return find_hanging(ScanConfig(world.cluster.bootstrap_servers, topic=topic), progress=progress)


def on(scan: Scan, planted: Planted) -> Judged:
    (judged,) = [
        j
        for j in scan.transactions
        if (j.observation.topic, j.observation.partition) == (planted.topic, planted.partition)
        and j.observation.producer_id == planted.producer_id
    ]
    return judged


def verdict(scan: Scan, planted: Planted) -> tuple[str, str]:
    judgement = on(scan, planted).judgement
    return str(judgement.verdict), str(judgement.reason)


def test_with_all_brokers_up_everything_is_proven(world: World) -> None:
    scan = swept(world)
    assert verdict(scan, world.orphan) == ("hanging", "orphan")
    assert verdict(scan, world.stale) == ("hanging", "stale_epoch")
    assert verdict(scan, world.owned_by_victim) == ("ongoing", "owned")


def test_a_stopped_broker_leaves_its_transactions_indeterminate_and_the_rest_judged(world: World) -> None:
    pending = plant.pending_marker(world.cluster, "ledger")
    scan = swept(world)
    assert verdict(scan, pending) == ("pending_marker", "decided")
    assert on(scan, pending).outcome is None, "its coordinator's word alone proves no outcome"
    assert verdict(scan, world.stale) == ("hanging", "stale_epoch")
    assert verdict(scan, world.owned_by_victim) == ("indeterminate", "coverage")
    assert verdict(scan, world.orphan) == ("indeterminate", "coverage")
    assert not scan.complete
    assert scan.coordinators_proven < scan.coordinators_planned
    (unled,) = [error for error in scan.errors if error.topic == "only-on-victim"]
    assert (unled.stage, str(unled.failure)) == ("plan", "the partition has no leader")
    assert scan.partitions_failed >= 1


def test_a_pending_marker_is_never_hanging_until_it_is_written(world: World) -> None:
    scans = [swept(world, topic=("ledger",))]

    def gone() -> bool:
        scans.append(swept(world, topic=("ledger",)))
        return not scans[-1].transactions

    wait_until(gone, "the marker was written")
    seen = {str(j.judgement.verdict) for scan in scans for j in scan.transactions}
    assert seen <= {"pending_marker", "gone"}


def test_a_broker_killed_during_a_sweep_causes_no_false_verdict(world: World) -> None:
    scan = swept(world, at_stage("ask coordinators", lambda: world.cluster.kill_broker(VICTIM)))
    assert verdict(scan, world.owned_by_victim)[0] in ("indeterminate", "ongoing")
    assert verdict(scan, world.orphan)[0] in ("indeterminate", "hanging")
    assert len(scan.transactions) == 3


def test_a_broker_killed_between_the_reads_is_reported_with_unproven_coordinators(world: World) -> None:
    scan = swept(world, at_stage("first read", lambda: world.cluster.kill_broker(VICTIM)))
    # Its coordinator had claimed it before it was killed.
    assert verdict(scan, world.owned_by_victim) == ("ongoing", "owned")
    assert verdict(scan, world.orphan)[0] == "indeterminate"
    assert any(error.broker == VICTIM for error in scan.errors)
    assert not scan.complete


def test_a_paused_broker_affects_only_its_own_answers(world: World) -> None:
    world.cluster.pause_broker(VICTIM)
    try:
        scan = swept(world)
        assert verdict(scan, world.owned_by_victim)[0] == "indeterminate"
        assert verdict(scan, world.orphan)[0] == "indeterminate"
        assert not scan.complete
    finally:
        world.cluster.resume_broker(VICTIM)


def test_a_topic_deleted_during_a_sweep_is_indeterminate_and_the_rest_is_judged(world: World) -> None:
    doomed = plant.orphan(world.wire, "doomed")

    scan = swept(world, at_stage("first read", lambda: delete_topic(world.wire, "doomed")))
    assert verdict(scan, doomed) == ("indeterminate", "partition")
    assert verdict(scan, world.orphan) == ("hanging", "orphan")
    assert any(error.topic == "doomed" for error in scan.errors)


def test_a_leader_that_moves_between_the_reads_is_followed(world: World) -> None:
    def move() -> None:
        world.cluster.stop_broker(1)
        wait_until(lambda: world.wire.partition(world.orphan.topic, 0).leader != 1, "another broker led")
        world.cluster.start_broker(1)
        world.cluster.wait_for_brokers(world.cluster.broker_ids)

    scan = swept(world, at_stage("first read", move))
    # Depends on the time: never a wrong owner, and never a missing transaction.
    assert verdict(scan, world.owned_by_victim) in (("ongoing", "owned"), ("indeterminate", "coverage"))
    assert verdict(scan, world.orphan)[0] in ("hanging", "indeterminate")


def test_traffic_through_a_failing_broker_is_never_hanging(world: World) -> None:
    with HealthyTraffic(world.cluster, "through-faults", producers=2):
        scans = [swept(world)]
        world.cluster.kill_broker(VICTIM)
        scans += [swept(world) for _ in range(5)]
        world.cluster.start_broker(VICTIM)
        scans += [swept(world) for _ in range(5)]
        world.cluster.wait_for_brokers(world.cluster.broker_ids)
        scans += [swept(world) for _ in range(5)]
    for scan in scans:
        accused = [j for j in scan.transactions if str(j.judgement.verdict) == "hanging"]
        assert {j.observation.topic for j in accused} <= {world.orphan.topic, world.stale.topic}
