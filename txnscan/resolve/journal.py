"""The journal of apply in the tables: each intent before its marker, each outcome after.

Rows are only ever appended, each in a transaction of its own that is done before the next step begins.
"""

from __future__ import annotations

import getpass
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from txnscan import __version__
from txnscan.evidence.tasks import wall_clock_ms
from txnscan.model import KnownOutcome
from txnscan.resolve.apply import Attempt, JournalLost, Status
from txnscan.resolve.guard import Stored
from txnscan.resolve.lock import Lock, this_process
from txnscan.resolve.plan import Action, Plan, PlanRefused
from txnscan.store.schema import INCIDENTS, OPEN_TRANSACTIONS, RESOLUTIONS, SWEEPS
from txnscan.store.tables import Tables, known_outcome, why_failed


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
    """See `apply.Journal`. lock: of the one apply on the cluster, entered by the caller; None where nothing is sent.
    principal: who applies, to Kafka; None where no broker is asked.
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
            raise JournalLost(_lost("this apply's turn cannot be renewed", error)) from error

    def planned(self, plan: Plan) -> None:
        """Stores that this plan was made from these tables."""
        entries = [self._entry(plan, action, "planned", plan.digest) for action in plan.actions]
        self._tables.append(RESOLUTIONS, entries, once=f"{plan.digest}-planned")

    def check_planned(self, plan: Plan) -> None:
        """That this very plan was made from these tables. Raises PlanRefused."""
        rows = self._rows().where((F.col("plan_digest") == plan.digest) & (F.col("step") == "planned"))
        if plan.actions and not rows.take(1):
            raise PlanRefused("it was not made from the tables at --tables; plan again from these")

    def attempts(self, cluster_id: str) -> Sequence[Attempt]:
        """See Journal."""
        rows = self._rows().where(F.col("cluster_id") == cluster_id)
        steps = rows.where(F.col("step") != "planned").withColumn("at_ms", F.unix_millis("at")).orderBy("at")
        found = [row.asDict() for row in steps.collect()]
        outcomes = {row["attempt_id"]: (row["status"], row["detail"]) for row in found if row["step"] == "outcome"}
        return [
            Attempt(
                row["attempt_id"],
                row["plan_digest"],
                row["at_ms"],
                _action(row),
                *outcomes.get(row["attempt_id"], (None, None)),
            )
            for row in found
            if row["step"] == "intent"
        ]

    def known(self, action: Action) -> KnownOutcome | None:
        """See Journal."""
        incidents = self._tables.rows(INCIDENTS).where(F.col("incident_id") == action.incident_id).collect()
        return known_outcome(incidents[0]) if incidents else None

    def remember(self, action: Action, known: KnownOutcome) -> None:
        """See Journal."""
        self._tables.remember(action.incident_id, known)

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
            said = f"the {entry.step} for {entry.action.where} cannot be written to the journal"
            raise JournalLost(_lost(said, error)) from error

    def _rows(self) -> DataFrame:
        return self._tables.rows(RESOLUTIONS)

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


def _lost(said: str, error: Exception) -> str:
    return f"--tables: {said}: {why_failed(error)}; nothing more is sent"


def _os_user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a number without a name.
        return None


def _action(row: dict[str, Any]) -> Action:
    """The action of a row, as far as the journal keeps it."""
    kept: dict[str, Any] = {field.name: row.get(field.name) for field in fields(Action)}
    return Action(**kept | {"why": ""})


def stored_hanging(tables: Tables, sweep_id: str) -> list[Stored]:
    """What the tables have of each transaction that this finished sweep called hanging, in the order of partitions."""
    sweeps = tables.rows(SWEEPS).select(
        "sweep_id", "late_after_ms", "max_timeout_ms", F.unix_millis("finished_at").alias("swept_at_ms")
    )
    incidents = tables.rows(INCIDENTS).select(
        *("cluster_id", "incident_id", "topic", "topic_id", "partition", "producer_id", "start_offset", "sweeps"),
        *("outcome", "outcome_reason"),
        F.coalesce("owner_committed", F.lit(False)).alias("owner_committed"),
    )
    hanging = (
        tables.rows(OPEN_TRANSACTIONS)
        .where((F.col("sweep_id") == sweep_id) & (F.col("verdict") == "hanging"))
        .withColumn("first_seen_ms", F.unix_millis("first_seen_at"))
        .withColumn("owner_epoch", F.col("coordinator_producer_epoch"))
        # What is known best is the incident's, whatever this sweep could still see.
        .drop("outcome", "outcome_reason")
        .join(sweeps, "sweep_id")
        .join(incidents, ["cluster_id", "topic", "topic_id", "partition", "producer_id", "start_offset"])
        .orderBy("topic", "partition", "start_offset", "producer_id")
    )
    return [Stored(**row.asDict()) for row in hanging.select(*(f.name for f in fields(Stored))).collect()]
