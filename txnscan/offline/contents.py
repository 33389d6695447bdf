"""The data types: the files, and the content of one replica's files."""

from __future__ import annotations

from dataclasses import dataclass, field

from txnscan.kafka.topology import Key
from txnscan.offline.live_broker import FileStates
from txnscan.offline.producer_snapshots import NONE, Begun, Figures, ProducerState

METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class FileError:
    """A file that could not be read, or is invalid, and why."""

    path: str
    error: str


@dataclass(slots=True)
class LogDirectory:
    """A log directory (`log.dirs`) of a broker, according to its own files.

    directory_id: since Kafka 3.7. clean: the broker has recorded a clean shutdown; it removes that record when it
    starts. broker_epoch: its epoch in that record, since Kafka 3.7. offsets: the checkpoints that could be read, by
    name. watermarks_ms: when the checkpoint of high watermarks was written, by the file system, or -1. listed: whether
    the user gave the whole directory, so that a partition without a folder is missing.
    """

    path: str
    cluster_id: str | None = None
    broker_id: int | None = None
    directory_id: str | None = None
    clean: bool = False
    broker_epoch: int | None = None
    offsets: dict[str, dict[Key, int]] = field(default_factory=dict)
    watermarks_ms: int = -1
    listed: bool = False


@dataclass(slots=True)
class ReplicaFiles:
    """The files of one replica of a partition.

    whole: the user gave the directory, not single files in it. indexes: the transaction indexes; offset_indexes,
    time_indexes: the others. written_ms: when one of its segments was last written, by the file system. changed_ms:
    when that happened, or a file came or went. error: why the directory could not be listed.
    """

    directory: str
    key: Key | None
    whole: bool
    segments: dict[int, str] = field(default_factory=dict)
    snapshots: dict[int, str] = field(default_factory=dict)
    indexes: dict[int, str] = field(default_factory=dict)
    offset_indexes: dict[int, str] = field(default_factory=dict)
    time_indexes: dict[int, str] = field(default_factory=dict)
    checkpoints: dict[int, str] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    going: list[str] = field(default_factory=list)
    log_directory: LogDirectory | None = None
    written_ms: int = -1
    changed_ms: int = -1
    error: str | None = None

    @property
    def name(self) -> str:
        """Its partition; if that is unknown, its directory."""
        return f"{self.key[0]}-{self.key[1]}" if self.key is not None else self.directory


@dataclass(slots=True)
class Found:
    """All files below the paths.

    newest_ms: when the newest file was last written, by the file system. seen: the state of files and directories
    before they were read. unlisted: a directory that could not be listed and may have any files of a broker, if any.
    """

    replicas: list[ReplicaFiles] = field(default_factory=list)
    log_directories: list[LogDirectory] = field(default_factory=list)
    going: list[str] = field(default_factory=list)
    errors: list[FileError] = field(default_factory=list)
    newest_ms: int = -1
    seen: FileStates = field(default_factory=FileStates)
    unlisted: str | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment file, and what the index files beside it show.

    end_offset: the offset after its last batch. indexed_until: the offset after the newest record in its index files,
    or -1; index: the file with that entry. timed_until: the same for its time index alone, which every closed segment
    has.
    """

    base_offset: int
    end_offset: int
    indexed_until: int = NONE
    index: str = ""
    timed_until: int = NONE


@dataclass(frozen=True, slots=True)
class Replica:
    """The content of one replica's files.

    segments: the files that were read, by offset. log_start_offset: all data below was deleted, or moved to tiered
    storage up to `moved_until`. started: by the broker's checkpoint. log_end_offset: the offset after the last one
    read. high_watermark: from the broker's checkpoint, a lower bound; -1 if not known, like the other checkpoints.
    leader_epochs: each with its first offset, in order. producers: all, as DescribeProducers reports them.
    start_unknown: why unseen transactions may be open, if so. unproven: why the data from `log_end_offset` on is
    unknown, if it is. gap_until: below this offset, data is missing within the log, or -1. unread_at: the last control
    batch that no broker writes, and that may have ended a transaction, or -1. snapshot_offset: the snapshot that the
    producer state begins with, or -1. aborted_rows: in the transaction indexes.
    """

    directory: str
    key: Key | None
    broker_id: int | None
    topic_id: str | None
    segments: tuple[Segment, ...]
    size_bytes: int
    log_start_offset: int
    started: int
    log_end_offset: int
    last_stable_offset: int
    high_watermark: int
    cleaned_until: int
    recovery_point: int
    moved_until: int
    leader_epochs: tuple[tuple[int, int], ...]
    snapshot_offset: int
    producers: tuple[ProducerState, ...]
    begun: dict[int, Begun]
    figures: Figures
    start_unknown: str | None
    unproven: str | None
    gap_until: int
    unread_at: int
    aborted_rows: int
    errors: tuple[FileError, ...]
    files: ReplicaFiles = field(repr=False)

    @property
    def name(self) -> str:
        """Its partition; if that is unknown, its directory."""
        return self.files.name

    @property
    def leader_epoch(self) -> int:
        """The latest leader epoch, or -1."""
        return self.leader_epochs[-1][0] if self.leader_epochs else NONE

    @property
    def open(self) -> tuple[ProducerState, ...]:
        """The producers with an open transaction, ordered by its start."""
        found = [one for one in self.producers if one.start_offset >= 0]
        return tuple(sorted(found, key=lambda one: (one.start_offset, one.producer_id)))

    def doubt(self, one: ProducerState) -> str | None:
        """Why this replica does not prove that the transaction is still open at its end, if so."""
        if self.unproven is not None:
            return f"nothing is known from offset {self.log_end_offset} on: {self.unproven}"
        if self.gap_until > max(one.start_offset, self.snapshot_offset):
            return f"what stood before offset {self.gap_until} is missing here, and its marker may have been in it"
        if self.unread_at > max(one.start_offset, self.snapshot_offset):
            return f"at offset {self.unread_at} stands a control batch that no broker writes, which may have ended it"
        return None

    @property
    def compaction_stuck(self) -> bool:
        """Whether an open transaction prevents the further cleaning of a compacted partition."""
        return bool(self.open) and self.cleaned_until > NONE and self.last_stable_offset < self.log_end_offset
