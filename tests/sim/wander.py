"""Random histories: the same seed gives the same history."""

from __future__ import annotations

import random
from bisect import bisect
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any

from tests.sim.applying import Apply, harm
from tests.sim.check import Figures, History, Sweeps, Visit, count, in_turns, misfolded, wrong_verdicts
from tests.sim.history import NOW_MS, Simulation, something_open
from tests.sim.obligations import EVERYTHING, Protocol
from tests.sim.scenarios import OPENINGS, opened
from tests.sim.table import Event
from tests.sim.transitions import TRANSITIONS, happen, settle
from tests.sim.truth import HEALING
from tests.sim.world import Scenario, World
from txnscan.coordinators.cluster import ClusterUnreachable

# The weights of events, if not 1: low enough that other events happen before.
_WEIGHTS = {
    "expire id": 0.05,
    "timeout": 0.1,
    "InitProducerId": 0.05,
    # Late data, which can hang, is data that other events overtake.
    "fetch": 4.0,
    "complete transition": 4.0,
    "append data": 0.4,
    "EndTxn": 1.5,
}
# How many kinds are tried by weight, before any possible event is taken.
_PICKS = 20
# How often a cluster heals before a step of resolving.
CALM = 0.5
# How often every partition is read with proof, whatever coordinators claim.
_WATCHED = 0.5
# How often the results of sweeps are stored in another order.
_SHUFFLED = 0.5
# The maximum number of further events until a transaction is open.
_FURTHER = 25
# The weights of faults. Loads and acknowledgements are fast: with weight 1 they would hardly ever fail.
_FAULT_WEIGHTS = {
    "start broker": 8.0,
    "resume broker": 8.0,
    "link broker again": 4.0,
    "partial load": 30.0,
    "append timeout": 4.0,
    "lose log end": 8.0,
    "unclean election of a coordinator": 8.0,
    # Only together do these make an open transaction begin later.
    "delete records": 2.0,
    "replace replica": 2.0,
    "rebuild producers' state": 16.0,
    "append data elsewhere": 8.0,
    "move to another disk": 4.0,
    "expire producer": 4.0,
    "start broker before it is fenced": 16.0,
    # Usually, each commit and the records after it have different dates.
    "time passes": 3.0,
    "send data without adding": 2.0,
}


class Wandering:
    """Makes random events happen between answers, and records them."""

    def __init__(self, chooser: random.Random, chance: float, fault_chance: float) -> None:
        self.chooser, self.chance, self.fault_chance = chooser, chance, fault_chance
        self.schedule: list[tuple[int, Event]] = []

    def __call__(self, simulation: Simulation, point: int, broker_id: int, request: Any) -> None:
        while self.chooser.random() < self.chance:
            event = at_random(simulation.world, self.chooser, self.fault_chance)
            if event is None:
                return
            happen(simulation.world, event)
            self.schedule.append((point, event))


def at_random(world: World, chooser: random.Random, fault_chance: float) -> Event | None:
    """A random event that is possible now. The kind is chosen first, so that kinds with many subjects do not
    dominate.
    """
    names, weights = _kinds(world.scenario.faults, chooser.random() < fault_chance)
    if not names:
        return None
    impossible = set()
    # Like `choices`, but a kind is evaluated only when it is drawn.
    for drawn in [chooser.random() for _ in range(_PICKS)]:
        name = names[bisect(weights, drawn * weights[-1], 0, len(names) - 1)]
        if name in impossible:
            continue
        if subjects := tuple(TRANSITIONS[name].when(world)):
            return (name, chooser.choice(subjects))
        impossible.add(name)
    rest = (name for name in names if name not in impossible)
    possible = {name: subjects for name in rest if (subjects := tuple(TRANSITIONS[name].when(world)))}
    if not possible:
        return None
    weights = tuple(_FAULT_WEIGHTS.get(n, 1.0) * _WEIGHTS.get(n, 1.0) for n in possible)
    name = chooser.choices(tuple(possible), weights)[0]
    return (name, chooser.choice(possible[name]))


@lru_cache
def _kinds(faults: frozenset[str], fault: bool) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The kinds of events, faults or normal ones, and their cumulative weights."""
    names = tuple(n for n, t in TRANSITIONS.items() if ((t.fault in faults) if fault else t.fault is None))
    return names, tuple(accumulate((_FAULT_WEIGHTS if fault else _WEIGHTS).get(name, 1.0) for name in names))


def _underway(scenario: Scenario, chooser: random.Random) -> tuple[World, list[Event]]:
    """A world that usually has an open transaction, and the events since its opening."""
    world = opened(scenario, OPENINGS.get(scenario.name, ()))
    path: list[Event] = []
    # First without faults, so that transactions begin; then further until a transaction is open.
    go_on(world, chooser, chooser.randint(5, 40), 0.0, path)
    go_on(world, chooser, 15, chooser.choice((0.0, 0.1, 0.3)), path)
    for _ in range(_FURTHER):
        if not something_open(world):
            go_on(world, chooser, 1, 0.05, path)
    return world, path


def begun(scenario: Scenario, seed: int) -> World:
    """The world of `wander` before its sweep, without watched partitions."""
    return _underway(scenario, random.Random(seed))[0]


def begun_or_opened(scenario: Scenario, chooser: random.Random) -> tuple[World, list[Event]]:
    """The same; or a world shortly after its opening, if it has one, before others end its hanging transactions."""
    opening, path = OPENINGS.get(scenario.name), list[Event]()
    if opening is None or chooser.random() < _LATER:
        return _underway(scenario, chooser)
    world = opened(scenario, opening)
    go_on(world, chooser, chooser.randint(0, 8), 0.1, path)
    return world, path


def go_on(world: World, chooser: random.Random, events: int, fault_chance: float, path: list[Event]) -> None:
    for _ in range(events):
        event = at_random(world, chooser, fault_chance)
        if event is not None:
            happen(world, event)
            path.append(event)


def wander(scenario: Scenario, seed: int, protocol: Protocol = EVERYTHING) -> tuple[Figures, History]:
    """One random history. The same seed gives the same history."""
    chooser = random.Random(seed)
    figures = Figures(worlds=1)
    if chooser.random() < _WATCHED:
        scenario = replace(scenario, watched=frozenset(key for key, _ in scenario.topics))
    world, path = _underway(scenario, chooser)
    pilot = Wandering(chooser, chooser.choice((0.0, 0.1, 0.25, 0.5)), chooser.choice((0.0, 0.1, 0.3)))
    # Threads that take turns are the most expensive part, so one history in four uses them.
    turns = chooser.choice((None, None, None, chooser.getrandbits(32)))
    simulation = Simulation(world.copy(), pilot, in_turns(turns))
    try:
        found = protocol.sweep(simulation)
    except ClusterUnreachable:
        found = None
    history = History(scenario, OPENINGS.get(scenario.name, ()), tuple(path), tuple(pilot.schedule), turns)
    if found is None:
        figures.unreachable += 1
    else:
        count(figures, found, wrong_verdicts(found, simulation.world, world, history, protocol), lambda: history)
    return figures, history


# How often many events happen before the first of several sweeps.
_LATER = 0.3
# The maximum number of sweeps before the last, and the jumps of their scanners' clocks.
_EARLIER_MAX = 3
_JUMPS_MS = (0, 0, 0, 86_400_000, -86_400_000)


def wander_again(scenario: Scenario, seed: int, protocol: Protocol = EVERYTHING) -> tuple[Figures, list[History]]:
    """Several sweeps in one random history, each with the results of some earlier sweeps, in any order. Every sweep is
    compared with the truth. The same seed gives the same histories.
    """
    chooser = random.Random(seed)
    figures, histories, visits = Figures(worlds=1), list[History](), list[Visit]()
    sweeps, opening = Sweeps(protocol), OPENINGS.get(scenario.name, ())
    world, path = begun_or_opened(scenario, chooser)
    chance, fault_chance = chooser.choice((0.0, 0.02, 0.1, 0.25)), chooser.choice((0.0, 0.1, 0.3, 1.0))
    for number in range(1 + chooser.randint(1, _EARLIER_MAX)):
        if number:
            path = []
            go_on(world, chooser, chooser.randint(0, 12), fault_chance, path)
            path += settle(world, HEALING) if chooser.random() < CALM else []
        known, now_ms = _some(chooser, number), NOW_MS + number * 60_000 + chooser.choice(_JUMPS_MS)
        before, pilot, told = world.copy(), Wandering(chooser, chance, fault_chance), sweeps.next(known, now_ms)
        try:
            found = sweeps.sweep(Simulation(world, pilot), known, now_ms)
        except ClusterUnreachable:
            figures.unreachable += 1
            found = None
        during = tuple(pilot.schedule)
        history = History(scenario, opening, tuple(path), during, None, tuple(visits), known, now_ms)
        visits.append(Visit(tuple(path), during, known, now_ms))
        histories.append(history)
        if found is not None:
            wrong = wrong_verdicts(found, world, before, history, told)
            count(figures, found, wrong, lambda shown=history: shown)  # type: ignore[misc]
    wrong = misfolded(sweeps, chooser.sample(range(len(visits)), len(visits)))
    figures.mistaken += len(wrong)
    figures.wrong += [(histories[-1], one) for one in wrong]
    return figures, histories


def _some(chooser: random.Random, number: int) -> tuple[int, ...]:
    """Some of the earlier sweeps, in the order in which they were stored."""
    share = chooser.choice((1.0, 1.0, 0.6))
    known = [one for one in range(number) if chooser.random() < share]
    if chooser.random() < _SHUFFLED:
        chooser.shuffle(known)
    return tuple(known)


@dataclass
class Resolved:
    """The result of a history with an apply.

    harm: the damage of each harmful marker. accepted: the number of markers that aborted a commit without remaining
    records, as the option allows. undated: the number of markers that completed a commit together with records that
    were never added and that no date distinguishes.
    """

    written: int = 0
    refused: int = 0
    accepted: int = 0
    undated: int = 0
    harm: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    def add(self, other: Resolved) -> None:
        """Adds the result of another history."""
        self.written += other.written
        self.refused += other.refused
        self.accepted += other.accepted
        self.undated += other.undated
        self.harm += other.harm


def wander_and_apply(scenario: Scenario, seed: int, apply: Apply = Apply()) -> Resolved:  # noqa: B008
    """One random history with two sweeps and an apply with every option, and the damage of each marker.

    More events happen between its steps, between the answers of each step, and after it. The same seed gives the same
    history.
    """
    chooser = random.Random(seed)
    world, path = _underway(scenario, chooser)
    chance, fault_chance = chooser.choice((0.0, 0.02, 0.1)), chooser.choice((0.0, 0.1, 0.3))

    def between(world: World, step: str) -> None:
        # In a cluster that has healed for a while, more can be proven.
        if chooser.random() < CALM:
            settle(world, HEALING)
        else:
            go_on(world, chooser, chooser.randint(0, 12), fault_chance, path)

    def simulated(world: World) -> Simulation:
        return Simulation(world, Wandering(chooser, chance, fault_chance))

    done, end = apply.resolve(world, between, simulated)
    go_on(end, chooser, chooser.randint(0, 20), 0.0, path)
    broken = [(written, found) for written in done.written if (found := harm(written, end)) is not None]
    risked = [written.accepted and found.forgotten for written, found in broken]
    excused = [was_risked or found.undated for (_, found), was_risked in zip(broken, risked, strict=True)]
    return Resolved(
        written=len(done.written),
        refused=len(done.plan.refused) if done.plan is not None else 0,
        accepted=sum(risked),
        undated=sum(found.undated for _, found in broken),
        harm=[found.why for (_, found), is_excused in zip(broken, excused, strict=True) if not is_excused],
        results=[f"{result.status}: {result.detail}" for result in done.results],
    )
