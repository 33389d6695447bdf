"""Histories at random: the same seed gives the same history."""

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

# How often what is possible happens, where that is not 1: rarely enough that other things happen before.
_WEIGHTS = {
    "expire id": 0.05,
    "timeout": 0.1,
    "InitProducerId": 0.05,
    # Late data, which is what hangs, is data that others overtake.
    "fetch": 4.0,
    "complete transition": 4.0,
    "append data": 0.4,
    "EndTxn": 1.5,
}
# How many kinds are tried by their weights, before whatever is possible is taken.
_PICKS = 20
# How often a cluster heals before a step of resolving.
_CALM = 0.5
# How often every partition is read with proof, whatever is held there.
_WATCHED = 0.5
# How often what sweeps found is stored in another order than theirs.
_SHUFFLED = 0.5
# How many further events, at most, until a transaction stands open.
_FURTHER = 25
# The same of faults. A load is over soon, and an append acknowledged soon: with weight 1 they would hardly ever fail.
_FAULT_WEIGHTS = {
    "start broker": 8.0,
    "resume broker": 8.0,
    "link broker again": 4.0,
    "partial load": 30.0,
    "append timeout": 4.0,
    # Only together do they make an open transaction begin later.
    "delete records": 2.0,
    "replace replica": 2.0,
    "rebuild producers' state": 16.0,
    "append data elsewhere": 8.0,
    # Each commit and what is written after it have their own dates, more often than not.
    "time passes": 3.0,
    "send data without adding": 2.0,
}


class _Wandering:
    """Lets things happen at random between answers, and writes down what."""

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
    """Some event that can happen now: a kind of event first, so that those with many subjects do not crowd it."""
    names, weights = _kinds(world.scenario.faults, chooser.random() < fault_chance)
    if not names:
        return None
    impossible = set()
    # As `choices` does it, and a kind is looked up only when its turn comes.
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
    """The kinds of events, faults or usual ones, and their weights, added up."""
    names = tuple(n for n, t in TRANSITIONS.items() if ((t.fault in faults) if fault else t.fault is None))
    return names, tuple(accumulate((_FAULT_WEIGHTS if fault else _WEIGHTS).get(name, 1.0) for name in names))


def _underway(scenario: Scenario, chooser: random.Random) -> tuple[World, list[Event]]:
    """A world in which a transaction stands open, most of the time, and what led there from its opening."""
    world = opened(scenario, OPENINGS.get(scenario.name, ()))
    path: list[Event] = []
    # Without faults at first, so that transactions get under way; then a little further until one stands open.
    _go_on(world, chooser, chooser.randint(5, 40), 0.0, path)
    _go_on(world, chooser, 15, chooser.choice((0.0, 0.1, 0.3)), path)
    for _ in range(_FURTHER):
        if not something_open(world):
            _go_on(world, chooser, 1, 0.05, path)
    return world, path


def _begun(scenario: Scenario, chooser: random.Random) -> tuple[World, list[Event]]:
    """The same; or a world right behind its opening, if it has one, before others end what hangs there."""
    opening, path = OPENINGS.get(scenario.name), list[Event]()
    if opening is None or chooser.random() < _LATER:
        return _underway(scenario, chooser)
    world = opened(scenario, opening)
    _go_on(world, chooser, chooser.randint(0, 8), 0.1, path)
    return world, path


def _go_on(world: World, chooser: random.Random, events: int, fault_chance: float, path: list[Event]) -> None:
    for _ in range(events):
        event = at_random(world, chooser, fault_chance)
        if event is not None:
            happen(world, event)
            path.append(event)


def wander(scenario: Scenario, seed: int, protocol: Protocol = EVERYTHING) -> tuple[Figures, History]:
    """One history at random. The same seed gives the same history."""
    chooser = random.Random(seed)
    figures = Figures(worlds=1)
    if chooser.random() < _WATCHED:
        scenario = replace(scenario, watched=frozenset(key for key, _ in scenario.topics))
    world, path = _underway(scenario, chooser)
    pilot = _Wandering(chooser, chooser.choice((0.0, 0.1, 0.25, 0.5)), chooser.choice((0.0, 0.1, 0.3)))
    # Threads that take turns cost more than all else, so one history in four has them.
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


# How often much has happened before the first of several sweeps.
_LATER = 0.3
# How many sweeps there are at most before the last, and what their scanners' clocks jump by.
_EARLIER_MAX = 3
_JUMPS_MS = (0, 0, 0, 86_400_000, -86_400_000)


def wander_again(scenario: Scenario, seed: int, protocol: Protocol = EVERYTHING) -> tuple[Figures, list[History]]:
    """Several sweeps in one history at random, each told what some earlier ones found, in any order. Every one of them
    is held against the truth. The same seed gives the same histories.
    """
    chooser = random.Random(seed)
    figures, histories, visits = Figures(worlds=1), list[History](), list[Visit]()
    sweeps, opening = Sweeps(protocol), OPENINGS.get(scenario.name, ())
    world, path = _begun(scenario, chooser)
    chance, fault_chance = chooser.choice((0.0, 0.02, 0.1, 0.25)), chooser.choice((0.0, 0.1, 0.3, 1.0))
    for number in range(1 + chooser.randint(1, _EARLIER_MAX)):
        if number:
            path = []
            _go_on(world, chooser, chooser.randint(0, 12), fault_chance, path)
            path += settle(world, HEALING) if chooser.random() < _CALM else []
        known, now_ms = _some(chooser, number), NOW_MS + number * 60_000 + chooser.choice(_JUMPS_MS)
        before, pilot, told = world.copy(), _Wandering(chooser, chance, fault_chance), sweeps.next(known, now_ms)
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
    """Which of so many earlier sweeps are known, in the order in which they were stored."""
    share = chooser.choice((1.0, 1.0, 0.6))
    known = [one for one in range(number) if chooser.random() < share]
    if chooser.random() < _SHUFFLED:
        chooser.shuffle(known)
    return tuple(known)


@dataclass
class Resolved:
    """What a history with an apply came to. harm: what each marker has broken, where it has. accepted: how many have
    aborted a commit of which nothing was left, as the option says. undated: how many have completed a commit with
    records that were never added, which no date tells apart.
    """

    written: int = 0
    refused: int = 0
    accepted: int = 0
    undated: int = 0
    harm: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    def add(self, other: Resolved) -> None:
        """Counts another history in."""
        self.written += other.written
        self.refused += other.refused
        self.accepted += other.accepted
        self.undated += other.undated
        self.harm += other.harm


def wander_and_apply(scenario: Scenario, seed: int, apply: Apply = Apply()) -> Resolved:  # noqa: B008
    """One history at random with two sweeps and an apply with every option in it, and what each marker has broken.

    More happens between its steps, between the answers of each, and after it. The same seed gives the same history.
    """
    chooser = random.Random(seed)
    world, path = _underway(scenario, chooser)
    chance, fault_chance = chooser.choice((0.0, 0.02, 0.1)), chooser.choice((0.0, 0.1, 0.3))

    def between(world: World, step: str) -> None:
        # A cluster that is left alone for a while is one of which more can be proven.
        if chooser.random() < _CALM:
            settle(world, HEALING)
        else:
            _go_on(world, chooser, chooser.randint(0, 12), fault_chance, path)

    def simulated(world: World) -> Simulation:
        return Simulation(world, _Wandering(chooser, chance, fault_chance))

    done, end = apply.resolve(world, between, simulated)
    _go_on(end, chooser, chooser.randint(0, 20), 0.0, path)
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
