"""What a sweep needs of the machine that runs it: the only list. Spark starts, tables are opened and `check` looks by
the functions of this list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from txnscan.engine.spark.errors import require_pyspark
from txnscan.engine.spark.java import delta_jars, find_java, is_fetched, major_version
from txnscan.errors import TxnscanError


class Part(StrEnum):
    """A part of a sweep that needs something of the machine. SESSION: a session of Spark, with executors, or for tables
    that only Spark opens. JVM: the start of that session here: not in a notebook with a session, under spark-submit,
    and with Spark Connect.
    """

    SESSION = "session"
    JVM = "jvm"


@dataclass(frozen=True, slots=True)
class Need:
    """A need. what: for docs. look: says in words that it is there. Raises TxnscanError, with the remedy, if not."""

    part: Part
    what: str
    look: Callable[[], str]


def _pyspark() -> str:
    require_pyspark()
    return "PySpark is installed"


def _java() -> str:
    executable = find_java()
    return f"{executable} is Java {major_version(str(executable))}"


def _delta() -> str:
    there = is_fetched(delta_jars())
    return "Delta's jars are here" if there else "Delta's jars are downloaded at the first sweep"


NEEDS = (
    Need(Part.SESSION, "PySpark 4.0 or later (`txnscan[spark]`)", _pyspark),
    Need(Part.JVM, "Java 17 or later, in JAVA_HOME or on PATH", _java),
    Need(Part.JVM, "Delta's jars for this Spark: downloaded once, from the Maven repositories that Ivy knows", _delta),
)


def lacking(parts: frozenset[Part]) -> Iterator[str | TxnscanError]:
    """What is there for these parts, in words, and what is not, each as an error with the remedy."""
    for need in NEEDS:
        if need.part in parts:
            try:
                yield need.look()
            except TxnscanError as error:
                yield error
