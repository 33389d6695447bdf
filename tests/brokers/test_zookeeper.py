"""Clusters with ZooKeeper: topics get ids while transactions hang, and leader epochs stay at restarts.

Kafka 3.5.2. One history is on one broker. `inter.broker.protocol.version` is 2.7, so topics have no ids. Transactions
hang, two sweeps record their incidents, and a plan is made. Then the broker starts again with 3.5, each topic has an
id, and some topics are deleted and created again. The first sweep has an earlier clock, as if what hangs had been
watched for long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.brokers.losses import RECORDS, incidents_of, markers, swept
from tests.cases import Cases
from tests.prove.faults.admin import delete_topic
from tests.prove.placing import replicas_of
from tests.zookeeper import WITH_IDS, WITHOUT_IDS, ZooKeeperCluster
from txnscan import ScanConfig, sweep
from txnscan.demo.admin import create_topic
from txnscan.demo.errors import DemoError
from txnscan.demo.producer import PRODUCE_V1, Producer, ProducerIdAndEpoch
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.protocol.api_versions import image_offset, leader_epochs_rise
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.resolve.apply import Result, Status
from txnscan.resolve.guard import ACCEPT_UNKNOWN
from txnscan.resolve.run import apply_to, plan_sweep
from txnscan.sweeps.result import Scan
from txnscan.tables.delta import Row

SETTINGS = {"transaction.state.log.num.partitions": "3", "auto.leader.rebalance.enable": "false"}
# Of these, the first keeps its topic. The new topics of the others are empty, longer than the old one, or shorter with
# a hanging transaction of the same producer id, epoch and start offset.
KEPT, EMPTY, LONGER, AGAIN = "kept", "empty", "longer", "again"
PARTITIONS = {KEPT: 2, EMPTY: 1, LONGER: 1, AGAIN: 1}


def hang(wire: Wire, topic: str, partition: int, who: ProducerIdAndEpoch | None = None) -> ProducerIdAndEpoch:
    """A late write of a producer that is fenced, or a write with this identity. Returns the identity of the write."""
    producer = Producer(wire, f"{topic}-{partition}-service", v2=False)
    written = producer.identity = who or producer.init_producer_id()
    assert producer.produce(topic, partition, RECORDS, version=PRODUCE_V1) == 0
    if who is None:
        assert producer.init_producer_id() != written
    return written


def committed(wire: Wire, topic: str, count: int) -> None:
    """Records of another producer."""
    producer = Producer(wire, f"{topic}-other", v2=False)
    producer.init_producer_id()
    producer.write(topic, 0, [b"more"] * count)
    producer.end(commit=True)


def made_anew(wire: Wire, topic: str) -> None:
    """Deletes the topic, and creates it again. The broker deletes the old log after that."""
    delete_topic(wire, topic)

    def created() -> bool:
        try:
            create_topic(wire, topic, [[1]])
        except DemoError:
            return False
        return True

    wait_until(created, f"{topic} was created again")


@dataclass(frozen=True)
class Found:
    """A sweep, and all incidents after it, by topic."""

    scan: Scan
    incidents: Mapping[str, list[Row]]

    def hanging(self, topic: str) -> list[tuple[int, bool]]:
        """The partitions with a hanging transaction, and whether their topic has an id."""
        ours = [one for one in self.scan.transactions if one.observation.topic == topic]
        assert {one.judgement.verdict.value for one in ours} <= {"hanging"}
        return [(one.observation.partition, bool(one.observation.topic_id)) for one in ours]

    def of(self, topic: str, *columns: str) -> list[tuple[object, ...]]:
        """These columns of the topic's incidents, by partition, the open ones last."""
        rows = sorted(self.incidents[topic], key=lambda row: (row["partition"], row["is_open"]))
        return [tuple(row[column] for column in columns) for row in rows]


@dataclass(frozen=True)
class History:
    """The sweep before the topics had ids; one while the broker starts; one after topics were made anew; the results of
    an apply of the plan from before, and of a new plan; the sweep after that. planned: the topics in both plans.
    """

    before: Found
    starting: Found
    after: Found
    of_old_plan: Sequence[Result]
    markers_of_old_plan: Mapping[str, list[str]]
    of_new_plan: Sequence[Result]
    last: Found


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    directory: Path = tmp_path_factory.mktemp("zookeeper")
    with ZooKeeperCluster(directory / "kafka", brokers=1, protocol=WITHOUT_IDS, properties=SETTINGS) as cluster:
        config = ScanConfig(cluster.bootstrap_servers, tables=str(directory / "tables"), engine="threads")

        def found() -> Found:
            scan = sweep(None, config).scan
            return Found(scan, {topic: incidents_of(config, topic) for topic in PARTITIONS})

        with cluster.wire() as wire:
            written = {}
            for topic, count in PARTITIONS.items():
                create_topic(wire, topic, [[1]] * count)
                written[topic] = [hang(wire, topic, partition) for partition in range(count)]
            committed(wire, AGAIN, 7)
            swept(config, 40)
            before = found()
            old_plan = plan_sweep(None, str(config.tables))
            cluster.set_protocol(WITH_IDS)
            cluster.stop()
            cluster.start()
            starting = found()
            for topic in PARTITIONS:
                wire.partition(topic, 0)
            for topic in (EMPTY, LONGER, AGAIN):
                made_anew(wire, topic)
            committed(wire, LONGER, 20)
            hang(wire, AGAIN, 0, written[AGAIN][0])
            after = found()
            options = {"execute": True, "options": (ACCEPT_UNKNOWN,)}
            of_old_plan = apply_to(None, config, old_plan, **options).results  # type: ignore[arg-type]
            markers_then = {topic: markers(wire, topic) for topic in PARTITIONS}
            found()
            new_plan = plan_sweep(None, str(config.tables))
            of_new_plan = apply_to(None, config, new_plan, **options).results  # type: ignore[arg-type]
            return History(before, starting, after, of_old_plan, markers_then, of_new_plan, found())


def test_topics_without_ids_have_incidents(history: History) -> None:
    assert (history.before.scan.complete, history.before.scan.image_offset) == (True, None)
    with Cases() as cases:
        for topic, count in PARTITIONS.items():
            with cases.case(topic):
                assert history.before.hanging(topic) == [(index, False) for index in range(count)]
                assert history.before.of(topic, "topic_id", "is_open", "sweeps") == [("", True, 2)] * count


def test_a_sweep_of_a_broker_that_is_starting_ends_no_incident(history: History) -> None:
    """It may know no topic yet: `KafkaController.onControllerFailover` sends the topics after the brokers."""
    hanging = sum(len(history.starting.hanging(topic)) for topic in PARTITIONS)
    assert hanging == sum(PARTITIONS.values()) or not history.starting.scan.complete
    with Cases() as cases:
        for topic, count in PARTITIONS.items():
            with cases.case(topic):
                assert history.starting.of(topic, "topic_id", "is_open") == [("", True)] * count


def test_incidents_go_on_when_their_topic_gets_its_id(history: History) -> None:
    """`KafkaController.processTopicIds` gives an id to each topic (KIP-516)."""
    assert history.after.scan.complete
    assert history.after.hanging(KEPT) == [(0, True), (1, True)]
    columns = ("incident_id", "partition", "first_seen_at", "is_open", "resolved_how")
    assert history.after.of(KEPT, *columns) == history.before.of(KEPT, *columns)
    # The sweep while the broker started may have seen them as well.
    assert all(sweeps in (3, 4) for (sweeps,) in history.after.of(KEPT, "sweeps"))


def test_the_log_that_got_its_id_is_not_taken_for_another_one(history: History) -> None:
    """A verdict was `indeterminate` for ever: `__transaction_state` was made anew, by an id that it had not had."""
    found = [one for one in history.after.scan.transactions if one.observation.topic == KEPT]
    assert [(one.judgement.reason, one.outcome) for one in found] == [("stale_epoch", "unknown")] * 2


def test_incidents_of_topics_that_were_made_anew_end(history: History) -> None:
    """A position that fell shows another log. A longer log may be the same one: its transaction has ended."""
    table = [
        (EMPTY, [("topic_recreated", "")]),
        (LONGER, [("ended", "")]),
        (AGAIN, [("topic_recreated", ""), (None, history.after.scan.proven[AGAIN, 0])]),
    ]
    with Cases() as cases:
        for topic, expected in table:
            with cases.case(topic):
                assert history.after.of(topic, "resolved_how", "topic_id") == expected
    # It is counted anew.
    assert history.after.of(AGAIN, "sweeps")[-1] == (1,)


def test_a_plan_from_before_the_topic_had_its_id_sends_no_marker(history: History) -> None:
    expected = {KEPT: Status.REFUSED, EMPTY: Status.GONE, LONGER: Status.GONE, AGAIN: Status.REFUSED}
    found = {(one.action.topic, one.action.partition): one for one in history.of_old_plan}
    assert {topic for topic, _ in found} == {*PARTITIONS}
    with Cases() as cases:
        for (topic, partition), one in found.items():
            with cases.case(f"{topic}-{partition}"):
                assert one.status == expected[topic], one.detail
                assert ("had no id" in one.detail) is (one.status is Status.REFUSED)
    assert history.markers_of_old_plan == {KEPT: [], EMPTY: [], LONGER: ["COMMIT"], AGAIN: []}


def test_a_new_plan_ends_the_same_incidents(history: History) -> None:
    found = {(one.action.topic, one.action.partition): one.status for one in history.of_new_plan}
    assert found == {(KEPT, 0): Status.RESOLVED, (KEPT, 1): Status.RESOLVED}
    ended = [(which, "abort_marker") for (which,) in history.before.of(KEPT, "incident_id")]
    assert history.last.of(KEPT, "incident_id", "resolved_how") == ended


def test_incidents_go_on_while_topic_ids_come_and_go(tmp_path: Path) -> None:
    """In a rolling upgrade a controller with 2.7 does not send the ids that a controller with 3.5 has given. One
    incident begins without an id, and one with it.
    """
    with (
        ZooKeeperCluster(tmp_path / "kafka", brokers=2, protocol=WITHOUT_IDS, properties=SETTINGS) as cluster,
        cluster.wire() as wire,
    ):
        config = ScanConfig(cluster.bootstrap_servers, tables=str(tmp_path / "tables"), engine="threads")

        def complete() -> dict[str, bool] | None:
            """The topics with a hanging transaction in a complete sweep, and whether they have an id."""
            scan = sweep(None, config).scan
            assert {one.judgement.verdict.value for one in scan.transactions} <= {"hanging", "indeterminate"}
            shown = (one.observation for one in scan.transactions)
            return {o.topic: bool(o.topic_id) for o in shown} if scan.complete else None

        def shown(controller: int) -> dict[str, bool]:
            wait_until(lambda: wire.any_broker() == controller, f"broker {controller} was the controller")
            return wait_until(complete, "a sweep was complete")

        def restart(broker_id: int, protocol: str) -> None:
            cluster.set_protocol(protocol)
            cluster.stop_broker(broker_id)
            cluster.start_broker(broker_id)

        for topic in ("early", "late"):
            create_topic(wire, topic, [[1, 2]])
        hang(wire, "early", 0)
        old = wire.any_broker()
        new = sum(cluster.broker_ids) - old
        assert shown(old) == {"early": False}
        restart(new, WITH_IDS)
        restart(old, WITHOUT_IDS)
        hang(wire, "late", 0)
        assert shown(new) == {"early": True, "late": True}
        restart(new, WITH_IDS)
        assert shown(old) == {"early": False, "late": False}
        restart(old, WITH_IDS)
        assert shown(new) == {"early": True, "late": True}
        for topic, has_id in (("early", False), ("late", True)):
            (row,) = incidents_of(config, topic)
            assert (row["is_open"], bool(row["topic_id"])) == (True, has_id)


def leader_epochs(wire: Wire, topics: Sequence[str]) -> list[tuple[int, int]]:
    """The leader and leader epoch of partition 0 of each topic, by the product's Metadata."""
    return [(one.leader, one.leader_epoch) for one in (wire.partition(topic, 0) for topic in topics)]


def test_a_single_broker_keeps_its_leader_epochs_at_each_restart(tmp_path: Path) -> None:
    """It is the next controller, and a controller elects no other leader than one that is alive
    (`PartitionStateMachine.initializePartitionState`). It moves no leader of a single replica in a controlled shutdown
    (`KafkaController.doControlledShutdown`). So an absent commit is not proven (`txnlog/elections.py`).
    """
    with (
        ZooKeeperCluster(tmp_path, brokers=1, protocol=WITH_IDS, properties=SETTINGS) as cluster,
        cluster.wire() as wire,
    ):
        create_topic(wire, "t", [[1]])
        Producer(wire, "any-service").init_producer_id()
        topics = ("t", TRANSACTION_STATE_TOPIC)
        assert (image_offset(wire.send, 1), leader_epochs_rise(wire.send, 1)) == (None, False)
        with Cases() as cases:
            for why, ends in (("a clean restart", cluster.stop_broker), ("kill -9", cluster.kill_broker)):
                with cases.case(why):
                    ends(1)
                    cluster.start_broker(1)
                    assert leader_epochs(wire, topics) == [(1, 0), (1, 0)]


def test_the_last_in_sync_replica_keeps_its_leader_epoch_if_its_broker_is_the_next_controller(tmp_path: Path) -> None:
    """The restart that may lose the end of a log. A controller that goes on sees the restart of another broker
    (KIP-380).
    """
    with (
        ZooKeeperCluster(tmp_path, brokers=2, protocol=WITH_IDS, properties=SETTINGS) as cluster,
        cluster.wire() as wire,
    ):
        create_topic(wire, "t", [[1, 2]])

        def is_last() -> bool:
            return list(replicas_of(wire, "t")[0].isr_nodes) == [1]

        cluster.kill_broker(2)
        wait_until(is_last, "broker 1 had the last in-sync replica")
        before = leader_epochs(wire, ["t"])
        cluster.kill_broker(1)
        cluster.start_broker(1)
        assert leader_epochs(wire, ["t"]) == before
        cluster.start_broker(2)
        assert wire.any_broker() == 1, "broker 1 is the controller"
        wait_until(lambda: len(replicas_of(wire, "t")[0].isr_nodes) == 2, "both replicas were in sync")
        (kept,) = leader_epochs(wire, ["t"])
        cluster.kill_broker(1)
        cluster.start_broker(1)
        (after,) = leader_epochs(wire, ["t"])
        assert after[1] > kept[1]
