"""When a live transaction ends, and the words for it. Pure. Every output that names this time asks here.

The end is the start of the transaction plus its timeout, by its coordinator's clock. Coordinators look for expired
transactions every 10 s (`transaction.abort.timed.out.transaction.cleanup.interval.ms`), so an abort may come a little
later than that time.
"""

from __future__ import annotations

from datetime import UTC, datetime

from txnscan.kafka.answers import TWO_PHASE_COMMIT_TIMEOUT_MS

# The end of 2099. A coordinator that reports a later time has no usable clock, and a table could not store every time.
_TIME_MAX_MS = 4_102_444_799_999


def timeout_end_ms(start_ms: int | None, timeout_ms: int | None) -> int | None:
    """When a transaction times out: its start plus its timeout, by its coordinator's clock. None if the coordinator did
    not report both, and under two-phase commit, which has no timeout.
    """
    if start_ms is None or start_ms <= 0 or timeout_ms is None or not 0 < timeout_ms < TWO_PHASE_COMMIT_TIMEOUT_MS:
        return None
    end_ms = start_ms + timeout_ms
    return end_ms if end_ms <= _TIME_MAX_MS else None


def utc_time(at_ms: int) -> str:
    """A time for people, to the second."""
    return f"{datetime.fromtimestamp(at_ms // 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def coordinator_aborts(by_ms: int, now_ms: int) -> str:
    """What the coordinator of a live transaction that times out then does, as a clause."""
    at = utc_time(by_ms)
    if by_ms <= now_ms:
        return f"its timeout was at {at}, and its coordinator is about to abort it, unless it has ended"
    return f"its coordinator aborts it at its timeout, {at}, unless it ends before"
