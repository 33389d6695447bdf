"""The history in the tables: sweeps, incidents, one incident's life, and the journal of apply."""

from __future__ import annotations

from dataclasses import dataclass

from txnscan.config import ConfigError, printable
from txnscan.tables.conditions import Is, StartsWith
from txnscan.tables.delta import By, Row
from txnscan.tables.schema import INCIDENTS, OPEN_TRANSACTIONS, RESOLUTIONS, SWEEPS
from txnscan.tables.tables import Tables

# The columns that are read of each table.
_SWEEP = (
    *("sweep_id", "cluster_id", "started_at", "finished_at", "scope", "complete", "partitions_planned"),
    *("partitions_failed", "hanging", "candidates", "indeterminate", "errors", "warnings", "txnscan_version"),
)
_INCIDENT = (
    *("incident_id", "cluster_id", "topic", "partition", "producer_id", "producer_epoch", "start_offset", "reason"),
    *("late", "transactional_id", "blocked_records", "outcome", "outcome_reason", "first_seen_at", "last_seen_at"),
    *("last_sweep_id", "sweeps", "resolved_at", "resolved_how", "cause", "owner_id", "event_id"),
)
_SEEN = (
    *("sweep_id", "started_at", "verdict", "reason", "late", "age_ms", "outcome", "blocked_records"),
    *("last_stable_offset", "high_watermark", "leader", "explanation"),
)
_STEP = (
    *("at", "step", "status", "marker", "topic", "partition", "producer_id", "producer_epoch", "start_offset"),
    *("incident_id", "outcome", "detail", "attempt_id", "plan_digest", "sweep_id", "cluster_id", "actor"),
    *("os_user", "principal", "txnscan_version"),
)


@dataclass(frozen=True, slots=True)
class RecentRows:
    """The last sweeps, the incidents that are open or were seen last, and the last steps of apply; newest first."""

    sweeps: list[Row]
    incidents: list[Row]
    journal: list[Row]


@dataclass(frozen=True, slots=True)
class Life:
    """One incident: as it is now, as each sweep saw it, and what apply did about it; oldest first."""

    incident: Row
    seen: list[Row]
    journal: list[Row]


def remembered(tables: Tables, cluster_id: str | None, limit: int) -> RecentRows:
    """At most `limit` of each, of a cluster or of all. Raises ConfigError without tables."""
    of = () if cluster_id is None else (Is("cluster_id", cluster_id),)
    open_first = (
        *(By("is_open", descending=True), By("last_seen_at", descending=True)),
        *(By("topic"), By("partition")),
    )
    newest = (By("started_at", descending=True), By("sweep_id", descending=True))
    return RecentRows(
        sweeps=tables.rows(SWEEPS, *of, columns=_SWEEP, order=newest, limit=limit),
        incidents=tables.rows(INCIDENTS, *of, columns=_INCIDENT, order=open_first, limit=limit),
        journal=tables.rows(RESOLUTIONS, *of, columns=_STEP, order=(By("at", descending=True),), limit=limit),
    )


def counted(tables: Tables, cluster_id: str | None) -> dict[str, int]:
    """How many rows each list of `remembered` has without a limit, by its name. Raises ConfigError without tables."""
    of = () if cluster_id is None else (Is("cluster_id", cluster_id),)
    lists = {"sweeps": SWEEPS, "incidents": INCIDENTS, "journal": RESOLUTIONS}
    return {name: len(tables.rows(table, *of, columns=("cluster_id",))) for name, table in lists.items()}


def life(tables: Tables, incident_id: str) -> Life:
    """The life of the incident whose id is this, or begins with it. Raises ConfigError unless there is exactly one."""
    found = tables.rows(INCIDENTS, StartsWith("incident_id", incident_id), limit=2)
    if len(found) != 1:
        why = "is the beginning of several; give more of it" if found else "is none; `txnscan history` lists them"
        raise ConfigError("--incident", f"'{printable(incident_id)}' {why}")
    (incident,) = found
    of_incident = Is("incident_id", incident["incident_id"])
    seen = tables.rows(OPEN_TRANSACTIONS, of_incident, columns=_SEEN, order=(By("started_at"),))
    return Life(
        incident={name: incident.get(name) for name in _INCIDENT},
        seen=tables.of_finished_sweeps(seen),
        journal=tables.rows(RESOLUTIONS, of_incident, columns=_STEP, order=(By("at"),)),
    )
