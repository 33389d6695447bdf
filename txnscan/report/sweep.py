"""A sweep for a terminal: its coverage, the hanging transactions and their impact, and failed observations.

Takes the JSON object (`report.json`), so that a sweep looks the same fresh and from the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from txnscan.config import printable
from txnscan.kafka.units import duration, plural
from txnscan.report.impact import time_of
from txnscan.report.overview import print_overview
from txnscan.report.paragraphs import (
    endangers_commit,
    is_shown,
    print_rest,
    print_text,
    print_transactions,
    seen_for_ms,
)
from txnscan.report.plain import error_lines, utc
from txnscan.resolve.guard import Allowed
from txnscan.resolve.offer import answer, swept_row
from txnscan.sweeps.column import epoch_ms

_ERRORS_SHOWN = 10


def print_sweep(console: Console, found: Mapping[str, Any], *, every: bool = False, verbose: bool = False) -> None:
    """Prints the sweep; with `every` also the healthy transactions, and with `verbose` a paragraph for each.

    On a terminal, lines are wrapped under their indentation; in a pipe, each sentence stays on one line, whole.
    """
    for text in headline(found):
        print_text(console, text)
    if verbose:
        print_transactions(console, found["transactions"], found["sweep"]["started_at"], every=every)
    else:
        print_overview(console, [t for t in found["transactions"] if every or is_shown(t)])
        if found["sweep"]["counts"]["hanging"]:
            print_text(console, Text(f"\n{_next(found)}"))
    if found["errors"]:
        print_text(console, Text())
        _print_errors(console, found["errors"])
    for warning in found["sweep"]["warnings"]:
        print_text(console, Text(f"warning: {printable(warning)}", style="yellow"))


def print_stored(console: Console, sweep: Mapping[str, Any], now_ms: int) -> None:
    """Which stored sweep this is: its id, its scope, its time and its age."""
    began = time_of(sweep["started_at"])
    of = "everything" if sweep["scope"] == "all" else f"{printable(sweep['scope'])} alone"
    when = f"begun {utc(began)}, {duration(now_ms - epoch_ms(began))} ago"
    print_text(console, Text(f"Sweep {printable(sweep['sweep_id'])} of {of}, {when}."))


def endangered_commits(found: Mapping[str, Any]) -> int:
    """The number of live transactions whose abort would delete committed records of an earlier transaction."""
    return sum(map(endangers_commit, found["transactions"]))


def headline(found: Mapping[str, Any]) -> list[Text]:
    """The coverage of the sweep, the number of hanging transactions, and commits in danger."""
    sweep = found["sweep"]
    partitions, coordinators = sweep["partitions"], sweep["coordinators"]
    open_count = sum(sweep["counts"].values()) - sweep["counts"]["gone"]
    ended = sweep["counts"]["gone"]
    narrow = sweep["scope"] != "all"
    only = f", {printable(sweep['scope'])} alone" if narrow else ""
    said = [
        f"{count} {verdict.replace('_', ' ')}"
        for verdict, count in sweep["counts"].items()
        if count and verdict != "gone"
    ]
    lines = [
        Text.assemble(
            ("Cluster ", ""),
            (printable(sweep["cluster_id"]), "bold"),
            f"{only}: {partitions['answered']} of {partitions['planned']} partitions answered, "
            f"{coordinators['proven']} of {coordinators['planned']} coordinator partitions proven.",
        ),
        Text(
            f"{plural(open_count, 'open transaction')}"
            + (f": {', '.join(said)}." if said else ".")
            + (f" {ended} more ended during the sweep." if ended else "")
        ),
    ]
    if (fell := sweep.get("went_back")) is not None:
        lines.insert(0, Text(f"The cluster's history went back: {printable(fell['reason'])}.", style="bold red"))
    hanging = sweep["counts"]["hanging"]
    if endangered := endangered_commits(found):
        verb = "has" if endangered == 1 else "have"
        danger = f"{plural(endangered, 'live transaction')} {verb} joined a commit: an abort would delete its records."
        lines.append(Text(danger, style="bold red"))
    if hanging:
        late = sweep["candidates"]
        lines.append(Text(f"{hanging} hanging, of which {late} late (KIP-664 candidates).", style="bold red"))
    elif sweep["complete"] and narrow:
        lines.append(Text("No transaction hangs in this scope; the sweep did not read the rest.", style="green"))
    elif sweep["complete"]:
        lines.append(Text("No transaction hangs.", style="green"))
    else:
        lines.append(Text("No observed transaction hangs, but not everything was observed.", style="yellow"))
    if blocking := sweep.get("blocking"):
        verb = "holds" if blocking == 1 else "hold"
        lines.append(Text(f"{plural(blocking, 'live transaction')} {verb} readers back."))
    return lines


def _next(found: Mapping[str, Any]) -> str:
    """What leads on from hanging transactions: a plan only if it can end some of them, and only when stored sweeps have
    observed them for long enough.
    """
    sweep = found["sweep"]
    can_end = [t for t in found["transactions"] if isinstance(answer(swept_row(t)), Allowed)]
    needed_ms = sweep["late_after_ms"]
    waits = any(seen_for_ms(t, sweep["started_at"]) <= needed_ms for t in can_end)
    when = f"once stored sweeps have observed them for {duration(needed_ms)} " if waits else ""
    plans = f", and {when}txnscan plan prepares the end of {len(can_end)}" if can_end else ""
    return f"--verbose explains each transaction{plans}."


def _print_errors(console: Console, errors: Sequence[Mapping[str, Any]]) -> None:
    print_text(console, Text("Not observed:", style="yellow"))
    most_first = sorted(error_lines(errors, with_stage=True), key=lambda one: -one[1])
    for line, _ in most_first[:_ERRORS_SHOWN]:
        print_text(console, Text(printable(line)), indent=2)
    print_rest(console, len(most_first) - _ERRORS_SHOWN)
