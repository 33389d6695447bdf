"""Every history of a small world, up to a bound.

Here, brokers answer parallel requests one after the other; `wander.py` mixes their answers.

First it computes every world that a limited number of events can reach from the opening. Then it sweeps each of these
worlds that has an open transaction, with a limited number of events between the answers, in every way that changes
answers. If an event does not change the next answer, it may as well happen after that answer. So only histories are run
in which the last event before an answer changes that answer; every other history is equivalent to one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from tests.sim.answers import answer
from tests.sim.check import Figures, History, Schedule, Scripted, count, wrong_verdicts
from tests.sim.history import Simulation, Wrong, something_open
from tests.sim.obligations import EVERYTHING, Protocol
from tests.sim.scenarios import Small, opened
from tests.sim.table import Event
from tests.sim.transitions import happen, possible
from tests.sim.world import World
from txnscan.coordinators.cluster import ClusterUnreachable
from txnscan.kafka.errors import RequestFailed
from txnscan.sweeps.result import Scan


def reachable(start: World, before: int) -> Iterator[tuple[World, tuple[Event, ...]]]:
    """Every different world that up to `before` events can reach, with a shortest path to it."""
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


def exhaustive(
    small: Small,
    bound: tuple[int, int],
    protocol: Protocol = EVERYTHING,
    *,
    first: int = 0,
    step: int = 1,
    stop: Callable[[Figures], bool] = lambda figures: False,
) -> Figures:
    """Runs every history up to this bound: events before the sweep, and events during it.

    first, step: sweep only every `step`-th world from `first`, to share the work.
    """
    figures = Figures()
    start = opened(small.scenario, small.opening)
    for number, (world, path) in enumerate(reachable(start, bound[0])):
        if number % step != first:
            continue
        figures.worlds += 1
        if not (something_open(world) or protocol.starts_anywhere):
            continue
        quiet = History(small.scenario, small.opening, path, ())
        for history, found, wrong in _sweeps(world, quiet, bound[1], protocol, figures):
            count(figures, found, wrong, partial(replace, history))
        if stop(figures):
            break
    return figures


def _sweeps(
    world: World, quiet: History, during: int, protocol: Protocol, figures: Figures
) -> Iterator[tuple[History, Scan, list[Wrong]]]:
    """The sweeps of this world, in every way that up to `during` events can change its answers."""
    stack: list[Schedule] = [()]
    seen: dict[tuple[Any, ...], int] = {}
    while stack:
        history = replace(quiet, during=stack.pop())
        simulation = Simulation(world.copy(), _Explorer(history.during, during, stack, seen))
        try:
            found = protocol.sweep(simulation)
        except _Known:
            continue
        except ClusterUnreachable:
            figures.unreachable += 1
            continue
        yield history, found, wrong_verdicts(found, simulation.world, world, history, protocol)


class _Known(Exception):
    """The rest of this history was seen before: the same world, and the same answers so far."""


class _Explorer(Scripted):
    """Follows a schedule, and pushes every different continuation on the stack."""

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
        """Pushes the sequences of events here whose last event changes this answer."""
        ring: list[tuple[World, Schedule, str]] = [(world, (), said)]
        known = {world.key}
        for _ in range(self.budget):
            wider = []
            for at, events, answered in ring:
                for event in possible(at):
                    other = at.copy()
                    happen(other, event)
                    if other.key in known:
                        continue
                    known.add(other.key)
                    now = _said(other, broker_id, request)
                    chain = (*events, (point, event))
                    wider.append((other, chain, now))
                    if now != answered:
                        self.stack.append(self.whole + chain)
            ring = wider


def _said(world: World, broker_id: int, request: Any) -> str:
    """The answer as text. Two answers have the same text exactly if a sweep cannot tell them apart."""
    try:
        return repr(answer(world, broker_id, request))
    except RequestFailed as failed:
        return failed.error
