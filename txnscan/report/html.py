"""A sweep and its history as one HTML page: no scripts, no addresses outside the file, light or dark as its reader is.

The template beside this module (`report.html.j2`) escapes whatever comes from a cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from txnscan.config import printable
from txnscan.kafka.units import duration, plural
from txnscan.reads.observation import TransactionKey
from txnscan.report.charts import events_chart, sweeps_chart
from txnscan.report.impact import cause_sentence, end_sentence, ends_by, impact_sentences, owner_sentence
from txnscan.report.overview import grouped, heading, shared_sentences
from txnscan.report.paragraphs import is_shown, outcome_sentence, urgency
from txnscan.report.plain import utc
from txnscan.resolve.guard import Allowed
from txnscan.resolve.offer import answer, swept_row
from txnscan.shell import command
from txnscan.sweeps.column import epoch_ms, timestamp
from txnscan.verdict.evidence import Verdict
from txnscan.version import __version__

Row = Mapping[str, Any]
STORIES_MAX = 100
ERRORS_MAX = 50
_CONNECTION = "--bootstrap-server HOST:PORT"


@dataclass(frozen=True, slots=True)
class PageContent:
    """The content of the page: rows of the tables. sweeps, incidents, journal: newest first."""

    sweep: Row
    notes: Sequence[str]
    transactions: Sequence[Row]
    errors: Sequence[Row]
    sweeps: Sequence[Row]
    incidents: Sequence[Row]
    journal: Sequence[Row]


def report_html(stored: PageContent, location: str, now_ms: int) -> str:
    """The page. location: of the tables, for the commands that it shows."""
    environment = Environment(
        loader=PackageLoader("txnscan.report", ""),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"utc": utc, "shown": _shown, "words": lambda text: str(text).replace("_", " ")}
    sweep = stored.sweep
    shown = sorted(filter(is_shown, stored.transactions), key=urgency)
    incidents = {row["incident_id"]: row for row in stored.incidents}
    in_order = sorted(stored.sweeps, key=lambda row: row["started_at"])
    groups = [_group(group, incidents, location, timestamp(now_ms)) for group in grouped(shown[:STORIES_MAX])]
    page = environment.get_template("report.html.j2").render(
        sweep=sweep,
        notes=stored.notes,
        age=duration(now_ms - epoch_ms(sweep["started_at"])),
        made_at=timestamp(now_ms),
        counts=[(verdict.value, sweep[verdict.value]) for verdict in Verdict if sweep[verdict.value]],
        groups=groups,
        stories_left=max(len(shown) - STORIES_MAX, 0),
        errors=stored.errors[:ERRORS_MAX],
        errors_left=max(len(stored.errors) - ERRORS_MAX, 0),
        sweeps=in_order,
        charts=sweeps_chart(in_order) if len(in_order) > 1 else None,
        gantts=events_chart(stored.incidents, timestamp(now_ms)) if stored.incidents else None,
        told={story["incident_id"] for group in groups for story in group["stories"]},
        incidents=[_incident(row, now_ms) for row in stored.incidents],
        worst=Counter(row["topic"] for row in stored.incidents).most_common(5),
        journal=stored.journal,
        version=__version__,
    )
    return str(page)


def _shown(text: object) -> str:
    """Text from a cluster, without characters that would change how the rest of the page is shown."""
    return printable(str(text))


def _group(group: Sequence[Row], incidents: Mapping[str, Row], location: str, now: datetime) -> dict[str, Any]:
    """An event, or the transactions of another verdict: their heading, what all share, and each of them."""
    verdict, text = heading(group)
    return {
        "verdict": group[0]["verdict"],
        "reason": verdict,
        "heading": text,
        "sentences": list(shared_sentences(group)),
        "stories": [
            _story(row, incidents.get(TransactionKey.of(row).incident_id(row["cluster_id"])), location, now)
            for row in group
        ],
    }


def _story(row: Row, incident: Row | None, location: str, now: datetime) -> dict[str, Any]:
    """One transaction: what it is, what it blocks, how it came about, and what to do next."""
    where = {"topic": row["topic"], "partition": row["partition"]}
    commands = [
        command("txnscan describe-producers", _CONNECTION, **where),
        command("txnscan transaction-log", _CONNECTION, producer_id=row["producer_id"]),
    ]
    if incident is not None:
        commands.append(command("txnscan history", tables=location, incident=incident["incident_id"]))
    if isinstance(answer(swept_row(row)), Allowed):
        commands.append(command("txnscan plan", tables=location, out="plan.json"))
    return {
        "row": row,
        "incident_id": incident["incident_id"] if incident is not None else None,
        "age": duration(row["age_ms"]),
        "outcome": outcome_sentence(row),
        "impact": impact_sentences(row),
        "ends_by": ends_by(row),
        "origin": [
            said for said in (end_sentence(row, now), cause_sentence(row), owner_sentence(row)) if said is not None
        ],
        "events": _events(row, incident),
        "commands": commands,
    }


def _events(row: Row, incident: Row | None) -> list[tuple[str, str]]:
    """The known events in order of time, each by the clock that it names."""
    found: list[tuple[datetime, str]] = []
    if row["transaction_start_ms"] is not None and row["transaction_start_ms"] > 0:
        began = "the current transaction of its id began, by the coordinator's clock"
        found.append((timestamp(row["transaction_start_ms"]), began))
    if _is_time(row["last_timestamp_ms"]):
        found.append((timestamp(row["last_timestamp_ms"]), "its last record was written, by the producer's clock"))
    found.append((row["first_seen_at"], "txnscan first saw it open"))
    if incident is not None:
        found.append((incident["last_seen_at"], f"last seen hanging, in {plural(incident['sweeps'], 'sweep')} so far"))
    return [(utc(at), what) for at, what in sorted(found, key=lambda one: one[0])]


def _is_time(at_ms: int | None) -> bool:
    """Whether a page can show this timestamp of a client."""
    return at_ms is not None and 0 < at_ms < 4_102_444_800_000


def _incident(row: Row, now_ms: int) -> dict[str, Any]:
    until_ms = epoch_ms(row["resolved_at"]) if row["resolved_at"] is not None else now_ms
    return {"row": row, "lasted": duration(max(until_ms - epoch_ms(row["first_seen_at"]), 0))}
