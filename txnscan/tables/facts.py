"""The rows of the table `facts`: what a sweep or an apply learned about a producer id. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from txnscan.engine.rows import from_row
from txnscan.sweeps.result import Scan, news_of
from txnscan.txnlog.facts import NO_FACTS, Facts, ProducerFacts, together

# The journal of apply has the markers that it sent.
KINDS = tuple(field.name for field in fields(ProducerFacts) if field.name != "sent")


@dataclass(frozen=True, slots=True)
class LearnedFacts:
    """New facts about a producer id. sweep_id: None from an apply. learned_ms: when the sweep began, or the apply saw
    them.
    """

    cluster_id: str
    sweep_id: str | None
    learned_ms: int
    producer_id: int
    facts: ProducerFacts


def learned(scan: Scan) -> list[LearnedFacts]:
    """The rows of a sweep, at most one for each producer id."""
    return [
        LearnedFacts(scan.cluster_id, scan.sweep_id, scan.started_at_ms, producer_id, facts)
        for producer_id, facts in news_of(scan).items()
        if facts != NO_FACTS
    ]


def known(rows: Iterable[Mapping[str, Any]]) -> Facts:
    """All facts in these rows, by producer id."""
    found: dict[int, list[ProducerFacts]] = defaultdict(list)
    for row in rows:
        found[row["producer_id"]].append(from_row(ProducerFacts, {"sent": (), **{kind: row[kind] for kind in KINDS}}))
    return {producer_id: together(facts) for producer_id, facts in found.items()}
