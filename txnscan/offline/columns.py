"""The same walk as `walk.fold`, for many batches at a time, with numpy: header fields become columns.

Only the position of the next batch is found batch by batch. Then the headers of a chunk are one array, and its batches
are sorted by producer id. A marker ends a run of batches of one producer. Every unusual batch, odd or damaged, goes to
`walk`, which alone judges it. A test compares the two modules.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any

import numpy as np

from txnscan.kafka.protocol.record_batch import (
    COMPRESSED,
    CONTROL,
    HEADER,
    LENGTH_AT,
    LENGTH_FROM,
    LOG_APPEND_TIME,
    MAGIC,
    MARKER_SIZE,
    PLAIN_MARKER,
    TRANSACTIONAL,
)
from txnscan.offline.producer_snapshots import NONE, Begun, LogState, ProducerState
from txnscan.offline.walk import (
    LENGTH_MIN,
    LENGTH_MIN_V2,
    RELEASE_BYTES,
    Damage,
    Damaged,
    Data,
    end_of,
    one_batch,
    release,
)

# Batches in a chunk: a few megabytes of memory, for files of any size.
_CHUNK = 1 << 15
# If more than one batch in this many is unusual, the whole chunk is walked batch by batch.
_ORDINARY = 32
_LENGTH = struct.Struct(">i")
# This much of each batch is copied: its header, and the bytes after it up to a size that is fast to copy.
_TAKEN_BYTES = 64
_BATCH = np.dtype(
    [
        *(("base_offset", ">i8"), ("length", ">i4"), ("leader_epoch", ">i4"), ("magic", "i1"), ("crc", ">u4")),
        *(("attributes", ">i2"), ("delta", ">i4"), ("base_ms", ">i8"), ("greatest_ms", ">i8"), ("producer_id", ">i8")),
        *(("epoch", ">i2"), ("sequence", ">i4"), ("count", ">i4"), ("rest", f"V{_TAKEN_BYTES - HEADER.size}")),
    ]
)
_MARKER = np.dtype(
    [
        *(("before", f"V{HEADER.size}"), ("opening", "S7"), ("type", ">i2"), ("opened", "V3")),
        *(("coordinator", ">i4"), ("closing", "i1")),
    ]
)
_OPENING = np.frombuffer(PLAIN_MARKER, np.uint8)
_OPENED = np.frombuffer(b"\x0c\0\0", np.uint8)
_FAR = np.iinfo(np.int64).max
_OFFSETS_SANE = 2**62


def fold(
    data: Data, state: LogState, base_offset: int, *, until: Callable[[], tuple[int, Callable[[], None]] | None]
) -> Damage | None:
    """Like `walk.fold`, without checksums.

    until: returns an offset, and a function to call before the batch at that offset counts; None if no such offset
    remains.
    """
    end, at = len(data), 0
    while True:
        positions, reached = _positions(data, at, end)
        if not positions:
            stop = end_of(data, at, end)
            return stop if isinstance(stop, Damage) else None
        damage = _chunk(data, positions, reached, state, base_offset, until)
        if damage is not None:
            return damage
        release(data, at, reached)
        at = reached


def _positions(data: Data, at: int, end: int) -> tuple[list[int], int]:
    """The positions of the next batches, and the end of the last one. A list shorter than a chunk ends after
    RELEASE_BYTES, or at a position that `end_of` explains.
    """
    found: list[int] = []
    far = at + RELEASE_BYTES
    unpack, take, shortest = _LENGTH.unpack_from, found.append, LENGTH_FROM + LENGTH_MIN
    with suppress(struct.error):  # the file ends within a length
        for _ in repeat(None, _CHUNK):
            size = unpack(data, at + LENGTH_AT)[0] + LENGTH_FROM
            if size < shortest or at + size > end:
                break
            take(at)
            at += size
            if at > far:
                break
    return found, at


def _chunk(
    data: Data, positions: list[int], reached: int, state: LogState, base_offset: int, until: Any
) -> Damage | None:
    where = np.array(positions, np.int64)
    sizes = np.diff(where, append=reached)
    # The last batches may be shorter than the copied length, which would then reach beyond the file.
    whole = int(np.searchsorted(where, len(data) - _TAKEN_BYTES, "right"))
    view = np.ndarray((max(len(data) - _TAKEN_BYTES + 1, 0),), f"V{_TAKEN_BYTES}", data, strides=(1,))
    rows = view[where[:whole]].view(_BATCH)
    odd = np.ones(len(where), bool)
    if whole:
        columns = _columns(data, rows, where[:whole], sizes[:whole], base_offset)
        odd[:whole] = columns["odd"]
    first, stops = 0, np.flatnonzero(odd)
    dense = len(stops) * _ORDINARY > len(where)
    for stop in range(len(where)) if dense else [*stops.tolist(), len(where)]:
        if not dense and stop > first:
            damage = _run(data, columns, where, sizes, first, stop, state, base_offset, until)
            if damage is not None:
                return damage
        if stop < len(where):
            damage = _one(data, int(where[stop]), int(sizes[stop]), state, base_offset, until)
            if damage is not None:
                return damage
        first = stop + 1
    return None


def _one(data: Data, at: int, size: int, state: LogState, base_offset: int, until: Any) -> Damage | None:
    def before(offset: int) -> None:
        due = until()
        if due is not None and offset >= due[0]:
            due[1]()

    try:
        one_batch(data, at, size, state, base_offset, None, before)
    except Damaged as damaged:
        return Damage(at, str(damaged))
    return None


def _columns(data: Data, rows: Any, where: Any, sizes: Any, base_offset: int) -> dict[str, Any]:
    """The header fields as columns of native numbers, with the column `odd` for batches that are unusual by
    themselves.
    """
    columns = {
        name: rows[name].astype(np.int64 if name != "magic" else np.int8)
        for name in ("base_offset", "magic", "attributes", "delta", "greatest_ms", "producer_id", "epoch", "sequence")
    }
    columns["count"] = rows["count"].astype(np.int64)
    attributes, pid = columns["attributes"], columns["producer_id"]
    transactional, control = (attributes & TRANSACTIONAL) != 0, (attributes & CONTROL) != 0
    columns["transactional"], columns["control"] = transactional, control
    columns["last_offset"] = columns["base_offset"] + columns["delta"]
    odd = (
        (columns["magic"] != MAGIC)
        | (sizes - LENGTH_FROM < LENGTH_MIN_V2)
        | (columns["delta"] < 0)
        | (columns["count"] < 0)
        | (columns["base_offset"] < base_offset)
        | (columns["base_offset"] > _OFFSETS_SANE)
        | (transactional & (pid < 0))
    )
    marker = transactional & control & ~odd
    # For usual markers, the columns have all data; other control batches are few.
    odd |= control & ~(marker & (sizes == MARKER_SIZE) & (columns["count"] > 0) & ((attributes & COMPRESSED) == 0))
    marks = np.flatnonzero(marker & ~odd)
    columns["commits"] = np.zeros(len(where), bool)
    columns["coordinator_epoch"] = np.full(len(where), NONE, np.int64)
    columns["ms"] = columns["greatest_ms"].copy()
    if len(marks):
        view = np.ndarray((len(data) - MARKER_SIZE + 1,), f"V{MARKER_SIZE}", data, strides=(1,))
        found = view[where[marks]].view(_MARKER)
        raw = found.view(np.uint8).reshape(len(marks), MARKER_SIZE)
        body = raw[:, HEADER.size :]
        plain = (
            (body[:, :7] == _OPENING).all(axis=1)
            & (body[:, 9:12] == _OPENED).all(axis=1)
            & (body[:, 16] == 0)
            & (found["type"] >= 0)
            & (found["type"] <= 1)
        )
        odd[marks[~plain]] = True
        columns["commits"][marks] = found["type"] == 1
        columns["coordinator_epoch"][marks] = found["coordinator"]
        by_broker = (attributes[marks] & LOG_APPEND_TIME) != 0
        columns["ms"][marks] = np.where(by_broker, columns["greatest_ms"][marks], rows["base_ms"][marks])
    columns["odd"] = odd
    return columns


def _run(
    data: Data,
    columns: dict[str, Any],
    where: Any,
    sizes: Any,
    first: int,
    stop: int,
    state: LogState,
    base_offset: int,
    until: Any,
) -> Damage | None:
    """Takes the batches from `first` up to `stop`; each is usual by itself."""
    base, last = columns["base_offset"][first:stop], columns["last_offset"][first:stop]
    behind = np.empty(len(base), np.int64)
    behind[0], behind[1:] = state.next_offset, last[:-1] + 1
    back = np.flatnonzero(base < behind)
    end = first + int(back[0]) if len(back) else stop
    while first < end:
        due = until()
        upto = end if due is None else first + int(np.searchsorted(base[: end - first], due[0]))
        if upto > first:
            _take({name: column[first:upto] for name, column in columns.items()}, sizes[first:upto], state)
        if due is not None and upto < end:
            due[1]()
        base = base[upto - first :]
        first = upto
    return _one(data, int(where[end]), int(sizes[end]), state, base_offset, until) if end < stop else None


def _take(columns: dict[str, Any], sizes: Any, state: LogState) -> None:
    """Does for many batches in order what `LogState` does batch by batch."""
    base, last, count = columns["base_offset"], columns["last_offset"], columns["count"]
    figures = state.figures
    if state.next_offset == NONE:
        state.first_offset = state.next_offset = int(base[0])
    missing = np.flatnonzero(base[1:] != last[:-1] + 1) + 1
    gaps = len(missing) + int(base[0] != state.next_offset)
    figures.gaps += gaps
    if gaps:
        state.gap_until = int(base[missing[-1]] if len(missing) else base[0])
    state.next_offset = int(last[-1]) + 1
    figures.batches += len(base)
    figures.records += int(count.sum())
    figures.size_bytes += int(sizes.sum())
    figures.compacted += int((count != last - base + 1).sum())
    theirs = np.flatnonzero(columns["producer_id"] >= 0)
    if len(theirs):
        _producers(columns, sizes, theirs, state)


def _producers(columns: dict[str, Any], sizes: Any, theirs: Any, state: LogState) -> None:
    order = theirs[np.argsort(columns["producer_id"][theirs], kind="stable")]
    pid, epoch, control = (columns[name][order] for name in ("producer_id", "epoch", "control"))
    n = len(order)
    new_pid = np.empty(n, bool)
    new_pid[0], new_pid[1:] = True, pid[1:] != pid[:-1]
    starts = np.flatnonzero(new_pid)
    ends = np.append(starts[1:], n)
    # A run is a producer's batches up to and including its marker. The last run of a producer may have no marker yet.
    new_run = new_pid.copy()
    new_run[1:] |= control[:-1]
    runs = np.flatnonzero(new_run)
    run_ends = np.append(runs[1:], n)
    data = columns["transactional"][order] & ~control
    index = np.where(data, np.arange(n), _FAR)
    first_data = np.minimum.reduceat(index, runs)
    batches = np.add.reduceat(data.astype(np.int64), runs)
    records = np.add.reduceat(np.where(data, columns["count"][order], 0), runs)
    size_bytes = np.add.reduceat(np.where(data, sizes[order], 0), runs)
    ended = control[run_ends - 1]
    ms = columns["ms"][order]

    figures = state.figures
    marks = np.flatnonzero(control)
    commits = columns["commits"][order[marks]]
    figures.control += len(marks)
    figures.committed += int(commits.sum())
    figures.aborted += int(len(marks) - commits.sum())
    figures.transactional += int(data.sum())

    run_of_pid = np.searchsorted(runs, starts)
    pids = pid[starts].tolist()
    # An open transaction from before the chunk belongs to the first run of its producer.
    carried = np.array([pid in state.begun for pid in pids], bool)
    is_carried = np.zeros(len(runs), bool)
    is_carried[run_of_pid] = carried
    fresh = ended & ~is_carried
    has_data = batches > 0
    figures.empty += int((fresh & ~has_data).sum())
    whole = np.flatnonzero(fresh & has_data)
    if len(whole):
        figures.sizes.merge(len(whole), *_spread(batches[whole]))
        figures.durations_ms.merge(len(whole), *_spread(ms[run_ends[whole] - 1] - ms[first_data[whole]]))

    odd = {
        "an earlier producer epoch than the one before": _earlier_epochs(epoch, starts, pids, state),
        "non-transactional data within an open transaction of its producer": _not_transactional(
            control, data, runs, first_data, is_carried
        ),
        "a marker of an earlier coordinator epoch than the one before": _earlier_markers(
            columns["coordinator_epoch"][order], control, starts, pids, state
        ),
    }
    state.figures.odd.update({what: number for what, number in odd.items() if number})
    changed = np.empty(n, bool)
    changed[0], changed[1:] = True, (epoch[1:] != epoch[:-1]) | new_pid[1:]
    changes = np.cumsum(changed)
    is_data = ~control
    last_data = np.maximum.reduceat(np.where(is_data, np.arange(n), -1), starts)
    last_mark = np.maximum.reduceat(np.where(control, np.arange(n), -1), starts)
    last = ends - 1
    # If the epoch does not change within the chunk, the sequence from before it stays valid.
    steady = changes[last] == changes[starts]
    seen = last_data >= 0
    valid = seen & (changes[np.maximum(last_data, 0)] == changes[last])
    at_data, at_mark = order[np.maximum(last_data, 0)], order[np.maximum(last_mark, 0)]
    sequence, delta = columns["sequence"][at_data], columns["delta"][at_data]
    last_sequence = np.where(sequence == NONE, NONE, (sequence + delta) % 2**31)
    last_run = np.append(run_of_pid[1:], len(runs)) - 1
    opening = order[np.minimum(first_data[last_run], n - 1)]
    lists = [
        column.tolist()
        for column in (
            *(epoch[starts], epoch[last], ms[last], steady, seen, valid),
            *(last_sequence, columns["last_offset"][at_data], delta, last_mark >= 0),
            *(columns["coordinator_epoch"][at_mark], ended[last_run], has_data[last_run]),
            *(columns["base_offset"][opening], columns["epoch"][opening], columns["sequence"][opening]),
            *(columns["ms"][opening], batches[last_run], records[last_run], size_bytes[last_run]),
            *(run_of_pid, last_run),
        )
    ]
    for producer_id, row in zip(pids, zip(*lists, strict=True), strict=True):
        first_epoch, last_epoch, last_ms, stays, any_data, data_valid, sequence_is, offset_is, delta_is, marked = row[
            :10
        ]
        coordinator_epoch, is_ended, is_open, start, start_epoch, start_sequence, start_ms = row[10:17]
        batches_is, records_is, bytes_is, first_run, of_run = row[17:]
        one = state.producers.get(producer_id)
        if one is None:
            one = state.producers[producer_id] = ProducerState(producer_id)
        if data_valid:
            one.last_sequence, one.last_offset, one.offset_delta = sequence_is, offset_is, delta_is
        elif any_data or not stays or first_epoch != one.producer_epoch:
            one.last_sequence, one.last_offset, one.offset_delta = NONE, NONE, 0
        one.producer_epoch, one.last_timestamp_ms = last_epoch, last_ms
        if marked:
            one.coordinator_epoch = coordinator_epoch
        begun = state.begun.get(producer_id)
        if begun is not None and (first_run != of_run or is_ended):
            # The transaction from before the chunk ended in the producer's first run.
            _end(begun, figures, ms, batches, run_ends, first_run)
            del state.begun[producer_id]
            one.start_offset = NONE
            begun = None
        if is_ended:
            one.start_offset = NONE
        elif is_open:
            if begun is None:
                one.start_offset = start
                begun = state.begun[producer_id] = Begun(start, 0, 0, 0, start_epoch, start_sequence, start_ms)
            begun.batches += batches_is
            begun.records += records_is
            begun.size_bytes += bytes_is


def _end(begun: Begun, figures: Any, ms: Any, batches: Any, run_ends: Any, run: int) -> None:
    if begun.first_epoch is not None:
        figures.sizes.add(begun.batches + int(batches[run]))
        figures.durations_ms.add(int(ms[run_ends[run] - 1]) - begun.first_timestamp_ms)


def _spread(values: Any) -> tuple[int, int, int]:
    return int(values.sum()), int(values.min()), int(values.max())


def _earlier_epochs(epoch: Any, starts: Any, pids: Sequence[int], state: LogState) -> int:
    """How many batches have an earlier producer epoch than the batch before them."""
    before = np.empty(len(epoch), np.int64)
    before[1:] = epoch[:-1]
    # The first batch of a producer has no predecessor, so its epoch cannot be too low.
    before[starts] = [state.producers[p].producer_epoch if p in state.producers else -_FAR for p in pids]
    return int((epoch < before).sum())


def _not_transactional(control: Any, data: Any, runs: Any, first_data: Any, is_carried: Any) -> int:
    """How many batches without a transaction are within an open transaction of their producer."""
    plain = np.flatnonzero(~control & ~data)
    run = np.searchsorted(runs, plain, "right") - 1
    return int((is_carried[run] | (plain > first_data[run])).sum())


def _earlier_markers(coordinator_epoch: Any, control: Any, starts: Any, pids: Sequence[int], state: LogState) -> int:
    """How many markers have an earlier coordinator epoch than the marker before them. coordinator_epoch: of each
    batch.
    """
    marks = np.flatnonzero(control)
    if not len(marks):
        return 0
    coordinator = coordinator_epoch[marks]
    held = np.full(len(marks), NONE, np.int64)
    held[1:] = coordinator[:-1]
    of_pid = np.searchsorted(starts, marks, "right") - 1
    first_of_pid = np.empty(len(marks), bool)
    first_of_pid[0], first_of_pid[1:] = True, of_pid[1:] != of_pid[:-1]
    held[first_of_pid] = [
        state.producers[pids[k]].coordinator_epoch if pids[k] in state.producers else NONE
        for k in of_pid[first_of_pid].tolist()
    ]
    return int((coordinator < held).sum())
