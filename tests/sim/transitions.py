"""All tables together, and the events that are possible now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.sim.controller import BROKER, CONTROLLER
from tests.sim.coordinator import COORDINATOR
from tests.sim.partition import PARTITION
from tests.sim.producer import PRODUCER
from tests.sim.table import Event, Transition
from tests.sim.world import World

TABLES: dict[str, tuple[Transition, ...]] = {
    "producers": PRODUCER,
    "coordinators": COORDINATOR,
    "partitions": PARTITION,
    "the controller": CONTROLLER,
    "brokers": BROKER,
}
TRANSITIONS = {transition.name: transition for table in TABLES.values() for transition in table}
_SETTLING_STEPS_MAX = 2_000


class NeverSettles(Exception):
    """The simulator runs in a cycle: a defect of the simulator."""


def possible(world: World) -> Iterator[Event]:
    """Every event that is possible now, in the order of the tables."""
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


def settle(world: World, names: Sequence[str]) -> list[Event]:
    """Repeats the first possible one of these transitions until none is possible. Returns the events. Raises
    NeverSettles.
    """
    happened: list[Event] = []
    for _ in range(_SETTLING_STEPS_MAX):
        event = next(((name, subject) for name in names for subject in TRANSITIONS[name].when(world)), None)
        if event is None:
            return happened
        happen(world, event)
        happened.append(event)
    raise NeverSettles(f"{names} after {_SETTLING_STEPS_MAX} steps")
