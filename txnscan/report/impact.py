"""The impact, cause and owner of a hanging or live transaction in sentences, from a row of the tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from txnscan.config import printable
from txnscan.kafka.units import duration, first_of, plural, size
from txnscan.sweeps.column import epoch_ms
from txnscan.verdict.ending import coordinator_aborts, utc_time
from txnscan.verdict.evidence import Reason, Verdict
from txnscan.waiting.cause import Cause, sentence
from txnscan.waiting.disk import URGENT_HOURS
from txnscan.waiting.impact import BlockReason

Row = Mapping[str, Any]
GROUPS_SHOWN = 5
_PARTITIONS_SHOWN = 3
# A shorter time is no information: two sweeps may be this far apart.
_UNMOVED_MIN_MS = 60_000
# Retention is mentioned once the age of the blocked records has reached this share of it.
_RETENTION_NEAR = 0.5


def cause_sentence(row: Row) -> str | None:
    """The cause and its evidence. None if the cause was not examined."""
    if row.get("cause") is None:
        return None
    return sentence(row["cause"], row["cause_reason"])


# For transactions of which each has its own reason.
_CAUSES: Mapping[str, str] = {
    Cause.MARKER_MISSING: "the partitions lack a marker",
    Cause.LATE_WRITE: "late writes",
    Cause.NEVER_ADDED: "the partitions were never added to a transaction",
    Cause.FENCED: "its epoch was raised",
}


def causes_sentence(rows: Iterable[Row]) -> str | None:
    """The causes of several transactions with different reasons. None if no cause is known."""
    seen = {row.get("cause") for row in rows}
    found = [words for cause, words in _CAUSES.items() if cause in seen]
    unknown = ["not known"] if found and Cause.UNKNOWN in seen else []
    return f"Cause: {', or '.join([*found, *unknown])}." if found else None


def owner_sentence(row: Row) -> str | None:
    """The owner, and the first checks. None if the owner was not examined."""
    if row.get("advice") is None:
        return None
    name = f"'{row['owner_id']}'. " if row["owner_id"] is not None else "not known. "
    return f"Owner: {name}{row['advice']}."


def end_sentence(row: Row, at: datetime) -> str | None:
    """When a live transaction ends at the latest. None for others, if that is not known, and for a transaction that
    endangers a commit, whose explanation has it. at: the time at which the sentence is read.
    """
    if row["verdict"] != Verdict.ONGOING or row.get("ends_by") is None or row.get("reason") == Reason.JOINED_COMMIT:
        return None
    clause = coordinator_aborts(epoch_ms(time_of(row["ends_by"])), epoch_ms(at))
    return f"{clause[0].upper()}{clause[1:]}."


def time_of(value: datetime | str) -> datetime:
    """A time as the JSON object has it; one without a zone, as Spark gives it, is of this machine's zone."""
    return (datetime.fromisoformat(value) if isinstance(value, str) else value).astimezone(UTC)


def ends_by(row: Row) -> str | None:
    """The time at which a live transaction times out. None if that is not known."""
    return None if row.get("ends_by") is None else utc_time(epoch_ms(time_of(row["ends_by"])))


def impact_sentences(row: Row) -> list[str]:
    """The effects on its partition, a sentence each. If they were not examined: only that another one ends first."""
    said = []
    if row["holds_lso"] is False:
        said.append("Another open transaction starts before it, and must end first.")
    if row.get("cause") is None and row.get("groups_asked") is None:
        return said
    if row["holds_lso"] is not False and row["lso_unmoved_ms"] is not None and row["lso_unmoved_ms"] >= _UNMOVED_MIN_MS:
        said.append(f"The last stable offset has not moved for at least {duration(row['lso_unmoved_ms'])}.")
    said += _groups(row)
    said += _readers(row)
    if row["compaction_blocked"]:
        said.append("Compaction does not pass the last stable offset.")
    if row["tiering_blocked"]:
        said.append("Tiering does not pass the last stable offset: segments above it stay on local disks.")
    said += disk_sentences(row)
    retention_ms = row["retention_ms"]
    if retention_ms is not None and 0 <= retention_ms * _RETENTION_NEAR < row["age_ms"]:
        said.append(
            f"Retention does not wait: records older than {duration(retention_ms)} are deleted even if not read."
        )
    return said


def disk_sentences(row: Row) -> list[str]:
    """The size of a partition that fills its disk, its growth, and when it is full. Empty if they are not known."""
    if row.get("partition_bytes") is None:
        return [f"Disk not known: {printable(row['disk_error'])}."] if row.get("disk_error") is not None else []
    said = f"Its replica on broker {row['disk_broker']} has {size(row['partition_bytes'])}"
    growth = row["growth_bytes_per_hour"]
    if growth is not None:
        said += f", {'growing' if growth >= 0 else 'shrinking'} by {size(abs(growth))} an hour"
    if row["usable_bytes"] is not None:
        said += f", and its volume has {size(row['usable_bytes'])} free"
    if row["hours_until_full"] is not None:
        said += f": full in {_in_hours(row['hours_until_full'])} by this partition alone"
    unread = row["disk_error"]
    return [f"{said}.", *([f"Not known of every replica: {printable(unread)}."] if unread is not None else [])]


def urgent_disk_sentence(rows: Iterable[Row]) -> str | None:
    """The disk that is full first by one of these partitions, if that is soon."""
    full = [row for row in rows if row.get("hours_until_full") is not None]
    first = min(full, key=lambda row: row["hours_until_full"], default=None)
    if first is None or first["hours_until_full"] >= URGENT_HOURS:
        return None
    where, hours = f"{first['topic']}-{first['partition']}", _in_hours(first["hours_until_full"])
    what = "Tiering" if first.get("tiering_blocked") else "Compaction"
    return f"{what} is blocked: {where} alone fills the disk of broker {first['disk_broker']} in {hours}."


def _in_hours(hours: int) -> str:
    return duration(hours * 3_600_000) if hours else "less than an hour"


def _groups(row: Row) -> list[str]:
    groups: Sequence[Row] = row["blocked_groups"] or ()
    count = row["groups_blocked"]
    said = []
    for reason, what in _BLOCK_REASONS.items():
        of = [group for group in groups if group["reason"] == reason]
        if of:
            said.append(f"{plural(len(of), 'group')} {what[len(of) > 1]}: {_named(of)}.")
    if any(group["reason"] == BlockReason.AT_LSO for group in groups):
        said.append("Isolation levels are not visible, so some of these may not be waiting.")
    if count is not None and count > len(groups):
        said.append(f"{plural(count - len(groups), 'more group')} wait there, not named here.")
    if count == 0 and row["groups_asked"] and row["groups_error"] is None:
        said.append(f"No group waits there, by committed offsets ({plural(row['groups_asked'], 'group')} checked).")
    if row["groups_error"] is not None:
        said.append(f"Groups may be missing: {printable(row['groups_error'])}.")
    return said


def _readers(row: Row) -> list[str]:
    readers: Sequence[Row] = row.get("blocked_readers") or ()
    count, error = row.get("readers_blocked"), row.get("readers_error")
    said = []
    if readers:
        what = "streaming query has" if len(readers) == 1 else "streaming queries have"
        names = first_of([*map(_reader, readers)], GROUPS_SHOWN)
        said.append(f"{len(readers)} {what} no record to read before the last stable offset: {names}.")
        said.append("A read_uncommitted query would be at the high watermark. A stopped query looks the same.")
    if count is not None and count > len(readers):
        said.append(f"{count - len(readers):,} more streaming queries wait there, not named here.")
    if count == 0 and not readers:
        said.append("No streaming query waits there, by the checkpoints.")
    if error is not None:
        said.append(f"Streaming queries may be missing: {printable(error)}.")
    return said


def _reader(reader: Row) -> str:
    done = "" if reader["batch_committed"] else ", not committed"
    batch = f"batch {reader['batch_id']}{done}"
    at = f"next offset {reader['next_offset']}, lag {reader['lag']:,}"
    return f"'{printable(reader['path'])}' ({printable(reader['stream_id'])}, {batch}, {at})"


# One group, and several.
_BLOCK_REASONS: Mapping[str, tuple[str, str]] = {
    BlockReason.UNSTABLE: (
        "does not get its committed offsets, which are in this transaction",
        "do not get their committed offsets, which are in this transaction",
    ),
    BlockReason.MAYBE_UNSTABLE: ("may not get its committed offsets", "may not get their committed offsets"),
    BlockReason.AT_LSO: (
        "has no record to read before the last stable offset, with this lag up to the high watermark",
        "have no record to read before the last stable offset, with this lag up to the high watermark",
    ),
}


def _named(groups: Sequence[Row]) -> str:
    return first_of([f"'{printable(group['group'])}' {_how(group)}" for group in groups], GROUPS_SHOWN)


def _how(group: Row) -> str:
    if group["reason"] == BlockReason.AT_LSO:
        return f"{group['lag']:,}"
    names = [printable(one) for one in group["partitions"]]
    return f"({', '.join(names[:_PARTITIONS_SHOWN])}{' and more' if len(names) > _PARTITIONS_SHOWN else ''})"
