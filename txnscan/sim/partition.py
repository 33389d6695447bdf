"""A partition's replicas: appending, following, truncating. Each transition cites what it models."""

from __future__ import annotations

from collections.abc import Iterable

from txnscan.model import Key
from txnscan.sim.records import NOBODY, Produce, producer_state
from txnscan.sim.table import Subject, Transition
from txnscan.sim.world import World


def _fetches(world: World) -> Iterable[Subject]:
    for key, replicas in world.scenario.partitions:
        for follower in replicas:
            if not world.up(follower):
                continue
            followed = world.leadership(world.brokers[follower].replicas, key)
            leader = followed.leader
            if leader in (NOBODY, follower) or not world.up(leader):
                continue
            believed = world.leads(leader, key)
            if believed is None or believed.epoch != followed.epoch:
                continue
            # A fetch that brings nothing and tells the leader nothing new is left out.
            if world.logs[key, follower] != world.logs[key, leader] or world.would_advance(leader, key):
                yield (key, follower)


def _fetch(world: World, key: Key, follower: int) -> None:
    leader = world.leadership(world.brokers[follower].replicas, key).leader
    # The answer carries the high watermark as it was before this fetch told the leader how far the follower is.
    mark = world.high_watermarks[key, leader]
    world.logs[key, follower] = world.logs[key, leader]
    world.advance(leader, key)
    world.high_watermarks[key, follower] = min(mark, len(world.logs[key, follower]))


def _deliveries(world: World) -> Iterable[Subject]:
    return ((n,) for n, produce in enumerate(world.in_flight) if _leader(world, produce) is not None)


def _leader(world: World, produce: Produce) -> int | None:
    """A broker that believes that it leads the partition; a zombie believes it too, and clients may still ask it."""
    replicas = world.places[produce.partition]
    return next((b for b in replicas if world.up(b) and world.leads(b, produce.partition) is not None), None)


def _deliver(world: World, number: int) -> None:
    produce = world.in_flight[number]
    world.in_flight = world.in_flight[:number] + world.in_flight[number + 1 :]
    leader = _leader(world, produce)
    if leader is not None and _accepts(world, leader, produce):
        world.append(leader, produce.partition, produce.data)


def _accepts(world: World, leader: int, produce: Produce) -> bool:
    known = producer_state(world.logs[produce.partition, leader]).get(produce.data.producer_id)
    if known is not None and produce.data.producer_epoch < known.producer_epoch:
        return False  # INVALID_PRODUCER_EPOCH
    if known is not None and known.start_offset >= 0 and known.producer_epoch == produce.data.producer_epoch:
        return True  # an open transaction at the same epoch is not verified again
    return (produce.version == 1 and not world.scenario.verify) or _verified(world, produce)


def _verified(world: World, produce: Produce) -> bool:
    """Whether some coordinator that believes in itself has the partition in an ongoing transaction."""
    transactional_id = produce.data.txn[0]
    k = world.coordinator_of(transactional_id)
    for (broker_id, number), coordinator in world.coordinators.items():
        held = world.held.get((broker_id, transactional_id))
        if number != k or coordinator.loading or held is None or not world.up(broker_id):
            continue
        metadata = held.metadata
        same = (metadata.producer_id, metadata.producer_epoch) == produce.data[:2]
        if metadata.state == "Ongoing" and same and held.pending is None and produce.partition in metadata.partitions:
            return True
    return False


def _losses(world: World) -> Iterable[Subject]:
    return ((n,) for n in range(len(world.in_flight)))


def _lose(world: World, number: int) -> None:
    world.in_flight = world.in_flight[:number] + world.in_flight[number + 1 :]


PARTITION = (
    Transition(
        "fetch",
        _fetches,
        _fetch,
        "A follower truncates what the leader does not have and copies the rest, when both are at the same leader "
        "epoch; the leader's high watermark follows its in-sync replicas, the follower's lags one fetch behind "
        "(ReplicaFetcherThread, Partition.maybeIncrementLeaderHW).",
        of="{0} by broker {1}",
    ),
    Transition(
        "append data",
        _deliveries,
        _deliver,
        "A Produce request arrives, in time or long after its transaction ended. A lower epoch than the partition's is "
        "refused; the first batch of a transaction is verified with the coordinator where verification is on, or the "
        "client speaks transactions v2; an open transaction at the same epoch is not verified again "
        "(UnifiedLog.analyzeAndValidateProducerState, AddPartitionsToTxnManager, KIP-890).",
        of="{0}",
    ),
    Transition(
        "lose a request",
        _losses,
        _lose,
        "A Produce request never arrives, or is refused.",
        of="{0}",
        fault="lost request",
    ),
)
