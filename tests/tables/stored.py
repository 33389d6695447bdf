"""Sweeps to write, and tables with them, for tests of either store."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tests.builders import MINUTE_MS, NOW_MS, failed, judged, scan, view
from tests.sim.encode import transaction_log_value
from tests.sim.records import TransactionMetadata
from txnscan.sweeps.log_facts import signed
from txnscan.tables.schema import INCIDENTS, TABLES
from txnscan.txnlog.facts import LogRead, ProducerFacts, RawRecord, SeenCommit
from txnscan.verdict.evidence import OutcomeEvidence
from txnscan.verdict.outcome import with_outcome

if TYPE_CHECKING:
    from tests.conftest import Opens
    from txnscan.sweeps.result import Scan
    from txnscan.tables.delta import Row
    from txnscan.tables.tables import Tables
    from txnscan.verdict.evidence import Judged, KnownOutcome

ORPHAN = judged()
STALE = judged(view("Empty", 5), partition=1)
YOUNG = judged(start_offset=200, second_start_offset=200, first_seen_ms=NOW_MS, last_timestamp_ms=NOW_MS,
               first_high_watermark=300, second_high_watermark=300)  # fmt: skip
ONGOING = judged(view("Ongoing", 3, ("p-0",)), start_offset=90, second_start_offset=90)
ENDED = judged(start_offset=80, second_start_offset=None)
DOUBTFUL = judged(view("Empty", 5, coverage_failure=failed("x")), partition=1)
LATER_MS = 5 * MINUTE_MS


def swept(*transactions: Judged, **changes: Any) -> Scan:
    """A sweep that saw every partition at the position at which the builders place open transactions."""
    found = scan(*transactions, **changes)
    outcome_evidence = {
        which: signed(one, found.sweep_id, found.started_at_ms) for which, one in found.outcome_evidence.items()
    }
    return replace(
        found, outcome_evidence=outcome_evidence, ends=changes.get("ends", dict.fromkeys(found.proven, (5, 105)))
    )


def next_sweep(number: int, *transactions: Judged, **changes: Any) -> Scan:
    """The sweep `sweep-<number>`, five minutes after the sweep before it."""
    when_ms = NOW_MS + number * LATER_MS
    times = {"started_at_ms": when_ms, "finished_at_ms": when_ms + 500}
    return swept(*transactions, **{"sweep_id": f"sweep-{number}", **times, **changes})


def logged(state: str, epoch: int, *partitions: int) -> bytes:
    """A record of `__transaction_state`, of producer id 7 and partitions of topic p, under transactions v2."""
    held = frozenset(("p", index) for index in partitions)
    return transaction_log_value(TransactionMetadata(7, epoch, state, held, client_version=2), NOW_MS)


def log_read(*values: bytes | None, **changes: Any) -> LogRead:
    """A complete read of these records of id X."""
    records = tuple(RawRecord(10 + at, 0, "X", value, 2) for at, value in enumerate(values))
    return replace(LogRead("ts0", 4, 2, 10 + len(values), "X", records), **changes)


# The log of a committed transaction of epoch 3.
COMMIT = log_read(
    logged("CompleteAbort", 3),
    logged("Ongoing", 3, 0),
    logged("PrepareCommit", 4, 0),
    logged("CompleteCommit", 4),
)


# The coordinator described id X as committed at epoch 3.
SEEN_COMMIT = SeenCommit("X", 7, 3)


def read_for(judged: Judged, *reads: LogRead, commits: Sequence[SeenCommit] = (), **changes: Any) -> dict[str, Any]:
    """The facts of a sweep that read this about a hanging transaction, without stored facts."""
    o = judged.observation
    news = ProducerFacts(reads, commits=tuple(commits))
    evidence = OutcomeEvidence(o, 4, o.producer_epoch, 0, None, (), None, None, seen=news, news=news)
    return {"outcome_evidence": {o.transaction_key: replace(evidence, **changes)}}


def reads_of(*sweeps: Scan) -> list[LogRead]:
    """The log reads of these sweeps."""
    return [read for sweep in sweeps for evidence in sweep.outcome_evidence.values() for read in evidence.news.reads]


def incidents(tables: Tables) -> dict[str, Row]:
    """The stored incidents by their id."""
    return {row["incident_id"]: row for row in tables.rows(INCIDENTS)}


def hanging(start_offset: int, outcome: KnownOutcome) -> Judged:
    """A hanging transaction from this offset on, with this outcome."""
    marks = {"first_high_watermark": 300, "second_high_watermark": 300}
    found = judged(start_offset=start_offset, second_start_offset=start_offset, **marks)
    return with_outcome(found, outcome)


def versions(location: str) -> list[int]:
    """The version of each table."""
    from deltalake import DeltaTable

    return [DeltaTable(f"{location}/{table.name}").version() for table in TABLES]


# Opens tables to which these sweeps were written.
After = Callable[..., "Tables"]


class Prepared:
    """Directories of tables, created once for each list of sweeps, and copied for each test."""

    def __init__(self, opens: Opens, directory: Path) -> None:
        self._opens = opens
        self._directory = directory
        self._made: list[tuple[tuple[Scan, ...], Path]] = []

    def copy(self, location: str, *sweeps: Scan) -> Tables:
        """Copies the tables with these sweeps to the location, and opens them as another process."""
        shutil.copytree(self._find(*sweeps), location)
        return self._opens(location)

    def _find(self, *sweeps: Scan) -> Path:
        for written, there in self._made:
            if written == sweeps:
                return there
        there = self._directory / uuid4().hex
        if sweeps:
            self.copy(str(there), *sweeps[:-1]).write(sweeps[-1])
        else:
            self._opens(str(there)).create()
        self._made.append((sweeps, there))
        return there


# A sweep with a hanging transaction that committed, and another.
SWEEP = next_sweep(1, ORPHAN, STALE, **read_for(ORPHAN, COMMIT, commits=[SEEN_COMMIT]))
