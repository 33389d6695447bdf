"""Brokers that tell which replicas are in sync."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from kafka.protocol.admin import DescribeConfigsResponse, DescribeTopicPartitionsResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

from tests.fakes.cluster import as_bytes
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import FailureCode
from txnscan.kafka.protocol.frames import api_name
from txnscan.kafka.topology import NO_LEADER_ID, Key

CONFIG = DescribeConfigsResponse.DescribeConfigsResult


# Produce v10 is of Kafka 3.7.
OLD, NEW, LEVEL_4_2, LEVEL_4_3 = 9, 10, 29, 30


@dataclass
class FakeBrokers:
    """partitions: leader and in-sync replicas, of the replicas 1 to 3. settings: by broker and topic, else by topic.
    produce, level: of all brokers. refused: topics whose settings may not be read. silent: APIs without an answer.
    down: brokers without an answer.
    """

    partitions: dict[Key, tuple[int, tuple[int, ...]]]
    settings: dict[Any, str] = field(default_factory=dict)
    eligible: dict[Key, tuple[int, ...]] = field(default_factory=dict)
    produce: int = NEW
    level: int = LEVEL_4_2
    refused: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    down: tuple[int, ...] = ()
    replicas: tuple[int, ...] = (1, 2, 3)
    asked: list[tuple[str, int]] = field(default_factory=list)

    def send(self, broker_id: int, request: Any) -> Any:
        name = api_name(request)
        self.asked.append((name, broker_id))
        if name in self.silent or broker_id in self.down:
            raise RequestFailed(f"broker {broker_id} cannot be reached", FailureCode.UNREACHABLE)
        answer = getattr(self, f"_{name}")(broker_id, getattr(request, "request", request))
        return as_bytes(answer) if name == "Metadata" else answer

    def _Metadata(self, broker_id: int, request: Any) -> Any:
        kind = MetadataResponse.MetadataResponseTopic
        wanted = None if request.topics is None else {topic.name for topic in request.topics}
        topics: dict[str, list[Any]] = {}
        for (topic, index), (leader, in_sync) in sorted(self.partitions.items()):
            error = ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER_ID else ErrorCode.NONE
            topics.setdefault(topic, []).append(
                kind.MetadataResponsePartition(
                    error_code=error,
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=1,
                    replica_nodes=list(self.replicas),
                    isr_nodes=list(in_sync),
                    offline_replicas=[],
                )
            )
        shown = [kind(error_code=0, name=n, partitions=p) for n, p in topics.items() if wanted is None or n in wanted]
        return MetadataResponse(version=12, cluster_id="fake", brokers=[], topics=shown)

    def _DescribeConfigs(self, broker_id: int, request: Any) -> Any:
        results = []
        for resource in request.resources:
            name = resource.resource_name
            value = self.settings.get((broker_id, name), self.settings.get(name))
            (key,) = resource.configuration_keys
            configs = [CONFIG.DescribeConfigsResourceResult(name=key, value=value)] if value is not None else []
            refused = name in self.refused
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED if refused else ErrorCode.NONE
            results.append(CONFIG(error_code=error, resource_name=name, configs=[] if refused else configs))
        return DescribeConfigsResponse(results=results)

    def _ApiVersions(self, broker_id: int, request: Any) -> Any:
        return ApiVersionsResponse(
            error_code=0,
            api_keys=[ApiVersionsResponse.ApiVersion(api_key=0, min_version=0, max_version=self.produce)],
            supported_features=[
                ApiVersionsResponse.SupportedFeatureKey(name="metadata.version", min_version=1, max_version=self.level)
            ],
            finalized_features=[],
        )

    def _DescribeTopicPartitions(self, broker_id: int, request: Any) -> Any:
        kind = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
        part = kind.DescribeTopicPartitionsResponsePartition
        wanted = {topic.name for topic in request.topics}
        return DescribeTopicPartitionsResponse(
            topics=[
                kind(error_code=0, name=t, partitions=[part(partition_index=i, eligible_leader_replicas=list(ids))])
                for (t, i), ids in self.eligible.items()
                if t in wanted
            ]
        )

    @property
    def cluster(self) -> Any:
        return SimpleNamespace(send=self.send, in_parallel=lambda call, items: list(map(call, items)))
