"""Decide whether an open transaction continues an incident whose first records are gone.

Retention and DeleteRecords move the log start past the first record of an open transaction. If a replica then rebuilds
its producer state from the remaining records, because it is new or lost its snapshot, it shows a later start offset
(`ProducerStateManager`). The transaction continues the incident if

- topic id, partition, producer id and producer epoch are the same,
- the incident's start offset is below the log start,
- between the log start and the new start offset there is no marker of the producer id,
- the first remaining record is not later than the last record that a sweep saw: its sequence number is not higher.

Otherwise it is another transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

from txnscan.coordinators.metadata_quorum import LeaderUnknown, MetadataQuorum
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.fetch import Reading, fetch
from txnscan.kafka.protocol.list_offsets import Offset, list_offsets
from txnscan.kafka.protocol.record_batch import Batch
from txnscan.kafka.topology import Partition
from txnscan.reads.observation import Observation, TransactionKey
from txnscan.sweeps.history import Incident, Incidents

_PIECE_BYTES = 1024 * 1024
# At most this much is read between the log start and the start offset.
BYTES_MAX = 64 * 1024 * 1024


def continued(
    observations: Iterable[Observation], incidents: Incidents, read: Callable[[Observation, TransactionKey], bool]
) -> list[Observation]:
    """The observations. An observation that continues an incident has the incident's start offset in `incident_offset`.

    read: reads the partition, and returns whether an observed transaction continues this incident.
    """
    of_producer: dict[TransactionKey, list[TransactionKey]] = defaultdict(list)
    for which in incidents:
        of_producer[_anywhere(which)].append(which)
    found = []
    for o in observations:
        ours = o.transaction_key
        before = () if ours in incidents else of_producer[_anywhere(ours)]
        same = next((which for which in before if _may_be(o, which, incidents[which]) and read(o, which)), None)
        found.append(o if same is None else replace(o, incident_offset=same.start_offset))
    return found


def _anywhere(which: TransactionKey) -> TransactionKey:
    """A key that all transactions of a producer on a partition share."""
    return which._replace(start_offset=-1)


def _may_be(o: Observation, which: TransactionKey, incident: Incident) -> bool:
    """Whether this open transaction may continue this incident of its producer and partition, judged by the stored
    incident alone.
    """
    earlier = which.start_offset < o.start_offset
    return earlier and incident.producer_epoch == o.producer_epoch and incident.last_sequence >= 0


def first_records_are_gone(
    send: Send, quorum: MetadataQuorum, incidents: Incidents, o: Observation, which: TransactionKey
) -> bool | None:
    """Whether the partition proves that this open transaction continues the incident; None if a read fails."""
    try:
        partition = quorum.partition(*o.key)
        log_start = list_offsets(send, partition.leader, [partition], Offset.LOG_START)[partition.key]
        if log_start.failure is not None:
            return None
        if not which.start_offset < log_start.offset <= o.start_offset:
            return False
        first = _first_batch(send, partition, log_start.offset, o)
    except (RequestFailed, LeaderUnknown):
        return None
    return first is not None and first.base_sequence <= incidents[which].last_sequence


def _first_batch(send: Send, partition: Partition, offset: int, o: Observation) -> Batch | None:
    """The first remaining batch of the open transaction. None if a marker of its producer id comes first, or if more
    than BYTES_MAX come first. Raises RequestFailed.
    """
    reading = Reading(f"{partition.topic}-{partition.partition}")
    while reading.size_bytes < BYTES_MAX:
        fetched = fetch(send, partition, offset, _PIECE_BYTES, records=False)
        for batch in fetched.batches:
            ours = batch.producer_id == o.producer_id
            if batch.last_offset >= o.start_offset:
                return batch if ours and not batch.is_control else None
            if ours and batch.is_control:
                return None
        reached = fetched.next_offset(offset)
        if reading.is_done(offset, reached, fetched.high_watermark, fetched.size_bytes):
            return None
        offset = reached
    return None
