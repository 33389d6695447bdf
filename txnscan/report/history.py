"""The history in the tables, for a terminal. As JSON it is the rows themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from txnscan.config import printable
from txnscan.kafka.units import duration, plural
from txnscan.report.paragraphs import print_text
from txnscan.report.plain import utc

if TYPE_CHECKING:
    from txnscan.tables.maintain import Kept, Maintained

Row = Mapping[str, Any]


def print_history(console: Console, sweeps: Sequence[Row], incidents: Sequence[Row], journal: Sequence[Row]) -> None:
    """The sweeps, the incidents and the journal, a line each."""
    _section(console, "Sweeps", [_sweep(row) for row in sweeps])
    _section(console, "Incidents", [_incident(row) for row in incidents])
    _section(console, "Journal of apply", [_step(row) for row in journal])


def print_life(console: Console, incident: Row, seen: Sequence[Row], journal: Sequence[Row]) -> None:
    """One incident: what it is, how each sweep saw it, what was done."""
    print_text(console, Text(_incident(incident), style="bold"))
    if incident["outcome"] is not None:
        said = (
            f"Outcome {str(incident['outcome']).replace('_', ' ')}: {incident['outcome_reason'] or 'no reason given'}"
        )
        print_text(console, Text(printable(said)), indent=2)
    _section(console, "Seen by", [_seen(row) for row in seen])
    _section(console, "Journal of apply", [_step(row) for row in journal])


def _section(console: Console, title: str, lines: Sequence[str]) -> None:
    print_text(console, Text(f"{title}:", style="bold"))
    for line in lines or ["none"]:
        print_text(console, Text(line), indent=2)


def _sweep(row: Row) -> str:
    scope = "" if row["scope"] == "all" else f", {printable(row['scope'])} alone"
    seen = "complete" if row["complete"] and not row["errors"] else "not complete"
    warned = f", {plural(len(row['warnings']), 'warning')}" if row["warnings"] else ""
    return (
        f"{utc(row['started_at'])}  {row['sweep_id']}  cluster {printable(row['cluster_id'])}{scope}: "
        f"{row['hanging']} hanging, {row['candidates']} late, {row['indeterminate']} indeterminate, {seen}{warned}"
    )


def _incident(row: Row) -> str:
    # resolved_at is the time of the sweep that proved the end, not of the marker.
    state = f"{row['resolved_how'] or 'over'}, proven at {utc(row['resolved_at'])}" if row["resolved_at"] else "open"
    return (
        f"{row['incident_id']}  {printable(row['topic'])}-{row['partition']}  {row['reason']}, producer id "
        f"{row['producer_id']}, epoch {row['producer_epoch']}, from offset {row['start_offset']}: first seen "
        f"{utc(row['first_seen_at'])}, last {utc(row['last_seen_at'])}, in "
        f"{plural(row['sweeps'], 'sweep')}; {state}"
    )


def _seen(row: Row) -> str:
    late = ", late" if row["late"] else ""
    outcome = f", outcome {row['outcome'].replace('_', ' ')}" if row["outcome"] is not None else ""
    blocks = f"; blocks {row['blocked_records']} records" if row["blocked_records"] else ""
    verdict = f"{row['verdict']} ({row['reason']}){late}{outcome}"
    return f"{utc(row['started_at'])}  {row['sweep_id']}  {verdict}, open for {duration(row['age_ms'])}{blocks}"


def _step(row: Row) -> str:
    status = f" {row['status'].replace('_', ' ')}" if row["status"] is not None else ""
    who = " as ".join(printable(one) for one in (row["os_user"], row["principal"]) if one)
    # Behind "of" stands what tells the process ids of two machines apart.
    process = printable(row["actor"].partition(" of ")[0])
    by = f" by {who} on {process}" if who else f" by {process}"
    detail = f": {printable(row['detail'])}" if row["detail"] else ""
    where = f"{printable(row['topic'])}-{row['partition']}"
    return f"{utc(row['at'])}  {row['step']}{status}  {row['marker']} {where}{by}{detail}"


def print_maintained(console: Console, kept: Kept, done: Sequence[Maintained]) -> None:
    """The kept sweeps, and the changes of each table."""
    console.print(Text(f"Sweeps are kept since {kept.since:%Y-%m-%d}."))
    for cluster in kept.clusters:
        why = f"incident {cluster.incident_id} has been open since then"
        text = f"Sweeps of cluster {printable(cluster.cluster_id)} are kept since {cluster.since:%Y-%m-%d}: {why}."
        console.print(Text(text), soft_wrap=True)
    for one in done:
        said = []
        if one.rows_deleted:
            said.append(f"{one.rows_deleted:,} rows deleted")
        if one.files_compacted:
            said.append(f"{one.files_compacted:,} files merged into {one.files_made:,}")
        if one.files_vacuumed:
            said.append(f"{one.files_vacuumed:,} files removed")
        console.print(Text(f"  {one.table}: {', '.join(said) or 'nothing to do'}"))
