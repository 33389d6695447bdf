"""ListOffsets (api key 2): high watermark and last stable offset, proven to come from the leader.

With `currentLeaderEpoch` set (v4, Kafka 2.1) a broker answers only if it leads at exactly that epoch. Otherwise the
error is FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER. While a new leader's high watermark is
still behind its epoch's start, the error is OFFSET_NOT_AVAILABLE. ACLs: Describe on the topic.
Source: `ReplicaManager.fetchOffset`, `Partition.fetchOffsetForTimestamp`. The end of the log, behind the high
watermark, is shown to a replica id that is not a consumer's (`ListOffsetsRequest.DEBUGGING_REPLICA_ID`). Any replica
answers that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from kafka.protocol.consumer import ListOffsetsRequest

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ANSWERED_TWICE, LEFT_OUT, ErrorCode, RequestFailed, answered, present
from txnscan.kafka.failure import Failure
from txnscan.kafka.topology import Key, Partition

_CONSUMER, _DEBUGGING = -1, -2
# The first version with leader epochs in requests and answers.
_MIN_VERSION = 4
# Asks for the record with the highest timestamp.
_MAX_TIMESTAMP, _MAX_TIMESTAMP_VERSION = -3, 7


class Offset(Enum):
    """The offset to ask for, with the timestamp, the isolation level and the replica id that request it."""

    HIGH_WATERMARK = (-1, 0, _CONSUMER)
    LAST_STABLE = (-1, 1, _CONSUMER)
    LOG_START = (-2, 0, _CONSUMER)
    LOG_END = (-1, 0, _DEBUGGING)


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """The offset, or the failure. timestamp_ms: the time of the record there, if the request was by time, else -1."""

    offset: int = -1
    failure: Failure | None = None
    timestamp_ms: int = -1


def list_offsets(send: Send, broker_id: int, partitions: Iterable[Partition], which: Offset) -> dict[Key, ListedOffset]:
    """This offset of each partition, from its leader at the partition's leader epoch. Raises RequestFailed."""
    return _listed(send, broker_id, partitions, *which.value)


def offset_of(send: Send, partition: Partition, which: Offset) -> int:
    """This offset of one partition, from its leader. Raises RequestFailed."""
    listed = list_offsets(send, partition.leader, [partition], which)[partition.key]
    if listed.failure is not None:
        raise RequestFailed(listed.failure)
    return listed.offset


def high_watermark(send: Send, partition: Partition) -> int:
    """The high watermark of a partition, from its leader. Call this before a read that must reach the end.

    A newly elected leader may not know yet how much is committed. It then refuses this request (OFFSET_NOT_AVAILABLE),
    but answers Fetch, with too few records. Raises RequestFailed.
    """
    return offset_of(send, partition, Offset.HIGH_WATERMARK)


def offset_at(send: Send, partition: Partition, time_ms: int) -> ListedOffset:
    """The first offset whose record is not older than this time (epoch milliseconds), or -1 if all records are older.

    Raises RequestFailed.
    """
    return _listed(send, partition.leader, [partition], time_ms)[partition.key]


def newest(send: Send, broker_id: int, partitions: Iterable[Partition]) -> dict[Key, ListedOffset]:
    """The record with the highest timestamp of each partition, from its leader (v7, Kafka 3.0).

    Raises RequestFailed.
    """
    return _listed(send, broker_id, partitions, _MAX_TIMESTAMP, min_version=_MAX_TIMESTAMP_VERSION)


def _listed(
    send: Send,
    broker_id: int,
    partitions: Iterable[Partition],
    timestamp: int,
    isolation_level: int = 0,
    replica_id: int = _CONSUMER,
    *,
    min_version: int = _MIN_VERSION,
) -> dict[Key, ListedOffset]:
    topics = defaultdict(list)
    for p in partitions:
        topics[p.topic].append(
            ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                partition_index=p.partition, current_leader_epoch=p.leader_epoch, timestamp=timestamp
            )
        )
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=t, partitions=p) for t, p in topics.items()],
        min_version=min_version,
    )
    missing = ListedOffset(failure=LEFT_OUT)
    listed = {(topic, p.partition_index): missing for topic, wanted in topics.items() for p in wanted}
    seen = set()
    for topic in present(send(broker_id, request).topics):
        for answer in present(topic.partitions):
            key = (topic.name, answer.partition_index)
            if key in seen:
                listed[key] = ListedOffset(failure=ANSWERED_TWICE)
            elif key in listed:
                listed[key] = (
                    ListedOffset(answer.offset, timestamp_ms=answer.timestamp)
                    if answer.error_code == ErrorCode.NONE
                    else ListedOffset(failure=answered(answer.error_code))
                )
            seen.add(key)
    return listed
