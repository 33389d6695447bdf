"""Sweeps of several clusters in one output: a line for each cluster, then the sweeps that need attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console
from rich.text import Text

from txnscan.config import printable
from txnscan.report.json import scan_object
from txnscan.report.paragraphs import print_text
from txnscan.report.rows import Column, TableRows
from txnscan.report.sweep import endangered_commits, print_sweep
from txnscan.sweeps.result import Scan

_NAME_WIDTH_MAX = 40


def cluster_object(name: str, found: Scan | None, failure: str | None) -> dict[str, Any]:
    """The object of a sweep, with the name of its cluster and the failure. `sweep` is null if it was not swept."""
    swept = {"sweep": None, "transactions": [], "errors": []} if found is None else scan_object(found)
    return {"cluster": name, "failure": failure, **swept}


def print_clusters(
    console: Console, clusters: Sequence[Mapping[str, Any]], *, every: bool, verbose: bool = False
) -> None:
    """Prints these objects; with `every` also the healthy transactions, and with `verbose` a paragraph for
    each.
    """
    indeterminate = partial(_of, lambda sweep: sweep["counts"]["indeterminate"])
    width = min(max((len(printable(one["cluster"])) for one in clusters), default=0), _NAME_WIDTH_MAX)
    TableRows(
        (
            Column("Cluster", max(width, len("Cluster")), lambda row: row["cluster"]),
            Column("Sweep", 10, _state),
            Column("Partitions", 10, partial(_of, lambda sweep: sweep["partitions"]["answered"]), right=True),
            Column("Hanging", 7, partial(_of, lambda sweep: sweep["counts"]["hanging"]), right=True),
            Column("Late", 4, partial(_of, lambda sweep: sweep["candidates"]), right=True),
            Column("Indeterminate", 13, indeterminate, right=True),
        )
    ).write(clusters)
    for one in clusters:
        if one["sweep"] is not None and (every or _needs_attention(one)):
            print_text(console, Text())
            print_text(console, Text(printable(one["cluster"]), style="bold"))
            print_sweep(console, one, every=every, verbose=verbose)


def _state(cluster: Mapping[str, Any]) -> str:
    if cluster["sweep"] is None:
        return "failed"
    if cluster["failure"] is not None:
        return "not stored"
    return "complete" if cluster["sweep"]["complete"] else "incomplete"


def _of(value: Callable[[Mapping[str, Any]], Any], cluster: Mapping[str, Any]) -> Any:
    return None if cluster["sweep"] is None else value(cluster["sweep"])


def _needs_attention(cluster: Mapping[str, Any]) -> bool:
    sweep, counts = cluster["sweep"], cluster["sweep"]["counts"]
    found = counts["hanging"] or counts["indeterminate"] or endangered_commits(cluster)
    return bool(cluster["errors"] or sweep["warnings"] or found)
