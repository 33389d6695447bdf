"""Clocks, at the edge: whatever needs the time takes it as an argument."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def wall_clock_ms() -> int:
    """Now, in epoch milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class BootTime:
    """How long a machine has run since it booted, suspended times included. Nobody can set this clock."""

    boot_id: str
    since_boot_ms: int


def boot_time() -> BootTime | None:
    """The time since boot; None where the system does not tell it (it is Linux that does)."""
    try:
        boot_id = _BOOT_ID.read_text("ascii").strip()
        return BootTime(boot_id, round(time.clock_gettime(time.CLOCK_BOOTTIME) * 1_000))
    except (OSError, ValueError, AttributeError):
        return None
