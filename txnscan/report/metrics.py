"""Sweeps as Prometheus metrics: pure functions from the state of a cluster to families, and a collector of them.

A scrape shows the last finished sweep. `NAMES` lists all metrics, which docs/monitoring/README.md repeats. No
producer id and no transactional id is a label: they come and go without end. Topics are labels, the worst `TOPICS_MAX`
of them; the others are together as `OTHERS`, which is no legal name of a topic.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from txnscan.kafka.topology import Key
from txnscan.sweeps.result import Scan
from txnscan.verdict.evidence import Judged, Verdict
from txnscan.version import __version__
from txnscan.waiting.blocking import end_of
from txnscan.waiting.disk import Disk
from txnscan.waiting.impact import Impact

TOPICS_MAX = 100
OTHERS = "(other)"

# KIP-664's gauge of the brokers, `kafka.server:type=ReplicaManager,name=PartitionsWithLateTransactionsCount`, as
# jmx_exporter names it by the rule that its examples for Kafka have (`kafka_server_$1_$2`, `lowercaseOutputName`).
LATE_PARTITIONS = "kafka_server_replicamanager_partitionswithlatetransactionscount"

# Every family: what it shows, and its labels.
NAMES: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "txnscan_build_info": ("The version of txnscan", ("version",)),
        "txnscan_up": ("1 if the last sweep of the cluster finished, 0 if it failed or is overdue", ("cluster",)),
        "txnscan_cluster_info": ("The id of the cluster with this name", ("cluster", "cluster_id")),
        "txnscan_last_sweep_timestamp_seconds": (
            "End of the last finished sweep, 0 before the first. Metrics of transactions are from this sweep",
            ("cluster",),
        ),
        "txnscan_last_complete_sweep_timestamp_seconds": (
            "End of the last complete sweep, 0 before the first",
            ("cluster",),
        ),
        "txnscan_sweep_duration_seconds": ("Duration of the last finished sweep", ("cluster",)),
        "txnscan_sweep_read_bytes": (
            "Bytes of producer states and __transaction_state that the last sweep read, nearly all of its reads",
            ("cluster",),
        ),
        "txnscan_sweeps_total": ("Sweeps since the start of the process, by result", ("cluster", "result")),
        "txnscan_sweep_complete": (
            "1 if the last sweep was complete (observed everything in scope), else 0",
            ("cluster",),
        ),
        "txnscan_coverage_ratio": (
            "Share of partitions that answered, and of coordinator partitions with a proof",
            ("cluster", "of"),
        ),
        "txnscan_partitions": (
            "Partitions in scope (planned), and partitions that did not answer (failed)",
            ("cluster", "state"),
        ),
        "txnscan_scan_errors": ("Errors of the last sweep, by step", ("cluster", "stage")),
        "txnscan_candidates": ("Hanging and late transactions (KIP-664 candidates)", ("cluster",)),
        "txnscan_open_transactions": (
            "Open transactions by verdict, reason and lateness",
            ("cluster", "topic", "verdict", "reason", "late"),
        ),
        "txnscan_oldest_transaction_seconds": (
            "Age of the oldest open transaction of a topic and verdict",
            ("cluster", "topic", "verdict"),
        ),
        "txnscan_oldest_open_transaction_seconds": (
            "Age of the oldest open transaction of the cluster, 0 without open transactions",
            ("cluster",),
        ),
        "txnscan_blocked_records": (
            "Offsets between the last stable offset and the high watermark that read_committed consumers do not get, "
            "on partitions with a hanging, overdue or unproven transaction",
            ("cluster", "topic"),
        ),
        "txnscan_blocked_groups": (
            "Consumer groups that wait for a hanging transaction, of the partition with most groups. Absent if the "
            "number of one partition is not known",
            ("cluster", "topic"),
        ),
        "txnscan_blocked_readers": (
            "Streaming queries of --spark-checkpoint that wait for a hanging transaction, of the partition with most. "
            "Absent without checkpoints, and if the number of one partition is not known",
            ("cluster", "topic"),
        ),
        "txnscan_blocking_transactions": (
            "Live transactions that hold readers back: groups or streaming queries wait for them, or they are older "
            "than --blocking-after (past_limit) and the last stable offset is at them",
            ("cluster", "topic", "past_limit"),
        ),
        "txnscan_blocking_records": (
            "Offsets between the last stable offset and the high watermark, on partitions with a live transaction that "
            "holds readers back",
            ("cluster", "topic"),
        ),
        "txnscan_blocking_groups": (
            "Consumer groups that wait for a live transaction, of the partition with most groups. Absent if the number "
            "of one partition is not known",
            ("cluster", "topic"),
        ),
        "txnscan_blocking_ends_by_timestamp_seconds": (
            "Time by which coordinators end the live transactions that hold readers back. Absent if the end of one of "
            "them is not known, and under two-phase commit",
            ("cluster", "topic"),
        ),
        "txnscan_unwritable_partitions": (
            "Partitions that take no writes, as too few replicas are in sync: of __transaction_state (log), and of "
            "hanging, decided, overdue and old transactions (data). Absent without open transactions",
            ("cluster", "of"),
        ),
        "txnscan_markers_at_risk": (
            "Partitions without a leader that will hang when an open transaction ends (KAFKA-20734). Absent without "
            "open transactions",
            ("cluster",),
        ),
        "txnscan_stop_leaderless_transactions": (
            "Open transactions on partitions that have no leader once this broker stops. Their commit may be torn then "
            "(KAFKA-20734). Only of `watch`, and absent without open transactions",
            ("cluster", "broker"),
        ),
        "txnscan_compaction_blocked_bytes": (
            "Size of the largest partition of a compacted or tiered topic whose compaction or tiering a transaction "
            "blocks",
            ("cluster", "topic"),
        ),
        "txnscan_compaction_blocked_usable_bytes": (
            "Free space of the fullest volume with such a partition. Absent before Kafka 3.3",
            ("cluster", "topic"),
        ),
        "txnscan_compaction_blocked_full_seconds": (
            "Time until the first of these volumes is full, by the growth of one such partition alone. Absent if no "
            "partition is known to grow",
            ("cluster", "topic"),
        ),
        "txnscan_last_stable_offset_stuck_seconds": (
            "Time for which the last stable offset of a partition with blocked records has not moved, the longest of "
            "the topic",
            ("cluster", "topic"),
        ),
        "txnscan_complete_up_to_timestamp_seconds": (
            "Time up to which read_committed consumers can read everything of a topic of --complete-up-to, 0 if it is "
            "not known",
            ("cluster", "topic"),
        ),
        LATE_PARTITIONS: (
            "Partitions that the broker leads and that have a late transaction, by the ages that txnscan measures. "
            "The broker's own gauge uses only record timestamps",
            ("cluster", "broker"),
        ),
        "txnscan_open_incidents": ("Hanging transactions without proof of their end", ("cluster",)),
        "txnscan_table_writes_total": ("Writes of sweeps to the tables, by result", ("cluster", "result")),
        "txnscan_notifications_total": ("Notifications, by result", ("target", "result")),
        "txnscan_notifications_waiting": ("Notifications that are not sent yet", ("target",)),
    }
)
_COUNTERS = ("txnscan_sweeps_total", "txnscan_table_writes_total", "txnscan_notifications_total")

# Since when (epoch milliseconds) a partition's last stable offset has been seen where it is, by topic, topic id and
# partition.
Stuck = Mapping[tuple[str, str, int], tuple[int, int]]
# A metric's name, its labels without the cluster's, and its value.
Sample = tuple[str, list[str], float]


@dataclass(frozen=True, slots=True)
class Watched:
    """The state of a cluster at a scrape.

    name: what it is called in labels. scan: the last finished sweep, None before the first. up: whether the very
    last sweep finished. last_complete_ms: the end of the last complete sweep, None before the first. stuck: None
    without an earlier sweep. sweeps, writes: the number of each result, "done" or "failed".
    samples: of the sweep and its transactions, made once, which takes 0.1 s with 10,000 transactions. They hold no age
    by the clock of the scrape.
    """

    name: str
    scan: Scan | None
    up: bool
    last_complete_ms: int | None = None
    stuck: Stuck | None = None
    open_incidents: int | None = None
    sweeps: Mapping[str, int] = field(default_factory=dict)
    writes: Mapping[str, int] = field(default_factory=dict)
    samples: tuple[Sample, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        scan = self.scan
        made = () if scan is None else (*_of_sweep(scan), *_of_transactions(scan, self.stuck), *_of_topics(scan))
        object.__setattr__(self, "samples", made)


@dataclass(frozen=True, slots=True)
class Notified:
    """The notifications of a target: the number of each result ("sent", "failed", "dropped"), and of those waiting."""

    target: str
    ended: Mapping[str, int]
    waiting: int


def watched_once(name: str, scan: Scan | None) -> Watched:
    """The state of a cluster after its first sweep. scan: None if the sweep failed."""
    if scan is None:
        return Watched(name, None, up=False)
    return Watched(name, scan, up=True, last_complete_ms=scan.finished_at_ms if scan.complete else None)


def families(clusters: Iterable[Watched], notified: Iterable[Notified] = ()) -> list[Metric]:
    """The families of `NAMES` that have samples, in that order."""
    found: dict[str, Metric] = {
        name: (CounterMetricFamily if name in _COUNTERS else GaugeMetricFamily)(name, meaning, labels=labels)
        for name, (meaning, labels) in NAMES.items()
    }

    def add(name: str, labels: Sequence[str], value: float) -> None:
        found[name].add_metric(labels, value)  # type: ignore[attr-defined]

    add("txnscan_build_info", [__version__], 1)
    for watched in clusters:
        for name, labels, value in _of_cluster(watched):
            add(name, [watched.name, *labels], value)
    for one in notified:
        for result, count in sorted(one.ended.items()):
            add("txnscan_notifications_total", [one.target, result], count)
        add("txnscan_notifications_waiting", [one.target], one.waiting)
    return [family for family in found.values() if family.samples]


class SweepCollector(Collector):
    """Gives a registry, at each scrape, the families of what `now` returns then."""

    def __init__(self, now: Callable[[], tuple[Iterable[Watched], Iterable[Notified]]]) -> None:
        self._now = now

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        yield from families(*self._now())


def metrics_text(clusters: Iterable[Watched]) -> str:
    """The families as text, in the format of Prometheus, which node_exporter's textfile collector reads."""
    registry = CollectorRegistry(auto_describe=False)
    known = tuple(clusters)
    registry.register(SweepCollector(lambda: (known, ())))
    return generate_latest(registry).decode()


def stuck_since(scan: Scan, before: Stuck) -> Stuck:
    """Since when each last stable offset that blocks records has been seen where it is.

    A partition that this sweep has an error about, or whose offsets it does not know, keeps its earlier value:
    no evidence shows that it moved.
    """
    not_seen = {(error.topic, error.partition) for error in scan.errors}
    unmeasured = (one for one in scan.transactions if not one.healthy and one.blocked_records is None)
    not_seen |= {one.observation.key for one in unmeasured}
    kept = {where: since for where, since in before.items() if (where[0], where[2]) in not_seen}
    for judged in _blocking(scan).values():
        o = judged.observation
        where = (o.topic, o.topic_id, o.partition)
        offset = o.second.last_stable_offset
        if offset is None:
            continue
        earlier = before.get(where)
        kept[where] = earlier if earlier is not None and earlier[0] == offset else (offset, o.second.read_at_ms)
    return kept


def _of_cluster(watched: Watched) -> Iterator[Sample]:
    scan = watched.scan
    yield "txnscan_up", [], watched.up
    yield "txnscan_last_sweep_timestamp_seconds", [], scan.finished_at_ms / 1_000 if scan is not None else 0
    yield "txnscan_last_complete_sweep_timestamp_seconds", [], (watched.last_complete_ms or 0) / 1_000
    for result, count in sorted(watched.sweeps.items()):
        yield "txnscan_sweeps_total", [result], count
    for result, count in sorted(watched.writes.items()):
        yield "txnscan_table_writes_total", [result], count
    if watched.open_incidents is not None:
        yield "txnscan_open_incidents", [], watched.open_incidents
    yield from watched.samples


def _of_sweep(scan: Scan) -> Iterator[Sample]:
    yield "txnscan_cluster_info", [scan.cluster_id], 1
    yield "txnscan_sweep_duration_seconds", [], (scan.finished_at_ms - scan.started_at_ms) / 1_000
    yield "txnscan_sweep_read_bytes", [], scan.read_bytes
    yield "txnscan_sweep_complete", [], scan.complete
    answered = scan.partitions_planned - scan.partitions_failed
    yield "txnscan_coverage_ratio", ["partitions"], _share(answered, scan.partitions_planned)
    yield "txnscan_coverage_ratio", ["coordinators"], _share(scan.coordinators_proven, scan.coordinators_planned)
    yield "txnscan_partitions", ["planned"], scan.partitions_planned
    yield "txnscan_partitions", ["failed"], scan.partitions_failed
    for stage, count in sorted(Counter(error.stage for error in scan.errors).items()):
        yield "txnscan_scan_errors", [stage], count
    yield "txnscan_candidates", [], len(scan.candidates)
    if scan.writes.partitions:
        stopped = [one for one in scan.writes.stopped if not one.replicas.has_no_leader]
        logs = sum(one.is_transaction_log for one in stopped)
        yield "txnscan_unwritable_partitions", ["log"], logs
        yield "txnscan_unwritable_partitions", ["data"], len(stopped) - logs
        yield "txnscan_markers_at_risk", [], len(scan.writes.at_risk)
    if scan.writes.behind_last is not None:
        for broker in sorted({*scan.broker_ids, *scan.writes.behind_last}):
            yield "txnscan_stop_leaderless_transactions", [str(broker)], scan.writes.behind_last.get(broker, 0)


def _of_transactions(scan: Scan, stuck: Stuck | None) -> Iterator[Sample]:
    still_open = [judged for judged in scan.transactions if judged.judgement.verdict is not Verdict.GONE]
    blocking = _blocking(scan)
    live = scan.blocking
    label = _topic_labels(still_open, live, {topic for topic, _, _ in stuck or ()})

    counts: Counter[tuple[str, ...]] = Counter()
    oldest_ms: dict[tuple[str, str], int] = defaultdict(int)
    for judged in still_open:
        topic, of = label(judged.observation.topic), judged.judgement
        counts[topic, of.verdict, of.reason, str(of.late).lower()] += 1
        oldest_ms[topic, of.verdict] = max(oldest_ms[topic, of.verdict], of.age_ms)
    for labels, count in sorted(counts.items()):
        yield "txnscan_open_transactions", list(labels), count
    for of_topic, age_ms in sorted(oldest_ms.items()):
        yield "txnscan_oldest_transaction_seconds", list(of_topic), age_ms / 1_000
    yield "txnscan_oldest_open_transaction_seconds", [], max(oldest_ms.values(), default=0) / 1_000

    blocked: Counter[str] = Counter()
    for (topic, _), judged in blocking.items():
        blocked[label(topic)] += judged.blocked_records or 0
    for topic, records in sorted(blocked.items()):
        yield "txnscan_blocked_records", [topic], records

    hanging = [judged for judged in still_open if judged.judgement.verdict is Verdict.HANGING]
    for topic, count in _most(scan, hanging, label, _groups):
        yield "txnscan_blocked_groups", [topic], count
    for topic, count in _most(scan, hanging, label, _readers):
        yield "txnscan_blocked_readers", [topic], count
    yield from _of_live(scan, live, label)
    yield from _of_disks(scan, label)

    stuck_ms: dict[str, int] = defaultdict(int)
    for (topic, _, _), (_, since_ms) in (stuck or {}).items():
        stuck_ms[label(topic)] = max(stuck_ms[label(topic)], scan.finished_at_ms - since_ms)
    for topic, age_ms in sorted(stuck_ms.items()):
        yield "txnscan_last_stable_offset_stuck_seconds", [topic], max(age_ms, 0) / 1_000

    late = {(j.observation.leader, j.observation.key) for j in still_open if j.judgement.late}
    of_broker = Counter(leader for leader, _ in late)
    for broker_id in sorted({*scan.broker_ids, *of_broker}):
        yield LATE_PARTITIONS, [str(broker_id)], of_broker[broker_id]


def _of_disks(scan: Scan, label: Callable[[str], str]) -> Iterator[Sample]:
    """The disks behind blocked compaction or tiering, the worst of each topic."""
    by_topic: dict[str, list[Disk]] = defaultdict(list)
    for which, impact in scan.impacts.items():
        by_topic[label(which.topic)].append(impact.disk)
    for topic, disks in sorted(by_topic.items()):
        sizes = [one.partition_bytes for one in disks if one.partition_bytes is not None]
        usable = [one.usable_bytes for one in disks if one.usable_bytes is not None]
        full_s = [one.seconds_until_full for one in disks if one.seconds_until_full is not None]
        for name, worst in (("bytes", max(sizes, default=None)), ("usable_bytes", min(usable, default=None))):
            if worst is not None:
                yield f"txnscan_compaction_blocked_{name}", [topic], worst
        if full_s:
            yield "txnscan_compaction_blocked_full_seconds", [topic], min(full_s)


def _of_live(scan: Scan, live: Sequence[Judged], label: Callable[[str], str]) -> Iterator[Sample]:
    """live: the live transactions that hold readers back."""
    counts: Counter[tuple[str, str]] = Counter()
    records: dict[tuple[str, Key], int] = {}
    ends_ms: dict[str, list[int | None]] = defaultdict(list)
    for judged in live:
        topic = label(judged.observation.topic)
        counts[topic, str(judged.judgement.age_ms > scan.blocking_after_ms).lower()] += 1
        records[topic, judged.observation.key] = judged.blocked_records or 0
        ends_ms[topic].append(end_of(judged, scan.writes))
    for labels, count in sorted(counts.items()):
        yield "txnscan_blocking_transactions", list(labels), count
    by_topic: Counter[str] = Counter()
    for (topic, _), blocked in records.items():
        by_topic[topic] += blocked
    for topic, blocked in sorted(by_topic.items()):
        yield "txnscan_blocking_records", [topic], blocked
    for topic, count in _most(scan, live, label, _groups):
        yield "txnscan_blocking_groups", [topic], count
    for topic, ends in sorted(ends_ms.items()):
        known = [end_ms for end_ms in ends if end_ms is not None]
        if len(known) == len(ends):
            yield "txnscan_blocking_ends_by_timestamp_seconds", [topic], max(known) / 1_000


def _groups(impact: Impact) -> int | None:
    return impact.groups_blocked


def _readers(impact: Impact) -> int | None:
    return impact.readers_blocked


def _most(
    scan: Scan,
    transactions: Iterable[Judged],
    label: Callable[[str], str],
    blocked: Callable[[Impact], int | None],
) -> Iterator[tuple[str, int]]:
    """For each topic, the number of groups or queries that wait for one of these transactions, of the one with most.

    A group that stands on several partitions is counted once on each of them: the sum would count it often. A count
    that is not known could be the largest of its topic, so the topic is omitted.
    """
    counts: dict[str, int] = {}
    unknown: set[str] = set()
    for judged in transactions:
        impact, topic = scan.impact(judged), label(judged.observation.topic)
        count = blocked(impact) if impact is not None else None
        if count is not None:
            counts[topic] = max(counts.get(topic, 0), count)
        elif impact is not None and judged.holds_lso is not False:
            unknown.add(topic)
    return ((topic, count) for topic, count in sorted(counts.items()) if topic not in unknown)


def _of_topics(scan: Scan) -> Iterator[Sample]:
    """The user names these topics, so their number has no limit here."""
    for read in scan.topic_reads:
        yield "txnscan_complete_up_to_timestamp_seconds", [read.topic], (read.complete_up_to_ms or 0) / 1_000


def _blocking(scan: Scan) -> dict[Key, Judged]:
    """For each partition with records that an unhealthy transaction blocks: a transaction that has their number."""
    return {j.observation.key: j for j in scan.transactions if not j.healthy and j.blocked_records}


def _topic_labels(still_open: Iterable[Judged], live: Iterable[Judged], others: Iterable[str]) -> Callable[[str], str]:
    """The label of a topic. If there are too many topics, topics with candidates come first, then topics with other
    unhealthy transactions, with live ones that hold readers back (`live`), and with the oldest transactions. Topics
    without open transactions come last.
    """
    worst = dict.fromkeys(others, (False, False, False, -1))
    blocking = {judged.observation.transaction_key for judged in live}
    for judged in still_open:
        blocks = judged.observation.transaction_key in blocking
        rank = (judged.candidate, not judged.healthy, blocks, judged.judgement.age_ms)
        topic = judged.observation.topic
        worst[topic] = max(rank, worst.get(topic, rank))
    shown = frozenset(sorted(worst, key=lambda topic: (worst[topic], topic), reverse=True)[:TOPICS_MAX])
    return lambda topic: topic if topic in shown else OTHERS


def _share(of: int, planned: int) -> float:
    return of / planned if planned else 1.0
