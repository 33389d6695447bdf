"""An open transaction, as observed by two reads of its partition."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from txnscan.kafka.failure import Failure
from txnscan.kafka.topology import Key


class TransactionKey(NamedTuple):
    """The identity of an open transaction on a partition, the same in all sweeps."""

    topic: str
    topic_id: str
    partition: int
    producer_id: int
    start_offset: int

    @property
    def key(self) -> Key:
        """The partition."""
        return (self.topic, self.partition)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> TransactionKey:
        """The key from a table's row, whose columns have these names."""
        return cls(*(row[name] for name in cls._fields))

    def incident_id(self, cluster_id: str) -> str:
        """The id of the transaction's incident, if it hangs. It is the same in every sweep."""
        return hashlib.sha256("\0".join(map(str, (cluster_id, *self))).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class TransactionRef:
    """A transaction on a partition, by the partition's data. coordinator_epoch: of the last marker of this producer id
    on the partition, -1 before the first marker.
    """

    topic: str
    topic_id: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int

    @property
    def key(self) -> Key:
        """The partition."""
        return (self.topic, self.partition)

    @property
    def topic_partition(self) -> str:
        """The partition, as "topic-partition"."""
        return f"{self.topic}-{self.partition}"

    @property
    def ref(self) -> dict[str, Any]:
        """Only these fields, by name, to build another value about the same transaction."""
        return {field.name: getattr(self, field.name) for field in fields(TransactionRef)}


@dataclass(frozen=True, slots=True)
class ProvenRead:
    """A proven read of the partition, for one transaction. failure: why it is not proven to be the leader's.
    start_offset, producer_epoch, last_sequence: of the transaction that the producer had open at that time, if any.
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
    """An open transaction on a partition, as the two proven reads of its leader show it.

    incident_offset, incident_topic_id: the start offset and topic id of its incident, if the partition showed another
    start offset or no topic id then (`identity.py`). is_replaced: whether the other start offset of the second read is
    proven to be that of another transaction.
    """

    last_timestamp_ms: int
    last_sequence: int
    leader: int
    leader_epoch: int
    first: ProvenRead
    second: ProvenRead
    first_seen_ms: int
    incident_offset: int | None = None
    incident_topic_id: str | None = None
    is_replaced: bool = False

    @property
    def transaction_key(self) -> TransactionKey:
        """The transaction's identity in all sweeps."""
        start_offset = self.start_offset if self.incident_offset is None else self.incident_offset
        topic_id = self.topic_id if self.incident_topic_id is None else self.incident_topic_id
        return TransactionKey(self.topic, topic_id, self.partition, self.producer_id, start_offset)
