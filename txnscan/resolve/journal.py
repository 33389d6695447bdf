"""The journal of apply in the tables: the intent before each marker, the outcome after it.

Rows are only appended. Each row has its own commit, which is complete before the next step begins.
"""

from __future__ import annotations

import getpass
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from txnscan.engine.clock import BootTime
from txnscan.engine.rows import from_row
from txnscan.kafka.clock import wall_clock_ms
from txnscan.kafka.failure import Failure
from txnscan.resolve.apply import Attempt, JournalLost, Status
from txnscan.resolve.guard import Stored
from txnscan.resolve.lock import Lock, this_process
from txnscan.resolve.plan import Action, Plan, PlanRefused
from txnscan.resolve.watched import SweepTime, watched_ms
from txnscan.sweeps.log_reads import with_stored
from txnscan.tables.conditions import Is, IsNot, OneOf
from txnscan.tables.delta import By, Row
from txnscan.tables.schema import MARKERS, OPEN_TRANSACTIONS, RESOLUTIONS, epoch_ms
from txnscan.tables.tables import Tables
from txnscan.txnlog.facts import NO_FACTS, ProducerFacts, SeenMarker
from txnscan.verdict.evidence import Evidence, OutcomeEvidence, Verdict
from txnscan.verdict.outcome import outcome
from txnscan.verdict.rules import judge
from txnscan.version import __version__


@dataclass(frozen=True, slots=True)
class _Entry:
    """A row of the journal."""

    attempt_id: str
    at_ms: int
    step: str
    status: str | None
    plan: Plan
    action: Action
    detail: str | None
    actor: str
    os_user: str | None
    principal: str | None
    version: str = __version__


class TablesJournal:
    """See `apply.Journal`. lock: the lock of the only apply on the cluster, which the caller has entered; needed only
    to send markers. principal: the Kafka principal of this apply, if it asks brokers.
    """

    def __init__(
        self,
        tables: Tables,
        lock: Lock | None = None,
        *,
        principal: str | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._tables = tables
        self._lock = lock
        self._principal = principal
        self._now_ms = now_ms

    def hold(self) -> None:
        """See Journal."""
        if self._lock is None:
            raise JournalLost("this apply does not hold the lock")
        try:
            self._lock.hold()
        except JournalLost:
            raise
        except Exception as error:
            raise JournalLost(self._lost("the lock of this apply cannot be renewed", error)) from error

    def planned(self, plan: Plan) -> None:
        """Stores that this plan was made from these tables."""
        entries = [self._entry(plan, action, "planned", plan.digest) for action in plan.actions]
        self._tables.append(RESOLUTIONS, entries, once=f"{plan.digest}-planned")

    def check_planned(self, plan: Plan) -> None:
        """Checks that this very plan was made from these tables. Raises PlanRefused."""
        of = (Is("plan_digest", plan.digest), Is("step", "planned"))
        if plan.actions and not self._tables.rows(RESOLUTIONS, *of, limit=1):
            raise PlanRefused("it was not made from the tables at --tables; plan again from these tables")

    def attempts(self, cluster_id: str) -> Sequence[Attempt]:
        """See Journal."""
        of = (Is("cluster_id", cluster_id), IsNot("step", "planned"))
        found = self._tables.rows(RESOLUTIONS, *of, order=(By("at"),))
        outcomes = {row["attempt_id"]: (row["status"], row["detail"]) for row in found if row["step"] == "outcome"}
        return [
            Attempt(
                row["attempt_id"],
                row["plan_digest"],
                epoch_ms(row["at"]),
                _action(row),
                *outcomes.get(row["attempt_id"], (None, None)),
            )
            for row in found
            if row["step"] == "intent"
        ]

    def remember(self, plan: Plan, marker: SeenMarker) -> None:
        """See Journal."""
        once = f"{plan.cluster_id}-{marker.topic}-{marker.partition}-{marker.offset}"
        self._tables.append(MARKERS, [(plan.cluster_id, self._now_ms(), marker)], once=once)

    def intend(self, plan: Plan, action: Action, forced: str | None) -> str:
        """See Journal."""
        attempt_id = str(uuid.uuid4())
        detail = None if forced is None else f"forced: {forced}"
        self._append(self._entry(plan, action, "intent", attempt_id, detail=detail))
        return attempt_id

    def conclude(self, plan: Plan, attempt_id: str, action: Action, status: Status, detail: str) -> None:
        """See Journal."""
        self._append(self._entry(plan, action, "outcome", attempt_id, status.value, detail))

    def _append(self, entry: _Entry) -> None:
        try:
            self._tables.append(RESOLUTIONS, [entry], once=f"{entry.attempt_id}-{entry.step}")
        except Exception as error:
            said = f"the {entry.step} for {entry.action.topic_partition} cannot be written to the journal"
            raise JournalLost(self._lost(said, error)) from error

    def _lost(self, said: str, error: Exception) -> str:
        return f"--tables: {said}: {self._tables.why_failed(error)}; no more markers are sent"

    def _entry(
        self,
        plan: Plan,
        action: Action,
        step: str,
        attempt_id: str,
        status: str | None = None,
        detail: str | None = None,
    ) -> _Entry:
        return _Entry(
            attempt_id=attempt_id,
            at_ms=self._now_ms(),
            step=step,
            status=status,
            plan=plan,
            action=action,
            detail=detail,
            actor=str(this_process()),
            os_user=_os_user(),
            principal=self._principal,
        )


def _os_user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a user id without a name.
        return None


def _action(row: dict[str, Any]) -> Action:
    """The action of a row, with the fields that the journal stores."""
    kept: dict[str, Any] = {field.name: row.get(field.name) for field in fields(Action)}
    return Action(**kept | {"why": ""})


def stored_hanging(tables: Tables, sweep_id: str) -> list[Stored]:
    """Each transaction that this finished sweep judged hanging, as the tables have it, ordered by partition."""
    sweep = tables.sweep(sweep_id)
    if sweep is None:
        return []
    of_sweep = (Is("sweep_id", sweep_id), Is("verdict", "hanging"))
    order = tuple(map(By, ("topic", "partition", "start_offset", "producer_id")))
    hanging = tables.rows(OPEN_TRANSACTIONS, *of_sweep, columns=_OF_ROW, order=order)
    if not hanging:
        return []
    ids = frozenset(row["incident_id"] for row in hanging)
    of_cluster = (Is("cluster_id", sweep["cluster_id"]), OneOf("incident_id", ids))
    rows: dict[str, list[Row]] = defaultdict(list)
    sightings = tables.rows(OPEN_TRANSACTIONS, *of_cluster, columns=_OF_SIGHTING)
    sweeps = tables.sweeps({row["sweep_id"] for row in sightings}, _OF_SWEEP)
    for row in sightings:
        if row["sweep_id"] in sweeps:
            rows[row["incident_id"]].append({**sweeps[row["sweep_id"]], **row})
    facts = tables.facts(sweep["cluster_id"], {row["producer_id"] for row in hanging})()
    return [_stored(row, sweep, rows[row["incident_id"]], facts.get(row["producer_id"], NO_FACTS)) for row in hanging]


# The verdict is judged again from the evidence. The outcome, the first sighting and the number of sweeps are computed.
_OF_ROW = (
    *(column.name for column in OPEN_TRANSACTIONS.columns if column.name in {field.name for field in fields(Stored)}),
    *("coordinator_producer_epoch", "first_epoch", "first_sequence", "first_batch_failure", "evidence", "read_at"),
)
_OF_SWEEP = ("started_at", "finished_at", "boot_id", "since_boot_ms")
_OF_SIGHTING = ("incident_id", "sweep_id", "verdict", "read_at")


def _sweep_time(row: Row) -> SweepTime:
    """row: a sweep's columns, and the time at which the sweep read the partition."""
    boot = BootTime(row["boot_id"], row["since_boot_ms"]) if row["boot_id"] is not None else None
    return SweepTime(epoch_ms(row["read_at"]), epoch_ms(row["started_at"]), epoch_ms(row["finished_at"]), boot)


def _stored(row: Row, sweep: Row, rows: Sequence[Row], seen: ProducerFacts) -> Stored:
    """rows: the rows of this transaction from all finished sweeps that saw it."""
    proof = from_row(Evidence, row["evidence"])
    judgement = judge(proof)
    evidence = OutcomeEvidence(
        observation=proof.observation,
        owner_epoch=row["coordinator_producer_epoch"],
        first_epoch=row["first_epoch"],
        first_sequence=row["first_sequence"],
        batch_failure=from_row(Failure, row["first_batch_failure"]),
        logged=(),
        log_failure=from_row(Failure, row["log_failure"]),
        contradiction=None,
    )
    known = outcome(with_stored(evidence, seen))
    found = {
        **row,
        "verdict": judgement.verdict.value,
        "reason": judgement.reason.value,
        "explanation": judgement.explanation,
        "late_after_ms": sweep["late_after_ms"],
        "max_timeout_ms": sweep["max_timeout_ms"],
        "swept_at_ms": epoch_ms(row["read_at"]),
        "first_seen_ms": epoch_ms(row["read_at"]) - watched_ms(_sweep_time({**sweep, **row}), map(_sweep_time, rows)),
        "owner_epoch": row["coordinator_producer_epoch"],
        "outcome": known.outcome.value if row["outcome"] is not None else None,
        "outcome_reason": known.why,
        "log_failure": known.log_failure,
        "sweeps": len({one["sweep_id"] for one in rows if one["verdict"] == Verdict.HANGING}),
    }
    return Stored(**{field.name: found[field.name] for field in fields(Stored)})
