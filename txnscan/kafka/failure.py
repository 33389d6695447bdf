"""Failures as data: why something could not be observed, and where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace


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
    """Why something could not be observed. `acls.explained` puts it into words, with what to grant to a principal.

    error: what failed, in words, without what to grant; empty where the missing permission says it all. code: the name
    of the protocol's error, None where it is none. lacks_api: the API that the broker does not have, where that is why.
    needs: the permission that is missing, where that is why.
    """

    error: str
    code: str | None = None
    lacks_api: str | None = None
    needs: Permission | None = None

    def within(self, what: str) -> Failure:
        """The same failure, its words preceded by `what`: the thing that it is about."""
        return replace(self, error=f"{what}: {self.error}")


# Puts a failure into words, with what to grant to the principal that asked.
FormatFailure = Callable[[Failure], str]


@dataclass(frozen=True, slots=True)
class Unobserved:
    """Something that could not be observed, as data."""

    stage: str
    failure: Failure
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None

    def in_words(self, format_failure: FormatFailure) -> ScanError:
        """The same in words."""
        lacks_api = self.failure.lacks_api
        return ScanError(self.stage, format_failure(self.failure), self.broker, self.topic, self.partition, lacks_api)


@dataclass(frozen=True, slots=True)
class ScanError:
    """Something that could not be observed, in words, as it is stored and printed. lacks_api: see Failure."""

    stage: str
    error: str
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    lacks_api: str | None = None
