"""The time up to which `read_committed` consumers can read everything of a topic. Pure.

A read of a partition is two ListOffsets to one broker at one leader epoch: first the high watermark, then the last
stable offset. Its time is the sweeper's clock before the first request. The theory:

1. Leader. ListOffsets with a leader epoch succeeds only on a broker that leads at that epoch. If all brokers name this
   leader and epoch after the read, no later leader has accepted a record before the end of the read.
2. High watermark. A record that was acknowledged (acks=all) before the time of the read is below its high watermark, or
   not in the log any more. In a leader epoch the high watermark never falls. A new leader answers only when its high
   watermark has reached the end that its log had at its election (KIP-207).
3. Last stable offset. A record below it belongs to no open transaction, and its marker is replicated. So it is readable
   or aborted.
4. If the high watermark of a read is at or below the last stable offset of a later read, everything that was
   acknowledged before the first read is readable. This includes the read itself.
5. Order. Clocks do not order reads. Leader epochs only rise. So another read counts only at the same leader epoch, or
   at a lower one. In the same epoch the order does not matter: no record below the last stable
   offset changes. After an election the records may be others (unclean election), but all of them are decided.
6. Topic. Reads of another topic id never count. Without topic ids, only the read itself counts.
7. Clock. A time counts only if it is not after the time of the read that shows it, and if no read that is provably
   later has an earlier time. Otherwise one of the two clocks is wrong.
8. A topic is complete up to the earliest time of its partitions. If a partition has no proven read, the topic
   is not observed.

Evidence that this module does not use:

- DescribeProducers. A partition without an open transaction may still have an unreplicated marker. Until its followers
  have it, the last stable offset does not move.
- Timestamps of records. Clients write them.

The claim does not cover records with acks=0 or acks=1 that are not replicated yet, and records that retention or
DeleteRecords removed. Times are as right as the sweeper's clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum


class Completeness(StrEnum):
    """The state of a topic. COMPLETE: up to the time of the read. BLOCKED: only up to an earlier time. NOT_OBSERVED: a
    partition has no proven read.
    """

    COMPLETE = "complete"
    BLOCKED = "blocked"
    NOT_OBSERVED = "not_observed"


class GateState(StrEnum):
    """Whether a topic is complete up to a time. NOT_YET: the time is after the read, and no open
    transaction blocks the topic.
    """

    COMPLETE = "complete"
    BLOCKED = "blocked"
    NOT_YET = "not_yet"
    NOT_OBSERVED = "not_observed"


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of a partition at a proven read: records that were acknowledged before `read_at_ms` are below the high
    watermark.
    """

    read_at_ms: int
    leader_epoch: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """A read of a partition. code: why it is not proven, or None. mark: the latest mark that this read shows to be
    readable, by `concluded`.
    """

    partition: int
    leader_epoch: int = -1
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    code: str | None = None
    mark: Mark | None = None

    @property
    def blocked_records(self) -> int | None:
        """Offsets from the last stable offset to the high watermark; None if the read is not proven."""
        if self.high_watermark is None or self.last_stable_offset is None:
            return None
        return max(self.high_watermark - self.last_stable_offset, 0)

    def own_mark(self, read_at_ms: int) -> Mark | None:
        """The mark of this read; None if it is not proven."""
        if self.code is not None or self.high_watermark is None or self.last_stable_offset is None:
            return None
        return Mark(read_at_ms, self.leader_epoch, self.high_watermark)


@dataclass(frozen=True, slots=True)
class TopicRead:
    """A read of all partitions of a topic. read_at_ms: the sweeper's clock before the first request. topic_id: empty
    if it is not known. code: why the partitions are not known, or None.
    """

    topic: str
    topic_id: str
    read_at_ms: int
    partitions: tuple[PartitionRead, ...] = ()
    code: str | None = None

    @property
    def failures(self) -> Mapping[int | None, str]:
        """The code of each partition without a proven read; None stands for the topic."""
        found: dict[int | None, str] = {} if self.code is None else {None: self.code}
        return found | {one.partition: one.code for one in self.partitions if one.code is not None}

    @property
    def status(self) -> Completeness:
        if self.failures or not self.partitions:
            return Completeness.NOT_OBSERVED
        return Completeness.COMPLETE if self.complete_up_to_ms == self.read_at_ms else Completeness.BLOCKED

    @property
    def complete_up_to_ms(self) -> int | None:
        """The time up to which all partitions are readable; None if it is not known."""
        marks = [one.mark for one in self.partitions if one.mark is not None]
        if self.failures or not marks or len(marks) < len(self.partitions):
            return None
        return min(mark.read_at_ms for mark in marks)

    def state(self, until_ms: int) -> GateState:
        """Whether the topic is complete up to this time."""
        if self.status is Completeness.NOT_OBSERVED:
            return GateState.NOT_OBSERVED
        if self.complete_up_to_ms is not None and self.complete_up_to_ms >= until_ms:
            return GateState.COMPLETE
        return GateState.NOT_YET if self.status is Completeness.COMPLETE else GateState.BLOCKED

    def holding(self, until_ms: int) -> tuple[PartitionRead, ...]:
        """The partitions that are read and not complete up to this time."""
        return tuple(
            one for one in self.partitions if one.code is None and (one.mark is None or one.mark.read_at_ms < until_ms)
        )

    @property
    def blocked(self) -> tuple[PartitionRead, ...]:
        """The partitions that are not readable up to the time of this read."""
        return tuple(one for one in self.partitions if one.code is None and one.blocked_records)


def concluded(read: TopicRead, earlier: Iterable[TopicRead] = ()) -> TopicRead:
    """The read, with the mark of each partition. earlier: other reads of topics, in any order. Fewer of them give an
    earlier time, never a wrong one.
    """
    known = _marks(read, earlier)
    partitions = tuple(
        replace(one, mark=_latest(one, read.read_at_ms, known.get(one.partition, ()))) for one in read.partitions
    )
    return replace(read, partitions=partitions)


def _marks(read: TopicRead, earlier: Iterable[TopicRead]) -> Mapping[int, Sequence[Mark]]:
    """The marks of earlier reads of the same topic, by partition."""
    found: dict[int, list[Mark]] = defaultdict(list)
    for other in earlier:
        if not read.topic_id or (other.topic, other.topic_id) != (read.topic, read.topic_id):
            continue
        for one in other.partitions:
            marks = (one.own_mark(other.read_at_ms), one.mark)
            found[one.partition].extend(mark for mark in marks if mark is not None)
    return found


def _latest(one: PartitionRead, read_at_ms: int, earlier: Sequence[Mark]) -> Mark | None:
    """The latest mark that this read shows to be readable."""
    own = one.own_mark(read_at_ms)
    if own is None or one.last_stable_offset is None:
        return None
    readable = [
        mark
        for mark in _consistent([own, *earlier])
        if mark.read_at_ms <= read_at_ms
        and mark.leader_epoch <= one.leader_epoch
        and mark.high_watermark <= one.last_stable_offset
    ]
    return max(readable, key=lambda mark: mark.read_at_ms, default=None)


def _consistent(marks: Iterable[Mark]) -> list[Mark]:
    """The marks without those whose time is after the time of a provably later mark."""
    found: list[Mark] = []
    earliest_ms: float = float("inf")
    position: tuple[int, int] | None = None
    # Marks at one position are not ordered among themselves.
    same: list[Mark] = []
    for mark in sorted(marks, key=_position, reverse=True):
        if _position(mark) != position:
            earliest_ms = min([earliest_ms, *(one.read_at_ms for one in same)])
            position, same = _position(mark), []
        same.append(mark)
        if mark.read_at_ms <= earliest_ms:
            found.append(mark)
    return found


def _position(mark: Mark) -> tuple[int, int]:
    return (mark.leader_epoch, mark.high_watermark)
