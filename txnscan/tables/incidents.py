"""An incident is folded from the observations of sweeps. Pure, and the same for every store.

Sweeps may be folded in any order, and any of them may be missing. The partition itself shows which of
two observations is later: leader epochs only rise, and the high watermark only rises within a leader epoch. Clocks are
not used. If both are equal, an end counts: no transaction hangs again at the leader epoch of its end. If the topic was
deleted or created again, its transactions are over for ever at any leader epoch: no two topics have the same id. If
the id of the topic was not known, the next topic may have an incident of the same id: a later sighting begins it anew.

All of that holds within one history of the cluster (`sweeps/restored.py`). In a later history nothing counts that an
earlier one showed: if the transaction hangs, its incident begins anew, and its age with it.
"""

from __future__ import annotations

from typing import Any

from txnscan.coordinators.agreed_metadata import WITH_TOPIC

Row = dict[str, Any]


def folded(before: Row | None, seen: Row) -> Row | None:
    """An incident's row after one more sweep. None without an incident.

    before: its row, if it has a row. seen: the row of a sweep that saw the transaction hanging (`sweeps` is 1), or saw
    a live transaction that endangers its commit (`sweeps` is 0); or of a sweep that proved its end: `resolved_how`,
    `resolved_at`, `leader_epoch`, `high_watermark` and `history`. An end without an incident is ignored. To fold the
    last sweep again has no effect.
    """
    over = seen.get("resolved_how") is not None
    if before is None:
        return None if over else seen
    later = _at(before) <= _at(seen)
    if before["history"] < seen["history"] and not over:
        return seen
    if before["history"] > seen["history"]:
        return before
    if over:
        return {**before, **seen, "is_open": False} if later else before
    if before["last_sweep_id"] == seen["last_sweep_id"]:
        return before
    if before["resolved_how"] in WITH_TOPIC and not before["topic_id"]:
        # A sweep that was slow to write may begin the incident of the earlier topic anew. The next one ends it again.
        return seen
    return {
        **before,
        **(seen if later else {}),
        "sweep_date": min(before["sweep_date"], seen["sweep_date"]),
        "first_seen_at": min(before["first_seen_at"], seen["first_seen_at"]),
        "last_seen_at": max(before["last_seen_at"], seen["last_seen_at"]),
        # `apply` needs several. The row does not have the ids of all sweeps, so a late sweep is not counted.
        "sweeps": before["sweeps"] + (seen["sweeps"] if later else 0),
    }


def _at(row: Row) -> tuple[int, bool, int, int, str]:
    """When the partition was like this, by its own order."""
    how, mark = row["resolved_how"] or "", row["high_watermark"]
    return (row["history"], how in WITH_TOPIC, row["leader_epoch"], -1 if mark is None else mark, how)
