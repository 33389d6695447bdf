"""Live transactions that hold readers back: their end, which of them are looked at, and which of them block."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import LATE_AFTER_MS, MINUTE_MS, NOW_MS, P, failed, judged, scan, view
from tests.cases import Cases
from txnscan.kafka.topology import PartitionReplicas
from txnscan.verdict.ending import timeout_end_ms
from txnscan.verdict.evidence import Judged, Reason, Verdict
from txnscan.waiting import blocking as under_test
from txnscan.waiting.blocking import (
    LATE_DIVISOR,
    ORDINARY_MS,
    blocks,
    end_of,
    ends_by_ms,
    gets_a_row,
    looked_at,
    only_counted_warning,
)
from txnscan.waiting.impact import BlockedGroup, BlockReason, Impact
from txnscan.waiting.owner import Owner
from txnscan.waiting.writability import UNREAD, WriteState, WriteStates

START_MS, TIMEOUT_MS = NOW_MS - MINUTE_MS, 15 * MINUTE_MS
LIMIT_MS = LATE_AFTER_MS // LATE_DIVISOR
ENDLESS_MS = 2**31 - 1
OFFSETS = "__consumer_offsets"
# One of two replicas in sync, of two that are needed.
STOPPED = WriteState(PartitionReplicas("p", 0, 1, (1, 2), (1,)), 2)


def live(age_ms: int = 6 * MINUTE_MS, *, of: dict[str, Any] | None = None, **changes: Any) -> Judged:
    """A transaction that its coordinator has had open for this long. of: changes of the claim."""
    topic, partition = changes.get("topic", "p"), changes.get("partition", 0)
    claim = view("Ongoing", partitions=(f"{topic}-{partition}",), start_time_ms=NOW_MS - age_ms, **(of or {}))
    return judged(claim, **changes)


def impact(*groups: str, count: int | None = 0) -> Impact:
    """The impact of a live transaction for which these groups wait. count: their number, None if it is not known."""
    found = tuple(BlockedGroup(name, BlockReason.AT_LSO) for name in groups)
    return Impact(None, None, Owner("X", None, None), groups=found, groups_blocked=count, groups_asked=3)


# --- the end


def test_a_claim_ends_at_its_timeout_if_its_coordinator_reports_both_times() -> None:
    cases: tuple[tuple[str, dict[str, Any], int | None], ...] = (
        ("start and timeout", {}, START_MS + TIMEOUT_MS),
        ("hours", {"timeout_ms": 7 * 60 * MINUTE_MS}, START_MS + 7 * 60 * MINUTE_MS),
        ("past its timeout", {"start_time_ms": NOW_MS - 2 * TIMEOUT_MS}, NOW_MS - TIMEOUT_MS),
        ("the longest timeout that is one", {"timeout_ms": ENDLESS_MS - 1}, START_MS + ENDLESS_MS - 1),
        ("two-phase commit", {"timeout_ms": ENDLESS_MS}, None),
        ("no start", {"start_time_ms": -1}, None),
        ("a start of zero", {"start_time_ms": 0}, None),
        ("no timeout", {"timeout_ms": -1}, None),
        ("a timeout of zero", {"timeout_ms": 0}, None),
        ("a time that no table can store", {"start_time_ms": 2**62}, None),
        ("decided", {"state": "PrepareCommit"}, None),
        ("at rest", {"state": "CompleteAbort"}, None),
        ("not described", {"describe_failure": failed("NOT_COORDINATOR")}, None),
    )
    with Cases() as table:
        for name, changes, expected in cases:
            with table.case(name):
                claim = replace(view("Ongoing", partitions=(P,)), **changes)
                assert ends_by_ms(claim, None) == expected
                assert ends_by_ms(claim, STOPPED) is None


def test_a_time_that_is_not_known_has_no_end() -> None:
    assert timeout_end_ms(None, TIMEOUT_MS) is None and timeout_end_ms(START_MS, None) is None


def test_only_a_live_transaction_with_one_claim_has_an_end() -> None:
    one = view("Ongoing", partitions=(P,))
    cases: tuple[tuple[str, Judged, int | None], ...] = (
        ("one claim", judged(one), START_MS + TIMEOUT_MS),
        ("two claims", judged(one, replace(one, broker_id=3)), None),
        (
            "two ids, one of which has the partition",
            judged(one, view("Empty", transactional_id="Y")),
            START_MS + TIMEOUT_MS,
        ),
        ("hanging", judged(view("Empty", 9)), None),
        ("decided", judged(view("PrepareCommit", 4, (P,))), None),
        ("ended", judged(one, second_start_offset=None), None),
    )
    with Cases() as table:
        for name, found, expected in cases:
            with table.case(name):
                assert end_of(found, UNREAD) == expected
                assert end_of(found, WriteStates({("p", 0): STOPPED})) is None


# --- which are looked at


@pytest.mark.parametrize(
    ("limit_ms", "age_ms", "is_looked_at"),
    [
        (LIMIT_MS, ORDINARY_MS + 1, True),
        (LIMIT_MS, ORDINARY_MS, False),
        # A shorter limit precedes the age of ordinary transactions.
        (MINUTE_MS // 2, MINUTE_MS // 2 + 1, True),
        (MINUTE_MS // 2, MINUTE_MS // 2, False),
        # A longer one does not.
        (60 * MINUTE_MS, ORDINARY_MS + 1, True),
    ],
)
def test_ordinary_transactions_are_not_looked_at(limit_ms: int, age_ms: int, is_looked_at: bool) -> None:
    assert (looked_at([live(age_ms)], limit_ms) == ([live(age_ms)], 0)) is is_looked_at


def test_only_live_transactions_are_looked_at_and_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit they are counted, and a warning has their number."""
    late = live(16 * MINUTE_MS + 1, partition=1)
    others = (judged(), judged(view("PrepareCommit", 4, (P,))), judged(view("Empty", 5, coverage_failure=failed("x"))))
    seen = [*others, live(), late, live(7 * MINUTE_MS, partition=2), live(1_000, partition=3)]
    assert late.judgement.verdict is Verdict.LATE_ONGOING
    assert looked_at(seen, LIMIT_MS) == ([late, seen[5], seen[3]], 0)
    assert only_counted_warning(0, LIMIT_MS) == ()
    monkeypatch.setattr(under_test, "LOOKED_AT_MAX", 1)
    assert looked_at(seen, LIMIT_MS) == ([late], 2)
    (warning,) = only_counted_warning(2, LIMIT_MS)
    assert "2 live transactions" in warning and "the 1 oldest" in warning


# --- rows, and what blocks


# age, changes of the observation, impact, whether it gets a row, whether it blocks.
ROWS: tuple[tuple[str, int, dict[str, Any], Impact, bool, bool | None], ...] = (
    ("old, at the last stable offset", LIMIT_MS + 1, {}, impact(), True, True),
    ("at the limit", LIMIT_MS, {}, impact(), False, False),
    ("younger, and a group waits", 2 * MINUTE_MS, {}, impact("billing", count=1), True, True),
    ("younger, and one group of an unknown number", 2 * MINUTE_MS, {}, impact("billing", count=None), True, True),
    ("younger, and groups are not known", 2 * MINUTE_MS, {}, impact(count=None), False, False),
    ("old, behind another", LIMIT_MS + 1, {"second_last_stable_offset": 80}, impact(count=None), True, False),
    ("old, offsets not known", LIMIT_MS + 1, {"second_last_stable_offset": None}, impact(count=None), True, None),
    ("old, nothing after it", LIMIT_MS + 1, {"second_high_watermark": 100}, impact(), True, False),
    ("old, on offsets", LIMIT_MS + 1, {"topic": OFFSETS}, impact(), True, False),
    ("old, on offsets, groups not known", LIMIT_MS + 1, {"topic": OFFSETS}, impact(count=None), True, None),
    ("old, on offsets of a group", LIMIT_MS + 1, {"topic": OFFSETS}, impact("billing", count=1), True, True),
)


def test_old_transactions_and_those_with_waiting_groups_get_rows() -> None:
    with Cases() as table:
        for name, age_ms, changes, of, has_row, is_blocking in ROWS:
            with table.case(name):
                one = live(age_ms, **changes)
                assert gets_a_row(one, of, LIMIT_MS) is has_row
                assert blocks(one, of, LIMIT_MS) is is_blocking


def test_no_other_transaction_blocks_as_a_live_one() -> None:
    assert blocks(judged(), impact("billing", count=1), LIMIT_MS) is None
    assert blocks(live(), None, LIMIT_MS) is None


def test_a_blocking_transaction_stays_ongoing_and_healthy() -> None:
    """It changes no verdict, no count and no exit status."""
    one = live(of={"timeout_ms": 60 * MINUTE_MS})
    found = scan(one, live(partition=1), impacts={one.observation.transaction_key: impact("billing", count=1)})
    assert (one.judgement.verdict, one.judgement.reason) == (Verdict.ONGOING, Reason.OWNED)
    assert found.blocking == found.stored == (one,)
    assert (found.complete, found.candidates, found.counts[Verdict.ONGOING]) == (True, (), 2)
    assert [count.transactions for count in found.healthy] == [2]
    assert found.carried_impact(one) is None
