"""The plan for a stored sweep. Reads tables, and writes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields, replace

from txnscan.config import topics_matching
from txnscan.engine.clock import BootTime
from txnscan.engine.rows import from_row
from txnscan.kafka.clock import wall_clock_ms
from txnscan.kafka.failure import Failure
from txnscan.resolve.guard import Limits, StoredTransaction
from txnscan.resolve.plan import Plan, make_plan
from txnscan.resolve.watch_time import SweepTime, watched_ms
from txnscan.sweeps.column import epoch_ms
from txnscan.sweeps.log_facts import with_stored
from txnscan.sweeps.restored import HISTORY_WENT_BACK
from txnscan.tables.conditions import Is, OneOf
from txnscan.tables.delta import By, Row
from txnscan.tables.schema import OPEN_TRANSACTIONS
from txnscan.tables.selection import Sweep, began_ms
from txnscan.tables.tables import Tables
from txnscan.txnlog.facts import NO_FACTS, ProducerFacts
from txnscan.verdict.evidence import Evidence, OutcomeEvidence, Verdict
from txnscan.verdict.outcome import outcome
from txnscan.verdict.rules import judge
from txnscan.version import __version__


def plan_of(tables: Tables, sweep: Sweep, limits: Limits, topic: Sequence[str] = ()) -> Plan:
    """The plan for the hanging transactions of this sweep. topic: regular expressions; only topics whose whole name any
    of them matches get a marker. Raises ConfigError if one takes too long.
    """
    hanging = stored_hanging(tables, sweep["sweep_id"])
    return make_plan(
        hanging,
        replace(limits, topics=within_topics(hanging, topic)),
        cluster_id=sweep["cluster_id"],
        sweep_id=sweep["sweep_id"],
        scope=sweep["scope"],
        swept_at_ms=began_ms(sweep),
        warnings=(*_of_earlier_history(tables, sweep), *(sweep.get("warnings") or ())),
        planned_at_ms=wall_clock_ms(),
        version=__version__,
    )


def _of_earlier_history(tables: Tables, sweep: Sweep) -> tuple[str, ...]:
    """A warning if a later sweep noticed that the history of the cluster went back."""
    if sweep["history"] == tables.past(sweep["cluster_id"])().history:
        return ()
    return (f"{HISTORY_WENT_BACK} since this sweep, which proves nothing any more: sweep again",)


def within_topics(hanging: Sequence[StoredTransaction], topic: Sequence[str]) -> frozenset[str] | None:
    """The topics of these transactions that the patterns allow; None without a pattern. Raises ConfigError."""
    return topics_matching(topic, {one.topic for one in hanging}) if topic else None


def stored_hanging(tables: Tables, sweep_id: str) -> list[StoredTransaction]:
    """Each transaction that this finished sweep judged hanging, as the tables have it, ordered by partition."""
    sweep = tables.sweep(sweep_id)
    if sweep is None:
        return []
    of_sweep = (Is("sweep_id", sweep_id), Is("verdict", "hanging"))
    order = tuple(map(By, ("topic", "partition", "start_offset", "producer_id")))
    hanging = tables.rows(OPEN_TRANSACTIONS, *of_sweep, columns=_OF_ROW, order=order)
    if not hanging:
        return []
    ids = frozenset(row["incident_id"] for row in hanging)
    of_cluster = (Is("cluster_id", sweep["cluster_id"]), OneOf("incident_id", ids))
    rows: dict[str, list[Row]] = defaultdict(list)
    history = tables.past(sweep["cluster_id"])().history
    sightings = tables.rows(OPEN_TRANSACTIONS, *of_cluster, Is("history", history), columns=_OF_SIGHTING)
    sweeps = tables.sweeps({row["sweep_id"] for row in sightings}, _OF_SWEEP)
    for row in sightings:
        if row["sweep_id"] in sweeps:
            rows[row["incident_id"]].append({**sweeps[row["sweep_id"]], **row})
    facts = tables.facts(sweep["cluster_id"], {row["producer_id"] for row in hanging})()
    resolved = tables.resolved_by_apply(sweep["cluster_id"])
    ended = {which: epoch_ms(row["at"]) for which, row in resolved.items()}
    return [
        _stored(
            {**row, "resolved_ms": ended.get(row["incident_id"])},
            sweep,
            rows[row["incident_id"]],
            facts.get(row["producer_id"], NO_FACTS),
        )
        for row in hanging
    ]


# The verdict is judged again from the evidence. The outcome, the first sighting and the number of sweeps are computed.
_OF_ROW = (
    *(
        column.name
        for column in OPEN_TRANSACTIONS.columns
        if column.name in {field.name for field in fields(StoredTransaction)}
    ),
    *("coordinator_producer_epoch", "first_epoch", "first_sequence", "first_batch_failure", "evidence", "read_at"),
)
_OF_SWEEP = ("started_at", "finished_at", "boot_id", "since_boot_ms")
_OF_SIGHTING = ("incident_id", "sweep_id", "verdict", "read_at")


def _sweep_time(row: Row) -> SweepTime:
    """row: a sweep's columns, and the time at which the sweep read the partition."""
    boot = BootTime(row["boot_id"], row["since_boot_ms"]) if row["boot_id"] is not None else None
    return SweepTime(epoch_ms(row["read_at"]), epoch_ms(row["started_at"]), epoch_ms(row["finished_at"]), boot)


def _stored(row: Row, sweep: Row, rows: Sequence[Row], seen: ProducerFacts) -> StoredTransaction:
    """row: with the time at which apply ended it. rows: those of this transaction from all finished sweeps that saw
    it.
    """
    proof = from_row(Evidence, row["evidence"])
    judgement = judge(proof)
    evidence = OutcomeEvidence(
        observation=proof.observation,
        owner_epoch=row["coordinator_producer_epoch"],
        first_epoch=row["first_epoch"],
        first_sequence=row["first_sequence"],
        batch_failure=from_row(Failure, row["first_batch_failure"]),
        logged=(),
        log_failure=from_row(Failure, row["log_failure"]),
        contradiction=None,
    )
    known = outcome(with_stored(evidence, seen))
    found = {
        **row,
        "verdict": judgement.verdict.value,
        "reason": judgement.reason.value,
        "explanation": judgement.explanation,
        "late_after_ms": sweep["late_after_ms"],
        "max_timeout_ms": sweep["max_timeout_ms"],
        "swept_at_ms": epoch_ms(row["read_at"]),
        "first_seen_ms": epoch_ms(row["read_at"]) - watched_ms(_sweep_time({**sweep, **row}), map(_sweep_time, rows)),
        "owner_epoch": row["coordinator_producer_epoch"],
        "outcome": known.outcome.value if row["outcome"] is not None else None,
        "outcome_reason": known.why,
        "log_failure": known.log_failure,
        "sweeps": len({one["sweep_id"] for one in rows if one["verdict"] == Verdict.HANGING}),
    }
    return StoredTransaction(**{field.name: found[field.name] for field in fields(StoredTransaction)})
