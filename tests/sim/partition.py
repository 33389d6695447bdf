"""The replicas of a partition: append, follow, truncate. Each transition cites the behaviour of Kafka that it
models.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.sim.records import (
    Data,
    Log,
    Marker,
    Open,
    Produce,
    TransactionLogRecord,
    Verification,
    common_prefix,
    forgetting,
    producer_state,
    remembered,
    superseded,
    without,
    without_beginning,
)
from tests.sim.table import Subject, Transition
from tests.sim.world import IDLE_PRODUCERS, World
from txnscan.kafka.topology import Key


def _fetches(world: World) -> Iterable[Subject]:
    running = {b: broker.replicas.leaderships for b, broker in world.brokers.items() if broker.run == "up"}
    for number, (key, replicas) in enumerate(world.scenario.partitions):
        for follower in replicas:
            if follower not in running:
                continue
            followed = running[follower][number]
            leader = followed.leader
            if leader == follower or leader not in running:
                continue
            believed = running[leader][number]
            if believed.leader != leader or believed.epoch != followed.epoch:
                continue
            # A fetch that changes neither replica is omitted.
            if (
                not _alike(world.logs[key, follower], world.logs[key, leader])
                or world.log_starts[key, follower] < world.log_starts[key, leader]
                or world.would_advance(leader, key)
            ):
                yield (key, follower)


def _alike(one: Log, two: Log) -> bool:
    """Whether two replicas have the same offsets. Records that either replica has cleaned do not count."""
    return one == two or len(one) == len(two) == common_prefix(one, two)


def _fetch(world: World, key: Key, follower: int) -> None:
    leader = world.leadership(world.brokers[follower].replicas, key).leader
    # The answer has the high watermark from before this fetch. Only the fetch shows the leader the follower's position.
    mark = world.high_watermarks[key, leader]
    ours, theirs = world.logs[key, follower], world.logs[key, leader]
    # Below the end of its own log, the follower keeps its records: each replica has its own cleaner. Above it, records
    # that the leader has cleaned cannot be copied.
    alike, start = common_prefix(ours, theirs), world.log_starts[key, leader]
    # A follower that ends below the leader's start begins again there, including its producer state.
    kept = ours[:alike] if alike >= start else without_beginning(theirs[:start], start)
    world.logs[key, follower] = kept + remembered(theirs)[len(kept) :]
    world.log_starts[key, follower] = max(start, min(world.log_starts[key, follower], alike))
    world.advance(leader, key)
    world.high_watermarks[key, follower] = min(mark, len(world.logs[key, follower]))


def _deliveries(world: World) -> Iterable[Subject]:
    return ((n,) for n, produce in enumerate(world.in_flight) if _leader(world, produce) is not None)


def _further_deliveries(world: World) -> Iterable[Subject]:
    for number, produce in enumerate(world.in_flight):
        for b in world.places[produce.partition]:
            zombie = world.up(b) and b != _leader(world, produce) and world.leads(b, produce.partition) is not None
            if zombie and not any(
                _is_of(record, produce) for _, record in remembered(world.logs[produce.partition, b])
            ):
                yield (number, b)


def _is_of(record: object, produce: Produce) -> bool:
    return isinstance(record, Data) and record.txn == produce.data.txn


def _deliver_elsewhere(world: World, number: int, broker_id: int) -> None:
    _take(world, broker_id, _numbered(world, world.in_flight[number]))


def _numbered(world: World, produce: Produce) -> Produce:
    """The batch with the number that its client gives it, which counts from 0 for each instance, at each epoch.

    A client gives it when it sends the batch; here it gets it when it arrives, so that a lost request leaves no gap.
    """
    data = produce.data
    return produce._replace(data=data._replace(sequence=world.sent.get(_counted(produce), 0)))


def _counted(produce: Produce) -> tuple[Key, int, int, int]:
    data = produce.data
    return (produce.partition, data.producer_id, data.producer_epoch, data.instance)


def _take(world: World, leader: int, produce: Produce) -> bool:
    """Whether the leader acknowledges the batch. It does so without appending it if it takes it for a duplicate."""
    key, data = produce.partition, produce.data
    known = producer_state(world.logs[key, leader]).get(data.producer_id)
    if _is_open(known, data):
        begun = None  # an open transaction at the same epoch is not verified again
    elif produce.version == 2 or world.scenario.verify:
        if not _verified(world, produce):
            return False
        begun = _begun_verification(world, leader, produce)
    else:
        begun = None
    if _is_duplicate(known, data):
        if begun is not None:
            world.verifications[key, leader, data.producer_id] = begun
        return True
    if begun is not None and data.sequence > begun.sequence:
        return False  # OUT_OF_ORDER_SEQUENCE_NUMBER
    return _accepts(known, produce) and world.append(leader, key, data) is not None


def _leader(world: World, produce: Produce) -> int | None:
    """A broker that believes that it leads the partition. A zombie believes it too, and clients may still ask it."""
    replicas = world.places[produce.partition]
    return next((b for b in replicas if world.up(b) and world.leads(b, produce.partition) is not None), None)


def _deliver(world: World, number: int) -> None:
    produce = world.in_flight[number]
    world.in_flight = world.in_flight[:number] + world.in_flight[number + 1 :]
    leader = _leader(world, produce)
    numbered = _numbered(world, produce)
    if leader is not None and _take(world, leader, numbered):
        world.sent[_counted(produce)] = numbered.data.sequence + 1


def _is_open(known: Open | None, data: Data) -> bool:
    """Whether a transaction of the batch's epoch is open."""
    return known is not None and known.start_offset >= 0 and known.producer_epoch == data.producer_epoch


def _begun_verification(world: World, leader: int, produce: Produce) -> Verification:
    """The verification of the batch: the former one, if the replica has written nothing of the producer since."""
    key, data = produce.partition, produce.data
    log = world.logs[key, leader]
    before = world.verifications.get((key, leader, data.producer_id))
    written = before is not None and any(
        isinstance(record, Data | Marker) and record.producer_id == data.producer_id for _, record in log[before.end :]
    )
    if before is None or written or before.producer_epoch < data.producer_epoch:
        return Verification(data.producer_epoch, data.sequence, len(log))
    return before._replace(sequence=min(before.sequence, data.sequence))


def _is_duplicate(known: Open | None, data: Data) -> bool:
    """Whether the replica still knows a batch of that epoch and number (`ProducerStateEntry.findDuplicateBatch`). A new
    instance may have the epoch of an earlier one if the coordinator lost it; its numbers begin again.

    A broker that starts knows only the last batch from its snapshot; here it still knows them all.
    """
    return known is not None and known.producer_epoch == data.producer_epoch and data.sequence in known.sequences


def _accepts(known: Open | None, produce: Produce) -> bool:
    """Whether the replica appends a batch that is verified and no duplicate. It expects number 0 from a higher epoch,
    and after a marker whose data it lost. From a producer that it does not know it takes any number under v1, and 0
    under v2 (`ProducerAppendInfo.checkProducerEpoch`, `checkSequence`).
    """
    data = produce.data
    if known is None:
        return produce.version == 1 or data.sequence == 0
    if data.producer_epoch != known.producer_epoch:
        return data.producer_epoch > known.producer_epoch and data.sequence == 0
    # The client gave the numbers in the order of its sends.
    overtaken = data.instance == known.instance and data.sent_ms < known.last_ms
    return not overtaken and data.sequence == known.last_sequence + 1


def _verified(world: World, produce: Produce) -> bool:
    """Whether some coordinator that believes that it serves the id has the partition in an ongoing transaction."""
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


def _cleanable_end(world: World, key: Key, broker_id: int) -> int:
    """The offset up to which this replica may be cleaned: its high watermark, but never the active segment, which has
    at least the last record (`LogCleanerManager.cleanableOffsets`).
    """
    return min(world.high_watermarks[key, broker_id], len(world.logs[key, broker_id]) - 1)


def _compacted(world: World) -> Iterable[tuple[Key, int, Log, int]]:
    """The running replicas of `__transaction_state`, with their logs and the offsets up to which they may be
    cleaned.
    """
    for key, replicas in world.scenario.partitions[len(world.scenario.topics) :]:
        for broker_id in replicas:
            if world.up(broker_id):
                yield key, broker_id, world.logs[key, broker_id], _cleanable_end(world, key, broker_id)


def _cleanable(world: World) -> Iterable[Subject]:
    for key, broker_id, log, end in _compacted(world):
        # Only the ends directly after a superseding record make a difference.
        last: set[str] = set()
        for offset, (_, record) in enumerate(log[: max(end, 0)]):
            if isinstance(record, TransactionLogRecord):
                if record.transactional_id in last:
                    yield (key, broker_id, offset + 1)
                last.add(record.transactional_id)


def _clean(world: World, key: Key, broker_id: int, reached: int) -> None:
    log = world.logs[key, broker_id]
    world.logs[key, broker_id] = without(log, superseded(log, reached))


def _droppable(world: World) -> Iterable[Subject]:
    for key, broker_id, log, end in _compacted(world):
        seen: set[str] = set()
        for offset, (_, record) in enumerate(log[: max(end, 0)]):
            if isinstance(record, TransactionLogRecord):
                if record.metadata is None and record.transactional_id not in seen:
                    yield (key, broker_id, offset)
                seen.add(record.transactional_id)


def _drop_tombstone(world: World, key: Key, broker_id: int, offset: int) -> None:
    world.logs[key, broker_id] = without(world.logs[key, broker_id], frozenset({offset}))


def _deletable(world: World) -> Iterable[Subject]:
    for key, replicas in world.scenario.topics:
        for b in replicas:
            if world.up(b):
                reach = range(world.log_starts[key, b] + 1, world.high_watermarks[key, b] + 1)
                yield from ((key, b, start) for start in reach)


def _delete_records(world: World, key: Key, broker_id: int, start: int) -> None:
    world.log_starts[key, broker_id] = start


def _rebuildable(world: World) -> Iterable[Subject]:
    for key, replicas in world.scenario.topics:
        for b in replicas:
            log, start = world.logs[key, b], world.log_starts[key, b]
            if world.brokers[b].run == "down" and without_beginning(log, start) != log:
                yield (key, b)


def _rebuild(world: World, key: Key, broker_id: int) -> None:
    world.logs[key, broker_id] = without_beginning(world.logs[key, broker_id], world.log_starts[key, broker_id])


def _movable(world: World) -> Iterable[Subject]:
    for key, replicas in world.scenario.topics:
        for b in replicas:
            log, start = world.logs[key, b], world.log_starts[key, b]
            if world.up(b) and without_beginning(log, start) != log:
                yield (key, b)


def _forgettable(world: World) -> Iterable[Subject]:
    for key, replicas in world.scenario.topics:
        for b in replicas:
            known = producer_state(world.logs[key, b]) if world.up(b) else {}
            yield from ((key, b, producer_id) for producer_id, shown in known.items() if shown.start_offset < 0)


def _forget_producer(world: World, key: Key, broker_id: int, producer_id: int) -> None:
    world.logs[key, broker_id] = forgetting(world.logs[key, broker_id], producer_id)


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
        "epoch; the leader's high watermark follows its in-sync replicas, the follower's lags one fetch behind. What "
        "the leader has cleaned is a hole in the copy, and what the follower had before stays as it is. A follower "
        "that ends below the start of the leader's log begins anew there, and builds its producers' state from what it "
        "copies (ReplicaFetcherThread, Partition.maybeIncrementLeaderHW, LocalLog.truncateFullyAndStartAt).",
        of="{0} by broker {1}",
    ),
    Transition(
        "append data",
        _deliveries,
        _deliver,
        "A Produce request arrives, in time or long after its transaction ended. A lower epoch than the partition's is "
        "refused, and so is a batch that is not the next of its epoch, unless its client speaks "
        "transactions v1 and the partition does not know the producer; the first batch of a transaction is verified "
        "with the coordinator where verification is on, or the client speaks transactions v2; an open transaction at "
        "the same epoch is not verified again. A batch with the epoch and number of one of the last five is a "
        "duplicate: it is acknowledged, and not appended "
        "(UnifiedLog.analyzeAndValidateProducerState, ProducerAppendInfo.checkSequence, AddPartitionsToTxnManager, "
        "KIP-890).",
        of="{0}",
    ),
    Transition(
        "append data elsewhere",
        _further_deliveries,
        _deliver_elsewhere,
        "A second broker believes that it leads the partition, and gets the batch, too: a client whose metadata is old "
        "waits there in vain for an acknowledgement, and sends the batch to the other leader as well "
        "(Partition.appendRecordsToLeader, Sender.completeBatch).",
        of="{0} at broker {1}",
        fault="two leaders",
    ),
    Transition(
        "lose a request",
        _losses,
        _lose,
        "A Produce request never arrives, or is refused.",
        of="{0}",
        fault="lost request",
    ),
    Transition(
        "delete records",
        _deletable,
        _delete_records,
        "Retention on a replica, or DeleteRecords on the leader, moves the start of the log, up to the high watermark "
        "and past the first record of an open transaction, too. Its producer's entry stays, start offset included; "
        "the last stable offset is the log's start then (UnifiedLog.maybeIncrementLogStartOffset, "
        "ProducerStateManager.removeUnreplicatedTransactions).",
        of="{0} on broker {1}, below offset {2}",
        fault="deleted records",
    ),
    Transition(
        "rebuild producers' state",
        _rebuildable,
        _rebuild,
        "A broker that was killed finds no snapshot of the producers' state, which goes with the segments that are "
        "deleted, and builds it from the segments that are left: what was open before begins there now, and what has "
        "nothing left is not open any more. It reads its last segment from the beginning, also below the start of the "
        "log, so that this needs a start between two segments (UnifiedLog.rebuildProducerState, LogSegment.recover).",
        of="{0} on broker {1}",
        fault="lost snapshots",
    ),
    Transition(
        "move to another disk",
        _movable,
        _rebuild,
        "A replica moves to another log directory of its broker: a copy from the start of its log replaces it, with "
        "the producers' state of what was copied. Leader and leader epoch stay (AlterReplicaLogDirs, "
        "ReplicaAlterLogDirsThread, LogManager.replaceCurrentWithFutureLog).",
        of="{0} on broker {1}",
        fault="disk move",
    ),
    Transition(
        "expire producer",
        _forgettable,
        _forget_producer,
        "A replica forgets a producer without an open transaction that was idle for producer.id.expiration.ms, each "
        "replica by itself: its epoch, its markers and the coordinator epoch of these. Then a late batch of any epoch "
        "is taken, and the transaction that it opens has the coordinator epoch -1 "
        "(ProducerStateManager.removeExpiredProducers).",
        of="{2} on broker {1}, {0}",
        fault=IDLE_PRODUCERS,
    ),
    Transition(
        "clean log",
        _cleanable,
        _clean,
        "A replica of the transaction log is compacted, each by its own broker: from the log's start to some offset "
        "below its high watermark and its active segment, every record with a later one of the same id there is "
        "dropped; offsets and leader epochs stay (LogCleanerManager.cleanableOffsets, Cleaner.shouldRetainRecord).",
        of="{0} on broker {1}, up to offset {2}",
        fault="compaction",
    ),
    Transition(
        "drop tombstone",
        _droppable,
        _drop_tombstone,
        "The tombstone of an expired id was cleaned before, so that no earlier record of the id is left in this "
        "replica, and delete.retention.ms have passed: it is dropped as well. A replica that was away for so long "
        "never gets it, and keeps what it has of the id (Cleaner.shouldRetainRecord, deleteHorizonMs).",
        of="{0} on broker {1}, at offset {2}",
        fault="tombstones dropped",
    ),
)
