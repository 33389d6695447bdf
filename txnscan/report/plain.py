"""Times, errors and records of the transaction log as JSON has them; in a module of their own, as not every command
needs the tables' columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from txnscan.kafka.failure import Permission, Unobserved
from txnscan.kafka.security.acls import UNKNOWN_PRINCIPAL, explained, granted
from txnscan.sweeps.restored import Fall
from txnscan.verdict.ending import utc_time

if TYPE_CHECKING:
    from txnscan.txnlog.facts import LoggedTransaction
    from txnscan.txnlog.timeline import Step


def iso_utc(epoch_ms: int) -> str:
    """Epoch milliseconds as ISO 8601 in UTC, to the millisecond."""
    return iso(datetime.fromtimestamp(epoch_ms / 1_000, UTC))


def iso(value: datetime) -> str:
    """A time as ISO 8601 in UTC, to the millisecond."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# A time in a record may be any number. Later times, from the year 6429 on, are not shown.
SHOWN_MS_END = 2**47


def record_row(partition: int, record: LoggedTransaction) -> dict[str, Any]:
    """A record of this partition of `__transaction_state`, from brokers or from files."""
    return {
        "log_partition": partition,
        "offset": record.offset,
        "written_at": _iso_if_shown(record.updated_ms),
        "transactional_id": record.transactional_id,
        "producer_id": record.producer_id,
        "producer_epoch": record.producer_epoch,
        "state": record.state.value,
        "started_at": _iso_if_shown(record.start_time_ms),
        "timeout_ms": record.timeout_ms if record.timeout_ms >= 0 else None,
        "transactions_version": record.client_version,
        "partitions": [f"{topic}-{index}" for topic, index in sorted(record.partitions)],
    }


def step_row(step: Step) -> dict[str, Any]:
    """A record with the remarks about it."""
    row = record_row(step.partition, step.record)
    return row | {"impossible": step.impossible_after is not None, "note": step.note}


def _iso_if_shown(at_ms: int) -> str | None:
    return iso_utc(at_ms) if 0 <= at_ms < SHOWN_MS_END else None


def fall_object(fall: Fall | None) -> dict[str, str] | None:
    """How the history of a cluster went back. The code is a contract."""
    return None if fall is None else {"code": fall.sign.value, "reason": str(fall)}


def utc(at: datetime) -> str:
    """A time for people, to the second."""
    return utc_time(int(at.timestamp()) * 1_000)


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


def error_lines(errors: Iterable[Mapping[str, Any]], *, with_stage: bool = False) -> list[tuple[str, int]]:
    """A line for each sentence among these objects, in the order of the first, with the number of its errors: a broker
    that is down fails many partitions in many stages.

    The line begins with the first topic or partition, or with_stage with the stages and the first place of any kind,
    unless the sentence itself begins with it.
    """
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for error in errors:
        alike.setdefault(str(error["error"]), []).append(error)
    lines = []
    for said, group in alike.items():
        stages = ", ".join(dict.fromkeys(str(one["stage"]) for one in group))
        places = [*dict.fromkeys(filter(None, map(_topic_place, group)))]
        if with_stage and not places:
            places = [*dict.fromkeys(map(_broker_place, group))]
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        is_named = not places or (not more and said.startswith((f"{places[0]} ", f"{places[0]}:")))
        parts = [stages] if with_stage else []
        lines.append((": ".join([*parts, *([] if is_named else [f"{places[0]}{more}"]), said]), len(group)))
    return lines


def _topic_place(error: Mapping[str, Any]) -> str | None:
    if error["topic"] is None:
        return None
    return f"{error['topic']}-{error['partition']}" if error["partition"] is not None else str(error["topic"])


def _broker_place(error: Mapping[str, Any]) -> str:
    return f"broker {error['broker']}" if error["broker"] is not None else "cluster"


def stored_error(row: Mapping[str, Any], principal: str | None) -> dict[str, Any]:
    """The same of a row of `scan_errors`. principal: of its sweep."""
    found = {name: row[name] for name in ("stage", "broker", "topic", "partition", "code", "error")}
    if row["needs"] is None:
        return found
    needs = Permission(**{field.name: row["needs"][field.name] for field in fields(Permission)})
    return {**found, "error": granted(row["error"], needs, principal or UNKNOWN_PRINCIPAL)}
