"""The one JSON object that `sweep`, `find-hanging` and `show` print. Its names are a contract."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from datetime import date, datetime
from typing import Any

from txnscan.report.plain import error_object, iso, stored_error
from txnscan.sweeps.column import row_of
from txnscan.sweeps.result import Scan
from txnscan.sweeps.row import SHOWN_COLUMNS
from txnscan.tables.schema import SWEEPS
from txnscan.verdict.evidence import Verdict


def sweep_summary(scan: Scan) -> dict[str, Any]:
    """The "sweep" object."""
    (row,) = SWEEPS.rows(scan, [scan])
    return _sweep(row)


def scan_object(scan: Scan) -> dict[str, Any]:
    """The whole object of a sweep that was just made."""
    return {
        "sweep": sweep_summary(scan),
        "transactions": [_transaction(row_of(SHOWN_COLUMNS, scan, judged)) for judged in scan.transactions],
        "errors": [error_object(error, scan.principal) for error in scan.errors],
    }


def stored_object(
    sweep: Mapping[str, Any], transactions: Iterable[Mapping[str, Any]], errors: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """The same object from the rows of the tables."""
    return {
        "sweep": _sweep(sweep),
        "transactions": [_transaction(row) for row in transactions],
        "errors": [stored_error(row, sweep["principal"]) for row in errors],
    }


def _sweep(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `sweeps`. Rows of an earlier version lack columns."""
    return {
        "sweep_id": row["sweep_id"],
        "cluster_id": row["cluster_id"],
        "started_at": iso(row["started_at"]),
        "finished_at": iso(row["finished_at"]),
        "complete": row["complete"],
        "partitions": {name: row[f"partitions_{name}"] for name in ("planned", "answered", "failed")},
        "coordinators": {name: row[f"coordinators_{name}"] for name in ("planned", "proven")},
        "counts": {verdict.value: row[verdict.value] for verdict in Verdict},
        "candidates": row["candidates"],
        "scope": row["scope"],
        "late_after_ms": row["late_after_ms"],
        "blocking": row.get("blocking"),
        "blocking_after_ms": row.get("blocking_after_ms"),
        "history": row["history"],
        "vetoes_dropped": row["vetoes_dropped"],
        "went_back": None
        if row["went_back"] is None
        else {"code": row["went_back"], "reason": row["went_back_reason"]},
        "warnings": list(row.get("warnings") or ()),
        "stages": [_struct(stage) for stage in row.get("stages") or ()],
        "engine": row.get("engine"),
        "engine_reason": row.get("engine_reason"),
    }


def _transaction(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `open_transactions`. Rows of an earlier version lack columns."""
    return {column.name: _struct(row.get(column.name)) for column in SHOWN_COLUMNS}


def _struct(value: Any) -> Any:
    """A struct, or a list of structs, as tables have it."""
    if isinstance(value, tuple):
        return [_struct(one) for one in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def dumps(value: Any) -> str:
    """Indented JSON in ASCII only, so that no id can write control characters to a terminal or a log."""
    return json.dumps(value, indent=2, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")
