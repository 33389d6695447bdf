"""Several sweeps of one history: an incident never continues another transaction, and outlives its first records.

Each condition of `identity.py` is dropped in a history that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest

from tests.sim.check import Figures, History, Sweeps, Visit, misfolded, run
from tests.sim.history import NOW_MS, Simulation
from tests.sim.obligations import EVERYTHING
from tests.sim.scenarios import DELETED, DELETED_V1, NEW_REPLICA, WIDE, A, P, heard, opened, torn_commit
from tests.sim.shorten import shortened
from tests.sim.show import lines_of, named_history
from tests.sim.table import Event
from tests.sim.transitions import can_happen, happen, settle
from tests.sim.wander import wander_again
from tests.sim.world import LOST_LOG_END, Scenario
from txnscan.coordinators.cluster import ClusterUnreachable
from txnscan.sweeps import identity
from txnscan.sweeps import pipeline as scan
from txnscan.sweeps.identity import Between, Identity, Seen
from txnscan.sweeps.restored import Sign
from txnscan.sweeps.result import Scan
from txnscan.tables import incidents

# In each world. A wrong verdict names its seed.
SEEDS = range(30)
Patch = Callable[[pytest.MonkeyPatch], None]
# Broker 2, the only replica of the partition, is killed and finds no snapshot after its restart.
_ALONE = replace(DELETED_V1, name="one replica", topics=((P, (2,)),))
_REBUILT: tuple[Event, ...] = (
    *(("kill broker", (2,)), ("rebuild producers' state", (P, 2)), ("fence broker", (2,)), *heard(1)),
    *(("start broker", (2,)), ("unfence broker", (2,)), *heard(1, 2)),
)
_INIT: tuple[Event, ...] = (("InitProducerId", (1, A)),)


def _late(*before: Event, at: int = 1) -> tuple[Event, ...]:
    """A transaction is aborted while a record of it is in flight, which then arrives and hangs."""
    return (
        *before,
        *(("AddPartitionsToTxn", (1, A, P)), *(("send data", (A, P, 1)),) * at),
        *(("EndTxn", (1, A, False, 1)), ("write marker", (1, A, P)), ("marker acknowledged", (1, A, P))),
        *(("write completion", (1, A)), *(("append data", (0,)),) * at),
    )


@dataclass(frozen=True)
class Case:
    """A condition, and its removal. The hanging transaction of the first sweep, and the events that replace it with
    another before the second.
    """

    condition: str
    drop: Patch
    opening: tuple[Event, ...]
    between: tuple[Event, ...]


def always_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "identity", lambda earlier, later, log: Identity.SAME)


def by_sequence_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_any_sequence(earlier: Seen, later: Seen, log: Between) -> Identity:
        endless = replace(earlier, last_sequence=1 << 30, producer_epoch=later.producer_epoch, end_offset=None)
        return _identity(endless, later, log)

    monkeypatch.setattr(identity, "identity", of_any_sequence)


_identity = identity.identity
CASES = (
    Case(
        "sequence numbers are compared at one epoch",
        by_sequence_alone,
        _late(*_INIT, at=3),
        (*_INIT, *_late(), ("delete records", (P, 2, 5))),
    ),
    Case(
        "the first record that is left was there when a sweep saw it last",
        by_sequence_alone,
        _late(*_INIT),
        (*_late(), ("delete records", (P, 2, 3))),
    ),
    Case("a marker ends it", always_the_same, _late(*_INIT), _late()),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.condition)
def test_without_this_condition_an_incident_continues_another_transaction(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.drop(monkeypatch)
    assert [one.mistaken for one in run(_two_sweeps(_ALONE, case.opening, case.between))[1]] == [True]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.condition)
def test_with_this_condition_no_incident_continues_another_transaction(case: Case) -> None:
    found, wrong, _ = run(_two_sweeps(_ALONE, case.opening, case.between))
    assert wrong == []
    assert [judged.observation.incident_offset for judged in found.transactions] == [None]


def _two_sweeps(scenario: Scenario, opening: tuple[Event, ...], between: tuple[Event, ...]) -> History:
    """Two sweeps of a world at rest."""
    world, events = opened(scenario, opening), list[Event]()
    for event in between:
        assert can_happen(world, event), event
        happen(world, event)
        events += [event, *settle(world, ("fetch", "complete transition"))]
    return History(scenario, opening, tuple(events), (), None, (Visit((), ()),), (0,))


def swept(scenario: Scenario, opening: tuple[Event, ...], *between: tuple[Event, ...], clock_ms: int = 0) -> Sweeps:
    """A sweep after the opening and after each of these, at rest, each with the knowledge of all before it. clock_ms:
    how far each scanner's clock is ahead of the last.
    """
    world, sweeps = opened(scenario, opening), Sweeps(EVERYTHING)
    for number, events in enumerate(((), *between)):
        for event in events:
            assert can_happen(world, event), event
            happen(world, event)
            settle(world, ("fetch", "complete transition"))
        sweeps.sweep(Simulation(world.copy()), range(number), NOW_MS + number * clock_ms)
    return sweeps


def shown(sweeps: Sweeps, *order: int) -> list[tuple[int, int, str | None]]:
    """Each incident after sweeps were stored in this order: start offset, number of sweeps, and resolution."""
    rows = sweeps.memory(order).incidents.values()
    return [(row["start_offset"], row["sweeps"], row["resolved_how"]) for row in rows]


@pytest.mark.parametrize(
    ("scenario", "opening", "between"),
    [
        (DELETED, torn_commit(2, 3), NEW_REPLICA),
        (DELETED_V1, torn_commit(1, 3), NEW_REPLICA),
        (_ALONE, torn_commit(1), _REBUILT),
    ],
    ids=["a new replica leads", "transactions v1", "no snapshot"],
)
def test_an_incident_outlives_its_first_records(
    scenario: Scenario, opening: tuple[Event, ...], between: tuple[Event, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: tuple[Event, ...] = (("delete records", (P, 2, 2)), *between)
    found, wrong, _ = run(_two_sweeps(scenario, opening, events))
    assert wrong == []
    assert [(j.observation.start_offset, j.observation.incident_offset) for j in found.transactions] == [(2, 0)]
    assert shown(swept(scenario, opening, events), 0, 1) == [(0, 2, None)]
    monkeypatch.setattr(scan, "identified", lambda *asked: Identity.ANOTHER)
    assert [one.mistaken for one in run(_two_sweeps(scenario, opening, events))[1]] == [True]
    ended = [(0, 1, "ended"), (2, 1, None)]
    assert shown(swept(scenario, opening, events), 0, 1) == ended, "the rule is what keeps it"


def test_an_end_that_an_election_may_undo_closes_no_incident(monkeypatch: pytest.MonkeyPatch) -> None:
    ending: tuple[Event, ...] = (
        *(("AddPartitionsToTxn", (1, A, P)), ("complete transition", (1, A)), ("EndTxn", (1, A, False, 1))),
        *(("complete transition", (1, A)), ("write marker", (1, A, P))),
    )
    history = History(DELETED_V1, _late(*_INIT), ending, (), None, (Visit((), ()),), (0,))
    found, wrong, _ = run(history)
    assert (wrong, found.transactions, found.replicated) == ([], (), frozenset())
    found, wrong, _ = run(replace(history, before=(*ending, *(("fetch", (P, 3)),) * 2)))
    assert (wrong, found.transactions, found.replicated) == ([], (), frozenset({P}))
    monkeypatch.setattr(scan, "replicated", lambda cluster, partitions: frozenset(one.key for one in partitions))
    assert [one.mistaken for one in run(history)[1]] == [True], "the rule is what keeps it open"


@pytest.mark.parametrize("world", WIDE)
def test_no_sweep_with_earlier_knowledge_is_wrong(world: str) -> None:
    total = Figures()
    for seed in SEEDS:
        figures, _ = wander_again(WIDE[world], seed)
        assert figures.wrong == [], f"wander_again(WIDE[{world!r}], {seed})"
        total.add(figures)
    assert total.histories > 2 * len(SEEDS)


def test_a_seed_determines_the_sweeps_and_their_verdicts() -> None:
    for seed in range(20):
        figures, histories = wander_again(WIDE["new-replicas-v2"], seed)
        again, same = wander_again(WIDE["new-replicas-v2"], seed)
        assert (histories, figures.verdicts) == (same, again.verdicts)
        verdicts: dict[str, int] = {}
        for history in histories:
            with suppress(ClusterUnreachable):
                for judged in run(history)[0].transactions:
                    name = f"{judged.judgement.verdict}/{judged.judgement.reason}"
                    verdicts[name] = verdicts.get(name, 0) + 1
        assert verdicts == figures.verdicts


def test_a_history_of_several_sweeps_is_shortened() -> None:
    history = _two_sweeps(DELETED, torn_commit(2, 3), (("delete records", (P, 2, 2)), *NEW_REPLICA))
    idle = Visit((), ((3, ("move leader", (P, 2))),))
    longer = replace(history, earlier=(*history.earlier, idle), known=(1, 0))

    def goes_on(candidate: History) -> bool:
        return any(judged.observation.incident_offset == 0 for judged in run(candidate)[0].transactions)

    short = shortened(longer, goes_on)
    assert goes_on(short)
    assert len(short.earlier) == 1


def test_an_end_counts_in_any_order_of_storing_and_with_any_clocks() -> None:
    a_day_back = -86_400_000
    sweeps = swept(_ALONE, _late(*_INIT), _late(), clock_ms=a_day_back)
    assert misfolded(sweeps, (0, 1)) == misfolded(sweeps, (1, 0)) == []
    assert shown(sweeps, 0, 1) == [(1, 1, "ended"), (3, 1, None)]


# The first batch of the current leader was written after the first sweep: its owner is unknown.
_MORE_AND_A_NEW_REPLICA: tuple[Event, ...] = (
    *(("append data", (0,)), ("delete records", (P, 2, 3)), ("replace replica", (P, 3)), *heard(1, 2, 3)),
    *(("expand isr", (P, 3)), *heard(1, 2, 3), ("move leader", (P, 3)), *heard(1, 2, 3)),
)
_LED_AS_BEFORE: tuple[Event, ...] = (("move leader", (P, 2)), *heard(1, 2, 3))


def test_an_end_stored_late_closes_no_incident_seen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a sweep were wrong about another start offset, the incident would count as ended, and another as begun, until
    the replica that still has it leads again.
    """
    one_on_its_way: tuple[Event, ...] = (*_INIT, *_late(at=3)[:-1])
    assert shown(swept(DELETED_V1, one_on_its_way, _MORE_AND_A_NEW_REPLICA), 0, 1) == [(1, 2, None)]
    monkeypatch.setattr(scan, "identified", lambda *asked: Identity.ANOTHER)
    sweeps = swept(DELETED_V1, one_on_its_way, _MORE_AND_A_NEW_REPLICA, _LED_AS_BEFORE)
    assert shown(sweeps, 0, 1) == [(1, 1, "ended"), (3, 1, None)]
    assert shown(sweeps, 0, 1, 2)[0] == (1, 2, None)
    assert misfolded(sweeps, (0, 2, 1)) == []
    monkeypatch.setattr(incidents, "_at", lambda row: 0)
    assert [(one.start_offset, one.mistaken) for one in misfolded(sweeps, (0, 2, 1))] == [(1, True)]


def test_no_position_falls_in_a_cluster_that_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that answer may all be cut off from one that is ahead: then the image's offset alone falls."""
    sweep, signs = Sweeps.sweep, list[Sign | None]()

    def noted(self: Sweeps, simulation: Simulation, known: Sequence[int], now_ms: int) -> Scan:
        found = sweep(self, simulation, known, now_ms)
        signs.append(None if found.fall is None else found.fall.sign)
        return found

    monkeypatch.setattr(Sweeps, "sweep", noted)
    for scenario in WIDE.values():
        if not scenario.faults & {LOST_LOG_END, "unclean election"}:
            for seed in range(20):
                wander_again(scenario, seed)
    assert len(signs) > 500
    assert set(signs) <= {None, Sign.IMAGE_OFFSET}


@pytest.mark.parametrize(
    ("world", "seed", "several"), [("upgraded-commit", 198, True), ("never-added-v1-v2", 883, False)]
)
def test_a_history_is_shown_with_all_its_sweeps(world: str, seed: int, several: bool) -> None:
    """Of two coordinators that claim what they cannot end: one was deposed, and one elected, after the sweep began. The
    search counted their claims as errors.
    """
    history = named_history(None, world, seed, several=several)
    lines = list(lines_of(history))
    assert len([line for line in lines if line.startswith(("Sweep ", "The sweep"))]) == len(history.earlier) + 1
    assert "pending_marker (stuck)" in "\n".join(lines) and "No verdict" in lines[-1]
