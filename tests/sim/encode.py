"""Record batches as brokers store and send them, for simulated Fetch answers."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from kafka.record import MemoryRecordsBuilder
from kafka.record.util import calc_crc32c

from tests.sim.records import Marker, TransactionMetadata
from txnscan.kafka.answers import State
from txnscan.kafka.protocol.frames import Body
from txnscan.kafka.protocol.primitives import EMPTY, NO_TAGS, NULL, items, numbers, string
from txnscan.kafka.topology import Key

_BATCH_BYTES_MAX = 1 << 20
_TIMEOUT_MS = 60_000
_CLIENT_VERSION_TAG = 2


def batch(
    base_offset: int,
    records: Iterable[tuple[bytes | None, bytes | None]],
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = 0,
    timestamp_ms: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """A record batch of keys and values; transactional if a producer id is given."""
    producer = (
        {
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "base_sequence": base_sequence,
            "transactional": True,
        }
        if producer_id >= 0
        else {}
    )
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=_BATCH_BYTES_MAX, **producer)
    for key, value in records:
        builder.append(timestamp=timestamp_ms, key=key, value=value)
    builder.close()
    # The checksum does not cover the base offset and the leader epoch: a broker overwrites the producer's values.
    made = bytes(builder.buffer())
    return struct.pack(">q", base_offset) + made[8:12] + struct.pack(">i", leader_epoch) + made[16:]


# The position of a batch's attributes, and their bit for a control batch.
_ATTRIBUTES_AT, _CONTROL = 21, 0x20
_CRC_AT, _CRC_FROM = 17, 21


def marker(offset: int, written: Marker, timestamp_ms: int = 0, leader_epoch: int = 0) -> bytes:
    """A control batch with an EndTxnMarker (`EndTransactionMarker`)."""
    key, value = struct.pack(">hh", 0, int(written.committed)), struct.pack(">hi", 0, written.coordinator_epoch)
    plain = batch(
        offset,
        [(key, value)],
        producer_id=written.producer_id,
        producer_epoch=written.producer_epoch,
        base_sequence=0,
        timestamp_ms=timestamp_ms,
        leader_epoch=leader_epoch,
    )
    data = bytearray(plain)
    (attributes,) = struct.unpack_from(">h", data, _ATTRIBUTES_AT)
    struct.pack_into(">h", data, _ATTRIBUTES_AT, attributes | _CONTROL)
    struct.pack_into(">I", data, _CRC_AT, calc_crc32c(bytes(data[_CRC_FROM:])))
    return bytes(data)


def transaction_log_value(metadata: TransactionMetadata, started_ms: int, updated_ms: int | None = None) -> bytes:
    """`TransactionLogValue.json`, version 1. updated_ms: None means the time of its start."""
    times = (started_ms if updated_ms is None else updated_ms, started_ms)
    status = [state.value for state in State].index(metadata.state)
    head = struct.pack(">hqhib", 1, metadata.producer_id, metadata.producer_epoch, _TIMEOUT_MS, status)
    return b"".join((head, _partitions(metadata), struct.pack(">qq", *times), _tags(metadata)))


def _partitions(metadata: TransactionMetadata) -> bytes:
    if metadata.state == "Empty":
        return NULL
    held: set[Key] = set() if metadata.state.startswith("Complete") else set(metadata.partitions)
    return items(
        string(topic) + numbers(sorted(index for name, index in held if name == topic)) + NO_TAGS
        for topic in sorted({topic for topic, _ in held})
    )


def _tags(metadata: TransactionMetadata) -> bytes:
    if metadata.client_version < 2:
        return NO_TAGS
    return bytes((1, _CLIENT_VERSION_TAG, 2)) + struct.pack(">h", metadata.client_version)


# --- answers that a sweep reads as bytes (`frames.py`) ----------------------------------------------------------------

_NO_THROTTLE = b"\x00" * 4
_METADATA_VERSION = 12


def metadata(answer: Any) -> Body:
    """`MetadataResponse.json`, version 12."""
    brokers = [
        struct.pack(">i", b.node_id) + string(b.host) + struct.pack(">i", b.port) + NULL + NO_TAGS
        for b in answer.brokers
    ]
    topics = [
        struct.pack(">h", t.error_code)
        + string(t.name)
        + t.topic_id.bytes
        + b"\x00"
        + items(
            struct.pack(">hiii", p.error_code, p.partition_index, p.leader_id, p.leader_epoch) + EMPTY * 3 + NO_TAGS
            for p in t.partitions
        )
        + struct.pack(">i", 0)
        + NO_TAGS
        for t in answer.topics
    ]
    controller = struct.pack(">i", -1)
    data = _NO_THROTTLE + items(brokers) + string(answer.cluster_id) + controller + items(topics) + NO_TAGS
    return Body(_METADATA_VERSION, data)


def described_producers(answer: Any) -> Body:
    """`DescribeProducersResponse.json`, version 0."""
    topics = (
        string(topic.name) + items(_described_partition(p) for p in topic.partitions) + NO_TAGS
        for topic in answer.topics
    )
    return Body(0, _NO_THROTTLE + items(topics) + NO_TAGS)


def _described_partition(partition: Any) -> bytes:
    producers = (
        struct.pack(
            ">qiiqiq",
            p.producer_id,
            p.producer_epoch,
            p.last_sequence,
            p.last_timestamp,
            p.coordinator_epoch,
            p.current_txn_start_offset,
        )
        + NO_TAGS
        for p in partition.active_producers
    )
    head = struct.pack(">ih", partition.partition_index, partition.error_code)
    return head + NULL + items(producers) + NO_TAGS
