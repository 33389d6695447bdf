"""Transactional producers: the requests of clients. A producer waits for one answer before its next request."""

from __future__ import annotations

from collections.abc import Iterable

from tests.sim.coordinator import begin_add, begin_end, begin_init, free
from tests.sim.records import NOBODY, Data, Produce, Producer
from tests.sim.table import Subject, Transition
from tests.sim.world import CHANGES_VERSION, NEVER_ADDED, World
from txnscan.kafka.topology import Key

# More than the accepted difference between clocks (`outcome.CLOCK_SLACK_MS`).
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
                for key, _ in world.scenario.topics:
                    if key not in producer.added and _may_add(world, producer, key):
                        yield (broker_id, name, key)


def _may_add(world: World, producer: Producer, key: Key) -> bool:
    """Whether the partition is added at all: under v2 its leader adds it, unless a transaction of that epoch is open
    there.
    """
    return producer.version != 2 or not all(world.stands_open(key, producer))


def _versions(world: World, producer: Producer) -> tuple[int, ...]:
    """The possible versions of the next request."""
    return world.scenario.versions if producer.version is None else (producer.version,)


def _sends(world: World) -> Iterable[Subject]:
    for name, producer in world.producers.items():
        if producer.producer_id != NOBODY and producer.ending is None and not producer.fenced:
            for key, _ in world.scenario.topics:
                if key in producer.added or _joins(world, producer, key):
                    yield from ((name, key, version) for version in _versions(world, producer))


def _joins(world: World, producer: Producer, key: Key) -> bool:
    """Whether a partition takes v2 data without being added: a transaction of that epoch is open there."""
    return producer.version == 2 and any(world.stands_open(key, producer))


def _send(world: World, name: str, key: Key, version: int) -> None:
    producer = world.producers[name]
    _put_on_the_way(world, Produce(key, _data(world, name)._replace(joined=key not in producer.added), version))


def _data(world: World, name: str) -> Data:
    producer = world.producers[name]
    return Data(
        producer.producer_id,
        producer.producer_epoch,
        (name, producer.txn),
        sent_ms=world.now_ms,
        instance=producer.instance,
    )


def _put_on_the_way(world: World, produce: Produce) -> None:
    world.in_flight = (*world.in_flight, produce)


def _forgotten_adds(world: World) -> Iterable[Subject]:
    if 1 not in world.scenario.versions:
        return
    for name, producer in world.producers.items():
        if producer.producer_id != NOBODY and producer.ending is None and not producer.fenced:
            yield from ((name, key) for key, _ in world.scenario.topics if key not in producer.added)


def _send_unadded(world: World, name: str, key: Key) -> None:
    _put_on_the_way(world, Produce(key, _data(world, name)._replace(added=False), 1))


def _between(world: World) -> Iterable[Subject]:
    for name, producer in world.producers.items():
        begun = producer.added or any(p.data.txn == (name, producer.txn) for p in world.in_flight)
        if producer.version is not None and producer.ending is None and not begun:
            yield (name,)


def _change_version(world: World, name: str) -> None:
    producer = world.producers[name]
    other = next(version for version in world.scenario.versions if version != producer.version)
    world.producers[name] = producer._replace(version=other)


def _time_passes(world: World) -> None:
    world.now_ms += _TICK_MS


def _ends(world: World) -> Iterable[Subject]:
    for name, producer in world.producers.items():
        if not producer.added or producer.fenced:
            continue
        # A commit waits until every record is acknowledged (KafkaProducer flushes); an abort does not.
        waits = any(p.data.txn == (name, producer.txn) for p in world.in_flight)
        wanted = [commit for commit in (True, False) if not (commit and waits)]
        if producer.ending is not None:
            wanted = [producer.ending]
        for broker_id, _ in free(world, name):
            yield from ((broker_id, name, c, version) for c in wanted for version in _versions(world, producer))


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
        "The producer sends a batch to a partition that it has added, or under v2 to one where a transaction of its "
        "epoch is open (UnifiedLog.maybeStartTransactionVerification).",
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
        "change transactions version",
        _between,
        _change_version,
        "The feature transaction.version is raised or lowered, and a producer speaks the other version from its next "
        "transaction on, at the epoch that it has (TransactionManager.maybeUpdateTransactionV2Enabled).",
        of="'{0}'",
        fault=CHANGES_VERSION,
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
