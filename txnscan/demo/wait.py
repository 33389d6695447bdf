"""Waiting for conditions, never for durations."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from txnscan.demo.errors import DemoError
from txnscan.kafka.errors import RequestFailed

T = TypeVar("T")

_POLL_S = 0.05


def wait_until(condition: Callable[[], T | None], what: str, timeout_s: float = 60.0, *, every_s: float = _POLL_S) -> T:
    """The first truthy answer of `condition`, asked again and again, with a pause of `every_s` in between.

    A RequestFailed counts as "not yet": brokers come and go here. Raises DemoError, saying `what` did not happen,
    when the time is up.
    """
    deadline_s = time.monotonic() + timeout_s
    last_error = ""
    while True:
        try:
            if answer := condition():
                return answer
            last_error = ""
        except RequestFailed as failed:
            last_error = f" ({failed.error})"
        if time.monotonic() >= deadline_s:
            raise DemoError(f"waited {timeout_s:.0f} s in vain until {what}{last_error}")
        time.sleep(every_s)
