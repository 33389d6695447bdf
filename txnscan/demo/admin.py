"""Create topics, and change the one broker setting that scenarios need: the verification of transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from kafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest

from txnscan.demo.errors import DemoError
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.errors import ErrorCode, error_name

VERIFICATION = "transaction.partition.verification.enable"
_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})
_BROKER = 4
_ALL_BROKERS = ""
_SET = 0
_DELETE = 1
# The config source of a value that was set for all brokers at run time, in DescribeConfigs.
_DYNAMIC_DEFAULT = 3


def create_topic(
    wire: Wire, topic: str, replicas: Sequence[Sequence[int]], configs: Mapping[str, str] = _NO_CONFIGS
) -> None:
    """Creates a topic with these replicas for each partition, the leader first, and waits for the leaders."""
    topic_type = CreateTopicsRequest.CreatableTopic
    request = CreateTopicsRequest(
        topics=[
            topic_type(
                name=topic,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    topic_type.CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
                    for index, ids in enumerate(replicas)
                ],
                configs=[topic_type.CreatableTopicConfig(name=n, value=v) for n, v in configs.items()],
            )
        ],
        timeout_ms=30_000,
    )
    answer = wire.send(wire.any_broker(), request).topics[0]
    if answer.error_code != ErrorCode.NONE:
        why = answer.error_message or error_name(answer.error_code)
        raise DemoError(f"topic {topic} could not be created: {why}")
    for index in range(len(replicas)):
        wire.partition(topic, index)


@contextmanager
def unverified(wire: Wire) -> Iterator[None]:
    """In this context, brokers accept transactional data for partitions that were not added to the transaction (Produce
    v11 and lower), as before Kafka 3.6. Afterwards they verify again. Brokers without this setting are older and verify
    no transactions.
    """
    if all(_source(wire, broker.broker_id) is None for broker in wire.view([]).brokers):
        yield
        return
    _alter(wire, _SET, "false")
    try:
        _await_dynamic(wire, True)
        yield
    finally:
        _alter(wire, _DELETE, None)
        _await_dynamic(wire, False)


def _alter(wire: Wire, operation: int, value: str | None) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name=VERIFICATION, config_operation=operation, value=value)
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=_BROKER, resource_name=_ALL_BROKERS, configs=[config])]
    )
    answer = wire.send(wire.any_broker(), request).responses[0]
    if answer.error_code != ErrorCode.NONE:
        raise DemoError(f"{VERIFICATION} could not be changed: {answer.error_message}")


def _await_dynamic(wire: Wire, wanted: bool) -> None:
    # A broker reads this answer from the settings that it applies, under the lock of their changes.
    for broker in wire.view([]).brokers:
        wait_until(
            lambda asked=broker.broker_id: (_source(wire, asked) == _DYNAMIC_DEFAULT) == wanted,  # type: ignore[misc]
            f"broker {broker.broker_id} changed {VERIFICATION}",
        )


def _source(wire: Wire, broker_id: int) -> int | None:
    """The source of the broker's value of the setting. None if the broker does not know the setting."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_BROKER, resource_name=str(broker_id), configuration_keys=[VERIFICATION]
    )
    results: Any = wire.send(broker_id, DescribeConfigsRequest(resources=[resource])).results
    return next((int(config.config_source) for result in results for config in result.configs), None)
