"""Failures as data: what could not be observed, why, and where."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from txnscan.kafka.topology import NO_LEADER_ID, NO_LISTENER_ID


class FailureCode(StrEnum):
    """The failures for which the protocol has no error. The codes of all other failures are the names of the protocol's
    errors (`org.apache.kafka.common.protocol.Errors`).
    """

    meaning: str

    def __new__(cls, name: str, meaning: str) -> FailureCode:
        """A code with its meaning, as docs/tables.md shows it."""
        code = str.__new__(cls, name)
        code._value_ = name
        code.meaning = meaning
        return code

    UNREACHABLE = "UNREACHABLE", "There is no connection to the broker"
    NO_ANSWER = "NO_ANSWER", "The broker does not answer in time, or throttles the client for too long"
    NOT_AUTHENTICATED = "NOT_AUTHENTICATED", "The broker refuses the credentials, or there is no token"
    BROKER_BEHIND = "BROKER_BEHIND", "The broker's metadata remains older than that of other brokers, or went back"
    UNUSABLE_ANSWER = "UNUSABLE_ANSWER", "The answer is invalid, or exceeds a limit"
    DAMAGED_BATCH = "DAMAGED_BATCH", "The leader returns a record batch that cannot be decoded"
    LEFT_OUT = "LEFT_OUT", "The answer lacks a requested item"
    UNKNOWN_RECORD = "UNKNOWN_RECORD", "A record of the transaction log cannot be decoded"
    NO_LEADER = "NO_LEADER", "The partition has no leader"
    NO_LISTENER = "NO_LISTENER", "The leader lacks the listener that txnscan connects to"
    LEADER_MOVED = "LEADER_MOVED", "The partition got another leader while it was read"
    TOPIC_RECREATED = "TOPIC_RECREATED", "The topic was deleted and created again"
    BROKERS_DISAGREE = "BROKERS_DISAGREE", "Brokers differ about a leader, a coordinator or a topic"
    ENDED_MEANWHILE = "ENDED_MEANWHILE", "The transaction ended while the partition was read"
    START_MOVED = "START_MOVED", "The start offset of the transaction changed, and no marker shows that it ended"
    WRITTEN_MEANWHILE = "WRITTEN_MEANWHILE", "The transaction was written to between the two reads"
    ABOVE_HIGH_WATERMARK = "ABOVE_HIGH_WATERMARK", "The transaction starts at or above the high watermark"
    RECORD_GONE = "RECORD_GONE", "The first record of the transaction is no longer in the log"
    LOG_CONTRADICTS = "LOG_CONTRADICTS", "The transaction log contradicts the coordinators"
    LOG_LOST_RECORDS = "LOG_LOST_RECORDS", "The transaction log lacks records that an earlier sweep read"
    ACLS_CHANGED = "ACLS_CHANGED", "The ACLs on transactional ids changed during the sweep"
    ACLS_TOO_MANY = "ACLS_TOO_MANY", "The ACLs on transactional ids have too many rules to check"
    TIME_IS_UP = "TIME_IS_UP", "The time limit of the sweep, or of this broker in the sweep, is over"
    NOT_ASKED = "NOT_ASKED", "No request was sent, because of a limit of txnscan or an earlier failure"
    FILE_UNREADABLE = "FILE_UNREADABLE", "A file cannot be read"
    FILE_UNUSABLE = "FILE_UNUSABLE", "A file is damaged, exceeds a limit, or has an unknown version"
    COPY_INCOMPLETE = "COPY_INCOMPLETE", "The copied files may be incomplete, or from different times"


@dataclass(frozen=True, slots=True)
class Permission:
    """An operation on a resource. prefixed: on all resources whose names begin with `name`. Cluster has no name."""

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
    """Why an observation failed. Its text suits any principal; `acls.explained` adds the command that grants the
    missing permission.

    error: the failure in words, without the permission to grant; empty if the missing permission explains everything.
    code: a `FailureCode`, or the name of the protocol's error. lacks_api: the API that the broker lacks, if that is the
    reason. needs: the missing permission, if that is the reason.
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
        """The same failure, with `what` before its words: the subject of the failure."""
        return replace(self, error=f"{what}: {self.error}" if self.error else what)


def no_leader(leader: int, partition: str = "the partition") -> Failure:
    """Why there is no leader to ask, by what stands in its place (`topology.py`)."""
    if leader == NO_LISTENER_ID:
        lacks = "has a leader, but that broker lacks the listener that txnscan connects to"
        remedy = "give each broker this listener, or connect to one that each of them has"
        return Failure(f"{partition} {lacks}; {remedy}", FailureCode.NO_LISTENER)
    return Failure(f"{partition} has no leader", FailureCode.NO_LEADER)


NO_LEADER = no_leader(NO_LEADER_ID)


@dataclass(frozen=True, slots=True)
class Unobserved:
    """A failed observation, with its stage and place."""

    stage: str
    failure: Failure
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
