"""`__cluster_metadata`: which topics and replicas a KRaft cluster has, as a controller wrote it down. Pure.

Only these records are decoded: TopicRecord, PartitionRecord, PartitionChangeRecord, RemoveTopicRecord and
RegisterBrokerRecord (`metadata/src/main/resources/common/metadata`), each behind a frame version, a key and a version.
All are flexible. Fields that later versions add stand behind the ones that are read, or in tags.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace

from txnscan.kafka.protocol.frames import Cursor
from txnscan.kafka.topology import Key

_FRAME_VERSION = 1
_REGISTER_BROKER, _TOPIC, _PARTITION, _PARTITION_CHANGE, _REMOVE_TOPIC = 0, 2, 3, 5, 9
# Tags of a PartitionChangeRecord.
_ISR, _LEADER, _REPLICAS = 0, 1, 2
_UUID_BYTES = 16


@dataclass(frozen=True, slots=True)
class Assigned:
    """Where a partition is. leader: -1 for none."""

    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    leader: int


@dataclass(slots=True)
class Metadata:
    """The cluster as the log has it. ids: of topics, by name. registered_at: the offset at which each broker last
    registered, as it does each time it starts. ended_ms: when the last record was written, by the controller's clock; a
    controller writes one every half second, if only to say that nothing happened.
    """

    next_offset: int = 0
    ended_ms: int = -1
    ids: dict[str, str] = field(default_factory=dict)
    partitions: dict[tuple[str, int], Assigned] = field(default_factory=dict)
    registered_at: dict[int, int] = field(default_factory=dict)

    def assigned(self, key: Key) -> tuple[str, Assigned] | None:
        """Topic id and replicas of a partition, None where there is no such partition."""
        topic_id = self.ids.get(key[0], "")
        found = self.partitions.get((topic_id, key[1]))
        return None if found is None else (topic_id, found)

    def count(self, topic: str) -> int:
        """How many partitions a topic has."""
        ours = self.ids.get(topic)
        return sum(1 for topic_id, _ in self.partitions if topic_id == ours)

    def take(self, offset: int, value: bytes) -> None:
        """A record. Raises RequestFailed where its bytes make no sense."""
        record = Cursor(value)
        if record.uvarint() != _FRAME_VERSION:
            return
        kind, _ = record.uvarint(), record.uvarint()
        if kind == _REGISTER_BROKER:
            self.registered_at[record.int32()] = offset
        elif kind == _TOPIC:
            name = record.string() or ""
            self.ids[name] = _topic_id(record)
        elif kind == _REMOVE_TOPIC:
            removed = _topic_id(record)
            self.ids = {name: topic_id for name, topic_id in self.ids.items() if topic_id != removed}
            for key in [key for key in self.partitions if key[0] == removed]:
                del self.partitions[key]
        elif kind == _PARTITION:
            index, topic_id = record.int32(), _topic_id(record)
            replicas, in_sync = _numbers(record), _numbers(record)
            _numbers(record), _numbers(record)
            self.partitions[topic_id, index] = Assigned(replicas, in_sync, record.int32())
        elif kind == _PARTITION_CHANGE:
            self._change(record)

    def _change(self, record: Cursor) -> None:
        index, topic_id = record.int32(), _topic_id(record)
        now = self.partitions.get((topic_id, index))
        if now is None:
            return
        for _ in range(record.uvarint()):
            tag, size = record.uvarint(), record.uvarint()
            held = Cursor(record.take(size))
            if tag == _ISR:
                now = replace(now, in_sync=_numbers(held))
            elif tag == _LEADER:
                now = replace(now, leader=held.int32())
            elif tag == _REPLICAS:
                now = replace(now, replicas=_numbers(held))
        self.partitions[topic_id, index] = now


def _topic_id(record: Cursor) -> str:
    return base64.urlsafe_b64encode(record.take(_UUID_BYTES)).decode().rstrip("=")


def _numbers(record: Cursor) -> tuple[int, ...]:
    return tuple(record.int32() for _ in range(record.length()))
