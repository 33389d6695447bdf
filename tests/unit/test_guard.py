"""The specification of the guards: each refusal and each permission is a row."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import LATE_AFTER_MS, MINUTE_MS, NOW_MS, failed, stored
from tests.cases import Cases
from txnscan.kafka.failure import Failure
from txnscan.resolve.guard import (
    Allowed,
    Limits,
    Refused,
    StoredTransaction,
    guard_names,
    guarded,
    guarded_together,
)
from txnscan.verdict.evidence import Outcome, Reason, Verdict

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

MAX_TIMEOUT_MS = 15 * MINUTE_MS
OFFSETS, SHARES = "__consumer_offsets", "__share_group_state"


@dataclass(frozen=True)
class Row:
    """Changes of a resolvable transaction, and of the limits, that make a guard refuse."""

    guard: str
    changes: dict[str, Any]
    limits: dict[str, Any]


def row(guard: str, changes: dict[str, Any], **limits: Any) -> Row:
    return Row(guard, changes, limits)


# A row per guard, in evaluation order: if two guards refuse, the earlier one is reported.
ORDER = (
    row("not_hanging", {"verdict": "ongoing"}),
    row("live_owner", {"owner_epoch": 3}),
    row("unknown_reason", {"reason": "decided"}),
    row("already_resolved", {"resolved_ms": NOW_MS + MINUTE_MS}),
    row("low_threshold", {"late_after_ms": MAX_TIMEOUT_MS - 1}),
    row("too_young", {"first_seen_ms": NOW_MS}),
    row("seen_too_rarely", {"sweeps": 1}),
    row("consumer_offsets", {"topic": OFFSETS}),
    row("topic_not_listed", {}, topics=("q",)),
    row("log_unread", {"log_failure": failed("broker 2 cannot be reached")}),
    row("outcome_not_told", {"outcome": None}),
    row("mixed", {"outcome": "mixed"}),
    row("maybe_committed", {"reason": "missed_commit", "outcome": "unknown"}),
    row("too_many", {}, actions_max=0),
)
MORE = (
    *(row("not_hanging", {"verdict": v.value}) for v in Verdict if v is not Verdict.HANGING),
    row("not_hanging", {"verdict": "HANGING"}),
    row("live_owner", {"reason": "live_epoch"}),
    row("live_owner", {"reason": "live_epoch", "owner_epoch": None, "transactional_id": None}),
    row("live_owner", {"owner_epoch": 2}),
    row("live_owner", {"reason": "orphan", "owner_epoch": 3}),
    row("live_owner", {"reason": "missed_commit", "outcome": "committed", "owner_epoch": 3}),
    row("live_owner", {"owner_epoch": -1}),
    *(
        row("unknown_reason", {"reason": r.value})
        for r in Reason
        if r not in (Reason.ORPHAN, Reason.STALE_EPOCH, Reason.MISSED_COMMIT, Reason.LIVE_EPOCH)
    ),
    row("unknown_reason", {"reason": "of a later version"}),
    row("already_resolved", {"resolved_ms": NOW_MS}),
    row("low_threshold", {"max_timeout_ms": LATE_AFTER_MS + 1}),
    row("low_threshold", {"late_after_ms": 0}),
    row("too_young", {"first_seen_ms": NOW_MS - LATE_AFTER_MS}),
    row("too_young", {"first_seen_ms": NOW_MS + 1}),
    row("seen_too_rarely", {"sweeps": 0}),
    row("seen_too_rarely", {"sweeps": 2}, sweeps_min=3),
    row("seen_too_rarely", {"sweeps": 1}, sweeps_min=1),
    row("seen_too_rarely", {"sweeps": 1}, sweeps_min=-1),
    row("consumer_offsets", {"topic": OFFSETS}, topics=(OFFSETS,)),
    row("consumer_offsets", {"topic": SHARES}),
    row("consumer_offsets", {"topic": SHARES}, topics=(SHARES,)),
    row("topic_not_listed", {"topic": "pp"}, topics=("p", "q")),
    row("topic_not_listed", {"topic": "p\n"}, topics=("p",)),
    row("topic_not_listed", {"topic": OFFSETS}, topics=("p",), consumer_offsets=True),
    row("outcome_not_told", {"outcome": ""}),
    row("outcome_not_told", {"outcome": "aborted"}),
    row("outcome_not_told", {"reason": "missed_commit", "outcome": None}),
    row("mixed", {"reason": "missed_commit", "outcome": "mixed"}),
    row("maybe_committed", {"outcome": "maybe_committed", "outcome_reason": "but v1"}),
    row("log_unread", {"log_failure": failed("it moved"), "outcome": "committed"}),
    row("maybe_committed", {"reason": "missed_commit", "outcome": "unknown"}),
    row("maybe_committed", {"reason": "orphan", "outcome": "maybe_committed", "owner_epoch": None}),
    row("maybe_committed", {"reason": "missed_commit", "outcome": "maybe_committed"}),
)
ALLOWED: tuple[tuple[str, dict[str, Any], dict[str, Any], Allowed], ...] = (
    ("not committed is aborted", {}, {}, Allowed(False, None)),
    (
        "unknown is aborted when the user accepts it",
        {"outcome": "unknown"},
        {},
        Allowed(False, "--accept-unknown-outcome"),
    ),
    ("committed is completed when the user says so", {"outcome": "committed"}, {}, Allowed(True, "--complete-commits")),
    ("an orphan", {"reason": "orphan", "owner_epoch": None, "transactional_id": None}, {}, Allowed(False, None)),
    (
        "a commit that the log proves to be of this data",
        {"reason": "missed_commit", "outcome": "committed"},
        {},
        Allowed(True, "--complete-commits"),
    ),
    (
        "a commit that the log proves not to be of this data",
        {"reason": "missed_commit", "outcome": "not_committed"},
        {},
        Allowed(False, None),
    ),
    ("an owner one epoch further", {"owner_epoch": 4}, {}, Allowed(False, None)),
    ("a threshold that is the brokers' maximum", {"late_after_ms": MAX_TIMEOUT_MS}, {}, Allowed(False, None)),
    ("still there after an apply", {"resolved_ms": NOW_MS - 1}, {}, Allowed(False, None)),
    ("watched 1 ms longer", {"first_seen_ms": NOW_MS - LATE_AFTER_MS - 1}, {}, Allowed(False, None)),
    ("seen as often as asked", {"sweeps": 3}, {"sweeps_min": 3}, Allowed(False, None)),
    (
        "consumers' offsets when included",
        {"topic": OFFSETS},
        {"consumer_offsets": True},
        Allowed(False, None),
    ),
    (
        "acknowledgements of share groups when included",
        {"topic": SHARES},
        {"consumer_offsets": True},
        Allowed(False, None),
    ),
    ("a topic that the user allows", {"topic": "pq"}, {"topics": ("p", "pq")}, Allowed(False, None)),
)


def test_each_refusal_names_its_guard_and_reason(wording: SnapshotAssertion) -> None:
    reasons = {}
    with Cases() as cases:
        for row in (*ORDER, *MORE):
            changes = {name: str(value) if isinstance(value, Failure) else value for name, value in row.changes.items()}
            with cases.case(f"{row.guard}: {changes} {row.limits}") as name:
                (answer,) = guarded_together([stored(**row.changes)], Limits(**row.limits))
                assert isinstance(answer, Refused) and answer.guard == row.guard
                assert "\n" not in answer.why and "None" not in answer.why and not answer.why.endswith(".")
                reasons[name] = answer.why
    assert reasons == wording


@pytest.mark.parametrize(
    ("changes", "limits", "allowed"), [one[1:] for one in ALLOWED], ids=[one[0] for one in ALLOWED]
)
def test_an_allowed_transaction_gets_the_marker_of_its_outcome(
    changes: dict[str, Any], limits: dict[str, Any], allowed: Allowed
) -> None:
    assert guarded_together([stored(**changes)], Limits(**limits)) == [allowed]


def test_every_guard_has_a_row_in_evaluation_order() -> None:
    """Except the guard across several transactions, which precedes the limit."""
    *names, last = [row.guard for row in ORDER]
    assert [*names, "contradictory", last] == list(guard_names())


def test_the_first_of_two_refusing_guards_is_reported() -> None:
    with Cases() as cases:
        for first, second in itertools.combinations(ORDER, 2):
            with cases.case(f"{first.guard} before {second.guard}"):
                both = stored(**{**second.changes, **first.changes})
                (answer,) = guarded_together([both], Limits(**{**second.limits, **first.limits}))
                assert isinstance(answer, Refused) and answer.guard == first.guard


def test_only_allowed_transactions_count_towards_the_limit() -> None:
    refused, allowed = stored(verdict="ongoing"), stored()
    answers = guarded_together([allowed, refused, allowed, allowed, refused, allowed], Limits(actions_max=2))
    shown = [answer.guard if isinstance(answer, Refused) else "allowed" for answer in answers]
    assert shown == ["allowed", "not_hanging", "allowed", "too_many", "not_hanging", "too_many"]


def committed(**changes: Any) -> StoredTransaction:
    return stored(**{"topic": "q", "partition": 1, "outcome": "committed", **changes})


# The stored transactions, and the answer for each.
TOGETHER: tuple[tuple[str, list[StoredTransaction], list[str]], ...] = (
    ("a commit and an abort", [committed(), stored()], ["contradictory"] * 2),
    ("a commit and an abort that may be accepted", [stored(outcome="unknown"), committed()], ["contradictory"] * 2),
    (
        "two commits and an abort",
        [committed(), stored(), committed(partition=2)],
        ["contradictory"] * 3,
    ),
    (
        "and a third of another producer id",
        [committed(), stored(producer_id=8), stored()],
        ["contradictory", "allowed", "contradictory"],
    ),
    ("of two producer ids", [committed(), stored(producer_id=8)], ["allowed"] * 2),
    ("of two epochs, which have an outcome each", [committed(), stored(producer_epoch=4)], ["allowed"] * 2),
    ("two commits", [committed(), committed(partition=2)], ["allowed"] * 2),
    ("two aborts", [stored(), stored(partition=1, outcome="unknown")], ["allowed"] * 2),
    ("a commit that is refused for something else", [committed(sweeps=1), stored()], ["seen_too_rarely", "allowed"]),
    ("a commit that is committed in part", [committed(outcome="mixed"), stored()], ["mixed", "allowed"]),
)


def guards_of(answers: list[Allowed | Refused]) -> list[str]:
    return [answer.guard if isinstance(answer, Refused) else "allowed" for answer in answers]


def test_opposite_markers_of_one_producer_and_epoch_are_all_refused() -> None:
    with Cases() as cases:
        for name, many, expected in TOGETHER:
            with cases.case(name):
                assert guards_of(guarded_together(many, Limits())) == expected
                assert guards_of(guarded_together(many[::-1], Limits())) == expected[::-1]


def test_a_contradiction_names_the_other_partition(wording: SnapshotAssertion) -> None:
    one, other = guarded_together([committed(), stored()], Limits())
    assert isinstance(one, Refused) and isinstance(other, Refused)
    assert one.why.startswith("p-0, ") and other.why.startswith("q-1, ")
    assert one.why == wording


def test_a_contradiction_beyond_the_limit_is_refused_and_not_counted() -> None:
    answers = guarded_together([committed(), stored(producer_id=8), stored()], Limits(actions_max=1))
    assert guards_of(answers) == ["contradictory", "allowed", "contradictory"]


def test_the_default_limit_is_twenty() -> None:
    many = guarded_together([stored()] * 21, Limits())
    assert [isinstance(answer, Allowed) for answer in many] == [True] * 20 + [False]


def test_a_partition_is_named_as_in_kafka() -> None:
    assert stored(topic="a-b", partition=12).topic_partition == "a-b-12"


# --- random transactions ----------------------------------------------------------------------------------------------

_EPOCHS = st.integers(-1, 5)
_TIMES = st.sampled_from([0, NOW_MS - 61 * MINUTE_MS, NOW_MS - LATE_AFTER_MS, NOW_MS, NOW_MS + MINUTE_MS])
_DURATIONS = st.sampled_from([-1, 0, MAX_TIMEOUT_MS - 1, MAX_TIMEOUT_MS, LATE_AFTER_MS])
# Half of the drawn fields belong to a resolvable transaction. Otherwise nearly all would be refused.
_ODD: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from([OFFSETS, SHARES, "", "p", "q"]),
    "producer_epoch": _EPOCHS,
    "coordinator_epoch": _EPOCHS,
    "verdict": st.sampled_from([*Verdict, ""]),
    "reason": st.sampled_from([*Reason, ""]),
    "outcome": st.sampled_from([*Outcome, "", None]),
    "log_failure": st.none() | st.none() | st.just(failed("it moved")),
    "transactional_id": st.none() | st.text(),
    "owner_epoch": st.none() | _EPOCHS,
    "first_seen_ms": _TIMES,
    "swept_at_ms": _TIMES,
    "sweeps": st.integers(-1, 4),
    "late_after_ms": _DURATIONS,
    "max_timeout_ms": _DURATIONS,
}
_STORED: st.SearchStrategy[StoredTransaction] = st.fixed_dictionaries({}, optional=_ODD).map(
    lambda changes: stored(**changes)
)
_LIMITS = st.builds(
    Limits,
    topics=st.sampled_from([None, frozenset(), frozenset({"p"}), frozenset({"pq", "q"})]),
    consumer_offsets=st.booleans(),
    actions_max=st.integers(0, 3),
    sweeps_min=st.integers(-1, 3),
)


def test_every_drawn_field_is_a_stored_field() -> None:
    assert _ODD.keys() <= {field.name for field in fields(StoredTransaction)}


@settings(max_examples=500)
@given(_STORED, _LIMITS)
def test_no_allowed_marker_can_tear_data(s: StoredTransaction, limits: Limits) -> None:
    answer = guarded(s, limits)
    if isinstance(answer, Refused):
        return
    assert s.verdict == "hanging" and s.reason in ("orphan", "stale_epoch", "missed_commit")
    assert s.watched_ms > s.late_after_ms >= s.max_timeout_ms
    assert s.sweeps >= max(2, limits.sweeps_min)
    assert s.owner_epoch is None or s.owner_epoch > s.producer_epoch
    assert s.topic not in (OFFSETS, SHARES) or limits.consumer_offsets
    if answer.commit:
        assert (s.outcome, answer.needs) == ("committed", "--complete-commits")
    else:
        assert (s.outcome, answer.needs) in (("not_committed", None), ("unknown", "--accept-unknown-outcome"))
        assert s.reason != "missed_commit" or s.outcome == "not_committed"
    assert s.log_failure is None


@given(st.lists(_STORED, max_size=6), _LIMITS)
def test_transactions_are_judged_together_as_alone_except_for_the_limit(
    many: list[StoredTransaction], limits: Limits
) -> None:
    answers = guarded_together(many, limits)
    assert sum(isinstance(answer, Allowed) for answer in answers) <= limits.actions_max
    for one, answer in zip(many, answers, strict=True):
        alone = guarded(one, limits)
        assert answer == alone or (
            isinstance(alone, Allowed) and isinstance(answer, Refused) and answer.guard in ("contradictory", "too_many")
        )
    sent = [(one, answer) for one, answer in zip(many, answers, strict=True) if isinstance(answer, Allowed)]
    markers = {(one.producer_id, one.producer_epoch, answer.commit) for one, answer in sent}
    assert not any((producer_id, epoch, not commit) in markers for producer_id, epoch, commit in markers)
