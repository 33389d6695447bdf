"""The plan: a file that lists which markers to send, which not, and why. Pure.

A person can read it, and a scheduler can keep it. It has each marker as it would be sent, and each refused transaction
with the guard that refused it. A digest over the whole file detects edits. Apply accepts the plan only unedited, while
it is fresh, and on its own cluster.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from txnscan.config import ConfigError, printable
from txnscan.errors import ExitStatus
from txnscan.kafka.units import duration
from txnscan.reads.observation import TransactionRef
from txnscan.resolve.guard import (
    ACCEPT_UNKNOWN,
    COMPLETE_COMMITS,
    Allowed,
    Limits,
    Refused,
    StoredTransaction,
    guarded_together,
)
from txnscan.resolve.offer import in_words
from txnscan.unique_json import unique_json
from txnscan.verdict.evidence import Outcome, Reason

FORMAT = 2
MAX_AGE_MS = 3_600_000
_PLAN_BYTES_MAX = 64 * 1024 * 1024
_WHY_LENGTH_MAX, _REMEDY_LENGTH = 500, 100
_EPOCH_MAX = 32_767
_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1
_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class Action(TransactionRef):
    """One marker to write. `reason`, `outcome`: must be unchanged when the marker is written. needs: the option of
    apply that this marker requires, if any.
    """

    incident_id: str
    reason: str
    outcome: str
    why: str
    marker: str = "ABORT"
    needs: str | None = None
    transactional_id: str | None = None
    blocked_records: int | None = None

    @property
    def commit(self) -> bool:
        return self.marker == "COMMIT"

    @property
    def offer(self) -> str:
        """The marker and the option that it needs, in a sentence, as all reports say it."""
        return in_words(Allowed(self.commit, self.needs))


@dataclass(frozen=True, slots=True)
class Refusal(TransactionRef):
    """A hanging transaction that the plan leaves open: the guard that refused it, and why."""

    incident_id: str
    reason: str
    outcome: str | None
    guard: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions about the hanging transactions of one sweep. Times are epoch milliseconds.

    scope: of the sweep: "all", or its limits; the plan covers only this scope. swept_at_ms: when the sweep began.
    warnings: those of the sweep.
    """

    cluster_id: str
    sweep_id: str
    scope: str
    swept_at_ms: int
    warnings: tuple[str, ...]
    planned_at_ms: int
    late_after_ms: int
    version: str
    actions: tuple[Action, ...]
    refused: tuple[Refusal, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over all fields of the plan."""
        return _digest(_body(self))


def make_plan(
    stored: Sequence[StoredTransaction],
    limits: Limits,
    *,
    cluster_id: str,
    sweep_id: str,
    swept_at_ms: int,
    planned_at_ms: int,
    version: str,
    scope: str = "all",
    warnings: Sequence[str] = (),
) -> Plan:
    """The plan for the hanging transactions of a sweep."""
    decided = list(zip(stored, guarded_together(stored, limits), strict=True))
    return Plan(
        cluster_id=cluster_id,
        sweep_id=sweep_id,
        scope=scope,
        swept_at_ms=swept_at_ms,
        warnings=tuple(warnings),
        planned_at_ms=planned_at_ms,
        late_after_ms=max((one.late_after_ms for one in stored), default=0),
        version=version,
        actions=tuple(_action(one, answer) for one, answer in decided if isinstance(answer, Allowed)),
        refused=tuple(_refusal(one, answer) for one, answer in decided if isinstance(answer, Refused)),
    )


def _action(stored: StoredTransaction, allowed: Allowed) -> Action:
    outcome = str(stored.outcome).replace("_", " ")
    return Action(
        **{f.name: getattr(stored, f.name) for f in fields(Action) if f.name not in ("marker", "needs", "why")},
        marker="COMMIT" if allowed.commit else "ABORT",
        needs=allowed.needs,
        why=f"{stored.explanation} Outcome {outcome}: {stored.outcome_reason}.",
    )


def _refusal(stored: StoredTransaction, refused: Refused) -> Refusal:
    return Refusal(
        **{f.name: getattr(stored, f.name) for f in fields(Refusal) if f.name not in ("guard", "why")},
        guard=refused.guard,
        why=refused.why,
    )


# --- the file ---------------------------------------------------------------------------------------------------------


def to_json(plan: Plan) -> str:
    """The text of the plan file."""
    return json.dumps(plan_object(plan), indent=2) + "\n"


def plan_object(plan: Plan) -> dict[str, Any]:
    """The plan as one JSON object, with its digest."""
    body = _body(plan)
    return {**body, "digest": _digest(body)}


def _body(plan: Plan) -> dict[str, Any]:
    return {
        "txnscan_plan": FORMAT,
        **{f.name: getattr(plan, f.name) for f in fields(Plan) if f.name not in ("actions", "refused")},
        "actions": [_row(action) for action in plan.actions],
        "refused": [_row(refusal) for refusal in plan.refused],
    }


def _row(item: Action | Refusal) -> dict[str, Any]:
    return {f.name: getattr(item, f.name) for f in fields(item)}


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class PlanRefused(ConfigError):
    """Apply refuses this plan. `str()` says why, and what to do."""

    exit_status = ExitStatus.REFUSED

    def __init__(self, why: str) -> None:
        # It may have any text of the file, which has up to 64 MiB. The remedy is at its end.
        self._why = why if len(why) <= _WHY_LENGTH_MAX else f"{why[:_WHY_LENGTH_MAX]} ... {why[-_REMEDY_LENGTH:]}"
        super().__init__("plan", self._why)

    def of(self, path: str) -> PlanRefused:
        """The same refusal, with the path of the file."""
        return PlanRefused(f"{printable(path)}: {self._why}")


def from_json(text: str) -> Plan:
    """The plan in this file. Raises PlanRefused unless the file is a complete, unedited plan of this format."""
    if len(text) > _PLAN_BYTES_MAX:
        raise PlanRefused("the file is too large for a plan")
    try:
        found = unique_json(text)
        digest = _digest({name: value for name, value in found.items() if name != "digest"})
    except ValueError:
        why = "the file is not JSON as txnscan writes it; make one with `txnscan plan --out`"
        raise PlanRefused(why) from None
    except AttributeError:
        found = None
    if not isinstance(found, dict) or "txnscan_plan" not in found:
        raise PlanRefused("the file is not a plan of txnscan; make one with `txnscan plan --out`")
    if type(found["txnscan_plan"]) is not int or found["txnscan_plan"] != FORMAT:
        raise PlanRefused(f"its format is {found['txnscan_plan']!r} and this version reads {FORMAT}; plan again")
    if found.pop("digest", None) != digest:
        raise PlanRefused("it was edited or truncated after it was made; plan again")
    plan = _whole(found)
    _check(plan)
    return plan


def _whole(found: Mapping[str, Any]) -> Plan:
    """The plan with these fields. Raises PlanRefused if a field is missing, unknown or of the wrong type."""
    head = {name: value for name, value in found.items() if name != "txnscan_plan"}
    if "warnings" in head:
        if not isinstance(head["warnings"], list) or not all(isinstance(one, str) for one in head["warnings"]):
            raise PlanRefused("it has no list of warnings; plan again")
        head["warnings"] = tuple(head["warnings"])
    rows = {"actions": Action, "refused": Refusal}
    for name, row_type in rows.items():
        if not isinstance(head.get(name), list):
            raise PlanRefused(f"it has no list of {name}; plan again")
        head[name] = tuple(_typed(row_type, row, name) for row in head[name])
    plan: Plan = _typed(Plan, head, "plan")
    return plan


_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "str | None": (str, type(None)),
    "int | None": (int, type(None)),
    "tuple[str, ...]": (tuple,),
    "tuple[Action, ...]": (tuple,),
    "tuple[Refusal, ...]": (tuple,),
}


def _typed(row_type: Any, row: Any, what: str) -> Any:
    wanted = {f.name: _TYPES[str(f.type)] for f in fields(row_type)}
    if not isinstance(row, dict) or row.keys() != wanted.keys():
        raise PlanRefused(f"an entry of {what} has missing or unknown fields; plan again")
    for name, types in wanted.items():
        if not isinstance(row[name], types) or isinstance(row[name], bool):
            raise PlanRefused(f"{name} in {what} has the type {type(row[name]).__name__}; plan again")
    return row_type(**row)


def _check(plan: Plan) -> None:
    """Checks for values that no plan can have, even if the digest is right. Raises PlanRefused."""
    seen: set[object] = set()
    # The first action of each producer id and epoch.
    alike: dict[tuple[int, int], Action] = {}
    for action in plan.actions:
        for name, why in _impossible(action):
            raise PlanRefused(f"{name} of {action.topic!r}: {why}")
        identities = {action.incident_id, (action.topic, action.partition, action.producer_id)}
        if identities & seen:
            raise PlanRefused(f"it has {action.topic_partition} twice for producer id {action.producer_id}")
        seen |= identities
        first = alike.setdefault((action.producer_id, action.producer_epoch), action)
        if first.commit is not action.commit:
            raise PlanRefused(
                f"its markers on {first.topic_partition} and {action.topic_partition} contradict each other, for "
                f"producer id {action.producer_id} at epoch {action.producer_epoch}"
            )


def _impossible(a: Action) -> list[tuple[str, str]]:
    ranges = {
        "partition": (0, _INT_MAX),
        "producer_id": (0, _LONG_MAX),
        "producer_epoch": (0, _EPOCH_MAX),
        "coordinator_epoch": (-1, _INT_MAX),
        "start_offset": (0, _LONG_MAX),
    }
    wrong = [
        (name, f"{getattr(a, name)} is not between {low} and {high}")
        for name, (low, high) in ranges.items()
        if not low <= getattr(a, name) <= high
    ]
    needs = {
        Outcome.COMMITTED: ("COMMIT", COMPLETE_COMMITS),
        Outcome.NOT_COMMITTED: ("ABORT", None),
        Outcome.UNKNOWN: ("ABORT", ACCEPT_UNKNOWN),
    }
    if _TOPIC.fullmatch(a.topic) is None:
        wrong.append(("topic", "it is not a legal topic name"))
    if a.reason not in (Reason.ORPHAN, Reason.STALE_EPOCH, Reason.MISSED_COMMIT):
        wrong.append(("reason", f"no marker is sent for {a.reason!r}"))
    elif a.outcome not in needs or needs[Outcome(a.outcome)] != (a.marker, a.needs):
        wrong.append(("marker", f"{a.marker!r} does not follow from outcome {a.outcome!r}"))
    elif a.reason == Reason.MISSED_COMMIT and a.outcome == Outcome.UNKNOWN:
        wrong.append(("marker", "data that may be committed is never aborted"))
    return wrong


def check_plan(plan: Plan, *, cluster_id: str, now_ms: int, max_age_ms: int) -> None:
    """Checks that the plan is for this cluster, and fresh. Raises PlanRefused."""
    if plan.cluster_id != cluster_id:
        raise PlanRefused(f"it is for cluster {plan.cluster_id}, and the brokers are in cluster {cluster_id}")
    age_ms = now_ms - plan.planned_at_ms
    if age_ms > max_age_ms:
        raise PlanRefused(
            f"it is {duration(age_ms)} old, and at most {duration(max_age_ms)} is allowed; sweep and plan again"
        )
    if age_ms < -60_000:
        raise PlanRefused(f"it is dated {-age_ms // 1000} s ahead of this clock; set the clocks, and plan again")
