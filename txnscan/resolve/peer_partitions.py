"""Search a transaction's other partitions for a COMMIT marker, as evidence that it committed.

In a partition's log the marker follows everything that its transaction wrote. So the log is read from one day before
the transaction began, by the leader's clock, to the high watermark. Only batch headers are read, in pieces, up to a
limit (`BYTES_MAX`).
"""

from __future__ import annotations

from collections.abc import Callable

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.fetch import Reading, fetch
from txnscan.kafka.protocol.list_offsets import Offset, high_watermark, list_offsets, offset_at
from txnscan.kafka.topology import Partition
from txnscan.txnlog.facts import SeenMarker
from txnscan.verdict.evidence import PeerPartitions

_PIECE_BYTES = 8_388_608
# The search reads at most this much of one partition.
BYTES_MAX = 4_294_967_296
# The coordinator's clock gives the start of the transaction. The clock of the partition's leader gives the time of the
# marker. If the leader's clock is behind by more than this, the marker is not found.
CLOCKS_DIFFER_MS_MAX = 86_400_000


def commit_seen(
    send: Send, peers: PeerPartitions, producer_id: int, partition_of: Callable[[str, int], Partition]
) -> SeenMarker | None:
    """A COMMIT marker of this producer id on a peer partition, at an epoch that the transaction's marker can have;
    else None.

    partition_of: gives the partition with the leader that all brokers agree on. Raises RequestFailed if one of the
    partitions cannot be read: then the search proves nothing.
    """
    for name in peers.partitions:
        topic, _, index = name.rpartition("-")
        partition = partition_of(topic, int(index))
        found = _commit_marker(send, partition, producer_id, peers)
        if found is not None:
            return found
    return None


def _commit_marker(send: Send, partition: Partition, producer_id: int, peers: PeerPartitions) -> SeenMarker | None:
    where = f"{partition.topic}-{partition.partition}"
    try:
        high_watermark(send, partition)
    except RequestFailed as failed:
        raise RequestFailed(failed.failure.within(where)) from None
    offset = _first_since(send, partition, peers.since_ms - CLOCKS_DIFFER_MS_MAX)
    reading = Reading(where)
    while offset is not None and reading.size_bytes < BYTES_MAX:
        fetched = fetch(send, partition, offset, _PIECE_BYTES, records=False)
        for batch in fetched.batches:
            ours = (batch.producer_id, batch.producer_epoch in peers.marker_epochs) == (producer_id, True)
            if batch.commits and ours:
                return SeenMarker(*partition.key, batch.base_offset, producer_id, batch.producer_epoch)
        reached = fetched.next_offset(offset)
        if reading.is_done(offset, reached, fetched.high_watermark, fetched.size_bytes):
            return None
        offset = reached
    if offset is None:
        return None
    size = f"more than {BYTES_MAX >> 30} GiB"
    raise RequestFailed(f"{where} has {size} since the transaction began, which is too much to look through")


def _first_since(send: Send, partition: Partition, time_ms: int) -> int | None:
    """The first offset whose record is not older than this time; None if all records are older. If no time is known
    (negative), the start of the log.
    """
    if time_ms < 0:
        listed = list_offsets(send, partition.leader, [partition], Offset.LOG_START)[partition.key]
    else:
        listed = offset_at(send, partition, time_ms)
    if listed.failure is not None:
        raise RequestFailed(listed.failure.within(f"{partition.topic}-{partition.partition}"))
    return listed.offset if listed.offset >= 0 else None
