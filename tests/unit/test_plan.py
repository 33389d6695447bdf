"""The plan divides metadata into bounded batches per leader, without losses or duplicates."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.cluster import partition
from txnscan.kafka.failure import FailureCode
from txnscan.kafka.topology import NO_LISTENER_ID, Key, Partition, Topic
from txnscan.reads.planner import plan_logs, plan_proven, plan_wide

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

PARTITIONS = st.lists(
    st.builds(
        Partition,
        topic=st.sampled_from(["a", "b", "c-1"]),
        topic_id=st.just("id"),
        partition=st.integers(0, 30),
        leader=st.integers(-1, 4),
        leader_epoch=st.integers(0, 3),
    ),
    unique_by=lambda p: p.key,
    max_size=60,
)
SIZES = st.integers(1, 12)


def led_by(leader: int, count: int) -> list[Partition]:
    return [partition(f"of-{leader}", index, leader) for index in range(count)]


def topics(partitions: Iterable[Partition]) -> list[Topic]:
    found: dict[str, list[Partition]] = defaultdict(list)
    for one in partitions:
        found[one.topic].append(one)
    return [
        Topic(
            name,
            ones[0].topic_id,
            tuple(p.partition for p in ones),
            tuple(p.leader for p in ones),
            tuple(p.leader_epoch for p in ones),
        )
        for name, ones in found.items()
    ]


@dataclass(frozen=True)
class Batch:
    """A batch of either plan."""

    lane: int
    leader: int
    keys: tuple[Key, ...]


def wide(partitions: Iterable[Partition], **limits: Any) -> list[Batch]:
    batches, _ = plan_wide(topics(partitions), **limits)
    return [
        Batch(b.lane, b.leader, tuple((t, i) for t, indexes in b.indexes.items() for i in indexes)) for b in batches
    ]


def narrow(partitions: Iterable[Partition], **limits: int) -> list[Batch]:
    led = [p for p in partitions if p.leader >= 0]
    return [Batch(b.lane, b.leader, tuple(p.key for p in b.partitions)) for b in plan_proven(led, **limits)]


both = pytest.mark.parametrize("plan", [wide, narrow])
Plan = Callable[..., list[Batch]]


def lanes(batches: list[Batch]) -> dict[int, list[Batch]]:
    found = defaultdict(list)
    for batch in batches:
        found[batch.lane].append(batch)
    return found


@both
@given(partitions=PARTITIONS, batch_size=SIZES, in_flight_max=SIZES)
def test_every_partition_with_a_leader_is_in_exactly_one_batch(
    plan: Plan, partitions: list[Partition], batch_size: int, in_flight_max: int
) -> None:
    batches = plan(partitions, batch_size=batch_size, in_flight_max=in_flight_max)
    planned = [(batch.leader, key) for batch in batches for key in batch.keys]
    assert sorted(planned) == sorted((p.leader, p.key) for p in partitions if p.leader >= 0)


@both
@given(partitions=PARTITIONS, batch_size=SIZES, in_flight_max=SIZES)
def test_a_batch_is_bounded_and_not_empty(
    plan: Plan, partitions: list[Partition], batch_size: int, in_flight_max: int
) -> None:
    batches = plan(partitions, batch_size=batch_size, in_flight_max=in_flight_max)
    assert all(1 <= len(batch.keys) <= batch_size for batch in batches)


@both
@given(partitions=PARTITIONS, batch_size=SIZES, in_flight_max=SIZES)
def test_a_leader_has_a_bounded_number_of_lanes_of_its_own(
    plan: Plan, partitions: list[Partition], batch_size: int, in_flight_max: int
) -> None:
    batches = plan(partitions, batch_size=batch_size, in_flight_max=in_flight_max)
    leaders = {lane: {batch.leader for batch in queue} for lane, queue in lanes(batches).items()}
    assert all(len(who) == 1 for who in leaders.values())
    per_leader = Counter(leader for who in leaders.values() for leader in who)
    assert all(count <= in_flight_max for count in per_leader.values())
    assert sorted(leaders) == list(range(len(leaders))), "lane numbers have no gaps"


@both
@given(partitions=PARTITIONS, batch_size=SIZES, in_flight_max=SIZES)
def test_the_lanes_of_a_leader_differ_by_at_most_one_batch(
    plan: Plan, partitions: list[Partition], batch_size: int, in_flight_max: int
) -> None:
    batches = plan(partitions, batch_size=batch_size, in_flight_max=in_flight_max)
    lengths = defaultdict(list)
    for queue in lanes(batches).values():
        lengths[queue[0].leader].append(len(queue))
    assert all(max(found) - min(found) <= 1 for found in lengths.values())


@both
@given(partitions=PARTITIONS, batch_size=SIZES, in_flight_max=SIZES, random=st.randoms(use_true_random=False))
def test_the_plan_does_not_depend_on_the_order_of_the_metadata(
    plan: Plan, partitions: list[Partition], batch_size: int, in_flight_max: int, random: Random
) -> None:
    shuffled = list(partitions)
    random.shuffle(shuffled)
    limits = {"batch_size": batch_size, "in_flight_max": in_flight_max}
    assert plan(partitions, **limits) == plan(shuffled, **limits)


@both
@pytest.mark.parametrize(
    ("count", "batch_size", "sizes", "why"),
    [
        (0, 3, [], "nothing to read is no batch"),
        (1, 3, [1], "one partition is a batch of its own"),
        (3, 3, [3], "exactly full"),
        (4, 3, [3, 1], "one too many opens the next"),
        (7, 1, [1] * 7, "the smallest batch"),
    ],
)
def test_batches_are_filled_up_to_the_configured_size(
    plan: Plan, count: int, batch_size: int, sizes: list[int], why: str
) -> None:
    batches = plan(led_by(1, count), batch_size=batch_size, in_flight_max=1)
    assert [len(batch.keys) for batch in batches] == sizes, why


def test_a_wide_batch_has_several_topics_and_splits_the_last_one() -> None:
    partitions = [partition(topic, index) for topic in ("a", "b") for index in range(3)]
    batches, _ = plan_wide(topics(partitions), batch_size=4, in_flight_max=1)
    assert [batch.indexes for batch in batches] == [{"a": (0, 1, 2), "b": (0,)}, {"b": (1, 2)}]
    assert [batch.size for batch in batches] == [4, 2]


@both
def test_the_first_lanes_belong_to_different_leaders(plan: Plan) -> None:
    batches = plan(led_by(1, 4) + led_by(2, 4) + led_by(3, 1), batch_size=1, in_flight_max=2)
    leader_of = {lane: queue[0].leader for lane, queue in lanes(batches).items()}
    assert [leader_of[lane] for lane in sorted(leader_of)] == [1, 2, 3, 1, 2]


def test_a_partition_without_a_leader_is_a_named_error() -> None:
    partitions = [partition("solo", 0, leader=-1), partition("solo", 1, leader=3)]
    batches, errors = plan_wide(topics(partitions), batch_size=10, in_flight_max=2)
    assert [(e.stage, e.topic, e.partition, e.broker) for e in errors] == [("plan", "solo", 0, None)]
    assert errors[0].failure.error == "the partition has no leader"
    assert [batch.indexes for batch in batches] == [{"solo": (1,)}]


def test_a_leader_without_the_listener_of_the_client_is_told_apart(wording: SnapshotAssertion) -> None:
    _, errors = plan_wide(topics([partition("solo", 0, leader=NO_LISTENER_ID)]), batch_size=10, in_flight_max=2)
    assert [(e.topic, e.partition, e.failure.code) for e in errors] == [("solo", 0, FailureCode.NO_LISTENER)]
    assert errors[0].failure.error == wording


def test_a_partition_named_twice_is_read_once() -> None:
    twice = topics([partition("a", 0), partition("a", 1)]) + topics([partition("a", 1)])
    batches, _ = plan_wide(twice, batch_size=10, in_flight_max=2)
    assert [batch.indexes for batch in batches] == [{"a": (0, 1)}]


@given(PARTITIONS, SIZES)
def test_each_log_partition_is_a_batch_with_its_producer_ids(partitions: list[Partition], in_flight_max: int) -> None:
    wanted = {one: {one.partition + 5, one.partition} for one in partitions}
    batches = plan_logs(wanted, in_flight_max=in_flight_max)
    assert {(one, batch.producer_ids) for batch in batches for one in batch.partitions} == {
        (one, (one.partition, one.partition + 5)) for one in partitions
    }
    assert all(batch.leader == one.leader for batch in batches for one in batch.partitions)
    assert len(batches) == len(partitions)
    lanes: dict[int, set[int]] = defaultdict(set)
    for batch in batches:
        lanes[batch.leader].add(batch.lane)
    assert all(len(of_leader) <= in_flight_max for of_leader in lanes.values())
    assert sum(map(len, lanes.values())) == len(set().union(*lanes.values())), "no lane goes to two leaders"
