"""One partition of `__transaction_state`, from its batches: the last state of each id, and impossible steps. Pure.

A broker that loads this log skips unknown records. Here they are counted, because an unknown record may hide an id.
After an invalid record, the rest of the partition is unknown: an id may have changed there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from txnscan.kafka.answers import IN_TRANSACTION, State
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.record_batch import Batch
from txnscan.kafka.protocol.records import BatchRoom, decoded
from txnscan.offline.wholeness import Hole
from txnscan.txnlog.decode import UnknownRecord, decode, tombstone, transactional_id
from txnscan.txnlog.facts import LoggedTransaction, RawRecord
from txnscan.txnlog.scan import Records
from txnscan.txnlog.timeline import Checker, Step

# The maximum number of records in `steps`, for all ids together.
STEPS_MAX = 200_000
_VERSION_BYTES, _VERSION_MAX = 2, 1


@dataclass(slots=True)
class StateLog:
    """The content of the log.

    last: the last record of each id, tombstones included. steps: all records of the requested ids. impossible: the
    records of all ids that no coordinator writes after the record before them. unknown: the number of records of
    unknown kinds and versions, by kind. error: why the log is not known up to its end, if so. newest_ms: the newest
    time that its coordinator wrote. holes: offsets that are not in the files. leader_epoch, high_watermark: of the
    leader's copy, -1 if they are not known. epochs_rise: see `Copies`. raw: see `Records`.
    """

    partition: int
    error: str | None = None
    records: int = 0
    newest_ms: int = -1
    last: dict[str, LoggedTransaction] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    impossible: list[Step] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    holes: Sequence[Hole] = ()
    leader_epoch: int = -1
    high_watermark: int = -1
    epochs_rise: bool = False
    raw: tuple[RawRecord, ...] = ()

    @property
    def doubt(self) -> str | None:
        """Why the log may have an id that is missing here, if it may."""
        if self.error is not None:
            return self.error
        if self.unknown:
            what, count = next(iter(self.unknown.items()))
            return f"{count} of its records are not known to this version ({what})"
        return None

    @property
    def ids(self) -> dict[str, LoggedTransaction]:
        """The ids that have not expired."""
        return {name: last for name, last in self.last.items() if last.state is not State.DEAD}

    def is_acknowledged(self, record: RawRecord) -> bool:
        """Whether all in-sync replicas had the record while its own leader still led."""
        return record.leader_epoch == self.leader_epoch and record.offset < self.high_watermark

    def misplaced(self, count: int) -> list[str]:
        """The ids that belong to another partition of the log, if it has `count` partitions."""
        return sorted(name for name in self.ids if coordinator_partition(name, count) != self.partition)


def read_state_log(
    partition: int,
    batches: Iterable[bytes],
    names: Collection[str] = (),
    producer_ids: Collection[int] = (),
    holes: Sequence[Hole] = (),
) -> StateLog:
    """Reads a partition of the log. names: ids whose records are all kept in `steps`. producer_ids: `raw` keeps the
    records that their outcomes may depend on. holes: see StateLog.
    """
    log = StateLog(partition, holes=holes)
    kept, checker = Records(frozenset(producer_ids), of_disk=True), Checker(partition)
    expected, contiguous_from = -1, -1
    room = BatchRoom.of_file()
    for data in batches:
        try:
            found = decoded(data, records=True, room=room.for_next(len(data)))
            kept.take_all(map(_known, found), 0, None)
            for batch in found:
                expected, contiguous_from = _take(log, checker, batch, expected, contiguous_from, names)
        except (RequestFailed, UnknownRecord) as failed:
            log.error = str(failed)
            break
    log.raw = tuple(kept.kept)
    return log


def _known(batch: Batch) -> Batch:
    """The batch without records of unknown versions. Their offsets then count as missing."""
    return replace(batch, records=tuple(one for one in batch.records or () if not _is_later(one[2])))


def _is_later(value: bytes | None) -> bool:
    """Whether a value has a later version than this code knows."""
    return value is not None and len(value) >= _VERSION_BYTES and int.from_bytes(value[:_VERSION_BYTES]) > _VERSION_MAX


def _take(
    log: StateLog, checker: Checker, batch: Batch, expected: int, contiguous_from: int, names: Collection[str]
) -> tuple[int, int]:
    """Takes the records of a batch. Returns the next expected offset, and the offset from which on no record is
    missing.
    """
    for offset, key, value in batch.records or ():
        if offset != expected:
            contiguous_from = offset
        expected = offset + 1
        if batch.is_control:
            continue
        log.records += 1
        if key is None:
            raise UnknownRecord(f"the record at offset {offset} has no key")
        name = transactional_id(key)
        if name is None:
            _count(log, "a key of another kind")
            continue
        if value is not None and _is_later(value):
            _count(log, f"a value of version {int.from_bytes(value[:_VERSION_BYTES])}")
            continue
        record = (
            tombstone(offset, contiguous_from, name)
            if value is None
            else _checked(decode(offset, contiguous_from, name, value))
        )
        step = checker.step(record)
        if step.impossible_after is not None:
            log.impossible.append(step)
        log.last[name] = record
        log.newest_ms = max(log.newest_ms, record.updated_ms)
        if name in names and len(log.steps) < STEPS_MAX:
            log.steps.append(step)
    return max(expected, batch.last_offset + 1), contiguous_from


def _checked(record: LoggedTransaction) -> LoggedTransaction:
    """The record, if a coordinator can have written it. Raises UnknownRecord."""
    where = f"the record at offset {record.offset}"
    if record.producer_id < 0:
        raise UnknownRecord(f"{where} has producer id {record.producer_id}")
    if record.state is State.ONGOING and not record.partitions:
        raise UnknownRecord(f"{where} is Ongoing without partitions")
    return record


def _count(log: StateLog, what: str) -> None:
    log.unknown[what] = log.unknown.get(what, 0) + 1


def under_way(record: LoggedTransaction) -> bool:
    """Whether the id is in a transaction."""
    return record.state in IN_TRANSACTION
