"""Reads what decides to which known causes a cluster is exposed: API versions and settings of its brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from txnscan.coordinators.cluster import Cluster
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.api_versions import ApiVersions, api_versions
from txnscan.kafka.protocol.describe_configs import broker_settings
from txnscan.waiting.known_causes import SETTINGS, TRANSACTION_VERSION, Exposure


def read_versions(
    cluster: Cluster, broker_ids: Iterable[int]
) -> tuple[dict[int, ApiVersions], dict[int, RequestFailed]]:
    """The API versions of each of these brokers, and the failures of the others."""
    versions: dict[int, ApiVersions] = {}
    failed: dict[int, RequestFailed] = {}

    def ask(broker_id: int) -> None:
        try:
            versions[broker_id] = api_versions(cluster.send, broker_id)
        except RequestFailed as error:
            failed[broker_id] = error

    cluster.in_parallel(ask, sorted(broker_ids))
    return versions, failed


def read_exposure(cluster: Cluster, versions: Mapping[int, ApiVersions]) -> Exposure:
    """What the brokers with these versions answer. Settings that this principal may not read are left out."""
    settings: dict[int, dict[str, str]] = {}

    def ask(broker_id: int) -> None:
        with suppress(RequestFailed):
            settings[broker_id] = broker_settings(cluster.send, broker_id, SETTINGS)

    cluster.in_parallel(ask, sorted(versions))
    return Exposure(
        {broker_id: one.metadata_level for broker_id, one in versions.items()},
        next((one.finalized.get(TRANSACTION_VERSION) for one in versions.values()), None),
        settings,
    )
