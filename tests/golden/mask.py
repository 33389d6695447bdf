"""The declared differences between answers of brokers: fields that are masked, and arrays without an order.

Everything else must be the same, byte for byte. `Masks.bytes_of` takes the body of a request or an answer apart as
kafka-python decodes it, masks and sorts, and encodes it again. Without masks a body
must come out unchanged, or an error is raised, so no byte is lost on the way.

Three comparisons share the list. Each allows more differences than the previous level:

- `ANY`: the wire-level cluster and a recording. It is given the ids, ports and times of the recorded brokers.
- `AGAIN`: two recordings of one shape. Ids and ports are chosen anew, and time has passed.
- `STATES`: two recordings of one script. Epochs and offsets of the transaction log come from the scripts before it.

Messages and fields have the names of Kafka's protocol. A path names a field; `[]` is each element of an array.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import cache
from typing import Any
from uuid import UUID

from kafka.protocol.admin import (
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer.transaction import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafka.record import MemoryRecords

from tests.golden.raw import Asked
from txnscan.demo.jars import NEXT_KAFKA_VERSION, OLD_KAFKA_VERSION
from txnscan.kafka.protocol.record_batch import ATTRIBUTES_AT, CONTROL, LENGTH_AT, LENGTH_FROM, MARKER_SIZE
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.txnlog.decode import decode, transactional_id

_PAIRS = (
    (DescribeAclsRequest, DescribeAclsResponse),
    (DescribeClusterRequest, DescribeClusterResponse),
    (DescribeConfigsRequest, DescribeConfigsResponse),
    (DescribeLogDirsRequest, DescribeLogDirsResponse),
    (DescribeProducersRequest, DescribeProducersResponse),
    (DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
    (DescribeTransactionsRequest, DescribeTransactionsResponse),
    (ListGroupsRequest, ListGroupsResponse),
    (ListTransactionsRequest, ListTransactionsResponse),
    (FetchRequest, FetchResponse),
    (ListOffsetsRequest, ListOffsetsResponse),
    (OffsetFetchRequest, OffsetFetchResponse),
    (OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    (ApiVersionsRequest, ApiVersionsResponse),
    (FindCoordinatorRequest, FindCoordinatorResponse),
    (MetadataRequest, MetadataResponse),
    (InitProducerIdRequest, InitProducerIdResponse),
    (WriteTxnMarkersRequest, WriteTxnMarkersResponse),
)
# By API key: how a request and an answer are decoded.
CLASSES: Mapping[int, tuple[Any, Any]] = {request.API_KEY: (request, response) for request, response in _PAIRS}


class Level(IntEnum):
    """How much may differ; see above."""

    ANY = 1
    AGAIN = 2
    STATES = 3


class Kind(Enum):
    """How a field is masked.

    ZERO: 0, or an empty text. TIME: 0 for a time, while -1 stays. NUMBER: an id becomes the number of its
    first appearance, so that the same id is the same in all answers. LOG_ONLY: 0, for the transaction log alone.
    """

    ZERO = "zero"
    TIME = "time"
    NUMBER = "number"
    LOG_ONLY = "log only"


@dataclass(frozen=True)
class Masked:
    """A field that may differ, from a level on. kafka: on this version alone."""

    message: str
    path: str
    kind: Kind
    since: Level
    kafka: str = ""


@dataclass(frozen=True)
class Sorted:
    """An array without an order, from a level on. by: the fields to sort by; empty for plain values. kafka: on this
    version alone.
    """

    message: str
    path: str
    by: tuple[str, ...]
    since: Level
    kafka: str = ""


# Real brokers name any broker as the controller, another one in each answer.
_CONTROLLER = (
    Masked("MetadataResponse", "controller_id", Kind.ZERO, Level.ANY),
    Masked("DescribeClusterResponse", "controller_id", Kind.ZERO, Level.ANY),
)
_TIMES = (
    Masked("DescribeTransactionsResponse", "transaction_states[].transaction_start_time_ms", Kind.TIME, Level.ANY),
    Masked(
        "DescribeProducersResponse", "topics[].partitions[].active_producers[].last_timestamp", Kind.TIME, Level.AGAIN
    ),
    Masked("ListOffsetsResponse", "topics[].partitions[].timestamp", Kind.TIME, Level.AGAIN),
    Masked("ApiVersionsResponse", "finalized_features_epoch", Kind.TIME, Level.AGAIN),
)
_PLACES = (
    Masked("MetadataResponse", "brokers[].port", Kind.ZERO, Level.AGAIN),
    Masked("MetadataResponse", "cluster_id", Kind.ZERO, Level.AGAIN),
    Masked("DescribeClusterResponse", "brokers[].port", Kind.ZERO, Level.AGAIN),
    Masked("DescribeClusterResponse", "cluster_id", Kind.ZERO, Level.AGAIN),
    Masked("FindCoordinatorResponse", "coordinators[].port", Kind.ZERO, Level.AGAIN),
)
# Directories, and how full they are. An unknown size of a volume is -1.
_DISKS = (
    Masked("DescribeLogDirsResponse", "results[].log_dir", Kind.ZERO, Level.ANY),
    Masked("DescribeLogDirsResponse", "results[].topics[].partitions[].partition_size", Kind.TIME, Level.ANY),
    Masked("DescribeLogDirsResponse", "results[].total_bytes", Kind.TIME, Level.ANY),
    Masked("DescribeLogDirsResponse", "results[].usable_bytes", Kind.TIME, Level.ANY),
)
_IDS = (
    Masked("MetadataResponse", "topics[].topic_id", Kind.NUMBER, Level.AGAIN),
    Masked("DescribeTopicPartitionsResponse", "topics[].topic_id", Kind.NUMBER, Level.AGAIN),
    Masked("OffsetFetchRequest", "groups[].topics[].topic_id", Kind.NUMBER, Level.AGAIN),
    Masked("OffsetFetchResponse", "groups[].topics[].topic_id", Kind.NUMBER, Level.AGAIN),
    Masked("ListTransactionsRequest", "producer_id_filters[]", Kind.NUMBER, Level.AGAIN),
    Masked("ListTransactionsResponse", "transaction_states[].producer_id", Kind.NUMBER, Level.AGAIN),
    Masked("DescribeTransactionsResponse", "transaction_states[].producer_id", Kind.NUMBER, Level.AGAIN),
    Masked(
        "DescribeProducersResponse", "topics[].partitions[].active_producers[].producer_id", Kind.NUMBER, Level.AGAIN
    ),
    Masked("InitProducerIdResponse", "producer_id", Kind.NUMBER, Level.AGAIN),
)
# A script leaves epochs and offsets behind for the next one. Coordinator epochs are compared as there or not.
_HISTORY = (
    Masked("MetadataResponse", "topics[].partitions[].leader_epoch", Kind.TIME, Level.STATES),
    Masked("ListOffsetsRequest", "topics[].partitions[].current_leader_epoch", Kind.TIME, Level.STATES),
    Masked("ListOffsetsResponse", "topics[].partitions[].leader_epoch", Kind.TIME, Level.STATES),
    # The wire cluster's transaction log has another history.
    Masked("OffsetForLeaderEpochResponse", "topics[].partitions[].end_offset", Kind.LOG_ONLY, Level.ANY),
    Masked("FetchRequest", "topics[].partitions[].current_leader_epoch", Kind.TIME, Level.STATES),
    Masked("FetchRequest", "topics[].partitions[].fetch_offset", Kind.LOG_ONLY, Level.STATES),
    Masked("FetchResponse", "responses[].partitions[].high_watermark", Kind.LOG_ONLY, Level.STATES),
    Masked("FetchResponse", "responses[].partitions[].last_stable_offset", Kind.LOG_ONLY, Level.STATES),
    Masked("FetchResponse", "responses[].partitions[].log_start_offset", Kind.LOG_ONLY, Level.STATES),
    Masked(
        "DescribeProducersResponse",
        "topics[].partitions[].active_producers[].coordinator_epoch",
        Kind.TIME,
        Level.STATES,
    ),
)
# The throttle time, in every answer that has one.
THROTTLE = "throttle_time_ms"
# Kafka 3.5 keeps the start of the last transaction of an id that started anew.
_OF_OLD = (
    Masked(
        "DescribeTransactionsResponse",
        "transaction_states[].transaction_start_time_ms",
        Kind.ZERO,
        Level.ANY,
        OLD_KAFKA_VERSION,
    ),
)
MASKED: Sequence[Masked] = (*_CONTROLLER, *_OF_OLD, *_TIMES, *_PLACES, *_DISKS, *_IDS, *_HISTORY)

# Sorts topics that there are not, and leaves the others in their order.
_UNKNOWN_BY_NAME = "unknown by name"
# Brokers give these in the order of their hash tables.
SORTED: Sequence[Sorted] = (
    Sorted("ListTransactionsResponse", "transaction_states", ("transactional_id",), Level.ANY),
    Sorted("DescribeTransactionsResponse", "transaction_states[].topics", ("topic",), Level.ANY),
    Sorted("ListOffsetsResponse", "topics[].partitions", ("partition_index",), Level.ANY),
    Sorted("DescribeLogDirsResponse", "results[].topics", ("name",), Level.ANY),
    Sorted("DescribeLogDirsResponse", "results[].topics[].partitions", ("partition_index",), Level.ANY),
    Sorted("ListGroupsResponse", "groups", ("group_id",), Level.ANY),
    Sorted("OffsetFetchResponse", "groups", ("group_id",), Level.ANY),
    Sorted("OffsetFetchResponse", "groups[].topics", ("name", "topic_id"), Level.ANY),
    Sorted("OffsetFetchResponse", "groups[].topics[].partitions", ("partition_index",), Level.ANY),
    Sorted("DescribeConfigsResponse", "results[].configs", ("name",), Level.ANY),
    # Kafka 4.4 has unknown topics in another order than 4.3; the wire cluster answers as 4.3.
    Sorted("MetadataResponse", "topics", (_UNKNOWN_BY_NAME,), Level.ANY, NEXT_KAFKA_VERSION),
    # Kafka 3.5 has topics and partitions in the order of a hash table.
    Sorted("MetadataResponse", "topics", ("name",), Level.ANY, OLD_KAFKA_VERSION),
    Sorted("MetadataResponse", "topics[].partitions", ("partition_index",), Level.ANY, OLD_KAFKA_VERSION),
    # By producer ids, which are others.
    Sorted(
        "DescribeProducersResponse",
        "topics[].partitions[].active_producers",
        ("current_txn_start_offset", "producer_epoch", "last_sequence"),
        Level.AGAIN,
    ),
    # Replicas come and go in the scripts.
    Sorted("MetadataResponse", "brokers", ("node_id",), Level.STATES),
    Sorted("MetadataResponse", "topics", ("name",), Level.STATES),
    Sorted("MetadataResponse", "topics[].partitions[].replica_nodes", (), Level.STATES),
    Sorted("MetadataResponse", "topics[].partitions[].isr_nodes", (), Level.STATES),
    Sorted("DescribeClusterResponse", "brokers", ("broker_id",), Level.STATES),
)
# Fields of a record batch: their place, their size, how they are masked, and from which level on. The checksum covers
# the producer id, which is swapped in the wire cluster's answers.
BATCH: Sequence[tuple[int, int, Kind, Level]] = (
    (17, 4, Kind.ZERO, Level.ANY),  # checksum
    (27, 8, Kind.TIME, Level.AGAIN),  # first timestamp
    (35, 8, Kind.TIME, Level.AGAIN),  # last timestamp
    (43, 8, Kind.NUMBER, Level.AGAIN),  # producer id
    (0, 8, Kind.LOG_ONLY, Level.STATES),  # base offset
    (12, 4, Kind.TIME, Level.STATES),  # leader epoch
)
# In the marker that ends a transaction: the coordinator epoch, masked at level STATES.
_MARKER_EPOCH_AT = MARKER_SIZE - 5


@dataclass(frozen=True)
class Otherwise:
    """Requests that hold these bytes, and that brokers of this version answer otherwise than the wire cluster: why."""

    kafka: str
    message: str
    holding: bytes
    why: str


# The wire cluster answers as Kafka 4 does.
OTHERWISE: Sequence[Otherwise] = (
    Otherwise(
        OLD_KAFKA_VERSION, "MetadataRequest", b"__share_group_state", "3.5 has no share groups: a topic like any"
    ),
    Otherwise(OLD_KAFKA_VERSION, "DescribeConfigsRequest", b"remote.storage.enable", "3.5 has no tiered storage"),
    Otherwise(OLD_KAFKA_VERSION, "DescribeLogDirsRequest", b"", "3.5 lists its other topics too, without partitions"),
    Otherwise(OLD_KAFKA_VERSION, "ListGroupsRequest", b"EMPTY", "3.5 compares states with upper and lower case"),
)


def is_answered_otherwise(kafka: str, asked: Asked) -> bool:
    """Whether the wire cluster is known to give another answer than brokers of this version."""
    message = CLASSES[asked.api][0].__name__
    return any((o.kafka, o.message) == (kafka, message) and o.holding in asked.request for o in OTHERWISE)


@dataclass
class Masks:
    """Masks bodies for one side of a comparison. Keeps the numbers of the ids that it has seen.

    kafka: the version of the recorded brokers. ids: at level `STATES`, the transactional ids of the script; listings
    and logs are compared for these alone.
    """

    level: Level
    kafka: str
    ids: Sequence[str] = ()
    _numbers: dict[Any, int] = field(default_factory=dict)

    def asked(self, asked: Asked) -> tuple[int, int, int, bytes, bytes]:
        """A request and its answer: broker, API, version, and both bodies, masked."""
        request = self.bytes_of(asked.api, asked.version, asked.request, is_request=True)
        answer = self.bytes_of(asked.api, asked.version, asked.answer)
        return asked.broker_id, asked.api, asked.version, request, answer

    def bytes_of(self, api: int, version: int, body: bytes, *, is_request: bool = False) -> bytes:
        """The body with masked fields and sorted arrays. Raises ValueError for a body that is not fully understood."""
        message_type = CLASSES[api][0 if is_request else 1]
        message = message_type.decode(body, version=version)
        message._header = None
        if bytes(message.encode(version=version)) != body:
            raise ValueError(f"{message_type.__name__}, version {version}, is not what it is decoded to: {body.hex()}")
        name = message_type.__name__
        if self.level is Level.STATES and name == "ListTransactionsResponse":
            message.transaction_states = [o for o in message.transaction_states if o.transactional_id in self.ids]
        if name == "FetchResponse":
            self._records(message)
        topic = _topic_of(message)
        masks = _masked(name, self.level, self.kafka)
        # Topics are sorted by the numbers of their ids; producer ids are numbered after sorting.
        self._apply(message, [mask for mask in masks if mask.path.endswith(_TOPIC_ID)], topic)
        for rule in _sorted(name, self.level, self.kafka):
            *parents, array = rule.path.split(".")
            for holder in _reached([message], parents):
                if (listed := getattr(holder, array)) is not None:
                    setattr(holder, array, sorted(listed, key=_order(rule.by)))
        if hasattr(message, THROTTLE):
            message.throttle_time_ms = 0
        self._apply(message, [mask for mask in masks if not mask.path.endswith(_TOPIC_ID)], topic)
        return bytes(message.encode(version=version))

    def _apply(self, message: Any, masks: Sequence[Masked], topic: str | None) -> None:
        for mask in masks:
            *parents, last = mask.path.split(".")
            for holder in _reached([message], parents):
                self._mask(holder, last, mask.kind, topic)

    def _mask(self, holder: Any, name: str, kind: Kind, topic: str | None) -> None:
        plain = name.removesuffix("[]")
        value = getattr(holder, plain)
        if kind is Kind.NUMBER and getattr(holder, "error_code", False):
            # An id beside an error has no meaning.
            return
        if name != plain:
            setattr(holder, plain, [self._value(kind, one, topic) for one in value])
        else:
            setattr(holder, plain, self._value(kind, value, topic))

    def _value(self, kind: Kind, value: Any, topic: str | None) -> Any:
        if kind is Kind.NUMBER:
            return self._number(value)
        if kind is Kind.TIME:
            return min(value, 0) if value is not None else None
        if kind is Kind.LOG_ONLY:
            return 0 if topic == TRANSACTION_STATE_TOPIC else value
        return "" if isinstance(value, str) else 0

    def _number(self, value: Any) -> Any:
        if isinstance(value, UUID):
            return UUID(int=self._numbers.setdefault(value, len(self._numbers) + 1)) if value.int else value
        return self._numbers.setdefault(value, len(self._numbers) + 1) if value is not None and value >= 0 else value

    def _records(self, message: Any) -> None:
        for topic in message.responses:
            for partition in topic.partitions:
                if partition.records:
                    batches = batches_of(bytes(partition.records))
                    partition.records = b"".join(self._batch(batch, topic.topic) for batch in batches)

    def _batch(self, batch: bytes, topic: str) -> bytes:
        masked = bytearray(batch)
        for at, size, kind, since in BATCH:
            if self.level < since:
                continue
            if at + size > len(batch):
                # The answer ends here.
                masked[at:] = bytes(max(len(batch) - at, 0))
            else:
                value = int.from_bytes(batch[at : at + size], signed=True)
                masked[at : at + size] = self._value(kind, value, topic).to_bytes(size, signed=True)
        if self.level is Level.STATES and len(batch) == MARKER_SIZE and batch[ATTRIBUTES_AT + 1] & CONTROL:
            masked[_MARKER_EPOCH_AT : _MARKER_EPOCH_AT + 4] = bytes(4)
        if self.level >= Level.AGAIN and topic == TRANSACTION_STATE_TOPIC:
            return self._log_batch(batch, masked)
        return bytes(masked)

    def _log_batch(self, batch: bytes, masked: bytearray) -> bytes:
        """A batch of the transaction log, with the times and producer ids in its values masked too."""
        (one,) = MemoryRecords(batch)
        own = False
        for record in one:
            name = transactional_id(record.key)
            own = own or name in self.ids
            if name is not None and record.value is not None:
                at = batch.index(record.value, batch.index(record.key))
                masked[at : at + len(record.value)] = self._logged(name, record.value)
        return bytes(masked) if own or self.level is not Level.STATES else b""

    def _logged(self, name: str, value: bytes) -> bytes:
        """A value of the transaction log (`TransactionLogValue.json`)."""
        told = decode(0, 0, name, value)
        masked = bytearray(value)
        masked[2:10] = self._number(told.producer_id).to_bytes(8, signed=True)
        times = struct.pack(">qq", told.updated_ms, told.start_time_ms)
        at = value.rindex(times)
        masked[at : at + 16] = struct.pack(">qq", min(told.updated_ms, 0), min(told.start_time_ms, 0))
        at += 16
        if at < len(value):
            # Tagged fields, each with a tag and a length of one byte; those with 8 bytes are producer ids.
            at += 1
            while at < len(value):
                size = value[at + 1]
                at += 2
                if size == _PRODUCER_ID_BYTES:
                    number = self._number(int.from_bytes(value[at : at + size], signed=True))
                    masked[at : at + size] = number.to_bytes(size, signed=True)
                at += size
        return bytes(masked)


_PRODUCER_ID_BYTES = 8
_TOPIC_ID = "topic_id"


def batches_of(data: bytes) -> Iterator[bytes]:
    """The record batches in an answer to Fetch; the last may be cut off."""
    at = 0
    while at < len(data):
        size = LENGTH_FROM + int.from_bytes(data[at + LENGTH_AT : at + LENGTH_FROM])
        yield data[at : at + size]
        at += size


def records_of(answer: bytes, version: int) -> bytes:
    """The records in an answer to Fetch of one partition."""
    (topic,) = FetchResponse.decode(answer, version=version).responses
    return bytes(topic.partitions[0].records or b"")


def _topic_of(message: Any) -> str | None:
    """The topic of a Fetch, which txnscan sends for one partition at a time."""
    topics = getattr(message, "responses", None) or getattr(message, "topics", None) or ()
    return getattr(topics[0], "topic", None) if topics else None


@cache
def _masked(message: str, level: Level, kafka: str) -> tuple[Masked, ...]:
    return tuple(mask for mask in MASKED if _counts(mask, message, level, kafka))


@cache
def _sorted(message: str, level: Level, kafka: str) -> tuple[Sorted, ...]:
    """The inner arrays first."""
    found = (rule for rule in SORTED if _counts(rule, message, level, kafka))
    return tuple(sorted(found, key=lambda rule: -rule.path.count(".")))


def _counts(rule: Masked | Sorted, message: str, level: Level, kafka: str) -> bool:
    return rule.message == message and rule.since <= level and rule.kafka in ("", kafka)


def _reached(holders: Sequence[Any], parents: Sequence[str]) -> Sequence[Any]:
    """The structures at the end of a path."""
    for name in parents:
        plain = name.removesuffix("[]")
        held = [getattr(holder, plain) for holder in holders]
        holders = [one for each in held for one in each or ()] if name != plain else held
    return holders


def _order(by: tuple[str, ...]) -> Callable[[Any], Any]:
    if not by:
        return lambda value: value
    if by == (_UNKNOWN_BY_NAME,):
        return lambda topic: (topic.error_code, topic.name if topic.error_code else "")
    return lambda one: tuple(str(v) if not isinstance(v := getattr(one, name), int) else v for name in by)
