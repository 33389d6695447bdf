"""Compact `__transaction_state` on real brokers on demand, and read the remaining records.

Brokers compact a log once its last segment is closed and enough of it is dirty, which takes hours to weeks. Here the
topic's configs are changed at run time, an extra id writes so that the segment is closed, and the remaining records are
read as by any consumer. `PROPERTIES` make brokers look for work often.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import count

from kafka.protocol.admin import IncrementalAlterConfigsRequest

from txnscan.demo.errors import DemoError
from txnscan.demo.producer import Producer
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.errors import ErrorCode, RequestFailed, error_name
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.fetch import fetch
from txnscan.kafka.protocol.list_offsets import Offset, list_offsets
from txnscan.kafka.protocol.record_batch import Batch
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key
from txnscan.txnlog.decode import decode, transactional_id
from txnscan.txnlog.facts import LoggedTransaction

PROPERTIES = {"log.cleaner.backoff.ms": "100"}
# Every append closes the segment before it, and closed segments are cleaned even if only a little of them is dirty.
_AT_ONCE = {"segment.ms": "1", "min.cleanable.dirty.ratio": "0", "min.compaction.lag.ms": "0"}
_TOPIC, _BROKER = 2, 4
_SET, _DELETE = 0, 1
_PIECE_BYTES = 1024 * 1024
_COMPACTION_S_MAX = 60.0


def compact_transaction_log(wire: Wire, k: int, transactional_ids: Collection[str]) -> None:
    """Makes the leader compact one partition of the log, until each of these ids has at most its last record.

    A log without writes is not compacted. Raises DemoError if it does not happen within a minute.
    """
    partitions = len(wire.view([TRANSACTION_STATE_TOPIC]).partitions)
    writer = Producer(wire, id_served_by(f"compacts-{k}", k, partitions))

    def compacted() -> bool:
        # Each try appends a record, which closes a segment: brokers receive new configs asynchronously.
        writer.init_producer_id()
        left = [record.transactional_id for record in logged(wire, k)]
        return all(left.count(name) <= 1 for name in transactional_ids)

    alter_topic(wire, TRANSACTION_STATE_TOPIC, _AT_ONCE)
    try:
        wait_until(compacted, f"{TRANSACTION_STATE_TOPIC}-{k} was compacted", _COMPACTION_S_MAX)
    finally:
        alter_topic(wire, TRANSACTION_STATE_TOPIC, dict.fromkeys(_AT_ONCE))


def id_served_by(prefix: str, k: int, partitions: int) -> str:
    """A transactional id that belongs to partition `k` of the log."""
    ids = (f"{prefix}-{number}" for number in count())
    return next(name for name in ids if coordinator_partition(name, partitions) == k)


def alter_topic(wire: Wire, topic: str, configs: Mapping[str, str | None]) -> None:
    """Sets these configs of a topic; None restores the brokers' own value. Raises DemoError."""
    _alter(wire, wire.any_broker(), _TOPIC, topic, configs)


def alter_broker(wire: Wire, broker_id: int, configs: Mapping[str, str | None]) -> None:
    """Sets these configs of one broker at run time; None restores the value of its start. Raises DemoError."""
    _alter(wire, broker_id, _BROKER, str(broker_id), configs)


def _alter(wire: Wire, asked: int, kind: int, name: str, configs: Mapping[str, str | None]) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    changes = [
        resource.AlterableConfig(name=config, config_operation=_DELETE if value is None else _SET, value=value)
        for config, value in configs.items()
    ]
    wanted = resource(resource_type=kind, resource_name=name, configs=changes)
    (answer,) = wire.send(asked, IncrementalAlterConfigsRequest(resources=[wanted])).responses
    if answer.error_code != ErrorCode.NONE:
        why = answer.error_message or error_name(answer.error_code)
        raise DemoError(f"{name} could not be configured: {why}")


def logged(wire: Wire, k: int) -> tuple[LoggedTransaction, ...]:
    """The records of all ids on the leader of a partition of the log, in log order, without tombstones."""
    return tuple(
        decode(offset, offset, name, value)
        for batch in batches(wire, (TRANSACTION_STATE_TOPIC, k))
        if not batch.is_control
        for offset, key, value in batch.records or ()
        if key is not None and value is not None and (name := transactional_id(key)) is not None
    )


def batches(wire: Wire, key: Key) -> tuple[Batch, ...]:
    """All batches of a partition, up to the high watermark, from its leader. Raises RequestFailed."""
    partition = wire.partition(*key)
    start = list_offsets(wire.send, partition.leader, [partition], Offset.LOG_START)[key]
    if start.failure is not None:
        raise RequestFailed(start.failure)
    found: list[Batch] = []
    offset = start.offset
    while True:
        fetched = fetch(wire.send, partition, offset, _PIECE_BYTES, records=True)
        found += fetched.batches
        reached = fetched.next_offset(offset)
        if reached >= fetched.high_watermark:
            return tuple(found)
        if reached == offset:
            raise RequestFailed(f"{key[0]}-{key[1]} gave no records at offset {offset}")
        offset = reached
