"""How soon a disk is full while a transaction blocks compaction. Pure.

The log cleaner does not pass the last stable offset, so a compacted partition grows as long as a transaction holds it.
A sweep reads the sizes of such a partition's replicas, and stores them as facts. The rest is computed from them:

1. Two reads of a replica are compared if broker and log directory are the same.
2. The time between two reads is by the time since boot if one machine made both since the same boot. Otherwise it is by
   the wall clock. If the time since boot shows that the wall clock jumped, the wall clock counts for no earlier read.
3. Reads less than a minute or more than a day before do not count. Growth is since the oldest other read after which
   the replica did not shrink. If it shrank since the last read, growth is negative.
4. The hours until a volume is full are its usable bytes divided by the growth of this partition alone. Other partitions
   grow too, so the disk may be full earlier.
5. The numbers of a partition come from the replica that fills its volume first. If no growth is known, they come from
   the replica with the least usable bytes, and if no volume is known, from the largest replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

# NTP slews a clock by less than this between two sweeps.
JUMP_MS = 60_000
GROWTH_OVER_MS_MIN = 60_000
_HOUR_MS = 3_600_000
GROWTH_OVER_MS_MAX = 24 * _HOUR_MS
# The limit of earlier reads of a partition that a sweep uses.
READS_MAX = 100
# Below this time until the disk is full, the short output of a sweep mentions it.
URGENT_HOURS = 24

# Topic, topic id and partition number.
PartitionId = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """A replica in a log directory of a broker. total_bytes, usable_bytes: of the directory's volume, unless the
    broker does not report them.
    """

    broker_id: int
    log_dir: str
    partition_bytes: int
    total_bytes: int | None
    usable_bytes: int | None


@dataclass(frozen=True, slots=True)
class DiskRead:
    """Facts: the sizes of a partition's replicas, as far as they were read. read_at_ms: by the wall clock, in epoch
    milliseconds. boot_id, since_boot_ms: the boot of the machine that read, and the time since then, if known.
    """

    read_at_ms: int
    boot_id: str | None
    since_boot_ms: int | None
    replicas: tuple[ReplicaSize, ...]


@dataclass(frozen=True, slots=True)
class Disk:
    """The replica of a partition that fills its volume first. Unknown fields are None.

    read: the facts. usable_bytes: of its volume. growth_bytes_per_hour: negative if it shrinks. error: why a replica is
    not among the facts; the others still count.
    """

    read: DiskRead | None = None
    broker_id: int | None = None
    partition_bytes: int | None = None
    total_bytes: int | None = None
    usable_bytes: int | None = None
    growth_bytes_per_hour: int | None = None
    error: str | None = None

    @property
    def seconds_until_full(self) -> int | None:
        """The time until its volume is full if only this partition grows, and if it does grow."""
        return _seconds_until_full(self.usable_bytes, self.growth_bytes_per_hour)

    @property
    def hours_until_full(self) -> int | None:
        """The same in hours, rounded down."""
        seconds = self.seconds_until_full
        return None if seconds is None else seconds // 3_600


NO_DISK = Disk()


def disk_of(read: DiskRead | None, earlier: Iterable[DiskRead] = (), error: str | None = None) -> Disk:
    """The disk of a partition by this read and the earlier ones, in any order."""
    if read is None or not read.replicas:
        return Disk(read=None, error=error)
    before = _before(read, earlier)
    found = [(one, _growth(one, before)) for one in read.replicas]
    first, growth = min(found, key=lambda one: _fills_first(*one))
    sizes = first.partition_bytes, first.total_bytes, first.usable_bytes
    return Disk(read, first.broker_id, *sizes, growth, error)


def _fills_first(one: ReplicaSize, growth: int | None) -> tuple[float, float, int, int]:
    seconds = _seconds_until_full(one.usable_bytes, growth)
    return (
        inf if seconds is None else seconds,
        inf if one.usable_bytes is None else one.usable_bytes,
        -one.partition_bytes,
        one.broker_id,
    )


def _seconds_until_full(usable_bytes: int | None, growth_bytes_per_hour: int | None) -> int | None:
    if usable_bytes is None or growth_bytes_per_hour is None or growth_bytes_per_hour <= 0:
        return None
    return usable_bytes * 3_600 // growth_bytes_per_hour


def _before(read: DiskRead, earlier: Iterable[DiskRead]) -> list[tuple[int, DiskRead]]:
    """The earlier reads that count, the last one first, each with the time since then in milliseconds."""
    by_boot, by_wall, jumped = [], [], False
    for one in earlier:
        wall_ms = read.read_at_ms - one.read_at_ms
        boot_ms = _since_boot(read, one)
        if boot_ms is None:
            by_wall.append((wall_ms, one))
            continue
        jumped = jumped or abs(wall_ms - boot_ms) > JUMP_MS
        by_boot.append((boot_ms, one))
    counted = by_boot if jumped else [*by_boot, *by_wall]
    in_time = [(ms, one) for ms, one in counted if GROWTH_OVER_MS_MIN <= ms <= GROWTH_OVER_MS_MAX]
    return sorted(in_time, key=lambda one: one[0])


def _since_boot(read: DiskRead, earlier: DiskRead) -> int | None:
    """The time between two reads, if one machine made both since the same boot."""
    if read.boot_id is None or read.boot_id != earlier.boot_id:
        return None
    if read.since_boot_ms is None or earlier.since_boot_ms is None:
        return None
    return read.since_boot_ms - earlier.since_boot_ms


def _growth(now: ReplicaSize, before: Sequence[tuple[int, DiskRead]]) -> int | None:
    """Bytes per hour. before: the last read first."""
    base, size_bytes = None, now.partition_bytes
    for elapsed_ms, read in before:
        same = [one for one in read.replicas if (one.broker_id, one.log_dir) == (now.broker_id, now.log_dir)]
        if not same:
            continue
        (then,) = same[:1]
        if base is not None and then.partition_bytes > size_bytes:
            break
        base, size_bytes = (elapsed_ms, then.partition_bytes), then.partition_bytes
    if base is None:
        return None
    return (now.partition_bytes - base[1]) * _HOUR_MS // base[0]
