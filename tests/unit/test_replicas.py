"""The replicas in Metadata and DescribeTopicPartitions, as real brokers and kafka-python encode them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.admin import DescribeTopicPartitionsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tests.cases import Cases
from tests.golden import shape, store
from tests.golden.raw import Replay, Sender
from tests.golden.record import VERSIONS
from tests.golden.shape import REPLICAS, REPLICAS_OF
from tests.golden.shaping import SHAPE
from txnscan.demo.jars import OLD_KAFKA_VERSION
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import FailureCode
from txnscan.kafka.protocol.frames import Body
from txnscan.kafka.protocol.metadata import decode as decode_leaders
from txnscan.kafka.protocol.replicas import decode, read_incomplete, read_on_brokers, read_replicas, with_eligible
from txnscan.kafka.topology import NO_LEADER_ID, NO_LISTENER_ID, PartitionReplicas

TOPIC = MetadataResponse.MetadataResponseTopic
VERSIONS_OF_METADATA = range(3, 13)


def answer(version: int, *partitions: Any, topic: str = "t", more: tuple[Any, ...] = ()) -> Body:
    """An answer about a topic with these partitions, and about further topics."""
    broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="b", port=9092, rack="r")
    topics = [TOPIC(error_code=0, name=topic, partitions=list(partitions)), *more]
    made = MetadataResponse(version=version, brokers=[broker], cluster_id="c", controller_id=1, topics=topics)
    return Body(version, bytes(made.encode(version=version)))


def shown(index: int, leader: int, in_sync: tuple[int, ...], offline: tuple[int, ...] = (), error: int = 0) -> Any:
    return TOPIC.MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=4,
        replica_nodes=[1, 2, 3],
        isr_nodes=list(in_sync),
        offline_replicas=list(offline),
    )


def test_every_version_shows_replicas_and_why_there_is_no_leader() -> None:
    none, no_listener = ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LISTENER_NOT_FOUND
    given = (
        shown(0, 1, (1, 2, 3)),
        shown(1, 2, (2,), (1, 3)),
        shown(2, NO_LEADER_ID, (3,), (3,), none),
        shown(3, NO_LEADER_ID, (1, 2), (), no_listener),
    )
    with Cases() as cases:
        for version in VERSIONS_OF_METADATA:
            with cases.case(version):
                # The field is of v5 and later.
                offline = ((1, 3), (3,)) if version >= 5 else ((), ())
                every = [
                    PartitionReplicas("t", 0, 1, (1, 2, 3), (1, 2, 3)),
                    PartitionReplicas("t", 1, 2, (1, 2, 3), (2,), offline[0]),
                    PartitionReplicas("t", 2, NO_LEADER_ID, (1, 2, 3), (3,), offline[1]),
                    PartitionReplicas("t", 3, NO_LISTENER_ID, (1, 2, 3), (1, 2)),
                ]
                # The field is of v7 and later.
                every = [replace(one, leader_epoch=4 if version >= 7 else -1) for one in every]
                assert [*decode(answer(version, *given))] == every
                body = answer(version, shown(0, 1, (1, 2, 3)), topic="whole", more=(TOPIC(0, "t", partitions=given),))
                assert read_incomplete(lambda *_, body=body: body, 1) == every[1:]


def test_topics_of_complete_partitions_are_skipped() -> None:
    whole = answer(12, shown(0, 1, (1, 2, 3)), shown(1, 2, (1, 2, 3)))
    assert [*decode(whole, only_incomplete=True)] == [] and len([*decode(whole)]) == 2
    alike = answer(12, shown(0, 1, (1, 2)), shown(1, 2, (2, 3)))
    assert len(read_incomplete(lambda *_: alike, 1)) == 2
    no_leader = answer(
        12, shown(0, 1, (1, 2, 3)), shown(1, NO_LEADER_ID, (1, 2, 3), (), ErrorCode.LEADER_NOT_AVAILABLE)
    )
    assert read_incomplete(lambda *_: no_leader, 1) == [
        PartitionReplicas("t", 1, NO_LEADER_ID, (1, 2, 3), (1, 2, 3), leader_epoch=4),
    ]


def test_only_wanted_partitions_are_decoded() -> None:
    alike = [shown(index, 1, (1, 2, 3)) for index in (4, 0, 2, 1, 3)]
    uneven = [*alike[:4], shown(3, 1, (1, 2))]
    numbers = {"t": {0, 3}, "all": None}
    with Cases() as cases:
        for version in VERSIONS_OF_METADATA:
            for name, given in (("alike", alike), ("uneven", uneven)):
                with cases.case((version, name)):
                    body = answer(version, *given, more=(TOPIC(0, "all", partitions=given),))
                    found = read_replicas(lambda *_, body=body: body, 1, numbers)
                    every = {one.key: one for one in decode(body)}
                    assert found == {key: one for key, one in every.items() if key[0] == "all" or key[1] in (0, 3)}
                    assert len(found) == 7


def on(brokers: tuple[int, ...], topics: tuple[str, ...], body: Body) -> tuple[list[str], int]:
    """The names of the partitions that are kept for these brokers and topics, and the number of all partitions."""
    found = read_on_brokers(lambda *_: body, 1, brokers, topics)
    assert found.partitions == tuple(one for one in decode(body) if one in found.partitions)
    return [one.name for one in found.partitions], found.total


def test_of_all_topics_partitions_on_some_brokers_are_kept() -> None:
    """Also partitions without a leader, and all partitions of named topics."""
    none = ErrorCode.LEADER_NOT_AVAILABLE
    given = (shown(0, 1, (1, 2, 3)), shown(1, 2, (2,)))
    lost = TOPIC(0, "lost", partitions=[shown(0, NO_LEADER_ID, (9,), (), none), shown(1, 1, (1,))])
    for one in lost.partitions:
        one.replica_nodes = [9]
    # Its epoch has the bytes of broker 7.
    alike = TOPIC(0, "alike", partitions=[shown(0, 1, (1, 2, 3))])
    alike.partitions[0].leader_epoch = 7
    every = {"t-0", "t-1", "alike-0"}
    cases: tuple[tuple[str, tuple[int, ...], tuple[str, ...], set[str]], ...] = (
        ("a broker of some topics", (1,), (), {*every, "lost-0"}),
        ("two brokers", (3, 9), (), {*every, "lost-0", "lost-1"}),
        ("a broker without replicas", (8,), (), {"lost-0"}),
        ("another number has its bytes", (7,), (), {"lost-0"}),
        ("a topic by its name", (8,), ("t",), {"t-0", "t-1", "lost-0"}),
        ("no broker", (), (), {"lost-0"}),
    )
    with Cases() as table:
        for version in (8, 9, 12):
            body = answer(version, *given, more=(lost, alike))
            for name, brokers, topics, expected in cases:
                with table.case((version, name)):
                    names, total = on(brokers, topics, body)
                    assert ({*names}, total) == (expected, 5)


def test_lists_of_any_length_and_tagged_fields_are_read() -> None:
    many = shown(0, 1, (1, 2, 3))
    many.replica_nodes = list(range(200))
    assert on((150,), (), answer(12, many, shown(1, 1, (1,)))) == (["t-0"], 2)


def test_an_answer_that_is_cut_short_or_too_long_is_an_error() -> None:
    body = answer(12, shown(0, 1, (1, 2, 3)), shown(1, 2, (2,)))
    with Cases() as cases:
        for size in range(4, len(body.data)):
            with cases.case(size), pytest.raises(RequestFailed):
                [*decode(Body(12, body.data[:size]))]
    with pytest.raises(RequestFailed):
        [*decode(Body(12, body.data + b"\0"))]


@pytest.mark.parametrize("kafka", VERSIONS)
def test_recorded_answers_have_the_leaders_that_the_plan_decodes(kafka: str) -> None:
    recording = store.read(kafka, shape.PART)
    asked = [
        one
        for state in recording.states
        for one in state.asked
        if one.api == MetadataRequest.API_KEY and one.version < 13
    ]
    seen = set()
    for one in asked:
        body = Body(one.version, one.answer)
        leaders = {p.key: p.leader for p in decode_leaders(body).partitions}
        found = {p.key: p for p in decode(body)}
        assert {key: p.leader for key, p in found.items() if key in leaders} == leaders
        for p in found.values():
            seen.add((p.leader, p.replicas, p.in_sync))
            assert p.is_complete and p.leader in p.in_sync
    assert {replicas for _, replicas, _ in seen} >= {tuple(SHAPE.replicas(leader)) for leader in SHAPE.broker_ids}


@pytest.mark.parametrize("kafka", [one for one in VERSIONS if one != OLD_KAFKA_VERSION])
def test_recorded_brokers_show_eligible_leader_replicas(kafka: str) -> None:
    recording = store.read(kafka, shape.PART)
    (state,) = (one for one in recording.states if one.label == REPLICAS)
    send = Sender(Replay(recording.offered, state.asked))
    for broker_id in SHAPE.broker_ids:
        found = read_replicas(send, broker_id, dict.fromkeys(REPLICAS_OF))
        nowhere = PartitionReplicas("nowhere", 0, 1, (1,), (1,))
        assert {topic for topic, _ in found} == {*REPLICAS_OF}
        # All replicas are in sync, so none is eligible besides.
        assert with_eligible(send, broker_id, [*found.values(), nowhere]) == [*found.values(), nowhere]


def test_eligible_leader_replicas_are_added_if_the_broker_has_them() -> None:
    one, other = PartitionReplicas("t", 0, -1, (1, 2), ()), PartitionReplicas("u", 3, 1, (1, 2), (1,))
    kind = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
    part = kind.DescribeTopicPartitionsResponsePartition
    shows = DescribeTopicPartitionsResponse(
        topics=[
            kind(error_code=0, name="t", partitions=[part(partition_index=0, eligible_leader_replicas=[2])]),
            kind(error_code=0, name="u", partitions=[part(partition_index=3, eligible_leader_replicas=None)]),
        ]
    )
    assert [p.eligible for p in with_eligible(lambda *_: shows, 1, [one, other])] == [(2,), ()]

    def lacks(broker_id: int, request: Any) -> Any:
        raise RequestFailed("broker 1 does not support it", FailureCode.UNUSABLE_ANSWER)

    assert with_eligible(lacks, 1, [one, other]) == [one, other]
    assert with_eligible(lacks, 1, []) == []
