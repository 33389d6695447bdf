"""Batches that a simulated broker refuses, or takes for duplicates: a client counts its batches at each epoch. A new
instance begins again, also at an epoch that its coordinator lost.

The scripts `lost-epoch…` and `unclean-transaction` of `tests/prove/scripts.py` show the same on real brokers.
"""

from __future__ import annotations

from dataclasses import replace

from tests.cases import Cases
from tests.sim.records import BATCHES_KEPT, producer_state
from tests.sim.scenarios import LOG, WIDE, A, P, heard, opened
from tests.sim.stepping import ADD, END_MARKERS, INIT, end, go_on, send
from tests.sim.table import Event
from tests.sim.world import World

UNVERIFIED = WIDE["lost-log-ends-unflushed-v1"]
VERIFIED = replace(UNVERIFIED, verify=True)
# The broker of the log crashes, and only the first record of the log is left: the id at epoch 0.
_LOST: tuple[Event, ...] = (
    *(("kill broker", (1,)), ("fence broker", (1,)), ("lose log end", (LOG, 1, 1)), ("start broker", (1,))),
    *(("unfence broker", (1,)), *heard(1, 2), ("load", (1, 0))),
)


def written(world: World, broker_id: int = 2) -> list[int]:
    """The numbers of the batches that the replica knows at the producer's epoch."""
    return list(producer_state(world.logs[P, broker_id])[7].sequences)


def offsets(world: World) -> int:
    return len(world.logs[P, 2])


def test_a_new_instance_at_a_lost_epoch_repeats_numbers() -> None:
    with Cases() as cases:
        for scenario in (UNVERIFIED, VERIFIED):
            with cases.case(f"verified: {scenario.verify}"):
                world = opened(scenario, (INIT, INIT, ADD, *send(1), *_LOST, INIT, ADD))
                assert world.producers[A][:2] == (7, 1), "the epoch of the instance before"
                go_on(world, *send(1))
                assert (offsets(world), written(world)) == (1, [0]), "acknowledged, and not written"
                go_on(world, *send(1))
                assert (offsets(world), written(world)) == (2, [0, 1]), "it joins the open transaction"
                go_on(world, end(1))
                assert not world.producers[A].fenced, "nothing tells the client"


def test_a_duplicate_is_found_behind_the_marker_of_its_epoch() -> None:
    """The broker verified the transaction of the duplicate, and wrote no batch of it. So it refuses the next number."""
    first: tuple[Event, ...] = (INIT, INIT, ADD, *send(1), *send(1), end(1), *END_MARKERS)
    with Cases() as cases:
        for scenario, third, fourth in ((UNVERIFIED, [0, 1, 2], [0, 1, 2, 3]), (VERIFIED, [0, 1], [0, 1, 2])):
            with cases.case(f"verified: {scenario.verify}"):
                world = opened(scenario, (*first, *_LOST, INIT, ADD, *send(1), *send(1)))
                assert (offsets(world), written(world)) == (3, [0, 1])
                go_on(world, *send(1))
                assert written(world) == third
                go_on(world, end(1), *END_MARKERS, ADD, *send(1))
                assert written(world) == fourth, "after the marker"


def test_a_restart_forgets_what_was_verified() -> None:
    first: tuple[Event, ...] = (INIT, INIT, ADD, *send(1), end(1), *END_MARKERS, *_LOST, INIT, ADD, *send(1))
    world = opened(VERIFIED, first)
    refused = world.copy()
    go_on(refused, *send(1))
    assert written(refused) == [0]
    go_on(world, ("kill broker", (2,)), ("fence broker", (2,)), *heard(1), ("start broker", (2,)))
    go_on(world, ("unfence broker", (2,)), *heard(1, 2), *send(1))
    assert written(world) == [0, 1]


def test_only_the_last_batches_are_known_as_duplicates() -> None:
    with Cases() as cases:
        for many, acknowledged in ((BATCHES_KEPT, 1), (BATCHES_KEPT + 1, 0)):
            with cases.case(f"{many} batches"):
                world = opened(UNVERIFIED, (INIT, INIT, ADD, *send(1) * many, *_LOST, INIT, ADD, *send(1)))
                assert offsets(world) == many
                assert world.sent.get((P, 7, 1, world.producers[A].instance), 0) == acknowledged


def test_a_leader_that_lacks_a_batch_refuses_the_next_one_until_a_new_instance_begins() -> None:
    """An unclean election of the partition's leader: the client counts on."""
    scenario = replace(WIDE["unclean-elections"], versions=(1,))
    down: tuple[Event, ...] = (("kill broker", (2,)), ("fence broker", (2,)), *heard(1, 3))
    swapped: tuple[Event, ...] = (
        *(("kill broker", (1,)), ("fence broker", (1,)), *heard(3), ("start broker", (2,)), ("unfence broker", (2,))),
        *(("unclean election", (P, 2)), *heard(2, 3)),
    )
    init, add = ("InitProducerId", (3, A)), ("AddPartitionsToTxn", (3, A, P))
    world = opened(scenario, (init, add, *send(1), *down, *send(1), *swapped))
    assert written(world) == [0]
    go_on(world, *send(1))
    assert written(world) == [0]
    done: tuple[Event, ...] = (
        *(("write marker", (3, A, P)), ("marker acknowledged", (3, A, P)), ("write completion", (3, A))),
    )
    go_on(world, ("EndTxn", (3, A, False, 1)), *done, init, add, *send(1))
    assert (producer_state(world.logs[P, 2])[7].producer_epoch, written(world)) == (1, [0])
