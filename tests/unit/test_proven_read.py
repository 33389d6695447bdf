"""Reading partitions: the wide read filters, and the proven read proves that the leader answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import lacks, said
from tests.cases import Cases
from tests.fakes.cluster import FakeCluster, FakePartition, ProducersTopic, offset_kind, producer
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import Failure, FailureCode, Permission
from txnscan.kafka.protocol.frames import Body
from txnscan.kafka.topology import Key
from txnscan.reads.proven_read import (
    failed_partitions,
    read_ends,
    read_first,
    read_offsets,
    read_proven,
    read_second,
    read_wide,
)
from txnscan.reads.rows import ProvenRow, ReadBatch, WideBatch, WideRow

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

READ_AT_MS = 1_700_000_000_123
LEFT_OUT = "the broker left this partition out of its answer"
KEYS = (("t", 0), ("t", 1), ("u", 0))


@pytest.fixture
def cluster() -> FakeCluster:
    return three_partitions()


def three_partitions() -> FakeCluster:
    """Three partitions led by broker 1. t-0 and u-0 have an open transaction each, t-1 an idempotent producer."""
    fake = FakeCluster()
    fake.partitions = {
        ("t", 0): FakePartition(producers=[producer(7), producer(8, -1)]),
        ("t", 1): FakePartition(epoch=6, producers=[producer(9, -1)]),
        ("u", 0): FakePartition(producers=[producer(7, 150), producer(5, 120)]),
    }
    return fake


def batch(cluster: FakeCluster, *keys: tuple[str, int]) -> ReadBatch:
    return ReadBatch(0, 1, cluster.planned(*(keys or KEYS)))


def wide_batch(*keys: tuple[str, int]) -> WideBatch:
    return WideBatch(0, 1, {topic: tuple(i for name, i in keys if name == topic) for topic, _ in keys})


def wide(cluster: FakeCluster, *keys: tuple[str, int]) -> dict[tuple[str, int], WideRow]:
    rows = read_wide(wide_batch(*(keys or KEYS)), cluster.send).rows
    found = {row.key: row for row in rows}
    assert len(found) == len(rows), "no row twice"
    return found


def narrow(cluster: FakeCluster, *keys: tuple[str, int]) -> dict[tuple[str, int], ProvenRow]:
    rows = list(read_proven(batch(cluster, *keys), cluster.send, lambda: READ_AT_MS))
    assert [row.key for row in rows] == list(keys or KEYS), "one row per partition"
    return {row.key: row for row in rows}


def without(topic: str, index: int) -> Any:
    """An edit that omits a partition from an answer."""

    def edit(broker_id: int, answer: Any) -> Any:
        for answered in answer.topics:
            if answered.name == topic:
                answered.partitions = [p for p in answered.partitions if p.partition_index != index]
        return answer

    return edit


def doubled(broker_id: int, answer: Any) -> Any:
    """An edit that answers the first partition of each topic twice."""
    for topic in answer.topics:
        topic.partitions = [topic.partitions[0], *topic.partitions]
    return answer


# --- the wide read ----------------------------------------------------------------------------------------------------


def test_the_wide_read_returns_a_row_per_open_partition_and_counts(
    cluster: FakeCluster,
) -> None:
    rows = wide(cluster)
    assert rows["t", 0].open_producers == (producer(7),)
    assert rows["u", 0].open_producers == (producer(5, 120), producer(7, 150))
    assert set(rows) == {("t", 0), ("u", 0)}
    answer = read_wide(wide_batch(*KEYS), cluster.send)
    assert (answer.answered, answer.producers) == (3, 5)


def test_the_wide_read_returns_a_row_for_each_partition_with_a_requested_closed_producer(cluster: FakeCluster) -> None:
    asked = replace(wide_batch(*KEYS), producer_ids=(8, 9))
    rows = [row for row in read_wide(asked, cluster.send).rows if row.closed_producers]
    shown = {(row.leader, row.topic, row.partition): [p.producer_id for p in row.closed_producers] for row in rows}
    assert (len(rows), shown) == (2, {(1, "t", 0): [8], (1, "t", 1): [9]})


def test_the_wide_read_counts_producers_that_have_ended_a_transaction(cluster: FakeCluster) -> None:
    """All but two of the fake's producers have a coordinator epoch."""
    cluster.partitions["t", 1].producers = [producer(9, -1, coordinator_epoch=-1)]
    cluster.partitions["u", 0].producers += [
        producer(6, -1, coordinator_epoch=-1),
        producer(4, -1, last_timestamp_ms=9),
    ]
    rows = [row for row in read_wide(replace(wide_batch(*KEYS), with_ended=True), cluster.send).rows if row.ended]
    shown = {(row.topic, row.partition): (row.ended, row.newest_ended_ms) for row in rows}
    newest = producer(7).last_timestamp_ms
    assert (len(rows), shown) == (2, {("t", 0): (2, newest), ("u", 0): (3, newest)})
    assert not any(row.ended for row in wide(cluster).values())


def test_the_wide_read_counts_the_bytes_of_its_answer(cluster: FakeCluster) -> None:
    answers: list[Body] = []

    def send(broker_id: int, request: Any) -> Any:
        answers.append(cluster.send(broker_id, request))
        return answers[-1]

    answer = read_wide(wide_batch(*KEYS), send)
    assert answer.read_bytes == len(answers[0].data) > 100


def test_the_wide_read_is_one_request_to_the_leader(cluster: FakeCluster) -> None:
    wide(cluster)
    assert cluster.asked == [(1, "DescribeProducers")]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (3, "UNKNOWN_TOPIC_OR_PARTITION"),
        (6, "NOT_LEADER_OR_FOLLOWER"),
        (29, f"TOPIC_AUTHORIZATION_FAILED: {lacks(Permission('Read', 'Topic', 't'))}"),
        (56, "KAFKA_STORAGE_ERROR"),
        (-1, "UNKNOWN"),
        (9999, "UNKNOWN_ERROR_CODE_9999"),
    ],
)
def test_an_error_of_one_partition_is_named_and_hides_no_other_partition(
    cluster: FakeCluster, code: int, error: str
) -> None:
    cluster.partitions["t", 0].errors["producers"] = code
    rows = wide(cluster)
    assert (said(rows["t", 0].failure), rows["t", 0].open_producers) == (error, ())
    assert said(rows["u", 0].failure) is None and len(rows["u", 0].open_producers) == 2
    assert read_wide(wide_batch(*KEYS), cluster.send).answered == 2


def test_an_omitted_partition_is_an_error_of_that_partition(cluster: FakeCluster) -> None:
    cluster.edit["DescribeProducers"] = without("t", 1)
    rows = wide(cluster)
    assert said(rows["t", 1].failure) == LEFT_OUT
    assert read_wide(wide_batch(*KEYS), cluster.send).answered == 2


def test_a_partition_answered_twice_is_an_error_of_that_partition(
    cluster: FakeCluster, wording: SnapshotAssertion
) -> None:
    cluster.edit["DescribeProducers"] = doubled
    rows = wide(cluster)
    assert said(rows["t", 0].failure) == wording
    assert rows["u", 0].failure == rows["t", 0].failure
    assert ("t", 1) not in rows and read_wide(wide_batch(*KEYS), cluster.send).answered == 1


def test_a_duplicate_producer_id_is_an_error_of_its_partition(cluster: FakeCluster, wording: SnapshotAssertion) -> None:
    cluster.partitions["t", 0].producers = [producer(7, -1), producer(7, 100)]
    row = wide(cluster)["t", 0]
    assert row.open_producers == ()
    assert said(row.failure) == wording


@pytest.mark.parametrize("read", [wide, narrow], ids=["wide", "proven"])
def test_an_open_transaction_of_a_negative_producer_id_is_an_error_of_its_partition(
    read: Callable[[FakeCluster], Any], cluster: FakeCluster
) -> None:
    cluster.partitions["t", 0].producers = [producer(-1, 100), producer(7, 100)]
    row = read(cluster)["t", 0]
    assert row.open_producers == ()
    assert row.failure is not None and row.failure.code == FailureCode.UNUSABLE_ANSWER


def test_an_unrequested_partition_in_the_answer_is_ignored(cluster: FakeCluster) -> None:
    def more(broker_id: int, answer: Any) -> Any:
        answer.topics.append(ProducersTopic(name="x", partitions=answer.topics[0].partitions))
        return answer

    cluster.edit["DescribeProducers"] = more
    assert set(wide(cluster)) == {("t", 0), ("u", 0)}


def test_a_failed_wide_request_is_an_error_row_per_partition(cluster: FakeCluster) -> None:
    cluster.unreachable = {1}
    rows = wide(cluster)
    assert set(rows) == set(KEYS)
    assert {said(row.failure) for row in rows.values()} == {"broker 1 cannot be reached"}


def test_a_failed_wide_request_counts_nothing(cluster: FakeCluster) -> None:
    cluster.unreachable = {1}
    answer = read_wide(wide_batch(*KEYS), cluster.send)
    assert (answer.answered, answer.producers, answer.read_bytes) == (0, 0, 0)


def test_a_leader_without_describe_producers_is_reported_with_the_missing_api(
    cluster: FakeCluster,
) -> None:
    def unsupported(broker_id: int, answer: Any) -> Any:
        raise RequestFailed.unsupported("broker 1", "DescribeProducers")

    cluster.edit["DescribeProducers"] = unsupported
    why = "broker 1 lacks an API of Kafka 2.8 and newer: it does not support DescribeProducers"
    told = {row.failure for row in wide(cluster).values()} | {row.failure for row in narrow(cluster).values()}
    assert told == {Failure(why, "UNSUPPORTED_VERSION", "DescribeProducers")}


def null_topics(broker_id: int, answer: Any) -> Any:
    """kafka-python's decoding of an answer of zeros: null in place of a list."""
    answer.topics = None
    return answer


def null_producers(broker_id: int, answer: Any) -> Any:
    for topic in answer.topics:
        for answered in topic.partitions:
            answered.active_producers = None
    return answer


@pytest.mark.parametrize(
    ("step", "edit"),
    [
        ("ListOffsets", null_topics),
        ("DescribeProducers", null_topics),
        ("DescribeProducers", null_producers),
    ],
)
def test_null_in_place_of_a_list_is_an_error_of_each_partition(cluster: FakeCluster, step: str, edit: Any) -> None:
    cluster.edit[step] = edit
    assert all(said(row.failure) for row in narrow(cluster).values())


# --- the proven read --------------------------------------------------------------------------------------------------


def test_the_fenced_read_puts_describe_producers_between_two_offset_requests(cluster: FakeCluster) -> None:
    narrow(cluster)
    assert cluster.asked == [(1, "ListOffsets"), (1, "DescribeProducers"), (1, "ListOffsets")]
    before, _, after = cluster.requests
    assert (before.isolation_level, offset_kind(before)) == (0, "high watermark")
    assert (after.isolation_level, offset_kind(after)) == (1, "last stable")
    for request in (before, after):
        epochs = {(t.name, p.partition_index): p.current_leader_epoch for t in request.topics for p in t.partitions}
        assert epochs == {("t", 0): 5, ("t", 1): 6, ("u", 0): 5}
        assert request.replica_id == -1, "a consumer: only the leader answers"


def test_a_proven_row_has_the_fields_of_the_three_answers(cluster: FakeCluster) -> None:
    assert narrow(cluster)["u", 0] == ProvenRow(
        topic="u",
        topic_id="",
        partition=0,
        leader=1,
        leader_epoch=5,
        read_at_ms=READ_AT_MS,
        high_watermark=200,
        last_stable_offset=120,
        open_producers=(producer(5, 120), producer(7, 150)),
    )


def test_an_error_of_any_request_leaves_only_that_partition_unproven() -> None:
    with Cases() as cases:
        for step, code in product(("high watermark", "producers", "last stable"), (3, 6, 29, 56, 74, 75, 78, -1, 9999)):
            with cases.case(f"{step}: {code}"):
                cluster = three_partitions()
                cluster.partitions["t", 0].errors[step] = code
                rows = narrow(cluster)
                assert said(rows["t", 0].failure) is not None
                assert said(rows["t", 1].failure) is None and said(rows["u", 0].failure) is None
                assert failed_partitions(rows.values()) == {("t", 0)}


def pair(cluster: FakeCluster) -> tuple[dict[Key, ProvenRow], dict[Key, ProvenRow]]:
    """The two reads of a sweep. The second is of what the first could read."""
    first = {row.key: row for row in read_first(batch(cluster), cluster.send, lambda: READ_AT_MS)}
    led = tuple(row.led for row in first.values() if row.failure is None)
    second = list(read_second(ReadBatch(0, 1, led), cluster.send, lambda: READ_AT_MS + 1)) if led else []
    return first, {row.key: row for row in second}


def test_without_an_answer_the_first_read_has_no_high_watermark(cluster: FakeCluster) -> None:
    cluster.partitions["t", 0].errors["high watermark"] = 6
    first, _ = pair(cluster)
    assert (first["t", 0].high_watermark, first["t", 0].failure is None) == (None, False)


def test_two_reads_share_one_pair_of_offsets(cluster: FakeCluster) -> None:
    first, second = pair(cluster)
    assert [name for _, name in cluster.asked] == [
        "ListOffsets",
        "DescribeProducers",
        "DescribeProducers",
        "ListOffsets",
    ]
    before, _, _, after = cluster.requests
    assert [(r.isolation_level, offset_kind(r)) for r in (before, after)] == [(0, "high watermark"), (1, "last stable")]
    single = narrow(cluster)
    assert {
        key: replace(row, last_stable_offset=single[key].last_stable_offset) for key, row in first.items()
    } == single
    assert single == {
        key: replace(row, high_watermark=first[key].high_watermark, read_at_ms=READ_AT_MS)
        for key, row in second.items()
    }


def test_two_reads_prove_what_a_single_read_proves() -> None:
    steps = ("high watermark", "producers", "last stable", "log start")
    with Cases() as cases:
        for step, code, last_stable in product(steps, (0, 3, 29, 74, -1), (100, 160)):
            with cases.case(f"{step}: {code}, {last_stable}"):
                cluster = three_partitions()
                cluster.partitions["t", 0].errors[step] = code
                cluster.partitions["t", 0].last_stable = last_stable
                first, second = pair(cluster)
                proven = {key for key, row in second.items() if first[key].failure is None and row.failure is None}
                single = narrow(cluster)
                assert proven == {key for key, row in single.items() if row.failure is None}
                failure = first["t", 0].failure or second["t", 0].failure
                assert failure == single["t", 0].failure


@pytest.mark.parametrize("request_number", [1, 2, 3, 4, 5])
def test_a_failed_request_of_two_reads_fails_each_partition(cluster: FakeCluster, request_number: int) -> None:
    cluster.partitions["t", 0].last_stable = 160
    cluster.fail_when = lambda broker_id, request, asked: len(asked) == request_number
    first, second = pair(cluster)
    rows = first if request_number < 3 else second
    assert {said(row.failure) for row in rows.values()} == {"broker 1 cannot be reached"}
    assert not second if request_number < 3 else {row.failure for row in first.values()} == {None}
    assert {row.key: row.led for row in rows.values()} == {p.key: p for p in batch(cluster).partitions}
    assert {(row.read_at_ms, row.open_producers) for row in rows.values()} == {(READ_AT_MS + (rows is second), ())}


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(4, ErrorCode.UNKNOWN_LEADER_EPOCH), (6, ErrorCode.FENCED_LEADER_EPOCH)],
)
def test_a_read_at_another_leader_epoch_is_unproven(cluster: FakeCluster, epoch: int, error: ErrorCode) -> None:
    planned = batch(cluster, ("t", 0))
    cluster.partitions["t", 0].epoch = epoch
    (row,) = read_proven(planned, cluster.send, lambda: READ_AT_MS)
    assert (said(row.failure), row.high_watermark, row.last_stable_offset) == (error.name, None, None)


def test_a_read_from_a_follower_is_unproven(cluster: FakeCluster) -> None:
    cluster.partitions["t", 0].leader = 2
    planned = ReadBatch(0, 3, cluster.planned(("t", 0)))
    (row,) = read_proven(planned, cluster.send, lambda: READ_AT_MS)
    assert row.open_producers == (producer(7),)
    assert said(row.failure) == "NOT_LEADER_OR_FOLLOWER"


@pytest.mark.parametrize("step", ["ListOffsets", "DescribeProducers"])
def test_a_partition_omitted_from_any_answer_is_unproven(cluster: FakeCluster, step: str) -> None:
    cluster.edit[step] = without("t", 0)
    rows = narrow(cluster)
    assert said(rows["t", 0].failure) == LEFT_OUT
    assert said(rows["u", 0].failure) is None


def test_a_partition_described_twice_is_unproven(cluster: FakeCluster) -> None:
    cluster.edit["DescribeProducers"] = doubled
    rows = narrow(cluster)
    assert said(rows["t", 0].failure) and said(rows["u", 0].failure) and said(rows["t", 1].failure) is None


def test_a_partition_with_two_offset_answers_is_unproven(cluster: FakeCluster) -> None:
    def an_error_and_then_success(broker_id: int, answer: Any) -> Any:
        doubled(broker_id, answer)
        for topic in answer.topics:
            first = topic.partitions[0]
            topic.partitions[0] = type(first)(
                partition_index=first.partition_index, error_code=int(ErrorCode.FENCED_LEADER_EPOCH), offset=-1
            )
        return answer

    cluster.edit["ListOffsets"] = an_error_and_then_success
    assert said(narrow(cluster)["t", 0].failure) is not None


@pytest.mark.parametrize("request_number", [1, 2, 3, 4])
def test_a_failed_fenced_request_is_an_unproven_row_per_partition(cluster: FakeCluster, request_number: int) -> None:
    # The fourth request is sent only if the last stable offset passed an open transaction.
    cluster.partitions["t", 0].last_stable = 160
    cluster.fail_when = lambda broker_id, request, asked: len(asked) == request_number
    rows = narrow(cluster)
    assert {said(row.failure) for row in rows.values()} == {"broker 1 cannot be reached"}
    assert all(row.last_stable_offset is None and row.open_producers == () for row in rows.values())
    assert {(row.leader, row.leader_epoch, row.read_at_ms) for row in rows.values()} == {
        (1, 5, READ_AT_MS),
        (1, 6, READ_AT_MS),
    }


@pytest.mark.parametrize(
    ("last_stable", "log_start", "log_start_error", "proven", "why"),
    [
        (100, 0, 0, True, "it stands at the open transaction"),
        (99, 0, 0, True, "it is held back by something older"),
        (101, 0, 0, False, "the transaction ended between the two requests"),
        (160, 160, 0, True, "the first records were deleted, and it is never below the log start"),
        (160, 159, 0, False, "deletion explains a part of it only"),
        (160, 170, 0, True, "the log start moved on since"),
        (160, 160, 6, False, "a log start that could not be read explains nothing"),
    ],
)
def test_a_last_stable_offset_beyond_an_open_transaction_is_unproven_unless_its_records_are_deleted(
    cluster: FakeCluster, last_stable: int, log_start: int, log_start_error: int, proven: bool, why: str
) -> None:
    held = cluster.partitions["t", 0]
    held.last_stable, held.log_start = last_stable, log_start
    held.errors["log start"] = log_start_error
    rows = narrow(cluster)
    assert (said(rows["t", 0].failure) is None) is proven, why
    assert said(rows["u", 0].failure) is None, "the neighbour is not concerned"


def test_the_last_stable_offset_must_not_pass_the_first_open_transaction(
    cluster: FakeCluster,
    wording: SnapshotAssertion,
) -> None:
    cluster.partitions["u", 0].last_stable = 130
    assert said(narrow(cluster)["u", 0].failure) == wording


def test_an_unreadable_log_start_is_an_error_and_no_offset(cluster: FakeCluster) -> None:
    cluster.partitions["t", 0].last_stable = 160
    cluster.partitions["t", 0].errors["log start"] = 6
    row = narrow(cluster)["t", 0]
    assert (said(row.failure), row.last_stable_offset) == ("NOT_LEADER_OR_FOLLOWER", None)


def test_the_log_start_is_requested_only_for_partitions_that_need_it(cluster: FakeCluster) -> None:
    cluster.partitions["t", 0].last_stable = cluster.partitions["t", 0].log_start = 160
    rows = narrow(cluster)
    last = cluster.requests[-1]
    assert offset_kind(last) == "log start"
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in last.topics] == [("t", [0])]
    assert rows["t", 0].last_stable_offset == 160


def test_the_last_stable_offset_is_never_below_the_log_start() -> None:
    """DeleteRecords cut the first batch of a transaction: a leader then shows a last stable offset before the cut."""
    with Cases() as cases:
        for error, last_stable in ((0, 103), (int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), None)):
            with cases.case(str(error)):
                fake = three_partitions()
                held = fake.partitions["t", 0]
                held.last_stable, held.log_start, held.errors["log start"] = 100, 103, error
                asked = batch(fake, ("t", 0))
                (ends,) = read_ends(asked, fake.send, lambda: READ_AT_MS)
                unproven = [row.last_stable_offset for row in read_offsets(asked, fake.send)]
                assert (ends.last_stable_offset, ends.failure is None) == (last_stable, not error)
                assert unproven == [one for one in (last_stable,) if one is not None]


def test_a_start_offset_at_the_high_watermark_is_accepted_by_the_read(cluster: FakeCluster) -> None:
    cluster.partitions["t", 0].high_watermark = 100
    row = narrow(cluster)["t", 0]
    assert (said(row.failure), row.high_watermark, row.open_producers[0].start_offset) == (None, 100, 100)


@pytest.mark.parametrize(
    ("step", "operation"),
    [("high watermark", "Describe"), ("producers", "Read"), ("last stable", "Describe"), ("log start", "Describe")],
)
def test_a_refused_step_of_the_fenced_read_names_its_acl(cluster: FakeCluster, step: str, operation: str) -> None:
    cluster.partitions["t", 0].errors[step] = 29
    cluster.partitions["t", 0].last_stable = 160
    (row,) = read_proven(batch(cluster, ("t", 0)), cluster.send, lambda: READ_AT_MS)
    needs = Permission(operation, "Topic", "t")
    assert row.failure == Failure("TOPIC_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED", needs=needs)


def test_offsets_are_read_from_leaders_without_proof(cluster: FakeCluster) -> None:
    rows = list(read_offsets(batch(cluster, ("t", 0), ("u", 0)), cluster.send))
    assert [(row.topic, row.partition) for row in rows] == [("t", 0), ("u", 0)]
    assert all(row.last_stable_offset <= row.high_watermark for row in rows)
    assert {name for _, name in cluster.asked} == {"ListOffsets"}


@pytest.mark.parametrize("step", ["high watermark", "last stable"])
def test_a_partition_with_only_one_known_offset_is_omitted(cluster: FakeCluster, step: str) -> None:
    cluster.partitions["t", 0].errors[step] = 6
    assert [row.topic for row in read_offsets(batch(cluster, ("t", 0), ("u", 0)), cluster.send)] == ["u"]


def test_a_partition_without_an_answer_is_omitted(cluster: FakeCluster) -> None:
    planned = batch(cluster, ("t", 0))
    cluster.fail_when = lambda *_: True
    assert list(read_offsets(planned, cluster.send)) == []


def test_the_ends_of_partitions_are_proven_offsets(cluster: FakeCluster) -> None:
    rows = list(read_ends(batch(cluster), cluster.send, lambda: READ_AT_MS))
    assert [name for _, name in cluster.asked] == ["ListOffsets"] * 3
    whole = narrow(cluster)
    assert rows == [replace(whole[row.key], open_producers=()) for row in rows] and len(rows) == len(KEYS)
    assert rows[0].high_watermark != rows[0].last_stable_offset


def test_an_end_that_cannot_be_read_leaves_its_partition_unproven() -> None:
    with Cases() as cases:
        for step in ("high watermark", "last stable"):
            with cases.case(step):
                fake = three_partitions()
                fake.partitions["t", 0].errors[step] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                rows = {row.key: row for row in read_ends(batch(fake), fake.send, lambda: READ_AT_MS)}
                failed_row = rows["t", 0]
                needs, code = Permission("Describe", "Topic", "t"), "TOPIC_AUTHORIZATION_FAILED"
                assert failed_row.failure == Failure(code, code, needs=needs)
                known = (failed_row.high_watermark is not None, failed_row.last_stable_offset is not None)
                assert known == (step == "last stable", step == "high watermark")
                assert [key for key, row in rows.items() if row.failure is None] == [*KEYS[1:]]


def test_without_an_answer_no_end_is_proven(cluster: FakeCluster) -> None:
    planned = batch(cluster)
    cluster.fail_when = lambda *_: True
    rows = list(read_ends(planned, cluster.send, lambda: READ_AT_MS))
    assert [(row.key, row.failure is None, row.read_at_ms) for row in rows] == [(k, False, READ_AT_MS) for k in KEYS]
