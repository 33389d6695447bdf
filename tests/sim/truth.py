"""The ground truth that a verdict is held against: what becomes of a transaction when no client acts any more.

A transaction *hangs* when, with every broker back and every timeout past, nobody ends it. The future in which all heals
first is the one in which most transactions end, so it is the strictest judge of the word "hanging".

An AddPartitionsToTxn that is not acknowledged yet, or that was answered with an error because its append timed out, is
an act of its client that is under way, and no data of its transaction can be in the partition before it is. So it does
not count: what hangs without it hangs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.sim.coordinator import decide
from tests.sim.records import NOBODY, Data, TransactionLogRecord, still_open, with_beginning
from tests.sim.transitions import happen, settle
from tests.sim.world import World
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key

# In this order each settles before the next: brokers and leaders, replicas, caches, then what coordinators owe.
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
    """The world after everything healed and every coordinator did what it owes, with no act of any client.

    Every coordinator is elected anew in the end: one that gave up sending markers tries once more. One that has loaded
    a part of its log only is elected anew before it acts on it.
    """
    future = world.copy()
    future.in_flight = ()
    _withdraw_unacknowledged_adds(future)
    settle(future, HEALING)
    partial = [k for (_, k), coordinator in future.coordinators.items() if not coordinator.whole]
    if partial:
        _elect_anew(future, partial)
        settle(future, HEALING)
    settle(future, HEALING + _ENDING)
    _elect_anew(future, range(len(future.scenario.coordinators)))
    settle(future, HEALING + _ENDING)
    # Markers that are refused for good leave a decision that a coordinator has from its log, and never completes.
    for held in future.held.values():
        decide(future, held.metadata)
    return future


def _elect_anew(world: World, numbers: Iterable[int]) -> None:
    """The leaders of these partitions of the transaction log lead them at the next epoch, and load them again."""
    for k in numbers:
        key = (TRANSACTION_STATE_TOPIC, k)
        leadership = world.leadership(world.image, key)
        if leadership.leader != NOBODY:
            happen(world, ("move leader", (key, leadership.leader)))


def _withdraw_unacknowledged_adds(world: World) -> None:
    """Replaces each record of an AddPartitionsToTxn whose client got no answer by the state before it."""
    for (broker_id, name), held in list(world.held.items()):
        adds = held.unanswered
        if held.pending is not None and held.pending.state == "Ongoing":
            adds += ((held.pending_offset, held.pending, held.metadata),)
            world.held[broker_id, name] = held._replace(pending=None)
        key = (TRANSACTION_STATE_TOPIC, world.coordinator_of(name))
        for at, added, before in adds:
            for replica in world.places[key]:
                log = world.logs[key, replica]
                # A deposed coordinator's record may be truncated already or cleaned, or another leader's stand there.
                record = log[at][1] if len(log) > at else None
                if isinstance(record, TransactionLogRecord) and record[:2] == (name, added):
                    entry = (log[at][0], record._replace(metadata=before))
                    world.logs[key, replica] = (*log[:at], entry, *log[at + 1 :])


def open_in(world: World, key: Key) -> dict[int, int]:
    """The transactions that stand open on the partition's true leader: start offset by producer id."""
    leader = world.leadership(world.image, key).leader
    if leader == NOBODY:
        return {}
    return {pid: shown.start_offset for pid, shown in still_open(world.logs[key, leader]).items()}


def hanging(world: World) -> frozenset[tuple[Key, int, int]]:
    """Every (partition, producer id, start offset) that nobody will ever end.

    Where records were deleted, a transaction has several start offsets: a replica that built its producers' state anew
    shows a later one than others. What has nothing left in the end was not ended by anybody either.
    """
    future = settled(world)
    return frozenset(
        (key, producer_id, start_offset)
        for key, _ in world.scenario.topics
        for producer_id, start_offset in _begun_in(future, key)
    )


def _begun_in(world: World, key: Key) -> Iterator[tuple[int, int]]:
    """What nobody has ended on the true leader, deleted records included: each start offset that a replica may show,
    with its producer id.
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
