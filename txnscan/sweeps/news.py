"""Incidents that open and close, and the events that they belong to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from txnscan.reads.observation import TransactionKey
from txnscan.sweeps.column import named
from txnscan.sweeps.row import SHOWN_COLUMNS
from txnscan.verdict.evidence import Reason

Row = Mapping[str, Any]


class Change(StrEnum):
    """The change of an incident or an event. UPDATED: an event has more or fewer open incidents, or has taken over
    incidents of another event.
    """

    OPENED = "opened"
    UPDATED = "updated"
    CLOSED = "closed"


# Of the row of a transaction, what news of its incident has.
NEWS_COLUMNS = named(
    SHOWN_COLUMNS,
    *("producer_epoch", "reason", "transactional_id", "outcome", "blocked_records", "explanation"),
    *("groups_blocked", "groups_error", "cause", "owner_id"),
)


@dataclass(frozen=True, slots=True)
class News:
    """An incident that opened or closed. incident_id: as in the tables. row: `NEWS_COLUMNS` of the last sweep that saw
    the transaction; empty for incidents from before this process. how: if it closed: "ended", "completed" or "torn"
    (committed data, by its marker), "topic_recreated" or "topic_deleted". at_ms: when the sweep that saw it finished.
    """

    kind: Change
    cluster: str
    cluster_id: str
    incident_id: str
    where: TransactionKey
    first_seen_ms: int
    at_ms: int
    row: Row
    how: str | None

    @property
    def in_danger(self) -> bool:
        """Whether it is a live transaction that endangers a commit."""
        return self.row.get("reason") == Reason.JOINED_COMMIT


@dataclass(frozen=True, slots=True)
class Announced:
    """An open incident of which notifications were sent. event_id: the event that they named."""

    event_id: str
    first_seen_ms: int


@dataclass(frozen=True, slots=True)
class EventNews:
    """An event (`waiting/event.py`) that opened, changed or closed in a sweep.

    open_incidents: the number of its incidents that are open after the sweep. opened, closed: the incidents that opened
    and closed in it. merged_into: the event that it turned out to be a part of.
    """

    kind: Change
    cluster: str
    cluster_id: str
    event_id: str
    first_seen_ms: int
    at_ms: int
    open_incidents: int
    opened: tuple[News, ...] = ()
    closed: tuple[News, ...] = ()
    merged_into: str | None = None


def events_of(
    cluster: str,
    cluster_id: str,
    at_ms: int,
    news: Sequence[News],
    before: Mapping[str, Announced],
    after: Mapping[str, Announced],
) -> tuple[EventNews, ...]:
    """The events that a sweep changed, the earliest first.

    news: of incidents. before, after: the open incidents of which notifications were sent, by incident id, before the
    sweep and with it.
    """
    known = {**before, **after}
    had, has = _by_event(before), _by_event(after)
    opened, closed = _of_events(news, Change.OPENED, after), _of_events(news, Change.CLOSED, before)
    found = []
    earliest_first = sorted((*before.values(), *after.values()), key=lambda one: one.first_seen_ms)
    for event_id in dict.fromkeys(one.event_id for one in earliest_first):
        old, now = had[event_id], has[event_id]
        if old == now and not opened[event_id]:
            continue
        # A new process repeats all notifications once.
        goes_on = old - {one.incident_id for one in opened[event_id]}
        # An event never splits: all of it went to one other event.
        elsewhere = {after[which].event_id for which in old - now if which in after}
        found.append(
            EventNews(
                kind=Change.CLOSED if not now else Change.UPDATED if goes_on else Change.OPENED,
                cluster=cluster,
                cluster_id=cluster_id,
                event_id=event_id,
                first_seen_ms=min(known[which].first_seen_ms for which in old | now),
                at_ms=at_ms,
                open_incidents=len(now),
                opened=tuple(opened[event_id]),
                closed=tuple(closed[event_id]),
                merged_into=min(elsewhere, default=None),
            )
        )
    return tuple(found)


def _by_event(announced: Mapping[str, Announced]) -> Mapping[str, set[str]]:
    """The incidents of each event."""
    found: dict[str, set[str]] = defaultdict(set)
    for which, one in announced.items():
        found[one.event_id].add(which)
    return found


def _of_events(news: Sequence[News], kind: Change, announced: Mapping[str, Announced]) -> Mapping[str, list[News]]:
    """The news of this kind about the announced incidents of each event."""
    found: dict[str, list[News]] = defaultdict(list)
    for one in news:
        if one.kind is kind and one.incident_id in announced:
            found[announced[one.incident_id].event_id].append(one)
    return found
