"""Live transactions that hold readers back: open, claimed by their coordinator, and old, or with waiting groups. Pure.

No verdict depends on this. A live transaction is healthy, and its coordinator ends it. But until then read_committed
consumers get nothing after its first record, and an application that died may have set a timeout of hours (FLIP-572).

Readers wait a moment for every transaction. So a sweep looks at a live transaction only if it is old enough:
- older than a limit (`--blocking-after`): it gets a row in the tables;
- younger than that, but older than `ORDINARY_MS`: it gets a row only if a group is seen to wait for it.
The others are only counted. The cost does not grow with the number of live transactions: a sweep looks at the oldest
`LOOKED_AT_MAX` of that age, and asks about the groups of fewer (`who_waits.py`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from txnscan.kafka.answers import CoordinatorView, State
from txnscan.kafka.topology import GROUP_TOPICS
from txnscan.kafka.units import duration, plural
from txnscan.verdict.ending import timeout_end_ms
from txnscan.verdict.evidence import Judged, Verdict
from txnscan.verdict.predicates import owners
from txnscan.waiting.impact import Impact
from txnscan.waiting.writability import WriteState, WriteStates

# The limit of live transactions that a sweep looks at. The oldest come first.
LOOKED_AT_MAX = 1_000
# The default transaction.timeout.ms of producers. With it, no live transaction gets older.
ORDINARY_MS = 60_000
# The default of the limit, as a share of the age from which a transaction is late.
LATE_DIVISOR = 4
_LIVE = (Verdict.ONGOING, Verdict.LATE_ONGOING)


def is_live(judged: Judged) -> bool:
    """Whether a coordinator claims the transaction as ongoing."""
    return judged.judgement.verdict in _LIVE


def aborts_by_ms(start_ms: int | None, timeout_ms: int | None, blocker: WriteState | None) -> int | None:
    """When the coordinator aborts an Ongoing transaction, unless it has ended before (`ending.py`). None also if a
    partition that must be written for it takes no writes, or may take none (blocker: `WriteStates.blocker`).
    """
    return timeout_end_ms(start_ms, timeout_ms) if blocker is None else None


def ends_by_ms(claim: CoordinatorView, blocker: WriteState | None) -> int | None:
    """The same for the transaction that a coordinator claims. None also if its end is decided already."""
    if claim.describe_failure is not None or claim.state != State.ONGOING:
        return None
    return aborts_by_ms(claim.start_time_ms, claim.timeout_ms, blocker)


def end_of(judged: Judged, states: WriteStates) -> int | None:
    """The same for a live transaction. None without exactly one claim."""
    claims = owners(judged.evidence) if is_live(judged) else ()
    return ends_by_ms(claims[0], states.blocker_of(judged)) if len(claims) == 1 else None


def looked_at(judged: Iterable[Judged], blocking_after_ms: int) -> tuple[list[Judged], int]:
    """The live transactions that a sweep looks at, the oldest first, and the number of others that are as old."""
    asked_from_ms = min(blocking_after_ms, ORDINARY_MS)
    old = [one for one in judged if is_live(one) and one.judgement.age_ms > asked_from_ms]
    chosen = heapq.nsmallest(LOOKED_AT_MAX, old, key=_oldest_first)
    return chosen, len(old) - len(chosen)


def _oldest_first(judged: Judged) -> tuple[int, str, int, int, int]:
    o = judged.observation
    return (-judged.judgement.age_ms, o.topic, o.partition, o.start_offset, o.producer_id)


def gets_a_row(judged: Judged, impact: Impact, blocking_after_ms: int) -> bool:
    """Whether a live transaction with this impact is more than counted."""
    return judged.judgement.age_ms > blocking_after_ms or bool(impact.groups or impact.readers)


def blocks(judged: Judged, impact: Impact | None, blocking_after_ms: int) -> bool | None:
    """Whether a live transaction holds readers back: a group or a streaming query waits for it, or it is older than the
    limit and the last stable offset is at it. None if that is not known, and for other transactions.

    Applications read no records of the topics of groups, so there only groups count.
    """
    if not is_live(judged) or impact is None:
        return None
    if impact.groups or impact.readers:
        return True
    if judged.observation.topic in GROUP_TOPICS:
        return None if impact.groups_blocked is None else False
    if judged.holds_lso is None or judged.blocked_records is None:
        return None
    return judged.holds_lso and judged.blocked_records > 0 and judged.judgement.age_ms > blocking_after_ms


def only_counted_warning(left: int, blocking_after_ms: int) -> tuple[str, ...]:
    """A warning about live transactions that a sweep did not look at, because of the limit. Empty if there are none."""
    if not left:
        return ()
    age = duration(min(blocking_after_ms, ORDINARY_MS))
    return (
        f"{plural(left, 'live transaction')} older than {age} {'is' if left == 1 else 'are'} only counted: a sweep "
        f"looks at the {LOOKED_AT_MAX:,} oldest to see whether they hold readers back",
    )
