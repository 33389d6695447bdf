"""Each proof obligation is needed: without it a sweep gives a wrong verdict, and the real sweep does not.

The histories were found by searching the simulator, and shortened. `make simulate ARGS="--story NAME --without NAME"`
shows them step by step. If the requests of a sweep change, the number of the answer before which an event happens
changes too: then search again for a history with events during the sweep (`tests/prove/histories.py`).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim.check import History, run
from tests.sim.exhaustive import exhaustive
from tests.sim.obligations import DROPPED, EARLIER_OFFSETS, EVERYTHING, with_all
from tests.sim.scenarios import ARENAS, DEPOSED, LOG, begun_and_written, heard
from tests.sim.stories import ENDED_ELSEWHERE, STORIES
from tests.sim.table import Event
from tests.sim.transitions import can_happen, happen, settle
from tests.sim.world import World
from txnscan.coordinators import metadata_image
from txnscan.sweeps.observations import CLAIMED
from txnscan.sweeps.result import Scan


def said(scan: Scan) -> list[tuple[str, str]]:
    return [(str(j.judgement.verdict), str(j.judgement.reason)) for j in scan.transactions]


ACCUSED = "a coordinator would have ended it"
MISSED = "it hung all the while, and a complete sweep did not see it"
CLAIMED_IN_VAIN = "it hangs, and a coordinator that will not end it kept it from the proof"


def told(name: str, why: str = ACCUSED) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The wrong verdicts of a sweep without the obligation, and the verdicts of the real sweep."""
    history = STORIES[name].history
    blind, wrong, _ = run(history, DROPPED[name])
    assert [one.why for one in wrong] == [why]
    seeing, none, _ = run(history)
    assert none == []
    return said(blind), said(seeing)


def test_a_broker_that_is_cut_off_hides_transactions_of_the_real_leader() -> None:
    """The plan. Every broker that answers is right about itself, but one of them answers from old metadata."""
    assert told("plan", MISSED) == ([], [("hanging", "live_epoch")])
    history = STORIES["plan"].history
    assert (run(history, DROPPED["plan"])[0].complete, run(history)[0].complete) == (True, False)


def test_a_deposed_leader_shows_a_transaction_that_ended_elsewhere() -> None:
    """The obligation leader. Broker 1 is cut off from the controller, and still believes that it leads the partition.
    Broker 2 has the marker of the aborted transaction, broker 1 never gets it, and the coordinator has finished long
    ago.
    """
    assert told("leader") == ([("hanging", "stale_epoch")], [])


def test_a_leader_epoch_proves_the_leader_only_with_the_newest_image() -> None:
    """The same with ListOffsets around the read: broker 1 leads by its own word at that leader epoch."""
    assert told("newest") == ([("hanging", "stale_epoch")], [])


@pytest.mark.parametrize("point", [12, 15])
def test_the_newest_image_is_known_only_after_the_last_read(point: int) -> None:
    """Broker 1 is cut off while the sweep runs, and had the newest image just before. Every broker reports its image
    again after the read, so the metadata comes from broker 2.
    """
    arena = ARENAS["newest"]
    events = (*DEPOSED, *ENDED_ELSEWHERE)
    opening = arena.opening[: -len(DEPOSED)]
    history = History(arena.scenario, opening, (), tuple((point, event) for event in events))
    blind, wrong, _ = run(history, EARLIER_OFFSETS)
    assert ([one.why for one in wrong], said(blind)) == ([ACCUSED], [("hanging", "stale_epoch")])
    seeing, none, _ = run(history)
    assert (said(seeing), none) == ([], [])


def test_a_coordinator_that_has_not_heard_of_its_successor_covers_nothing() -> None:
    """The obligation coverage. A broker is elected again before its coordinator has forgotten what it served before."""
    assert told("elected") == ([("hanging", "orphan")], [("indeterminate", "coverage")])


def test_data_above_the_high_watermark_may_still_be_truncated() -> None:
    """The obligation leader. A late record is on the leader alone, and the controller has already elected another
    leader, which no broker knows yet. Only the high watermark shows that the record is not safe.
    """
    assert told("high-watermark") == ([("hanging", "live_epoch")], [("indeterminate", "partition")])


def test_a_moving_coordinator_is_briefly_absent_from_every_listing() -> None:
    """The obligation coverage. The old coordinator has dropped its ids, and the new one does not know yet that it
    leads: both list no ids, without an error. The new one will end the transaction.
    """
    assert told("coverage") == ([("hanging", "orphan")], [("indeterminate", "coverage")])


def test_an_id_hidden_from_the_principal_owns_a_healthy_transaction() -> None:
    """The obligation visibility. A listing silently omits ids without Describe permission."""
    assert told("visibility") == ([("hanging", "orphan")], [("indeterminate", "visibility")])


def test_a_transaction_ends_between_the_read_and_the_coordinator_request() -> None:
    """The second read. The transaction is open when the partition is read, and committed before its coordinator is
    asked,
    which then has no pending marker.
    """
    assert told("second-read") == ([("hanging", "missed_commit")], [("gone", "ended")])


def test_a_transaction_begins_between_the_coordinator_request_and_the_read() -> None:
    """The order of the steps. If asked first, the coordinator does not know a transaction that begins right after, and
    that both reads of the partition then find open. In the correct order it was not open at the first read.
    """
    assert told("order") == ([("hanging", "live_epoch")], [])


def test_a_new_coordinator_resends_a_marker() -> None:
    """Prepare* is no absence. The partition has acknowledged its marker and left the list in the coordinator's memory.
    A
    late record opens it again. The log still lists the partition, and a coordinator that takes over before the abort is
    complete sends the marker again, which ends the late record. Also observed on real brokers.
    """
    assert told("prepare") == ([("hanging", "decided")], [("indeterminate", "decided")])


def test_a_coordinator_with_a_partly_loaded_log_still_claims_it() -> None:
    """The log. In every probe the new coordinator serves the id's partition of the log, before it has loaded it."""
    assert told("log") == ([("hanging", "orphan")], [("indeterminate", "split")])


def test_a_producer_claimed_on_another_partition_hangs_on_this_one() -> None:
    """Claims. A late record of a finished transaction hangs on a partition, while the next transaction of the same
    producer is ongoing on another: its coordinator will never end the first.
    """
    assert told("claim", CLAIMED_IN_VAIN) == ([("late_ongoing", "owned")], [("hanging", "live_epoch")])


def test_a_claim_of_a_deposed_coordinator_does_not_skip_the_proof() -> None:
    """Claims. Broker 1 was deposed and does not know it. Its claim does not count, and the transaction gets a fenced
    read. The newest image does not name broker 1 any more, so it is not asked as a coordinator.
    """
    assert told("claimant", CLAIMED_IN_VAIN) == ([("late_ongoing", "owned")], [("hanging", "live_epoch")])
    history = STORIES["claimant"].history
    (blind,), (seeing,) = (run(history, protocol)[0].transactions for protocol in (DROPPED["claimant"], EVERYTHING))
    assert (blind.observation.first.failure, seeing.observation.first.failure) == (CLAIMED, None)


@pytest.mark.parametrize("point", [2, 4])
def test_an_offset_from_before_the_plan_does_not_show_that_a_coordinator_knows_of_its_election(
    point: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coverage. All brokers report one offset. Then the log moves from broker 1 to 2, a transaction begins, and the log
    moves back, before the plan shows that. Broker 1 has heard of the first move, as a replica alone.
    """
    scenario, events = ARENAS["elected"].scenario, list[Event]()
    world = World(scenario)
    for event in (
        *(("move leader", (LOG, 2)), ("publish metadata", (1,)), ("apply to replicas", (1,)), *heard(2, 3)),
        *(("load", (2, 0)), *begun_and_written(1, 2), ("move leader", (LOG, 1)), *heard(2, 3)),
    ):
        assert can_happen(world, event), event
        happen(world, event)
        events += [event, *settle(world, ("fetch", "complete transition"))]
    history = History(scenario, (), (), tuple((point, event) for event in events))
    found, wrong, _ = run(history, DROPPED["log"])
    assert (wrong, said(found)) == ([], [("indeterminate", "coverage")])
    monkeypatch.setattr(metadata_image, "_offset_after", lambda send, view: 0)
    assert [one.why for one in run(history, DROPPED["log"])[1]] == [ACCUSED], "the later offset is what shows it"


def test_a_silent_broker_matters_only_for_what_it_leads() -> None:
    """Leader. Broker 3 does not answer. It leads a partition, but no transactional id."""
    arena = ARENAS["claim"]
    scenario = replace(
        arena.scenario, topics=(*arena.scenario.topics, (("r", 0), (3,))), faults=frozenset({"pause", "cut"})
    )
    silent: tuple[Event, ...] = (("pause broker", (3,)),)
    for more, expected in (
        ((), ("hanging", "live_epoch")),
        # Without a controller that can be asked, the silent broker may have the newest image.
        ((("cut broker off", (1,)),), ("indeterminate", "partition")),
    ):
        history = History(scenario, arena.opening, (*STORIES["claim"].history.before, *silent, *more), ())
        found, wrong, _ = run(history, DROPPED["log"])
        assert wrong == []
        assert [(j.judgement.verdict, j.judgement.reason) for j in found.transactions] == [expected]
        assert not found.complete
        assert 3 in {error.broker for error in found.errors}


def test_every_obligation_has_its_story() -> None:
    assert STORIES.keys() == DROPPED.keys() == ARENAS.keys()


@pytest.mark.parametrize("name", DROPPED)
def test_the_search_finds_a_wrong_verdict_if_an_obligation_is_dropped(name: str) -> None:
    """A false hanging verdict. For claims, a hanging transaction counts as claimed; for the plan, it is overlooked."""
    arena = ARENAS[name]
    found = exhaustive(arena, arena.brief, DROPPED[name], stop=lambda figures: figures.wrong != [])
    why = {"plan": MISSED, "claimant": CLAIMED_IN_VAIN, "claim": CLAIMED_IN_VAIN}.get(name, ACCUSED)
    assert {wrong.why for _, wrong in found.wrong} == {why}
    assert (found.false_accusations > 0) == (why == ACCUSED)


@pytest.mark.parametrize("name", DROPPED)
def test_with_every_obligation_the_same_histories_have_no_wrong_verdict(name: str) -> None:
    arena = ARENAS[name]
    found = exhaustive(arena, arena.brief, with_all(name))
    assert found.histories > 0
    assert (found.false_accusations, found.torn, found.overlooked, found.wrong) == (0, 0, 0, [])
