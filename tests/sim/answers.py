"""The answers of a simulated broker: the `send` that the real evidence protocol gets.

Answers have the field names of kafka-python; the modules of `kafka/` read only these fields.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from tests.sim import encode
from tests.sim.codec import Reader
from tests.sim.records import Data, Idle, Image, Log, Marker, TransactionLogRecord, producer_state
from tests.sim.world import KEPT_EPOCHS, World
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.protocol.api_versions import ELIGIBLE_LEADER_REPLICAS
from txnscan.kafka.protocol.frames import AsBytes, api_name
from txnscan.kafka.topology import Key
from txnscan.txnlog.decode import transactional_id_key

CLUSTER_ID = "simulated"
# The times in answers have no meaning: timeouts are events.
_LONG_AGO_MS = 1_700_000_000_000
_TIMEOUT_MS = 60_000
# org.apache.kafka.common.acl: AclOperation, AclPermissionType, and resource.PatternType.
_DESCRIBE, _DENY, _LITERAL, _TRANSACTIONAL_ID = 8, 2, 3, 5
# `ListOffsetsRequest.DEBUGGING_REPLICA_ID`. Here only leaders answer it: a sweep asks no other broker.
_DEBUGGING_REPLICA = -2
_UNDEFINED_EPOCH = -1
_OFFSET_OUT_OF_RANGE = 1


def answer(world: World, broker_id: int, request: Any) -> Any:
    """The broker's answer. Raises RequestFailed if the broker is paused or down."""
    if not world.up(broker_id):
        raise RequestFailed(f"broker {broker_id} cannot be reached")
    name = api_name(request)
    shown = _ANSWERS[name](world, broker_id, request)
    return _ENCODED[name](shown) if isinstance(request, AsBytes) else shown


def _features(world: World) -> tuple[str, ...]:
    """In KRaft mode, with the feature that raises leader epochs at every restart, unless they stay in this world."""
    kept = KEPT_EPOCHS in world.scenario.faults
    return ("metadata.version",) if kept else ("metadata.version", ELIGIBLE_LEADER_REPLICAS)


def _api_versions(world: World, broker_id: int, request: Any) -> Any:
    """The offset of the image that Metadata answers come from (`KRaftMetadataCache.features`)."""
    return SimpleNamespace(
        error_code=0,
        api_keys=[],
        finalized_features_epoch=world.brokers[broker_id].metadata.offset,
        supported_features=[],
        finalized_features=[SimpleNamespace(name=name, max_version_level=1) for name in _features(world)],
    )


# Dedicated controllers. The first leads.
_CONTROLLERS = (101, 102, 103)


def _describe_quorum(world: World, broker_id: int, request: Any) -> Any:
    """The leader of the controllers, as this broker reaches it: the present one, or a deposed one, which no other
    controller follows any more. Raises RequestFailed for a broker that is cut off from all controllers.
    """
    world.quorum_ms += 2
    epoch, mark, followed_ms = world.quorum_epoch, world.image.offset + 1, world.quorum_ms - 1
    if broker_id in world.deposed:
        epoch, mark, followed_ms = world.deposed[broker_id]
    elif not world.brokers[broker_id].linked:
        raise RequestFailed(f"broker {broker_id} reaches no controller")
    fetched_ms = (world.quorum_ms, followed_ms, followed_ms)
    partition = SimpleNamespace(
        error_code=0,
        leader_id=_CONTROLLERS[0],
        leader_epoch=epoch,
        high_watermark=mark,
        current_voters=[
            SimpleNamespace(replica_id=one, last_fetch_timestamp=at)
            for one, at in zip(_CONTROLLERS, fetched_ms, strict=True)
        ],
    )
    return SimpleNamespace(error_code=0, topics=[SimpleNamespace(partitions=[partition])])


def _metadata(world: World, broker_id: int, request: Any) -> Any:
    image = world.brokers[broker_id].metadata
    wanted = None if request.topics is None else tuple(topic.name for topic in request.topics)
    return _shown_metadata(image, broker_id, wanted, tuple(world.index))


@lru_cache(maxsize=10_000)
def _shown_metadata(image: Image, broker_id: int, wanted: tuple[str, ...] | None, keys: tuple[Key, ...]) -> Any:
    topics: dict[str, list[Any]] = {}
    for (topic, index), leadership in zip(keys, image.leaderships, strict=True):
        shown = SimpleNamespace(
            partition_index=index, leader_id=leadership.leader, leader_epoch=leadership.epoch, error_code=0
        )
        topics.setdefault(topic, []).append(shown)
    unknown, names = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), sorted(topics)
    # A broker lists itself only while it is registered, so a fenced broker does not list itself.
    return SimpleNamespace(
        cluster_id=CLUSTER_ID,
        brokers=[SimpleNamespace(node_id=b, host="simulated", port=9000 + b) for b in sorted(image.brokers)],
        topics=[
            SimpleNamespace(
                name=name,
                error_code=0 if name in topics else unknown,
                # Positions of partitions are compared by topic id.
                topic_id=uuid.UUID(int=1 + names.index(name) if name in topics else 0),
                partitions=topics.get(name, []),
            )
            for name in (names if wanted is None else wanted)
        ],
    )


def _describe_producers(world: World, broker_id: int, request: Any) -> Any:
    return SimpleNamespace(
        topics=[
            SimpleNamespace(name=topic, partitions=[_producers(world, broker_id, (topic, index)) for index in indexes])
            for topic, indexes in Reader(request.encode(version=0)).numbered()
        ]
    )


def _producers(world: World, broker_id: int, key: Key) -> Any:
    # Any replica answers, also a follower or a deposed leader, without an error, up to the end of its own log.
    log = world.logs.get((key, broker_id))
    if log is None:
        return SimpleNamespace(
            partition_index=key[1], error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER), active_producers=[]
        )
    return SimpleNamespace(
        partition_index=key[1],
        error_code=0,
        active_producers=[
            SimpleNamespace(
                producer_id=producer_id,
                producer_epoch=shown.producer_epoch,
                last_sequence=shown.last_sequence,
                last_timestamp=_LONG_AGO_MS + shown.last_ms,
                coordinator_epoch=shown.coordinator_epoch,
                current_txn_start_offset=shown.start_offset,
            )
            for producer_id, shown in producer_state(log).items()
        ],
    )


def _list_offsets(world: World, broker_id: int, request: Any) -> Any:
    return SimpleNamespace(
        topics=[
            SimpleNamespace(
                name=topic.name,
                partitions=[
                    _offset(world, broker_id, (topic.name, asked.partition_index), asked, request)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset(world: World, broker_id: int, key: Key, asked: Any, request: Any) -> Any:
    believed = world.leads(broker_id, key)
    debugging = request.replica_id == _DEBUGGING_REPLICA
    mark = world.high_watermarks.get((key, broker_id), 0)
    code = ErrorCode.NONE
    if believed is None:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif asked.current_leader_epoch != believed.epoch:
        newer = asked.current_leader_epoch > believed.epoch
        code = ErrorCode.UNKNOWN_LEADER_EPOCH if newer else ErrorCode.FENCED_LEADER_EPOCH
    elif asked.timestamp == -1 and mark < world.epoch_starts[key, broker_id] and not debugging:
        code = ErrorCode.OFFSET_NOT_AVAILABLE
    offset = mark
    if asked.timestamp == -2 or asked.timestamp >= 0:
        # Times have no meaning here: any record may be as young as the requested time.
        offset = world.log_starts.get((key, broker_id), 0)
    elif debugging and code is ErrorCode.NONE:
        offset = len(world.logs[key, broker_id])
    elif request.isolation_level == 1 and code is ErrorCode.NONE:
        shown = producer_state(world.logs[key, broker_id]).values()
        first = min([p.start_offset for p in shown if p.start_offset >= 0] + [mark])
        offset = max(first, world.log_starts[key, broker_id])
    return SimpleNamespace(
        partition_index=key[1], error_code=int(code), offset=-1 if code is not ErrorCode.NONE else offset, timestamp=-1
    )


def _offset_for_leader_epoch(world: World, broker_id: int, request: Any) -> Any:
    return SimpleNamespace(
        topics=[
            SimpleNamespace(
                topic=topic.topic,
                partitions=[
                    _epoch_end(world, broker_id, (topic.topic, asked.partition), asked) for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _epoch_end(world: World, broker_id: int, key: Key, asked: Any) -> Any:
    """The leader's answer; other brokers return an error. The leader epoch is checked first
    (`Partition.getLocalLog`).
    """
    code, found = ErrorCode.NONE, (_UNDEFINED_EPOCH, -1)
    if (key, broker_id) not in world.logs:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    else:
        believed = world.leadership(world.brokers[broker_id].replicas, key)
        if asked.current_leader_epoch not in (_UNDEFINED_EPOCH, believed.epoch):
            newer = asked.current_leader_epoch > believed.epoch
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if newer else ErrorCode.FENCED_LEADER_EPOCH
        elif believed.leader != broker_id:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            found = _end_offset_for(_epoch_cache(world, broker_id, key), world.logs[key, broker_id], asked.leader_epoch)
    return SimpleNamespace(partition=key[1], error_code=int(code), leader_epoch=found[0], end_offset=found[1])


def _epoch_cache(world: World, broker_id: int, key: Key) -> dict[int, int]:
    """The first offset of each epoch in the leader's cache (`LeaderEpochFileCache`).

    A replica adds an epoch with the first batch of that epoch that it copies. A leader adds its own epoch when it is
    elected (`Partition.makeLeader`), unless it has the epoch from before its restart. A hole adds no epoch, because the
    replica may have copied a log after its compaction. A replica that cleaned its own log still knows the epochs of the
    dropped records. Here it counts as a replica that copied and so knows less: an epoch may seem to end later than it
    did.
    """
    starts: dict[int, int] = {}
    for offset, (epoch, record) in enumerate(world.logs[key, broker_id]):
        if record is not None:
            starts.setdefault(epoch, offset)
    own = world.leadership(world.brokers[broker_id].replicas, key).epoch
    return starts | {own: min(world.epoch_starts[key, broker_id], starts.get(own, len(world.logs[key, broker_id])))}


def _end_offset_for(starts: dict[int, int], log: Log, asked: int) -> tuple[int, int]:
    """The epoch and the end offset in the answer (`LeaderEpochFileCache.endOffsetFor`)."""
    if asked == max(starts):
        return asked, len(log)
    higher = min((epoch for epoch in starts if epoch > asked), default=None)
    if asked == _UNDEFINED_EPOCH or higher is None:
        return _UNDEFINED_EPOCH, -1
    # An epoch below the first one seems to end where the first one begins.
    return max((epoch for epoch in starts if epoch <= asked), default=asked), starts[higher]


def _fetch(world: World, broker_id: int, request: Any) -> Any:
    responses = [
        SimpleNamespace(
            topic=topic.topic, partitions=[_fetched(world, broker_id, topic.topic, asked) for asked in topic.partitions]
        )
        for topic in request.topics
    ]
    return SimpleNamespace(error_code=0, responses=responses)


def _fetched(world: World, broker_id: int, topic: str, asked: Any) -> Any:
    key = (topic, asked.partition)
    believed = world.leads(broker_id, key)
    code: int = ErrorCode.NONE
    if believed is None:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif asked.current_leader_epoch != believed.epoch:
        newer = asked.current_leader_epoch > believed.epoch
        code = ErrorCode.UNKNOWN_LEADER_EPOCH if newer else ErrorCode.FENCED_LEADER_EPOCH
    elif asked.fetch_offset < world.log_starts[key, broker_id]:
        code = _OFFSET_OUT_OF_RANGE
    mark = world.high_watermarks.get((key, broker_id), 0)
    records = b""
    if code is ErrorCode.NONE:
        log = world.logs[key, broker_id][:mark]
        records = b"".join(_stored(log, asked.fetch_offset))
    return SimpleNamespace(partition_index=key[1], error_code=int(code), high_watermark=mark, records=records)


def _stored(log: Log, start: int) -> Iterator[bytes]:
    """The batches of a log from an offset on, without the records that the cleaner dropped."""
    for offset, (leader_epoch, record) in enumerate(log):
        if offset < start:
            continue
        if isinstance(record, Idle):
            record = record.record
        if isinstance(record, Data):
            yield encode.batch(
                offset,
                [(None, b"")],
                producer_id=record.producer_id,
                producer_epoch=record.producer_epoch,
                base_sequence=record.sequence,
                timestamp_ms=_LONG_AGO_MS + record.sent_ms,
                leader_epoch=leader_epoch,
            )
        elif isinstance(record, Marker):
            yield encode.marker(offset, record, _LONG_AGO_MS, leader_epoch)
        elif isinstance(record, TransactionLogRecord):
            held = record.metadata
            value = (
                encode.transaction_log_value(held, _LONG_AGO_MS, _LONG_AGO_MS + record.updated_ms)
                if held is not None
                else None
            )
            key = transactional_id_key(record.transactional_id)
            yield encode.batch(offset, [(key, value)], leader_epoch=leader_epoch)


def _list_transactions(world: World, broker_id: int, request: Any) -> Any:
    served = {k: c for (b, k), c in world.coordinators.items() if b == broker_id}
    if any(coordinator.loading for coordinator in served.values()):
        return SimpleNamespace(error_code=int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), transaction_states=[])
    return SimpleNamespace(
        error_code=0,
        transaction_states=[
            SimpleNamespace(
                transactional_id=name,
                producer_id=held.metadata.producer_id,
                transaction_state=held.metadata.state,
            )
            for (b, name), held in world.held.items()
            if b == broker_id and name not in world.scenario.hidden
            if not request.state_filters or held.metadata.state in request.state_filters
            if not request.producer_id_filters or held.metadata.producer_id in request.producer_id_filters
        ],
    )


def _describe_transactions(world: World, broker_id: int, request: Any) -> Any:
    return SimpleNamespace(
        transaction_states=[_described(world, broker_id, name) for name in request.transactional_ids]
    )


def _described(world: World, broker_id: int, name: str) -> Any:
    shown = SimpleNamespace(
        transactional_id=name,
        error_code=0,
        transaction_state="",
        transaction_timeout_ms=_TIMEOUT_MS,
        transaction_start_time_ms=_LONG_AGO_MS,
        producer_id=-1,
        producer_epoch=-1,
        topics=[],
    )
    coordinator = world.coordinators.get((broker_id, world.coordinator_of(name)))
    held = world.held.get((broker_id, name))
    if name in world.scenario.hidden:
        shown.error_code = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif coordinator is None:
        shown.error_code = int(ErrorCode.NOT_COORDINATOR)
    elif coordinator.loading:
        shown.error_code = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    elif held is None:
        shown.error_code = int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    else:
        metadata = held.metadata
        shown.transaction_state = metadata.state
        shown.producer_id, shown.producer_epoch = metadata.producer_id, metadata.producer_epoch
        if not metadata.state.startswith("Complete"):
            shown.topics = [SimpleNamespace(topic=t, partitions=[i]) for t, i in sorted(metadata.partitions)]
    return shown


def _write_txn_markers(world: World, broker_id: int, request: Any) -> Any:
    """Appends markers from another sender than a coordinator, under the same rules."""
    return SimpleNamespace(
        markers=[
            SimpleNamespace(
                producer_id=asked.producer_id,
                topics=[
                    SimpleNamespace(
                        name=topic.name,
                        partitions=[
                            SimpleNamespace(
                                partition_index=index,
                                error_code=int(_written(world, broker_id, (topic.name, index), asked)),
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in asked.topics
                ],
            )
            for asked in request.markers
        ]
    )


def _written(world: World, broker_id: int, key: Key, asked: Any) -> ErrorCode:
    """Appends a marker as the leader. Returns an error if it refuses (`ProducerAppendInfo.checkProducerEpoch`)."""
    if world.leads(broker_id, key) is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    known = producer_state(world.logs[key, broker_id]).get(asked.producer_id)
    if known is not None and asked.producer_epoch < known.producer_epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if known is not None and asked.coordinator_epoch < known.coordinator_epoch:
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED
    written = Marker(asked.producer_id, asked.producer_epoch, asked.coordinator_epoch, asked.transaction_result)
    offset = world.append(broker_id, key, written)
    return ErrorCode.NONE if offset is not None else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def _describe_acls(world: World, broker_id: int, request: Any) -> Any:
    rule = SimpleNamespace(principal="User:*", host="*", operation=_DESCRIBE, permission_type=_DENY)
    denied = [
        SimpleNamespace(resource_type=_TRANSACTIONAL_ID, resource_name=name, pattern_type=_LITERAL, acls=[rule])
        for name in sorted(world.scenario.hidden)
    ]
    return SimpleNamespace(error_code=0, error_message=None, resources=denied)


def _describe_configs(world: World, broker_id: int, request: Any) -> Any:
    configs = [SimpleNamespace(name="transaction.max.timeout.ms", value=str(_TIMEOUT_MS))]
    return SimpleNamespace(results=[SimpleNamespace(error_code=0, error_message=None, configs=configs)])


def _encoded_metadata(shown: Any) -> Any:
    if not hasattr(shown, "body"):
        shown.body = encode.metadata(shown)
    return shown.body


_ANSWERS = {
    "ApiVersions": _api_versions,
    "DescribeQuorum": _describe_quorum,
    "Metadata": _metadata,
    "DescribeProducers": _describe_producers,
    "ListOffsets": _list_offsets,
    "OffsetForLeaderEpoch": _offset_for_leader_epoch,
    "Fetch": _fetch,
    "ListTransactions": _list_transactions,
    "DescribeTransactions": _describe_transactions,
    "DescribeAcls": _describe_acls,
    "DescribeConfigs": _describe_configs,
    "WriteTxnMarkers": _write_txn_markers,
}
# Metadata is the same object until the broker's image changes.
_ENCODED = {"Metadata": _encoded_metadata, "DescribeProducers": encode.described_producers}
