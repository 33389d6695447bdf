"""An open transaction, as two reads of its partition show it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from txnscan.kafka.failure import Failure


class TransactionKey(NamedTuple):
    """What makes an open transaction on a partition the same one in another sweep."""

    topic: str
    topic_id: str
    partition: int
    producer_id: int
    start_offset: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> TransactionKey:
        """The key of a table's row, whose columns have these names."""
        return cls(*(row[name] for name in cls._fields))

    def incident_id(self, cluster_id: str) -> str:
        """The id of its incident, if it hangs: the same in every sweep."""
        return hashlib.sha256("\0".join(map(str, (cluster_id, *self))).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Observation:
    """An open transaction on a partition: what the two proven reads of its leader showed.

    first_failure, second_failure: why obligation L does not hold for that read, or None when it does. incident_offset:
    the start offset that its incident has, where its first records are gone since (`identity.py`); else None. The
    second_* fields are None when the transaction was no longer open at the second read, or could not be read.
    """

    topic: str
    topic_id: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    last_sequence: int
    leader: int
    leader_epoch: int
    first_read_at_ms: int
    first_high_watermark: int | None
    first_failure: Failure | None
    second_read_at_ms: int
    second_high_watermark: int | None
    second_last_stable_offset: int | None
    second_start_offset: int | None
    second_producer_epoch: int | None
    second_last_sequence: int | None
    second_failure: Failure | None
    first_seen_ms: int
    incident_offset: int | None = None

    @property
    def topic_partition(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def transaction_key(self) -> TransactionKey:
        """What identifies it in other sweeps."""
        start_offset = self.start_offset if self.incident_offset is None else self.incident_offset
        return TransactionKey(self.topic, self.topic_id, self.partition, self.producer_id, start_offset)
