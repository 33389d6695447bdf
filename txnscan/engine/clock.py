"""Clocks. All code that needs the time takes it as an argument; only the edge reads a clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class BootTime:
    """The time since a machine booted, including time in suspension. This clock cannot be set."""

    boot_id: str
    since_boot_ms: int


def boot_time() -> BootTime | None:
    """The time since boot, if this is Linux."""
    try:
        boot_id = _BOOT_ID.read_text("ascii").strip()
        return BootTime(boot_id, round(time.clock_gettime(time.CLOCK_BOOTTIME) * 1_000))
    except (OSError, ValueError, AttributeError):
        return None


@dataclass(frozen=True, slots=True)
class StageTime:
    """The duration of a stage of a sweep, up to the beginning of the next stage, in milliseconds."""

    stage: str
    duration_ms: int


class Stopwatch:
    """Measures stages. Call it with (stage, done, total), as a progress callback. It passes each call on.

    clock: in seconds. It must be a clock that cannot be set.
    """

    def __init__(self, progress: Callable[[str, int, int], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._progress = progress
        self._clock = clock
        self._begun_s: dict[str, float] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self._begun_s:
            self._begun_s[stage] = self._clock()
        self._progress(stage, done, total)

    def times(self) -> tuple[StageTime, ...]:
        """The stages so far, in their order."""
        began_s = [*self._begun_s.values(), self._clock()]
        took_s = (end - begin for begin, end in pairwise(began_s))
        return tuple(StageTime(stage, round(s * 1_000)) for stage, s in zip(self._begun_s, took_s, strict=True))
