"""What a wire cluster is made of: every name, leader, producer and transaction, as a pure function of a few numbers.

User partitions are numbered through, topic after topic; that number is a partition's `ordinal`. Nothing is stored for
a partition, so a million of them cost nothing here.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from txnscan.kafka.coordinator import coordinator_partition
from txnscan.model import Key

# Where an open transaction begins, and where the log ends. One of each kind may be open on one partition.
HANGING_START_OFFSET = 100
ONGOING_START_OFFSET = 150
HIGH_WATERMARK = 200
# Partitions share idle producers, as they do where a producer writes to many: so many sets of them there are.
IDLE_SETS = 16
_FIRST_IDLE_PRODUCER_ID = 1_000
_FIRST_HANGING_PRODUCER_ID = 1_000_000_000
_FIRST_ONGOING_PRODUCER_ID = 2_000_000_000
_FIRST_COMPLETE_PRODUCER_ID = 3_000_000_000
_TRANSACTION_STATE_EPOCH = 3
_NAMESPACE = uuid.UUID("6b1f7c1e-6664-4a3b-8a53-0c6f4b1e0664")
# Knuth's multiplicative hash: neighbours end up far apart.
_SCATTER = 2_654_435_761


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open on a partition. transactional_id: "" where no coordinator knows of it."""

    producer_id: int
    start_offset: int
    transactional_id: str = ""


@dataclass(frozen=True, slots=True)
class TransactionalId:
    """An id as its coordinator has it. ordinal: the one partition in its transaction, None where it is in none."""

    name: str
    producer_id: int
    state: str
    ordinal: int | None = None


@dataclass(frozen=True)
class ClusterShape:
    """How large a cluster is, what is wrong in it, and how its brokers behave.

    brokers: their ids are 1, 2, ... partitions: all user partitions, in topics of `partitions_per_topic`.
    producers_per_partition: idle ones, besides those with an open transaction.
    hanging: transactions that are open on a partition and whose producer id no coordinator lists; at most one for each
    partition. ongoing: open transactions that their coordinator shows as Ongoing, with that partition. Both are spread
    evenly over the partitions. transactional_ids: further ids, all CompleteCommit.
    replication_factor: followers answer DescribeProducers too, but hear of markers only where they share a process.
    busy_share: the part of the user partitions, 0 to 1, that broker 1 leads; 0 spreads them evenly over all.
    latency_ms: the time from a request to its answer; slow_brokers: the same for single brokers, by id.
    throttle_ms: what single brokers say in DescribeProducers answers, by id; they do not enforce it.
    error_every: every n-th partition answers DescribeProducers with NOT_LEADER_OR_FOLLOWER.
    reset_every: a broker closes the connection at every n-th DescribeProducers request that it gets, unanswered.
    0 is never, for both. Raises ValueError.
    """

    brokers: int = 3
    partitions: int = 1_000
    partitions_per_topic: int = 100
    producers_per_partition: int = 10
    hanging: int = 0
    ongoing: int = 0
    transactional_ids: int = 0
    replication_factor: int = 1
    transaction_state_partitions: int = 50
    busy_share: float = 0.0
    latency_ms: int = 0
    slow_brokers: Mapping[int, int] = field(default_factory=dict)
    throttle_ms: Mapping[int, int] = field(default_factory=dict)
    error_every: int = 0
    reset_every: int = 0

    def __post_init__(self) -> None:
        for name in ("brokers", "partitions_per_topic", "replication_factor", "transaction_state_partitions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more")
        for name in (
            *("partitions", "producers_per_partition", "hanging", "ongoing", "transactional_ids"),
            *("latency_ms", "error_every", "reset_every"),
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more")
        if max(self.hanging, self.ongoing) > self.partitions:
            raise ValueError("hanging and ongoing must not be more than partitions")
        if self.replication_factor > self.brokers:
            raise ValueError("replication_factor must not be more than brokers")
        if not 0 <= self.busy_share <= 1:
            raise ValueError("busy_share must be between 0 and 1")

    @property
    def broker_ids(self) -> range:
        """All of them."""
        return range(1, self.brokers + 1)

    def latency_of_ms(self, broker_id: int) -> int:
        """The time from a request to this broker to its answer."""
        return self.slow_brokers.get(broker_id, self.latency_ms)

    # --- topics and partitions ---

    @property
    def topics(self) -> int:
        """How many user topics there are. The last one may have fewer partitions."""
        return -(-self.partitions // self.partitions_per_topic)

    @staticmethod
    def topic_name(topic: int) -> str:
        """The name of the topic with this number, from 0 on."""
        return f"topic-{topic:05d}"

    def topic_number(self, name: str) -> int | None:
        """The number of the topic with this name, or None."""
        number = _number(name, "topic-")
        return number if number is not None and number < self.topics and self.topic_name(number) == name else None

    @staticmethod
    def topic_id(name: str) -> uuid.UUID:
        """The id of the topic with this name, any name: the same in every cluster."""
        return uuid.uuid5(_NAMESPACE, name)

    def ordinals(self, topic: int) -> range:
        """The partitions of a topic."""
        first = topic * self.partitions_per_topic
        return range(first, min(first + self.partitions_per_topic, self.partitions))

    def key(self, ordinal: int) -> Key:
        """A partition's topic and number."""
        topic, index = divmod(ordinal, self.partitions_per_topic)
        return self.topic_name(topic), index

    def leader(self, ordinal: int) -> int:
        """The broker that leads a partition."""
        if self.busy_share == 0 or self.brokers == 1:
            return 1 + ordinal % self.brokers
        busy = int(ordinal * self.busy_share)
        return 1 if int((ordinal + 1) * self.busy_share) > busy else 2 + (ordinal - busy) % (self.brokers - 1)

    @staticmethod
    def leader_epoch(ordinal: int) -> int:
        """The leader epoch of a partition."""
        return 5 + ordinal % 3

    def replicas(self, leader: int) -> tuple[int, ...]:
        """The brokers with a replica of a partition that this one leads; all are in sync."""
        return tuple(1 + (leader - 1 + follower) % self.brokers for follower in range(self.replication_factor))

    def is_in_error(self, ordinal: int) -> bool:
        """Whether a partition answers DescribeProducers with an error."""
        return self.error_every > 0 and (ordinal + 1) % self.error_every == 0

    # --- producers and transactions ---

    def idle_producer_ids(self, ordinal: int) -> range:
        """The producers on a partition that have no transaction open."""
        first = _FIRST_IDLE_PRODUCER_ID + (ordinal % IDLE_SETS) * self.producers_per_partition
        return range(first, first + self.producers_per_partition)

    def hanging_ordinal(self, number: int) -> int:
        """The partition of a hanging transaction, each numbered from 0 on."""
        return _spread(number, self.hanging, self.partitions)

    def ongoing_ordinal(self, number: int) -> int:
        """The partition of an ongoing transaction, each numbered from 0 on. Another may be hanging on it."""
        return self.partitions - 1 - _spread(number, self.ongoing, self.partitions)

    def open_transactions(self) -> dict[int, list[OpenTransaction]]:
        """All of them, by partition."""
        found: dict[int, list[OpenTransaction]] = {}
        for number in range(self.hanging):
            hanging = OpenTransaction(_FIRST_HANGING_PRODUCER_ID + number, HANGING_START_OFFSET)
            found.setdefault(self.hanging_ordinal(number), []).append(hanging)
        for number in range(self.ongoing):
            owner = self._ongoing_id(number)
            ongoing = OpenTransaction(owner.producer_id, ONGOING_START_OFFSET, owner.name)
            found.setdefault(self.ongoing_ordinal(number), []).append(ongoing)
        return found

    # --- coordinators ---

    def transaction_state_leader(self, k: int) -> int:
        """The broker that leads a partition of `__transaction_state`."""
        return 1 + k % self.brokers

    @staticmethod
    def transaction_state_epoch(k: int) -> int:
        """Its leader epoch."""
        return _TRANSACTION_STATE_EPOCH + k % 2

    def coordinator(self, name: str) -> int:
        """The broker that coordinates an id, whether or not there is such an id."""
        return self.transaction_state_leader(coordinator_partition(name, self.transaction_state_partitions))

    def all_transactional_ids(self) -> Iterator[TransactionalId]:
        """All ids of all coordinators."""
        yield from map(self._ongoing_id, range(self.ongoing))
        yield from map(self._complete_id, range(self.transactional_ids))

    def transactional_id(self, name: str) -> TransactionalId | None:
        """The id of this name, or None."""
        for prefix, count, make in (
            ("ongoing-", self.ongoing, self._ongoing_id),
            ("complete-", self.transactional_ids, self._complete_id),
        ):
            number = _number(name, prefix)
            if number is not None and number < count and make(number).name == name:
                return make(number)
        return None

    def owner(self, producer_id: int) -> TransactionalId | None:
        """The id that has this producer id, or None."""
        if _FIRST_ONGOING_PRODUCER_ID <= producer_id < _FIRST_ONGOING_PRODUCER_ID + self.ongoing:
            return self._ongoing_id(producer_id - _FIRST_ONGOING_PRODUCER_ID)
        if _FIRST_COMPLETE_PRODUCER_ID <= producer_id < _FIRST_COMPLETE_PRODUCER_ID + self.transactional_ids:
            return self._complete_id(producer_id - _FIRST_COMPLETE_PRODUCER_ID)
        return None

    def _ongoing_id(self, number: int) -> TransactionalId:
        ordinal = self.ongoing_ordinal(number)
        return TransactionalId(f"ongoing-{number:05d}", _FIRST_ONGOING_PRODUCER_ID + number, "Ongoing", ordinal)

    @staticmethod
    def _complete_id(number: int) -> TransactionalId:
        return TransactionalId(f"complete-{number:05d}", _FIRST_COMPLETE_PRODUCER_ID + number, "CompleteCommit")


def _spread(number: int, count: int, places: int) -> int:
    """The place of one of so many things: the places are cut into as many runs, and it stands anywhere in its own.

    Standing at the same place of each run, all might share a leader.
    """
    first, end = number * places // count, (number + 1) * places // count
    return first + (number * _SCATTER >> 7) % (end - first)


def _number(name: str, prefix: str) -> int | None:
    digits = name.removeprefix(prefix)
    return int(digits) if digits != name and digits.isascii() and digits.isdecimal() else None
