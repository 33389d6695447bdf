"""Evidence, and what is concluded from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from txnscan.kafka.answers import CoordinatorView
from txnscan.kafka.failure import Failure
from txnscan.reads.observation import Observation
from txnscan.txnlog.facts import NO_FACTS, LoggedTransaction, ProducerFacts


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
class Context:
    """What holds for every transaction of a sweep: what the snapshot could not see, the time, and the age threshold."""

    coverage_failure: Failure | None
    split_failure: Failure | None
    visibility_failures: tuple[Failure, ...]
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
    log_contradiction: Failure | None = None


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
class PeerPartitions:
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
    `batch_failure` explains. logged: what is left in `__transaction_state`, on the log's current lineage, of every id
    that has ever had the producer id, in the order of the log. log_failure: why some of it could not be read, or None.
    contradiction: how the log contradicts the coordinators or earlier reads, or None (`verification.py`, `lineage.py`).
    vetoes: records of reads that are not known to be of the current lineage. seen: all other facts, those of this sweep
    included. news: what this sweep has seen that was not stored.
    """

    observation: Observation
    owner_epoch: int | None
    first_epoch: int | None
    first_sequence: int | None
    batch_failure: Failure | None
    logged: tuple[LoggedTransaction, ...]
    log_failure: Failure | None
    contradiction: Failure | None
    vetoes: tuple[LoggedTransaction, ...] = ()
    seen: ProducerFacts = NO_FACTS
    news: ProducerFacts = NO_FACTS


@dataclass(frozen=True, slots=True)
class KnownOutcome:
    """The outcome of a hanging transaction as far as it is known, and why in a clause.

    log_failure: why the log could not be read, or None. siblings: where else it may show how the transaction ended,
    None where the log names nothing. evidence: the records of the log that it rests on, in words.
    """

    outcome: Outcome
    why: str
    log_failure: Failure | None = None
    siblings: PeerPartitions | None = None
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
        if o.second.high_watermark is None or o.second.last_stable_offset is None:
            return None
        return max(o.second.high_watermark - o.second.last_stable_offset, 0)

    @property
    def holds_lso(self) -> bool | None:
        """Whether this transaction holds the last stable offset; if not, another one starts before it and has to end
        first. None where the last stable offset is not known.
        """
        lso = self.observation.second.last_stable_offset
        return None if lso is None else self.observation.start_offset <= lso

    @property
    def candidate(self) -> bool:
        """A candidate in KIP-664's sense: hanging, and late."""
        return self.judgement.verdict is Verdict.HANGING and self.judgement.late
