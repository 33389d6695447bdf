"""The readers that a transaction blocks: those with the greatest lag, and the number of all. Plain values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from txnscan.impact.impact import BlockedGroup, BlockedReader
from txnscan.kafka.failure import Failure

One = TypeVar("One", BlockedGroup, BlockedReader)

# The limit of readers of a kind to keep per transaction. Readers with the greatest lag come first.
KEPT_MAX = 100


@dataclass(frozen=True, slots=True)
class Blocked(Generic[One]):
    """The first of the groups, or of the queries, that a transaction blocks, or may block, and their number. asked: the
    number of groups that were asked about. unknown: why there may be more.
    """

    readers: tuple[One, ...] = ()
    count: int = 0
    asked: int = 0
    unknown: tuple[Failure, ...] = ()

    @property
    def known_count(self) -> int | None:
        """Their number, None if some may be missing."""
        return None if self.unknown else self.count


def kept(blocked: Iterable[One], unknown: Iterable[Failure] = (), *, asked: int = 0) -> Blocked[One]:
    """The readers with the greatest lag, and the number of all."""
    every = sorted(blocked, key=lambda one: (-(one.lag or 0), one.group if isinstance(one, BlockedGroup) else one.path))
    return Blocked(tuple(every[:KEPT_MAX]), len(every), asked, tuple(dict.fromkeys(unknown)))
