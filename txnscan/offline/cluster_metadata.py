"""`__cluster_metadata`: the topics and replicas of a KRaft cluster, as its controller wrote them. Pure.

Only these records are decoded: TopicRecord, PartitionRecord, PartitionChangeRecord, RemoveTopicRecord,
RegisterBrokerRecord, BrokerRegistrationChangeRecord and FeatureLevelRecord
(`metadata/src/main/resources/common/metadata`). Each begins with a frame version, a key and a version. All are
flexible: later versions add fields only after the fields that are read here, or in tags.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from txnscan.kafka.protocol.frames import Cursor
from txnscan.kafka.topology import Key

_FRAME_VERSION = 1
_REGISTER_BROKER, _TOPIC, _PARTITION, _PARTITION_CHANGE, _REMOVE_TOPIC, _BROKER_CHANGE = 0, 2, 3, 5, 9, 17
_FEATURE_LEVEL = 12
# Tags of a PartitionChangeRecord.
_ISR, _LEADER, _REPLICAS, _DIRECTORIES = 0, 1, 2, 8
# Tags of a RegisterBrokerRecord and of a BrokerRegistrationChangeRecord.
_LOG_DIRS, _CHANGED_LOG_DIRS = 0, 2
_UUID_BYTES = 16
# `DirectoryId`: the ids up to 100 stand for no directory (unassigned, lost, migrating).
_RESERVED = {base64.urlsafe_b64encode(number.to_bytes(_UUID_BYTES)).decode().rstrip("=") for number in range(101)}


@dataclass(frozen=True, slots=True)
class Assigned:
    """The replicas of a partition. leader: -1 if it has no leader. directories: the id of each replica's log directory,
    in the order of the replicas; empty before Kafka 3.7.
    """

    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    leader: int
    directories: tuple[str, ...] = ()

    def directory_on(self, broker_id: int) -> str | None:
        """The id of the log directory that has the broker's replica, if the broker has reported it."""
        if broker_id not in self.replicas or len(self.directories) != len(self.replicas):
            return None
        found = self.directories[self.replicas.index(broker_id)]
        return None if found in _RESERVED else found


@dataclass(slots=True)
class Metadata:
    """The cluster according to the log.

    ids: topic ids by name. registered_at: the offset of each broker's last registration; a broker registers each time
    it starts. broker_epochs: of these registrations. log_directories: the ids of each broker's log directories, if it
    reports them. features: the level of each finalized feature. ended_ms: the time of the last record, by the
    controller's clock; a controller writes a record every half second, even if it is a no-op.
    """

    next_offset: int = 0
    ended_ms: int = -1
    ids: dict[str, str] = field(default_factory=dict)
    partitions: dict[tuple[str, int], Assigned] = field(default_factory=dict)
    registered_at: dict[int, int] = field(default_factory=dict)
    broker_epochs: dict[int, int] = field(default_factory=dict)
    log_directories: dict[int, tuple[str, ...]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    # By topic id: the names that it had, and the numbers of its partitions. A cluster may create and remove topics
    # thousands of times.
    _names: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _indexes: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def assigned(self, key: Key) -> tuple[str, Assigned] | None:
        """The topic id and replicas of a partition, if it exists."""
        topic_id = self.ids.get(key[0], "")
        found = self.partitions.get((topic_id, key[1]))
        return None if found is None else (topic_id, found)

    def count(self, topic: str) -> int:
        """The number of partitions of a topic."""
        ours = self.ids.get(topic)
        return sum(1 for topic_id, _ in self.partitions if topic_id == ours)

    @property
    def replicas(self) -> Iterator[tuple[Key, Assigned]]:
        """All partitions, by topic and number."""
        names = {topic_id: name for name, topic_id in self.ids.items()}
        for (topic_id, index), one in self.partitions.items():
            if topic_id in names:
                yield (names[topic_id], index), one

    def take(self, offset: int, value: bytes) -> None:
        """Applies a record. Raises RequestFailed if its bytes are invalid."""
        record = Cursor(value)
        if record.uvarint() != _FRAME_VERSION:
            return
        kind, version = record.uvarint(), record.uvarint()
        if kind == _REGISTER_BROKER:
            self._register(offset, record, version)
        elif kind == _BROKER_CHANGE:
            broker_id, _ = record.int32(), record.int64()
            for tag, held in _tags(record):
                if tag == _CHANGED_LOG_DIRS:
                    self.log_directories[broker_id] = _uuids(held)
        elif kind == _TOPIC:
            name = record.string() or ""
            self.ids[name] = topic_id = _uuid(record)
            self._names[topic_id].add(name)
        elif kind == _REMOVE_TOPIC:
            removed = _uuid(record)
            for name in self._names.pop(removed, ()):
                if self.ids.get(name) == removed:
                    del self.ids[name]
            for index in self._indexes.pop(removed, ()):
                del self.partitions[removed, index]
        elif kind == _PARTITION:
            index, topic_id = record.int32(), _uuid(record)
            replicas, in_sync = _numbers(record), _numbers(record)
            _numbers(record), _numbers(record)
            leader, _, _ = record.int32(), record.int32(), record.int32()
            directories = _uuids(record) if version >= 1 else ()
            self.partitions[topic_id, index] = Assigned(replicas, in_sync, leader, directories)
            self._indexes[topic_id].add(index)
        elif kind == _PARTITION_CHANGE:
            self._change(record)
        elif kind == _FEATURE_LEVEL:
            feature = record.string() or ""
            self.features[feature] = int.from_bytes(record.take(2), signed=True)

    def _register(self, offset: int, record: Cursor, version: int) -> None:
        broker_id = record.int32()
        record.take((1 if version >= 2 else 0) + _UUID_BYTES)
        self.registered_at[broker_id] = offset
        self.broker_epochs[broker_id] = record.int64()
        for _ in range(record.length()):
            record.string(), record.string(), record.take(4), _tags(record)
        for _ in range(record.length()):
            record.string(), record.take(4), _tags(record)
        record.string(), record.take(2 if version >= 1 else 1)
        for tag, held in _tags(record):
            if tag == _LOG_DIRS:
                self.log_directories[broker_id] = _uuids(held)

    def _change(self, record: Cursor) -> None:
        index, topic_id = record.int32(), _uuid(record)
        now = self.partitions.get((topic_id, index))
        if now is None:
            return
        for tag, held in _tags(record):
            if tag == _ISR:
                now = replace(now, in_sync=_numbers(held))
            elif tag == _LEADER:
                now = replace(now, leader=held.int32())
            elif tag == _REPLICAS:
                now = replace(now, replicas=_numbers(held))
            elif tag == _DIRECTORIES:
                now = replace(now, directories=_uuids(held))
        self.partitions[topic_id, index] = now


def _tags(record: Cursor) -> list[tuple[int, Cursor]]:
    """The tagged fields at the end of a structure."""
    return [(record.uvarint(), Cursor(record.take(record.uvarint()))) for _ in range(record.uvarint())]


def _uuids(record: Cursor) -> tuple[str, ...]:
    return tuple(_uuid(record) for _ in range(record.length()))


def _uuid(record: Cursor) -> str:
    return base64.urlsafe_b64encode(record.take(_UUID_BYTES)).decode().rstrip("=")


def _numbers(record: Cursor) -> tuple[int, ...]:
    return tuple(record.int32() for _ in range(record.length()))
