"""Doing a plan: prove again, send one marker, look at what came of it; and write down each step before the next.

    for each action:  journal the intent -> prove it all again -> send one marker -> look -> journal the outcome

The intent comes first and the proof right before the marker, so that nothing slow lies between the two. A marker is
sent once: where no answer came, the partition is looked at, and whatever is seen there, this plan sends no other. An
apply that was killed leaves an intent without an outcome; the next one looks at the brokers before anything else.

Brokers, the journal and the clock are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from txnscan.kafka.acls import Permission, explained
from txnscan.kafka.errors import ErrorCode, RequestFailed, error_name
from txnscan.kafka.write_txn_markers import MarkerToWrite
from txnscan.model import Judged, Verdict
from txnscan.resolve.plan import Action, Plan

_ALTER_CLUSTER = Permission("Alter", "Cluster")
# Answers that say that the marker was appended, and no more.
_APPENDED = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
# Answers of a broker that may have stopped to lead after it had appended the marker (`DelayedProduce.tryComplete`).
_MAYBE_APPENDED = (
    *(-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR),
)
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


# What leaves nothing to do.
DONE = (Status.WOULD_SEND, Status.RESOLVED, Status.GONE)
# After these nothing was sent, and the same plan may try again.
UNSENT = (Status.REFUSED, Status.GONE, Status.FAILED, Status.RACED)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of an action, in one sentence."""

    action: Action
    status: Status
    detail: str


@dataclass(frozen=True, slots=True)
class Look:
    """A proven read of the partition: whether the transaction is open, and where its last stable offset is.

    error: why nothing is proven, or None.
    """

    is_open: bool = True
    last_stable_offset: int | None = None
    high_watermark: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """An intent in the journal, and what came of it: None when that was never written down."""

    attempt_id: str
    plan_digest: str
    intent_at_ms: int
    action: Action
    status: str | None


class Brokers(Protocol):
    """What apply asks of a cluster, as a principal."""

    @property
    def principal(self) -> str:
        """Who this is, for what to grant it."""
        ...

    def prove(self, action: Action) -> Judged | None:
        """The transaction of this producer id on the partition, judged anew by the whole protocol; None where there is
        none. Raises RequestFailed.
        """
        ...

    def write(self, leader: int, marker: MarkerToWrite) -> int:
        """Sends the marker once, and gives the error code. Raises RequestFailed where no answer came."""
        ...

    def look(self, action: Action) -> Look:
        """A proven read of the partition. Never raises."""
        ...


class Journal(Protocol):
    """What apply writes down."""

    def attempts(self, cluster_id: str) -> Sequence[Attempt]:
        """Every attempt on this cluster."""
        ...

    def intend(self, plan: Plan, action: Action) -> str:
        """Stores that the marker is about to be sent, and gives the attempt's id."""
        ...

    def conclude(self, plan: Plan, attempt_id: str, action: Action, status: Status, detail: str) -> None:
        """Stores what came of it."""
        ...

    def hold(self) -> None:
        """Makes sure that this is still the one apply. Raises JournalLost."""
        ...


class JournalLost(Exception):
    """Another apply has taken over: this one sends nothing more."""


def settle_interrupted(cluster_id: str, plan: Plan, brokers: Brokers, journal: Journal) -> list[Result]:
    """Looks at what became of attempts that an earlier apply left without an outcome, and writes that down."""
    results = []
    for attempt in journal.attempts(cluster_id):
        if attempt.status is not None:
            continue
        look = brokers.look(attempt.action)
        if look.error is not None:
            detail = f"an earlier apply was interrupted, and the partition cannot be read: {look.error}"
            results.append(Result(attempt.action, Status.UNKNOWN, detail))
            continue
        status = Status.NOT_RESOLVED if look.is_open else Status.RESOLVED
        said = "is still open, and may have been sent its marker: sweep and plan again" if look.is_open else "is gone"
        result = Result(attempt.action, status, f"an earlier apply was interrupted; the transaction {said}")
        journal.conclude(plan, attempt.attempt_id, attempt.action, status, result.detail)
        results.append(result)
    return results


def apply_plan(
    plan: Plan,
    brokers: Brokers,
    journal: Journal,
    *,
    execute: bool,
    options: Collection[str],
    on_step: Callable[[str, Action], None] = lambda step, action: None,
) -> list[Result]:
    """Does the plan's actions in order; without `execute` everything up to the sending. One result for each.

    options: those given of the ones that actions need. on_step: told of each step before it is taken. A refusal for
    want of an ACL stops it: the actions that were not tried are refused. Raises JournalLost.
    """
    attempts = journal.attempts(plan.cluster_id)
    results: list[Result] = []
    stopped: str | None = None
    for action in plan.actions:
        if stopped is not None:
            results.append(Result(action, Status.REFUSED, stopped))
            continue
        result = _not_to_try(plan, action, options, attempts)
        if result is None:
            result = _execute(plan, action, brokers, journal, on_step) if execute else _rehearse(action, brokers)
        results.append(result)
        if result.status is Status.FAILED and ErrorCode.CLUSTER_AUTHORIZATION_FAILED.name in result.detail:
            stopped = "not tried, because the one before it was refused for want of an ACL"
    return results


def _not_to_try(plan: Plan, action: Action, options: Collection[str], attempts: Sequence[Attempt]) -> Result | None:
    """Why this action is not to be tried at all, or None."""
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
        said = attempt.status.replace("_", " ")
        return Result(action, Status.REFUSED, f"its marker was sent before ({said}): sweep and plan again")
    if action.needs is not None and action.needs not in options:
        outcome = action.outcome.replace("_", " ")
        why = f"its outcome is {outcome}: give {action.needs} to write this {action.marker} marker"
        return Result(action, Status.REFUSED, why)
    return None


def _rehearse(action: Action, brokers: Brokers) -> Result:
    """Everything up to the sending."""
    proven = _prove(action, brokers)
    if isinstance(proven, Result):
        return proven
    return Result(action, Status.WOULD_SEND, f"proven again; with --execute its {action.marker} marker is sent")


def _execute(
    plan: Plan, action: Action, brokers: Brokers, journal: Journal, on_step: Callable[[str, Action], None]
) -> Result:
    journal.hold()
    on_step("intend", action)
    attempt_id = journal.intend(plan, action)
    on_step("prove", action)
    proven = _prove(action, brokers)
    if isinstance(proven, Result):
        result = proven
    else:
        journal.hold()
        on_step("send", action)
        result = _send(action, proven, brokers)
    on_step("conclude", action)
    journal.conclude(plan, attempt_id, action, result.status, result.detail)
    return result


def _prove(action: Action, brokers: Brokers) -> Judged | Result:
    """The transaction as it is now, where it is what the plan says; else what it is instead."""
    try:
        judged = brokers.prove(action)
    except RequestFailed as failed:
        return Result(action, Status.REFUSED, f"it could not be proven again: {failed.error}")
    if judged is None or judged.judgement.verdict is Verdict.GONE:
        return Result(action, Status.GONE, "the transaction is not open any more")
    why = changed(action, judged)
    return judged if why is None else Result(action, Status.REFUSED, why)


def changed(action: Action, judged: Judged) -> str | None:
    """How the transaction differs from what the plan says of it, or None. Pure."""
    o, now = judged.observation, judged.judgement
    if now.verdict is not Verdict.HANGING:
        return f"it is {now.verdict} now ({now.reason}): {now.explanation}"
    was = (action.topic_id, action.producer_epoch, action.coordinator_epoch, action.start_offset)
    if (o.topic_id, o.producer_epoch, o.coordinator_epoch, o.start_offset) != was:
        return "another transaction is open there now: sweep and plan again"
    for what, before, after in (("hanging", action.reason, now.reason), ("outcome", action.outcome, now.outcome)):
        if before != after:
            return f"it was planned as {what} {before} and is {after} now: sweep and plan again"
    owners = [view.producer_epoch for view in judged.evidence.coordinators]
    if owners and max(owners) <= o.producer_epoch:
        return "the id that owned it is still at its epoch and can write there: fence it first"
    return None


def marker_for(action: Action) -> MarkerToWrite:
    """The marker that an action writes."""
    return MarkerToWrite(
        action.topic,
        action.partition,
        action.producer_id,
        action.producer_epoch,
        action.coordinator_epoch,
        action.commit,
    )


def _send(action: Action, judged: Judged, brokers: Brokers) -> Result:
    """Sends the marker, once, to the leader that was just proven, and looks at what came of it."""
    try:
        code = brokers.write(judged.observation.leader, marker_for(action))
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
    needs = explained(name, _ALTER_CLUSTER, brokers.principal)
    return Result(action, Status.FAILED, f"the broker wrote no marker: {needs}")


def _after(action: Action, judged: Judged, look: Look, what: str, otherwise: Status) -> Result:
    """What the partition shows after a marker was sent."""
    if look.error is not None:
        return Result(action, Status.UNKNOWN, f"{what}, and the partition cannot be read: {look.error}")
    if look.is_open:
        return Result(action, otherwise, f"{what}, yet the transaction is still open: sweep and plan again")
    before = judged.observation.second_last_stable_offset
    moved = f"the last stable offset went from {before} to {look.last_stable_offset}"
    held = f", held by another transaction below the high watermark {look.high_watermark}"
    free = look.last_stable_offset == look.high_watermark
    return Result(action, Status.RESOLVED, f"{what} and the transaction is gone: {moved}{'' if free else held}")
