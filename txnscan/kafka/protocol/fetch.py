"""Fetch (api key 1): the record batches of a partition, from its leader, up to the high watermark.

With `currentLeaderEpoch` set (v9, Kafka 2.1) a broker answers only at exactly that leader epoch. Up to v10 only the
leader answers; from v11 on a follower also answers consumers (KIP-392). ACLs: Read on the topic. A consumer gets all
batches below the high watermark, also control batches. Source: `KafkaApis.handleFetchRequest`,
`FetchParams.fetchOnlyLeader`, `Partition.fetchRecords`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.consumer import FetchRequest

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, answered, present
from txnscan.kafka.failure import Failure
from txnscan.kafka.protocol.record_batch import HEADER, Batch, BatchHeader
from txnscan.kafka.protocol.records import decoded
from txnscan.kafka.protocol.search import Undecoded, undecoded
from txnscan.kafka.topology import Key, Partition

_MIN_VERSION = 9
_MAX_VERSION = 10
_CONSUMER = -1
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_BEGINNING_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Fetched:
    """The batches from an offset on, as many as fit, and the high watermark, at which a reader is done. size_bytes: of
    the batches as they were sent.
    """

    batches: tuple[Batch, ...]
    high_watermark: int
    size_bytes: int = 0

    def next_offset(self, offset: int) -> int:
        """The offset for the next fetch, after a fetch from this offset."""
        return max([offset, *(batch.last_offset + 1 for batch in self.batches)])


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An aborted transaction, as Fetch lists it for read_committed consumers. They drop the producer's records from
    this offset up to its ABORT marker.
    """

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class FetchedCommitted(Fetched):
    """Batches up to the last stable offset, with the aborted transactions among them."""

    aborted: tuple[AbortedTransaction, ...] = ()


# The most that a read for one answer takes of a log.
LONG_READ_BYTES_MAX = 64 * 1024 * 1024
# Small or compacted segments give small answers. But if a broker gives less than this over so many requests, a reader
# would never finish.
_SMALL_ANSWERS_MAX = 10_000
_BYTES_PER_REQUEST_MIN = 16 * 1024
# The limits of a read, whatever the end of the log is by the broker's word.
_REQUESTS_MAX, _BYTES_MAX = 100_000, 64 << 30


class Reading:
    """A read of a log that must end, although the broker decides the size of each answer and the end of the log.

    where: the subject of its errors. end: the end of the log by the first answer.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._requests = 0
        self.size_bytes = 0
        self.end: int | None = None

    def is_done(self, offset: int, reached: int, high_watermark: int, size_bytes: int) -> bool:
        """Counts an answer from this offset on. Returns whether the end is reached. Raises RequestFailed if the read
        makes no progress, or exceeds a limit.
        """
        self._requests += 1
        self.size_bytes += size_bytes
        self.end = high_watermark if self.end is None else self.end
        if reached >= self.end:
            return True
        if reached == offset:
            raise RequestFailed(f"{self._where} gave no records at offset {offset}, before its end at {self.end}")
        is_slow = self._requests > _SMALL_ANSWERS_MAX and self.size_bytes < self._requests * _BYTES_PER_REQUEST_MIN
        if is_slow or self._requests >= _REQUESTS_MAX or self.size_bytes >= _BYTES_MAX:
            gave = f"{self._requests:,} answers with {self.size_bytes:,} bytes"
            raise RequestFailed(f"{self._where} gave {gave}, up to offset {reached} of {self.end}")
        return False


def fetch(send: Send, partition: Partition, offset: int, bytes_max: int, *, records: bool) -> Fetched:
    """The batches from the batch with this offset on. At least one batch, even if it is larger than `bytes_max`.

    records: whether to decode the records in the batches, not only the headers. Raises RequestFailed, also if the
    broker no longer leads the partition at its leader epoch, if the offset is not in the log, or if a batch is damaged.
    """
    answer = _fetched(send, partition, offset, bytes_max)
    data = _wanted(answer.records, bytes_max)
    return Fetched(tuple(decoded(data, records)), answer.high_watermark, len(data))


def fetch_beginnings(send: Send, offsets: Mapping[Partition, int]) -> dict[Partition, Fetched | Failure]:
    """The same for several partitions of one leader, in one request: from the batch with this offset on, up to 16 KiB
    of each partition, and only headers of batches. A partition whose first batch is larger may have none. Raises
    RequestFailed if the whole request fails.
    """
    if not offsets:
        return {}
    size = _BEGINNING_BYTES * len(offsets)
    answers = _answers(send, [(one, at, _BEGINNING_BYTES) for one, at in offsets.items()], size, _READ_UNCOMMITTED)
    return {one: _beginning(one, answers) for one in offsets}


def _beginning(partition: Partition, answers: Mapping[Key, Sequence[Any]]) -> Fetched | Failure:
    try:
        answer = _only(answers.get(partition.key, ()))
        data = _wanted(answer.records, _BEGINNING_BYTES)
        return Fetched(tuple(decoded(data, False)), answer.high_watermark, len(data))
    except RequestFailed as failed:
        return failed.failure


def fetch_committed(send: Send, partition: Partition, offset: int, bytes_max: int) -> FetchedCommitted:
    """The same for a read_committed consumer, only with headers of batches. Raises RequestFailed as `fetch` does."""
    answer = _fetched(send, partition, offset, bytes_max, _READ_COMMITTED)
    data = _wanted(answer.records, bytes_max)
    aborted = tuple(AbortedTransaction(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ())
    return FetchedCommitted(tuple(decoded(data, False)), answer.high_watermark, len(data), aborted)


def fetch_undecoded(send: Send, partition: Partition, offset: int, bytes_max: int) -> tuple[Undecoded, int]:
    """The same batches, to be searched (`search.py`), and the high watermark. Raises RequestFailed as `fetch` does."""
    answer = _fetched(send, partition, offset, bytes_max)
    return undecoded(_wanted(answer.records, bytes_max)), answer.high_watermark


def _wanted(records: bytes | None, bytes_max: int) -> bytes:
    """As much as was asked for, and at least the first batch, as brokers count (`LogSegment.read`). A broker could send
    millions of batches: headers of 61 bytes, each of which takes time and memory.
    """
    data = records or b""
    first = BatchHeader.read(data).size_bytes if len(data) >= HEADER.size else len(data)
    return bytes(data[: max(bytes_max, first)])


def batch_time_ms(send: Send, partition: Partition, offset: int) -> int | None:
    """The greatest timestamp in the batch with this offset. None if no batch has the offset any more. Raises
    RequestFailed as `fetch` does.
    """
    found, _ = fetch_undecoded(send, partition, offset, _BEGINNING_BYTES)
    for at in found.bounds[:-1]:
        header = BatchHeader.read(found.data, at)
        if header.base_offset <= offset <= header.last_offset:
            return header.greatest_timestamp_ms
    return None


def _fetched(
    send: Send, partition: Partition, offset: int, bytes_max: int, isolation_level: int = _READ_UNCOMMITTED
) -> Any:
    answers = _answers(send, [(partition, offset, bytes_max)], bytes_max, isolation_level)
    return _only(answers.get(partition.key, ()))


def _answers(
    send: Send, wanted: Sequence[tuple[Partition, int, int]], bytes_max: int, isolation_level: int
) -> Mapping[Key, Sequence[Any]]:
    """The answers by partition. wanted: partitions of one leader, each with its offset and its limit of bytes."""
    topic = FetchRequest.FetchTopic
    by_topic: dict[str, list[Any]] = defaultdict(list)
    for partition, offset, partition_bytes_max in wanted:
        by_topic[partition.topic].append(
            topic.FetchPartition(
                partition=partition.partition,
                current_leader_epoch=partition.leader_epoch,
                fetch_offset=offset,
                partition_max_bytes=partition_bytes_max,
            )
        )
    request = FetchRequest(
        replica_id=_CONSUMER,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=bytes_max,
        isolation_level=isolation_level,
        topics=[topic(topic=name, partitions=partitions) for name, partitions in by_topic.items()],
        forgotten_topics_data=[],
        min_version=_MIN_VERSION,
        max_version=_MAX_VERSION,
    )
    response = send(wanted[0][0].leader, request)
    if response.error_code != ErrorCode.NONE:
        raise RequestFailed(answered(response.error_code))
    answers: dict[Key, list[Any]] = defaultdict(list)
    for topic_answer in present(response.responses):
        for answer in present(topic_answer.partitions):
            answers[topic_answer.topic, answer.partition_index].append(answer)
    return answers


def _only(answers: Sequence[Any]) -> Any:
    """The answer for one partition. Raises RequestFailed, also if it is an error."""
    if len(answers) != 1:
        raise RequestFailed(f"the broker answered {len(answers)} times for the partition that it was asked for")
    (answer,) = answers
    if answer.error_code != ErrorCode.NONE:
        raise RequestFailed(answered(answer.error_code))
    return answer
