"""When an id expired. A coordinator removes an id that was at rest for `transactional.id.expiration.ms`, and writes a
tombstone. A tombstone has no value, so only its batch has a time: that of the coordinator's clock. The log cleaner
removes a tombstone after `delete.retention.ms`. Then nothing is left of the id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from txnscan.kafka.answers import State
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Unobserved
from txnscan.kafka.protocol.fetch import batch_time_ms
from txnscan.kafka.topology import Partition
from txnscan.txnlog.timeline import Step


def dated(send: Send, partition: Partition, steps: Iterable[Step | Unobserved]) -> Iterator[Step | Unobserved]:
    """The steps, tombstones with the time of their batch. Without a time if it cannot be read. Never raises."""
    for one in steps:
        if isinstance(one, Step) and one.record.state == State.DEAD:
            try:
                at_ms = batch_time_ms(send, partition, one.record.offset)
            except RequestFailed:
                at_ms = None
            yield one if at_ms is None else replace(one, record=replace(one.record, updated_ms=at_ms))
        else:
            yield one
