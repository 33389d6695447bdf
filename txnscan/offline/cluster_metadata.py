"""`__cluster_metadata`: the topics and replicas of a KRaft cluster, as its controller wrote them. Pure.

Only these records are decoded: TopicRecord, PartitionRecord, PartitionChangeRecord, RemoveTopicRecord and
RegisterBrokerRecord (`metadata/src/main/resources/common/metadata`). Each begins with a frame version, a key and a
version. All are flexible: later versions add fields only after the fields that are read here, or in tags.
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
    """The replicas of a partition. leader: -1 if it has no leader."""

    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    leader: int


@dataclass(slots=True)
class Metadata:
    """The cluster according to the log.

    ids: topic ids by name. registered_at: the offset of each broker's last registration; a broker registers each time
    it starts. ended_ms: the time of the last record, by the controller's clock; a controller writes a record every half
    second, even if it is a no-op.
    """

    next_offset: int = 0
    ended_ms: int = -1
    ids: dict[str, str] = field(default_factory=dict)
    partitions: dict[tuple[str, int], Assigned] = field(default_factory=dict)
    registered_at: dict[int, int] = field(default_factory=dict)

    def assigned(self, key: Key) -> tuple[str, Assigned] | None:
        """The topic id and replicas of a partition, if it exists."""
        topic_id = self.ids.get(key[0], "")
        found = self.partitions.get((topic_id, key[1]))
        return None if found is None else (topic_id, found)

    def count(self, topic: str) -> int:
        """The number of partitions of a topic."""
        ours = self.ids.get(topic)
        return sum(1 for topic_id, _ in self.partitions if topic_id == ours)

    def take(self, offset: int, value: bytes) -> None:
        """Applies a record. Raises RequestFailed if its bytes are invalid."""
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
