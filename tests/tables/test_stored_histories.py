"""Stored facts of several histories of one cluster (`sweeps/restored.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import NOW_MS
from tests.tables.stored import (
    COMMIT,
    LATER_MS,
    ORPHAN,
    SEEN_COMMIT,
    STALE,
    After,
    incidents,
    log_read,
    logged,
    next_sweep,
    read_for,
)
from txnscan.resolve.guard import Limits
from txnscan.resolve.plan import Plan, PlanRefused
from txnscan.resolve.plan_of_sweep import plan_of, stored_hanging
from txnscan.resolve.run import check_history
from txnscan.sweeps.gate import stored_gate
from txnscan.sweeps.restored import Fall, LogPosition, Past, Sign
from txnscan.txnlog.facts import ProducerFacts
from txnscan.waiting.complete_up_to import PartitionRead, TopicRead, concluded

if TYPE_CHECKING:
    from txnscan.sweeps.result import Scan
    from txnscan.tables.tables import Tables

FALL = Fall(Sign.HIGH_WATERMARK, 105, 100, "p-0")
WHERE = ORPHAN.observation.transaction_key
ENDED_AT: dict[str, Any] = {"proven": {("p", 0): "t0"}, "ends": {("p", 0): (5, 106)}}


def later(number: int, *transactions: Any, history: int = 1, **changes: Any) -> Scan:
    """A sweep after the history went back. A row of it was first seen then."""
    found = next_sweep(number, *transactions, history=history, **changes)
    return replace(
        found,
        transactions=tuple(
            replace(one, evidence=replace(one.evidence, observation=replace(one.observation, first_seen_ms=at_ms)))
            for one in transactions
            for at_ms in [NOW_MS + number * LATER_MS]
        ),
    )


def test_positions_are_those_of_the_last_history(after: After) -> None:
    high, low = LogPosition("p", "t0", 0, 9, 900), LogPosition("p", "t0", 0, 5, 100)
    tables = after(next_sweep(1, positions=(high,), image_offset=50))
    assert tables.past("cluster-1")() == Past(0, 0, 50, (high,))
    tables.write(later(2, positions=(low,), image_offset=20, fall=FALL))
    assert tables.past("cluster-1")() == Past(1, 0, 20, (low,))
    assert tables.past("another")() == Past()
    (row,) = [row for row in tables.last_sweeps() if row["history"] == 1]
    assert (row["went_back"], row["went_back_reason"]) == ("high_watermark", str(FALL))


def test_an_incident_that_ended_opens_again_in_a_new_history(after: After) -> None:
    """Without the history, its end at a higher position would count."""
    tables = after(next_sweep(1, ORPHAN), next_sweep(2, **ENDED_AT))
    assert tables.ended("cluster-1", [WHERE])() == {WHERE: 5}
    tables.write(later(3, ORPHAN))
    (row,) = incidents(tables).values()
    assert (row["is_open"], row["resolved_how"], row["sweeps"], row["history"]) == (True, None, 1, 1)
    assert row["first_seen_at"].timestamp() * 1_000 == NOW_MS + 3 * LATER_MS
    assert tables.ended("cluster-1", [WHERE])() == {}
    assert tables.unresolved("cluster-1")()[WHERE].history == 1


def test_ages_and_sightings_of_an_earlier_history_do_not_count(after: After) -> None:
    tables = after(*(next_sweep(number, STALE) for number in range(5)))
    (before,) = stored_hanging(tables, "sweep-4")
    assert before.sweeps == 5
    tables.write(later(5, STALE))
    (now,) = stored_hanging(tables, "sweep-5")
    assert (now.sweeps, now.watched_ms) == (1, 0)
    (old,) = stored_hanging(tables, "sweep-4")
    assert (old.sweeps, old.watched_ms) == (1, 0), "only the sighting of the new history counts"
    assert set(tables.last_seen("cluster-1")()) == {STALE.observation.transaction_key}
    assert tables.last_seen("cluster-1")()[STALE.observation.transaction_key].first_seen_ms == NOW_MS + 5 * LATER_MS


def test_a_plan_of_an_earlier_history_is_refused(after: After) -> None:
    tables = after(next_sweep(1, STALE))
    plan = plan_of(tables, tables.sweep("sweep-1") or {}, Limits())
    check_history(tables, plan)
    tables.write(later(2))
    with pytest.raises(PlanRefused, match="went back since its sweep"):
        check_history(tables, plan)
    again: Plan = plan_of(tables, tables.sweep("sweep-1") or {}, Limits())
    assert any("went back since this sweep" in warning for warning in again.warnings)
    check_history(tables, plan_of(tables, tables.sweep("sweep-2") or {}, Limits()))


def test_facts_of_an_earlier_history_only_veto_until_the_user_ends_that(after: After) -> None:
    tables = after(next_sweep(1, ORPHAN, **read_for(ORPHAN, COMMIT, commits=[SEEN_COMMIT])))
    of_first = tables.facts("cluster-1", {7})()[7]
    assert (len(of_first.reads), of_first.reads_before) == (1, ())
    tables.write(later(2, ORPHAN, **read_for(ORPHAN, log_read(logged("Ongoing", 3, 0)))))
    tables.past("cluster-1")()
    of_second = tables.facts("cluster-1", {7})()[7]
    assert of_second.reads_before == of_first.reads and of_second.commits_before == (SEEN_COMMIT,)
    assert (len(of_second.reads), of_second.commits) == (1, ())
    assert tables.vetoes("cluster-1") == len(COMMIT.records) + 1 + 1
    tables.write(later(3, ORPHAN, history=2, vetoes_from=2, vetoes_dropped=6))
    assert tables.past("cluster-1")().vetoes_from == 2
    assert tables.facts("cluster-1", {7})()[7] == ProducerFacts()
    assert tables.vetoes("cluster-1") == 0


def test_a_commit_of_an_earlier_history_still_forbids_an_abort(after: After) -> None:
    """In the new history the log shows an abort. Without the veto the outcome would be not_committed."""
    abort = log_read(
        logged("CompleteCommit", 3),
        logged("Ongoing", 3, 0),
        logged("PrepareAbort", 4, 0),
        logged("CompleteAbort", 4),
    )
    first = next_sweep(1, ORPHAN, **read_for(ORPHAN, COMMIT, commits=[SEEN_COMMIT]))

    def outcome(tables: Tables, number: int, **changes: Any) -> str | None:
        one = later(number, ORPHAN, **{**read_for(ORPHAN, abort), **changes})
        tables.write(replace(one, transactions=tuple(_with_outcome(one))))
        tables.past("cluster-1")()
        (found,) = stored_hanging(tables, one.sweep_id)
        return found.outcome

    tables = after(first)
    assert outcome(tables, 2) == "maybe_committed"
    assert outcome(tables, 3, history=2, vetoes_from=2) != "maybe_committed", "after --new-history"


def _with_outcome(found: Scan) -> list[Any]:
    from tests.builders import known
    from txnscan.verdict.outcome import with_outcome

    return [with_outcome(one, known()) for one in found.transactions]


def test_a_mark_of_gate_of_an_earlier_history_is_not_believed(after: After) -> None:
    """Readers are blocked now. By the marks of the earlier history, the topic would be complete up to its read."""

    def read(at_ms: int, epoch: int, mark: int, stable: int, *known: TopicRead) -> TopicRead:
        return concluded(TopicRead("p", "t0", at_ms, (PartitionRead(0, epoch, mark, stable),)), known)

    first, until_ms = read(NOW_MS, 4, 40, 40), NOW_MS
    tables = after(next_sweep(1, topic_reads=(first,)))
    assert stored_gate(tables.last_topic_reads(["p"]), ["p"], until_ms).state == "complete"
    tables.write(later(2, topic_reads=(read(NOW_MS + LATER_MS, 5, 60, 45),)))
    for cluster_id in (None, "cluster-1"):
        found = tables.last_topic_reads(["p"], cluster_id)
        assert len(found) == 1
        assert stored_gate(found, ["p"], until_ms).state == "blocked"
    assert read(NOW_MS + LATER_MS, 5, 60, 45, first).complete_up_to_ms == until_ms, "what it would be with that mark"


def test_a_sweep_that_was_not_finished_leaves_no_incident_behind(after: After) -> None:
    """It noticed a fall and stored an incident, and then ended. Its history is never less than that of an incident."""
    tables = after(next_sweep(1, ORPHAN))
    unfinished = later(2, ORPHAN)
    tables._fold_incidents(unfinished)
    assert tables.past("cluster-1")() == Past(1)
