"""The transaction coordinator: the states of a transactional id, and the transitions between them.

    Empty ── AddPartitionsToTxn ──> Ongoing ── EndTxn ──> PrepareCommit ── every marker acknowledged ──> CompleteCommit
                                       │ └──── EndTxn ──> PrepareAbort ─── every marker acknowledged ──> CompleteAbort
                                       └ timeout, or a new instance: PrepareEpochFence, then PrepareAbort

A transition is prepared, its record is appended to `__transaction_state`, and it completes when the record is
acknowledged; only then do answers show it. Under transactions v2 each end raises the producer epoch, already in
Prepare*. A newly elected coordinator loads the log up to its end. It finishes every Prepare* and sends all its markers
again. An Ongoing transaction stays Ongoing until its timeout, although many texts claim that recovery aborts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.sim.records import (
    NOBODY,
    Commit,
    Coordinator,
    Held,
    Marker,
    Open,
    Producer,
    TransactionLogRecord,
    TransactionMetadata,
    producer_state,
)
from tests.sim.table import Subject, Transition
from tests.sim.world import NEVER_ADDED, World
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key

# `TransactionState.validPreviousStates`.
VALID_PREVIOUS_STATES = {
    "Empty": {"Empty", "CompleteCommit", "CompleteAbort"},
    "Ongoing": {"Ongoing", "Empty", "CompleteCommit", "CompleteAbort"},
    "PrepareCommit": {"Ongoing"},
    "PrepareAbort": {"Ongoing", "PrepareEpochFence"},
    "CompleteCommit": {"PrepareCommit"},
    "CompleteAbort": {"PrepareAbort"},
    "PrepareEpochFence": {"Ongoing"},
    "Dead": {"Empty", "CompleteCommit", "CompleteAbort"},
}
_PREPARED = ("PrepareCommit", "PrepareAbort")
_SETTLED = ("Empty", "CompleteCommit", "CompleteAbort")


class InvalidTransition(Exception):
    """The simulator attempted a transition that Kafka forbids: a defect of the simulator."""


def serving(world: World, transactional_id: str) -> Iterator[tuple[int, Held | None]]:
    """The brokers that would answer for an id, including zombies, each with its cached state of the id."""
    k = world.coordinator_of(transactional_id)
    for (broker_id, number), coordinator in world.coordinators.items():
        if number == k and not coordinator.loading and world.up(broker_id):
            yield broker_id, world.held.get((broker_id, transactional_id))


def free(world: World, transactional_id: str) -> Iterator[tuple[int, Held | None]]:
    """The brokers of `serving` without a pending transition of the id (otherwise the answer is
    CONCURRENT_TRANSACTIONS).
    """
    return ((b, held) for b, held in serving(world, transactional_id) if held is None or held.pending is None)


def _log_key(world: World, transactional_id: str) -> Key:
    return (TRANSACTION_STATE_TOPIC, world.coordinator_of(transactional_id))


def prepare(world: World, broker_id: int, name: str, held: Held, metadata: TransactionMetadata) -> bool:
    """Appends the transition's record. Returns False if the log takes no writes (COORDINATOR_NOT_AVAILABLE)."""
    if held.metadata.state not in VALID_PREVIOUS_STATES[metadata.state]:
        raise InvalidTransition(f"{name}: {held.metadata.state} to {metadata.state}")
    value = None if metadata.state == "Dead" else metadata
    offset = world.append(broker_id, _log_key(world, name), TransactionLogRecord(name, value, world.now_ms))
    if offset is None:
        return False
    if metadata.state == "PrepareCommit" and metadata.txn is not None and NEVER_ADDED in world.scenario.faults:
        of_data = (held.metadata.producer_id, held.metadata.producer_epoch)
        world.commits[metadata.txn] = Commit(*of_data, metadata.partitions, world.now_ms)
    world.held[broker_id, name] = held._replace(pending=metadata, pending_offset=offset)
    return True


def decide(world: World, metadata: TransactionMetadata) -> None:
    """Stores the decision in a durable record. A committed transaction stays committed, whatever is decided later."""
    if metadata.txn is not None and metadata.state in (*_PREPARED, "CompleteCommit", "CompleteAbort"):
        committed = metadata.state in ("PrepareCommit", "CompleteCommit")
        world.decided[metadata.txn] = world.decided.get(metadata.txn, False) or committed


def _ours(producer: Producer, metadata: TransactionMetadata) -> bool:
    return (producer.producer_id, producer.producer_epoch) == (metadata.producer_id, metadata.producer_epoch)


def _fenced(world: World, name: str) -> None:
    world.producers[name] = world.producers[name]._replace(fenced=True)


# --- what producers ask for (`producer.py`) ---------------------------------------------------------------------------


def begin_init(world: World, broker_id: int, name: str) -> None:
    """InitProducerId: gives a new id, or the next epoch; or first fences an Ongoing transaction."""
    held = world.held.get((broker_id, name))
    if held is None:
        # The cache has the id at once, without an epoch; the log has it later.
        held = Held(TransactionMetadata(_new_producer_id(world), NOBODY, "Empty"))
        world.held[broker_id, name] = held
        prepare(world, broker_id, name, held, held.metadata._replace(producer_epoch=0))
        return
    metadata = held.metadata
    if metadata.state == "Ongoing":
        fence(world, broker_id, name)
    elif metadata.state in _SETTLED:
        used_up = metadata.producer_epoch >= world.scenario.last_epoch
        producer_id = _new_producer_id(world) if used_up else metadata.producer_id
        epoch = 0 if used_up else metadata.producer_epoch + 1
        prepare(world, broker_id, name, held, TransactionMetadata(producer_id, epoch, "Empty"))


def _new_producer_id(world: World) -> int:
    world.next_producer_id += 1
    return world.next_producer_id - 1


def fence(world: World, broker_id: int, name: str) -> None:
    """PrepareEpochFence and the abort after it, at the next epoch: raised by one, also under transactions v2.

    Under v1 the epoch is raised before the record is acknowledged. If the append fails or times out, the transaction
    stays Ongoing at the raised epoch (`hasFailedEpochFence`). Under v2 the transaction then stays unchanged. If the
    epochs are used up under v2, the next producer id follows, as at any other end (`endTransaction` of 4.3.1).
    """
    held = world.held[broker_id, name]
    server_version = max(world.scenario.versions)
    raised = held.metadata.producer_epoch + (0 if held.failed_fence else 1)
    used_up = server_version == 2 and held.metadata.producer_epoch >= world.scenario.last_epoch
    aborted = held.metadata._replace(
        state="PrepareAbort",
        producer_epoch=raised,
        client_version=server_version,
        next_producer_id=_new_producer_id(world) if used_up else NOBODY,
    )
    if server_version == 1:
        held = held._replace(metadata=held.metadata._replace(producer_epoch=raised), failed_fence=True)
    if not prepare(world, broker_id, name, held._replace(fencing=True), aborted):
        world.held[broker_id, name] = held


def begin_add(world: World, broker_id: int, name: str, key: Key) -> None:
    """AddPartitionsToTxn."""
    producer, held = world.producers[name], world.held.get((broker_id, name))
    if held is None or not _ours(producer, held.metadata):
        _fenced(world, name)
        return
    metadata = held.metadata
    if metadata.state == "Ongoing" and key in metadata.partitions:
        world.producers[name] = producer._replace(added=producer.added | {key})
    elif metadata.state not in _PREPARED:
        before = metadata.partitions if metadata.state == "Ongoing" else frozenset()
        # The record has the client's transactions version. If each request has its own version, it is not chosen yet:
        # then use the lower version, which proves less.
        spoken = producer.version or min(world.scenario.versions)
        ongoing = metadata._replace(
            state="Ongoing", partitions=before | {key}, client_version=spoken, txn=(name, producer.txn)
        )
        prepare(world, broker_id, name, held, ongoing)


def begin_end(world: World, broker_id: int, name: str, commit: bool, version: int) -> None:
    """EndTxn, or a retry of it."""
    producer, held = world.producers[name], world.held.get((broker_id, name))
    metadata = held.metadata if held is not None else None
    if held is None or metadata is None:
        _fenced(world, name)
    elif metadata.state == "Ongoing" and _ours(producer, metadata):
        world.producers[name] = producer._replace(ending=commit)
        bumps = version == 2
        used_up = bumps and metadata.producer_epoch >= world.scenario.last_epoch
        prepared = metadata._replace(
            state="PrepareCommit" if commit else "PrepareAbort",
            producer_epoch=metadata.producer_epoch + bumps,
            client_version=version,
            next_producer_id=_new_producer_id(world) if used_up else NOBODY,
        )
        prepare(world, broker_id, name, held, prepared)
    elif metadata.txn == (name, producer.txn) and metadata.state in (
        ("PrepareCommit", "CompleteCommit") if commit else ("PrepareAbort", "CompleteAbort")
    ):
        _ended(world, name, metadata, version)
    elif metadata.state not in _PREPARED:
        _fenced(world, name)


def _ended(world: World, name: str, metadata: TransactionMetadata, version: int) -> None:
    """The producer learns that its transaction is decided. Its next transaction begins, under v2 at the next epoch.

    Under v1 the answer has no epoch: a producer that was fenced in between learns it from the answer to its next
    request.
    """
    producer = world.producers[name]
    known = (producer.producer_id, producer.producer_epoch)
    if version == 2:
        used_up = metadata.next_producer_id != NOBODY
        known = (metadata.next_producer_id, 0) if used_up else (metadata.producer_id, metadata.producer_epoch)
    world.producers[name] = Producer(*known, txn=producer.txn + 1, instance=producer.instance, version=producer.version)


# --- the coordinator's own steps --------------------------------------------------------------------------------------


def _acknowledged(world: World) -> Iterable[Subject]:
    for (broker_id, name), held in world.held.items():
        if held.pending is None or not world.up(broker_id):
            continue
        coordinator = world.coordinators.get((broker_id, world.coordinator_of(name)))
        key = _log_key(world, name)
        if coordinator and world.acknowledged(broker_id, key, coordinator.epoch, held.pending_offset):
            yield (broker_id, name)


def _complete_transition(world: World, broker_id: int, name: str) -> None:
    held = world.held[broker_id, name]
    metadata, producer = held.pending, world.producers[name]
    if metadata is None:
        return
    if metadata.state == "Dead":
        del world.held[broker_id, name]
        return
    world.held[broker_id, name] = Held(metadata)
    decide(world, metadata)
    if metadata.state == "Empty":
        known = (metadata.producer_id, metadata.producer_epoch)
        begun = producer.txn + 1
        world.producers[name] = Producer(*known, txn=begun, instance=begun, version=producer.version)
    elif metadata.state == "Ongoing" and metadata.txn == (name, producer.txn):
        world.producers[name] = producer._replace(added=metadata.partitions)
    elif metadata.state in _PREPARED and metadata.txn is not None:
        asked = producer.ending is (metadata.state == "PrepareCommit") and not held.fencing
        if asked and metadata.txn == (name, producer.txn):
            _ended(world, name, metadata, metadata.client_version)


def _unacknowledged(world: World) -> Iterable[Subject]:
    possible = set(_acknowledged(world))
    for (broker_id, name), held in world.held.items():
        if held.pending is not None and (broker_id, name) not in possible and _serves(world, broker_id, name):
            yield (broker_id, name)


def _append_timeout(world: World, broker_id: int, name: str) -> None:
    held = world.held[broker_id, name]
    unanswered = held.unanswered
    if held.pending is not None and held.pending.state == "Ongoing":
        unanswered += ((held.pending_offset, held.pending, held.metadata),)
    world.held[broker_id, name] = held._replace(
        pending=None, pending_offset=NOBODY, fencing=False, unanswered=unanswered
    )


def _timeouts(world: World) -> Iterable[Subject]:
    for (broker_id, name), held in world.held.items():
        if held.metadata.state == "Ongoing" and held.pending is None and _serves(world, broker_id, name):
            yield (broker_id, name)


def _serves(world: World, broker_id: int, name: str) -> bool:
    return any(b == broker_id for b, _ in serving(world, name))


def _owed(world: World) -> Iterable[Subject]:
    for (broker_id, name), held in world.held.items():
        if held.metadata.state in _PREPARED and held.sending and held.pending is None:
            for key in sorted(held.metadata.partitions):
                if (broker_id, name, key) not in world.acks and _serves(world, broker_id, name):
                    yield (broker_id, name, key)


def _destination(world: World, broker_id: int, key: Key) -> int:
    """The partition's leader in this coordinator's metadata cache."""
    return world.leadership(world.brokers[broker_id].metadata, key).leader


def _sendable(world: World) -> Iterable[Subject]:
    for broker_id, name, key in _owed(world):
        leader = _destination(world, broker_id, key)
        if leader != NOBODY and world.up(leader) and world.writable(leader, key) is not None:
            yield (broker_id, name, key)


def _write_marker(world: World, broker_id: int, name: str, key: Key) -> None:
    held = world.held[broker_id, name]
    metadata, leader = held.metadata, _destination(world, broker_id, key)
    coordinator = world.coordinators[broker_id, world.coordinator_of(name)]
    known = producer_state(world.logs[key, leader]).get(metadata.producer_id)
    if known is not None and (coordinator.epoch < known.coordinator_epoch or _too_low(world, metadata, known)):
        world.held[broker_id, name] = held._replace(sending=False)
        return
    committed = metadata.state == "PrepareCommit"
    marker = Marker(metadata.producer_id, metadata.producer_epoch, coordinator.epoch, committed)
    offset = world.append(leader, key, marker)
    believed = world.writable(leader, key)
    if offset is not None and believed is not None:
        world.acks[broker_id, name, key] = (leader, believed.epoch, offset)


def _too_low(world: World, metadata: TransactionMetadata, known: Open) -> bool:
    """Whether a partition refuses a marker because of its producer epoch. Under v2 an open transaction has a lower
    epoch than its marker, so one at the same epoch is a later one (`ProducerAppendInfo.checkProducerEpoch` of 4.3).
    """
    epoch = metadata.producer_epoch
    later = metadata.client_version == 2 and known.start_offset >= 0 and epoch <= world.scenario.last_epoch
    return epoch < known.producer_epoch or (later and epoch == known.producer_epoch)


def _skippable(world: World) -> Iterable[Subject]:
    if world.scenario.skips_leaderless:
        return (owed for owed in _owed(world) if _destination(world, owed[0], owed[2]) == NOBODY)
    return ()


def _drop_partition(world: World, broker_id: int, name: str, key: Key) -> None:
    held = world.held[broker_id, name]
    kept = held.metadata._replace(partitions=held.metadata.partitions - {key})
    world.held[broker_id, name] = held._replace(metadata=kept)


def _marker_acks(world: World) -> Iterable[Subject]:
    for (broker_id, name, key), (leader, epoch, offset) in world.acks.items():
        if world.up(leader) and world.acknowledged(leader, key, epoch, offset) and _serves(world, broker_id, name):
            yield (broker_id, name, key)


def _marker_acknowledged(world: World, broker_id: int, name: str, key: Key) -> None:
    del world.acks[broker_id, name, key]
    _drop_partition(world, broker_id, name, key)


def _lost_leaders(world: World) -> Iterable[Subject]:
    for (broker_id, name, key), (leader, epoch, _) in world.acks.items():
        believed = world.leads(leader, key)
        if not world.up(leader) or believed is None or believed.epoch != epoch:
            yield (broker_id, name, key)


def _retry_marker(world: World, broker_id: int, name: str, key: Key) -> None:
    del world.acks[broker_id, name, key]


def _completable(world: World) -> Iterable[Subject]:
    for (broker_id, name), held in world.held.items():
        metadata = held.metadata
        done = metadata.state in _PREPARED and not metadata.partitions and held.pending is None
        if done and _serves(world, broker_id, name):
            yield (broker_id, name)


def _write_completion(world: World, broker_id: int, name: str) -> None:
    held = world.held[broker_id, name]
    completed = held.metadata._replace(state=held.metadata.state.replace("Prepare", "Complete"))
    if completed.next_producer_id != NOBODY:
        completed = completed._replace(
            producer_id=completed.next_producer_id, producer_epoch=0, next_producer_id=NOBODY
        )
    prepare(world, broker_id, name, held, completed)


def _expirable(world: World) -> Iterable[Subject]:
    for (broker_id, name), held in world.held.items():
        settled = held.metadata.state in _SETTLED and held.metadata.producer_epoch != NOBODY
        if settled and held.pending is None and _serves(world, broker_id, name):
            yield (broker_id, name)


def _expire(world: World, broker_id: int, name: str) -> None:
    held = world.held[broker_id, name]
    prepare(world, broker_id, name, held, held.metadata._replace(state="Dead", partitions=frozenset()))


def _loading(world: World) -> Iterable[Subject]:
    return (at for at, coordinator in world.coordinators.items() if coordinator.loading and world.up(at[0]))


def _load(world: World, broker_id: int, k: int) -> None:
    _load_up_to(world, broker_id, k, len(world.logs[(TRANSACTION_STATE_TOPIC, k), broker_id]))


def _partly_loading(world: World) -> Iterable[Subject]:
    for broker_id, k in _loading(world):
        for offset, (_, record) in enumerate(world.logs[(TRANSACTION_STATE_TOPIC, k), broker_id]):
            if record is not None:
                yield (broker_id, k, offset)


def _load_up_to(world: World, broker_id: int, k: int, end: int) -> None:
    """The coordinator loads the records below this offset."""
    log = world.logs[(TRANSACTION_STATE_TOPIC, k), broker_id]
    found: dict[str, TransactionMetadata | None] = {}
    for _, record in log[:end]:
        if isinstance(record, TransactionLogRecord):
            found[record.transactional_id] = record.metadata
    for name, metadata in found.items():
        if metadata is not None:
            world.held[broker_id, name] = Held(metadata)
    epoch = world.coordinators[broker_id, k].epoch
    world.coordinators[broker_id, k] = Coordinator(epoch, loading=False, whole=end == len(log))


def forget(world: World, broker_id: int, k: int) -> None:
    """Drops a broker's cache of a `__transaction_state` partition, and the markers that it was sending."""
    world.coordinators.pop((broker_id, k), None)
    for name in world.producers:
        if world.coordinator_of(name) == k:
            world.held.pop((broker_id, name), None)
    for sent in [sent for sent in world.acks if sent[0] == broker_id and world.coordinator_of(sent[1]) == k]:
        del world.acks[sent]


COORDINATOR = (
    Transition(
        "complete transition",
        _acknowledged,
        _complete_transition,
        "The record is acknowledged by the in-sync replicas; now the state changes, and the client is answered. "
        "PrepareCommit and PrepareAbort decide the transaction (TransactionMetadata.completeTransitionTo).",
        of="'{1}' at broker {0}",
    ),
    Transition(
        "append timeout",
        _unacknowledged,
        _append_timeout,
        "The record is in the log, but not acknowledged in time: the client gets COORDINATOR_NOT_AVAILABLE, and the "
        "coordinator forgets the transition and stays in the state before. The record stays, is replicated later, and "
        "counts for whoever loads the log. A completion is appended once more (TransactionStateManager."
        "appendTransactionToLog, TransactionMarkerChannelManager.tryAppendToLog).",
        of="'{1}' at broker {0}",
        fault="append timeout",
    ),
    Transition(
        "write marker",
        _sendable,
        _write_marker,
        "WriteTxnMarkers to the partition's leader as this broker's metadata has it, again and again; a partition that "
        "knows a higher producer epoch or coordinator epoch refuses, or under v2 one with an open transaction at the "
        "marker's epoch, and then sending stops "
        "(TransactionMarkerChannelManager, ProducerAppendInfo.checkProducerEpoch).",
        of="'{1}' of broker {0} to {2}",
    ),
    Transition(
        "marker acknowledged",
        _marker_acks,
        _marker_acknowledged,
        "The marker is below the high watermark: the partition leaves the transaction "
        "(TransactionMarkerRequestCompletionHandler).",
        of="'{1}' of broker {0} by {2}",
    ),
    Transition(
        "marker unanswered",
        _lost_leaders,
        _retry_marker,
        "The leader is gone or deposed before it answered: the marker is sent again.",
        of="'{1}' of broker {0} by {2}",
    ),
    Transition(
        "skip marker",
        _skippable,
        _drop_partition,
        "A partition without a leader is taken for deleted, and its marker is never sent "
        "(TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue since 4.3, KAFKA-20734).",
        of="'{1}' of broker {0} to {2}",
    ),
    Transition(
        "write completion",
        _completable,
        _write_completion,
        "No partition is owed a marker any more: CompleteCommit or CompleteAbort is appended; where the epochs are "
        "used up it carries the next producer id (TransactionMetadata.prepareComplete).",
        of="'{1}' at broker {0}",
    ),
    Transition(
        "load",
        _loading,
        _load,
        "The new coordinator reads its log to the end. Prepare* is finished, Ongoing stays Ongoing "
        "(TransactionStateManager.loadTransactionsForTxnTopicPartition).",
        of="__transaction_state-{1} at broker {0}",
    ),
    Transition(
        "partial load",
        _partly_loading,
        _load_up_to,
        "Reading the log fails half-way: the error is logged, and the new coordinator takes what it has read for all "
        "there is. It answers probes and listings like one that has everything, and writes on what it has "
        "(TransactionStateManager.loadTransactionMetadata, which catches Throwable).",
        of="__transaction_state-{1} at broker {0}, up to offset {2}",
        fault="partial load",
    ),
    Transition(
        "timeout",
        _timeouts,
        fence,
        "An Ongoing transaction is past its timeout: its epoch is raised, so that its producer is fenced, and it is "
        "aborted (TransactionCoordinator.abortTimedOutTransactions).",
        of="'{1}' at broker {0}",
    ),
    Transition(
        "expire id",
        _expirable,
        _expire,
        "An id at rest for transactional.id.expiration.ms gets a tombstone and is forgotten "
        "(TransactionStateManager.removeExpiredTransactionalIds).",
        of="'{1}' at broker {0}",
    ),
)
