"""The properties of the histories in `known_histories.py`, and their possibility."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.known_histories import KNOWN
from tests.sim.answers import answer
from tests.sim.check import History, run
from tests.sim.history import accused
from tests.sim.records import Data, still_open
from tests.sim.scenarios import (
    LOG,
    MOVED,
    PARTIAL_LOAD,
    UNWRITABLE,
    UNWRITTEN,
    WIDE,
    A,
    P,
    begun_and_written,
    ended_and_late,
    rest,
)
from tests.sim.transitions import TRANSITIONS, can_happen, happen
from tests.sim.truth import hanging, settled
from tests.sim.wander import wander, wander_and_apply
from tests.sim.world import World
from txnscan.kafka.protocol.fetch import fetch
from txnscan.kafka.topology import Partition
from txnscan.txnlog.decode import decode
from txnscan.verdict.evidence import Outcome, Reason, Verdict

_ANYTHING = frozenset(transition.fault for transition in TRANSITIONS.values() if transition.fault is not None)


def played(name: str) -> World:
    """The world at the end of a history. Every event was possible, including faults outside its world."""
    history = KNOWN[name].history
    world = World(replace(history.scenario, faults=_ANYTHING))
    for number, event in enumerate((*history.opening, *history.before)):
        assert can_happen(world, event), event
        happen(world, event)
        if number < len(history.opening):
            rest(world)
    return world


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_history_is_possible_and_has_its_properties(name: str) -> None:
    known, world = KNOWN[name], played(name)
    assert [shown.start_offset for shown in still_open(world.logs[P, world.places[P][0]]).values()] == [0]
    assert hanging(world) == ({(P, 7, 0)} if known.hangs else frozenset())
    decided = settled(world).decided if known.hangs else world.decided
    assert decided.get((A, 1)) is known.committed


@pytest.mark.parametrize("name", KNOWN)
def test_no_verdict_of_a_known_history_is_wrong(name: str) -> None:
    assert run(KNOWN[name].history)[1] == []


@pytest.mark.parametrize("name", KNOWN)
def test_the_log_of_a_known_history_has_the_remaining_records_of_the_id(name: str) -> None:
    known, world = KNOWN[name], played(name)
    leads = world.leads(2, LOG)
    assert leads is not None
    partition = Partition(LOG[0], "", LOG[1], 2, leads.epoch)
    fetched = fetch(lambda b, request: answer(world, b, request), partition, 0, 1 << 20, records=True)
    given = [
        (record.offset, str(record.state), record.producer_epoch)
        for batch in fetched.batches
        for offset, _, value in batch.records or ()
        if value is not None
        for record in [decode(offset, offset, A, value)]
    ]
    assert tuple(given) == known.log


def test_an_unnoticed_leadership_change_before_an_empty_load_hides_no_owner() -> None:
    """All brokers name it at the new epoch. It claims its part of the log, and does not serve it at that epoch."""
    back_and_forth = (("move leader", (LOG, 1)), ("move leader", (LOG, 2)))
    noticed_by_none = (*back_and_forth, ("publish metadata", (1,)), ("publish metadata", (2,)))
    opening = (*begun_and_written(1), *MOVED)
    found, wrong, *_ = run(History(PARTIAL_LOAD, opening, (("partial load", (2, 0, 0)), *noticed_by_none), ()))
    assert wrong == []
    (judged,) = found.transactions
    assert (judged.judgement.verdict, judged.judgement.reason) == (Verdict.INDETERMINATE, Reason.SPLIT)
    assert "UNKNOWN_LEADER_EPOCH" in judged.judgement.explanation


def test_a_leader_does_not_trust_a_replica_that_left_before_it_was_reported_in_sync() -> None:
    """The reported set is the same as before. Only the partition epoch distinguishes it."""
    before = (
        *(("start broker", (2,)), ("unfence broker", (2,)), ("publish metadata", (1,))),
        *(("expand isr", (LOG, 2)), ("apply to replicas", (1,)), ("kill broker", (2,))),
    )
    assert run(History(UNWRITTEN, UNWRITABLE, before, ()))[1] == []


@pytest.mark.parametrize(
    ("loaded", "hears_at_once", "hears_later", "point"), [(2, 1, 2, 8), (3, 2, 1, 7)], ids=["the other", "itself"]
)
def test_a_claim_of_a_reelected_coordinator_is_in_good_faith_until_it_loads(
    loaded: int, hears_at_once: int, hears_later: int, point: int
) -> None:
    before = (
        *(("partial load", (2, 0, loaded)), ("move leader", (LOG, 1))),
        *(("publish metadata", (hears_at_once,)), ("move leader", (LOG, 2))),
    )
    during = ((point, ("publish metadata", (hears_later,))),)
    assert run(History(PARTIAL_LOAD, (*ended_and_late(), *MOVED), before, during))[1] == []


def test_a_transaction_resumed_and_ended_during_the_log_read_is_not_hanging() -> None:
    """It hung when it was described. Its producer added the partition again, and committed."""
    figures, history = wander(WIDE["v1-unverified"], 5_002_848)
    assert figures.wrong == []
    (judged,) = [one for one in run(history)[0].transactions if one.observation.producer_id == 7]
    assert (judged.judgement.verdict, judged.judgement.reason) == (Verdict.INDETERMINATE, Reason.SPLIT)
    assert "Ongoing with this partition later" in judged.judgement.explanation


@pytest.mark.parametrize("seed", [5_001_351, 5_007_035])
def test_an_outcome_covers_the_data_that_was_read_and_later_data_gets_no_marker(seed: int) -> None:
    """A late record of a later epoch, appended after the first read, joins the committed data."""
    figures, history = wander(WIDE["holes-in-the-log-v1"], seed)
    assert figures.accusations == 1 and figures.wrong == []
    found, _, world = run(history)
    (judged,) = accused(found)
    o = judged.observation
    assert judged.outcome == Outcome.COMMITTED
    logs = [log for (key, _), log in world.logs.items() if key == o.key]
    later = [one for log in logs for _, one in log[o.second.high_watermark :] if isinstance(one, Data)]
    assert any((one.producer_id, one.producer_epoch) == (o.producer_id, o.producer_epoch + 1) for one in later)
    assert wander_and_apply(WIDE["holes-in-the-log-v1"], seed).harm == []


@pytest.mark.parametrize("seed", [5_000_018, 5_000_510, 5_000_518])
def test_a_proven_commit_is_not_completed_with_late_records_of_another_epoch(
    seed: int,
) -> None:
    """The first sweep proved the commit. A COMMIT marker would also expose the aborted late records."""
    assert wander_and_apply(WIDE["holes-in-the-log-v1"], seed).harm == []
