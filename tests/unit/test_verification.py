"""The transaction log against the coordinators, case by case."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import NOW_MS, observation, said, view
from txnscan.kafka.answers import State
from txnscan.kafka.topology import Key
from txnscan.txnlog.decode import tombstone
from txnscan.txnlog.facts import LoggedTransaction
from txnscan.txnlog.verification import (
    Described,
    dropped_decision,
    ended_since,
    last_records,
    orphan_contradiction,
    owner_contradiction,
)

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

P, Q = ("p", 0), ("q", 0)
O = observation()  # noqa: E741


def record(state: State, epoch: int = 3, *partitions: Key, **changes: Any) -> LoggedTransaction:
    base = LoggedTransaction(0, 0, "X", 7, epoch, state, frozenset(partitions), 0, NOW_MS, NOW_MS)
    return replace(base, **changes)


def described(now: State, epoch: int = 3, **changes: Any) -> Described:
    return replace(Described("X", 2, 7, epoch, now.value), **changes)


def test_a_view_is_converted_to_a_description(wording: SnapshotAssertion) -> None:
    assert Described.of(view("Empty", 4)) == Described("X", 2, 7, 4, "Empty")
    assert str(Described.of(view("Empty", 4))) == wording


def test_the_last_record_of_each_id_counts() -> None:
    first, other, last = record(State.EMPTY, 3), record(State.EMPTY, 1, transactional_id="Y"), record(State.EMPTY, 4)
    assert last_records([first, other, last]) == {"X": last, "Y": other}


@pytest.mark.parametrize(
    ("logged", "name"),
    [
        ([], None),
        ([record(State.EMPTY)], "X"),
        ([record(State.EMPTY, producer_id=8)], None),
        ([record(State.EMPTY), record(State.EMPTY, 0, producer_id=8)], None),
        ([record(State.EMPTY), tombstone(1, 0, "X")], None),
        ([record(State.EMPTY, producer_id=8), record(State.EMPTY, transactional_id="Y")], "Y"),
    ],
    ids=["nothing", "an id", "another producer id", "it has a later one", "it expired", "the second of two ids"],
)
def test_an_id_with_the_same_last_producer_id_contradicts_an_orphan(
    logged: list[LoggedTransaction], name: str | None, wording: SnapshotAssertion
) -> None:
    why = orphan_contradiction(O, logged)
    assert said(why) == wording


@pytest.mark.parametrize("state", [State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT])
def test_a_logged_transaction_on_the_partition_makes_its_id_the_owner(state: State, wording: SnapshotAssertion) -> None:
    why = owner_contradiction(O, described(state), [record(state, 3, P)])
    assert said(why) == wording
    assert owner_contradiction(O, described(state), [record(state, 3, Q)]) is None
    other = described(state, producer_id=8)
    assert owner_contradiction(O, other, [record(state, 3, P, producer_id=8)]) is None


@pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_an_id_at_rest_is_no_owner(state: State) -> None:
    assert owner_contradiction(O, described(state), [record(state, 3, P)]) is None


@pytest.mark.parametrize(
    "differs",
    [
        {"state": "Ongoing"},
        {"producer_epoch": 4},
        {"producer_id": 8},
    ],
    ids=lambda differs: next(iter(differs)),
)
def test_a_coordinator_that_differs_from_its_log_is_contradicted(
    differs: dict[str, Any], wording: SnapshotAssertion
) -> None:
    said = described(State.EMPTY, **differs)
    assert str(owner_contradiction(O, said, [record(State.EMPTY)])) == wording


def test_records_written_since_may_match_the_description() -> None:
    logged, later = [record(State.EMPTY)], [record(State.ONGOING, 3, Q), record(State.PREPARE_COMMIT, 4, Q)]
    for state, epoch in ((State.EMPTY, 3), (State.ONGOING, 3), (State.PREPARE_COMMIT, 4)):
        assert owner_contradiction(O, described(state, epoch), logged, later) is None
    assert owner_contradiction(O, described(State.COMPLETE_COMMIT, 4), logged, later) is not None


def test_records_of_another_id_written_since_do_not_match() -> None:
    logged, later = [record(State.EMPTY)], [record(State.ONGOING, 3, Q, transactional_id="Y")]
    assert owner_contradiction(O, described(State.ONGOING), logged, later) is not None
    assert (
        owner_contradiction(O, described(State.EMPTY), logged, [record(State.ONGOING, 3, P, transactional_id="Y")])
        is None
    )


def test_the_last_record_written_since_decides_about_the_partition() -> None:
    logged, taken = [record(State.EMPTY)], record(State.ONGOING, 3, P)
    ended = record(State.COMPLETE_ABORT, 3)
    assert owner_contradiction(O, described(State.EMPTY), logged, [taken]) is not None
    assert owner_contradiction(O, described(State.COMPLETE_ABORT), logged, [taken, ended]) is None


def test_an_id_without_records_is_contradicted(wording: SnapshotAssertion) -> None:
    said = described(State.EMPTY)
    assert str(owner_contradiction(O, said, [record(State.EMPTY, transactional_id="Y")])) == wording


AT_REST = record(State.COMPLETE_ABORT, 3)


@pytest.mark.parametrize("state", [State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT])
def test_an_owner_that_had_the_partition_since_may_have_ended_the_transaction(state: State) -> None:
    said = described(State.COMPLETE_ABORT)
    since = [AT_REST, record(state, 3, P), record(State.COMPLETE_ABORT, 4)]
    assert str(ended_since(O, said, since)) == f"it has 'X' {state} with this partition later, and {said}"
    # Before its description, or of another id, it is the hanging transaction.
    assert ended_since(O, said, [record(state, 3, P), AT_REST]) is None
    assert ended_since(O, said, [AT_REST, record(state, 3, P, transactional_id="Y")]) is None


def test_an_owner_at_rest_or_on_other_partitions_has_ended_nothing_on_this_one() -> None:
    said = described(State.COMPLETE_ABORT)
    assert ended_since(O, said, [record(State.ONGOING, 3, P), AT_REST]) is None
    assert ended_since(O, said, [AT_REST, record(State.ONGOING, 3, P), AT_REST]) is None
    assert ended_since(O, said, [AT_REST, record(State.ONGOING, 3, Q), record(State.COMPLETE_COMMIT, 3)]) is None


def test_a_description_without_its_record_is_undecided(
    wording: SnapshotAssertion,
) -> None:
    said = described(State.COMPLETE_ABORT)
    why = ended_since(O, said, [record(State.EMPTY, 4)])
    assert str(why) == wording
    assert ended_since(O, said, [replace(AT_REST, transactional_id="Y")]) is not None


# --- an abandoned decision --------------------------------------------------------------------------------------------

ONGOING_P = record(State.ONGOING, 3, P, offset=5, contiguous_from=0)
ABORTING_P = record(State.PREPARE_ABORT, 3, P, offset=6, contiguous_from=0)
COMMITTING_P = record(State.PREPARE_COMMIT, 3, P, offset=6, contiguous_from=0)


def after(state: State, epoch: int = 3, offset: int = 7, **changes: Any) -> LoggedTransaction:
    return record(state, epoch, offset=offset, **{"contiguous_from": 0, **changes})


@pytest.mark.parametrize(
    ("logged", "is_dropped", "why"),
    [
        ([ONGOING_P, ABORTING_P, after(State.EMPTY, 0, producer_id=8)], True, "the id was taken for a new one"),
        ([ONGOING_P, COMMITTING_P, after(State.EMPTY, 0, producer_id=8)], True, "the same of a commit"),
        ([ABORTING_P, after(State.EMPTY, 0, producer_id=8)], True, "what came before the decision is gone"),
        ([ONGOING_P, ABORTING_P, after(State.EMPTY, 2)], True, "it goes on from an earlier state"),
        ([ONGOING_P, ABORTING_P, tombstone(7, 0, "X")], True, "it expired without an end"),
        ([ONGOING_P, ABORTING_P], False, "it is the last record"),
        ([ONGOING_P, ABORTING_P, after(State.COMPLETE_ABORT)], False, "it is complete"),
        ([ONGOING_P, ABORTING_P, after(State.COMPLETE_ABORT, 0, producer_id=8)], False, "it used up a producer id"),
        ([ONGOING_P, ABORTING_P, after(State.COMPLETE_ABORT, start_time_ms=1)], True, "another one is complete"),
        ([ONGOING_P, ABORTING_P, after(State.COMPLETE_COMMIT)], True, "the opposite is complete"),
        ([ONGOING_P, ABORTING_P, ABORTING_P, after(State.COMPLETE_ABORT)], False, "it was written twice"),
        ([ONGOING_P, COMMITTING_P, ABORTING_P, after(State.COMPLETE_ABORT)], False, "the first of two timed out"),
        ([ONGOING_P, COMMITTING_P, ABORTING_P, after(State.EMPTY, 2)], True, "neither of two is complete"),
        ([ONGOING_P, ABORTING_P, after(State.ONGOING, partitions=frozenset({P, Q}))], False, "it timed out"),
        (
            [ONGOING_P, ABORTING_P, after(State.EMPTY, 0, producer_id=8, contiguous_from=7)],
            False,
            "offsets are missing",
        ),
        ([ONGOING_P, ABORTING_P, after(State.EMPTY, 0, producer_id=8, contiguous_from=6)], True, "none behind it is"),
        ([ONGOING_P, ABORTING_P, after(State.EMPTY, 0, producer_id=8, transactional_id="Y")], False, "another id's"),
        ([ONGOING_P, replace(ABORTING_P, partitions=frozenset({Q})), after(State.EMPTY, 2)], False, "elsewhere"),
        ([replace(ABORTING_P, producer_id=8), after(State.EMPTY, 2)], False, "it is of another producer id"),
        (
            [replace(ABORTING_P, partitions=frozenset({Q})), ABORTING_P, after(State.EMPTY, 2)],
            True,
            "the second of two",
        ),
        (
            [
                *(ONGOING_P, ABORTING_P, after(State.COMPLETE_ABORT)),
                *(replace(one, offset=one.offset + 5) for one in (ONGOING_P, ABORTING_P)),
                after(State.EMPTY, 2, offset=12),
            ],
            True,
            "the transaction after one that is complete",
        ),
        (
            [
                replace(ONGOING_P, transactional_id="Y", producer_id=8),
                *(ONGOING_P, ABORTING_P, after(State.EMPTY, 2)),
            ],
            True,
            "the second of two ids",
        ),
    ],
)
def test_an_abandoned_decision_may_still_get_its_markers(
    logged: list[LoggedTransaction], is_dropped: bool, why: str
) -> None:
    assert (dropped_decision(O, logged) is not None) == is_dropped, why
