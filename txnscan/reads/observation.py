"""An open transaction, as two reads of its partition show it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from txnscan.kafka.failure import Failure


class TransactionKey(NamedTuple):
    """The identity of an open transaction on a partition, in all sweeps."""

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
class TransactionRef:
    """A transaction on a partition, as the partition knows it. coordinator_epoch: of the last marker from this producer
    id there, -1 before the first.
    """

    topic: str
    topic_id: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int

    @property
    def topic_partition(self) -> str:
        """Its partition, as "topic-partition"."""
        return f"{self.topic}-{self.partition}"

    @property
    def ref(self) -> dict[str, Any]:
        """These fields alone, by name, for another value that is about the same transaction."""
        return {field.name: getattr(self, field.name) for field in fields(TransactionRef)}


@dataclass(frozen=True, slots=True)
class FencedRead:
    """A read of the partition, with proof, for one transaction. failure: the reason if obligation L does not hold.
    start_offset, producer_epoch, last_sequence: of the transaction that the producer had open then, if it had one.
    """

    read_at_ms: int
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    start_offset: int | None = None
    producer_epoch: int | None = None
    last_sequence: int | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Observation(TransactionRef):
    """An open transaction on a partition: what the two proven reads of its leader showed.

    incident_offset: the start offset of its incident, if its first records are gone since (`identity.py`).
    """

    last_timestamp_ms: int
    last_sequence: int
    leader: int
    leader_epoch: int
    first: FencedRead
    second: FencedRead
    first_seen_ms: int
    incident_offset: int | None = None

    @property
    def transaction_key(self) -> TransactionKey:
        """Its identity in other sweeps."""
        start_offset = self.start_offset if self.incident_offset is None else self.incident_offset
        return TransactionKey(self.topic, self.topic_id, self.partition, self.producer_id, start_offset)
