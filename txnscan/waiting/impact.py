"""The impact of a hanging or live transaction, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from txnscan.waiting.cause import Cause
from txnscan.waiting.disk import NO_DISK, Disk
from txnscan.waiting.owner import Owner


def is_compacted(cleanup_policy: str | None) -> bool | None:
    """Whether an open transaction blocks the compaction of a topic with this setting: the topic is compacted, and the
    cleaner does not pass the last stable offset (`LogCleanerManager`). None if the setting is not known.
    """
    return None if cleanup_policy is None else "compact" in cleanup_policy.split(",")


@dataclass(frozen=True, slots=True)
class CarriedImpact:
    """The impact of a hanging transaction that a sweep passes on to the next: the last stable offset, and a time since
    which it has not moved; the cause; the transactional id of the owner; and the event.
    """

    last_stable_offset: int | None
    lso_since_ms: int | None
    cause: Cause
    cause_reason: str
    owner_id: str | None
    event_id: str | None = None


class BlockReason(StrEnum):
    """How a transaction blocks a group, or may block it. UNSTABLE: the transaction has offsets of the group,
    which brokers do not return until it ends (UNSTABLE_OFFSET_COMMIT). MAYBE_UNSTABLE: brokers do not return offsets of
    the group, and the read could not show whether they are in this transaction. AT_LSO: a read_committed consumer gets
    no record between the group's committed offset and the last stable offset. The group's isolation level is not
    visible.
    """

    UNSTABLE = "unstable"
    MAYBE_UNSTABLE = "maybe_unstable"
    AT_LSO = "at_lso"


@dataclass(frozen=True, slots=True)
class BlockedGroup:
    """A consumer group that a transaction blocks, or may block.

    state: of the group, if its coordinator lists it. committed_offset: on the partition. lag: up to the high watermark.
    Both are None if the offset is unstable. partitions: the first "topic-partition" names with unstable offsets.
    """

    group: str
    reason: BlockReason
    state: str | None = None
    committed_offset: int | None = None
    lag: int | None = None
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockedReader:
    """A streaming query of Spark that a transaction blocks, or may block, by its checkpoint.

    stream_id: of the query. path: of the checkpoint, without secrets. batch_id: of its last batch. batch_committed:
    whether that batch is done. batch_timestamp_ms: when Spark planned the batch. next_offset: to read on the partition.
    lag: up to the high watermark.
    """

    stream_id: str
    path: str
    reason: BlockReason
    batch_id: int
    batch_committed: bool
    batch_timestamp_ms: int | None
    next_offset: int
    lag: int


@dataclass(frozen=True, slots=True)
class Impact:
    """The impact of a hanging transaction, or of a live one (`blocking.py`). None means not known.

    cause, cause_reason: None for a live transaction, which does not hang. lso_since_ms: when the first sweep of the
    same history saw the last stable offset at its present value. groups: the first of the blocked groups, up to a
    limit. groups_blocked: their number, None if some may be missing. groups_asked: the number of groups that were asked
    about. groups_error: why some may be missing. tiering_blocked: whether the topic is tiered. retention_ms: only for a
    topic that deletes by age and is not tiered; -1 means no limit. Deletion does not wait for the last stable offset
    (`UnifiedLog.deletableSegments`), but tiering does (`RemoteLogManager`): segments above it are not copied to remote
    storage, and so not deleted from local disks. event_id: see `waiting/event.py`. readers, readers_blocked,
    readers_error: as for groups, the streaming queries whose checkpoints were named. All are None if none was named
    (`readers.py`). disk: of the partition, if it is compacted or tiered.
    """

    cause: Cause | None
    cause_reason: str | None
    owner: Owner
    lso_since_ms: int | None = None
    groups: tuple[BlockedGroup, ...] = ()
    groups_blocked: int | None = None
    groups_asked: int | None = None
    groups_error: str | None = None
    cleanup_policy: str | None = None
    tiering_blocked: bool | None = None
    retention_ms: int | None = None
    event_id: str | None = None
    readers: tuple[BlockedReader, ...] | None = None
    readers_blocked: int | None = None
    readers_error: str | None = None
    disk: Disk = NO_DISK

    @property
    def compaction_blocked(self) -> bool | None:
        """See `is_compacted`."""
        return is_compacted(self.cleanup_policy)

    @property
    def fills_disk(self) -> bool:
        """Whether the partition grows on local disks as long as the transaction is open."""
        return bool(self.compaction_blocked or self.tiering_blocked)
