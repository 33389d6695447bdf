"""DescribeCluster (api key 60, since Kafka 2.8): the operations on the cluster that the principal may do.

ACLs: Describe on the Cluster. Without it the answer has no operations. Without an authorizer it has all operations.
Source: `KafkaApis.handleDescribeCluster`, `AuthHelper.authorizedOperations`.
"""

from __future__ import annotations

from kafka.protocol.admin import DescribeClusterRequest

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed

# org.apache.kafka.common.acl.AclOperation: numbers and names.
_OPERATIONS = {7: "Alter", 8: "Describe", 9: "ClusterAction", 10: "DescribeConfigs"}


def cluster_operations(send: Send, broker_id: int) -> frozenset[str]:
    """The operations on the Cluster that a scanner needs and this principal may do. Raises RequestFailed."""
    response = send(broker_id, DescribeClusterRequest(include_cluster_authorized_operations=True))
    if response.error_code != ErrorCode.NONE:
        raise RequestFailed.answered(f"broker {broker_id}", "DescribeCluster", response.error_code)
    # kafka-python decodes the set of bits to the operations' numbers.
    numbers = response.authorized_operations or ()
    return frozenset(name for number, name in _OPERATIONS.items() if number in numbers)
