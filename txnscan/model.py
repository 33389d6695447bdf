"""The nouns: what a sweep plans, reads, snapshots and judges.

Frozen dataclasses and enums of the standard library only, so that every step can be called, pickled to an executor
and tested without Spark, a socket or a clock. Names are Kafka's own. Times are epoch milliseconds, offsets are log
offsets. What is stored of all this, column by column, stands in `schema.py`.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

TRANSACTION_STATE_TOPIC = "__transaction_state"
# The ends of incidents that have no marker of `apply`.
ENDED, TOPIC_DELETED, TOPIC_RECREATED = "ended", "topic_deleted", "topic_recreated"
CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
# A partition's topic and number.
Key = tuple[str, int]


class TransactionKey(NamedTuple):
    """What makes an open transaction on a partition the same one in another sweep."""

    topic: str
    topic_id: str
    partition: int
    producer_id: int
    start_offset: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> TransactionKey:
        """The key of a table's row, whose columns have these names."""
        return cls(*(row[name] for name in cls._fields))

    def incident_id(self, cluster_id: str) -> str:
        """The id of its incident, if it hangs: the same in every sweep."""
        return hashlib.sha256("\0".join(map(str, (cluster_id, *self))).encode()).hexdigest()[:32]


_UNITS_S = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def duration(duration_ms: int) -> str:
    """A length of time for people, in its two largest units: "45 s", "5 min 45 s", "2 d 3 h". Smaller units are cut
    off; only a time shorter than a second is in milliseconds.
    """
    if abs(duration_ms) < 1_000:
        return f"{duration_ms} ms"
    rest = abs(duration_ms) // 1_000
    words: list[tuple[int, str]] = []
    for size, unit in _UNITS_S:
        count, rest = divmod(rest, size)
        if count or words:
            words.append((count, unit))
    said = " ".join(f"{count} {unit}" for count, unit in words[:2] if count)
    return said if duration_ms > 0 else f"-{said}"


def plural(count: int, what: str) -> str:
    """A count of things, such as "1 record" and "2,000 records"."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


# --- what failed -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Permission:
    """An operation on a resource; with `prefixed`, on all whose names begin with `name`, which the Cluster ignores."""

    operation: str
    resource_type: str
    name: str = "*"
    prefixed: bool = False

    def __str__(self) -> str:
        if self.resource_type == "Cluster":
            return f"{self.operation} on {self.resource_type}"
        return f"{self.operation} on {self.resource_type}{' prefix' if self.prefixed else ''} '{self.name}'"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something could not be observed. `acls.explained` puts it into words, with what to grant to a principal.

    error: what failed, in words, without what to grant; empty where the missing permission says it all. code: the name
    of the protocol's error, None where it is none. lacks_api: the API that the broker does not have, where that is why.
    needs: the permission that is missing, where that is why.
    """

    error: str
    code: str | None = None
    lacks_api: str | None = None
    needs: Permission | None = None

    def within(self, what: str) -> Failure:
        """The same failure, its words preceded by `what`: the thing that it is about."""
        return replace(self, error=f"{what}: {self.error}")


# Puts a failure into words, with what to grant to the principal that asked.
Say = Callable[[Failure], str]


@dataclass(frozen=True, slots=True)
class Unobserved:
    """Something that could not be observed, as data."""

    stage: str
    failure: Failure
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None

    def said(self, say: Say) -> ScanError:
        """The same in words."""
        lacks_api = self.failure.lacks_api
        return ScanError(self.stage, say(self.failure), self.broker, self.topic, self.partition, lacks_api)


@dataclass(frozen=True, slots=True)
class ScanError:
    """Something that could not be observed, in words, as it is stored and printed. lacks_api: see Failure."""

    stage: str
    error: str
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    lacks_api: str | None = None


# --- plan ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's id and the address that its listener advertises."""

    broker_id: int
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition as one broker's Metadata answer shows it. `leader` is -1 where there is none."""

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
    """A topic's partitions as one broker's Metadata answer shows them, in columns: one position is one partition.

    They are in the order of their numbers. A cluster has a million of them and a sweep looks at few, so they become
    objects on demand.
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
        """The partition of this number: none where it is not shown, several where it is shown more than once."""
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
    """One broker's Metadata answer: what it believes the cluster to be.

    `topics` are in the order of their names. `topic_errors` holds (topic, error name) for topics that were asked for by
    name and are missing or forbidden.
    """

    answered_by: int
    cluster_id: str
    brokers: tuple[Broker, ...]
    topics: tuple[Topic, ...]
    topic_errors: tuple[tuple[str, str], ...] = ()

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """All of them as objects."""
        return tuple(partition for topic in self.topics for partition in topic.partitions)


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Partitions to read, with proof, from one leader. `lane` numbers the queue that this batch waits in."""

    lane: int
    leader: int
    partitions: tuple[Partition, ...]

    @property
    def size(self) -> int:
        return len(self.partitions)


@dataclass(frozen=True, slots=True)
class WideBatch:
    """Partitions to describe in one request to one leader, numbers by topic. `lane` numbers the queue that this batch
    waits in.
    """

    lane: int
    leader: int
    indexes: Mapping[str, tuple[int, ...]]

    @property
    def size(self) -> int:
        return sum(map(len, self.indexes.values()))


# --- read ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenProducer:
    """A producer with an open transaction, as DescribeProducers shows it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class WideRow:
    """What the wide read sends back: a partition with open transactions, a partition with a failure, or a count.

    A count row has no topic; its `answered`, `producers` and `read_bytes`, the size of the answer, cover every
    partition of one request.
    """

    leader: int
    topic: str | None = None
    partition: int | None = None
    answered: int = 0
    producers: int = 0
    read_bytes: int = 0
    open_producers: tuple[OpenProducer, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class NarrowRow:
    """One partition read between two ListOffsets at a leader epoch (proof obligation L).

    `failure` is None exactly when the answers prove that they came from the leader at `leader_epoch`.
    """

    topic: str
    topic_id: str
    partition: int
    leader: int
    leader_epoch: int
    read_at_ms: int
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    open_producers: tuple[OpenProducer, ...] = ()
    failure: Failure | None = None

    @property
    def key(self) -> Key:
        return (self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class OffsetsRow:
    """A partition's high watermark and last stable offset, as its leader reports them: without proof."""

    topic: str
    partition: int
    high_watermark: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class LogBatch:
    """A partition of `__transaction_state` to read from its leader, for the ids that ever had one of these producer
    ids. `lane` numbers the queue that this batch waits in.

    scanned_to: an earlier read at the same leader epoch came so far. What was appended since is looked through for
    records of these producer ids and of `names`, the ids that had one of them; -1 where the whole log is to be read.
    """

    lane: int
    leader: int
    partitions: tuple[Partition, ...]
    producer_ids: tuple[int, ...]
    scanned_to: int = -1
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record of `__transaction_state`, not decoded. value: None for a tombstone. whole_from: from there up to this
    record no offset of the log is missing in what was read. leader_epoch: of its batch. Two logs that have a record at
    the same offset with the same leader epoch are the same up to there (KIP-101).
    """

    offset: int
    whole_from: int
    transactional_id: str
    value: bytes | None
    leader_epoch: int = -1

    def is_same(self, other: RawRecord | None) -> bool:
        """Whether the other one is this record, in whatever read it stands."""
        return other is not None and replace(other, whole_from=self.whole_from) == self


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """Where a leader epoch ends in a log: the offset behind its last batch."""

    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class LogRead:
    """A fact: what one read of a partition of `__transaction_state` showed of one transactional id.

    topic_id: of `__transaction_state`, which may have been made anew since. leader_epoch: of the leader that served the
    read. end_offset: the high watermark that it reached. records: all of the id from the first one of a wanted producer
    id on, and the one before. epoch_ends: of leader epochs that earlier reads show, by the batches that are left in the
    log. answered_ends: of the same epochs, by the leader's answer (OffsetForLeaderEpoch). sweep_id, swept_at_ms: the
    sweep that read it, and when that began; empty and -1 while it is under way.
    """

    topic_id: str
    partition: int
    leader_epoch: int
    end_offset: int
    transactional_id: str
    records: tuple[RawRecord, ...]
    epoch_ends: tuple[EpochEnd, ...] = ()
    answered_ends: tuple[EpochEnd, ...] = ()
    sweep_id: str = ""
    swept_at_ms: int = -1

    def __str__(self) -> str:
        return f"sweep {self.sweep_id} of {datetime.fromtimestamp(self.swept_at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True, slots=True)
class ScannedLog:
    """How far a partition of `__transaction_state` was read at a leader epoch: from its start up to this offset.

    transactional_ids: those that ever had the producer id, by all that the log had up to there.
    """

    partition: int
    leader_epoch: int
    end_offset: int
    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogScan:
    """A fact: how far a sweep read the transaction log for a producer id. topic_id: of `__transaction_state`."""

    topic_id: str
    logs: tuple[ScannedLog, ...]


@dataclass(frozen=True, slots=True)
class SeenMarker:
    """A fact: a COMMIT marker that stands on a partition."""

    topic: str
    partition: int
    offset: int
    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition}"
        return f"{where} has a COMMIT marker of producer id {self.producer_id} at offset {self.offset}"


@dataclass(frozen=True, slots=True)
class SeenCommit:
    """A fact: a coordinator described an id as CompleteCommit, when it had this producer id and epoch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"a sweep saw '{self.transactional_id}' in CompleteCommit at epoch {self.producer_epoch}"


@dataclass(frozen=True, slots=True)
class ProducerFacts:
    """What sweeps and applies have seen of a producer id: reads of ids that have had it, markers of it, completed
    commits of it, and how far the log was read for it.
    """

    reads: tuple[LogRead, ...] = ()
    markers: tuple[SeenMarker, ...] = ()
    commits: tuple[SeenCommit, ...] = ()
    scans: tuple[LogScan, ...] = ()

    def __add__(self, other: ProducerFacts) -> ProducerFacts:
        """All that both show, each fact once."""
        return ProducerFacts(
            tuple(dict.fromkeys((*self.reads, *other.reads))),
            tuple(dict.fromkeys((*self.markers, *other.markers))),
            tuple(dict.fromkeys((*self.commits, *other.commits))),
            tuple(dict.fromkeys((*self.scans, *other.scans))),
        )

    def scanned_to(self, log: Partition) -> int:
        """How far this partition of `__transaction_state` was read at the leader epoch that it has now, -1 where it was
        not, or not all that was read then is here. A leader keeps what it has while it leads, but for what it compacts.
        """
        ours = (log.topic_id, log.partition, log.leader_epoch)
        names = {r.transactional_id for r in self.reads if (r.topic_id, r.partition, r.leader_epoch) == ours}
        scanned = (
            (one.end_offset, names.issuperset(one.transactional_ids))
            for scan in self.scans
            for one in scan.logs
            if (scan.topic_id, one.partition, one.leader_epoch) == ours
        )
        return max((end_offset for end_offset, is_whole in scanned if is_whole), default=-1)


# By producer id.
Facts = Mapping[int, ProducerFacts]
NO_FACTS = ProducerFacts()


@dataclass(frozen=True, slots=True)
class LogRow:
    """What a partition of `__transaction_state` holds of some ids, up to the offset that was reached, or the failure.

    unserved: the failure is that the broker which all brokers name as its leader did not serve it. whole_from: from
    there to the end of what was read no offset is missing. expected: the offset that comes next. read_bytes: bytes of
    the log, as brokers sent them. epoch_ends: of all leader epochs that batches have.
    """

    partition: int
    failure: Failure | None
    reached: int = -1
    records: tuple[RawRecord, ...] = ()
    whole_from: int = -1
    expected: int = -1
    unserved: bool = False
    read_bytes: int = 0
    epoch_ends: tuple[EpochEnd, ...] = ()


class State(StrEnum):
    """`TransactionState`, in the order of the ids that the log has for them."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


@dataclass(frozen=True, slots=True)
class LoggedTransaction:
    """A record of `__transaction_state`: what was written about an id at an offset.

    whole_from: from there up to this record no offset of the log is missing in what was read. client_version: the
    transactions version of the client that wrote to the transaction or ended it, 2 where an end raised the epoch; 0
    where it is not given. timeout_ms: of the id's transactions. unknown_fields: fields that a later Kafka wrote and
    that this version does not know. stored_by: the sweep that stored the record, where the log does not have it any
    more; else None. An id that expired has a tombstone: state Dead, with nothing else.
    """

    offset: int
    whole_from: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: State
    partitions: frozenset[Key]
    client_version: int
    start_time_ms: int
    updated_ms: int
    timeout_ms: int = -1
    unknown_fields: tuple[str, ...] = ()
    stored_by: str | None = None

    def __str__(self) -> str:
        partitions = ", ".join(f"{topic}-{index}" for topic, index in sorted(self.partitions)) or "no partitions"
        unknown = f", with {' and '.join(self.unknown_fields)}, not known here" if self.unknown_fields else ""
        stored = f" (stored by {self.stored_by}; the log does not have it any more)" if self.stored_by else ""
        return (
            f"offset {self.offset}: '{self.transactional_id}' {self.state}, producer id {self.producer_id}, epoch "
            f"{self.producer_epoch}, transactions v{self.client_version}, {partitions}{unknown}{stored}"
        )


# --- snapshot --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CoordinatorView:
    """A transactional id as one broker describes it, with why that broker may not be its proven coordinator.

    `partitions` are "topic-partition" names. `coverage_error` is None when obligation V holds for the id's
    `__transaction_state` partition; `split_error` says how brokers disagree about that partition.
    """

    transactional_id: str
    broker_id: int
    producer_id: int
    producer_epoch: int = -1
    state: str = ""
    timeout_ms: int = -1
    start_time_ms: int = -1
    partitions: tuple[str, ...] = ()
    describe_error: str | None = None
    coverage_error: str | None = None
    split_error: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """An open transaction as the wide read saw it, and the view of the coordinator that holds it (`claims.py`)."""

    row: WideRow
    producer: OpenProducer
    holder: CoordinatorView

    @property
    def key(self) -> Key:
        """Its partition."""
        return (self.row.topic or "", self.row.partition if self.row.partition is not None else -1)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the coordinators reported in a sweep, and what of it could not be seen.

    views: of the ids whose producer id is open somewhere and not held (`claims.py`). coverage_errors: one per
    `__transaction_state` partition that obligation V does not hold for. split_errors: what brokers disagree on.
    visibility_error: why obligation A does not hold, or None.
    """

    views: tuple[CoordinatorView, ...]
    coordinators_planned: int
    coordinators_proven: int
    coverage_errors: tuple[ScanError, ...] = ()
    split_errors: tuple[str, ...] = ()
    visibility_error: str | None = None
    errors: tuple[ScanError, ...] = ()

    @property
    def complete(self) -> bool:
        return self.coordinators_proven == self.coordinators_planned and self.visibility_error is None

    @property
    def coverage_error(self) -> str | None:
        """Why the absence of a producer id from this snapshot would prove nothing, or None when it does."""
        if not self.coverage_errors:
            return None
        first = self.coverage_errors[0].error
        more = len(self.coverage_errors) - 1
        return first + (f" (and {more} more partitions of {TRANSACTION_STATE_TOPIC})" if more else "")


# --- judge -----------------------------------------------------------------------------------------------------------


class Verdict(StrEnum):
    """What a sweep concludes about one open transaction."""

    GONE = "gone"
    PENDING_MARKER = "pending_marker"
    ONGOING = "ongoing"
    LATE_ONGOING = "late_ongoing"
    INDETERMINATE = "indeterminate"
    HANGING = "hanging"


class Reason(StrEnum):
    """Why, within a verdict."""

    ENDED = "ended"
    DECIDED = "decided"
    STUCK = "stuck"
    OWNED = "owned"
    TWO_PHASE_COMMIT = "two_phase_commit"
    PARTITION = "partition"
    COORDINATOR_BEHIND = "coordinator_behind"
    VISIBILITY = "visibility"
    SPLIT = "split"
    COORDINATOR = "coordinator"
    COVERAGE = "coverage"
    ORPHAN = "orphan"
    MAYBE_COMMITTED = "maybe_committed"
    STALE_EPOCH = "stale_epoch"
    LIVE_EPOCH = "live_epoch"


@dataclass(frozen=True, slots=True)
class Observation:
    """An open transaction on a partition: what the two proven reads of its leader showed.

    first_error, second_error: why obligation L does not hold for that read, or None when it does. incident_offset: the
    start offset that its incident has, where its first records are gone since (`identity.py`); else None.
    The second_* fields are None when the transaction was no longer open at the second read, or could not be read.
    """

    topic: str
    topic_id: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    last_sequence: int
    leader: int
    leader_epoch: int
    first_read_at_ms: int
    first_high_watermark: int | None
    first_error: str | None
    second_read_at_ms: int
    second_high_watermark: int | None
    second_last_stable_offset: int | None
    second_start_offset: int | None
    second_producer_epoch: int | None
    second_last_sequence: int | None
    second_error: str | None
    first_seen_ms: int
    incident_offset: int | None = None

    @property
    def topic_partition(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def transaction_key(self) -> TransactionKey:
        """What identifies it in other sweeps."""
        start_offset = self.start_offset if self.incident_offset is None else self.incident_offset
        return TransactionKey(self.topic, self.topic_id, self.partition, self.producer_id, start_offset)


@dataclass(frozen=True, slots=True)
class Context:
    """What holds for every transaction of a sweep: what the snapshot could not see, the time, and the age threshold."""

    coverage_error: str | None
    split_error: str | None
    visibility_error: str | None
    now_ms: int
    late_after_ms: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a verdict may rest on: the observation, the coordinators' views of its producer id, what the snapshot
    could not see, and how the transaction log contradicts the coordinators: None where it does not, or was not read.
    The same evidence always gives the same verdict.
    """

    observation: Observation
    coordinators: tuple[CoordinatorView, ...]
    context: Context
    log_contradiction: str | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its reason and one sentence in plain words.

    late: the transaction is older than the threshold (obligation T). A candidate in KIP-664's sense is hanging and
    late. outcome: of what hangs, what was decided about this data (`Outcome`), once the log was read for it; else None.
    outcome_reason: how that is known, or why not, in a clause.
    """

    verdict: Verdict
    reason: Reason
    late: bool
    age_ms: int
    explanation: str
    outcome: str | None = None
    outcome_reason: str | None = None


class Outcome(StrEnum):
    """What was decided about hanging data, as far as is known. MAYBE_COMMITTED: a commit was seen that may be of this
    data. MIXED: some of it was committed, and some was not.
    """

    COMMITTED = "committed"
    MAYBE_COMMITTED = "maybe_committed"
    MIXED = "mixed"
    NOT_COMMITTED = "not_committed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Siblings:
    """The other partitions, as "topic-partition", of transactions that may be the one that hangs.

    marker_epochs: the producer epochs that a marker of such a transaction can have. since_ms: when the first of them
    began, by its coordinator's clock.
    """

    partitions: tuple[str, ...]
    marker_epochs: tuple[int, ...]
    since_ms: int


@dataclass(frozen=True, slots=True)
class OutcomeEvidence:
    """The facts about one hanging transaction.

    owner_epoch: the epoch of the id that has the producer id now, None where none has. first_epoch, first_sequence: the
    producer epoch and base sequence of the transaction's first batch, None where it could not be read, which
    `batch_error` explains. logged: what is left in `__transaction_state`, on the log's current lineage, of every id
    that has ever had the producer id, in the order of the log. log_error: why some of it could not be read, or None.
    contradiction: how the log contradicts the coordinators or earlier reads, or None (`verification.py`, `lineage.py`).
    vetoes: records of reads that are not known to be of the current lineage. seen: all other facts, those of this sweep
    included. news: what this sweep has seen that was not stored.
    """

    observation: Observation
    owner_epoch: int | None
    first_epoch: int | None
    first_sequence: int | None
    batch_error: str | None
    logged: tuple[LoggedTransaction, ...]
    log_error: str | None
    contradiction: str | None
    vetoes: tuple[LoggedTransaction, ...] = ()
    seen: ProducerFacts = NO_FACTS
    news: ProducerFacts = NO_FACTS


@dataclass(frozen=True, slots=True)
class KnownOutcome:
    """The outcome of a hanging transaction as far as it is known, and why in a clause.

    log_error: why the log could not be read, or None. siblings: where else it may show how the transaction ended, None
    where the log names nothing. evidence: the records of the log that it rests on, in words.
    """

    outcome: Outcome
    why: str
    log_error: str | None = None
    siblings: Siblings | None = None
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Judged:
    """An open transaction with the evidence that its judgement rests on; where it hangs, also with its outcome."""

    evidence: Evidence
    judgement: Judgement
    known: KnownOutcome | None = None

    @property
    def observation(self) -> Observation:
        return self.evidence.observation

    @property
    def healthy(self) -> bool:
        """Whether it has ended, or is not overdue: nothing that anybody need look at."""
        verdict, reason = self.judgement.verdict, self.judgement.reason
        return verdict in (Verdict.ONGOING, Verdict.GONE) or (verdict, reason) == (
            Verdict.PENDING_MARKER,
            Reason.DECIDED,
        )

    @property
    def blocked_records(self) -> int | None:
        """Offsets from the last stable offset to the high watermark, None where they are not known."""
        o = self.observation
        if o.second_high_watermark is None or o.second_last_stable_offset is None:
            return None
        return max(o.second_high_watermark - o.second_last_stable_offset, 0)

    @property
    def holds_lso(self) -> bool | None:
        """Whether this transaction holds the last stable offset; if not, another one starts before it and has to end
        first. None where the last stable offset is not known.
        """
        lso = self.observation.second_last_stable_offset
        return None if lso is None else self.observation.start_offset <= lso

    @property
    def candidate(self) -> bool:
        """A candidate in KIP-664's sense: hanging, and late."""
        return self.judgement.verdict is Verdict.HANGING and self.judgement.late


# --- impact -----------------------------------------------------------------------------------------------------------


class Standing(StrEnum):
    """How a hanging transaction blocks a group, or may. UNSTABLE: the transaction holds offsets of the group, which
    brokers do not return until it ends (UNSTABLE_OFFSET_COMMIT). MAYBE_UNSTABLE: brokers do not return offsets of the
    group, and whether they are in this transaction could not be read. AT_LSO: a read_committed consumer gets
    no record between the group's committed offset and the last stable offset; its isolation level is not visible.
    """

    UNSTABLE = "unstable"
    MAYBE_UNSTABLE = "maybe_unstable"
    AT_LSO = "at_lso"


@dataclass(frozen=True, slots=True)
class BlockedGroup:
    """A consumer group that a hanging transaction blocks, or may block.

    state: of the group, as its coordinator lists it, None where it does not. committed_offset, lag: on the partition,
    lag up to the high watermark; None where it is unstable. partitions: the "topic-partition" names whose offsets are
    not returned, the first ones of many.
    """

    group: str
    standing: Standing
    state: str | None = None
    committed_offset: int | None = None
    lag: int | None = None
    partitions: tuple[str, ...] = ()


class Cause(StrEnum):
    """How a transaction came to hang, as far as evidence tells (`impact/cause.py`)."""

    MARKER_MISSING = "marker_missing"
    LATE_WRITE = "late_write"
    NEVER_ADDED = "never_added"
    FENCED = "fenced"
    UNKNOWN = "unknown"


class Framework(StrEnum):
    """What made a transactional id, by its shape (`impact/owner.py`)."""

    STREAMS = "Kafka Streams"
    CONNECT = "Kafka Connect"
    FLINK = "Flink"
    SPRING = "Spring for Apache Kafka"


@dataclass(frozen=True, slots=True)
class Owner:
    """Who wrote a transaction, as far as is known. transactional_id: the one that has the producer id, or the last one
    of the log that had it. framework: what its shape suggests, or the name of the user's own pattern. advice: what to
    ask or do first, in sentences.
    """

    transactional_id: str | None
    framework: str | None
    advice: str


@dataclass(frozen=True, slots=True)
class Impact:
    """What a hanging transaction blocks, how it came about and whose it is. None stands for what is not known.

    lso_since_ms: when the first sweep of the same history saw the last stable offset where it is. groups: the first of
    the blocked groups, up to a limit. groups_blocked: their number, None if some may be missing.
    groups_asked: the number of groups asked about. groups_error: why some may be missing.
    retention_ms: of a topic that deletes by age and is not tiered, -1 for no end: deletion does not wait for the last
    stable offset (`UnifiedLog.deletableSegments`), but tiering does (`RemoteLogManager`).
    """

    cause: Cause
    cause_reason: str
    owner: Owner
    lso_since_ms: int | None = None
    groups: tuple[BlockedGroup, ...] = ()
    groups_blocked: int | None = None
    groups_asked: int | None = None
    groups_error: str | None = None
    cleanup_policy: str | None = None
    retention_ms: int | None = None

    @property
    def compaction_blocked(self) -> bool | None:
        """Whether the topic is compacted: the cleaner does not pass the last stable offset (`LogCleanerManager`)."""
        return None if self.cleanup_policy is None else "compact" in self.cleanup_policy.split(",")


@dataclass(frozen=True, slots=True)
class HealthyCount:
    """How many healthy transactions of a verdict a sweep saw on the partitions of a topic."""

    topic: str
    verdict: str
    transactions: int
