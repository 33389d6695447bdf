"""What `check` says about partitions without a leader that can be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txnscan.kafka.topology import NO_LEADER_ID, NO_LISTENER_ID, ClusterView, Topic
from txnscan.sweeps.preflight import Level, _partitions

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion


def found(*leaders: int) -> list[tuple[Level, str]]:
    topic = Topic("t", "", tuple(range(len(leaders))), leaders, (5,) * len(leaders))
    return [(one.level, one.said) for one in _partitions(ClusterView(1, "c", (), (topic,)))]


def test_a_partition_without_a_leader_and_one_without_the_listener_have_their_own_remedy(
    wording: SnapshotAssertion,
) -> None:
    assert [level for level, _ in found(1, 2)] == [Level.OK]
    both = found(1, NO_LEADER_ID, 2, NO_LISTENER_ID, NO_LISTENER_ID)
    assert [level for level, _ in both] == [Level.INCOMPLETE] * 2
    assert [said for _, said in both] == wording
    assert len(found(NO_LEADER_ID, 1)) == len(found(NO_LISTENER_ID, 1)) == 1
    assert [level for level, _ in found(-7)] == [Level.INCOMPLETE], "a number that Kafka never gives is no leader"
