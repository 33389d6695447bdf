"""The evidence about an open transaction, and the conclusions from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from txnscan.kafka.answers import CoordinatorView
from txnscan.kafka.failure import Failure
from txnscan.reads.observation import Observation
from txnscan.txnlog.facts import NO_FACTS, LoggedTransaction, ProducerFacts


class Verdict(StrEnum):
    """The conclusion of a sweep about one open transaction."""

    GONE = "gone"
    PENDING_MARKER = "pending_marker"
    ONGOING = "ongoing"
    LATE_ONGOING = "late_ongoing"
    INDETERMINATE = "indeterminate"
    HANGING = "hanging"


class Reason(StrEnum):
    """The reason for a verdict."""

    ENDED = "ended"
    DECIDED = "decided"
    STUCK = "stuck"
    OWNED = "owned"
    TWO_PHASE_COMMIT = "two_phase_commit"
    JOINED_COMMIT = "joined_commit"
    PARTITION = "partition"
    COORDINATOR_BEHIND = "coordinator_behind"
    VISIBILITY = "visibility"
    SPLIT = "split"
    COORDINATOR = "coordinator"
    COVERAGE = "coverage"
    ORPHAN = "orphan"
    MISSED_COMMIT = "missed_commit"
    STALE_EPOCH = "stale_epoch"
    LIVE_EPOCH = "live_epoch"


@dataclass(frozen=True, slots=True)
class Context:
    """Facts that apply to all transactions of a sweep: gaps of the coordinator listing, time, and the age threshold."""

    coverage_failure: Failure | None
    split_failure: Failure | None
    visibility_failures: tuple[Failure, ...]
    now_ms: int
    late_after_ms: int


@dataclass(frozen=True)
class Evidence:
    """All that a verdict may depend on: the observation, the coordinators' views of its producer id, and the gaps of
    the coordinator listing. The same evidence always gives the same verdict.

    log_contradiction: how the transaction log contradicts the coordinators; None if it does not, or was not read.
    joined_commit: how an earlier transaction committed a part of the open data, as a clause
    (`verdict/outcome.joined_commit`); None if that is not proven.
    """

    observation: Observation
    coordinators: tuple[CoordinatorView, ...]
    context: Context
    log_contradiction: Failure | None = None
    joined_commit: str | None = None

    @cached_property
    def views_listing_partition(self) -> tuple[CoordinatorView, ...]:
        """The described views that list this transaction's partition."""
        described = [view for view in self.coordinators if view.describe_failure is None]
        if not described:
            return ()
        partition = self.observation.topic_partition
        return tuple([view for view in described if partition in view.partitions])


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its reason and an explanation of one sentence.

    late: the transaction is older than the threshold. A candidate in KIP-664's sense is hanging and late.
    """

    verdict: Verdict
    reason: Reason
    late: bool
    age_ms: int
    explanation: str


class Outcome(StrEnum):
    """The decision about hanging data, as far as it is known. MAYBE_COMMITTED: there is a commit that may include this
    data. MIXED: some of the data was committed, and some was not.
    """

    COMMITTED = "committed"
    MAYBE_COMMITTED = "maybe_committed"
    MIXED = "mixed"
    NOT_COMMITTED = "not_committed"
    UNKNOWN = "unknown"


class Unproven(StrEnum):
    """Why the absence of a commit is not proven, if the log shows no commit of the data. ELECTION: the log may have
    lost it at an election (`txnlog/elections.py`).
    """

    ELECTION = "election"


@dataclass(frozen=True, slots=True)
class PeerPartitions:
    """The other partitions, as "topic-partition", of all transactions that may be the hanging transaction.

    marker_epochs: the producer epochs that a marker of such a transaction can have. since_ms: when the first of these
    transactions began, by its coordinator's clock.
    """

    partitions: tuple[str, ...]
    marker_epochs: tuple[int, ...]
    since_ms: int


@dataclass(frozen=True, slots=True)
class OutcomeEvidence:
    """The facts about one hanging transaction.

    owner_epoch: the epoch of the transactional id that has the producer id now, if there is such an id. first_epoch,
    first_sequence: the producer epoch and base sequence of the transaction's first batch; None if it could not be read,
    for the reason `batch_failure`. logged: the records that `__transaction_state` still has, on the log's current
    lineage, of every id that has ever had the producer id, in the order of the log. log_failure: why some of the log
    could not be read. contradiction: how the log contradicts the coordinators or earlier reads (`verification.py`,
    `lineage.py`). vetoes: records of reads that are not known to be on the current lineage. seen: all other facts,
    including those from this sweep. news: facts from this sweep that are not yet stored.
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
    """The known outcome of a hanging transaction. why: the reason, as a clause.

    unproven: its code, if the outcome is unknown and only the absence of a commit is not proven. log_failure: why the
    log could not be read. peers: other partitions whose markers may show how the transaction ended, if the log lists
    any. evidence: the log records that support the outcome, as text.
    """

    outcome: Outcome
    why: str
    log_failure: Failure | None = None
    peers: PeerPartitions | None = None
    evidence: tuple[str, ...] = ()
    unproven: Unproven | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """An open transaction with its judgement and evidence. known_outcome: the decision about the data of a hanging
    transaction, or about the earlier data in a `joined_commit`; None until the log was read for it.
    """

    evidence: Evidence
    judgement: Judgement
    known_outcome: KnownOutcome | None = None

    @property
    def observation(self) -> Observation:
        return self.evidence.observation

    @property
    def outcome(self) -> str | None:
        """The known outcome, by its name."""
        return None if self.known_outcome is None else self.known_outcome.outcome.value

    @property
    def outcome_reason(self) -> str | None:
        """The reason for the outcome, as a clause."""
        return None if self.known_outcome is None else self.known_outcome.why

    @property
    def healthy(self) -> bool:
        """Whether the transaction has ended or is not overdue, and so needs no attention."""
        verdict, reason = self.judgement.verdict, self.judgement.reason
        live = verdict in (Verdict.ONGOING, Verdict.GONE) and not self.endangers_commit
        return live or (verdict, reason) == (Verdict.PENDING_MARKER, Reason.DECIDED)

    @property
    def endangers_commit(self) -> bool:
        """Whether an abort of this live transaction would delete committed records of an earlier transaction."""
        return self.judgement.reason is Reason.JOINED_COMMIT

    @property
    def is_incident(self) -> bool:
        """Whether the transaction has an incident: it hangs, or it endangers a commit."""
        return self.judgement.verdict is Verdict.HANGING or self.endangers_commit

    @property
    def blocked_records(self) -> int | None:
        """The number of offsets from the last stable offset to the high watermark, if both are known."""
        o = self.observation
        if o.second.high_watermark is None or o.second.last_stable_offset is None:
            return None
        return max(o.second.high_watermark - o.second.last_stable_offset, 0)

    @property
    def holds_lso(self) -> bool | None:
        """Whether the last stable offset waits for this transaction. If not, an earlier transaction must end first.
        None if the last stable offset is not known.
        """
        lso = self.observation.second.last_stable_offset
        return None if lso is None else self.observation.start_offset <= lso

    @property
    def candidate(self) -> bool:
        """Whether this is a candidate in KIP-664's sense: hanging and late."""
        return self.judgement.verdict is Verdict.HANGING and self.judgement.late
