"""Wait for conditions, never for durations."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from txnscan.demo.errors import DemoError
from txnscan.kafka.errors import RequestFailed

T = TypeVar("T")

_POLL_S = 0.05
# The most that a call of the condition spends of the timeout. A request to a broker that is down may take longer: a
# wait of 60 s for such a broker lasts six minutes at most.
_CALL_S_MAX = 5.0


def wait_until(
    condition: Callable[[], T | None],
    what: str,
    timeout_s: float = 60.0,
    *,
    every_s: float = _POLL_S,
    monotonic_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Calls `condition` every `every_s` seconds, and returns its first truthy answer.

    A RequestFailed counts as "not yet", because brokers stop and start here. When `timeout_s` is spent, raises
    DemoError with `what` in its message.

    The deadline counts ticks, not the clock: a pause spends at most twice `every_s`, and a call of the condition at
    most five seconds. So a suspended machine does not end the wait, and the wait can last longer than `timeout_s`. If
    every call takes t seconds and t > 5, it lasts up to t / 5 times as long.
    """
    spent_s = 0.0
    while True:
        called_s = monotonic_s()
        last_error = ""
        try:
            if answer := condition():
                return answer
        except RequestFailed as failed:
            last_error = f" ({failed.error})"
        returned_s = monotonic_s()
        spent_s += min(returned_s - called_s, _CALL_S_MAX)
        if spent_s >= timeout_s:
            raise DemoError(f"waited {timeout_s:.0f} s in vain until {what}{last_error}")
        sleep(every_s)
        spent_s += min(monotonic_s() - returned_s, 2 * every_s)
