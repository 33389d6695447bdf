"""The worlds that are searched: small ones in every way up to a bound, larger ones at random."""

from __future__ import annotations

from dataclasses import dataclass, replace

from txnscan.sim.table import Event
from txnscan.sim.transitions import TRANSITIONS, happen
from txnscan.sim.world import Scenario, World

P = ("p", 0)
Q = ("q", 0)
A = "a"


@dataclass(frozen=True)
class Small:
    """A world to search exhaustively.

    opening: what happens first, with all that follows of itself. before, during: how many events then, before the sweep
    and between its answers.
    """

    scenario: Scenario
    opening: tuple[Event, ...]
    before: int
    during: int


_INIT: Event = ("InitProducerId", (1, A))
_ADD: Event = ("AddPartitionsToTxn", (1, A, P))
_SEND: Event = ("send data", (A, P, 1))
_OPEN: tuple[Event, ...] = (_INIT, _ADD, _SEND, ("append data", (0,)))

ONE_BROKER = Scenario("one broker", topics=((P, (1,)),), coordinators=((1,),))
MOVING_PARTITION = Scenario(
    "a partition that moves",
    topics=((P, (1, 2)),),
    coordinators=((1,),),
    versions=(1,),
    faults=frozenset({"leader move", "cut"}),
)
MOVING_COORDINATOR = Scenario(
    "a coordinator that moves",
    topics=((P, (1,)),),
    coordinators=((1, 2),),
    versions=(1,),
    faults=frozenset({"leader move", "cut"}),
)
CRASHES = Scenario(
    "brokers that crash and hang",
    topics=((P, (1, 2)),),
    coordinators=((1, 2),),
    versions=(2,),
    faults=frozenset({"kill", "pause"}),
)
LATE_DATA = Scenario("late data", topics=((P, (1,)), (Q, (1,))), coordinators=((1,),), versions=(1,))
VERIFIED = replace(LATE_DATA, name="late data, verified", verify=True, versions=(2,))
LEADERLESS = Scenario(
    "a partition offline while its transaction ends",
    topics=((P, (2,)),),
    coordinators=((1,),),
    versions=(2,),
    faults=frozenset({"kill"}),
)
HIDDEN = replace(ONE_BROKER, name="a hidden id", hidden=frozenset({A}))

SMALL = (
    Small(ONE_BROKER, (_INIT,), before=7, during=4),
    Small(HIDDEN, (_INIT,), before=5, during=2),
    Small(LATE_DATA, (_INIT, _ADD, _SEND), before=6, during=2),
    Small(VERIFIED, (_INIT, _ADD, ("send data", (A, P, 2))), before=6, during=2),
    Small(MOVING_PARTITION, _OPEN, before=5, during=2),
    Small(MOVING_COORDINATOR, _OPEN, before=5, during=2),
    Small(LEADERLESS, (_INIT, _ADD, ("send data", (A, P, 2)), ("append data", (0,))), before=7, during=2),
    Small(CRASHES, (_INIT, _ADD, ("send data", (A, P, 2)), ("append data", (0,))), before=4, during=2),
)

_ALL_FAULTS = frozenset({"kill", "pause", "cut", "leader move", "lost request"})
WIDE = (
    Scenario(
        "two brokers, two partitions",
        topics=((P, (1, 2)), (Q, (2, 1))),
        coordinators=((1, 2),),
        faults=_ALL_FAULTS,
    ),
    Scenario(
        "three brokers, two coordinators",
        topics=((P, (1, 2, 3)), (Q, (3,))),
        coordinators=((1, 2, 3), (3, 1, 2)),
        producers=(A, "b"),
        min_isr=2,
        faults=_ALL_FAULTS,
    ),
    Scenario(
        "transactions v1, nothing verified",
        topics=((P, (1, 2)), (Q, (2,))),
        coordinators=((1,), (2,)),
        producers=(A, "b"),
        versions=(1,),
        skips_leaderless=False,
        last_epoch=2,
        faults=_ALL_FAULTS,
    ),
    Scenario(
        "transactions v2, verified, epochs used up",
        topics=((P, (1, 2)), (Q, (2, 3))),
        coordinators=((1, 2), (2, 3)),
        producers=(A, "b"),
        verify=True,
        versions=(2,),
        last_epoch=2,
        faults=_ALL_FAULTS,
    ),
    Scenario(
        "an id that the principal may not see",
        topics=((P, (1, 2)),),
        coordinators=((1, 2),),
        producers=(A, "b"),
        hidden=frozenset({"b"}),
        faults=_ALL_FAULTS,
    ),
)
# What follows of itself while nothing goes wrong and no client asks.
_OF_ITSELF = ("fetch", "complete transition")


def opened(scenario: Scenario, opening: tuple[Event, ...] = ()) -> World:
    """The world after these events, each with what follows of itself."""
    world = World(scenario)
    for event in opening:
        happen(world, event)
        rest(world)
    return world


def rest(world: World) -> None:
    """Lets replicas catch up and appends be acknowledged."""
    while event := next(((n, s) for n in _OF_ITSELF for s in TRANSITIONS[n].when(world)), None):
        happen(world, event)
