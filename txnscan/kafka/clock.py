"""The wall clock. All code that needs the time takes it as an argument; only the edge reads this clock."""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """The current time, in epoch milliseconds."""
    return time.time_ns() // 1_000_000
