"""The plan: metadata to bounded batches per leader, nothing lost and nothing twice."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import partition
from txnscan.model import Partition, ReadBatch
from txnscan.plan import plan_reads

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


def lanes(batches: tuple[ReadBatch, ...]) -> dict[int, list[ReadBatch]]:
    found = defaultdict(list)
    for batch in batches:
        found[batch.lane].append(batch)
    return found


@given(PARTITIONS, SIZES, SIZES)
def test_every_partition_is_in_exactly_one_batch_or_is_an_error(
    partitions: list[Partition], batch_size: int, lanes_per_leader: int
) -> None:
    batches, errors = plan_reads(partitions, batch_size=batch_size, lanes_per_leader=lanes_per_leader)
    planned = [p for batch in batches for p in batch.partitions]
    keys = [p.key for p in planned] + [(e.topic, e.partition) for e in errors]
    assert sorted(keys) == sorted(p.key for p in partitions)
    assert set(planned) <= set(partitions)


@given(PARTITIONS, SIZES, SIZES)
def test_a_batch_is_bounded_never_empty_and_asks_one_leader_for_what_it_leads(
    partitions: list[Partition], batch_size: int, lanes_per_leader: int
) -> None:
    batches, _ = plan_reads(partitions, batch_size=batch_size, lanes_per_leader=lanes_per_leader)
    for batch in batches:
        assert 1 <= len(batch.partitions) <= batch_size
        assert {p.leader for p in batch.partitions} == {batch.leader}


@given(PARTITIONS, SIZES, SIZES)
def test_a_leader_never_has_more_lanes_than_allowed_and_no_lane_is_shared(
    partitions: list[Partition], batch_size: int, lanes_per_leader: int
) -> None:
    batches, _ = plan_reads(partitions, batch_size=batch_size, lanes_per_leader=lanes_per_leader)
    leaders = {lane: {batch.leader for batch in queue} for lane, queue in lanes(batches).items()}
    assert all(len(who) == 1 for who in leaders.values())
    per_leader = Counter(leader for who in leaders.values() for leader in who)
    assert all(count <= lanes_per_leader for count in per_leader.values())
    assert sorted(leaders) == list(range(len(leaders))), "lane numbers have no gaps"


@given(PARTITIONS, SIZES, SIZES)
def test_the_lanes_of_a_leader_differ_by_one_batch_at_most(
    partitions: list[Partition], batch_size: int, lanes_per_leader: int
) -> None:
    batches, _ = plan_reads(partitions, batch_size=batch_size, lanes_per_leader=lanes_per_leader)
    lengths = defaultdict(list)
    for queue in lanes(batches).values():
        lengths[queue[0].leader].append(len(queue))
    assert all(max(found) - min(found) <= 1 for found in lengths.values())


@given(PARTITIONS, SIZES, SIZES, st.randoms(use_true_random=False))
def test_the_order_of_the_metadata_does_not_change_the_plan(
    partitions: list[Partition], batch_size: int, lanes_per_leader: int, random: object
) -> None:
    shuffled = list(partitions)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    options = {"batch_size": batch_size, "lanes_per_leader": lanes_per_leader}
    assert plan_reads(partitions, **options) == plan_reads(shuffled, **options)


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
def test_batches_are_filled_up_to_the_size_that_was_set(
    count: int, batch_size: int, sizes: list[int], why: str
) -> None:
    batches, _ = plan_reads(led_by(1, count), batch_size=batch_size, lanes_per_leader=1)
    assert [len(batch.partitions) for batch in batches] == sizes, why


def test_the_first_lanes_belong_to_different_leaders() -> None:
    batches, _ = plan_reads(led_by(1, 4) + led_by(2, 4) + led_by(3, 1), batch_size=1, lanes_per_leader=2)
    leader_of = {lane: queue[0].leader for lane, queue in lanes(batches).items()}
    assert [leader_of[lane] for lane in sorted(leader_of)] == [1, 2, 3, 1, 2]


def test_a_partition_without_a_leader_is_an_error_that_names_it_and_hides_no_other() -> None:
    batches, errors = plan_reads(
        [partition("solo", 0, leader=-1), partition("solo", 1, leader=3)], batch_size=10, lanes_per_leader=2
    )
    assert [(e.stage, e.topic, e.partition, e.broker) for e in errors] == [("plan", "solo", 0, None)]
    assert errors[0].error == "the partition has no leader"
    assert [p.key for batch in batches for p in batch.partitions] == [("solo", 1)]
