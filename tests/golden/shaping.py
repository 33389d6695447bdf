"""Makes what a `ClusterShape` says on real brokers: topics, records, transactions and committed offsets."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import pairwise

from kafka.protocol.admin import DeleteTopicsRequest, ListTransactionsRequest
from kafka.protocol.consumer import JoinGroupRequest, OffsetCommitRequest, SyncGroupRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import ProduceRequest

from tests.sim.wire import partition_log
from tests.sim.wire.batches import batch
from tests.sim.wire.shape import HANGING_AGE_MS, ONGOING_START_OFFSET, RECENT_AGE_MS, ClusterShape, Group
from tests.sim.wire.world import World
from txnscan.demo.admin import create_topic, unverified
from txnscan.demo.producer import PRODUCE_V1, Producer, ProducerIdAndEpoch
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until

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
ELSEWHERE = "elsewhere"
# The last versions that name topics, and that let a member in without being asked for its id first.
OFFSET_COMMIT_BY_NAME, JOIN_AT_ONCE = 9, 3
# The longest that brokers allow: members send no heartbeats here.
SESSION_TIMEOUT_MS = 30 * 60 * 1000
# `ConsumerProtocolSubscription`, version 0: no topics, no user data.
SUBSCRIBED_TO_NOTHING = struct.pack(">hii", 0, 0, -1)


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
    values = [b"x"] * partition_log.OPEN_RECORDS
    # No coordinator knows of a transaction that hangs.
    write = producer.write if producer.transactional_id else producer.produce
    return write(topic, index, values, timestamp_ms=time_ms)


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
                    orphan.identity = ProducerIdAndEpoch(open_here.producer_id, 0)
                owner = producers.get(open_here.transactional_id, orphan)
                assert written(wire, owner, *SHAPE.key(ordinal), time_ms) == first
    for group in SHAPE.all_groups():
        committed(wire, group)
    deleted(wire, ELSEWHERE)
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
    """Generation and member, both empty for a group without members. None until the group can be joined."""
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


def deleted(wire: Wire, topic: str) -> None:
    """Deletes a topic."""
    delete = DeleteTopicsRequest.DeleteTopicState
    wire.send(
        wire.any_broker(), DeleteTopicsRequest(topic_names=[topic], topics=[delete(name=topic)], timeout_ms=10_000)
    )


def is_settled(wire: Wire, broker_id: int) -> bool:
    """Whether a broker shows the topics of the shape and no other, and every transaction has ended that was to."""
    topics = wire.send(broker_id, MetadataRequest(topics=None, allow_auto_topic_creation=False)).topics
    listed = wire.send(broker_id, ListTransactionsRequest(state_filters=["PrepareCommit", "PrepareAbort"]))
    return len(topics) == SHAPE.topics + len(SHAPE.internal_topics) and not listed.transaction_states
