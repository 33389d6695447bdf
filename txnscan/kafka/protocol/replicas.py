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
from typing import Any

from kafka.protocol.admin import DescribeTopicPartitionsRequest
from kafka.protocol.metadata import MetadataResponse

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed, present
from txnscan.kafka.protocol.frames import Body, Cursor
from txnscan.kafka.protocol.metadata import (
    BROKERS_MAX,
    PARTITIONS_MAX,
    as_bytes,
    few,
    lengths_at,
    partitions_alike,
    shown_leader,
    sound_name,
)
from txnscan.kafka.topology import NO_LEADER_ID, Key, PartitionReplicas

_FLEXIBLE_SINCE, _TOPIC_IDS_SINCE, _OPERATIONS_UNTIL = 9, 10, 10
_INT32 = struct.Struct(">i")
# The longest list whose length takes one byte.
_LENGTH_MAX = 127
# The fields before the lists.
_HEAD = 4
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
    found = (one for _, some in _topics(send(broker_id, as_bytes(numbers)), _Numbered(numbers)) for one in some)
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
    total, found = 0, list[PartitionReplicas]()
    wanted = frozenset(brokers)
    for count, some in _topics(send(broker_id, as_bytes(None)), _OnBrokers(wanted, frozenset(topics))):
        total += count
        found += (
            one for one in some if not wanted.isdisjoint(one.replicas) or one.has_no_leader or one.topic in topics
        )
    return OnBrokers(tuple(found), total)


def read_last(send: Send, broker_id: int, topics: Iterable[str]) -> list[PartitionReplicas]:
    """Of these topics, the partitions with a leader and only one in-sync replica, by one broker's view. Raises
    RequestFailed.
    """
    found = (one for _, some in _topics(send(broker_id, as_bytes(topics)), _last) for one in some)
    return [one for one in found if len(one.in_sync) == 1 and not one.has_no_leader]


def decode(body: Body, *, only_incomplete: bool = False) -> Iterator[PartitionReplicas]:
    """The partitions in an answer to Metadata. only_incomplete: topics whose partitions certainly are complete may be
    left out. Pure. Raises RequestFailed if the bytes make no sense.
    """
    for _, partitions in _topics(body, _incomplete if only_incomplete else _every):
        yield from partitions


# The lists of replicas so far, each kept once.
Known = dict[tuple[int, ...], tuple[int, ...]]
# Reads the next partitions, of the topic of this name and of this number.
Reads = Callable[[Cursor, str, int, Known], list[PartitionReplicas]]


def _every(answer: Cursor, topic: str, count: int, known: Known) -> list[PartitionReplicas]:
    return [_partition(answer, topic, known) for _ in range(count)]


def _incomplete(answer: Cursor, topic: str, count: int, known: Known) -> list[PartitionReplicas]:
    at = answer.at
    if _certainly_complete(answer, count):
        return []
    answer.at = at
    return _every(answer, topic, count, known)


def _last(answer: Cursor, topic: str, count: int, known: Known) -> list[PartitionReplicas]:
    """Reads nothing if all partitions of the topic are alike, and have several in-sync replicas."""
    at, shape = answer.at, _plain_shape(answer)
    if shape is not None and shape[1] > 1 and partitions_alike(answer, count) is not None:
        return []
    answer.at = at
    return _every(answer, topic, count, known)


@dataclass(frozen=True, slots=True)
class _Numbered:
    """Reads the partitions of these numbers, and perhaps others: if all partitions of a topic are alike, none."""

    numbers: Numbers

    def __call__(self, answer: Cursor, topic: str, count: int, known: Known) -> list[PartitionReplicas]:
        at, shape, wanted = answer.at, _plain_shape(answer), self.numbers.get(topic)
        columns = partitions_alike(answer, count) if wanted is not None else None
        if shape is None or columns is None:
            answer.at = at
            return _every(answer, topic, count, known)
        form, data = _plain(*shape), answer.data
        places = (place for place, number in enumerate(columns[0]) if _is_wanted(number, wanted))
        return [_made(topic, form.unpack_from(data, at + place * form.size), shape, known) for place in places]


@dataclass(frozen=True, slots=True)
class _OnBrokers:
    """Reads the partitions with a replica on one of these brokers, those without a leader, those of these topics, and
    perhaps others.

    If all partitions of a topic are alike, the others cost half a microsecond each, and a tenth if the topic has no
    replica there.
    """

    brokers: frozenset[int]
    topics: frozenset[str]

    def __call__(self, answer: Cursor, topic: str, count: int, known: Known) -> list[PartitionReplicas]:
        at, shape = answer.at, _plain_shape(answer)
        columns = partitions_alike(answer, count)
        if shape is None or columns is None:
            answer.at = at
            return _every(answer, topic, count, known)
        if (
            topic not in self.topics
            and NO_LEADER_ID not in columns[1]
            and not self._may_have(answer.data, at, answer.at)
        ):
            return []
        first = _HEAD + shape[0]
        return [
            _made(topic, row, shape, known)
            for row in _plain(*shape).iter_unpack(answer.data[at : answer.at])
            if row[2] < 0 or topic in self.topics or not self.brokers.isdisjoint(row[_HEAD:first])
        ]

    def _may_have(self, data: bytes, at: int, end: int) -> bool:
        """Whether one of these brokers is named here. Other numbers may have the same bytes."""
        return any(data.find(_INT32.pack(one), at, end) >= 0 for one in self.brokers)


def _topics(body: Body, reads: Reads) -> Iterator[tuple[int, list[PartitionReplicas]]]:
    """The number of partitions of each topic, and what is read of them. Of an old answer everything is read."""
    if body.version < _FLEXIBLE_SINCE:
        for some in _decode_old(body):
            yield len(some), some
        return
    answer = Cursor(body.data, 4)
    for _ in range(few("brokers", answer.length(), BROKERS_MAX)):
        answer.skip(4)
        answer.string()
        answer.skip(4)
        answer.string()
        answer.tags()
    answer.string()
    answer.skip(4)
    known: Known = {}
    total = topics = few("topics", answer.length(), PARTITIONS_MAX)
    for _ in range(topics):
        answer.skip(2)
        name = sound_name(answer.string() or "")
        answer.skip(17 if body.version >= _TOPIC_IDS_SINCE else 1)
        count = answer.length()
        total = few("partitions", total + count, PARTITIONS_MAX)
        yield count, reads(answer, name, count, known)
        answer.skip(4)
        answer.tags()
    answer.skip(4 if body.version <= _OPERATIONS_UNTIL else 0)
    answer.tags()
    answer.end()


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


def _partition(answer: Cursor, topic: str, known: Known) -> PartitionReplicas:
    """One partition, with lists of any length and any tagged fields."""
    head = (answer.int16(), answer.int32(), answer.int32(), answer.int32())
    lists = (_ids(answer), _ids(answer), _ids(answer))
    answer.tags()
    first, second, third = map(len, lists)
    return _made(topic, (*head, *lists[0], *lists[1], *lists[2]), (first, second, third), known)


def _made(topic: str, row: tuple[int, ...], shape: tuple[int, int, int], known: Known) -> PartitionReplicas:
    """A partition from its fields: error, number, leader, leader epoch, and three lists of these lengths."""
    first, second = _HEAD + shape[0], _HEAD + shape[0] + shape[1]
    replicas, in_sync, offline = row[_HEAD:first], row[first:second], row[second:]
    return PartitionReplicas(
        topic,
        row[1],
        shown_leader(row[0], row[2]),
        known.setdefault(replicas, replicas),
        known.setdefault(in_sync, in_sync),
        known.setdefault(offline, offline),
        leader_epoch=row[3],
    )


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
    total = 0
    for topic in present(MetadataResponse.decode(body.data, version=body.version).topics):
        name, shown = sound_name(topic.name or ""), list(present(topic.partitions))
        total = few("partitions", total + 1 + len(shown), PARTITIONS_MAX)
        yield [_old_partition(name, one) for one in shown]


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
