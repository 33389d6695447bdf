"""Times and errors as JSON has them; in a module of their own, as not every command needs the tables' columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from txnscan.kafka.failure import Permission, Unobserved
from txnscan.kafka.security.acls import UNKNOWN_PRINCIPAL, explained, granted
from txnscan.sweeps.restored import Fall


def iso_utc(epoch_ms: int) -> str:
    """Epoch milliseconds as ISO 8601 in UTC, to the millisecond."""
    return iso(datetime.fromtimestamp(epoch_ms / 1_000, UTC))


def iso(value: datetime) -> str:
    """A time as ISO 8601 in UTC, to the millisecond."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def fall_object(fall: Fall | None) -> dict[str, str] | None:
    """How the history of a cluster went back. The code is a contract."""
    return None if fall is None else {"code": fall.sign.value, "reason": str(fall)}


def utc(at: datetime) -> str:
    """A time for people, to the second."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def error_object(error: Unobserved, principal: str) -> dict[str, Any]:
    """Something that this principal could not observe, in words."""
    return {
        "stage": error.stage,
        "broker": error.broker,
        "topic": error.topic,
        "partition": error.partition,
        "code": error.failure.code,
        "error": explained(error.failure, principal),
    }


def stored_error(row: Mapping[str, Any], principal: str | None) -> dict[str, Any]:
    """The same of a row of `scan_errors`. principal: of its sweep."""
    found = {name: row[name] for name in ("stage", "broker", "topic", "partition", "code", "error")}
    if row["needs"] is None:
        return found
    needs = Permission(**{field.name: row["needs"][field.name] for field in fields(Permission)})
    return {**found, "error": granted(row["error"], needs, principal or UNKNOWN_PRINCIPAL)}
