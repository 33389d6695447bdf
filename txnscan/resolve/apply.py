"""Doing a plan: prove again, send one marker, look at what came of it; and write down each step before the next.

    for each action:  journal the intent -> prove it all again, with the transaction log -> connect to the leader
                      -> the last look: prove it again, without the log -> send one marker -> look -> journal the
                      outcome

What is slow comes before the last look: tables, the log, siblings, the connection. Between the last look's second read
of the partition and the marker stand one round of Metadata and the judging, and then one request on a connection that
is open already: as long as the slowest broker takes to answer, and no longer than `request.timeout.ms`.

The last look waits until no owner of the producer id is in the middle of a transaction. A marker at another epoch than
its owner's clears what the partition's leader remembers of a verification that is under way (`UnifiedLog.
updateProducers`), and a batch of that owner would fail for it. What an owner begins after the last look is not seen;
the epoch of the marker cannot fence it, nor can the marker end what is written at a later epoch.

A marker is sent once: where no answer came, the partition is looked at, and whatever is seen there, this plan sends no
other. An apply that was killed leaves an intent without an outcome; the next one looks at the brokers before anything
else.

A marker may be forced (`txnscan abort --force REASON`), whatever the verdict: then only one guard is left. It is proven
that the partition's leader has this very transaction open, and the reason is in the journal.

Brokers, the journal and the clock are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from txnscan.config import ConfigError, printable
from txnscan.errors import ExitStatus, TxnscanError
from txnscan.kafka.answers import AT_REST
from txnscan.kafka.errors import ErrorCode, RequestFailed, answered, error_name
from txnscan.kafka.failure import Permission
from txnscan.kafka.protocol.write_txn_markers import MarkerToWrite
from txnscan.kafka.security.acls import explained, needing
from txnscan.resolve.plan import Action, Plan
from txnscan.txnlog.facts import SeenMarker
from txnscan.verdict.evidence import Judged, KnownOutcome, Outcome, PeerPartitions, Verdict

_ALTER_CLUSTER = Permission("Alter", "Cluster")
# Answers that mean that the marker was appended, but may not be replicated.
_APPENDED = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
# Answers of a broker that may have stopped leading after it had appended the marker (`DelayedProduce.tryComplete`).
_MAYBE_APPENDED = (
    *(-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR),
)
# How often, and how many seconds apart, an owner is looked at that is in the middle of a transaction.
LOOKS_MAX = 20
LOOK_WAIT_S = 1.0
_ANOTHER = "another transaction is open there now: sweep and plan again"
_RACED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


class Status(StrEnum):
    """What came of an action."""

    WOULD_SEND = "would_send"
    RESOLVED = "resolved"
    GONE = "gone"
    REFUSED = "refused"
    RACED = "raced"
    FAILED = "failed"
    NOT_RESOLVED = "not_resolved"
    UNKNOWN = "unknown"


# The reason of an attempt that is no marker: a transactional id was fenced (`terminate.py`).
FORCE_TERMINATE = "force_terminate"
_FENCE_INTERRUPTED = (
    "a force-terminate was interrupted after it had noted its intent, so that nobody knows whether the id was fenced: "
    "describe it, and sweep again"
)
# After these nothing is left to do.
DONE = (Status.WOULD_SEND, Status.RESOLVED, Status.GONE)
# After these nothing was sent, and the same plan may try again.
UNSENT = (Status.REFUSED, Status.FAILED, Status.RACED)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of an action, in one sentence.

    learned: a marker that nobody had seen before, or None. forbidden: the principal may not write markers at all.
    """

    action: Action
    status: Status
    detail: str
    learned: SeenMarker | None = None
    forbidden: bool = False


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A proven read of the partition: whether the transaction is open, and where its last stable offset is.

    error: why nothing is proven, or None.
    """

    is_open: bool = True
    last_stable_offset: int | None = None
    high_watermark: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """An intent in the journal, and what came of it, with its sentence: None when that was never written down."""

    attempt_id: str
    plan_digest: str
    intent_at_ms: int
    action: Action
    status: str | None
    detail: str | None = None


class Brokers(Protocol):
    """What apply asks of a cluster, as a principal."""

    @property
    def principal(self) -> str:
        """The principal that brokers see, for the commands that grant it permissions."""
        ...

    def prove(self, action: Action) -> Judged | None:
        """The transaction of this producer id on the partition, judged anew by the whole protocol, and checked against
        the transaction log; None where there is none. Raises RequestFailed.
        """
        ...

    def prove_again(self, action: Action) -> Judged | None:
        """The same without the transaction log, which is quick. Raises RequestFailed."""
        ...

    def commit_seen(self, siblings: PeerPartitions, producer_id: int) -> SeenMarker | None:
        """A COMMIT marker that a sibling partition has; None where none has. Raises RequestFailed."""
        ...

    def ready(self, leader: int) -> AbstractContextManager[Callable[[MarkerToWrite], int]]:
        """A connection to this broker: a context whose function sends a marker once, and returns the error code. The
        context raises RequestFailed where the broker cannot be reached, and the function where no answer came.
        """
        ...

    def look(self, action: Action) -> PartitionState:
        """A proven read of the partition. Never raises."""
        ...


class Journal(Protocol):
    """Where apply writes down each step."""

    def attempts(self, cluster_id: str) -> Sequence[Attempt]:
        """Every attempt on this cluster."""
        ...

    def remember(self, plan: Plan, marker: SeenMarker) -> None:
        """Stores a fact that later outcomes take into account."""
        ...

    def intend(self, plan: Plan, action: Action, forced: str | None) -> str:
        """Stores that the marker is about to be sent, and returns the attempt's id. forced: the reason for sending it
        against the guards, None where none of them refuses it.
        """
        ...

    def conclude(self, plan: Plan, attempt_id: str, action: Action, status: Status, detail: str) -> None:
        """Stores what came of it."""
        ...

    def hold(self) -> None:
        """Makes sure that this is still the only apply on the cluster. Raises JournalLost."""
        ...


class JournalLost(TxnscanError):
    """Another apply has taken over, or the journal cannot be written: this one sends nothing more."""


class ApplyRunning(ConfigError):
    """Another apply is under way on the cluster."""

    exit_status = ExitStatus.BUSY


def _nothing(result: Result) -> None:
    """A callback that does nothing."""


def settle_interrupted(
    cluster_id: str,
    plan: Plan,
    brokers: Brokers,
    journal: Journal,
    on_result: Callable[[Result], None] = _nothing,
) -> list[Result]:
    """Looks at what became of attempts that an earlier apply left without an outcome, and writes that down.

    on_result: called with each result as soon as it is known.
    """
    results: list[Result] = []

    def reported(result: Result) -> Result:
        results.append(result)
        on_result(result)
        return result

    for attempt in journal.attempts(cluster_id):
        if attempt.status is not None:
            continue
        if attempt.action.reason == FORCE_TERMINATE:
            result = reported(Result(attempt.action, Status.UNKNOWN, _FENCE_INTERRUPTED))
            journal.conclude(plan, attempt.attempt_id, attempt.action, result.status, result.detail)
            continue
        look = brokers.look(attempt.action)
        if look.error is not None:
            detail = f"an earlier apply was interrupted, and the partition cannot be read: {look.error}"
            reported(Result(attempt.action, Status.UNKNOWN, detail))
            continue
        result = reported(_interrupted(attempt.action, look))
        journal.conclude(plan, attempt.attempt_id, attempt.action, result.status, result.detail)
    return results


def _interrupted(action: Action, look: PartitionState) -> Result:
    """What an intent without an outcome can mean, by what its partition shows now."""
    if not look.is_open:
        return Result(
            action,
            Status.GONE,
            "an earlier apply was interrupted after it had noted its intent; the transaction is gone, and nobody knows "
            "whether by its marker",
        )
    return Result(
        action,
        Status.NOT_RESOLVED,
        "an earlier apply was interrupted after it had noted its intent, so that nobody knows whether it sent its "
        "marker; the transaction is still open: sweep and plan again",
    )


def apply_plan(
    plan: Plan,
    brokers: Brokers,
    journal: Journal,
    *,
    execute: bool,
    options: Collection[str],
    sleep: Callable[[float], None],
    on_step: Callable[[str, Action], None] = lambda step, action: None,
    on_result: Callable[[Result], None] = _nothing,
    only: Collection[str] = (),
    forced: str | None = None,
) -> list[Result]:
    """Does the plan's actions in order; without `execute` everything up to the sending. One result for each.

    options: the options that were given, of those that actions may need. sleep: waits, in seconds. on_step: called
    before each step. on_result: called with each result as soon as it is known, before it is written down. only: the
    partitions to act on, as "topic-partition"; empty is all of the plan. forced: the reason for sending against the
    guards, never given for a plan from a file. A refusal for want of an ACL stops it: the actions that were not tried
    are refused. Raises JournalLost.
    """
    attempts = journal.attempts(plan.cluster_id)
    results: list[Result] = []
    stopped: str | None = None
    run = _Run(plan, brokers, journal, on_step, on_result, sleep, forced)
    for action in chosen(plan, only):
        untried = (
            _not_to_try(plan, action, options, attempts) if stopped is None else Result(action, Status.REFUSED, stopped)
        )
        if untried is not None:
            on_result(untried)
            results.append(untried)
            continue
        result = run.execute(action) if execute else run.rehearse(action)
        results.append(result)
        if result.forbidden:
            stopped = "not tried, because the one before it was refused for want of an ACL"
    return results


def chosen(plan: Plan, only: Collection[str]) -> list[Action]:
    """The plan's actions on these partitions, or all of them. Raises ConfigError for a partition without any."""
    known = {action.topic_partition for action in plan.actions}
    refused = {refusal.topic_partition: refusal for refusal in plan.refused}
    for where in only:
        if where in refused and where not in known:
            raise ConfigError("--only", f"the plan refuses {where} ({refused[where].guard}): {refused[where].why}")
        if where not in known:
            markers = ", ".join(sorted(known)) or "none"
            raise ConfigError("--only", f"'{printable(where)}' is not among the markers of the plan: {markers}")
    return [action for action in plan.actions if not only or action.topic_partition in only]


def _not_to_try(plan: Plan, action: Action, options: Collection[str], attempts: Sequence[Attempt]) -> Result | None:
    """Why this action is not to be tried at all, or None."""
    found_gone = False
    for attempt in attempts:
        if attempt.action.incident_id != action.incident_id:
            continue
        if attempt.status is None:
            return Result(
                action, Status.REFUSED, "an earlier apply was interrupted here, and nothing is known of it yet"
            )
        # Clocks may differ, so what this very plan has sent counts whenever that was.
        since = attempt.plan_digest == plan.digest or attempt.intent_at_ms >= plan.planned_at_ms
        if not since or attempt.status in UNSENT:
            continue
        if attempt.status == Status.RESOLVED:
            return Result(action, Status.GONE, "an earlier apply has resolved it")
        if attempt.status == Status.GONE:
            # An apply that was interrupted is settled so, and it may have sent its marker: this plan sends no other.
            found_gone = True
            continue
        said = attempt.status.replace("_", " ")
        why = attempt.detail or "sweep and plan again"
        return Result(action, Status.REFUSED, f"an earlier apply has tried it ({said}): {why}")
    if found_gone:
        return Result(action, Status.GONE, "an earlier apply has found it gone")
    if action.needs is not None and action.needs not in options:
        outcome = action.outcome.replace("_", " ")
        why = f"its outcome is {outcome}: give {action.needs} to write this {action.marker} marker"
        return Result(action, Status.REFUSED, why)
    return None


@dataclass(frozen=True, slots=True)
class _Run:
    """What all actions of an apply share."""

    plan: Plan
    brokers: Brokers
    journal: Journal
    on_step: Callable[[str, Action], None]
    on_result: Callable[[Result], None]
    sleep: Callable[[float], None]
    forced: str | None

    def rehearse(self, action: Action) -> Result:
        """Everything up to the sending."""
        self.on_step("prove", action)
        proven = self._prove(action)
        would = f"proven again; with --execute its {action.marker} marker is sent"
        result = proven if isinstance(proven, Result) else Result(action, Status.WOULD_SEND, would)
        self.on_result(result)
        return result

    def execute(self, action: Action) -> Result:
        """From the intent to the outcome in the journal."""
        self.journal.hold()
        self.on_step("intend", action)
        attempt_id = self.journal.intend(self.plan, action, self.forced)
        self.on_step("prove", action)
        proven = self._prove(action)
        if isinstance(proven, Result):
            result = proven
            if result.learned is not None:
                self.journal.remember(self.plan, result.learned)
        else:
            result = self._send(action, proven.observation.leader)
        self.on_result(result)
        self.on_step("conclude", action)
        self.journal.conclude(self.plan, attempt_id, action, result.status, result.detail)
        return result

    def _prove(self, action: Action) -> Judged | Result:
        """The transaction as it is now, where it still is what the plan has; else the result that ends the action."""
        if self.forced is not None:
            return _still_there(action, self.brokers.prove)
        judged = _found(action, self.brokers.prove)
        if isinstance(judged, Result):
            return judged
        why = changed(action, judged)
        if why is not None:
            return Result(action, Status.REFUSED, why)
        refused = self._committed_elsewhere(action, judged.known)
        return judged if refused is None else refused

    def _committed_elsewhere(self, action: Action, known: KnownOutcome | None) -> Result | None:
        """Where the outcome is unknown, the refusal of an ABORT because of a commit that its owner or a sibling
        partition shows, or because siblings cannot be read; else None.
        """
        if known is None or known.outcome is not Outcome.UNKNOWN:
            return None
        if known.siblings is None:
            return None
        try:
            seen = self.brokers.commit_seen(known.siblings, action.producer_id)
        except RequestFailed as failed:
            why = f"whether its transaction committed on its other partitions is not known: {failed.error}"
            return Result(action, Status.REFUSED, why)
        return Result(action, Status.REFUSED, str(seen), seen) if seen is not None else None

    def _send(self, action: Action, leader: int) -> Result:
        """The last look, and right after it the marker."""
        try:
            with self.brokers.ready(leader) as write:
                self.on_step("look", action)
                judged = self._at_rest(action)
                if isinstance(judged, Result):
                    return judged
                if judged.observation.leader != leader:
                    why = f"its leader moved to broker {judged.observation.leader}: apply again"
                    return Result(action, Status.FAILED, f"the marker was not sent: {why}")
                self.on_step("send", action)
                return _send(action, judged, write, self.brokers)
        except RequestFailed as failed:
            return Result(action, Status.FAILED, f"the marker was not sent: {failed.error}")

    def _at_rest(self, action: Action) -> Judged | Result:
        """The transaction as it is now, once no owner of its producer id is in the middle of a transaction. The lock is
        looked at right before each look at the transaction.
        """
        self.journal.hold()
        if self.forced is not None:
            return _still_there(action, self.brokers.prove_again)
        owner = ""
        for look in range(LOOKS_MAX):
            if look:
                self.sleep(LOOK_WAIT_S)
                self.journal.hold()
            judged = _found(action, self.brokers.prove_again)
            if isinstance(judged, Result):
                return judged
            why = moved_on(action, judged)
            if why is not None:
                return Result(action, Status.REFUSED, why)
            busy = [view for view in judged.evidence.coordinators if view.state not in AT_REST]
            if not busy:
                return judged
            owner = f"'{busy[0].transactional_id}'"
        why = (
            f"{owner} was in the middle of a transaction at each of {LOOKS_MAX} looks, and a marker could make it fail"
        )
        return Result(action, Status.REFUSED, f"{why}: apply again when it is at rest")


def _found(action: Action, prove: Callable[[Action], Judged | None]) -> Judged | Result:
    """The transaction as it is now, or the result that it is gone or cannot be proven."""
    try:
        judged = prove(action)
    except RequestFailed as failed:
        return Result(action, Status.REFUSED, f"it could not be proven again: {failed.error}")
    if judged is None or judged.judgement.verdict is Verdict.GONE:
        return Result(action, Status.GONE, "the transaction is not open any more")
    return judged


def _still_there(action: Action, prove: Callable[[Action], Judged | None]) -> Judged | Result:
    """The transaction as it is now, whatever its verdict, where its leader has it open, as two proven reads show."""
    judged = _found(action, prove)
    if isinstance(judged, Result):
        return judged
    unproven = judged.observation.first.failure or judged.observation.second.failure
    if unproven is not None:
        return Result(action, Status.REFUSED, f"the partition cannot be read with proof: {unproven}")
    if not _is_same(action, judged):
        return Result(action, Status.REFUSED, _ANOTHER)
    return judged


def _is_same(action: Action, judged: Judged) -> bool:
    """Whether this is the transaction that the plan is about."""
    same = ("topic_id", "producer_epoch", "coordinator_epoch", "start_offset")
    return all(getattr(judged.observation, name) == getattr(action, name) for name in same)


def changed(action: Action, judged: Judged) -> str | None:
    """How the transaction, or what is known of its outcome, differs from the plan, or None. Pure."""
    why = moved_on(action, judged)
    if why is not None:
        return why
    unread = judged.known.log_failure if judged.known is not None else "it was not looked for"
    if unread is not None:
        return f"it could not be checked against the transaction log: {unread}"
    now = judged.judgement.outcome
    if action.outcome != now:
        return f"it was planned as outcome {action.outcome} and is {now} now: sweep and plan again"
    return None


def moved_on(action: Action, judged: Judged) -> str | None:
    """How the transaction, but for its outcome, differs from the plan, or None. Pure."""
    o, now = judged.observation, judged.judgement
    if now.verdict is not Verdict.HANGING:
        return f"it is {now.verdict} now ({now.reason}): {now.explanation}"
    if not _is_same(action, judged):
        return _ANOTHER
    if action.reason != now.reason:
        return f"it was planned as hanging {action.reason} and is {now.reason} now: sweep and plan again"
    owners = [view.producer_epoch for view in judged.evidence.coordinators]
    if owners and max(owners) <= o.producer_epoch:
        return "the id that owned it is still at its epoch and can write there: fence it first"
    return None


def marker_for(action: Action) -> MarkerToWrite:
    """The marker that an action writes."""
    where = (action.topic, action.partition)
    return MarkerToWrite(*where, action.producer_id, action.producer_epoch, action.coordinator_epoch, action.commit)


def _send(action: Action, judged: Judged, write: Callable[[MarkerToWrite], int], brokers: Brokers) -> Result:
    """Sends the marker, once, to the leader that was just proven, and looks at what came of it."""
    try:
        code = write(marker_for(action))
    except RequestFailed as failed:
        if not failed.sent:
            return Result(action, Status.FAILED, f"the marker was not sent: {failed.error}")
        return _after(action, judged, brokers.look(action), f"no answer came ({failed.error})", Status.UNKNOWN)
    name = error_name(code)
    if code == ErrorCode.NONE:
        return _after(action, judged, brokers.look(action), "the marker was written", Status.NOT_RESOLVED)
    if code in (*_APPENDED, *_MAYBE_APPENDED):
        otherwise = Status.UNKNOWN if code in _APPENDED else Status.FAILED
        return _after(action, judged, brokers.look(action), f"the broker answered {name}", otherwise)
    if code in _RACED:
        return Result(
            action, Status.RACED, f"the broker answered {name}: somebody else moved first. Sweep and plan again"
        )
    needs = explained(needing(answered(code), _ALTER_CLUSTER), brokers.principal)
    forbidden = code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return Result(action, Status.FAILED, f"the broker wrote no marker: {needs}", forbidden=forbidden)


def _after(action: Action, judged: Judged, look: PartitionState, what: str, otherwise: Status) -> Result:
    """What the partition shows after a marker was sent."""
    if look.error is not None:
        return Result(action, Status.UNKNOWN, f"{what}, and the partition cannot be read: {look.error}")
    if look.is_open:
        return Result(action, otherwise, f"{what}, yet the transaction is still open: sweep and plan again")
    before = judged.observation.second.last_stable_offset
    moved = f"the last stable offset went from {before} to {look.last_stable_offset}"
    held = f", held by another transaction below the high watermark {look.high_watermark}"
    free = look.last_stable_offset == look.high_watermark
    return Result(action, Status.RESOLVED, f"{what} and the transaction is gone: {moved}{'' if free else held}")
