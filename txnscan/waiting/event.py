"""Which hanging transactions are one event, such as the absence of one broker. Pure.

Two hanging transactions are linked if

- they have the same producer id, the same owner, or the same known cause, and
- their last records are at most an hour apart, by the records' timestamps.

An event is all that is linked, directly or through others. Its id is that of its earliest incident. A link is never
undone: incidents that an earlier sweep counted to one event stay together, and if two events turn out to be one, the
older id remains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from txnscan.waiting.cause import Cause

# Producers of one outage stop within this time, and the next outage is rarely so near.
APART_MS_MAX = 60 * 60 * 1_000


@dataclass(frozen=True, slots=True)
class Member:
    """A hanging transaction. event_id: by an earlier sweep, None before the first one."""

    incident_id: str
    first_seen_ms: int
    last_timestamp_ms: int
    producer_id: int
    owner_id: str | None
    cause: Cause
    event_id: str | None = None

    @property
    def shared(self) -> Iterator[tuple[str, Hashable]]:
        """What members of an event have in common."""
        yield "producer", self.producer_id
        if self.owner_id is not None:
            yield "owner", self.owner_id
        if self.cause is not Cause.UNKNOWN:
            yield "cause", self.cause


def event_ids(members: Iterable[Member]) -> Mapping[str, str]:
    """The id of the event of each incident."""
    earliest_first = sorted(members, key=lambda one: (one.first_seen_ms, one.incident_id))
    found: dict[str, str] = {}
    for linked in _linked(earliest_first):
        first = earliest_first[min(linked)]
        found |= {earliest_first[at].incident_id: first.event_id or first.incident_id for at in linked}
    return found


def _linked(members: Sequence[Member]) -> Iterable[Sequence[int]]:
    """The positions of the members of each event."""
    above = list(range(len(members)))

    def top(at: int) -> int:
        while above[at] != at:
            above[at] = above[above[at]]
            at = above[at]
        return at

    for one, other in _links(members):
        above[top(one)] = top(other)
    events: dict[int, list[int]] = defaultdict(list)
    for at in range(len(members)):
        events[top(at)].append(at)
    return events.values()


def _links(members: Sequence[Member]) -> Iterator[tuple[int, int]]:
    alike: dict[tuple[str, Hashable], list[int]] = defaultdict(list)
    for at, member in enumerate(members):
        if member.event_id is not None:
            alike["event", member.event_id].append(at)
        for what in member.shared:
            alike[what].append(at)
    for what, ats in alike.items():
        in_time = sorted(ats, key=lambda at: members[at].last_timestamp_ms)
        for one, other in pairwise(in_time):
            apart_ms = members[other].last_timestamp_ms - members[one].last_timestamp_ms
            if apart_ms <= APART_MS_MAX or what[0] == "event":
                yield one, other
