"""Searching histories for a verdict that the truth contradicts: all of them up to a bound, or at random.

Exhaustive: first every world that up to `before` events lead to from the start; then, from each in which a transaction
stands open somewhere, a sweep with up to `during` events between its answers, in every way that its answers can tell
apart. An event that would not change the next answer may as well happen after it, so only histories are run in which
the last event before an answer changes that answer; every other is equivalent to one of these.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from txnscan.cluster import ClusterUnreachable
from txnscan.kafka.errors import RequestFailed
from txnscan.scan import Scan
from txnscan.sim.answers import answer
from txnscan.sim.history import Simulation, Wrong, false_accusations, overlooked, sweep, torn
from txnscan.sim.obligations import EVERYTHING, Protocol
from txnscan.sim.scenarios import Small, opened
from txnscan.sim.table import Event
from txnscan.sim.transitions import TRANSITIONS, can_happen, happen, possible
from txnscan.sim.world import Scenario, World, still_open

# Events between the answers of a sweep, each with the number of the answer that it comes before.
Schedule = tuple[tuple[int, Event], ...]


@dataclass(frozen=True)
class History:
    """What happened before a sweep, and during it: enough to run it again."""

    scenario: Scenario
    opening: tuple[Event, ...]
    before: tuple[Event, ...]
    during: Schedule


@dataclass
class Figures:
    """What a search saw. `wrong` holds the first few false verdicts with their histories."""

    worlds: int = 0
    histories: int = 0
    unreachable: int = 0
    complete: int = 0
    accusations: int = 0
    false_accusations: int = 0
    torn: int = 0
    overlooked: int = 0
    verdicts: dict[str, int] = field(default_factory=dict)
    wrong: list[tuple[History, Wrong]] = field(default_factory=list)

    def add(self, other: Figures) -> None:
        """Counts another search in."""
        for name in ("worlds", "histories", "unreachable", "complete", "accusations"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("false_accusations", "torn", "overlooked"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for verdict, number in other.verdicts.items():
            self.verdicts[verdict] = self.verdicts.get(verdict, 0) + number
        self.wrong += other.wrong[: max(0, _WRONG_KEPT - len(self.wrong))]


_WRONG_KEPT = 20


def run(history: History, protocol: Protocol = EVERYTHING) -> tuple[Scan, list[Wrong], World]:
    """Runs a history again: the sweep, every verdict that the truth contradicts, and the world in the end.

    Raises ClusterUnreachable when no broker answered.
    """
    world = opened(history.scenario, history.opening)
    for event in history.before:
        happen(world, event)
    return check(world, history.during, protocol)


def check(world: World, during: Schedule, protocol: Protocol = EVERYTHING) -> tuple[Scan, list[Wrong], World]:
    """A sweep of this world, with these events between its answers; as `run` gives it."""
    return _judged(world, _Scripted(during), during, protocol, quiet=not during)


def _judged(
    world: World, pilot: Callable[..., None], during: Schedule, protocol: Protocol, *, quiet: bool
) -> tuple[Scan, list[Wrong], World]:
    """Sweeps and checks. What follows a sweep's suspicion is looked at by running it again and keeping its worlds."""
    simulation = Simulation(world.copy(), pilot)
    found = sweep(simulation, protocol.cluster_class, protocol.engine_class)
    end = simulation.world
    wrong = false_accusations(found, (), end)
    if wrong:
        again = Simulation(world.copy(), _Scripted(during), keeps_worlds=True)
        found = sweep(again, protocol.cluster_class, protocol.engine_class)
        wrong = false_accusations(found, again.asked_worlds, again.world)
    wrong += torn(found, end)
    if quiet:
        wrong += overlooked(end)
    return found, wrong, end


class _Scripted:
    """Makes scheduled events happen."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = list(schedule)

    def __call__(self, simulation: Simulation, point: int, broker_id: int, request: Any) -> None:
        while self.schedule and self.schedule[0][0] <= point:
            _, event = self.schedule.pop(0)
            # Where a history is made shorter, what led to an event may be gone.
            if can_happen(simulation.world, event):
                happen(simulation.world, event)


def count(figures: Figures, found: Scan, wrong: list[Wrong], history: Callable[[], History]) -> None:
    """Counts a finished history in."""
    figures.histories += 1
    figures.complete += found.complete
    for judged in found.transactions:
        name = f"{judged.judgement.verdict}/{judged.judgement.reason}"
        figures.verdicts[name] = figures.verdicts.get(name, 0) + 1
        figures.accusations += judged.judgement.verdict == "hanging"
    for one in wrong:
        if one.why.endswith("marker"):
            figures.torn += 1
        elif one.verdict:
            figures.false_accusations += 1
        else:
            figures.overlooked += 1
        if len(figures.wrong) < _WRONG_KEPT:
            figures.wrong.append((history(), one))


# --- every history ----------------------------------------------------------------------------------------------------


def reachable(start: World, before: int) -> Iterator[tuple[World, tuple[Event, ...]]]:
    """Every different world that up to `before` events lead to, with a shortest way there."""
    seen = {start.key}
    ring: list[tuple[World, tuple[Event, ...]]] = [(start, ())]
    yield ring[0]
    for _ in range(before):
        wider = []
        for world, path in ring:
            for event in possible(world):
                other = world.copy()
                happen(other, event)
                key = other.key
                if key in seen:
                    continue
                seen.add(key)
                wider.append((other, (*path, event)))
                yield wider[-1]
        ring = wider


def something_open(world: World) -> bool:
    """Whether some replica shows an open transaction."""
    return any(still_open(log) for (key, _), log in world.logs.items() if key in dict(world.scenario.topics))


def exhaustive(
    small: Small,
    bound: tuple[int, int],
    protocol: Protocol = EVERYTHING,
    *,
    first: int = 0,
    step: int = 1,
    stop: Callable[[Figures], bool] = lambda figures: False,
) -> Figures:
    """Every history up to this bound: events before the sweep, and during it.

    first, step: only every `step`-th world from `first` is swept, to share the work.
    """
    figures = Figures()
    start = opened(small.scenario, small.opening)
    for number, (world, path) in enumerate(reachable(start, bound[0])):
        if number % step != first:
            continue
        figures.worlds += 1
        if not (something_open(world) or protocol.starts_anywhere):
            continue
        for schedule, found, wrong in _sweeps(world, bound[1], protocol, figures):
            history = partial(History, small.scenario, small.opening, path, schedule)
            count(figures, found, wrong, history)
        if stop(figures):
            break
    return figures


def _sweeps(
    world: World, during: int, protocol: Protocol, figures: Figures
) -> Iterator[tuple[Schedule, Scan, list[Wrong]]]:
    """A sweep of this world, in every way that up to `during` events can change its answers."""
    stack: list[Schedule] = [()]
    seen: dict[tuple[Any, ...], int] = {}
    while stack:
        schedule = stack.pop()
        explorer = _Explorer(schedule, during, stack, seen)
        try:
            found, wrong, _ = _judged(world, explorer, schedule, protocol, quiet=not schedule)
        except _Known:
            continue
        except ClusterUnreachable:
            figures.unreachable += 1
            continue
        yield schedule, found, wrong


class _Known(Exception):
    """From here on everything was seen already: same world, same answers so far."""


class _Explorer(_Scripted):
    """Follows a schedule, and puts every way to go on differently on the stack."""

    def __init__(
        self, schedule: Schedule, during: int, stack: list[Schedule], seen: dict[tuple[Any, ...], int]
    ) -> None:
        super().__init__(schedule)
        self.whole = schedule
        self.last = schedule[-1][0] if schedule else -1
        self.budget = during - len(schedule)
        self.stack, self.seen = stack, seen
        self.transcript = 0

    def __call__(self, simulation: Simulation, point: int, broker_id: int, request: Any) -> None:
        super().__call__(simulation, point, broker_id, request)
        said = _said(simulation.world, broker_id, request)
        self.transcript = hash((self.transcript, said))
        if point <= self.last:
            return
        here = (point, simulation.world.key, self.transcript)
        if self.seen.get(here, -1) >= self.budget:
            raise _Known
        self.seen[here] = self.budget
        self._branch(simulation.world, point, broker_id, request, said)

    def _branch(self, world: World, point: int, broker_id: int, request: Any, said: str) -> None:
        """Sequences of events here whose last event changes this answer."""
        ring: list[tuple[World, Schedule, str]] = [(world, (), said)]
        known = {world.key}
        for _ in range(self.budget):
            wider = []
            for at, events, told in ring:
                for event in possible(at):
                    other = at.copy()
                    happen(other, event)
                    if other.key in known:
                        continue
                    known.add(other.key)
                    now = _said(other, broker_id, request)
                    chain = (*events, (point, event))
                    wider.append((other, chain, now))
                    if now != told:
                        self.stack.append(self.whole + chain)
            ring = wider


def _said(world: World, broker_id: int, request: Any) -> str:
    """The answer as text: equal exactly when a sweep cannot tell two answers apart."""
    try:
        return repr(answer(world, broker_id, request))
    except RequestFailed as failed:
        return failed.error


# --- histories at random ----------------------------------------------------------------------------------------------

# How often what is possible happens, where that is not 1: rarely enough that other things happen before.
_WEIGHTS = {"expire id": 0.03, "timeout": 0.1, "InitProducerId": 0.05, "fetch": 4.0, "complete transition": 2.0}
_FAULT_WEIGHTS = {"start broker": 8.0, "resume broker": 8.0, "link broker again": 4.0}


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
    fault = chooser.random() < fault_chance
    allowed, usual = world.scenario.faults, _FAULT_WEIGHTS if fault else _WEIGHTS
    kinds: list[tuple[str, tuple[Any, ...]]] = []
    for name, transition in TRANSITIONS.items():
        if (transition.fault in allowed) if fault else transition.fault is None:
            subjects = tuple(transition.when(world))
            if subjects:
                kinds.append((name, subjects))
    if not kinds:
        return None
    name, subjects = chooser.choices(kinds, [usual.get(name, 1.0) for name, _ in kinds])[0]
    return (name, chooser.choice(subjects))


def wander(scenario: Scenario, seed: int, protocol: Protocol = EVERYTHING) -> tuple[Figures, History]:
    """One history at random. The same seed gives the same history."""
    chooser = random.Random(seed)  # noqa: S311
    figures = Figures(worlds=1)
    world = World(scenario)
    path: list[Event] = []
    # Without faults at first, so that transactions get under way.
    for fault_chance, events in ((0.0, chooser.randint(5, 40)), (chooser.choice((0.0, 0.1, 0.3)), 15)):
        for _ in range(events):
            event = at_random(world, chooser, fault_chance)
            if event is not None:
                happen(world, event)
                path.append(event)
    pilot = _Wandering(chooser, chooser.choice((0.0, 0.1, 0.25, 0.5)), chooser.choice((0.0, 0.1, 0.3)))
    simulation = Simulation(world.copy(), pilot)
    try:
        found = sweep(simulation, protocol.cluster_class, protocol.engine_class)
    except ClusterUnreachable:
        figures.unreachable += 1
        return figures, History(scenario, (), tuple(path), tuple(pilot.schedule))
    history = History(scenario, (), tuple(path), tuple(pilot.schedule))
    wrong = false_accusations(found, (), simulation.world)
    if wrong:
        _, wrong, _ = _judged(world, _Scripted(history.during), history.during, protocol, quiet=False)
    wrong += torn(found, simulation.world)
    wrong += overlooked(simulation.world)
    count(figures, found, wrong, lambda: history)
    return figures, history


# --- a shorter history with the same fault ----------------------------------------------------------------------------


def shortened(history: History, fails: Callable[[History], bool]) -> History:
    """Without every event that the failure does not need."""
    shorter = True
    while shorter:
        shorter = False
        for candidate in _without_one(history):
            if fails(candidate):
                history, shorter = candidate, True
                break
    return history


def _without_one(history: History) -> Iterator[History]:
    for n in reversed(range(len(history.during))):
        yield replace(history, during=history.during[:n] + history.during[n + 1 :])
    for n in reversed(range(len(history.before))):
        kept = history.before[:n] + history.before[n + 1 :]
        if _runs(opened(history.scenario, history.opening), kept):
            yield replace(history, before=kept)


def _runs(world: World, events: tuple[Event, ...]) -> bool:
    for event in events:
        if not can_happen(world, event):
            return False
        happen(world, event)
    return True
