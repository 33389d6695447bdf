"""The parts of a subject that every match of a rule has. Pure."""

from __future__ import annotations

from typing import TypeVar

from txnscan.explain.cause import Subject
from txnscan.explain.facts import PartitionFacts
from txnscan.verdict.evidence import Judged

Found = TypeVar("Found")


def both(s: Subject) -> tuple[PartitionFacts, Judged]:
    """The partition and the transaction on it."""
    return matched(s.partition), matched(s.judged)


def matched(one: Found | None) -> Found:
    """The part of the subject that every match of the rule has."""
    if one is None:
        raise ValueError("a rule tells of what it did not find")
    return one
