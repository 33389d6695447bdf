"""What the brokers of one process hold: the shape, where all brokers are, and what markers have ended since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from txnscan.kafka.compact import NO_TAGS, NULL, items, string
from txnscan.model import TRANSACTION_STATE_TOPIC
from txnscan.sim.wire.shape import HIGH_WATERMARK, ClusterShape, OpenTransaction

HOST = "127.0.0.1"
CLUSTER_ID = "txnscan-wire-cluster00"
CONTROLLER_ID = 1
# How long before the start of the cluster the records of a hanging transaction were written, and of any other one.
HANGING_AGE_MS = 6 * 60 * 60 * 1000
RECENT_AGE_MS = 5_000


@dataclass(frozen=True, slots=True)
class Held:
    """A partition as a request names it: of `__transaction_state` where ordinal is None, and then it is empty."""

    leader: int
    leader_epoch: int
    ordinal: int | None


@dataclass
class World:
    """The state of a process. ports: by broker.

    ended: the coordinator epoch of the last marker, by partition and producer id. markers: how many stand in the log of
    a partition.
    """

    shape: ClusterShape
    started_at_ms: int
    ports: Mapping[int, int]
    ended: dict[tuple[int, int], int] = field(default_factory=dict)
    markers: dict[int, int] = field(default_factory=dict)

    @cached_property
    def open_transactions(self) -> dict[int, list[OpenTransaction]]:
        """All that were open at the start, by partition."""
        return self.shape.open_transactions()

    @cached_property
    def brokers(self) -> list[bytes]:
        """Every broker, encoded: id, host, port and rack, before the tags."""
        return [
            broker_id.to_bytes(4) + string(HOST) + port.to_bytes(4) + NULL
            for broker_id, port in sorted(self.ports.items())
        ]

    @cached_property
    def broker_list(self) -> bytes:
        """The same as a list."""
        return items([broker + NO_TAGS for broker in self.brokers])

    def held(self, topic: str, index: int) -> Held | None:
        """The partition of this name, or None where there is none."""
        shape = self.shape
        if topic == TRANSACTION_STATE_TOPIC:
            if not 0 <= index < shape.transaction_state_partitions:
                return None
            return Held(shape.transaction_state_leader(index), shape.transaction_state_epoch(index), None)
        number = shape.topic_number(topic)
        if number is None or not 0 <= index < len(shape.ordinals(number)):
            return None
        ordinal = shape.ordinals(number)[index]
        return Held(shape.leader(ordinal), shape.leader_epoch(ordinal), ordinal)

    def still_open(self, ordinal: int) -> list[OpenTransaction]:
        """What is open on a partition now."""
        return [t for t in self.open_transactions.get(ordinal, ()) if (ordinal, t.producer_id) not in self.ended]

    def high_watermark(self, ordinal: int | None) -> int:
        """Where the log ends."""
        return 0 if ordinal is None else HIGH_WATERMARK + self.markers.get(ordinal, 0)

    def last_stable_offset(self, ordinal: int | None) -> int:
        """Where the first open transaction begins, or the log ends."""
        opened = [] if ordinal is None else self.still_open(ordinal)
        return min((t.start_offset for t in opened), default=self.high_watermark(ordinal))

    def end(self, ordinal: int, producer_id: int, coordinator_epoch: int) -> None:
        """A marker is written."""
        self.ended[ordinal, producer_id] = coordinator_epoch
        self.markers[ordinal] = self.markers.get(ordinal, 0) + 1
