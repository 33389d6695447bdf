"""The cluster on the wire answers as real brokers do: the same requests to both, and the bytes of the answers compared.

Three real brokers get the topics, the records and the transactions that a small shape says. What cannot be chosen is
learned from them and put in place of the wire cluster's: producer ids, and when transactions began (`Facts.of`), topic
ids, leader epochs, ports and the cluster's id. All other bytes have to be the same, but for these differences:

- the controller is any broker in each answer, of both: compared with the four bytes masked;
- the order of the ids in ListTransactions, of one id's topics in DescribeTransactions, of one topic's partitions in
  ListOffsets, of the groups in ListGroups, and of what OffsetFetch gives of a group as a whole is that of the broker's
  hash tables: compared as sets where there is more than one;
- DescribeConfigs: the wire cluster has a broker's and a topic's settings that matter here, and no others: compared
  where settings are asked for by name, as sets;
- `__consumer_offsets` has no records in the wire cluster, as no sweep reads it where nothing hangs on it: its offsets
  are not compared;
- ApiVersions: the wire cluster offers what it speaks, a part of what brokers offer, and no features.
"""

from __future__ import annotations

import io
import re
import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import pytest
from kafka.protocol.admin import (
    DeleteTopicsRequest,
    DescribeAclsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    JoinGroupRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
)
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import ProduceRequest
from kafka.record import MemoryRecords

from txnscan.demo.admin import create_topic, unverified
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.producer import PRODUCE_V1, Identity, Producer
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.evidence.transaction_log import decode, transactional_id, transactional_id_key
from txnscan.kafka.coordinator import coordinator_partition
from txnscan.model import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txnscan.sim.codec import Reader
from txnscan.sim.wire import metadata, partition_log, shape, state_log, world
from txnscan.sim.wire.answers import OFFERED, Answers, Api
from txnscan.sim.wire.batches import batch, marker
from txnscan.sim.wire.shape import (
    HANGING_AGE_MS,
    HANGING_START_OFFSET,
    HIGH_WATERMARK,
    ONGOING_START_OFFSET,
    RECENT_AGE_MS,
    ClusterShape,
    Group,
)
from txnscan.sim.wire.world import HOST, World

SHAPE = ClusterShape(
    brokers=3,
    partitions=36,
    partitions_per_topic=3,
    producers_per_partition=0,
    hanging=2,
    ongoing=1,
    partitions_per_transaction=4,
    transactional_ids=4,
    replication_factor=3,
    transaction_state_partitions=6,
    groups=30,
    # As many as the demo's brokers are set to.
    consumer_offsets_partitions=3,
)
# What a real id has come to that committed once and then started anew.
REST_EPOCH = 1
NOWHERE = "nowhere"
ELSEWHERE = "elsewhere"
# The last versions that name topics, and that let a member in without being asked for its id first.
OFFSET_COMMIT_BY_NAME, JOIN_AT_ONCE = 9, 3
# The longest that brokers allow: members send no heartbeats here.
SESSION_TIMEOUT_MS = 30 * 60 * 1000
# `ConsumerProtocolSubscription`, version 0: no topics, no user data.
SUBSCRIBED_TO_NOTHING = struct.pack(">hii", 0, 0, -1)


@dataclass(frozen=True)
class Both:
    """Real brokers, and a wire cluster of the same shape. swaps: the wire cluster's bytes, and what stands for them."""

    cluster: KafkaCluster
    answers: Answers
    swaps: Mapping[bytes, bytes]

    def real(self, broker_id: int, request: Any, version: int) -> bytes:
        """The body of a real broker's answer."""
        port = next(b.port for b in self.cluster.brokers if b.broker_id == broker_id)
        request.API_VERSION = version
        request.with_header(correlation_id=7, client_id="compare")
        with socket.create_connection((HOST, port), 10) as raw, raw.makefile("rb") as received:
            raw.sendall(bytes(request.encode(version=version, header=True, framed=True)))
            (length,) = struct.unpack(">i", received.read(4))
            answer = received.read(length)
        # A header without tags is one byte; the answer to ApiVersions has none, nor have those of old versions.
        return answer[4:] if request.API_KEY in (Api.ApiVersions, Api.Fetch) else answer[5:]

    def wired(
        self, broker_id: int, request: Any, version: int, swaps: Mapping[bytes, bytes] = MappingProxyType({})
    ) -> bytes:
        """The body of a wire broker's answer, with what is swapped."""
        asked = Reader(bytes(request.encode(version=version, header=False)))
        body = self.answers.body(broker_id, Api(request.API_KEY), version, asked)
        wanted = {**self.swaps, **swaps}
        return re.sub(b"|".join(map(re.escape, wanted)), lambda found: wanted[found[0]], body, flags=re.DOTALL)


def produced(wire: Wire, topic: str, index: int, data: bytes) -> None:
    """Appends a batch as it is."""
    topic_data = ProduceRequest.TopicProduceData
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            topic_data(name=topic, partition_data=[topic_data.PartitionProduceData(index=index, records=data)])
        ],
        max_version=PRODUCE_V1,
    )
    answer = wire.send(wire.partition(topic, index).leader, request).responses[0].partition_responses[0]
    assert answer.error_code == 0


def filled(wire: Wire, topic: str, index: int, first: int, end: int, time_ms: int) -> None:
    produced(wire, topic, index, batch(0, [(None, b"x")] * (end - first), timestamp_ms=time_ms))


def written(wire: Wire, producer: Producer, topic: str, index: int, time_ms: int) -> int:
    return producer.produce(topic, index, [b"x"] * partition_log.OPEN_RECORDS, timestamp_ms=time_ms)


def shaped(wire: Wire, started_at_ms: int) -> Mapping[str, Producer]:
    """Makes topics, records and transactions as the shape has them; gives the producers by transactional id."""
    for name, count in SHAPE.internal_topics.items():
        replicas = [SHAPE.replicas(SHAPE.internal(name, k)[0]) for k in range(count)]
        create_topic(wire, name, replicas, {"cleanup.policy": "compact"})
    for topic in range(SHAPE.topics):
        replicas = [SHAPE.replicas(SHAPE.leader(ordinal)) for ordinal in SHAPE.ordinals(topic)]
        create_topic(wire, SHAPE.topic_name(topic), replicas)
    create_topic(wire, ELSEWHERE, [[1, 2, 3]])
    producers = {}
    for one in SHAPE.all_transactional_ids():
        producers[one.name] = producer = Producer(wire, one.name)
        producer.init_producer_id()
        if not one.held:
            producer.write(ELSEWHERE, 0, [b"x"])
            producer.end(commit=one.state != "CompleteAbort")
        if one.state == "Empty":
            producer.init_producer_id()
    old_ms, recent_ms = started_at_ms - HANGING_AGE_MS, started_at_ms - RECENT_AGE_MS
    opened = SHAPE.open_transactions()
    bounds = partition_log._BOUNDS
    with unverified(wire):
        orphan = Producer(wire, v2=False)
        for ordinal, transactions in sorted(opened.items()):
            here = {one.start_offset: one for one in transactions}
            for first, end in pairwise(bounds):
                time_ms = old_ms if first < ONGOING_START_OFFSET else recent_ms
                if first not in here:
                    filled(wire, *SHAPE.key(ordinal), first, end, time_ms)
                    continue
                open_here = here[first]
                if not open_here.transactional_id:
                    orphan.identity = Identity(open_here.producer_id, 0)
                owner = producers.get(open_here.transactional_id, orphan)
                assert written(wire, owner, *SHAPE.key(ordinal), time_ms) == first
    for group in SHAPE.all_groups():
        committed(wire, group)
    wire.send(
        wire.any_broker(),
        DeleteTopicsRequest(
            topic_names=[ELSEWHERE], topics=[DeleteTopicsRequest.DeleteTopicState(name=ELSEWHERE)], timeout_ms=10_000
        ),
    )
    return producers


def committed(wire: Wire, group: Group) -> None:
    """The offsets that the shape says this group has committed; by a member, which stays, where it has members."""
    broker_id = SHAPE.group_coordinator(group.name)
    generation, member = wait_until(lambda: joined(wire, broker_id, group), f"{group.name} was joined")
    topic_type = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic_type.OffsetCommitRequestPartition
    held = World(SHAPE, 0, {})
    topics = [
        topic_type(
            name=SHAPE.topic_name(topic),
            partitions=[
                partition(
                    partition_index=index,
                    committed_offset=held.committed_offset(group, ordinal),
                    committed_leader_epoch=0,
                    committed_metadata="",
                )
                for index, ordinal in enumerate(SHAPE.ordinals(topic))
            ],
        )
        for topic in group.topics
    ]
    request = OffsetCommitRequest(
        group_id=group.name,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=topics,
        max_version=OFFSET_COMMIT_BY_NAME,
    )

    def is_committed() -> bool:
        answered = wire.send(broker_id, request).topics
        return not any(one.error_code for topic in answered for one in topic.partitions)

    wait_until(is_committed, f"{group.name} had committed")


def joined(wire: Wire, broker_id: int, group: Group) -> tuple[int, str] | None:
    """Generation and member, none in a group without members; None while the group cannot be joined yet."""
    if group.state == "Empty":
        return -1, ""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIBED_TO_NOTHING)
    join = JoinGroupRequest(
        group_id=group.name,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        member_id="",
        protocol_type=group.protocol_type,
        protocols=[protocol],
        max_version=JOIN_AT_ONCE,
    )
    told = wire.send(broker_id, join)
    if told.error_code:
        return None
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=told.member_id, assignment=b"")
    sync = SyncGroupRequest(
        group_id=group.name,
        generation_id=told.generation_id,
        member_id=told.member_id,
        assignments=[assignment],
        max_version=JOIN_AT_ONCE,
    )
    assert wire.send(broker_id, sync).error_code == 0
    return told.generation_id, told.member_id


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """The two, shaped alike."""
    started_at_ms = int(time.time() * 1000)
    with (
        KafkaCluster(tmp_path_factory.mktemp("alike")) as cluster,
        cluster.wire() as wire,
        pytest.MonkeyPatch.context() as patch,
    ):
        for module in (shape, state_log):
            patch.setattr(module, "REST_EPOCH", REST_EPOCH)
        shaped(wire, started_at_ms)
        for broker_id in cluster.broker_ids:
            wait_until(lambda b=broker_id: is_settled(wire, b), f"broker {broker_id} knew its topics")  # type: ignore[misc]
        answered = wire.send(1, MetadataRequest(topics=None, allow_auto_topic_creation=False))
        ids = {topic.name: topic.topic_id for topic in answered.topics}
        patch.setattr(ClusterShape, "topic_id", staticmethod(ids.__getitem__))
        for name in ("leader_epoch", "transaction_state_epoch", "consumer_offsets_epoch"):
            patch.setattr(ClusterShape, name, staticmethod(lambda _: 0))
        for module in (metadata, world):
            patch.setattr(module, "CLUSTER_ID", answered.cluster_id)
        held = World(SHAPE, started_at_ms, {b.broker_id: b.port for b in cluster.brokers})
        yield Both(cluster, Answers(held), swaps(wire, held))


def is_settled(wire: Wire, broker_id: int) -> bool:
    """Whether a broker shows the topics of the shape and no other, and every transaction has ended that was to."""
    topics = wire.send(broker_id, MetadataRequest(topics=None, allow_auto_topic_creation=False)).topics
    listed = wire.send(broker_id, ListTransactionsRequest(state_filters=["PrepareCommit", "PrepareAbort"]))
    return len(topics) == SHAPE.topics + len(SHAPE.internal_topics) and not listed.transaction_states


def swaps(wire: Wire, held: World) -> Mapping[bytes, bytes]:
    """Producer ids and times of the wire cluster, and those of the real brokers for the same ids."""
    found = {}
    for one in SHAPE.all_transactional_ids():
        described = wire.send(SHAPE.coordinator(one.name), DescribeTransactionsRequest(transactional_ids=[one.name]))
        (real,) = described.transaction_states
        found[one.producer_id.to_bytes(8)] = real.producer_id.to_bytes(8)
    return found


def partition_of(kind: str) -> tuple[int, str, int]:
    """The leader, topic and number of a partition where a transaction of this kind is open."""
    opened = SHAPE.open_transactions()
    ordinal = next(
        o for o, each in sorted(opened.items()) if any(bool(t.transactional_id) is (kind == "live") for t in each)
    )
    return (SHAPE.leader(ordinal), *SHAPE.key(ordinal))


def log_leader(k: int) -> int:
    return SHAPE.transaction_state_leader(k)


def assert_same(both: Both, broker_id: int, request: Any, version: int, **wired: Any) -> None:
    assert both.wired(broker_id, request, version, **wired).hex() == both.real(broker_id, request, version).hex()


def assert_same_but_for_order(
    both: Both, broker_id: int, request: Any, version: int, response: Any, listed: Callable[[Any], Sequence[Any]]
) -> None:
    """As many bytes, the same ones where there is at most one of what is listed, and else the same set of them."""
    bodies = both.real(broker_id, request, version), both.wired(broker_id, request, version)
    told = [response.decode(io.BytesIO(body), version=version, header=False) for body in bodies]
    real, wired = (sorted(map(str, listed(each))) for each in told)
    assert wired == real
    assert len(bodies[1]) == len(bodies[0])
    if len(real) < 2:
        assert bodies[1].hex() == bodies[0].hex()


# --- Metadata and what else is of the cluster ---


def named(*names: str) -> Any:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


TOPIC_NAMES = tuple(SHAPE.topic_name(topic) for topic in range(SHAPE.topics))


@pytest.mark.parametrize("version", [10, 11, 12, 13])
@pytest.mark.parametrize(
    "names",
    [
        None,
        (),
        ("topic-00003", "topic-00001"),
        ("topic-00003", NOWHERE, TRANSACTION_STATE_TOPIC),
        tuple(reversed(TOPIC_NAMES)),
        (*TOPIC_NAMES, TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC, NOWHERE, "nobody", "__share_group_state"),
    ],
    ids=["all", "none", "two", "one unknown", "many", "many and unknown ones"],
)
def test_metadata_is_the_same_byte_for_byte_but_for_the_controller(
    both: Both, version: int, names: Sequence[str] | None
) -> None:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False) if names is None else named(*names)
    at = both.answers.controller_at(Api.Metadata, version)
    assert at is not None
    for broker_id in (1, 2, 3):
        real = both.real(broker_id, request, version)
        assert int.from_bytes(real[at : at + 4]) in SHAPE.broker_ids
        assert both.wired(broker_id, request, version).hex() == (real[:at] + bytes(4) + real[at + 4 :]).hex()


def test_real_brokers_name_any_broker_as_the_controller(both: Both) -> None:
    at = both.answers.controller_at(Api.Metadata, 12)
    assert at is not None
    told = {both.real(1, named(), 12)[at : at + 4] for _ in range(60)}
    assert {int.from_bytes(one) for one in told} == {1, 2, 3}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_description_of_the_cluster_is_the_same_but_for_the_controller(both: Both, version: int) -> None:
    at = both.answers.controller_at(Api.DescribeCluster, version)
    assert at is not None
    real = both.real(1, DescribeClusterRequest(), version)
    assert both.wired(1, DescribeClusterRequest(), version).hex() == (real[:at] + bytes(4) + real[at + 4 :]).hex()


def test_what_the_wire_cluster_offers_is_offered_by_real_brokers_too(both: Both) -> None:
    request = ApiVersionsRequest(client_software_name="compare", client_software_version="1")
    told = [
        ApiVersionsResponse.decode(io.BytesIO(body), version=4, header=False)
        for body in (both.real(1, request, 4), both.wired(1, request, 4))
    ]
    real, wired = ({key.api_key: (key.min_version, key.max_version) for key in each.api_keys} for each in told)
    assert wired == {int(api): (offered.first, offered.last) for api, offered in OFFERED.items()}
    assert all(real[key][0] <= first <= last <= real[key][1] for key, (first, last) in wired.items())
    # All but Fetch, where later versions name topics by their ids, are spoken up to the last version.
    assert {Api(key) for key, (_, last) in wired.items() if last != real[key][1]} == {Api.Fetch}


def test_settings_are_the_same_byte_for_byte(both: Both) -> None:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    for asked in (1, 2):
        wanted = resource(resource_type=4, resource_name=str(asked), configuration_keys=["transaction.max.timeout.ms"])
        assert_same(both, 1, DescribeConfigsRequest(resources=[wanted]), 4)


CLEANING = ("cleanup.policy", "retention.ms", "remote.storage.enable")


@pytest.mark.parametrize("names", [CLEANING, CLEANING[:1], ("nothing",)], ids=str)
@pytest.mark.parametrize("topic", [TOPIC_NAMES[0], TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC, NOWHERE])
def test_settings_of_topics_are_the_same_at_every_broker_byte_for_byte_but_for_their_order(
    both: Both, topic: str, names: Sequence[str]
) -> None:
    request = configs_of([topic], names)
    for broker_id in (1, 2, 3):
        assert_same_but_for_order(
            both, broker_id, request, 4, DescribeConfigsResponse, lambda told: told.results[0].configs
        )


def test_settings_of_many_topics_come_in_the_same_order(both: Both) -> None:
    assert_same(both, 1, configs_of([*TOPIC_NAMES, NOWHERE, CONSUMER_OFFSETS_TOPIC], CLEANING[:1]), 4)


def configs_of(topics: Sequence[str], names: Sequence[str]) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    wanted = [resource(resource_type=2, resource_name=topic, configuration_keys=list(names)) for topic in topics]
    return DescribeConfigsRequest(resources=wanted)


@pytest.mark.parametrize("version", [2, 3])
def test_there_is_no_authorizer_byte_for_byte(both: Both, version: int) -> None:
    request = DescribeAclsRequest(
        resource_type_filter=5,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    assert_same(both, 2, request, version)


# --- partitions ---


@pytest.mark.parametrize("kind", ["hanging", "live"])
def test_producers_of_a_partition_are_the_same_byte_for_byte_at_leader_and_followers(both: Both, kind: str) -> None:
    _, topic, index = partition_of(kind)
    wanted = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[index])
    for broker_id in (1, 2, 3):
        assert_same(both, broker_id, DescribeProducersRequest(topics=[wanted]), 0)


def test_producers_of_many_partitions_and_of_none_are_the_same_byte_for_byte(both: Both) -> None:
    topics = [
        DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[0, 1, 2, 3, -1])
        for name in (*TOPIC_NAMES[:3], TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC, NOWHERE)
    ]
    assert_same(both, 3, DescribeProducersRequest(topics=topics), 0)


def offsets(timestamp: int, isolation_level: int, *partitions: tuple[str, int, int]) -> Any:
    topic_type = ListOffsetsRequest.ListOffsetsTopic
    topics = [
        topic_type(
            name=name,
            partitions=[
                topic_type.ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=timestamp)
                for topic, index, epoch in partitions
                if topic == name
            ],
        )
        for name in dict.fromkeys(topic for topic, _, _ in partitions)
    ]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)


@pytest.mark.parametrize("version", [6, 7, 9, 10, 11])
@pytest.mark.parametrize("kind", ["hanging", "live"])
@pytest.mark.parametrize(("timestamp", "isolation_level"), [(-1, 0), (-1, 1), (-2, 0), (0, 0), (2**50, 0)])
def test_offsets_are_the_same_byte_for_byte(
    both: Both, kind: str, timestamp: int, isolation_level: int, version: int
) -> None:
    leader, topic, index = partition_of(kind)
    for epoch in (-1, 0, 1):
        assert_same(both, leader, offsets(timestamp, isolation_level, (topic, index, epoch)), version)
    follower = SHAPE.replicas(leader)[1]
    assert_same(both, follower, offsets(timestamp, isolation_level, (topic, index, 0)), version)


def test_offsets_of_unknown_partitions_are_the_same_byte_for_byte(both: Both) -> None:
    for one in ((NOWHERE, 0, 0), (TOPIC_NAMES[0], 3, 0)):
        assert_same(both, 1, offsets(-1, 0, one), 11)


def test_offsets_of_many_partitions_are_the_same_in_another_order(both: Both) -> None:
    leader, topic, _ = partition_of("live")
    request = offsets(-1, 0, (topic, 0, 1), (topic, 1, 1), (topic, 2, 1), (topic, 3, 0))
    told = [
        ListOffsetsResponse.decode(io.BytesIO(body), version=11, header=False).topics[0].partitions
        for body in (both.real(leader, request, 11), both.wired(leader, request, 11))
    ]
    real, wired = (sorted(map(str, each)) for each in told)
    assert wired == real


# --- coordinators ---

IDS = tuple(one.name for one in SHAPE.all_transactional_ids())


@pytest.mark.parametrize("name", [*IDS, "nobody", ""])
def test_a_description_of_an_id_is_the_same_byte_for_byte_at_every_broker(both: Both, name: str) -> None:
    """But for when its transaction began, and the order of its topics, which is that of a hash table."""
    request = DescribeTransactionsRequest(transactional_ids=[name])
    for broker_id in (1, 2, 3):
        body = both.real(broker_id, request, 0)
        (real,) = DescribeTransactionsResponse.decode(io.BytesIO(body), version=0, header=False).transaction_states
        began_ms = both.answers.world.started_at_ms - RECENT_AGE_MS
        swap = {began_ms.to_bytes(8): real.transaction_start_time_ms.to_bytes(8, signed=True)}
        wired = both.wired(broker_id, request, 0, swap)
        assert in_order(wired) == in_order(body) and len(wired) == len(body)
        if len(real.topics) < 2:
            assert wired.hex() == body.hex()


def in_order(body: bytes) -> dict[str, Any]:
    """A described id, with its topics in order."""
    (told,) = DescribeTransactionsResponse.decode(io.BytesIO(body), version=0, header=False).transaction_states
    return {**told.to_dict(), "topics": sorted(map(str, told.topics))}


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"state_filters": ["Ongoing"]},
        {"state_filters": ["Ongoing", "Empty", "CompleteAbort"]},
        {"state_filters": ["Odd"]},
        {"state_filters": ["Odd", "Ongoing"]},
        {"producer_id_filters": [5]},
    ],
    ids=str,
)
def test_listings_are_the_same_but_for_their_order(both: Both, filters: dict[str, Any], version: int) -> None:
    assert_listed(both, filters, version)


@pytest.mark.parametrize(
    "filters",
    [
        {"duration_filter": 0},
        {"duration_filter": 10**9},
        {"duration_filter": 10**9, "state_filters": ["Ongoing"]},
        {"transactional_id_pattern": "service-on.*"},
        {"transactional_id_pattern": "service"},
        {"transactional_id_pattern": ""},
        {"transactional_id_pattern": "("},
    ],
    ids=str,
)
def test_listings_by_duration_and_name_are_the_same_but_for_their_order(both: Both, filters: dict[str, Any]) -> None:
    assert_listed(both, filters, 2)


def test_a_listing_by_producer_id_is_the_same(both: Both) -> None:
    for one in SHAPE.all_transactional_ids():
        wanted = both.swaps[one.producer_id.to_bytes(8)]
        for broker_id in (1, 2, 3):
            wired = both.wired(broker_id, ListTransactionsRequest(producer_id_filters=[one.producer_id] * 2), 0)
            real = both.real(broker_id, ListTransactionsRequest(producer_id_filters=[int.from_bytes(wanted)] * 2), 0)
            assert wired.hex() == real.hex()


def assert_listed(both: Both, filters: dict[str, Any], version: int) -> None:
    request = ListTransactionsRequest(**filters)
    for broker_id in (1, 2, 3):
        real, wired = (
            ListTransactionsResponse.decode(io.BytesIO(body), version=version, header=False)
            for body in (both.real(broker_id, request, version), both.wired(broker_id, request, version))
        )
        assert len(both.real(broker_id, request, version)) == len(both.wired(broker_id, request, version))
        assert (wired.error_code, wired.unknown_state_filters) == (real.error_code, real.unknown_state_filters)
        assert sorted(map(str, wired.transaction_states)) == sorted(map(str, real.transaction_states))


# --- groups ---

GROUPS = tuple(SHAPE.all_groups())
TOPIC_PARTITIONS = {topic: list(range(-1, 4)) for topic in (*TOPIC_NAMES[:3], NOWHERE, CONSUMER_OFFSETS_TOPIC)}


@pytest.mark.parametrize("version", [4, 5, 6])
def test_coordinators_of_groups_and_ids_are_the_same_byte_for_byte(both: Both, version: int) -> None:
    for kind, names in ((0, [group.name for group in GROUPS]), (1, IDS)):
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[*names, NOWHERE])
        assert_same(both, 1, request, version)


@pytest.mark.parametrize(
    ("version", "filters"),
    [
        (3, {}),
        (4, {}),
        (4, {"states_filter": ["Stable"]}),
        (4, {"states_filter": ["EMPTY", "Dead", "Odd"]}),
        (4, {"states_filter": ["Odd"]}),
        (5, {}),
        (5, {"states_filter": ["stable"], "types_filter": ["classic"]}),
        (5, {"types_filter": ["Classic", "Consumer"]}),
        (5, {"types_filter": ["Consumer"]}),
        (5, {"types_filter": ["Odd"]}),
    ],
    ids=str,
)
def test_listed_groups_are_the_same_but_for_their_order(both: Both, version: int, filters: dict[str, Any]) -> None:
    for broker_id in (1, 2, 3):
        request = ListGroupsRequest(**{"states_filter": [], "types_filter": [], **filters})
        assert_same_but_for_order(both, broker_id, request, version, ListGroupsResponse, lambda told: told.groups)


def fetched(groups: Sequence[str], topics: Mapping[Any, Sequence[int]] | None, require_stable: bool) -> Any:
    """topics: partitions by name, or by id."""
    group_type = OffsetFetchRequest.OffsetFetchRequestGroup
    topic_type = group_type.OffsetFetchRequestTopics
    asked = None
    if topics is not None:
        asked = [
            topic_type(**{"name" if isinstance(topic, str) else "topic_id": topic}, partition_indexes=list(of))
            for topic, of in topics.items()
        ]
    wanted = [group_type(group_id=name, topics=asked) for name in groups]
    return OffsetFetchRequest(groups=wanted, require_stable=require_stable)


@pytest.mark.parametrize("require_stable", [False, True])
@pytest.mark.parametrize("version", [8, 9])
def test_committed_offsets_are_the_same_byte_for_byte_at_every_broker(
    both: Both, version: int, require_stable: bool
) -> None:
    """For groups that there are and one that there is not, and NOT_COORDINATOR everywhere but at the coordinator."""
    for broker_id in (1, 2, 3):
        for name in (*(group.name for group in GROUPS), NOWHERE, ""):
            assert_same(both, broker_id, fetched([name], TOPIC_PARTITIONS, require_stable), version)
            assert_same(both, broker_id, fetched([name], {}, require_stable), version)


@pytest.mark.parametrize("require_stable", [False, True])
@pytest.mark.parametrize("version", [8, 9])
def test_committed_offsets_of_many_groups_come_in_the_same_order(
    both: Both, version: int, require_stable: bool
) -> None:
    names = [*(group.name for group in GROUPS), NOWHERE]
    for broker_id in (1, 2, 3):
        request = fetched(names, TOPIC_PARTITIONS, require_stable)
        assert_same_but_for_order(both, broker_id, request, version, OffsetFetchResponse, lambda told: told.groups)


@pytest.mark.parametrize("version", [8, 9, 10])
def test_all_that_a_group_has_committed_is_the_same_but_for_its_order(both: Both, version: int) -> None:
    for broker_id in (1, 2, 3):
        for name in (*(group.name for group in GROUPS), NOWHERE):
            assert_same_but_for_order(
                both,
                broker_id,
                fetched([name], None, False),
                version,
                OffsetFetchResponse,
                lambda told: [(t.name, t.topic_id, str(p)) for t in told.groups[0].topics for p in t.partitions],
            )


def test_committed_offsets_by_the_ids_of_topics_are_the_same_byte_for_byte(both: Both) -> None:
    ids = {ClusterShape.topic_id(name): TOPIC_PARTITIONS[name] for name in TOPIC_NAMES[:3]}
    unknown = {uuid.UUID(int=7): [0, 1]}
    for broker_id in (1, 2, 3):
        for name in (*(group.name for group in GROUPS), NOWHERE):
            for asked in (ids, unknown, {**unknown, **ids, uuid.UUID(int=8): [2]}):
                assert_same(both, broker_id, fetched([name], asked, False), 10)


# --- records ---


# The last version that leaders alone answer, which is the one that is asked.
FETCH = 10


def fetching(topic: str, index: int, epoch: int, offset: int, bytes_max: int, isolation_level: int = 0) -> Any:
    topic_type = FetchRequest.FetchTopic
    partition = topic_type.FetchPartition(
        partition=index, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=bytes_max
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=bytes_max,
        isolation_level=isolation_level,
        topics=[topic_type(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
    )


@pytest.mark.parametrize("kind", ["hanging", "live"])
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_records_are_the_same_byte_for_byte_however_many_fit(both: Both, kind: str, isolation_level: int) -> None:
    """But for checksums and the producer id of what is live."""
    leader, topic, index = partition_of(kind)
    for broker_id in (leader, SHAPE.replicas(leader)[1]):
        for offset in (0, 50, HANGING_START_OFFSET, HANGING_START_OFFSET + 1, 150, 199, HIGH_WATERMARK):
            for bytes_max in (1, 300, 1_000, 1 << 20):
                request = fetching(topic, index, 0, offset, bytes_max, isolation_level)
                real, wired = both.real(broker_id, request, FETCH), both.wired(broker_id, request, FETCH)
                assert without_checksums(wired) == without_checksums(real), (broker_id, offset, bytes_max)


@pytest.mark.parametrize(("epoch", "offset"), [(1, 0), (0, 10**6), (0, -1), (-1, HIGH_WATERMARK)])
def test_what_cannot_be_fetched_is_refused_with_the_same_bytes(both: Both, epoch: int, offset: int) -> None:
    leader, topic, index = partition_of("live")
    assert_same(both, leader, fetching(topic, index, epoch, offset, 1_000), FETCH)
    assert_same(both, leader, fetching(NOWHERE, 0, epoch, offset, 1_000), FETCH)
    assert_same(both, leader, fetching(TOPIC_NAMES[0], 3, epoch, offset, 1_000), FETCH)


def without_checksums(body: bytes) -> str:
    """The answer with 0 for the checksum of each batch: what differs in a batch differs there too."""
    data, made = records(body), bytearray(body)
    start, at = body.index(data) if data else 0, 0
    while at + 21 <= len(data):
        made[start + at + 17 : start + at + 21] = bytes(4)
        at += 12 + int.from_bytes(data[at + 8 : at + 12])
    return made.hex()


def records(body: bytes) -> bytes:
    (topic,) = FetchResponse.decode(io.BytesIO(body), version=FETCH, header=False).responses
    return bytes(topic.partitions[0].records or b"")


def test_a_real_transaction_log_is_what_the_wire_clusters_would_be_for_the_same_facts(both: Both) -> None:
    """Every batch that real coordinators wrote, byte for byte, checksums included."""
    seen = set()
    for k in range(SHAPE.transaction_state_partitions):
        body = both.real(log_leader(k), fetching(TRANSACTION_STATE_TOPIC, k, 0, 0, 1 << 20), FETCH)
        expected, data = [], records(body)
        for each in MemoryRecords(data):
            (record,) = each
            name = transactional_id(record.key)
            assert name is not None and coordinator_partition(name, SHAPE.transaction_state_partitions) == k
            told = decode(record.offset, 0, name, record.value)
            # Brokers write topics in the order of a hash table.
            held = sorted(told.partitions, key=lambda key: record.value.index(key[0].encode()))
            times = (told.updated_ms, told.start_time_ms)
            producer = (told.producer_id, told.producer_epoch)
            value = state_log.value(told.state.value, *producer, held, *times, told.client_version)
            expected.append(batch(record.offset, [(transactional_id_key(name), value)], timestamp_ms=record.timestamp))
            seen.add(told.state.value)
        assert b"".join(expected).hex() == data.hex()
    assert seen == {"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}


def test_the_wire_clusters_log_is_answered_in_the_same_bytes_around_its_records(both: Both) -> None:
    """But for the high watermark and the last stable offset."""
    k = next(k for k in range(SHAPE.transaction_state_partitions) if both.answers.world.ids[k])
    # Throttle time, error, session; one topic of this name, one partition: its number and error.
    at = 4 + 2 + 4 + 4 + 2 + len(TRANSACTION_STATE_TOPIC) + 4 + 4 + 2
    for broker_id in (log_leader(k),):
        request = fetching(TRANSACTION_STATE_TOPIC, k, 0, 0, 1)
        around = []
        for body in (both.real(broker_id, request, FETCH), both.wired(broker_id, request, FETCH)):
            data = records(body)
            assert len([*MemoryRecords(data)]) == 1, "a first batch is given whole"
            around.append(body[:at] + body[at + 16 : at + 16 + 8 + 4] + body[body.index(data) + len(data) :])
        assert around[0].hex() == around[1].hex()


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_what_a_real_broker_appends(both: Both, commit: bool) -> None:
    with both.cluster.wire() as wire:
        topic = f"marked-{commit}".lower()
        create_topic(wire, topic, [[1, 2, 3]])
        producer = Producer(wire, topic)
        producer.init_producer_id()
        producer.write(topic, 0, [b"x"])
        producer.end(commit=commit)

        def last() -> bytes:
            return records(both.real(1, fetching(topic, 0, 0, 1, 1 << 20), FETCH))

        data = wait_until(last, "the marker was written")
        (one,) = MemoryRecords(data)
        (record,) = one
        expected = marker(1, one.producer_id, one.producer_epoch, 0, commit, record.timestamp)
        assert data.hex() == expected.hex()
        delete = DeleteTopicsRequest.DeleteTopicState
        wire.send(
            wire.any_broker(),
            DeleteTopicsRequest(topic_names=[topic], topics=[delete(name=topic)], timeout_ms=10_000),
        )
