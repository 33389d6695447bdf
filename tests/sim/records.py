"""The parts of a simulated cluster: records in logs, coordinators' caches, brokers, producers. Values only.

`txn` is ground truth that a real cluster does not have: the transaction that a record belongs to.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from txnscan.kafka.topology import Key

NOBODY = -1
# How many batches of a producer a replica keeps to recognise duplicates (`ProducerStateEntry.NUM_BATCHES_TO_RETAIN`).
BATCHES_KEPT = 5
# A transaction: the transactional id that began it, and its number among the transactions of that id.
Txn = tuple[str, int]


# --- records ----------------------------------------------------------------------------------------------------------


class Data(NamedTuple):
    """A transactional batch of one record.

    sequence: its number at this epoch, in the order of the partition. sent_ms: when it was sent. added: ground truth:
    whether its producer had added the partition by then. joined: ground truth: whether its leader did not add the
    partition, because a transaction of that epoch was open there. instance: ground truth: which instance of the
    producer sent it.
    """

    producer_id: int
    producer_epoch: int
    txn: Txn
    sequence: int = 0
    sent_ms: int = 0
    added: bool = True
    joined: bool = False
    instance: int = 0


class Marker(NamedTuple):
    """An EndTxnMarker: the control record that ends a transaction on a partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool


class TransactionLogRecord(NamedTuple):
    """A TransactionLogValue with its key. `metadata` None is the tombstone of an expired id. updated_ms: when it was
    written.
    """

    transactional_id: str
    metadata: TransactionMetadata | None
    updated_ms: int = 0


class Gone(NamedTuple):
    """A record below the start of a replica's log, which the replica no longer has. record: ground truth."""

    record: Data | Marker


class Idle(NamedTuple):
    """A record that a replica still has, but whose producer it forgot, because the producer was idle
    (`producer.id.expiration.ms`). Its producer state does not include the record.
    """

    record: Data | Marker


Record = Data | Marker | TransactionLogRecord
# A record with the epoch of the leader that appended it. None is a hole: a cleaner dropped the record, on this replica
# or on the replica from which it was copied. Offsets do not move. Records below the start of a replica's log cannot be
# read any more; the replica's producer state still includes them until it is rebuilt.
Entry = tuple[int, Record | Gone | Idle | None]
Log = tuple[Entry, ...]


# --- the coordinator's side -------------------------------------------------------------------------------------------


class TransactionMetadata(NamedTuple):
    """A transactional id in its coordinator's cache (`TransactionMetadata.scala`).

    client_version: 1 or 2, the transactions version of the client that last wrote or ended it. next_producer_id: the
    producer id that follows when all epochs are used up. txn: ground truth.
    """

    producer_id: int
    producer_epoch: int
    state: str
    partitions: frozenset[Key] = frozenset()
    client_version: int = 1
    next_producer_id: int = NOBODY
    txn: Txn | None = None


class Held(NamedTuple):
    """A transactional id in a coordinator's cache, with the transition in progress.

    pending: a transition whose record is at `pending_offset` of the transaction log, and not acknowledged yet. sending:
    whether markers are being sent; a refused marker stops that (`abortSending`). failed_fence: whether its epoch was
    raised by a fence that was not written; another fence does not raise it again. fencing: whether the pending
    transition is a fence, and so does not answer an EndTxn. unanswered: ground truth: appends for an AddPartitionsToTxn
    that timed out: the offset, the new state, and the state before it.
    """

    metadata: TransactionMetadata
    pending: TransactionMetadata | None = None
    pending_offset: int = NOBODY
    sending: bool = True
    failed_fence: bool = False
    fencing: bool = False
    unanswered: tuple[tuple[int, TransactionMetadata, TransactionMetadata], ...] = ()


class Commit(NamedTuple):
    """Ground truth: a written PrepareCommit, with the producer id and epoch of its data, and its time."""

    producer_id: int
    producer_epoch: int
    partitions: frozenset[Key]
    written_ms: int


class Coordinator(NamedTuple):
    """A broker's cache of one `__transaction_state` partition.

    epoch: its coordinator epoch. loading: whether it is still loading. whole: ground truth: whether it loaded the whole
    log.
    """

    epoch: int
    loading: bool
    whole: bool = True


# --- brokers ----------------------------------------------------------------------------------------------------------


class Leadership(NamedTuple):
    """A partition in the controller's metadata. partition_epoch: the number of its changes."""

    leader: int
    epoch: int
    isr: frozenset[int]
    partition_epoch: int = 0


class LetIn(NamedTuple):
    """Replicas that a leader has let into its in-sync set since its last metadata of that set, and the partition epoch
    that the controller returned for the last one (AlterPartition).
    """

    replicas: frozenset[int] = frozenset()
    partition_epoch: int = -1


class Image(NamedTuple):
    """A metadata image: the brokers that are registered and not fenced, and the leadership of every partition. offset:
    the number of changes of the metadata log in it.
    """

    brokers: frozenset[int]
    leaderships: tuple[Leadership, ...]
    offset: int = 0

    def changed(self, **changes: object) -> Image:
        """The next image."""
        return self._replace(offset=self.offset + 1, **changes)  # type: ignore[arg-type]


class Broker(NamedTuple):
    """A broker process.

    run: "up", "paused" (SIGSTOP) or "down". linked: whether it receives updates from the controller.
    An image reaches first the metadata cache, then the replica manager, and last the coordinator
    (`BrokerMetadataPublisher`). In between, Metadata names a coordinator that does not know of its role yet.
    """

    run: str
    linked: bool
    metadata: Image
    replicas: Image
    elected: Image


# --- producers --------------------------------------------------------------------------------------------------------


class Producer(NamedTuple):
    """A transactional producer according to its own state.

    ending: None, or whether it asked to commit. txn: the number of its transaction. instance: the number of the first
    transaction of this instance. version: the transactions version of all its requests until it changes; None if each
    request has its own.
    """

    producer_id: int = NOBODY
    producer_epoch: int = NOBODY
    added: frozenset[Key] = frozenset()
    ending: bool | None = None
    txn: int = 0
    instance: int = 0
    fenced: bool = False
    version: int | None = None


class Produce(NamedTuple):
    """A Produce request in flight."""

    partition: Key
    data: Data
    version: int


class Open(NamedTuple):
    """A replica's producer state for one producer id (`ProducerStateEntry`).

    sequences: of its last batches at this epoch. last_ms: when its last batch was sent. txns, instance: ground truth;
    the instance of its last batch.
    """

    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    sequences: tuple[int, ...]
    txns: frozenset[Txn]
    last_ms: int = 0
    instance: int = 0

    @property
    def last_sequence(self) -> int:
        """The number of its last batch at this epoch, -1 if there is none."""
        return self.sequences[-1] if self.sequences else -1


class Verification(NamedTuple):
    """The transaction that a replica has verified for a producer without writing a batch since
    (`VerificationStateEntry`): a batch above its lowest number is refused. end: the end of the replica's log then.
    """

    producer_epoch: int
    sequence: int
    end: int


# --- logs -------------------------------------------------------------------------------------------------------------


def common_prefix(one: Log, two: Log) -> int:
    """The length of the common prefix of two logs.

    Entries with the same offset and leader epoch are the same record, which one replica's cleaner may have dropped.
    """
    if len(two) <= len(one) and one[: len(two)] == two:
        return len(two)
    return next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a[0] != b[0]), min(len(one), len(two)))


def superseded(log: Log, reached: int) -> frozenset[int]:
    """The offsets below `reached` with a later record of the same id below `reached`: a cleaner drops these."""
    later: set[str] = set()
    dropped = set()
    for offset in reversed(range(reached)):
        record = log[offset][1]
        if isinstance(record, TransactionLogRecord):
            if record.transactional_id in later:
                dropped.add(offset)
            later.add(record.transactional_id)
    return frozenset(dropped)


def without(log: Log, offsets: frozenset[int]) -> Log:
    """The log with holes at these offsets."""
    return tuple((entry[0], None) if offset in offsets else entry for offset, entry in enumerate(log))


@lru_cache(maxsize=50_000)
def producer_state(log: Log) -> dict[int, Open]:
    """A replica's state of each producer id, computed from its log (`ProducerStateManager`).

    A batch at a higher epoch joins the open transaction. A marker ends the transaction, and sets the epoch also if none
    is open. A follower takes a lower epoch from its leader, which has forgotten the higher one. Sequences restart at
    each epoch (`ProducerStateEntry.maybeUpdateProducerEpoch`). Do not change the result: it is shared.
    """
    known: dict[int, Open] = {}
    for offset, (_, record) in enumerate(log):
        if isinstance(record, Data):
            before = known.get(record.producer_id, _UNKNOWN)
            fresh = before.start_offset < 0
            known[record.producer_id] = Open(
                record.producer_epoch,
                before.coordinator_epoch,
                offset if fresh else before.start_offset,
                (*_sequences_at(before, record.producer_epoch), record.sequence)[-BATCHES_KEPT:],
                frozenset({record.txn}) if fresh else before.txns | {record.txn},
                record.sent_ms,
                record.instance,
            )
        elif isinstance(record, Marker):
            before = known.get(record.producer_id, _UNKNOWN)
            epoch = record.producer_epoch
            sequences = _sequences_at(before, epoch)
            known[record.producer_id] = Open(epoch, record.coordinator_epoch, -1, sequences, frozenset())
    return known


_UNKNOWN = Open(-1, -1, -1, (), frozenset())


def _sequences_at(before: Open, epoch: int) -> tuple[int, ...]:
    return before.sequences if before.producer_epoch == epoch else ()


def without_beginning(log: Log, start: int) -> Log:
    """The log of a replica that lacks the records below this offset."""
    log = remembered(log)
    return tuple((epoch, _gone(record)) for epoch, record in log[:start]) + log[start:]


def forgetting(log: Log, producer_id: int) -> Log:
    """The log of a replica that forgets this producer."""
    ours = (isinstance(record, Data | Marker) and record.producer_id == producer_id for _, record in log)
    return tuple((entry[0], Idle(entry[1])) if own else entry for entry, own in zip(log, ours, strict=True))  # type: ignore[arg-type]


def remembered(log: Log) -> Log:
    """The log of a replica whose producer state is built from every record that it has."""
    if not any(isinstance(record, Idle) for _, record in log):
        return log
    return tuple((epoch, record.record if isinstance(record, Idle) else record) for epoch, record in log)


def _gone(record: Record | Gone | Idle | None) -> Gone | None:
    return Gone(record) if isinstance(record, Data | Marker) else record if isinstance(record, Gone) else None


def with_beginning(log: Log) -> Log:
    """The log with all records that were ever written to it: ground truth."""
    return tuple((epoch, record.record if isinstance(record, Gone | Idle) else record) for epoch, record in log)


def still_open(log: Log) -> dict[int, Open]:
    """The open transactions of a replica by producer id."""
    return {pid: shown for pid, shown in producer_state(log).items() if shown.start_offset >= 0}
