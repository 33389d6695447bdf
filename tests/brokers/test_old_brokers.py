"""Old brokers. Apache Kafka 3.5.2 (transactions v1, before KIP-890, so that it verifies nothing) is judged like any
other. What older brokers cannot be asked is indeterminate, and one sentence says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

import pytest
from kafka.protocol.admin import DescribeConfigsResponse

from tests.fakes import FakeCluster, FakeId, broker, producer
from txnscan import ScanConfig, find_hanging
from txnscan.demo import plant
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.jars import OLD_KAFKA_VERSION
from txnscan.demo.kafka_tool import find_hanging as kafka_tool
from txnscan.demo.plant import HealthyTraffic, Planted
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.engine.threads import ThreadsEngine
from txnscan.evidence.cluster import SNAPSHOT_TRIES, Cluster
from txnscan.evidence.tasks import ClientFactory
from txnscan.findings import History, NoHistory, Scan
from txnscan.kafka.connection import ConnectionSettings
from txnscan.kafka.coordinator import coordinator_partition
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.frames import api_name
from txnscan.model import TRANSACTION_STATE_TOPIC, Broker
from txnscan.scan import scan


@dataclass(frozen=True)
class World:
    cluster: KafkaCluster
    wire: Wire
    planted: dict[str, Planted]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[World]:
    """Three brokers of 3.5.2. Where `make setup` has not fetched their jars, the terminal says that it is done now."""

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


def verdicts(scan: Scan) -> dict[tuple[str, int, int], tuple[str, str]]:
    """Verdict and reason by topic, partition and producer id."""
    return {
        (j.observation.topic, j.observation.partition, j.observation.producer_id): (
            str(j.judgement.verdict),
            str(j.judgement.reason),
        )
        for j in scan.transactions
    }


def on(scan: Scan, planted: Planted) -> tuple[str, str]:
    return verdicts(scan)[planted.topic, planted.partition, planted.producer_id]


def test_everything_planted_on_old_brokers_gets_its_verdict_and_the_sweep_is_complete(old: World) -> None:
    scan = swept(old)
    hanging = {what: on(scan, old.planted[what]) for what in ("orphan", "stale_epoch", "live_epoch")}
    assert hanging == {what: ("hanging", what) for what in hanging}
    assert on(scan, old.planted["owned"]) == ("ongoing", "owned")
    assert scan.complete
    assert (scan.errors, scan.warnings) == ((), ())


def test_healthy_traffic_of_the_first_version_is_never_accused_and_ends_without_errors(old: World) -> None:
    with HealthyTraffic(old.cluster, "orders") as traffic:
        seen: set[str] = set()

        def caught_under_way() -> bool:
            seen.update(verdict for (topic, _, _), (verdict, _) in verdicts(swept(old)).items() if topic == "orders")
            return bool(seen) and traffic.count.committed > 10

        wait_until(caught_under_way, "a sweep had met the traffic")
    assert seen <= {"ongoing", "pending_marker", "gone", "indeterminate"}
    assert traffic.count.errors == ()


def test_a_marker_that_old_brokers_owe_is_pending_at_the_same_epoch_until_it_is_written(old: World) -> None:
    pending = plant.pending_marker(old.cluster)
    try:
        (judged,) = [j for j in swept(old).transactions if j.observation.topic == pending.topic]
        assert (judged.judgement.verdict, judged.judgement.reason) == ("pending_marker", "decided")
        # At one epoch for all, a late record of the transaction before would look the same.
        assert judged.judgement.outcome is None
        (owner,) = judged.evidence.coordinators
        assert owner.producer_epoch == judged.observation.producer_epoch == pending.producer_epoch
    finally:
        old.cluster.start_broker(3)
    wait_until(lambda: pending.topic not in {topic for topic, _, _ in verdicts(swept(old))}, "the marker was written")


def test_a_commit_that_waits_for_a_partition_without_a_leader_is_warned_of_until_its_marker_is_written(
    old: World,
) -> None:
    """Kafka 4.3 would skip the partition. 3.5 waits for its leader, and shows no open transaction meanwhile."""
    create_topic(old.wire, "leaderless", [[3]])
    producer = plant.coordinated_by(old.wire, 1, "leaderless")
    producer.write("leaderless", 0, [b"a record"])

    def warnings() -> list[str]:
        found = find_hanging(ScanConfig(old.cluster.bootstrap_servers, late_after="1ms"))
        return [warning for warning in found.warnings if f"'{producer.transactional_id}' is in Prepare" in warning]

    old.cluster.stop_broker(3)
    try:
        old.cluster.wait_for_brokers(old.cluster.running)
        producer.end(commit=True)
        (warning,) = wait_until(warnings, "the decision was seen")
        assert "is in PrepareCommit" in warning and "waits for leaderless-0, where no open transaction" in warning
    finally:
        old.cluster.start_broker(3)
    wait_until(lambda: not warnings(), "the marker was written")


def test_kafkas_own_tool_of_that_version_runs_from_the_same_jars(old: World) -> None:
    orphan = old.planted["orphan"]
    reported = {h.producer_id for broker_id in old.cluster.broker_ids for h in kafka_tool(old.cluster, broker_id)}
    assert orphan.producer_id in reported


# --- brokers without the APIs, which no KRaft release lacks: fakes that raise what the client raises

COORDINATOR_APIS = ("ListTransactions", "DescribeTransactions")
# Broker 1 leads `data-0`, 2 `data-1`, 3 `data-2`; each coordinates one partition of `__transaction_state`.
PRODUCER_IDS = {0: 100, 1: 101, 2: 102}


class FakeOld(FakeCluster):
    """A cluster in which some brokers lack some APIs. Every partition of `data` has one open transaction.

    lacking: names of requests by broker.
    """

    def __init__(self, lacking: Mapping[int, Sequence[str]]) -> None:
        super().__init__()
        self.lacking = lacking
        self.lead("data", self.brokers)
        self.lead(TRANSACTION_STATE_TOPIC, self.brokers)
        for k in range(len(self.brokers)):
            # What it holds is of no matter here.
            self.partitions[TRANSACTION_STATE_TOPIC, k].errors["fetch"] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        for index, producer_id in PRODUCER_IDS.items():
            self.partitions["data", index].producers = [producer(producer_id)]

    def own(self, index: int, coordinator: int) -> str:
        """The open transaction on that partition gets an owner, which that broker coordinates."""
        (k,) = self.cached[coordinator]
        ids = (f"owner-{number}" for number in count())
        name = next(name for name in ids if coordinator_partition(name, len(self.brokers)) == k)
        held = FakeId(producer_id=PRODUCER_IDS[index], partitions=(("data", index),))
        self.ids.setdefault(coordinator, {})[name] = held
        return name

    def send(self, broker_id: int, request: Any) -> Any:
        name = api_name(request)
        if name in self.lacking.get(broker_id, ()):
            raise RequestFailed.unsupported(f"broker {broker_id} (127.0.0.1:{9000 + broker_id})", name)
        return super().send(broker_id, request)

    def learn(self, brokers: Iterable[Broker]) -> None:
        """Where its brokers are does not matter."""

    def _answer_DescribeConfigs(self, broker_id: int, request: Any) -> Any:
        result = DescribeConfigsResponse.DescribeConfigsResult
        config = result.DescribeConfigsResourceResult(name="transaction.max.timeout.ms", value="900000")
        return DescribeConfigsResponse(results=[result(error_code=0, configs=[config])])


@dataclass(frozen=True)
class ConnectToFake:
    """Stands in for ClientFactory."""

    fake: FakeOld
    brokers: tuple[Broker, ...] = (broker(1),)
    settings: ConnectionSettings = field(default_factory=ConnectionSettings)

    def client(self) -> FakeOld:
        return self.fake

    def close(self) -> None:
        """There is nothing to close."""


def connected(fake: FakeOld, sleep: Callable[[float], None] = lambda _: None) -> Cluster:
    """A cluster of these brokers."""
    return Cluster(cast(ClientFactory, ConnectToFake(fake)), threads=0, sleep=sleep)


def swept_fake(fake: FakeOld, sleep: Callable[[float], None] = lambda _: None, history: History | None = None) -> Scan:
    with connected(fake, sleep) as cluster:
        return scan(
            ScanConfig("127.0.0.1:9001"),
            cluster,
            ThreadsEngine(1),
            sweep_id="sweep",
            now_ms=lambda: 1_700_000_100_000,
            history=history or NoHistory(),
            progress=lambda *_: None,
        )


def open_on(scanned: Scan) -> dict[int, tuple[str, str]]:
    """Verdict and reason by partition of `data`."""
    return {index: verdict for (_, index, _), verdict in verdicts(scanned).items()}


def test_what_a_broker_lacks_for_good_is_not_waited_for_and_what_may_pass_is() -> None:
    waits: list[float] = []
    swept_fake(FakeOld(dict.fromkeys((1, 2, 3), COORDINATOR_APIS)), waits.append)
    assert waits == []
    loading = FakeOld({})
    loading.list_errors[1] = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    swept_fake(loading, waits.append)
    assert len(waits) == SNAPSHOT_TRIES - 1


def test_brokers_that_have_every_api_are_warned_of_by_no_one() -> None:
    scanned = swept_fake(FakeOld({}))
    assert open_on(scanned) == dict.fromkeys(range(3), ("hanging", "orphan"))
    assert scanned.complete and scanned.warnings == ()


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        (COORDINATOR_APIS, "DescribeTransactions"),
        (("ListTransactions",), "ListTransactions"),
        (("DescribeTransactions",), "DescribeTransactions"),
    ],
)
def test_where_no_broker_shows_owners_everything_open_is_indeterminate_and_one_sentence_says_why(
    missing: tuple[str, ...], named: str
) -> None:
    scanned = swept_fake(FakeOld(dict.fromkeys((1, 2, 3), missing)))
    assert open_on(scanned) == dict.fromkeys(range(3), ("indeterminate", "coverage"))
    assert not scanned.complete
    assert scanned.warnings == (
        f"brokers 1, 2 and 3 lack {named} (since Kafka 3.0): "
        "an open transaction is indeterminate unless another broker shows its owner",
    )
    for judged in scanned.transactions:
        assert f"lacks an API of Kafka 3.0 and newer: it does not support {named}" in judged.judgement.explanation


def test_beside_one_old_broker_an_owner_that_a_newer_one_shows_is_believed_and_absence_proves_nothing() -> None:
    fake = FakeOld({1: COORDINATOR_APIS})
    fake.own(0, coordinator=2)
    fake.own(1, coordinator=1)
    scanned = swept_fake(fake)
    assert open_on(scanned) == {
        0: ("ongoing", "owned"),
        1: ("indeterminate", "coverage"),
        2: ("indeterminate", "coverage"),
    }
    assert (scanned.coordinators_proven, scanned.coordinators_planned) == (2, 3)
    (warning,) = scanned.warnings
    assert warning.startswith("broker 1 lacks DescribeTransactions (since Kafka 3.0): ")


def test_beside_one_old_broker_a_hanging_transaction_of_a_newer_ones_id_is_still_proven() -> None:
    fake = FakeOld({1: COORDINATOR_APIS})
    name = fake.own(0, coordinator=2)
    fake.ids[2][name].partitions = (("data", 9),)
    assert open_on(swept_fake(fake))[0] == ("hanging", "live_epoch")


def test_partitions_led_by_a_broker_without_describe_producers_are_errors_and_the_sentence_says_so() -> None:
    fake = FakeOld({1: ("DescribeProducers", *COORDINATOR_APIS)})
    fake.own(2, coordinator=2)
    scanned = swept_fake(fake)
    assert open_on(scanned) == {1: ("indeterminate", "coverage"), 2: ("ongoing", "owned")}
    assert {(e.topic, e.partition) for e in scanned.errors if e.stage == "read"} == {
        ("data", 0),
        (TRANSACTION_STATE_TOPIC, 0),
    }
    assert scanned.warnings == (
        "broker 1 lacks DescribeProducers (since Kafka 2.8): "
        "what is open on the partitions led there is not seen; "
        "broker 1 lacks DescribeTransactions (since Kafka 3.0): "
        "an open transaction is indeterminate unless another broker shows its owner",
    )


def test_brokers_that_are_all_older_than_2_8_leave_nothing_answered() -> None:
    scanned = swept_fake(FakeOld(dict.fromkeys((1, 2, 3), ("DescribeProducers", *COORDINATOR_APIS))))
    assert scanned.transactions == () and not scanned.complete
    assert scanned.partitions_failed == scanned.partitions_planned == 6
    assert scanned.coordinators_proven == 0
    assert len(scanned.warnings) == 1
