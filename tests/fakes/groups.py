"""Groups and what they have committed, as coordinators of groups answer."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.admin import DescribeConfigsResponse, ListGroupsResponse
from kafka.protocol.consumer import OffsetFetchResponse

from tests.builders import judged, known, view
from tests.fakes.cluster import FakeCluster, FakePartition, one_by_one
from tests.sim.encode import batch, marker
from tests.sim.records import Marker
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.protocol.frames import api_name
from txnscan.kafka.protocol.share_group_offsets import DescribeShareGroupOffsetsResponse
from txnscan.kafka.topology import CONSUMER_OFFSETS_TOPIC, Broker, ClusterView, Key
from txnscan.kafka.topology import Topic as ShownTopic
from txnscan.verdict.evidence import Judged
from txnscan.verdict.outcome import with_outcome
from txnscan.waiting.impact import BlockedGroup
from txnscan.waiting.relation import Blocked
from txnscan.waiting.who_waits import Blockage, read_blockage

NOBODY = "no-such-group"
UNSTABLE, REFUSED = int(ErrorCode.UNSTABLE_OFFSET_COMMIT), int(ErrorCode.GROUP_AUTHORIZATION_FAILED)


Group, Topic = OffsetFetchResponse.OffsetFetchResponseGroup, None


GroupTopic = Group.OffsetFetchResponseTopics
GroupPartition = GroupTopic.OffsetFetchResponsePartitions
# p-0 has its last stable offset at 100 and its high watermark at 105.
P = ("p", 0)


@dataclass
class FakeGroup:
    """A group at its coordinator. committed: offsets. unstable: partitions whose offset is in an open transaction."""

    committed: Mapping[Key, int] = field(default_factory=dict)
    unstable: Collection[Key] = ()
    state: str = "Stable"
    protocol_type: str = "consumer"
    error: int = 0


class FakeGroups(FakeCluster):
    """Brokers with groups. refuses: whether the principal may describe groups. config: of every topic."""

    def __init__(self, groups: Mapping[int, Mapping[str, FakeGroup]], brokers: Collection[int] = (1, 2)) -> None:
        super().__init__(brokers)
        self.groups = groups
        self.refuses = False
        self.listing_error = 0
        self.share_topics = ("p",)
        self.lacks: set[str] = set()
        self.config = {"cleanup.policy": "delete", "retention.ms": "604800000", "remote.storage.enable": "false"}
        self.config_error = 0
        # By name of a topic or a group, in place of config_error.
        self.config_errors: dict[str, int] = {}
        # p-0 starts at offset 50, and its last stable offset is 100.
        self.partitions[P] = kept = FakePartition(leader=1, epoch=5, log_start=50, last_stable=100)
        kept.write(batch(50, 50 * [(None, b"value")]))
        kept.write(batch(100, 5 * [(None, b"value")], producer_id=7, producer_epoch=3))

    def send(self, broker_id: int, request: Any) -> Any:
        name = api_name(request)
        if name in self.lacks:
            raise RequestFailed.unsupported(f"broker {broker_id}", name)
        return super().send(broker_id, request)

    def _answer_ListGroups(self, broker_id: int, request: Any) -> Any:
        listed = ListGroupsResponse.ListedGroup
        return ListGroupsResponse(
            error_code=self.listing_error,
            groups=[
                listed(group_id=name, protocol_type=group.protocol_type, group_state=group.state)
                for name, group in self.groups.get(broker_id, {}).items()
            ],
        )

    def _answer_DescribeShareGroupOffsets(self, broker_id: int, request: Any) -> Any:
        group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
        topic = group.DescribeShareGroupOffsetsResponseTopic
        partition = topic.DescribeShareGroupOffsetsResponsePartition
        topics = [
            topic(topic_name=name, topic_id=uuid.UUID(int=1), partitions=[partition(partition_index=0, start_offset=0)])
            for name in self.share_topics
        ]
        return DescribeShareGroupOffsetsResponse(
            groups=[group(group_id=asked.group_id, topics=topics) for asked in request.groups]
        )

    def _answer_OffsetFetch(self, broker_id: int, request: Any) -> Any:
        return OffsetFetchResponse(
            version=9, groups=[self._offsets(broker_id, asked, request.require_stable) for asked in request.groups]
        )

    def _offsets(self, broker_id: int, asked: Any, require_stable: bool) -> Any:
        if self.refuses:
            return Group(group_id=asked.group_id, error_code=REFUSED, topics=[])
        held = self.groups.get(broker_id, {}).get(asked.group_id, FakeGroup())
        # As brokers do: only partitions with a committed offset.
        keys = (
            list(held.committed)
            if asked.topics is None
            else [(topic.name, index) for topic in asked.topics for index in topic.partition_indexes]
        )
        return Group(
            group_id=asked.group_id,
            error_code=held.error,
            topics=[
                GroupTopic(
                    name=topic,
                    partitions=[
                        GroupPartition(
                            partition_index=index,
                            committed_offset=-1 if unstable else held.committed.get((topic, index), -1),
                            error_code=UNSTABLE if unstable else 0,
                        )
                    ],
                )
                for topic, index in keys
                for unstable in [require_stable and (topic, index) in held.unstable]
            ],
        )

    def _answer_DescribeConfigs(self, broker_id: int, request: Any) -> Any:
        result = DescribeConfigsResponse.DescribeConfigsResult
        return DescribeConfigsResponse(
            results=[
                result(
                    error_code=self.config_errors.get(asked.resource_name, self.config_error),
                    resource_name=asked.resource_name,
                    resource_type=2,
                    configs=[
                        result.DescribeConfigsResourceResult(name=name, value=value)
                        for name, value in self.config.items()
                    ],
                )
                for asked in request.resources
            ]
        )


ORPHAN = with_outcome(judged(), known("unknown", "nothing is known"))


def shown(broker_ids: Iterable[int], offsets_partitions: int = 5) -> ClusterView:
    """The newest Metadata, by the first of these brokers."""
    brokers = tuple(Broker(one, "h", 9092) for one in broker_ids)
    indexes = tuple(range(offsets_partitions))
    leaders, epochs = (1,) * offsets_partitions, (0,) * offsets_partitions
    topics = (ShownTopic(CONSUMER_OFFSETS_TOPIC, "", indexes, leaders, epochs),)
    return ClusterView(brokers[0].broker_id if brokers else 1, "c", brokers, topics)


def blockage(cluster: FakeCluster, *hanging: Judged, live: Sequence[Judged] = ()) -> Blockage:
    return read_blockage(
        cluster.send,
        one_by_one,
        shown(cluster.brokers),
        hanging or (() if live else (ORPHAN,)),
        random_token=lambda: NOBODY,
        live=live,
    )


def marker_before(cluster: FakeGroups) -> FakeGroups:
    """The same with a marker just before the last stable offset of p-0."""
    cluster.partitions[P] = kept = FakePartition(leader=1, epoch=5, log_start=50, last_stable=100)
    kept.write(batch(50, 49 * [(None, b"value")]))
    kept.write(marker(99, Marker(8, 0, 0, True)))
    kept.write(batch(100, 5 * [(None, b"value")], producer_id=7, producer_epoch=3))
    return cluster


def blocked(cluster: FakeCluster, one: Judged = ORPHAN) -> Blocked[BlockedGroup]:
    return blockage(cluster, one).groups[one.observation.transaction_key]


def live(partition: int = 0, blocked: int = 5, **changes: Any) -> Judged:
    """A live transaction of a Flink job's id, as a sweep has it after the read of its offsets."""
    topic = changes.get("topic", "p")
    claim = view("Ongoing", partitions=(f"{topic}-{partition}",), transactional_id="sink-3-17")
    return judged(claim, partition=partition, second_high_watermark=100 + blocked, **changes)


def key_of(group: str, topic: str, index: int, version: int = 1) -> bytes:
    def text(value: str) -> bytes:
        return struct.pack(">h", len(value.encode())) + value.encode()

    return struct.pack(">h", version) + text(group) + text(topic) + struct.pack(">i", index)


def row(**changes: Any) -> dict[str, Any]:
    base = {
        "cause": "unknown",
        "holds_lso": True,
        "lso_unmoved_ms": None,
        "blocked_groups": (),
        "groups_blocked": 0,
        "groups_asked": 4,
        "groups_error": None,
        "compaction_blocked": False,
        "tiering_blocked": False,
        "retention_ms": 604_800_000,
        "age_ms": 60_000,
    }
    return base | changes
