"""What the tables remember: sweeps, incidents, one incident's life, and the journal of apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from txnscan.config import ConfigError, printable
from txnscan.model import TransactionKey
from txnscan.store.schema import INCIDENTS, OPEN_TRANSACTIONS, RESOLUTIONS, SWEEPS
from txnscan.store.tables import Tables

Row = Mapping[str, Any]
# What makes a transaction on a partition the same one in every sweep.
_SWEEP = (
    *("sweep_id", "cluster_id", "started_at", "finished_at", "scope", "complete", "partitions_planned"),
    *("partitions_failed", "hanging", "candidates", "indeterminate", "errors", "warnings", "txnscan_version"),
)
_INCIDENT = (
    *("incident_id", "cluster_id", "topic", "partition", "producer_id", "producer_epoch", "start_offset", "reason"),
    *("late", "transactional_id", "blocked_records", "outcome", "outcome_reason", "first_seen_at", "last_seen_at"),
    *("last_sweep_id", "sweeps", "resolved_at", "resolved_how"),
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
class Remembered:
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


def remembered(tables: Tables, cluster_id: str | None, limit: int) -> Remembered:
    """At most `limit` of each, of a cluster or of all. Raises ConfigError where there are no tables."""
    of = F.lit(True) if cluster_id is None else F.col("cluster_id") == cluster_id
    open_first = (F.col("resolved_at").isNull().desc(), F.desc("last_seen_at"), *map(F.asc, ("topic", "partition")))
    return Remembered(
        sweeps=_rows(tables.rows(SWEEPS).where(of), _SWEEP, limit, F.desc("started_at"), F.desc("sweep_id")),
        incidents=_rows(tables.rows(INCIDENTS).where(of), _INCIDENT, limit, *open_first),
        journal=_rows(tables.rows(RESOLUTIONS).where(of), _STEP, limit, F.desc("at")),
    )


def life(tables: Tables, incident_id: str) -> Life:
    """The life of the incident whose id is this, or begins with it. Raises ConfigError where that is not one."""
    found = _rows(tables.rows(INCIDENTS).where(F.col("incident_id").startswith(incident_id)), None, 2)
    if len(found) != 1:
        why = "is the beginning of several; give more of it" if found else "is none; `txnscan history` lists them"
        raise ConfigError("--incident", f"'{printable(incident_id)}' {why}")
    (incident,) = found
    finished = tables.rows(SWEEPS).select("sweep_id")
    seen = tables.rows(OPEN_TRANSACTIONS).join(F.broadcast(finished), "sweep_id", "left_semi")
    for name in ("cluster_id", *TransactionKey._fields):
        seen = seen.where(F.col(name) == F.lit(incident[name]))
    journal = tables.rows(RESOLUTIONS).where(F.col("incident_id") == incident["incident_id"])
    return Life(
        incident={name: incident.get(name) for name in _INCIDENT},
        seen=_rows(seen, _SEEN, None, F.asc("started_at")),
        journal=_rows(journal, _STEP, None, F.asc("at")),
    )


def _rows(rows: DataFrame, columns: tuple[str, ...] | None, limit: int | None, *order: Column) -> list[Row]:
    """These columns of the rows, in this order; what tables of an earlier version do not have is null."""
    chosen = rows if columns is None else rows.select(*(name for name in columns if name in rows.columns))
    in_order = rows.orderBy(*order).select(*chosen.columns) if order else chosen
    found = (in_order if limit is None else in_order.limit(limit)).collect()
    return [{**dict.fromkeys(columns or ()), **row.asDict(recursive=True)} for row in found]
