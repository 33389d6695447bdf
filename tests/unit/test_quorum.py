"""The quorum of controllers shows that no broker that did not answer has a newer image, or it shows nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import unobserved
from tests.cases import Cases
from txnscan.coordinators.agreed_metadata import AgreedMetadata, LeaderUnknown
from txnscan.coordinators.quorum import confirmed_by_quorum, led_still
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import FailureCode
from txnscan.kafka.protocol.describe_quorum import Quorum, Voter, describe_quorum
from txnscan.kafka.topology import Broker, ClusterView, Topic

# The leader is controller 1 at epoch 5. All records below 101 are committed.
FIRST = Quorum(1, 5, 101, 1_000, (Voter(1, 1_000), Voter(2, 990), Voter(3, -1)))
# Broker 2 did not answer.
SILENT = unobserved("metadata", "broker 2 cannot be reached", 2)


def later(*fetched_ms: int, time_ms: int = 1_500) -> Quorum:
    """The second answer, with the times at which voters 2, 3 and so on have fetched."""
    voters = (Voter(one, at) for one, at in enumerate(fetched_ms, start=2))
    return replace(FIRST, time_ms=time_ms, voters=(Voter(1, time_ms), *voters))


def test_a_majority_that_fetched_since_shows_that_the_leader_was_not_replaced() -> None:
    five = replace(FIRST, voters=(*FIRST.voters, Voter(4, 0), Voter(5, 0)))
    alone = replace(FIRST, voters=(Voter(1, 1_000),))
    with Cases() as cases:
        for why, first, second, expected in (
            ("one of two others", FIRST, later(1_001, 500), True),
            ("at the second answer", FIRST, later(1_500, -1), True),
            ("both", FIRST, later(1_200, 1_300), True),
            ("neither", FIRST, later(900, -1), False),
            ("at the time of the first answer, so perhaps before it", FIRST, later(1_000, 1_000), False),
            ("after the second answer: its clock went back", FIRST, later(1_501, 9_999), False),
            ("a clock that went back since", FIRST, later(990, 950, time_ms=995), False),
            ("two of five with the leader", five, later(1_100, 0, 0, 0), False),
            ("three of five with the leader", five, later(1_100, 0, 1_100, 0), True),
            ("a leader without others", alone, later(), True),
            ("a leader without others, in the same millisecond", alone, later(time_ms=1_000), True),
            ("another leader", FIRST, replace(later(1_100, 1_100), leader=2), False),
            ("another epoch", FIRST, replace(later(1_100, 1_100), leader_epoch=6), False),
            ("other voters", FIRST, later(1_100, 1_100, 1_100), False),
            ("a voter with two directories counts once", replace(FIRST, voters=(*FIRST.voters, Voter(3, 0))),
             replace(later(0, 1_100), voters=(Voter(1, 1_500), Voter(2, 0), Voter(3, 1_100), Voter(3, 1_200))), False),
        ):  # fmt: skip
            with cases.case(why):
                assert led_still(first, second) == expected


# --- the wire ---------------------------------------------------------------------------------------------------------


def partition(**changes: Any) -> Any:
    voters = [SimpleNamespace(replica_id=one, last_fetch_timestamp=at) for one, at in ((1, 1_000), (2, 990), (3, -1))]
    given = {"error_code": 0, "leader_id": 1, "leader_epoch": 5, "high_watermark": 101, "current_voters": voters}
    return SimpleNamespace(**{**given, **changes})


def described(*partitions: Any, error_code: int = 0) -> Any:
    return SimpleNamespace(error_code=error_code, topics=[SimpleNamespace(partitions=list(partitions))])


def test_the_answer_names_the_leader_and_its_time() -> None:
    asked: list[tuple[int, Any]] = []

    def send(broker_id: int, request: Any) -> Any:
        asked.append((broker_id, request))
        return described(partition())

    assert describe_quorum(send, 3) == FIRST
    ((broker_id, request),) = asked
    assert (broker_id, request.topics[0].topic_name, request._min_version) == (3, "__cluster_metadata", 1)


UNUSABLE = {
    "an error": described(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    "an error of the partition": described(partition(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)),
    "no partition": described(),
    "two partitions": described(partition(), partition()),
    "no high watermark": described(partition(high_watermark=-1)),
    "a leader that is no voter": described(partition(leader_id=9)),
    "no voters": described(partition(current_voters=None)),
}


@pytest.mark.parametrize("answer", UNUSABLE.values(), ids=UNUSABLE)
def test_any_other_answer_fails(answer: Any) -> None:
    with pytest.raises(RequestFailed):
        describe_quorum(lambda broker_id, request: answer, 3)


@pytest.mark.parametrize("code", [FailureCode.NO_ANSWER, FailureCode.UNREACHABLE])
def test_controllers_that_do_not_answer_are_not_the_broker_that_was_asked(code: FailureCode) -> None:
    def send(broker_id: int, request: Any) -> Any:
        raise RequestFailed("broker 3 does not answer", code)

    with pytest.raises(RequestFailed) as failed:
        describe_quorum(send, 3)
    assert failed.value.failure.code == code
    assert ("majority" in failed.value.error) is (code == FailureCode.NO_ANSWER)


# --- the metadata -----------------------------------------------------------------------------------------------------


def agreed(offsets: Mapping[int, int]) -> AgreedMetadata:
    """The metadata that broker 1 shows. Broker 2 is silent."""
    topic = Topic("t", "id", (0,), (1,), (7,))
    view = ClusterView(1, "c", (Broker(1, "a", 1), Broker(2, "a", 2)), (topic,))
    return AgreedMetadata((view,), (SILENT,), offsets)


class Asked:
    """The answers of the quorum, one after another; and of the brokers, if they are asked again. Counts waits."""

    def __init__(self, quorums: Sequence[Quorum | ErrorCode], *offsets: int) -> None:
        self.quorums, self.offsets, self.waits = list(quorums), list(offsets), 0

    def send(self, broker_id: int, request: Any) -> Any:
        answer = self.quorums.pop(0)
        if isinstance(answer, ErrorCode):
            return described(error_code=answer)
        voters = [SimpleNamespace(replica_id=v.broker_id, last_fetch_timestamp=v.fetched_ms) for v in answer.voters]
        return described(
            partition(
                leader_id=answer.leader,
                leader_epoch=answer.leader_epoch,
                high_watermark=answer.high_watermark,
                current_voters=voters,
            )
        )

    def ask(self) -> AgreedMetadata:
        offset = self.offsets.pop(0)
        return agreed({1: offset}) if offset >= 0 else AgreedMetadata((), (SILENT,), {})

    def sleep(self, seconds: float) -> None:
        self.waits += 1

    def confirmed(self, offsets: Mapping[int, int]) -> bool:
        """Whether the metadata proves a leader."""
        found = confirmed_by_quorum(self.send, agreed(offsets), self.ask, self.sleep)
        try:
            leader = found.partition("t", 0).leader
        except LeaderUnknown:
            assert (found.errors, found.unheard) == ((SILENT,), ())
            return False
        assert (leader, found.errors, found.unheard) == (1, (), (SILENT,))
        return True


NOBODY, ONE = later(900, -1), later(1_100, -1)
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_the_quorum_confirms_an_image_with_all_committed_records() -> None:
    with Cases() as cases:
        for why, asked, offset, waits, expected in (
            ("it has all", Asked([FIRST, ONE]), 100, 0, True),
            ("a majority needs a moment", Asked([FIRST, NOBODY, NOBODY, ONE]), 100, 2, True),
            ("it gets there", Asked([FIRST, ONE], 99, 100), 98, 2, True),
            ("it has more when it is asked again", Asked([FIRST, ONE], 250), 98, 1, True),
            ("no broker answers any more", Asked([FIRST], *([-1] * 8)), 99, 8, False),
            ("it never gets there", Asked([FIRST], *([99] * 8)), 99, 8, False),
            ("no majority in time", Asked([FIRST, *([NOBODY] * 8)]), 100, 8, False),
            ("it has more than what was committed", Asked([FIRST]), 101, 0, False),
            ("the first answer is refused", Asked([REFUSED]), 100, 0, False),
            ("the second answer is refused", Asked([FIRST, REFUSED]), 100, 0, False),
        ):
            with cases.case(why):
                assert (asked.confirmed({1: offset}), asked.waits, asked.quorums) == (expected, waits, [])


def test_the_offset_of_the_broker_that_showed_the_metadata_counts() -> None:
    nobody_yet = replace(FIRST, high_watermark=1)
    unknown = agreed({3: 0})
    asked = Asked([nobody_yet], *([-1] * 8))
    assert confirmed_by_quorum(asked.send, unknown, asked.ask, asked.sleep).errors == (SILENT,)
    assert Asked([nobody_yet, replace(ONE, high_watermark=1)]).confirmed({1: 0})


def test_a_broker_with_more_than_what_was_committed_shows_a_deposed_leader() -> None:
    assert not Asked([FIRST]).confirmed({1: 100, 3: 101})
    assert Asked([FIRST, ONE]).confirmed({1: 100, 3: 99})


def test_brokers_that_leave_kraft_mode_meanwhile_show_nothing() -> None:
    asked = Asked([FIRST])
    both = replace(agreed({}), views=agreed({}).views * 2, errors=())
    found = confirmed_by_quorum(asked.send, agreed({1: 99}), lambda: both, asked.sleep)
    assert (found, asked.waits) == (both, 8)


@pytest.mark.parametrize("change", [lambda one: replace(one, views=()), lambda one: replace(one, offsets={})])
def test_without_an_image_no_quorum_is_asked(change: Callable[[AgreedMetadata], AgreedMetadata]) -> None:
    asked = Asked([])
    before = change(agreed({1: 100}))
    assert confirmed_by_quorum(asked.send, before, asked.ask, asked.sleep) is before
