"""What a hanging transaction blocks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from txnscan.impact.cause import Cause
from txnscan.impact.owner import Owner


@dataclass(frozen=True, slots=True)
class KnownImpact:
    """What earlier sweeps found of a hanging transaction's impact: the last stable offset and since when, at least, it
    has stood there; the cause; the transactional id of its owner; and its event.
    """

    last_stable_offset: int | None
    lso_since_ms: int | None
    cause: Cause
    cause_reason: str
    owner_id: str | None
    event_id: str | None = None


class BlockReason(StrEnum):
    """How a hanging transaction blocks a group, or may. UNSTABLE: the transaction holds offsets of the group, which
    brokers do not return until it ends (UNSTABLE_OFFSET_COMMIT). MAYBE_UNSTABLE: brokers do not return offsets of the
    group, and whether they are in this transaction could not be read. AT_LSO: a read_committed consumer gets
    no record between the group's committed offset and the last stable offset; its isolation level is not visible.
    """

    UNSTABLE = "unstable"
    MAYBE_UNSTABLE = "maybe_unstable"
    AT_LSO = "at_lso"


@dataclass(frozen=True, slots=True)
class BlockedGroup:
    """A consumer group that a hanging transaction blocks, or may block.

    state: of the group, as its coordinator lists it, None where it does not. committed_offset, lag: on the partition,
    lag up to the high watermark; None where it is unstable. partitions: the "topic-partition" names whose offsets are
    not returned, the first ones of many.
    """

    group: str
    reason: BlockReason
    state: str | None = None
    committed_offset: int | None = None
    lag: int | None = None
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Impact:
    """What a hanging transaction blocks, how it came about and whose it is. None stands for what is not known.

    lso_since_ms: when the first sweep of the same history saw the last stable offset where it is. groups: the first of
    the blocked groups, up to a limit. groups_blocked: their number, None if some may be missing.
    groups_asked: the number of groups asked about. groups_error: why some may be missing.
    retention_ms: of a topic that deletes by age and is not tiered, -1 for no end: deletion does not wait for the last
    stable offset (`UnifiedLog.deletableSegments`), but tiering does (`RemoteLogManager`).
    event_id: see `impact/event.py`.
    """

    cause: Cause
    cause_reason: str
    owner: Owner
    lso_since_ms: int | None = None
    groups: tuple[BlockedGroup, ...] = ()
    groups_blocked: int | None = None
    groups_asked: int | None = None
    groups_error: str | None = None
    cleanup_policy: str | None = None
    retention_ms: int | None = None
    event_id: str | None = None

    @property
    def compaction_blocked(self) -> bool | None:
        """Whether the topic is compacted: the cleaner does not pass the last stable offset (`LogCleanerManager`)."""
        return None if self.cleanup_policy is None else "compact" in self.cleanup_policy.split(",")
