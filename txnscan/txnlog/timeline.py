"""The records of an id in `__transaction_state`, in order, with impossible transitions marked.

The log is read in pieces, and only the last records of the wanted ids stay in memory. So memory does not grow with the
log. Compaction removes records, so a missing record alone is no error. A transition is impossible only if no offset is
missing between the record and the record before it (`transitions.follows` lists the possible transitions). A record
need not count: if an append times out, its record may stand in the log although the coordinator continues from the
state before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure, FailureCode, Unobserved, no_leader
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.security.acls import needing
from txnscan.kafka.security.needs import DESCRIBE_TOPICS
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, ClusterView, Partition
from txnscan.txnlog.decode import UnknownRecord, decode, tombstone
from txnscan.txnlog.facts import LoggedTransaction, RawRecord
from txnscan.txnlog.scan import Records, log_failure, names_in, of_ids, of_producers, pieces, start_of
from txnscan.txnlog.transitions import follows

# How many records back a record may follow from, if the records between did not count.
_BACK_MAX = 4
_UNDONE = "follows from an earlier record: what stands between did not count, as an append that timed out"
_MISSING = "does not follow from the record before; records between them are missing, as compaction leaves it"


@dataclass(frozen=True, slots=True)
class Step:
    """A record of an id, on a partition of the log. note: a remark for the user, if any. impossible_after: the record
    before it, if no coordinator writes this record after that one.
    """

    partition: int
    record: LoggedTransaction
    note: str | None = None
    impossible_after: LoggedTransaction | None = None


@dataclass
class Checker:
    """Compares each record of each id with the records before it, in the order of the log."""

    partition: int
    _before: dict[str, tuple[LoggedTransaction, ...]] = field(default_factory=dict)

    def step(self, record: LoggedTransaction) -> Step:
        """The record with its remark."""
        before = self._before.get(record.transactional_id, ())
        self._before[record.transactional_id] = (*before[1 - _BACK_MAX :], record)
        if not before or follows(before[-1], record):
            return Step(self.partition, record)
        if record.contiguous_from > before[-1].offset:
            return Step(self.partition, record, _MISSING)
        if any(follows(earlier, record) for earlier in before[:-1]):
            return Step(self.partition, record, _UNDONE)
        after = f"{before[-1].state} at epoch {before[-1].producer_epoch}"
        note = f"impossible: no coordinator writes this after {after}, and nothing is missing between them"
        return Step(self.partition, record, note, before[-1])


def timeline(
    send: Send,
    partition: Partition,
    *,
    names: Collection[str] = (),
    producer_ids: Collection[int] = (),
) -> Iterator[Step | Unobserved]:
    """The records of these ids on a partition of `__transaction_state`, and of all ids that ever had one of these
    producer ids, in the order of the log; or the failure of the read. Never raises.
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
            yield from steps(records.taken(), checker)
    except (RequestFailed, UnknownRecord) as failed:
        k = partition.partition
        yield Unobserved("log", log_failure(k, failed), partition.leader, partition.topic, k)


def steps(records: Iterable[RawRecord], checker: Checker) -> Iterator[Step]:
    """The records, decoded and checked. Raises UnknownRecord."""
    for raw in records:
        where = (raw.offset, raw.contiguous_from, raw.transactional_id)
        yield checker.step(tombstone(*where) if raw.value is None else decode(*where, raw.value))


@dataclass(frozen=True, slots=True)
class LogShare:
    """A partition of the log to read, and the wanted ids that belong to it."""

    partition: Partition
    names: tuple[str, ...]


def to_read(
    view: ClusterView, names: Collection[str], producer_ids: Collection[int]
) -> tuple[list[LogShare], list[Unobserved]]:
    """The partitions of `__transaction_state` that may have records of these ids or producer ids, and those without a
    leader. A producer id may belong to any id, so its records may be on any partition. Pure.
    """
    log = next((topic for topic in view.topics if topic.name == TRANSACTION_STATE_TOPIC), None)
    if log is None:
        code = dict(view.topic_errors).get(TRANSACTION_STATE_TOPIC)
        why = code or "it is not in the brokers' metadata"
        failure = Failure(f"{TRANSACTION_STATE_TOPIC}: {why}", code or FailureCode.LEFT_OUT)
        return [], [Unobserved("plan", needing(failure, DESCRIBE_TOPICS.on(TRANSACTION_STATE_TOPIC)))]
    by_partition: dict[int, list[str]] = {}
    for name in dict.fromkeys(names):
        by_partition.setdefault(coordinator_partition(name, len(log.indexes)), []).append(name)
    shares, errors = [], []
    for partition in log.partitions:
        if partition.partition not in by_partition and not producer_ids:
            continue
        if partition.leader < 0:
            errors.append(Unobserved("plan", no_leader(partition.leader), None, *partition.key))
        else:
            shares.append(LogShare(partition, tuple(by_partition.get(partition.partition, ()))))
    return shares, errors
