"""`__transaction_state`: a log with a history that agrees with the coordinators' answers. Made on request.

Its partitions have one record per batch, in three parts: first the last record of each id at rest, which a cleaner has
kept; then complete transactions of these ids, in rounds, each round at the next epoch, as under transactions version 2;
then the latest events: producers that started again, and transactions in progress. Ids in the same partition of the log
write to the same user partitions, so that their records have one length, and a round is made from another by changing
columns of bytes (`batches.Rows`). For a few partitions of the log, one round of each is kept in memory; the rest is not
stored.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.sim.wire.batches import TIMESTAMPS_AT, Layout, Rows, batch
from tests.sim.wire.shape import NAME_DIGITS, RECENT_AGE_MS, REST_EPOCH, ClusterShape, TransactionalId
from txnscan.kafka.protocol.primitives import EMPTY, NO_TAGS, NULL, items, numbers, string
from txnscan.kafka.topology import Key
from txnscan.txnlog.decode import transactional_id_key

TIMEOUT_MS = 900_000
_STATUS = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
_PARTITIONS_HELD = 10
_ROUND_MS = 60_000
_TRANSACTION_MS = 1_000
# Positions in a value, from its beginning and before its end.
_PRODUCER_ID_AT, _EPOCH_AT, _STATUS_AT = 2, 10, 16
# The number of tags, the producer id, and the client's transactions version.
_TAGS_BYTES = 1 + (2 + 8) + (2 + 2)
# The maximum size of rows in memory, in each process.
_ROWS_BYTES_MAX = 96 * 1024 * 1024
# Ongoing, Prepare* and Complete*.
_TRANSACTION_RECORDS = 3


def value(
    state: str,
    producer_id: int,
    epoch: int,
    held: Iterable[Key],
    updated_ms: int,
    started_ms: int,
    client_version: int = 2,
) -> bytes:
    """`TransactionLogValue.json`, version 1, as Kafka 4.3 writes it. client_version: 0 before a first transaction."""
    head = struct.pack(">hqhib", 1, producer_id, epoch, TIMEOUT_MS, _STATUS.index(state))
    previous = b"\0\10" + producer_id.to_bytes(8)
    tags = b"\2" + previous + b"\2\2" + client_version.to_bytes(2) if client_version else b"\1" + previous
    return head + _topics(state, held) + struct.pack(">qq", updated_ms, started_ms) + tags


def _topics(state: str, held: Iterable[Key]) -> bytes:
    if state == "Empty":
        return NULL
    if state.startswith("Complete"):
        return EMPTY
    by_topic: dict[str, list[int]] = {}
    for topic, index in held:
        by_topic.setdefault(topic, []).append(index)
    return items(string(topic) + numbers(indexes) + NO_TAGS for topic, indexes in by_topic.items())


@dataclass(frozen=True, slots=True)
class _Record:
    """A batch with one record, and the positions that differ between ids, or between rounds."""

    data: bytes
    name_at: int  # its digits, and the lower halves of producer ids
    producer_ids_at: tuple[int, int]
    status_at: int
    epoch_at: int
    updated_at: int
    started_at: int

    @staticmethod
    def of(state: str, one: TransactionalId, held: Iterable[Key], leader_epoch: int) -> _Record:
        written = value(state, one.producer_id, 0, held, 0, 0)
        data = batch(0, [(transactional_id_key(one.name), written)], timestamp_ms=0, leader_epoch=leader_epoch)
        # A record ends with its number of headers.
        at = len(data) - 1 - len(written)
        times_at = at + len(written) - _TAGS_BYTES - 2 * 8
        return _Record(
            data=data,
            name_at=data.index(one.name.encode()) + len(one.name) - NAME_DIGITS,
            producer_ids_at=(at + _PRODUCER_ID_AT + 4, times_at + 2 * 8 + 3 + 4),
            status_at=at + _STATUS_AT,
            epoch_at=at + _EPOCH_AT,
            updated_at=times_at,
            started_at=times_at + 8,
        )

    def of_id(self, one: TransactionalId, state: str) -> list[tuple[int, bytes]]:
        """The fields that differ between ids."""
        # Only the differing parts of names are replaced.
        digits, producer_id = one.name[-NAME_DIGITS:].encode(), one.producer_id.to_bytes(8)[4:]
        first, second = self.producer_ids_at
        return [
            (self.name_at, digits),
            (first, producer_id),
            (second, producer_id),
            (self.status_at, bytes((_STATUS.index(state),))),
        ]

    def of_round(self, epoch: int, updated_ms: int, started_ms: int) -> dict[int, bytes]:
        """The fields that differ between rounds."""
        updated = updated_ms.to_bytes(8)
        return {
            **dict.fromkeys(TIMESTAMPS_AT, updated),
            self.epoch_at: epoch.to_bytes(2),
            self.updated_at: updated,
            self.started_at: started_ms.to_bytes(8, signed=True),
        }


@dataclass(frozen=True, slots=True)
class _Section:
    """A sequence of rows of one length, at equal distances. make: returns the rows from one row to another."""

    first_offset: int
    rows: int
    step: int
    row_bytes: int
    make: Callable[[int, int], bytes]

    @property
    def end_offset(self) -> int:
        return self.first_offset + self.rows * self.step


class _Partition:
    """One partition of the log, as sections. ids: in the order of their turns."""

    def __init__(self, shape: ClusterShape, started_at_ms: int, k: int, ids: Sequence[TransactionalId]) -> None:
        self._shape, self._started_at_ms = shape, started_at_ms
        self._leader_epoch = shape.transaction_state_epoch(k)
        self.sections: list[_Section] = []
        # Made on demand.
        self._rows: dict[str, Rows] = {}
        rest = [one for one in ids if not one.held]
        idle = [one for one in rest if one.state == "Empty"]
        under_way = [one for one in ids if one.held]
        if rest:
            records = -(-shape.log_records * len(rest) // shape.transactional_ids)
            more = records - len(rest) - len(idle)
            self._at_rest(k, rest, max(0, -(-more // _TRANSACTION_RECORDS)))
        if idle:
            self._started_anew(idle)
        for one in under_way:
            self._under_way(one)
        self._firsts = [section.first_offset for section in self.sections]

    @property
    def end(self) -> int:
        """The end offset."""
        return self.sections[-1].end_offset if self.sections else 0

    def read(self, offset: int, bytes_max: int) -> bytes:
        """The batches from the batch with this offset on, up to `bytes_max`, but at least the complete first batch."""
        pieces: list[bytes] = []
        # The part of the first row before the offset is cut off at the end.
        enough, size = bytes_max, 0
        for section in self.sections[max(0, bisect_right(self._firsts, offset) - 1) :]:
            row = max(0, offset - section.first_offset) // section.step
            if row >= section.rows:
                continue
            enough += 0 if pieces else section.row_bytes
            pieces.append(section.make(row, min(section.rows, row + 1 + (enough - size) // section.row_bytes)))
            size += len(pieces[-1])
            if size > enough:
                break
        data = b"".join(pieces)
        at = 0
        while at < len(data) and int.from_bytes(data[at : at + 8]) < offset:
            at += _size(data, at)
        return data[at : at + max(bytes_max, _size(data, at))] if at < len(data) else b""

    @property
    def size_bytes(self) -> int:
        """The size of its rows in memory."""
        return sum(rows.size_bytes for rows in self._rows.values())

    def forget(self) -> None:
        """Drops its rows from memory."""
        self._rows.clear()

    def _made(self, which: str, make: Callable[[], Rows]) -> Rows:
        if which not in self._rows:
            self._rows[which] = make()
        return self._rows[which]

    def _add(self, rows: int, step: int, row_bytes: int, make: Callable[[int, int, int], bytes]) -> None:
        first_offset = self.end
        self.sections.append(
            _Section(first_offset, rows, step, row_bytes, lambda first, end: make(first, end, first_offset))
        )

    def _at_rest(self, k: int, rest: Sequence[TransactionalId], transactions: int) -> None:
        """Adds the last record of each id, and then this many transactions."""
        held = self._held(k)
        ongoing, prepare, complete = (
            _Record.of(state, rest[0], held, self._leader_epoch)
            for state in ("Ongoing", "PrepareCommit", "CompleteCommit")
        )
        layout = Layout((ongoing.data, prepare.data, complete.data))

        def rows() -> Rows:
            made = []
            for one in rest:
                outcome = "Abort" if one.state == "CompleteAbort" else "Commit"
                made += [
                    layout.changed(0, ongoing.of_id(one, "Ongoing")),
                    layout.changed(1, prepare.of_id(one, f"Prepare{outcome}")),
                    layout.changed(2, complete.of_id(one, f"Complete{outcome}")),
                ]
            return Rows(layout, b"".join(made))

        def fields(epoch: int) -> tuple[Mapping[int, bytes], ...]:
            began_ms = self._started_at_ms - RECENT_AGE_MS - (REST_EPOCH - epoch) * _ROUND_MS
            ended_ms = began_ms + _TRANSACTION_MS
            return (
                ongoing.of_round(epoch - 1, began_ms, began_ms),
                prepare.of_round(epoch, ended_ms - 1, began_ms),
                complete.of_round(epoch, ended_ms, began_ms),
            )

        def transacted(epoch: int) -> Callable[[int, int, int], bytes]:
            def make(first: int, end: int, offset: int) -> bytes:
                at = offset + first * _TRANSACTION_RECORDS
                whole = self._made("transactions", rows)
                return whole.with_fields(first, end, (at, at + 1, at + 2), _TRANSACTION_RECORDS, fields(epoch))

            return make

        def cleaned(epoch: int, before: int) -> Callable[[int, int, int], bytes]:
            def make(first: int, end: int, offset: int) -> bytes:
                at = offset + first * _TRANSACTION_RECORDS + 2
                last = self._made("transactions", rows).of_batch(2, before + first, before + end)
                return last.with_fields(0, end - first, (at,), _TRANSACTION_RECORDS, fields(epoch)[2:])

            return make

        rounds, more = divmod(transactions, len(rest))
        epoch = REST_EPOCH - rounds
        for count, make in ((more, cleaned(epoch - 1, 0)), (len(rest) - more, cleaned(epoch, more))):
            if count:
                self._add(count, _TRANSACTION_RECORDS, len(complete.data), make)
        if more:
            self._add(more, _TRANSACTION_RECORDS, layout.size, transacted(epoch))
        for number in range(1, rounds + 1):
            self._add(len(rest), _TRANSACTION_RECORDS, layout.size, transacted(epoch + number))

    def _held(self, k: int) -> list[Key]:
        shape = self._shape
        count = min(_PARTITIONS_HELD, shape.partitions)
        apart = shape.partitions // max(1, count)
        return [shape.key((k * count + place * apart) % shape.partitions) for place in range(count)]

    def _started_anew(self, idle: Sequence[TransactionalId]) -> None:
        empty = _Record.of("Empty", idle[0], (), self._leader_epoch)
        layout = Layout((empty.data,))

        def rows() -> Rows:
            return Rows(layout, b"".join(layout.changed(0, empty.of_id(one, "Empty")) for one in idle))

        fields = (empty.of_round(REST_EPOCH + 1, self._started_at_ms - _TRANSACTION_MS, -1),)
        self._add(
            *(len(idle), 1, layout.size),
            lambda first, end, offset: self._made("idle", rows).with_fields(first, end, (offset + first,), 1, fields),
        )

    def _under_way(self, one: TransactionalId) -> None:
        """Adds the records of an id's first transaction."""
        began_ms = self._started_at_ms - RECENT_AGE_MS
        held = [self._shape.key(ordinal) for ordinal in one.held]
        for state, epoch in (("Empty", 0), ("Ongoing", 0), (one.state, one.producer_epoch))[: 2 + one.producer_epoch]:
            first = state == "Empty"
            times = (began_ms, -1 if first else began_ms)
            written = value(state, one.producer_id, epoch, held, *times, client_version=0 if first else 2)
            data = batch(
                self.end,
                [(transactional_id_key(one.name), written)],
                timestamp_ms=began_ms,
                leader_epoch=self._leader_epoch,
            )
            self._add(1, 1, len(data), lambda first, end, offset, data=data: data)  # type: ignore[misc]


def _size(data: bytes, at: int) -> int:
    return 12 + int.from_bytes(data[at + 8 : at + 12])


class StateLog:
    """All partitions of the log. ids: by partition, in any order."""

    def __init__(self, shape: ClusterShape, started_at_ms: int, ids: Mapping[int, Sequence[TransactionalId]]) -> None:
        self._shape, self._started_at_ms, self._ids = shape, started_at_ms, ids
        self._partitions: dict[int, _Partition] = {}
        # The partitions with rows in memory; the last one read is last.
        self._kept: OrderedDict[int, None] = OrderedDict()

    def end(self, k: int) -> int:
        """The high watermark of a partition."""
        return self._partition(k).end

    def read(self, k: int, offset: int, bytes_max: int) -> bytes:
        """Batches from this offset on, as a broker sends them: at least one batch; the last one may be cut off."""
        data = self._partition(k).read(offset, bytes_max)
        self._kept[k] = None
        self._kept.move_to_end(k)
        while len(self._kept) > 1 and sum(self._partitions[kept].size_bytes for kept in self._kept) > _ROWS_BYTES_MAX:
            oldest, _ = self._kept.popitem(last=False)
            self._partitions[oldest].forget()
        return data

    def _partition(self, k: int) -> _Partition:
        if k not in self._partitions:
            self._partitions[k] = _Partition(self._shape, self._started_at_ms, k, self._ids.get(k, ()))
        return self._partitions[k]
