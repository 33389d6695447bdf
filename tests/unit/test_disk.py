"""How soon a disk is full behind blocked compaction: sizes, growth between reads, and reads that fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.builders import NOW_MS, judged, scan, view
from tests.cases import Cases
from tests.fakes.cluster import FakeCluster, FakePartition, LogDirResult
from txnscan.coordinators.cluster import Cluster
from txnscan.engine.clock import BootTime
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import Failure
from txnscan.kafka.security.acls import explained
from txnscan.kafka.topology import ClusterView
from txnscan.reads.observation import TransactionKey
from txnscan.report.impact import impact_sentences, urgent_disk_sentence
from txnscan.sweeps.disk import PARTITIONS_MAX, with_disks
from txnscan.sweeps.history import DiskReads, History, NoHistory
from txnscan.waiting.disk import GROWTH_OVER_MS_MAX, URGENT_HOURS, Disk, DiskRead, PartitionId, ReplicaSize, disk_of
from txnscan.waiting.impact import Impact
from txnscan.waiting.owner import Owner
from txnscan.watch.incident_tracker import IncidentTracker, TrackedHistory, remember

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

GB = 1 << 30
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
REFUSED, OFFLINE = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), int(ErrorCode.KAFKA_STORAGE_ERROR)


def replica(
    size_bytes: int, broker_id: int = 1, usable_bytes: int | None = 60 * GB, log_dir: str = "/data"
) -> ReplicaSize:
    return ReplicaSize(broker_id, log_dir, size_bytes, 100 * GB if usable_bytes is not None else None, usable_bytes)


def read(*replicas: ReplicaSize, wall_ms: int = 0, boot_ms: int | None = None, boot_id: str = "one") -> DiskRead:
    """A read at these times from a start."""
    if boot_ms is None:
        return DiskRead(NOW_MS + wall_ms, None, None, replicas)
    return DiskRead(NOW_MS + wall_ms, boot_id, DAY_MS + boot_ms, replicas)


def test_growth_is_by_the_time_between_two_reads_of_the_same_replica() -> None:
    ten, twelve = replica(10 * GB), replica(12 * GB)
    # The present read has 12 GB, an hour after the start, by a machine that booted once.
    now = read(twelve, wall_ms=HOUR_MS, boot_ms=HOUR_MS)
    start = read(ten, boot_ms=0)
    table: Sequence[tuple[str, Sequence[DiskRead], int | None]] = (
        ("no earlier read", (), None),
        ("an hour before", (start,), 2 * GB),
        ("half an hour before", (read(ten, wall_ms=HOUR_MS // 2, boot_ms=HOUR_MS // 2),), 4 * GB),
        ("the oldest of several counts", (start, read(replica(11 * GB), wall_ms=HOUR_MS // 2)), 2 * GB),
        ("in any order", (read(replica(11 * GB), wall_ms=HOUR_MS // 2), start), 2 * GB),
        ("the same size", (read(twelve, boot_ms=0),), 0),
        ("it shrank", (read(replica(15 * GB), boot_ms=0),), -3 * GB),
        (
            "it shrank, and grows again: since then",
            (read(replica(90 * GB), boot_ms=0), read(ten, wall_ms=HOUR_MS // 2, boot_ms=HOUR_MS // 2)),
            4 * GB,
        ),
        ("another directory of the broker", (read(replica(10 * GB, log_dir="/other"), boot_ms=0),), None),
        ("another broker", (read(replica(10 * GB, broker_id=2), boot_ms=0),), None),
        ("a replica that was not read then", (read(boot_ms=0), read(ten, boot_ms=0)), 2 * GB),
        ("less than a minute before", (read(ten, wall_ms=HOUR_MS - MINUTE_MS + 1, boot_ms=HOUR_MS - 1),), None),
        ("a minute before", (read(ten, wall_ms=HOUR_MS - MINUTE_MS, boot_ms=HOUR_MS - MINUTE_MS),), 120 * GB),
        (
            "more than a day before",
            (read(ten, wall_ms=HOUR_MS - GROWTH_OVER_MS_MAX - 1, boot_ms=HOUR_MS - GROWTH_OVER_MS_MAX - 1),),
            None,
        ),
        ("another machine: the wall clock counts", (read(ten, boot_ms=7, boot_id="two"),), 2 * GB),
        ("since another boot, without a known time", (read(ten),), 2 * GB),
        ("another machine, later by its clock", (read(ten, wall_ms=2 * HOUR_MS),), None),
        ("the clock was set back: the time since boot counts", (read(ten, wall_ms=9 * HOUR_MS, boot_ms=0),), 2 * GB),
        ("the clock was set forward", (read(ten, wall_ms=-9 * HOUR_MS, boot_ms=0),), 2 * GB),
        (
            "the clock jumped, so it counts for no other machine",
            (read(twelve, wall_ms=9 * HOUR_MS, boot_ms=0), read(ten, wall_ms=-HOUR_MS, boot_ms=0, boot_id="two")),
            0,
        ),
    )
    with Cases() as cases:
        for name, earlier, growth in table:
            with cases.case(name):
                assert disk_of(now, earlier).growth_bytes_per_hour == growth


def test_the_disk_is_full_after_its_usable_bytes_by_the_growth_of_this_partition() -> None:
    table: Sequence[tuple[str, int, int | None, int | None]] = (
        ("grows by 2 GB an hour", 10 * GB, 60 * GB, 30),
        ("rounded down", 10 * GB, 61 * GB - 1, 30),
        ("less than an hour", 10 * GB, GB, 0),
        ("no space", 10 * GB, 0, 0),
        ("does not grow", 12 * GB, 60 * GB, None),
        ("shrinks", 13 * GB, 60 * GB, None),
        ("a broker before Kafka 3.3", 10 * GB, None, None),
    )
    with Cases() as cases:
        for name, then_bytes, usable_bytes, hours in table:
            with cases.case(name):
                now = read(replica(12 * GB, usable_bytes=usable_bytes), wall_ms=HOUR_MS)
                assert disk_of(now, [read(replica(then_bytes))]).hours_until_full == hours


def test_the_numbers_are_of_the_replica_that_fills_its_volume_first() -> None:
    """Each broker cleans and fills on its own, so replicas of one partition differ."""
    table: Sequence[tuple[str, Sequence[ReplicaSize], Sequence[ReplicaSize], int]] = (
        ("growth is known of one", [replica(9 * GB), replica(9 * GB, 2, GB)], [replica(8 * GB)], 1),
        (
            "the first that is full",
            [replica(9 * GB, 1, 50 * GB), replica(9 * GB, 2, 60 * GB)],
            [replica(8 * GB), replica(3 * GB, 2)],
            2,
        ),
        ("the least usable bytes", [replica(9 * GB, 1, 50 * GB), replica(8 * GB, 2, 20 * GB)], [], 2),
        ("a known volume before an unknown one", [replica(9 * GB, 1, None), replica(8 * GB, 2, 20 * GB)], [], 2),
        ("the largest", [replica(8 * GB, 1, None), replica(9 * GB, 2, None)], [], 2),
        ("the lowest id of equal replicas", [replica(9 * GB, 2), replica(9 * GB, 1)], [], 1),
    )
    with Cases() as cases:
        for name, now, then, broker_id in table:
            with cases.case(name):
                found = disk_of(read(*now, wall_ms=HOUR_MS), [read(*then)])
                (own,) = (one for one in now if one.broker_id == broker_id)
                assert found.broker_id == broker_id
                assert (found.partition_bytes, found.usable_bytes) == (own.partition_bytes, own.usable_bytes)


def test_without_a_replica_nothing_is_known_but_the_reason() -> None:
    assert disk_of(None, [read(replica(GB))], "why") == disk_of(read(), (), "why") == Disk(error="why")


# --- reads of a fake cluster


class Principal:
    """The parts of a `Cluster` that the read needs."""

    def __init__(self, fake: FakeCluster) -> None:
        self.send = fake.send
        self.broker_ids = tuple(fake.brokers)

    def in_parallel(self, call: Any, items: Any) -> list[Any]:
        return list(map(call, items))

    def format_failure(self, failure: Failure) -> str:
        return explained(failure, "User:me")


class Earlier(NoHistory):
    """A history of disks."""

    def __init__(self, reads: DiskReads) -> None:
        self.reads = reads

    def disk_reads(self, cluster_id: str, partitions: Any, now_ms: int) -> Any:
        return lambda: self.reads


def impact(policy: str | None = "compact") -> Impact:
    return Impact(None, None, Owner(None, None, None), groups_asked=0, cleanup_policy=policy)


def on(topic: str = "p", index: int = 0) -> TransactionKey:
    return TransactionKey(topic, "id", index, 7, 100)


def measured(
    fake: FakeCluster,
    impacts: Mapping[TransactionKey, Impact],
    earlier: Mapping[PartitionId, Sequence[DiskRead]] = {},
) -> tuple[dict[TransactionKey, Impact], tuple[str, ...]]:
    boot, shown = BootTime("one", DAY_MS + HOUR_MS), ClusterView(1, "c", (), ())
    clocks = (lambda: NOW_MS + HOUR_MS), (lambda: boot)
    return with_disks(impacts, cast(Cluster, Principal(fake)), cast(History, Earlier(earlier)), shown, *clocks)


def brokers() -> FakeCluster:
    """p-0 has replicas on brokers 1 and 2, not on broker 3."""
    fake = FakeCluster()
    fake.partitions["p", 0] = FakePartition(sizes_bytes={1: 12 * GB, 2: 11 * GB})
    fake.usable_bytes = {1: 60 * GB, 2: 80 * GB, 3: GB}
    return fake


def test_brokers_are_asked_only_about_blocked_compacted_partitions() -> None:
    fake = brokers()
    assert measured(fake, {on(): impact("delete"), on("q"): impact(None)})[1] == () and not fake.asked
    found, warnings = measured(fake, {on(): impact("compact,delete"), on("q"): impact("delete")})
    assert sorted(fake.asked) == [(1, "DescribeLogDirs"), (1, "Metadata"), (2, "DescribeLogDirs")]
    disk = found[on()].disk
    assert (disk.broker_id, disk.partition_bytes, disk.usable_bytes) == (1, 12 * GB, 60 * GB)
    assert (disk.growth_bytes_per_hour, disk.error, warnings) == (None, None, ())
    assert found[on("q")].disk == Disk()


def test_a_blocked_tiered_partition_is_measured_too() -> None:
    fake = brokers()
    found, _ = measured(fake, {on(): replace(impact("delete"), tiering_blocked=True)})
    assert found[on()].disk.partition_bytes == 12 * GB


def test_a_second_sweep_knows_the_growth() -> None:
    first = read(replica(10 * GB), replica(10 * GB, 2), boot_ms=0)
    found, _ = measured(brokers(), {on(): impact()}, {("p", "id", 0): [first]})
    disk = found[on()].disk
    assert (disk.broker_id, disk.growth_bytes_per_hour, disk.hours_until_full) == (1, 2 * GB, 30)
    # A topic of the same name that was created anew has another id.
    found, _ = measured(brokers(), {on(): impact()}, {("p", "former id", 0): [first]})
    assert found[on()].disk.growth_bytes_per_hour is None


def test_a_replica_that_cannot_be_read_is_a_reason_beside_the_others() -> None:
    def error(code: int) -> Any:
        def edit(broker_id: int, answer: Any) -> Any:
            answer.error_code = code if broker_id == 1 else 0
            return answer

        return edit

    def of_directory(broker_id: int, answer: Any) -> Any:
        if broker_id == 1:
            answer.results = [LogDirResult(error_code=OFFLINE, log_dir="/data", topics=[])]
        return answer

    def empty(broker_id: int, answer: Any) -> Any:
        # As brokers before Kafka 3.2 refuse.
        answer.results = [] if broker_id == 1 else answer.results
        return answer

    def left_out(broker_id: int, answer: Any) -> Any:
        answer.results[0].topics = [] if broker_id == 1 else answer.results[0].topics
        return answer

    def being_moved(broker_id: int, answer: Any) -> Any:
        for one in answer.results[0].topics[0].partitions:
            one.is_future_key = broker_id == 1
        return answer

    def negative(broker_id: int, answer: Any) -> Any:
        for one in answer.results[0].topics[0].partitions:
            one.partition_size = -1 if broker_id == 1 else one.partition_size
        return answer

    def unreachable(broker_id: int, answer: Any) -> Any:
        if broker_id == 1:
            raise RequestFailed("broker 1 cannot be reached")
        return answer

    table = (
        ("an error of the answer", error(OFFLINE), "KAFKA_STORAGE_ERROR"),
        ("refused", error(REFUSED), "CLUSTER_AUTHORIZATION_FAILED"),
        ("refused by an older broker", empty, "CLUSTER_AUTHORIZATION_FAILED"),
        ("an offline directory", of_directory, "KAFKA_STORAGE_ERROR"),
        ("left out", left_out, "broker 1"),
        ("only a future replica", being_moved, "broker 1"),
        ("a negative size", negative, "broker 1"),
        ("unreachable", unreachable, "broker 1"),
    )
    with Cases() as cases:
        for name, edit, reason in table:
            with cases.case(name):
                fake = brokers()
                fake.edit["DescribeLogDirs"] = edit
                found, warnings = measured(fake, {on(): impact()})
                disk = found[on()].disk
                assert (disk.broker_id, disk.partition_bytes) == (2, 11 * GB)
                assert reason in str(disk.error)
                assert len(warnings) == 1 and reason in warnings[0]
                assert ("--operation Describe --cluster" in warnings[0]) == ("AUTHORIZATION" in reason)


def test_without_any_answer_there_is_only_the_reason() -> None:
    fake = brokers()
    fake.unreachable = {1, 2, 3}
    found, warnings = measured(fake, {on(): impact()})
    assert found[on()].disk == Disk(error="broker 1 cannot be reached") and len(warnings) == 1


def test_at_most_a_fixed_number_of_partitions_is_asked_about() -> None:
    fake = FakeCluster()
    impacts = {}
    for index in range(PARTITIONS_MAX + 2):
        fake.partitions["p", index] = FakePartition(sizes_bytes={1: GB})
        impacts[on("p", index)] = impact()
    found, warnings = measured(fake, impacts)
    read_of = [which.partition for which, one in found.items() if one.disk.partition_bytes is not None]
    assert read_of == list(range(PARTITIONS_MAX))
    assert found[on("p", PARTITIONS_MAX)].disk.error is not None and len(warnings) == 1


# --- what becomes of it


def test_the_process_remembers_the_reads_of_partitions_that_stay_blocked() -> None:
    one = judged(view("Empty", epoch=9))
    which = one.observation.transaction_key

    def swept(disk: Disk, policy: str = "compact") -> Any:
        return scan(one, impacts={which: replace(impact(policy), disk=disk)})

    first, second = read(replica(GB)), read(replica(2 * GB), wall_ms=HOUR_MS)
    memory = remember(IncidentTracker(), "c", swept(disk_of(first))).memory
    memory = remember(memory, "c", swept(Disk(error="why"))).memory
    memory = remember(memory, "c", swept(disk_of(second))).memory
    assert TrackedHistory(memory).disk_reads("cluster-1", [], 0)() == {which[:3]: (first, second)}
    assert TrackedHistory(memory).disk_reads("another cluster", [], 0)() == {}
    memory = remember(memory, "c", swept(Disk(), "delete")).memory
    assert memory.disk_reads == {}


@pytest.mark.parametrize("hours", [None, 0, URGENT_HOURS - 1, URGENT_HOURS])
def test_a_disk_that_is_full_within_a_day_is_urgent(hours: int | None) -> None:
    row = {"topic": "p", "partition": 0, "disk_broker": 1, "hours_until_full": hours}
    urgent = urgent_disk_sentence([row, {**row, "hours_until_full": None}, {}])
    assert (urgent is not None) == (hours is not None and hours < URGENT_HOURS)


def test_the_disk_has_a_sentence(wording: SnapshotAssertion) -> None:
    row = {
        "cause": "unknown",
        "holds_lso": True,
        "lso_unmoved_ms": None,
        "blocked_groups": None,
        "groups_blocked": None,
        "groups_asked": 0,
        "groups_error": None,
        "compaction_blocked": True,
        "tiering_blocked": False,
        "retention_ms": None,
        "age_ms": 0,
        "disk_broker": 1,
        "disk_error": None,
    }
    then = [read(replica(10 * GB), replica(9 * GB, 2, None))]
    said = {}
    for name, disk in (
        ("grows", disk_of(read(replica(12 * GB), wall_ms=HOUR_MS), then)),
        ("shrinks", disk_of(read(replica(9 * GB), wall_ms=HOUR_MS), then)),
        ("first read", disk_of(read(replica(12 * GB)))),
        ("volume not known", disk_of(read(replica(12 * GB, 2, None), wall_ms=HOUR_MS), then)),
        ("one replica not read", disk_of(read(replica(12 * GB)), (), "broker 2 cannot be reached")),
        ("not known", disk_of(None, (), "broker 2 cannot be reached")),
    ):
        values = {
            name: getattr(disk, name)
            for name in ("partition_bytes", "usable_bytes", "growth_bytes_per_hour", "hours_until_full")
        }
        said[name] = impact_sentences({**row, **values, "disk_broker": disk.broker_id, "disk_error": disk.error})
    assert said == wording
