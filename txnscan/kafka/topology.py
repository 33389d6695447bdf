"""Brokers, topics and partitions, as Metadata shows them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

TRANSACTION_STATE_TOPIC = "__transaction_state"
CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
# Transactions write here if they acknowledge records of share groups (KIP-1289, a draft; no released broker does it).
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
# Their records are of groups. Applications do not read them.
GROUP_TOPICS = (CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC)

# In place of a leader: there is none; or its broker has no listener of the name that this client connected to
# (LISTENER_NOT_FOUND, `KRaftMetadataCache.getPartitionMetadata`).
NO_LEADER_ID, NO_LISTENER_ID = -1, -2
PORT_MAX = 65_535
# A partition's topic and number.
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's id and the address that its listener advertises. cluster_id: of the cluster whose Metadata named it;
    empty if it is not known, as of a bootstrap server.
    """

    broker_id: int
    host: str
    port: int
    cluster_id: str = field(default="", compare=False)

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition as one broker's Metadata answer shows it. `leader` may be NO_LEADER_ID or NO_LISTENER_ID."""

    topic: str
    topic_id: str
    partition: int
    leader: int
    leader_epoch: int

    @property
    def key(self) -> Key:
        return (self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class PartitionReplicas:
    """The replicas of a partition as one broker's answer shows them, by broker id.

    leader: may be NO_LEADER_ID or NO_LISTENER_ID. replicas: all of them. in_sync: the in-sync replicas (ISR). offline:
    the replicas whose broker or disk is down. eligible: replicas that are not in sync and have every committed record
    (ELR, KIP-966); empty if there are none, and before they were asked for. leader_epoch: -1 if it is not known.
    """

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()
    leader_epoch: int = -1

    @property
    def key(self) -> Key:
        return (self.topic, self.partition)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def has_no_leader(self) -> bool:
        """Whether no broker leads it. False if its leader only lacks the listener of this client."""
        return self.leader == NO_LEADER_ID

    @property
    def is_complete(self) -> bool:
        """Whether it has a leader, and all its replicas are in sync."""
        return not self.has_no_leader and len(self.in_sync) >= len(self.replicas)

    def electable(self, stopping: Collection[int] = ()) -> frozenset[int]:
        """The replicas that the controller can elect without losing records, once these brokers have stopped."""
        return frozenset(self._whole).difference(self.offline, stopping)

    @property
    def _whole(self) -> tuple[int, ...]:
        """The replicas with every committed record."""
        return (*self.in_sync, *self.eligible)

    @property
    def missing(self) -> tuple[int, ...]:
        """The brokers whose replicas must come back: without a leader those that may lead, else those not in sync."""
        if self.has_no_leader:
            return tuple(sorted({*self._whole})) or self.replicas
        return tuple(one for one in self.replicas if one not in self.in_sync)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's partitions as one broker's Metadata answer shows them, in columns: each position is a partition.

    Partitions are sorted by number. A cluster may have a million partitions and a sweep uses few of them, so they
    become objects on demand.
    """

    name: str
    topic_id: str
    indexes: tuple[int, ...]
    leaders: tuple[int, ...]
    leader_epochs: tuple[int, ...]

    @property
    def partitions(self) -> tuple[Partition, ...]:
        columns = zip(self.indexes, self.leaders, self.leader_epochs, strict=True)
        return tuple(Partition(self.name, self.topic_id, *column) for column in columns)

    def at(self, index: int) -> tuple[Partition, ...]:
        """The partition with this number: empty if the answer lacks it, several if the answer repeats it."""
        first, end = bisect_left(self.indexes, index), bisect_right(self.indexes, index)
        return tuple(
            Partition(self.name, self.topic_id, index, self.leaders[at], self.leader_epochs[at])
            for at in range(first, end)
        )

    def only(self, wanted: Callable[[int, int], bool]) -> Topic:
        """The same topic with only the partitions for which `wanted(number, leader)` is true."""
        columns = zip(self.indexes, self.leaders, self.leader_epochs, strict=True)
        kept = [column for column in columns if wanted(column[0], column[1])]
        indexes, leaders, leader_epochs = zip(*kept, strict=True) if kept else ((), (), ())
        return Topic(self.name, self.topic_id, indexes, leaders, leader_epochs)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One broker's Metadata answer: its view of the cluster.

    `topics` are sorted by name. `topic_errors` has (topic, error name) for topics that the request named and that are
    missing or forbidden.
    """

    answered_by: int
    cluster_id: str
    brokers: tuple[Broker, ...]
    topics: tuple[Topic, ...]
    topic_errors: tuple[tuple[str, str], ...] = ()

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """All partitions, as objects."""
        return tuple(partition for topic in self.topics for partition in topic.partitions)
