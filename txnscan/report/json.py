"""The one JSON object that `sweep`, `find-hanging` and `show` print. Its names are a contract."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from datetime import date, datetime
from typing import Any

from txnscan.report.plain import error_object, fall_object, iso, iso_utc, stored_error
from txnscan.sweeps.column import row_of
from txnscan.sweeps.result import Scan
from txnscan.sweeps.row import SHOWN_COLUMNS
from txnscan.verdict.evidence import Verdict


def sweep_summary(scan: Scan) -> dict[str, Any]:
    """The "sweep" object."""
    return {
        "sweep_id": scan.sweep_id,
        "cluster_id": scan.cluster_id,
        "started_at": iso_utc(scan.started_at_ms),
        "finished_at": iso_utc(scan.finished_at_ms),
        "complete": scan.complete,
        "partitions": {
            "planned": scan.partitions_planned,
            "answered": scan.partitions_planned - scan.partitions_failed,
            "failed": scan.partitions_failed,
        },
        "coordinators": {"planned": scan.coordinators_planned, "proven": scan.coordinators_proven},
        "counts": scan.counts,
        "candidates": len(scan.candidates),
        "scope": scan.scope,
        "late_after_ms": scan.late_after_ms,
        "blocking": len(scan.blocking),
        "blocking_after_ms": scan.blocking_after_ms,
        "history": scan.history,
        "vetoes_dropped": scan.vetoes_dropped,
        "went_back": fall_object(scan.fall),
        "warnings": list(scan.warnings),
        "stages": [asdict(stage) for stage in scan.stages],
        "engine": scan.engine.name.value,
        "engine_reason": scan.engine.reason.value,
    }


def scan_object(scan: Scan) -> dict[str, Any]:
    """The whole object of a sweep that was just made."""
    rows = (row_of(SHOWN_COLUMNS, scan, judged) for judged in scan.transactions)
    return {
        "sweep": sweep_summary(scan),
        "transactions": [{name: _struct(value) for name, value in row.items()} for row in rows],
        "errors": [error_object(error, scan.principal) for error in scan.errors],
    }


def _struct(value: Any) -> Any:
    """A struct, or a list of structs, as tables have it."""
    if isinstance(value, tuple):
        return [_struct(one) for one in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def stored_object(
    sweep: Mapping[str, Any], transactions: Iterable[Mapping[str, Any]], errors: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """The same object from the rows of the tables."""
    return {
        "sweep": {
            "sweep_id": sweep["sweep_id"],
            "cluster_id": sweep["cluster_id"],
            "started_at": sweep["started_at"],
            "finished_at": sweep["finished_at"],
            "complete": sweep["complete"],
            "partitions": {name: sweep[f"partitions_{name}"] for name in ("planned", "answered", "failed")},
            "coordinators": {name: sweep[f"coordinators_{name}"] for name in ("planned", "proven")},
            "counts": {verdict.value: sweep[verdict.value] for verdict in Verdict},
            "candidates": sweep["candidates"],
            "scope": sweep["scope"],
            "late_after_ms": sweep["late_after_ms"],
            "blocking": sweep.get("blocking"),
            "blocking_after_ms": sweep.get("blocking_after_ms"),
            "history": sweep["history"],
            "vetoes_dropped": sweep["vetoes_dropped"],
            "went_back": None
            if sweep["went_back"] is None
            else {"code": sweep["went_back"], "reason": sweep["went_back_reason"]},
            "warnings": list(sweep.get("warnings") or ()),
            "stages": list(sweep.get("stages") or ()),
            "engine": sweep.get("engine"),
            "engine_reason": sweep.get("engine_reason"),
        },
        # Rows of an earlier version lack columns.
        "transactions": [{column.name: row.get(column.name) for column in SHOWN_COLUMNS} for row in transactions],
        "errors": [stored_error(row, sweep["principal"]) for row in errors],
    }


def dumps(value: Any) -> str:
    """Indented JSON in ASCII only, so that no id can write control characters to a terminal or a log."""
    return json.dumps(value, indent=2, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")
