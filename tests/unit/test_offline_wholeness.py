"""Where a log on disk begins and ends: each witness, what is missing beside the files, and the answers of the commands.

`tests/search/test_incomplete_disks.py` searches for an incomplete disk that accuses a live transaction.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from tests.cases import Cases
from tests.fakes.metadata_log import ID, OTHER, framed, one_replica, registration, topic
from tests.golden.disks import unpacked
from tests.offline import MS, data, end, partition_directory, plain, shut_down, snapshot_of
from tests.sim.wire.batches import batch
from txnscan.cli.app import app
from txnscan.errors import ExitStatus
from txnscan.kafka.protocol.primitives import numbers, unsigned
from txnscan.offline.contents import LogDirectory, Replica, Segment
from txnscan.offline.disk import find
from txnscan.offline.files import BadFile, broker_epoch, last_indexed, last_timed
from txnscan.offline.paths import read_paths
from txnscan.offline.replica import read_replica
from txnscan.offline.wholeness import end_error, gap_error, holes, start_error, state_error, unwitnessed

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

LOG, LATER = f"{0:020d}.log", f"{9:020d}.log"


def ran(*arguments: str) -> tuple[int, Any]:
    """The exit status of a command, and its object."""
    done = CliRunner().invoke(app, [*arguments, "--format", "json", "--fail-on", "incomplete"])
    return done.exit_code, json.loads(done.stdout)


# --- a disk of a real broker that stopped cleanly, made incomplete ---

STATE = "__transaction_state"


def _emptied(path: Path) -> None:
    os.truncate(path, 0)


def _first_batch(path: Path) -> None:
    content = path.read_bytes()
    os.truncate(path, 12 + int.from_bytes(content[8:12]))


def _segment(folder: Path, place: int) -> None:
    """Removes all files of a segment."""
    base = sorted(folder.glob("*.log"))[place].stem
    for path in folder.glob(f"{base}.*"):
        path.unlink()


def _all(paths: Iterable[Path], change: Callable[[Path], object]) -> None:
    for path in list(paths):
        change(path)


def _of_each_log(change: Callable[[Path], object]) -> Callable[[Path], None]:
    return lambda root: _all((root / f"{STATE}-{k}" for k in (0, 1)), change)


def _keep_first_batch(log: Path) -> None:
    _segment(log, 2)
    _segment(log, 1)
    _first_batch(log / LOG)


# What happens to the disk.
INCOMPLETE: dict[str, Callable[[Path], object]] = {
    "the transaction log lacks its .log files": _of_each_log(lambda log: _all(log.glob("*.log"), Path.unlink)),
    "the .log files of the transaction log are empty": _of_each_log(lambda log: _all(log.glob("*.log"), _emptied)),
    "the transaction log has only its first batch": _of_each_log(_keep_first_batch),
    "the first segment is missing": _of_each_log(lambda log: _segment(log, 0)),
    "a middle segment is missing": _of_each_log(lambda log: _segment(log, 1)),
    "the last segment is missing": _of_each_log(lambda log: _segment(log, -1)),
    "the checkpoints are missing": lambda root: _all(root.glob("*-checkpoint"), Path.unlink),
    "the clean shutdown is not recorded": lambda root: (root / ".kafka_cleanshutdown").unlink(),
}


@pytest.mark.parametrize("options", [[], ["--stopped"]], ids=["", "stopped"])
@pytest.mark.parametrize("name", INCOMPLETE)
def test_an_incomplete_disk_has_no_hanging_transaction(tmp_path: Path, name: str, options: list[str]) -> None:
    root = unpacked("clean", tmp_path) / "1"
    INCOMPLETE[name](root)
    status, found = ran("segments", str(root), *options)
    assert status == ExitStatus.INCOMPLETE and found["errors"]
    assert found["sweep"]["counts"]["hanging"] == 0
    assert not any(one["commands"] for one in found["transactions"])


@pytest.mark.parametrize("options", [[], ["--stopped"]], ids=["", "stopped"])
def test_a_missing_marker_leaves_a_committed_transaction_indeterminate(tmp_path: Path, options: list[str]) -> None:
    """Its commit is in the transaction log, and its marker was in the last segments of the partition."""
    root = unpacked("clean", tmp_path) / "1"
    before = {one["producer_id"] for one in ran("segments", str(root))[1]["transactions"]}
    for _ in range(3):
        _segment(root / "a-0", -1)
    status, found = ran("segments", str(root), *options)
    ended = [one for one in found["transactions"] if one["producer_id"] not in before]
    assert ended and {(one["verdict"], one["reason"]) for one in ended} == {("indeterminate", "partition")}
    assert status == ExitStatus.INCOMPLETE and "are not in the files" in ended[0]["explanation"]


@pytest.mark.parametrize("change", [_emptied, Path.unlink], ids=["empty", "missing"])
def test_a_partition_without_its_log_is_an_error(tmp_path: Path, change: Callable[[Path], object]) -> None:
    root = unpacked("clean", tmp_path) / "1"
    change(root / "b-0" / LOG)
    status, found = ran("segments", str(root))
    assert status == ExitStatus.INCOMPLETE
    assert any(f"{root}/b-0" in error["error"] for error in found["errors"])


def test_a_partition_without_a_folder_is_an_error(tmp_path: Path, wording: SnapshotAssertion) -> None:
    root = unpacked("clean", tmp_path) / "1"
    for path in (root / "b-0").iterdir():
        path.unlink()
    (root / "b-0").rmdir()
    status, found = ran("segments", str(root))
    assert status == ExitStatus.INCOMPLETE
    assert [error["error"].replace(str(root), "<root>") for error in found["errors"]] == wording


def test_a_partition_that_is_being_deleted_is_not_missing(tmp_path: Path) -> None:
    root = unpacked("clean", tmp_path) / "1"
    (root / "b-0").rename(root / f"b-0.{'0' * 32}-delete")
    status, found = ran("segments", str(root))
    assert (status, found["errors"]) == (ExitStatus.DONE, [])


def test_a_timeline_marks_the_offsets_that_are_not_in_the_files(tmp_path: Path, wording: SnapshotAssertion) -> None:
    root = unpacked("clean", tmp_path) / "1"
    ids = ran("transaction-log", str(root))[1]["transactional_ids"]
    name, k = next(
        (one["transactional_id"], one["log_partition"]) for one in ids if "early-0" in one["transactional_id"]
    )
    _segment(root / f"{STATE}-{k}", 1)
    said = CliRunner().invoke(app, ["transaction-log", str(root), "--transactional-id", name]).stdout
    assert [line for line in said.splitlines() if "not in the files" in line and line.startswith("  o")] == wording
    _, found = ran("transaction-log", str(root), "--transactional-id", name)
    (hole,) = found["log_partitions"][k]["holes"]
    assert hole["first"] < hole["until"]


def test_a_verdict_on_a_compacted_log_states_its_assumption(tmp_path: Path, wording: SnapshotAssertion) -> None:
    root = unpacked("compacted", tmp_path) / "1"
    _, found = ran("segments", str(root))
    assert {bool(one["assumption"]) == (one["verdict"] == "hanging") for one in found["transactions"]} == {True}
    said = CliRunner().invoke(app, ["segments", str(root)]).stdout
    assert next(line for line in said.splitlines() if "Assumes" in line) == wording
    _, whole = ran("segments", str(unpacked("clean", tmp_path / "clean") / "1"))
    assert {one["assumption"] for one in whole["transactions"]} == {None}


# --- each witness ---


def replica(path: Path) -> Replica:
    (files,) = find([str(path)]).replicas
    return read_replica(files)


def _indexed(*offsets: int) -> bytes:
    return b"".join(struct.pack(">ii", offset, 99) for offset in offsets)


def _timed(*offsets: int) -> bytes:
    return b"".join(struct.pack(">qi", MS + offset, offset) for offset in offsets)


@pytest.mark.parametrize(
    ("last", "entries", "size"), [(last_indexed, _indexed, 8), (last_timed, _timed, 12)], ids=["index", "timeindex"]
)
def test_an_index_shows_its_last_entry_before_reserved_zeros(
    last: Callable[[bytes], int | None], entries: Callable[..., bytes], size: int
) -> None:
    with Cases() as cases:
        for count in range(5):
            for zeros in (0, 1, 7, 1_000):
                with cases.case(f"{count} entries, {zeros} zeros"):
                    content = entries(*range(1, count + 1)) + b"\0" * size * zeros
                    assert last(content) == (count or None)
                    assert last(content + b"\0" * (size - 1)) == (count or None)


def test_a_clean_shutdown_has_the_epoch_of_its_broker() -> None:
    assert broker_epoch(b'{"version":0,"brokerEpoch":11}') == 11
    assert broker_epoch(b"") is None and broker_epoch(b'{"version":0,"brokerEpoch":-1}') is None
    for bad in (b"{", b"[]", b"{}", b'{"brokerEpoch":"x"}', b"\xff", b"[" * 50_000):
        with pytest.raises(BadFile):
            broker_epoch(bad)


A_REPLICA = {LOG: data(0) + plain(1), LATER: plain(9)}


def _log(tmp_path: Path, **files: bytes) -> Replica:
    """Offsets 0 and 1, and 9; its checkpoints say that it ends at 10."""
    partition_directory(tmp_path, "t-0", {}, **A_REPLICA, **files)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (tmp_path / name).write_text("0\n1\nt 0 10\n")
    return replica(tmp_path / "t-0")


def test_only_compaction_explains_a_gap_and_time_indexes_limit_it(tmp_path: Path) -> None:
    """The first segment ends at offset 2, and the second begins at 9."""
    found = _log(tmp_path)
    first, second = found.segments
    table = {
        "no compaction": (-1, NONE_TIMED, [(2, 9)]),
        "compaction came to the second segment": (9, 2, []),
        "compaction came further": (20, 2, []),
        "compaction ended before": (8, 2, [(2, 9)]),
        "the time index has a later record": (9, 5, [(2, 5)]),
        "no time index": (9, NONE_TIMED, [(2, 9)]),
    }
    with Cases() as cases:
        for name, (cleaned, timed, expected) in table.items():
            with cases.case(name):
                one = replace(first, timed_until=timed, indexed_until=timed)
                changed = replace(found, cleaned_until=cleaned, segments=(one, second))
                assert [(hole.first, hole.until) for hole in holes(changed)] == expected
                assert (gap_error(changed) is None) == (not expected)


NONE_TIMED = -1


def test_the_start_of_a_log_needs_a_witness(tmp_path: Path) -> None:
    found = _log(tmp_path)
    at_five = (Segment(5, 9), Segment(9, 10))
    table: dict[str, tuple[dict[str, Any], bool]] = {
        "offset 0": ({}, True),
        "nothing": ({"segments": at_five}, False),
        "leader epochs begin there": ({"segments": at_five, "leader_epochs": ((3, 5), (4, 8))}, True),
        "leader epochs begin within": ({"segments": at_five, "leader_epochs": ((3, 7),)}, True),
        "leader epochs begin before": ({"segments": at_five, "leader_epochs": ((0, 0), (4, 8))}, False),
        "a start of the log there": ({"segments": at_five, "started": 5}, True),
        "a start of the log within": ({"segments": at_five, "started": 8}, True),
        "a start of the log before": ({"segments": at_five, "started": 3}, False),
        "a start of the log behind it": ({"segments": at_five, "started": 12}, False),
        "no segment": ({"segments": ()}, False),
    }
    with Cases() as cases:
        for name, (fields, known) in table.items():
            with cases.case(name):
                assert (start_error(replace(found, **fields)) is None) == known


def test_each_witness_of_a_later_end_counts(tmp_path: Path) -> None:
    whole = _log(tmp_path)
    (tmp_path / "x").mkdir()
    with_snapshot = _log(tmp_path / "x", **{f"{11:020d}.snapshot": snapshot_of([])})
    late = replace(whole.segments[-1], indexed_until=12, index="i")
    table = {
        "nothing": (whole, None),
        "the high watermark": (replace(whole, high_watermark=13), 13),
        "the recovery point": (replace(whole, recovery_point=14), 14),
        "the latest leader epoch": (replace(whole, leader_epochs=((0, 0), (2, 11))), 11),
        "a producer snapshot": (with_snapshot, 11),
        "an index": (replace(whole, segments=(whole.segments[0], late)), 12),
        "all at the end": (replace(whole, high_watermark=10, recovery_point=10, leader_epochs=((0, 10),)), None),
    }
    with Cases() as cases:
        for name, (one, until) in table.items():
            with cases.case(name):
                why = end_error(one)
                assert (why is None) if until is None else (f"{until - 1} " in str(why) or f" {until - 1}" in str(why))


def test_the_end_of_a_log_needs_a_witness(tmp_path: Path) -> None:
    found = _log(tmp_path)
    (tmp_path / "alone").mkdir()
    partition_directory(tmp_path / "alone", "t-0", {0: data(0)})
    table: dict[str, tuple[Replica, bool, bool]] = {
        "a clean shutdown at its end": (found, True, True),
        "a clean shutdown elsewhere": (replace(found, recovery_point=9), True, False),
        "a clean shutdown without the partition": (replace(found, recovery_point=-1), True, False),
        "a kill": (found, False, True),
        "a kill, with a high watermark before the end": (replace(found, high_watermark=5), False, True),
        "a kill, without a high watermark": (replace(found, high_watermark=-1), False, False),
        "no checkpoints": (replica(tmp_path / "alone" / "t-0"), True, False),
        "a single file": (replica(tmp_path / "t-0" / LOG), True, False),
    }
    with Cases() as cases:
        for name, (one, clean, shown) in table.items():
            with cases.case(name):
                assert (unwitnessed(one, clean=clean) is None) == shown


def test_an_index_without_its_log_shows_a_missing_segment(tmp_path: Path) -> None:
    for number, kind in enumerate(("index", "timeindex", "txnindex")):
        (tmp_path / str(number)).mkdir()
        found = _log(tmp_path / str(number), **{f"{4:020d}.{kind}": b""})
        assert kind in str(gap_error(replace(found, cleaned_until=99)))
    # A stray snapshot stays behind if the broker stopped in the middle of a segment.
    (tmp_path / "stray").mkdir()
    stray = _log(tmp_path / "stray", **{f"{1:020d}.snapshot": snapshot_of([])})
    assert gap_error(replace(stray, segments=(Segment(0, 9), Segment(9, 10)))) is None


def test_the_newest_snapshot_makes_what_is_before_it_unnecessary(tmp_path: Path) -> None:
    assert "offsets 2 to 8" in str(state_error(_log(tmp_path), clean=True))
    (tmp_path / "x").mkdir()
    with_snapshot = _log(tmp_path / "x", **{f"{9:020d}.snapshot": snapshot_of([])})
    assert state_error(with_snapshot, clean=True) is None and gap_error(with_snapshot) is not None


# --- partitions, log directories and brokers ---


def _with_directories(*ids: bytes) -> bytes:
    lists = numbers([1]) + numbers([1]) + numbers([]) + numbers([])
    tail = struct.pack(">iii", 1, 5, 7) + unsigned(len(ids) + 1) + b"".join(ids) + b"\0"
    return framed(3, 1, struct.pack(">i", 0) + ID + lists + tail)


FIRST, SECOND = bytes(12) + b"dir1", bytes(12) + b"dir2"
NAME_OF = {FIRST: "AAAAAAAAAAAAAAAAZGlyMQ", SECOND: "AAAAAAAAAAAAAAAAZGlyMg"}


def _disk(root: Path, *records: bytes, partitions: tuple[str, ...] = ("t-0",), directory: bytes | None = None) -> Path:
    """A log directory of broker 1 after a clean shutdown, with this metadata."""
    root.mkdir(parents=True)
    of_directory = f"directory.id={NAME_OF[directory]}\n" if directory else ""
    (root / "meta.properties").write_text(f"cluster.id=abc\nnode.id=1\n{of_directory}")
    for name in partitions:
        partition_directory(root, name, {0: data(0) + end(1)})
    if records:
        log = batch(0, [(None, record) for record in records], timestamp_ms=MS)
        snapshot = {f"{len(records):020d}.snapshot": snapshot_of([])}
        partition_directory(root, "__cluster_metadata-0", {0: log}, **snapshot)
    return shut_down(root)


def _errors(*roots: Path) -> list[str]:
    read = read_paths([str(root) for root in roots], late_after_ms=0)
    return [f"{error.path}: {error.error}" for error in (*read.errors, *read.incomplete)]


def _row(root: Path, topic_name: str) -> Path:
    """Adds a partition to a checkpoint."""
    path = root / "replication-offset-checkpoint"
    rows = [*path.read_text().splitlines()[2:], f"{topic_name} 0 5"]
    path.write_text("\n".join(["0", str(len(rows)), *rows, ""]))
    return root


def test_a_partition_without_a_folder_is_missing_unless_the_metadata_explains_it(tmp_path: Path) -> None:
    known = (topic("t"), one_replica(ID))
    on_two = framed(
        3, 0, struct.pack(">i", 0) + OTHER + numbers([2]) * 2 + numbers([]) * 2 + struct.pack(">iii", 2, 1, 1)
    )
    elsewhere = (topic("u", OTHER), on_two + b"\0")
    deleted = (topic("u", OTHER), one_replica(OTHER), framed(9, 0, OTHER + b"\0"))
    here = (topic("u", OTHER), one_replica(OTHER))
    made = iter(range(100))

    def disk(*records: bytes, **more: Any) -> Path:
        return _disk(tmp_path / str(next(made)), *records, **more)

    ids = (registration(1, 5, FIRST, SECOND), topic("t"), _with_directories(SECOND))
    table: dict[str, tuple[list[Path], int]] = {
        "all is there": ([disk(*known)], 0),
        "a row of a checkpoint, and no metadata": ([_row(disk(), "u")], 1),
        "a row of a checkpoint, of a topic that was deleted": ([_row(disk(*known, *deleted), "u")], 0),
        # Broker 2 is missing.
        "a row of a checkpoint, of a replica on another broker": ([_row(disk(*known, *elsewhere), "u")], 1),
        "a replica in the metadata": ([disk(*known, *here)], 1),
        "both of two directories": (
            [disk(*ids, partitions=(), directory=FIRST), disk(directory=SECOND)],
            0,
        ),
        "a directory was not copied": ([disk(*ids, partitions=(), directory=FIRST)], 1),
        "a partition of the other directory": (
            [disk(*ids, partitions=(), directory=FIRST), disk(directory=SECOND, partitions=())],
            1,
        ),
    }
    with Cases() as cases:
        for name, (roots, count) in table.items():
            with cases.case(name):
                found = _errors(*roots)
                assert len(found) == count, found


def test_a_single_partition_does_not_miss_the_others(tmp_path: Path) -> None:
    root = _row(_disk(tmp_path / "data", topic("t"), one_replica(ID)), "u")
    assert _errors(root / "t-0") == []


# --- the moment ---


def test_a_clean_shutdown_of_an_earlier_run_does_not_count(tmp_path: Path) -> None:
    """A copy over an older copy leaves the old record. The log ends where the last checkpoint was written."""
    from txnscan.offline.cluster_metadata import Metadata
    from txnscan.offline.copies import Copies

    with Cases() as cases:
        for recorded, registered, clean in ((7, 7, True), (7, 8, False), (None, 8, True), (7, None, True)):
            with cases.case(f"{recorded}, {registered}"):
                epochs = {} if registered is None else {1: registered}
                copies = Copies({}, [], {1: Metadata(broker_epochs=epochs)}, vouched=False, newest_file_ms=0)
                one = LogDirectory("d", "abc", 1, clean=True, broker_epoch=recorded)
                assert copies.is_clean(one) == clean


def test_a_metadata_log_of_a_clean_shutdown_ends_at_its_snapshot(tmp_path: Path) -> None:
    root = _disk(tmp_path / "data", topic("t"), one_replica(ID))
    assert _errors(root) == []
    snapshot = root / "__cluster_metadata-0" / f"{2:020d}.snapshot"
    for later in (3, 1):
        snapshot = snapshot.rename(snapshot.with_name(f"{later:020d}.snapshot"))
        assert _errors(root), later
    snapshot.unlink()
    assert _errors(root)


def test_the_last_seconds_of_a_killed_broker_are_unknown(tmp_path: Path) -> None:
    """Its hanging transaction was idle. A later write, or lost times of files, leave it indeterminate."""
    root = unpacked("killed", tmp_path) / "1"
    assert ran("segments", str(root))[1]["sweep"]["counts"]["hanging"] == 1
    log, folder, marks = root / "b-0" / LOG, root / "b-0", root / "replication-offset-checkpoint"
    metadata = root / "__cluster_metadata-0" / LOG
    stamps = {path: path.stat().st_mtime_ns for path in (log, folder, marks, metadata)}

    def hanging_at(path: Path, at_ns: int) -> int:
        os.utime(path, ns=(at_ns, at_ns))
        found = ran("segments", str(root), "--stopped")[1]["sweep"]["counts"]["hanging"]
        os.utime(path, ns=(stamps[path], stamps[path]))
        return int(found)

    assert hanging_at(log, stamps[log]) == 1
    assert hanging_at(log, stamps[marks]) == 0
    assert hanging_at(folder, stamps[marks]) == 0
    assert hanging_at(marks, stamps[log]) == 0
    assert hanging_at(metadata, stamps[metadata] + 3_600 * 10**9) == 0


# --- what is given by mistake ---


def test_the_output_of_kafkas_dump_tool_is_recognised(tmp_path: Path, wording: SnapshotAssertion) -> None:
    text = b"Dumping /tmp/data/t-0/00000000000000000000.log\nLog starting offset: 0\n"
    partition_directory(tmp_path, "t-0", {0: text})
    status, found = ran("segments", str(tmp_path / "t-0" / LOG))
    assert status == ExitStatus.INCOMPLETE
    assert found["errors"][0]["error"].replace(str(tmp_path), "<tmp>") == wording


def test_a_folder_with_another_name_is_shown_by_its_path(tmp_path: Path) -> None:
    partition_directory(tmp_path, "attached", {0: data(0)})
    said = CliRunner().invoke(app, ["segments", str(tmp_path / "attached")]).stdout
    assert "--1" not in said and f"  {tmp_path}/attached  open" in said
