"""Records of the transaction log, in the order in which coordinators write them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tests.builders import NOW_MS, observation
from txnscan.kafka.answers import State
from txnscan.kafka.topology import Key
from txnscan.txnlog.facts import LoggedTransaction
from txnscan.verdict.evidence import KnownOutcome, OutcomeEvidence
from txnscan.verdict.outcome import outcome

V1, V2 = 0, 2


Records = list[LoggedTransaction]


def record(state: State, epoch: int, *partitions: Key, client: int = V1, **changes: Any) -> LoggedTransaction:
    base = LoggedTransaction(0, 0, "X", 7, epoch, state, frozenset(partitions), client, NOW_MS, NOW_MS)
    return replace(base, **{"leader_epoch": 0, "acknowledged": True, "epochs_rise": True, **changes})


def empty(epoch: int, **changes: Any) -> LoggedTransaction:
    return record(State.EMPTY, epoch, **changes)


def ongoing(epoch: int, *partitions: Key, **changes: Any) -> LoggedTransaction:
    return record(State.ONGOING, epoch, *partitions, **changes)


def prepare(committed: bool, epoch: int, *partitions: Key, client: int = V1, **changes: Any) -> LoggedTransaction:
    state = State.PREPARE_COMMIT if committed else State.PREPARE_ABORT
    return record(state, epoch, *partitions, client=client, **changes)


def complete(committed: bool, epoch: int, client: int = V1, **changes: Any) -> LoggedTransaction:
    return record(State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT, epoch, client=client, **changes)


def v1(committed: bool, *partitions: Key, epoch: int = 3, raised: int = 0, client: int = V1, **changes: Any) -> Records:
    """A whole transaction; `raised` by a fence."""
    return [
        ongoing(epoch, *partitions, client=client, **changes),
        prepare(committed, epoch + raised, *partitions, client=client, **changes),
        complete(committed, epoch + raised, client=client, **changes),
    ]


def v2(committed: bool, *partitions: Key, epoch: int = 3, **changes: Any) -> Records:
    return v1(committed, *partitions, epoch=epoch, raised=1, client=V2, **changes)


def numbered(logged: Iterable[LoggedTransaction | None]) -> tuple[LoggedTransaction, ...]:
    """These records in sequence, with a gap at each None."""
    found: Records = []
    contiguous_from = 0
    for offset, one in enumerate(logged):
        if one is None:
            contiguous_from = offset + 1
        else:
            found.append(replace(one, offset=offset, contiguous_from=contiguous_from))
    return tuple(found)


def led(
    leader_epoch: int, logged: Iterable[LoggedTransaction | None], **changes: Any
) -> list[LoggedTransaction | None]:
    """These records, written by the coordinator of this leader epoch."""
    return [None if one is None else replace(one, leader_epoch=leader_epoch, **changes) for one in logged]


def told(logged: Iterable[LoggedTransaction | None], o: dict[str, Any] | None = None, **changes: Any) -> KnownOutcome:
    """The outcome for this log. `o` changes the observation."""
    seen = observation(**{"coordinator_epoch": -1, **(o or {})})
    base = OutcomeEvidence(seen, 9, seen.producer_epoch, 0, None, numbered(logged), None, None)
    return outcome(replace(base, **changes))


COMMIT, ABORT = True, False
BEFORE = [empty(2), empty(3)]
