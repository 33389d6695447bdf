"""ApiVersions (api key 18): the APIs of a broker, their versions, and the age of its metadata. Needs no ACL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka.protocol.metadata import ApiVersionsRequest

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, present

# By name: the APIs that a sweep uses, and at the end the API that only an apply uses.
API_KEYS: Mapping[str, int] = {
    "Fetch": 1,
    "ListOffsets": 2,
    "Metadata": 3,
    "OffsetForLeaderEpoch": 23,
    "DescribeAcls": 29,
    "DescribeConfigs": 32,
    "DescribeProducers": 61,
    "DescribeTransactions": 65,
    "ListTransactions": 66,
    "WriteTxnMarkers": 27,
}


# The first version of Produce in Kafka 3.7 (KIP-951). Since 3.7 a leader needs no more in-sync replicas than the
# partition has replicas (`Partition.effectiveMinIsr`). Brokers with KRaft and with ZooKeeper offer the same versions.
_PRODUCE, _PRODUCE_OF_3_7 = 0, 10
# A finalized feature of brokers in KRaft mode. Other brokers do not have it.
_KRAFT_FEATURE = "metadata.version"
# A finalized feature of brokers with share groups (KIP-932), of at least 1 if they are enabled.
_SHARE_FEATURE = "share.version"
# With this feature (KIP-966), the controller elects other leaders if a broker registers again without a clean shutdown
# (`ReplicationControlManager.handleBrokerUncleanShutdown`).
ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """The answer of a broker.

    apis: the lowest and the highest version of each API, by api key. supported, finalized: the highest version of each
    feature, by name. Brokers older than Kafka 2.7 name no features.
    """

    apis: Mapping[int, tuple[int, int]]
    supported: Mapping[str, int]
    finalized: Mapping[str, int]

    @property
    def metadata_level(self) -> int | None:
        """The highest `metadata.version` that the broker supports; None if it is not in KRaft mode."""
        return self.supported.get(_KRAFT_FEATURE)

    @property
    def has_share_groups(self) -> bool:
        """Whether the cluster has share groups enabled."""
        return self.finalized.get(_SHARE_FEATURE, 0) >= 1

    @property
    def caps_min_in_sync(self) -> bool:
        """Whether the broker caps `min.insync.replicas` at the number of a partition's replicas, as since Kafka 3.7."""
        return self.apis.get(_PRODUCE, (0, 0))[1] >= _PRODUCE_OF_3_7


def api_versions(send: Send, broker_id: int) -> ApiVersions:
    """The APIs and the features of a broker. Raises RequestFailed."""
    response = _ask(send, broker_id)
    return ApiVersions(
        {one.api_key: (one.min_version, one.max_version) for one in present(response.api_keys)},
        {one.name: one.max_version for one in response.supported_features or ()},
        {one.name: one.max_version_level for one in response.finalized_features or ()},
    )


def image_offset(send: Send, broker_id: int) -> int | None:
    """The offset in the metadata log up to which this broker's metadata image reaches; None if the broker is not in
    KRaft mode. The same image answers Metadata (`KRaftMetadataCache.features`). Raises RequestFailed.
    """
    response = _ask(send, broker_id)
    features = {feature.name for feature in response.finalized_features or ()}
    return response.finalized_features_epoch if _KRAFT_FEATURE in features else None


def leader_epochs_rise(send: Send, broker_id: int) -> bool:
    """Whether the leader epoch of a partition rises at every restart of its leader: with eligible leader replicas
    alone (`txnlog/elections.py`). False also if the broker does not answer.
    """
    try:
        finalized = api_versions(send, broker_id).finalized
    except RequestFailed:
        return False
    return finalized.get(ELIGIBLE_LEADER_REPLICAS, 0) >= 1


def _ask(send: Send, broker_id: int) -> Any:
    response = send(broker_id, ApiVersionsRequest(client_software_name="txnscan", client_software_version="0"))
    if response.error_code != ErrorCode.NONE:
        raise RequestFailed.answered(f"broker {broker_id}", "ApiVersions", response.error_code)
    return response
