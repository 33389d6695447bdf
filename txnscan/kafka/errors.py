"""The error codes of the Kafka protocol that rules depend on, and the exception of a failed request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any

from kafka.errors import kafka_errors

from txnscan.kafka.failure import Failure, FailureCode

# The Kafka version that introduced each API that brokers in use may lack.
API_SINCE: Mapping[str, str] = MappingProxyType(
    {"DescribeProducers": "2.8", "ListTransactions": "3.0", "DescribeTransactions": "3.0"}
)


class ErrorCode(IntEnum):
    """Names and numbers of `org.apache.kafka.common.protocol.Errors`, only those that rules depend on."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    ILLEGAL_SASL_STATE = 34
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    KAFKA_STORAGE_ERROR = 56
    LISTENER_NOT_FOUND = 72
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    OFFSET_NOT_AVAILABLE = 78
    UNSTABLE_OFFSET_COMMIT = 88
    TRANSACTIONAL_ID_NOT_FOUND = 105
    INVALID_REGULAR_EXPRESSION = 128


def error_name(code: int) -> str:
    """The protocol's name for an error code. An unlisted code keeps its number, and never counts as success."""
    if code in ErrorCode._value2member_map_:
        return ErrorCode(code).name
    message = getattr(kafka_errors.get(code), "message", None)
    return str(message) if message else f"UNKNOWN_ERROR_CODE_{code}"


class RequestFailed(Exception):
    """A request without a usable answer.

    failure: the reason, without secrets. A text becomes a Failure with the given code. sent: whether the request may
    have reached the broker. This decides whether a request that changes data can be repeated.
    """

    def __init__(self, failure: Failure | str, code: str = FailureCode.UNUSABLE_ANSWER, *, sent: bool = True) -> None:
        super().__init__(failure, sent)
        self.failure = failure if isinstance(failure, Failure) else Failure(failure, code)
        self.sent = sent

    def __str__(self) -> str:
        return self.failure.error

    def __reduce__(self) -> tuple[object, ...]:
        return (_request_failed, (self.failure, self.sent))

    @property
    def error(self) -> str:
        """The failure in words."""
        return self.failure.error

    @classmethod
    def unsupported(cls, where: str, api: str) -> RequestFailed:
        """A broker lacks an API. where: the broker, in words."""
        since = API_SINCE.get(api)
        lacks = f"lacks an API of Kafka {since} and newer: it " if since is not None else ""
        return cls(Failure(f"{where} {lacks}does not support {api}", "UNSUPPORTED_VERSION", api), sent=False)

    @classmethod
    def answered(cls, where: str, api: str, error_code: int) -> RequestFailed:
        """A broker answered an API with an error of the protocol. where: the broker, in words."""
        code = error_name(error_code)
        return cls(Failure(f"{where} answered {api} with {code}", code))


# Failures of a single partition in an answer.
LEFT_OUT = Failure("the broker left this partition out of its answer", FailureCode.LEFT_OUT)
ANSWERED_TWICE = Failure("the broker's answer holds a partition twice", FailureCode.UNUSABLE_ANSWER)


def answered(error_code: int) -> Failure:
    """The failure of an answer with this error code. Its words are the protocol's name of the error."""
    return Failure(error_name(error_code), error_name(error_code))


def present(items: Iterable[Any] | None) -> Iterable[Any]:
    """A list in an answer. Raises RequestFailed for null, because null is not an empty list and proves no absence.
    kafka-python reads null from a damaged frame. No broker sends null for a list.
    """
    if items is None:
        raise RequestFailed("an answer holds null in place of a list")
    return items


def _request_failed(failure: Failure, sent: bool) -> RequestFailed:
    return RequestFailed(failure, sent=sent)
