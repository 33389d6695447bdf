"""Which incidents ended so that no election can undo it; and how: by a COMMIT marker or by an ABORT marker.

Theory
======
DescribeProducers shows the whole log of a leader, also behind the high watermark. So a proven read that no longer shows
a transaction may have seen a marker that the next leader lacks. Then the transaction is open again. The last stable
offset is no proof: it waits for a marker that is not replicated (`ProducerStateManager.unreplicatedTxns`), but a broker
that restarts forgets to wait.

- **Replicated**: after the last read, the leader shows the end of its log, and later a high watermark that is not
  below it, both at the leader epoch of the read. So all that the read saw is below the high watermark, on all in-sync
  replicas, and no clean election loses it.
- **How**: the open data of a producer id ends at its next marker, whoever wrote it. An earlier proven read showed the
  transaction open at the end of the log. So it ended by the first marker of its producer id from that offset on. That
  marker is known only if the log still has all offsets from there to the marker: retention, DeleteRecords and
  compaction remove markers, and a later marker belongs to a later transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from txnscan.coordinators.agreed_metadata import WITH_TOPIC, AgreedMetadata, LeaderUnknown
from txnscan.coordinators.cluster import RETRY_WAIT_S, Cluster
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.fetch import Reading, fetch
from txnscan.kafka.protocol.list_offsets import Offset, list_offsets
from txnscan.kafka.topology import Key, Partition
from txnscan.reads.observation import TransactionKey
from txnscan.sweeps.history import Incidents
from txnscan.sweeps.identity import BYTES_MAX, PIECE_BYTES
from txnscan.sweeps.result import COMPLETED, ENDED, TORN, Scan
from txnscan.verdict.evidence import Outcome

# A follower that keeps up has the end of a busy log a few milliseconds later.
_TRIES = 3


def with_ends(scan: Scan, incidents: Incidents, agreed: AgreedMetadata) -> list[Partition]:
    """The partitions in whose logs incidents seem to have ended, with their leaders.

    agreed: the agreed metadata that confirmed the last read.
    """
    keys = {which.key for which, how in scan.seen_over(incidents).items() if how not in WITH_TOPIC}
    return [agreed.partition(*key) for key in sorted(keys)]


def replicated(cluster: Cluster, partitions: Collection[Partition]) -> frozenset[Key]:
    """Those of these partitions whose log, up to its present end, is on all in-sync replicas."""
    ends = _offsets(cluster, partitions, Offset.LOG_END)
    waiting, found = [one for one in partitions if one.key in ends], set[Key]()
    for attempt in range(_TRIES):
        if not waiting or (attempt and cluster.deadline.is_up):
            break
        if attempt:
            cluster.sleep(RETRY_WAIT_S)
        marks = _offsets(cluster, waiting, Offset.HIGH_WATERMARK)
        found |= {key for key, mark in marks.items() if mark >= ends[key]}
        waiting = [one for one in waiting if one.key not in found]
    return frozenset(found)


def _offsets(cluster: Cluster, partitions: Iterable[Partition], which: Offset) -> dict[Key, int]:
    """This offset of each partition whose leader shows it."""
    of_leader: dict[int, list[Partition]] = defaultdict(list)
    for partition in partitions:
        of_leader[partition.leader].append(partition)

    def ask(led: list[Partition]) -> dict[Key, int]:
        try:
            listed = list_offsets(cluster.send, led[0].leader, led, which)
        except RequestFailed:
            return {}
        return {key: one.offset for key, one in listed.items() if one.failure is None}

    return {key: offset for one in cluster.in_parallel(ask, of_leader.values()) for key, offset in one.items()}


def endings(send: Send, agreed: AgreedMetadata, incidents: Incidents, scan: Scan) -> dict[TransactionKey, str]:
    """COMPLETED or TORN for each incident of committed data whose end this sweep proved, if the log shows the marker.

    agreed: the agreed metadata after the last read.
    """
    found = {}
    for which, how in scan.over(incidents).items():
        end_offset = incidents[which].end_offset
        if how != ENDED or incidents[which].outcome != Outcome.COMMITTED or end_offset is None:
            continue
        try:
            commits = first_marker(send, agreed.partition(*which.key), which.producer_id, end_offset)
        except (RequestFailed, LeaderUnknown):
            continue
        if commits is not None:
            found[which] = COMPLETED if commits else TORN
    return found


def first_marker(send: Send, partition: Partition, producer_id: int, offset: int) -> bool | None:
    """Whether the first marker of the producer id from this offset on is a COMMIT marker. None if the log lacks an
    offset before it, or if there is none in the first BYTES_MAX. Raises RequestFailed.
    """
    reading, reached = Reading("it"), offset
    while reading.size_bytes < BYTES_MAX:
        asked = reached
        fetched = fetch(send, partition, asked, PIECE_BYTES, records=False)
        for batch in fetched.batches:
            if batch.base_offset > reached:
                return None
            if batch.is_control and batch.producer_id == producer_id:
                return batch.commits
            reached = max(reached, batch.last_offset + 1)
        if reading.is_done(asked, reached, fetched.high_watermark, fetched.size_bytes):
            return None
    return None
