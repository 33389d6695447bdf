"""Violations in the harness of `tests/prove/faults`: it must detect each of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.builders import NOW_MS, failed, judged, scan, unobserved, view
from tests.prove.faults.ledger import Accusation, fate_of, missed, overlooked
from tests.prove.faults.sweeps import At
from tests.prove.faults.world import Known, World
from txnscan.verdict.evidence import Judged

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

ORPHAN = judged()
PLANTED = Known(ORPHAN.observation.transaction_key, ("orphan",))
UNPROVEN = judged(first_failure=failed("broker 1 cannot be reached"))
UNREAD = unobserved("read", "broker 1 cannot be reached", 1, "p", 0)


@pytest.mark.parametrize(
    ("found", "changes"),
    [
        ([ORPHAN], {}),
        ([ORPHAN], {"partitions_failed": 1}),
        ([UNPROVEN], {}),
        ([], {"partitions_failed": 1, "errors": (UNREAD,)}),
    ],
)
def test_a_planted_transaction_may_be_hanging_indeterminate_or_unread(
    found: list[Judged], changes: dict[str, Any]
) -> None:
    assert missed(scan(*found, **changes), [PLANTED]) == []


@pytest.mark.parametrize(
    ("found", "changes", "wrong"),
    [
        ([], {}, "absent"),
        ([], {"partitions_failed": 1}, "absent"),
        ([judged(second_start_offset=None)], {}, "gone"),
        ([judged(second_start_offset=None)], {"partitions_failed": 1}, "gone"),
        ([judged(view("Ongoing", partitions=("p-0",)))], {"partitions_failed": 1}, "ongoing"),
        ([judged(view("Empty", epoch=4))], {}, "stale_epoch"),
    ],
)
def test_a_wrong_verdict_on_a_planted_transaction_is_a_violation(
    found: list[Judged], changes: dict[str, Any], wrong: str
) -> None:
    (violation,) = missed(scan(*found, **changes), [PLANTED])
    assert wrong in violation


def world(*, came_back: bool = False) -> World:
    traffic = SimpleNamespace(came_back=lambda *_: came_back)
    return cast(World, SimpleNamespace(ever_planted=set(), traffic=traffic))


def test_a_reported_transaction_that_disappears_was_a_false_verdict(
    wording: SnapshotAssertion,
) -> None:
    accusation = Accusation("#1", NOW_MS, ORPHAN)
    there = {("p", "t0")}
    assert fate_of(world(), accusation, there, set()) == "FALSE"
    assert fate_of(world(came_back=True), accusation, there, set()) == "FALSE", "nobody ends an orphan by coming back"
    assert fate_of(world(), accusation, there, {PLANTED.key}) == wording
    assert fate_of(world(), accusation, {("p", "t1")}, set()) == wording


def test_only_a_returning_client_explains_a_disappeared_transaction(wording: SnapshotAssertion) -> None:
    accusation = Accusation("#1", NOW_MS, judged(view("Empty", epoch=4)))
    assert fate_of(world(), accusation, {("p", "t0")}, set()) == "FALSE"
    assert fate_of(world(came_back=True), accusation, {("p", "t0")}, set()) == wording


def test_the_last_sweep_must_be_complete_and_report_permanent_transactions() -> None:
    assert overlooked(scan(ORPHAN), {PLANTED.key}) == []
    for final in (None, scan(ORPHAN, partitions_failed=1), scan(), scan(UNPROVEN)):
        assert len(overlooked(final, {PLANTED.key})) == 1


def test_a_failure_of_a_concurrent_action_is_raised_at_the_join() -> None:
    def act() -> None:
        raise ValueError("the fault failed")

    at = At("first read", act, waits=True)
    at("plan", 0, 1)
    assert not at.under_way
    at("first read", 0, 1)
    with pytest.raises(ValueError, match="the fault failed"):
        at.join()
