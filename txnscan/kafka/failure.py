"""Failures as data: why something could not be observed, and where."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class FailureCode(StrEnum):
    """The failures that the protocol has no error for. The codes of all others are the names of the protocol's errors
    (`org.apache.kafka.common.protocol.Errors`).
    """

    # Of a broker: no connection, no answer in time, refused credentials, or metadata that stays behind.
    UNREACHABLE = "UNREACHABLE"
    NO_ANSWER = "NO_ANSWER"
    NOT_AUTHENTICATED = "NOT_AUTHENTICATED"
    BROKER_BEHIND = "BROKER_BEHIND"
    # Of an answer: it makes no sense, is too large, or lacks what was asked for.
    UNUSABLE_ANSWER = "UNUSABLE_ANSWER"
    LEFT_OUT = "LEFT_OUT"
    UNKNOWN_RECORD = "UNKNOWN_RECORD"
    # Of a partition.
    NO_LEADER = "NO_LEADER"
    LEADER_MOVED = "LEADER_MOVED"
    TOPIC_RECREATED = "TOPIC_RECREATED"
    BROKERS_DISAGREE = "BROKERS_DISAGREE"
    ENDED_MEANWHILE = "ENDED_MEANWHILE"
    WRITTEN_MEANWHILE = "WRITTEN_MEANWHILE"
    ABOVE_HIGH_WATERMARK = "ABOVE_HIGH_WATERMARK"
    RECORD_GONE = "RECORD_GONE"
    # Of the transaction log: what it shows, and what earlier reads of it showed.
    LOG_CONTRADICTS = "LOG_CONTRADICTS"
    LOG_LOST_RECORDS = "LOG_LOST_RECORDS"
    # Of the rules on transactional ids.
    ACLS_CHANGED = "ACLS_CHANGED"
    ACLS_TOO_MANY = "ACLS_TOO_MANY"
    # Nobody was asked: a limit of txnscan's own, or another failure came first.
    NOT_ASKED = "NOT_ASKED"
    # Of copied files.
    FILE_UNREADABLE = "FILE_UNREADABLE"
    COPY_INCOMPLETE = "COPY_INCOMPLETE"


@dataclass(frozen=True, slots=True)
class Permission:
    """An operation on a resource; with `prefixed`, on all whose names begin with `name`, which the Cluster ignores."""

    operation: str
    resource_type: str
    name: str = "*"
    prefixed: bool = False

    def __str__(self) -> str:
        if self.resource_type == "Cluster":
            return f"{self.operation} on {self.resource_type}"
        return f"{self.operation} on {self.resource_type}{' prefix' if self.prefixed else ''} '{self.name}'"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something could not be observed. As a text it says so to any principal; `acls.explained` adds the command
    that grants one what it lacks.

    error: what failed, in words, without what to grant; empty where the missing permission says it all. code: a
    `FailureCode`, or the name of the protocol's error. lacks_api: the API that the broker does not have, where that is
    why. needs: the permission that is missing, where that is why.
    """

    error: str
    code: str
    lacks_api: str | None = None
    needs: Permission | None = None

    def __str__(self) -> str:
        if self.needs is None:
            return self.error
        lacks = f"this principal needs {self.needs}, and no DENY rule against it"
        return f"{self.error}: {lacks}" if self.error else lacks

    def within(self, what: str) -> Failure:
        """The same failure, its words preceded by `what`: the thing that it is about."""
        return replace(self, error=f"{what}: {self.error}" if self.error else what)


NO_LEADER = Failure("the partition has no leader", FailureCode.NO_LEADER)


@dataclass(frozen=True, slots=True)
class Unobserved:
    """Something that could not be observed, as data."""

    stage: str
    failure: Failure
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
