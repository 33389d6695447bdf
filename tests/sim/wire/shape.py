"""The content of a wire cluster: every name, leader, producer and transaction, as a pure function of a few numbers.

User partitions are numbered across all topics; this number is a partition's `ordinal`. No data is stored per partition,
so a million partitions cost no memory here.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.topology import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, Key

# The start offsets of open transactions, and the end of the log. A partition may have one of each kind open.
HANGING_START_OFFSET = 100
ONGOING_START_OFFSET = 150
PREPARED_START_OFFSET = 170
HIGH_WATERMARK = 200
# The committed offset of a lagging group: before any open transaction.
LAGGING_OFFSET = 50
# How long before the start of the cluster the records were written: of a hanging transaction, and of any other.
HANGING_AGE_MS = 6 * 60 * 60 * 1000
RECENT_AGE_MS = 5_000
# Transactions version 2 raises the epoch at each end: ids at rest have reached this epoch.
REST_EPOCH = 30_000
NAME_DIGITS = 7
_ROUNDS_MAX = REST_EPOCH - 2
# Partitions share idle producers, because a producer writes to many partitions. This is the number of sets of them.
IDLE_SETS = 16
_FIRST_IDLE_PRODUCER_ID = 1_000
_FIRST_HANGING_PRODUCER_ID = 1_000_000_000
_FIRST_ONGOING_PRODUCER_ID = 2_000_000_000
_FIRST_REST_PRODUCER_ID = 3_000_000_000
_FIRST_PREPARED_PRODUCER_ID = 4_000_000_000
_TRANSACTION_STATE_EPOCH, _CONSUMER_OFFSETS_EPOCH = 3, 4
_ONGOING, _PREPARED, _REST = "service-ongoing-", "service-prepared-", "service-at-rest-"
_TOPIC, _GROUP = "topic-", "consumers-"
_NAMESPACE = uuid.UUID("6b1f7c1e-6664-4a3b-8a53-0c6f4b1e0664")
# Knuth's multiplicative hash: neighbours end up far apart.
_SCATTER = 2_654_435_761


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction on a partition. transactional_id: "" if no coordinator knows it."""

    producer_id: int
    start_offset: int
    transactional_id: str = ""


@dataclass(frozen=True, slots=True)
class TransactionalId:
    """A transactional id at its coordinator.

    held: the partitions of its transaction, by ordinal; empty at rest. shown: the partitions that its coordinator
    lists; in Prepare* only partitions without their marker yet. number: its number among the ids of its kind.
    """

    name: str
    number: int
    producer_id: int
    producer_epoch: int
    state: str
    held: tuple[int, ...] = ()
    shown: tuple[int, ...] = ()

    @property
    def began_ago_ms(self) -> int | None:
        """How long before the start of the cluster its last transaction began; None without a transaction."""
        return None if self.state == "Empty" else RECENT_AGE_MS


class Reads(Enum):
    """How far the members of a group have read."""

    COMMITTED = "up to the last stable offset"
    UNCOMMITTED = "up to the high watermark"
    LAGGING = "not yet as far as anything is open"


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group of the classic protocol at its coordinator.

    number: from 0 on. topics: the numbers of its topics; it has committed an offset for each of their partitions.
    """

    name: str
    number: int
    state: str
    protocol_type: str
    reads: Reads
    topics: Sequence[int]


@dataclass(frozen=True)
class ClusterShape:
    """The size of a cluster, its faults, and the behaviour of its brokers.

    brokers: their ids are 1, 2, ... partitions: all user partitions, in topics of `partitions_per_topic`.
    producers_per_partition: idle producers, in addition to those with an open transaction.
    hanging: transactions that are open on a partition and whose producer id no coordinator lists; at most one per
    partition. ongoing: live transactions, which their coordinator shows as Ongoing, with all of their
    `partitions_per_transaction` partitions. prepared: others in PrepareCommit or PrepareAbort, with as many partitions;
    a third of these are owed the marker. All are spread evenly over topics and leaders. transactional_ids: further ids,
    at rest: one in ten Empty, one in twenty CompleteAbort, the others CompleteCommit.
    log_records: the minimum number of records in `__transaction_state`; it has at least one record for each id.
    groups: consumer groups, each with an offset for every partition of its topics. One group of each topic is at the
    last stable offsets of the start; if there are more groups than topics, others read further, or lag. Without groups
    there is no `__consumer_offsets`; with them it has `consumer_offsets_partitions`, and no records.
    replication_factor: followers answer DescribeProducers and Fetch too, but know of markers only if they share a
    process with the leader.
    busy_share: the share of the user partitions, 0 to 1, that broker 1 leads; 0 spreads them evenly over all.
    latency_ms: the time from a request to its answer; slow_brokers: the same for single brokers, by id. throttle_ms:
    the throttle time in DescribeProducers answers of single brokers, by id; they do not enforce it.
    error_every: every n-th partition answers DescribeProducers with NOT_LEADER_OR_FOLLOWER. reset_every: a broker
    closes the connection at every n-th DescribeProducers request, without an answer. For both, 0 means never.
    cluster_id: the id of the cluster. epochs_lower_by: how much lower all leader epochs of user partitions are than
    usual, at most 5. Raises ValueError.
    """

    brokers: int = 3
    partitions: int = 1_000
    partitions_per_topic: int = 100
    producers_per_partition: int = 10
    hanging: int = 0
    ongoing: int = 0
    partitions_per_transaction: int = 1
    prepared: int = 0
    transactional_ids: int = 0
    log_records: int = 0
    groups: int = 0
    replication_factor: int = 1
    transaction_state_partitions: int = 50
    consumer_offsets_partitions: int = 50
    busy_share: float = 0.0
    latency_ms: int = 0
    slow_brokers: Mapping[int, int] = field(default_factory=dict)
    throttle_ms: Mapping[int, int] = field(default_factory=dict)
    error_every: int = 0
    reset_every: int = 0
    cluster_id: str = "txnscan-wire-cluster00"
    epochs_lower_by: int = 0

    @staticmethod
    def busy(
        brokers: int = 3,
        partitions: int = 1_000,
        *,
        live_share: float = 0.05,
        partitions_per_transaction: int = 10,
        transactional_ids: int = 100_000,
        log_records: int = 300_000,
        groups: int = 1_000,
        **others: Any,
    ) -> ClusterShape:
        """A cluster under load, for benchmarks. The other fields are given by name. Raises ValueError.

        live_share: the share of the user partitions, 0 to 1, with a live transaction. For each 50 of these
        transactions, another one is about to end. For most ids at rest the log has the complete last transaction; for
        the others a cleaner has kept only the last record.
        """
        if not 0 <= live_share <= 1:
            raise ValueError("live_share must be between 0 and 1")
        # If very few partitions are live, they are one smaller transaction.
        live = partitions if "ongoing" in others else round(partitions * live_share)
        width = max(1, min(partitions_per_transaction, live))
        ongoing = others.pop("ongoing", live // width)
        made = {
            "replication_factor": min(3, brokers),
            "prepared": -(-ongoing // 50),
            # The history consists of the ids at rest.
            "log_records": log_records if transactional_ids else 0,
        }
        return ClusterShape(
            brokers=brokers,
            partitions=partitions,
            ongoing=ongoing,
            partitions_per_transaction=width,
            transactional_ids=transactional_ids,
            groups=groups,
            **{**made, **others},
        )

    def __post_init__(self) -> None:
        for name in (
            *("brokers", "partitions_per_topic", "partitions_per_transaction", "replication_factor"),
            *("transaction_state_partitions", "consumer_offsets_partitions"),
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more")
        for name in (
            *("partitions", "producers_per_partition", "hanging", "ongoing", "prepared", "transactional_ids"),
            *("log_records", "groups", "latency_ms", "error_every", "reset_every"),
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more")
        open_max = max(self.hanging, *(count * self.partitions_per_transaction for count in self._under_way))
        if open_max > self.partitions:
            raise ValueError("hanging, ongoing and prepared transactions must not be on more than all partitions")
        if self.log_records > _ROUNDS_MAX * self.transactional_ids:
            raise ValueError(f"log_records must be at most {_ROUNDS_MAX} for each of the transactional_ids")
        if self.replication_factor > self.brokers:
            raise ValueError("replication_factor must not be more than brokers")
        if not 0 <= self.epochs_lower_by <= 5:
            raise ValueError("epochs_lower_by must be between 0 and 5")
        if not 0 <= self.busy_share <= 1:
            raise ValueError("busy_share must be between 0 and 1")

    @property
    def _under_way(self) -> tuple[int, int]:
        return self.ongoing, self.prepared

    @property
    def broker_ids(self) -> range:
        """The ids of all brokers."""
        return range(1, self.brokers + 1)

    def latency_of_ms(self, broker_id: int) -> int:
        """The time from a request to this broker to its answer."""
        return self.slow_brokers.get(broker_id, self.latency_ms)

    # --- topics and partitions ---

    @property
    def topics(self) -> int:
        """The number of user topics. The last one may have fewer partitions."""
        return -(-self.partitions // self.partitions_per_topic)

    @staticmethod
    def topic_name(topic: int) -> str:
        """The name of the topic with this number, from 0 on."""
        return f"{_TOPIC}{topic:05d}"

    def topic_number(self, name: str) -> int | None:
        """The number of the topic with this name, if it exists."""
        number = _number(name, _TOPIC)
        return number if number is not None and number < self.topics and self.topic_name(number) == name else None

    @staticmethod
    def topic_id(name: str) -> uuid.UUID:
        """The id of the topic with this name, for any name; the same in every cluster."""
        return uuid.uuid5(_NAMESPACE, name)

    def ordinals(self, topic: int) -> range:
        """The partitions of a topic."""
        first = topic * self.partitions_per_topic
        return range(first, min(first + self.partitions_per_topic, self.partitions))

    def key(self, ordinal: int) -> Key:
        """A partition's topic and index."""
        topic, index = divmod(ordinal, self.partitions_per_topic)
        return self.topic_name(topic), index

    def leader(self, ordinal: int) -> int:
        """The broker that leads a partition."""
        if self.busy_share == 0 or self.brokers == 1:
            return 1 + ordinal % self.brokers
        busy = int(ordinal * self.busy_share)
        return 1 if int((ordinal + 1) * self.busy_share) > busy else 2 + (ordinal - busy) % (self.brokers - 1)

    def leader_epoch(self, ordinal: int) -> int:
        """The leader epoch of a partition."""
        return 5 + ordinal % 3 - self.epochs_lower_by

    def replicas(self, leader: int) -> tuple[int, ...]:
        """The brokers with a replica of a partition with this leader; all are in sync."""
        return tuple(1 + (leader - 1 + follower) % self.brokers for follower in range(self.replication_factor))

    @cached_property
    def internal_topics(self) -> Mapping[str, int]:
        """The names of the internal topics, with their numbers of partitions."""
        offsets = {CONSUMER_OFFSETS_TOPIC: self.consumer_offsets_partitions} if self.groups else {}
        return {TRANSACTION_STATE_TOPIC: self.transaction_state_partitions, **offsets}

    def internal(self, topic: str, k: int) -> tuple[int, int]:
        """The leader and the leader epoch of a partition of an internal topic."""
        if topic == CONSUMER_OFFSETS_TOPIC:
            return self.consumer_offsets_leader(k), self.consumer_offsets_epoch(k)
        return self.transaction_state_leader(k), self.transaction_state_epoch(k)

    def is_in_error(self, ordinal: int) -> bool:
        """Whether a partition answers DescribeProducers with an error."""
        return self.error_every > 0 and (ordinal + 1) % self.error_every == 0

    # --- producers and transactions ---

    def idle_producer_ids(self, ordinal: int) -> range:
        """The producers on a partition without an open transaction."""
        first = _FIRST_IDLE_PRODUCER_ID + (ordinal % IDLE_SETS) * self.producers_per_partition
        return range(first, first + self.producers_per_partition)

    def hanging_ordinal(self, number: int) -> int:
        """The partition of a hanging transaction. Transactions are numbered from 0."""
        return _spread(number, self.hanging, self.partitions)

    def ongoing_ordinals(self, number: int) -> tuple[int, ...]:
        """The partitions of an ongoing transaction, numbered from 0. They may have other open transactions too."""
        return tuple(self.partitions - 1 - ordinal for ordinal in self._wide(number, self.ongoing))

    def prepared_ordinals(self, number: int) -> tuple[int, ...]:
        """The partitions of a prepared transaction, numbered from 0; the partitions that are owed a marker come
        first.
        """
        half = self.partitions // 2
        return tuple((ordinal + half) % self.partitions for ordinal in self._wide(number, self.prepared))

    def _wide(self, number: int, count: int) -> tuple[int, ...]:
        """The places of a transaction, far apart, one for each of its partitions. No two of `count` transactions share
        a place.
        """
        width = self.partitions_per_transaction
        return tuple(_spread(number + count * place, count * width, self.partitions) for place in range(width))

    @property
    def open_partitions_of_ids(self) -> int:
        """The number of open transactions on partitions whose owner a coordinator lists, counted per partition."""
        return self.ongoing * self.partitions_per_transaction + self.prepared * self._owed

    @property
    def _owed(self) -> int:
        return -(-self.partitions_per_transaction // 3)

    def open_transactions(self) -> dict[int, list[OpenTransaction]]:
        """All open transactions by partition."""
        found: dict[int, list[OpenTransaction]] = {}
        for number in range(self.hanging):
            hanging = OpenTransaction(_FIRST_HANGING_PRODUCER_ID + number, HANGING_START_OFFSET)
            found.setdefault(self.hanging_ordinal(number), []).append(hanging)
        for count, make, start in (
            (self.ongoing, self._ongoing_id, ONGOING_START_OFFSET),
            (self.prepared, self._prepared_id, PREPARED_START_OFFSET),
        ):
            for owner in map(make, range(count)):
                opened = OpenTransaction(owner.producer_id, start, owner.name)
                for ordinal in owner.shown:
                    found.setdefault(ordinal, []).append(opened)
        return found

    # --- groups ---

    def consumer_offsets_leader(self, k: int) -> int:
        """The broker that leads a partition of `__consumer_offsets`."""
        return 1 + (k + 1) % self.brokers

    @staticmethod
    def consumer_offsets_epoch(k: int) -> int:
        """Its leader epoch."""
        return _CONSUMER_OFFSETS_EPOCH + k % 2

    def group_coordinator(self, name: str) -> int:
        """The broker that coordinates a group, even if the group does not exist."""
        return self.consumer_offsets_leader(coordinator_partition(name, self.consumer_offsets_partitions))

    def group(self, name: str) -> Group | None:
        """The group of this name, if it exists."""
        number = _number(name, _GROUP)
        found = self._group(number) if number is not None and number < self.groups else None
        return found if found is not None and found.name == name else None

    def all_groups(self) -> Iterator[Group]:
        """All groups of all coordinators."""
        return map(self._group, range(self.groups))

    def _group(self, number: int) -> Group:
        """Three in four have members; the others only committed offsets."""
        topics: Sequence[int] = ()
        reads = Reads.COMMITTED
        if self.topics:
            topics = range(number, self.topics, self.groups) or (number % self.topics,)
            # First as many groups of one kind as there are topics, then of the next kind.
            reads = tuple(Reads)[number // self.topics % len(Reads)]
        state, protocol_type = ("Empty", "") if number % 4 == 3 else ("Stable", "consumer")
        return Group(_name(_GROUP, number), number, state, protocol_type, reads, topics)

    # --- coordinators ---

    def transaction_state_leader(self, k: int) -> int:
        """The broker that leads a partition of `__transaction_state`."""
        return 1 + k % self.brokers

    @staticmethod
    def transaction_state_epoch(k: int) -> int:
        """Its leader epoch."""
        return _TRANSACTION_STATE_EPOCH + k % 2

    def coordinator(self, name: str) -> int:
        """The broker that coordinates an id, even if the id does not exist."""
        return self.transaction_state_leader(coordinator_partition(name, self.transaction_state_partitions))

    def all_transactional_ids(self) -> Iterator[TransactionalId]:
        """All ids of all coordinators."""
        for _, _, count, make in self._kinds:
            yield from map(make, range(count))

    def transactional_id(self, name: str) -> TransactionalId | None:
        """The id of this name, if it exists."""
        for prefix, _, count, make in self._kinds:
            number = _number(name, prefix)
            if number is not None and number < count and make(number).name == name:
                return make(number)
        return None

    def owner(self, producer_id: int) -> TransactionalId | None:
        """The id with this producer id, if it exists."""
        for _, first, count, make in self._kinds:
            if first <= producer_id < first + count:
                return make(producer_id - first)
        return None

    @property
    def _kinds(self) -> tuple[tuple[str, int, int, Callable[[int], TransactionalId]], ...]:
        """For each kind of id: the prefix of names, the first producer id, the number of ids, and a function that makes
        an id.
        """
        return (
            (_ONGOING, _FIRST_ONGOING_PRODUCER_ID, self.ongoing, self._ongoing_id),
            (_PREPARED, _FIRST_PREPARED_PRODUCER_ID, self.prepared, self._prepared_id),
            (_REST, _FIRST_REST_PRODUCER_ID, self.transactional_ids, self._rest_id),
        )

    def _ongoing_id(self, number: int) -> TransactionalId:
        held = self.ongoing_ordinals(number)
        return TransactionalId(
            _name(_ONGOING, number), number, _FIRST_ONGOING_PRODUCER_ID + number, 0, "Ongoing", held, held
        )

    def _prepared_id(self, number: int) -> TransactionalId:
        """Its epoch is higher by one than the epoch of its data, because the end of a transaction raises it."""
        held, state = self.prepared_ordinals(number), "PrepareAbort" if number % 4 == 3 else "PrepareCommit"
        producer_id = _FIRST_PREPARED_PRODUCER_ID + number
        return TransactionalId(_name(_PREPARED, number), number, producer_id, 1, state, held, held[: self._owed])

    @staticmethod
    def _rest_id(number: int) -> TransactionalId:
        kind = number % 20
        state = "Empty" if kind < 2 else "CompleteAbort" if kind == 2 else "CompleteCommit"
        # A producer that starts again gets the next epoch.
        epoch = REST_EPOCH + (state == "Empty")
        return TransactionalId(_name(_REST, number), number, _FIRST_REST_PRODUCER_ID + number, epoch, state)


def _name(prefix: str, number: int) -> str:
    """All names of one kind have the same length, for up to ten million ids."""
    return f"{prefix}{number:0{NAME_DIGITS}d}"


def _spread(number: int, count: int, places: int) -> int:
    """The place of item `number` of `count`: the places are divided into `count` runs, and the item is anywhere in its
    run.

    At the same place of each run, all items might share a leader.
    """
    first, end = number * places // count, (number + 1) * places // count
    return first + (number * _SCATTER >> 7) % (end - first)


def _number(name: str, prefix: str) -> int | None:
    digits = name.removeprefix(prefix)
    return int(digits) if digits != name and digits.isascii() and digits.isdecimal() else None
