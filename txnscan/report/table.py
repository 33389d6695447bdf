"""A sweep for a terminal: one line that says what was seen, what hangs and what it blocks, and what could not be seen.

Takes the JSON object (`report.json`), so that a sweep looks the same fresh and from the tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from txnscan.config import printable

_STYLES = {
    "hanging": "bold red",
    "indeterminate": "yellow",
    "late_ongoing": "yellow",
    "pending_marker": "cyan",
}
# Verdicts worth a reader's time, most urgent first; the rest is counted.
_SHOWN = ("hanging", "indeterminate", "late_ongoing", "pending_marker")
_ERRORS_SHOWN = 10
_PARTITIONS_SHOWN = 8


def print_sweep(console: Console, found: Mapping[str, Any], *, every: bool = False) -> None:
    """Prints the sweep; with `every` also the healthy transactions."""
    transactions = found["transactions"]
    shown = [t for t in transactions if every or t["verdict"] in _SHOWN]
    console.print(headline(found["sweep"]))
    for group in _grouped(sorted(shown, key=_urgency)):
        console.print(_transaction(group))
    if found["errors"]:
        console.print(_errors(found["errors"]))
    for warning in found["sweep"]["warnings"]:
        console.print(Text(f"warning: {printable(warning)}", style="yellow"))


def _urgency(transaction: Mapping[str, Any]) -> tuple[Any, ...]:
    verdict = transaction["verdict"]
    rank = _SHOWN.index(verdict) if verdict in _SHOWN else len(_SHOWN)
    return (
        rank,
        not transaction["candidate"],
        -transaction["age_ms"],
        transaction["topic"],
        transaction["partition"],
    )


def headline(sweep: Mapping[str, Any]) -> RenderableType:
    """What was seen, and whether anything hangs."""
    partitions, coordinators = sweep["partitions"], sweep["coordinators"]
    open_count = sum(sweep["counts"].values()) - sweep["counts"]["gone"]
    said = [f"{count} {verdict.replace('_', ' ')}" for verdict, count in sweep["counts"].items() if count]
    lines = [
        Text.assemble(
            ("Cluster ", ""),
            (printable(sweep["cluster_id"]), "bold"),
            f": {partitions['answered']} of {partitions['planned']} partitions answered, "
            f"{coordinators['proven']} of {coordinators['planned']} coordinator partitions proven.",
        ),
        Text(f"{_plural(open_count, 'open transaction')}" + (f": {', '.join(said)}." if said else ".")),
    ]
    hanging = sweep["counts"]["hanging"]
    if hanging:
        late = sweep["candidates"]
        lines.append(Text(f"{hanging} hanging, of which {late} late (KIP-664 candidates).", style="bold red"))
    elif sweep["complete"]:
        lines.append(Text("Nothing hangs.", style="green"))
    else:
        lines.append(Text("Nothing that was seen hangs, but not everything was seen.", style="yellow"))
    return Group(*lines, Text(""))


def _grouped(transactions: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """A producer's transaction on many partitions is one story, in the order of its first."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for t in transactions:
        told = ("verdict", "reason", "producer_id", "producer_epoch", "explanation")
        groups.setdefault(tuple(t[name] for name in told), []).append(t)
    return list(groups.values())


def _transaction(group: Sequence[Mapping[str, Any]]) -> RenderableType:
    first = group[0]
    title = Text.assemble(
        (f"{first['verdict']} ({first['reason']})", _STYLES.get(first["verdict"], "green")),
        f"  producer id {first['producer_id']}, epoch {first['producer_epoch']}",
    )
    lines = [Text(printable(first["explanation"]))]
    lines += [where(t) for t in group[:_PARTITIONS_SHOWN]]
    if len(group) > _PARTITIONS_SHOWN:
        lines.append(Text(f"and {_plural(len(group) - _PARTITIONS_SHOWN, 'more partition')}"))
    return Group(title, Padding(Group(*lines), (0, 0, 0, 2)), Text(""))


def where(t: Mapping[str, Any]) -> Text:
    """One partition of a transaction: since when, from where, and what it blocks."""
    late = (", late" if t["late"] else ", not late yet") if t["verdict"] == "hanging" else ""
    line = Text.assemble(
        (f"{printable(t['topic'])}-{t['partition']}", "bold"),
        f"  open for {_age(t['age_ms'])}{late}, from offset {t['start_offset']}",
    )
    if t["blocked_records"]:
        line.append(
            f"; blocks {_plural(t['blocked_records'], 'record')} from read_committed consumers "
            f"(last stable offset {t['last_stable_offset']}, high watermark {t['high_watermark']})"
        )
    return line


def _errors(errors: Sequence[Mapping[str, Any]]) -> RenderableType:
    """The same error on many partitions is one line."""
    table = Table(title="Not observed", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("step", "where", "why"):
        table.add_column(heading, overflow="fold")
    counted = Counter((error["stage"], error["broker"], error["error"]) for error in errors)
    for (stage, broker, why), count in counted.most_common(_ERRORS_SHOWN):
        places = [_place(e) for e in errors if (e["stage"], e["broker"], e["error"]) == (stage, broker, why)]
        place = places[0] + (f" and {count - 1} more" if count > 1 else "")
        table.add_row(Text(printable(stage)), Text(printable(place)), Text(printable(why)))
    if len(counted) > _ERRORS_SHOWN:
        table.add_row("", "", f"and {len(counted) - _ERRORS_SHOWN} more; --format json shows all")
    return table


def _place(error: Mapping[str, Any]) -> str:
    if error["topic"] is not None:
        return str(error["topic"]) if error["partition"] is None else f"{error['topic']}-{error['partition']}"
    return f"broker {error['broker']}" if error["broker"] is not None else "cluster"


def _plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _age(age_ms: int) -> str:
    seconds = age_ms // 1000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
