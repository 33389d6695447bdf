"""Whether a log on disk is whole: whether it begins, goes on and ends as its broker's log did. Pure.

Copies, backups and support bundles lack files, and lack the ends of files. A log that ends too early looks like any
other: a transaction whose marker is missing looks open, and an id whose records are missing looks absent. So where a
log begins and ends is believed only with a witness in other files. The theorem:

    After a clean shutdown, a verdict from files is sound for every subset of the files, and for every file cut short.
    After a kill, it is sound up to the newest witness.

*Start*: offset 0; or the first start in `leader-epoch-checkpoint`, which Kafka moves with the start of the log
(`LeaderEpochFileCache.truncateFromStart`); or an entry of `log-start-offset-checkpoint` in the first segment
(`LogManager.checkpointLogStartOffsetsInDir`).

*Middle*: a leader only appends, so each segment begins where the one before it ends. Compaction alone makes gaps
(`Cleaner`), and only below `cleaner-offset-checkpoint`. There, the index files show how far a segment went: a broker
writes the newest time of each segment into its `.timeindex` when it closes or cleans the segment
(`LogSegment.onBecomeInactiveSegment`). An index file without its `.log` shows a missing segment.

*End*: after a clean shutdown, `recovery-point-offset-checkpoint` has exactly the end of each log
(`LogManager.shutdown`). After a kill, nothing shows the end; `replication-offset-checkpoint` and others show how far
the log went at least.

A witness of a later end always counts: it shows that the files lack something. A missing witness shows nothing.

What no file shows: if all files of a segment are missing that lies wholly below the cleaner's offset, or if they are
all cut short at the same record, the gap looks like the work of the cleaner, which also joins segments. Answers state
this as an assumption (`ASSUMPTION`). Nor is it a subset if all files are replaced by older versions: that is another
moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from txnscan.offline.contents import Replica, Segment
from txnscan.offline.files import HIGH_WATERMARKS, RECOVERED
from txnscan.offline.producer_snapshots import NONE

ASSUMPTION = (
    "no compacted segment of __transaction_state is missing, or cut short together with its indexes; "
    "below the cleaner's offset, files do not show that"
)


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets that are not in the files: from `first` up to `until` (exclusive). why: what shows it."""

    first: int
    until: int
    why: str

    def __str__(self) -> str:
        one = self.until == self.first + 1
        offsets = f"offset {self.first} is" if one else f"offsets {self.first} to {self.until - 1} are"
        return f"{offsets} not in the files: {self.why}"


def holes(replica: Replica) -> list[Hole]:
    """The offsets that are missing before the end of the files, in order."""
    return list(_holes(replica))


def _holes(replica: Replica) -> Iterator[Hole]:
    for before, after in pairwise(replica.segments):
        if before.end_offset < after.base_offset:
            yield from _between(before, after, replica.cleaned_until)
    for one in replica.segments[-1:]:
        if one.indexed_until > one.end_offset:
            yield Hole(one.end_offset, one.indexed_until, f"{one.index} has them")


def _between(before: Segment, after: Segment, cleaned_until: int) -> Iterator[Hole]:
    """The hole between two consecutive segments, unless compaction explains it."""
    first, until = before.end_offset, after.base_offset
    if until > cleaned_until:
        yield Hole(first, until, "only compaction leaves gaps, and it did not come so far")
    elif before.indexed_until > first:
        yield Hole(first, min(before.indexed_until, until), f"{before.index} has them")
    elif before.timed_until == NONE:
        # Kafka itself leaves such a segment if the cleaner removed all its records. It looks like one that was cut.
        yield Hole(first, until, f"no .timeindex shows where the segment at offset {before.base_offset} ended")


def missing_segment(replica: Replica) -> str | None:
    """A file that shows a missing segment, and why, if there is one."""
    files = replica.files
    if files.whole and not files.segments:
        return f"{files.directory} has no segment file (.log)"
    for of_kind in (files.offset_indexes, files.time_indexes, files.indexes):
        for base in sorted(of_kind.keys() - files.segments.keys()):
            return f"{of_kind[base]} is there without its .log"
    return None


def gap_error(replica: Replica) -> str | None:
    """What is missing of the log before its end, if something is."""
    return missing_segment(replica) or next(map(str, holes(replica)), None)


def start_error(replica: Replica) -> str | None:
    """Why the log may have begun before its first segment, if it may."""
    if not replica.segments:
        return "no segment file is there"
    first, *_ = replica.segments
    if first.base_offset == 0:
        return None
    epochs_start = replica.leader_epochs[0][1] if replica.leader_epochs else NONE
    for start in (epochs_start, replica.started):
        if first.base_offset <= start and (start <= first.end_offset):
            return None
    if NONE < epochs_start < first.base_offset:
        return f"offsets {epochs_start} to {first.base_offset - 1} are not in the files: its leader epochs begin there"
    return f"the first segment begins at offset {first.base_offset}, and nothing shows that the log does"


def end_error(replica: Replica) -> str | None:
    """Why the log went further than its files, or is not of one moment with the files beside it, if so."""
    end = replica.log_end_offset
    snapshot = max(replica.files.snapshots, default=NONE)
    witnesses = (
        (replica.high_watermark, "the high watermark is"),
        (replica.recovery_point, "the recovery point is"),
        (snapshot if replica.files.whole else NONE, "there is a producer snapshot at"),
        (replica.leader_epochs[-1][1] if replica.leader_epochs else NONE, "the latest leader epoch begins at"),
    )
    for offset, shows in witnesses:
        if offset > end:
            return str(Hole(max(end, 0), offset, f"{shows} {offset}"))
    return next((str(hole) for hole in holes(replica) if hole.first == end), None)


def unwitnessed(replica: Replica, *, clean: bool) -> str | None:
    """Why no file shows where the log ends, if none does. clean: whether its broker recorded a clean shutdown."""
    directory = replica.files.log_directory
    if directory is None or not directory.offsets.keys() & {RECOVERED, HIGH_WATERMARKS}:
        return "nothing shows where it ends: the checkpoints of its log directory are not among the files"
    if clean:
        if replica.recovery_point == NONE:
            return f"nothing shows where it ends: {RECOVERED} does not have it"
        if replica.recovery_point < replica.log_end_offset:
            ends = f"its log ends at offset {replica.log_end_offset}, behind its recovery point"
            return f"{ends} at {replica.recovery_point}: the files are of different moments"
        return None
    if replica.high_watermark == NONE:
        return f"nothing shows how far it went: its broker was killed, and {HIGH_WATERMARKS} does not have it"
    return None


def log_error(replica: Replica, *, clean: bool) -> str | None:
    """Why the files are not the whole log from its first to its last record, if so; after a kill, up to its high
    watermark.
    """
    return (
        replica.unproven
        or gap_error(replica)
        or start_error(replica)
        or end_error(replica)
        or unwitnessed(replica, clean=clean)
    )


def state_error(replica: Replica, *, clean: bool) -> str | None:
    """Why the producer state at the end is not the broker's, if so.

    The newest snapshot has the state at its offset, so only what follows it must be whole.
    """
    after = [hole for hole in holes(replica) if hole.until > replica.snapshot_offset]
    return (
        replica.unproven
        or (missing_segment(replica) if not replica.segments else None)
        or replica.start_unknown
        or next(map(str, after), None)
        or end_error(replica)
        or unwitnessed(replica, clean=clean)
    )


def metadata_error(replica: Replica, end_offset: int) -> str | None:
    """Why a broker's copy of `__cluster_metadata` does not go to its end, if so.

    No checkpoint has this log. A broker writes a producer snapshot at its end when it closes the log, as for every log
    (`UnifiedLog.close`).
    """
    snapshot = max(replica.files.snapshots, default=NONE)
    if snapshot > end_offset:
        return str(Hole(end_offset, snapshot, f"there is a producer snapshot at {snapshot}"))
    directory = replica.files.log_directory
    if directory is not None and directory.clean and snapshot != end_offset:
        return f"its broker shut down cleanly, and no producer snapshot shows that it ends at offset {end_offset}"
    return None
