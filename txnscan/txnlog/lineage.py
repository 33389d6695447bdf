"""Join the reads of one transactional id's log, from this sweep and from earlier sweeps. Pure.

A log may lose its tail (an unclean leader election), and `__transaction_state` may be deleted and created again. So a
record from an earlier read may no longer be part of today's log. Leader epochs decide this: if two logs have a record
at the same offset with the same leader epoch, they are the same up to that offset (KIP-101), except for compacted
records.

The newest read shows the current lineage. A record of another read belongs to the current lineage if
- the same read has a record at that offset or later that is known to belong to it, or
- the log still has a batch of the record's leader epoch at that offset or later, or
- the leader answers that the record's leader epoch ends after the record (OffsetForLeaderEpoch).

All other records can only veto an outcome (`outcome.py`). The third condition has a limit. A replica that copied a
compacted log builds its epochs from the remaining batches, so one of them may seem to end too late
(`LeaderEpochFileCache`). This takes an unclean election, a compaction, and a new replica that leads. Even then, the
confirmed record was below the high watermark of an earlier leader.

An empty topic id is unknown, not different (`sweeps/identity.py`). Such a read may be of an earlier topic of that name,
whose leader epochs and offsets say nothing about this one. So it belongs to the current lineage only up to a record
that both have, with a value: no two logs have the same record with the same times. Its other records can only veto. If
by the second or third condition they would belong to it, the log has not lost them: either the topic is the same, or
the coordinators of the earlier topic have no transactions any more.

Contiguity belongs to a read, never to a record: no offset is missing between two records if the same read has both
and missed no offset between them.

The last record of an id is never compacted away, unless the id expired. So if an earlier read has a record after the
last record of the current lineage, the log has lost its tail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from txnscan.kafka.answers import EpochEnd
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.txnlog.facts import LogRead, RawRecord

# The number of records that are stored of one id and read. A compacted log has only a few records of each id.
RECORDS_STORED_MAX = 1_000
# Less than every offset.
_NO_OFFSET = -1
# Each read that belongs to the lineage can confirm another one, so the work grows with the square of their number.
_LOOKED_AT_MAX = 500_000


@dataclass(frozen=True, slots=True)
class Joined:
    """The records of one id from all reads. current: records of the current lineage, in order, with their contiguity.
    others: records that are not known to belong to it. lost: how the log has lost records of earlier reads. stored_by:
    for records of the current lineage that the newest read does not show, the sweep that stored them, by offset.
    acknowledged: the offsets of the current records that a read from the leader of their own epoch shows. A read ends
    at the high watermark.
    """

    current: tuple[RawRecord, ...]
    others: tuple[RawRecord, ...]
    lost: Failure | None = None
    stored_by: Mapping[int, str] = field(default_factory=dict)
    acknowledged: frozenset[int] = frozenset()


def newest_of(reads: Sequence[LogRead]) -> LogRead | None:
    """The stored read that shows the current lineage. Leader epochs only rise, and within a leader epoch the end of the
    log only rises. None if the reads are of several topics or partitions, because their order is not known. If some
    have the topic's id, others count only if they share a record with one of those.
    """
    known = [read for read in reads if read.topic_id]
    if len({read.partition for read in reads}) != 1 or len({read.topic_id for read in known}) > 1:
        return None
    of_topic = [read for read in reads if not known or read.topic_id or any(_have_common(read, one) for one in known)]
    return max(of_topic, key=lambda read: (read.leader_epoch, read.end_offset))


def _have_common(one: LogRead, other: LogRead) -> bool:
    """Whether both reads have a record that is in no other log."""
    theirs = {record.offset: record for record in other.records if record.value is not None}
    return any(record.is_same(theirs.get(record.offset)) for record in one.records)


def not_shown(newest: LogRead, reads: Iterable[LogRead]) -> dict[int, int]:
    """The last offset, by leader epoch, of the records that only other reads of the same log show, not the newest."""
    shown = {(record.offset, record.leader_epoch) for record in newest.records}
    found: dict[int, int] = {}
    for read in reads:
        for record in read.records if _may_be_of_same_topic(newest, read) else ():
            if (record.offset, record.leader_epoch) not in shown:
                found[record.leader_epoch] = max(record.offset, found.get(record.leader_epoch, _NO_OFFSET))
    return found


def adds(read: LogRead, stored: Iterable[LogRead]) -> bool:
    """Whether a read shows anything that no stored read shows."""
    return bool(read.records) and not any(_shows_all(one, read) for one in stored)


def _shows_all(one: LogRead, read: LogRead) -> bool:
    shown = {record.offset: record for record in one.records}
    return (
        (one.topic_id, one.partition) == (read.topic_id, read.partition)
        and one.leader_epoch == read.leader_epoch
        and _epochs(one.epoch_ends) >= _epochs(read.epoch_ends)
        and _epochs(one.answered_ends) >= _epochs(read.answered_ends)
        and all(record.offset in shown and _shows(shown[record.offset], record) for record in read.records)
    )


def _epochs(ends: Iterable[EpochEnd]) -> frozenset[int]:
    return frozenset(end.leader_epoch for end in ends)


def _shows(one: RawRecord, record: RawRecord) -> bool:
    return record.is_same(one) and one.contiguous_from <= record.contiguous_from


def bounded(read: LogRead) -> LogRead:
    """The read, cut to the number of records that are stored. The records left out leave a gap in its contiguity."""
    if len(read.records) <= RECORDS_STORED_MAX:
        return read
    half = RECORDS_STORED_MAX // 2
    behind, *last = read.records[-half:]
    return replace(read, records=(*read.records[:half], replace(behind, contiguous_from=behind.offset), *last))


def joined(newest: LogRead | None, reads: Iterable[LogRead]) -> Joined:
    """All records of the id that the reads show. newest: the read that shows the current lineage, if there is one."""
    every = list(dict.fromkeys(reads if newest is None else (newest, *reads)))
    if newest is None:
        return Joined((), _distinct(record for read in every for record in read.records))
    same = [read for read in every if _may_be_of_same_topic(newest, read)]
    current, bounds, conflict = _confirmed(newest, same)
    chain = _with_contiguity(current, bounds)
    kept = {record.offset: record for record in chain}
    others = _distinct(
        r for read in every for r in read.records if not (r.is_same(kept.get(r.offset)) and read in same)
    )
    stored_by: dict[int, str] = {}
    for read in sorted(same, key=str, reverse=True):
        known = (record.offset for record in read.records if record.is_same(kept.get(record.offset)))
        stored_by |= dict.fromkeys(known, str(read))
    for record in newest.records:
        del stored_by[record.offset]
    acknowledged = frozenset(
        record.offset
        for read in same
        for record in read.records
        if record.leader_epoch == read.leader_epoch and record.is_same(kept.get(record.offset))
    )
    return Joined(chain, others, conflict or _lost(newest, every, chain), stored_by, acknowledged)


def _may_be_of_same_topic(one: LogRead, other: LogRead) -> bool:
    """Whether both are of one partition, and not known to be of two topics."""
    return one.partition == other.partition and (one.topic_id == other.topic_id or "" in (one.topic_id, other.topic_id))


def _confirmed(
    newest: LogRead, same: Iterable[LogRead]
) -> tuple[dict[int, RawRecord], dict[LogRead, int], Failure | None]:
    """The records of the current lineage by offset; the offset up to which each read belongs to it; and how two reads
    contradict each other, if they do.
    """
    ends = _ends(newest)
    current = {record.offset: record for record in newest.records}
    bounds = dict.fromkeys(same, _NO_OFFSET)
    conflict, grows, looked_at = None, True, 0
    while grows:
        grows = False
        for read, before in bounds.items():
            looked_at += len(read.records)
            if looked_at > _LOOKED_AT_MAX:
                return current, bounds, _lost_records("its stored reads are too many to compare")
            of_topic = read is newest or "" != newest.topic_id == read.topic_id
            known = (
                r.offset
                for r in read.records
                if (r.is_same(current.get(r.offset)) and (of_topic or r.value is not None))
                or (of_topic and ends.get(r.leader_epoch, _NO_OFFSET) > r.offset)
            )
            bound = max(known, default=before)
            if bound <= before:
                continue
            bounds[read], grows = bound, True
            for record in read.records:
                if record.offset <= bound and not record.is_same(current.setdefault(record.offset, record)):
                    conflict = _lost_records(f"two reads contradict each other at offset {record.offset}")
    return current, bounds, conflict


def _ends(newest: LogRead) -> dict[int, int]:
    """The ends of leader epochs in the current log."""
    ends: dict[int, int] = {}
    for end in (*newest.epoch_ends, *newest.answered_ends):
        ends[end.leader_epoch] = max(end.end_offset, ends.get(end.leader_epoch, _NO_OFFSET))
    return ends


def _with_contiguity(current: Mapping[int, RawRecord], bounds: Mapping[LogRead, int]) -> tuple[RawRecord, ...]:
    """The records in order. Each gets its contiguity from the reads that also have the record before it."""
    contiguous_from: dict[tuple[int, int], int] = {}
    for read, bound in bounds.items():
        for before, record in _after(record for record in read.records if record.offset <= bound):
            which = (before, record.offset)
            contiguous_from[which] = min(record.contiguous_from, contiguous_from.get(which, record.contiguous_from))
    return tuple(
        replace(record, contiguous_from=contiguous_from.get((before, record.offset), record.offset))
        for before, record in _after(current[offset] for offset in sorted(current))
    )


def _after(records: Iterable[RawRecord]) -> Iterator[tuple[int, RawRecord]]:
    """Each record with the offset of the record before it. The first record gets -1."""
    before = _NO_OFFSET
    for record in records:
        yield before, record
        before = record.offset


def _lost(newest: LogRead, every: Sequence[LogRead], chain: Sequence[RawRecord]) -> Failure | None:
    last = chain[-1].offset if chain else _NO_OFFSET
    name = f"'{newest.transactional_id}'"
    if any(read.records for read in every if not _may_be_of_same_topic(newest, read)):
        return _lost_records(f"{TRANSACTION_STATE_TOPIC} was made anew since a sweep read {name} there")
    ends = _ends(newest)
    tails = [read.records[-1] for read in every if read.records]
    # Known records below these ends are in the chain.
    lost = [one.offset for one in tails if one.offset > last and ends.get(one.leader_epoch, _NO_OFFSET) <= one.offset]
    left = f"nothing of it behind offset {last}" if chain else "nothing of it"
    return _lost_records(f"a sweep read {name} at offset {max(lost)}, and the log has {left} now") if lost else None


def _lost_records(how: str) -> Failure:
    return Failure(how, FailureCode.LOG_LOST_RECORDS)


def _distinct(records: Iterable[RawRecord]) -> tuple[RawRecord, ...]:
    """The records without duplicates, in the order of offsets."""
    found = {replace(record, contiguous_from=record.offset) for record in records}
    return tuple(sorted(found, key=lambda record: (record.offset, record.leader_epoch, record.value or b"")))
