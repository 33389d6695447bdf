"""Read topics for the time up to which they are complete. The rule is in `waiting/complete_up_to.py`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from txnscan.coordinators.agreed_metadata import AgreedMetadata, LeaderUnknown
from txnscan.coordinators.cluster import Cluster
from txnscan.kafka.failure import Failure, FailureCode, Unobserved
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key, Partition
from txnscan.parallel import OnProgress
from txnscan.reads.proven_read import read_ends, unproven_row
from txnscan.reads.rows import ProvenRow
from txnscan.sweeps.observations import RECREATED
from txnscan.sweeps.reader import SweepReader
from txnscan.waiting.complete_up_to import PartitionRead, TopicRead

STAGE = "complete up to"
_NO_PARTITION = Failure("the brokers show no partition of the topic", FailureCode.LEFT_OUT)


def read_topics(
    cluster: Cluster, reader: SweepReader, topics: Collection[str], read_at_ms: int, on_progress: OnProgress
) -> tuple[tuple[TopicRead, ...], tuple[Unobserved, ...]]:
    """A read of each of these topics, and a failure for each partition without a proven read.

    read_at_ms: the clock before this call, so that it is before the first request. A partition that was created since
    has no record from before that time. All brokers are asked for the partitions, and the leader of a partition knows
    of it.
    """
    names = tuple(dict.fromkeys(topics))
    agreed = cluster.agreed_metadata({TRANSACTION_STATE_TOPIC, *names})
    keys = [(topic, index) for topic in names for index in agreed.indexes(topic)]
    rows, _ = reader.proven(keys, agreed, on_progress, read_ends)
    reads, errors, deadline = [], [], cluster.deadline
    for topic in names:
        # Executors leave out what they have not read when the time is up.
        of_topic = [rows.get(key) or _unread(key, deadline.time_is_up, read_at_ms) for key in keys if key[0] == topic]
        failures = _failures(topic, of_topic, agreed)
        reads.append(_topic_read(topic, of_topic, read_at_ms, {at: one.code for at, one in failures.items()}))
        errors += [Unobserved(STAGE, failure, None, topic, index) for index, failure in failures.items()]
    return tuple(reads), tuple(errors)


def _unread(key: Key, failure: Failure, read_at_ms: int) -> ProvenRow:
    topic, index = key
    return unproven_row(Partition(topic, "", index, leader=-1, leader_epoch=-1), failure, read_at_ms)


def _failures(topic: str, rows: Sequence[ProvenRow], agreed: AgreedMetadata) -> Mapping[int | None, Failure]:
    """The failure of each partition without a proven read; None stands for the topic."""
    if not rows:
        return {None: _why_unknown(topic, agreed)}
    failures: dict[int | None, Failure] = {row.partition: row.failure for row in rows if row.failure is not None}
    # Rows of different tries may be of different topics of this name.
    if len(_topic_ids(rows)) > 1:
        failures[None] = RECREATED
    return failures


def _why_unknown(topic: str, agreed: AgreedMetadata) -> Failure:
    try:
        agreed.partition(topic, 0)
    except LeaderUnknown as failed:
        return failed.failure
    return _NO_PARTITION


def _topic_ids(rows: Iterable[ProvenRow]) -> set[str]:
    return {row.topic_id for row in rows if row.failure is None}


def _topic_read(topic: str, rows: Sequence[ProvenRow], read_at_ms: int, codes: Mapping[int | None, str]) -> TopicRead:
    ids = _topic_ids(rows)
    return TopicRead(
        topic,
        ids.pop() if len(ids) == 1 else "",
        read_at_ms,
        tuple(
            PartitionRead(row.partition, row.leader_epoch, row.high_watermark, row.last_stable_offset)
            if row.failure is None
            else PartitionRead(row.partition, code=codes[row.partition])
            for row in rows
        ),
        codes.get(None),
    )
