"""A cluster that answers `send(broker_id, request)` from data, with kafka-python's own answer classes.

`FakeCluster.send` is what the API modules take as `send`. Change its data to change its answers; put a function into
`edit` to change one kind of answer: it gets the broker's id and the finished answer, and returns the answer to send.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.admin import (
    DescribeAclsResponse,
    DescribeLogDirsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeQuorumResponse,
    DescribeTransactionsResponse,
    ListTransactionsResponse,
)
from kafka.protocol.consumer import (
    FetchResponse,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

from txnscan.kafka.answers import OpenProducer
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.protocol.api_versions import ELIGIBLE_LEADER_REPLICAS
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.frames import AsBytes, Body, api_name
from txnscan.kafka.security.acls import AclRule
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Broker, Partition

ADDRESS = "127.0.0.1"
OFFSET_OUT_OF_RANGE = 1
IMAGE_OFFSET = 1_000
# Base offset, length, leader epoch, magic, checksum and attributes come before it.
LAST_OFFSET_DELTA_AT = 8 + 4 + 4 + 1 + 4 + 2
ProducersTopic = DescribeProducersResponse.TopicResponse
ProducersPartition = ProducersTopic.PartitionResponse
OffsetsTopic = ListOffsetsResponse.ListOffsetsTopicResponse
OffsetsPartition = OffsetsTopic.ListOffsetsPartitionResponse
EpochEndsTopic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
FetchedTopic = FetchResponse.FetchableTopicResponse
FetchedPartition = FetchedTopic.PartitionData
LogDirResult = DescribeLogDirsResponse.DescribeLogDirsResult
LogDirTopic = LogDirResult.DescribeLogDirsTopic
AclResource = DescribeAclsResponse.DescribeAclsResource
DescribedId = DescribeTransactionsResponse.TransactionState
MetadataTopic = MetadataResponse.MetadataResponseTopic
Edit = Callable[[int, Any], Any]

# The request's name and what tells it from others of the same name.
Asked = tuple[int, str]


def partition(topic: str = "t", index: int = 0, leader: int = 1, epoch: int = 5, topic_id: str = "") -> Partition:
    """A partition as a plan knows it."""
    return Partition(topic, topic_id, index, leader, epoch)


def producer(producer_id: int, start_offset: int = 100, **changes: int) -> OpenProducer:
    """A producer as DescribeProducers lists it. A start offset of -1 means that it has no open transaction."""
    values = {"producer_epoch": 3, "coordinator_epoch": 0, "last_timestamp_ms": 1_700_000_000_000, "last_sequence": 4}
    return OpenProducer(producer_id=producer_id, start_offset=start_offset, **(values | changes))


@dataclass
class FakePartition:
    """The state of one partition on the brokers."""

    leader: int = 1
    epoch: int = 5
    high_watermark: int = 200
    log_start: int = 0
    producers: list[OpenProducer] = field(default_factory=list)
    # Error codes to answer with, by "producers", "high watermark", "last stable", "log start", "log end", "fetch" and
    # "epoch end".
    errors: dict[str, int] = field(default_factory=dict)
    # Record batches, in the order of their offsets.
    log: list[bytes] = field(default_factory=list)
    last_stable: int | None = None
    # The high watermark, if None.
    log_end: int | None = None
    # Producer ids and first offsets of aborted transactions, as Fetch names them to read_committed consumers.
    aborted: list[tuple[int, int]] = field(default_factory=list)
    topic_id: uuid.UUID | None = None
    # The size of the replica on each broker that has one; on its leader alone without any.
    sizes_bytes: dict[int, int] = field(default_factory=dict)
    # The leader's epoch cache: the first offset of each leader epoch. With an empty one it confirms no epoch.
    epoch_starts: dict[int, int] = field(default_factory=dict)

    def offset(self, which: str) -> int:
        """One of the four offsets."""
        if which == "log end":
            return self.high_watermark if self.log_end is None else self.log_end
        if which == "high watermark":
            return self.high_watermark
        if which == "log start":
            return self.log_start
        if self.last_stable is not None:
            return self.last_stable
        return min([p.start_offset for p in self.producers if p.start_offset >= 0] or [self.high_watermark])

    def write(self, batch: bytes) -> None:
        """Appends a batch, all of which is replicated."""
        self.log.append(batch)
        self.high_watermark = last_offset(batch) + 1

    def read(self, offset: int, bytes_max: int, end: int | None = None, *, at_least_one: bool = True) -> bytes:
        """The batches from this offset on. The last may be cut off. The first is whole; if it is larger than the limit,
        a broker gives it only for the first partition of a request that has any (`ReplicaManager.readFromLog`).
        """
        end = self.high_watermark if end is None else end
        held = [data for data in self.log if last_offset(data) >= offset and base_offset(data) < end]
        if held and len(held[0]) > bytes_max:
            return held[0] if at_least_one else b""
        return b"".join(held)[:bytes_max]


@dataclass
class FakeId:
    """A transactional id at its coordinator. `listed_producer_id` differs where the id changes between two requests."""

    producer_id: int = 7
    producer_epoch: int = 3
    state: str = "Ongoing"
    partitions: tuple[tuple[str, int], ...] = ()
    error: int = 0
    listed_producer_id: int | None = None
    start_time_ms: int = 1_700_000_000_000


class FakeCluster:
    """Brokers with partitions and transactional ids.

    unreachable: brokers that fail every request. cached: which `__transaction_state` partitions each broker answers
    for; others get NOT_COORDINATOR. probe_codes: the error code for ids unknown to a broker, by (broker, partition).
    rules: on transactional ids, by broker; None for a broker that refuses to tell. hides: whether a broker refuses to
    describe an id. fetch_max_bytes: the brokers' own limit. epochs_rise: whether they have eligible leader replicas.
    """

    def __init__(self, brokers: Iterable[int] = (1, 2, 3)) -> None:
        self.brokers = list(brokers)
        self.partitions: dict[tuple[str, int], FakePartition] = {}
        self.topic_errors: dict[str, int] = {}
        self.unreachable: set[int] = set()
        self.ids: dict[int, dict[str, FakeId]] = {}
        self.cached: dict[int, set[int]] = {}
        self.probe_codes: dict[tuple[int, int], int] = {}
        self.list_errors: dict[int, int] = {}
        self.rules: dict[int, list[AclRule] | None] = {}
        self.hides: Callable[[int, str], bool] = lambda broker_id, name: False
        self.fetch_max_bytes = 1 << 20
        self.epochs_rise = True
        self.images: dict[int, int | None] = {}
        self.edit: dict[str, Edit] = {}
        # The free space of the only volume of each broker; of others it is not known.
        self.usable_bytes: dict[int, int] = {}
        self.fail_when: Callable[[int, Any, list[Asked]], bool] = lambda broker_id, request, asked: False
        # Another cluster that a broker believes in, for its Metadata.
        self.believes: dict[int, FakeCluster] = {}
        self.asked: list[Asked] = []
        self.requests: list[Any] = []

    def lead(self, topic: str, leaders: Iterable[int], epoch: int = 5) -> None:
        """A topic with a partition for each of these leaders; for `__transaction_state` they cache it too."""
        for index, leader in enumerate(leaders):
            self.partitions[topic, index] = FakePartition(leader, epoch)
            if topic == TRANSACTION_STATE_TOPIC:
                self.cached.setdefault(leader, set()).add(index)

    @property
    def transaction_state_partitions(self) -> int:
        return sum(topic == TRANSACTION_STATE_TOPIC for topic, _ in self.partitions)

    def planned(self, *keys: tuple[str, int]) -> tuple[Partition, ...]:
        """These partitions as a plan would name them."""
        return tuple(Partition(t, "", i, self.partitions[t, i].leader, self.partitions[t, i].epoch) for t, i in keys)

    def send(self, broker_id: int, request: Any) -> Any:
        """The broker's answer."""
        name = api_name(request)
        plain = as_sent(request)
        self.asked.append((broker_id, name))
        self.requests.append(plain)
        if broker_id in self.unreachable or self.fail_when(broker_id, request, self.asked):
            raise RequestFailed(f"broker {broker_id} cannot be reached")
        answer = getattr(self, f"_answer_{name}")(broker_id, plain)
        edited = self.edit[name](broker_id, answer) if name in self.edit else answer
        return as_bytes(edited) if isinstance(request, AsBytes) else edited

    def _answer_ApiVersions(self, broker_id: int, request: Any) -> Any:
        offset = self.images.get(broker_id, IMAGE_OFFSET)
        names = ("metadata.version", *((ELIGIBLE_LEADER_REPLICAS,) if self.epochs_rise else ()))
        kraft = [
            ApiVersionsResponse.FinalizedFeatureKey(name=name, min_version_level=1, max_version_level=1)
            for name in names
        ]
        return ApiVersionsResponse(
            version=4,
            error_code=0,
            api_keys=[],
            finalized_features_epoch=0 if offset is None else offset,
            finalized_features=[] if offset is None else kraft,
        )

    def _answer_Metadata(self, broker_id: int, request: Any) -> Any:
        if broker_id in self.believes:
            return self.believes[broker_id]._answer_Metadata(broker_id, request)
        topics: dict[str, list[Any]] = {}
        for (topic, index), held in sorted(self.partitions.items()):
            shown = MetadataTopic.MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=held.leader,
                leader_epoch=held.epoch,
                replica_nodes=list(held.sizes_bytes or [held.leader]),
                isr_nodes=list(held.sizes_bytes or [held.leader]),
            )
            topics.setdefault(topic, []).append(shown)
        wanted = sorted(topics) if request.topics is None else [topic.name for topic in request.topics]
        return MetadataResponse(
            version=12,
            cluster_id="fake",
            brokers=[
                MetadataResponse.MetadataResponseBroker(node_id=b, host=ADDRESS, port=9000 + b) for b in self.brokers
            ],
            topics=[self._metadata_topic(name, topics.get(name, [])) for name in wanted],
        )

    def _metadata_topic(self, name: str, partitions: list[Any]) -> Any:
        error = self.topic_errors.get(name, 0 if partitions else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        topic_id = self.partitions[name, partitions[0].partition_index].topic_id if partitions else None
        return MetadataTopic(
            error_code=error, name=name, topic_id=topic_id or uuid.UUID(int=0), partitions=[] if error else partitions
        )

    def _answer_DescribeProducers(self, broker_id: int, request: Any) -> Any:
        return DescribeProducersResponse(
            topics=[
                ProducersTopic(name=t.name, partitions=[self._producers(t.name, i) for i in t.partition_indexes])
                for t in request.topics
            ]
        )

    def _producers(self, topic: str, index: int) -> Any:
        held = self.partitions[topic, index]
        code = held.errors.get("producers", 0)
        shown = [] if code else [producer_state(p) for p in held.producers]
        return ProducersPartition(partition_index=index, error_code=code, active_producers=shown)

    def _answer_DescribeQuorum(self, broker_id: int, request: Any) -> Any:
        """Refused: a principal need not have that right."""
        return DescribeQuorumResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None, topics=[])

    def _answer_ListOffsets(self, broker_id: int, request: Any) -> Any:
        which = offset_kind(request)
        return ListOffsetsResponse(
            topics=[
                OffsetsTopic(name=t.name, partitions=[self._offset(broker_id, t.name, p, which) for p in t.partitions])
                for t in request.topics
            ]
        )

    def _offset(self, broker_id: int, topic: str, asked: Any, which: str) -> Any:
        held = self.partitions[topic, asked.partition_index]
        code = leadership_error(held, broker_id, asked.current_leader_epoch) or held.errors.get(which, 0)
        offset = -1 if code else held.offset(which)
        return OffsetsPartition(partition_index=asked.partition_index, error_code=code, offset=offset)

    def _answer_OffsetForLeaderEpoch(self, broker_id: int, request: Any) -> Any:
        return OffsetForLeaderEpochResponse(
            topics=[
                EpochEndsTopic(topic=t.topic, partitions=[self._epoch_end(broker_id, t.topic, p) for p in t.partitions])
                for t in request.topics
            ]
        )

    def _epoch_end(self, broker_id: int, topic: str, asked: Any) -> Any:
        held = self.partitions[topic, asked.partition]
        code = leadership_error(held, broker_id, asked.current_leader_epoch) or held.errors.get("epoch end", 0)
        epoch, end = (-1, -1) if code else epoch_end(held.epoch_starts, held.high_watermark, asked.leader_epoch)
        return EpochEndsTopic.EpochEndOffset(
            partition=asked.partition, error_code=code, leader_epoch=epoch, end_offset=end
        )

    def _answer_Fetch(self, broker_id: int, request: Any) -> Any:
        responses, is_first = [], True
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                found = self._fetched(broker_id, topic.topic, asked, request.isolation_level, is_first)
                is_first = is_first and not found.records
                partitions.append(found)
            responses.append(FetchedTopic(topic=topic.topic, partitions=partitions))
        return FetchResponse(error_code=0, responses=responses)

    def _fetched(self, broker_id: int, topic: str, asked: Any, isolation_level: int, is_first: bool) -> Any:
        held = self.partitions[topic, asked.partition]
        code = leadership_error(held, broker_id, asked.current_leader_epoch) or held.errors.get("fetch", 0)
        committed = bool(isolation_level)
        if not code and not held.log_start <= asked.fetch_offset <= held.high_watermark:
            code = OFFSET_OUT_OF_RANGE
        if code:
            return FetchedPartition(partition_index=asked.partition, error_code=code, high_watermark=-1, records=None)
        return FetchedPartition(
            partition_index=asked.partition,
            error_code=0,
            high_watermark=held.high_watermark,
            last_stable_offset=held.offset("last stable"),
            log_start_offset=held.log_start,
            aborted_transactions=[
                FetchedPartition.AbortedTransaction(producer_id=producer_id, first_offset=first)
                for producer_id, first in held.aborted
            ]
            if committed
            else None,
            records=held.read(
                asked.fetch_offset,
                min(asked.partition_max_bytes, self.fetch_max_bytes),
                held.offset("last stable") if committed else None,
                at_least_one=is_first,
            ),
        )

    def _answer_DescribeLogDirs(self, broker_id: int, request: Any) -> Any:
        wanted = [(t.topic, i) for t in request.topics for i in t.partitions]
        held = {key: self.partitions[key].sizes_bytes.get(broker_id) for key in wanted if key in self.partitions}
        replica = LogDirTopic.DescribeLogDirsPartition
        return DescribeLogDirsResponse(
            error_code=0,
            results=[
                LogDirResult(
                    error_code=0,
                    log_dir="/data",
                    topics=[
                        LogDirTopic(name=topic, partitions=[replica(partition_index=index, partition_size=size_bytes)])
                        for (topic, index), size_bytes in held.items()
                        if size_bytes is not None
                    ],
                    total_bytes=1 << 40 if broker_id in self.usable_bytes else -1,
                    usable_bytes=self.usable_bytes.get(broker_id, -1),
                )
            ],
        )

    def _answer_ListTransactions(self, broker_id: int, request: Any) -> Any:
        code = self.list_errors.get(broker_id, 0)
        known = {} if code else self.ids.get(broker_id, {})
        return ListTransactionsResponse(
            error_code=code,
            transaction_states=[
                ListTransactionsResponse.TransactionState(
                    transactional_id=name,
                    producer_id=_listed_producer_id(held),
                    transaction_state=held.state,
                )
                for name, held in known.items()
                if not request.state_filters or held.state in request.state_filters
                if not request.producer_id_filters or _listed_producer_id(held) in request.producer_id_filters
            ],
        )

    def _answer_DescribeAcls(self, broker_id: int, request: Any) -> Any:
        rules = self.rules.get(broker_id, [])
        if rules is None:
            return DescribeAclsResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        return DescribeAclsResponse(error_code=0, resources=[acl_resource(rule) for rule in rules])

    def _answer_DescribeTransactions(self, broker_id: int, request: Any) -> Any:
        return DescribeTransactionsResponse(
            transaction_states=[self._described(broker_id, name) for name in request.transactional_ids]
        )

    def _described(self, broker_id: int, name: str) -> Any:
        if self.hides(broker_id, name):
            refused = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return DescribedId(error_code=refused, transactional_id=name)
        held = self.ids.get(broker_id, {}).get(name)
        if held is None or held.error:
            k = coordinator_partition(name, self.transaction_state_partitions)
            cached = k in self.cached.get(broker_id, set())
            default = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if cached else ErrorCode.NOT_COORDINATOR
            code = held.error if held is not None else self.probe_codes.get((broker_id, k), int(default))
            return DescribedId(error_code=code, transactional_id=name)
        return DescribedId(
            error_code=0,
            transactional_id=name,
            transaction_state=held.state,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=held.start_time_ms,
            producer_id=held.producer_id,
            producer_epoch=held.producer_epoch,
            topics=[DescribedId.TopicData(topic=topic, partitions=[index]) for topic, index in held.partitions],
        )


def _listed_producer_id(held: FakeId) -> int:
    return held.producer_id if held.listed_producer_id is None else held.listed_producer_id


def lacking(lacks_it: int, api: str) -> Edit:
    """An edit by which this broker does not have an API."""

    def unsupported(broker_id: int, answer: Any) -> Any:
        if broker_id == lacks_it:
            raise RequestFailed.unsupported(f"broker {broker_id}", api)
        return answer

    return unsupported


def as_sent(request: Any) -> Any:
    """The request as a broker would decode it; where kafka-python is to encode it, it is as it was made."""
    if not isinstance(request, AsBytes):
        return request
    if api_name(request) == "DescribeProducers":
        return DescribeProducersRequest.decode(request.encode(version=0), version=0)
    if api_name(request) == "OffsetFetch":
        return OffsetFetchRequest.decode(request.encode(version=9), version=9)
    return request.request


def as_bytes(answer: Any) -> Body:
    """An answer of kafka-python's as it comes over the wire."""
    version = answer.max_version if answer.version is None else answer.version
    return Body(version, bytes(answer.encode(version=version)))


def acl_resource(rule: AclRule) -> Any:
    """A rule in a DescribeAcls answer."""
    acl = AclResource.AclDescription(
        principal=rule.principal, host=rule.host, operation=rule.operation, permission_type=2 if rule.deny else 3
    )
    return AclResource(resource_type=5, resource_name=rule.name, pattern_type=4 if rule.prefixed else 3, acls=[acl])


def producer_state(shown: OpenProducer) -> Any:
    """A producer in a DescribeProducers answer."""
    return ProducersPartition.ProducerState(
        producer_id=shown.producer_id,
        producer_epoch=shown.producer_epoch,
        last_sequence=shown.last_sequence,
        last_timestamp=shown.last_timestamp_ms,
        coordinator_epoch=shown.coordinator_epoch,
        current_txn_start_offset=shown.start_offset,
    )


def leadership_error(held: FakePartition, broker_id: int, leader_epoch: int) -> int:
    """The error code of a broker that does not lead the partition at this leader epoch; 0 if it leads."""
    if broker_id != held.leader:
        return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if leader_epoch in (held.epoch, -1):
        return 0
    newer = leader_epoch > held.epoch
    return int(ErrorCode.UNKNOWN_LEADER_EPOCH if newer else ErrorCode.FENCED_LEADER_EPOCH)


def epoch_end(starts: Mapping[int, int], log_end: int, asked: int) -> tuple[int, int]:
    """The epoch and the end offset that a leader answers from its epoch cache (`LeaderEpochFileCache.endOffsetFor`).

    starts: the first offset of each epoch.
    """
    if starts and asked == max(starts):
        return asked, log_end
    higher = min((epoch for epoch in starts if epoch > asked), default=None)
    if asked == -1 or higher is None:
        return -1, -1
    return max((epoch for epoch in starts if epoch <= asked), default=asked), starts[higher]


def base_offset(batch: bytes) -> int:
    """The first offset of a record batch, as its header has it."""
    return int(struct.unpack_from(">q", batch)[0])


def last_offset(batch: bytes) -> int:
    """The last offset of a record batch."""
    return base_offset(batch) + int(struct.unpack_from(">i", batch, LAST_OFFSET_DELTA_AT)[0])


def offset_kind(request: Any) -> str:
    """Which of the four offsets a ListOffsets request asks for."""
    if request.replica_id == -2:
        return "log end"
    (timestamp,) = {p.timestamp for t in request.topics for p in t.partitions}
    if timestamp == -2:
        return "log start"
    return "last stable" if request.isolation_level == 1 else "high watermark"


def one_by_one(call: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """Makes calls in sequence. Replaces the parallel calls of the metadata agreed."""
    return [call(item) for item in items]


def no_progress(done: int, total: int) -> None:
    """Ignores the progress."""


def broker(broker_id: int, port: int | None = None) -> Broker:
    """A broker of the fake cluster, or a broker on a local port."""
    return Broker(broker_id, ADDRESS, 9000 + broker_id if port is None else port)


@dataclass(frozen=True)
class FakeFactory:
    """Stands in for ClientFactory. fake: answers as each client."""

    fake: Any
    brokers: tuple[Broker, ...] = (broker(-1),)
    settings: ConnectionSettings = field(default_factory=ConnectionSettings)

    def for_controller(self) -> FakeFactory:
        """See ClientFactory."""
        return self

    def client(self) -> Any:
        """The fake brokers."""
        return self.fake

    def close(self) -> None:
        """Has no connections to close."""
