"""The time that a sweep may take, and the time that one broker may take in it.

The process that drives a sweep counts its time with a monotonic clock. An executor has another one. Its task brings the
end by the wall clock of the driver, and the time that was left when the task was sent. The earlier end counts. If the
clock of an executor is ahead, its reads end earlier by the difference, and are reported as not observed. If it is
behind, they end when the time that was left is over.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from txnscan.kafka.clock import wall_clock_ms
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.units import duration

TIME_IS_UP = Failure("the time of this sweep is up; set a longer --timeout", FailureCode.TIME_IS_UP)
# Timers may fire a little early.
_TICK_S = 0.02

# An answer within this time is not slow, or within a quarter of a request timeout that is shorter than four seconds.
QUICK_MS_MAX = 1_000
# For how many request timeouts one broker may keep a sweep waiting, and for which part of the sweep's time.
WAITS_MAX, SWEEP_PART_MAX = 8, 0.5
# Which part of the sweep's time one request may take.
REQUEST_PART_MAX = 0.25
# How many requests in a row a broker that answered before may leave unanswered.
UNANSWERED_MAX = 2
# The sum of the pauses that a broker may ask for (quotas).
PAUSES_MS_MAX = 600_000


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """The rest of a sweep's time, for another process. ends_at_ms: by the wall clock of the driver. timeout_ms: the
    whole time of the sweep.
    """

    ends_at_ms: int
    left_ms: int
    timeout_ms: int


class Deadline:
    """When a sweep ends. Without a time it never does. Safe to use from many threads."""

    def __init__(
        self,
        time_left: TimeLeft | None = None,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._monotonic_s = monotonic_s
        self._now_ms = now_ms
        self._ends_s = math.inf
        # The whole time of the sweep.
        self.timeout_s = math.inf
        if time_left is not None:
            self.timeout_s = time_left.timeout_ms / 1_000
            self._ends_s = monotonic_s() + min(time_left.left_ms, time_left.ends_at_ms - now_ms()) / 1_000
        # Whether a request was refused or cut off here for want of time.
        self.missed = False

    @classmethod
    def after(cls, timeout_ms: int | None) -> Deadline:
        """The end of a sweep that begins now. Without a timeout it has no end."""
        return cls() if timeout_ms is None else cls(TimeLeft(wall_clock_ms() + timeout_ms, timeout_ms, timeout_ms))

    @property
    def left_s(self) -> float:
        """The seconds that are left: 0 if the time is up, and infinity if there is no end."""
        return max(0.0, self._ends_s - self._monotonic_s())

    @property
    def share_s(self) -> float:
        """How long one request may take. A broker that keeps silent must not use up all the time."""
        return REQUEST_PART_MAX * self.timeout_s

    @property
    def request_s_max(self) -> float:
        """How long a request may take that begins now."""
        return min(self.left_s, self.share_s)

    @property
    def is_up(self) -> bool:
        """Whether the time is up."""
        return self.left_s < _TICK_S

    def time_left(self) -> TimeLeft | None:
        """The same for another process, now."""
        if self._ends_s == math.inf:
            return None
        left_ms = round(self.left_s * 1_000)
        return TimeLeft(self._now_ms() + left_ms, left_ms, round(self.timeout_s * 1_000))

    def check(self) -> None:
        """Raises RequestFailed if the time is up."""
        if self.is_up:
            raise self.miss(sent=False)

    def miss(self, *, sent: bool) -> RequestFailed:
        """The error of a request that there is no time for. sent: see RequestFailed."""
        self.missed = True
        return RequestFailed(TIME_IS_UP, sent=sent)


class Patience:
    """How long one broker may keep a sweep waiting, however many requests wait for it.

    The time of each request counts, answered or not, minus the time of a quick answer. Pauses that the broker asks for
    count by themselves. A broker that never answered has a single try, and any other UNANSWERED_MAX in a row.
    """

    def __init__(self, request_timeout_ms: int, sweep_s: float = math.inf) -> None:
        self._waited_ms_max = min(WAITS_MAX * request_timeout_ms, SWEEP_PART_MAX * sweep_s * 1_000)
        self._quick_ms = min(QUICK_MS_MAX, request_timeout_ms / 4)
        self._waited_ms = 0.0
        self._paused_ms = 0.0
        self._unanswered = 0

    def took(self, took_ms: float) -> None:
        """A request ended after this time."""
        self._waited_ms += max(0.0, took_ms - self._quick_ms)

    def paused(self, paused_ms: float) -> None:
        """A pause that the broker asked for."""
        self._paused_ms += paused_ms

    def answered(self) -> None:
        """The broker answered a request."""
        self._unanswered = 0

    def unanswered(self, *, answered_before: bool) -> bool:
        """The broker left a request unanswered. Returns whether to give it up."""
        self._unanswered += 1
        return not answered_before or self._unanswered >= UNANSWERED_MAX

    @property
    def why_over(self) -> str | None:
        """Why the broker is not asked any more in this sweep, as the predicate of a sentence, or None."""
        if self._waited_ms > self._waited_ms_max:
            waited = duration(round(self._waited_ms))
            return f"kept this sweep waiting for {waited}, and is not asked any more in it; check its load"
        if self._paused_ms > PAUSES_MS_MAX:
            paused = duration(round(self._paused_ms))
            return f"asked for pauses of {paused} in this sweep; check the quotas of this principal"
        return None
