"""Read a partition as a consumer does, from an offset to the end that the isolation level allows; and commit an offset
as a group does.
"""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.protocol.consumer import FetchRequest
from kafka.record import MemoryRecords
from kafka.structs import OffsetAndMetadata

from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.errors import DemoError
from txnscan.demo.requests import Wire
from txnscan.kafka.errors import ErrorCode, error_name

# The last version with topic names instead of topic ids.
_FETCH = 12
_BYTES_MAX = 8 * 1024 * 1024


def read_values(wire: Wire, topic: str, partition: int, *, committed: bool, offset: int = 0) -> list[bytes]:
    """The values from an offset on that a read_committed consumer gets, or, without `committed`, a read_uncommitted
    consumer.
    """
    values: list[bytes] = []
    leader = wire.partition(topic, partition).leader
    while True:
        answer = _fetch(wire, leader, topic, partition, offset, committed)
        end = answer.last_stable_offset if committed else answer.high_watermark
        if offset >= end:
            return values
        aborted = _Aborted(answer.aborted_transactions or ()) if committed else _Aborted(())
        batches = MemoryRecords(bytes(answer.records or b""))
        before = offset
        while (batch := batches.next_batch()) is not None:
            offset = batch.next_offset
            if aborted.admits(batch):
                values += [record.value for record in batch if record.offset >= before]
        if offset == before:
            raise DemoError(f"{topic}-{partition} gave no records at offset {offset}, before its end at {end}")


def _fetch(wire: Wire, leader: int, topic: str, partition: int, offset: int, committed: bool) -> Any:
    topic_type = FetchRequest.FetchTopic
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_BYTES_MAX,
        isolation_level=1 if committed else 0,
        topics=[
            topic_type(
                topic=topic,
                partitions=[
                    topic_type.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_BYTES_MAX)
                ],
            )
        ],
        forgotten_topics_data=[],
        min_version=_FETCH,
        max_version=_FETCH,
    )
    answer = wire.send(leader, request).responses[0].partitions[0]
    if answer.error_code != ErrorCode.NONE:
        raise DemoError(f"{topic}-{partition} could not be read: {error_name(answer.error_code)}")
    return answer


def commit_offset(cluster: KafkaCluster, group: str, topic: str, offset: int) -> None:
    """Commits an offset of partition 0 as this group, which has no members afterwards."""
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=group, enable_auto_commit=False)
    try:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)})
    finally:
        consumer.close()


class _Aborted:
    """Decides which batches of one Fetch answer belong to aborted transactions."""

    def __init__(self, transactions: Any) -> None:
        self._starts = sorted((t.first_offset, t.producer_id) for t in transactions)
        self._open: set[int] = set()

    def admits(self, batch: Any) -> bool:
        """Whether a consumer gets this batch. Call it in offset order."""
        while self._starts and self._starts[0][0] <= batch.last_offset:
            self._open.add(self._starts.pop(0)[1])
        if batch.is_control_batch:
            # Any marker ends its producer's transaction.
            self._open.discard(batch.producer_id)
            return False
        return not (batch.is_transactional and batch.producer_id in self._open)
