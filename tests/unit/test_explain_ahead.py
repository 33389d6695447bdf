"""A bounded read ahead distinguishes records from markers and aborted data."""

from __future__ import annotations

from tests.cases import Cases
from tests.fakes.cluster import FakeCluster, FakePartition
from tests.sim.encode import batch, marker
from tests.sim.records import Marker
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.failure import FailureCode
from txnscan.kafka.topology import Partition
from txnscan.waiting.ahead import Ahead, ahead, end_of_log

P = Partition("p", "id", 0, 1, 5)
VALUE = (None, b"value")


def data(offset: int, count: int = 1, producer_id: int = 8) -> bytes:
    return batch(offset, count * [VALUE], producer_id=producer_id, producer_epoch=0)


def ends(offset: int, producer_id: int = 8, *, commits: bool = True) -> bytes:
    return marker(offset, Marker(producer_id, 0, 0, commits))


def cluster(*batches: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> FakeCluster:
    found = FakeCluster((1,))
    kept = found.partitions["p", 0] = FakePartition(leader=1, epoch=5, aborted=list(aborted))
    for one in batches:
        kept.write(one)
    return found


# Two records and COMMIT, three records and ABORT: offsets 0 to 6.
MIXED = ((data(0, 2), ends(2), data(3, 3), ends(6, commits=False)), ((8, 3),))


def test_the_next_records_and_markers_are_counted() -> None:
    table = (
        (0, Ahead(has_record=True, record_at=0)),
        (1, Ahead(has_record=True, record_at=1)),
        (2, Ahead(False, markers=2, aborted=3, begins_with_marker=True)),
        (3, Ahead(False, markers=1, aborted=3)),
        (4, Ahead(False, markers=1, aborted=2)),
        (6, Ahead(False, markers=1, begins_with_marker=True)),
        (7, Ahead(has_record=False)),
    )
    with Cases() as cases:
        for offset, expected in table:
            with cases.case(offset):
                assert ahead(cluster(*MIXED[0], aborted=MIXED[1]).send, P, offset, 7) == expected


def test_a_marker_before_a_record_is_told_from_aborted_records() -> None:
    brokers = cluster(data(0), ends(1), data(2), ends(3))
    assert ahead(brokers.send, P, 1, 4) == Ahead(True, markers=1, record_at=2, begins_with_marker=True)
    aborting = cluster(data(0), ends(1, commits=False), data(2, producer_id=9), ends(3, 9), aborted=((8, 0),))
    assert ahead(aborting.send, P, 0, 4) == Ahead(True, markers=1, aborted=1, record_at=2)


def test_the_next_record_is_the_first_that_deletion_left() -> None:
    brokers = cluster(data(0, 2), ends(2), data(3), ends(4))
    brokers.partitions["p", 0].log_start = 2
    found = ahead(brokers.send, P, 0, 5)
    assert (found.has_record, found.record_at, found.failure is None) == (None, 3, False)


def test_a_long_run_of_aborted_records_is_counted_up_to_the_next_record() -> None:
    """40 MB in batches of 1 MB, which were too many requests."""
    big = (None, bytes(1024 * 1024))
    aborted = [batch(offset, [big], producer_id=8, producer_epoch=0) for offset in range(40)]
    brokers = cluster(*aborted, ends(40, commits=False), data(41, producer_id=9), ends(42, 9), aborted=((8, 0),))
    found = ahead(brokers.send, P, 0, 43)
    assert found == Ahead(has_record=True, markers=1, aborted=40, record_at=41)
    assert ahead(brokers.send, P, 41, 43) == Ahead(has_record=True, record_at=41)


def test_a_longer_run_is_not_read_to_its_end() -> None:
    big = (None, bytes(16 * 1024 * 1024))
    aborted = [batch(offset, [big], producer_id=8, producer_epoch=0) for offset in range(6)]
    brokers = cluster(*aborted, ends(6, commits=False), data(7), aborted=((8, 0),))
    found = ahead(brokers.send, P, 0, 8)
    assert found.has_record is None and found.failure is not None
    assert found.failure.code == FailureCode.NOT_ASKED


def test_the_end_of_a_log_is_a_record_a_marker_or_aborted_data() -> None:
    table = (
        ("a record", cluster(data(0, 2)), 2, Ahead(has_record=True)),
        ("a commit", cluster(data(0, 2), ends(2)), 3, Ahead(False, markers=1)),
        ("an abort", cluster(*MIXED[0], aborted=MIXED[1]), 7, Ahead(False, markers=1, aborted=3)),
        (
            "an abort of nothing",
            cluster(data(0), ends(1, commits=False)),
            2,
            Ahead(False, markers=1, begins_with_marker=True),
        ),
        ("empty", cluster(), 0, Ahead(has_record=None)),
    )
    with Cases() as cases:
        for name, brokers, end, expected in table:
            with cases.case(name):
                assert end_of_log(brokers.send, P, 0, end) == expected


def test_a_refused_read_names_the_permission() -> None:
    brokers = cluster(data(0, 2), ends(2))
    brokers.partitions["p", 0].errors["fetch"] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    for found in (ahead(brokers.send, P, 0, 3), end_of_log(brokers.send, P, 0, 3)):
        assert found.has_record is None and found.failure is not None
        assert found.failure.needs is not None
        assert (found.failure.needs.operation, found.failure.needs.name) == ("Read", "p")
