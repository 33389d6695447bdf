"""How the incidents of committed data ended: completed by a COMMIT marker, or torn by an ABORT marker.

The open data of a producer id ends at its next marker, whoever wrote it. An earlier proven read showed the transaction
open at the end of the log. So it ended by the first marker of its producer id from that offset on. That marker is known
only if the log still has all offsets from there to the marker: retention, DeleteRecords and compaction remove markers,
and a later marker belongs to a later transaction.
"""

from __future__ import annotations

from txnscan.coordinators.agreed_metadata import AgreedMetadata, LeaderUnknown
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.fetch import Reading, fetch
from txnscan.kafka.topology import Partition
from txnscan.reads.observation import TransactionKey
from txnscan.sweeps.history import Incidents
from txnscan.sweeps.identity import BYTES_MAX, PIECE_BYTES
from txnscan.sweeps.result import COMPLETED, ENDED, TORN, Scan
from txnscan.verdict.evidence import Outcome


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
