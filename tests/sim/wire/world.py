"""The state of the brokers of one process: the shape, the addresses of all brokers, and the written markers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tests.sim.wire.shape import (
    HIGH_WATERMARK,
    LAGGING_OFFSET,
    ClusterShape,
    Group,
    OpenTransaction,
    Reads,
    TransactionalId,
)
from tests.sim.wire.state_log import StateLog
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.primitives import NO_TAGS, NULL, items, string
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Held:
    """The partition that a request names. index: its number. ordinal: None for a partition of an internal topic."""

    leader: int
    leader_epoch: int
    topic: str
    index: int
    ordinal: int | None


@dataclass(frozen=True, slots=True)
class Written:
    """A marker that was written."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool


@dataclass
class World:
    """The state of a process. ports: by broker. markers: those written since the start, in order, by partition."""

    shape: ClusterShape
    started_at_ms: int
    ports: Mapping[int, int]
    markers: dict[int, list[Written]] = field(default_factory=dict)

    @cached_property
    def open_transactions(self) -> dict[int, list[OpenTransaction]]:
        """All transactions that were open at the start, by partition."""
        return self.shape.open_transactions()

    @cached_property
    def ids(self) -> Mapping[int, list[TransactionalId]]:
        """All transactional ids, by their partition of `__transaction_state`. A million ids take a few seconds."""
        found: dict[int, list[TransactionalId]] = {k: [] for k in range(self.shape.transaction_state_partitions)}
        for one in self.shape.all_transactional_ids():
            found[coordinator_partition(one.name, len(found))].append(one)
        return found

    @cached_property
    def groups(self) -> Mapping[int, list[Group]]:
        """All consumer groups, by the broker that coordinates them."""
        found: dict[int, list[Group]] = {broker_id: [] for broker_id in self.shape.broker_ids}
        for one in self.shape.all_groups():
            found[self.shape.group_coordinator(one.name)].append(one)
        return found

    @cached_property
    def topic_names(self) -> Mapping[bytes, str]:
        """The names of all topics, by their ids."""
        users = map(self.shape.topic_name, range(self.shape.topics))
        return {self.shape.topic_id(name).bytes: name for name in (*users, *self.shape.internal_topics)}

    @cached_property
    def state_log(self) -> StateLog:
        """`__transaction_state`."""
        return StateLog(self.shape, self.started_at_ms, self.ids)

    @cached_property
    def brokers(self) -> list[bytes]:
        """Every broker, encoded: id, host, port and rack, before the tags."""
        return [
            broker_id.to_bytes(4) + string(HOST) + port.to_bytes(4) + NULL
            for broker_id, port in sorted(self.ports.items())
        ]

    @cached_property
    def broker_list(self) -> bytes:
        """The brokers as an encoded list."""
        return items([broker + NO_TAGS for broker in self.brokers])

    def held(self, topic: str, index: int) -> Held | None:
        """The partition of this name, if it exists."""
        shape = self.shape
        if topic in shape.internal_topics:
            if not 0 <= index < shape.internal_topics[topic]:
                return None
            return Held(*shape.internal(topic, index), topic, index, None)
        number = shape.topic_number(topic)
        if number is None or not 0 <= index < len(shape.ordinals(number)):
            return None
        ordinal = shape.ordinals(number)[index]
        return Held(shape.leader(ordinal), shape.leader_epoch(ordinal), topic, index, ordinal)

    def marked(self, ordinal: int, producer_id: int) -> Written | None:
        """The last marker of this producer on a partition, if any."""
        written = (one for one in reversed(self.markers.get(ordinal, ())) if one.producer_id == producer_id)
        return next(written, None)

    def still_open(self, ordinal: int) -> list[OpenTransaction]:
        """The transactions that are open on a partition now."""
        return [t for t in self.open_transactions.get(ordinal, ()) if self.marked(ordinal, t.producer_id) is None]

    def high_watermark(self, held: Held) -> int:
        """The end of the log."""
        if held.ordinal is None:
            return self.state_log.end(held.index) if held.topic == TRANSACTION_STATE_TOPIC else 0
        return HIGH_WATERMARK + len(self.markers.get(held.ordinal, ()))

    def last_stable_offset(self, held: Held) -> int:
        """The start of the first open transaction, or the end of the log."""
        opened = [] if held.ordinal is None else self.still_open(held.ordinal)
        return min((t.start_offset for t in opened), default=self.high_watermark(held))

    def committed_offset(self, group: Group, ordinal: int) -> int:
        """The committed offset of a group on a partition of its topics. Markers do not change it."""
        if group.reads is Reads.LAGGING:
            return LAGGING_OFFSET
        opened = self.open_transactions.get(ordinal, ()) if group.reads is Reads.COMMITTED else ()
        return min((t.start_offset for t in opened), default=HIGH_WATERMARK)

    def end(self, ordinal: int, written: Written) -> None:
        """Records that a marker was written."""
        self.markers.setdefault(ordinal, []).append(written)
