"""The findings of `txnscan check`, on one page and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from txnscan.config import printable
from txnscan.kafka.security.acls import grants
from txnscan.sweeps.preflight import Checked, Level

_STYLES = {Level.OK: "green", Level.NOTE: "cyan", Level.INCOMPLETE: "yellow", Level.FAILED: "bold red"}
# A finding is a sentence or two.
_LINE_MAX = 4_000
_NOT_POSSIBLE = {
    False: "A sweep is not possible until the failures are fixed.",
    True: "A sweep or an apply is not possible until the failures are fixed.",
}
_CONCLUSIONS = {
    Level.OK: "A sweep can observe everything.",
    Level.NOTE: "A sweep can observe everything; the notes are about other things.",
    Level.INCOMPLETE: (
        "A sweep would not observe everything. What it does not observe gets no verdict, or the verdict indeterminate; "
        "its other verdicts hold."
    ),
}


def print_check(console: Console, checked: Checked) -> None:
    """The findings by area, and what follows from the worst."""
    if checked.cluster_id is not None:
        console.print(Text(f"Cluster {_line(checked.cluster_id)}"), soft_wrap=True)
    if not console.is_terminal:
        # For a log: whole sentences on whole lines.
        for one in checked.findings:
            console.print(Text(f"{one.level:<10}  {one.area:<12}  {_line(one.said)}"), soft_wrap=True)
    else:
        page = Table.grid(padding=(0, 2))
        page.add_column(no_wrap=True)
        page.add_column(no_wrap=True)
        page.add_column(overflow="fold")
        for area, findings in groupby(checked.findings, key=lambda one: one.area):
            for number, one in enumerate(findings):
                page.add_row(Text(one.level, style=_STYLES[one.level]), "" if number else area, Text(_line(one.said)))
        console.print(page)
    if checked.lacking:
        console.print(Text("Grant what is missing:"), soft_wrap=True)
        for line in _grants(checked):
            console.print(Text(f"    {_line(line)}"), soft_wrap=True)
    conclusion = _CONCLUSIONS.get(checked.level, _NOT_POSSIBLE[checked.applies])
    console.print(Text(conclusion, style=_STYLES[checked.level]), soft_wrap=True)


def _grants(checked: Checked) -> list[str]:
    return list(grants(checked.lacking, checked.principal))


def _line(text: str) -> str:
    """Text for one line of the page: brokers may send mechanisms, versions and errors of any length."""
    return printable(text if len(text) <= _LINE_MAX else f"{text[: _LINE_MAX - 1]}…")


def check_object(checked: Checked) -> dict[str, Any]:
    """The same as one JSON object."""
    return {
        "check": {"cluster_id": checked.cluster_id, "level": checked.level.value},
        "findings": [asdict(one) for one in checked.findings],
        "grants": _grants(checked),
    }
