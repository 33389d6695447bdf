"""What a hanging transaction blocks, how it came about and whose it is, in sentences, from a row of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from txnscan.config import printable
from txnscan.model import Standing, duration, plural

Row = Mapping[str, Any]
GROUPS_SHOWN = 5
_PARTITIONS_SHOWN = 3
_CAUSES: Mapping[str, str] = {
    "marker_missing": "its marker is missing",
    "late_write": "a late write",
    "never_added": "a partition that was never added to its transaction",
    "fenced": "a producer that was replaced",
    "unknown": "not known",
}


def cause_sentence(row: Row) -> str | None:
    """How it came to hang, and what shows it; None where nobody looked."""
    if row.get("cause") is None:
        return None
    what = _CAUSES.get(row["cause"], str(row["cause"]).replace("_", " "))
    return f"Cause: {what}. {row['cause_reason']}."


def owner_sentence(row: Row) -> str | None:
    """Whose it is, and what to ask or see first; None where nobody looked."""
    if row.get("advice") is None:
        return None
    name = f"'{row['owner_id']}'. " if row["owner_id"] is not None else ""
    return f"Owner: {name}{row['advice']}."


def impact_sentences(row: Row) -> list[str]:
    """What it blocks on its partition, a sentence each; none where nobody looked."""
    if row.get("cause") is None:
        return []
    said = []
    if row["holds_lso"] is False:
        said.append("Another open transaction stands before it, and has to end first.")
    elif row["lso_unmoved_ms"] is not None:
        said.append(f"The last stable offset has not moved for at least {duration(row['lso_unmoved_ms'])}.")
    said += _groups(row)
    if row["compaction_blocked"]:
        said.append("Compaction does not pass the last stable offset.")
    if row["retention_ms"] is not None and row["retention_ms"] >= 0 and row["blocked_records"]:
        said.append(f"Retention does: records older than {duration(row['retention_ms'])} are deleted, read or not.")
    return said


def _groups(row: Row) -> list[str]:
    groups: Sequence[Row] = row["blocked_groups"] or ()
    said = [_group(group) for group in groups[:GROUPS_SHOWN]]
    more = (row["groups_blocked"] or 0) - len(said)
    if more > 0:
        said.append(f"So {'does' if more == 1 else 'do'} {plural(more, 'more group')}.")
    if any(group["standing"] == Standing.AT_LSO for group in groups):
        said.append("Whether a group reads read_committed, and waits, is not visible.")
    if row["groups_blocked"] == 0 and row["groups_error"] is None:
        asked = row["groups_asked"]
        said.append(f"No group stands before it, of {asked} asked." if asked else "There is no group to ask about.")
    if row["groups_error"] is not None:
        said.append(f"Groups may be missing: {printable(row['groups_error'])}.")
    return said


def _group(group: Row) -> str:
    name = f"Group '{printable(group['group'])}'"
    state = f" ({group['state']})" if group["state"] else ""
    if group["standing"] == Standing.AT_LSO:
        lag = plural(group["lag"], "record")
        return f"{name}{state} stands at the last stable offset, {lag} behind the high watermark."
    names = [printable(one) for one in group["partitions"]]
    where = ", ".join(names[:_PARTITIONS_SHOWN]) + (" and more" if len(names) > _PARTITIONS_SHOWN else "")
    if group["standing"] == Standing.UNSTABLE:
        return f"{name}{state} does not get its committed offsets of {where}: they are in this transaction."
    return f"{name}{state} may not get its committed offsets of {where}."
