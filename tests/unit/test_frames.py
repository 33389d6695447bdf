"""Answers as bytes: decoded as kafka-python decodes them, and refused if damaged."""

from __future__ import annotations

import struct
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.admin import DescribeProducersRequest, DescribeProducersResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tests.builders import said
from tests.fakes.cluster import MetadataTopic, ProducersPartition, ProducersTopic, as_bytes, producer, producer_state
from tests.sim import encode
from txnscan.kafka.answers import OpenProducer
from txnscan.kafka.errors import RequestFailed, error_name
from txnscan.kafka.protocol import describe_producers, metadata
from txnscan.kafka.protocol.frames import AsBytes, Body, Cursor
from txnscan.kafka.topology import Partition

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
START_OFFSETS = st.one_of(st.just(-1), st.sampled_from([0, 1, 255, 2**56, -2, -(2**63)]), INT64)
PRODUCERS = st.builds(
    OpenProducer,
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=INT32,
    coordinator_epoch=INT32,
    start_offset=START_OFFSETS,
    last_timestamp_ms=INT64,
    last_sequence=INT32,
)
# Lengths of one byte, and longer ones.
MANY = st.builds(
    lambda count, start_offset: [producer(number, start_offset) for number in range(count)],
    st.sampled_from([125, 126, 127, 128, 200]),
    START_OFFSETS,
)
DESCRIBED = st.lists(
    st.tuples(
        st.text(max_size=5),
        st.dictionaries(
            st.integers(0, 2**31 - 1),
            st.tuples(
                st.sampled_from([0, 0, 0, 6]),
                st.sampled_from([None, None, "", "why not"]),
                st.one_of(st.lists(PRODUCERS, max_size=4, unique_by=lambda p: p.producer_id), MANY),
            ),
            max_size=4,
        ),
    ),
    max_size=3,
    unique_by=lambda topic: topic[0],
)
Described = list[tuple[str, dict[int, tuple[int, str | None, list[OpenProducer]]]]]


def answer(topics: Described) -> Any:
    return DescribeProducersResponse(
        throttle_time_ms=7,
        topics=[
            ProducersTopic(
                name=name,
                partitions=[
                    ProducersPartition(
                        partition_index=index,
                        error_code=code,
                        error_message=message,
                        active_producers=[producer_state(p) for p in producers],
                    )
                    for index, (code, message, producers) in partitions.items()
                ],
            )
            for name, partitions in topics
        ],
    )


IDLE = answer([("t", {0: (0, None, [producer(1, -1), producer(2, -1)]), 1: (0, None, [])})])
OPEN = answer([("t", {0: (0, None, [producer(1, -1), producer(2, 40)]), 5: (6, "moved", [])})])


@given(DESCRIBED)
def test_open_producers_equal_kafka_pythons(topics: Described) -> None:
    body = as_bytes(answer(topics))
    theirs = DescribeProducersResponse.decode(body.data, version=0)
    expected = {}
    for topic in theirs.topics:
        for p in topic.partitions:
            held = [p for p in p.active_producers if p.current_txn_start_offset >= 0]
            expected[topic.name, p.partition_index] = (
                (0, [], error_name(p.error_code))
                if p.error_code
                else (len(p.active_producers), sorted((h.producer_id, h.current_txn_start_offset) for h in held), None)
            )
    ours = describe_producers.decode(body, 99)
    found = {
        key: (d.producers, [(p.producer_id, p.start_offset) for p in d.open_producers], said(d.failure))
        for key, d in ours.items()
    }
    assert found == expected
    assert body.throttle_time_ms == 7


@given(PRODUCERS.filter(lambda p: p.start_offset >= 0))
def test_every_field_of_an_open_transaction_is_decoded(shown: OpenProducer) -> None:
    body = as_bytes(answer([("t", {3: (0, None, [producer(shown.producer_id ^ 1, -1), shown])})]))
    assert describe_producers.decode(body, 99)["t", 3].open_producers == (shown,)


def tagged(data: bytes, at: int) -> bytes:
    """The same with a tagged field, number 9 of three bytes, where there was none."""
    assert data[at] == 0
    return data[:at] + bytes((1, 9, 3)) + b"abc" + data[at + 1 :]


def tag_places(data: bytes) -> list[int]:
    """The places of tagged fields in `data`: every zero byte that may grow without a change of the decoded values."""
    places = []
    plain = describe_producers.decode(Body(0, data), 99)
    for at in (at for at, byte in enumerate(data) if byte == 0):
        try:
            same = describe_producers.decode(Body(0, tagged(data, at)), 99) == plain
        except RequestFailed:
            continue
        if same:
            places.append(at)
    return places


@pytest.mark.parametrize(("shown", "entries"), [(IDLE, 2 + 2 + 1 + 1), (OPEN, 2 + 2 + 1 + 1)])
def test_unknown_tagged_fields_are_skipped_anywhere(shown: Any, entries: int) -> None:
    assert len(tag_places(as_bytes(shown).data)) == entries, "each producer, each partition, the topic, the answer"


@pytest.mark.parametrize("shown", [IDLE, OPEN])
def test_a_truncated_or_extended_answer_is_refused_at_every_length(shown: Any) -> None:
    data = as_bytes(shown).data
    for size in range(len(data)):
        with pytest.raises(RequestFailed):
            describe_producers.decode(Body(0, data[:size]), 99)
    with pytest.raises(RequestFailed, match="1 bytes too many"):
        describe_producers.decode(Body(0, data + b"\0"), 99)


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_answer_is_decoded_or_refused(data: st.DataObject) -> None:
    whole = bytearray(as_bytes(data.draw(st.sampled_from([IDLE, OPEN]))).data)
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=4)):
        whole[at] = data.draw(st.integers(0, 255))
    try:
        describe_producers.decode(Body(0, bytes(whole)), 99)
    except RequestFailed as failed:
        assert failed.error.startswith("an answer cannot be decoded: ")


def open_in(data: bytes, asked: dict[str, list[int]], in_order: bool) -> object:
    """The open transactions and some closed producers in an answer to a request for these partitions, or that it is
    refused. in_order: decoded in the order of the request, if possible.
    """
    unordered = () if in_order else (patch.object(describe_producers, "_in_request_order", lambda *_: None),)
    with ExitStack() as stack:
        for one in unordered:
            stack.enter_context(one)
        try:
            return describe_producers.describe_open(lambda *_: Body(0, data), 1, asked, range(10))
        except RequestFailed:
            return "refused"


@given(DESCRIBED, st.sets(st.integers(0, 9), max_size=3))
def test_requested_closed_producers_equal_those_of_the_whole_answer(topics: Described, wanted: set[int]) -> None:
    body = as_bytes(answer(topics))
    asked = {name: list(partitions) for name, partitions in topics}
    found = describe_producers.describe_open(lambda *_: Body(0, body.data), 1, asked, wanted)
    every = describe_producers.describe_all_producers(lambda *_: Body(0, body.data), 1, asked)
    unusable = {key for key, one in found.partitions.items() if one.failure is not None}
    expected = {
        key: tuple(p for p in one.producers if p.producer_id in wanted and p.start_offset < 0)
        for key, one in every.items()
        if key not in unusable
    }
    assert {key: sorted(one, key=id_of) for key, one in found.closed.items()} == {
        key: sorted(one, key=id_of) for key, one in expected.items() if one
    }
    assert replace(found, closed={}) == describe_producers.describe_open(lambda *_: Body(0, body.data), 1, asked)


@given(DESCRIBED)
def test_counted_producers_with_an_end_equal_those_of_the_whole_answer(topics: Described) -> None:
    body = as_bytes(answer(topics))
    asked = {name: list(partitions) for name, partitions in topics}
    found = describe_producers.describe_open(lambda *_: Body(0, body.data), 1, asked, with_ended=True)
    every = describe_producers.describe_all_producers(lambda *_: Body(0, body.data), 1, asked)
    with_end = {
        key: [p.last_timestamp_ms for p in one.producers if p.coordinator_epoch >= 0]
        for key, one in every.items()
        if key not in found.partitions or found.partitions[key].failure is None
    }
    assert {key: (one.count, one.newest_ms) for key, one in found.ended.items()} == {
        key: (len(times), max(-1, *times)) for key, times in with_end.items() if times
    }


def id_of(one: OpenProducer) -> int:
    """The order of producers in a partition."""
    return one.producer_id


@given(DESCRIBED, st.data())
def test_open_transactions_do_not_depend_on_the_order_of_the_answer(topics: Described, data: st.DataObject) -> None:
    answered = {name: list(partitions) for name, partitions in topics}
    fewer = {name: indexes[1:] for name, indexes in answered.items()}
    more = {**answered, "more": [0]}
    asked = data.draw(st.sampled_from([answered, dict(reversed(answered.items())), fewer, more]))
    body = as_bytes(answer(topics))
    assert open_in(body.data, asked, True) == open_in(body.data, asked, False) != "refused"


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_answer_is_decoded_alike_in_any_order(data: st.DataObject) -> None:
    whole = bytearray(as_bytes(data.draw(st.sampled_from([IDLE, OPEN]))).data)
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=3)):
        whole[at] = data.draw(st.integers(0, 255))
    size = data.draw(st.sampled_from([len(whole), len(whole) - 1, len(whole) // 2]))
    asked = {"t": data.draw(st.sampled_from([[0, 1], [0, 5]]))}
    ordered, unordered = (open_in(bytes(whole[:size]), asked, in_order) for in_order in (True, False))
    assert ordered == unordered


def test_an_oversized_list_is_refused_before_it_is_read() -> None:
    claim = struct.pack(">i", 0) + b"\x02" + b"\x02t" + b"\x02" + struct.pack(">ih", 0, 0) + b"\x00"
    with pytest.raises(RequestFailed, match="fewer producers than it says"):
        describe_producers.decode(Body(0, claim + b"\xff\xff\xff\xff\x07"), 99)


def test_the_simulator_encodes_answers_as_kafka_python_does() -> None:
    for shown in (IDLE, OPEN):
        shown.throttle_time_ms = 0
        for topic in shown.topics:
            for p in topic.partitions:
                p.error_message = None
        assert encode.described_producers(shown).data == as_bytes(shown).data


# --- Metadata ---------------------------------------------------------------------------------------------------------

REPLICAS = st.lists(st.integers(0, 9), max_size=3)
PARTITION = st.builds(
    MetadataTopic.MetadataResponsePartition,
    error_code=st.sampled_from([0, 5, 72]),
    partition_index=st.integers(0, 2**31 - 1),
    leader_id=st.integers(-1, 9),
    leader_epoch=st.integers(-1, 300),
    replica_nodes=st.one_of(REPLICAS, st.just(list(range(130)))),
    isr_nodes=REPLICAS,
    offline_replicas=REPLICAS,
)
# As on most topics: as many replicas, in-sync and offline replicas on each partition.
ALIKE = st.tuples(st.integers(1, 6), st.integers(0, 3), st.integers(0, 3), st.integers(0, 1)).map(
    lambda sizes: [
        MetadataTopic.MetadataResponsePartition(
            error_code=72 * (sizes[3] and number % 3 == 0),
            partition_index=number,
            leader_id=number % 3 - sizes[3],
            leader_epoch=number,
            replica_nodes=list(range(sizes[1])),
            isr_nodes=list(range(sizes[2])),
            offline_replicas=list(range(sizes[3])),
        )
        for number in range(sizes[0])
    ]
)
TOPIC = st.builds(
    MetadataTopic,
    error_code=st.sampled_from([0, 0, 0, 29]),
    name=st.text(min_size=1, max_size=5),
    topic_id=st.sampled_from([uuid.UUID(int=0), uuid.UUID(int=1), uuid.UUID(int=2**127 + 5)]),
    is_internal=st.booleans(),
    partitions=st.one_of(st.lists(PARTITION, max_size=4, unique_by=lambda p: p.partition_index), ALIKE),
)
METADATA = st.builds(
    MetadataResponse,
    throttle_time_ms=st.just(7),
    brokers=st.lists(
        st.builds(
            MetadataResponse.MetadataResponseBroker,
            node_id=st.integers(0, 99),
            host=st.sampled_from(["a", "::1"]),
            port=st.integers(1, 65535),
            rack=st.sampled_from([None, "r"]),
        ),
        max_size=3,
        unique_by=lambda b: b.node_id,
    ),
    cluster_id=st.sampled_from([None, "", "c"]),
    controller_id=st.integers(-1, 3),
    topics=st.lists(TOPIC, max_size=4, unique_by=lambda t: t.name),
)


@given(METADATA, st.integers(3, 12))
def test_metadata_of_every_version_equals_kafka_pythons(shown: Any, version: int) -> None:
    body = Body(version, bytes(shown.encode(version=version)))
    theirs = MetadataResponse.decode(body.data, version=version)
    ours = metadata.decode(body)
    assert body.throttle_time_ms == 7
    assert ours.cluster_id == (theirs.cluster_id or "")
    assert {b.cluster_id for b in ours.brokers} <= {ours.cluster_id}
    assert [(b.broker_id, b.host, b.port) for b in ours.brokers] == sorted(
        (b.node_id, b.host, b.port) for b in theirs.brokers
    )
    assert ours.topic_errors == tuple(sorted((t.name, error_name(t.error_code)) for t in theirs.topics if t.error_code))
    partitions = sorted(
        (
            t.name,
            p.partition_index,
            # LISTENER_NOT_FOUND: there is a leader, but none that this client can reach.
            -2 if p.error_code == 72 and p.leader_id == -1 else p.leader_id,
            p.leader_epoch if version >= 7 else -1,
        )
        for t in theirs.topics
        if not t.error_code
        for p in t.partitions
    )
    assert [(p.topic, p.partition, p.leader, p.leader_epoch) for p in ours.partitions] == partitions


@pytest.mark.parametrize("leader_id", [-1, -2, -16711681, 3])
def test_the_error_of_a_partition_names_its_missing_leader_in_both_ways(leader_id: int) -> None:
    partition = MetadataTopic.MetadataResponsePartition(error_code=72, partition_index=0, leader_id=leader_id)
    assert_decoded_alike(as_bytes_v12(MetadataResponse(topics=[MetadataTopic(name="t", partitions=[partition])])).data)


@settings(max_examples=300)
@given(ALIKE, st.data())
def test_damaged_partitions_are_decoded_the_same_one_by_one(partitions: Any, data: st.DataObject) -> None:
    shown = MetadataResponse(topics=[MetadataTopic(name="t", partitions=partitions)])
    whole = bytearray(as_bytes_v12(shown).data)
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=2)):
        whole[at] = data.draw(st.integers(0, 255))
    assert_decoded_alike(whole)


def assert_decoded_alike(whole: bytes | bytearray) -> None:
    def decoded() -> object:
        try:
            return metadata.decode(Body(12, bytes(whole)))
        except RequestFailed:
            return "refused"

    together = decoded()
    with patch.object(metadata, "partitions_alike", lambda *_: None):
        assert decoded() == together


def shown_topic() -> Any:
    partition = MetadataTopic.MetadataResponsePartition(
        error_code=0, partition_index=4, leader_id=2, leader_epoch=9, replica_nodes=[2, 3], isr_nodes=[2]
    )
    topic = MetadataTopic(error_code=0, name="t", topic_id=uuid.UUID(int=2**127 + 5), partitions=[partition])
    broker = MetadataResponse.MetadataResponseBroker(node_id=2, host="h", port=9)
    return MetadataResponse(brokers=[broker], cluster_id="c", topics=[topic])


def test_a_topic_id_is_printed_as_in_kafka() -> None:
    (found,) = metadata.decode(as_bytes_v12(shown_topic())).partitions
    assert found == Partition("t", "gAAAAAAAAAAAAAAAAAAABQ", 4, 2, 9)


def as_bytes_v12(shown: Any) -> Body:
    return Body(12, bytes(shown.encode(version=12)))


def test_truncated_or_extended_metadata_is_refused_at_every_length() -> None:
    data = as_bytes_v12(shown_topic()).data
    for size in range(len(data)):
        with pytest.raises(RequestFailed):
            metadata.decode(Body(12, data[:size]))
    with pytest.raises(RequestFailed, match="1 bytes too many"):
        metadata.decode(Body(12, data + b"\0"))


def on_the_wire(request: Any, version: int) -> bytes:
    request.API_VERSION = version
    request.with_header(correlation_id=7, client_id="txnscan")
    return bytes(request.encode(header=True, framed=True))


@given(st.dictionaries(st.one_of(st.text(max_size=5), st.just("t" * 127)), st.lists(INT32, max_size=200), max_size=200))
def test_a_producers_request_is_encoded_as_kafka_python_encodes_it(partitions: dict[str, list[int]]) -> None:
    topic = DescribeProducersRequest.TopicRequest
    theirs = DescribeProducersRequest(topics=[topic(name=t, partition_indexes=i) for t, i in partitions.items()])
    ours = AsBytes(DescribeProducersRequest(topics=[]), lambda _: describe_producers.encode(partitions))
    assert on_the_wire(ours, 0) == on_the_wire(theirs, 0)


@pytest.mark.parametrize("topics", [None, (), ("b", "a")])
def test_a_round_sends_every_broker_the_same_request_in_its_version(topics: Any) -> None:
    asked, versions, sent = metadata.MetadataRound(topics), (12, 12, 9, 3), []

    def send(broker_id: int, request: Any) -> Body:
        sent.append(on_the_wire(request, versions[broker_id]))
        return as_bytes_v12(shown_topic())

    for broker_id in range(len(versions)):
        asked.ask(send, broker_id)
    wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(topics)]
    theirs = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    assert sent == [on_the_wire(theirs, version) for version in versions]


def test_equal_answers_are_decoded_once_regardless_of_throttle_time() -> None:
    asked, shown = metadata.MetadataRound(), shown_topic()

    def topics() -> object:
        return asked.ask(lambda broker_id, request: as_bytes_v12(shown), 1).topics

    first = topics()
    shown.throttle_time_ms = 5
    assert topics() is first
    shown.cluster_id = "d"
    assert topics() is not first


def topics_of(asked: metadata.MetadataRound, shown: Any, version: int = 12, broker_id: int = 1) -> object:
    """The decoded topics of this answer: the same object if the answer was not decoded again."""
    body = Body(version, bytes(shown.encode(version=version)))
    return asked.ask(lambda _, request: body, broker_id).topics


def test_the_controller_id_does_not_distinguish_answers() -> None:
    """In KRaft mode brokers name any live broker as the controller (`KRaftMetadataCache.getRandomAliveBrokerId`)."""
    asked, shown = metadata.MetadataRound(), shown_topic()
    first = topics_of(asked, shown)
    for controller_id in (-1, 0, 2, 3, 2**31 - 1):
        shown.controller_id = controller_id
        assert topics_of(asked, shown) is first


def _another_leader(shown: Any) -> None:
    shown.topics[0].partitions[0].leader_id = 3


def _another_epoch(shown: Any) -> None:
    shown.topics[0].partitions[0].leader_epoch = 10


def _another_topic_id(shown: Any) -> None:
    shown.topics[0].topic_id = uuid.UUID(int=7)


def _an_error(shown: Any) -> None:
    shown.topics[0].error_code = 29


def _another_broker(shown: Any) -> None:
    shown.brokers.append(MetadataResponse.MetadataResponseBroker(node_id=3, host="h", port=10))


def _another_port(shown: Any) -> None:
    shown.brokers[0].port = 10


def _another_cluster(shown: Any) -> None:
    shown.cluster_id = "d"


def _no_cluster(shown: Any) -> None:
    shown.cluster_id = None


@pytest.mark.parametrize("version", [9, 12])
@pytest.mark.parametrize(
    "change",
    [
        *(_another_leader, _another_epoch, _an_error),
        *(_another_broker, _another_port, _another_cluster, _no_cluster),
    ],
)
def test_any_difference_in_a_decoded_field_distinguishes_answers(change: Callable[[Any], object], version: int) -> None:
    asked, shown = metadata.MetadataRound(), shown_topic()
    first = topics_of(asked, shown, version)
    change(shown)
    assert topics_of(asked, shown, version) is not first
    assert topics_of(asked, shown_topic(), version) is first


def test_a_recreated_topic_distinguishes_answers() -> None:
    asked, shown = metadata.MetadataRound(), shown_topic()
    first = topics_of(asked, shown)
    _another_topic_id(shown)
    assert topics_of(asked, shown) is not first


@given(METADATA, METADATA, st.integers(9, 12))
def test_answers_are_equal_exactly_if_only_throttle_time_and_controller_differ(
    one: Any, two: Any, version: int
) -> None:
    asked = metadata.MetadataRound()
    two.throttle_time_ms = 9

    bodies = [Body(version, bytes(shown.encode(version=version))) for shown in (one, two)]
    first, second = (asked._said(body) for body in bodies)
    for shown in (one, two):
        shown.throttle_time_ms, shown.controller_id = 0, 0
    assert (first == second) is (one.encode(version=version) == two.encode(version=version))


def test_answers_in_two_versions_are_distinct() -> None:
    asked = metadata.MetadataRound()
    assert len({id(topics_of(asked, shown_topic(), version)) for version in (7, 9, 10, 12)}) == 4
    assert topics_of(asked, shown_topic(), 7) is topics_of(asked, shown_topic(), 7), "an old one is compared whole"


def test_a_shared_answer_keeps_its_broker() -> None:
    asked, body = metadata.MetadataRound(), as_bytes_v12(shown_topic())
    assert [asked.ask(lambda b, r: body, broker_id).answered_by for broker_id in (1, 2)] == [1, 2]


def test_a_round_refuses_a_truncated_answer_at_every_length() -> None:
    asked, data = metadata.MetadataRound(), as_bytes_v12(shown_topic()).data
    asked.ask(lambda b, r: Body(12, data), 1)
    for size in range(len(data)):
        cut = Body(12, data[:size])
        for one in (asked, metadata.MetadataRound()):
            with pytest.raises(RequestFailed):
                one.ask(lambda b, r, cut=cut: cut, 1)


def test_an_undecodable_answer_fails_only_its_own_brokers() -> None:
    asked, good = metadata.MetadataRound(), as_bytes_v12(shown_topic())
    for broker_id in (1, 2):
        with pytest.raises(RequestFailed, match="1 bytes too many"):
            asked.ask(lambda b, r: Body(12, good.data + b"\0"), broker_id)
    assert asked.ask(lambda b, r: good, 3).answered_by == 3


def test_an_answer_shared_by_threads_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding holds no lock: a different answer is decoded meanwhile."""
    asked, one, other = metadata.MetadataRound(), shown_topic(), shown_topic()
    _another_cluster(other)
    other_is_done, real, decoded = threading.Event(), metadata.decode, []

    def decode(body: Body) -> Any:
        found = real(body)
        decoded.append(found.cluster_id)
        if found.cluster_id == "c":
            assert other_is_done.wait(600)
        return found

    monkeypatch.setattr(metadata, "decode", decode)
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(topics_of, asked, one) for _ in range(7)]
        pool.submit(topics_of, asked, other).result(30)
        other_is_done.set()
        assert len({id(found.result(30)) for found in waiting}) == 1
    assert sorted(decoded) == ["c", "d"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is cut short"),
        (b"\xff\xff\xff\xff\xff\x01", "a number in it is too long"),
        (b"\x00", "null in place of a list"),
    ],
)
def test_an_invalid_length_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(RequestFailed, match=why):
        Cursor(data).length()


def test_a_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(RequestFailed, match="not UTF-8"):
        Cursor(b"\x02\xff").string()
