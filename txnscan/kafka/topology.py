"""Brokers, topics and partitions, as Metadata shows them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
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
