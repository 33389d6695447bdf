"""A live transaction has one end: in the table and the JSON of a sweep, in its explanation and in `explain`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.builders import LATE_AFTER_MS, MINUTE_MS, NOW_MS, P, judged, scan, view
from tests.cases import Cases
from txnscan.explain.causes import cause_of
from txnscan.explain.facts import Facts, PartitionFacts
from txnscan.explain.symptom import Symptom, SymptomKind
from txnscan.explain.writes import with_writes
from txnscan.kafka.answers import TWO_PHASE_COMMIT_TIMEOUT_MS
from txnscan.kafka.topology import PartitionReplicas
from txnscan.report.impact import end_sentence, ends_by, time_of
from txnscan.report.json import scan_object
from txnscan.sweeps.column import epoch_ms, timestamp
from txnscan.verdict.ending import coordinator_aborts, timeout_end_ms, utc_time
from txnscan.verdict.evidence import Judged, Reason
from txnscan.verdict.rules import judge
from txnscan.waiting.writability import UNREAD, WriteState, WriteStates

# One of two replicas in sync, of two that are needed.
STOPPED = WriteStates({("p", 0): WriteState(PartitionReplicas("p", 0, 1, (1, 2), (1,)), 2)})
GROUP = Symptom(SymptomKind.GROUP, group="g")


def live(age_ms: int, **changes: Any) -> Judged:
    claim = view("Ongoing", partitions=(P,), start_time_ms=NOW_MS - age_ms, **changes)
    return judged(claim)


def joined(one: Judged) -> Judged:
    evidence = replace(one.evidence, joined_commit="'X' committed epoch 3")
    return replace(one, evidence=evidence, judgement=judge(evidence))


def explained(one: Judged, states: WriteStates) -> tuple[str, int | None]:
    """The sentence of `explain` with its evidence, and its `ends_by`."""
    where = PartitionFacts("p", 0, 105, 100, 100, committed=100, open=(one,))
    cause = cause_of(with_writes(Facts(GROUP, NOW_MS, LATE_AFTER_MS, partitions=(where,)), states))
    return " ".join((cause.sentence, *cause.evidence)), cause.numbers.ends_by_ms


CASES: tuple[tuple[str, Judged, WriteStates, int | None], ...] = (
    ("in some minutes and seconds", live(2 * MINUTE_MS + 123), UNREAD, NOW_MS + 13 * MINUTE_MS - 123),
    ("at its timeout", live(15 * MINUTE_MS + 5_000), UNREAD, NOW_MS - 5_000),
    ("past it", live(18 * MINUTE_MS), UNREAD, NOW_MS - 3 * MINUTE_MS),
    ("after an earlier commit", joined(live(2 * MINUTE_MS)), UNREAD, NOW_MS + 13 * MINUTE_MS),
    ("without a timeout", live(2 * MINUTE_MS, timeout_ms=TWO_PHASE_COMMIT_TIMEOUT_MS), UNREAD, None),
    ("without a start", live(NOW_MS + 1), UNREAD, None),
    ("on a partition that takes no writes", live(2 * MINUTE_MS), STOPPED, None),
    ("after a commit, on one that takes none", joined(live(2 * MINUTE_MS)), STOPPED, None),
)


def test_each_output_has_the_same_end() -> None:
    with Cases() as cases:
        for name, one, states, by_ms in CASES:
            with cases.case(name):
                (row,) = scan_object(scan(one, writes=states))["transactions"]
                text, in_json = explained(one, states)
                at = None if row["ends_by"] is None else epoch_ms(time_of(row["ends_by"]))
                assert (at, in_json) == (by_ms, by_ms)
                if by_ms is None:
                    assert ends_by(row) is None and end_sentence(row, timestamp(NOW_MS)) is None
                    assert "at its timeout" not in text
                    continue
                assert ends_by(row) == utc_time(by_ms) and utc_time(by_ms) in text
                if row["verdict"] == "ongoing":
                    assert coordinator_aborts(by_ms, NOW_MS) in text


def test_an_end_needs_a_start_and_a_timeout_of_a_millisecond_at_least() -> None:
    assert timeout_end_ms(1, 5) == 6 and timeout_end_ms(5, 1) == 6
    assert timeout_end_ms(0, 5) is None and timeout_end_ms(5, 0) is None


def test_the_end_of_2099_is_the_last_time() -> None:
    last_ms = epoch_ms(datetime(2100, 1, 1, tzinfo=UTC)) - 1
    assert timeout_end_ms(last_ms - 5, 5) == last_ms and timeout_end_ms(last_ms - 5, 6) is None


def test_a_timeout_that_is_now_is_over() -> None:
    over, ahead = coordinator_aborts(NOW_MS, NOW_MS), coordinator_aborts(NOW_MS, NOW_MS - 1)
    assert over == coordinator_aborts(NOW_MS, NOW_MS + 1) != ahead
    assert "about to" in over and "about to" not in ahead


def test_the_end_of_a_transaction_that_endangers_a_commit_is_in_its_explanation() -> None:
    one = joined(live(2 * MINUTE_MS))
    assert one.judgement.reason is Reason.JOINED_COMMIT
    (row,) = scan_object(scan(one))["transactions"]
    assert coordinator_aborts(NOW_MS + 13 * MINUTE_MS, NOW_MS) in row["explanation"]
    assert end_sentence(row, timestamp(NOW_MS)) is None


def test_a_time_that_is_over_is_told_as_such() -> None:
    (row,) = scan_object(scan(live(2 * MINUTE_MS)))["transactions"]
    ends = timestamp(NOW_MS + 13 * MINUTE_MS)
    before, after = (end_sentence(row, ends + timedelta(seconds=each)) for each in (-1, 1))
    assert before != after and before is not None and after is not None
