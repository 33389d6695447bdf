"""All tables together, and what can happen now."""

from __future__ import annotations

from collections.abc import Iterator

from txnscan.sim.controller import BROKER, CONTROLLER
from txnscan.sim.coordinator import COORDINATOR
from txnscan.sim.partition import PARTITION
from txnscan.sim.producer import PRODUCER
from txnscan.sim.table import Event, Transition
from txnscan.sim.world import World

TABLES: dict[str, tuple[Transition, ...]] = {
    "producers": PRODUCER,
    "coordinators": COORDINATOR,
    "partitions": PARTITION,
    "the controller": CONTROLLER,
    "brokers": BROKER,
}
TRANSITIONS = {transition.name: transition for table in TABLES.values() for transition in table}


def possible(world: World) -> Iterator[Event]:
    """Everything that can happen now, in the order of the tables."""
    faults = world.scenario.faults
    for name, transition in TRANSITIONS.items():
        if transition.fault is None or transition.fault in faults:
            for subject in transition.when(world):
                yield (name, subject)


def happen(world: World, event: Event) -> None:
    """Makes an event happen."""
    name, subject = event
    TRANSITIONS[name].then(world, *subject)


def can_happen(world: World, event: Event) -> bool:
    """Whether an event is possible now."""
    name, subject = event
    transition = TRANSITIONS[name]
    allowed = transition.fault is None or transition.fault in world.scenario.faults
    return allowed and subject in tuple(transition.when(world))
