"""Read the present positions of a cluster, to compare them with the stored ones. The theory is in `restored.py`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from txnscan.coordinators.agreed_metadata import AgreedMetadata, LeaderUnknown
from txnscan.coordinators.cluster import Cluster, ClusterUnreachable
from txnscan.coordinators.metadata_image import Latest
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.offset_for_leader_epoch import epoch_bounds
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key, Partition
from txnscan.reads.observation import TransactionKey
from txnscan.reads.rows import ProvenRow
from txnscan.sweeps.history import Incidents
from txnscan.sweeps.restored import Fall, LogPosition, PartitionOfTopicId, Past, Present, fall, over_since
from txnscan.waiting.complete_up_to import TopicRead


def offset_of_all(latest: Latest) -> int | None:
    """The highest offset of an image. None if a broker of the cluster did not report one."""
    named = [latest.reported.get(broker.broker_id) for broker in latest.view.brokers]
    return latest.offset if named and all(isinstance(answer, int) for answer in named) else None


def offset_of_any(latest: Latest, of_all: int | None) -> int | None:
    """The offset to store: `of_all`, or the highest one that a broker reported. Each is an offset of this history."""
    return of_all if of_all is not None or latest.outside_kraft else latest.offset


def offset_now(cluster: Cluster, before: Latest, past: Past) -> int | None:
    """The same, read after the stored offset. The offsets of the plan may be from before that: they are only good
    enough if they show no fall.
    """
    offset = offset_of_all(before)
    if offset is None or past.image_offset is None or offset >= past.image_offset:
        return offset
    try:
        return offset_of_all(cluster.latest([]))
    except ClusterUnreachable:
        return None


def of_rows(rows: Iterable[ProvenRow]) -> list[LogPosition]:
    """The positions of proven reads."""
    return [
        LogPosition(row.topic, row.topic_id, row.partition, row.leader_epoch, row.high_watermark)
        for row in rows
        if row.failure is None
    ]


def of_topics(reads: Iterable[TopicRead]) -> list[LogPosition]:
    """The positions in reads of topics."""
    return [
        LogPosition(read.topic, read.topic_id, one.partition, one.leader_epoch, one.high_watermark)
        for read in reads
        for one in read.partitions
        if one.code is None
    ]


def of_transaction_log(agreed: AgreedMetadata) -> list[LogPosition]:
    """The positions of `__transaction_state`, by the metadata of all brokers."""
    found = []
    for index in agreed.indexes(TRANSACTION_STATE_TOPIC):
        with suppress(LeaderUnknown):
            p = agreed.partition(TRANSACTION_STATE_TOPIC, index)
            found.append(LogPosition(p.topic, p.topic_id, p.partition, p.leader_epoch))
    return found


def of_incidents(incidents: Incidents, past: Past) -> list[LogPosition]:
    """The positions at which this history's incidents were seen last."""
    return [
        one.position(which) for which, one in incidents.items() if one.history == past.history and one.leader_epoch >= 0
    ]


def ends_of(
    cluster: Cluster, past: Past, positions: Collection[LogPosition], agreed: AgreedMetadata | None
) -> dict[tuple[PartitionOfTopicId, int], int]:
    """The ends of the leader epochs that are over since they were stored, as far as leaders answer: where the first
    later epoch begins. agreed: the last one, None to ask for it if it is needed.
    """
    wanted = over_since(past, positions)
    keys = {one.of: (one.topic, one.partition) for one in positions if one.of in wanted}
    if not keys:
        return {}
    known = cluster.agreed_metadata({topic for topic, _ in keys.values()}) if agreed is None else agreed

    def ask(of: PartitionOfTopicId) -> Mapping[int, int]:
        with suppress(RequestFailed, LeaderUnknown):
            return _ends_in(cluster, known.partition(*keys[of]), of, wanted[of])
        return {}

    asked = sorted(keys)
    return {
        (of, epoch): end
        for of, ends in zip(asked, cluster.in_parallel(ask, asked), strict=True)
        for epoch, end in ends.items()
    }


def _ends_in(
    cluster: Cluster, partition: Partition, of: PartitionOfTopicId, epochs: Collection[int]
) -> Mapping[int, int]:
    return epoch_bounds(cluster.send, partition, epochs) if partition.topic_id == of[0] else {}


def open_in(rows: Mapping[Key, ProvenRow], ended: Collection[TransactionKey]) -> dict[TransactionKey, int]:
    """The leader epochs of the proven reads that show these transactions open."""
    found = {}
    for which in ended:
        row = rows.get(which.key)
        if row is None or row.failure is not None or row.topic_id != which.topic_id:
            continue
        if any((p.producer_id, p.start_offset) == (which.producer_id, which.start_offset) for p in row.open_producers):
            found[which] = row.leader_epoch
    return found


def fall_in_topics(
    cluster: Cluster, past: Past, earlier: Iterable[TopicRead], reads: Iterable[TopicRead]
) -> Fall | None:
    """How these reads of topics, and the metadata after them, show that the history of the cluster went back since the
    stored positions and these earlier reads.
    """
    past = replace(past, positions=(*past.positions, *of_topics(earlier)))
    if past.image_offset is None and not past.positions:
        return None
    positions = of_topics(reads)
    try:
        offset = offset_of_all(cluster.latest([]))
    except ClusterUnreachable:
        offset = None
    return fall(past, Present(offset, tuple(positions), ends_of(cluster, past, positions, None)))
