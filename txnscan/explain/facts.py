"""The facts behind a cause: groups, partitions and ids as brokers showed them. Plain values.

A field is None if it is not known. A failure is None if the read succeeded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from txnscan.coordinators.transactions import Transaction, key_of
from txnscan.explain.symptom import Symptom
from txnscan.kafka.answers import CoordinatorView
from txnscan.kafka.failure import Failure
from txnscan.kafka.security.acls import UNKNOWN_PRINCIPAL
from txnscan.reads.observation import TransactionKey
from txnscan.txnlog.facts import LoggedTransaction
from txnscan.verdict.evidence import Judged, Verdict
from txnscan.waiting.ahead import Ahead
from txnscan.waiting.cause import Cause
from txnscan.waiting.disk import NO_DISK, Disk
from txnscan.waiting.impact import BlockReason
from txnscan.waiting.known_causes import ExposedTo
from txnscan.waiting.relation import NotBlocked, Pair, relation
from txnscan.waiting.writability import UNREAD, WriteState, WriteStates

TIERED = "remote.storage.enable"


@dataclass(frozen=True, slots=True)
class CleanerProgress:
    """The records at the start of a compacted log. records_read: with a key. duplicates: of these, the records whose
    key comes again among them, which the log cleaner has not removed. is_due: whether it certainly should have.
    """

    records_read: int
    duplicates: int
    is_due: bool


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """A partition that the symptom is about.

    lso_before: the last stable offset before the sweep. last_stable_offset, high_watermark: after it. open: the
    transactions of the sweep, by start offset. committed: the offset of the group, or the next offset of the streaming
    query. ahead: from that offset to the last stable offset; without a reader, the end of the log. compacted: whether
    the cleaner works on its topic. settings: of its topic, about what its log keeps. disk: the sizes of its replicas.
    These three are only read for a topic. cleaning: of a compacted topic without an open transaction. causes: of its
    hanging transactions. failure: why a part of it could not be observed.
    """

    topic: str
    partition: int
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    lso_before: int | None = None
    open: tuple[Judged, ...] = ()
    causes: Mapping[TransactionKey, tuple[Cause, str]] = field(default_factory=dict)
    committed: int | None = None
    ahead: Ahead | None = None
    compacted: bool | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    disk: Disk = NO_DISK
    cleaning: CleanerProgress | None = None
    failure: Failure | None = None

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def tiered(self) -> bool:
        """Whether finished segments below the last stable offset move to remote storage."""
        return self.settings.get(TIERED) == "true"

    @property
    def lag(self) -> int | None:
        """The lag of the group, up to the high watermark."""
        if self.committed is None or self.high_watermark is None:
            return None
        return max(self.high_watermark - self.committed, 0)

    @property
    def blocked_records(self) -> int | None:
        """Offsets from the last stable offset to the high watermark."""
        if self.high_watermark is None or self.last_stable_offset is None:
            return None
        return max(self.high_watermark - self.last_stable_offset, 0)

    def cause(self, judged: Judged) -> tuple[Cause, str] | None:
        """The cause of one of its hanging transactions and its reason, as `find-hanging` reports them. None if it was
        not examined.
        """
        return self.causes.get(judged.observation.transaction_key)

    @property
    def still_open(self) -> tuple[Judged, ...]:
        """The open transactions, without transactions that the last stable offset has passed since."""
        lso = self.last_stable_offset
        moved = lso is not None and lso != self.lso_before
        return tuple(
            one
            for one in self.open
            if one.judgement.verdict is not Verdict.GONE
            and not (moved and lso is not None and one.observation.start_offset < lso)
        )

    @property
    def holder(self) -> Judged | None:
        """The transaction that holds the last stable offset."""
        lso = self.last_stable_offset
        return next((one for one in self.still_open if lso is None or one.observation.start_offset <= lso), None)

    @property
    def relation(self) -> BlockReason | NotBlocked:
        """How the holder blocks the reader, if there are both."""
        delivers = self.ahead.has_record if self.ahead is not None else None
        return relation(
            Pair(
                is_first=self.holder is not None,
                last_stable_offset=self.last_stable_offset,
                next_offset=self.committed,
                delivers=delivers,
            )
        )

    @property
    def waits(self) -> bool:
        """Whether the reader waits for the holder."""
        return isinstance(self.relation, BlockReason)

    @property
    def has_records(self) -> bool:
        """Whether the reader has records to read, and no transaction blocks it there. If its own next records are
        deleted, then only without open transactions.
        """
        if self.committed is None or self.ahead is None:
            return False
        return self.ahead.has_record or (self.ahead.record_at is not None and self.blocked_records == 0)


@dataclass(frozen=True, slots=True)
class PendingOffsets:
    """Offsets of a group that its coordinator withholds. partitions: "topic-partition" names. holder: the open
    transaction on `__consumer_offsets` that has them. unread: why it could not be seen.
    """

    group: str | None
    partitions: tuple[str, ...]
    log: PartitionFacts
    holder: Judged | None
    unread: Failure | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that was read for a symptom.

    connection: the options that reach the cluster, for the next commands. transaction: the id that was asked for, or
    the id that has the producer id. absent: whether its coordinator knows no such id. earlier_producer_ids: those that
    the id had before, of transactions that hang. prepared: ids in Prepare*, for an
    error without an id. logged: records of the id in `__transaction_state`, in the order of the log. log_failure: why a
    part of that log could not be read. failures: the parts that could not be observed; with any of them, absence is no
    evidence. exposed_to: the known causes to which the cluster is exposed; read only if a transaction hangs or stays in
    Prepare*. whole_cluster: whether the sweep was of all partitions. group_state: as the coordinator lists it.
    is_share: whether it is a share group. isolation_level: its `share.isolation.level`. asked: how many partitions the
    sweep read. max_timeout_ms: `transaction.max.timeout.ms`. writes: whether the logs of the transactions
    above take writes.
    """

    symptom: Symptom
    now_ms: int
    late_after_ms: int
    connection: str = "--bootstrap-server HOST:PORT"
    principal: str = UNKNOWN_PRINCIPAL
    sweep_id: str | None = None
    partitions: tuple[PartitionFacts, ...] = ()
    pending: tuple[PendingOffsets, ...] = ()
    coordinator: int | None = None
    group_state: str | None = None
    is_share: bool = False
    isolation_level: str | None = None
    transaction: Transaction | None = None
    absent: bool = False
    earlier_producer_ids: frozenset[int] = frozenset()
    prepared: tuple[Transaction, ...] = ()
    logged: tuple[LoggedTransaction, ...] = ()
    log_failure: Failure | None = None
    max_timeout_ms: int | None = None
    failures: tuple[Failure, ...] = ()
    exposed_to: tuple[ExposedTo, ...] = ()
    whole_cluster: bool = False
    asked: int = 0
    writes: WriteStates = UNREAD

    def blocker_of(self, one: Transaction | CoordinatorView, judged: Judged | None = None) -> WriteState | None:
        """The log that keeps the transaction of an id from its end: on the partition of `judged`, or without it on all
        its partitions. See `WriteStates.blocker`.
        """
        if judged is not None:
            return self.writes.blocker_of(judged)
        return self.writes.blocker(one.transactional_id, one.state, map(key_of, one.partitions))
