"""One replica of a partition, from its files: the state that a broker would load, the counts, and the offset from which
on data is unknown.

The state comes from the newest valid snapshot and the batches after it (`UnifiedLog.rebuildProducerState`); earlier
batches only add to the counts. A transaction that is open at the end is open *as of* the last offset: its marker may be
in missing data, whether that is damaged, cut off, or on another replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import islice
from typing import TypeVar

from txnscan.kafka.protocol.checksum import crc32c
from txnscan.kafka.protocol.record_batch import CRC_AT, CRC_FROM, HEADER, MAGIC, MAGIC_AT
from txnscan.offline import walk
from txnscan.offline.contents import FileError, Replica, ReplicaFiles, Segment
from txnscan.offline.disk import mapped, read
from txnscan.offline.files import (
    CLEANED,
    EPOCHS_FILE,
    HIGH_WATERMARKS,
    LOG_STARTS,
    METADATA_FILE,
    RECOVERED,
    Aborted,
    BadFile,
    aborted,
    last_indexed,
    last_timed,
    leader_epochs,
    snapshot,
    topic_id,
    why_unreadable,
)
from txnscan.offline.producer_snapshots import NONE, LogState, last_stable_offset
from txnscan.offline.walk import Damage

T = TypeVar("T")
# The first lines that DumpLogSegments prints of a segment.
_DUMPS = (b"Dumping ", b"Log starting offset: ", b"Starting offset: ", b"baseOffset: ", b"| offset: ")
_DUMP_BYTES = max(map(len, _DUMPS))
# Below this number, loading numpy takes longer than it saves.
_COLUMNS_FROM_BATCHES = 30_000
_PROBED_BATCHES = 64
# A decoded batch is in memory as a whole. `max.message.bytes` is 1 MB by default, and KRaft writes up to 8 MB.
BATCH_BYTES_MAX = 16 * 1024 * 1024


class _Snapshots:
    """The snapshots of a log. Each is read and applied when the walk reaches its offset.

    An invalid snapshot is an error; then the state continues from the snapshot before it.
    """

    def __init__(self, state: LogState, paths: Mapping[int, str], errors: list[FileError]) -> None:
        self.used = NONE
        self._state = state
        self._paths = paths
        self._errors = errors
        self._due = sorted(paths, reverse=True)

    def due(self) -> tuple[int, Callable[[], None]] | None:
        """The offset of the next snapshot, and the function that applies it."""
        return (self._due[-1], self.take) if self._due else None

    def before(self, offset: int) -> None:
        """Applies the snapshots up to the offset of a batch."""
        while self._due and offset >= self._due[-1]:
            self.take()

    def take(self) -> None:
        """Continues the state from the next snapshot."""
        offset = self._due.pop()
        try:
            producers = snapshot(read(self._paths[offset]), crc32c)
        except (BadFile, OSError) as bad:
            self._errors.append(
                FileError(self._paths[offset], f"{why_unreadable(bad)}; the snapshot before it is used")
            )
            return
        self.used = offset
        self._state.restart(producers)

    def skip(self, below: int) -> None:
        """Skips the snapshots that are older than the log."""
        while self._due and self._due[-1] < below:
            self._due.pop()

    @property
    def left(self) -> list[int]:
        """The snapshots that the log did not reach."""
        return sorted(self._due)


def read_replica(files: ReplicaFiles, check_crc: bool = False) -> Replica:
    """Reads a replica. check_crc: also checks the checksums of all batches. Unreadable files become errors of the
    result.
    """
    state = LogState()
    errors: list[FileError] = []
    segments: list[Segment] = []
    snapshots = _Snapshots(state, files.snapshots, errors)
    aborted_rows = _aborted(files, errors)
    size_bytes, unproven = 0, files.error
    bases = sorted(files.segments)
    if bases:
        snapshots.skip(bases[0])
    for number, base in enumerate(bases):
        path = files.segments[base]
        snapshots.before(base)
        if 0 <= state.next_offset < base:
            state.figures.gaps += 1
            state.gap_until, state.next_offset = base, base
        try:
            with mapped(path) as data:
                size_bytes += len(data)
                damage = _fold(data, state, base, snapshots, check_crc)
        except OSError as error:
            unproven = f"{path} cannot be read: {why_unreadable(error)}"
            errors.append(FileError(path, unproven))
            break
        if state.next_offset == NONE:
            state.first_offset = state.next_offset = base
        segments.append(_segment(files, base, state.next_offset, aborted_rows.get(base, ()), errors))
        if damage is not None:
            behind = len(bases) - number - 1
            more = f"; {behind} later segment files were not read" if behind else ""
            unproven = f"{path}: {damage}{more}"
            errors.append(FileError(path, f"{damage}{more}"))
            break
    if unproven is None:
        snapshots.before(state.next_offset if bases else max(files.snapshots, default=NONE))
        if not bases:
            state.first_offset = state.next_offset = max(snapshots.used, 0)
        errors += [
            FileError(
                files.snapshots[offset], f"it is newer than the end of the log at {state.next_offset}, and not used"
            )
            for offset in snapshots.left
        ]
    rows = sum(map(len, aborted_rows.values()))
    return _replica(files, state, snapshots, segments, rows, size_bytes, unproven, errors)


def _replica(
    files: ReplicaFiles,
    state: LogState,
    snapshots: _Snapshots,
    segments: Sequence[Segment],
    aborted_rows: int,
    size_bytes: int,
    unproven: str | None,
    errors: list[FileError],
) -> Replica:
    offsets = files.log_directory.offsets if files.log_directory is not None else {}

    def checkpoint(name: str) -> int:
        return offsets.get(name, {}).get(files.key, NONE) if files.key is not None else NONE

    first = min(files.segments, default=state.first_offset)
    started = checkpoint(LOG_STARTS)
    known = first == 0 or snapshots.used >= 0
    epochs: list[tuple[int, int]] = _other(files, EPOCHS_FILE, leader_epochs, [], errors)
    return Replica(
        directory=files.directory,
        key=files.key,
        broker_id=files.log_directory.broker_id if files.log_directory is not None else None,
        topic_id=_other(files, METADATA_FILE, topic_id, None, errors),
        segments=tuple(segments),
        size_bytes=size_bytes,
        log_start_offset=started if started != NONE else first,
        started=started,
        log_end_offset=state.next_offset,
        # DeleteRecords may have cut the first batch of a transaction in two.
        last_stable_offset=max(last_stable_offset(state), started),
        high_watermark=checkpoint(HIGH_WATERMARKS),
        cleaned_until=checkpoint(CLEANED),
        recovery_point=checkpoint(RECOVERED),
        moved_until=first if NONE < started < first else NONE,
        leader_epochs=tuple(epochs),
        snapshot_offset=snapshots.used,
        producers=tuple(sorted(state.producers.values(), key=lambda one: one.producer_id)),
        begun=state.begun,
        figures=state.figures,
        start_unknown=None
        if known
        else f"the log begins at offset {first}, without a snapshot of what was open before",
        unproven=unproven,
        gap_until=state.gap_until,
        unread_at=state.unread_at,
        aborted_rows=aborted_rows,
        errors=tuple(errors),
        files=files,
    )


def _segment(
    files: ReplicaFiles, base: int, end_offset: int, rows: Sequence[Aborted], errors: list[FileError]
) -> Segment:
    """A segment that was read up to this offset, and the newest record in its index files."""
    indexed_until = _indexed_until(files.offset_indexes.get(base), base, last_indexed, errors)
    timed_until = _indexed_until(files.time_indexes.get(base), base, last_timed, errors)
    shown = [(indexed_until, files.offset_indexes.get(base, "")), (timed_until, files.time_indexes.get(base, ""))]
    shown += [(row.last_offset + 1, files.indexes[base]) for row in rows[-1:]]
    until, index = max(shown)
    return Segment(base, end_offset, until, index, timed_until)


def _indexed_until(
    path: str | None, base: int, last: Callable[[walk.Data], int | None], errors: list[FileError]
) -> int:
    """The offset after the newest record in an index file, or -1."""
    if path is None:
        return NONE
    try:
        with mapped(path) as data:
            relative = last(data)
    except OSError as bad:
        errors.append(FileError(path, why_unreadable(bad)))
        return NONE
    return NONE if relative is None else base + relative + 1


def _fold(data: walk.Data, state: LogState, base: int, snapshots: _Snapshots, check_crc: bool) -> Damage | None:
    if bytes(data[:_DUMP_BYTES]).startswith(_DUMPS):
        return Damage(0, "it is what kafka-dump-log.sh prints; give the .log file itself")
    if not check_crc and _batches_about(data) >= _COLUMNS_FROM_BATCHES and find_spec("numpy") is not None:
        from txnscan.offline import columns

        return columns.fold(data, state, base, until=snapshots.due)
    return walk.fold(data, state, base, crc32c=crc32c if check_crc else None, before=snapshots.before)


def _batches_about(data: walk.Data) -> int:
    """The estimated number of batches, if the others are as large as the first ones."""
    sizes = [size for _, size in islice(walk.headers(data), _PROBED_BATCHES)]
    return len(data) * len(sizes) // sum(sizes) if sizes else 0


def _aborted(files: ReplicaFiles, errors: list[FileError]) -> dict[int, list[Aborted]]:
    """The rows of each transaction index, by the offset of its segment."""
    rows = {}
    for base, path in files.indexes.items():
        try:
            rows[base] = aborted(read(path))
        except (BadFile, OSError) as bad:
            errors.append(FileError(path, why_unreadable(bad)))
    return rows


def _other(files: ReplicaFiles, name: str, decoded: Callable[[bytes], T], otherwise: T, errors: list[FileError]) -> T:
    path = files.others.get(name)
    if path is None:
        return otherwise
    try:
        return decoded(read(path))
    except (BadFile, OSError) as bad:
        errors.append(FileError(path, why_unreadable(bad)))
        return otherwise


def checksum_error(files: ReplicaFiles, offset: int) -> str | None:
    """Why the log from this offset on differs from the written log, if it does. Checks the checksum of every batch."""
    bases = sorted(files.segments)
    for number, base in enumerate(bases):
        if number + 1 < len(bases) and bases[number + 1] <= offset:
            continue
        try:
            with mapped(files.segments[base]) as data:
                for at, size in walk.headers(data):
                    if data[at + MAGIC_AT] != MAGIC or size < HEADER.size:
                        if int.from_bytes(data[at : at + 8], signed=True) < offset:
                            continue
                        # No checksum covers the magic byte, so the batch may still be a marker.
                        return f"{files.segments[base]}: behind it, at byte {at}, stands a batch of an earlier format"
                    if crc32c(data[at + CRC_FROM : at + size]) != int.from_bytes(data[at + CRC_AT : at + CRC_FROM]):
                        return f"{files.segments[base]}: the batch at byte {at} fails its checksum"
        except OSError as error:
            return f"{files.segments[base]} cannot be read: {why_unreadable(error)}"
    return None


def batches(files: ReplicaFiles, errors: list[FileError], base: int | None = None) -> Iterator[bytes]:
    """The complete batches of all segments in order, up to the first damage. base: start at this segment."""
    for one in sorted(files.segments):
        if base is not None and one < base:
            continue
        path = files.segments[one]
        try:
            with mapped(path) as data:
                at = 0
                for at, size in walk.headers(data):
                    if size > BATCH_BYTES_MAX:
                        errors.append(FileError(path, f"a batch of {size} bytes is too large to decode (at byte {at})"))
                        return
                    yield data[at : at + size]
                    at += size
                stop = walk.end_of(data, at, len(data))
        except OSError as error:
            errors.append(FileError(path, why_unreadable(error)))
            return
        if isinstance(stop, Damage):
            errors.append(FileError(path, str(stop)))
            return
