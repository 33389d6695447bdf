"""Decide whether the history of a cluster went back, so that stored facts prove nothing any more. Pure.

Theory
======
A cluster may be restored from copies of its disks, a clone of it may be swept into the same tables, and a log may lose
acknowledged records. Then the cluster has another history than the one that earlier sweeps saw, under the same cluster
id, topic ids, offsets and epochs. So stored facts may be wrong about it: an incident that ended is open again, a commit
was never written, an age is of another transaction.

In one history some positions never fall. A stored position was read by a sweep that ended before the position of now
was read, so no clock is needed. Each of these falls shows another history:

- **image_offset**: the highest offset of a metadata image that any broker reports, if every broker of the cluster
  answers. Brokers apply committed records of the metadata log alone, so a lower offset means that this log lost some.
  (Outside KRaft mode brokers report none.)
- **leader_epoch**: the leader epoch of a partition, if all brokers agree on it. Controllers only raise it.
- **high_watermark**: the high watermark of a proven read. It never falls while a leader leads. A new leader has all
  records below the earlier high watermark, and answers ListOffsets only when its own has reached the end that its log
  had at the election (KIP-207).
- **epoch_end**: the end of a leader epoch that is over, below a high watermark of that epoch. All records
  below the high watermark were in the log of each later leader, which writes its own after them. So the next
  later epoch begins at the high watermark or after it, also if the leader has no record of the epoch any more
  (OffsetForLeaderEpoch; an epoch may seem to end later than it did, never earlier). This shows a lost end of a log also
  after the log has grown beyond it, if the leader epoch rose.
- **open_again**: a transaction is open whose end a read has proven at the same leader epoch. A leader does not
  open a transaction again. (At a later leader epoch the marker may not have been replicated, which loses nothing.)

These prove nothing, and are not compared:

- the end of a log: it falls in ordinary elections;
- positions of another topic id: the topic was created again. An empty topic id is unknown: a lower position shows that
  the log is another one (`is_of_other_log`), and not whether its topic is;
- the offset of a single broker's image: that broker may lag;
- two positions without an order between them: of concurrent sweeps, or by clocks.

A fall is noticed as long as the new history has not passed the stored position. (The end of a leader epoch that is
over stays.) A clone whose positions are all above
the stored ones is not noticed (docs/trust.md). Even then a stored outcome proves nothing if the histories have
different records of the id: a sweep that resumes its read of the log looks whether the last stored record still stands
(`log_reads.py`; no two histories write the same record at the same time). If all brokers that answer are cut off from a
broker that is ahead of them, this looks like a fall. Then facts are not believed that might have been: that costs time,
and no data.

What follows
------------
**Facts prove only within their history; they veto in every one.** Histories have numbers. Every stored row has the
number of the history in which it was learned. A sweep that notices a fall begins the next one, and its `sweeps` row
stores that. In a new history no earlier fact shows an age, an end, an outcome or a mark of `gate`. A commit that an
earlier history shows still forbids an ABORT of data that may be part of it, unless the operator has said that the
earlier histories are over (`--new-history`). To believe too few facts is always sound (`verdict/outcome.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from txnscan.reads.observation import TransactionKey

# Names the finding in texts.
HISTORY_WENT_BACK = "the cluster's history went back"
# At most this many positions are stored of a sweep. Fewer notice fewer falls.
POSITIONS_MAX = 1_000
# A partition: its topic id, and its number.
PartitionOfTopicId = tuple[str, int]


class Sign(StrEnum):
    """What fell."""

    IMAGE_OFFSET = "image_offset"
    LEADER_EPOCH = "leader_epoch"
    HIGH_WATERMARK = "high_watermark"
    EPOCH_END = "epoch_end"
    OPEN_AGAIN = "open_again"


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The leader epoch of a partition that all brokers agreed on. high_watermark: of a proven read at that epoch, None
    if there was none.
    """

    topic: str
    topic_id: str
    partition: int
    leader_epoch: int
    high_watermark: int | None = None

    @property
    def of(self) -> PartitionOfTopicId:
        """The partition, the same as long as the topic exists."""
        return (self.topic_id, self.partition)


@dataclass(frozen=True, slots=True)
class Past:
    """The stored positions of a cluster.

    history: the number of its present history. vetoes_from: the first history whose facts still veto. image_offset: the
    highest one that a sweep of this history stored. positions: of sweeps of this history, in any order. ended: the
    leader epoch at which a sweep of this history proved the end of a transaction.
    """

    history: int = 0
    vetoes_from: int = 0
    image_offset: int | None = None
    positions: tuple[LogPosition, ...] = ()
    ended: Mapping[TransactionKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Present:
    """The positions of a cluster now, all read after the stored ones.

    image_offset: the highest one, None if a broker did not report one. epoch_ends: the ends of leader epochs that are
    over: where the first later one begins. still_open: the leader epochs of proven reads that show these transactions
    open.
    """

    image_offset: int | None = None
    positions: tuple[LogPosition, ...] = ()
    epoch_ends: Mapping[tuple[PartitionOfTopicId, int], int] = field(default_factory=dict)
    still_open: Mapping[TransactionKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fall:
    """A position that is lower now than it was. where: its partition, None for the metadata log."""

    sign: Sign
    before: int
    now: int
    where: str | None = None

    def __str__(self) -> str:
        where = f" of {self.where}" if self.where is not None else ""
        if self.sign is Sign.OPEN_AGAIN:
            return f"a transaction{where} is open again at leader epoch {self.now}, at which its end was proven"
        return f"{_NAMES[self.sign]}{where} is {self.now}, and was {self.before} or more"


_NAMES = {
    Sign.IMAGE_OFFSET: "the offset of the newest metadata image",
    Sign.LEADER_EPOCH: "the leader epoch",
    Sign.HIGH_WATERMARK: "the high watermark",
    Sign.EPOCH_END: "the end of an earlier leader epoch",
}


def fall(past: Past, now: Present) -> Fall | None:
    """The first fall, if there is one."""
    if past.image_offset is not None and now.image_offset is not None and now.image_offset < past.image_offset:
        return Fall(Sign.IMAGE_OFFSET, past.image_offset, now.image_offset)
    here = {one.of: one for one in now.positions}
    for before in past.positions:
        found = here.get(before.of) if before.topic_id else None
        fell = _fall_of(before, found, now.epoch_ends) if found is not None else None
        if fell is not None:
            return fell
    for which, epoch in past.ended.items():
        if which.topic_id and now.still_open.get(which) == epoch:
            return Fall(Sign.OPEN_AGAIN, epoch, epoch, f"{which.topic}-{which.partition}")
    return None


def is_of_other_log(before: LogPosition, now: LogPosition) -> bool:
    """Whether the log of a topic without a known id is no longer the log of this earlier position: its topic was
    created again, or the history of the cluster went back. Without topic ids both look the same.
    """
    return "" in (before.topic_id, now.topic_id) and _fall_of(before, now, {}) is not None


def _fall_of(before: LogPosition, now: LogPosition, ends: Mapping[tuple[PartitionOfTopicId, int], int]) -> Fall | None:
    where = f"{now.topic}-{now.partition}"
    if now.leader_epoch < before.leader_epoch:
        return Fall(Sign.LEADER_EPOCH, before.leader_epoch, now.leader_epoch, where)
    mark = before.high_watermark
    if mark is None:
        return None
    if now.high_watermark is not None and now.high_watermark < mark:
        return Fall(Sign.HIGH_WATERMARK, mark, now.high_watermark, where)
    end = ends.get((before.of, before.leader_epoch))
    if now.leader_epoch > before.leader_epoch and end is not None and end < mark:
        return Fall(Sign.EPOCH_END, mark, end, where)
    return None


def over_since(past: Past, positions: Iterable[LogPosition]) -> dict[PartitionOfTopicId, frozenset[int]]:
    """The leader epochs to ask for, by partition: those that are over now, with a stored high watermark."""
    here = {one.of: one for one in positions}
    found: dict[PartitionOfTopicId, set[int]] = {}
    for before in past.positions:
        now = here.get(before.of) if before.topic_id else None
        if now is not None and before.high_watermark is not None and before.leader_epoch < now.leader_epoch:
            found.setdefault(before.of, set()).add(before.leader_epoch)
    return {of: frozenset(epochs) for of, epochs in found.items()}


def latest_of(pasts: Iterable[Past]) -> Past:
    """The stored positions of several stores of one cluster: those of the latest history, together."""
    found = list(pasts)
    history = max((one.history for one in found), default=0)
    same = [one for one in found if one.history == history]
    offsets = [one.image_offset for one in same if one.image_offset is not None]
    return Past(
        history,
        max((one.vetoes_from for one in found), default=0),
        max(offsets, default=None),
        tuple(dict.fromkeys(position for one in same for position in one.positions)),
        {which: epoch for one in same for which, epoch in one.ended.items()},
    )


def together_positions(positions: Iterable[LogPosition]) -> tuple[LogPosition, ...]:
    """One position of each partition: the last one read. At most as many as are stored."""
    return tuple({one.of: one for one in positions if one.topic_id}.values())[:POSITIONS_MAX]
