"""The small files of a broker's disk: their values, and the refusal of invalid files."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import Cases
from tests.offline import MS, OPEN_AT_37, SNAPSHOT, data, end, partition_directory, plain, snapshot_of
from txnscan.offline.contents import Replica
from txnscan.offline.disk import PathError, find
from txnscan.offline.files import (
    Aborted,
    BadFile,
    aborted,
    checkpoint,
    leader_epochs,
    offset_of,
    partition_of,
    snapshot,
    topic_id,
)
from txnscan.offline.producer_snapshots import ProducerState
from txnscan.offline.replica import read_replica

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

STATES = [OPEN_AT_37, ProducerState(1001, 0, -1, -1, -1, 0, MS, -1)]


def of_snapshot(content: bytes) -> list[ProducerState]:
    return snapshot(content, crc32c)


def replica(path: Path) -> Replica:
    (files,) = find([str(path)]).replicas
    return read_replica(files)


# --- snapshots ---


def test_the_snapshot_vector_has_one_producer_open_at_37() -> None:
    assert of_snapshot(SNAPSHOT) == [OPEN_AT_37]
    assert snapshot_of([OPEN_AT_37]) == SNAPSHOT
    assert of_snapshot(snapshot_of(STATES)) == STATES
    assert of_snapshot(snapshot_of([])) == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "too few"),
        (SNAPSHOT[:-1], "fails its checksum"),
        (SNAPSHOT + b"\0", "fails its checksum"),
        (b"\0\2" + SNAPSHOT[2:], "version 2"),
        (SNAPSHOT[:20] + b"\1" + SNAPSHOT[21:], "fails its checksum"),
        (struct.pack(">hIi", 1, crc32c(b"\xff\xff\xff\xff"), -1), "claims -1 producers"),
        (struct.pack(">hIi", 1, crc32c(b"\x7f\xff\xff\xff"), 2**31 - 1), "claims 2147483647 producers"),
        (snapshot_of([OPEN_AT_37, OPEN_AT_37]), "is in it twice"),
        (snapshot_of([ProducerState(-1, 0)]), "producer id -1"),
        (snapshot_of([ProducerState(1, -2)]), "epoch -2"),
    ],
)
def test_an_invalid_snapshot_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(BadFile, match=why):
        of_snapshot(content)


def test_a_first_offset_below_minus_one_is_none() -> None:
    assert of_snapshot(snapshot_of([ProducerState(1, 0, start_offset=-9)])) == [ProducerState(1, 0)]


def test_a_truncated_snapshot_is_refused() -> None:
    with Cases() as cases:
        for size in range(len(SNAPSHOT)):
            with cases.case(f"{size} bytes"), pytest.raises(BadFile):
                of_snapshot(SNAPSHOT[:size])


# --- other files ------------------------------------------------------------------------------------------------------

INDEX_ROW = struct.pack(">hqqqq", 0, 7, 3, 9, 5)


def test_a_transaction_index_has_a_row_per_aborted_transaction() -> None:
    assert aborted(INDEX_ROW * 2) == [Aborted(7, 3, 9, 5)] * 2
    assert aborted(b"") == []


@pytest.mark.parametrize(
    "content",
    [
        INDEX_ROW[:-1],
        b"\0\1" + INDEX_ROW[2:],
        struct.pack(">hqqqq", 0, 7, 9, 3, 5),
        struct.pack(">hqqqq", 0, -1, 3, 9, 5),
    ],
)
def test_an_invalid_transaction_index_is_refused(content: bytes) -> None:
    with pytest.raises(BadFile):
        aborted(content)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", {}),
        (b"0\n0\n", {}),
        (
            b"0\n2\nmy-topic 9 913090100\n__consumer_offsets 27 5\n",
            {("my-topic", 9): 913090100, ("__consumer_offsets", 27): 5},
        ),
        (b"0\r\n1\r\nt 0 1\r\n", {("t", 0): 1}),
        (b"0\n2\nt 0 1\nt 0 2\n", {("t", 0): 2}),
    ],
)
def test_a_checkpoint_has_offsets_by_partition(content: bytes, expected: object) -> None:
    assert checkpoint(content) == expected


@pytest.mark.parametrize(
    "content",
    [
        b"1\n0\n",
        b"0\n",
        b"0\n1\n",
        b"0\n1\nt 0\n",
        b"0\n1\nt 0 x\n",
        b"0\n1\nt 0 -5\n",
        b"0\n99999999999999999999999\n",
        b"0\nx\n",
        b"\xff",
    ],
)
def test_an_invalid_checkpoint_is_refused(content: bytes) -> None:
    with pytest.raises(BadFile):
        checkpoint(content)


def test_leader_epochs_must_rise() -> None:
    assert leader_epochs(b"0\n2\n0 0\n3 55\n") == [(0, 0), (3, 55)]
    with pytest.raises(BadFile, match="do not rise"):
        leader_epochs(b"0\n2\n3 0\n3 55\n")


def test_a_topic_id_is_printed_as_in_kafka() -> None:
    assert topic_id(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ") == "AAAAAAAAAAAAAAAAAAAAAQ"
    for bad in (b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", b"version: 0\ntopic_id: x", b"", b"\xff\xfe"):
        with pytest.raises(BadFile):
            topic_id(bad)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_decoded(content: bytes) -> None:
    decoders: list[Callable[[bytes], object]] = [of_snapshot, aborted, checkpoint, leader_epochs, topic_id]
    for decode in decoders:
        try:
            decode(content)
        except BadFile as refused:
            assert str(refused)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("my-topic-9", ("my-topic", 9)),
        ("a.b_c-0", ("a.b_c", 0)),
        ("topic", None),
        ("t-x", None),
        ("t-99999999999", None),
        ("-1", None),
    ],
)
def test_a_directory_is_named_by_topic_and_partition(name: str, expected: object) -> None:
    assert partition_of(name) == expected


def test_a_file_is_named_by_its_first_offset() -> None:
    assert offset_of("00000000000912375285.log") == 912375285
    assert offset_of("912375285.log") is None and offset_of("leader-epoch-checkpoint") is None


# --- a replica ---

LOG = [data(0), data(1, 8), end(2), data(3, sequence=1)]


def test_the_state_is_the_newest_valid_snapshot_plus_later_batches(tmp_path: Path, wording: SnapshotAssertion) -> None:
    """As for a broker that loads it: a damaged snapshot is replaced by the previous snapshot."""
    old, new = ProducerState(9, 0, start_offset=0), ProducerState(8, 3, last_timestamp_ms=MS, start_offset=1)
    name = {"00000000000000000002.snapshot": snapshot_of([new]), "00000000000000000001.snapshot": snapshot_of([old])}
    directory = partition_directory(tmp_path, "t-0", {0: b"".join(LOG)}, **name)
    read = replica(directory)
    assert read.snapshot_offset == 2 and [one.producer_id for one in read.open] == [8, 7]
    (directory / "00000000000000000002.snapshot").write_bytes(b"\0" * 60)
    read = replica(directory)
    assert read.snapshot_offset == 1 and [one.producer_id for one in read.open] == [9, 8, 7]
    assert read.errors[0].error == wording


def test_a_snapshot_at_the_log_end_is_used_and_one_beyond_is_not(tmp_path: Path, wording: SnapshotAssertion) -> None:
    directory = partition_directory(
        tmp_path, "t-0", {0: b"".join(LOG)}, **{"00000000000000000004.snapshot": snapshot_of(STATES)}
    )
    assert replica(directory).snapshot_offset == 4
    (directory / "00000000000000000004.snapshot").rename(directory / "00000000000000000005.snapshot")
    read = replica(directory)
    assert read.snapshot_offset == -1
    assert read.errors[0].error == wording


def test_a_log_without_its_start_may_miss_open_transactions(tmp_path: Path) -> None:
    read = replica(partition_directory(tmp_path, "t-0", {3: LOG[3]}))
    assert read.start_unknown is not None and "without a snapshot" in read.start_unknown
    known = partition_directory(tmp_path, "t-1", {3: LOG[3]}, **{"00000000000000000003.snapshot": snapshot_of([])})
    assert replica(known).start_unknown is None


def test_a_transaction_before_a_gap_may_have_its_marker_in_the_gap(tmp_path: Path) -> None:
    """Compaction never passes an open transaction: a gap after its start is not caused by compaction."""
    gap = partition_directory(tmp_path, "t-0", {0: data(0), 5: data(5, 8)})
    read = replica(gap)
    seven, eight = read.open
    assert "missing here" in str(read.doubt(seven)) and read.doubt(eight) is None
    partition_directory(tmp_path, "t-0", {}, **{"00000000000000000005.snapshot": snapshot_of([seven])})
    assert replica(gap).doubt(seven) is None


def test_a_damaged_segment_ends_the_known_log(tmp_path: Path, wording: SnapshotAssertion) -> None:
    read = replica(partition_directory(tmp_path, "t-0", {0: data(0) + b"\7" * 99, 5: end(5)}))
    assert read.log_end_offset == 1
    assert str(read.unproven).replace(str(tmp_path), "<tmp>") == wording
    (one,) = read.open
    assert str(read.doubt(one)).replace(str(tmp_path), "<tmp>") == wording


def test_an_empty_last_segment_gives_the_log_end(tmp_path: Path) -> None:
    assert replica(partition_directory(tmp_path, "t-0", {0: data(0), 1: b""})).log_end_offset == 1
    assert replica(partition_directory(tmp_path, "t-1", {7: b""})).log_end_offset == 7


def test_checkpoints_give_watermark_cleaning_and_moved_directories(tmp_path: Path) -> None:
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 5\n")
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("nonsense")
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=abc\nnode.id=4\n")
    partition_directory(tmp_path, "t-0", {5: data(5) + plain(6)}, **{"leader-epoch-checkpoint": b"0\n1\n3 5\n"})
    partition_directory(tmp_path, "u-0.abc-delete", {0: plain(0)})
    found = find([str(tmp_path)])
    (files,) = found.replicas
    read = read_replica(files)
    assert (read.high_watermark, read.cleaned_until, read.log_start_offset, read.moved_until) == (6, 5, 2, 5)
    assert (read.broker_id, read.leader_epoch, read.recovery_point) == (4, 3, -1)
    assert read.compaction_stuck
    assert [error.error for error in found.errors] == ["it has version 'nonsense'"]
    assert found.going == [str(tmp_path / "u-0.abc-delete")]


def test_the_last_stable_offset_is_not_below_the_log_start(tmp_path: Path) -> None:
    """DeleteRecords cut the first batch of the transaction in two."""
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    partition_directory(tmp_path, "t-0", {0: data(0, records=3)})
    (files,) = find([str(tmp_path)]).replicas
    read = read_replica(files)
    assert (read.log_start_offset, read.last_stable_offset, read.open[0].start_offset) == (2, 2, 0)


def test_single_files_are_read_without_their_neighbours(tmp_path: Path) -> None:
    directory = partition_directory(tmp_path, "t-0", {0: data(0), 1: end(1)})
    read = replica(directory / "00000000000000000000.log")
    assert read.key == ("t", 0) and len(read.open) == 1 and len(read.segments) == 1


@pytest.mark.parametrize("name", ["nothing.txt", "12.log"])
def test_an_unreadable_path_is_a_usage_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(PathError):
        find([str(tmp_path / name)])
    with pytest.raises(PathError, match="no such file"):
        find([str(tmp_path / "absent")])
    with pytest.raises(PathError, match="holds no log directory"):
        find([str(tmp_path)])
