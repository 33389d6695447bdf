"""The wall clock, at the edge: whatever needs the time takes it as an argument."""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """Now, in epoch milliseconds."""
    return time.time_ns() // 1_000_000
