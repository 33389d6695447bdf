"""The cause of a hanging transaction, if the evidence shows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import MINUTE_MS, NOW_MS, judged, known, view
from tests.fakes.logged import AGAIN, START_MS, logged
from txnscan.kafka.answers import State
from txnscan.txnlog.facts import LoggedTransaction
from txnscan.verdict.evidence import Judged
from txnscan.verdict.outcome import with_outcome
from txnscan.waiting.cause import Cause, cause_of

P, Q = ("p", 0), ("q", 0)
OPEN_MS = START_MS + 1_000


# Transactions v1: an epoch has many transactions, and InitProducerId raises it.
BEFORE = logged(0, State.EMPTY, 2)
ONGOING_Q = logged(2, State.ONGOING, 3, Q)
COMMIT_Q = (logged(3, State.PREPARE_COMMIT, 3, Q), logged(4, State.COMPLETE_COMMIT, 3))
ONGOING_P = logged(2, State.ONGOING, 3, P)
COMMIT_P = (logged(3, State.PREPARE_COMMIT, 3, P), logged(4, State.COMPLETE_COMMIT, 3))
FENCED = logged(5, State.EMPTY, 4)
# A fence aborts at the next epoch.
FENCE_P = (logged(3, State.PREPARE_ABORT, 4, P), logged(4, State.COMPLETE_ABORT, 4), logged(5, State.EMPTY, 5))
NEVER = (BEFORE, AGAIN, ONGOING_Q, *COMMIT_Q, FENCED)

STALE = judged(view("Empty", 4), last_timestamp_ms=OPEN_MS)
LIVE = judged(view("Ongoing", 3, ("q-0",)), last_timestamp_ms=OPEN_MS)
ORPHAN = judged(last_timestamp_ms=OPEN_MS)
COMMITTED = with_outcome(judged(view("CompleteCommit", 4)), known("committed", "'X' committed"))
DATED_LATE = judged(view("Empty", 4), last_timestamp_ms=START_MS + 20_000)
OF_5 = judged(view("Empty", 5), last_timestamp_ms=OPEN_MS, coordinator_epoch=-1)
LATE_OF_5 = judged(view("Empty", 5), last_timestamp_ms=START_MS + 20_000, coordinator_epoch=-1)
NO_MARKER_YET = judged(view("Empty", 4), last_timestamp_ms=START_MS + 20_000, coordinator_epoch=-1)


@pytest.mark.parametrize(
    ("one", "log", "cause", "why"),
    [
        (COMMITTED, (), Cause.MARKER_MISSING, "a proven commit needs no log to be read again"),
        (judged(view("Empty", 5)), (BEFORE, AGAIN, ONGOING_P, *FENCE_P), Cause.MARKER_MISSING, "the abort raised it"),
        (judged(view("Empty", 5)), (BEFORE, AGAIN, ONGOING_P, FENCE_P[0]), Cause.UNKNOWN, "it is not complete"),
        (OF_5, (BEFORE, AGAIN, ONGOING_P, *FENCE_P), Cause.MARKER_MISSING, "dated before the abort"),
        (LATE_OF_5, (BEFORE, AGAIN, ONGOING_P, *FENCE_P), Cause.LATE_WRITE, "the partition forgot its marker"),
        (STALE, NEVER, Cause.NEVER_ADDED, "the epoch is over and had no transaction with it"),
        (LIVE, (BEFORE, AGAIN, ONGOING_Q), Cause.NEVER_ADDED, "so far none of the epoch has it"),
        (ORPHAN, NEVER, Cause.NEVER_ADDED, "its id expired, and its log is still there"),
        (DATED_LATE, NEVER, Cause.LATE_WRITE, "dated after the epoch was over"),
        (DATED_LATE, (BEFORE, AGAIN, ONGOING_P, *COMMIT_P, FENCED), Cause.LATE_WRITE, "after its marker"),
        (NO_MARKER_YET, (BEFORE, AGAIN, ONGOING_P, *COMMIT_P, FENCED), Cause.UNKNOWN, "it may be the marker's lack"),
        (STALE, (BEFORE, AGAIN, ONGOING_P, *COMMIT_P, FENCED), Cause.UNKNOWN, "it had the partition"),
        (STALE, (FENCED,), Cause.FENCED, "what was before is compacted away, the fence is there"),
        (STALE, (BEFORE, replace(FENCED, contiguous_from=5)), Cause.FENCED, "there is a hole before the fence"),
        (LIVE, (AGAIN,), Cause.UNKNOWN, "nothing reaches back"),
        (
            LIVE,
            (BEFORE, replace(ONGOING_Q, contiguous_from=2)),
            Cause.UNKNOWN,
            "there may be a transaction in the hole",
        ),
        (ORPHAN, (), Cause.UNKNOWN, "no log"),
        (ORPHAN, (AGAIN, replace(AGAIN, transactional_id="Y")), Cause.UNKNOWN, "two ids had the producer id"),
    ],
)
def test_a_cause_is_reported_only_with_evidence(
    one: Judged, log: tuple[LoggedTransaction, ...], cause: Cause, why: str
) -> None:
    assert cause_of(one, log)[0] is cause, why


def by_two_leaders(log: tuple[LoggedTransaction, ...]) -> tuple[LoggedTransaction, ...]:
    """The same records, the last of them by the next leader of the log."""
    return (*log[:-1], replace(log[-1], leader_epoch=1))


@pytest.mark.parametrize(
    ("one", "log", "cause"),
    [
        (STALE, by_two_leaders(NEVER), Cause.UNKNOWN),
        (LIVE, by_two_leaders((BEFORE, AGAIN, ONGOING_Q)), Cause.UNKNOWN),
        (LIVE, tuple(replace(r, log_epoch=1) for r in (BEFORE, AGAIN, ONGOING_Q)), Cause.UNKNOWN),
        (STALE, tuple(replace(r, log_epoch=1) for r in NEVER), Cause.NEVER_ADDED),
        (DATED_LATE, by_two_leaders(NEVER), Cause.LATE_WRITE),
    ],
    ids=["an election", "an election before its end", "one after the last record", "one after its end", "its dates"],
)
def test_never_added_needs_a_log_that_lost_nothing(
    one: Judged, log: tuple[LoggedTransaction, ...], cause: Cause
) -> None:
    assert cause_of(one, log)[0] is cause


@pytest.mark.parametrize("ahead_ms", [1, 50 * MINUTE_MS])
def test_a_record_dated_in_the_future_is_no_late_write(ahead_ms: int) -> None:
    one = judged(view("Empty", 4), last_timestamp_ms=NOW_MS + ahead_ms)
    assert cause_of(one, NEVER)[0] is Cause.NEVER_ADDED


def test_an_earlier_cause_is_kept_if_this_sweep_has_no_evidence() -> None:
    earlier = (Cause.LATE_WRITE, "said so")
    assert cause_of(ORPHAN, (), earlier) == earlier
    assert cause_of(STALE, NEVER, earlier)[0] is Cause.NEVER_ADDED


@pytest.mark.parametrize("log", [NEVER, (), (FENCED,)])
def test_a_reason_is_a_clause_without_a_full_stop(log: tuple[LoggedTransaction, ...]) -> None:
    said = cause_of(STALE, log)[1]
    assert said and not said.endswith(".")
