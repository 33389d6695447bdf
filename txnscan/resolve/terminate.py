"""Fencing: make the coordinator end the whole transaction of a transactional id, and fence its producer.

A marker ends a transaction on one partition, without its coordinator. Fencing makes the coordinator abort the id's
ongoing transaction on all its partitions and raise the epoch, so that a live producer fails with an error. Fence before
a marker if the owner of the hanging transaction is still at its epoch. Fencing does not end the hanging transaction
itself, because no coordinator has it. So the result advises to sweep again.

    journal the intent -> describe -> InitProducerId, again while the coordinator is ending the transaction -> describe
                       -> journal the outcome

If no answer comes, the request is not sent again: the application may have initialised the id in the meantime, and
would be fenced a second time. Instead, the id is described. Brokers, the journal and the clock are arguments.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from txnscan.config import ConfigError, printable
from txnscan.coordinators.transactions import Transaction, key_of
from txnscan.errors import ExitStatus, TxnscanError
from txnscan.kafka.answers import PREPARED, State
from txnscan.kafka.errors import ErrorCode, RequestFailed, answered, error_name
from txnscan.kafka.failure import FailureCode
from txnscan.kafka.protocol.init_producer_id import Fenced
from txnscan.kafka.security.acls import explained, needing
from txnscan.kafka.security.needs import WRITE_IDS
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key
from txnscan.kafka.units import duration, plural
from txnscan.resolve.apply import FORCE_TERMINATE, Journal, Result, Status
from txnscan.resolve.guard import fence_refusal
from txnscan.resolve.plan import Action, Plan
from txnscan.sweeps.result import Scan
from txnscan.verdict.evidence import Outcome, Verdict
from txnscan.verdict.outcome import may_join_commit
from txnscan.verdict.predicates import open_at_both_reads, partition_doubt
from txnscan.version import __version__
from txnscan.waiting.owner import may_be_flinks

# The coordinator answers these while it ends the transaction, loads, or moves. Then the request is sent again.
_AGAIN = (
    *(ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    *(ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
)
_WAIT_S = 0.2
# As many as Kafka's tool, which gives up after default.api.timeout.ms.
TRIES_MAX = 300


class TerminateRefused(ConfigError):
    """An id is not fenced. The message says why, and what to do."""

    exit_status = ExitStatus.REFUSED


class Undescribed(TxnscanError):
    """The coordinator does not describe the id. It may be mistyped, and InitProducerId would create it."""


class Coordinators(Protocol):
    """The requests that fencing sends to a cluster."""

    @property
    def principal(self) -> str:
        """The principal as brokers see it; used in the commands that grant it permissions."""
        ...

    def describe(self, transactional_id: str) -> Transaction:
        """The id as its coordinator describes it. Raises RequestFailed, also if there is no such id."""
        ...

    def fence(self, transactional_id: str, timeout_ms: int) -> Fenced:
        """Asks the id's coordinator to fence it, once. Raises RequestFailed."""
        ...

    def timeout_max_ms(self, transactional_id: str) -> int:
        """`transaction.max.timeout.ms` of the id's coordinator. Raises RequestFailed."""
        ...


@dataclass(frozen=True, slots=True)
class Terminated:
    """The result of fencing, with the id before and after; `after` only if it could be described."""

    result: Result
    before: Transaction
    after: Transaction | None


def aborted_keys(one: Transaction) -> list[Key]:
    """The partitions on which a fence of this id aborts a transaction. Pure."""
    return [key_of(name) for name in one.partitions] if one.state == State.ONGOING else []


def refusal(one: Transaction, swept: Scan | None) -> str | None:
    """Why fencing this id needs --force with a reason, if it does. Pure.

    swept: a sweep that looked at the partitions of `aborted_keys`; None if the metadata shows none of them.
    """
    transactions = swept.transactions if swept is not None else ()
    torn = any(j.endangers_commit for j in transactions if j.observation.producer_id == one.producer_id)
    doubts = {key: doubt for key in aborted_keys(one) if (doubt := _doubt(one, swept, *key))}
    refused = fence_refusal(two_phase_commit=one.two_phase_commit, endangers_commit=torn)
    if refused is not None or not doubts:
        return refused
    (topic, index), why = next(iter(doubts.items()))
    return (
        f"its abort may delete records on {printable(topic)}-{index} that an earlier transaction committed: {why}; "
        "give --force REASON if these records may be lost"
    )


def _doubt(one: Transaction, swept: Scan | None, topic: str, index: int) -> str | None:
    """Why the abort may delete committed records on a partition, if it may."""
    if swept is None:
        return "it is not in the brokers' metadata"
    failed = [error.failure for error in swept.errors if (error.topic, error.partition) == (topic, index)]
    if failed:
        return str(failed[0])
    for judged in swept.transactions:
        o, verdict = judged.observation, judged.judgement.verdict
        if o.key != (topic, index) or o.producer_id != one.producer_id or verdict is Verdict.GONE:
            continue
        if verdict not in (Verdict.ONGOING, Verdict.LATE_ONGOING):
            return judged.judgement.explanation
        evidence, doubt = swept.evidence_of_outcome(judged), partition_doubt(judged.evidence)
        if evidence is not None:
            return may_join_commit(evidence)
        # Without evidence its first batch is its own. Data above the high watermark was acknowledged to nobody.
        is_seen = open_at_both_reads(judged.evidence) or (doubt and doubt.code == FailureCode.ABOVE_HIGH_WATERMARK)
        return None if is_seen else str(doubt)
    # Nothing is written there yet.
    return None if (topic, index) in swept.proven else "it was not read"


def warnings(one: Transaction) -> list[str]:
    """The consequences of fencing this id, one sentence each. Pure."""
    said = [
        "this fences the producer that has the id, alive or not: its next request fails, and its application must call "
        "initTransactions again"
    ]
    if one.partitions and one.state == State.ONGOING:
        where = plural(len(one.partitions), "partition")
        said.append(f"it aborts the whole transaction of the id, on {where}")
    if may_be_flinks(one.transactional_id) and one.state not in PREPARED:
        said.append(
            "the id may be Flink's, by its format: if a completed checkpoint or savepoint of a job has its "
            "transaction, Flink counts the records as delivered, and an abort loses them. First check the job"
        )
    if one.state in PREPARED:
        said.append(f"its transaction is already decided ({one.state}): it stands, and the fence waits for its markers")
    said.append(
        "it does not end a hanging transaction, because no coordinator has that transaction: sweep again afterwards"
    )
    return said


def action_for(one: Transaction, leader_epoch: int) -> Action:
    """The journal's action for fencing an id. Its partition is the one of `__transaction_state` that the coordinator
    writes to.
    """
    return Action(
        incident_id=f"{FORCE_TERMINATE}-{one.transactional_id}",
        topic=TRANSACTION_STATE_TOPIC,
        topic_id="",
        partition=one.coordinator_partition if one.coordinator_partition is not None else 0,
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch if one.producer_epoch is not None else -1,
        coordinator_epoch=leader_epoch,
        start_offset=-1,
        reason=FORCE_TERMINATE,
        outcome=Outcome.UNKNOWN.value,
        why="",
        transactional_id=one.transactional_id,
    )


def plan_of(action: Action, cluster_id: str, now_ms: int) -> Plan:
    """A plan with this action alone; the journal needs a plan."""
    return Plan(
        cluster_id=cluster_id,
        sweep_id=f"fence-{uuid.uuid4()}",
        scope=f"id={action.transactional_id}",
        swept_at_ms=now_ms,
        warnings=(),
        planned_at_ms=now_ms,
        late_after_ms=0,
        version=__version__,
        actions=(action,),
        refused=(),
    )


def terminate(
    plan: Plan,
    action: Action,
    before: Transaction,
    coordinators: Coordinators,
    journal: Journal,
    *,
    timeout_ms: int,
    sleep: Callable[[float], None],
    forced: str | None = None,
) -> Terminated:
    """Fences the id. The id keeps its transaction timeout, if its coordinator allows it.

    timeout_ms: used for an id without a timeout; also used if the coordinator refuses the id's timeout and does not
    report its maximum. Raises JournalLost.
    """
    why = f"fence '{before.transactional_id}'" + (f", forced: {forced}" if forced is not None else "")
    journal.hold()
    attempt_id = journal.intend(plan, action, why)
    terminated = _terminated(action, before, coordinators, timeout_ms, sleep, journal)
    journal.conclude(plan, attempt_id, action, terminated.result.status, terminated.result.detail)
    return terminated


def _terminated(
    action: Action,
    before: Transaction,
    coordinators: Coordinators,
    timeout_ms: int,
    sleep: Callable[[float], None],
    journal: Journal,
) -> Terminated:
    name = before.transactional_id
    own = before.timeout_ms
    keeps = own if own is not None and own > 0 and not before.two_phase_commit else timeout_ms
    code = ErrorCode.NONE.value
    for attempt in range(TRIES_MAX):
        if attempt:
            journal.hold()
            sleep(_WAIT_S)
        try:
            fenced = coordinators.fence(name, keeps)
        except RequestFailed as failed:
            # An earlier request may have fenced the id, even if this one was not sent.
            if failed.sent or attempt:
                return _unanswered(action, before, coordinators, failed.error)
            return Terminated(Result(action, Status.FAILED, f"it was not fenced: {failed.error}"), before, None)
        code = fenced.error_code
        if code == ErrorCode.NONE:
            return _after(action, before, fenced, coordinators)
        if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            # The id's timeout was set when the broker allowed a longer one than now.
            longest = _timeout_max_ms(coordinators, name, timeout_ms)
            if longest < keeps:
                keeps = longest
                continue
        if code not in _AGAIN:
            needs = explained(needing(answered(code), WRITE_IDS.on(name)), coordinators.principal)
            return Terminated(Result(action, Status.FAILED, f"it was not fenced: {needs}"), before, None)
    waited = duration(round(TRIES_MAX * _WAIT_S * 1_000))
    late = (
        f"its coordinator still answers {error_name(code)} after {waited}; describe the id to see which marker it owes"
    )
    return Terminated(Result(action, Status.UNKNOWN, late), before, _described(name, coordinators))


def _timeout_max_ms(coordinators: Coordinators, name: str, otherwise_ms: int) -> int:
    """The longest timeout that the coordinator allows; `otherwise_ms` if it does not report one."""
    try:
        return coordinators.timeout_max_ms(name)
    except RequestFailed:
        return otherwise_ms


def _after(action: Action, before: Transaction, fenced: Fenced, coordinators: Coordinators) -> Terminated:
    ended = before.partitions and before.state == State.ONGOING
    what = f"its transaction was aborted on {plural(len(before.partitions), 'partition')}; " if ended else ""
    epochs = f"epoch {before.producer_epoch} of producer id {before.producer_id}"
    now = f"epoch {fenced.producer_epoch}" + (
        f" of producer id {fenced.producer_id}" if fenced.producer_id != before.producer_id else ""
    )
    detail = f"{what}the producer at {epochs} is fenced: the id is at {now} now. Sweep again"
    return Terminated(
        Result(action, Status.RESOLVED, detail), before, _described(before.transactional_id, coordinators)
    )


def _unanswered(action: Action, before: Transaction, coordinators: Coordinators, error: str) -> Terminated:
    """The result if no answer came: the id's epoch shows whether it was fenced."""
    after = _described(before.transactional_id, coordinators)
    said = f"no answer came ({error})"
    if after is None:
        return Terminated(Result(action, Status.UNKNOWN, f"{said}, and the id cannot be described"), before, None)
    moved = (after.producer_id, after.producer_epoch) != (before.producer_id, before.producer_epoch)
    if moved:
        epochs = f"{before.producer_epoch} to {after.producer_epoch}"
        how = "it was fenced, or its application called initTransactions"
        detail = f"{said}, and its epoch went from {epochs}: {how}. Sweep again"
        return Terminated(Result(action, Status.UNKNOWN, detail), before, after)
    return Terminated(Result(action, Status.NOT_RESOLVED, f"{said}, and its epoch has not changed"), before, after)


def _described(name: str, coordinators: Coordinators) -> Transaction | None:
    try:
        return coordinators.describe(name)
    except RequestFailed:
        return None
