"""Move replicas and leaders of partitions on real brokers, and delete records, as an administrator does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    DeleteRecordsRequest,
    ElectLeadersRequest,
)

from txnscan.demo.errors import DemoError
from txnscan.demo.requests import Wire
from txnscan.kafka.errors import ErrorCode, error_name
from txnscan.kafka.protocol.describe_log_dirs import describe_log_dirs
from txnscan.kafka.topology import Key

_PREFERRED, _UNCLEAN = 0, 1


def reassign(wire: Wire, wanted: Mapping[Key, Sequence[int]]) -> None:
    """Requests these replicas of each partition, the leader first. Raises DemoError if the request is refused."""
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=30_000,
        topics=[
            topic(
                name=name,
                partitions=[
                    topic.ReassignablePartition(partition_index=index, replicas=list(wanted[name, index]))
                    for index in indexes
                ],
            )
            for name, indexes in _by_topic(wanted).items()
        ],
    )
    answer = wire.send(wire.any_broker(), request)
    codes = {answer.error_code, *(p.error_code for t in answer.responses for p in t.partitions)}
    if codes != {int(ErrorCode.NONE)}:
        raise DemoError(f"partitions could not be reassigned: {', '.join(map(error_name, codes))}")


def elect(wire: Wire, wanted: Iterable[Key], *, uncleanly: bool = False) -> None:
    """Requests that the first replica of each partition leads, or uncleanly any replica where none in sync is there. A
    refused request may be repeated.
    """
    topic = ElectLeadersRequest.TopicPartitions
    request = ElectLeadersRequest(
        election_type=_UNCLEAN if uncleanly else _PREFERRED,
        topic_partitions=[topic(topic=name, partitions=indexes) for name, indexes in _by_topic(wanted).items()],
        timeout_ms=10_000,
    )
    wire.send(wire.any_broker(), request)


def delete_records(wire: Wire, topic: str, before_offset: int) -> None:
    """Deletes the records of partition 0 before this offset, on all its replicas. Raises DemoError."""
    asked = DeleteRecordsRequest.DeleteRecordsTopic
    partition = asked.DeleteRecordsPartition(partition_index=0, offset=before_offset)
    request = DeleteRecordsRequest(topics=[asked(name=topic, partitions=[partition])], timeout_ms=30_000)
    (answer,) = wire.send(wire.partition(topic, 0).leader, request).topics[0].partitions
    if answer.error_code != ErrorCode.NONE:
        raise DemoError(f"records of {topic}-0 could not be deleted: {error_name(answer.error_code)}")


def move_to_other_disk(wire: Wire, broker_id: int, keys: Iterable[Key]) -> None:
    """Moves these replicas of a broker with two log directories, each to the other directory. The broker copies the log
    to a new replica, which then takes the place of the old one. Raises DemoError if the request is refused.
    """
    wanted = list(keys)
    dirs = describe_log_dirs(wire.send, broker_id, wanted)
    moves = {there.path: _by_topic(key for key in wanted if key not in there.sizes_bytes) for there in dirs}
    moves = {path: moved for path, moved in moves.items() if moved}
    kind = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topic = kind.AlterReplicaLogDirTopic
    request = AlterReplicaLogDirsRequest(
        dirs=[
            kind(path=path, topics=[topic(name=name, partitions=indexes) for name, indexes in moved.items()])
            for path, moved in moves.items()
        ]
    )
    answer = wire.send(broker_id, request)
    codes = {p.error_code for t in answer.results for p in t.partitions}
    if codes != {int(ErrorCode.NONE)}:
        raise DemoError(f"replicas could not be moved: {', '.join(map(error_name, codes))}")


def directories_of(wire: Wire, broker_id: int, key: Key) -> set[str]:
    """The log directories with a replica of this broker: both for a moment while it moves."""
    return {there.path for there in describe_log_dirs(wire.send, broker_id, [key]) if key in there.sizes_bytes}


def _by_topic(keys: Iterable[Key]) -> dict[str, list[int]]:
    indexes = defaultdict(list)
    for topic, index in keys:
        indexes[topic].append(index)
    return indexes
