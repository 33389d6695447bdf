"""The journal of apply in the tables: the intent before each marker, the outcome after it.

Rows are only appended. Each row has its own commit, which is complete before the next step begins.
"""

from __future__ import annotations

import getpass
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from txnscan.kafka.clock import wall_clock_ms
from txnscan.resolve.apply import Attempt, JournalLost, Status
from txnscan.resolve.lock import Lock, this_process
from txnscan.resolve.plan import Action, Plan, PlanRefused
from txnscan.sweeps.column import epoch_ms
from txnscan.tables.conditions import Is, IsNot
from txnscan.tables.delta import By
from txnscan.tables.facts import LearnedFacts
from txnscan.tables.schema import FACTS, RESOLUTIONS
from txnscan.tables.tables import Tables
from txnscan.txnlog.facts import ProducerFacts, SeenMarker
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
        facts = ProducerFacts(markers=(marker,))
        history = self._tables.past(plan.cluster_id)().history
        learned = LearnedFacts(plan.cluster_id, None, self._now_ms(), marker.producer_id, facts, history)
        self._tables.append(FACTS, [learned], once=once)

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
