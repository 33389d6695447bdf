"""Reads how full the disks get behind transactions that block compaction (`waiting/disk.py`).

No proof depends on this. It sends requests only for partitions of compacted topics with a transaction that gets a row,
and only to the brokers with their replicas. A failed read is a reason beside the numbers, and changes no verdict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from txnscan.coordinators.cluster import Cluster
from txnscan.engine.clock import BootTime
from txnscan.kafka.errors import LEFT_OUT, RequestFailed
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.protocol.describe_log_dirs import LogDir, describe_log_dirs
from txnscan.kafka.protocol.replicas import numbers_of, read_replicas
from txnscan.kafka.security.acls import needing
from txnscan.kafka.security.needs import DESCRIBE_CLUSTER
from txnscan.kafka.topology import ClusterView, Key
from txnscan.kafka.units import plural
from txnscan.reads.observation import TransactionKey
from txnscan.sweeps.history import History
from txnscan.waiting.disk import Disk, DiskRead, PartitionId, ReplicaSize, disk_of
from txnscan.waiting.impact import Impact

# The limit of partitions to ask about. Partitions with hanging transactions come first.
PARTITIONS_MAX = 50
_REASONS_MAX = 3
_NOT_ASKED = Failure(f"brokers were asked about only {PARTITIONS_MAX} partitions", FailureCode.NOT_ASKED)


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of a partition that brokers reported, and why others are missing."""

    sizes: tuple[ReplicaSize, ...] = ()
    failures: tuple[Failure, ...] = ()

    def read(self, read_at_ms: int, boot: BootTime | None) -> DiskRead | None:
        """The facts, as read at this time, if there are any."""
        if not self.sizes:
            return None
        boot_id = boot.boot_id if boot is not None else None
        since_boot_ms = boot.since_boot_ms if boot is not None else None
        return DiskRead(read_at_ms, boot_id, since_boot_ms, self.sizes)

    @property
    def error(self) -> str | None:
        """The first reasons why replicas are missing, in words."""
        return "; ".join(dict.fromkeys(str(one) for one in self.failures[:_REASONS_MAX])) or None


def with_disks(
    impacts: Mapping[TransactionKey, Impact],
    cluster: Cluster,
    history: History,
    view: ClusterView,
    now_ms: Callable[[], int],
    boot: Callable[[], BootTime | None],
) -> tuple[dict[TransactionKey, Impact], tuple[str, ...]]:
    """The impacts, with the disk of each partition that grows; and a warning if a replica could not be read. impacts:
    the more important ones first. view: the newest Metadata.
    """
    blocked = dict.fromkeys(_partition_id(which) for which, one in impacts.items() if one.fills_disk)
    if not blocked:
        return dict(impacts), ()
    wanted = list(blocked)[:PARTITIONS_MAX]
    earlier = history.disk_reads(view.cluster_id, wanted, now_ms())
    found = read_replica_sizes(cluster, view.answered_by, [(topic, index) for topic, _, index in wanted])
    read_at_ms, since_boot = now_ms(), boot()
    known = earlier()
    disks = {}
    for one in blocked:
        replicas = found.get((one[0], one[2]), Replicas(failures=(_NOT_ASKED,)))
        disks[one] = disk_of(replicas.read(read_at_ms, since_boot), known.get(one, ()), replicas.error)
    measured = {which: _with(impact, disks.get(_partition_id(which))) for which, impact in impacts.items()}
    failures = dict.fromkeys(failure for one in found.values() for failure in one.failures)
    return measured, _warnings(failures, len(blocked) - len(wanted), cluster.format_failure)


def read_replica_sizes(cluster: Cluster, asked: int, partitions: Sequence[Key]) -> dict[Key, Replicas]:
    """The sizes of the replicas of these partitions, from the brokers that have them. Never raises. asked: the broker
    with the newest metadata. Another may still name brokers that have them no more.
    """
    try:
        found = read_replicas(cluster.send, asked, numbers_of(partitions))
    except RequestFailed as failed:
        return dict.fromkeys(partitions, Replicas(failures=(failed.failure,)))
    holders = {key: one.replicas for key, one in found.items()}
    by_broker: dict[int, list[Key]] = defaultdict(list)
    for key in partitions:
        for broker_id in holders.get(key, ()):
            by_broker[broker_id].append(key)

    def ask(broker_id: int) -> tuple[LogDir, ...] | Failure:
        try:
            return describe_log_dirs(cluster.send, broker_id, by_broker[broker_id])
        except RequestFailed as failed:
            return needing(failed.failure, DESCRIBE_CLUSTER.permission)

    answers = dict(zip(by_broker, cluster.in_parallel(ask, by_broker), strict=True))
    return {key: _replicas(key, holders.get(key, ()), answers) for key in partitions}


def _replicas(key: Key, holders: Sequence[int], answers: Mapping[int, tuple[LogDir, ...] | Failure]) -> Replicas:
    sizes, failures = [], []
    for broker_id in holders:
        answer = answers[broker_id]
        if isinstance(answer, Failure):
            failures.append(answer)
            continue
        held = next((one for one in answer if key in one.sizes_bytes), None)
        if held is None:
            offline = next((one.failure for one in answer if one.failure is not None), None)
            failures.append((offline or LEFT_OUT).within(f"the replica on broker {broker_id}"))
            continue
        sizes.append(ReplicaSize(broker_id, held.path, held.sizes_bytes[key], held.total_bytes, held.usable_bytes))
    if not holders:
        failures.append(LEFT_OUT)
    return Replicas(tuple(sizes), tuple(failures))


def _with(impact: Impact, disk: Disk | None) -> Impact:
    return impact if disk is None else replace(impact, disk=disk)


def _partition_id(which: TransactionKey) -> PartitionId:
    return which.topic, which.topic_id, which.partition


def _warnings(failures: Iterable[Failure], cut: int, format_failure: Callable[[Failure], str]) -> tuple[str, ...]:
    reasons = [format_failure(one) for one in failures][:_REASONS_MAX]
    if cut > 0:
        reasons.append(f"brokers were not asked about {plural(cut, 'more partition')}")
    return (
        (f"the disk behind blocked compaction is not known for every replica: {'; '.join(reasons)}",) if reasons else ()
    )
