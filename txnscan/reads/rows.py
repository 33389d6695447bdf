"""What the reads of partitions are given, and what they return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from txnscan.kafka.answers import OpenProducer
from txnscan.kafka.failure import Failure
from txnscan.kafka.topology import Key, Partition

# Called with how many are done, of how many.
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Partitions to read, with proof, from one leader. `lane` numbers the queue that this batch waits in."""

    lane: int
    leader: int
    partitions: tuple[Partition, ...]

    @property
    def size(self) -> int:
        return len(self.partitions)


@dataclass(frozen=True, slots=True)
class WideBatch:
    """Partitions to describe in one request to one leader, numbers by topic. `lane` numbers the queue that this batch
    waits in.
    """

    lane: int
    leader: int
    indexes: Mapping[str, tuple[int, ...]]

    @property
    def size(self) -> int:
        return sum(map(len, self.indexes.values()))


@dataclass(frozen=True, slots=True)
class WideRow:
    """What the wide read sends back: a partition with open transactions, a partition with a failure, or a count.

    A count row has no topic; its `answered`, `producers` and `read_bytes`, the size of the answer, cover every
    partition of one request.
    """

    leader: int
    topic: str | None = None
    partition: int | None = None
    answered: int = 0
    producers: int = 0
    read_bytes: int = 0
    open_producers: tuple[OpenProducer, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class FencedRow:
    """One partition read between two ListOffsets at a leader epoch (proof obligation L).

    `failure` is None exactly when the answers prove that they came from the leader at `leader_epoch`.
    """

    topic: str
    topic_id: str
    partition: int
    leader: int
    leader_epoch: int
    read_at_ms: int
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    open_producers: tuple[OpenProducer, ...] = ()
    failure: Failure | None = None

    @property
    def key(self) -> Key:
        return (self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class OffsetsRow:
    """A partition's high watermark and last stable offset, as its leader reports them: without proof."""

    topic: str
    partition: int
    high_watermark: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class LogBatch:
    """A partition of `__transaction_state` to read from its leader, for the ids that ever had one of these producer
    ids. `lane` numbers the queue that this batch waits in.

    scanned_to: an earlier read at the same leader epoch came so far. What was appended since is looked through for
    records of these producer ids and of `names`, the ids that had one of them; -1 where the whole log is to be read.
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
