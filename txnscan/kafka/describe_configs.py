"""DescribeConfigs (api key 32): the longest transaction that a broker allows. ACLs: DescribeConfigs on the Cluster."""

from __future__ import annotations

from kafka.protocol.admin import DescribeConfigsRequest

from txnscan.kafka.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, present

_BROKER = 4
_MAX_TIMEOUT = "transaction.max.timeout.ms"


def transaction_max_timeout_ms(send: Send, broker_id: int) -> int:
    """`transaction.max.timeout.ms` of a broker. Raises RequestFailed."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_BROKER, resource_name=str(broker_id), configuration_keys=[_MAX_TIMEOUT]
    )
    for result in present(send(broker_id, DescribeConfigsRequest(resources=[resource])).results):
        if result.error_code != ErrorCode.NONE:
            raise RequestFailed.answered(f"broker {broker_id}", "DescribeConfigs", result.error_code)
        for config in present(result.configs):
            if config.name == _MAX_TIMEOUT and config.value is not None:
                return int(config.value)
    raise RequestFailed(f"broker {broker_id} did not name {_MAX_TIMEOUT} in its answer to DescribeConfigs")
