"""A sweep plans from the latest metadata, reads changed partitions again, and names lagging brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from tests.builders import failed, said
from tests.cases import Cases
from tests.fakes.cluster import (
    ADDRESS,
    IMAGE_OFFSET,
    FakeCluster,
    FakeFactory,
    FakePartition,
    broker,
    no_progress,
    one_by_one,
    producer,
)
from txnscan import ScanConfig
from txnscan.coordinators.agreed_metadata import NOT_ASKED, ROUNDS_MAX, AgreedMetadata, LeaderUnknown
from txnscan.coordinators.cluster import Cluster, ClusterUnreachable, opened_cluster
from txnscan.coordinators.metadata_image import (
    DISPUTED,
    Latest,
    ask_offsets,
    catch_up,
    differing,
    merged,
    read_agreed,
    read_latest,
)
from txnscan.engine.threads import ThreadsEngine
from txnscan.kafka.client.factory import ClientFactory
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import NO_LEADER, Failure, FailureCode, Unobserved
from txnscan.kafka.protocol.metadata import MetadataRound
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Broker, ClusterView, Key, Topic
from txnscan.reads.proven_read import read_first, read_wide
from txnscan.reads.rows import WideBatch
from txnscan.sweeps.reader import MOVED, SweepReader, Wide

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

OLD = IMAGE_OFFSET - 10

# The bootstrap server.
FIRST = (broker(-1, 9_001),)


def cluster_of(*leaders: int, brokers: Iterable[int] = (1, 2, 3), epoch: int = 5) -> FakeCluster:
    """Brokers with a topic `t`."""
    fake = FakeCluster(brokers)
    fake.lead("t", leaders, epoch)
    return fake


def latest(fake: FakeCluster, known: Iterable[int] = (1, 2, 3), topics: Iterable[str] | None = None) -> Latest:
    return read_latest(fake.send, known, MetadataRound(topics), one_by_one, lambda brokers: None)


def led(view: ClusterView) -> dict[Key, tuple[int, int]]:
    return {p.key: (p.leader, p.leader_epoch) for p in view.partitions}


# --- the latest metadata ----------------------------------------------------------------------------------------------


def test_ordered_images_need_all_topics_from_one_broker_only() -> None:
    fake = cluster_of(1, 2, 3)
    found = latest(fake)
    assert found.offset == IMAGE_OFFSET
    # At last the offset of the broker that showed it: what it showed has at most that one.
    assert [name for _, name in fake.asked] == ["ApiVersions"] * 3 + ["Metadata", "ApiVersions"]
    assert fake.asked[-1][0] == found.view.answered_by
    assert found.agreed.shown_by_offset == IMAGE_OFFSET
    assert (found.unreachable(), found.behind(IMAGE_OFFSET), found.disputed) == ((), {}, frozenset())


def test_the_offset_of_what_the_plan_shows_may_be_unknown() -> None:
    fake = cluster_of(1, 2, 3)
    fake.fail_when = lambda broker_id, request, asked: [name for _, name in asked].count("ApiVersions") > 3
    assert latest(fake).agreed.shown_by_offset is None


@pytest.mark.parametrize("stale", [1, 2, 3])
def test_the_plan_comes_from_a_broker_with_the_highest_offset(stale: int) -> None:
    fake = cluster_of(2, 2)
    fake.believes[stale] = cluster_of(1, epoch=4)
    fake.images[stale] = OLD
    found = latest(fake)
    assert led(found.view) == {("t", 0): (2, 5), ("t", 1): (2, 5)}
    assert found.view.answered_by != stale
    assert found.behind(IMAGE_OFFSET) == {stale: OLD}
    assert found.behind(OLD) == {}


def test_a_broker_named_only_by_a_newer_image_is_asked_too() -> None:
    fake = cluster_of(4, brokers=(1, 2, 4))
    fake.believes[1] = cluster_of(1, brokers=(1, 2))
    fake.images = {1: OLD, 2: IMAGE_OFFSET, 4: IMAGE_OFFSET + 1}
    found = latest(fake, known=(1, 2))
    assert (found.offset, found.view.answered_by) == (IMAGE_OFFSET + 1, 4)


def test_if_the_newest_broker_fails_the_next_newest_is_asked() -> None:
    fake = cluster_of(1)
    fake.images[3] = IMAGE_OFFSET + 1
    fake.fail_when = lambda broker_id, request, asked: asked[-1] == (3, "Metadata")
    found = latest(fake)
    assert (found.offset, found.view.answered_by) == (IMAGE_OFFSET, 2)
    assert [(one.stage, one.broker) for one in found.unreachable()] == [("plan", 3)]


def test_a_plan_misses_a_broker_that_did_not_show_a_newer_image() -> None:
    """Also if no image that was shown names it."""
    fake = cluster_of(1, brokers=(1, 2))
    fake.images[3] = IMAGE_OFFSET + 1
    fake.fail_when = lambda broker_id, request, asked: asked[-1] == (3, "Metadata")
    assert [(one.stage, one.broker) for one in latest(fake).unreachable()] == [("plan", 3)]


def test_a_broker_absent_from_the_latest_image_is_not_missed() -> None:
    fake = cluster_of(1, brokers=(1, 2))
    fake.unreachable = {3}
    assert latest(fake).unreachable() == ()


def test_no_reachable_broker_is_a_failure() -> None:
    fake = cluster_of(1)
    fake.unreachable = {1, 2, 3}
    with pytest.raises(RequestFailed, match="broker 3"):
        latest(fake)


def test_only_requested_topics_are_returned() -> None:
    fake = cluster_of(1)
    fake.lead("u", (1,))
    assert led(latest(fake, topics=["u"]).view) == {("u", 0): (1, 5)}


def test_offsets_are_reported_by_broker_id_and_none_is_lost() -> None:
    """If an answer is lost, the others are not those of the next brokers."""
    fake = cluster_of(1)
    fake.images = {1: OLD, 2: None, 3: IMAGE_OFFSET}
    assert [*ask_offsets(fake.send, (3, 1, 2), one_by_one).items()] == [(1, OLD), (2, None), (3, IMAGE_OFFSET)]
    with pytest.raises(ValueError, match="shorter"):
        ask_offsets(fake.send, (1, 2, 3), lambda call, ids: one_by_one(call, ids)[1:])


def test_brokers_without_an_answer_are_named_in_order() -> None:
    fake = cluster_of(1, brokers=(1, 2, 8, 9))
    fake.unreachable = {1, 8, 9}
    assert [one.broker for one in latest(fake, known=(1, 2, 8, 9)).unreachable()] == [1, 8, 9]
    assert [one.broker for one in agreed(fake, known=(2,)).errors] == [1, 8, 9]


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        ([], ""),
        (["no"], "no"),
        (["no", "no"], "no"),
        ([f"broker 1 ({ADDRESS}:1) no"], f"broker 1 ({ADDRESS}:1) no"),
        ([f"broker {n} (h:{n}) no" for n in (1, 2)], "broker 1 (h:1) and broker 2 (h:2): each no"),
        (
            [f"broker {n} (h:{n}) no" for n in (1, 2, 3, 4)],
            "broker 1 (h:1), broker 2 (h:2), broker 3 (h:3) and broker 4 (h:4): each no",
        ),
        (
            [f"broker {n} (h:{n}) no" for n in (1, 2, 3, 4, 5)],
            "broker 1 (h:1), broker 2 (h:2), broker 3 (h:3) and 2 more: each no",
        ),
        (
            ["broker 1 (h:1) no", "other", "the bootstrap server (h:2) no", "broker 3 (h:3) late"],
            "broker 1 (h:1) and the bootstrap server (h:2): each no; other; broker 3 (h:3) late",
        ),
        (["no", "broker 1 (h:1) no"], "broker 1 (h:1) no"),
        (["broker 1 (h:1) no", "no"], "broker 1 (h:1) no"),
    ],
)
def test_brokers_with_the_same_error_share_a_sentence_that_names_at_most_four(errors: list[str], text: str) -> None:
    assert merged(errors) == text


# --- who leads, by one image ------------------------------------------------------------------------------------------


def agreed(
    fake: FakeCluster, known: Iterable[int] = (1, 2, 3), reached: dict[int, int] | None = None
) -> AgreedMetadata:
    return read_agreed(fake.send, known, ["t"], one_by_one, lambda brokers: None, reached)


def who_leads(found: AgreedMetadata) -> tuple[int, int] | str:
    """The leader and its leader epoch, or the code of the failure."""
    try:
        one = found.partition("t", 0)
    except LeaderUnknown as unknown:
        return str(unknown.failure.code)
    return one.leader, one.leader_epoch


def test_one_broker_shows_who_leads_after_all_have_reported_their_images() -> None:
    fake = cluster_of(2)
    found = agreed(fake)
    assert (who_leads(found), found.errors) == ((2, 5), ())
    assert fake.asked == [(1, "ApiVersions"), (2, "ApiVersions"), (3, "ApiVersions"), (3, "Metadata")]


def test_a_broker_with_an_older_image_contradicts_nothing() -> None:
    for stale in (1, 2, 3):
        fake = cluster_of(2)
        fake.believes[stale] = cluster_of(1, epoch=4)
        fake.images[stale] = OLD
        assert who_leads(agreed(fake)) == (2, 5), stale


def test_every_named_broker_must_report_its_image() -> None:
    """A broker that is named by the newest image and does not report its own may know another leader. A broker that is
    not named is fenced.
    """
    with Cases() as cases:
        for which, named, proven in (("named", (1, 2, 3), False), ("fenced", (1, 2), True)):
            with cases.case(which):
                fake = cluster_of(2, brokers=named)
                fake.unreachable = {3}
                found = agreed(fake)
                assert (who_leads(found) == (2, 5)) is proven
                assert [one.broker for one in found.errors] == ([] if proven else [3])


def test_a_broker_with_the_newest_image_must_show_it() -> None:
    """Although no broker that shows its own names it. With an image that is as old as others it is not needed."""
    with Cases() as cases:
        for above, proven in ((1, False), (0, True)):
            with cases.case(f"{above=}"):
                fake = cluster_of(2, brokers=(1, 2))
                fake.images[3] = IMAGE_OFFSET + above
                fake.fail_when = lambda broker_id, request, asked: asked[-1] == (3, "Metadata")
                found = agreed(fake)
                assert (who_leads(found) == (2, 5)) is proven
                assert [one.broker for one in found.errors] == ([] if proven else [3])


def test_the_latest_metadata_and_that_of_its_topics_agree_on_who_leads() -> None:
    """Also if a broker does not answer, or outside KRaft mode."""
    with Cases() as cases:
        for why, zookeepers, unreachable in (
            ("KRaft", (), set[int]()),
            ("KRaft, broker 2 does not answer", (), {2}),
            ("ZooKeeper", (1, 2, 3), set[int]()),
            ("ZooKeeper, broker 2 does not answer", (1, 2, 3), {2}),
            ("one broker is outside KRaft mode", (3,), set[int]()),
        ):
            with cases.case(why):
                fake = cluster_of(2)
                fake.images = dict.fromkeys(zookeepers)
                fake.unreachable = unreachable
                found = latest(fake).agreed
                assert replace(found, shown_by_offset=None) == agreed(fake)
                assert [one.broker for one in found.errors] == [*unreachable]
                assert len(found.views) == ((3 - len(unreachable)) if zookeepers else 1)


def test_brokers_that_the_newest_image_names_are_asked_as_well() -> None:
    fake = cluster_of(4, brokers=(1, 2, 4))
    fake.believes[1] = cluster_of(1, brokers=(1, 2))
    fake.images = {1: OLD, 2: IMAGE_OFFSET, 4: IMAGE_OFFSET + 1}
    assert who_leads(agreed(fake, known=(1, 2))) == (4, 5)


def test_brokers_that_the_newest_image_names_become_known() -> None:
    fake, learned = cluster_of(2), list[int]()

    def learn(brokers: Iterable[Broker]) -> None:
        learned.extend(one.broker_id for one in brokers)

    read_agreed(fake.send, (1,), ["t"], one_by_one, learn)
    assert {1, 2, 3} <= set(learned)


def test_a_broker_that_was_named_too_late_to_be_asked_leaves_every_leader_unknown() -> None:
    """Each answer names one broker more."""
    fake = cluster_of(1, brokers=(1,))

    def edit(broker_id: int, answer: Any) -> Any:
        answer.brokers = [*answer.brokers, type(answer.brokers[0])(node_id=broker_id + 1, host=ADDRESS, port=9_000)]
        return answer

    fake.edit["Metadata"] = edit
    found = agreed(fake, known=(1,))
    assert [(one.stage, one.broker, one.failure) for one in found.errors] == [("metadata", ROUNDS_MAX + 1, NOT_ASKED)]
    assert who_leads(found) == str(FailureCode.NOT_ASKED)


def test_a_first_offset_may_be_zero_and_not_negative() -> None:
    for offset, proven in ((0, True), (-1, False)):
        fake = cluster_of(2)
        fake.images = dict.fromkeys((1, 2, 3), offset)
        assert (who_leads(agreed(fake)) == (2, 5)) is proven, offset


def test_an_offset_that_falls_or_is_negative_shows_no_age() -> None:
    with Cases() as cases:
        for offset, before, proven in ((OLD, OLD, True), (OLD, OLD + 1, False), (-1, 0, False), (0, 0, True)):
            with cases.case(f"{offset=} {before=}"):
                fake = cluster_of(2)
                fake.images = dict.fromkeys((1, 2, 3), offset)
                reached = dict.fromkeys((1, 2, 3), before)
                found = agreed(fake, reached=reached)
                assert who_leads(found) == ((2, 5) if proven else str(FailureCode.BROKER_BEHIND))
                assert {one.failure.code for one in found.errors} == (set() if proven else {FailureCode.BROKER_BEHIND})
                assert reached == dict.fromkeys((1, 2, 3), before)


def test_the_highest_offset_of_each_broker_is_kept() -> None:
    fake, reached = cluster_of(2), dict[int, int]()
    fake.images = {1: OLD, 2: OLD + 1, 3: OLD + 2}
    agreed(fake, reached=reached)
    assert reached == {1: OLD, 2: OLD + 1, 3: OLD + 2}
    fake.images = dict.fromkeys((1, 2, 3), OLD + 1)
    assert who_leads(agreed(fake, reached=reached)) == str(FailureCode.BROKER_BEHIND)
    assert reached == {1: OLD + 1, 2: OLD + 1, 3: OLD + 2}


def test_if_no_broker_answers_every_broker_has_its_failure() -> None:
    fake = cluster_of(2)
    fake.unreachable = {1, 2, 3}
    found = agreed(fake)
    assert (found.views, [one.broker for one in found.errors]) == ((), [1, 2, 3])


def test_a_coordinator_of_another_cluster_leaves_every_leader_unknown() -> None:
    """Broker 3 shows who leads. The address of broker 1 leads to a broker of the same number in a copy."""

    def edit(broker_id: int, answer: Any) -> Any:
        if broker_id == 1:
            answer.cluster_id = "copy"
        return answer

    fake = Fake()
    fake.lead(TRANSACTION_STATE_TOPIC, (1, 2, 3))
    with Cluster(cast(ClientFactory, FakeFactory(fake, FIRST)), threads=0, sleep=lambda seconds: None) as cluster:
        cluster.latest()
        for changed, proven in ((False, 3), (True, 0)):
            fake.edit = {"Metadata": edit} if changed else {}
            before = cluster.agreed_metadata([TRANSACTION_STATE_TOPIC])
            assert cluster.coordinator_listing({}, before, no_progress).coordinators_proven == proven
            assert len(cluster.metadata_after(cluster.ask_coordinators(before, {}, no_progress)).errors) == changed


def test_a_question_to_the_controllers_has_its_own_connection() -> None:
    """Without a majority of controllers it gets no answer, and the broker that passes it on is still asked."""

    @dataclass(frozen=True)
    class Apart(FakeFactory):
        controllers: Fake = field(default_factory=Fake)

        def for_controller(self) -> FakeFactory:
            return FakeFactory(self.controllers)

    fake = Fake()
    fake.lead(TRANSACTION_STATE_TOPIC, (1, 2, 3))
    apart = Apart(fake, FIRST)
    with Cluster(cast(ClientFactory, apart), threads=0, sleep=lambda seconds: None) as cluster:
        cluster.latest()
        fake.unreachable = {2, 3}
        assert [one.broker for one in cluster.agreed_metadata([TRANSACTION_STATE_TOPIC]).errors] == [2, 3]
    assert (1, "DescribeQuorum") in apart.controllers.asked
    assert not any(name == "DescribeQuorum" for _, name in fake.asked)


@pytest.mark.parametrize("broker_ids", [(1, 2, 3), (2,)], ids=["all", "one of them"])
def test_outside_kraft_mode_all_brokers_show_who_leads(broker_ids: tuple[int, ...]) -> None:
    fake = zookeeper(cluster_of(2), *broker_ids)
    found = agreed(fake)
    assert (who_leads(found), [view.answered_by for view in found.views]) == ((2, 5), [1, 2, 3])
    fake.believes[3] = zookeeper(cluster_of(1, epoch=4))
    assert who_leads(agreed(fake)) == str(FailureCode.BROKERS_DISAGREE)


def test_a_cluster_outside_kraft_mode_is_not_asked_for_offsets_again() -> None:
    fake = Fake()
    fake.lead("t", (2,))
    zookeeper(fake)
    with Cluster(cast(ClientFactory, FakeFactory(fake, FIRST)), threads=0) as cluster:
        cluster.latest()
        fake.asked.clear()
        assert who_leads(cluster.agreed_metadata(["t"])) == (2, 5)
    assert fake.asked == [(1, "Metadata"), (2, "Metadata"), (3, "Metadata")]


# --- outside KRaft mode -----------------------------------------------------------------------------------------------


def zookeeper(fake: FakeCluster, *broker_ids: int) -> FakeCluster:
    fake.images |= dict.fromkeys(broker_ids or fake.brokers)
    return fake


@pytest.mark.parametrize("broker_ids", [(1, 2, 3), (2,)], ids=["all", "one of them"])
def test_every_broker_outside_kraft_mode_is_asked_for_all_topics(broker_ids: tuple[int, ...]) -> None:
    fake = zookeeper(cluster_of(1, 2, 3), *broker_ids)
    found = latest(fake)
    assert {b for b, name in fake.asked if name == "Metadata"} == {1, 2, 3}
    assert led(found.view) == {("t", 0): (1, 5), ("t", 1): (2, 5), ("t", 2): (3, 5)}
    assert found.disputed == frozenset()


@pytest.mark.parametrize(
    ("believes", "disputed", "why"),
    [
        (cluster_of(1, 2, epoch=4), {0, 1}, "two stale brokers agree, and the highest epoch counts"),
        (cluster_of(2), {1}, "they lack a partition"),
        (FakeCluster(), {0, 1}, "they lack the topic"),
    ],
)
def test_differences_between_brokers_outside_kraft_mode_are_disputed(
    believes: FakeCluster, disputed: set[int], why: str
) -> None:
    fake = zookeeper(cluster_of(2, 2))
    fake.believes = {1: believes, 2: believes}
    found = latest(fake)
    assert led(found.view) == {("t", 0): (2, 5), ("t", 1): (2, 5)}, why
    assert found.disputed == {("t", index) for index in disputed}, why


def test_a_broker_outside_kraft_mode_without_topics_may_have_just_started() -> None:
    """The brokers of a real cluster with ZooKeeper: `tests/brokers/test_zookeeper.py`."""
    full, just_started = cluster_of(1, 2), FakeCluster()
    just_started.brokers = full.brokers
    for started in ((1, 2, 3), (2,)):
        fake = zookeeper(cluster_of(1, 2))
        fake.believes = dict.fromkeys(started, just_started)
        found = latest(fake)
        assert {one.broker: one.failure.code for one in found.unreachable()} == dict.fromkeys(started, "BROKER_BEHIND")
        assert found.outside_kraft
    fake.believes = {1: just_started, 2: just_started, 3: just_started}
    assert latest(fake, topics=["t"]).unreachable() == (), "the topics may not exist"
    assert not latest(FakeCluster()).outside_kraft
    assert latest(FakeCluster()).unreachable() == (), "in KRaft mode a broker knows the topics of its image"


def showing(brokers: Iterable[int], **leaders_and_epochs: Sequence[tuple[int, int]]) -> FakeCluster:
    """A cluster with the leader and the leader epoch of each partition of these topics."""
    fake = FakeCluster(brokers)
    for topic, partitions in leaders_and_epochs.items():
        for index, (leader, epoch) in enumerate(partitions):
            fake.partitions[topic, index] = FakePartition(leader, epoch)
    return fake


SAME = ((1, 9), (2, 4))
NEWEST = showing((1, 2, 3), a=SAME, b=((2, 7), (3, 6)), c=((1, 5),), new=((3, 0),))
# It lacks a partition.
EARLIER = showing((2, 3), a=SAME, b=((2, 7),), c=((1, 5),), new=((3, 0),))
# Others lead, a topic is missing, and a deleted topic is still there.
STALE = showing((1, 3), a=SAME, b=((1, 5), (3, 6)), c=((3, 4),), gone=((2, 3),))


def test_views_outside_kraft_mode_merge_to_the_same_view_whichever_broker_shows_them() -> None:
    with Cases() as cases:
        for order in permutations((("newest", NEWEST), ("earlier", EARLIER), ("stale", STALE))):
            with cases.case(", ".join(name for name, _ in order)):
                fake = zookeeper(cluster_of())
                fake.believes = {number: believed for number, (_, believed) in enumerate(order, 1)}
                found = latest(fake)
                assert found == Latest(
                    ClusterView(
                        1,
                        "fake",
                        tuple(broker(number, 9_000 + number) for number in (1, 2, 3)),
                        (
                            Topic("a", "", (0, 1), (1, 2), (9, 4)),
                            Topic("b", "", (0, 1), (2, 3), (7, 6)),
                            Topic("c", "", (0,), (1,), (5,)),
                            Topic("gone", "", (0,), (2,), (3,)),
                            Topic("new", "", (0,), (3,), (0,)),
                        ),
                    ),
                    dict.fromkeys((1, 2, 3)),
                    frozenset({("b", 0), ("b", 1), ("c", 0), ("gone", 0), ("new", 0)}),
                    outside_kraft=True,
                    of_all=found.of_all,
                )
                assert (found.offset, found.unreachable()) == (None, ())


def test_a_topic_that_a_broker_outside_kraft_mode_shows_with_another_id_is_disputed_as_a_whole() -> None:
    """Which of the ids the merged view has does not matter."""
    fake, other = zookeeper(cluster_of(1, 2)), cluster_of(1, 2)
    for held in other.partitions.values():
        held.topic_id = UUID(int=1)
    fake.believes = {3: other}
    found = latest(fake)
    assert found.disputed == {("t", 0), ("t", 1)}
    assert found.view.topics == (Topic("t", "AAAAAAAAAAAAAAAAAAAAAQ", (0, 1), (1, 2), (5, 5)),)


def test_every_broker_is_asked_for_metadata_once_if_one_is_outside_kraft_mode() -> None:
    for ask in (latest, agreed):
        fake = zookeeper(cluster_of(1), 2)
        ask(fake)
        assert [broker_id for broker_id, name in fake.asked if name == "Metadata"] == [1, 2, 3]


def test_a_failure_of_metadata_outside_kraft_mode_replaces_the_report_of_the_broker() -> None:
    """Broker 1 reports an offset, broker 2 does not show its metadata, and broker 3 knows no topic yet."""
    fake = zookeeper(cluster_of(1), 2, 3)
    fake.believes = {3: FakeCluster()}
    fake.fail_when = lambda broker_id, request, asked: asked[-1] == (2, "Metadata")
    found = latest(fake)
    codes = {
        number: answer.code if isinstance(answer, Failure) else answer for number, answer in found.reported.items()
    }
    assert codes == {1: IMAGE_OFFSET, 2: FailureCode.UNUSABLE_ANSWER, 3: FailureCode.BROKER_BEHIND}
    assert [(one.stage, one.broker) for one in found.unreachable()] == [("plan", 2), ("plan", 3)]


def test_if_no_broker_outside_kraft_mode_shows_its_metadata_the_cluster_is_unreachable() -> None:
    fake = zookeeper(cluster_of(1))
    fake.fail_when = lambda broker_id, request, asked: asked[-1][1] == "Metadata"
    with pytest.raises(RequestFailed, match="broker 3") as unreachable:
        latest(fake)
    assert unreachable.value.failure.code == FailureCode.UNREACHABLE


def test_an_unreachable_broker_outside_kraft_mode_is_named() -> None:
    fake = zookeeper(cluster_of(1), 1, 2, 3)
    fake.unreachable = {3}
    assert [one.broker for one in latest(fake).unreachable()] == [3]
    fake.unreachable = {1, 2, 3}
    with pytest.raises(RequestFailed):
        latest(fake)


# --- changed partitions -----------------------------------------------------------------------------------------------

TOPIC = Topic("t", "id", (0, 1), (1, 2), (5, 5))


@pytest.mark.parametrize(
    ("before", "after", "differ"),
    [
        ([TOPIC], [TOPIC], set()),
        ([TOPIC], [replace(TOPIC, leaders=(3, 2))], {0}),
        ([TOPIC], [replace(TOPIC, leader_epochs=(5, 6))], {1}),
        ([TOPIC], [replace(TOPIC, topic_id="other")], {0, 1}),
        ([], [TOPIC], {0, 1}),
        ([TOPIC], [], set()),
        ([replace(TOPIC, indexes=(0,), leaders=(1,), leader_epochs=(5,))], [TOPIC], {1}),
        ([TOPIC], [replace(TOPIC, indexes=(0,), leaders=(1,), leader_epochs=(5,))], set()),
    ],
    ids=[
        "nothing",
        "a leader",
        "a leader epoch",
        "the topic",
        "a new topic",
        "a deleted topic",
        "a new one",
        "one less",
    ],
)
def test_new_partitions_and_partitions_with_a_new_leader_differ(
    before: list[Topic], after: list[Topic], differ: set[int]
) -> None:
    assert differing(before, after) == {("t", index) for index in differ}


# --- lagging brokers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offsets", "waits", "names", "why"),
    [
        ([10], 1, set(), "it has caught up at the first look"),
        ([8, 9, 11], 3, set(), "it catches up"),
        ([8], 20, {2}, "it stays behind"),
        ([failed("gone")], 1, {2}, "it does not answer any more"),
        ([None], 1, set(), "it is outside KRaft mode now"),
    ],
)
def test_a_lagging_broker_gets_some_seconds(
    offsets: list[int | Failure | None], waits: int, names: set[int], why: str
) -> None:
    fake, waited = cluster_of(1), []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        shown = offsets[min(len(waited), len(offsets)) - 1]
        fake.unreachable = {2} if isinstance(shown, Failure) else set()
        fake.images[2] = None if isinstance(shown, Failure) else shown

    late = catch_up(fake.send, {2: 8}, 10, one_by_one, sleep)
    assert {one.broker for one in late} == names, why
    assert len(waited) == waits, why
    assert sum(waited) <= 5, why


def test_each_lagging_broker_is_waited_for_and_named_in_order(wording: SnapshotAssertion) -> None:
    """Broker 1 catches up, 2 and 3 do not, and 4 does not answer any more, and is not waited for."""
    fake = cluster_of(1, brokers=(1, 2, 3, 4))
    fake.images = {1: 10, 2: 9, 3: 7}
    fake.unreachable = {4}
    waited: list[float] = []
    late = catch_up(fake.send, {4: 8, 3: 6, 2: 8, 1: 8}, 10, one_by_one, waited.append)
    unreachable = Failure("broker 4 cannot be reached", FailureCode.UNUSABLE_ANSWER)
    assert late[2:] == (Unobserved("plan", unreachable, 4),)
    assert [(one.stage, one.broker, one.failure.code) for one in late[:2]] == [
        ("plan", 2, FailureCode.BROKER_BEHIND),
        ("plan", 3, FailureCode.BROKER_BEHIND),
    ]
    assert [said(one.failure) for one in late] == wording
    assert fake.asked.count((4, "ApiVersions")) == 1
    assert (fake.asked.count((2, "ApiVersions")), len(waited)) == (20, 20)


def test_without_lagging_brokers_there_is_no_wait() -> None:
    assert catch_up(cluster_of(1).send, {}, 10, one_by_one, lambda seconds: pytest.fail("it waited")) == ()


# --- the wide read ----------------------------------------------------------------------------------------------------


class Fake(FakeCluster):
    """Brokers and bootstrap servers. Bootstrap server -1 is broker 1."""

    def send(self, broker_id: int, request: Any) -> Any:
        return super().send(abs(broker_id), request)

    def learn(self, brokers: Iterable[Broker]) -> None:
        """Does nothing: a fake has no addresses."""


@dataclass
class ReadsFake(ThreadsEngine):
    """Reads a fake. meanwhile: called after each wide read, with the number of reads."""

    fake: Fake
    meanwhile: Callable[[int], None]
    read_keys: list[list[Key]] = field(default_factory=list)

    def map(self, function: object, batches: Sequence[Any], row_type: object, on_progress: object) -> list[Any]:
        rows = [read_wide(cast(WideBatch, batch), self.fake.send) for batch in batches]
        self.read_keys.append(
            [(topic, i) for batch in batches for topic, indexes in batch.indexes.items() for i in indexes]
        )
        self.meanwhile(len(self.read_keys))
        return rows


def read_while(
    meanwhile: Callable[[Fake, int], None],
    config: ScanConfig | None = None,
    *,
    images: Mapping[int, int | None] = MappingProxyType({}),
    leaders: Iterable[int] = (1, 2, 3),
) -> tuple[Wide, list[list[Key]]]:
    """The wide read of t-0 to t-2, each with an open transaction, and the partitions of each read."""
    fake = Fake()
    fake.lead("t", leaders)
    fake.images = dict(images)
    for held in fake.partitions.values():
        held.producers = [producer(7)]
    engine = ReadsFake(fake, lambda reads: meanwhile(fake, reads))
    with Cluster(cast(ClientFactory, FakeFactory(fake, FIRST)), threads=0, sleep=lambda seconds: None) as cluster:
        planned = cluster.latest()
        reader = SweepReader(cluster, engine, config or ScanConfig("fake:9092"))
        return reader.wide(planned, no_progress, no_progress), engine.read_keys


def test_the_second_read_is_of_the_leaders_and_leader_epochs_of_the_first() -> None:
    """A partition that moved meanwhile is not read from its new leader: the first read was not from that one."""
    fake = Fake()
    fake.lead("t", (1, 2, 3))
    for held in fake.partitions.values():
        held.producers, held.high_watermark = [producer(7)], 200
    fake.partitions["t", 2].errors["producers"] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with Cluster(cast(ClientFactory, FakeFactory(fake, FIRST)), threads=0) as cluster:
        agreed = cluster.latest().agreed
        reader = SweepReader(cluster, ThreadsEngine(1), ScanConfig("fake:9092"))
        first = reader.proven_once(fake.partitions, agreed, no_progress, read_first)
        moves(fake, 1, 3)
        fake.partitions["t", 0].high_watermark = 210
        fake.asked.clear()
        second = reader.second(first, no_progress)
    assert second.keys() == first.keys() and {broker_id for broker_id, _ in fake.asked} == {1, 2}
    codes = [
        [row.failure.code if row.failure is not None else None for _, row in sorted(rows.items())]
        for rows in (first, second)
    ]
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED.name
    assert codes == [[None, None, refused], [None, ErrorCode.NOT_LEADER_OR_FOLLOWER.name, refused]]
    assert [(row.high_watermark, row.open_producers) for _, row in sorted(second.items())] == [
        (200, (producer(7),)),
        (200, (producer(7),)),
        (200, ()),
    ]


def moves(fake: Fake, index: int, leader: int) -> None:
    held = fake.partitions["t", index]
    held.leader, held.epoch = leader, held.epoch + 1


def once(change: Callable[[Fake], None], after: int = 1) -> Callable[[Fake, int], None]:
    """Makes the change after the first wide read, or after a later one."""
    return lambda fake, reads: change(fake) if reads == after else None


def open_keys(wide: Wide) -> list[int]:
    return sorted(row.partition for row in wide.rows if row.partition is not None)


@pytest.mark.parametrize("images", [{}, dict.fromkeys((1, 2, 3))], ids=["KRaft", "ZooKeeper"])
def test_without_changes_no_partition_is_read_again(images: Mapping[int, int | None]) -> None:
    wide, read = read_while(lambda fake, reads: None, images=images)
    assert (wide.planned, wide.answered, open_keys(wide), wide.errors) == (3, 3, [0, 1, 2], ())
    assert list(map(len, read)) == [3]


def test_a_moved_partition_is_read_again_at_its_new_leader() -> None:
    def leave(fake: Fake) -> None:
        moves(fake, 0, 2)
        fake.partitions["t", 0].producers = [producer(8)]

    wide, read = read_while(once(leave))
    assert read[1] == [("t", 0)]
    assert (wide.planned, wide.answered, wide.errors) == (3, 3, ())
    assert [(row.leader, [p.producer_id for p in row.open_producers]) for row in wide.rows if row.partition == 0] == [
        (2, [8])
    ]


def test_a_created_topic_is_read_and_a_deleted_topic_does_not_count() -> None:
    def recreate(fake: Fake) -> None:
        fake.partitions = {("u", 0): FakePartition(producers=[producer(9)]), ("t", 1): fake.partitions["t", 1]}

    wide, read = read_while(once(recreate))
    assert read[1] == [("u", 0)]
    assert (wide.planned, wide.answered, wide.errors) == (2, 2, ())
    assert {(row.topic, row.partition) for row in wide.rows} == {("t", 1), ("u", 0)}


@pytest.mark.parametrize(
    ("code", "counts"),
    [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, True), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False)],
    ids=["hidden", "deleted"],
)
def test_an_unlisted_topic_is_gone_only_if_its_name_is_unknown(code: ErrorCode, counts: bool) -> None:
    """A listing of all topics omits topics without Describe permission."""

    def hide(fake: Fake) -> None:
        fake.topic_errors["t"] = int(code)

    wide, read = read_while(once(hide))
    assert read == [[("t", 0), ("t", 1), ("t", 2)]]
    assert (wide.planned, wide.answered, open_keys(wide)) == ((3, 3, [0, 1, 2]) if counts else (0, 0, []))
    assert [(one.stage, one.topic) for one in wide.errors] == ([("read", "t")] if counts else [])
    assert [topic.name for topic in wide.view.topics] == (["t"] if counts else [])


def test_a_failed_partition_is_read_again_and_counts_once() -> None:
    """A partition without a leader gets a leader meanwhile."""
    wide, read = read_while(once(lambda fake: moves(fake, 1, 2)), leaders=(1, -1, 3))
    assert read == [[("t", 0), ("t", 2)], [("t", 1)]]
    assert (wide.planned, wide.answered, open_keys(wide), wide.errors) == (3, 3, [0, 1, 2], ())


def test_a_partition_that_fails_twice_is_a_failure() -> None:
    wide, _ = read_while(lambda fake, reads: None, leaders=(1, -1, 3))
    assert (wide.planned, wide.answered, open_keys(wide)) == (3, 2, [0, 2])
    assert [(one.topic, one.partition, one.failure) for one in wide.errors] == [("t", 1, NO_LEADER)]


def test_a_partition_that_moves_twice_is_a_failure() -> None:
    def twice(fake: Fake, reads: int) -> None:
        moves(fake, 0, 1 + reads)

    wide, _ = read_while(twice)
    assert [(one.topic, one.partition, one.failure) for one in wide.errors] == [("t", 0, MOVED)]


def test_a_partition_disputed_to_the_end_is_a_failure() -> None:
    def stale(fake: Fake) -> None:
        fake.believes[1] = cluster_of(1, 2, 3)
        moves(fake, 0, 2)

    wide, read = read_while(once(stale), images=dict.fromkeys((1, 2, 3)))
    assert read[1] == [("t", 0)]
    assert [(one.topic, one.partition, one.failure) for one in wide.errors] == [("t", 0, DISPUTED)]
    assert (wide.planned, wide.answered) == (3, 3)


def test_a_partition_that_leaves_the_scope_does_not_count() -> None:
    """The scope is the partitions of one leader."""
    wide, read = read_while(once(lambda fake: moves(fake, 0, 2)), ScanConfig("fake:9092", broker_ids=(1,)))
    assert read == [[("t", 0)]]
    assert (wide.planned, wide.answered, wide.rows) == (0, 0, ())


# --- bootstrap servers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "gone", "asked", "why"),
    [
        ((1, 2), set(), {-1}, "what is named answers"),
        ((1,), set(), {-1, -3}, "it names itself alone"),
        ((1, 2), {2}, {-1, -3}, "what it names is gone"),
    ],
)
def test_other_bootstrap_servers_are_asked_if_the_first_may_be_cut_off(
    named: tuple[int, ...], gone: set[int], asked: set[int], why: str
) -> None:
    """The third has the current metadata."""
    now, old = Fake((1, 3)), FakeCluster(named)
    now.lead("t", (3,), 9)
    old.lead("t", (1,))
    now.believes = {1: old, 2: old}
    now.images = {1: OLD, 2: OLD}
    now.unreachable = gone
    heard: set[int] = set()

    class Heard(Fake):
        def send(self, broker_id: int, request: Any) -> Any:
            heard.add(broker_id)
            return now.send(broker_id, request)

    servers = tuple(Broker(-number, ADDRESS, 9_100 + number) for number in (1, 3))
    with Cluster(cast(ClientFactory, FakeFactory(Heard(), servers)), threads=0) as cluster:
        found = cluster.latest()
    assert {b for b in heard if b < 0} == asked, why
    assert led(found.view) == {("t", 0): (3, 9) if -3 in asked else (1, 5)}, why


def test_without_a_reachable_bootstrap_server_the_cluster_is_unreachable() -> None:
    fake = Fake()
    fake.unreachable = {1, 2, 3}
    with (
        Cluster(cast(ClientFactory, FakeFactory(fake, FIRST)), threads=0) as cluster,
        pytest.raises(ClusterUnreachable),
    ):
        cluster.latest()


@pytest.mark.parametrize(("timeout_ms", "option"), [(1, "--timeout"), (60_000, "--bootstrap-server")])
def test_an_unreachable_cluster_is_an_error_of_the_option_that_is_the_reason(timeout_ms: int, option: str) -> None:
    config = ScanConfig("127.0.0.1:1", timeout_ms=timeout_ms)
    for ask in (Cluster.view, Cluster.latest):
        with opened_cluster(config) as cluster, pytest.raises(ClusterUnreachable) as failed:
            ask(cluster)
        assert failed.value.option == option


def test_bootstrap_servers_with_the_same_error_share_one_sentence() -> None:
    config = ScanConfig("127.0.0.1:1,127.0.0.1:2")
    with opened_cluster(config) as cluster, pytest.raises(ClusterUnreachable) as failed:
        cluster.view([])
    said = str(failed.value)
    assert said.count("cannot be reached") == 1
    assert "127.0.0.1:1" in said and "127.0.0.1:2" in said
