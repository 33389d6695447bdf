"""`__cluster_metadata`, record by record: the replicas of partitions, and the registrations of brokers."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import Cases
from tests.fakes.metadata_log import ID, OTHER, framed, one_replica, registration, topic
from tests.offline import MS, data, partition_directory, plain, shut_down, snapshot_of
from tests.sim.wire.batches import batch
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.primitives import numbers, unsigned
from txnscan.offline.cluster_metadata import Assigned, Metadata
from txnscan.offline.files import offset_of
from txnscan.offline.paths import read_paths

NAME = "AAAAAAAAAAAAAAAAAAAAAQ"


def partition(index: int = 0, topic_id: bytes = ID, leader: int = 1) -> bytes:
    lists = numbers([1, 2]) + numbers([1]) + numbers([]) + numbers([])
    return framed(3, 1, struct.pack(">i", index) + topic_id + lists + struct.pack(">iii", leader, 5, 7) + b"\1\0")


def change(index: int, *tags: tuple[int, bytes]) -> bytes:
    written = b"".join(unsigned(tag) + unsigned(len(value)) + value for tag, value in tags)
    return framed(5, 0, struct.pack(">i", index) + ID + unsigned(len(tags)) + written)


def taken(*records: bytes) -> Metadata:
    metadata = Metadata()
    for offset, record in enumerate(records):
        metadata.take(offset, record)
    return metadata


def test_a_partition_has_its_replicas_and_its_topic_id() -> None:
    metadata = taken(topic(), partition(), partition(1))
    assert metadata.assigned(("t", 0)) == (NAME, Assigned((1, 2), (1,), 1))
    assert metadata.count("t") == 2 and metadata.count("u") == 0
    assert metadata.assigned(("t", 5)) is None and metadata.assigned(("u", 0)) is None


def test_changes_are_applied_in_order_and_unknown_tags_are_skipped() -> None:
    leader, in_sync, replicas = struct.pack(">i", -1), numbers([2]), numbers([2, 3])
    metadata = taken(topic(), partition(), change(0, (0, in_sync), (1, leader), (2, replicas), (6, b"xx")))
    assert metadata.assigned(("t", 0)) == (NAME, Assigned((2, 3), (2,), -1))


def test_a_deleted_topic_has_no_partitions_and_may_be_recreated() -> None:
    metadata = taken(topic(), partition(), framed(9, 0, ID + b"\0"))
    assert metadata.assigned(("t", 0)) is None and metadata.count("t") == 0
    metadata.take(9, topic("t", OTHER))
    metadata.take(10, partition(0, OTHER))
    found = metadata.assigned(("t", 0))
    assert found is not None and found[0] != NAME


def test_a_broker_registers_each_time_it_starts() -> None:
    metadata = taken(topic(), registration(4, 70), registration(4, 80))
    assert (metadata.registered_at, metadata.broker_epochs) == ({4: 2}, {4: 80})


def test_other_records_and_frames_are_skipped() -> None:
    assert taken(framed(20, 0, b"\0"), b"\2\0\0") == Metadata()


@pytest.mark.parametrize(
    "record", [topic(), partition(), change(0, (0, numbers([2])))], ids=["topic", "partition", "change"]
)
def test_a_truncated_record_is_refused_at_every_length(record: bytes) -> None:
    metadata = taken(topic(), partition())
    for size in range(len(record) - 4):
        try:
            metadata.take(9, record[:size])
        except RequestFailed as refused:
            assert "cannot be decoded" in str(refused)


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_decoded(content: bytes) -> None:
    for kind in (b"", b"\1\0\0", b"\1\2\0", b"\1\3\0", b"\1\5\0", b"\1\x09\0"):
        try:
            taken(topic(), partition()).take(9, kind + content)
        except RequestFailed as refused:
            assert str(refused)


# --- its snapshots

BATCH = [
    (None, record) for record in (topic("t"), topic("__transaction_state", OTHER), one_replica(ID), one_replica(OTHER))
]
NEWEST = f"{10:020d}-{3:010d}.checkpoint"


def log_directory(root: Path) -> Path:
    """A broker after a clean shutdown. A transaction hangs, and the metadata log begins with a snapshot."""
    root.mkdir(parents=True)
    (root / "meta.properties").write_text("cluster.id=abc\nnode.id=1\n")
    (root / ".lock").touch()
    partition_directory(root, "t-0", {0: data(0) + plain(1)})
    partition_directory(root, "__transaction_state-0", {0: b""})
    log = partition_directory(root, "__cluster_metadata-0", {10: plain(10)})
    (log / NEWEST).write_bytes(batch(0, BATCH, timestamp_ms=MS))
    (log / f"{11:020d}.snapshot").write_bytes(snapshot_of([]))
    shut_down(root)
    return log


def test_a_snapshot_name_has_offset_and_epoch() -> None:
    assert offset_of(NEWEST) == 10
    for name in (f"{10:020d}.checkpoint", f"{10:020d}-3.checkpoint", f"{10:020d}-{3:010d}.log", "bootstrap.checkpoint"):
        assert offset_of(name) is None


def _spoil(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def _begin_at_11(log: Path) -> None:
    (log / f"{10:020d}.log").unlink()
    (log / f"{11:020d}.log").write_bytes(plain(11))


# The change to the metadata log, the verdict, and the number of failing files.
SNAPSHOTS: dict[str, tuple[Callable[[Path], object], str, int]] = {
    "nothing": (lambda log: None, "hanging", 0),
    "no snapshot": (lambda log: (log / NEWEST).unlink(), "indeterminate", 1),
    "a name without an epoch": (lambda log: (log / NEWEST).rename(log / f"{10:020d}.checkpoint"), "indeterminate", 1),
    "cut off": (lambda log: os.truncate(log / NEWEST, 100), "indeterminate", 1),
    "empty": (lambda log: os.truncate(log / NEWEST, 0), "indeterminate", 0),
    "a byte that is another": (lambda log: _spoil(log / NEWEST), "indeterminate", 1),
    "a gap behind it": (_begin_at_11, "indeterminate", 1),
    "an older one, which is empty": (lambda log: (log / f"{4:020d}-{1:010d}.checkpoint").touch(), "hanging", 0),
    "one of an earlier epoch": (lambda log: (log / f"{10:020d}-{2:010d}.checkpoint").touch(), "hanging", 0),
    "one that is being written": (lambda log: (log / f"{12:020d}-{3:010d}-1.checkpoint.part").touch(), "hanging", 0),
    "one that is being deleted": (lambda log: (log / f"{12:020d}-{3:010d}.checkpoint.deleted").touch(), "hanging", 0),
    "a segment with another name": (lambda log: (log / "10.log").touch(), "indeterminate", 1),
}


def test_a_metadata_log_continues_its_newest_snapshot(tmp_path: Path) -> None:
    with Cases() as cases:
        for number, (name, (change, verdict, failed)) in enumerate(SNAPSHOTS.items()):
            with cases.case(name):
                log = log_directory(tmp_path / str(number))
                change(log)
                found = read_paths([str(log.parent)], late_after_ms=0)
                assert [one.judged.judgement.verdict.value for one in found.transactions] == [verdict]
                assert len(found.errors) == failed, found.errors


def test_topics_may_come_and_go_many_times() -> None:
    """20,000 removals beside 20,000 topics took half a minute, growing with the square."""
    count, metadata, began_s = 20_000, Metadata(), time.process_time()
    for number in range(2 * count):
        topic_id = number.to_bytes(16)
        metadata.take(number, topic(f"t{number}", topic_id))
        metadata.take(number, one_replica(topic_id))
    for number in range(count):
        metadata.take(number, framed(9, 0, number.to_bytes(16) + b"\0"))
    assert len(metadata.ids) == len(metadata.partitions) == count
    assert time.process_time() - began_s < 10


def test_a_removal_leaves_a_topic_of_the_same_name_and_another_id() -> None:
    metadata = taken(topic(), partition(), topic("t", OTHER), one_replica(OTHER), framed(9, 0, ID + b"\0"))
    assert list(metadata.ids) == ["t"] and metadata.count("t") == 1
