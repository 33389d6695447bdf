"""Replay a history, and compare every verdict of its sweep with the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tests.sim.history import (
    NOW_MS,
    Simulation,
    Wrong,
    closed_too_early,
    false_accusations,
    held_in_vain,
    missed,
    mistaken,
    overlooked,
    torn,
)
from tests.sim.memory import Memory
from tests.sim.obligations import EVERYTHING, Protocol
from tests.sim.scenarios import opened
from tests.sim.table import Event
from tests.sim.transitions import can_happen, happen
from tests.sim.turns import Turns
from tests.sim.world import Scenario, World
from txnscan.coordinators.cluster import ClusterUnreachable
from txnscan.sweeps.result import Scan
from txnscan.tables.incidents import Row

# Events between the answers of a sweep. Each has the number of the answer that it precedes.
Schedule = tuple[tuple[int, Event], ...]


@dataclass(frozen=True)
class Visit:
    """One of several sweeps of a world. before, during: the events since the previous sweep, and between its answers.
    known: the numbers of the earlier sweeps that it knows, in the order in which they were stored. now_ms: the time of
    its scanner's clock.
    """

    before: tuple[Event, ...]
    during: Schedule
    known: tuple[int, ...] = ()
    now_ms: int = NOW_MS


@dataclass(frozen=True)
class History:
    """The events before a sweep and during it: enough to replay it.

    turns: the seed for the order in which brokers answer parallel requests; None for sequential answers. earlier: the
    previous sweeps; `before` happens after them. known, now_ms: see Visit.
    """

    scenario: Scenario
    opening: tuple[Event, ...]
    before: tuple[Event, ...]
    during: Schedule
    turns: int | None = None
    earlier: tuple[Visit, ...] = ()
    known: tuple[int, ...] = ()
    now_ms: int = NOW_MS


@dataclass
class Figures:
    """The counts of a search. `wrong` has the first few false verdicts with their histories."""

    worlds: int = 0
    histories: int = 0
    unreachable: int = 0
    complete: int = 0
    accusations: int = 0
    false_accusations: int = 0
    torn: int = 0
    overlooked: int = 0
    mistaken: int = 0
    verdicts: dict[str, int] = field(default_factory=dict)
    wrong: list[tuple[History, Wrong]] = field(default_factory=list)

    def add(self, other: Figures) -> None:
        """Adds the counts of another search."""
        for name in ("worlds", "histories", "unreachable", "complete", "accusations"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("false_accusations", "torn", "overlooked", "mistaken"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for verdict, number in other.verdicts.items():
            self.verdicts[verdict] = self.verdicts.get(verdict, 0) + number
        self.wrong += other.wrong[: max(0, _WRONG_KEPT - len(self.wrong))]


_WRONG_KEPT = 20


def run(history: History, protocol: Protocol = EVERYTHING) -> tuple[Scan, list[Wrong], World]:
    """Replays a history. Returns the sweep, every verdict that the truth contradicts, and the final world.

    Raises ClusterUnreachable if no broker answered.
    """
    world, sweeps = opened(history.scenario, history.opening), Sweeps(protocol)
    for visit in history.earlier:
        _happen_all(world, visit.before, guarded=True)
        with suppress(ClusterUnreachable):
            sweeps.sweep(Simulation(world, Scripted(visit.during)), visit.known, visit.now_ms)
    _happen_all(world, history.before, guarded=bool(history.earlier))
    simulation = Simulation(world.copy(), Scripted(history.during), in_turns(history.turns))
    told = sweeps.next(history.known, history.now_ms)
    found = told.sweep(simulation)
    return found, wrong_verdicts(found, simulation.world, world, history, told), simulation.world


def _happen_all(world: World, events: Iterable[Event], guarded: bool) -> None:
    for event in events:
        # See Scripted.
        if not guarded or can_happen(world, event):
            happen(world, event)


@dataclass
class Sweeps:
    """Sweeps of one world. Each knows a given subset of the earlier sweeps."""

    protocol: Protocol
    done: list[tuple[Scan, Sequence[Row]] | None] = field(default_factory=list)

    def memory(self, known: Iterable[int]) -> Memory:
        """The memory after these sweeps, stored in this order."""
        memory = Memory()
        for number in known:
            one = self.done[number]
            if one is not None:
                memory.keep(*one)
        return memory

    def next(self, known: Sequence[int], now_ms: int) -> Protocol:
        """The protocol of the next sweep, with the memory of these sweeps. The first sweep has the history of its
        scenario.
        """
        if not self.done:
            return replace(self.protocol, now_ms=now_ms)
        number = len(self.done)
        return replace(self.protocol, history=self.memory(known), sweep_id=f"sweep {number}", now_ms=now_ms)

    def sweep(self, simulation: Simulation, known: Sequence[int], now_ms: int) -> Scan:
        """Runs the next sweep and stores its result. Raises ClusterUnreachable if no broker answers."""
        told, at_start = self.next(known, now_ms), self.memory(known).open_incidents
        self.done.append(None)
        found = told.sweep(simulation)
        self.done[-1] = (found, at_start)
        return found


def misfolded(sweeps: Sweeps, order: Iterable[int]) -> list[Wrong]:
    """Incidents that are closed if the sweeps are stored in this order, but open if they are stored in their
    own order.
    """
    in_turn = sweeps.memory(range(len(sweeps.done))).incidents
    return [
        Wrong(
            (row["topic"], row["partition"]),
            row["producer_id"],
            row["start_offset"],
            *("", "", "stored in another order, its incident is over"),
            mistaken=True,
        )
        for which, row in sweeps.memory(order).incidents.items()
        if row["resolved_how"] is not None and in_turn[which]["resolved_how"] is None
    ]


def in_turns(seed: int | None) -> Turns | None:
    """The turns for this seed, if there is a seed."""
    return Turns(seed) if seed is not None else None


def wrong_verdicts(found: Scan, end: World, world: World, history: History, protocol: Protocol) -> list[Wrong]:
    """The verdicts of a sweep of `world` that the truth contradicts. `history.during` happened during the sweep.

    If a sweep accuses a transaction that does not hang in the end, it is repeated, to learn what was true when it
    asked.
    """
    wrong = false_accusations(found, (), end) + held_in_vain(found, world, (), end)
    if wrong:
        again = Simulation(world.copy(), Scripted(history.during), in_turns(history.turns), keeps_worlds=True)
        same = protocol.sweep(again)
        wrong = false_accusations(same, again.asked_worlds, again.world)
        wrong += held_in_vain(same, world, again.claim_worlds, again.world)
    known = protocol.history.unresolved(found.cluster_id)() if isinstance(protocol.history, Memory) else {}
    wrong += mistaken(found, end) + closed_too_early(found, known, end)
    return wrong + torn(found, end) + overlooked(end) + missed(found, world, end)


class Scripted:
    """Makes the scheduled events happen."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = list(schedule)

    def __call__(self, simulation: Simulation, point: int, broker_id: int, request: Any) -> None:
        while self.schedule and self.schedule[0][0] <= point:
            _, event = self.schedule.pop(0)
            # In a shortened history, the events that made this event possible may be missing.
            if can_happen(simulation.world, event):
                happen(simulation.world, event)


def count(figures: Figures, found: Scan, wrong: list[Wrong], history: Callable[[], History]) -> None:
    """Counts a finished history."""
    figures.histories += 1
    figures.complete += found.complete
    for judged in found.transactions:
        name = f"{judged.judgement.verdict}/{judged.judgement.reason}"
        figures.verdicts[name] = figures.verdicts.get(name, 0) + 1
        figures.accusations += judged.judgement.verdict == "hanging"
    for one in wrong:
        if one.torn:
            figures.torn += 1
        elif one.mistaken:
            figures.mistaken += 1
        elif one.verdict:
            figures.false_accusations += 1
        else:
            figures.overlooked += 1
        if len(figures.wrong) < _WRONG_KEPT:
            figures.wrong.append((history(), one))
