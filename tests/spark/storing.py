"""Sweeps of two orphans into tables of every kind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.builders import MINUTE_MS, NOW_MS, judged, known, view
from tests.tables.stored import COMMIT, SEEN_COMMIT, read_for, swept
from txnscan.verdict.outcome import with_outcome

if TYPE_CHECKING:
    from txnscan.sweeps.result import Scan
    from txnscan.verdict.evidence import Judged

ORPHAN = with_outcome(judged(), known("committed", evidence=("offset 1",)))
STALE = judged(view("Empty", 5), partition=1)


def read_at(at_ms: int, one: Judged) -> Judged:
    """The transaction as read at this time."""
    o = replace(one.observation, first=replace(one.observation.first, read_at_ms=at_ms))
    return replace(one, evidence=replace(one.evidence, observation=o))


def sweep(number: int, *transactions: Judged) -> Scan:
    at_ms = NOW_MS + number * 30 * MINUTE_MS
    commit = replace(SEEN_COMMIT, producer_epoch=number)
    read = read_for(ORPHAN, COMMIT, commits=[commit]) if ORPHAN in transactions else {}
    seen = [read_at(at_ms, one) for one in transactions]
    return swept(*seen, sweep_id=f"sweep-{number}", started_at_ms=at_ms, finished_at_ms=at_ms + 500, **read)
