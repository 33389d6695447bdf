"""Put leaders and followers on real brokers where a script needs them, and restore them after each script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from tests.prove.compaction import alter_broker, alter_topic
from tests.prove.moves import elect, reassign
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.protocol.describe_configs import broker_settings
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key

# The partitions of `__transaction_state` by their purpose in scripts, with their replicas. The moving one has no
# replica on broker 3, which scripts stop to make a partition unwritable: Kafka 3.5 would load it again for that.
COORDINATORS = {"moves": (1, 2), "stays": (1,), "forgets": (3,)}
_LOG_CONFIGS = {"cleanup.policy": "compact", "compression.type": "uncompressed"}
_TOPIC = 2
_IDLE_MS = "producer.id.expiration.ms"


def heal(cluster: KafkaCluster, wire: Wire) -> None:
    """Restores the cluster: all brokers run, every replica is in sync, and each coordinator is on its preferred
    broker.
    """
    for broker_id in set(cluster.broker_ids) - set(cluster.running):
        cluster.start_broker(broker_id)
    if not wire.view([TRANSACTION_STATE_TOPIC]).partitions:
        # A new topic has the same number of replicas for every partition.
        create_topic(wire, TRANSACTION_STATE_TOPIC, [[1, 2]] * len(COORDINATORS), _LOG_CONFIGS)
        for k, replicas in enumerate(COORDINATORS.values()):
            _place(wire, (TRANSACTION_STATE_TOPIC, k), replicas)
    wait_until(lambda: _in_sync(wire), "every coordinator's log was in sync")
    for k, replicas in enumerate(COORDINATORS.values()):
        key = (TRANSACTION_STATE_TOPIC, k)
        lead(cluster, wire, key, replicas)
        # The second replica is preferred, so that a move to it is a single change of the partition.
        _place(wire, key, (*replicas[1::-1], *replicas[2:]))


def set_log_min_isr(wire: Wire, min_isr: int) -> None:
    """Sets the number of replicas of `__transaction_state` that must be in sync for a coordinator to write."""
    alter_topic(wire, TRANSACTION_STATE_TOPIC, {"min.insync.replicas": str(min_isr)})


@contextmanager
def compacting_log(wire: Wire) -> Iterator[None]:
    """In this context, every append to `__transaction_state` begins a new segment, and earlier segments are cleaned.

    It waits until every running broker has these settings.
    """
    names = {"segment.ms": "1", "min.cleanable.dirty.ratio": "0.0"}
    alter_topic(wire, TRANSACTION_STATE_TOPIC, names)
    try:
        for broker in wire.view([]).brokers:
            wait_until(
                lambda asked=broker.broker_id: _log_configs(wire, asked, names) == names,  # type: ignore[misc]
                f"broker {broker.broker_id} compacts {TRANSACTION_STATE_TOPIC}",
            )
        yield
    finally:
        alter_topic(wire, TRANSACTION_STATE_TOPIC, dict.fromkeys(names))


@contextmanager
def forgetting_producers(wire: Wire, broker_id: int) -> Iterator[None]:
    """In this context, the replicas of this broker forget every producer without an open transaction.

    Afterwards it waits until the broker has its former setting.
    """

    def idle_ms() -> str:
        return broker_settings(wire.send, broker_id, [_IDLE_MS])[_IDLE_MS]

    before = idle_ms()
    alter_broker(wire, broker_id, {_IDLE_MS: "1"})
    try:
        yield
    finally:
        alter_broker(wire, broker_id, {_IDLE_MS: None})
        wait_until(lambda: idle_ms() == before, f"broker {broker_id} keeps idle producers")


def _log_configs(wire: Wire, broker_id: int, names: Iterable[str]) -> dict[str, str]:
    """These topic configs of `__transaction_state`, as a broker knows them."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_TOPIC, resource_name=TRANSACTION_STATE_TOPIC, configuration_keys=list(names)
    )
    results = wire.send(broker_id, DescribeConfigsRequest(resources=[resource])).results
    return {config.name: config.value for result in results for config in result.configs}


def _in_sync(wire: Wire) -> bool:
    shown = replicas_of(wire, TRANSACTION_STATE_TOPIC)
    return all(set(shown[k].isr_nodes) == set(replicas) for k, replicas in enumerate(COORDINATORS.values()))


def replicas_of(wire: Wire, topic: str) -> dict[int, Any]:
    """The partitions of a topic, with their replicas, from Metadata."""
    asked = MetadataRequest.MetadataRequestTopic(name=topic)
    request = MetadataRequest(topics=[asked], allow_auto_topic_creation=False)
    (shown,) = wire.send(wire.any_broker(), request).topics
    return {p.partition_index: p for p in shown.partitions}


def lead(cluster: KafkaCluster, wire: Wire, key: Key, replicas: tuple[int, ...]) -> None:
    """Makes the first of these replicas lead the partition, and waits until every broker knows it."""

    def led() -> bool:
        if wire.partition(*key).leader != replicas[0]:
            elect(wire, [key])
        return wire.partition(*key).leader == replicas[0]

    _place(wire, key, replicas)
    wait_until(led, f"broker {replicas[0]} led {key[0]}-{key[1]}")
    cluster.wait_for_leader(*key, replicas[0])


def _place(wire: Wire, key: Key, replicas: tuple[int, ...]) -> None:
    """Requests these replicas, unless the partition has them already."""
    if tuple(replicas_of(wire, key[0])[key[1]].replica_nodes) != replicas:
        reassign(wire, {key: replicas})
