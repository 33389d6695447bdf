"""Facts about a producer id: records of the transaction log, markers and completed commits. They are stored as they
were read, and decoded on use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from txnscan.kafka.answers import EpochEnd, State
from txnscan.kafka.topology import Key, Partition


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record of `__transaction_state`, not decoded. value: None for a tombstone. contiguous_from: from there up to
    this record no offset of the log is missing in what was read. leader_epoch: of its batch. Two logs that have a
    record at the same offset with the same leader epoch are the same up to there (KIP-101).
    """

    offset: int
    contiguous_from: int
    transactional_id: str
    value: bytes | None
    leader_epoch: int = -1

    def is_same(self, other: RawRecord | None) -> bool:
        """Whether the other one is this record, in whatever read it stands."""
        return other is not None and replace(other, contiguous_from=self.contiguous_from) == self


@dataclass(frozen=True, slots=True)
class LogRead:
    """A fact: what one read of a partition of `__transaction_state` showed of one transactional id.

    topic_id: of `__transaction_state`, which may have been made anew since. leader_epoch: of the leader that served the
    read. end_offset: the high watermark that it reached. records: all of the id from the first one of a wanted producer
    id on, and the one before. epoch_ends: of leader epochs that earlier reads show, by the batches that are left in the
    log. answered_ends: of the same epochs, by the leader's answer (OffsetForLeaderEpoch). sweep_id, swept_at_ms: the
    sweep that read it, and when that began; empty and -1 while it is under way.
    """

    topic_id: str
    partition: int
    leader_epoch: int
    end_offset: int
    transactional_id: str
    records: tuple[RawRecord, ...]
    epoch_ends: tuple[EpochEnd, ...] = ()
    answered_ends: tuple[EpochEnd, ...] = ()
    sweep_id: str = ""
    swept_at_ms: int = -1

    def __str__(self) -> str:
        return f"sweep {self.sweep_id} of {datetime.fromtimestamp(self.swept_at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True, slots=True)
class ScannedLog:
    """How far a partition of `__transaction_state` was read at a leader epoch: from its start up to this offset.

    transactional_ids: those that ever had the producer id, by all that the log had up to there.
    """

    partition: int
    leader_epoch: int
    end_offset: int
    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogScan:
    """A fact: how far a sweep read the transaction log for a producer id. topic_id: of `__transaction_state`."""

    topic_id: str
    logs: tuple[ScannedLog, ...]


@dataclass(frozen=True, slots=True)
class SeenMarker:
    """A fact: a COMMIT marker that stands on a partition."""

    topic: str
    partition: int
    offset: int
    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition}"
        return f"{where} has a COMMIT marker of producer id {self.producer_id} at offset {self.offset}"


@dataclass(frozen=True, slots=True)
class SeenCommit:
    """A fact: a coordinator described an id as CompleteCommit, when it had this producer id and epoch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"a sweep saw '{self.transactional_id}' in CompleteCommit at epoch {self.producer_epoch}"


@dataclass(frozen=True, slots=True)
class ProducerFacts:
    """What sweeps and applies have seen of a producer id: reads of ids that have had it, markers of it, completed
    commits of it, and how far the log was read for it.
    """

    reads: tuple[LogRead, ...] = ()
    markers: tuple[SeenMarker, ...] = ()
    commits: tuple[SeenCommit, ...] = ()
    scans: tuple[LogScan, ...] = ()

    def __add__(self, other: ProducerFacts) -> ProducerFacts:
        """All that both show, each fact once."""
        return ProducerFacts(
            tuple(dict.fromkeys((*self.reads, *other.reads))),
            tuple(dict.fromkeys((*self.markers, *other.markers))),
            tuple(dict.fromkeys((*self.commits, *other.commits))),
            tuple(dict.fromkeys((*self.scans, *other.scans))),
        )

    def scanned_to(self, log: Partition) -> int:
        """How far this partition of `__transaction_state` was read at the leader epoch that it has now, -1 where it was
        not, or not all that was read then is here. A leader keeps what it has while it leads, but for what it compacts.
        """
        ours = (log.topic_id, log.partition, log.leader_epoch)
        names = {r.transactional_id for r in self.reads if (r.topic_id, r.partition, r.leader_epoch) == ours}
        scanned = (
            (one.end_offset, names.issuperset(one.transactional_ids))
            for scan in self.scans
            for one in scan.logs
            if (scan.topic_id, one.partition, one.leader_epoch) == ours
        )
        return max((end_offset for end_offset, is_whole in scanned if is_whole), default=-1)


# By producer id.
Facts = Mapping[int, ProducerFacts]


NO_FACTS = ProducerFacts()


@dataclass(frozen=True, slots=True)
class LoggedTransaction:
    """A record of `__transaction_state`: what was written about an id at an offset.

    contiguous_from: from there up to this record no offset of the log is missing in what was read. client_version: the
    transactions version of the client that wrote to the transaction or ended it, 2 where an end raised the epoch; 0
    where it is not given. timeout_ms: of the id's transactions. unknown_fields: fields that a later Kafka wrote and
    that this version does not know. stored_by: the sweep that stored the record, where the log does not have it any
    more; else None. An id that expired has a tombstone: state Dead, with nothing else.
    """

    offset: int
    contiguous_from: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: State
    partitions: frozenset[Key]
    client_version: int
    start_time_ms: int
    updated_ms: int
    timeout_ms: int = -1
    unknown_fields: tuple[str, ...] = ()
    stored_by: str | None = None

    def __str__(self) -> str:
        partitions = ", ".join(f"{topic}-{index}" for topic, index in sorted(self.partitions)) or "no partitions"
        unknown = f", with {' and '.join(self.unknown_fields)}, not known here" if self.unknown_fields else ""
        stored = f" (stored by {self.stored_by}; the log does not have it any more)" if self.stored_by else ""
        return (
            f"offset {self.offset}: '{self.transactional_id}' {self.state}, producer id {self.producer_id}, epoch "
            f"{self.producer_epoch}, transactions v{self.client_version}, {partitions}{unknown}{stored}"
        )
