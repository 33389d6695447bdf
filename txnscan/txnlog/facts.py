"""Facts about a producer id: records of the transaction log, markers and completed commits. They are stored as they
were read, and decoded on use.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from txnscan.kafka.answers import EpochEnd, State
from txnscan.kafka.topology import Key, Partition

# A partition of `__transaction_state` under one leader: topic id, partition, leader epoch.
LogAtEpoch = tuple[str, int, int]


def at_epoch(log: Partition) -> LogAtEpoch:
    """The partition under its current leader."""
    return (log.topic_id, log.partition, log.leader_epoch)


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record of `__transaction_state`, not decoded. value: None for a tombstone. contiguous_from: the read missed no
    offset from there up to this record. leader_epoch: of the record's batch. If two logs have a record at the same
    offset with the same leader epoch, they are the same up to that offset (KIP-101).
    """

    offset: int
    contiguous_from: int
    transactional_id: str
    value: bytes | None
    leader_epoch: int = -1

    def is_same(self, other: RawRecord | None) -> bool:
        """Whether the other record is the same record, possibly from another read."""
        return other is not None and replace(other, contiguous_from=self.contiguous_from) == self


@dataclass(frozen=True, slots=True)
class LogRead:
    """A fact: the records of one transactional id in one read of a partition of `__transaction_state`.

    topic_id: of `__transaction_state`, which may have been created again since. leader_epoch: of the leader that served
    the read. end_offset: the high watermark up to which it read. records: the id's records from its first record with a
    wanted producer id on, and the record before that. epoch_ends: the ends of leader epochs that earlier reads show, by
    the batches that the log still has. answered_ends: the ends of the same epochs by the leader's answer
    (OffsetForLeaderEpoch). sweep_id, swept_at_ms: the sweep that read it, and its start time; empty and -1 until that
    sweep ends. epochs_rise: whether the cluster's features show that leader epochs rise at every restart of a leader
    (`elections.py`).
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
    epochs_rise: bool = False

    def __str__(self) -> str:
        return f"sweep {self.sweep_id} of {datetime.fromtimestamp(self.swept_at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True, slots=True)
class ScannedLog:
    """How far a partition of `__transaction_state` was read at a leader epoch: from its start up to this offset.

    transactional_ids: all ids that, up to that offset, ever had the producer id.
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
    """A fact: a COMMIT marker on a partition."""

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
    """A fact: a coordinator described an id as CompleteCommit, with this producer id and epoch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"a sweep saw '{self.transactional_id}' in CompleteCommit at epoch {self.producer_epoch}"


@dataclass(frozen=True, slots=True)
class SentMarker:
    """A fact: a marker that txnscan was about to send."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class ClosedProducer:
    """A fact: the leader of a partition listed a producer without an open transaction. producer_epoch,
    coordinator_epoch: of its last marker (`signs_of_loss.py`); -1 without a marker.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int

    @property
    def marker(self) -> SentMarker:
        """Its last marker."""
        return SentMarker(self.topic, self.partition, self.producer_id, self.producer_epoch)

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} has a marker of producer id {self.producer_id} at epoch "
            f"{self.producer_epoch}, from a coordinator of leader epoch {self.coordinator_epoch}"
        )


@dataclass(frozen=True, slots=True)
class ProducerFacts:
    """All facts about a producer id from sweeps and applies: reads of ids that have had it, its markers, its completed
    commits, how far the log was read for it, partitions that list it as closed, and the markers that txnscan sent.
    reads_before, commits_before: of earlier histories of the cluster (`sweeps/restored.py`), which only veto. Markers
    and closed producers only veto in any case.
    """

    reads: tuple[LogRead, ...] = ()
    markers: tuple[SeenMarker, ...] = ()
    commits: tuple[SeenCommit, ...] = ()
    scans: tuple[LogScan, ...] = ()
    closed: tuple[ClosedProducer, ...] = ()
    sent: tuple[SentMarker, ...] = ()
    reads_before: tuple[LogRead, ...] = ()
    commits_before: tuple[SeenCommit, ...] = ()

    def __add__(self, other: ProducerFacts) -> ProducerFacts:
        """The facts of both, without duplicates."""
        return together([self, other])

    def only_vetoes(self) -> ProducerFacts:
        """These facts, after the history of the cluster went back."""
        return ProducerFacts(
            markers=self.markers,
            closed=self.closed,
            sent=self.sent,
            reads_before=(*self.reads_before, *self.reads),
            commits_before=(*self.commits_before, *self.commits),
        )

    def scanned(self) -> Mapping[LogAtEpoch, int]:
        """How far partitions of `__transaction_state` were read. While a leader leads, its log only loses records by
        compaction. A scan does not count if a part of what it read is not among these facts.
        """
        names: dict[LogAtEpoch, set[str]] = defaultdict(set)
        for read in self.reads:
            names[read.topic_id, read.partition, read.leader_epoch].add(read.transactional_id)
        ends: dict[LogAtEpoch, int] = {}
        for scan in self.scans:
            for one in scan.logs:
                which = (scan.topic_id, one.partition, one.leader_epoch)
                if names.get(which, frozenset()).issuperset(one.transactional_ids):
                    ends[which] = max(one.end_offset, ends.get(which, -1))
        return ends


# By producer id.
Facts = Mapping[int, ProducerFacts]

NO_FACTS = ProducerFacts()


def together(every: Sequence[ProducerFacts]) -> ProducerFacts:
    """All these facts, without duplicates. Their order does not matter."""
    return ProducerFacts(
        tuple(dict.fromkeys(read for one in every for read in one.reads)),
        tuple(dict.fromkeys(marker for one in every for marker in one.markers)),
        tuple(dict.fromkeys(commit for one in every for commit in one.commits)),
        tuple(dict.fromkeys(scan for one in every for scan in one.scans)),
        tuple(dict.fromkeys(closed for one in every for closed in one.closed)),
        tuple(dict.fromkeys(marker for one in every for marker in one.sent)),
        tuple(dict.fromkeys(read for one in every for read in one.reads_before)),
        tuple(dict.fromkeys(commit for one in every for commit in one.commits_before)),
    )


@dataclass(frozen=True, slots=True)
class LoggedTransaction:
    """A decoded record of `__transaction_state` about a transactional id.

    contiguous_from: the read missed no offset from there up to this record. client_version: the transactions version of
    the client that wrote to the transaction or ended it; 2 if an end raised the epoch; 0 if the record has no version.
    timeout_ms: of the id's transactions. unknown_fields: fields of a later Kafka that this version does not know.
    stored_by: the sweep that stored the record, if the log does not have it any more. leader_epoch: of the record's
    batch, -1 if it is not known. acknowledged: whether a read from the leader of that epoch shows the record, and so
    below its high watermark. log_epoch: the leader epoch of the newest read of the log, -1 if it is not known.
    epochs_rise: by the newest read, see LogRead. The
    tombstone of an expired id has the state Dead and no other data.
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
    leader_epoch: int = -1
    acknowledged: bool = False
    log_epoch: int = -1
    epochs_rise: bool = False

    def __str__(self) -> str:
        partitions = ", ".join(f"{topic}-{index}" for topic, index in sorted(self.partitions)) or "no partitions"
        unknown = f", with {' and '.join(self.unknown_fields)}, not known here" if self.unknown_fields else ""
        stored = f" (stored by {self.stored_by}; the log does not have it any more)" if self.stored_by else ""
        return (
            f"offset {self.offset}: '{self.transactional_id}' {self.state}, producer id {self.producer_id}, epoch "
            f"{self.producer_epoch}, transactions v{self.client_version}, {partitions}{unknown}{stored}"
        )
