"""Times and errors as JSON has them; in a module of their own, as not every command needs the tables' columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from txnscan.kafka.failure import ScanError


def iso_utc(epoch_ms: int) -> str:
    """Epoch milliseconds as ISO 8601 in UTC, to the millisecond."""
    return iso(datetime.fromtimestamp(epoch_ms / 1_000, UTC))


def iso(value: datetime) -> str:
    """A time as ISO 8601 in UTC, to the millisecond."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc(at: datetime) -> str:
    """A time for people, to the second."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def error_object(error: ScanError) -> dict[str, Any]:
    """Something that could not be observed."""
    return {
        "stage": error.stage,
        "broker": error.broker,
        "topic": error.topic,
        "partition": error.partition,
        "error": error.error,
    }
