"""Transactional producers: what clients ask for. A producer waits for one answer before it asks again."""

from __future__ import annotations

from collections.abc import Iterable

from tests.sim.coordinator import begin_add, begin_end, begin_init, free
from tests.sim.records import NOBODY, Data, Produce
from tests.sim.table import Subject, Transition
from tests.sim.world import NEVER_ADDED, World
from txnscan.kafka.topology import Key

# More than clocks may differ by (`outcome.CLOCK_SLACK_MS`).
_TICK_MS = 10_000


def _inits(world: World) -> Iterable[Subject]:
    for name in world.producers:
        for broker_id, held in free(world, name):
            if held is None or not held.metadata.state.startswith("Prepare"):
                yield (broker_id, name)


def _adds(world: World) -> Iterable[Subject]:
    for name, producer in world.producers.items():
        if producer.producer_id == NOBODY or producer.ending is not None or producer.fenced:
            continue
        for broker_id, held in free(world, name):
            if held is None or not held.metadata.state.startswith("Prepare"):
                yield from ((broker_id, name, key) for key, _ in world.scenario.topics if key not in producer.added)


def _sends(world: World) -> Iterable[Subject]:
    for name, producer in world.producers.items():
        if producer.ending is None and not producer.fenced:
            for key in sorted(producer.added):
                yield from ((name, key, version) for version in world.scenario.versions)


def _send(world: World, name: str, key: Key, version: int) -> None:
    producer = world.producers[name]
    identity = (producer.producer_id, producer.producer_epoch, (name, producer.txn))
    data = Data(*identity, sent_ms=world.now_ms, added=key in producer.added)
    world.in_flight = (*world.in_flight, Produce(key, data, version))


def _forgotten_adds(world: World) -> Iterable[Subject]:
    if 1 not in world.scenario.versions:
        return
    for name, producer in world.producers.items():
        if producer.producer_id != NOBODY and producer.ending is None and not producer.fenced:
            yield from ((name, key) for key, _ in world.scenario.topics if key not in producer.added)


def _send_unadded(world: World, name: str, key: Key) -> None:
    _send(world, name, key, 1)


def _time_passes(world: World) -> None:
    world.now_ms += _TICK_MS


def _ends(world: World) -> Iterable[Subject]:
    for name, producer in world.producers.items():
        if not producer.added or producer.fenced:
            continue
        # A commit waits for every record to be acknowledged (KafkaProducer flushes); an abort does not.
        waits = any(p.data.txn == (name, producer.txn) for p in world.in_flight)
        wanted = [commit for commit in (True, False) if not (commit and waits)]
        if producer.ending is not None:
            wanted = [producer.ending]
        for broker_id, _ in free(world, name):
            yield from ((broker_id, name, c, version) for c in wanted for version in world.scenario.versions)


PRODUCER = (
    Transition(
        "InitProducerId",
        _inits,
        begin_init,
        "A producer starts, or a new instance of it: a new producer id, or the next epoch, which fences the instance "
        "before it (TransactionCoordinator.prepareInitProducerIdTransit).",
        of="'{1}' at broker {0}",
    ),
    Transition(
        "AddPartitionsToTxn",
        _adds,
        begin_add,
        "A partition joins the transaction, by the client (v1) or by the partition's leader for it (v2). The "
        "answer comes after the record is acknowledged, so data follows it "
        "(TransactionCoordinator.handleAddPartitionsToTransaction).",
        of="'{1}' at broker {0}, {2}",
    ),
    Transition(
        "send data",
        _sends,
        _send,
        "The producer sends a batch to a partition that it has added.",
        of="'{0}' to {1}, transactions v{2}",
    ),
    Transition(
        "send data without adding",
        _forgotten_adds,
        _send_unadded,
        "A client of transactions v1 sends a batch to a partition that it has not added to its transaction; its "
        "brokers know of it only where they verify, and not where an open transaction of the same epoch stands there "
        "(AddPartitionsToTxnManager, ProducerStateManager.hasOngoingTransaction).",
        of="'{0}' to {1}",
        fault=NEVER_ADDED,
    ),
    Transition(
        "time passes",
        lambda world: ((),),
        _time_passes,
        "What is sent or written from here on has a later date than all before. Everywhere else dates are equal.",
        of="",
        fault=NEVER_ADDED,
    ),
    Transition(
        "EndTxn",
        _ends,
        begin_end,
        "The producer commits, once all its records are acknowledged, or aborts, at any time; asked again when no "
        "answer came (TransactionCoordinator.endTransaction).",
        of="'{1}' at broker {0}, {2}, transactions v{3}",
    ),
)
