"""Whether what is open is a transaction that has an incident, though its first records are gone.

Retention and DeleteRecords move the log start past the first record of an open transaction. A replica that builds its
producers' state from what is left, because it is new or lost its snapshot, shows a later start offset then
(`ProducerStateManager`). The incident goes on if

- topic id, partition, producer id and producer epoch are the same,
- the start offset that the incident has is below the log start,
- no marker of the producer id stands between the log start and the new start offset,
- the first record that is left is not later than the last one that a sweep saw: its sequence number is not above.

Everything else is another transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

from txnscan.coordinators.metadata_quorum import Agreement, Unagreed
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.fetch import Reading, fetch
from txnscan.kafka.protocol.list_offsets import Offset, list_offsets
from txnscan.kafka.protocol.record_batch import Batch
from txnscan.kafka.topology import Partition
from txnscan.reads.observation import Observation, TransactionKey
from txnscan.sweeps.history import Incident, Incidents

_PIECE_BYTES = 1024 * 1024
# More than this between the log start and the start offset is not looked through.
BYTES_MAX = 64 * 1024 * 1024


def continued(
    observations: Iterable[Observation], incidents: Incidents, read: Callable[[Observation, TransactionKey], bool]
) -> list[Observation]:
    """The observations. Those that go on with an incident have its start offset in `incident_offset`.

    read: whether the partition shows that an observed transaction is the one of this incident.
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
    """The same for all transactions of a producer on a partition."""
    return which._replace(start_offset=-1)


def _may_be(o: Observation, which: TransactionKey, incident: Incident) -> bool:
    """Whether what is open may go on with this incident of its producer on its partition, by what the incident says."""
    earlier = which.start_offset < o.start_offset
    return earlier and incident.producer_epoch == o.producer_epoch and incident.last_sequence >= 0


def first_records_are_gone(
    send: Send, agreed: Agreement, incidents: Incidents, o: Observation, which: TransactionKey
) -> bool | None:
    """Whether the partition shows that what is open is the transaction of this incident; unknown if a read fails."""
    try:
        partition = agreed.partition(o.topic, o.partition)
        log_start = list_offsets(send, partition.leader, [partition], Offset.LOG_START)[partition.key]
        if log_start.failure is not None:
            return None
        if not which.start_offset < log_start.offset <= o.start_offset:
            return False
        first = _first_batch(send, partition, log_start.offset, o)
    except (RequestFailed, Unagreed):
        return None
    return first is not None and first.base_sequence <= incidents[which].last_sequence


def _first_batch(send: Send, partition: Partition, offset: int, o: Observation) -> Batch | None:
    """The first batch that is left of what is open; None where a marker of its producer id stands before it, and where
    too much does. Raises RequestFailed.
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
