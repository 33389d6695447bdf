"""The replicas of partitions: Metadata (api key 3), and DescribeTopicPartitions (75) for the eligible leader replicas.

The plan of a sweep needs no replicas, and its decoder skips them (`metadata.py`). Here they are decoded for the few
topics that a question is about; or for all topics, but only partitions that lack a replica or a leader, or that have a
replica on some brokers. A decoded partition takes about 140 bytes, as equal lists of replicas are kept once: 140 MB if
a million partitions have a replica on these brokers. Topics without one are skipped as bytes.

Versions: DescribeTopicPartitions since v0 (Kafka 3.8, KRaft alone). No other API shows the eligible leader replicas
(ELR, KIP-966). ACLs: Describe on each topic. Other topics are left out.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from kafka.protocol.admin import DescribeTopicPartitionsRequest
from kafka.protocol.metadata import MetadataResponse

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed, present
from txnscan.kafka.protocol.frames import Body, Cursor
from txnscan.kafka.protocol.metadata import as_bytes, lengths_at, partitions_alike, shown_leader
from txnscan.kafka.topology import NO_LEADER_ID, Key, PartitionReplicas

_FLEXIBLE_SINCE, _TOPIC_IDS_SINCE, _OPERATIONS_UNTIL = 9, 10, 10
_INT32 = struct.Struct(">i")
# The longest list whose length takes one byte.
_LENGTH_MAX = 127
# Brokers answer about at most so many partitions (`max.request.partition.size.limit`).
_PARTITIONS_A_REQUEST = 2_000


# Lists of replicas, each kept once.
_Known = dict[tuple[int, ...], tuple[int, ...]]
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


@dataclass(frozen=True, slots=True)
class OnBrokers:
    """Of all topics, the partitions that have a replica on one of some brokers, those without a leader, and all
    partitions of some topics. total: the number of all partitions.
    """

    partitions: tuple[PartitionReplicas, ...]
    total: int


def read_on_brokers(send: Send, broker_id: int, brokers: Collection[int], topics: Collection[str]) -> OnBrokers:
    """The partitions with a replica on one of these brokers, and all partitions of these topics, by one broker's view.
    Raises RequestFailed.
    """
    wanted, total = frozenset(brokers), 0
    found: list[PartitionReplicas] = []
    for count, some in _topics(send(broker_id, as_bytes(None)), _Skip(wanted, frozenset(topics))):
        total += count
        found += (
            one for one in some if not wanted.isdisjoint(one.replicas) or one.has_no_leader or one.topic in topics
        )
    return OnBrokers(tuple(found), total)


def decode(body: Body, numbers: Numbers | None = None, *, only_incomplete: bool = False) -> Iterator[PartitionReplicas]:
    """The partitions in an answer to Metadata. numbers: other partitions of these topics may be left out.
    only_incomplete: topics whose partitions certainly are complete may be left out. Pure. Raises RequestFailed if the
    bytes make no sense.
    """
    for _, partitions in _topics(body, _is_complete if only_incomplete else _nothing, numbers or {}):
        yield from partitions


# Whether the partitions of a topic, of this name and number, can be skipped. If so, the cursor is behind them.
Skips = Callable[[Cursor, str, int], bool]


def _nothing(answer: Cursor, topic: str, count: int) -> bool:
    return False


def _is_complete(answer: Cursor, topic: str, count: int) -> bool:
    return _certainly_complete(answer, count)


@dataclass(frozen=True, slots=True)
class _Skip:
    """Skips other topics whose partitions all have a leader, and no replica on these brokers."""

    brokers: frozenset[int]
    topics: frozenset[str]

    def __call__(self, answer: Cursor, topic: str, count: int) -> bool:
        at = answer.at
        columns = partitions_alike(answer, count) if topic not in self.topics else None
        if columns is None or NO_LEADER_ID in columns[1]:
            return False
        # Another number may have these bytes, too. Then the partitions are decoded.
        data = answer.data
        return all(data.find(_INT32.pack(one), at, answer.at) < 0 for one in self.brokers)


def _topics(
    body: Body, skips: Skips, numbers: Numbers = MappingProxyType({})
) -> Iterator[tuple[int, Iterable[PartitionReplicas]]]:
    """The number of partitions of each topic, and those that are not skipped. numbers: see `decode`."""
    if body.version < _FLEXIBLE_SINCE:
        for some in _decode_old(body):
            yield len(some), some
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
    known: _Known = {}
    for _ in range(answer.length()):
        answer.skip(2)
        name = answer.string() or ""
        answer.skip(17 if body.version >= _TOPIC_IDS_SINCE else 1)
        count, at = answer.length(), answer.at
        if skips(answer, name, count):
            yield count, ()
        else:
            answer.at = at
            yield count, [*_partitions(answer, name, count, numbers.get(name), known)]
        answer.skip(4)
        answer.tags()
    answer.skip(4 if body.version <= _OPERATIONS_UNTIL else 0)
    answer.tags()
    answer.end()


def _partitions(
    answer: Cursor, topic: str, count: int, wanted: Collection[int] | None, known: _Known
) -> Iterator[PartitionReplicas]:
    """The partitions of a topic. If all take as many bytes, only the wanted ones are decoded."""
    at = answer.at
    columns = partitions_alike(answer, count) if wanted is not None else None
    if wanted is None or columns is None:
        answer.at = at
        for _ in range(count):
            yield _partition(answer, topic, known)
        return
    end, width = answer.at, (answer.at - at) // count
    for place, number in enumerate(columns[0]):
        if number in wanted:
            answer.at = at + place * width
            yield _partition(answer, topic, known)
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


def _partition(answer: Cursor, topic: str, known: _Known) -> PartitionReplicas:
    """One partition. known: the lists of replicas so far, each kept once."""
    shape = _plain_shape(answer)
    if shape is not None:
        error_code, index, leader, epoch, *ids = _plain(*shape).unpack_from(answer.data, answer.at)
        answer.skip(_plain(*shape).size)
        (first, second, _), held = shape, tuple(ids)
        lists = (held[:first], held[first : first + second], held[first + second :])
    else:
        error_code, index, leader, epoch = answer.int16(), answer.int32(), answer.int32(), answer.int32()
        lists = (_ids(answer), _ids(answer), _ids(answer))
        answer.tags()
    replicas, in_sync, offline = (known.setdefault(one, one) for one in lists)
    shown = shown_leader(error_code, leader)
    return PartitionReplicas(topic, index, shown, replicas, in_sync, offline, leader_epoch=epoch)


def _plain_shape(answer: Cursor) -> tuple[int, int, int] | None:
    """The lengths of the next partition's three lists, if it has no tagged field, and each length takes one byte."""
    data = answer.data
    try:
        *lists, tags = lengths_at(data, answer.at)
        first, second, third = (data[one] - 1 for one in lists)
        plain = not data[tags] and all(0 <= one < _LENGTH_MAX for one in (first, second, third))
    except IndexError:
        return None
    return (first, second, third) if plain else None


@lru_cache
def _plain(replicas: int, in_sync: int, offline: int) -> struct.Struct:
    """Error, number, leader, leader epoch, and three lists of these lengths, each behind its length; and no tags."""
    return struct.Struct(f">hiiix{replicas}ix{in_sync}ix{offline}ix")


def _ids(answer: Cursor) -> tuple[int, ...]:
    return tuple(answer.int32() for _ in range(answer.length()))


def _decode_old(body: Body) -> Iterator[list[PartitionReplicas]]:
    """The partitions of each topic in an answer of a broker before Kafka 2.4."""
    for topic in present(MetadataResponse.decode(body.data, version=body.version).topics):
        yield [_old_partition(topic.name or "", one) for one in present(topic.partitions)]


def _old_partition(topic: str, one: Any) -> PartitionReplicas:
    leader = shown_leader(one.error_code, one.leader_id)
    replicas, in_sync, offline = (
        tuple(each or ()) for each in (one.replica_nodes, one.isr_nodes, one.offline_replicas)
    )
    epoch = one.leader_epoch
    return PartitionReplicas(topic, one.partition_index, leader, replicas, in_sync, offline, leader_epoch=epoch)


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
