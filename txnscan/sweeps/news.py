"""Incidents that open and close."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from txnscan.reads.observation import TransactionKey


class Kind(StrEnum):
    """Whether an incident opened or closed."""

    OPENED = "opened"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Details:
    """The findings of the last sweep that saw the transaction hanging. Not known for incidents from before this
    process.

    groups_blocked, groups_error, cause, owner: see Impact; None if the sweep did not look for them.
    """

    producer_epoch: int
    reason: str
    transactional_id: str | None
    outcome: str | None
    blocked_records: int | None
    explanation: str
    groups_blocked: int | None = None
    groups_error: str | None = None
    cause: str | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class News:
    """An incident that opened or closed. incident_id: as in the tables. how: if it closed: "ended", "topic_recreated"
    or "topic_deleted". at_ms: when the sweep that saw it finished.
    """

    kind: Kind
    cluster: str
    cluster_id: str
    incident_id: str
    where: TransactionKey
    first_seen_ms: int
    at_ms: int
    details: Details | None = None
    how: str | None = None
