"""One moment of a simulated cluster: brokers, replicated logs, coordinators' caches, producers. State only.

Values are immutable tuples (`records.py`) in a few dictionaries. So copying these dictionaries copies a world, and two
worlds are equal if their `key` is. The tables of `coordinator.py`, `partition.py`, `controller.py` and `producer.py`
change a world. `decided` is ground truth that a real cluster does not have for a whole transaction. A transaction is
decided once its Prepare* or Complete* record is acknowledged. It stays decided if an election loses that record. A
Prepare* that was appended, but not acknowledged, is no decision yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from tests.sim.records import (
    Broker,
    Commit,
    Coordinator,
    Data,
    Held,
    Image,
    Leadership,
    LetIn,
    Log,
    Produce,
    Producer,
    Record,
    Txn,
    Verification,
    common_prefix,
    producer_state,
)
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key

# A kind of fault: clients send data to partitions that they never added to the transaction.
NEVER_ADDED = "data never added"
# A kind of fault: `transaction.version` is raised or lowered while clients continue.
CHANGES_VERSION = "transactions version changes"
# A kind of fault: `__transaction_state` loses acknowledged records at an election.
LOST_LOG_END = "lost log end"
# A kind of fault: replicas forget idle producers.
IDLE_PRODUCERS = "idle producers"
# A kind of fault: the leader of the controllers is deposed, and does not know it.
DEPOSED_CONTROLLER = "deposed controller"
# A kind of fault: a broker registers again before it was fenced, and the leader epochs stay.
KEPT_EPOCHS = "kept leader epochs"
_coordinator_partition = lru_cache(coordinator_partition)


@dataclass(frozen=True)
class Scenario:
    """The constants of a world.

    topics: replicas by partition; the first one is the preferred leader. coordinators: the same for
    `__transaction_state`. verify: `transaction.partition.verification.enable`. skips_leaderless: markers to a partition
    without a leader are dropped as if the topic were deleted (since Kafka 4.3). reloads: as in Kafka 3.5, a coordinator
    loads its log again at every change of that partition's in-sync set, and a shrinking set raises the leader epoch.
    versions: the transactions versions of clients; if they change, clients begin with the first. hidden: transactional
    ids that the scanning principal may not describe. last_epoch: the epoch at which a producer id is used up (32766 in
    Kafka). watched: partitions with an open incident, which the scanner reads with proof even if a coordinator claims
    them.
    """

    name: str
    topics: tuple[tuple[Key, tuple[int, ...]], ...]
    coordinators: tuple[tuple[int, ...], ...]
    producers: tuple[str, ...] = ("a",)
    min_isr: int = 1
    verify: bool = False
    skips_leaderless: bool = True
    reloads: bool = False
    versions: tuple[int, ...] = (1, 2)
    hidden: frozenset[str] = frozenset()
    last_epoch: int = 32766
    faults: frozenset[str] = frozenset()
    watched: frozenset[Key] = frozenset()

    @cached_property
    def brokers(self) -> tuple[int, ...]:
        return tuple(sorted({b for _, replicas in self.partitions for b in replicas}))

    @cached_property
    def partitions(self) -> tuple[tuple[Key, tuple[int, ...]], ...]:
        """The partitions of topics, then the partitions of `__transaction_state`."""
        log = tuple(((TRANSACTION_STATE_TOPIC, k), replicas) for k, replicas in enumerate(self.coordinators))
        return self.topics + log


class World:
    """One moment of a cluster."""

    __slots__ = (
        "acks",
        "brokers",
        "commits",
        "coordinators",
        "decided",
        "deposed",
        "epoch_starts",
        "held",
        "high_watermarks",
        "image",
        "in_flight",
        "index",
        "let_in",
        "log_starts",
        "logs",
        "next_producer_id",
        "now_ms",
        "places",
        "producers",
        "quorum_epoch",
        "quorum_ms",
        "scenario",
        "sent",
        "verifications",
    )

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.index = {key: number for number, (key, _) in enumerate(scenario.partitions)}
        self.places = dict(scenario.partitions)
        self.image = Image(
            frozenset(scenario.brokers),
            tuple(Leadership(r[0], 0, frozenset(r)) for _, r in scenario.partitions),
        )
        self.brokers = {b: Broker("up", True, self.image, self.image, self.image) for b in scenario.brokers}
        self.logs: dict[tuple[Key, int], Log] = {(key, b): () for key, r in scenario.partitions for b in r}
        self.log_starts: dict[tuple[Key, int], int] = dict.fromkeys(self.logs, 0)
        self.high_watermarks = dict.fromkeys(self.logs, 0)
        self.epoch_starts: dict[tuple[Key, int], int] = dict.fromkeys(self.logs, 0)
        self.let_in: dict[tuple[Key, int], LetIn] = {}
        self.coordinators: dict[tuple[int, int], Coordinator] = {
            (replicas[0], k): Coordinator(0, False) for k, replicas in enumerate(scenario.coordinators)
        }
        self.held: dict[tuple[int, str], Held] = {}
        # Markers that were appended and not acknowledged yet: leader, leader epoch and offset.
        self.acks: dict[tuple[int, str, Key], tuple[int, int, int]] = {}
        spoken = scenario.versions[0] if CHANGES_VERSION in scenario.faults else None
        self.producers = dict.fromkeys(scenario.producers, Producer(version=spoken))
        self.in_flight: tuple[Produce, ...] = ()
        # The number of batches of each instance that a leader has taken, at each epoch: the next one's number.
        self.sent: dict[tuple[Key, int, int, int], int] = {}
        # By partition, replica and producer id.
        self.verifications: dict[tuple[Key, int, int], Verification] = {}
        self.next_producer_id = 7
        self.decided: dict[Txn, bool] = {}
        # Only if clients may send data that was never added: the written commits of a transaction, with their times.
        self.commits: dict[Txn, Commit] = {}
        self.now_ms = 0
        # The epoch of the controllers' leader, and the clock of every controller. By broker, the deposed leader through
        # which it asks: epoch, high watermark, and the time of the last fetch of its followers.
        self.quorum_epoch, self.quorum_ms = 1, 1
        self.deposed: dict[int, tuple[int, int, int]] = {}

    def copy(self) -> World:
        """An independent copy of the world."""
        other = object.__new__(World)
        for name in World.__slots__:
            value = getattr(self, name)
            setattr(other, name, value.copy() if isinstance(value, dict) else value)
        return other

    @property
    def key(self) -> tuple[object, ...]:
        """A key that two worlds share exactly if they are equal, including the ground truth."""
        return (
            self.image,
            *self.brokers.values(),
            *self.logs.values(),
            *self.log_starts.values(),
            *self.high_watermarks.values(),
            *self.epoch_starts.values(),
            tuple(sorted(self.let_in.items(), key=lambda item: item[0])),
            tuple(sorted(self.coordinators.items())),
            tuple(sorted(self.held.items(), key=lambda item: item[0])),
            tuple(sorted(self.acks.items())),
            *self.producers.values(),
            self.in_flight,
            tuple(sorted(self.sent.items())),
            tuple(sorted(self.verifications.items())),
            self.next_producer_id,
            tuple(sorted(self.decided.items())),
            tuple(sorted(self.commits.items(), key=lambda item: item[0])),
            self.now_ms,
            self.quorum_epoch,
            self.quorum_ms,
            tuple(sorted(self.deposed.items())),
        )

    # --- roles ---

    def coordinator_of(self, transactional_id: str) -> int:
        """The `__transaction_state` partition of an id."""
        return _coordinator_partition(transactional_id, len(self.scenario.coordinators))

    def up(self, broker_id: int) -> bool:
        """Whether a broker's process runs, and so acts and answers."""
        return self.brokers[broker_id].run == "up"

    def leadership(self, image: Image, key: Key) -> Leadership:
        """The leadership of a partition in an image."""
        return image.leaderships[self.index[key]]

    def leads(self, broker_id: int, key: Key) -> Leadership | None:
        """The leadership under which this broker believes that it leads the partition, if it does."""
        believed = self.leadership(self.brokers[broker_id].replicas, key)
        return believed if believed.leader == broker_id else None

    # --- the log of a replica ---

    def append(self, broker_id: int, key: Key, record: Record) -> int | None:
        """Appends as the leader, for acks=all. Returns the offset, or None if the broker refuses.

        A broker refuses if it does not lead, or has too few in-sync replicas (`Partition.appendRecordsToLeader`).
        """
        believed = self.writable(broker_id, key)
        if believed is None:
            return None
        log = self.logs[key, broker_id]
        self.logs[key, broker_id] = (*log, (believed.epoch, record))
        self.advance(broker_id, key)
        return len(log)

    def let_in_by(self, broker_id: int, key: Key) -> LetIn:
        """The replicas that this broker has let in as the leader, but not yet received in metadata."""
        return self.let_in.get((key, broker_id), LetIn())

    def writable(self, broker_id: int, key: Key) -> Leadership | None:
        """The leadership under which this broker would append for acks=all, if it would (`effectiveMinIsr`)."""
        believed = self.leads(broker_id, key)
        wanted = min(self.scenario.min_isr, len(self.places[key]))
        return believed if believed is not None and len(believed.isr) >= wanted else None

    def advance(self, broker_id: int, key: Key) -> None:
        """Raises the leader's high watermark to the end of the records on every in-sync replica
        (`Partition.maybeIncrementLeaderHW`).
        """
        self.high_watermarks[key, broker_id] = self._next_high_watermark(broker_id, key)

    def would_advance(self, broker_id: int, key: Key) -> bool:
        """Whether a fetch would raise the leader's high watermark."""
        return self._next_high_watermark(broker_id, key) > self.high_watermarks[key, broker_id]

    def _next_high_watermark(self, broker_id: int, key: Key) -> int:
        believed = self.leads(broker_id, key)
        if believed is None:
            return self.high_watermarks.get((key, broker_id), 0)
        log = self.logs[key, broker_id]
        if self.high_watermarks[key, broker_id] == len(log):
            return len(log)
        # A leader counts a replica as soon as it has asked the controller to let it in (the maximal in-sync set).
        isr = believed.isr | self.let_in_by(broker_id, key).replicas
        everywhere = min(
            len(log) if b == broker_id else common_prefix(log, self._followed(key, b, believed)) for b in isr
        )
        return max(self.high_watermarks[key, broker_id], everywhere)

    def _followed(self, key: Key, follower: int, believed: Leadership) -> Log:
        """The part of a follower's log that the leader knows; no new records while it follows another leader epoch."""
        theirs = self.leadership(self.brokers[follower].replicas, key)
        same = (theirs.leader, theirs.epoch) == (believed.leader, believed.epoch)
        log = self.logs[key, follower]
        return log if same else log[: self.high_watermarks[key, believed.leader]]

    def stands_open(self, key: Key, producer: Producer) -> Iterator[bool]:
        """Whether a transaction of this producer id and epoch is open, according to each broker that believes that it
        leads the partition (`ProducerStateManager.hasOngoingTransaction`).
        """
        for broker_id in self.places[key]:
            if self.up(broker_id) and self.leads(broker_id, key) is not None:
                known = producer_state(self.logs[key, broker_id]).get(producer.producer_id)
                same_epoch = known is not None and known.producer_epoch == producer.producer_epoch
                yield known is not None and same_epoch and known.start_offset >= 0

    # --- the ground truth ---

    def was_committed(self, key: Key, data: Data) -> bool | None:
        """Whether a record was committed on this partition. None if that cannot be distinguished: the record was
        neither committed nor added, and has no later date than a commit of its producer id and epoch on this partition.
        """
        ours = self.commits.get(data.txn)
        if self.decided.get(data.txn, False) and (data.added or (ours is not None and key in ours.partitions)):
            return True
        others = (commit for txn, commit in self.commits.items() if key in commit.partitions and self.decided.get(txn))
        alike = any(one[:2] == data[:2] and data.sent_ms <= one.written_ms for one in others)
        return None if alike and (data.joined or not data.added) else False

    def acknowledged(self, broker_id: int, key: Key, epoch: int, offset: int) -> bool:
        """Whether the record that this broker appended at a leader epoch is below its high watermark."""
        believed = self.leads(broker_id, key)
        return believed is not None and believed.epoch == epoch and offset < self.high_watermarks[key, broker_id]
