"""A log segment, batch by batch: the producer state of a broker, and reading that stops at damage."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from tests.cases import Cases
from tests.offline import MARKER, MS, changed, control, data, end, legacy, logs, plain
from txnscan.kafka.protocol.record_batch import CONTROL
from txnscan.offline import columns, walk
from txnscan.offline.producer_snapshots import Begun, LogState, ProducerState, last_stable_offset
from txnscan.offline.walk import Damage

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion


def folded(*batches: bytes, base: int = 0, check_crc: bool = False) -> tuple[LogState, Damage | None]:
    state = LogState()
    return state, walk.fold(b"".join(batches), state, base, crc32c=crc32c if check_crc else None)


def in_columns(log: bytes, base: int = 0) -> tuple[LogState, Damage | None]:
    state = LogState()
    return state, columns.fold(log, state, base, until=lambda: None)


def only(state: LogState) -> ProducerState:
    (one,) = state.producers.values()
    return one


# --- producer state ---------------------------------------------------------------------------------------------------


def test_the_marker_vector_is_a_commit_of_coordinator_epoch_7() -> None:
    state, damage = folded(MARKER, check_crc=True)
    assert damage is None
    assert state.producers == {1000: ProducerState(1000, 3, 7, -1, -1, 0, MS, -1)}
    assert (state.figures.committed, state.figures.empty, state.next_offset) == (1, 1, 6)


@pytest.mark.parametrize(
    ("batches", "expected", "why"),
    [
        ([data(0, records=3)], (3, -1, 2, 2, 2, 0), "the first transactional batch opens"),
        ([data(0), data(1, sequence=1)], (3, -1, 1, 1, 0, 0), "what follows joins it"),
        ([data(0), end(1)], (3, 0, 0, 0, 0, -1), "a marker ends it and keeps the sequence of its epoch"),
        ([data(0), end(1, epoch=4)], (4, 0, -1, -1, 0, -1), "under transactions v2 the marker raises the epoch"),
        ([data(0), data(1, epoch=5)], (5, -1, 0, 1, 0, 0), "data of a later epoch joins the open transaction"),
        ([data(0), end(1, epoch=2)], (2, 0, -1, -1, 0, -1), "replicas take a marker of an earlier epoch, too"),
        ([end(0, coordinator_epoch=9)], (3, 9, -1, -1, 0, -1), "a marker of nothing leaves an entry"),
        ([data(0, transactional=False)], (3, -1, 0, 0, 0, -1), "an idempotent producer opens nothing"),
        ([data(0, sequence=2**31 - 1, records=3)], (3, -1, 1, 2, 2, 0), "sequences begin anew behind the last"),
        ([data(0), changed(end(1), 57, b"\0\0\0\0")], (3, -1, 0, 0, 0, 0), "a control batch that lost its record"),
        ([data(0), control(1, b"\0\0\0\2", b"")], (3, -1, 0, 0, 0, 0), "a control record of another kind"),
        ([data(0), control(1, b"\0\1\0\0", b"\0\1\0\0\0\5")], (3, 5, 0, 0, 0, -1), "later versions read as this one"),
        ([data(0), end(1), data(2, sequence=1)], (3, 0, 1, 2, 0, 2), "the next one opens"),
        ([changed(data(0, records=3), 57, b"\0\0\0\0")], (3, -1, 2, 2, 2, 0), "a batch that lost all records counts"),
    ],
)
def test_producer_state_equals_that_of_a_broker(batches: list[bytes], expected: tuple[int, ...], why: str) -> None:
    for state, damage in (folded(*batches), in_columns(b"".join(batches))):
        one = only(state)
        told = (one.producer_epoch, one.coordinator_epoch, one.last_sequence, one.last_offset, one.offset_delta)
        assert (*told, one.start_offset) == expected, why
        assert damage is None


def test_the_last_stable_offset_moves_to_the_next_open_transaction() -> None:
    before, _ = folded(data(100, 7), data(101, 8), base=100)
    after, _ = folded(data(100, 7), data(101, 8), end(102, 7), base=100)
    ended, _ = folded(data(100, 7), data(101, 8), end(102, 7), end(103, 8), base=100)
    assert [last_stable_offset(state) for state in (before, after, ended)] == [100, 101, 104]
    assert [[one.producer_id for one in state.open] for state in (before, after, ended)] == [[7, 8], [8], []]


def test_figures_count_transactions_sizes_and_durations() -> None:
    state, _ = folded(
        *(data(0, ms=MS), data(1, 8, ms=MS + 5), data(2, sequence=1), end(3, ms=MS + 40)),
        *(end(4, 8, commit=False, ms=MS + 6), end(5), data(6, records=4)),
    )
    f = state.figures
    assert (f.committed, f.aborted, f.empty, f.control, len(state.open)) == (2, 1, 1, 3, 1)
    assert (f.sizes.count, f.sizes.least, f.sizes.most, f.sizes.mean) == (2, 1, 2, 1.5)
    assert (f.durations_ms.least, f.durations_ms.most) == (1, 40)
    assert state.begun == {7: Begun(6, 1, 4, len(data(6, records=4)), 3, 0, MS)}


@pytest.mark.parametrize(
    ("odd", "what"),
    [
        (changed(data(1), 43, b"\xff" * 8), "a transactional batch without a producer"),
        (control(1, b"\0\0\0\1", b"\0" * 6, pid=-1), "a control batch without a producer, or compressed"),
        (changed(end(1), 21, b"\0\x32"), "a control batch without a producer, or compressed"),
        (control(1, b"\0\0\0\1", b"\0" * 6, attributes=CONTROL), "a control batch of a producer that is not"),
        (data(1, transactional=False), "non-transactional data within an open transaction"),
        (data(1, epoch=1), "an earlier producer epoch"),
    ],
)
def test_an_invalid_batch_is_counted_and_ends_no_transaction(odd: bytes, what: str) -> None:
    state, damage = folded(data(0), odd)
    assert damage is None and only(state).start_offset == 0
    assert [key for key in state.figures.odd if key.startswith(what)]
    assert in_columns(data(0) + odd)[0] == state


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 7])
def test_a_compressed_batch_is_read_by_its_header(codec: int) -> None:
    """Its records may be invalid: no codec library is needed."""
    body = data(1, sequence=4)[61:]
    one = changed(changed(data(1, sequence=4), 21, bytes((0, 0x10 | codec))), 61, b"\xff" * len(body))
    state, damage = folded(data(0), one, end(2), check_crc=True)
    assert damage is None and not state.open and not state.figures.odd
    assert (state.figures.committed, state.figures.sizes.most, state.producers[7].last_sequence) == (1, 2, 4)
    assert in_columns(data(0) + one + end(2))[0] == state


@pytest.mark.parametrize("attributes", [b"\0\x31", b"\0\x32", b"\0\x33", b"\0\x34", b"\0\x20", b"\0\x24"])
def test_an_unreadable_possible_end_leaves_the_transaction_unknown(attributes: bytes) -> None:
    """Brokers ignore both bits of a control batch, and never write such a batch."""
    for state in (
        folded(data(0), changed(end(1), 21, attributes))[0],
        in_columns(data(0) + changed(end(1), 21, attributes))[0],
    ):
        assert only(state).start_offset == 0 and state.unread_at == 1


def test_the_first_batch_of_a_producer_contradicts_no_earlier_epoch() -> None:
    state, _ = folded(data(0, epoch=-32_768))
    assert not state.figures.odd
    assert in_columns(data(0, epoch=-32_768))[0] == state


def test_a_marker_of_an_earlier_coordinator_epoch_is_accepted_and_counted() -> None:
    state, _ = folded(end(0, coordinator_epoch=5), data(1), end(2, coordinator_epoch=4))
    assert only(state).coordinator_epoch == 4 and sum(state.figures.odd.values()) == 1


def test_batches_of_older_formats_are_skipped_by_size() -> None:
    state, damage = folded(legacy(0), legacy(5, 0, 14), data(6))
    assert damage is None and (state.figures.legacy, only(state).start_offset) == (2, 6)


def test_a_gap_between_batches_is_reported_with_its_end() -> None:
    state, _ = folded(data(0), plain(5, 2), data(9, sequence=1))
    assert (state.figures.gaps, state.gap_until) == (2, 9)


# --- kafka-python's record module on the same bytes -------------------------------------------------------------------


@given(logs())
def test_batches_equal_those_of_kafka_pythons_record_module(batches: list[bytes]) -> None:
    """For formats with producers. The module differs on others."""
    known = [one for one in batches if one[16] == 2]
    state, damage = folded(*known)
    theirs = list(MemoryRecords(b"".join(known)))
    assert damage is None
    assert state.figures.batches == len(theirs)
    assert state.figures.records == sum(one.records_count for one in theirs)
    assert state.next_offset == (theirs[-1].last_offset + 1 if theirs else -1)
    pids = {one.producer_id for one in theirs if one.producer_id >= 0 and not one.is_control_batch}
    assert pids <= state.producers.keys()


# --- the same in columns ---


@given(logs(), st.integers(1, 7))
@settings(max_examples=100)
def test_columns_equal_the_walk(batches: list[bytes], chunk: int) -> None:
    log = b"".join(batches)
    expected = folded(log)
    assert in_columns(log) == expected
    size, columns._CHUNK = columns._CHUNK, chunk
    try:
        assert in_columns(log) == expected
    finally:
        columns._CHUNK = size


@given(logs(), st.data())
@settings(max_examples=100)
def test_columns_equal_the_walk_on_damaged_data(batches: list[bytes], draw: st.DataObject) -> None:
    log = bytearray(b"".join(batches))
    for _ in range(draw.draw(st.integers(1, 3)) if log else 0):
        log[draw.draw(st.integers(0, len(log) - 1))] = draw.draw(st.integers(0, 255))
    cut = draw.draw(st.integers(0, len(log)))
    assert in_columns(bytes(log[:cut])) == folded(bytes(log[:cut]))


# --- bad input ---

ONE = data(0)


DAMAGED: tuple[tuple[bytes, str | None, bool], ...] = (
    (b"", None, False),
    (ONE, None, False),
    (ONE + b"\0" * 4096, None, False),
    (ONE + b"\0" * 5, "within the header of a batch", True),
    (ONE + ONE[:5], "within the header of a batch", True),
    (ONE + data(1)[:40], "are left", True),
    (ONE + b"\0" * 12 + b"\1" * 100, "claims a length of 0", False),
    (ONE + changed(data(1), 8, struct.pack(">i", 13)), "claims a length of 13", False),
    (ONE + changed(data(1), 8, struct.pack(">i", 48)), "less than its header", False),
    (ONE + changed(data(1), 8, struct.pack(">i", -5)), "claims a length of -5", False),
    (ONE + changed(data(1), 8, struct.pack(">i", 2**31 - 1)), "are left", True),
    (ONE + changed(data(1), 16, b"\3"), "the format version 3", False),
    (ONE + changed(data(1), 16, b"\xff"), "the format version -1", False),
    (ONE + data(0), "the one before it ends at 0", False),
    (ONE + changed(data(1), 23, struct.pack(">i", -1)), "behind its first", False),
    (ONE + changed(data(1), 57, struct.pack(">i", -1)), "claims -1 records", False),
    (ONE + changed(data(1), 0, b"\xff" * 8), "before that of its file", False),
    (ONE + changed(data(1), 0, b"\x7f" + b"\xff" * 7), None, False),
    (ONE + changed(data(1, records=2), 0, b"\x7f" + b"\xff" * 7), "which none can have", False),
    (ONE + control(1, b"\0\0\0", b""), "key of a control record is cut short", False),
    (ONE + control(1, b"\xff\xff\0\1", b""), "has version -1", False),
    (ONE + control(1, b"\0\0\0\1", b"\0" * 5), "value of a marker is cut short", False),
    (ONE + control(1, b"\0\0\0\1", b"\xff" * 6), "a marker has version -1", False),
    (ONE + changed(end(1), 61, b"\xff" * 8), "cannot be decoded", False),
)


def test_a_walk_ends_at_damage() -> None:
    with Cases() as cases:
        for number, (log, expected, cut) in enumerate(DAMAGED):
            with cases.case(f"{number}: {expected}"):
                for state, damage in (folded(log), in_columns(log)):
                    assert (damage is None) == (expected is None), damage
                    if damage is not None and expected is not None:
                        assert expected in str(damage) and damage.cut == cut and damage.position == len(ONE)
                        assert state.next_offset == 1 and only(state).start_offset == 0


def test_an_offset_below_the_file_name_is_damage(wording: SnapshotAssertion) -> None:
    assert str(folded(data(4), base=5)[1]) == wording


def test_checksums_are_checked_on_request(wording: SnapshotAssertion) -> None:
    wrong = bytearray(data(1))
    wrong[-1] ^= 1
    assert folded(ONE, bytes(wrong))[1] is None
    state, damage = folded(ONE, bytes(wrong), check_crc=True)
    assert state.next_offset == 1
    assert str(damage) == wording


LOG = b"".join(
    [data(0), data(1, 8), end(2), plain(3, 2), data(5, sequence=1), end(6, 8, commit=False), legacy(7), data(8, 9)]
)


@pytest.mark.parametrize("fold", [folded, in_columns], ids=["walk", "columns"])
def test_a_truncated_log_has_the_state_of_its_whole_batches(fold: Callable[[bytes], Any]) -> None:
    starts = [at for at, _ in walk.headers(LOG)]
    for size in range(len(LOG)):
        state, damage = fold(LOG[:size])
        whole = [at for at in starts if at <= size][-1]
        assert state == fold(LOG[:whole])[0]
        assert (damage is None) == (size == whole)
        assert damage is None or (damage.cut and damage.position == whole)


@given(st.data())
@settings(max_examples=500)
@example(None)
def test_a_damaged_log_ends_with_a_reason_and_no_exception(draw: st.DataObject | None) -> None:
    log = bytearray(LOG * 2)
    for _ in range(draw.draw(st.integers(1, 8)) if draw is not None else 0):
        assert draw is not None
        log[draw.draw(st.integers(0, len(log) - 1))] = draw.draw(st.integers(0, 255))
    state, damage = folded(bytes(log), check_crc=True)
    assert damage is not None and state.figures.size_bytes == damage.position


@given(st.binary(max_size=300))
def test_any_bytes_end_with_a_reason_or_are_decoded(log: bytes) -> None:
    assert folded(log) == in_columns(log)


def test_a_record_batch_of_the_raft_log_changes_no_state() -> None:
    state, damage = folded(control(0, b"\0\0\0\2", b"\0" * 6, pid=-1, attributes=CONTROL), plain(1))
    assert damage is None and not state.producers and not state.figures.odd
