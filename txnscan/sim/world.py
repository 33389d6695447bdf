"""What a simulated cluster is made of: brokers, replicated logs, coordinators' caches, producers. State alone.

Values are immutable tuples in a few dictionaries, so that a world is copied by copying these, and two worlds are the
same when their `key` is. How a world changes stands in the tables of `coordinator.py`, `partition.py`, `controller.py`
and `producer.py`. What a real cluster would not know (which transaction a record belongs to, what was decided) is kept
beside it as `txn` and `decided`: the ground truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from txnscan.kafka.coordinator import coordinator_partition
from txnscan.model import TRANSACTION_STATE_TOPIC, Key

NOBODY = -1
# A transaction: the transactional id that began it, and which of its transactions it is.
Txn = tuple[str, int]


# --- records ----------------------------------------------------------------------------------------------------------


class Data(NamedTuple):
    """A transactional batch of one record."""

    producer_id: int
    producer_epoch: int
    txn: Txn


class Marker(NamedTuple):
    """An EndTxnMarker: the control record that ends a transaction on a partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool


class TransactionLogRecord(NamedTuple):
    """A TransactionLogValue with its key; `metadata` None is the tombstone of an expired id."""

    transactional_id: str
    metadata: TransactionMetadata | None


Record = Data | Marker | TransactionLogRecord
# A record with the epoch of the leader that appended it.
Entry = tuple[int, Record]
Log = tuple[Entry, ...]


# --- the coordinator's side -------------------------------------------------------------------------------------------


class TransactionMetadata(NamedTuple):
    """A transactional id as its coordinator holds it (`TransactionMetadata.scala`).

    client_version: 1 or 2, the transactions version of the client that ended it last. next_producer_id: the producer id
    that follows when the epochs of this one are used up. txn: ground truth.
    """

    producer_id: int
    producer_epoch: int
    state: str
    partitions: frozenset[Key] = frozenset()
    client_version: int = 1
    next_producer_id: int = NOBODY
    txn: Txn | None = None


class Held(NamedTuple):
    """A transactional id in a coordinator's cache.

    pending: a transition whose record stands at `pending_offset` of the transaction log and is not acknowledged yet.
    sending: whether markers are being sent; a refused marker ends that (`abortSending`). failed_fence: whether its
    epoch was raised by a fence that could not be written.
    """

    metadata: TransactionMetadata
    pending: TransactionMetadata | None = None
    pending_offset: int = NOBODY
    sending: bool = True
    failed_fence: bool = False


class Coordinator(NamedTuple):
    """A broker's cache of one `__transaction_state` partition: its coordinator epoch, and whether it still loads."""

    epoch: int
    loading: bool


# --- brokers ----------------------------------------------------------------------------------------------------------


class Leadership(NamedTuple):
    """A partition as the controller's metadata has it."""

    leader: int
    epoch: int
    isr: frozenset[int]
    topic_id: int = 1


class Image(NamedTuple):
    """A metadata image: the brokers that are registered and not fenced, and every partition's leadership."""

    brokers: frozenset[int]
    leaderships: tuple[Leadership, ...]


class Broker(NamedTuple):
    """A broker process.

    run: "up", "paused" (SIGSTOP) or "down". linked: whether it hears the controller.
    An image reaches the metadata cache first, then the replica manager, and the coordinator last
    (`BrokerMetadataPublisher`): in between, metadata names a coordinator that does not know yet.
    """

    run: str
    linked: bool
    metadata: Image
    replicas: Image
    elected: Image


# --- producers --------------------------------------------------------------------------------------------------------


class Producer(NamedTuple):
    """A transactional producer as it knows itself. ending: None, or whether it asked to commit. txn: its number."""

    producer_id: int = NOBODY
    producer_epoch: int = NOBODY
    added: frozenset[Key] = frozenset()
    ending: bool | None = None
    txn: int = 0
    fenced: bool = False


class Produce(NamedTuple):
    """A Produce request on its way."""

    partition: Key
    data: Data
    version: int


class Open(NamedTuple):
    """What a replica's producer state shows of one producer id (`ProducerStateEntry`). txns: ground truth."""

    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_sequence: int
    txns: frozenset[Txn]


@dataclass(frozen=True)
class Scenario:
    """What does not change in a world.

    topics: replicas by partition, the first is the preferred leader. coordinators: the same, for
    `__transaction_state`. verify: `transaction.partition.verification.enable`. skips_leaderless: markers to a partition
    without a leader are dropped as if the topic were deleted (Kafka 4.3 on). reloads: as Kafka 3.5 does, a coordinator
    loads its log again at every change of that partition's in-sync set, and a set that shrinks raises the leader epoch.
    versions: the transactions versions that clients use. hidden: transactional ids that the scanning principal may not
    describe. last_epoch: the epoch at which a producer id is used up (32766 in Kafka).
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

    @property
    def brokers(self) -> tuple[int, ...]:
        return tuple(sorted({b for _, replicas in self.partitions for b in replicas}))

    @property
    def partitions(self) -> tuple[tuple[Key, tuple[int, ...]], ...]:
        """The partitions of topics, then those of `__transaction_state`."""
        log = tuple(((TRANSACTION_STATE_TOPIC, k), replicas) for k, replicas in enumerate(self.coordinators))
        return self.topics + log


class World:
    """One moment of a cluster."""

    __slots__ = (
        "acks",
        "brokers",
        "coordinators",
        "decided",
        "epoch_starts",
        "held",
        "high_watermarks",
        "image",
        "in_flight",
        "index",
        "let_in",
        "logs",
        "next_producer_id",
        "places",
        "producers",
        "scenario",
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
        self.high_watermarks = dict.fromkeys(self.logs, 0)
        self.epoch_starts: dict[tuple[Key, int], int] = dict.fromkeys(self.logs, 0)
        # Replicas that a leader has let into its in-sync set since it last heard of that set.
        self.let_in: dict[tuple[Key, int], frozenset[int]] = {}
        self.coordinators: dict[tuple[int, int], Coordinator] = {
            (replicas[0], k): Coordinator(0, False) for k, replicas in enumerate(scenario.coordinators)
        }
        self.held: dict[tuple[int, str], Held] = {}
        # A marker that was appended and whose acknowledgement is awaited: leader, leader epoch and offset.
        self.acks: dict[tuple[int, str, Key], tuple[int, int, int]] = {}
        self.producers = dict.fromkeys(scenario.producers, Producer())
        self.in_flight: tuple[Produce, ...] = ()
        self.next_producer_id = 7
        self.decided: dict[Txn, bool] = {}

    def copy(self) -> World:
        """A world that can go its own way."""
        other = object.__new__(World)
        for name in World.__slots__:
            value = getattr(self, name)
            setattr(other, name, value.copy() if isinstance(value, dict) else value)
        return other

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for two worlds exactly when they are the same, ground truth included."""
        return (
            self.image,
            *self.brokers.values(),
            *self.logs.values(),
            *self.high_watermarks.values(),
            *self.epoch_starts.values(),
            tuple(sorted(self.let_in.items(), key=lambda item: item[0])),
            tuple(sorted(self.coordinators.items())),
            tuple(sorted(self.held.items(), key=lambda item: item[0])),
            tuple(sorted(self.acks.items())),
            *self.producers.values(),
            self.in_flight,
            self.next_producer_id,
            tuple(sorted(self.decided.items())),
        )

    # --- who is who ---

    def coordinator_of(self, transactional_id: str) -> int:
        """The `__transaction_state` partition of an id."""
        return coordinator_partition(transactional_id, len(self.scenario.coordinators))

    def up(self, broker_id: int) -> bool:
        """Whether a broker's process runs, and so acts and answers."""
        return self.brokers[broker_id].run == "up"

    def leadership(self, image: Image, key: Key) -> Leadership:
        """A partition in an image."""
        return image.leaderships[self.index[key]]

    def leads(self, broker_id: int, key: Key) -> Leadership | None:
        """The leadership under which this broker believes that it leads the partition, or None."""
        believed = self.leadership(self.brokers[broker_id].replicas, key)
        return believed if believed.leader == broker_id else None

    # --- the log of a replica ---

    def append(self, broker_id: int, key: Key, record: Record) -> int | None:
        """Appends as the leader, for acks=all; the offset, or None where the broker refuses.

        Refused where it does not lead, or has too few in-sync replicas (`Partition.appendRecordsToLeader`).
        """
        believed = self.writable(broker_id, key)
        if believed is None:
            return None
        log = self.logs[key, broker_id]
        self.logs[key, broker_id] = (*log, (believed.epoch, record))
        self.advance(broker_id, key)
        return len(log)

    def writable(self, broker_id: int, key: Key) -> Leadership | None:
        """The leadership under which this broker would append for acks=all, or None (`effectiveMinIsr`)."""
        believed = self.leads(broker_id, key)
        wanted = min(self.scenario.min_isr, len(self.places[key]))
        return believed if believed is not None and len(believed.isr) >= wanted else None

    def advance(self, broker_id: int, key: Key) -> None:
        """Raises the leader's high watermark to what every in-sync replica has (`Partition.maybeIncrementLeaderHW`)."""
        self.high_watermarks[key, broker_id] = self._next_high_watermark(broker_id, key)

    def would_advance(self, broker_id: int, key: Key) -> bool:
        """Whether a fetch would raise the leader's high watermark."""
        return self._next_high_watermark(broker_id, key) > self.high_watermarks[key, broker_id]

    def _next_high_watermark(self, broker_id: int, key: Key) -> int:
        believed = self.leads(broker_id, key)
        if believed is None:
            return self.high_watermarks.get((key, broker_id), 0)
        log = self.logs[key, broker_id]
        # A leader counts a replica as soon as it has asked the controller to let it in (the maximal in-sync set).
        isr = believed.isr | self.let_in.get((key, broker_id), frozenset())
        everywhere = min(
            len(log) if b == broker_id else common_prefix(log, self._followed(key, b, believed)) for b in isr
        )
        return max(self.high_watermarks[key, broker_id], everywhere)

    def _followed(self, key: Key, follower: int, believed: Leadership) -> Log:
        """What a follower is known to have: nothing new while it follows another leader epoch."""
        theirs = self.leadership(self.brokers[follower].replicas, key)
        same = (theirs.leader, theirs.epoch) == (believed.leader, believed.epoch)
        log = self.logs[key, follower]
        return log if same else log[: self.high_watermarks[key, believed.leader]]

    def acknowledged(self, broker_id: int, key: Key, epoch: int, offset: int) -> bool:
        """Whether the record that this broker appended at a leader epoch is below its high watermark."""
        believed = self.leads(broker_id, key)
        return believed is not None and believed.epoch == epoch and offset < self.high_watermarks[key, broker_id]


def common_prefix(one: Log, two: Log) -> int:
    """How many entries two logs begin with alike."""
    if len(two) <= len(one) and one[: len(two)] == two:
        return len(two)
    return next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))


@lru_cache(maxsize=50_000)
def producer_state(log: Log) -> dict[int, Open]:
    """What a replica knows of each producer id: the fold of its log (`ProducerStateManager`).

    A batch at a higher epoch joins the transaction that is open; a marker ends it, and raises the epoch where nothing
    is open. Sequences start over at each epoch (`ProducerStateEntry.maybeUpdateProducerEpoch`). Do not change the
    answer: it is shared.
    """
    known: dict[int, Open] = {}
    for offset, (_, record) in enumerate(log):
        if isinstance(record, Data):
            before = known.get(record.producer_id, Open(-1, -1, -1, -1, frozenset()))
            fresh = before.start_offset < 0
            epoch = max(before.producer_epoch, record.producer_epoch)
            known[record.producer_id] = Open(
                epoch,
                before.coordinator_epoch,
                offset if fresh else before.start_offset,
                _last_sequence(before, epoch) + 1,
                frozenset({record.txn}) if fresh else before.txns | {record.txn},
            )
        elif isinstance(record, Marker):
            before = known.get(record.producer_id, Open(-1, -1, -1, -1, frozenset()))
            epoch = max(before.producer_epoch, record.producer_epoch)
            sequence = _last_sequence(before, epoch)
            known[record.producer_id] = Open(epoch, record.coordinator_epoch, -1, sequence, frozenset())
    return known


def _last_sequence(before: Open, epoch: int) -> int:
    return before.last_sequence if before.producer_epoch == epoch else -1


def still_open(log: Log) -> dict[int, Open]:
    """The open transactions of a replica by producer id."""
    return {pid: shown for pid, shown in producer_state(log).items() if shown.start_offset >= 0}
