"""The requests to brokers of the shape: every API of the wire-level cluster, in every version that both offer.

`QUESTIONS` has a function for each group of requests, by the name of the group, which is the label of its state in the
recording.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import (
    DescribeAclsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest

from tests.golden.raw import Offered
from tests.golden.shaping import SHAPE
from tests.sim.wire.answers import OFFERED, Api
from tests.sim.wire.shape import HANGING_START_OFFSET, HIGH_WATERMARK
from txnscan.kafka.topology import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

NOWHERE = "nowhere"
TOPIC_NAMES = tuple(SHAPE.topic_name(topic) for topic in range(SHAPE.topics))
IDS = tuple(one.name for one in SHAPE.all_transactional_ids())
GROUPS = tuple(group.name for group in SHAPE.all_groups())
# txnscan sends this version, because followers answer later ones.
FETCH = 10
_BROKERS = tuple(SHAPE.broker_ids)
_TOPIC_PARTITIONS = {topic: list(range(-1, 4)) for topic in (*TOPIC_NAMES[:3], NOWHERE, CONSUMER_OFFSETS_TOPIC)}
_CLEANING = ("cleanup.policy", "retention.ms", "remote.storage.enable")


@dataclass(frozen=True)
class Known:
    """The facts of brokers that requests need. topic_ids: by name. producer_ids: by transactional id."""

    offered: Offered
    topic_ids: Mapping[str, uuid.UUID]
    producer_ids: Mapping[str, int]

    def versions(self, api: Api) -> range:
        """The versions of an API that these brokers and the wire-level cluster offer."""
        first, last = self.offered.get(int(api), (0, -1))
        ours = OFFERED[api]
        return range(max(first, ours.first), min(last, ours.last) + 1)


# A broker, a request and its version.
Question = tuple[int, Any, int]
Asks = Callable[[Known], Iterator[Question]]


def questions(known: Known) -> Iterator[tuple[str, list[Question]]]:
    """The requests of each group in the versions that these brokers offer. Groups without any are left out."""
    for label, asks in QUESTIONS.items():
        asked = [q for q in asks(known) if q[2] in known.versions(Api(q[1].API_KEY))]
        if asked:
            yield label, asked


# --- Metadata and what else is of the cluster ---


def named(*names: str) -> Any:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def configs_of(topics: Sequence[str], names: Sequence[str]) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    wanted = [resource(resource_type=2, resource_name=topic, configuration_keys=list(names)) for topic in topics]
    return DescribeConfigsRequest(resources=wanted)


def partition_of(kind: str) -> tuple[int, str, int]:
    """The leader, topic and number of a partition where a transaction of this kind is open."""
    opened = SHAPE.open_transactions()
    ordinal = next(
        o for o, each in sorted(opened.items()) if any(bool(t.transactional_id) is (kind == "live") for t in each)
    )
    return (SHAPE.leader(ordinal), *SHAPE.key(ordinal))


def offsets(timestamp: int, isolation_level: int, *partitions: tuple[str, int, int]) -> Any:
    topic_type = ListOffsetsRequest.ListOffsetsTopic
    topics = [
        topic_type(
            name=name,
            partitions=[
                topic_type.ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=timestamp)
                for topic, index, epoch in partitions
                if topic == name
            ],
        )
        for name in dict.fromkeys(topic for topic, _, _ in partitions)
    ]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)


def epoch_end(epoch: int, *partitions: tuple[str, int, int]) -> Any:
    """Asks for the end of this epoch. partitions: topic, number and current leader epoch."""
    topic_type = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    topics = [
        topic_type(
            topic=name,
            partitions=[
                topic_type.OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
                for topic, index, current in partitions
                if topic == name
            ],
        )
        for name in dict.fromkeys(topic for topic, _, _ in partitions)
    ]
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)


def fetched(groups: Sequence[str], topics: Mapping[Any, Sequence[int]] | None, require_stable: bool) -> Any:
    """topics: partitions by name, or by id."""
    group_type = OffsetFetchRequest.OffsetFetchRequestGroup
    topic_type = group_type.OffsetFetchRequestTopics
    asked = None
    if topics is not None:
        asked = [
            topic_type(**{"name" if isinstance(topic, str) else "topic_id": topic}, partition_indexes=list(of))
            for topic, of in topics.items()
        ]
    wanted = [group_type(group_id=name, topics=asked) for name in groups]
    return OffsetFetchRequest(groups=wanted, require_stable=require_stable)


def fetching(topic: str, index: int, epoch: int, offset: int, bytes_max: int, isolation_level: int = 0) -> Any:
    topic_type = FetchRequest.FetchTopic
    partition = topic_type.FetchPartition(
        partition=index, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=bytes_max
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=bytes_max,
        isolation_level=isolation_level,
        topics=[topic_type(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
    )


def _metadata(known: Known) -> Iterator[Question]:
    many = (*TOPIC_NAMES, TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC, NOWHERE, "nobody", "__share_group_state")
    for version in known.versions(Api.Metadata):
        for broker_id in _BROKERS:
            yield broker_id, MetadataRequest(topics=None, allow_auto_topic_creation=False), version
            for names in (
                (),
                ("topic-00003", "topic-00001"),
                ("topic-00003", NOWHERE, TRANSACTION_STATE_TOPIC),
                tuple(reversed(TOPIC_NAMES)),
                many,
            ):
                yield broker_id, named(*names), version


def _clusters(known: Known) -> Iterator[Question]:
    for version in known.versions(Api.DescribeCluster):
        yield 1, DescribeClusterRequest(), version


def _api_versions(known: Known) -> Iterator[Question]:
    for version in known.versions(Api.ApiVersions):
        yield 1, ApiVersionsRequest(client_software_name="compare", client_software_version="1"), version


def _settings(_: Known) -> Iterator[Question]:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    for asked in (1, 2):
        wanted = resource(resource_type=4, resource_name=str(asked), configuration_keys=["transaction.max.timeout.ms"])
        yield 1, DescribeConfigsRequest(resources=[wanted]), 4
    for topic in (TOPIC_NAMES[0], TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC, NOWHERE):
        for names in (_CLEANING, _CLEANING[:1], ("nothing",)):
            for broker_id in _BROKERS:
                yield broker_id, configs_of([topic], names), 4
    yield 1, configs_of([*TOPIC_NAMES, NOWHERE, CONSUMER_OFFSETS_TOPIC], _CLEANING[:1]), 4


def _log_dirs(known: Known) -> Iterator[Question]:
    wanted = DescribeLogDirsRequest.DescribableLogDirTopic
    several = {name: [0, 1, 2, 3] for name in (*TOPIC_NAMES[:3], TRANSACTION_STATE_TOPIC, NOWHERE)}
    first = TOPIC_NAMES[0]
    some: Sequence[Mapping[str, Sequence[int]]] = ({}, {first: [0]}, {first: []}, {NOWHERE: [0]}, several)
    for version in known.versions(Api.DescribeLogDirs):
        for broker_id in _BROKERS:
            for asked in some:
                topics = [wanted(topic=name, partitions=list(indexes)) for name, indexes in asked.items()]
                yield broker_id, DescribeLogDirsRequest(topics=topics), version


def _acls(known: Known) -> Iterator[Question]:
    for version in known.versions(Api.DescribeAcls):
        request = DescribeAclsRequest(
            resource_type_filter=5,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        yield 2, request, version


# --- partitions ---


def _producers(_: Known) -> Iterator[Question]:
    topic_type = DescribeProducersRequest.TopicRequest
    for kind in ("hanging", "live"):
        _leader, topic, index = partition_of(kind)
        for broker_id in _BROKERS:
            yield broker_id, DescribeProducersRequest(topics=[topic_type(name=topic, partition_indexes=[index])]), 0
    topics = [
        topic_type(name=name, partition_indexes=[0, 1, 2, 3, -1])
        for name in (*TOPIC_NAMES[:3], TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC, NOWHERE)
    ]
    yield 3, DescribeProducersRequest(topics=topics), 0


def _offsets(known: Known) -> Iterator[Question]:
    last = known.versions(Api.ListOffsets)[-1]
    for version in known.versions(Api.ListOffsets):
        for kind in ("hanging", "live"):
            leader, topic, index = partition_of(kind)
            for timestamp, isolation_level in ((-1, 0), (-1, 1), (-2, 0), (0, 0), (2**50, 0)):
                for epoch in (-1, 0, 1):
                    yield leader, offsets(timestamp, isolation_level, (topic, index, epoch)), version
                follower = SHAPE.replicas(leader)[1]
                yield follower, offsets(timestamp, isolation_level, (topic, index, 0)), version
    for one in ((NOWHERE, 0, 0), (TOPIC_NAMES[0], 3, 0)):
        yield 1, offsets(-1, 0, one), last
    leader, topic, _ = partition_of("live")
    yield leader, offsets(-1, 0, (topic, 0, 1), (topic, 1, 1), (topic, 2, 1), (topic, 3, 0)), last


def _epoch_ends(known: Known) -> Iterator[Question]:
    log = (SHAPE.transaction_state_leader(0), TRANSACTION_STATE_TOPIC, 0)
    for version in known.versions(Api.OffsetForLeaderEpoch):
        for leader, topic, index in (partition_of("hanging"), partition_of("live"), log):
            for current in (-1, 0, 1):
                # Only epoch 0 exists.
                for epoch in (0, 1, -1, -2):
                    for broker_id in (leader, SHAPE.replicas(leader)[1]):
                        yield broker_id, epoch_end(epoch, (topic, index, current)), version
        leader, topic, _ = partition_of("live")
        several = ((topic, 0, 0), (topic, 1, 0), (topic, 2, 0), (topic, 3, 0), (NOWHERE, 0, 0), (TOPIC_NAMES[0], 0, 0))
        yield leader, epoch_end(0, *several), version


# --- coordinators ---


def _described_ids(_: Known) -> Iterator[Question]:
    for name in (*IDS, "nobody", ""):
        for broker_id in _BROKERS:
            yield broker_id, DescribeTransactionsRequest(transactional_ids=[name]), 0


def _listed_ids(known: Known) -> Iterator[Question]:
    everywhere: tuple[Mapping[str, Any], ...] = (
        {},
        {"state_filters": ["Ongoing"]},
        {"state_filters": ["Ongoing", "Empty", "CompleteAbort"]},
        {"state_filters": ["Odd"]},
        {"state_filters": ["Odd", "Ongoing"]},
        {"producer_id_filters": [5]},
    )
    by_duration_and_name: tuple[Mapping[str, Any], ...] = (
        {"duration_filter": 0},
        {"duration_filter": 10**9},
        {"duration_filter": 10**9, "state_filters": ["Ongoing"]},
        {"transactional_id_pattern": "service-on.*"},
        {"transactional_id_pattern": "service"},
        {"transactional_id_pattern": ""},
        {"transactional_id_pattern": "("},
    )
    for broker_id in _BROKERS:
        for version in known.versions(Api.ListTransactions):
            for filters in everywhere:
                yield broker_id, ListTransactionsRequest(**filters), version
        for filters in by_duration_and_name:
            yield broker_id, ListTransactionsRequest(**filters), 2
        for name in IDS:
            yield broker_id, ListTransactionsRequest(producer_id_filters=[known.producer_ids[name]] * 2), 0


# --- groups ---


def _coordinators(known: Known) -> Iterator[Question]:
    for version in known.versions(Api.FindCoordinator):
        for kind, names in ((0, GROUPS), (1, IDS)):
            yield 1, FindCoordinatorRequest(key_type=kind, coordinator_keys=[*names, NOWHERE]), version


def _listed_groups(_: Known) -> Iterator[Question]:
    filtered: tuple[tuple[int, Mapping[str, Any]], ...] = (
        (3, {}),
        (4, {}),
        (4, {"states_filter": ["Stable"]}),
        (4, {"states_filter": ["EMPTY", "Dead", "Odd"]}),
        (4, {"states_filter": ["Odd"]}),
        (5, {}),
        (5, {"states_filter": ["stable"], "types_filter": ["classic"]}),
        (5, {"types_filter": ["Classic", "Consumer"]}),
        (5, {"types_filter": ["Consumer"]}),
        (5, {"types_filter": ["Odd"]}),
    )
    for version, filters in filtered:
        for broker_id in _BROKERS:
            yield broker_id, ListGroupsRequest(**{"states_filter": [], "types_filter": [], **filters}), version


def _committed_offsets(known: Known) -> Iterator[Question]:
    """For every group and an unknown one. Brokers that do not coordinate the group answer NOT_COORDINATOR."""
    named_versions = [version for version in known.versions(Api.OffsetFetch) if version < _BY_TOPIC_ID]
    for version in named_versions:
        for require_stable in (False, True):
            for broker_id in _BROKERS:
                for name in (*GROUPS, NOWHERE, ""):
                    yield broker_id, fetched([name], _TOPIC_PARTITIONS, require_stable), version
                    yield broker_id, fetched([name], {}, require_stable), version
                yield broker_id, fetched([*GROUPS, NOWHERE], _TOPIC_PARTITIONS, require_stable), version


def _all_committed_offsets(known: Known) -> Iterator[Question]:
    for version in known.versions(Api.OffsetFetch):
        for broker_id in _BROKERS:
            for name in (*GROUPS, NOWHERE):
                yield broker_id, fetched([name], None, False), version


def _offsets_by_topic_id(known: Known) -> Iterator[Question]:
    ids = {known.topic_ids[name]: _TOPIC_PARTITIONS[name] for name in TOPIC_NAMES[:3]}
    unknown = {uuid.UUID(int=7): [0, 1]}
    for broker_id in _BROKERS:
        for name in (*GROUPS, NOWHERE):
            for asked in (ids, unknown, {**unknown, **ids, uuid.UUID(int=8): [2]}):
                yield broker_id, fetched([name], asked, False), _BY_TOPIC_ID


# --- records ---


def _records(_: Known) -> Iterator[Question]:
    for kind in ("hanging", "live"):
        leader, topic, index = partition_of(kind)
        for isolation_level in (0, 1):
            for broker_id in (leader, SHAPE.replicas(leader)[1]):
                for offset in (0, 50, HANGING_START_OFFSET, HANGING_START_OFFSET + 1, 150, 199, HIGH_WATERMARK):
                    for bytes_max in (1, 300, 1_000, 1 << 20):
                        yield broker_id, fetching(topic, index, 0, offset, bytes_max, isolation_level), FETCH


def _refused(_: Known) -> Iterator[Question]:
    leader, topic, index = partition_of("live")
    for epoch, offset in ((1, 0), (0, 10**6), (0, -1), (-1, HIGH_WATERMARK)):
        for of, number in ((topic, index), (NOWHERE, 0), (TOPIC_NAMES[0], 3)):
            yield leader, fetching(of, number, epoch, offset, 1_000), FETCH


def _transaction_log(_: Known) -> Iterator[Question]:
    for k in range(SHAPE.transaction_state_partitions):
        leader = SHAPE.transaction_state_leader(k)
        for bytes_max in (1, 1 << 20):
            yield leader, fetching(TRANSACTION_STATE_TOPIC, k, 0, 0, bytes_max), FETCH


_BY_TOPIC_ID = 10
API_VERSIONS, TRANSACTION_LOG = "API versions", "transaction log"
QUESTIONS: Mapping[str, Asks] = {
    "Metadata": _metadata,
    "cluster": _clusters,
    API_VERSIONS: _api_versions,
    "settings": _settings,
    "log directories": _log_dirs,
    "ACLs": _acls,
    "producers": _producers,
    "offsets": _offsets,
    "ends of leader epochs": _epoch_ends,
    "described ids": _described_ids,
    "listed ids": _listed_ids,
    "coordinators": _coordinators,
    "listed groups": _listed_groups,
    "committed offsets": _committed_offsets,
    "all committed offsets": _all_committed_offsets,
    "committed offsets by topic id": _offsets_by_topic_id,
    "records": _records,
    "refused fetches": _refused,
    TRANSACTION_LOG: _transaction_log,
}
