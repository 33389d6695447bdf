"""The time limit of a sweep, and the part of it for a single broker.

The process that drives a sweep measures its time with a monotonic clock. An executor has another clock. Its task brings
the end of the sweep by the wall clock of the driver, and the time that remained when the task was sent. The earlier end
counts. If the clock of an executor is ahead, its reads end earlier by the difference, and are reported as not observed.
If it is behind, they end when the remaining time is over.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from txnscan.kafka.clock import wall_clock_ms
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.units import duration

# The limits without --timeout: of one question, and of a sweep. A sweep of a large cluster gets a multiple of the time
# that it is expected to take.
QUESTION_MS, SWEEP_MS, SWEEP_TIMES = 60_000, 300_000, 10
# Timers may fire a little early.
_TICK_S = 0.02

# An answer is not slow within this time, or within a quarter of the request timeout if that is less.
QUICK_MS_MAX = 1_000
# The limits of the time for which one broker may keep a sweep waiting: in request timeouts, and as a part of the sweep.
WAITS_MAX, SWEEP_PART_MAX = 8, 0.5
# The part of the sweep's time for a single request.
REQUEST_PART_MAX = 0.25
# The part of the sweep's time for brokers that have never answered, all together, if so many are asked at once.
FIRST_TRIES_PART_MAX, ASKED_AT_ONCE = 0.25, 32
# After that, the time that each of them gets for its first answer: enough for TLS and SASL between continents.
SHORT_TRY_S = 0.5
# If a broker has answered before, it is given up after this number of unanswered requests in a row.
UNANSWERED_MAX = 2
# The limit of the sum of the pauses that a broker asks for (quotas).
PAUSES_MS_MAX = 600_000


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """The rest of a sweep's time, for another process. ends_at_ms: by the wall clock of the driver. timeout_ms: the
    time limit of the whole sweep.
    """

    ends_at_ms: int
    left_ms: int
    timeout_ms: int
    # Whether the user gave no limit, so that a large cluster may get more time (`Deadline.allow`).
    is_default: bool = False


class Deadline:
    """The end of a sweep. Without a time limit it never ends. Safe to use from many threads."""

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
        # The time limit of the whole sweep.
        self.timeout_s = math.inf
        self._is_default = time_left is not None and time_left.is_default
        if time_left is not None:
            self.timeout_s = time_left.timeout_ms / 1_000
            self._ends_s = monotonic_s() + min(time_left.left_ms, time_left.ends_at_ms - now_ms()) / 1_000
        # Whether a request was refused or cut off here because the time was up.
        self.missed = False

    @classmethod
    def after(cls, timeout_ms: int | None, default_ms: int | None = None) -> Deadline:
        """The end of a sweep that begins now. timeout_ms: of the user. Without both limits it has no end."""
        limit_ms = timeout_ms if timeout_ms is not None else default_ms
        if limit_ms is None:
            return cls()
        return cls(TimeLeft(wall_clock_ms() + limit_ms, limit_ms, limit_ms, is_default=timeout_ms is None))

    def allow(self, limit_ms: int) -> None:
        """Makes this the limit, counted from the same beginning, if it is longer and the user gave none."""
        more_s = limit_ms / 1_000 - self.timeout_s
        if self._is_default and more_s > 0:
            self.timeout_s += more_s
            self._ends_s += more_s

    @property
    def left_s(self) -> float:
        """The remaining seconds: 0 if the time is up, and infinity without a time limit."""
        return max(0.0, self._ends_s - self._monotonic_s())

    @property
    def part_s(self) -> float:
        """The maximum time of one request. A silent broker must not use up all the time."""
        return REQUEST_PART_MAX * self.timeout_s

    @property
    def request_s_max(self) -> float:
        """The maximum time of a request that begins now."""
        return min(self.left_s, self.part_s)

    @property
    def is_up(self) -> bool:
        """Whether the time is up."""
        return self.left_s < _TICK_S

    def time_left(self) -> TimeLeft | None:
        """The remaining time, for another process."""
        if self._ends_s == math.inf:
            return None
        left_ms = round(self.left_s * 1_000)
        return TimeLeft(self._now_ms() + left_ms, left_ms, round(self.timeout_s * 1_000), self._is_default)

    @property
    def time_is_up(self) -> Failure:
        """The failure of everything that was not observed before the time was up. It names the limit."""
        return _time_is_up(self.timeout_s)

    def check(self) -> None:
        """Raises RequestFailed if the time is up."""
        if self.is_up:
            raise self.miss(sent=False)

    def miss(self, *, sent: bool) -> RequestFailed:
        """The error of a request for which there is no time. sent: see RequestFailed."""
        self.missed = True
        return RequestFailed(self.time_is_up, sent=sent)


@lru_cache
def _time_is_up(timeout_s: float) -> Failure:
    """Made once: thousands of requests may fail with it."""
    limit = f" of {duration(round(timeout_s * 1_000))}" if math.isfinite(timeout_s) else ""
    return Failure(f"the time limit{limit} is over; set a longer --timeout", FailureCode.TIME_IS_UP)


def sweep_limit_ms(expected_s: float = 0.0) -> int:
    """The limit of a sweep without --timeout. expected_s: the time that it is expected to take."""
    return max(SWEEP_MS, longer_ms(expected_s))


def longer_ms(expected_s: float) -> int:
    """The limit of requests that are expected to take this time, if that is longer than their default."""
    return round(SWEEP_TIMES * expected_s * 1_000)


class FirstTries:
    """Limits the time for which all brokers that have never answered may keep a sweep waiting: dead ones, and addresses
    that another broker made up. When it is used up, each of them still gets a short try, because it may be a good one.
    Safe to use from many threads.
    """

    def __init__(self, sweep_s: float = math.inf) -> None:
        self._left_s = FIRST_TRIES_PART_MAX * ASKED_AT_ONCE * sweep_s
        self._lock = threading.Lock()

    def failed(self, took_s: float) -> None:
        """Counts the time of a try without an answer."""
        with self._lock:
            self._left_s -= took_s

    @property
    def are_short(self) -> bool:
        """Whether the next try is short."""
        return self._left_s <= 0

    @property
    def s_max(self) -> float:
        """The maximum time of the next try."""
        return SHORT_TRY_S if self.are_short else math.inf


class Patience:
    """Limits the time for which one broker may keep a sweep waiting, for any number of requests.

    The time of each request counts, answered or not, minus the time of a quick answer. Pauses that the broker asks for
    count separately. A broker that has never answered gets a single try. Any other broker is given up after
    UNANSWERED_MAX unanswered requests in a row.
    """

    def __init__(self, request_timeout_ms: int, sweep_s: float = math.inf) -> None:
        self._waited_ms_max = min(WAITS_MAX * request_timeout_ms, SWEEP_PART_MAX * sweep_s * 1_000)
        self._quick_ms = min(QUICK_MS_MAX, request_timeout_ms / 4)
        self._waited_ms = 0.0
        self._paused_ms = 0.0
        self._unanswered = 0

    def took(self, took_ms: float) -> None:
        """Counts the time of a finished request."""
        self._waited_ms += max(0.0, took_ms - self._quick_ms)

    def paused(self, paused_ms: float) -> None:
        """Counts a pause that the broker asked for."""
        self._paused_ms += paused_ms

    def answered(self) -> None:
        """Notes that the broker answered a request."""
        self._unanswered = 0

    def unanswered(self, *, answered_before: bool) -> bool:
        """Notes that the broker did not answer a request. Returns whether to give up the broker."""
        self._unanswered += 1
        return not answered_before or self._unanswered >= UNANSWERED_MAX

    @property
    def why_over(self) -> str | None:
        """Why the broker is not asked again in this sweep, as the predicate of a sentence, if it is not."""
        if self._waited_ms > self._waited_ms_max:
            waited = duration(round(self._waited_ms))
            return f"kept this sweep waiting for {waited}, and is not asked any more in it; check its load"
        if self._paused_ms > PAUSES_MS_MAX:
            paused = duration(round(self._paused_ms))
            return f"asked for pauses of {paused} in this sweep; check the quotas of this principal"
        return None
