"""The nouns: which files there are, and what those of one replica say."""

from __future__ import annotations

from dataclasses import dataclass, field

from txnscan.kafka.topology import Key
from txnscan.offline.producer_snapshots import NONE, Begun, Figures, ProducerState
from txnscan.offline.running import Seen

METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class FileError:
    """A file that could not be read, or makes no sense, and why."""

    path: str
    error: str


@dataclass(slots=True)
class LogDirectory:
    """A log directory (`log.dirs`) of a broker, as its own files say. clean: the broker wrote down that it had shut
    down in good order, which it takes back when it starts.
    """

    path: str
    cluster_id: str | None = None
    broker_id: int | None = None
    clean: bool = False
    offsets: dict[str, dict[Key, int]] = field(default_factory=dict)


@dataclass(slots=True)
class ReplicaFiles:
    """The files of one replica of a partition. whole: the directory was given, and not some of its files. written_ms:
    when one of its segments was last written, by the file system. error: why the directory could not be listed.
    """

    directory: str
    key: Key | None
    whole: bool
    segments: dict[int, str] = field(default_factory=dict)
    snapshots: dict[int, str] = field(default_factory=dict)
    indexes: dict[int, str] = field(default_factory=dict)
    checkpoints: dict[int, str] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    going: list[str] = field(default_factory=list)
    log_directory: LogDirectory | None = None
    written_ms: int = -1
    error: str | None = None

    @property
    def name(self) -> str:
        """Its partition, or where it was found."""
        return f"{self.key[0]}-{self.key[1]}" if self.key is not None else self.directory


@dataclass(slots=True)
class Found:
    """All that the paths hold. newest_ms: when the newest of the files was last written, by the file system. seen: the
    state of files and directories before they were read. unlisted: a directory that may hold any files of a broker and
    could not be listed, or None.
    """

    replicas: list[ReplicaFiles] = field(default_factory=list)
    log_directories: list[LogDirectory] = field(default_factory=list)
    going: list[str] = field(default_factory=list)
    errors: list[FileError] = field(default_factory=list)
    newest_ms: int = -1
    seen: Seen = field(default_factory=Seen)
    unlisted: str | None = None


@dataclass(frozen=True, slots=True)
class Replica:
    """What the files of one replica say.

    log_start_offset: below it everything was deleted, or moved to tiered storage where `moved_until` says so.
    log_end_offset: the offset behind the last one that was read. high_watermark: as the broker last wrote it down, a
    lower bound; -1 where it is not known, as with the other checkpoints. producers: all, as DescribeProducers
    reports them. start_unknown: why transactions may be open that are not seen here, or None. unproven: why nothing is
    known from `log_end_offset` on, or None. gap_until: up to there something is missing within the log, -1 for nothing.
    unread_at: of the last control batch that is none of a broker's, and may have ended something, -1 for none.
    snapshot_offset: of the snapshot that the state rests on, -1 for none. aborted_rows: of the transaction indexes.
    """

    directory: str
    key: Key | None
    broker_id: int | None
    topic_id: str | None
    segments: int
    size_bytes: int
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    high_watermark: int
    cleaned_until: int
    recovery_point: int
    moved_until: int
    leader_epoch: int
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
        """Its partition, or where it was found."""
        return self.files.name

    @property
    def open(self) -> tuple[ProducerState, ...]:
        """The producers with an open transaction, in the order of its start."""
        found = [one for one in self.producers if one.start_offset >= 0]
        return tuple(sorted(found, key=lambda one: (one.start_offset, one.producer_id)))

    def doubt(self, one: ProducerState) -> str | None:
        """Why this copy does not show that the transaction is still open at its end, or None."""
        if self.unproven is not None:
            return f"nothing is known from offset {self.log_end_offset} on: {self.unproven}"
        if self.gap_until > max(one.start_offset, self.snapshot_offset):
            return f"what stood before offset {self.gap_until} is missing here, and its marker may have been in it"
        if self.unread_at > max(one.start_offset, self.snapshot_offset):
            return f"at offset {self.unread_at} stands a control batch that no broker writes, which may have ended it"
        return None

    @property
    def compaction_stuck(self) -> bool:
        """Whether a compacted partition cannot be cleaned any further, because of an open transaction."""
        return bool(self.open) and self.cleaned_until > NONE and self.last_stable_offset < self.log_end_offset
