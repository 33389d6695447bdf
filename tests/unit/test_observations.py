"""Joining the reads: one observation per open transaction, and no sighting is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import NOW_MS, context, failed, judged, observation, view
from tests.fakes.cluster import producer
from txnscan.coordinators.claims import ClaimedTransaction
from txnscan.kafka.answers import OpenProducer
from txnscan.reads.observation import Observation, ProvenRead
from txnscan.reads.rows import OffsetsRow, ProvenRow, WideRow
from txnscan.sweeps.observations import CLAIMED, claimed_observations, observe, with_history, with_offsets
from txnscan.verdict.evidence import Reason, Verdict
from txnscan.verdict.rules import judge, judge_observation

KEY = ("p", 0)
FIRST_MS, SECOND_MS = NOW_MS - 2_000, NOW_MS - 1_000
RECREATED = "the topic was deleted and created again"


def wide(*producers: OpenProducer, **changes: Any) -> WideRow:
    values: dict[str, Any] = {"leader": 1, "topic": "p", "partition": 0, "open_producers": producers}
    return WideRow(**(values | changes))


def narrow(read_at_ms: int, *producers: OpenProducer, **changes: Any) -> ProvenRow:
    row = ProvenRow("p", "t0", 0, 1, 5, read_at_ms, 105, 100, producers)
    return replace(row, **changes)


def seen(first: ProvenRow, second: ProvenRow | None, row: WideRow | None = None) -> list[Observation]:
    reads = ({KEY: first}, {} if second is None else {KEY: second})
    return observe({KEY: "t0"}, {KEY: row or wide(producer(7))}, *reads)


def verdict(o: Observation) -> tuple[Verdict, Reason]:
    judgement = judge_observation(o, (), context()).judgement
    return judgement.verdict, judgement.reason


def test_a_transaction_open_at_both_reads_is_one_observation() -> None:
    second = narrow(SECOND_MS, producer(7), leader=2, leader_epoch=6, high_watermark=110)
    assert seen(narrow(FIRST_MS, producer(7)), second) == [
        observation(
            leader=2,
            leader_epoch=6,
            last_timestamp_ms=1_700_000_000_000,
            second_high_watermark=110,
            first_seen_ms=FIRST_MS,
        )
    ]


def test_a_transaction_closed_at_the_second_read_is_gone() -> None:
    (o,) = seen(narrow(FIRST_MS, producer(7)), narrow(SECOND_MS))
    assert (o.second.start_offset, o.second.producer_epoch, o.second.last_sequence) == (None, None, None)
    assert verdict(o) == (Verdict.GONE, Reason.ENDED)


def test_a_later_transaction_of_the_same_producer_has_another_start_offset() -> None:
    (o,) = seen(narrow(FIRST_MS, producer(7, 100)), narrow(SECOND_MS, producer(7, 103)))
    assert (o.start_offset, o.second.start_offset) == (100, 103)
    assert verdict(o) == (Verdict.INDETERMINATE, Reason.PARTITION)
    assert verdict(replace(o, is_replaced=True)) == (Verdict.GONE, Reason.ENDED)


def test_a_transaction_begun_after_the_first_read_is_not_observed() -> None:
    observations = seen(narrow(FIRST_MS, producer(7)), narrow(SECOND_MS, producer(7), producer(8, 102)))
    assert [o.producer_id for o in observations] == [7]


def test_a_transaction_absent_from_a_proven_first_read_is_closed() -> None:
    assert seen(narrow(FIRST_MS), None) == []


def test_after_a_failed_first_read_the_wide_read_supplies_indeterminate_transactions() -> None:
    unread = narrow(FIRST_MS, failure=failed("FENCED_LEADER_EPOCH"), high_watermark=None)
    (o,) = seen(unread, narrow(SECOND_MS, producer(7)))
    assert (o.producer_id, o.start_offset, str(o.first.failure)) == (7, 100, "FENCED_LEADER_EPOCH")
    assert verdict(o) == (Verdict.INDETERMINATE, Reason.PARTITION)


def test_a_failed_first_read_with_one_transaction_keeps_the_others() -> None:
    unread = narrow(FIRST_MS, producer(8), failure=failed("NOT_LEADER_OR_FOLLOWER"))
    observations = seen(unread, narrow(SECOND_MS, producer(7), producer(8)), wide(producer(7), producer(8)))
    assert [o.producer_id for o in observations] == [7, 8]


def test_a_failed_first_read_extends_and_updates_the_wide_read() -> None:
    unread = narrow(FIRST_MS, producer(8), producer(9, 130), failure=failed("NOT_LEADER_OR_FOLLOWER"))
    observations = seen(unread, narrow(SECOND_MS), wide(producer(9, 110), producer(7)))
    assert [(o.producer_id, o.start_offset) for o in observations] == [(7, 100), (8, 100), (9, 130)]


def test_a_failed_first_read_without_a_wide_row_is_observed() -> None:
    unread = narrow(FIRST_MS, producer(7), failure=failed("NOT_LEADER_OR_FOLLOWER"))
    (o,) = observe({KEY: "t0"}, {}, {KEY: unread}, {})
    assert (o.producer_id, str(o.first.failure)) == (7, "NOT_LEADER_OR_FOLLOWER")


def test_a_transaction_only_in_the_second_read_is_indeterminate() -> None:
    """A broker with an open incident was unreachable for the wide read and the first read. The second read is proven:
    an unobserved transaction would have ended the incident.
    """
    first = narrow(FIRST_MS, failure=failed("broker 1 cannot be reached"))
    (o,) = observe({KEY: "t0"}, {}, {KEY: first}, {KEY: narrow(SECOND_MS, producer(7))})
    assert (o.producer_id, o.second.start_offset) == (7, 100)
    assert verdict(o) == (Verdict.INDETERMINATE, Reason.PARTITION)


def test_after_a_failed_first_read_earlier_sightings_count_and_later_starts_do_not() -> None:
    first = narrow(FIRST_MS, failure=failed("broker 1 cannot be reached"))
    (o,) = seen(first, narrow(SECOND_MS, producer(7, 103)), wide(producer(7, 100)))
    assert (o.start_offset, o.second.start_offset) == (100, 103)


def test_observations_are_sorted_by_topic_and_partition() -> None:
    keys = [("q", 0), ("p", 1), ("p", 0)]
    first = {(t, k): narrow(FIRST_MS, producer(7), topic=t, partition=k) for t, k in keys}
    second = {(t, k): narrow(SECOND_MS, producer(7), topic=t, partition=k) for t, k in keys}
    observations = observe(dict.fromkeys(keys, "t0"), {}, first, second)
    assert [(o.topic, o.partition, o.second.start_offset) for o in observations] == [
        ("p", 0, 100),
        ("p", 1, 100),
        ("q", 0, 100),
    ]


@pytest.mark.parametrize(
    ("first_error", "expected"),
    [(None, "the partition was not read again"), ("FENCED_LEADER_EPOCH", "FENCED_LEADER_EPOCH")],
)
def test_a_missing_second_read_is_an_error_and_no_end(first_error: str | None, expected: str) -> None:
    failure = failed(first_error) if first_error is not None else None
    (o,) = seen(narrow(FIRST_MS, producer(7), failure=failure), None)
    assert (o.first.failure, str(o.second.failure), o.second.start_offset) == (failure, expected, None)
    assert verdict(o) == (Verdict.INDETERMINATE, Reason.PARTITION)


def test_a_failed_second_read_keeps_the_leader_of_the_first() -> None:
    unread = narrow(SECOND_MS, leader=-1, leader_epoch=-1, failure=failed("p-0 has no leader"))
    (o,) = seen(narrow(FIRST_MS, producer(7)), unread)
    assert (o.leader, o.leader_epoch, str(o.second.failure)) == (1, 5, "p-0 has no leader")
    assert verdict(o) == (Verdict.INDETERMINATE, Reason.PARTITION)


@pytest.mark.parametrize(
    ("first_id", "second_id", "why"),
    [
        ("t1", "t1", "before the first read"),
        ("t0", "t1", "between the reads"),
        ("t1", "t0", "metadata that goes back and forth proves nothing either"),
    ],
)
def test_a_recreated_topic_is_an_error_of_both_reads(first_id: str, second_id: str, why: str) -> None:
    first, second = narrow(FIRST_MS, producer(7), topic_id=first_id), narrow(SECOND_MS, producer(7), topic_id=second_id)
    (o,) = seen(first, second)
    assert (str(o.first.failure), str(o.second.failure), o.topic_id) == (RECREATED, RECREATED, "t0"), why
    assert (o.first.read_at_ms, o.second.read_at_ms) == (FIRST_MS, SECOND_MS)
    assert verdict(o) == (Verdict.INDETERMINATE, Reason.PARTITION)


def test_the_topic_id_of_a_failed_read_is_ignored() -> None:
    unread = narrow(FIRST_MS, failure=failed("t-0 has no leader"), topic_id="")
    (o,) = seen(unread, narrow(SECOND_MS, producer(7)))
    assert (str(o.first.failure), o.second.failure) == ("t-0 has no leader", None)


def test_each_transaction_of_a_partition_is_a_separate_observation() -> None:
    first = narrow(FIRST_MS, producer(7), producer(8, 120), producer(9, 130))
    second = narrow(SECOND_MS, producer(9, 130, producer_epoch=4), producer(7))
    observations = seen(first, second)
    assert [(o.producer_id, o.second.start_offset, o.second.producer_epoch) for o in observations] == [
        (7, 100, 3),
        (8, None, None),
        (9, 130, 4),
    ]


@pytest.mark.parametrize(
    ("stored_ms", "expected_ms", "why"),
    [
        (FIRST_MS - 60_000, FIRST_MS - 60_000, "seen in an earlier sweep"),
        (FIRST_MS + 60_000, FIRST_MS, "a stored time after this sweep is a clock's mistake"),
        (None, FIRST_MS, "never seen before"),
        (0, 0, "the epoch is a time too"),
    ],
)
def test_history_only_makes_a_first_sighting_earlier(stored_ms: int | None, expected_ms: int, why: str) -> None:
    before = observation(first_seen_ms=FIRST_MS)
    assert with_history([before], lambda o: stored_ms) == [replace(before, first_seen_ms=expected_ms)], why


def test_history_is_looked_up_for_each_observation() -> None:
    known = {7: 10, 8: 20}
    found = with_history(
        [observation(), observation(producer_id=8), observation(producer_id=9)], lambda o: known.get(o.producer_id)
    )
    assert [o.first_seen_ms for o in found] == [10, 20, observation().first_seen_ms]


# --- claimed transactions ---------------------------------------------------------------------------------------------

HOLDER = view("Ongoing", 3, ("p-0",))


def held(**changes: Any) -> Observation:
    one = producer(7, **changes)
    claimed = ClaimedTransaction(wide(one), one, HOLDER)
    (observed,) = claimed_observations({claimed.key: "t0"}, [claimed], NOW_MS)
    return observed


def test_a_claimed_transaction_has_the_values_of_the_wide_read_and_no_proof() -> None:
    unread = ProvenRead(NOW_MS, failure=CLAIMED)
    assert held() == replace(
        observation(leader_epoch=-1, last_timestamp_ms=1_700_000_000_000, first_seen_ms=NOW_MS),
        first=unread,
        second=unread,
    )


@pytest.mark.parametrize(
    ("coordinator", "expected"),
    [
        (HOLDER, (Verdict.ONGOING, Reason.OWNED)),
        (replace(HOLDER, start_time_ms=0), (Verdict.LATE_ONGOING, Reason.OWNED)),
        (view("PrepareCommit", 4, ("p-0",)), (Verdict.PENDING_MARKER, Reason.DECIDED)),
        (view("PrepareAbort", 3, ("p-0",)), (Verdict.PENDING_MARKER, Reason.DECIDED)),
        (view("Ongoing", 3, ("q-0",)), (Verdict.INDETERMINATE, Reason.PARTITION)),
        (view("CompleteCommit", 3), (Verdict.INDETERMINATE, Reason.PARTITION)),
        (None, (Verdict.INDETERMINATE, Reason.PARTITION)),
    ],
    ids=["ongoing", "late", "decided", "aborted", "held elsewhere", "complete", "nobody"],
)
def test_a_claimed_transaction_is_judged_from_its_claim_and_never_hanging(
    coordinator: Any, expected: tuple[Verdict, Reason]
) -> None:
    """An unproven read never supports a hanging verdict, even without the claim."""
    views = () if coordinator is None else (coordinator,)
    judgement = judge_observation(held(), views, context()).judgement
    assert (judgement.verdict, judgement.reason) == expected


@pytest.mark.parametrize(("field", "value"), [("topic", "p"), ("partition", 0)])
def test_a_claimed_transaction_names_its_partition(field: str, value: object) -> None:
    assert getattr(held(), field) == value
    one = producer(7)
    assert ClaimedTransaction(wide(one, topic=None, partition=None), one, HOLDER).key == ("", -1)


def test_offsets_of_a_claimed_transaction_do_not_change_its_verdict() -> None:
    unread = {"second_high_watermark": None, "second_last_stable_offset": None}
    held = judged(view("Ongoing", 3, ("p-0",)), first_failure=CLAIMED, second_failure=CLAIMED, **unread)
    row = OffsetsRow("p", 0, high_watermark=120, last_stable_offset=100)
    (told,) = with_offsets([held], {held.observation.key: row})
    assert (told.observation.second.high_watermark, told.observation.second.last_stable_offset) == (120, 100)
    assert told.judgement == held.judgement == judge(told.evidence)
    (same,) = with_offsets([held], {})
    assert same is held
