"""OffsetForLeaderEpoch: the end of an epoch is known only if the leader has the epoch."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from tests.cases import Cases
from tests.fakes.cluster import partition
from tests.fakes.leader import LOG_END, End, Leader, Topic
from txnscan.kafka.errors import ANSWERED_TWICE, LEFT_OUT, ErrorCode, RequestFailed, answered
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.protocol.offset_for_leader_epoch import EPOCHS_MAX, epoch_bounds, epoch_ends

AT_9 = partition(epoch=9)


def ends(starts: dict[int, int], epochs: Collection[int]) -> dict[int, int]:
    return epoch_ends(Leader(starts).send, AT_9, epochs)


def test_the_end_of_an_epoch_is_known_if_the_leader_has_the_epoch() -> None:
    table: list[tuple[str, dict[int, int], Collection[int], dict[int, int]]] = [
        ("the latest epoch ends where the log ends", {9: 0}, [9], {9: LOG_END}),
        ("an earlier one ends where the next one begins", {3: 0, 5: 40, 9: 70}, [3, 5, 9], {3: 40, 5: 70, 9: LOG_END}),
        ("the first epoch of all", {0: 0, 9: 30}, [0], {0: 30}),
        ("not one between two: the earlier one is answered", {3: 0, 5: 40, 9: 70}, [4, 6, 8], {}),
        ("not one above the latest: -1 is answered", {3: 0, 5: 40}, [6, 9], {}),
        ("not one below the first: it is answered itself", {5: 40, 9: 70}, [0, 3, 4], {}),
        ("nor where the log begins at 0", {5: 0, 9: 70}, [0, 4], {}),
        ("of several those that there are", {5: 40, 9: 70}, [3, 5, 7, 9], {5: 70, 9: LOG_END}),
        ("not one that has no record", {9: LOG_END}, [9], {}),
        ("no leader epoch", {0: 0, 9: 70}, [-1, -2], {}),
        ("an empty cache", {}, [0, 9], {}),
    ]
    with Cases() as cases:
        for name, starts, epochs, expected in table:
            with cases.case(name):
                assert ends(starts, epochs) == expected


def test_the_bound_of_an_epoch_is_the_beginning_of_the_first_later_one() -> None:
    table: list[tuple[str, dict[int, int], Collection[int], dict[int, int]]] = [
        ("the next one begins there", {3: 0, 5: 40, 9: 70}, [3, 5], {3: 40, 5: 70}),
        ("the leader does not have the epoch", {3: 0, 5: 40, 9: 70}, [4, 6, 8], {4: 40, 6: 70, 8: 70}),
        ("it is below the leader's first", {5: 40, 9: 70}, [0, 3], {0: 40, 3: 40}),
        ("the later one has no record yet", {3: 0, 9: LOG_END}, [3, 4], {3: LOG_END, 4: LOG_END}),
        ("the epoch is not over", {3: 0, 9: 70}, [9, 10], {}),
        ("the leader has no later one", {3: 0}, [4], {}),
        ("an empty cache", {}, [0], {}),
    ]
    with Cases() as cases:
        for name, starts, epochs, expected in table:
            with cases.case(name):
                assert epoch_bounds(Leader(starts).send, AT_9, epochs) == expected


def test_each_epoch_is_a_consumer_request_at_the_current_leader_epoch() -> None:
    leader = Leader({3: 0, 9: 70})
    epoch_ends(leader.send, partition("t", 4, leader=2, epoch=9), [9, 3, 3])
    assert leader.epochs == [3, 9, -2]
    for broker_id, request in leader.asked:
        (topic,) = request.topics
        (wanted,) = topic.partitions
        assert (broker_id, topic.topic, wanted.partition, wanted.current_leader_epoch) == (2, "t", 4, 9)
        assert (request.replica_id, request._min_version) == (-1, 3)


def test_impossible_epochs_cause_no_request() -> None:
    with Cases() as cases:
        for name, epochs in (("none", []), ("not known", [-1]), ("above the leader's own", [10, 11])):
            with cases.case(name):
                leader = Leader({9: 0})
                assert epoch_ends(leader.send, AT_9, epochs) == {} and leader.asked == []


def test_only_the_highest_epochs_are_requested() -> None:
    epochs = range(30)
    leader = Leader({epoch: epoch for epoch in epochs})
    found = epoch_ends(leader.send, partition(epoch=29), [*epochs, *range(30, 60)])
    assert found == {**{epoch: epoch + 1 for epoch in epochs[-EPOCHS_MAX:]}, 29: LOG_END}
    assert len(leader.asked) == EPOCHS_MAX + 1


def test_an_epoch_deleted_between_two_requests_is_omitted() -> None:
    def delete(leader: Leader) -> None:
        leader.starts = {9: 80}

    leader = Leader({7: 10, 9: 70}, meanwhile=delete)
    assert epoch_ends(leader.send, AT_9, [3, 4, 9]) == {9: LOG_END}


def other_epoch(epoch: int, end: int) -> Callable[[list[Any]], Any]:
    """An edit of the answer about offsets below every epoch."""

    def edit(topics: list[Any]) -> Any:
        shown = topics[0].partitions[0]
        if shown.leader_epoch == -2:
            shown.leader_epoch, shown.end_offset = epoch, end
        return topics

    return edit


def test_a_broker_without_the_start_of_its_first_epoch_confirms_no_epoch() -> None:
    with Cases() as cases:
        for name, edit in (("-1", other_epoch(-1, -1)), ("0", other_epoch(0, 0)), ("no offset", other_epoch(-2, -1))):
            with cases.case(name):
                assert epoch_ends(Leader({9: 0}, edit=edit).send, AT_9, [9]) == {}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.KAFKA_STORAGE_ERROR,
        9999,
    ],
)
def test_an_error_is_a_failed_request(code: int) -> None:
    with pytest.raises(RequestFailed) as failed:
        epoch_ends(Leader({9: 0}, error=code).send, AT_9, [9])
    assert failed.value.failure == answered(code)


def test_a_missing_or_duplicate_partition_is_a_failed_request() -> None:
    def renamed(topics: list[Any]) -> Any:
        topics[0].topic = "u"
        return topics

    def renumbered(topics: list[Any]) -> Any:
        topics[0].partitions[0].partition = 1
        return topics

    def null_partitions(topics: list[Any]) -> Any:
        topics[0].partitions = None
        return topics

    null = Failure("an answer holds null in place of a list", FailureCode.UNUSABLE_ANSWER)
    table: list[tuple[str, Callable[[list[Any]], Any], Failure]] = [
        ("no topic", lambda topics: [], LEFT_OUT),
        ("another topic", renamed, LEFT_OUT),
        ("another partition", renumbered, LEFT_OUT),
        ("twice", lambda topics: [*topics, *topics], ANSWERED_TWICE),
        ("null topics", lambda topics: None, null),
        ("null partitions", null_partitions, null),
    ]
    with Cases() as cases:
        for name, edit, failure in table:
            with cases.case(name):
                with pytest.raises(RequestFailed) as failed:
                    epoch_ends(Leader({9: 0}, edit=edit).send, AT_9, [9])
                assert failed.value.failure == failure


def test_unrequested_partitions_in_the_answer_are_ignored() -> None:
    def more(topics: list[Any]) -> Any:
        other = End(partition=7, error_code=3, leader_epoch=-1, end_offset=-1)
        return [Topic(topic="t", partitions=[other]), *topics, Topic(topic="u", partitions=[other])]

    assert epoch_ends(Leader({9: 0}, edit=more).send, AT_9, [9]) == {9: LOG_END}
