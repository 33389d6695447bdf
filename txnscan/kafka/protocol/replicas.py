"""The replicas of partitions: Metadata (api key 3), and DescribeTopicPartitions (75) for the eligible leader replicas.

The plan of a sweep needs no replicas, and its decoder skips them (`metadata.py`). Here they are decoded for the few
topics that a question is about; or for all topics, but only partitions that lack a replica or a leader.

Versions: DescribeTopicPartitions since v0 (Kafka 3.8, KRaft alone). No other API shows the eligible leader replicas
(ELR, KIP-966). ACLs: Describe on each topic. Other topics are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from kafka.protocol.admin import DescribeTopicPartitionsRequest
from kafka.protocol.metadata import MetadataResponse

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed, present
from txnscan.kafka.protocol.frames import Body, Cursor
from txnscan.kafka.protocol.metadata import as_bytes, lengths_at, partitions_alike, shown_leader
from txnscan.kafka.topology import NO_LEADER_ID, Key, PartitionReplicas

_FLEXIBLE_SINCE, _TOPIC_IDS_SINCE, _OPERATIONS_UNTIL = 9, 10, 10
# Brokers answer about at most so many partitions (`max.request.partition.size.limit`).
_PARTITIONS_A_REQUEST = 2_000


# The numbers of partitions, by topic. None: all partitions of the topic.
Numbers = Mapping[str, Collection[int] | None]


def numbers_of(keys: Iterable[Key]) -> dict[str, set[int]]:
    """The numbers of these partitions, by topic."""
    found: dict[str, set[int]] = defaultdict(set)
    for topic, number in sorted(keys):
        found[topic].add(number)
    return found


def read_replicas(send: Send, broker_id: int, numbers: Numbers) -> dict[Key, PartitionReplicas]:
    """The replicas of these partitions, by one broker's view. A topic that does not exist, or that this principal may
    not describe, has none. Raises RequestFailed.
    """
    found = decode(send(broker_id, as_bytes(numbers)), numbers)
    return {one.key: one for one in found if _is_wanted(one.partition, numbers.get(one.topic))}


def _is_wanted(number: int, wanted: Collection[int] | None) -> bool:
    return wanted is None or number in wanted


def read_incomplete(send: Send, broker_id: int) -> list[PartitionReplicas]:
    """Of all topics, the partitions without a leader, and those whose replicas are not all in sync. Raises
    RequestFailed.
    """
    return [one for one in decode(send(broker_id, as_bytes(None)), only_incomplete=True) if not one.is_complete]


def decode(body: Body, numbers: Numbers | None = None, *, only_incomplete: bool = False) -> Iterator[PartitionReplicas]:
    """The partitions in an answer to Metadata. numbers: other partitions of these topics may be left out.
    only_incomplete: topics whose partitions certainly are complete may be left out. Pure. Raises RequestFailed if the
    bytes make no sense.
    """
    if body.version < _FLEXIBLE_SINCE:
        yield from _decode_old(body)
        return
    answer = Cursor(body.data, 4)
    for _ in range(answer.length()):
        answer.skip(4)
        answer.string()
        answer.skip(4)
        answer.string()
        answer.tags()
    answer.string()
    answer.skip(4)
    for _ in range(answer.length()):
        answer.skip(2)
        name = answer.string() or ""
        answer.skip(17 if body.version >= _TOPIC_IDS_SINCE else 1)
        count, at = answer.length(), answer.at
        if not (only_incomplete and _certainly_complete(answer, count)):
            answer.at = at
            yield from _partitions(answer, name, count, (numbers or {}).get(name))
        answer.skip(4)
        answer.tags()
    answer.skip(4 if body.version <= _OPERATIONS_UNTIL else 0)
    answer.tags()
    answer.end()


def _partitions(answer: Cursor, topic: str, count: int, wanted: Collection[int] | None) -> Iterator[PartitionReplicas]:
    """The partitions of a topic. If all take as many bytes, only the wanted ones are decoded."""
    at = answer.at
    columns = partitions_alike(answer, count) if wanted is not None else None
    if wanted is None or columns is None:
        answer.at = at
        for _ in range(count):
            yield _partition(answer, topic)
        return
    end, width = answer.at, (answer.at - at) // count
    for place, number in enumerate(columns[0]):
        if number in wanted:
            answer.at = at + place * width
            yield _partition(answer, topic)
    answer.at = end


def _certainly_complete(answer: Cursor, count: int) -> bool:
    """Whether all partitions of a topic have a leader, and as many replicas as in-sync replicas. If so, they are
    skipped: a tenth of a microsecond for each.
    """
    data, at = answer.data, answer.at
    columns = partitions_alike(answer, count)
    if columns is None or NO_LEADER_ID in columns[1]:
        return False
    replicas, in_sync, *_ = lengths_at(data, at)
    return data[replicas] == data[in_sync]


def _partition(answer: Cursor, topic: str) -> PartitionReplicas:
    error_code, index, leader = answer.int16(), answer.int32(), answer.int32()
    answer.skip(4)
    replicas, in_sync, offline = (_ids(answer) for _ in ("replicas", "in sync", "offline"))
    answer.tags()
    return PartitionReplicas(topic, index, shown_leader(error_code, leader), replicas, in_sync, offline)


def _ids(answer: Cursor) -> tuple[int, ...]:
    return tuple(answer.int32() for _ in range(answer.length()))


def _decode_old(body: Body) -> Iterator[PartitionReplicas]:
    """An answer of a broker before Kafka 2.4."""
    for topic in present(MetadataResponse.decode(body.data, version=body.version).topics):
        for one in present(topic.partitions):
            leader = shown_leader(one.error_code, one.leader_id)
            ids = (tuple(each or ()) for each in (one.replica_nodes, one.isr_nodes, one.offline_replicas))
            yield PartitionReplicas(topic.name or "", one.partition_index, leader, *ids)


def with_eligible(send: Send, broker_id: int, partitions: Collection[PartitionReplicas]) -> list[PartitionReplicas]:
    """The same partitions with their eligible leader replicas, if the broker has them. Without an answer, or on
    clusters without that feature, there are none. Never raises.
    """
    topics = sorted({one.topic for one in partitions})
    try:
        eligible = _eligible(send, broker_id, topics) if topics else {}
    except RequestFailed:
        eligible = {}
    return [replace(one, eligible=eligible.get(one.key, ())) for one in partitions]


def _eligible(send: Send, broker_id: int, topics: Iterable[str]) -> dict[Key, tuple[int, ...]]:
    kind = DescribeTopicPartitionsRequest
    request = kind(
        topics=[kind.TopicRequest(name=name) for name in topics],
        response_partition_limit=_PARTITIONS_A_REQUEST,
        cursor=None,
    )
    return {
        (topic.name, one.partition_index): tuple(one.eligible_leader_replicas or ())
        for topic in present(send(broker_id, request).topics)
        for one in present(topic.partitions)
    }
