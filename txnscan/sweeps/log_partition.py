"""One partition of the transaction log, as a sweep reads it: once, and then on while an owner is described."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from txnscan.coordinators.cluster import Cluster
from txnscan.kafka.answers import EpochEnd
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.protocol.describe_transactions import describe_transactions
from txnscan.kafka.protocol.offset_for_leader_epoch import epoch_ends
from txnscan.kafka.topology import Partition
from txnscan.txnlog.decode import UnknownRecord, all_decoded
from txnscan.txnlog.facts import LoggedTransaction, LogRead, RawRecord, ScannedLog
from txnscan.txnlog.lineage import bounded, not_shown
from txnscan.txnlog.rows import LogRow
from txnscan.txnlog.scan import Records, add_epoch_ends, everything, is_unserved, log_failure, pieces
from txnscan.txnlog.verification import Described


class Log:
    """One partition of `__transaction_state`: its remaining records of ids that ever had a wanted producer id.

    failure: why these are not known, if so; with a failure `logged` is empty. unserved: whether the log could not be
    read from its leader. partition: as the agreed metadata shows it.
    """

    def __init__(
        self,
        cluster: Cluster,
        partition: Partition,
        row: LogRow,
        producer_ids: frozenset[int],
        unchanged: Mapping[str, LogRead],
        epochs_rise: bool = False,
    ) -> None:
        """unchanged: earlier reads, by id, to which the row adds no records; empty if the row is of the whole log.
        epochs_rise: see LogRead.
        """
        self._epochs_rise = epochs_rise
        self.failure = row.failure
        self.unserved = row.unserved
        self._cluster = cluster
        self.partition = partition
        self._reached = row.reached
        records = (*row.records, *(record for read in unchanged.values() for record in read.records))
        self._further = Records.following(replace(row, records=records), producer_ids)
        self._raw: list[RawRecord] = []
        self._logged: list[LoggedTransaction] = []
        # The end offset of each leader epoch: all that are known; and of those that earlier reads need, by this read
        # and by the leader's answer.
        earlier = (end for read in unchanged.values() for end in read.epoch_ends)
        self._ends = {end.leader_epoch: end.end_offset for end in (*earlier, *row.epoch_ends)}
        self._wanted_ends: dict[int, int] = {}
        self._answered_ends: dict[int, int] = {}
        self._decode(records)

    def scanned(self, producer_id: int) -> ScannedLog | None:
        """How far the log was read for a producer id. None with a failure, or if an id has more records than are
        stored: then a later sweep reads them again.
        """
        p, reads = self.partition, self.reads(producer_id, ())
        if self.failure is not None or any(read != bounded(read) for read in reads):
            return None
        names = tuple(read.transactional_id for read in reads)
        return ScannedLog(p.partition, p.leader_epoch, self._reached, names)

    @property
    def logged(self) -> tuple[LoggedTransaction, ...]:
        """The records. The records of each id are in the order of the log."""
        return tuple(self._logged) if self.failure is None else ()

    def _decode(self, records: Iterable[RawRecord]) -> None:
        raw = list(records)
        try:
            self._logged += all_decoded(raw)
            self._raw += raw
        except UnknownRecord as unknown:
            self._failed(unknown)

    def _failed(self, why: RequestFailed | UnknownRecord) -> None:
        if self.failure is None:
            self.failure = log_failure(self.partition.partition, why)
            self.unserved = is_unserved(why)

    def read_on(self) -> None:
        """Continues reading, from where the read ended to the high watermark."""
        if self.failure is not None:
            return
        already = len(self._further.kept)
        try:
            for piece in pieces(self._cluster.send, self.partition, self._reached, None, everything):
                self._further.take_all(piece.batches, piece.offset, None)
                self._reached = piece.reached
                add_epoch_ends(self._ends, piece)
        except (RequestFailed, UnknownRecord) as failed:
            self._failed(failed)
        self._decode(self._further.kept[already:])

    def ask_epoch_ends(self, earlier: Iterable[LogRead]) -> None:
        """Asks for the ends of those leader epochs whose records earlier reads have and this read lacks."""
        if self.failure is not None:
            return
        wanted = not_shown(self._read_of("", self._raw), earlier)
        self._wanted_ends = {epoch: self._ends[epoch] for epoch in wanted if epoch in self._ends}
        asked = [epoch for epoch, offset in wanted.items() if self._ends.get(epoch, -1) <= offset]
        with contextlib.suppress(RequestFailed):
            self._answered_ends = epoch_ends(self._cluster.send, self.partition, asked) if asked else {}

    def reads(self, producer_id: int, earlier: Iterable[LogRead]) -> list[LogRead]:
        """The read of each id that ever had this producer id, according to this read or earlier reads of this log.
        Empty with a failure.
        """
        if self.failure is not None:
            return []
        k = self.partition.partition
        names = {record.transactional_id for record in self._logged if record.producer_id == producer_id}
        names |= {read.transactional_id for read in earlier if read.partition == k}
        of = {name: [record for record in self._raw if record.transactional_id == name] for name in sorted(names)}
        return [self._read_of(name, records) for name, records in of.items()]

    def _read_of(self, name: str, records: Iterable[RawRecord]) -> LogRead:
        p = self.partition
        seen, answered = (
            tuple(EpochEnd(*end) for end in sorted(ends.items())) for ends in (self._wanted_ends, self._answered_ends)
        )
        read = LogRead(p.topic_id, p.partition, p.leader_epoch, self._reached, name, tuple(records), seen, answered)
        return replace(read, epochs_rise=self._epochs_rise)

    def describe(self, before: Described) -> Described:
        """The id as its coordinator describes it now, or `before` if the request fails."""
        name, leader = before.transactional_id, self.partition.leader
        try:
            now = describe_transactions(self._cluster.send, leader, [name])[name]
        except RequestFailed:
            return before
        if now.error_code != ErrorCode.NONE:
            return before
        return Described(name, leader, now.producer_id, now.producer_epoch, now.state)
