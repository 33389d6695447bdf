"""The result of `check --before-stop`: one sentence and a table, and the same as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from txnscan.config import printable
from txnscan.kafka.units import brokers_named, first_of, plural
from txnscan.report.plain import error_object, iso_utc
from txnscan.report.rows import Column, headers, table_line
from txnscan.waiting.before_stop import Effect, StopVerdict, What

if TYPE_CHECKING:
    from txnscan.sweeps.before_stop import BeforeStop
    from txnscan.waiting.before_stop import Harm

# At most this many partitions are shown to people. JSON has all.
ROWS_MAX = 50
_NAMES_MAX = 3
_STYLES = {StopVerdict.SAFE: "green", StopVerdict.UNSAFE: "bold red", StopVerdict.NOT_OBSERVED: "yellow"}
# By reason: the effect on a partition, and the remedy.
_MEANINGS: Mapping[str, str] = {
    "unclean_election": "end_lost: no replica with all records remains, and unclean elections are allowed: committed "
    "records and markers get lost. Set unclean.leader.election.enable=false, or wait until replicas are in sync.",
    "no_coordinator": "blocked: no replica of the transaction log remains: transactions of its ids neither begin, nor "
    "end, nor time out until a broker is back. Add replicas.",
    "marker_dropped": "torn: no replica remains, and coordinators of this release drop the marker if a transaction "
    "ends then: the partition hangs (KAFKA-20734). Pause the writers, wait until their transactions have ended, and "
    "resolve those that hang.",
    "marker_waits": "blocked: no replica remains, and transactions cannot end there until a broker is back.",
    "too_few_in_sync": "blocked: fewer replicas than min.insync.replicas remain in sync, and transactions cannot end "
    "there until a broker is back.",
}
# By what a note counts: its sentence for one, and for several.
_NOTES: Mapping[str, tuple[str, str]] = {
    What.TRANSACTION_COORDINATORS: (
        "1 coordinator partition of transactions moves to another broker",
        "{} coordinator partitions of transactions move to other brokers",
    ),
    What.IDS: (
        "1 transactional id in a transaction gets another coordinator, and for a moment COORDINATOR_LOAD_IN_PROGRESS",
        "{} transactional ids in a transaction get other coordinators, and for a moment COORDINATOR_LOAD_IN_PROGRESS",
    ),
    What.GROUP_COORDINATORS: (
        "1 coordinator partition of groups moves to another broker",
        "{} coordinator partitions of groups move to other brokers",
    ),
    What.CONTROLLER: ("the active controller moves to another node", ""),
    What.UNCLAIMED: (
        "no coordinator claims 1 open transaction on a partition without another replica: it may hang, so resolve it "
        "before the stop (txnscan find-hanging)",
        "no coordinator claims {} open transactions on partitions without another replica: they may hang, so resolve "
        "them before the stop (txnscan find-hanging)",
    ),
    What.OUT_OF_SYNC: (
        "1 partition of these brokers has another replica that is not in sync",
        "{} partitions of these brokers have other replicas that are not in sync",
    ),
    What.WITHOUT_LEADER: (
        "1 partition in a transaction has no leader already: start its brokers first",
        "{} partitions in a transaction have no leader already: start their brokers first",
    ),
    What.VOTERS: (
        "only 1 voter of the controllers would remain and fetch, which is no majority",
        "only {} voters of the controllers would remain and fetch, which is no majority",
    ),
}


def before_stop_object(found: BeforeStop, principal: str) -> dict[str, Any]:
    """The result as one JSON object. Names and codes are a contract."""
    return {
        "before_stop": {
            "cluster_id": found.cluster_id,
            "brokers": list(found.stopping),
            "verdict": found.verdict.value,
            "at": iso_utc(found.at_ms),
            "partitions": found.partitions,
            "partitions_held": found.held,
            "partitions_idle": {effect.value: count for effect, count in found.judged.idle},
            "drops_markers": found.drops,
        },
        "partitions": [_harm_object(harm) for harm in found.judged.harms],
        "notes": [
            {"effect": note.effect.value, "what": note.what.value, "count": note.count, "unsafe": note.unsafe}
            for note in found.notes
        ],
        "errors": [
            *(error_object(error, principal) for error in found.errors),
            *(error_object(error, principal) for error in found.unknown),
        ],
    }


def _harm_object(harm: Harm) -> dict[str, Any]:
    held, after = harm.held, harm.held.after
    one = held.before
    return {
        "topic": one.topic,
        "partition": one.partition,
        "effect": harm.rule.effect.value,
        "reason": harm.rule.reason,
        "leader": one.leader if one.leader >= 0 else None,
        "replicas": list(one.replicas),
        "in_sync_replicas": list(one.in_sync),
        "eligible_leader_replicas": list(one.eligible),
        "in_sync_replicas_after": list(after.replicas.in_sync),
        "min_in_sync_replicas": after.min_in_sync,
        "transactions": [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "state": each.state,
                "ends_by": None if each.ends_by_ms is None else iso_utc(each.ends_by_ms),
                "has_data": each.has_data,
            }
            for each in held.transactions
        ],
        "producers_with_an_end": held.ended,
        "newest_write_at": iso_utc(held.newest_ended_ms) if held.newest_ended_ms >= 0 else None,
        "groups": list(harm.groups),
    }


_COLUMNS = (
    Column("EFFECT", 0, lambda row: row["effect"]),
    Column("PARTITION", 0, lambda row: printable(f"{row['topic']}-{row['partition']}")),
    Column("IN SYNC", 0, lambda row: _ids(row["in_sync_replicas"])),
    Column("REMAIN", 0, lambda row: _ids(row["in_sync_replicas_after"])),
    Column("MINIMUM", 0, lambda row: row["min_in_sync_replicas"], right=True),
    Column("OPEN", 0, lambda row: len(row["transactions"]) or None, right=True),
    Column("LAST WRITE", 0, lambda row: row["newest_write_at"]),
    Column("ENDS BY", 0, lambda row: max(filter(None, (one["ends_by"] for one in row["transactions"])), default=None)),
    Column("OF", 0, lambda row: _names(row)),
)


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers)) or "none"


def _names(row: Mapping[str, Any]) -> str | None:
    """The first ids and groups of a partition."""
    names = [one["transactional_id"] or f"producer {one['producer_id']}" for one in row["transactions"]]
    names += [f"group {group}" for group in row["groups"]]
    return first_of([*map(printable, names)], _NAMES_MAX) if names else None


def print_before_stop(console: Console, shown: Mapping[str, Any]) -> None:
    """The result for people. shown: as `before_stop_object` gives it."""
    verdict = StopVerdict(shown["before_stop"]["verdict"])
    console.print(Text(_sentence(shown), style=_STYLES[verdict]), soft_wrap=True)
    rows = shown["partitions"]
    for reason in dict.fromkeys(row["reason"] for row in rows):
        console.print(Text(_MEANINGS[reason]), soft_wrap=True)
    if rows:
        console.print()
        some = rows[:ROWS_MAX]
        fitted = tuple(_fitted(column, some) for column in _COLUMNS if any(column.show(row) for row in some))
        for line in (headers(fitted), *(table_line(fitted, row) for row in some)):
            console.print(Text(line), soft_wrap=True)
        if len(rows) > ROWS_MAX:
            console.print(Text(f"and {plural(len(rows) - ROWS_MAX, 'more partition')}; --format json has all of them"))
    if idle := sum(shown["before_stop"]["partitions_idle"].values()):
        console.print(Text(f"idle: {plural(idle, 'partition')} would lack replicas, without a transaction now."))
    for note in shown["notes"]:
        console.print(Text(f"{note['effect']}: {_note(note)}."), soft_wrap=True)


def _fitted(column: Column, rows: Sequence[Mapping[str, Any]]) -> Column:
    return replace(column, width=max(len(column.header), *(len(str(column.show(row))) for row in rows)))


def _note(note: Mapping[str, Any]) -> str:
    one, several = _NOTES[note["what"]]
    return one if note["count"] == 1 else several.format(f"{note['count']:,}")


def _sentence(shown: Mapping[str, Any]) -> str:
    of = shown["before_stop"]
    brokers = brokers_named(of["brokers"])
    subject = brokers.capitalize()
    if of["verdict"] == StopVerdict.SAFE:
        return f"{subject} may stop: safe at {of['at']}, for transactions begun before it."
    if of["verdict"] == StopVerdict.NOT_OBSERVED:
        return f"It is not known whether {brokers} may stop: {_why(shown)}."
    return f"{subject} must not stop now: {_why(shown)}."


def waits_for(shown: Mapping[str, Any]) -> str:
    """What `--wait` waits for, in one sentence."""
    return f"Waiting: {_why(shown)}."


def _why(shown: Mapping[str, Any]) -> str:
    counts = Counter(Effect(row["effect"]) for row in shown["partitions"])
    words = {
        Effect.TORN: "tear transactions on",
        Effect.END_LOST: "lose the end of",
        Effect.BLOCKED: "block transactions on",
    }
    parts = []
    for effect, said in words.items():
        if counts[effect]:
            first = next(row for row in shown["partitions"] if row["effect"] == effect)
            named = f"{first['topic']}-{first['partition']}"
            more = f" and {counts[effect] - 1} more" if counts[effect] > 1 else ""
            parts.append(f"{said} {printable(named)}{more}")
    parts = [f"the stop would {', '.join(parts)}"] if parts else []
    parts += [_note(note) for note in shown["notes"] if note["unsafe"]]
    if not parts:
        errors = shown["errors"]
        parts = [printable(errors[0]["error"])] if errors else []
    return "; ".join(parts)
