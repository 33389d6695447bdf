"""Move replicas and leaders of partitions on real brokers, as an administrator does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kafka.protocol.admin import AlterPartitionReassignmentsRequest, ElectLeadersRequest

from txnscan.demo.errors import DemoError
from txnscan.demo.requests import Wire
from txnscan.kafka.errors import ErrorCode, error_name
from txnscan.kafka.topology import Key

_PREFERRED = 0


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


def elect(wire: Wire, wanted: Iterable[Key]) -> None:
    """Requests that the first replica of each partition leads. A refused request may be repeated."""
    topic = ElectLeadersRequest.TopicPartitions
    request = ElectLeadersRequest(
        election_type=_PREFERRED,
        topic_partitions=[topic(topic=name, partitions=indexes) for name, indexes in _by_topic(wanted).items()],
        timeout_ms=10_000,
    )
    wire.send(wire.any_broker(), request)


def _by_topic(keys: Iterable[Key]) -> dict[str, list[int]]:
    indexes = defaultdict(list)
    for topic, index in keys:
        indexes[topic].append(index)
    return indexes
