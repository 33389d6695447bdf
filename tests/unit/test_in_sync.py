"""The reads that decide whether a log takes writes: which broker is asked for which setting, and what is left out."""

from __future__ import annotations

from collections import Counter

from tests.fakes.replicas import LEVEL_4_2, LEVEL_4_3, NEW, OLD, FakeBrokers
from txnscan.kafka.failure import Failure, FailureCode, Permission
from txnscan.kafka.topology import NO_LEADER_ID, TRANSACTION_STATE_TOPIC, Broker, ClusterView
from txnscan.waiting.in_sync import read_behind_last, read_no_log, read_stopped, read_write_states
from txnscan.waiting.known_causes import drops_markers
from txnscan.waiting.writability import NoLog

LOG = TRANSACTION_STATE_TOPIC


WHOLE = {(LOG, 0): (1, (1, 2, 3)), (LOG, 1): (2, (2, 3, 1)), ("p", 0): (3, (3, 1, 2)), ("p", 1): (3, (3,))}
DEFAULT = {LOG: "2", "p": "2"}


def test_with_all_replicas_in_sync_one_broker_is_asked_two_questions_and_the_others_whether_they_answer() -> None:
    fake = FakeBrokers(WHOLE, DEFAULT)
    found = read_write_states(fake.cluster, 2, [("p", 0)])
    assert fake.asked == [("Metadata", 2), ("DescribeConfigs", 2), *(("ApiVersions", one) for one in (1, 2, 3))]
    assert {key: one.takes_writes for key, one in found.partitions.items()} == {
        (LOG, 0): True,
        (LOG, 1): True,
        ("p", 0): True,
    }
    assert (found.log_partitions, found.stopped, found.dropping, found.failure) == (2, (), frozenset(), None)


def test_the_default_of_the_leader_counts() -> None:
    """Broker 3 needs one replica, and the others two."""
    fake = FakeBrokers({**WHOLE, (LOG, 0): (3, (3,))}, {**DEFAULT, (3, LOG): "1", (3, "p"): "3"})
    found = read_write_states(fake.cluster, 2, [("p", 1)])
    asked = Counter(fake.asked)
    assert (asked["DescribeConfigs", 2], asked["DescribeConfigs", 3]) == (1, 1)
    assert {key: (one.min_in_sync, one.takes_writes) for key, one in found.partitions.items()} == {
        (LOG, 0): (1, True),
        (LOG, 1): (2, True),
        ("p", 1): (3, False),
    }


def test_the_release_of_the_leader_counts_if_the_setting_exceeds_the_replicas() -> None:
    for produce, expected in ((OLD, False), (NEW, True)):
        fake = FakeBrokers(WHOLE, {LOG: "4", "p": "2"}, produce=produce)
        found = read_write_states(fake.cluster, 1, [("p", 0)])
        assert {one.takes_writes for key, one in found.partitions.items() if key[0] == LOG} == {expected}
    fake = FakeBrokers(WHOLE, {LOG: "4"}, silent=("ApiVersions",))
    assert {one.takes_writes for one in read_write_states(fake.cluster, 1, ()).partitions.values()} == {None}


def test_a_broker_in_sync_that_does_not_answer_is_a_doubt() -> None:
    """A majority of the controllers may be away with it, and then it stays in sync."""
    fake = FakeBrokers({**WHOLE, ("p", 2): (1, (1,)), ("p", 3): (2, (1, 2))}, {LOG: "2", "p": "1"}, down=(3,))
    found = read_write_states(fake.cluster, 2, [("p", 0), ("p", 1), ("p", 2), ("p", 3)])
    assert {key: (one.silent, one.takes_writes) for key, one in found.partitions.items()} == {
        (LOG, 0): ((3,), None),
        (LOG, 1): ((3,), None),
        ("p", 0): ((3,), None),
        ("p", 1): ((3,), None),
        ("p", 2): ((), True),
        ("p", 3): ((), True),
    }
    failure = found.partitions["p", 0].failure
    assert failure is not None and failure.code == "UNREACHABLE"
    assert [one.name for one in found.doubtful] == [f"{LOG}-0", f"{LOG}-1", "p-0", "p-1"] and not found.stopped


def test_a_setting_that_may_not_be_read_is_a_doubt_only_if_replicas_are_not_in_sync() -> None:
    fake = FakeBrokers({**WHOLE, (LOG, 0): (1, (1,))}, DEFAULT, refused=(LOG,))
    found = read_write_states(fake.cluster, 2, ())
    assert [one.may_take_none for one in found.partitions.values()] == [True, False]
    failure = found.partitions[LOG, 0].failure
    assert failure is not None and failure.needs == Permission("DescribeConfigs", "Topic", LOG)
    for produce, takes in ((OLD, None), (NEW, True)):
        mute = FakeBrokers(WHOLE, DEFAULT, produce=produce, silent=("DescribeConfigs",))
        for fake in (mute, FakeBrokers(WHOLE, {}, produce=produce)):
            unread = read_write_states(fake.cluster, 2, ()).partitions.values()
            assert [(one.takes_writes, one.failure is not None) for one in unread] == [(takes, True)] * 2


def test_brokers_that_answered_a_moment_ago_are_not_asked_again() -> None:
    """A sweep knows them. The release of a leader is asked for only if it matters."""
    why = Failure("no", FailureCode.NO_ANSWER)
    for setting, asked in (("2", set()), ("4", {1, 2})):
        fake = FakeBrokers(WHOLE, {LOG: setting, "p": "2"})
        found = read_write_states(fake.cluster, 2, [("p", 0)], silent={3: why})
        assert {broker for api, broker in fake.asked if api == "ApiVersions"} == asked
        assert all(one.silent == ((3,) if 3 in one.replicas.in_sync else ()) for one in found.partitions.values())


def test_without_metadata_nothing_is_known() -> None:
    fake = FakeBrokers(WHOLE, DEFAULT, silent=("Metadata",))
    found = read_write_states(fake.cluster, 2, [("p", 0)])
    assert found.partitions == {} and found.failure is not None and found.failure.code == "UNREACHABLE"


def test_coordinators_that_drop_markers_are_known_if_a_partition_has_no_leader() -> None:
    lost = {**WHOLE, ("p", 1): (NO_LEADER_ID, ())}
    for level, dropping in ((LEVEL_4_2, frozenset()), (LEVEL_4_3, frozenset({1, 2}))):
        fake = FakeBrokers(lost, DEFAULT, eligible={("p", 1): (3,)}, level=level)
        found = read_write_states(fake.cluster, 2, [("p", 1)])
        assert found.dropping == dropping
        assert found.partitions["p", 1].replicas.missing == (3,)
    # The last leader of a partition matters only to those who ask.
    fake = FakeBrokers(WHOLE, DEFAULT, level=LEVEL_4_3)
    assert read_write_states(fake.cluster, 2, [("p", 1)]).dropping == frozenset()
    assert read_write_states(fake.cluster, 2, [("p", 1)], with_last=True).dropping == {1, 2}
    assert [drops_markers(one) for one in (None, 29, 30, 33, 34)] == [False, False, True, True, False]


def test_open_transactions_behind_the_last_replica_are_counted_by_broker() -> None:
    fake = FakeBrokers(
        {**WHOLE, ("p", 2): (2, (2,)), ("q", 0): (3, (3,)), ("r", 0): (NO_LEADER_ID, (1,)), ("s", 0): (1, (1,))},
        eligible={("q", 0): (1,)},
    )
    opened = {("p", 0): 1, ("p", 1): 2, ("p", 2): 4, ("q", 0): 8, ("r", 0): 16}
    assert read_behind_last(fake.cluster, 1, opened) == {3: 2, 2: 4}
    # All replicas of these are in sync, so no other question is asked.
    asked = FakeBrokers(WHOLE)
    assert read_behind_last(asked.cluster, 1, {(LOG, 0): 1}) == {} and asked.asked == [("Metadata", 1)]
    assert read_behind_last(FakeBrokers(WHOLE, silent=("Metadata",)).cluster, 1, opened) is None


def test_of_all_topics_only_incomplete_partitions_are_looked_at() -> None:
    fake = FakeBrokers(
        {**WHOLE, ("q", 0): (1, (1, 2)), ("r", 0): (NO_LEADER_ID, (1,))}, {**DEFAULT, "q": "2", "r": "1"}
    )
    assert [one.name for one in read_stopped(fake.cluster, 1)] == ["p-1", "r-0"]


def test_a_missing_log_is_compared_with_the_running_brokers() -> None:
    brokers = tuple(Broker(broker_id, "b", 9092) for broker_id in (1, 2))
    missing = ClusterView(1, "fake", brokers, (), ((LOG, "UNKNOWN_TOPIC_OR_PARTITION"),))
    hidden = ClusterView(1, "fake", brokers, (), ((LOG, "TOPIC_AUTHORIZATION_FAILED"),))
    of_3 = FakeBrokers({}, {"1": "3"})
    assert read_no_log(of_3.cluster, missing) == NoLog(3, 2)
    assert (
        read_no_log(of_3.cluster, hidden) is None
        and read_no_log(of_3.cluster, ClusterView(1, "f", brokers, ())) is None
    )
    assert read_no_log(FakeBrokers({}).cluster, missing) == NoLog(None, 2)
    assert read_no_log(FakeBrokers({}, silent=("DescribeConfigs",)).cluster, missing) == NoLog(None, 2)
