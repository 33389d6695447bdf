"""Shorten a history that shows a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.sim.check import History, Visit
from tests.sim.scenarios import opened
from tests.sim.table import Event
from tests.sim.transitions import can_happen, happen
from tests.sim.world import World


def shortened(history: History, fails: Callable[[History], bool]) -> History:
    """The history without every event that the failure does not need."""
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
    for n in reversed(range(len(history.earlier))):
        yield _without_visit(history, n)
    for n, visit in enumerate(history.earlier):
        for at in reversed(range(len(visit.during))):
            yield _with_visit(history, n, replace(visit, during=visit.during[:at] + visit.during[at + 1 :]))
        for at in reversed(range(len(visit.before))):
            yield _with_visit(history, n, replace(visit, before=visit.before[:at] + visit.before[at + 1 :]))
    for n in reversed(range(len(history.before))):
        kept = history.before[:n] + history.before[n + 1 :]
        if history.earlier or _runs(opened(history.scenario, history.opening), kept):
            yield replace(history, before=kept)


def _with_visit(history: History, number: int, visit: Visit) -> History:
    return replace(history, earlier=(*history.earlier[:number], visit, *history.earlier[number + 1 :]))


def _without_visit(history: History, number: int) -> History:
    """The history without an earlier sweep: its `before` events happen before the next sweep, and no sweep knows it."""
    gone = history.earlier[number]

    def known(numbers: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(one - (one > number) for one in numbers if one != number)

    later = [replace(visit, known=known(visit.known)) for visit in history.earlier[number + 1 :]]
    shorter = replace(history, known=known(history.known))
    if not later:
        return replace(shorter, earlier=history.earlier[:number], before=gone.before + history.before)
    later[0] = replace(later[0], before=gone.before + later[0].before)
    return replace(shorter, earlier=(*history.earlier[:number], *later))


def _runs(world: World, events: tuple[Event, ...]) -> bool:
    for event in events:
        if not can_happen(world, event):
            return False
        happen(world, event)
    return True
