"""Open transactions as short tables for a terminal: one for each event, and one for each other verdict and reason.

Above a table stand the sentences that all its transactions share. `report/paragraphs.py` prints a paragraph for each.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rich.console import Console
from rich.text import Text

from txnscan.config import printable
from txnscan.kafka.units import duration, first_of, plural
from txnscan.report.impact import cause_sentence, causes_sentence, ends_by, owner_sentence, urgent_disk_sentence
from txnscan.report.paragraphs import (
    AT_ONCE_MS,
    STYLES,
    alike,
    marker_sentences,
    outcome_sentence,
    print_text,
    urgency,
    urgency_of_event,
)
from txnscan.report.rows import Column, headers, table_line

Row = Mapping[str, Any]

ROWS_MAX = 50
_NAMES_MAX = 3
_EVENT_ID_SHOWN = 8


# A column without any value is left out, and the widths are those of the values.
_COLUMNS = (
    Column("OPEN FOR", 0, lambda t: duration(t["age_ms"]) if t["age_ms"] >= AT_ONCE_MS else "seen now"),
    Column("LATE", 0, lambda t: ("yes" if t["late"] else "no") if t["verdict"] == "hanging" else None),
    Column("OUTCOME", 0, lambda t: t["outcome"]),
    Column("RECORDS", 0, lambda t: t["blocked_records"], right=True),
    Column("GROUPS", 0, lambda t: t.get("groups_blocked"), right=True),
    Column("ENDS BY", 0, ends_by),
    Column("PRODUCER ID", 0, lambda t: t["producer_id"], right=True),
    Column("PARTITION", 0, lambda t: printable(f"{t['topic']}-{t['partition']}")),
)


def print_overview(console: Console, transactions: Iterable[Row]) -> None:
    """Prints these transactions. The event that blocks most readers comes first."""
    for group in grouped(transactions):
        print_text(console, Text())
        verdict, text = heading(group)
        style = STYLES.get(group[0]["verdict"], "green")
        print_text(console, Text.assemble((verdict, style), f"  {text}"))
        for sentence in shared_sentences(group):
            print_text(console, Text(printable(sentence)), indent=2)
        for line in _table(group[:ROWS_MAX]):
            console.print(Text(f"  {line}"), soft_wrap=True)
        if len(group) > ROWS_MAX:
            more = plural(len(group) - ROWS_MAX, "more partition")
            print_text(console, Text(f"and {more}; --format json has all of them"), indent=2)


def grouped(transactions: Iterable[Row]) -> list[list[Row]]:
    """Transactions by event; others by verdict, reason and explanation. The most urgent groups and transactions come
    first.
    """
    return sorted(alike(sorted(transactions, key=urgency), _table_of), key=urgency_of_event)


def _table_of(t: Row) -> Hashable:
    event = t.get("event_id")
    return (t["verdict"], event) if event is not None else (t["verdict"], t["reason"], t["explanation"])


def heading(group: Sequence[Row]) -> tuple[str, str]:
    """The verdict of a group with its reasons, and how many transactions it has, of whom."""
    first = group[0]
    reasons = ", ".join(sorted({t["reason"] for t in group}))
    text = plural(len(group), "transaction")
    if len(topics := {t["topic"] for t in group}) > 1:
        text += f" on {len(topics)} topics"
    if owners := _names(t.get("owner_id") or t["transactional_id"] for t in group):
        text += f" of {owners}"
    if (event := first.get("event_id")) is not None and len(group) > 1:
        text += f" (event {event[:_EVENT_ID_SHOWN]})"
    return f"{first['verdict']} ({reasons})", text


def _names(names: Iterable[str | None]) -> str:
    return first_of(sorted({f"'{printable(name)}'" for name in names if name is not None}), _NAMES_MAX)


def shared_sentences(group: Sequence[Row]) -> Iterable[str]:
    """The sentences that are the same for all transactions, the groups and queries that wait for any of them, and a
    disk that is full soon.
    """
    outcome_of = partial(outcome_sentence, partitions=len(group))
    for sentence in (lambda t: t["explanation"], cause_sentence, owner_sentence, outcome_of):
        sentences = {sentence(t) for t in group}
        if len(sentences) == 1 and (only := sentences.pop()) is not None:
            yield only
        elif sentence is cause_sentence and (causes := causes_sentence(group)) is not None:
            yield causes
        elif sentence is outcome_of:
            yield from marker_sentences(group)
    if groups := _names(one["group"] for t in group for one in t.get("blocked_groups") or ()):
        yield f"Blocked groups: {groups}."
    if readers := _names(one["path"] for t in group for one in t.get("blocked_readers") or ()):
        yield f"Blocked streaming queries, by checkpoint: {readers}."
    if (disk := urgent_disk_sentence(group)) is not None:
        yield disk


def _table(rows: Sequence[Row]) -> Iterable[str]:
    fitted = tuple(_fitted(column, rows) for column in _COLUMNS if any(column.show(row) is not None for row in rows))
    yield headers(fitted)
    yield from (table_line(fitted, row) for row in rows)


def _fitted(column: Column, rows: Sequence[Row]) -> Column:
    """The column, as wide as its widest value."""
    return replace(column, width=max(len(column.header), *(len(str(column.show(row))) for row in rows)))
