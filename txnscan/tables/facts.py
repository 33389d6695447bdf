"""The rows of the table `facts`: what a sweep or an apply learned about a producer id. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from txnscan.engine.rows import from_row
from txnscan.sweeps.result import Scan, news_of
from txnscan.txnlog.facts import NO_FACTS, Facts, ProducerFacts, together

# The kinds of facts, each in a column. The journal of apply has the markers that it sent, and which facts are of an
# earlier history is computed.
_NO_COLUMN = ("sent", "reads_before", "commits_before")
KINDS = tuple(field.name for field in fields(ProducerFacts) if field.name not in _NO_COLUMN)


@dataclass(frozen=True, slots=True)
class LearnedFacts:
    """New facts about a producer id. sweep_id: None from an apply. learned_ms: when the sweep began, or the apply saw
    them. history: the history of the cluster then.
    """

    cluster_id: str
    sweep_id: str | None
    learned_ms: int
    producer_id: int
    facts: ProducerFacts
    history: int = 0


def learned(scan: Scan) -> list[LearnedFacts]:
    """The rows of a sweep, at most one for each producer id."""
    return [
        LearnedFacts(scan.cluster_id, scan.sweep_id, scan.started_at_ms, producer_id, facts, scan.history)
        for producer_id, facts in news_of(scan).items()
        if facts != NO_FACTS
    ]


def known(rows: Iterable[Mapping[str, Any]], history: int, vetoes_from: int) -> Facts:
    """The facts in these rows, by producer id. history, vetoes_from: see `restored.Past`."""
    found: dict[int, list[ProducerFacts]] = defaultdict(list)
    for row in rows:
        facts = from_row(ProducerFacts, {kind: row[kind] for kind in KINDS} | dict.fromkeys(_NO_COLUMN, ()))
        found[row["producer_id"]].append(counted(facts, row["history"], history, vetoes_from))
    return {producer_id: together(facts) for producer_id, facts in found.items()}


def counted(facts: ProducerFacts, learned_in: int, history: int, vetoes_from: int) -> ProducerFacts:
    """What counts of these facts. learned_in: the history in which they were learned."""
    if learned_in == history:
        return facts
    return facts.only_vetoes() if learned_in >= vetoes_from else NO_FACTS


def vetoes_in(rows: Iterable[Mapping[str, Any]], vetoes_from: int) -> int:
    """The number of facts in these rows that can forbid an ABORT: records of the log, completed commits, markers and
    closed producers.
    """
    return sum(
        len(row["markers"])
        + len(row["commits"])
        + len(row["closed"])
        + sum(len(read["records"]) for read in row["reads"])
        for row in rows
        if row["history"] >= vetoes_from
    )
