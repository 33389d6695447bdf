"""What raised the epoch of an id, by its records in `__transaction_state`. Pure.

Two things fence a producer:
- Another instance calls InitProducerId. The coordinator writes Empty, after it aborted the open transaction, if any.
- The transaction is open for longer than its timeout. The coordinator writes PrepareAbort at a later epoch, and no
  Empty follows until an instance initializes the id.

A PrepareAbort before the timeout is an abort by the producer itself, or for an instance that takes over: then the Empty
after it counts. Without the PrepareAbort, which compaction removes, nothing is concluded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txnscan.kafka.answers import State
from txnscan.txnlog.facts import LoggedTransaction

# Instances that initialize an id again within this time fight for it.
_FIGHT_MS = 600_000


@dataclass(frozen=True, slots=True)
class Takeover:
    """An event that fenced a producer. at_ms: its time by the coordinator's clock. timed_out: the abort of a
    transaction that was open for longer than its timeout. initialized: how often instances initialized the id from then
    on, at most ten minutes apart. last_ms: the last of these times.
    """

    at_ms: int
    timed_out: LoggedTransaction | None = None
    initialized: int = 0
    last_ms: int = -1


def takeover(
    logged: Sequence[LoggedTransaction], producer_id: int | None = None, epoch: int | None = None
) -> Takeover | None:
    """The first event that raised the id above this epoch of the producer id, or the last event if the epoch is not
    known. logged: the id's records in the order of the log.
    """
    later = logged[_end_of(logged, producer_id, epoch) :]
    events = [one for one in later if one.state == State.EMPTY or is_timed_out(one)]
    inits = [one for one in events if one.state == State.EMPTY]
    if not events:
        return None
    first = events[0] if epoch is not None else events[-1]
    if first.state != State.EMPTY:
        return Takeover(first.updated_ms, timed_out=first)
    if epoch is None and first.producer_epoch == 0:
        # The first instance of the id fenced nobody.
        return None
    near = _fight(inits, inits.index(first), backwards=epoch is None)
    if epoch is None and len(near) > 1:
        # The first of them is fenced by the next.
        near = near[1:]
    return Takeover(near[0].updated_ms, initialized=len(near), last_ms=near[-1].updated_ms)


def _end_of(logged: Sequence[LoggedTransaction], producer_id: int | None, epoch: int | None) -> int:
    """The position after the last record at this epoch, or at an earlier one."""
    if epoch is None:
        return 0
    of_it = [
        at
        for at, one in enumerate(logged)
        if producer_id in (None, one.producer_id) and one.producer_epoch <= epoch and one.state != State.DEAD
    ]
    return of_it[-1] + 1 if of_it else 0


def _fight(inits: Sequence[LoggedTransaction], at: int, *, backwards: bool) -> list[LoggedTransaction]:
    """The initializations around this one, each at most ten minutes after its predecessor."""
    found = [inits[at]]
    for one in inits[at + 1 :]:
        if one.updated_ms - found[-1].updated_ms > _FIGHT_MS:
            break
        found.append(one)
    for one in reversed(inits[:at] if backwards else []):
        if found[0].updated_ms - one.updated_ms > _FIGHT_MS:
            break
        found.insert(0, one)
    return found


def is_timed_out(one: LoggedTransaction) -> bool:
    """Whether this is the coordinator's abort of a transaction that was open for longer than its timeout."""
    return (
        one.state == State.PREPARE_ABORT
        and one.timeout_ms > 0
        and one.start_time_ms >= 0
        and one.updated_ms >= one.start_time_ms + one.timeout_ms
    )
