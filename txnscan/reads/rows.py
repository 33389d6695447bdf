"""The inputs and results of reads of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from txnscan.kafka.answers import OpenProducer
from txnscan.kafka.failure import Failure
from txnscan.kafka.topology import Key, Partition


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Partitions to read with proof from one leader. `lane` is the number of the batch's queue."""

    lane: int
    leader: int
    partitions: tuple[Partition, ...]

    @property
    def size(self) -> int:
        return len(self.partitions)


@dataclass(frozen=True, slots=True)
class WideBatch:
    """Partitions to describe in one request to one leader, as partition numbers by topic. `lane` is the number of the
    batch's queue. producer_ids: the producers to keep although they have no open transaction. with_ended: whether to
    count the producers that have ended a transaction.
    """

    lane: int
    leader: int
    indexes: Mapping[str, tuple[int, ...]]
    producer_ids: tuple[int, ...] = ()
    with_ended: bool = False

    @property
    def size(self) -> int:
        return sum(map(len, self.indexes.values()))


@dataclass(frozen=True, slots=True)
class WideRow:
    """A partition of the wide read: with open transactions, with closed producers of `WideBatch.producer_ids`, with
    producers that have ended a transaction, or with a failure.

    ended, newest_ended_ms: see `EndedProducers` in `kafka/protocol/describe_producers.py`.
    """

    leader: int
    topic: str
    partition: int
    open_producers: tuple[OpenProducer, ...] = ()
    closed_producers: tuple[OpenProducer, ...] = ()
    failure: Failure | None = None
    ended: int = 0
    newest_ended_ms: int = -1

    @property
    def key(self) -> Key:
        return (self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class WideAnswer:
    """What a leader answered for a WideBatch. answered: the number of partitions without a failure. producers: their
    number, on all partitions. read_bytes: the size of the answer. rows: the partitions that have something to say.
    """

    answered: int
    producers: int
    read_bytes: int
    rows: tuple[WideRow, ...]


@dataclass(frozen=True, slots=True)
class ProvenRow:
    """One partition, read between two ListOffsets at a leader epoch (the proof obligation leader, `proven_read.py`).

    last_stable_offset: readers of read_committed get nothing from there on. After the second read of a sweep it may be
    below the log start; `sweeps/enrichment.py` then reads the offsets again.
    `failure` is None exactly if the answers prove that they came from the leader at `leader_epoch`; in the first or the
    second read of a sweep, if both have none.
    """

    topic: str
    topic_id: str
    partition: int
    leader: int
    leader_epoch: int
    read_at_ms: int
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    open_producers: tuple[OpenProducer, ...] = ()
    failure: Failure | None = None

    @property
    def key(self) -> Key:
        return (self.topic, self.partition)

    @property
    def led(self) -> Partition:
        """The partition, with the leader that was asked and its leader epoch."""
        return Partition(self.topic, self.topic_id, self.partition, self.leader, self.leader_epoch)


@dataclass(frozen=True, slots=True)
class OffsetsRow:
    """A partition's high watermark and last stable offset, as its leader reports them, without proof. The last
    stable offset is not below the log start.
    """

    topic: str
    partition: int
    high_watermark: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class LogBatch:
    """A partition of `__transaction_state` to read from its leader, for the ids that ever had one of these producer
    ids. `lane` is the number of the batch's queue.

    scanned_to: the end of an earlier read at the same leader epoch. Only the records appended since are searched, for
    these producer ids and for `names`, the ids that had any of them. -1 if the whole log must be read.
    """

    lane: int
    leader: int
    partitions: tuple[Partition, ...]
    producer_ids: tuple[int, ...]
    scanned_to: int = -1
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return 1
