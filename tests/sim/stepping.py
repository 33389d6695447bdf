"""Steps of the simulator."""

from __future__ import annotations

from tests.sim.records import (
    still_open,
)
from tests.sim.scenarios import (
    A,
    P,
    rest,
    torn_commit,
)
from tests.sim.table import Event
from tests.sim.transitions import can_happen, happen, possible
from tests.sim.world import World

INIT: Event = ("InitProducerId", (1, A))


ADD: Event = ("AddPartitionsToTxn", (1, A, P))


END_MARKERS: tuple[Event, ...] = (
    ("write marker", (1, A, P)),
    ("marker acknowledged", (1, A, P)),
    ("write completion", (1, A)),
)


def send(version: int) -> tuple[Event, ...]:
    return (("send data", (A, P, version)), ("append data", (0,)))


def end(version: int, commit: bool = True) -> Event:
    return ("EndTxn", (1, A, commit, version))


def go_on(world: World, *events: Event) -> None:
    for event in events:
        assert can_happen(world, event), f"{event} cannot happen; {list(possible(world))} can"
        happen(world, event)
        rest(world)


# Three records of a transaction whose commit lost p-0. The first two are deleted.
DELETED_FIRST: tuple[Event, ...] = (*torn_commit(2, 3), ("delete records", (P, 2, 2)))


def shown_open(world: World, broker_id: int) -> list[tuple[int, int]]:
    """The open transactions on this replica of p-0: start offsets and last sequence numbers."""
    return [(one.start_offset, one.last_sequence) for one in still_open(world.logs[P, broker_id]).values()]
