"""The ground truth for verdicts: what becomes of a transaction if clients do nothing more.

A transaction *hangs* if it never ends, even with every broker back and every timeout past. In this healed future most
transactions end, so it is the strictest test of the word "hanging".

An AddPartitionsToTxn that is not acknowledged yet, or that was answered with an error because its append timed out, is
a client action in progress, and no data of its transaction can be in the partition before it completes. So it does not
count: a transaction that hangs without it hangs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.sim.coordinator import decide
from tests.sim.records import NOBODY, Data, TransactionLogRecord, still_open, with_beginning
from tests.sim.transitions import happen, settle
from tests.sim.world import World
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key

# In this order each group settles before the next: brokers and leaders, replicas, caches, then the coordinators' work.
HEALING = (
    "resume broker",
    "link broker again",
    "fence broker",
    "start broker",
    "publish metadata",
    "apply to replicas",
    "elect coordinators",
    "unfence broker",
    "fetch",
    "expand isr",
    "load",
)
_ENDING = (
    "complete transition",
    "marker unanswered",
    "marker acknowledged",
    "write marker",
    "write completion",
    "timeout",
)


def settled(world: World) -> World:
    """The world after all faults healed and every coordinator finished its work, without any action of clients.

    In the end every coordinator is elected again, so that a coordinator that stopped sending markers tries once more. A
    coordinator that has loaded only a part of its log is elected again before it acts on it.
    """
    future = world.copy()
    future.in_flight = ()
    withdraw_unacknowledged_adds(future)
    settle(future, HEALING)
    partial = [k for (_, k), coordinator in future.coordinators.items() if not coordinator.whole]
    if partial:
        _elect_anew(future, partial)
        settle(future, HEALING)
    settle(future, HEALING + _ENDING)
    _elect_anew(future, range(len(future.scenario.coordinators)))
    settle(future, HEALING + _ENDING)
    # If markers are permanently refused, the coordinator has the decision from its log, but never completes it.
    for held in future.held.values():
        decide(future, held.metadata)
    return future


def _elect_anew(world: World, numbers: Iterable[int]) -> None:
    """Makes the leaders of these partitions of the transaction log lead them at the next epoch, and load them again."""
    for k in numbers:
        key = (TRANSACTION_STATE_TOPIC, k)
        leadership = world.leadership(world.image, key)
        if leadership.leader != NOBODY:
            happen(world, ("move leader", (key, leadership.leader)))


def withdraw_unacknowledged_adds(world: World) -> None:
    """Replaces each record of an unanswered AddPartitionsToTxn by the state before it."""
    for (broker_id, name), held in list(world.held.items()):
        adds = held.unanswered
        if held.pending is not None and held.pending.state == "Ongoing":
            adds += ((held.pending_offset, held.pending, held.metadata),)
            world.held[broker_id, name] = held._replace(pending=None)
        key = (TRANSACTION_STATE_TOPIC, world.coordinator_of(name))
        for at, added, before in adds:
            for replica in world.places[key]:
                log = world.logs[key, replica]
                # A deposed coordinator's record may be truncated or cleaned by now, or replaced by another leader's
                # record.
                record = log[at][1] if len(log) > at else None
                if isinstance(record, TransactionLogRecord) and record[:2] == (name, added):
                    entry = (log[at][0], record._replace(metadata=before))
                    world.logs[key, replica] = (*log[:at], entry, *log[at + 1 :])


def open_in(world: World, key: Key) -> dict[int, int]:
    """The open transactions on the partition's true leader: start offset by producer id."""
    leader = world.leadership(world.image, key).leader
    if leader == NOBODY:
        return {}
    return {pid: shown.start_offset for pid, shown in still_open(world.logs[key, leader]).items()}


def hanging(world: World) -> frozenset[tuple[Key, int, int]]:
    """Every (partition, producer id, start offset) that will never end.

    If records were deleted, a transaction has several start offsets: a replica that rebuilt its producer state shows a
    later one than others. A transaction without remaining records did not end either.
    """
    future = settled(world)
    return frozenset(
        (key, producer_id, start_offset)
        for key, _ in world.scenario.topics
        for producer_id, start_offset in _begun_in(future, key)
    )


def _begun_in(world: World, key: Key) -> Iterator[tuple[int, int]]:
    """The transactions without an end on the true leader, including deleted records: each start offset that a replica
    may show, with its producer id.
    """
    leader = world.leadership(world.image, key).leader
    log = with_beginning(world.logs[key, leader]) if leader != NOBODY else ()
    start = max(world.log_starts[key, b] for b in world.places[key])
    for producer_id, begun in still_open(log).items():
        for offset, (_, record) in enumerate(log[begun.start_offset :], begun.start_offset):
            if isinstance(record, Data) and record.producer_id == producer_id:
                yield producer_id, offset
                if offset >= start:
                    break
