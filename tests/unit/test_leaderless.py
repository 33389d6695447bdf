"""What `check` says about partitions without a leader that can be asked."""

from __future__ import annotations

from txnscan.kafka.topology import NO_LEADER_ID, NO_LISTENER_ID, ClusterView, Topic
from txnscan.sweeps.preflight import Level, _partitions


def found(*leaders: int) -> list[tuple[Level, str]]:
    topic = Topic("t", "", tuple(range(len(leaders))), leaders, (5,) * len(leaders))
    return [(one.level, one.said) for one in _partitions(ClusterView(1, "c", (), (topic,)))]


def test_a_partition_without_a_leader_and_one_without_the_listener_have_their_own_remedy() -> None:
    ((level, said),) = found(1, 2)
    assert level is Level.OK
    ((level, said),) = found(1, NO_LEADER_ID, 2)
    assert (level, "1 of 3 have no leader (t-1)" in said) == (Level.INCOMPLETE, True)
    ((level, said),) = found(NO_LISTENER_ID, NO_LISTENER_ID)
    assert (level, "2 of 2 have a leader without the listener" in said) == (Level.INCOMPLETE, True)
    assert [level for level, _ in found(NO_LEADER_ID, NO_LISTENER_ID)] == [Level.INCOMPLETE] * 2
    assert [level for level, _ in found(-7)] == [Level.INCOMPLETE], "a number that Kafka never gives is no leader"
