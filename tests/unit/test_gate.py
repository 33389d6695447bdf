"""Reads of topics for the time up to which they are complete, and the wait at the gate."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from tests.builders import NOW_MS
from tests.cases import Cases
from tests.fakes.cluster import IMAGE_OFFSET, FakeCluster, FakeFactory, no_progress
from txnscan import ScanConfig
from txnscan.coordinators.cluster import Cluster
from txnscan.engine.threads import ThreadsEngine
from txnscan.kafka.client.deadline import Deadline
from txnscan.kafka.client.factory import ClientFactory
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.failure import Unobserved
from txnscan.kafka.topology import Broker
from txnscan.report.gate import gate_object
from txnscan.sweeps.complete_up_to import read_topics
from txnscan.sweeps.gate import Gate, stored_gate, wait_at_gate
from txnscan.sweeps.reader import SweepReader
from txnscan.sweeps.restored import Fall, Sign
from txnscan.waiting.complete_up_to import GateState, PartitionRead, TopicRead

AT_MS = 1_700_000_000_000


class Fake(FakeCluster):
    """Brokers, of which -1 is the bootstrap server, with a topic of three partitions."""

    deadline = Deadline()

    def __init__(self) -> None:
        super().__init__()
        self.lead("t", (1, 2, 3))
        self.identify(1)

    def identify(self, number: int) -> None:
        """The topic has this id."""
        for held in self.partitions.values():
            held.topic_id = uuid.UUID(int=number)

    def send(self, broker_id: int, request: Any) -> Any:
        return super().send(abs(broker_id), request)

    def learn(self, brokers: Iterable[Broker]) -> None:
        """Ignores addresses."""


def read(change: Callable[[Fake], None] = lambda fake: None, *topics: str) -> tuple[TopicRead, tuple[Unobserved, ...]]:
    """The read of the topic, after this change of the brokers."""
    fake = Fake()
    with Cluster(cast(ClientFactory, FakeFactory(fake)), threads=0, sleep=lambda seconds: None) as cluster:
        cluster.view([])
        change(fake)
        reader = SweepReader(cluster, ThreadsEngine(1), ScanConfig("fake:9092"))
        (found,), errors = read_topics(cluster, reader, topics or ("t",), AT_MS, no_progress)
        return found, errors


def fails(which: str, code: ErrorCode) -> Callable[[Fake], None]:
    """The leader of t-1 answers with this error."""
    return lambda fake: fake.partitions["t", 1].errors.update({which: code})


def after_each_read(change: Callable[[Fake], None]) -> Callable[[Fake], None]:
    """The brokers change after each answer with last stable offsets."""

    def edit(fake: Fake) -> None:
        def answered(broker_id: int, answer: Any) -> Any:
            if fake.requests[-1].isolation_level == 1:
                change(fake)
            return answer

        fake.edit["ListOffsets"] = answered

    return edit


def moves(fake: Fake) -> None:
    fake.partitions["t", 1].epoch += 1


def recreated(fake: Fake) -> None:
    fake.identify(fake.partitions["t", 0].topic_id.int + 1)  # type: ignore[union-attr]


def not_current(fake: Fake) -> None:
    """Broker 3 was cut off when it led t-1."""
    fake.believes[3] = Fake()
    fake.believes[3].partitions["t", 1].leader = 3
    fake.images[3] = IMAGE_OFFSET - 1


def not_agreed(fake: Fake) -> None:
    """The same outside KRaft mode, where images have no order."""
    not_current(fake)
    fake.images = dict.fromkeys(fake.brokers)
    fake.believes[3].images = dict.fromkeys(fake.brokers)


def without_leader(fake: Fake) -> None:
    fake.partitions["t", 1].leader = -1


def denied(fake: Fake) -> None:
    fake.topic_errors["t"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def deleted(fake: Fake) -> None:
    fake.partitions.clear()


ALL = (0, 1, 2)
# The change, and the code of each partition without a proven read; None stands for the topic.
UNOBSERVED: tuple[tuple[str, Callable[[Fake], None], dict[int | None, str]], ...] = (
    ("a partition without a leader", without_leader, {1: "NO_LEADER"}),
    ("a deposed leader outside KRaft mode", not_agreed, {1: "BROKERS_DISAGREE"}),
    ("no longer leader", fails("high watermark", ErrorCode.NOT_LEADER_OR_FOLLOWER), {1: "NOT_LEADER_OR_FOLLOWER"}),
    ("a new leader that is behind", fails("last stable", ErrorCode.OFFSET_NOT_AVAILABLE), {1: "OFFSET_NOT_AVAILABLE"}),
    ("a leader that moves during each read", after_each_read(moves), {1: "LEADER_MOVED"}),
    ("a topic that is recreated during each read", after_each_read(recreated), dict.fromkeys(ALL, "TOPIC_RECREATED")),
    ("a broker that is down", lambda fake: fake.unreachable.add(2), dict.fromkeys(ALL, "UNUSABLE_ANSWER")),
    ("no permission", denied, {None: "TOPIC_AUTHORIZATION_FAILED"}),
    ("no such topic", deleted, {None: "UNKNOWN_TOPIC_OR_PARTITION"}),
)  # fmt: skip


def test_a_read_that_is_not_proven_is_a_failure_with_a_code() -> None:
    with Cases() as cases:
        for name, change, codes in UNOBSERVED:
            with cases.case(name):
                found, errors = read(change)
                assert found.failures == codes
                assert {(one.topic, one.partition): one.failure.code for one in errors} == {
                    ("t", index): code for index, code in codes.items()
                }
                assert found.state(AT_MS) is GateState.NOT_OBSERVED


def test_a_deposed_leader_contradicts_no_newer_image() -> None:
    found, errors = read(not_current)
    assert (found.failures, errors) == ({}, ())


def test_a_proven_read_has_both_offsets_of_each_partition() -> None:
    def opened(fake: Fake) -> None:
        fake.partitions["t", 2].last_stable = 150

    found, errors = read(opened)
    assert errors == ()
    assert [
        (one.partition, one.leader_epoch, one.high_watermark, one.last_stable_offset) for one in found.partitions
    ] == [
        (0, 5, 200, 200),
        (1, 5, 200, 200),
        (2, 5, 200, 150),
    ]
    assert (found.topic_id, found.read_at_ms) == ("AAAAAAAAAAAAAAAAAAAAAQ", AT_MS)


def test_tries_that_read_different_topics_of_one_name_are_a_failure() -> None:
    """Partition 0 was proven before the topic was recreated, and partition 1 after it."""

    def change(fake: Fake) -> None:
        fake.partitions["t", 1].errors["high watermark"] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        metadata: list[int] = []

        def answered(broker_id: int, answer: Any) -> Any:
            metadata.append(broker_id)
            # The round before the read, and the round after the first try.
            if len(metadata) == 2:
                fake.identify(2)
                fake.partitions["t", 1].errors.clear()
            return answer

        fake.edit["Metadata"] = answered

    found, _ = read(change)
    assert found.failures[None] == "TOPIC_RECREATED"


def test_two_requests_to_each_leader_read_a_topic() -> None:
    asked: list[tuple[int, str]] = []

    def change(fake: Fake) -> None:
        fake.asked = asked

    read(change)
    assert sorted(one for one in asked if one[1] == "ListOffsets") == [(b, "ListOffsets") for b in (1, 1, 2, 2, 3, 3)]
    assert {name for _, name in asked} == {"ApiVersions", "ListOffsets", "Metadata"}


# --- the wait ---------------------------------------------------------------------------------------------------------


class Log:
    """A partition of each topic, of which each read shows the next offsets: (high watermark, last stable offset)."""

    def __init__(self, **offsets: Sequence[tuple[int, int] | str]) -> None:
        self.offsets = {topic: list(those) for topic, those in offsets.items()}
        self.reads: list[tuple[str, ...]] = []
        self.now_ms = AT_MS

    def read(self, topics: Collection[str]) -> tuple[tuple[TopicRead, ...], tuple[Unobserved, ...]]:
        self.reads.append(tuple(topics))
        found = []
        for topic in topics:
            those = self.offsets[topic]
            now = those.pop(0) if len(those) > 1 else those[0]
            one = PartitionRead(0, code=now) if isinstance(now, str) else PartitionRead(0, 1, *now)
            found.append(TopicRead(topic, "t0", self.now_ms, (one,)))
        return tuple(found), ()

    def sleep(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1_000)

    def gate(self, wait_ms: int, earlier: Iterable[TopicRead] = (), until_ms: int = AT_MS) -> Gate:
        return wait_at_gate(
            *(self.read, "c1", (*self.offsets, *self.offsets)),
            until_ms=until_ms,
            wait_ms=wait_ms,
            earlier=earlier,
            now_ms=lambda: self.now_ms,
            sleep=self.sleep,
        )


# The offsets of topic t at each read, the time to wait, the state, and the number of reads.
WAITS: tuple[tuple[str, list[tuple[int, int] | str], int, GateState, int], ...] = (
    ("nothing is open", [(9, 9)], 0, GateState.COMPLETE, 1),
    ("open, without a wait", [(9, 5), (9, 9)], 0, GateState.BLOCKED, 1),
    ("it ends", [(9, 5), (9, 9)], 5_000, GateState.COMPLETE, 2),
    ("always busy", [(9, 5), (14, 8), (19, 12), (24, 18)], 5_000, GateState.COMPLETE, 3),
    ("it stays open", [(9, 5)], 5_000, GateState.BLOCKED, 6),
    ("a failure that passes", ["NO_LEADER", (9, 9)], 5_000, GateState.COMPLETE, 2),
    ("a failure that stays", ["NO_LEADER"], 5_000, GateState.NOT_OBSERVED, 6),
    ("it was complete until its leader failed", [(9, 5), "NO_LEADER"], 5_000, GateState.NOT_OBSERVED, 6),
)


def test_the_gate_opens_if_what_was_open_at_its_first_read_has_ended() -> None:
    with Cases() as cases:
        for name, offsets, wait_ms, state, reads in WAITS:
            with cases.case(name):
                log = Log(t=offsets)
                assert (log.gate(wait_ms).state, len(log.reads)) == (state, reads)


def test_only_topics_that_are_not_complete_are_read_again() -> None:
    log = Log(t=[(9, 9)], u=[(9, 5), (9, 9)])
    found = log.gate(5_000)
    assert (found.state, log.reads) == (GateState.COMPLETE, [("t", "u"), ("u",)])
    assert [one.complete_up_to_ms for one in found.topics] == [AT_MS, AT_MS + 1_000]


def test_a_blocked_topic_outranks_one_that_is_not_observed() -> None:
    assert Log(t=["NO_LEADER"], u=[(9, 5)], v=[(9, 9)]).gate(0).state is GateState.BLOCKED


def test_the_gate_waits_for_a_time_that_is_still_to_come() -> None:
    later_ms = AT_MS + 2_500
    assert Log(t=[(9, 9)]).gate(1_000, until_ms=later_ms).state is GateState.NOT_YET
    assert Log(t=[(9, 9)]).gate(5_000, until_ms=later_ms).state is GateState.COMPLETE


def test_stored_reads_open_the_gate_at_once() -> None:
    (stored,), _ = Log(t=[(5, 5)]).read(["t"])
    assert Log(t=[(9, 5)]).gate(0, [stored]).state is GateState.COMPLETE
    assert Log(t=[(9, 4)]).gate(0, [stored]).state is GateState.BLOCKED
    assert Log(t=[(9, 5)]).gate(0, [replace(stored, topic="u")]).state is GateState.BLOCKED


def test_a_gate_of_tables_alone_uses_the_newest_read() -> None:
    log = Log(t=[(5, 5), (9, 5)])
    (before,), _ = log.read(["t"])
    log.sleep(60)
    (after,), _ = log.read(["t"])
    newest_first = [("c1", after), ("c1", before)]
    for until_ms, state in ((AT_MS, GateState.COMPLETE), (AT_MS + 1, GateState.BLOCKED)):
        assert stored_gate(newest_first, ["t"], until_ms).state is state
    found = stored_gate(newest_first, ["t", "u", "u"], AT_MS)
    assert [(one.topic, one.state(AT_MS)) for one in found.topics] == [
        ("t", GateState.COMPLETE),
        ("u", GateState.NOT_OBSERVED),
    ]


def test_no_stored_read_counts_after_the_history_went_back() -> None:
    """By the mark of the earlier history, the topic would be complete up to its time, though readers are blocked."""
    stored = TopicRead("t", "t0", NOW_MS - 1, (PartitionRead(0, 4, 40, 40),))
    now = TopicRead("t", "t0", NOW_MS, (PartitionRead(0, 5, 60, 45),))
    fell = Fall(Sign.EPOCH_END, 40, 30, "t-0")
    with Cases() as cases:
        for fall, expected in ((None, GateState.COMPLETE), (fell, GateState.BLOCKED)):
            with cases.case(fall):
                found = wait_at_gate(
                    lambda names: ((now,), ()),
                    "c",
                    ["t"],
                    until_ms=NOW_MS - 1,
                    wait_ms=0,
                    earlier=[stored],
                    now_ms=lambda: NOW_MS,
                    sleep=lambda seconds: None,
                    fall_in=lambda reads, fall=fall: fall,  # type: ignore[misc]
                )
                assert (found.state, found.fall) == (expected, fall)
                shown = gate_object(found, "User:x")["gate"]["went_back"]
                assert shown == (None if fall is None else {"code": "epoch_end", "reason": str(fell)})
