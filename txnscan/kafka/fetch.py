"""Fetch (api key 1): the record batches of a partition, from its leader, up to the high watermark.

With `currentLeaderEpoch` set (v9, Kafka 2.1) a broker answers only at exactly that leader epoch, and up to v10 only
where it leads: from v11 on a follower answers consumers too (KIP-392). ACLs: Read on the topic. A consumer gets what is
below the high watermark, control batches included. Source: `KafkaApis.handleFetchRequest`,
`FetchParams.fetchOnlyLeader`, `Partition.fetchRecords`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kafka.protocol.consumer import FetchRequest
from kafka.record.util import calc_crc32c

from txnscan.kafka.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, error_name, present
from txnscan.kafka.record_batch import (
    COMPRESSED,
    CONTROL,
    CRC_FROM,
    HEADER,
    LENGTH_FROM,
    MAGIC,
    TRANSACTIONAL,
    Batch,
)
from txnscan.kafka.records import decoded
from txnscan.model import Partition

_MIN_VERSION = 9
_MAX_VERSION = 10
_CONSUMER = -1


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


def fetch(
    send: Send,
    partition: Partition,
    offset: int,
    bytes_max: int,
    *,
    records: bool,
    wanted: Callable[[bytes], bool] | None = None,
) -> Fetched:
    """The batches that hold this offset and the following ones. At least one, even if it is larger than `bytes_max`.

    records: whether to decode what is in the batches, and not their headers alone. wanted: decodes them only of batches
    of which this is true, given their bytes, and of those that are compressed.
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
        raise RequestFailed(error_name(response.error_code), code=error_name(response.error_code))
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
        raise RequestFailed(error_name(answer.error_code), code=error_name(answer.error_code))
    data = bytes(answer.records or b"")
    found = decoded(data, records) if wanted is None else _scanned(data, wanted)
    return Fetched(tuple(found), answer.high_watermark, len(data))


def _scanned(data: bytes, wanted: Callable[[bytes], bool]) -> Iterator[Batch]:
    """The same, with the records of the batches that are wanted, and of the others the header. A batch that is not
    plain, which nobody can look into, is decoded.
    """
    at = 0
    while at + HEADER.size <= len(data):
        header = HEADER.unpack_from(data, at)
        base_offset, length, _, magic, crc, attributes, last_delta, _, _, producer_id, epoch, sequence, count = header
        end = at + LENGTH_FROM + length
        if length < HEADER.size - LENGTH_FROM:
            raise RequestFailed(f"a record batch cannot be decoded (its length is {length})")
        if end > len(data):
            return
        whole = data[at:end]
        if magic != MAGIC or attributes & (COMPRESSED | CONTROL) or wanted(whole):
            yield from decoded(whole, records=True)
        else:
            if calc_crc32c(memoryview(whole)[CRC_FROM:]) != crc:
                raise RequestFailed(
                    f"a record batch cannot be decoded (the batch at offset {base_offset} fails its checksum)"
                )
            yield Batch(
                base_offset,
                base_offset + last_delta,
                producer_id,
                epoch,
                sequence,
                is_control=False,
                is_transactional=bool(attributes & TRANSACTIONAL),
                records_count=count,
            )
        at = end
