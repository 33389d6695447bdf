"""Fetch: the fields of a partition's batches. Damaged or foreign answers are errors."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse

from tests.cases import Cases
from tests.fakes.batches import (
    ATTRIBUTES_AT,
    CONTROL,
    GZIP,
    HEADER_BYTES,
    LENGTH_AT,
    MAGIC_AT,
    compacted,
    control,
    patched,
)
from tests.fakes.cluster import FakeCluster, FakePartition, FetchedPartition, FetchedTopic
from tests.sim.encode import batch
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.protocol.fetch import Fetched, fetch, fetch_beginnings, fetch_committed, fetch_undecoded
from txnscan.kafka.protocol.record_batch import Batch
from txnscan.kafka.protocol.records import marker


def held(*batches: bytes, **changes: Any) -> FakeCluster:
    """A cluster with these batches on t-0."""
    cluster = FakeCluster()
    cluster.partitions["t", 0] = kept = FakePartition(**changes)
    for one in batches:
        kept.write(one)
    return cluster


def read(cluster: FakeCluster, offset: int = 0, bytes_max: int = 1 << 20, *, records: bool = True) -> Fetched:
    (partition,) = cluster.planned(("t", 0))
    return fetch(cluster.send, partition, offset, bytes_max, records=records)


def test_more_batches_than_were_asked_for_are_not_read() -> None:
    """A gigabyte of empty batches took minutes."""
    empty = patched(batch(0, [(None, b"")], leader_epoch=4)[:HEADER_BYTES], LENGTH_AT, ">i", HEADER_BYTES - 12)
    sent = empty * 100_000
    answers = {"a part of the answer": (4_000, 65), "the first batch": (1, 1), "a batch and a half": (92, 1)}

    def send(broker_id: int, request: Any) -> Any:
        partition = SimpleNamespace(
            partition_index=0, error_code=0, records=sent, high_watermark=1, aborted_transactions=None
        )
        return SimpleNamespace(error_code=0, responses=[SimpleNamespace(topic="t", partitions=[partition])])

    (partition,) = held().planned(("t", 0))
    with Cases() as cases:
        for name, (bytes_max, count) in answers.items():
            with cases.case(name):
                assert len(fetch(send, partition, 0, bytes_max, records=False).batches) == count
                assert len(fetch_committed(send, partition, 0, bytes_max).batches) == count
                assert len(fetch_undecoded(send, partition, 0, bytes_max)[0].bounds) == count + 1
        with cases.case("of several partitions"):
            found = fetch_beginnings(send, {partition: 0})[partition]
            assert isinstance(found, Fetched) and len(found.batches) == 16 * 1024 // HEADER_BYTES


ONE = batch(100, [(b"k0", b"v0"), (b"k1", None)], producer_id=7, producer_epoch=3, leader_epoch=4)
TWO = batch(102, [(None, b"v2")], leader_epoch=5)


def test_a_batch_has_its_producer_leader_epoch_and_records() -> None:
    assert read(held(ONE, TWO)) == Fetched(
        batches=(
            Batch(100, 101, 7, 3, 0, False, True, False, 2, ((100, b"k0", b"v0"), (101, b"k1", None)), 4),
            Batch(102, 102, -1, -1, -1, False, False, False, 1, ((102, None, b"v2"),), 5),
        ),
        high_watermark=103,
        size_bytes=len(ONE) + len(TWO),
    )


def test_records_are_decoded_only_on_request() -> None:
    garbled = patched(patched(ONE, ATTRIBUTES_AT, ">h", 0x10 | GZIP), HEADER_BYTES, ">b", 1)
    (found,) = read(held(garbled), records=False).batches
    assert (found.records, found.producer_id, found.producer_epoch, found.is_transactional) == (None, 7, 3, True)


def test_a_marker_is_a_control_batch() -> None:
    (found,) = read(held(control(100, 7, 4))).batches
    assert (found.is_control, found.is_transactional, found.producer_id, found.producer_epoch) == (True, True, 7, 4)


@pytest.mark.parametrize(("kind", "commits"), [(0, False), (1, True), (2, False), (5, False)])
@pytest.mark.parametrize("records", [True, False])
def test_only_a_commit_marker_commits(kind: int, commits: bool, records: bool) -> None:
    (found,) = read(held(control(100, 7, 4, kind)), records=records).batches
    assert (found.is_control, found.commits) == (True, commits)
    assert (found.records is not None and len(found.records)) == (1 if records else False)


# The types of the control records of one batch, and whether it is damaged: a marker has no other beside it.
SEVERAL = (((0, 1), True), ((1, 0), True), ((1, 1), True), ((2, 1), True), ((1, 9), True), ((3, 4), False))


def test_a_marker_is_the_only_record_of_its_batch() -> None:
    with Cases() as cases:
        for kinds, damaged in SEVERAL:
            data = batch(
                100,
                [(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 5)) for kind in kinds],
                producer_id=7,
                producer_epoch=4,
            )
            data = patched(data, ATTRIBUTES_AT, ">h", struct.unpack_from(">h", data, ATTRIBUTES_AT)[0] | CONTROL)
            with cases.case(kinds):
                if not damaged:
                    assert not read(held(data)).batches[0].commits
                    continue
                with pytest.raises(RequestFailed, match="2 records"):
                    read(held(data))
                if kinds[0] in (0, 1):
                    with pytest.raises(RequestFailed, match="2 records"):
                        marker(data)


def test_data_that_looks_like_a_commit_marker_is_no_marker() -> None:
    data = batch(100, [(struct.pack(">hh", 0, 1), b"")], producer_id=7, producer_epoch=3)
    (found,) = read(held(data)).batches
    assert not found.commits


def test_fetch_asks_the_leader_at_its_epoch_as_an_uncommitted_consumer() -> None:
    cluster = held(ONE, leader=2, epoch=9)
    read(cluster, 100, 1234)
    assert cluster.asked == [(2, "Fetch")]
    (request,) = cluster.requests
    assert (request.replica_id, request.isolation_level, request.max_wait_ms, request.min_bytes) == (-1, 0, 0, 0)
    assert (request.session_id, request.session_epoch, request.forgotten_topics_data) == (0, -1, [])
    assert (request._min_version, request._max_version) == (9, 10), (
        "leader epochs are there, and followers do not answer"
    )
    (topic,) = request.topics
    (asked,) = topic.partitions
    assert (topic.topic, asked.partition, asked.current_leader_epoch, asked.fetch_offset) == ("t", 0, 9, 100)
    assert request.max_bytes == asked.partition_max_bytes == 1234


@pytest.mark.parametrize("version", range(9, 11))
def test_every_allowed_version_carries_the_required_fields(version: int) -> None:
    cluster = held(ONE, epoch=9)
    read(cluster, 100, 1234)
    (request,) = cluster.requests
    sent = FetchRequest.decode(request.encode(version=version), version=version)
    (asked,) = sent.topics[0].partitions
    assert (sent.topics[0].topic, asked.current_leader_epoch, asked.fetch_offset) == ("t", 9, 100)
    answer = cluster._answer_Fetch(1, request)
    received = FetchResponse.decode(answer.encode(version=version), version=version)
    (partition,) = cluster.planned(("t", 0))
    assert fetch(lambda *_: received, partition, 100, 1234, records=True) == read(cluster, 100)


# --- from batch to batch ----------------------------------------------------------------------------------------------


def test_a_truncated_batch_is_read_by_the_next_fetch() -> None:
    cluster = held(ONE, TWO)
    for bytes_max in range(len(ONE), len(ONE) + len(TWO)):
        first = read(cluster, 100, bytes_max)
        assert [one.base_offset for one in first.batches] == [100]
        assert first.next_offset(100) == 102
    assert [one.base_offset for one in read(cluster, 102).batches] == [102]


def test_the_first_batch_is_complete_whatever_its_size() -> None:
    (found,) = read(held(ONE, TWO), 100, 1).batches
    assert found.base_offset == 100 and found.records is not None and len(found.records) == 2


def test_the_beginnings_of_several_partitions_are_read_in_one_request() -> None:
    large = batch(100, [(None, b"v" * 20_000)])
    damaged = ONE[:-1] + b"!"
    logs = {0: (ONE, TWO), 1: (ONE,), 2: (large,), 3: (damaged,), 4: ()}
    cluster = FakeCluster()
    for index, batches in logs.items():
        cluster.partitions["t", index] = kept = FakePartition()
        for one in batches:
            kept.write(one)
    cluster.partitions["u", 0] = FakePartition(epoch=6)
    offsets = dict.fromkeys(cluster.planned(*cluster.partitions), 100)
    cluster.partitions["u", 0].epoch = 7
    found = {partition.key: one for partition, one in fetch_beginnings(cluster.send, offsets).items()}
    assert [name for _, name in cluster.asked] == ["Fetch"]
    begun = {key: [b.base_offset for b in one.batches] for key, one in found.items() if isinstance(one, Fetched)}
    assert begun == {("t", 0): [100, 102], ("t", 1): [100], ("t", 2): [], ("t", 4): []}
    failed = {key: one.code for key, one in found.items() if isinstance(one, Failure)}
    assert failed == {("t", 3): FailureCode.DAMAGED_BATCH, ("u", 0): "FENCED_LEADER_EPOCH"}
    assert fetch_beginnings(cluster.send, {}) == {}


def test_a_batch_that_spans_the_offset_is_returned() -> None:
    assert [one.base_offset for one in read(held(ONE, TWO), 101).batches] == [100, 102]


@pytest.mark.parametrize(
    ("batches", "offset", "expected", "why"),
    [
        ((ONE, TWO), 100, 103, "after the last one"),
        ((), 0, 0, "nothing was read"),
        ((ONE,), 50, 102, "over a gap that compaction left"),
        ((compacted(ONE, 7),), 100, 108, "over what a batch has lost at its end"),
        ((compacted(ONE, 7),), 105, 108, "also from within that"),
    ],
)
def test_reading_continues_after_the_last_batch(batches: Iterable[bytes], offset: int, expected: int, why: str) -> None:
    assert read(held(*batches, log_start=0), offset).next_offset(offset) == expected, why


def test_reading_never_goes_back() -> None:
    assert Fetched((Batch(3, 4, -1, -1, -1, False, False),), 200).next_offset(100) == 100


def test_an_emptied_batch_has_no_records() -> None:
    emptied = patched(compacted(ONE, 1)[:HEADER_BYTES], 57, ">i", 0)
    emptied = patched(emptied, LENGTH_AT, ">i", HEADER_BYTES - 12)
    (found,) = read(held(emptied)).batches
    assert (found.base_offset, found.last_offset, found.records) == (100, 101, ())


def test_an_answer_without_records_is_empty() -> None:
    assert read(held(), 7) == Fetched((), 200)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"leader": 2}, "NOT_LEADER_OR_FOLLOWER"),
        ({"epoch": 6}, "FENCED_LEADER_EPOCH"),
        ({"epoch": 4}, "UNKNOWN_LEADER_EPOCH"),
        ({"log_start": 101}, "OFFSET_OUT_OF_RANGE"),
        ({"high_watermark": 99}, "OFFSET_OUT_OF_RANGE"),
        ({"errors": {"fetch": 29}}, "TOPIC_AUTHORIZATION_FAILED"),
        ({"errors": {"fetch": 78}}, "OFFSET_NOT_AVAILABLE"),
        ({"errors": {"fetch": 9999}}, "UNKNOWN_ERROR_CODE_9999"),
    ],
)
def test_a_partition_error_is_raised_by_name(change: dict[str, Any], error: str) -> None:
    cluster = held(ONE)
    (partition,) = cluster.planned(("t", 0))
    for name, value in change.items():
        setattr(cluster.partitions["t", 0], name, value)
    with pytest.raises(RequestFailed, match=f"^{error}$"):
        fetch(cluster.send, partition, 100, 1, records=True)


def spoilt(name: str, value: Any) -> Callable[[int, Any], Any]:
    def edit(broker_id: int, answer: Any) -> Any:
        setattr(answer, name, value)
        return answer

    return edit


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        (spoilt("error_code", 56), "KAFKA_STORAGE_ERROR"),
        (spoilt("responses", None), "null in place of a list"),
        (spoilt("responses", []), "answered 0 times for the partition"),
        (spoilt("responses", [FetchedTopic(topic="t", partitions=None)]), "null in place of a list"),
        (
            spoilt("responses", [FetchedTopic(topic="t", partitions=[FetchedPartition(partition_index=0)] * 2)]),
            "2 times for the partition",
        ),
    ],
)
def test_an_answer_without_exactly_one_partition_is_an_error(edit: Callable[[int, Any], Any], error: str) -> None:
    cluster = held(ONE)
    cluster.edit["Fetch"] = edit
    with pytest.raises(RequestFailed, match=error):
        read(cluster, 100)


@pytest.mark.parametrize(("topic", "index"), [("u", 0), ("t", 1)], ids=["of another topic", "with another number"])
def test_an_answer_for_another_partition_is_an_error(topic: str, index: int) -> None:
    cluster = held(ONE)
    other = FetchedPartition(partition_index=index, error_code=0, high_watermark=103, records=ONE)
    cluster.edit["Fetch"] = spoilt("responses", [FetchedTopic(topic=topic, partitions=[other])])
    with pytest.raises(RequestFailed):
        read(cluster, 100)


def with_records(data: bytes) -> Callable[[int, Any], Any]:
    def edit(broker_id: int, answer: Any) -> Any:
        answer.responses[0].partitions[0].records = data
        return answer

    return edit


@pytest.mark.parametrize(
    ("damaged", "error"),
    [
        (ONE[:-1] + b"\x7f", "the batch at offset 100 fails its checksum"),
        (patched(ONE, LENGTH_AT, ">i", 20), "cannot be decoded"),
        (patched(ONE, LENGTH_AT, ">i", -12), "cannot be decoded"),
        (patched(ONE, 57, ">i", 3), "cannot be decoded"),
        (patched(ONE, 57, ">i", 1), "cannot be decoded"),
        (patched(ONE, 57, ">i", -1), "claims -1 records"),
        (patched(ONE, 23, ">i", -1), "from offset 100 to 99"),
        (patched(ONE, 0, ">q", -5), "from offset -5"),
        (ONE[:MAGIC_AT] + b"\x01" + ONE[MAGIC_AT + 1 :], "version 1, which knows no producers"),
        (ONE[:MAGIC_AT] + b"\x00" + ONE[MAGIC_AT + 1 :], "version 0, which knows no producers"),
        (ONE[:MAGIC_AT] + b"\x03" + ONE[MAGIC_AT + 1 :], "version 3, which knows no producers"),
        (patched(ONE, ATTRIBUTES_AT, ">h", 0x10 | GZIP), "cannot be decoded"),
    ],
    ids=[
        "checksum",
        "shorter than a header",
        "a negative length",
        "more records than bytes",
        "fewer records than bytes",
        "fewer records than none",
        "an end before its first record",
        "an offset that none can have",
        "format 1",
        "format 0",
        "format 3",
        "not compressed as it says",
    ],
)
@pytest.mark.parametrize("where", ["first", "second"])
def test_a_damaged_batch_is_an_error(damaged: bytes, error: str, where: str) -> None:
    cluster = held(batch(0, [(b"k", b"v")]))
    sound = cluster.partitions["t", 0].log[0]
    cluster.partitions["t", 0].high_watermark = 200
    cluster.edit["Fetch"] = with_records(damaged if where == "first" else sound + damaged)
    with pytest.raises(RequestFailed, match=error):
        read(cluster)


def test_a_changed_byte_is_never_accepted() -> None:
    """Except in the base offset and the leader epoch, which no checksum covers: brokers overwrite them."""
    uncovered = {*range(8), *range(12, 16)}
    cluster = held(ONE)
    expected = read(cluster, 100).batches
    for at in set(range(len(ONE))) - uncovered:
        data = ONE[:at] + bytes([ONE[at] ^ 0x01]) + ONE[at + 1 :]
        cluster.edit["Fetch"] = with_records(data)
        try:
            assert read(cluster, 100).batches in ((), expected), at
        except RequestFailed:
            continue


def test_an_unreachable_broker_is_an_error() -> None:
    cluster = held(ONE)
    cluster.unreachable.add(1)
    with pytest.raises(RequestFailed, match="cannot be reached"):
        read(cluster)
