"""Each proof obligation is needed: a sweep without it accuses somebody innocent, or takes what hangs for held, and the
real sweep does not.

The histories were found by searching the simulator and made as short as they go; `make simulate ARGS="--story NAME
--without NAME` shows them step by step. Where a sweep asks something more or less, the number of the answer before
which an event happens changes, and a history with events during the sweep has to be found anew
(`tests/prove/histories.py`).
"""

from __future__ import annotations

import pytest

from tests.sim.check import run
from tests.sim.exhaustive import exhaustive
from tests.sim.obligations import DROPPED, EVERYTHING, with_all
from tests.sim.scenarios import ARENAS
from tests.sim.stories import STORIES
from txnscan.sweeps.observations import CLAIMED
from txnscan.sweeps.result import Scan


def said(scan: Scan) -> list[tuple[str, str]]:
    return [(str(j.judgement.verdict), str(j.judgement.reason)) for j in scan.transactions]


ACCUSED = "a coordinator would have ended it"
MISSED = "it hung all the while, and a complete sweep did not see it"
CLAIMED_IN_VAIN = "it hangs, and a coordinator that will not end it kept it from the proof"


def told(name: str, why: str = ACCUSED) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What a sweep without the obligation says, wrongly, and what the real one says, rightly."""
    history = STORIES[name].history
    blind, wrong, _ = run(history, DROPPED[name])
    assert [one.why for one in wrong] == [why]
    seeing, none, _ = run(history)
    assert none == []
    return said(blind), said(seeing)


def test_a_broker_that_is_cut_off_does_not_show_what_hangs_at_the_leader() -> None:
    """The plan. Every broker that answers is right about itself, but one of them answers from old metadata."""
    assert told("plan", MISSED) == ([], [("indeterminate", "partition")])
    history = STORIES["plan"].history
    assert (run(history, DROPPED["plan"])[0].complete, run(history)[0].complete) == (True, False)


def test_a_deposed_leader_shows_a_transaction_that_ended_elsewhere() -> None:
    """Obligation L. Broker 1 is cut off from the controller and goes on believing that it leads the partition. Broker 2
    has the marker of the aborted transaction, broker 1 never gets it, and the coordinator is long done.
    """
    assert told("leader") == ([("hanging", "stale_epoch")], [])


def test_data_above_the_high_watermark_may_still_be_truncated() -> None:
    """Obligation L. A late record is on the leader alone, and the controller has already made another broker the
    leader, of which nobody has heard yet: no broker could tell, and only the high watermark shows that the record is
    not safe.
    """
    assert told("high-watermark") == ([("hanging", "live_epoch")], [("indeterminate", "partition")])


def test_a_coordinator_that_moves_is_listed_by_nobody_for_a_moment() -> None:
    """Obligation V. The old coordinator has forgotten its ids and the new one has not heard that it leads: both list
    nothing, without an error. The new one will end the transaction.
    """
    assert told("coverage") == ([("hanging", "orphan")], [("indeterminate", "coverage")])


def test_an_id_that_the_principal_may_not_describe_owns_a_healthy_transaction() -> None:
    """Obligation A. A listing leaves out, without a word, what its principal may not describe."""
    assert told("visibility") == ([("hanging", "orphan")], [("indeterminate", "visibility")])


def test_a_transaction_ends_between_the_read_and_the_question() -> None:
    """The second read. Open when the partition is read; committed before its coordinator is asked, which then owes
    nobody anything.
    """
    assert told("second-read") == ([("hanging", "maybe_committed")], [("gone", "ended")])


def test_a_transaction_begins_between_the_question_and_the_read() -> None:
    """The order of the steps. Asked first, the coordinator knows nothing of a transaction that begins right after, and
    that both reads of the partition then find open. In the right order nothing was open at the first read.
    """
    assert told("order") == ([("hanging", "live_epoch")], [])


def test_a_coordinator_that_takes_over_sends_a_marker_again() -> None:
    """Prepare* is no absence. The partition has acknowledged its marker and left the list in the coordinator's memory;
    a late record opens it again. The log still lists the partition, and a coordinator that takes over before the abort
    is complete sends the marker once more, which ends the late record. Seen on real brokers as well.
    """
    assert told("prepare") == ([("hanging", "decided")], [("indeterminate", "decided")])


def test_a_coordinator_that_could_not_read_all_of_its_log_claims_it_all_the_same() -> None:
    """The log. By every probe the new coordinator serves the id's partition of the log, and has loaded none of it."""
    assert told("log") == ([("hanging", "orphan")], [("indeterminate", "split")])


def test_a_producer_that_is_held_elsewhere_hangs_here() -> None:
    """Claims. A late record of a transaction that is over hangs on one partition, while the next transaction of the
    same producer is ongoing on another: its coordinator will never end the first.
    """
    assert told("claim", CLAIMED_IN_VAIN) == ([("late_ongoing", "owned")], [("hanging", "live_epoch")])


def test_a_coordinator_that_was_cut_off_keeps_nothing_from_the_proof() -> None:
    """Claims. Broker 1 was deposed and has not heard of it. Its claim does not count, and the transaction is read
    with proof. As long as broker 1 answers, its view stands in the snapshot as well, and no absence is proven.
    """
    assert told("claimant", CLAIMED_IN_VAIN) == ([("late_ongoing", "owned")], [("late_ongoing", "owned")])
    history = STORIES["claimant"].history
    (blind,), (seeing,) = (run(history, protocol)[0].transactions for protocol in (DROPPED["claimant"], EVERYTHING))
    assert (blind.observation.first.failure, seeing.observation.first.failure) == (CLAIMED, None)


def test_every_obligation_has_its_story() -> None:
    assert STORIES.keys() == DROPPED.keys() == ARENAS.keys()


@pytest.mark.parametrize("name", DROPPED)
def test_the_search_finds_a_wrong_verdict_where_an_obligation_is_dropped(name: str) -> None:
    """Somebody innocent is accused; of claims, what hangs is taken for held; of the plan, it is missed."""
    arena = ARENAS[name]
    found = exhaustive(arena, arena.brief, DROPPED[name], stop=lambda figures: figures.wrong != [])
    why = {"plan": MISSED, "claimant": CLAIMED_IN_VAIN, "claim": CLAIMED_IN_VAIN}.get(name, ACCUSED)
    assert {wrong.why for _, wrong in found.wrong} == {why}
    assert (found.false_accusations > 0) == (why == ACCUSED)


@pytest.mark.parametrize("name", DROPPED)
def test_with_every_obligation_the_same_histories_accuse_nobody_wrongly(name: str) -> None:
    arena = ARENAS[name]
    found = exhaustive(arena, arena.brief, with_all(name))
    assert found.histories > 0
    assert (found.false_accusations, found.torn, found.overlooked, found.wrong) == (0, 0, 0, [])
