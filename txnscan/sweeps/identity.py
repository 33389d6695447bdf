"""Decide whether an open transaction with another start offset is another transaction.

Theory
======
A transaction ends by a marker, not by another start offset. Retention and DeleteRecords move the log start past the
first record of an open transaction. If a replica then rebuilds its producer state from the remaining records, because
it is new, moved to another disk or lost its snapshot, it shows a later start offset (`ProducerStateManager`). An
election to such a replica may happen between any two reads.

An earlier read showed a transaction of a producer id open on a partition, from a start offset on. A later proven read
shows a transaction of the same producer id open at another start offset. `identity` has three answers:

- **another**: the earlier transaction has ended, because the later epoch is not lower, and
  - the log still has the earlier start offset. A leader that has all records of an open transaction shows its first; or
  - there is a marker of the producer id between the two start offsets. A marker ends all open data of its producer id.
- **same**: the earlier transaction is still open, because
  - the record at the later start offset was in the log while the earlier transaction was open, or
  - the log has no marker of the producer id, and lacks no offset, from the end of the log at the earlier read to the
    later start offset, or
  - the first remaining record is not later than the last record of the earlier read. Sequence numbers show this, at one
    epoch only.
- **unknown**: in all other cases, for example if that part of the log is deleted, is longer than `BYTES_MAX`, cannot be
  read, or was compacted, so that a marker may be missing. The earlier transaction counts as open.

If a proven read shows nothing open of the producer id, the earlier transaction has ended. How it ended may stay
unknown.

One function for the second read of a sweep, the incidents of tables and of `watch`, and `apply` after its marker.

An empty topic id is unknown, and not different. Topics of ZooKeeper clusters have no ids before
`inter.broker.protocol.version` 2.8. In a rolling upgrade they come and go, because a controller with an earlier version
does not send them. If one of two ids is unknown, the topic is another one if its leader epoch or high watermark is
lower than before (`restored.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from txnscan.coordinators.agreed_metadata import AgreedMetadata, LeaderUnknown
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.fetch import LONG_READ_BYTES_MAX, Reading, fetch
from txnscan.kafka.protocol.list_offsets import Offset, list_offsets
from txnscan.kafka.topology import Key, Partition
from txnscan.reads.observation import Observation, TransactionKey
from txnscan.sweeps.history import Incident, Incidents
from txnscan.sweeps.restored import LogPosition, is_of_other_log

PIECE_BYTES = 1024 * 1024
# At most this much of a log is read to find how a transaction went on or ended.
BYTES_MAX = LONG_READ_BYTES_MAX
_UNKNOWN_EPOCH = -1


class Identity(StrEnum):
    """The answers of `identity`."""

    SAME = "same"
    ANOTHER = "another"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Seen:
    """An open transaction of a producer id, as a read showed it. producer_epoch, last_sequence: -1 if not known.
    end_offset: the high watermark of that read, None if it is not known.
    """

    producer_id: int
    producer_epoch: int
    start_offset: int
    last_sequence: int = -1
    end_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Between:
    """What the log has before a later start offset. log_start: its first offset. read_from: the first offset that was
    read. marker: whether a marker of the producer id is there. whole: whether no offset is missing from read_from to
    the later start offset. first: the epoch and base sequence of the batch at that start offset, None if it is not
    known.
    """

    log_start: int
    read_from: int
    marker: bool
    whole: bool
    first: tuple[int, int] | None = None


def identity(earlier: Seen, later: Seen, log: Between) -> Identity:
    """Whether the later transaction is the earlier one. Both are of one producer id and partition."""
    if earlier.start_offset == later.start_offset and earlier.producer_epoch <= later.producer_epoch:
        return Identity.SAME
    if later.start_offset < earlier.start_offset or later.producer_epoch < earlier.producer_epoch:
        return Identity.UNKNOWN
    if log.log_start <= earlier.start_offset or (log.marker and log.read_from > earlier.start_offset):
        return Identity.ANOTHER
    end = earlier.end_offset
    if end is not None and (later.start_offset < end or (log.whole and log.read_from <= end)):
        return Identity.SAME
    if log.first is not None and log.first[0] == earlier.producer_epoch and 0 <= log.first[1] <= earlier.last_sequence:
        return Identity.SAME
    return Identity.UNKNOWN


def identified(send: Send, agreed: AgreedMetadata, key: Key, earlier: Seen, later: Seen) -> Identity:
    """The same, with a read of the log from the partition's proven leader. Unknown if the read fails."""
    try:
        partition = agreed.partition(*key)
        log_start = list_offsets(send, partition.leader, [partition], Offset.LOG_START)[partition.key]
        if log_start.failure is not None:
            return Identity.UNKNOWN
        return identity(earlier, later, _between(send, partition, log_start.offset, earlier, later))
    except (RequestFailed, LeaderUnknown):
        return Identity.UNKNOWN


def _between(send: Send, partition: Partition, log_start: int, earlier: Seen, later: Seen) -> Between:
    """Reads the log up to the later start offset. Raises RequestFailed."""
    offset = log_start if earlier.end_offset is None else max(log_start, earlier.end_offset)
    found = Between(log_start, offset, marker=False, whole=False)
    if log_start <= earlier.start_offset or later.start_offset < offset:
        return found
    reading, expected, missing = Reading("it"), offset, False
    while reading.size_bytes < BYTES_MAX:
        fetched = fetch(send, partition, offset, PIECE_BYTES, records=False)
        for batch in fetched.batches:
            ours = batch.producer_id == later.producer_id
            if batch.last_offset >= later.start_offset:
                missing = missing or batch.base_offset > expected
                data = ours and not batch.is_control and batch.base_offset == later.start_offset
                first = (batch.producer_epoch, batch.base_sequence) if data else None
                return replace(found, whole=data and not missing, first=first)
            if ours and batch.is_control:
                return replace(found, marker=True)
            # A compacted batch keeps its offsets, and has fewer records.
            missing = missing or batch.base_offset > expected
            expected = batch.last_offset + 1
        reached = fetched.next_offset(offset)
        if reading.is_done(offset, reached, fetched.high_watermark, fetched.size_bytes):
            return found
        offset = reached
    return found


def continued(
    observations: Iterable[Observation],
    incidents: Incidents,
    ask: Callable[[Observation, Seen], Identity],
    unsure: Callable[[Key], None],
) -> list[Observation]:
    """The observations. An observation that continues an incident with another key has the topic id and start offset
    of the incident's key.

    ask: whether an observed transaction is this earlier one. unsure: called with the partition of each incident that
    may go on, although no observation continues it.
    """
    of_producer: dict[tuple[str, int, int], list[TransactionKey]] = defaultdict(list)
    for which in incidents:
        of_producer[_producer(which)].append(which)
    found = []
    for o in observations:
        ours = o.transaction_key
        same = None
        for which in of_producer[_producer(ours)]:
            if which == ours or not _one_topic(which, incidents[which], o):
                continue
            answer = ask(o, _seen(which, incidents[which]))
            if answer is Identity.SAME and same is None and ours not in incidents:
                same = which
            elif answer is not Identity.ANOTHER:
                unsure(o.key)
        renamed = same is not None and same.start_offset != o.start_offset
        found.append(
            o
            if same is None
            else replace(
                o,
                incident_offset=same.start_offset if renamed else None,
                incident_topic_id=None if same.topic_id == o.topic_id else same.topic_id,
            )
        )
    return found


def _producer(which: TransactionKey) -> tuple[str, int, int]:
    return (which.topic, which.partition, which.producer_id)


def _one_topic(which: TransactionKey, incident: Incident, o: Observation) -> bool:
    """Whether an incident and an observation may be of the same topic."""
    if which.topic_id != o.topic_id and "" not in (which.topic_id, o.topic_id):
        return False
    proven = next((read for read in (o.second, o.first) if read.failure is None), None)
    if proven is None:
        return True
    now = LogPosition(o.topic, o.topic_id, o.partition, o.leader_epoch, proven.high_watermark)
    return not is_of_other_log(incident.position(which), now)


def _seen(which: TransactionKey, incident: Incident) -> Seen:
    return Seen(
        which.producer_id, incident.producer_epoch, which.start_offset, incident.last_sequence, incident.end_offset
    )


def seen_of(o: Observation, end_offset: int | None = None) -> Seen:
    """The open transaction of an observation."""
    return Seen(o.producer_id, o.producer_epoch, o.start_offset, o.last_sequence, end_offset)


def replaced(o: Observation, ask: Callable[[Observation, Seen, Seen], Identity]) -> Observation:
    """The observation. If its second read shows another start offset, `is_replaced` says whether that is another
    transaction. ask: whether two transactions, by these reads, are one.
    """
    second = o.second
    if second.failure is not None or second.start_offset in (None, o.start_offset):
        return o
    epoch = _UNKNOWN_EPOCH if second.producer_epoch is None else second.producer_epoch
    sequence = -1 if second.last_sequence is None else second.last_sequence
    later = Seen(o.producer_id, epoch, second.start_offset, sequence, second.high_watermark)
    return replace(o, is_replaced=ask(o, seen_of(o, o.first.high_watermark), later) is Identity.ANOTHER)
