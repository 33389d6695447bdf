"""The faults. Each function chooses the details, and returns a fault that has not begun."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.cut_off import CUT_OFF
from tests.prove.faults.admin import delete_topic, rotate
from tests.prove.faults.traffic import DOOMED
from tests.prove.faults.world import World
from txnscan.demo import plant
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC


@dataclass(frozen=True)
class Fault:
    """A fault that begins and heals; both functions return when the brokers are done with it. `kind` is for
    counting.
    """

    kind: str
    what: str
    strike: Callable[[], None]
    heal: Callable[[], None]


def killed(world: World, rng: random.Random) -> Fault:
    victim = rng.choice(world.cluster.broker_ids)
    return Fault(
        "SIGKILL",
        f"SIGKILL of broker {victim}",
        lambda: world.cluster.kill_broker(victim),
        lambda: world.cluster.start_broker(victim),
    )


def stopped(world: World, rng: random.Random) -> Fault:
    """A clean stop. If `__transaction_state` is not replicated, a part of it is offline in the meantime."""
    victim = rng.choice(world.cluster.broker_ids)
    return Fault(
        "SIGTERM" if world.name == "replicated" else "__transaction_state partly offline",
        f"SIGTERM of broker {victim}",
        lambda: world.cluster.stop_broker(victim),
        lambda: world.cluster.start_broker(victim),
    )


def paused(world: World, rng: random.Random) -> Fault:
    """A short pause; or a pause until the other brokers have fenced the broker, which then wakes as a zombie leader."""
    victim = rng.choice(world.cluster.broker_ids)
    others = [broker_id for broker_id in world.cluster.broker_ids if broker_id != victim]
    given_up = rng.random() < 0.7

    def strike() -> None:
        world.cluster.pause_broker(victim)
        if given_up:
            world.cluster.wait_for_brokers(others)

    def heal() -> None:
        world.cluster.resume_broker(victim)
        world.cluster.wait_for_brokers(world.cluster.broker_ids)

    return Fault("SIGSTOP", f"SIGSTOP of broker {victim}{', given up' if given_up else ''}", strike, heal)


def restarted(world: World, _: random.Random) -> Fault:
    return Fault("full restart", "SIGKILL of all brokers", world.cluster.stop, world.cluster.start)


def leaders_moved(world: World, rng: random.Random) -> Fault:
    def move() -> None:
        moved = [p.key for p in world.wire.view().partitions if not p.topic.startswith("__") and rng.random() < 0.5]
        rotate(world.wire, moved)

    return Fault("leader moves", "leaders move", move, move)


def coordinators_moved(world: World, rng: random.Random) -> Fault:
    def move() -> None:
        every = [p.key for p in world.wire.view([TRANSACTION_STATE_TOPIC]).partitions]
        rotate(world.wire, rng.sample(every, rng.randint(2, len(every))))

    return Fault("coordinator moves", "coordinators move", move, move)


def recreated(world: World, _: random.Random) -> Fault:
    """Deletes and recreates the topic twice, each time with a new orphan on the new topic."""

    def recreate() -> None:
        world.forget(DOOMED)
        delete_topic(world.wire, DOOMED)
        world.remember(plant.orphan(world.wire, DOOMED), "orphan")

    return Fault("topic recreated", "a topic is deleted and recreated", recreate, recreate)


def cut_off(world: World, _: random.Random) -> Fault:
    """A broker receives no metadata any more. It still leads its partitions, and does not know a new topic with a new
    orphan. The sweeps ask it first.
    """
    others = [broker_id for broker_id in world.cluster.broker_ids if broker_id != CUT_OFF]

    def strike() -> None:
        world.forget(DOOMED)
        delete_topic(world.wire, DOOMED)
        world.controllers.cut_off()
        world.cluster.wait_for_brokers(others)
        world.remember(plant.orphan(world.wire, DOOMED), "orphan")

    def heal() -> None:
        world.controllers.link()
        world.cluster.wait_for_brokers(world.cluster.broker_ids)

    return Fault("stale metadata", f"broker {CUT_OFF} cut off from the controller", strike, heal)


_FAULTS = (killed, stopped, paused, restarted, leaders_moved, coordinators_moved, recreated, cut_off)


def fault_order(rng: random.Random) -> Iterator[Callable[[World, random.Random], Fault]]:
    """Every fault once, in random order, repeated forever."""
    while True:
        yield from rng.sample(_FAULTS, len(_FAULTS))
