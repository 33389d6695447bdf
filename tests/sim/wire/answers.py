"""The APIs of the brokers, their versions, and the body of an answer to a request. No sockets and no clock.

The versions have the "flexible" encoding, and both kafka-python and Kafka's Java clients since 4.0 know them. Only
ApiVersions is supported in all of its versions, because clients begin with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from types import MappingProxyType

from tests.sim.codec import Reader
from tests.sim.wire import coordinators, groups, log_dirs, metadata, partitions
from tests.sim.wire.world import World
from txnscan.kafka.protocol.primitives import NO_TAGS, items, string, unsigned

_UNSUPPORTED_VERSION = 35
_FIRST_FLEXIBLE_API_VERSIONS = 3


# Finalized features of brokers in KRaft mode, each from a level to the same level, and the offset of the metadata log.
_ELIGIBLE_LEADER_REPLICAS = string("eligible.leader.replicas.version") + 2 * (1).to_bytes(2) + NO_TAGS
_METADATA_VERSION, _METADATA_OFFSET = string("metadata.version") + 2 * (7).to_bytes(2) + NO_TAGS, 1_000


class Api(IntEnum):
    """Names and keys of `org.apache.kafka.common.protocol.ApiKeys`."""

    Fetch = 1
    ListOffsets = 2
    Metadata = 3
    OffsetFetch = 9
    FindCoordinator = 10
    ListGroups = 16
    ApiVersions = 18
    OffsetForLeaderEpoch = 23
    WriteTxnMarkers = 27
    DescribeAcls = 29
    DescribeConfigs = 32
    DescribeLogDirs = 35
    DescribeCluster = 60
    DescribeProducers = 61
    DescribeTransactions = 65
    ListTransactions = 66


@dataclass(frozen=True, slots=True)
class Offered:
    """The versions of an API. by_broker: whether the answers of brokers differ. kept: whether answers may be cached."""

    first: int
    last: int
    by_broker: bool = True
    kept: bool = True
    flexible: bool = True


OFFERED: Mapping[Api, Offered] = MappingProxyType(
    {
        # A log may be larger than memory, and is read once.
        Api.Fetch: Offered(10, 10, kept=False, flexible=False),
        Api.ListOffsets: Offered(6, 11),
        Api.Metadata: Offered(10, 13, by_broker=False),
        Api.OffsetFetch: Offered(8, 10),
        Api.FindCoordinator: Offered(4, 6, by_broker=False),
        Api.ListGroups: Offered(3, 5),
        Api.ApiVersions: Offered(0, 4, by_broker=False),
        Api.OffsetForLeaderEpoch: Offered(4, 4),
        Api.WriteTxnMarkers: Offered(1, 2, kept=False),
        Api.DescribeAcls: Offered(2, 3, by_broker=False),
        Api.DescribeConfigs: Offered(4, 4),
        Api.DescribeLogDirs: Offered(2, 5, kept=False),
        Api.DescribeCluster: Offered(0, 2, by_broker=False),
        Api.DescribeProducers: Offered(0, 0),
        # Each sweep asks for other random ids.
        Api.DescribeTransactions: Offered(0, 0, kept=False),
        Api.ListTransactions: Offered(0, 2),
    }
)


def _features() -> bytes:
    """The tagged fields of ApiVersions: the offset of the metadata image, and the finalized features at it."""
    return _tagged({1: _METADATA_OFFSET.to_bytes(8), 2: items([_METADATA_VERSION, _ELIGIBLE_LEADER_REPLICAS])})


def _tagged(fields: Mapping[int, bytes]) -> bytes:
    """A section of tagged fields."""
    written = (unsigned(tag) + unsigned(len(field)) + field for tag, field in fields.items())
    return unsigned(len(fields)) + b"".join(written)


class Answers:
    """The bodies of answers, made on request."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._topics = metadata.Topics(world.shape)
        self._descriptions = coordinators.Descriptions(world)
        self._makers: Mapping[Api, Callable[[int, int, Reader], bytes]] = {
            Api.Fetch: lambda broker, _, request: partitions.fetch(world, broker, request),
            Api.ListOffsets: lambda broker, _, request: partitions.list_offsets(world, broker, request),
            Api.Metadata: lambda _, version, request: metadata.metadata(world, self._topics, version, request),
            Api.OffsetFetch: lambda broker, version, request: groups.offset_fetch(world, broker, version, request),
            Api.FindCoordinator: lambda _, __, request: coordinators.find_coordinator(world, request),
            Api.ListGroups: lambda broker, version, request: groups.list_groups(world, broker, version, request),
            Api.ApiVersions: lambda _, version, __: api_versions(version),
            Api.OffsetForLeaderEpoch: lambda broker, _, request: partitions.offset_for_leader_epoch(
                world, broker, request
            ),
            Api.WriteTxnMarkers: self._write_txn_markers,
            Api.DescribeAcls: lambda _, __, ___: metadata.describe_acls(),
            Api.DescribeConfigs: lambda broker, _, request: metadata.describe_configs(self._topics, broker, request),
            Api.DescribeLogDirs: lambda broker, version, request: log_dirs.describe_log_dirs(
                world, broker, version, request
            ),
            Api.DescribeCluster: lambda _, version, request: metadata.describe_cluster(world, version, request),
            Api.DescribeProducers: lambda broker, _, request: partitions.describe_producers(
                world, self._producers, broker, request
            ),
            Api.DescribeTransactions: lambda broker, _, request: self._descriptions.answer(broker, request),
            Api.ListTransactions: lambda broker, version, request: coordinators.list_transactions(
                world, broker, version, request
            ),
        }

    def prepare(self) -> None:
        """Computes in advance the data that would make a first answer slow."""
        _ = self._producers, self.world.ids, self.world.groups
        self._topics.all()

    def body(self, broker_id: int, api: Api, version: int, request: Reader) -> bytes:
        """The body of the answer. Raises IndexError, struct.error or UnicodeDecodeError for a damaged request."""
        return self._makers[api](broker_id, version, request)

    def controller_at(self, api: Api, version: int) -> int | None:
        """The position of the controller's id in the body of an answer, if it has one."""
        if api not in (Api.Metadata, Api.DescribeCluster):
            return None
        return metadata.controller_at(self.world, version, of_cluster=api is Api.DescribeCluster)

    @cached_property
    def _producers(self) -> partitions.Producers:
        return partitions.Producers(self.world)

    def _write_txn_markers(self, broker_id: int, version: int, request: Reader) -> bytes:
        body = partitions.write_txn_markers(self.world, broker_id, version, request)
        self._producers.forget()
        return body


def api_versions(version: int) -> bytes:
    """The supported versions, in any version; in version 0 if the requested version does not exist."""
    known = version <= OFFERED[Api.ApiVersions].last
    error = bytes(2) if known else _UNSUPPORTED_VERSION.to_bytes(2)
    offers = [
        key.to_bytes(2) + offered.first.to_bytes(2) + offered.last.to_bytes(2) for key, offered in OFFERED.items()
    ]
    if known and version >= _FIRST_FLEXIBLE_API_VERSIONS:
        return error + items([offer + NO_TAGS for offer in offers]) + bytes(4) + _features()
    throttle = bytes(4) if known and version >= 1 else b""
    return error + len(offers).to_bytes(4) + b"".join(offers) + throttle
