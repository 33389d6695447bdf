"""Histories that once fooled a sweep, as data: the shortest of each kind that a search found.

In each history either the readable transaction log contradicts the decision, or a coordinator does not know the records
in its log. Every event was possible when it happened. Each history states the truth at its end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.sim.check import History
from tests.sim.scenarios import (
    BACK,
    COMPACTED,
    COMPACTED_MEANWHILE,
    COMPACTED_V1,
    LOG,
    MOVED,
    PARTIAL_LOAD,
    A,
    P,
    away,
    begun_and_written,
    heard,
)
from tests.sim.table import Event


@dataclass(frozen=True)
class Known:
    """A history and the truth at its end.

    committed: the decision about the open data; None if it is not decided yet. hangs: whether the transaction never
    ends. log: the records of the transaction log on broker 2 at the end: offset, state and producer epoch.
    """

    tells: str
    history: History
    committed: bool | None
    hangs: bool
    log: tuple[tuple[int, str, int], ...]


_LOADED: tuple[Event, ...] = (("load", (2, 0)),)
_TOMBSTONES = replace(COMPACTED, faults=COMPACTED.faults | {"tombstones dropped"})
# Broker 2 has the only replica of the partition. It goes, and the coordinator on broker 1 hears of it.
_AWAY: tuple[Event, ...] = (("kill broker", (2,)), ("fence broker", (2,)), *heard(1))
_DONE_WITHOUT_MARKER: tuple[Event, ...] = (
    *(("skip marker", (1, A, P)), ("write completion", (1, A))),
    ("InitProducerId", (1, A)),
)


def _appended_in_vain(*events: Event) -> tuple[Event, ...]:
    """An append while broker 2 hangs is not acknowledged in time. Broker 2 copies it when it is back."""
    return (("pause broker", (2,)), *events, ("append timeout", (1, A)), ("resume broker", (2,)))


def _behind_a_hole(version: int, *before: Event) -> tuple[Event, ...]:
    """An open transaction and what comes then; the last but two records of its id are compacted before broker 2 has
    them, and then broker 2 leads the log.
    """
    cleaned: Event = ("clean log", (LOG, 1, 5))
    return (*begun_and_written(version), *before, *_DONE_WITHOUT_MARKER, cleaned, *BACK, *MOVED)


KNOWN = {
    "commit-in-a-hole": Known(
        "Broker 2, which has the only replica of p-0 and the other one of the transaction log, is down when the "
        "transaction is committed, and its marker is skipped. Its producer goes on, and the log is compacted. Broker 2 "
        "is back, copies what is left behind what it had, and leads the log: that has the beginning of the "
        "transaction, its completion, and not the decision with its partitions.",
        History(COMPACTED, (*away(2), *COMPACTED_MEANWHILE, *MOVED), _LOADED, ()),
        committed=True,
        hangs=True,
        log=((0, "Empty", 0), (1, "Ongoing", 0), (3, "CompleteCommit", 1), (4, "Empty", 2)),
    ),
    "commit-in-a-hole-v1": Known(
        "The same under transactions v1, where no epoch tells that something is missing.",
        History(COMPACTED_V1, (*away(1), *COMPACTED_MEANWHILE, *MOVED), _LOADED, ()),
        committed=True,
        hangs=True,
        log=((0, "Empty", 0), (1, "Ongoing", 0), (3, "CompleteCommit", 0), (4, "Empty", 1)),
    ),
    "commit-in-a-hole-of-an-orphan": Known(
        "The same, and the id has expired and come back with another producer id: broker 2 still has how the old "
        "producer id began.",
        History(
            _TOMBSTONES,
            (
                *away(2),
                *(("expire id", (1, A)), ("InitProducerId", (1, A))),
                *(("clean log", (LOG, 1, 6)), ("drop tombstone", (LOG, 1, 5))),
                *(*BACK, *MOVED),
            ),
            _LOADED,
            (),
        ),
        committed=True,
        hangs=True,
        log=((0, "Empty", 0), (1, "Ongoing", 0), (6, "Empty", 0)),
    ),
    "abort-in-a-hole-behind-a-commit-in-vain": Known(
        "A commit is appended and not acknowledged in time: the coordinator forgets it, and the transaction is aborted "
        "by its timeout. Broker 2 has the record of the commit, was away for that of the abort, and leads the log.",
        History(
            COMPACTED_V1,
            _behind_a_hole(1, *_appended_in_vain(("EndTxn", (1, A, True, 1))), *_AWAY, ("timeout", (1, A))),
            _LOADED,
            (),
        ),
        committed=False,
        hangs=True,
        log=((0, "Empty", 0), (1, "Ongoing", 0), (2, "PrepareCommit", 0), (4, "CompleteAbort", 1), (5, "Empty", 2)),
    ),
    "abort-in-a-hole-behind-a-commit-in-vain-v2": Known(
        "The same under transactions v2.",
        History(
            COMPACTED,
            _behind_a_hole(2, *_appended_in_vain(("EndTxn", (1, A, True, 2))), *_AWAY, ("timeout", (1, A))),
            _LOADED,
            (),
        ),
        committed=False,
        hangs=True,
        log=((0, "Empty", 0), (1, "Ongoing", 0), (2, "PrepareCommit", 1), (4, "CompleteAbort", 1), (5, "Empty", 2)),
    ),
    "commit-in-a-hole-behind-an-abort-in-vain": Known(
        "Transactions v2: the abort of a transaction past its timeout is appended and not acknowledged in time. Its "
        "producer commits. Broker 2 has the record of the abort, was away for that of the commit, and leads the log.",
        History(
            COMPACTED,
            _behind_a_hole(2, *_appended_in_vain(("timeout", (1, A))), *_AWAY, ("EndTxn", (1, A, True, 2))),
            _LOADED,
            (),
        ),
        committed=True,
        hangs=True,
        log=((0, "Empty", 0), (1, "Ongoing", 0), (2, "PrepareAbort", 1), (4, "CompleteCommit", 1), (5, "Empty", 2)),
    ),
    "nothing-loaded": Known(
        "A healthy transaction is ongoing. Its coordinator moves, and the new one fails to read its log, and takes it "
        "for empty: it proves that it serves the id's partition of the log, and does not know the id.",
        History(PARTIAL_LOAD, (*begun_and_written(1), *MOVED), (("partial load", (2, 0, 0)),), ()),
        committed=None,
        hangs=False,
        log=((0, "Empty", 0), (1, "Ongoing", 0)),
    ),
    "half-loaded": Known(
        "The same, and the new coordinator has read the first record: it knows the id, at rest.",
        History(PARTIAL_LOAD, (*begun_and_written(1), *MOVED), (("partial load", (2, 0, 1)),), ()),
        committed=None,
        hangs=False,
        log=((0, "Empty", 0), (1, "Ongoing", 0)),
    ),
}
