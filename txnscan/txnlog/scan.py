"""Read a partition of `__transaction_state` in the driver or an executor: `(batch, send) -> row`. Only `send` does I/O.

A log may be larger than memory, and most of its records are about other ids. So the log is read in two passes. The
first pass searches for the ids that have ever had a wanted producer id; it skips all other batches without decoding
them. If there are such ids, the second pass keeps their records: all from an id's first record with a wanted producer
id on, and the record before that. If the whole log came in one piece, the second pass searches that piece in memory.
Otherwise the second pass reads the log again.

Missing offsets, between batches or within a batch, are recorded: only a chain without gaps proves something
(`transitions.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from txnscan.coordinators.agreed_metadata import LeaderUnknown
from txnscan.kafka.answers import EpochEnd
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.protocol.fetch import Reading, fetch_undecoded
from txnscan.kafka.protocol.list_offsets import Offset, high_watermark, offset_of
from txnscan.kafka.protocol.record_batch import Batch
from txnscan.kafka.protocol.search import Undecoded, Wanted, are_many, searched
from txnscan.kafka.security.acls import needing
from txnscan.kafka.security.needs import READ_TOPICS
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Partition
from txnscan.reads.rows import LogBatch
from txnscan.txnlog.decode import (
    DamagedRecord,
    UnknownRecord,
    peeked,
    producer_id,
    producer_id_bytes,
    transactional_id,
    transactional_id_key,
)
from txnscan.txnlog.facts import RawRecord
from txnscan.txnlog.rows import LogRow

# Several threads have a piece and copies of it in memory at once. With 8 MB, 5,000,000 records took 460 MB.
_PIECE_BYTES = 2 * 1024 * 1024
# The limits of what is kept of a partition of the log: records and ids, the bytes of both, and leader epochs. A
# compacted log has only a few records of each id. A broker could answer without an end, and 6 kB may expand to 64 MiB.
RECORDS_MAX = 200_000
KEPT_BYTES_MAX = 64 * 1024 * 1024
EPOCHS_MAX = 100_000


def read_log(batch: LogBatch, send: Send) -> Iterator[LogRow]:
    """One row: this partition's records of all ids that ever had one of the producer ids, or the failure."""
    (partition,) = batch.partitions
    wanted = frozenset(batch.producer_ids)
    if batch.scanned_to >= 0:
        yield _appended(batch, partition, send)
        return
    try:
        start = start_of(send, partition)
        names: set[str] = set()
        ends: dict[int, int] = {}
        reached, read_bytes = start, 0
        for piece in pieces(send, partition, start, None, of_producers(wanted)):
            _add_names(names, names_in(piece.batches, piece.offset, wanted))
            reached, read_bytes = piece.reached, read_bytes + piece.size_bytes
            add_epoch_ends(ends, piece)
            is_whole = piece.offset == start
        records = Records(wanted)
        if names and is_whole:
            records.take_all(searched(piece.undecoded, of_ids(names)), start, names)
        elif names:
            for piece in pieces(send, partition, start, reached, of_ids(names)):
                records.take_all(piece.batches, piece.offset, names)
                read_bytes += piece.size_bytes
    except (RequestFailed, UnknownRecord) as failed:
        yield LogRow(partition.partition, log_failure(partition.partition, failed), unserved=is_unserved(failed))
        return
    yield LogRow(
        partition.partition,
        None,
        reached,
        tuple(records.kept),
        records.contiguous_from,
        records.expected,
        read_bytes=read_bytes,
        epoch_ends=tuple(EpochEnd(*end) for end in ends.items()),
    )


def _appended(batch: LogBatch, partition: Partition, send: Send) -> LogRow:
    """The row for the records that were appended to this partition of the log since an earlier read: the records of the
    batch's `names` and of ids with a wanted producer id, or the failure.
    """
    wanted, names = frozenset(batch.producer_ids), frozenset(batch.names)
    found: list[RawRecord] = []
    room = KeptRoom()
    reached, read_bytes = batch.scanned_to, 0
    try:
        for piece in pieces(send, partition, batch.scanned_to, None, either(of_producers(wanted), of_ids(names))):
            new = names | names_in(piece.batches, piece.offset, wanted)
            records = Records.of_ids(new, room)
            records.take_all(piece.batches, piece.offset, new)
            found += records.kept
            reached, read_bytes = piece.reached, read_bytes + piece.size_bytes
    except (RequestFailed, UnknownRecord) as failed:
        return LogRow(partition.partition, log_failure(partition.partition, failed), unserved=is_unserved(failed))
    return LogRow(partition.partition, None, reached, tuple(found), reached, reached, read_bytes=read_bytes)


def log_failure(k: int, failed: RequestFailed | LeaderUnknown | UnknownRecord) -> Failure:
    """Why a partition of the log is not known, with the ACL to grant."""
    failure = Failure(str(failed), FailureCode.UNKNOWN_RECORD) if isinstance(failed, UnknownRecord) else failed.failure
    return needing(failure, READ_TOPICS.on(TRANSACTION_STATE_TOPIC)).within(f"{TRANSACTION_STATE_TOPIC}-{k}")


def is_unserved(failed: Exception) -> bool:
    """Whether a log was not read because its leader, as all brokers report it, did not serve it, or served a damaged
    record. Then that broker may not have loaded it either. A missing permission, API or record version is no such sign.
    """
    if isinstance(failed, RequestFailed):
        failure = failed.failure
        return failure.lacks_api is None and failure.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED.name
    return isinstance(failed, DamagedRecord)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some batches of a log, read from `offset` up to `reached`. undecoded: the same bytes, for another search."""

    batches: tuple[Batch, ...]
    offset: int
    reached: int
    undecoded: Undecoded

    @property
    def size_bytes(self) -> int:
        """The number of bytes that were read."""
        return len(self.undecoded.data)


def pieces(send: Send, partition: Partition, offset: int, end: int | None, wanted: Wanted) -> Iterator[Piece]:
    """Reads the log from an offset up to `end`, or if that is None, up to the high watermark of the first answer. end:
    an offset at which a batch begins; later batches are left out. wanted: see `search.searched`. Raises RequestFailed,
    also if the leader does not know the end of the log yet.
    """
    reading = Reading("it")
    if end is None:
        high_watermark(send, partition)
    while end is None or offset < end:
        batches, committed_end = fetch_undecoded(send, partition, offset, _PIECE_BYTES)
        reached = batches.next_offset(offset)
        held = batches if end is None else batches.before(end)
        yield Piece(tuple(searched(held, wanted)), offset, reached, batches)
        if reading.is_done(offset, reached, committed_end, len(batches.data)):
            return
        offset = reached


def everything(data: bytes, bounds: Sequence[int]) -> Sequence[bool]:
    """Selects all batches."""
    return [True] * (len(bounds) - 1)


def of_producers(wanted: Iterable[int]) -> Wanted:
    """Selects the batches that may have a record with one of these producer ids."""
    those = frozenset(wanted)
    values = {producer_id_bytes(one) for one in those}

    def search(data: bytes, bounds: Sequence[int]) -> Sequence[bool]:
        if are_many(bounds):
            from txnscan.txnlog import columns as log_columns

            return log_columns.of_producers(data, bounds, those)
        return [found is None or found[1] in values for found in _peeks(data, bounds)]

    return search


def of_ids(names: Iterable[str]) -> Wanted:
    """Selects the batches that may have a record of one of these ids."""
    keys = {transactional_id_key(name) for name in names}

    def search(data: bytes, bounds: Sequence[int]) -> Sequence[bool]:
        if are_many(bounds):
            from txnscan.txnlog import columns as log_columns

            return log_columns.of_keys(data, bounds, keys)
        return [found is None or found[0] in keys for found in _peeks(data, bounds)]

    return search


def _peeks(data: bytes, bounds: Sequence[int]) -> Iterator[tuple[bytes, bytes] | None]:
    return (peeked(data[at:end]) for at, end in pairwise(bounds))


def either(one: Wanted, other: Wanted) -> Wanted:
    """Selects the batches that at least one of the two selects."""

    def search(data: bytes, bounds: Sequence[int]) -> Sequence[bool]:
        return [bool(a or b) for a, b in zip(one(data, bounds), other(data, bounds), strict=True)]

    return search


def start_of(send: Send, partition: Partition) -> int:
    """The first offset of a partition of the log. Raises RequestFailed."""
    return offset_of(send, partition, Offset.LOG_START)


def names_in(batches: Iterable[Batch], offset: int, wanted: Collection[int]) -> set[str]:
    """The ids that have a wanted producer id in these batches, from an offset on. Raises UnknownRecord."""
    found = set()
    for batch in batches:
        for at, key, value in batch.records or ():
            if batch.is_control or at < offset or key is None or value is None:
                continue
            name = transactional_id(key)
            if name is not None and producer_id(value) in wanted:
                found.add(name)
    return found


def add_epoch_ends(ends: dict[int, int], piece: Piece) -> None:
    """Adds the ends of the leader epochs in a piece. Raises UnknownRecord if they are too many."""
    ends |= piece.undecoded.epoch_ends()
    if len(ends) > EPOCHS_MAX:
        raise UnknownRecord(f"it has batches of more than {EPOCHS_MAX:,} leader epochs")


def _add_names(names: set[str], more: set[str]) -> None:
    """Raises UnknownRecord if they are too many."""
    names |= more
    if more and (len(names) > RECORDS_MAX or sum(map(len, names)) > KEPT_BYTES_MAX):
        raise UnknownRecord("it has the producer ids in question in the records of too many ids")


class KeptRoom:
    """What is left for the kept records of a read. Raises UnknownRecord if they are too many."""

    def __init__(self) -> None:
        self._free_records, self._free_bytes = RECORDS_MAX, KEPT_BYTES_MAX

    def take(self, raw: RawRecord) -> None:
        """Counts a record."""
        self._free_records -= 1
        self._free_bytes -= _size(raw)
        if self._free_records < 0:
            raise UnknownRecord(f"it holds more than {RECORDS_MAX} records of the ids in question")
        if self._free_bytes < 0:
            raise UnknownRecord(f"its records of the ids in question have more than {KEPT_BYTES_MAX >> 20} MiB")

    def give_back(self, raw: RawRecord) -> None:
        """Counts a record that is no longer kept."""
        self._free_records += 1
        self._free_bytes += _size(raw)


def _size(raw: RawRecord) -> int:
    return len(raw.value or b"")


@dataclass
class Records:
    """Collects records from a log that is read in order.

    contiguous_from: no offset is missing from there to the last record read. expected: the next offset. of_disk: from a
    file of this machine, whose size limits the ids, which may be millions.
    """

    producer_ids: frozenset[int]
    contiguous_from: int = -1
    expected: int = -1
    of_disk: bool = False
    kept: list[RawRecord] = field(default_factory=list)
    _last: dict[str, RawRecord] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)
    _room: KeptRoom = field(default_factory=KeptRoom)

    def take_all(self, batches: Iterable[Batch], offset: int, names: Collection[str] | None) -> None:
        """Takes the records of these batches from an offset on. names: the ids whose records may be kept; None for all.

        Raises UnknownRecord.
        """
        for batch in batches:
            if batch.is_control:
                continue
            if batch.records is None:
                self._pass_over(batch)
                continue
            for record in batch.records:
                if record[0] >= offset:
                    self._take(record, names, batch.leader_epoch)

    def _pass_over(self, batch: Batch) -> None:
        """Skips a batch that has no wanted records. Its header shows whether it has all its offsets."""
        if batch.base_offset != self.expected:
            self.contiguous_from = batch.base_offset
        self.expected = batch.last_offset + 1
        if batch.records_count != batch.last_offset - batch.base_offset + 1:
            self.contiguous_from = self.expected

    def _take(
        self, record: tuple[int, bytes | None, bytes | None], names: Collection[str] | None, leader_epoch: int
    ) -> None:
        offset, key, value = record
        if offset != self.expected:
            self.contiguous_from = offset
        self.expected = offset + 1
        name = transactional_id(key) if key is not None else None
        # Brokers also skip keys of another kind.
        if name is None or (names is not None and name not in names):
            return
        raw = RawRecord(offset, self.contiguous_from, name, value, leader_epoch)
        if value is not None and producer_id(value) in self.producer_ids and name not in self._names:
            self._names.add(name)
            if (before := self._forgotten(name)) is not None:
                self._keep(before)
        if name in self._names:
            self._keep(raw)
            return
        # Without a value the id expired. Later records with this name are of a new use of it.
        self._forgotten(name)
        if value is not None:
            self._last[name] = raw
            if not self.of_disk:
                self._room.take(raw)

    def _forgotten(self, name: str) -> RawRecord | None:
        """The last record of an id, which is no longer remembered."""
        raw = self._last.pop(name, None)
        if raw is not None and not self.of_disk:
            self._room.give_back(raw)
        return raw

    def _keep(self, raw: RawRecord) -> None:
        self._room.take(raw)
        self.kept.append(raw)

    def taken(self) -> list[RawRecord]:
        """The kept records. They are no longer kept here."""
        taken, self.kept = self.kept, []
        for raw in taken:
            self._room.give_back(raw)
        return taken

    @classmethod
    def of_ids(cls, names: Collection[str], room: KeptRoom | None = None) -> Records:
        """Keeps all records of these ids, with any producer id. room: if other records share it."""
        return cls(frozenset(), _names=set(names), _room=room or KeptRoom())

    @classmethod
    def following(cls, row: LogRow, producer_ids: frozenset[int]) -> Records:
        """Continues at the end of a row, and keeps further records of the row's ids."""
        names = {record.transactional_id for record in row.records}
        return cls(producer_ids, row.contiguous_from, row.expected, _names=names)
