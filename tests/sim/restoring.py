"""Random histories of a cluster that is restored from an earlier state of its disks, with the tables of the later one.

Sweeps store their results, a copy of the cluster is taken, more happens, and the copy takes the place of the cluster.
Later sweeps know everything that was stored. A restore is noticed if a stored position is above that of the copy; the
check of that reads the world and not the sweep's own comparison.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from tests.sim.check import Figures, History, Sweeps, count, wrong_verdicts
from tests.sim.history import NOW_MS, Simulation, Wrong, accused
from tests.sim.memory import Memory
from tests.sim.obligations import EVERYTHING, Protocol
from tests.sim.scenarios import OPENINGS
from tests.sim.transitions import happen, settle
from tests.sim.truth import HEALING
from tests.sim.wander import CALM, Wandering, begun_or_opened, go_on
from tests.sim.world import Scenario, World
from txnscan.coordinators.cluster import ClusterUnreachable
from txnscan.sweeps.column import epoch_ms
from txnscan.sweeps.result import Scan

# The maximum numbers of sweeps before the copy is taken, until it is restored, and after that.
_BEFORE_MAX, _BETWEEN_MAX, _AFTER_MAX = 1, 2, 3
# How often the brokers of a restored cluster start anew from their disks. Otherwise they go on as the copy was.
_STARTED = 0.7
_MINUTE_MS = 60_000


@dataclass
class Restored:
    """The result of a history with a restore. noticed, unnoticed: of sweeps after it. wrong_unnoticed: wrong results of
    sweeps that did not notice it, which docs/trust.md excepts.
    """

    figures: Figures = field(default_factory=Figures)
    noticed: int = 0
    unnoticed: int = 0
    wrong_unnoticed: list[Wrong] = field(default_factory=list)


def wander_restored(scenario: Scenario, seed: int, protocol: Protocol = EVERYTHING) -> Restored:
    """One random history. The same seed gives the same history."""
    chooser = random.Random(seed)
    sweeps, done = Sweeps(protocol), Restored(Figures(worlds=1))
    world, _ = begun_or_opened(scenario, chooser)
    chance, fault_chance = chooser.choice((0.0, 0.02, 0.1)), chooser.choice((0.0, 0.1, 0.3, 1.0))

    def some(least: int, most: int, world: World) -> Iterator[tuple[int, World]]:
        """Moments for a sweep, each after more events."""
        for _ in range(chooser.randint(least, most)):
            go_on(world, chooser, chooser.randint(0, 12), fault_chance, [])
            if chooser.random() < CALM:
                settle(world, HEALING)
            yield len(sweeps.done), world

    def swept(number: int, world: World) -> tuple[Scan, list[Wrong], History] | None:
        now_ms, known = NOW_MS + number * _MINUTE_MS, tuple(range(number))
        before, pilot = world.copy(), Wandering(chooser, chance, fault_chance)
        told, opening = sweeps.next(known, now_ms), OPENINGS.get(scenario.name, ())
        try:
            found = sweeps.sweep(Simulation(world, pilot), known, now_ms)
        except ClusterUnreachable:
            done.figures.unreachable += 1
            return None
        history = History(scenario, opening, (), tuple(pilot.schedule), None, (), known, now_ms)
        return found, wrong_verdicts(found, world, before, history, told), history

    for number, at in some(0, _BEFORE_MAX, world):
        swept(number, at)
    copy, copied_at = world.copy(), len(sweeps.done)
    for number, at in some(1, _BETWEEN_MAX, world):
        swept(number, at)
    restored_at, world = len(sweeps.done), copy.copy()
    # No two histories write a record at the same time, also where a scenario has no clock.
    world.now_ms += _MINUTE_MS
    before = sweeps.memory(range(restored_at)).past("")().history
    if chooser.random() < _STARTED:
        _start_anew(world)
    for number, at in some(1, _AFTER_MAX, world):
        one = swept(number, at)
        if one is None:
            continue
        found, wrong, history = one
        noticed = found.history > before
        done.noticed += noticed
        done.unnoticed += not noticed
        memory = sweeps.memory(range(len(sweeps.done)))
        # What was seen before the copy was taken is true of the copy as well.
        others = range(0 if noticed else copied_at, restored_at)
        wrong += _believed_the_past(found, memory, [NOW_MS + number * _MINUTE_MS for number in others])
        if not noticed:
            done.wrong_unnoticed += wrong
            wrong = []
        count(done.figures, found, wrong, lambda shown=history: shown)  # type: ignore[misc]
    return done


def _start_anew(world: World) -> None:
    """Starts every broker from its disk."""
    world.in_flight = ()
    for broker_id in world.brokers:
        if world.brokers[broker_id].run == "up":
            happen(world, ("kill broker", (broker_id,)))
    settle(world, HEALING)


def _believed_the_past(found: Scan, memory: Memory, before_ms: Collection[int]) -> Iterable[Wrong]:
    """Hanging transactions without an open incident, or with an age of another history. before_ms: the times of its
    sweeps.
    """
    for judged in accused(found):
        o = judged.observation
        row = memory.incidents[o.transaction_key.incident_id(found.cluster_id)]
        why = None
        if row["resolved_how"] is not None:
            why = "it hangs, and its incident is over"
        elif epoch_ms(row["first_seen_at"]) in before_ms:
            why = "its age is that of another history"
        if why is not None:
            yield Wrong(o.key, o.producer_id, o.start_offset, "", "", why, mistaken=True)
