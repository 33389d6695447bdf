"""The partitions of a topic: open transactions, the ends of the logs, disks and compaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from txnscan.config import ConfigError, printable
from txnscan.explain.cleaning import SETTINGS, read_cleaning
from txnscan.explain.cluster_reads import (
    PARTITIONS_READ_MAX,
    Asking,
    failures_of,
    led,
    offsets_at,
    partition_facts,
    swept_by,
    why_unseen,
)
from txnscan.explain.facts import TIERED, Facts, PartitionFacts
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure
from txnscan.kafka.protocol.describe_configs import topic_settings
from txnscan.kafka.protocol.list_offsets import Offset, offset_of
from txnscan.kafka.security.acls import needing
from txnscan.kafka.security.needs import CONFIGS_OF_TOPICS
from txnscan.kafka.topology import ClusterView
from txnscan.sweeps.disk import PARTITIONS_MAX as DISKS_MAX
from txnscan.sweeps.disk import Replicas, read_replica_sizes
from txnscan.sweeps.names import absent_topic
from txnscan.waiting.ahead import end_of_log
from txnscan.waiting.disk import disk_of
from txnscan.waiting.impact import is_compacted
from txnscan.waiting.who_waits import read_topic_cleaning

# Compacted partitions of which the start of the log is read: the largest.
LOGS_READ_MAX = 5
# The settings that decide what a log keeps on its disk.
KEPT = (
    *("cleanup.policy", "retention.ms", "retention.bytes", TIERED),
    *("local.retention.ms", "local.retention.bytes"),
)


def ask_topic(asking: Asking, facts: Facts) -> Facts:
    """A topic, or one partition of it. Raises ConfigError if there is none."""
    topic, wanted = facts.symptom.topic or "", facts.symptom.partition
    partitions = () if wanted is None else (wanted,)
    config = replace(asking.config, topic_names=(topic,), partitions=partitions)
    view = asking.cluster.newest([topic])
    indexes = [index for one in view.topics if one.name == topic for index in one.indexes]
    if not indexes:
        unseen = why_unseen(asking, absent_topic(asking.cluster, "--topic", topic))
        return replace(facts, failures=(*facts.failures, unseen))
    if wanted is not None and wanted not in indexes:
        raise ConfigError("--partition", f"{printable(topic)} has no partition {wanted}; it has {len(indexes)}")
    keys = [(topic, index) for index in indexes if wanted in (None, index)]
    before, _ = offsets_at(asking, keys)
    still_open = [key for key, row in before.items() if row.last_stable_offset < row.high_watermark]
    swept = swept_by(asking, config, still_open)
    after, view = offsets_at(asking, keys)
    found = [partition_facts(key, swept, before.get(key), after.get(key)) for key in keys]
    read = asking.cluster.in_parallel(lambda one: _with_end(asking, view, one), found[:PARTITIONS_READ_MAX])
    newest = view.answered_by
    compacted, failure = _compacted(asking, newest, topic)
    settings = _settings(asking, newest, topic, KEPT)
    every = [replace(one, compacted=compacted, settings=settings) for one in (*read, *found[PARTITIONS_READ_MAX:])]
    every = _with_disks(asking, newest, every)
    if compacted:
        every = _with_cleaning(asking, view, every)
    held = any(one.still_open for one in every)
    return replace(
        facts,
        partitions=tuple(every),
        failures=(*facts.failures, *failures_of(swept), *([failure] if failure is not None and held else [])),
        sweep_id=swept.sweep_id,
        asked=len(keys),
    )


def _with_end(asking: Asking, view: ClusterView, one: PartitionFacts) -> PartitionFacts:
    """The partition with the end of its log, if it has no open transaction."""
    partition, end = led(view, (one.topic, one.partition)), one.high_watermark
    if partition is None or end is None or one.blocked_records:
        return one
    try:
        log_start = offset_of(asking.cluster.send, partition, Offset.LOG_START)
    except RequestFailed:
        return one
    return replace(one, ahead=end_of_log(asking.cluster.send, partition, log_start, end))


def _with_disks(asking: Asking, newest: int, partitions: Sequence[PartitionFacts]) -> list[PartitionFacts]:
    """The partitions, the first of them with the sizes of their replicas; those with blocked records come first."""
    blocked_first = sorted(partitions, key=lambda one: -(one.blocked_records or 0))
    wanted = [(one.topic, one.partition) for one in blocked_first[:DISKS_MAX]]
    sizes = read_replica_sizes(asking.cluster, newest, wanted)
    found = [(one, sizes.get((one.topic, one.partition), Replicas())) for one in partitions]
    return [replace(one, disk=disk_of(of.read(asking.now_ms(), None), (), of.error)) for one, of in found]


def _with_cleaning(asking: Asking, view: ClusterView, partitions: Sequence[PartitionFacts]) -> list[PartitionFacts]:
    """The partitions, the largest of them with the records at the start of their logs. Nothing is read if a transaction
    is open.
    """
    largest = sorted(partitions, key=lambda one: -(one.disk.partition_bytes or 0))[:LOGS_READ_MAX]
    if any(one.still_open for one in partitions):
        return list(partitions)
    settings = _settings(asking, view.answered_by, largest[0].topic, SETTINGS) if largest else {}

    def read(one: PartitionFacts) -> PartitionFacts:
        partition, end = led(view, (one.topic, one.partition)), one.last_stable_offset
        if partition is None or end is None or one.disk.read is None:
            return one
        of_leader = [each for each in one.disk.read.replicas if each.broker_id == partition.leader]
        size_bytes = of_leader[0].partition_bytes if of_leader else 0
        return replace(one, cleaning=read_cleaning(asking.cluster.send, partition, end, size_bytes, settings))

    done = {one.partition: one for one in asking.cluster.in_parallel(read, largest)}
    return [done.get(one.partition, one) for one in partitions]


def _settings(asking: Asking, newest: int, topic: str, names: Collection[str]) -> Mapping[str, str]:
    """These settings of the topic, by the broker with the newest metadata. Empty without an answer."""
    try:
        return topic_settings(asking.cluster.send, newest, topic, names)
    except RequestFailed:
        return {}


def _compacted(asking: Asking, newest: int, topic: str) -> tuple[bool | None, Failure | None]:
    """Whether the topic is compacted. None with a failure if that is not known."""
    found, failure = read_topic_cleaning(asking.cluster.send, newest, [topic])
    one = found.get(topic)
    if one is None:
        return None, failure
    if one.failure is not None:
        return None, needing(one.failure, CONFIGS_OF_TOPICS.on(topic)).within(topic)
    return bool(is_compacted(one.cleanup_policy)), None
