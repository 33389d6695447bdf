"""A history made shorter while it still shows the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from txnscan.sim.check import History
from txnscan.sim.scenarios import opened
from txnscan.sim.table import Event
from txnscan.sim.transitions import can_happen, happen
from txnscan.sim.world import World


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
