"""The agreed metadata on leaders, and the failures without it."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.builders import failed, said
from tests.cases import Cases
from tests.fakes.cluster import FakeCluster, FakePartition, broker, lacking, one_by_one
from txnscan.coordinators.agreed_metadata import (
    TOPIC_DELETED,
    TOPIC_RECREATED,
    WITH_TOPIC,
    AgreedMetadata,
    LeaderUnknown,
    read_all_views,
)
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.failure import Failure, FailureCode, Permission, Unobserved
from txnscan.kafka.security.acls import needing
from txnscan.kafka.topology import NO_LISTENER_ID, Broker, ClusterView, Partition, Topic
from txnscan.reads.rows import ProvenRow
from txnscan.sweeps.reader import confirmed

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion


@pytest.fixture
def cluster() -> FakeCluster:
    fake = FakeCluster()
    fake.lead("t", [1, 2, 3])
    return fake


def agree(cluster: FakeCluster, known: Iterable[int] = (1, 2, 3), topics: Iterable[str] = ("t",)) -> AgreedMetadata:
    return read_all_views(cluster.send, known, topics, one_by_one, lambda brokers: None)


def cut_off(cluster: FakeCluster, broker_id: int, **beliefs: object) -> None:
    """A broker with outdated metadata of t-0."""
    old = FakeCluster(cluster.brokers)
    old.lead("t", [1, 2, 3])
    for name, value in beliefs.items():
        setattr(old.partitions["t", 0], name, value)
    cluster.believes[broker_id] = old


def failure_of(agreed: AgreedMetadata, topic: str = "t", index: int = 0) -> Failure:
    with pytest.raises(LeaderUnknown) as failed:
        agreed.partition(topic, index)
    assert str(failed.value) == failed.value.failure.error
    return failed.value.failure


def test_leader_epochs_are_those_that_all_brokers_agree_on(cluster: FakeCluster) -> None:
    cluster.partitions["t", 1].epoch = 6
    cut_off(cluster, 2, epoch=4)
    cluster.believes[2].partitions["t", 1].epoch = 6
    assert agree(cluster).leader_epochs("t") == {1: 6, 2: 5}
    assert agree(cluster).leader_epochs("u") == {}


def why_not(agreed: AgreedMetadata, topic: str = "t", index: int = 0) -> str:
    return failure_of(agreed, topic, index).error


def test_a_leader_is_known_if_every_broker_names_it_at_one_epoch(cluster: FakeCluster) -> None:
    agreed = agree(cluster)
    assert agreed.partition("t", 1) == Partition("t", "", 1, 2, 5)
    assert agreed.errors == ()
    assert agreed.indexes("t") == (0, 1, 2)
    assert [b.broker_id for b in agreed.brokers] == [1, 2, 3]


def test_one_partition_is_read_without_expanding_its_topic(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    agreed = agree(cluster)
    monkeypatch.delattr(Topic, "partitions")
    assert agreed.partition("t", 1) == Partition("t", "", 1, 2, 5)


def test_broker_0_at_leader_epoch_0_is_a_valid_leader() -> None:
    cluster = FakeCluster([0])
    cluster.lead("t", [0], epoch=0)
    partition = agree(cluster, known=[0]).partition("t", 0)
    assert (partition.leader, partition.leader_epoch) == (0, 0)


def test_partition_numbers_are_sorted_and_of_one_topic(cluster: FakeCluster) -> None:
    cluster.partitions["u", 8] = FakePartition()
    cluster.partitions["u", 1] = FakePartition()
    agreed = agree(cluster, topics=["t", "u"])
    assert (agreed.indexes("t"), agreed.indexes("u")) == ((0, 1, 2), (1, 8))


@pytest.mark.parametrize(
    ("beliefs", "why"),
    [
        ({"epoch": 4}, "a broker that lags believes in an older epoch"),
        ({"epoch": 6}, "a broker that knows more: the others lag"),
        ({"leader": 2}, "another leader at the same epoch"),
        ({"leader": -1}, "one that believes there is no leader"),
    ],
)
@pytest.mark.parametrize("broker_id", [1, 2, 3])
def test_a_single_disagreeing_broker_leaves_the_leader_unknown(
    cluster: FakeCluster, broker_id: int, beliefs: dict[str, int], why: str
) -> None:
    cut_off(cluster, broker_id, **beliefs)
    agreed = agree(cluster)
    assert "disagree" in str(why_not(agreed)), why
    assert agreed.partition("t", 1).leader == 2, "the partitions that they agree on are not concerned"


def test_a_broker_without_the_topic_is_a_disagreement(cluster: FakeCluster, wording: SnapshotAssertion) -> None:
    cluster.believes[3] = FakeCluster()
    assert why_not(agree(cluster)) == wording


def test_a_broker_without_the_partition_is_a_disagreement(cluster: FakeCluster) -> None:
    cut_off(cluster, 3)
    del cluster.believes[3].partitions["t", 0]
    assert "disagree" in why_not(agree(cluster))


def test_an_unreachable_broker_named_by_others_leaves_every_leader_unknown(
    cluster: FakeCluster, wording: SnapshotAssertion
) -> None:
    cluster.unreachable = {3}
    agreed = agree(cluster)
    for index in range(3):
        assert why_not(agreed, index=index) == wording
    assert [(e.stage, e.broker) for e in agreed.errors] == [("metadata", 3)]


def test_a_broker_without_metadata_support_is_reported_with_the_api(cluster: FakeCluster) -> None:
    cluster.edit["Metadata"] = lacking(3, "Metadata")
    why = "broker 3 does not support Metadata"
    assert agree(cluster).errors == (Unobserved("metadata", Failure(why, "UNSUPPORTED_VERSION", "Metadata"), 3),)


def test_an_unreachable_broker_named_by_a_single_broker_still_counts(cluster: FakeCluster) -> None:
    cluster.unreachable = {3}
    cut_off(cluster, 2)
    cluster.brokers = [1, 2]
    assert "broker 3" in why_not(agree(cluster))


def test_an_unreachable_broker_named_by_no_broker_is_ignored(cluster: FakeCluster) -> None:
    cluster.unreachable = {3}
    cluster.brokers = [1, 2]
    agreed = agree(cluster)
    assert agreed.partition("t", 0).leader == 1
    assert agreed.errors == ()


def test_an_answering_broker_must_agree_even_if_no_broker_names_it(cluster: FakeCluster) -> None:
    cut_off(cluster, 3, leader=3)
    cluster.brokers = [1, 2]
    assert "disagree" in why_not(agree(cluster))


def test_a_round_without_any_broker_knows_no_leader_and_no_end() -> None:
    nobody = AgreedMetadata((), ())
    assert failure_of(nobody).code == FailureCode.LEFT_OUT
    assert nobody.gone("t", "id") is None


def test_all_show_a_topic_only_if_no_answer_lacks_it(cluster: FakeCluster) -> None:
    assert agree(cluster).all_show("t") is True
    cluster.believes[2] = FakeCluster()
    assert agree(cluster).all_show("t") is False


def test_without_answers_no_leader_is_known(cluster: FakeCluster, wording: SnapshotAssertion) -> None:
    cluster.unreachable = {1, 2, 3}
    agreed = agree(cluster)
    assert why_not(agreed) == wording
    assert (agreed.brokers, agreed.indexes("t")) == ((), ())


def test_a_broker_named_only_by_another_broker_is_asked_and_registered(cluster: FakeCluster) -> None:
    learned: list[Broker] = []
    agreed = read_all_views(cluster.send, [1], ["t"], one_by_one, learned.extend)
    assert [view.answered_by for view in agreed.views] == [1, 2, 3]
    assert set(learned) == {broker(1), broker(2), broker(3)}


def test_every_broker_is_asked_once_per_round(cluster: FakeCluster) -> None:
    cluster.unreachable = {2}
    agree(cluster, known=[1, 2])
    assert sorted(cluster.asked) == [(1, "Metadata"), (2, "Metadata"), (3, "Metadata")]


def test_requests_and_results_have_a_fixed_order() -> None:
    cluster = FakeCluster([8, 1, 16, 2])
    topics = [f"t{n}" for n in range(9)]
    agreed = agree(cluster, known=[16, 2], topics=[*reversed(topics), *topics])
    assert [asked for asked, _ in cluster.asked] == [2, 16, 1, 8]
    assert [view.answered_by for view in agreed.views] == [1, 2, 8, 16]
    assert [topic.name for topic in cluster.requests[0].topics] == topics


def test_brokers_are_all_named_brokers_sorted_by_id(cluster: FakeCluster) -> None:
    one, two, _ = agree(cluster).views
    agreed = AgreedMetadata((replace(one, brokers=(broker(16),)), replace(two, brokers=(broker(8), broker(9)))), ())
    assert [b.broker_id for b in agreed.brokers] == [8, 9, 16]


def test_errors_are_sorted_by_broker_id(cluster: FakeCluster) -> None:
    cluster.unreachable = {1, 3}
    assert [error.broker for error in agree(cluster, known=[2, 3]).errors] == [1, 3]


def test_a_missing_answer_is_an_error(cluster: FakeCluster) -> None:
    with pytest.raises(ValueError, match="shorter"):
        read_all_views(cluster.send, (1, 2), ["t"], lambda ask, ids: one_by_one(ask, ids)[:1], lambda brokers: None)


def test_a_newly_named_broker_can_disagree(cluster: FakeCluster) -> None:
    cut_off(cluster, 3, epoch=9)
    assert "disagree" in why_not(agree(cluster, known=[1]))


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_a_missing_or_forbidden_topic_has_the_brokers_own_error(cluster: FakeCluster, code: ErrorCode) -> None:
    cluster.topic_errors["t"] = int(code)
    needs = needing(Failure(f"t: {code.name}", code.name), Permission("Describe", "Topic", "t"))
    assert failure_of(agree(cluster)) == needs


def test_a_topic_unknown_to_one_broker_and_hidden_by_another_is_a_disagreement(
    cluster: FakeCluster,
    wording: SnapshotAssertion,
) -> None:
    cluster.topic_errors["t"] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    cluster.believes[2] = FakeCluster()
    why = why_not(agree(cluster))
    assert "TOPIC_AUTHORIZATION_FAILED" in str(why) and "UNKNOWN_TOPIC_OR_PARTITION" in str(why)
    assert why == wording


SAME, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)
UNKNOWN, HIDDEN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED
# Name, the topic at each broker, and the fate of the topic with the id SAME.
GONE: tuple[tuple[str, tuple[uuid.UUID | ErrorCode, ...], str | None], ...] = (
    ("all brokers show it", (SAME, SAME, SAME), None),
    ("no broker knows it", (UNKNOWN, UNKNOWN, UNKNOWN), TOPIC_DELETED),
    ("one broker still shows it", (UNKNOWN, SAME, UNKNOWN), None),
    ("one broker does not know it", (SAME, UNKNOWN, SAME), None),
    ("all brokers show another topic of the name", (OTHER, OTHER, OTHER), TOPIC_RECREATED),
    ("one broker does not know the other topic yet", (OTHER, UNKNOWN, OTHER), TOPIC_RECREATED),
    ("one broker still shows it, the others another one", (OTHER, SAME, OTHER), None),
    ("the principal may not describe it", (HIDDEN, HIDDEN, HIDDEN), None),
    ("one broker hides it", (UNKNOWN, HIDDEN, UNKNOWN), None),
    ("brokers show no topic ids", (uuid.UUID(int=0),) * 3, None),
)


def test_a_topic_is_gone_if_no_broker_shows_or_hides_its_id(cluster: FakeCluster) -> None:
    topic_id = base64.urlsafe_b64encode(SAME.bytes).rstrip(b"=").decode()
    with Cases() as cases:
        for name, shown, how in GONE:
            with cases.case(name):
                for broker_id, what in enumerate(shown, 1):
                    cluster.believes[broker_id] = one = FakeCluster()
                    if isinstance(what, ErrorCode):
                        one.topic_errors["t"] = int(what)
                    else:
                        one.lead("t", [1])
                        one.partitions["t", 0].topic_id = what
                agreed = agree(cluster)
                assert agreed.gone("t", topic_id) == how
                assert agreed.gone("t", "") == (TOPIC_DELETED if how == TOPIC_DELETED else None)
                first, *rest = agreed.views
                foreign = replace(first, cluster_id="another")
                assert AgreedMetadata((foreign, *rest), ()).gone("t", topic_id) is None
        with cases.case("the ends have different names"):
            assert (TOPIC_DELETED, TOPIC_RECREATED) == ("topic_deleted", "topic_recreated")
        with cases.case("a broker does not answer"):
            cluster.believes = {broker_id: FakeCluster() for broker_id in (1, 2, 3)}
            cluster.unreachable = {3}
            assert agree(cluster).gone("t", topic_id) is None


def test_a_failure_names_the_missing_permission_without_a_principal(cluster: FakeCluster) -> None:
    cluster.topic_errors["t"] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    failure = failure_of(agree(cluster))
    assert (failure.error, failure.needs) == ("t: TOPIC_AUTHORIZATION_FAILED", Permission("Describe", "Topic", "t"))
    assert "--allow-principal User:bob" in str(said(failure, "User:bob"))


def test_a_partition_outside_the_topic_is_unknown(cluster: FakeCluster, wording: SnapshotAssertion) -> None:
    assert why_not(agree(cluster), index=3) == wording


def test_a_partition_without_a_leader_is_unknown(cluster: FakeCluster) -> None:
    cluster.partitions["t", 0].leader = -1
    assert why_not(agree(cluster)) == "t-0 has no leader"


def test_a_leader_without_the_listener_of_the_client_is_unknown(cluster: FakeCluster) -> None:
    cluster.partitions["t", 0].leader = NO_LISTENER_ID
    with pytest.raises(LeaderUnknown) as error:
        agree(cluster).partition("t", 0)
    assert error.value.failure.code is FailureCode.NO_LISTENER
    assert error.value.failure.error.startswith("t-0 has a leader")


def test_a_leader_without_a_leader_epoch_is_unknown(cluster: FakeCluster) -> None:
    cluster.partitions["t", 0].epoch = -1
    why_not(agree(cluster))


def test_a_broker_of_another_cluster_is_a_disagreement(cluster: FakeCluster) -> None:
    views = agree(cluster).views
    stranger = ClusterView(3, "another cluster", views[2].brokers, views[2].topics)
    why_not(AgreedMetadata((*views[:2], stranger), ()))


def test_a_broker_naming_two_leaders_for_a_partition_is_a_disagreement(cluster: FakeCluster) -> None:
    views = agree(cluster).views
    doubled = [
        replace(v, topics=(replace(v.topics[0], leaders=(2,) * len(v.topics[0].leaders)), *v.topics)) for v in views
    ]
    why_not(AgreedMetadata(tuple(doubled), ()))


# --- a proven row against the later agreed ----------------------------------------------------------------------------


def row(**changes: object) -> ProvenRow:
    values = {"topic": "t", "topic_id": "", "partition": 0, "leader": 1, "leader_epoch": 5, "read_at_ms": 0}
    return ProvenRow(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({}, None, "the same leader at the same epoch"),
        ({"leader": 2}, "the leader moved during the read", "another leader"),
        ({"leader_epoch": 4}, "the leader moved during the read", "a leader elected again at the next epoch"),
        ({"topic_id": "old"}, "the topic was deleted and created again", "another topic of that name"),
        ({"partition": 9}, "t is not in the brokers' metadata", "a partition that is no more"),
        ({"failure": failed("FENCED_LEADER_EPOCH"), "leader": 2}, "FENCED_LEADER_EPOCH", "the first error stands"),
    ],
)
def test_a_fenced_row_is_confirmed_only_while_brokers_agree_on_its_leader(
    cluster: FakeCluster, changes: dict[str, object], error: str | None, why: str
) -> None:
    assert said(confirmed(row(**changes), agree(cluster)).failure) == error, why


# --- the latest known leader, without proof ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("beliefs", "leader", "why"),
    [
        ({}, 1, "all say the same"),
        ({3: {"leader": 2, "epoch": 6}}, 2, "one has heard of a later epoch"),
        ({1: {"leader": 2, "epoch": 4}, 2: {"leader": 2, "epoch": 4}}, 1, "most are behind"),
        ({3: {"leader": -1, "epoch": 6}}, None, "at the latest epoch nobody leads"),
        ({3: {"leader": 2, "epoch": 5}}, None, "two lead at one epoch"),
        ({2: {"leader": 0, "epoch": 6}}, 0, "broker 0 leads like any other"),
        ({1: {"leader": 1, "epoch": 0}, 2: {"leader": 1, "epoch": 0}, 3: {"leader": 1, "epoch": 0}}, 1, "at epoch 0"),
    ],
)
def test_the_latest_leader_has_the_highest_epoch_of_any_broker(
    cluster: FakeCluster, beliefs: dict[int, dict[str, int]], leader: int | None, why: str
) -> None:
    for broker_id, belief in beliefs.items():
        cut_off(cluster, broker_id, **belief)
    agreed = agree(cluster)
    assert agreed.latest_leader("t", 0) == leader, why
    assert agreed.latest_leader("t", 1) == 2, "it is asked for each partition by itself"


def test_without_any_answer_or_name_there_is_no_latest_leader(
    cluster: FakeCluster,
) -> None:
    assert agree(cluster).latest_leader("t", 3) is agree(cluster).latest_leader("u", 0) is None
    cluster.unreachable |= {1, 2, 3}
    assert agree(cluster).latest_leader("t", 0) is None


def test_the_latest_leader_is_known_despite_an_unreachable_broker(cluster: FakeCluster) -> None:
    cluster.unreachable.add(3)
    assert agree(cluster).errors != () and agree(cluster).latest_leader("t", 0) == 1


def test_the_view_of_each_broker_is_separate(cluster: FakeCluster) -> None:
    cut_off(cluster, 2, leader=3, epoch=4)
    cluster.unreachable.add(3)
    agreed = agree(cluster)
    one, two = agreed.view_of(1), agreed.view_of(2)
    assert one is not None and two is not None and agreed.view_of(3) is None
    assert (one.answered_by, one.topics[0].leaders[0]) == (1, 1)
    assert (two.answered_by, two.topics[0].leaders[0]) == (2, 3)


def test_brokers_are_behind_below_an_offset(cluster: FakeCluster) -> None:
    agreed = replace(agree(cluster), offsets={-1: 3, 0: 4, 1: 5, 2: 6})
    assert [agreed.behind(offset) for offset in (4, 5, 6, 7)] == [{}, {0: 4}, {0: 4, 1: 5}, {0: 4, 1: 5, 2: 6}]


def test_a_broker_reaches_the_only_view_by_its_offset(cluster: FakeCluster) -> None:
    every = agree(cluster)
    view = every.views[0]
    one = replace(every, views=(view,), offsets={1: 0, 2: 4, 3: 5}, shown_by_offset=5)
    cases = (
        ("the same offset", one, 3, view),
        ("an older image", one, 2, None),
        ("the first offset of all", replace(one, shown_by_offset=0), 1, view),
        ("a broker that reported no offset", replace(one, shown_by_offset=0), 4, None),
        ("no offset shows the view", replace(one, shown_by_offset=None), 3, None),
        ("by itself, no offset does", AgreedMetadata((view,), (), {1: 5}), 1, None),
        ("several views", replace(every, offsets={1: 5}, shown_by_offset=5), 1, None),
    )
    with Cases() as table:
        for name, agreed, broker_id, expected in cases:
            with table.case(name):
                assert agreed.reached_by(broker_id) is expected


def test_unproven_views_show_leaders_though_brokers_did_not_answer(cluster: FakeCluster) -> None:
    error = Unobserved("metadata", failed("broker 3 is down"), 3)
    agreed = replace(agree(cluster), errors=(error,))
    assert "broker 3 is down" in why_not(agreed)
    assert agreed.unproven.partition("t", 1).leader == 2
    assert (agreed.unproven.views, agreed.errors) == (agreed.views, (error,))


def test_transactions_end_with_a_deleted_and_with_a_recreated_topic() -> None:
    assert {*WITH_TOPIC} == {TOPIC_DELETED, TOPIC_RECREATED}
