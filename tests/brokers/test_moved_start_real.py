"""The start offset of a transaction moves without a marker: it hangs on, and nothing tells of its end.

The log start passes the first records of hanging transactions (DeleteRecords). Then a replica rebuilds its producer
state from the remaining records, and shows a later start offset:

- after a move to another disk of its broker, at the same leader and leader epoch; for one topic in the middle of a
  sweep;
- after an election to a new replica; for two topics while `apply` sends its marker to a leader that hangs.

All histories are on one cluster. The first sweep has an earlier clock, as if what hangs had been watched for long.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.losses import RECORDS, by_topic, incidents_of, markers, swept
from tests.cases import Cases
from tests.prove.disks import TWO_DISKS, log_dirs
from tests.prove.moves import delete_records, move_to_other_disk, reassign
from tests.prove.placing import lead, replicas_of
from txnscan import ScanConfig, find_hanging, sweep
from txnscan.demo import plant
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.producer import PRODUCE_V1, Producer, ProducerIdAndEpoch
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.protocol.write_txn_markers import MarkerToWrite
from txnscan.resolve.apply import Result, Status
from txnscan.resolve.guard import ACCEPT_UNKNOWN
from txnscan.resolve.plan import Action, Plan
from txnscan.resolve.run import apply_to, plan_sweep
from txnscan.sweeps import identity
from txnscan.tables.delta import Row
from txnscan.watch.incident_tracker import IncidentTracker, TrackedHistory, remember

# The broker with two disks, the broker of new replicas, and the leader that hangs.
DISKS, NEW, HANGS = TWO_DISKS, 2, 3
SAME, UNKNOWN, ANOTHER = "same", "unknown", "another"


@dataclass(frozen=True)
class Topic:
    """A history of partition 0. expected: what the second sweep knows about both start offsets. seen: whether the first
    sweep also sees the later records of the transaction. ends: whether a marker stands between them. epoch: of the
    later records. other_bytes: of other records between them. cut: whether these are deleted too. elected: an election
    shows the later start offset, otherwise a move to another disk.
    """

    expected: str
    seen: bool = True
    ends: bool = False
    epoch: int = 0
    other_bytes: int = 0
    cut: bool = False
    elected: bool = False


HISTORIES: Mapping[str, Topic] = {
    "disk": Topic(SAME),
    "disk-unseen": Topic(SAME, seen=False),
    "disk-two-epochs": Topic(SAME, seen=False, epoch=1),
    "disk-cut": Topic(UNKNOWN, seen=False, other_bytes=1, cut=True),
    "disk-cut-two-epochs": Topic(UNKNOWN, seen=False, epoch=1, other_bytes=1, cut=True),
    "disk-far": Topic(UNKNOWN, seen=False, other_bytes=identity.BYTES_MAX),
    "disk-ended": Topic(ANOTHER, seen=False, ends=True),
    "elected": Topic(SAME, elected=True),
    "elected-two-epochs": Topic(SAME, seen=False, epoch=1, elected=True),
    "elected-cut": Topic(UNKNOWN, seen=False, other_bytes=1, cut=True, elected=True),
    "elected-ended": Topic(ANOTHER, seen=False, ends=True, elected=True),
}
# While a sweep reads; while apply waits for its answer; the same, with all records of the transaction deleted; and
# after the apply, with all records deleted.
SWEEPING, APPLYING, EMPTY, FLIPS = "while-sweeping", "while-applying", "while-applying-empty", "flips"
OTHERS = (SWEEPING, APPLYING, EMPTY, FLIPS)
TOPICS = {**HISTORIES, **dict.fromkeys(OTHERS, Topic(SAME))}
_BATCH_BYTES = 900_000


@dataclass(frozen=True)
class Found:
    """The rows of a sweep by topic, the partitions with errors of a sweep, and all incidents by topic."""

    rows: Mapping[str, Any]
    unsure: frozenset[str | None]
    incidents: Mapping[str, list[Row]]

    def incident(self, topic: str) -> dict[str, Any]:
        """The only incident of a topic."""
        (row,) = self.incidents[topic]
        return {name: row[name] for name in ("start_offset", "is_open", "resolved_how", "sweeps")}


@dataclass
class World:
    """The cluster, and the later start offset of each transaction."""

    cluster: KafkaCluster
    wire: Wire
    config: ScanConfig
    producers: dict[str, Producer] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)

    def begin(self, name: str, topic: Topic) -> None:
        """The first records of a transaction that no coordinator knows."""
        create_topic(self.wire, name, [[HANGS if name in (APPLYING, EMPTY) else DISKS]])
        producer = self.producers[name] = Producer(self.wire, v2=False)
        producer.init_producer_id()
        assert producer.produce(name, 0, RECORDS, version=PRODUCE_V1) == 0
        if topic.seen:
            self.go_on(name, topic)

    def go_on(self, name: str, topic: Topic) -> None:
        """The later records."""
        producer = self.producers[name]
        if topic.ends:
            self.end(name)
        if topic.other_bytes:
            other = Producer(self.wire, v2=False)
            other.init_producer_id()
            for _ in range(-(-topic.other_bytes // _BATCH_BYTES)):
                other.produce(name, 0, [bytes(min(topic.other_bytes, _BATCH_BYTES))], version=PRODUCE_V1)
            self._mark(name, other.known)
        if topic.epoch:
            # Sequence numbers begin again at another epoch.
            identity_before, producer = producer.known, Producer(self.wire, v2=False)
            producer.identity = ProducerIdAndEpoch(identity_before.producer_id, topic.epoch)
            self.producers[name] = producer
        self.starts[name] = producer.produce(name, 0, RECORDS, version=PRODUCE_V1)

    def end(self, name: str) -> None:
        """An ABORT marker for the transaction, as of another tool."""
        self._mark(name, self.producers[name].known)

    def _mark(self, name: str, who: ProducerIdAndEpoch) -> None:
        marker = MarkerToWrite(name, 0, who.producer_id, who.producer_epoch, -1, commit=False)
        assert marker.answered(self.wire.send(self.wire.partition(name, 0).leader, marker.request())) == 0

    def shown(self, name: str) -> int | None:
        """The start offset that the leader shows."""
        found = plant.open_transaction(self.wire, name, 0, self.producers[name].known.producer_id)
        return None if found is None else found.start_offset

    def rebuild(self, names: Collection[str]) -> None:
        """The log starts of these topics pass the first records, and other replicas with a state of the remaining
        records lead.
        """
        for name in names:
            topic = TOPICS[name]
            delete_records(self.wire, name, self.starts[name] if topic.cut else len(RECORDS))
        reassign(self.wire, {(name, 0): (NEW,) for name in names if TOPICS[name].elected})
        move_to_other_disk(self.wire, DISKS, [(name, 0) for name in names if not TOPICS[name].elected])
        for name in names:
            wait_until(lambda one=name: self.shown(one) == self.starts[one], f"{name} began later")  # type: ignore[misc]

    def with_new_replica(self, name: str, leader: int, deleted: int) -> None:
        """The log start passes these records. Then a new replica joins; the leader keeps its state."""
        delete_records(self.wire, name, deleted)
        reassign(self.wire, {(name, 0): (leader, NEW)})
        self.in_sync(name, leader)
        assert (self.shown(name), self.wire.partition(name, 0).leader) == (0, leader)

    def in_sync(self, name: str, leader: int) -> None:
        """Waits until both replicas are in sync."""
        wait_until(lambda: {*replicas_of(self.wire, name)[0].isr_nodes} == {leader, NEW}, f"{name} was in sync")

    def swept(self, **changes: Any) -> Found:
        """A sweep, with the incidents after it."""
        found = sweep(None, self.config, **changes)
        assert found.scan.fall is None
        unsure = frozenset(error.topic for error in found.scan.errors)
        return Found(by_topic(found), unsure, {name: incidents_of(self.config, name) for name in TOPICS})

    def applied(self, plan: Plan, name: str) -> tuple[Result, Result]:
        """The result of an apply whose leader hangs when the marker is sent, and of another apply of the plan."""
        fast = self.cluster.directory / "fast.properties"
        # Longer than the brokers' session timeout: when no answer came, the new replica leads.
        fast.write_text("request.timeout.ms=6000\n")
        config = replace(self.config, command_config=str(fast))

        def hang(step: str, action: Action) -> None:
            if step == "send":
                self.cluster.pause_broker(HANGS)

        arguments: Any = {"execute": True, "options": (ACCEPT_UNKNOWN,), "only": [f"{name}-0"]}
        (result,) = apply_to(None, config, plan, on_step=hang, **arguments).results
        self.cluster.resume_broker(HANGS)
        self.in_sync(name, HANGS)
        (again,) = apply_to(None, self.config, plan, **arguments).results
        return result, again


@dataclass(frozen=True)
class Seen:
    """The sweep after the start offsets moved; the partitions with errors, and the open incidents, of a watch; the
    results of each apply; the sweeps while the replica without records leads, and while the other one leads again; and
    the sweep after all transactions ended. markers: on the topics of the applies.
    """

    starts: Mapping[str, int]
    second: Found
    watch_unsure: frozenset[str | None]
    watched: frozenset[tuple[str, int]]
    applied: Mapping[str, tuple[Result, Result]]
    markers: Mapping[str, list[str]]
    after_apply: Found
    led_again: Found
    ended: Found


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    directory: Path = tmp_path_factory.mktemp("moved-start")
    properties = {"transaction.partition.verification.enable": "false", "auto.leader.rebalance.enable": "false"}
    disks = {DISKS: {"log.dirs": log_dirs(directory / "kafka")}}
    with (
        KafkaCluster(directory / "kafka", properties=properties, broker_properties=disks) as cluster,
        cluster.wire() as wire,
    ):
        config = ScanConfig(cluster.bootstrap_servers, tables=str(directory / "tables"), engine="threads")
        world = World(cluster, wire, config)
        # Creates `__transaction_state`.
        Producer(wire, "any-service").init_producer_id()
        for name, topic in TOPICS.items():
            world.begin(name, topic)
        swept(config, 40)
        tracker = remember(IncidentTracker(), "cluster", find_hanging(config)).memory
        for name, topic in TOPICS.items():
            if not topic.seen:
                world.go_on(name, topic)
        world.rebuild(HISTORIES)

        def between_the_reads(stage: str, done: int, total: int) -> None:
            if stage == "ask coordinators" and world.shown(SWEEPING) == 0:
                world.rebuild([SWEEPING])

        second = world.swept(progress=between_the_reads)
        watched = find_hanging(config, history=TrackedHistory(tracker))
        tracker = remember(tracker, "cluster", watched).memory

        plan, applied = plan_sweep(None, str(config.tables)), {}
        for name, deleted in ((APPLYING, len(RECORDS)), (EMPTY, 2 * len(RECORDS))):
            world.with_new_replica(name, HANGS, deleted)
            applied[name] = world.applied(plan, name)
        world.with_new_replica(FLIPS, DISKS, 2 * len(RECORDS))
        lead(cluster, wire, (FLIPS, 0), (NEW, DISKS))
        after_apply = world.swept()
        lead(cluster, wire, (FLIPS, 0), (DISKS, NEW))
        led_again = world.swept()
        without = {name: markers(wire, name) for name in applied}
        for name in TOPICS:
            world.end(name)
        return Seen(
            world.starts,
            second,
            frozenset(error.topic for error in watched.errors),
            frozenset((which.topic, which.start_offset) for which in tracker.incidents),
            applied,
            without,
            after_apply,
            led_again,
            world.swept(),
        )


def test_a_later_start_offset_ends_an_incident_only_with_a_marker(seen: Seen) -> None:
    with Cases() as cases:
        for name, topic in HISTORIES.items():
            with cases.case(name):
                row, start = seen.second.rows[name], seen.starts[name]
                assert (row["verdict"], row["reason"], row["start_offset"]) == ("hanging", "orphan", start)
                incidents = {
                    one["start_offset"]: (one["is_open"], one["resolved_how"], one["sweeps"])
                    for one in seen.second.incidents[name]
                }
                expected = {
                    SAME: {0: (True, None, 2)},
                    UNKNOWN: {0: (True, None, 1), start: (True, None, 1)},
                    ANOTHER: {0: (False, "ended", 1), start: (True, None, 1)},
                }
                assert incidents == expected[topic.expected]
                assert (name in seen.second.unsure) == (topic.expected == UNKNOWN)


def test_a_start_offset_that_moves_during_a_sweep_is_not_judged(seen: Seen) -> None:
    row = seen.second.rows[SWEEPING]
    assert (row["verdict"], row["reason"], row["start_offset"]) == ("indeterminate", "partition", 0)
    assert seen.second.incident(SWEEPING) == {"start_offset": 0, "is_open": True, "resolved_how": None, "sweeps": 1}
    assert seen.after_apply.rows[SWEEPING]["verdict"] == "hanging"
    assert seen.after_apply.incident(SWEEPING) == {
        "start_offset": 0,
        "is_open": True,
        "resolved_how": None,
        "sweeps": 2,
    }


def test_watch_keeps_the_same_incidents(seen: Seen) -> None:
    later = {(name, seen.starts[name]) for name, topic in HISTORIES.items() if topic.expected != SAME}
    ended = {name for name, topic in HISTORIES.items() if topic.expected == ANOTHER}
    assert seen.watched == later | {(name, 0) for name in TOPICS.keys() - ended}
    assert seen.watch_unsure == {name for name, topic in HISTORIES.items() if topic.expected == UNKNOWN}


def test_an_apply_without_an_answer_reports_no_marker_that_the_log_lacks(seen: Seen) -> None:
    """The next leader shows a later start offset, or nothing, because it rebuilt its state."""
    assert seen.markers == {APPLYING: [], EMPTY: []}
    statuses = {name: tuple(one.status for one in results) for name, results in seen.applied.items()}
    assert statuses == {APPLYING: (Status.UNKNOWN, Status.REFUSED), EMPTY: (Status.GONE, Status.GONE)}
    assert seen.after_apply.incident(APPLYING)["is_open"]
    assert seen.after_apply.incident(EMPTY)["resolved_how"] == "ended"


def test_an_incident_opens_again_if_a_replica_leads_that_has_its_state(seen: Seen) -> None:
    """All records of the transaction are deleted. A replica that rebuilt its state without them holds no reader back.
    The other replica does.
    """
    assert FLIPS not in seen.after_apply.rows
    assert seen.after_apply.incident(FLIPS)["resolved_how"] == "ended"
    assert seen.led_again.rows[FLIPS]["verdict"] == "hanging"
    assert seen.led_again.incident(FLIPS) == {"start_offset": 0, "is_open": True, "resolved_how": None, "sweeps": 3}


def test_markers_end_all_of_them(seen: Seen) -> None:
    assert (seen.ended.rows, seen.ended.unsure) == ({}, frozenset())
    found = {row["resolved_how"] for rows in seen.ended.incidents.values() for row in rows}
    assert found == {"ended"}
