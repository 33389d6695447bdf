"""DescribeConfigs (api key 32): the longest transaction that a broker allows; the cleaning of topics, and the replicas
that they need.

ACLs: DescribeConfigs on the Cluster for the settings of a broker. DescribeConfigs on the Topic for the settings of a
topic, else TOPIC_AUTHORIZATION_FAILED for that topic. Any broker answers for any topic. If a topic has no value of its
own, each broker answers with its default, and the default of a partition's leader is in force there. Source:
`ConfigHelper.handleDescribeConfigsRequest`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kafka.protocol.admin import DescribeConfigsRequest

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, answered, present
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.units import INT_MAX, whole_number

Value = TypeVar("Value")

_TOPIC, _BROKER, _GROUP = 2, 4, 32
_ISOLATION_LEVEL, READ_UNCOMMITTED = "share.isolation.level", "read_uncommitted"
_CLEANUP_POLICY, _RETENTION, _TIERED = "cleanup.policy", "retention.ms", "remote.storage.enable"
_MAX_TIMEOUT = "transaction.max.timeout.ms"
_UNCLEAN = "unclean.leader.election.enable"
_MIN_IN_SYNC, _LOG_FACTOR = "min.insync.replicas", "transaction.state.log.replication.factor"


def broker_settings(send: Send, broker_id: int, names: Iterable[str]) -> dict[str, str]:
    """These settings of a broker. A setting that the broker does not know is left out. Raises RequestFailed."""
    return _settings(send, broker_id, _BROKER, str(broker_id), names)


def topic_settings(send: Send, broker_id: int, topic: str, names: Iterable[str]) -> dict[str, str]:
    """The same for a topic."""
    return _settings(send, broker_id, _TOPIC, topic, names)


def _settings(send: Send, broker_id: int, kind: int, name: str, names: Iterable[str]) -> dict[str, str]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(names)
    )
    found: dict[str, str] = {}
    for result in present(send(broker_id, DescribeConfigsRequest(resources=[resource])).results):
        if result.error_code != ErrorCode.NONE:
            raise RequestFailed.answered(f"broker {broker_id}", "DescribeConfigs", result.error_code)
        found |= {config.name: config.value for config in present(result.configs) if config.value is not None}
    return found


def transaction_max_timeout_ms(send: Send, broker_id: int) -> int:
    """`transaction.max.timeout.ms` of a broker. Raises RequestFailed."""
    value = broker_settings(send, broker_id, [_MAX_TIMEOUT]).get(_MAX_TIMEOUT)
    if value is None:
        raise RequestFailed(f"broker {broker_id} did not name {_MAX_TIMEOUT} in its answer to DescribeConfigs")
    timeout_ms = _whole(broker_id, _MAX_TIMEOUT, value)
    if not 0 <= timeout_ms <= INT_MAX:
        raise RequestFailed(f"broker {broker_id} named a {_MAX_TIMEOUT} of {timeout_ms}, which no broker allows")
    return timeout_ms


@dataclass(frozen=True, slots=True)
class Cleaning:
    """The cleaning of a topic's log: `cleanup.policy`, `retention.ms` (-1 for no limit), and whether it is tiered
    (`remote.storage.enable`). failure: why that is not known.
    """

    cleanup_policy: str | None = None
    retention_ms: int | None = None
    tiered: bool = False
    failure: Failure | None = None


def topic_cleaning(send: Send, broker_id: int, topics: Iterable[str]) -> dict[str, Cleaning]:
    """The cleaning of each of these topics, except topics that the broker left out. Raises RequestFailed."""
    found = {}
    for topic, values in _settings_of_all(send, broker_id, _TOPIC, topics, [_CLEANUP_POLICY, _RETENTION, _TIERED]):
        if isinstance(values, Failure):
            found[topic] = Cleaning(failure=values)
            continue
        retention = values.get(_RETENTION)
        found[topic] = Cleaning(
            cleanup_policy=values.get(_CLEANUP_POLICY),
            retention_ms=_whole(broker_id, _RETENTION, retention) if retention is not None else None,
            tiered=values.get(_TIERED) == "true",
        )
    return found


def min_in_sync_replicas(send: Send, broker_id: int, topics: Iterable[str]) -> dict[str, int | Failure]:
    """`min.insync.replicas` of each of these topics on the partitions that this broker leads, or why it is not known.
    Raises RequestFailed.

    `transaction.state.log.min.isr` is no second setting: brokers only read it to create `__transaction_state`.
    """
    return _setting_of_all(send, broker_id, _TOPIC, topics, _MIN_IN_SYNC, partial(_whole, broker_id, _MIN_IN_SYNC))


def unclean_elections(send: Send, broker_id: int, topics: Iterable[str]) -> dict[str, bool | Failure]:
    """Whether each of these topics allows unclean elections (`unclean.leader.election.enable`), or why it is not known.
    The controller decides. If a topic has no value of its own, this broker answers with its own default, and a
    dedicated controller may have another. Raises RequestFailed.
    """
    return _setting_of_all(send, broker_id, _TOPIC, topics, _UNCLEAN, lambda value: value == "true")


def transaction_log_factor(send: Send, broker_id: int) -> int | None:
    """How many replicas the broker gives `__transaction_state` when it creates it. None if the broker does not name the
    setting. Raises RequestFailed.
    """
    value = broker_settings(send, broker_id, [_LOG_FACTOR]).get(_LOG_FACTOR)
    return None if value is None else _whole(broker_id, _LOG_FACTOR, value)


def _settings_of_all(
    send: Send, broker_id: int, kind: int, names: Iterable[str], keys: Iterable[str]
) -> Iterator[tuple[str, Mapping[str, str | None] | Failure]]:
    """Each of these resources that is in the answer, with these settings, or with the error about it."""
    resource, wanted = DescribeConfigsRequest.DescribeConfigsResource, list(keys)
    request = DescribeConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configuration_keys=wanted) for name in names]
    )
    for result in present(send(broker_id, request).results):
        if result.error_code != ErrorCode.NONE:
            yield result.resource_name, answered(result.error_code)
        else:
            yield result.resource_name, {config.name: config.value for config in present(result.configs)}


def _setting_of_all(
    send: Send, broker_id: int, kind: int, resources: Iterable[str], key: str, parsed: Callable[[str], Value]
) -> dict[str, Value | Failure]:
    """A setting of each of these resources, or why it is not known."""
    names = list(resources)
    found: dict[str, Value | Failure] = dict.fromkeys(names, _left_out(key))
    for name, values in _settings_of_all(send, broker_id, kind, names, [key]):
        if isinstance(values, Failure):
            found[name] = values
        elif (value := values.get(key)) is not None:
            found[name] = parsed(value)
    return found


def _left_out(name: str) -> Failure:
    return Failure(f"the broker did not name {name}", FailureCode.LEFT_OUT)


def _whole(broker_id: int, name: str, text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise RequestFailed(f"broker {broker_id} named a {name} that is no whole number")
    return number


def share_isolation_levels(send: Send, broker_id: int, groups: Iterable[str]) -> dict[str, str | Failure]:
    """`share.isolation.level` of each of these share groups (`GroupConfig`), or why it is not known. A group without
    its own setting has the default, `read_uncommitted`. Any broker answers. Raises RequestFailed.

    ACLs: DescribeConfigs on the Group, else GROUP_AUTHORIZATION_FAILED for that group.
    """
    return _setting_of_all(send, broker_id, _GROUP, groups, _ISOLATION_LEVEL, str)
