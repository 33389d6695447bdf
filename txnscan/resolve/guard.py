"""The guards: which hanging transactions may be resolved, and with which marker. Pure.

A marker at the wrong time splits a transaction of a live application. So a marker is refused unless the stored sweeps
allow it. The guards demand that
- a sweep has proven the transaction hanging, and it is late by this scanner's own clock, as clients choose record
  times;
- at least two sweeps saw it, with a threshold that no live transaction outlives;
- its owner has moved past the transaction's epoch. Otherwise the producer could write to this partition between the
  proof and the marker, and the marker would end that write. Fence the owner first (InitProducerId), then sweep again;
- the answers of the coordinators were checked against the transaction log;
- for an ABORT: no commit that may be of this data was ever seen;
- the data was not committed in part: then no marker is right;
- no apply has ended it since its sweep read it;
- no producer id gets both a COMMIT and an ABORT at the same epoch.

`guarded` decides for a plan. `offered` decides with the guards that need no second sweep, and so says what a plan will
decide at the earliest. Every text that offers or refuses a marker prints its answer (`offer.py` has the words).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

from txnscan.kafka.answers import TWO_PHASE_COMMIT_TIMEOUT_MS
from txnscan.kafka.failure import Failure
from txnscan.kafka.topology import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC
from txnscan.kafka.units import duration, plural
from txnscan.reads.observation import TransactionRef
from txnscan.verdict.evidence import Outcome, Reason, Verdict

# The data of groups in these topics, in words. It decides which records a group reads again.
_OF_GROUPS = {
    CONSUMER_OFFSETS_TOPIC: "offsets of consumer groups",
    SHARE_GROUP_STATE_TOPIC: "acknowledgements of share groups",
}
SWEEPS_MIN = 2
ACTIONS_MAX = 20
COMPLETE_COMMITS = "--complete-commits"
ACCEPT_UNKNOWN = "--accept-unknown-outcome"
# The guard that compares several transactions.
CONTRADICTORY = "contradictory"


@dataclass(frozen=True, slots=True)
class Swept(TransactionRef):
    """A transaction as one sweep shows it.

    outcome, outcome_reason: by all facts that sweeps and applies have stored. log_failure: why this sweep could not
    read the transaction log, or None. owner_epoch, transaction_timeout_ms: of the id that has this producer id now;
    None for an orphan.
    """

    verdict: str
    reason: str
    outcome: str | None
    outcome_reason: str | None
    log_failure: Failure | None
    transactional_id: str | None
    owner_epoch: int | None
    transaction_timeout_ms: int | None

    @property
    def fence_refusal(self) -> str | None:
        """Why no text may offer a fence of its owner, as a clause."""
        return fence_refusal(two_phase_commit=self.transaction_timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS)


@dataclass(frozen=True, slots=True)
class StoredTransaction(Swept):
    """A hanging transaction as the tables have it: from the rows of its sweep and of its incident.

    first_seen_ms, swept_at_ms: by the scanner's clock. sweeps: how many sweeps saw it hanging. late_after_ms,
    max_timeout_ms: the sweep's threshold, and the longest `transaction.max.timeout.ms` of the brokers. resolved_ms:
    when an apply last ended it, by the journal and the clock of the apply; None without such an apply.
    """

    incident_id: str
    blocked_records: int | None
    explanation: str
    first_seen_ms: int
    swept_at_ms: int
    sweeps: int
    late_after_ms: int
    max_timeout_ms: int
    resolved_ms: int | None = None

    @property
    def watched_ms(self) -> int:
        """For how long this scanner's own sweeps have seen it open."""
        return self.swept_at_ms - self.first_seen_ms


@dataclass(frozen=True, slots=True)
class Limits:
    """The user's limits. topics: the names of the topics that the user allows; None allows all topics.
    consumer_offsets: whether the data of groups may be resolved, in `__consumer_offsets` and in `__share_group_state`.
    """

    topics: frozenset[str] | None = None
    consumer_offsets: bool = False
    actions_max: int = ACTIONS_MAX
    sweeps_min: int = SWEEPS_MIN


# What a guard needs to know about a transaction.
About = TypeVar("About", bound=Swept, contravariant=True)


@dataclass(frozen=True, slots=True)
class Guard(Generic[About]):
    """If `refuses` is true, `why` gives the reason in one sentence, with a remedy if there is one. by_outcome: whether
    the reason of the outcome completes that sentence.
    """

    name: str
    refuses: Callable[[About, Limits], bool]
    why: Callable[[About, Limits], str]
    by_outcome: bool = False


@dataclass(frozen=True, slots=True)
class Allowed:
    """A marker that passes all guards. needs: the option of apply that this marker requires, if any."""

    commit: bool
    needs: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """The guard that refuses the marker. rule: why, as a clause. detail: the reason of the outcome, if it completes the
    clause.
    """

    guard: str
    rule: str
    detail: str | None = None

    @property
    def why(self) -> str:
        """The whole clause."""
        return self.rule if self.detail is None else f"{self.rule}: {self.detail}"


NO_LIMITS = Limits()


def guarded(stored: StoredTransaction, limits: Limits) -> Allowed | Refused:
    """The decision about one hanging transaction, independent of the other transactions."""
    return _decided(stored, limits, GUARDS)


def offered(swept: Swept, limits: Limits = NO_LIMITS) -> Allowed | Refused:
    """The same by one sweep alone: what `guarded` decides once enough sweeps have observed the transaction for long
    enough, if nothing else changes.
    """
    return _decided(swept, limits, LASTING)


def fence_refusal(*, two_phase_commit: bool, endangers_commit: bool = False) -> str | None:
    """Why no text may offer a fence of an id, and `force-terminate` needs --force with a reason, as a clause.

    endangers_commit: whether the abort would delete records of an earlier commit.
    """
    if endangers_commit:
        return (
            "its abort would delete records that an earlier transaction committed; let its application commit, or give "
            "--force REASON if these records may be lost"
        )
    if two_phase_commit:
        return (
            "it takes part in two-phase commit (it has no timeout): another system may commit its transaction, and a "
            "fence would abort it; give --force REASON if you know that no other system will commit it"
        )
    return None


def _decided(about: About, limits: Limits, guards: Iterable[Guard[About]]) -> Allowed | Refused:
    for guard in guards:
        if guard.refuses(about, limits):
            return Refused(guard.name, guard.why(about, limits), about.outcome_reason if guard.by_outcome else None)
    if about.outcome == Outcome.COMMITTED:
        return Allowed(commit=True, needs=COMPLETE_COMMITS)
    return Allowed(commit=False, needs=None if about.outcome == Outcome.NOT_COMMITTED else ACCEPT_UNKNOWN)


def guarded_together(stored: Sequence[StoredTransaction], limits: Limits) -> list[Allowed | Refused]:
    """The decisions about many transactions, in order: without contradicting markers, and at most `limits.actions_max`
    markers.
    """
    decided: list[Allowed | Refused] = []
    allowed = 0
    for answer in _without_contradictions([(one, guarded(one, limits)) for one in stored]):
        if isinstance(answer, Allowed):
            allowed += 1
            if allowed > limits.actions_max:
                answer = Refused(
                    "too_many",
                    f"the plan already has {plural(limits.actions_max, 'marker')}; raise --limit, or plan again after "
                    "apply",
                )
        decided.append(answer)
    return decided


def _without_contradictions(
    decided: Sequence[tuple[StoredTransaction, Allowed | Refused]],
) -> Iterator[Allowed | Refused]:
    """The answers. If the same producer id and epoch would get both markers, those answers become refusals."""
    planned: dict[tuple[int, int, bool], StoredTransaction] = {}
    for one, answer in decided:
        if isinstance(answer, Allowed):
            planned.setdefault((one.producer_id, one.producer_epoch, answer.commit), one)
    for one, answer in decided:
        other = None
        if isinstance(answer, Allowed):
            other = planned.get((one.producer_id, one.producer_epoch, not answer.commit))
        yield answer if other is None else Refused(CONTRADICTORY, _contradictory(one, other))


def _contradictory(one: StoredTransaction, other: StoredTransaction) -> str:
    return (
        f"{other.topic_partition}, with the same producer id {one.producer_id} and epoch {one.producer_epoch}, would "
        "get the opposite marker, and one of the two is wrong if both belong to one transaction: sweep and plan again, "
        f"and if this refusal remains, read {one.topic_partition} and {other.topic_partition} with read_uncommitted "
        "and decide"
    )


# --- the guards, in order ---------------------------------------------------------------------------------------------


def _not_hanging(s: Swept, limits: Limits) -> bool:
    return s.verdict != Verdict.HANGING


def _owner_may_write(s: Swept, limits: Limits) -> bool:
    return s.reason == Reason.LIVE_EPOCH or (s.owner_epoch is not None and s.owner_epoch <= s.producer_epoch)


def _unknown_reason(s: Swept, limits: Limits) -> bool:
    return s.reason not in (Reason.ORPHAN, Reason.STALE_EPOCH, Reason.MISSED_COMMIT)


def _resolved(s: StoredTransaction, limits: Limits) -> bool:
    return s.resolved_ms is not None and s.resolved_ms >= s.swept_at_ms


def _low_threshold(s: StoredTransaction, limits: Limits) -> bool:
    return s.late_after_ms < s.max_timeout_ms


def _too_young(s: StoredTransaction, limits: Limits) -> bool:
    return s.watched_ms <= s.late_after_ms


def _old_enough_at(s: StoredTransaction) -> str:
    """The time after which a sweep has observed it for long enough, rounded up to the second."""
    return _time(-(-(s.first_seen_ms + s.late_after_ms) // 1_000))


def _time(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _seen_too_rarely(s: StoredTransaction, limits: Limits) -> bool:
    return s.sweeps < max(limits.sweeps_min, SWEEPS_MIN)


def _consumer_offsets(s: Swept, limits: Limits) -> bool:
    return s.topic in _OF_GROUPS and not limits.consumer_offsets


def _not_listed(s: Swept, limits: Limits) -> bool:
    return limits.topics is not None and s.topic not in limits.topics


def _mixed(s: Swept, limits: Limits) -> bool:
    return s.outcome == Outcome.MIXED


def _maybe_committed(s: Swept, limits: Limits) -> bool:
    unknown = s.outcome not in (Outcome.COMMITTED, Outcome.NOT_COMMITTED)
    return s.outcome == Outcome.MAYBE_COMMITTED or (s.reason == Reason.MISSED_COMMIT and unknown)


def _log_unread(s: Swept, limits: Limits) -> bool:
    return s.log_failure is not None


def _outcome_unfamiliar(s: Swept, limits: Limits) -> bool:
    return s.outcome not in tuple(Outcome)


def _owner(s: Swept) -> str:
    return f"'{s.transactional_id}'" if s.transactional_id is not None else "its owner"


def _to_fence(s: Swept) -> str:
    if s.fence_refusal is not None:
        return (
            "it takes part in two-phase commit, so let its application call initTransactions once the other system has "
            "ended its transaction"
        )
    return "fence it first (let its application call initTransactions, or use txnscan force-terminate)"


# By the verdict.
_OF_VERDICT: tuple[Guard[Swept], ...] = (
    Guard("not_hanging", _not_hanging, lambda s, _: f"it is {s.verdict}, not hanging"),
    Guard(
        "live_owner",
        _owner_may_write,
        lambda s, _: (
            f"{_owner(s)} is still at epoch {s.producer_epoch} and can write here: {_to_fence(s)}, then sweep again. "
            "If __transaction_state has lost records, that also hides which commits it lost"
        ),
    ),
    Guard("unknown_reason", _unknown_reason, lambda s, _: f"this version sends no marker for the reason '{s.reason}'"),
)
# By the journal. A sweep that still sees it hanging reads it after that apply, and it may be planned again.
_OF_JOURNAL: tuple[Guard[StoredTransaction], ...] = (
    Guard(
        "already_resolved",
        _resolved,
        lambda s, _: f"apply ended it at {_time((s.resolved_ms or 0) // 1_000)}, after this sweep: sweep again",
    ),
)
# By how long and how often it was observed.
_OF_WATCHING: tuple[Guard[StoredTransaction], ...] = (
    Guard(
        "low_threshold",
        _low_threshold,
        lambda s, _: (
            f"the sweep had a --late-after of {duration(s.late_after_ms)}, below the brokers' "
            f"transaction.max.timeout.ms of {duration(s.max_timeout_ms)}: sweep again with a longer --late-after"
        ),
    ),
    Guard(
        "too_young",
        _too_young,
        lambda s, _: (
            f"this scanner has observed it for {duration(s.watched_ms)}, and {duration(s.late_after_ms)} are needed "
            f"(record times do not count): sweep and plan again after {_old_enough_at(s)}"
        ),
    ),
    Guard(
        "seen_too_rarely",
        _seen_too_rarely,
        lambda s, limits: (
            f"it was hanging in {plural(s.sweeps, 'sweep')}, and "
            f"{max(limits.sweeps_min, SWEEPS_MIN)} are needed: sweep again"
        ),
    ),
)
# By its topic and its data.
_OF_DATA: tuple[Guard[Swept], ...] = (
    Guard(
        "consumer_offsets",
        _consumer_offsets,
        lambda s, _: f"it has {_OF_GROUPS[s.topic]}; plan with --include-consumer-offsets to include {s.topic}",
    ),
    Guard("topic_not_listed", _not_listed, lambda s, _: "no --topic of the plan matches its topic"),
    Guard(
        "log_unread",
        _log_unread,
        lambda s, _: (
            "the transaction log could not be read, so the coordinators could not be checked against it: "
            f"{s.log_failure}: sweep again"
        ),
    ),
    Guard("outcome_not_told", _outcome_unfamiliar, lambda s, _: "its sweep did not determine its outcome: sweep again"),
    Guard(
        "mixed",
        _mixed,
        lambda s, _: (
            f"some of its data was committed and some was not; read {s.topic_partition} with read_uncommitted "
            f"from offset {s.start_offset} on and decide (txnscan abort --force REASON also deletes the committed data)"
        ),
        by_outcome=True,
    ),
    Guard(
        "maybe_committed",
        _maybe_committed,
        lambda s, _: "its data may be committed, so an abort could delete it, and a commit is not proven",
        by_outcome=True,
    ),
)
GUARDS: tuple[Guard[StoredTransaction], ...] = (*_OF_VERDICT, *_OF_JOURNAL, *_OF_WATCHING, *_OF_DATA)
LASTING: tuple[Guard[Swept], ...] = (*_OF_VERDICT, *_OF_DATA)


def guard_names() -> Iterable[str]:
    """The names of all guards, for documentation."""
    return (*(guard.name for guard in GUARDS), CONTRADICTORY, "too_many")
