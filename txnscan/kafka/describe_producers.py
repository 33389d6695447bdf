"""DescribeProducers (api key 61, v0, since Kafka 2.8): the producers that a replica of a partition knows.

ACLs: Read on the topic. There is no leader epoch in it and followers answer without an error, so an answer proves
nothing about the leader by itself (`probe.py` adds that). Producers without a transaction are answered too; only open
transactions (start offset >= 0) are kept here. Source: `KafkaApis.handleDescribeProducersRequest`,
`UnifiedLog.activeProducers`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import DescribeProducersRequest

from txnscan.kafka.client import Send
from txnscan.kafka.errors import ErrorCode, error_name, present
from txnscan.model import Key, OpenProducer, Partition


@dataclass(frozen=True, slots=True)
class DescribedPartition:
    """One partition's answer: how many producers it knows, those with an open transaction, or the error."""

    producers: int = 0
    open_producers: tuple[OpenProducer, ...] = ()
    error: str | None = None


def describe_producers(send: Send, broker_id: int, partitions: Iterable[Partition]) -> dict[Key, DescribedPartition]:
    """Each of the partitions, as that broker describes it. Raises RequestFailed when the request as a whole fails.

    A partition left out of the answer, or answered twice, is an error of that partition.
    """
    indexes: dict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        indexes[partition.topic].append(partition.partition)
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=t, partition_indexes=i) for t, i in indexes.items()]
    )
    missing = DescribedPartition(error="the broker left this partition out of its answer")
    described = {(topic, index): missing for topic, wanted in indexes.items() for index in wanted}
    answered = set()
    for topic in present(send(broker_id, request).topics):
        for answer in present(topic.partitions):
            key = (topic.name, answer.partition_index)
            if key in described:
                described[key] = _described(answer) if key not in answered else _doubled("partition")
                answered.add(key)
    return described


def _described(answer: Any) -> DescribedPartition:
    if answer.error_code != ErrorCode.NONE:
        return DescribedPartition(error=error_name(answer.error_code))
    if answer.active_producers is None:
        return DescribedPartition(error="the broker's answer holds null in place of the producers")
    producers = answer.active_producers
    if len({p.producer_id for p in producers}) != len(producers):
        return _doubled("producer id")
    still_open = [p for p in producers if p.current_txn_start_offset >= 0]
    return DescribedPartition(
        producers=len(producers),
        open_producers=tuple(
            OpenProducer(
                producer_id=p.producer_id,
                producer_epoch=p.producer_epoch,
                coordinator_epoch=p.coordinator_epoch,
                start_offset=p.current_txn_start_offset,
                last_timestamp_ms=p.last_timestamp,
                last_sequence=p.last_sequence,
            )
            for p in sorted(still_open, key=lambda p: p.producer_id)
        ),
    )


def _doubled(what: str) -> DescribedPartition:
    return DescribedPartition(error=f"the broker's answer holds a {what} twice")
