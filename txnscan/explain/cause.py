"""The conclusion: a cause with its code, sentence, evidence, next commands and numbers. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from txnscan.coordinators.transactions import Transaction
from txnscan.explain.facts import PartitionFacts, PendingOffsets
from txnscan.kafka.failure import Failure
from txnscan.verdict.evidence import Judged
from txnscan.waiting.writability import WriteState


class CauseCode(StrEnum):
    """The causes. Their names are stable, like the names of verdicts."""

    meaning: str

    def __new__(cls, name: str, meaning: str) -> CauseCode:
        """A code with its meaning, as docs/explain.md shows it."""
        code = str.__new__(cls, name)
        code._value_ = name
        code.meaning = meaning
        return code

    HANGING = "hanging", "A transaction hangs, with the proof of a sweep: no coordinator will end it"
    OWNED = "owned", "A transaction is open, and its coordinator will end it"
    MARKER_OWED = "marker_owed", "A transaction is decided, and its marker is on the way"
    STUCK_PREPARE = "stuck_prepare", "A transaction is decided, and its marker is overdue: its id stays in Prepare*"
    MARKER_LAG = "marker_lag", "The lag is a transaction marker, which is no record"
    AT_MARKER = "at_marker", "The reader stands on a transaction marker, with records behind it"
    UNREADABLE = "unreadable", "The leader cannot read the reader's next records from its disk"
    ABORTED_DATA = "aborted_data", "The lag is records of aborted transactions, which read_committed readers skip"
    PENDING_OFFSETS = "pending_offsets", "The group's offsets are in a transaction that has not ended"
    NOT_READ_COMMITTED = (
        "not_read_committed",
        "The reader is past the last stable offset: no transaction blocks it, unless a tool set its offset",
    )
    FENCED = "fenced", "The producer is fenced: its id went on to a later epoch"
    CLIENT_ERROR = "client_error", "The error shows its cause itself, and no broker is asked"
    NO_WRITES = (
        "no_writes",
        "A partition takes no writes: it has no leader or too few in-sync replicas, so no transaction ends there",
    )
    MARKER_AT_RISK = (
        "marker_at_risk",
        "A partition of an open transaction has no leader: it will hang when the transaction ends, unless it gets one",
    )
    NO_TRANSACTION_LOG = (
        "no_transaction_log",
        "The transaction log does not exist, and too few brokers run to create it: no transaction can begin",
    )
    UNRECOGNISED = "unrecognised", "No error that txnscan knows is in the text, and no id"
    CLEANER_STUCK = (
        "cleaner_stuck",
        "Compaction stops at a transaction that its coordinator will end, or does not work",
    )
    TIERING_STUCK = (
        "tiering_stuck",
        "Segments of a tiered topic stay on local disks, behind a transaction that its coordinator will end",
    )
    NO_TRANSACTION = "no_transaction", "No open transaction is the cause"
    NOT_OBSERVED = "not_observed", "The cause could not be observed"


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers and names of a cause. Times are epoch milliseconds.

    checkpoint: the path of a streaming query's checkpoint, without secrets. isolation_level: of a share group.
    ends_by_ms: start and timeout of the transaction, by its coordinator's clock. markers, aborted: control records and
    records of aborted transactions that the lag is made of, or that are before `next_record_offset`. fenced_by: what
    raised the epoch of the id: "timeout" of its transaction, another "instance", or "instances" that fight.
    expired_at_ms: of the id's tombstone. asked: the number of partitions that were read. no_writes: the partition that
    takes no writes, as "topic-partition", and the next three its replicas; without a transaction log,
    replication_factor is the one to be. restore_brokers: the brokers whose replicas it needs. brokers: the number of
    running ones, without a transaction log. markers_at_risk: the partitions without a leader whose marker will be lost.
    partitions: all partitions on which a hanging transaction causes the symptom.
    """

    group: str | None = None
    checkpoint: str | None = None
    group_state: str | None = None
    isolation_level: str | None = None
    topic: str | None = None
    partition: int | None = None
    transactional_id: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    owner_epoch: int | None = None
    coordinator: int | None = None
    state: str | None = None
    verdict: str | None = None
    reason: str | None = None
    start_offset: int | None = None
    last_stable_offset: int | None = None
    high_watermark: int | None = None
    blocked_records: int | None = None
    committed_offset: int | None = None
    lag: int | None = None
    markers: int | None = None
    aborted: int | None = None
    open_transactions: int | None = None
    next_record_offset: int | None = None
    compacted: bool | None = None
    tiered: bool | None = None
    partition_bytes: int | None = None
    usable_bytes: int | None = None
    started_at_ms: int | None = None
    timeout_ms: int | None = None
    ends_by_ms: int | None = None
    age_ms: int | None = None
    overdue_ms: int | None = None
    max_timeout_ms: int | None = None
    fenced_by: str | None = None
    fenced_at_ms: int | None = None
    expired_at_ms: int | None = None
    failure: str | None = None
    asked: int = 0
    no_writes: str | None = None
    in_sync_replicas: int | None = None
    min_in_sync_replicas: int | None = None
    replication_factor: int | None = None
    restore_brokers: tuple[int, ...] = ()
    brokers: int | None = None
    markers_at_risk: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """The answer of a rule. commands: the next ones."""

    sentence: str
    evidence: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    numbers: Numbers = field(default_factory=Numbers)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer: one sentence first, then the evidence, then the next commands. known_causes: ids of the rows in
    `waiting/known_causes.py` that can occur on this cluster; only if a transaction hangs, or stays in Prepare*. error:
    the name of the error in the text from a log, if it has one.
    """

    code: CauseCode
    sentence: str
    evidence: tuple[str, ...]
    next: tuple[str, ...]
    numbers: Numbers
    known_causes: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """The match of a rule: a partition, a transaction on it, an id, a failure, or a partition that is not written."""

    partition: PartitionFacts | None = None
    judged: Judged | None = None
    transaction: Transaction | None = None
    pending: PendingOffsets | None = None
    failure: Failure | None = None
    stopped: WriteState | None = None
