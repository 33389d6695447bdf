"""A bounded read finds committed offsets that have no record to deliver before the last stable offset."""

from __future__ import annotations

import struct
import time

import pytest
from kafka.record.util import calc_crc32c

from tests.cases import Cases
from tests.fakes.cluster import FakeCluster, FakePartition
from tests.fakes.delivered import LSO, data, ends, partition
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.protocol.fetch import AbortedTransaction, FetchedCommitted
from txnscan.kafka.protocol.record_batch import CRC_AT, CRC_FROM, MARKER_SIZE, Batch
from txnscan.kafka.topology import Partition
from txnscan.waiting import delivered as under_test
from txnscan.waiting.delivered import Starved, starved

P = Partition("p", "id", 0, 1, 5)


def read(kept: FakePartition, *committed: int) -> Starved:
    return read_counting(kept, *committed)[0]


def read_counting(kept: FakePartition, *committed: int) -> tuple[Starved, int]:
    cluster = FakeCluster((1,))
    cluster.partitions["p", 0] = kept
    return starved(cluster.send, P, committed, LSO), len(cluster.asked)


@pytest.mark.parametrize(
    ("kept", "committed", "is_starved"),
    [
        (partition(ends(98), ends(99)), 98, True),
        (partition(data(97), ends(98), ends(99)), 98, True),
        (partition(data(97), ends(98), ends(99)), 97, False),
        (partition(data(90, 9), ends(99, commits=False), aborted=((8, 90),)), 90, True),
        # The read starts within an aborted batch.
        (partition(data(90, 9), ends(99, commits=False), aborted=((8, 90),)), 95, True),
        (partition(data(90, 9), ends(99)), 98, False),
        # A batch of another producer is among them.
        (partition(data(90, 5), data(95, 1, 9), ends(98, 9), ends(99, commits=False), aborted=((8, 90),)), 90, False),
        # The next transaction of the same producer is committed.
        (partition(data(90), ends(91, commits=False), data(92, 2), ends(94), aborted=((8, 90),)), 90, False),
        # Compaction removed some or all batches.
        (partition(), 50, True),
        (partition(data(40), data(70), ends(71)), 41, False),
        (partition(data(40), ends(71)), 41, True),
    ],
)
def test_a_group_without_deliverable_records_is_starved(kept: FakePartition, committed: int, is_starved: bool) -> None:
    assert read(kept, committed) == Starved(frozenset({committed} if is_starved else ()))


def test_a_batch_with_gaps_is_decoded() -> None:
    """Compaction keeps the last offset of a batch and may remove its last records."""
    gaps = bytearray(data(90, 1))
    # The last offset delta, and then the checksum.
    struct.pack_into(">i", gaps, 23, 8)
    struct.pack_into(">I", gaps, CRC_AT, calc_crc32c(bytes(gaps[CRC_FROM:])))
    kept = partition(bytes(gaps), ends(99))
    assert read(kept, 90).offsets == frozenset()
    assert read(kept, 95).offsets == {95}


def test_a_group_whose_records_are_deleted_waits_if_no_other_is_left() -> None:
    """With a record left, its `auto.offset.reset` decides, which is not visible."""
    with Cases() as cases:
        for log_start, starved_at, unknown_at in (
            (95, {50, 60, 95, 96}, set()),
            (LSO, {50, 60, 95, 96}, set()),
            (90, {95, 96}, {50, 60}),
        ):
            with cases.case(str(log_start)):
                kept = partition(data(90, 5), ends(95))
                kept.log_start = log_start
                found = read(kept, 50, 60, 95, 96)
                assert ({*found.offsets}, {*found.unknown}) == (starved_at, unknown_at)
                codes = {found.failure.failure.code} if found.failure is not None else set()
                assert codes == ({ErrorCode.OFFSET_OUT_OF_RANGE.name} if unknown_at else set())


def test_one_read_decides_for_all_groups_further_back() -> None:
    found, requests = read_counting(partition(data(10, 80), ends(99)), *range(10, 80))
    assert (found, requests) == (Starved(), 1)


def test_groups_behind_a_starved_group_are_read_up_to_it() -> None:
    kept = partition(data(10, 80), ends(90), data(91, 7, 9), ends(98, 9, commits=False), ends(99), aborted=((9, 91),))
    assert read(kept, 10, 89, 90, 91, 95) == Starved(frozenset({90, 91, 95}))


def test_an_error_leaves_undecided_offsets_unknown() -> None:
    kept = partition(data(90), ends(91))
    kept.errors["fetch"] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    found = read(kept, 90, 92)
    assert (found.offsets, found.unknown) == (frozenset[int](), frozenset({90, 92}))
    assert found.failure is not None and found.failure.failure.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED.name


def test_a_deleted_offset_is_unknown_if_the_log_start_is() -> None:
    kept = partition(ends(99))
    kept.log_start, kept.errors["log start"] = 90, int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    found = read(kept, 10, 95)
    assert (found.offsets, found.unknown) == (frozenset({95}), frozenset({10}))


def test_the_size_of_a_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "LONG_READ_BYTES_MAX", 3 * MARKER_SIZE)
    for name in ("_FIRST_BYTES", "_PIECE_BYTES"):
        monkeypatch.setattr(under_test, name, 1)
    found, requests = read_counting(partition(*map(ends, range(90, 100))), 90, 98)
    assert (found.offsets, found.unknown, requests) == (frozenset({98}), frozenset({90}), 3)


def test_an_empty_answer_does_not_prove_starvation() -> None:
    kept = partition(data(90), ends(91))
    kept.read = lambda *_, **__: b""  # type: ignore[method-assign]
    assert read(kept, 92).unknown == {92}


def test_an_answer_may_have_as_many_aborted_transactions_as_it_has_room_for() -> None:
    """They took nine seconds, growing with the square."""
    aborted = tuple(AbortedTransaction(producer_id, 0) for producer_id in range(400_000))
    batches = [Batch(0, 0, producer_id, 0, 0, False, True, records_count=1) for producer_id in (7, 400_000)]
    began_s = time.process_time()
    (kept,) = under_test._kept(FetchedCommitted(tuple(batches), 100, 100, aborted))
    assert kept.producer_id == 400_000 and time.process_time() - began_s < 3
