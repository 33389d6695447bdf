"""Reading what was decided: the first batch of hanging transactions, and what `__transaction_state` holds of their ids.

This comes after the judging, which makes no use of it. Nothing is lost by that: who hangs is at an epoch that is over,
and no more decided. Where the id is known its one partition of the log is read; an orphan's id is looked for in all of
them. Each log is read from the leader that all brokers name before and after, at its leader epoch, from its start to
its high watermark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from txnscan.agreement import Agreement, Unagreed
from txnscan.cluster import Cluster
from txnscan.kafka.acls import UNKNOWN_PRINCIPAL, Permission, explained
from txnscan.kafka.client import Send
from txnscan.kafka.coordinator import coordinator_partition
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.fetch import Batch, fetch
from txnscan.kafka.list_offsets import Offset, list_offsets
from txnscan.model import TRANSACTION_STATE_TOPIC, Judged, Partition
from txnscan.outcome import OutcomeEvidence
from txnscan.transaction_log import LoggedTransaction, UnknownRecord, decode, producer_id, transactional_id

# A first batch is given whole however large it is; the log is read in pieces of this size.
_FIRST_BATCH_BYTES = 1
_PIECE_BYTES = 8 * 1024 * 1024


def read_outcomes(
    cluster: Cluster, hanging: Sequence[Judged], on_progress: Callable[[int, int], None]
) -> list[OutcomeEvidence]:
    """The evidence for each of these transactions, in order. What could not be read is in it."""
    if not hanging:
        return []
    topics = {TRANSACTION_STATE_TOPIC, *(judged.observation.topic for judged in hanging)}
    before = cluster.agreement(topics)
    count = len(before.indexes(TRANSACTION_STATE_TOPIC))
    wanted = {k: pids for k, pids in _wanted(hanging, count).items() if pids}
    first = cluster.in_parallel(lambda judged: _first_batch(cluster.send, before, judged, cluster.principal), hanging)
    done = 0

    def read(k: int) -> LogRead:
        nonlocal done
        found = read_log(cluster.send, before, k, wanted[k], cluster.principal)
        done += 1
        on_progress(done, len(wanted))
        return found

    logs = dict(zip(wanted, cluster.in_parallel(read, wanted), strict=True))
    after = cluster.agreement(topics)
    logs = {k: log.confirmed(before, after, k) for k, log in logs.items()}
    return [
        _evidence(judged, batch, [logs[k] for k in _logs_of(judged, count)])
        for judged, batch in zip(hanging, first, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class LogRead:
    """What one partition of the log still holds of ids that ever had a wanted producer id, or why it is not known."""

    logged: tuple[LoggedTransaction, ...] = ()
    error: str | None = None

    def confirmed(self, before: Agreement, after: Agreement, k: int) -> LogRead:
        """The same, or an error where the leader is not the same before and after."""
        try:
            same = before.partition(TRANSACTION_STATE_TOPIC, k) == after.partition(TRANSACTION_STATE_TOPIC, k)
        except Unagreed as unagreed:
            return LogRead(error=self.error or str(unagreed))
        return self if same else LogRead(error=f"{TRANSACTION_STATE_TOPIC}-{k} moved while it was read")


def _logs_of(judged: Judged, count: int) -> tuple[int, ...]:
    """The partitions of the log that can hold the transaction's id."""
    names = {view.transactional_id for view in judged.evidence.coordinators}
    return (
        tuple(sorted({coordinator_partition(name, count) for name in names}))
        if names and count
        else tuple(range(count))
    )


def _wanted(hanging: Iterable[Judged], count: int) -> Mapping[int, frozenset[int]]:
    """The producer ids to look for, by partition of the log."""
    wanted: dict[int, set[int]] = defaultdict(set)
    for judged in hanging:
        for k in _logs_of(judged, count):
            wanted[k].add(judged.observation.producer_id)
    return {k: frozenset(wanted[k]) for k in sorted(wanted)}


def _evidence(judged: Judged, first: Batch | str, logs: Sequence[LogRead]) -> OutcomeEvidence:
    o = judged.observation
    logged = [record for log in logs for record in log.logged]
    names = {record.transactional_id for record in logged if record.producer_id == o.producer_id}
    errors = [log.error for log in logs if log.error is not None]
    return OutcomeEvidence(
        observation=o,
        owner_epoch=max((view.producer_epoch for view in judged.evidence.coordinators), default=None),
        first_epoch=first.producer_epoch if isinstance(first, Batch) else None,
        first_sequence=first.base_sequence if isinstance(first, Batch) else None,
        batch_error=None if isinstance(first, Batch) else first,
        logged=tuple(record for record in logged if record.transactional_id in names),
        log_error=None if logs and not errors else (errors or [f"{TRANSACTION_STATE_TOPIC} is not there"])[0],
    )


def _first_batch(send: Send, before: Agreement, judged: Judged, principal: str) -> Batch | str:
    """The transaction's first batch, or why it is not known."""
    o = judged.observation
    try:
        fetched = fetch(send, before.partition(o.topic, o.partition), o.start_offset, _FIRST_BATCH_BYTES, records=False)
    except (RequestFailed, Unagreed) as failed:
        return explained(str(failed), Permission("Read", "Topic", o.topic), principal)
    for batch in fetched.batches[:1]:
        data = batch.is_transactional and not batch.is_control
        if data and (batch.base_offset, batch.producer_id) == (o.start_offset, o.producer_id):
            return batch
    return f"at offset {o.start_offset} there is no record of producer id {o.producer_id} any more"


def read_log(
    send: Send, before: Agreement, k: int, producer_ids: frozenset[int], principal: str = UNKNOWN_PRINCIPAL
) -> LogRead:
    """One partition of the log, from its start to its high watermark."""
    try:
        partition = before.partition(TRANSACTION_STATE_TOPIC, k)
        return LogRead(_kept(send, partition, producer_ids))
    except (RequestFailed, Unagreed, UnknownRecord) as failed:
        needed = Permission("Read", "Topic", TRANSACTION_STATE_TOPIC)
        return LogRead(error=f"{TRANSACTION_STATE_TOPIC}-{k}: {explained(str(failed), needed, principal)}")


def _kept(send: Send, partition: Partition, producer_ids: frozenset[int]) -> tuple[LoggedTransaction, ...]:
    start = list_offsets(send, partition.leader, [partition], Offset.LOG_START)[partition.key]
    if start.error is not None:
        raise RequestFailed(start.error)
    offset, keeper = start.offset, _Keeper(producer_ids)
    while True:
        fetched = fetch(send, partition, offset, _PIECE_BYTES, records=True)
        for batch in fetched.batches:
            if not batch.is_control:
                for record in batch.records or ():
                    if record[0] >= offset:
                        keeper.take(*record)
        reached = fetched.next_offset(offset)
        if reached >= fetched.high_watermark:
            return keeper.logged()
        if reached == offset:
            raise RequestFailed(f"it gave no records at offset {offset}, before its end at {fetched.high_watermark}")
        offset = reached


@dataclass
class _Keeper:
    """Keeps each id's last record; from its first one with a wanted producer id on, all, and the one before.

    So a log that is larger than memory can be read: what is kept is one value for each id.
    """

    producer_ids: frozenset[int]
    last: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    kept: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)

    def take(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        name = transactional_id(key) if key is not None else None
        if name is None or value is None:
            # Brokers skip keys of another kind. A tombstone says that the id expired, and decides nothing.
            return
        if producer_id(value) in self.producer_ids and name not in self.kept:
            self.kept[name] = [self.last[name]] if name in self.last else []
        if name in self.kept:
            self.kept[name].append((offset, value))
        else:
            self.last[name] = (offset, value)

    def logged(self) -> tuple[LoggedTransaction, ...]:
        return tuple(decode(offset, name, value) for name, values in self.kept.items() for offset, value in values)
