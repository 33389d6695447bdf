"""Brokers that forget: idle producers, the producers' state of a moved replica, and the end of a log at the same leader
epoch.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cases import Cases
from tests.sim import at_rest
from tests.sim.at_rest import Said, counted, said_at_rest
from tests.sim.check import Figures, History, run
from tests.sim.history import Simulation, sweep
from tests.sim.records import producer_state
from tests.sim.scenarios import DELETED_V1, KEPT, LATE_DATA, LOG, OPENINGS, WIDE, A, P, heard, opened
from tests.sim.stepping import DELETED_FIRST, END_MARKERS, INIT, end, go_on, shown_open
from tests.sim.table import Event
from tests.sim.transitions import can_happen
from tests.sim.truth import hanging
from tests.sim.wander import begun, wander, wander_again
from tests.sim.world import IDLE_PRODUCERS, World
from txnscan.sweeps import log_reads
from txnscan.verdict.evidence import Unproven

IDLE = replace(LATE_DATA, name="idle producers", topics=((P, (1, 2)),), faults=frozenset({IDLE_PRODUCERS, "kill"}))
# The transaction of epoch 0 is aborted while a record of it is in flight; then the producer is at epoch 1.
_LATE: tuple[Event, ...] = (
    *(INIT, ("AddPartitionsToTxn", (1, A, P)), ("send data", (A, P, 1)), end(1, commit=False), *END_MARKERS),
    *(INIT, ("AddPartitionsToTxn", (1, A, P)), ("send data", (A, P, 1)), ("append data", (1,)), end(1), *END_MARKERS),
)


def shown(world: World, broker_id: int) -> list[tuple[int, int, int]]:
    """Each producer of p-0 on this replica: epoch, coordinator epoch, start offset."""
    known = producer_state(world.logs[P, broker_id]).values()
    return [(one.producer_epoch, one.coordinator_epoch, one.start_offset) for one in known]


def test_a_leader_that_forgot_a_producer_takes_late_data_of_an_earlier_epoch() -> None:
    world = opened(IDLE, _LATE)
    assert shown(world, 1) == shown(world, 2) == [(1, 0, -1)]
    refused = world.copy()
    go_on(refused, ("append data", (0,)))
    assert shown(refused, 1) == [(1, 0, -1)], "the partition knows the later epoch"
    go_on(world, ("expire producer", (P, 1, 7)))
    assert (shown(world, 1), shown(world, 2)) == ([], [(1, 0, -1)]), "each replica by itself"
    go_on(world, ("append data", (0,)))
    assert shown(world, 1) == [(0, -1, 3)]
    assert shown(world, 2) == [(0, 0, 3)], "a follower takes the lower epoch"
    assert hanging(world) == {(P, 7, 3)}
    assert not can_happen(world, ("expire producer", (P, 1, 7))), "it has an open transaction"
    (judged,) = sweep(Simulation(world)).transactions
    assert (str(judged.judgement.verdict), judged.observation.coordinator_epoch) == ("hanging", -1)
    assert judged.outcome == "not_committed"


def test_a_batch_that_is_not_the_first_of_a_later_epoch_is_refused() -> None:
    """Late data at the earlier epoch is open, and the live producer goes on at its own epoch."""
    world = opened(IDLE, (*_LATE, ("expire producer", (P, 1, 7)), ("append data", (0,))))
    go_on(world, ("AddPartitionsToTxn", (1, A, P)), ("send data", (A, P, 1)), ("append data", (0,)))
    assert shown(world, 1) == [(0, -1, 3)]


def test_a_forgotten_producer_of_v2_writes_only_from_its_first_number_on() -> None:
    for version, taken in ((1, True), (2, False)):
        scenario = replace(IDLE, versions=(version,), faults=IDLE.faults | {"deleted records", "disk move"})
        written: tuple[Event, ...] = (("send data", (A, P, version)), ("append data", (0,)))
        gone: tuple[Event, ...] = (("delete records", (P, 1, 1)), ("move to another disk", (P, 1)))
        world = opened(scenario, (INIT, ("AddPartitionsToTxn", (1, A, P)), *written, *gone))
        assert shown(world, 1) == []
        go_on(world, *written)
        assert shown(world, 1) == ([(0, -1, 1)] if taken else [])


def test_a_replica_that_moved_to_another_disk_has_a_later_start_offset_at_the_same_leader_epoch() -> None:
    world = opened(replace(DELETED_V1, faults=DELETED_V1.faults | {"disk move"}), DELETED_FIRST)
    assert not can_happen(world, ("move to another disk", (P, 3))), "its broker is down"
    before = world.leadership(world.image, P)
    go_on(world, ("move to another disk", (P, 2)))
    assert shown_open(world, 2) == [(2, 2)]
    assert world.leadership(world.image, P) == before


# The broker of the transaction log crashes, and loses its end: it registers before it is fenced, or after.
_CRASHES: tuple[Event, ...] = (("kill broker", (1,)), ("lose log end", (LOG, 1, 1)))
_AT_ONCE: tuple[Event, ...] = (*_CRASHES, ("start broker before it is fenced", (1,)))
_FENCED: tuple[Event, ...] = (*_CRASHES, ("fence broker", (1,)), ("start broker", (1,)))
_SERVES: tuple[Event, ...] = (("unfence broker", (1,)), *heard(1, 2), ("load", (1, 0)), ("InitProducerId", (1, A)))


@pytest.mark.parametrize("version", KEPT)
def test_not_committed_needs_leader_epochs_that_rise(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same loss, and the log looks as if the commit had never been written."""
    before = OPENINGS[KEPT[version].name][: -len(_AT_ONCE) - len(_SERVES) + 1]
    table = [
        (_AT_ONCE, False, 0, "unknown", Unproven.ELECTION, []),
        (_AT_ONCE, True, 0, "not_committed", None, [True]),
        (_FENCED, False, 2, "unknown", Unproven.ELECTION, []),
        (_FENCED, True, 2, "unknown", Unproven.ELECTION, []),
    ]
    with Cases() as cases:
        for crash, believed, leader_epoch, outcome, unproven, torn in table:
            monkeypatch.setattr(log_reads, "leader_epochs_rise", lambda send, broker_id, believed=believed: believed)
            with cases.case(f"{outcome}, leader epochs are believed to rise: {believed}"):
                found, wrong, world = run(History(KEPT[version], (*before, *crash, *_SERVES), (), ()))
                assert world.leadership(world.image, LOG).epoch == leader_epoch
                (judged,) = found.transactions
                assert judged.known_outcome is not None
                assert (judged.outcome, judged.known_outcome.unproven) == (outcome, unproven)
                assert [one.torn for one in wrong] == torn


@pytest.mark.parametrize("version", KEPT)
def test_kept_leader_epochs_make_no_verdict_wrong(version: int) -> None:
    total = Figures()
    for seed in range(60):
        for figures in (wander(KEPT[version], seed)[0], wander_again(KEPT[version], seed)[0]):
            total.add(figures)
    assert (total.torn, total.false_accusations, total.overlooked, total.mistaken) == (0, 0, 0, 0)


def test_a_sweep_at_rest_says_something_of_every_hanging_transaction() -> None:
    found = counted(begun(scenario, seed) for scenario in WIDE.values() for seed in range(12))
    kinds = {said for said, _ in found}
    assert kinds.isdisjoint({Said.SILENT, Said.UNREAD})
    assert {Said.ACCUSED, Said.DOUBTED} <= kinds


def test_a_report_without_a_row_is_silent_unless_no_record_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    world = opened(replace(DELETED_V1, faults=DELETED_V1.faults | {"disk move"}), DELETED_FIRST)
    assert [said for said, _ in said_at_rest(world)] == [Said.ACCUSED]
    monkeypatch.setattr(at_rest, "sweep", lambda simulation: replace(sweep(simulation), transactions=()))
    assert [said for said, _ in said_at_rest(world)] == [Said.SILENT]
