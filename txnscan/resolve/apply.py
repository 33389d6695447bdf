"""Apply a plan: repeat the proof, send one marker, read the partition again. Each step is journaled before the next.

    for each action:  journal the intent -> prove it all again, with the transaction log -> connect to the leader
                      -> the last look: prove it without the log -> send one marker -> read the partition -> journal
                      the outcome

Slow steps (tables, the transaction log, the other partitions, the connection) come before the last look. Between the
last look's second read of the partition and the marker there are only one round of Metadata requests, the judgement,
and one request on an open connection. This takes as long as the slowest broker needs to answer, and at most
`request.timeout.ms`.

The last look waits until no owner of the producer id is in the middle of a transaction. The reason: a marker at another
epoch than its owner's clears the leader's state of a verification in progress (`UnifiedLog.updateProducers`), and a
batch of that owner would then fail. A transaction that an owner begins after the last look is not seen. The epoch of
the marker cannot fence that owner, and the marker cannot end data of a later epoch.

A marker is sent once. If no answer comes, the partition is read, and this plan never sends the marker again, whatever
the read shows. An apply that was killed leaves an intent without an outcome; the next apply settles that intent first,
by reading the partition.

A marker may be forced (`txnscan abort --force REASON`) whatever the verdict. Then one guard remains: a proven read
shows that the partition's leader has exactly this transaction open. The journal records the reason.

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
from txnscan.kafka.protocol.write_txn_markers import MarkerToWrite
from txnscan.kafka.security.acls import explained, needing
from txnscan.kafka.security.needs import ALTER_CLUSTER
from txnscan.resolve.plan import Action, Plan
from txnscan.txnlog.facts import SeenMarker
from txnscan.verdict.evidence import Judged, KnownOutcome, Outcome, PeerPartitions, Verdict

# With these answers the marker was appended, but may not be replicated.
_APPENDED = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
# With these answers the broker may have stopped leading after it had appended the marker
# (`DelayedProduce.tryComplete`).
_MAYBE_APPENDED = (
    *(-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR),
)
# How often, and how many seconds apart, the last look is repeated while an owner is in the middle of a transaction.
LOOKS_MAX = 20
LOOK_WAIT_S = 1.0
_ANOTHER = "another transaction is open there now: sweep and plan again"
# The topic may have been created again since the plan.
_UNKNOWN_TOPIC = "its topic had no id in the plan or has none now, and may be another one: sweep and plan again"
_RACED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


class Status(StrEnum):
    """The result of an action."""

    WOULD_SEND = "would_send"
    RESOLVED = "resolved"
    GONE = "gone"
    REFUSED = "refused"
    RACED = "raced"
    FAILED = "failed"
    NOT_RESOLVED = "not_resolved"
    UNKNOWN = "unknown"


# The reason of an attempt without a marker: a transactional id was fenced (`terminate.py`).
FORCE_TERMINATE = "force_terminate"
_FENCE_INTERRUPTED = (
    "a force-terminate was interrupted after it had stored its intent, so it is not known whether the id was fenced: "
    "describe the id, and sweep again"
)
# After these the action needs no further work.
DONE = (Status.WOULD_SEND, Status.RESOLVED, Status.GONE)
# After these no marker was sent, and the same plan may try again.
UNSENT = (Status.REFUSED, Status.FAILED, Status.RACED)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an action, in one sentence.

    learned: a marker that was not stored before, if any. forbidden: the principal may not write markers at all.
    """

    action: Action
    status: Status
    detail: str
    learned: SeenMarker | None = None
    forbidden: bool = False


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A proven read of the partition: whether the transaction is open, and the partition's offsets.

    error: why the read is not proven, if so.
    """

    is_open: bool = True
    last_stable_offset: int | None = None
    high_watermark: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """An intent in the journal, with its outcome, if one was stored."""

    attempt_id: str
    plan_digest: str
    intent_at_ms: int
    action: Action
    status: str | None
    detail: str | None = None


class Brokers(Protocol):
    """The requests that apply sends to a cluster, as one principal."""

    @property
    def principal(self) -> str:
        """The principal as brokers see it; used in the commands that grant it permissions."""
        ...

    @property
    def time_is_up(self) -> str | None:
        """Why no other marker is begun, if the time limit of all is over."""
        ...

    def prove(self, action: Action) -> Judged | None:
        """The open transaction of this producer id on the partition, judged again by the whole protocol and checked
        against the transaction log. None if there is none. Raises RequestFailed.
        """
        ...

    def prove_without_log(self, action: Action) -> Judged | None:
        """The same without the transaction log, which is faster. Raises RequestFailed."""
        ...

    def commit_seen(self, peers: PeerPartitions, producer_id: int) -> SeenMarker | None:
        """A COMMIT marker on one of these other partitions of the transaction, if any. Raises RequestFailed."""
        ...

    def marker_connection(self, leader: int) -> AbstractContextManager[Callable[[MarkerToWrite], int]]:
        """A connection to this broker. The context yields a function that sends a marker once and returns the error
        code.

        The context raises RequestFailed if the broker cannot be reached; the function raises it if no answer comes.
        """
        ...

    def read_partition(self, action: Action, *, sent: bool = True) -> PartitionState:
        """A proven read of the partition. Never raises. sent: this apply sent the marker, so the read is not under the
        time limit of all.
        """
        ...


class Journal(Protocol):
    """The store in which apply records each step."""

    def attempts(self, cluster_id: str) -> Sequence[Attempt]:
        """Every attempt on this cluster."""
        ...

    def remember(self, plan: Plan, marker: SeenMarker) -> None:
        """Stores a fact that later outcomes take into account."""
        ...

    def intend(self, plan: Plan, action: Action, forced: str | None) -> str:
        """Stores that the marker is about to be sent, and returns the attempt's id. forced: the user's reason for
        overriding the guards, or None.
        """
        ...

    def conclude(self, plan: Plan, attempt_id: str, action: Action, status: Status, detail: str) -> None:
        """Stores the outcome of the attempt."""
        ...

    def hold(self) -> None:
        """Checks that this apply still has the cluster's lock. Raises JournalLost."""
        ...


class JournalLost(TxnscanError):
    """Another apply has taken over, or the journal cannot be written. This apply sends no more markers."""


class ApplyRunning(ConfigError):
    """Another apply is under way on the cluster."""

    exit_status = ExitStatus.BUSY


def _nothing(result: Result) -> None:
    """The default callback: ignores the result."""


def settle_interrupted(
    cluster_id: str,
    plan: Plan,
    brokers: Brokers,
    journal: Journal,
    on_result: Callable[[Result], None] = _nothing,
) -> list[Result]:
    """Settles each attempt without an outcome: reads its partition, and stores the result as the outcome.

    If the partition cannot be read, or the time limit of all is over, the attempt stays without an outcome. An
    interrupted force-terminate always becomes UNKNOWN. on_result: called with each result as soon as it is known.
    """
    results: list[Result] = []

    def reported(result: Result) -> Result:
        results.append(result)
        on_result(result)
        return result

    for attempt in journal.attempts(cluster_id):
        if attempt.status is not None:
            continue
        if (over := brokers.time_is_up) is not None:
            detail = f"an earlier apply was interrupted, and the partition was not read: {over}"
            reported(Result(attempt.action, Status.UNKNOWN, detail))
            continue
        if attempt.action.reason == FORCE_TERMINATE:
            result = reported(Result(attempt.action, Status.UNKNOWN, _FENCE_INTERRUPTED))
            journal.conclude(plan, attempt.attempt_id, attempt.action, result.status, result.detail)
            continue
        state = brokers.read_partition(attempt.action, sent=False)
        if state.error is not None:
            detail = f"an earlier apply was interrupted, and the partition cannot be read: {state.error}"
            reported(Result(attempt.action, Status.UNKNOWN, detail))
            continue
        result = reported(_interrupted(attempt.action, state))
        journal.conclude(plan, attempt.attempt_id, attempt.action, result.status, result.detail)
    return results


def _interrupted(action: Action, state: PartitionState) -> Result:
    """The result of an intent without an outcome, according to the present state of its partition."""
    if not state.is_open:
        return Result(
            action,
            Status.GONE,
            "an earlier apply was interrupted after it had stored its intent; the transaction is gone, and it is not "
            "known whether the marker of that apply ended it",
        )
    return Result(
        action,
        Status.NOT_RESOLVED,
        "an earlier apply was interrupted after it had stored its intent, so it is not known whether it sent its "
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
    """Applies the plan's actions in order, and returns one result each. Without `execute`, stops before sending.

    options: those options of apply that the user gave. sleep: waits, in seconds. on_step: called before each step.
    on_result: called with each result as soon as it is known, before it is journaled. only: the partitions to act on,
    as "topic-partition"; empty means the whole plan. forced: the user's reason for overriding the guards; never given
    for a plan from a file. If a marker is refused for a missing ACL, or the time limit is over, apply stops, and the
    remaining actions are refused. Raises JournalLost.
    """
    attempts = journal.attempts(plan.cluster_id)
    results: list[Result] = []
    stopped: str | None = None
    run = _Run(plan, brokers, journal, on_step, on_result, sleep, forced)
    for action in chosen(plan, only):
        if stopped is None and (over := brokers.time_is_up) is not None:
            stopped = f"not tried: {over}"
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
            stopped = "not tried, because the marker before it was refused for a missing ACL"
    return results


def chosen(plan: Plan, only: Collection[str]) -> list[Action]:
    """The plan's actions on these partitions, or all actions if `only` is empty. Raises ConfigError for a partition
    without an action.
    """
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
    """The result if earlier attempts or a missing option rule this action out."""
    found_gone = False
    for attempt in attempts:
        if attempt.action.incident_id != action.incident_id:
            continue
        if attempt.status is None:
            return Result(
                action, Status.REFUSED, "an earlier apply was interrupted here, and its result is not known yet"
            )
        # Clocks may differ, so an attempt of this very plan counts, whatever its time.
        since = attempt.plan_digest == plan.digest or attempt.intent_at_ms >= plan.planned_at_ms
        if not since or attempt.status in UNSENT:
            continue
        if attempt.status == Status.RESOLVED:
            return Result(action, Status.GONE, "an earlier apply has resolved it")
        if attempt.status == Status.GONE:
            # An interrupted attempt is settled as GONE, and it may have sent its marker: this plan sends no other
            # marker.
            found_gone = True
            continue
        said = attempt.status.replace("_", " ")
        why = attempt.detail or "sweep and plan again"
        return Result(action, Status.REFUSED, f"an earlier apply has tried it ({said}): {why}")
    if found_gone:
        return Result(action, Status.GONE, "an earlier apply reported it as gone")
    if action.needs is not None and action.needs not in options:
        outcome = action.outcome.replace("_", " ")
        why = f"its outcome is {outcome}: give {action.needs} to write this {action.marker} marker"
        return Result(action, Status.REFUSED, why)
    return None


@dataclass(frozen=True, slots=True)
class _Run:
    """The arguments that all actions of an apply share."""

    plan: Plan
    brokers: Brokers
    journal: Journal
    on_step: Callable[[str, Action], None]
    on_result: Callable[[Result], None]
    sleep: Callable[[float], None]
    forced: str | None

    def rehearse(self, action: Action) -> Result:
        """Runs every step before the sending."""
        self.on_step("prove", action)
        proven = self._prove(action)
        would = f"proven again; --execute sends its {action.marker} marker"
        result = proven if isinstance(proven, Result) else Result(action, Status.WOULD_SEND, would)
        self.on_result(result)
        return result

    def execute(self, action: Action) -> Result:
        """Runs every step, from the intent to the outcome in the journal."""
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
        """The transaction as it is now if it still matches the plan; else the result that ends the action."""
        if self.forced is not None:
            return _still_there(action, self.brokers.prove)
        judged = _found(action, self.brokers.prove)
        if isinstance(judged, Result):
            return judged
        why = changed(action, judged)
        if why is not None:
            return Result(action, Status.REFUSED, why)
        refused = self._committed_elsewhere(action, judged.known_outcome)
        return judged if refused is None else refused

    def _committed_elsewhere(self, action: Action, known: KnownOutcome | None) -> Result | None:
        """A refusal if another partition of the transaction shows a COMMIT marker, or cannot be read.

        Only an action with unknown outcome is checked.
        """
        if known is None or known.outcome is not Outcome.UNKNOWN:
            return None
        if known.peers is None:
            return None
        try:
            seen = self.brokers.commit_seen(known.peers, action.producer_id)
        except RequestFailed as failed:
            why = f"its other partitions could not be searched for a COMMIT marker: {failed.error}"
            return Result(action, Status.REFUSED, why)
        return Result(action, Status.REFUSED, str(seen), seen) if seen is not None else None

    def _send(self, action: Action, leader: int) -> Result:
        """Takes the last look, then sends the marker immediately."""
        try:
            with self.brokers.marker_connection(leader) as write:
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
        """The transaction as it is now, once no owner of its producer id is in the middle of a transaction.

        The lock is checked before each proof.
        """
        self.journal.hold()
        if self.forced is not None:
            return _still_there(action, self.brokers.prove_without_log)
        owner = ""
        for attempt in range(LOOKS_MAX):
            if attempt:
                self.sleep(LOOK_WAIT_S)
                self.journal.hold()
            judged = _found(action, self.brokers.prove_without_log)
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
            f"{owner} was in a transaction at each of {LOOKS_MAX} checks, and a marker could make that transaction fail"
        )
        return Result(action, Status.REFUSED, f"{why}: apply again when the id is not in a transaction")


def _found(action: Action, prove: Callable[[Action], Judged | None]) -> Judged | Result:
    """The transaction as it is now. Or the result GONE if it has ended, or REFUSED if it cannot be proven."""
    try:
        judged = prove(action)
    except RequestFailed as failed:
        return Result(action, Status.REFUSED, f"it could not be proven again: {failed.error}")
    if judged is None or judged.judgement.verdict is Verdict.GONE:
        return Result(action, Status.GONE, "the transaction is no longer open")
    return judged


def _still_there(action: Action, prove: Callable[[Action], Judged | None]) -> Judged | Result:
    """The transaction as it is now, with any verdict, if both reads of its partition prove that it is open."""
    judged = _found(action, prove)
    if isinstance(judged, Result):
        return judged
    unproven = judged.observation.first.failure or judged.observation.second.failure
    if unproven is not None:
        return Result(action, Status.REFUSED, f"the partition cannot be read with proof: {unproven}")
    why = _another(action, judged)
    return judged if why is None else Result(action, Status.REFUSED, why)


def _another(action: Action, judged: Judged) -> str | None:
    """Why this may not be the transaction of the plan; None if it is that transaction."""
    o, same = judged.observation, ("producer_epoch", "coordinator_epoch", "start_offset")
    if any(getattr(o, name) != getattr(action, name) for name in same):
        return _ANOTHER
    if o.topic_id == action.topic_id:
        return None
    return _UNKNOWN_TOPIC if "" in (o.topic_id, action.topic_id) else _ANOTHER


def changed(action: Action, judged: Judged) -> str | None:
    """How the transaction, or its known outcome, differs from the plan, if it does. Pure."""
    why = moved_on(action, judged)
    if why is not None:
        return why
    unread = judged.known_outcome.log_failure if judged.known_outcome is not None else "the sweep did not read it"
    if unread is not None:
        return f"it could not be checked against the transaction log: {unread}"
    now = judged.outcome
    if action.outcome != now:
        return f"its outcome was {action.outcome} in the plan and is {now} now: sweep and plan again"
    return None


def moved_on(action: Action, judged: Judged) -> str | None:
    """How the transaction, apart from its outcome, differs from the plan, if it does. Pure."""
    o, now = judged.observation, judged.judgement
    if now.verdict is not Verdict.HANGING:
        return f"it is {now.verdict} now ({now.reason}): {now.explanation}"
    if (why := _another(action, judged)) is not None:
        return why
    if action.reason != now.reason:
        return f"its reason was {action.reason} in the plan and is {now.reason} now: sweep and plan again"
    owners = [view.producer_epoch for view in judged.evidence.coordinators]
    if owners and max(owners) <= o.producer_epoch:
        return "its owner is still at its epoch and can write there: fence the owner first"
    return None


def marker_for(action: Action) -> MarkerToWrite:
    """The marker that an action writes."""
    where = action.key
    return MarkerToWrite(*where, action.producer_id, action.producer_epoch, action.coordinator_epoch, action.commit)


def _send(action: Action, judged: Judged, write: Callable[[MarkerToWrite], int], brokers: Brokers) -> Result:
    """Sends the marker, once, to the leader that the last look proved, then reads the partition."""
    try:
        code = write(marker_for(action))
    except RequestFailed as failed:
        if not failed.sent:
            return Result(action, Status.FAILED, f"the marker was not sent: {failed.error}")
        return _after(
            action, judged, brokers.read_partition(action), f"no answer came ({failed.error})", Status.UNKNOWN
        )
    name = error_name(code)
    if code == ErrorCode.NONE:
        state = brokers.read_partition(action)
        return _after(action, judged, state, "the marker was written", Status.NOT_RESOLVED, is_written=True)
    if code in (*_APPENDED, *_MAYBE_APPENDED):
        otherwise = Status.UNKNOWN if code in _APPENDED else Status.FAILED
        return _after(action, judged, brokers.read_partition(action), f"the broker answered {name}", otherwise)
    if code in _RACED:
        return Result(
            action,
            Status.RACED,
            f"the broker answered {name}, because another producer or coordinator was faster: sweep and plan again",
        )
    needs = explained(needing(answered(code), ALTER_CLUSTER.permission), brokers.principal)
    forbidden = code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return Result(action, Status.FAILED, f"the broker wrote no marker: {needs}", forbidden=forbidden)


def _after(
    action: Action, judged: Judged, state: PartitionState, what: str, otherwise: Status, *, is_written: bool = False
) -> Result:
    """The result, according to a read of the partition after a marker was sent. is_written: whether the broker said
    that the marker is in the log of all replicas in sync. Otherwise a closed transaction shows no marker: a replica
    that rebuilt its state may lead now, after the records of the transaction were deleted.
    """
    if state.error is not None:
        return Result(action, Status.UNKNOWN, f"{what}, and the partition cannot be read: {state.error}")
    if state.is_open:
        return Result(action, otherwise, f"{what}, but the transaction is still open: sweep and plan again")
    before = judged.observation.second.last_stable_offset
    moved = f"the last stable offset went from {before} to {state.last_stable_offset}"
    held = f", and another transaction keeps it below the high watermark {state.high_watermark}"
    free = state.last_stable_offset == state.high_watermark
    gone = f"{what} and the transaction is gone: {moved}{'' if free else held}"
    if not is_written:
        return Result(action, Status.GONE, f"{gone}. It is not known whether the marker of this apply ended it")
    return Result(action, Status.RESOLVED, gone)
