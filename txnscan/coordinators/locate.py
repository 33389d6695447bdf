"""Find the partition and the broker that serve a transactional id or a consumer group. Pure.

They follow from Metadata and the hash of the name. The hash is the same for ids and groups
(`TransactionStateManager.partitionFor`, `GroupMetadataManager.partitionFor`). FindCoordinator is not used, because it
creates a missing topic.
"""

from __future__ import annotations

from dataclasses import dataclass

from txnscan.coordinators.agreed_metadata import AgreedMetadata, LeaderUnknown, NoSuchTopic
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.failure import Failure
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.topology import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, Broker

_UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The coordinator of a name. kind: "transactional_id" or "group". failure: why the broker is not known."""

    kind: str
    name: str
    topic: str
    partition: int | None
    partitions: int
    broker: Broker | None = None
    leader_epoch: int | None = None
    failure: Failure | None = None


def coordinator_of(kind: str, name: str, agreed: AgreedMetadata) -> Coordinator:
    """The coordinator that all brokers agree on. agreed: on `topic_of(kind)`."""
    topic = topic_of(kind)
    count = len(agreed.indexes(topic))
    if not count:
        try:
            agreed.partition(topic, 0)
        except NoSuchTopic:
            none = f"{topic} does not exist yet: nothing of its kind was ever used"
            return Coordinator(kind, name, topic, None, 0, failure=Failure(none, _UNKNOWN_TOPIC))
        except LeaderUnknown as failed:
            return Coordinator(kind, name, topic, None, 0, failure=failed.failure)
    k = coordinator_partition(name, count)
    try:
        partition = agreed.partition(topic, k)
    except LeaderUnknown as failed:
        return Coordinator(kind, name, topic, k, count, failure=failed.failure)
    broker = next(one for one in agreed.brokers if one.broker_id == partition.leader)
    return Coordinator(kind, name, topic, k, count, broker, partition.leader_epoch)


def coordinator_among(kind: str, name: str, count: int) -> Coordinator:
    """Only the partition, of a topic with `count` partitions. No broker was asked, so the broker is not known."""
    return Coordinator(kind, name, topic_of(kind), coordinator_partition(name, count), count)


def topic_of(kind: str) -> str:
    """The topic whose leaders are the coordinators of this kind of name."""
    return CONSUMER_OFFSETS_TOPIC if kind == "group" else TRANSACTION_STATE_TOPIC
