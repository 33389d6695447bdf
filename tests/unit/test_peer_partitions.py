"""Searching peer partitions for a COMMIT marker, and the handling of unreadable peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import NOW_MS
from tests.fakes.batches import control
from tests.fakes.cluster import FakeCluster
from tests.sim.encode import batch
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.topology import Partition
from txnscan.resolve import peer_partitions as module
from txnscan.resolve.peer_partitions import CLOCKS_DIFFER_MS_MAX, commit_seen
from txnscan.txnlog.facts import SeenMarker
from txnscan.verdict.evidence import PeerPartitions

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

COMMIT, ABORT = 1, 0


def data(offset: int, producer_id: int = 7, epoch: int = 3) -> bytes:
    return batch(offset, [(None, b"x")], producer_id=producer_id, producer_epoch=epoch)


class Brokers:
    """Two peer partitions, q-0 and r-s-1. since: the offset that ListOffsets returns for a time."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.cluster.lead("q", [1])
        self.cluster.lead("r-s", [2, 3])
        for partition in self.cluster.partitions.values():
            partition.high_watermark = 0
        self.since = 0
        self.times: list[int] = []
        self.cluster.edit["ListOffsets"] = self.at_time

    def at_time(self, broker_id: int, answer: Any) -> Any:
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.offset = self.since
        return answer

    def partition_of(self, topic: str, index: int) -> Partition:
        (found,) = self.cluster.planned((topic, index))
        return found

    def seen(self, epochs: tuple[int, ...] = (4,), names: tuple[str, ...] = ("q-0", "r-s-1")) -> SeenMarker | None:
        return commit_seen(self.cluster.send, PeerPartitions(names, epochs, NOW_MS), 7, self.partition_of)


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.mark.parametrize("bytes_max", [1, 1 << 20])
@pytest.mark.parametrize(("topic", "index", "name"), [("q", 0, "q-0"), ("r-s", 1, "r-s-1")])
def test_a_commit_marker_of_this_producer_id_and_epoch_is_found(
    brokers: Brokers, topic: str, index: int, name: str, bytes_max: int, wording: SnapshotAssertion
) -> None:
    brokers.cluster.fetch_max_bytes = bytes_max
    for one in (data(0), data(1, 8), control(2, 8, 4), control(3, 7, 4, COMMIT), data(4, epoch=4)):
        brokers.cluster.partitions[topic, index].write(one)
    seen = brokers.seen()
    assert seen == SeenMarker(topic, index, 3, 7, 4)
    assert str(seen) == wording


@pytest.mark.parametrize(
    ("marker", "epochs", "found"),
    [
        (control(1, 7, 4, COMMIT), (4,), True),
        (control(1, 7, 3, COMMIT), (4,), False),
        (control(1, 7, 3, COMMIT), (3, 4), True),
        (control(1, 7, 5, COMMIT), (3, 4), False),
        (control(1, 7, 4, ABORT), (3, 4), False),
        (control(1, 8, 4, COMMIT), (3, 4), False),
        (data(1, epoch=4), (3, 4), False),
    ],
    ids=["it", "of the transaction before", "under v1", "of a later one", "an abort", "of another", "data"],
)
def test_other_batches_are_no_commit_marker(
    brokers: Brokers, marker: bytes, epochs: tuple[int, ...], found: bool
) -> None:
    brokers.cluster.partitions["q", 0].write(data(0))
    brokers.cluster.partitions["q", 0].write(marker)
    assert (brokers.seen(epochs) is not None) is found


def test_records_before_the_start_of_the_transaction_are_not_read(brokers: Brokers) -> None:
    brokers.since = 2
    for one in (data(0), control(1, 7, 4, COMMIT), data(2)):
        brokers.cluster.partitions["q", 0].write(one)
    assert brokers.seen(names=("q-0",)) is None
    _, asked = [p for r in brokers.cluster.requests if hasattr(r, "isolation_level") for t in r.topics
                for p in t.partitions if hasattr(p, "timestamp")]  # fmt: skip
    assert asked.timestamp == NOW_MS - CLOCKS_DIFFER_MS_MAX


def test_a_partition_without_later_records_is_not_read(brokers: Brokers) -> None:
    brokers.since = -1
    brokers.cluster.partitions["q", 0].write(control(0, 7, 4, COMMIT))
    assert brokers.seen(names=("q-0",)) is None


@pytest.mark.parametrize("which", ["fetch", "high watermark"])
def test_an_unreadable_peer_partition_is_an_error(brokers: Brokers, which: str) -> None:
    brokers.cluster.partitions["r-s", 1].errors[which] = 6
    if which == "high watermark":
        brokers.cluster.edit.clear()
    where = "r-s-1: " if which == "high watermark" else ""
    with pytest.raises(RequestFailed, match=f"^{where}NOT_LEADER_OR_FOLLOWER$"):
        brokers.seen()


def test_a_new_leader_without_a_high_watermark_proves_no_absence(brokers: Brokers) -> None:
    brokers.cluster.partitions["q", 0].errors["high watermark"] = int(ErrorCode.OFFSET_NOT_AVAILABLE)
    with pytest.raises(RequestFailed, match=r"^q-0: OFFSET_NOT_AVAILABLE$"):
        brokers.seen()


@pytest.mark.parametrize("refused", [0, 1], ids=["the high watermark", "the first offset since then"])
def test_each_refused_offset_is_an_error(brokers: Brokers, refused: int) -> None:
    answers = iter(range(2))

    def refuse(broker_id: int, answer: Any) -> Any:
        if next(answers) == refused:
            answer.topics[0].partitions[0].error_code = int(ErrorCode.OFFSET_NOT_AVAILABLE)
        return brokers.at_time(broker_id, answer)

    brokers.cluster.edit["ListOffsets"] = refuse
    with pytest.raises(RequestFailed, match=r"^r-s-1: OFFSET_NOT_AVAILABLE$"):
        brokers.seen(names=("r-s-1",))


def test_missing_records_below_the_high_watermark_are_an_error(brokers: Brokers, wording: SnapshotAssertion) -> None:
    brokers.cluster.partitions["q", 0].write(data(0))
    brokers.cluster.partitions["q", 0].high_watermark = 5
    with pytest.raises(RequestFailed) as error:
        brokers.seen()
    assert str(error.value) == wording


def test_a_peer_partition_larger_than_the_bound_is_an_error(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    brokers.cluster.fetch_max_bytes = 1
    for offset in range(3):
        brokers.cluster.partitions["q", 0].write(data(offset))
    monkeypatch.setattr(module, "BYTES_MAX", 2 * len(data(0)) + 1)
    assert brokers.seen() is None, "after two of three it may go on"
    monkeypatch.setattr(module, "BYTES_MAX", 2 * len(data(0)))
    with pytest.raises(RequestFailed) as error:
        brokers.seen()
    assert str(error.value) == wording


@pytest.mark.parametrize(("since_ms", "asked"), [(CLOCKS_DIFFER_MS_MAX, 0), (CLOCKS_DIFFER_MS_MAX - 1, -2), (-1, -2)])
def test_without_a_known_time_a_partition_is_read_from_its_start(brokers: Brokers, since_ms: int, asked: int) -> None:
    brokers.cluster.partitions["q", 0].write(control(0, 7, 4, COMMIT))
    assert (
        commit_seen(brokers.cluster.send, PeerPartitions(("q-0",), (4,), since_ms), 7, brokers.partition_of) is not None
    )
    times = [p.timestamp for r in brokers.cluster.requests if hasattr(r, "isolation_level") for t in r.topics
             for p in t.partitions if hasattr(p, "timestamp")]  # fmt: skip
    assert times == [-1, asked], "the high watermark first"
