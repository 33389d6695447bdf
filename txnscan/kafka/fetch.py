"""Fetch (api key 1): the record batches of a partition, from its leader, up to the high watermark.

With `currentLeaderEpoch` set (v9, Kafka 2.1) a broker answers only where it leads at exactly that epoch. From v13 on
topics are named by their ids; v12 is the last that names them. ACLs: Read on the topic. A consumer gets what is below
the high watermark, control batches included. Source: `KafkaApis.handleFetchRequest`, `Partition.fetchRecords`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kafka.errors import CorruptRecordError, KafkaError
from kafka.protocol.consumer import FetchRequest
from kafka.record import MemoryRecords

from txnscan.kafka.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, error_name, present
from txnscan.model import Partition

_MIN_VERSION = 9
_MAX_VERSION = 12
_CONSUMER = -1
_MAGIC = 2
# Version and type of a control record.
_CONTROL_KEY = struct.Struct(">hh")
_COMMIT = 1


@dataclass(frozen=True, slots=True)
class Batch:
    """A record batch: its offsets, what its header says of its producer, and its records as (offset, key, value).

    commits: whether it is a COMMIT marker. records: None where they were not asked for.
    """

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_control: bool
    is_transactional: bool
    commits: bool = False
    records: tuple[tuple[int, bytes | None, bytes | None], ...] | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """The batches from an offset on, as many as fit, and the high watermark: where a reader is done. size_bytes: of all
    that was sent.
    """

    batches: tuple[Batch, ...]
    high_watermark: int
    size_bytes: int = 0

    def next_offset(self, offset: int) -> int:
        """Where to go on, having asked from this offset."""
        return max([offset, *(batch.last_offset + 1 for batch in self.batches)])


def fetch(send: Send, partition: Partition, offset: int, bytes_max: int, *, records: bool) -> Fetched:
    """The batches that hold this offset and the following ones. At least one, even if it is larger than `bytes_max`.

    records: whether to decode what is in the batches, and not their headers alone.
    Raises RequestFailed: also where the broker does not lead the partition at its leader epoch any more, where the
    offset is not in the log, and where a batch is damaged.
    """
    topic = FetchRequest.FetchTopic
    request = FetchRequest(
        replica_id=_CONSUMER,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=bytes_max,
        isolation_level=0,
        topics=[
            topic(
                topic=partition.topic,
                partitions=[
                    topic.FetchPartition(
                        partition=partition.partition,
                        current_leader_epoch=partition.leader_epoch,
                        fetch_offset=offset,
                        partition_max_bytes=bytes_max,
                    )
                ],
            )
        ],
        forgotten_topics_data=[],
        min_version=_MIN_VERSION,
        max_version=_MAX_VERSION,
    )
    response = send(partition.leader, request)
    if response.error_code != ErrorCode.NONE:
        raise RequestFailed(error_name(response.error_code))
    answers = [
        answer
        for topic_answer in present(response.responses)
        for answer in present(topic_answer.partitions)
        if (topic_answer.topic, answer.partition_index) == partition.key
    ]
    if len(answers) != 1:
        raise RequestFailed(f"the broker answered {len(answers)} times for the partition that it was asked for")
    (answer,) = answers
    if answer.error_code != ErrorCode.NONE:
        raise RequestFailed(error_name(answer.error_code))
    data = bytes(answer.records or b"")
    return Fetched(tuple(_batches(data, records)), answer.high_watermark, len(data))


def _batches(data: bytes, records: bool) -> list[Batch]:
    """The whole batches in it: the last may be cut off, which is no error of a Fetch answer."""
    try:
        return [_batch(batch, records) for batch in MemoryRecords(data)]
    except (KafkaError, ValueError, IndexError, OSError, EOFError, struct.error, zlib.error) as damaged:
        raise RequestFailed(f"a record batch cannot be decoded ({type(damaged).__name__}: {damaged})") from damaged


def _commits(keys: Iterable[bytes | None]) -> bool:
    """Whether these keys of a control batch's records are those of a COMMIT marker (`ControlRecordType`)."""
    known = (key for key in keys if key is not None and len(key) >= _CONTROL_KEY.size)
    return any(_CONTROL_KEY.unpack_from(key)[1] == _COMMIT for key in known)


def _batch(batch: Any, records: bool) -> Batch:
    if batch.magic != _MAGIC:
        raise CorruptRecordError(f"its format is version {batch.magic}, which knows no producers")
    if not batch.validate_crc():
        raise CorruptRecordError(f"the batch at offset {batch.base_offset} fails its checksum")
    # Control batches are never compressed, and a batch can be gone through once.
    held = tuple((r.offset, r.key, r.value) for r in batch) if records or batch.is_control_batch else ()
    return Batch(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_control=batch.is_control_batch,
        is_transactional=batch.is_transactional,
        commits=batch.is_control_batch and _commits(key for _, key, _ in held),
        records=held if records else None,
    )
