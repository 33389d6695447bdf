"""What `__transaction_state` holds of an id, record by record, with the steps that no coordinator makes marked.

The log is read in pieces, and nothing is kept but the last records of the ids in question: memory does not grow with
the log. It is compacted, so that records are missing where nothing is wrong. A step is impossible only where no offset
is missing between it and the record before (`outcome.follows` says what may follow from what). And a record need not
count: an append that timed out stands in the log though its coordinator went on from the record before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import NO_LEADER, Failure, FailureCode, Unobserved
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, ClusterView, Partition
from txnscan.txnlog.decode import UnknownRecord, decode, tombstone
from txnscan.txnlog.facts import LoggedTransaction, RawRecord
from txnscan.txnlog.scan import Records, log_failure, names_in, of_ids, of_producers, pieces, start_of
from txnscan.txnlog.transitions import follows

# How many records back a step may follow from, where those between did not count.
_BACK_MAX = 4
_UNDONE = "follows from an earlier record: what stands between did not count, as an append that timed out"
_IMPOSSIBLE = "impossible: no coordinator goes there from the record before, and nothing is missing between them"
_MISSING = "does not follow from the record before; records between them are missing, as compaction leaves it"


@dataclass(frozen=True, slots=True)
class Step:
    """A record of an id, on a partition of the log. note: what is to be said of it. impossible: whether no coordinator
    writes it behind the record before.
    """

    partition: int
    record: LoggedTransaction
    note: str | None = None
    impossible: bool = False


@dataclass
class Checker:
    """Holds each record of each id against those before it, in the order of the log."""

    partition: int
    _before: dict[str, list[LoggedTransaction]] = field(default_factory=dict)

    def step(self, record: LoggedTransaction) -> Step:
        """The record with what is to be said of it."""
        before = self._before.setdefault(record.transactional_id, [])
        step = self._checked(before, record)
        before.append(record)
        del before[:-_BACK_MAX]
        return step

    def _checked(self, before: list[LoggedTransaction], record: LoggedTransaction) -> Step:
        if not before or follows(before[-1], record):
            return Step(self.partition, record)
        if record.contiguous_from > before[-1].offset:
            return Step(self.partition, record, _MISSING)
        if any(follows(earlier, record) for earlier in before[:-1]):
            return Step(self.partition, record, _UNDONE)
        return Step(self.partition, record, _IMPOSSIBLE, impossible=True)


def timeline(
    send: Send,
    partition: Partition,
    *,
    names: Collection[str] = (),
    producer_ids: Collection[int] = (),
) -> Iterator[Step | Unobserved]:
    """The records of these ids on a partition of `__transaction_state`, and of every id that ever had one of these
    producer ids, in the order of the log; or why they cannot be read. Never raises.
    """
    try:
        start = start_of(send, partition)
        wanted = set(names)
        end = None
        if producer_ids:
            end = start
            for piece in pieces(send, partition, start, None, of_producers(producer_ids)):
                wanted |= names_in(piece.batches, piece.offset, producer_ids)
                end = piece.reached
        if not wanted:
            return
        records, checker = Records.of_ids(wanted), Checker(partition.partition)
        for piece in pieces(send, partition, start, end, of_ids(wanted)):
            records.take_all(piece.batches, piece.offset, wanted)
            yield from steps(records.kept, checker)
            records.kept.clear()
    except (RequestFailed, UnknownRecord) as failed:
        k = partition.partition
        yield Unobserved("log", log_failure(k, failed), partition.leader, partition.topic, k)


def steps(records: Iterable[RawRecord], checker: Checker) -> Iterator[Step]:
    """The records decoded and checked. Raises UnknownRecord."""
    for raw in records:
        where = (raw.offset, raw.contiguous_from, raw.transactional_id)
        yield checker.step(tombstone(*where) if raw.value is None else decode(*where, raw.value))


@dataclass(frozen=True, slots=True)
class LogShare:
    """A partition of the log to read, and the ids whose coordinator it is."""

    partition: Partition
    names: tuple[str, ...]


def to_read(
    view: ClusterView, names: Collection[str], producer_ids: Collection[int]
) -> tuple[list[LogShare], list[Unobserved]]:
    """The partitions of `__transaction_state` that may hold something of these, and those that nobody leads. A producer
    id may be of any id, and so anywhere. Pure.
    """
    log = next((topic for topic in view.topics if topic.name == TRANSACTION_STATE_TOPIC), None)
    if log is None:
        code = dict(view.topic_errors).get(TRANSACTION_STATE_TOPIC)
        why = code or "it is not in the brokers' metadata"
        return [], [Unobserved("plan", Failure(f"{TRANSACTION_STATE_TOPIC}: {why}", code or FailureCode.LEFT_OUT))]
    by_partition: dict[int, list[str]] = {}
    for name in dict.fromkeys(names):
        by_partition.setdefault(coordinator_partition(name, len(log.indexes)), []).append(name)
    shares, errors = [], []
    for partition in log.partitions:
        if partition.partition not in by_partition and not producer_ids:
            continue
        if partition.leader < 0:
            errors.append(Unobserved("plan", NO_LEADER, None, *partition.key))
        else:
            shares.append(LogShare(partition, tuple(by_partition.get(partition.partition, ()))))
    return shares, errors
