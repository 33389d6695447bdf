"""Whoever asks, from the transaction's side or from the reader's, gets the same answer about who waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.builders import judged
from tests.cases import Cases
from tests.fakes import FakePartition, one_by_one
from tests.sim.encode import batch
from tests.unit.test_delivered import LSO, VALUE, data, ends, partition
from tests.unit.test_impact import FakeGroup, FakeGroups, blockage
from tests.unit.test_readers import query
from txnscan.explain.ahead import ahead
from txnscan.impact.readers import Positions, blocked_readers
from txnscan.kafka.topology import Partition

KEY = ("p", 0)
HANGS = judged()
BEFORE = data(LSO - 4, 2)
# What is at the two offsets before the last stable offset: the log, and at which offsets of a reader there is nothing
# more to deliver.
LOGS: dict[str, tuple[FakePartition, set[int]]] = {
    "data": (partition(BEFORE, data(LSO - 2, 2)), {LSO}),
    "data and its marker": (partition(BEFORE, data(LSO - 2), ends(LSO - 1)), {LSO - 1, LSO}),
    "two markers": (partition(data(LSO - 4, 2), ends(LSO - 2), ends(LSO - 1, 9)), {LSO - 2, LSO - 1, LSO}),
    "aborted data and its marker": (
        partition(BEFORE, data(LSO - 2, 1, 9), ends(LSO - 1, 9, commits=False), aborted=((9, LSO - 2),)),
        {LSO - 2, LSO - 1, LSO},
    ),
    "a marker before data": (partition(BEFORE, ends(LSO - 2), data(LSO - 1)), {LSO}),
    "data without a transaction": (partition(BEFORE, batch(LSO - 2, 2 * [VALUE])), {LSO}),
    "data, and what compaction left of the next": (partition(BEFORE, data(LSO - 2)), {LSO - 1, LSO}),
    "nothing: compacted away": (partition(BEFORE), {LSO - 2, LSO - 1, LSO}),
}


def by_groups(cluster: FakeGroups, offset: int) -> bool:
    cluster.groups = {1: {"billing": FakeGroup({KEY: offset})}}
    return blockage(cluster, HANGS).groups[HANGS.observation.transaction_key].count == 1


def by_queries(cluster: FakeGroups, offset: int) -> bool:
    positions = Positions((query(offset),))
    found = blocked_readers(cluster.send, one_by_one, [HANGS], positions)
    return found[HANGS.observation.transaction_key].count == 1


def by_explain(cluster: FakeGroups, offset: int) -> bool:
    return ahead(cluster.send, Partition("p", "t0", 0, 1, 5), offset, LSO).has_record is False


@pytest.mark.parametrize("asked", [by_groups, by_queries, by_explain])
def test_a_reader_waits_at_the_same_offsets_for_every_question(asked: Callable[[FakeGroups, int], bool]) -> None:
    with Cases() as cases:
        for name, (kept, waits_at) in LOGS.items():
            for offset in (LSO - 2, LSO - 1, LSO):
                with cases.case(f"{name}, at {offset - LSO}"):
                    cluster = FakeGroups({})
                    cluster.partitions[KEY] = kept
                    assert asked(cluster, offset) is (offset in waits_at)
