"""The specification of events: which hanging transactions belong together, and which id their event has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import MINUTE_MS, NOW_MS
from txnscan.waiting.cause import Cause
from txnscan.waiting.event import Member, event_ids

HOUR_MS = 60 * MINUTE_MS
A = Member("a", NOW_MS, NOW_MS, 7, None, Cause.UNKNOWN)
B = replace(A, incident_id="b", first_seen_ms=NOW_MS + 1, producer_id=8)
C = replace(B, incident_id="c", first_seen_ms=NOW_MS + 2, producer_id=9)


@dataclass(frozen=True)
class Case:
    why: str
    members: tuple[Member, ...]
    expected: str


def of(cause: Cause, *members: Member) -> tuple[Member, ...]:
    return tuple(replace(one, cause=cause) for one in members)


def later(member: Member, by_ms: int) -> Member:
    return replace(member, last_timestamp_ms=member.last_timestamp_ms + by_ms)


CASES = (
    Case("nothing in common", (A, B), "a b"),
    Case("the same producer id", (A, replace(B, producer_id=7)), "a a"),
    Case("the same owner", (replace(A, owner_id="sink"), replace(B, owner_id="sink")), "a a"),
    Case("other owners", (replace(A, owner_id="sink"), replace(B, owner_id="source")), "a b"),
    Case("the same cause", of(Cause.MARKER_MISSING, A, B), "a a"),
    Case("other causes", (*of(Cause.MARKER_MISSING, A), *of(Cause.FENCED, B)), "a b"),
    Case("an owner with the name of a cause", (replace(A, owner_id=Cause.FENCED.value), *of(Cause.FENCED, B)), "a b"),
    Case(
        "an owner whose name is event, further apart",
        (replace(A, owner_id="event"), later(replace(B, owner_id="event"), HOUR_MS + 1)),
        "a b",
    ),
    Case("no known cause", of(Cause.UNKNOWN, A, B), "a b"),
    Case("at most an hour apart", (A, later(replace(B, producer_id=7), HOUR_MS)), "a a"),
    Case("further apart", (A, later(replace(B, producer_id=7), HOUR_MS + 1)), "a b"),
    Case(
        "linked by others between them",
        of(Cause.FENCED, A, later(B, 2 * HOUR_MS), later(C, HOUR_MS)),
        "a a a",
    ),
    Case("linked in two ways", (A, replace(B, producer_id=7, owner_id="sink"), replace(C, owner_id="sink")), "a a a"),
    Case("the earliest incident gives the id", (replace(A, producer_id=8, first_seen_ms=NOW_MS + 9), B), "b b"),
    Case("of two that were seen at once the lower id", (replace(B, producer_id=7, first_seen_ms=NOW_MS), A), "a a"),
    Case("a stored event goes on without what linked it", (replace(A, event_id="x"), replace(B, event_id="x")), "x x"),
    Case(
        "a stored event goes on, however far apart",
        (replace(A, event_id="x"), later(replace(B, event_id="x"), HOUR_MS + 1)),
        "x x",
    ),
    Case("a stored event goes on without its earliest incident", (replace(B, event_id="a"),), "a"),
    Case("a new incident joins a stored event", (replace(A, event_id="x"), replace(B, producer_id=7)), "x x"),
    Case(
        "two events that turn out to be one have the id of the older",
        (replace(A, event_id="x"), replace(B, event_id="y", producer_id=7), replace(C, event_id="y")),
        "x x x",
    ),
    Case(
        "the same, with an incident of the younger event that is further apart",
        (
            replace(A, event_id="x"),
            replace(B, event_id="y", producer_id=7),
            later(replace(C, event_id="y"), HOUR_MS + 1),
        ),
        "x x x",
    ),
    Case("two events without a link stay two", (replace(A, event_id="x"), replace(B, event_id="y")), "x y"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_each_incident_has_the_event_of_the_specification(case: Case) -> None:
    found = event_ids(case.members)
    assert [found[one] for one in sorted(found)] == case.expected.split()


def test_no_incident_has_no_event() -> None:
    assert event_ids(()) == {}


MEMBERS = st.lists(
    st.builds(
        Member,
        incident_id=st.integers(0, 9).map(str),
        first_seen_ms=st.integers(0, 3),
        last_timestamp_ms=st.integers(0, 6).map(lambda n: n * HOUR_MS // 2),
        producer_id=st.integers(0, 9),
        owner_id=st.sampled_from([None, "x", "y"]),
        cause=st.sampled_from(Cause),
    ),
    unique_by=lambda one: one.incident_id,
)


def stored(members: Iterable[Member]) -> list[Member]:
    """The same members after a sweep that stored their events."""
    members = list(members)
    found = event_ids(members)
    return [replace(one, event_id=found[one.incident_id]) for one in members]


@given(MEMBERS.flatmap(lambda members: st.tuples(st.just(members), st.permutations(members))))
def test_the_order_of_incidents_does_not_matter(members: tuple[list[Member], list[Member]]) -> None:
    one, other = members
    assert event_ids(one) == event_ids(other)


@given(MEMBERS, MEMBERS)
def test_events_never_split(before: list[Member], changed: list[Member]) -> None:
    """A later sweep may change any facts of the incidents, and any of them may be over."""
    by_id = {one.incident_id: one for one in changed}
    first = stored(before)
    then = [
        replace(by_id.get(one.incident_id, one), event_id=one.event_id, first_seen_ms=one.first_seen_ms)
        for one in first
        if one.incident_id not in by_id or one.incident_id < "5"
    ]
    after = event_ids(then)
    for one in then:
        for other in then:
            if one.event_id == other.event_id:
                assert after[one.incident_id] == after[other.incident_id]


@given(MEMBERS)
def test_what_is_stored_is_found_again(members: list[Member]) -> None:
    once = stored(members)
    assert stored(once) == once
