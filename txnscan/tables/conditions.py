"""Conditions on rows of a table, and their SQL in the dialect of each store. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True)
class Is:
    """A column that has this value. The value None stands for null."""

    column: str
    value: str | int | bool | None


@dataclass(frozen=True, slots=True)
class IsNot:
    """A column that has another value than this. With the value None, a column that is not null."""

    column: str
    value: str | int | bool | None


@dataclass(frozen=True, slots=True)
class StartsWith:
    """A column whose text begins with this."""

    column: str
    value: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """A column that has one of these values."""

    column: str
    values: frozenset[str] | frozenset[int]


@dataclass(frozen=True, slots=True)
class NoneOf:
    """A column whose value is not among these."""

    column: str
    values: frozenset[str]


@dataclass(frozen=True, slots=True)
class Before:
    """A date before this date."""

    column: str
    value: date


@dataclass(frozen=True, slots=True)
class NotBefore:
    """A date that is not before this date."""

    column: str
    value: date


Condition = Is | IsNot | StartsWith | OneOf | NoneOf | Before | NotBefore


@dataclass(frozen=True, slots=True)
class Dialect:
    """The SQL of a store. named: quotes the name of a column. text: writes a text as a literal. starts_with: the name
    of that function.
    """

    named: Callable[[str], str]
    text: Callable[[str], str]
    starts_with: str

    def all_of(self, conditions: Iterable[Condition]) -> str:
        """The conditions joined by AND; TRUE without any."""
        return " AND ".join(map(self.sql, conditions)) or "TRUE"

    def sql(self, condition: Condition) -> str:
        """One condition."""
        column = self.named(condition.column)
        match condition:
            case Is(_, None):
                return f"{column} IS NULL"
            case Is(_, value):
                return f"{column} = {self._literal(value)}"
            case IsNot(_, None):
                return f"{column} IS NOT NULL"
            case IsNot(_, value):
                return f"{column} <> {self._literal(value)}"
            case StartsWith(_, value):
                return f"{self.starts_with}({column}, {self._literal(value)})"
            case OneOf(_, values):
                return f"{column} IN ({self._among(values)})" if values else "FALSE"
            case NoneOf(_, values):
                return f"{column} NOT IN ({self._among(values)})" if values else "TRUE"
            case Before(_, value):
                return f"{column} < DATE '{value.isoformat()}'"
            case NotBefore(_, value):
                return f"{column} >= DATE '{value.isoformat()}'"

    def _among(self, values: frozenset[str] | frozenset[int]) -> str:
        among: list[str | int] = sorted(values)
        return ", ".join(map(self._literal, among))

    def _literal(self, value: str | int | bool | None) -> str:
        return self.text(value) if isinstance(value, str) else str(value).upper()


def spark_text(text: str) -> str:
    """A literal of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _standard_text(text: str) -> str:
    """A literal of DataFusion, which knows no escapes but the doubled quote."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


SPARK = Dialect(lambda column: f"`{column}`", spark_text, "startswith")
DATAFUSION = Dialect(lambda column: f'"{column}"', _standard_text, "starts_with")
