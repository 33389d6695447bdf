"""For how long the scanner has watched a transaction, by clocks that may have been set in between. Pure.

Two sweeps on one machine since the same boot are compared by the time since boot, which cannot be set. All others are
compared by the wall clock. If the time since boot shows that the wall clock jumped between two sweeps, the wall clock
counts for no sweep. A jump between two machines, or between two boots, cannot be detected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from txnscan.engine.clock import BootTime
from txnscan.waiting.disk import JUMP_MS


@dataclass(frozen=True, slots=True)
class SweepTime:
    """When a sweep ran, by the wall clock. read_ms: when it read the partition. boot: when it finished, by the time
    since boot, if that is known.
    """

    read_ms: int
    started_ms: int
    finished_ms: int
    boot: BootTime | None


def watched_ms(last: SweepTime, seen: Iterable[SweepTime]) -> int:
    """The minimum time that a transaction was open when the last sweep read it. seen: the sweeps that saw it."""
    by_boot, by_wall, jumped = 0, 0, False
    for one in seen:
        if one.boot is None or last.boot is None or one.boot.boot_id != last.boot.boot_id:
            by_wall = max(by_wall, last.read_ms - one.read_ms)
            continue
        since_ms = last.boot.since_boot_ms - one.boot.since_boot_ms
        jumped = jumped or abs(last.finished_ms - one.finished_ms - since_ms) > JUMP_MS
        # From the end of the earlier sweep to the beginning of the last one.
        by_boot = max(by_boot, since_ms - (last.finished_ms - last.started_ms))
    return by_boot if jumped else max(by_boot, by_wall)
