"""The wire-level cluster: txnscan, kafka-python and Kafka's own tool all see the transactions of its shape."""

from __future__ import annotations

import contextlib
import io
import re
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka.protocol.consumer import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer.transaction import WriteTxnMarkersResponse
from kafka.record import MemoryRecords

from tests.brokers.shared import PLAIN
from tests.fakes.wire import Opened, ask, framed, planted, read
from tests.process import ROOT, run
from tests.sim.codec import Reader
from tests.sim.wire import ClusterShape, WireCluster, partition_log, state_log
from tests.sim.wire import __main__ as by_hand
from tests.sim.wire.answers import OFFERED, Answers, Api
from tests.sim.wire.server import Broker as ServedBroker
from tests.sim.wire.server import Kept
from tests.sim.wire.shape import HANGING_AGE_MS, HIGH_WATERMARK, LAGGING_OFFSET, Reads
from tests.sim.wire.world import HOST, World, Written
from txnscan import ScanConfig, find_hanging
from txnscan.config import parse_bootstrap_servers
from txnscan.coordinators.cluster import Cluster
from txnscan.demo.jars import kafka_jars
from txnscan.demo.kafka_tool import find_hanging as kafka_tool
from txnscan.engine import Engine
from txnscan.engine.threads import ThreadsEngine
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.factory import ClientFactory
from txnscan.kafka.clock import wall_clock_ms
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.write_txn_markers import MarkerToWrite
from txnscan.kafka.topology import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txnscan.reads.observation import TransactionKey
from txnscan.reads.rows import ProvenRow, WideAnswer
from txnscan.sweeps.history import DiskReads, Incident, Incidents, NoHistory, Sightings
from txnscan.sweeps.pipeline import scan
from txnscan.sweeps.result import Scan
from txnscan.sweeps.state import Run
from txnscan.txnlog.decode import decode, transactional_id
from txnscan.txnlog.facts import Facts, LoggedTransaction
from txnscan.txnlog.rows import LogRow
from txnscan.verdict.evidence import Judged, Verdict
from txnscan.waiting.complete_up_to import TopicRead
from txnscan.waiting.disk import PartitionId
from txnscan.waiting.impact import BlockedGroup, BlockReason, Impact

STARTED_AT_MS = 1_700_000_000_000
SHAPE = ClusterShape(
    brokers=3, partitions=50, partitions_per_topic=20, hanging=6, ongoing=5, transactional_ids=40, replication_factor=2
)


@dataclass(frozen=True)
class Tool:
    """The part of a demo cluster that Kafka's tool needs."""

    jars: Path
    bootstrap_servers: str


@pytest.fixture(scope="module")
def wired() -> Iterator[WireCluster]:
    """A cluster for tests that change no broker."""
    with WireCluster(SHAPE) as cluster:
        yield cluster


def swept(cluster: WireCluster, **options: Any) -> Scan:
    return find_hanging(ScanConfig(cluster.bootstrap_servers, **options))


def test_the_log_has_each_request_and_no_secret(wired: WireCluster, tmp_path: Path) -> None:
    """By option and by variable. The default is no log."""
    requests = re.compile(
        r"DEBUG txnscan\.kafka\.client\.client: broker \d \(\S+\) answered (\w+): \d+ bytes in \d+ ms"
    )
    secret = tmp_path / "client.properties"
    secret.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} required username="u" password="s3cr3t";\n'
    )
    secret.chmod(0o600)
    at = ("list", "--bootstrap-server", wired.bootstrap_servers)
    debug = {"TXNSCAN_LOG_LEVEL": "debug"}
    logged = run("--log-level", "debug", *at)
    asked = {"ApiVersions", "Metadata", "ListTransactions", "DescribeTransactions"}
    assert set(requests.findall(logged.stderr)) == asked
    assert requests.search(run(*at, environment=debug).stderr)
    plain = run(*at)
    assert (plain.stderr, plain.stdout.count("\n")) == ("", logged.stdout.count("\n"))
    refused = run(*at, "--command-config", str(secret), environment=debug)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "DEBUG txnscan.kafka.client.client" in refused.stderr and "s3cr3t" not in refused.stderr


def test_each_command_says_once_that_there_is_no_such_id(wired: WireCluster) -> None:
    known = run("list", "--bootstrap-server", wired.bootstrap_servers).stdout.split()[-1]
    mistyped = f"{known}x"
    for words in (("describe",), ("transaction-log",), ("explain",), ("force-terminate", "--yes")):
        ran = run(*words, "--bootstrap-server", wired.bootstrap_servers, "--transactional-id", mistyped)
        assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1), ran.stderr
        assert ran.stderr.startswith("txnscan: --transactional-id: ") and f"'{mistyped}'" in ran.stderr
        # What is suggested is an id of the cluster.
        assert re.search(r"; did you mean '[a-z-]+\d{7}'\?$", ran.stderr.rstrip()), ran.stderr


@pytest.mark.parametrize("words", [("--verbose",), ("--verbose", "--all"), ()])
def test_the_exit_status_is_no_part_of_a_paragraph(wired: WireCluster, words: tuple[str, ...]) -> None:
    said = run("find-hanging", "--bootstrap-server", wired.bootstrap_servers, *words).stdout
    assert ("\n\nExit status: " in said) is bool(words) and "\nExit status: " in said


def judged(scan: Scan, verdict: Verdict) -> Opened:
    seen = [j.observation for j in scan.transactions if j.judgement.verdict is verdict]
    return {(o.topic, o.partition, o.producer_id, o.start_offset) for o in seen}


def producers(port: int, topic: str, index: int) -> list[Any]:
    wanted = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[index])
    (partition,) = (
        ask(port, DescribeProducersRequest(topics=[wanted]), DescribeProducersResponse, 0).topics[0].partitions
    )
    assert partition.error_code == 0
    return list(partition.active_producers)


def listed_offset(port: int, topic: str, index: int, leader_epoch: int, *, committed: bool = False) -> Any:
    wanted = ListOffsetsRequest.ListOffsetsTopic
    asked = wanted.ListOffsetsPartition(partition_index=index, current_leader_epoch=leader_epoch, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=int(committed), topics=[wanted(name=topic, partitions=[asked])]
    )
    return ask(port, request, ListOffsetsResponse, OFFERED[Api.ListOffsets].last).topics[0].partitions[0]


def offset(port: int, topic: str, index: int, *, committed: bool) -> int:
    """The last stable offset or the high watermark."""
    told = listed_offset(port, topic, index, -1, committed=committed)
    assert told.error_code == 0
    return int(told.offset)


def answers_of(shape: ClusterShape) -> Answers:
    return Answers(World(shape, STARTED_AT_MS, {b: 9_000 + b for b in shape.broker_ids}))


def answered(answers: Answers, broker_id: int, request: Any, response: Any, version: int) -> Any:
    """A broker's answer to a kafka-python request, decoded by kafka-python to its last byte."""
    body = answers.body(broker_id, Api(request.API_KEY), version, Reader(request.encode(version=version, header=False)))
    data = io.BytesIO(body)
    decoded = response.decode(data, version=version, header=False)
    assert data.read() == b""
    return decoded


# --- clients ----------------------------------------------------------------------------------------------------------


def test_txnscan_reports_exactly_the_planted_transactions_as_hanging(wired: WireCluster) -> None:
    scan = swept(wired)
    assert scan.complete and scan.errors == ()
    assert judged(scan, Verdict.HANGING) == planted(SHAPE, hanging=True)
    assert judged(scan, Verdict.ONGOING) == planted(SHAPE, hanging=False)
    assert {j.judgement.reason.value for j in scan.candidates} == {"orphan"} and len(scan.candidates) == 6
    assert len(scan.transactions) == SHAPE.hanging + SHAPE.ongoing
    assert scan.producers == SHAPE.partitions * SHAPE.producers_per_partition + SHAPE.hanging + SHAPE.ongoing
    assert scan.transactional_ids == SHAPE.ongoing, "those at rest are not asked for"
    assert (scan.coordinators_proven, scan.brokers) == (SHAPE.transaction_state_partitions, SHAPE.brokers)


def test_kafka_python_describes_and_lists_the_cluster(wired: WireCluster) -> None:
    admin = KafkaAdminClient(bootstrap_servers=wired.bootstrap_servers)
    try:
        topics = {SHAPE.topic_name(topic) for topic in range(SHAPE.topics)}
        assert topics <= {topic if isinstance(topic, str) else topic["name"] for topic in admin.list_topics()}
        topic, index, producer_id, start = min(planted(SHAPE, hanging=True))
        described = str(admin.describe_producers([TopicPartition(topic, index)]))
        assert str(producer_id) in described and str(start) in described
        listed = str(admin.list_transactions())
        assert all(repr(one.name) in listed for one in SHAPE.all_transactional_ids())
    finally:
        admin.close()


def test_kafkas_own_tool_reports_exactly_the_planted_transactions() -> None:
    shape = ClusterShape(brokers=3, partitions=60, partitions_per_topic=25, hanging=9, ongoing=6, transactional_ids=20)
    with WireCluster(shape) as cluster:
        tool: Any = Tool(kafka_jars(), cluster.bootstrap_servers)
        reported = {broker_id: kafka_tool(tool, broker_id) for broker_id in shape.broker_ids}
    assert {
        (h.topic, h.partition, h.producer_id, h.start_offset) for found in reported.values() for h in found
    } == planted(shape, hanging=True)
    for broker_id, found in reported.items():
        of_broker = [(*shape.key(shape.hanging_ordinal(n)),) for n in range(shape.hanging)]
        leads = {key for n, key in enumerate(of_broker) if shape.leader(shape.hanging_ordinal(n)) == broker_id}
        assert {(h.topic, h.partition) for h in found} == leads


def test_a_busy_cluster_has_the_transactions_of_its_shape() -> None:
    shape = ClusterShape.busy(3, 2_000, hanging=4, transactional_ids=600, log_records=3_000)
    with WireCluster(shape) as cluster:
        scan = swept(cluster)
    assert scan.complete and scan.errors == ()
    assert scan.warnings == ()
    assert scan.partitions_planned == 2_000 + 50 + 50, "those of __transaction_state and of __consumer_offsets"
    assert judged(scan, Verdict.HANGING) == planted(shape, hanging=True)
    assert judged(scan, Verdict.ONGOING) | judged(scan, Verdict.PENDING_MARKER) == planted(shape, hanging=False)
    # 5 % of the partitions, ten per transaction. One transaction is decided, with four of its ten markers pending.
    assert (scan.counts["ongoing"], scan.counts["pending_marker"]) == (100, 4)
    assert scan.transactional_ids == 10 + 1
    # Each of 20 topics has 50 groups, of which every third is at the last stable offset.
    told = [(impact.groups_blocked, impact.groups_asked, impact.groups_error) for _, impact in impacts(scan)]
    assert told == 4 * [(17, 1_000, None)]


def impacts(scan: Scan) -> list[tuple[str, Impact]]:
    """The impact of each transaction that has one, with its topic."""
    found = ((judged.observation.topic, scan.impact(judged)) for judged in scan.transactions)
    return [(topic, impact) for topic, impact in found if impact is not None]


def test_a_sweep_reports_blocked_groups_and_the_cleanup_policy() -> None:
    shape = ClusterShape(brokers=3, partitions=40, partitions_per_topic=10, hanging=4, groups=14)
    with WireCluster(shape) as cluster:
        scan = swept(cluster)
    assert scan.complete and scan.warnings == ()
    found = dict(impacts(scan))
    # The first group of each topic is blocked, the second has read on, the third lags. Topics 0 and 1 have a fourth.
    waiting = {"topic-00000": (0, 12), "topic-00001": (1, 13), "topic-00002": (2,), "topic-00003": (3,)}
    assert {topic: impact.groups for topic, impact in found.items()} == {
        topic: tuple(
            BlockedGroup(f"consumers-{n:07d}", BlockReason.AT_LSO, "Empty" if n == 3 else "Stable", 100, 100)
            for n in numbers
        )
        for topic, numbers in waiting.items()
    }
    assert {(i.groups_blocked, i.groups_asked) for i in found.values()} == {(2, 14), (1, 14)}
    assert {(i.cleanup_policy, i.retention_ms) for i in found.values()} == {("delete", 7 * 24 * 60 * 60 * 1000)}


def test_without_groups_a_sweep_has_no_group_warnings(wired: WireCluster) -> None:
    scan = swept(wired)
    assert scan.warnings == ()
    assert {(impact.groups_asked, impact.groups_error) for _, impact in impacts(scan)} == {(0, None)}


# --- faults of brokers ------------------------------------------------------------------------------------------------


def test_every_nth_partition_answers_with_an_error() -> None:
    shape = ClusterShape(brokers=2, partitions=30, partitions_per_topic=10, error_every=7)
    with WireCluster(shape, processes=1) as cluster:
        scan = swept(cluster)
    failed = {(e.topic, e.partition) for e in scan.errors}
    assert failed == {shape.key(ordinal) for ordinal in (6, 13, 20, 27)} and not scan.complete
    assert all(ErrorCode.NOT_LEADER_OR_FOLLOWER.name in str(e.failure) for e in scan.errors)


def test_at_every_nth_request_a_broker_closes_the_connection() -> None:
    shape = ClusterShape(brokers=1, partitions=1, reset_every=2)
    with WireCluster(shape) as cluster, socket.create_connection((HOST, cluster.ports[1]), 10) as raw:
        for correlation_id in (1, 2):
            raw.sendall(framed(DescribeProducersRequest(topics=[]), correlation_id))
        received = raw.makefile("rb").read()
        stats = cluster.stats()[1]
    (length, correlation_id) = struct.unpack_from(">ii", received)
    assert (len(received), correlation_id) == (4 + length, 1), "the first answer is whole, and there is no second"
    assert (stats.resets, stats.requests["DescribeProducers"]) == (1, 2)


def test_a_client_that_retries_gets_past_resets() -> None:
    with WireCluster(ClusterShape(brokers=2, partitions=40, hanging=3, reset_every=3)) as cluster:
        scan = swept(cluster, batch_size=4)
        stats = cluster.stats()
    assert scan.complete and judged(scan, Verdict.HANGING) == planted(cluster.shape, hanging=True)
    assert sum(s.resets for s in stats.values()) > 0


def test_the_throttle_time_is_in_the_answers_of_its_broker_only() -> None:
    answers = answers_of(ClusterShape(brokers=2, partitions=4, throttle_ms={2: 70}))
    request = DescribeProducersRequest(topics=[])
    told = [answered(answers, b, request, DescribeProducersResponse, 0).throttle_time_ms for b in (1, 2)]
    assert told == [0, 70]


def test_requests_of_many_connections_are_delayed_in_parallel() -> None:
    with WireCluster(ClusterShape(brokers=2, partitions=1, latency_ms=0, slow_brokers={2: 300})) as cluster:
        for broker_id in (1, 2):
            connections = [socket.create_connection((HOST, cluster.ports[broker_id]), 10) for _ in range(5)]
            for one in connections:
                one.sendall(framed(DescribeProducersRequest(topics=[]), 7) * 2)
            files = [one.makefile("rb") for one in connections]
            assert {read(file)[0] for file in files * 2} == {7}
            for one in connections:
                one.close()
        stats = cluster.stats()
        cluster.reset_stats()
        again = cluster.stats()
    assert stats[2].describe_producers_in_flight_max == stats[2].in_flight_max == 10
    assert stats[1].describe_producers_in_flight_max <= 2, "a quick broker answers one connection after the other"
    # Throttle time, no topics and no tags, after length, correlation id and tags.
    assert stats[1].bytes_by_api == stats[2].bytes_by_api == {"DescribeProducers": 10 * (4 + 1 + 1 + 4 + 4 + 1)}
    assert again[2].requests == {} and again[2].in_flight_max == again[2].bytes_sent == 0


def test_answers_of_one_connection_have_the_order_of_its_requests() -> None:
    with WireCluster(ClusterShape(brokers=1, partitions=5, latency_ms=20)) as cluster:
        with socket.create_connection((HOST, cluster.ports[1]), 10) as raw, raw.makefile("rb") as received:
            asked = [
                DescribeProducersRequest(topics=[]),
                ListTransactionsRequest(),
                DescribeProducersRequest(topics=[]),
            ]
            raw.sendall(b"".join(framed(request, c) for c, request in enumerate(asked)))
            order = [read(received)[0] for _ in asked]
        assert order == [0, 1, 2]


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_ends_its_transaction(commit: bool) -> None:
    shape = ClusterShape(brokers=2, partitions=10, hanging=2, ongoing=10)
    ended, kept = (shape.hanging_ordinal(n) for n in (0, 1))
    (topic, index), leader = shape.key(ended), shape.leader(ended)
    with WireCluster(shape) as cluster:
        port = cluster.ports[leader]
        before = swept(cluster)
        hanging, ongoing = (p for p in producers(port, topic, index) if p.current_txn_start_offset >= 0)
        assert offset(port, topic, index, committed=True) == hanging.current_txn_start_offset
        marker = MarkerToWrite(topic, index, hanging.producer_id, 0, hanging.coordinator_epoch, commit)
        assert marker.answered(ask(port, marker.request(), WriteTxnMarkersResponse, 1)) == ErrorCode.NONE
        left = producers(port, topic, index)
        assert [p for p in left if p.current_txn_start_offset >= 0] == [ongoing]
        assert len(left) == shape.producers_per_partition + 2, "the producer is still there, idle"
        assert offset(port, topic, index, committed=True) == ongoing.current_txn_start_offset
        assert offset(port, topic, index, committed=False) == HIGH_WATERMARK + 1
        after = swept(cluster)
    assert {key[:2] for key in judged(before, Verdict.HANGING)} == {shape.key(ended), shape.key(kept)}
    assert {key[:2] for key in judged(after, Verdict.HANGING)} == {shape.key(kept)}


@pytest.mark.parametrize(
    ("follower", "epoch_change", "error"),
    [
        (0, 0, ErrorCode.NONE),
        (0, -1, ErrorCode.FENCED_LEADER_EPOCH),
        (0, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (1, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_only_the_leader_at_its_epoch_returns_offsets(
    wired: WireCluster, follower: int, epoch_change: int, error: ErrorCode
) -> None:
    port = wired.ports[SHAPE.replicas(SHAPE.leader(4))[follower]]
    told = listed_offset(port, *SHAPE.key(4), SHAPE.leader_epoch(4) + epoch_change)
    assert told.error_code == error
    assert producers(port, *SHAPE.key(4)), "followers answer this without an error"


# --- bytes ---


@pytest.mark.parametrize("version", range(OFFERED[Api.Metadata].first, OFFERED[Api.Metadata].last + 1))
def test_metadata_has_the_partitions_of_the_shape(version: int) -> None:
    told = answered(answers_of(SHAPE), 1, MetadataRequest(topics=None), MetadataResponse, version)
    assert [(b.node_id, b.host, b.port) for b in told.brokers] == [(b, HOST, 9_000 + b) for b in (1, 2, 3)]
    assert told.cluster_id
    assert {t.name: t.is_internal for t in told.topics} == {
        **{SHAPE.topic_name(topic): False for topic in range(3)},
        TRANSACTION_STATE_TOPIC: True,
    }
    users = [t for t in told.topics if not t.is_internal]
    assert all(t.error_code == 0 and t.topic_id == SHAPE.topic_id(t.name) for t in users)
    shown = {(t.name, p.partition_index): p for t in users for p in t.partitions}
    assert len(shown) == SHAPE.partitions
    for ordinal in range(SHAPE.partitions):
        p = shown[SHAPE.key(ordinal)]
        assert (p.leader_id, p.leader_epoch, p.error_code) == (SHAPE.leader(ordinal), SHAPE.leader_epoch(ordinal), 0)
        assert tuple(p.replica_nodes) == tuple(p.isr_nodes) == SHAPE.replicas(p.leader_id) and not p.offline_replicas


@pytest.mark.parametrize("version", range(OFFERED[Api.Metadata].first, OFFERED[Api.Metadata].last + 1))
def test_metadata_of_an_unknown_topic_is_an_error(version: int) -> None:
    names = ["nowhere", "topic-00001", "topic-1", "topic-00003", TRANSACTION_STATE_TOPIC]
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names])
    told = answered(answers_of(SHAPE), 2, request, MetadataResponse, version)
    assert {t.name: (t.error_code, len(t.partitions)) for t in told.topics} == {
        **dict.fromkeys(("nowhere", "topic-1", "topic-00003"), (3, 0)),
        "topic-00001": (0, 20),
        TRANSACTION_STATE_TOPIC: (0, SHAPE.transaction_state_partitions),
    }


def test_producers_have_the_transactions_of_the_shape() -> None:
    shape = ClusterShape(brokers=2, partitions=40, partitions_per_topic=20, hanging=40, ongoing=7, error_every=9)
    topics = [
        DescribeProducersRequest.TopicRequest(name=name, partition_indexes=list(range(21)))
        for name in (shape.topic_name(0), shape.topic_name(1), TRANSACTION_STATE_TOPIC, "nowhere")
    ]
    answers = answers_of(shape)
    opened = planted(shape, hanging=True) | planted(shape, hanging=False)
    for broker_id in shape.broker_ids:
        told = answered(answers, broker_id, DescribeProducersRequest(topics=topics), DescribeProducersResponse, 0)
        first, second, state, nowhere = told.topics
        assert {p.error_code for p in nowhere.partitions} == {first.partitions[20].error_code} == {3}
        assert all(p.active_producers == [] for p in state.partitions)
        shown = [*first.partitions[:20], *second.partitions[:20]]
        for ordinal, p in enumerate(shown):
            if shape.leader(ordinal) != broker_id or ordinal % 9 == 8:
                assert (p.error_code, p.active_producers) == (6, [])
                continue
            assert (p.error_code, p.error_message) == (0, None)
            starts = {one.producer_id: one.current_txn_start_offset for one in p.active_producers}
            assert [*starts][:10] == [*shape.idle_producer_ids(ordinal)] and {*starts.values()} >= {-1}
            still = {(*shape.key(ordinal), pid, start) for pid, start in starts.items() if start >= 0}
            assert still == {one for one in opened if one[:2] == shape.key(ordinal)}
            assert {one.last_timestamp for one in p.active_producers if one.current_txn_start_offset == 100} == {
                STARTED_AT_MS - HANGING_AGE_MS
            }


@pytest.mark.parametrize("version", [0, 1, 2])
def test_listings_are_filtered_by_producer_id_and_state(version: int) -> None:
    answers = answers_of(SHAPE)
    one = next(SHAPE.all_transactional_ids())

    def names(state_filters: list[str], producer_id_filters: list[int]) -> list[str]:
        request = ListTransactionsRequest(state_filters=state_filters, producer_id_filters=producer_id_filters)
        told = [answered(answers, b, request, ListTransactionsResponse, version) for b in SHAPE.broker_ids]
        assert all(t.unknown_state_filters == [s for s in state_filters if s == "Odd"] for t in told)
        return [s.transactional_id for t in told for s in t.transaction_states]

    assert sorted(names([], [])) == sorted(each.name for each in SHAPE.all_transactional_ids())
    assert names([], [one.producer_id, 5]) == [one.name]
    assert names([], [one.producer_id, one.producer_id]) == [one.name]
    assert len(names(["Ongoing", "Odd"], [])) == SHAPE.ongoing
    assert names(["CompleteCommit"], [one.producer_id]) == names(["Odd"], []) == []


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_cluster_describes_its_brokers(version: int) -> None:
    told = answered(answers_of(SHAPE), 1, DescribeClusterRequest(), DescribeClusterResponse, version)
    assert [(b.broker_id, b.port) for b in told.brokers] == [(b, 9_000 + b) for b in SHAPE.broker_ids]


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 5])
def test_a_client_of_any_version_gets_the_supported_apis(wired: WireCluster, version: int) -> None:
    frame = struct.pack(">hhih", 18, version, 3, -1) + (b"\0\2x\2y\0" if version >= 3 else b"")
    with socket.create_connection((HOST, wired.ports[2]), 10) as raw, raw.makefile("rb") as received:
        raw.sendall(struct.pack(">i", len(frame)) + frame)
        correlation_id, answer = read(received)
    spoken = version if version <= 4 else 0
    told = ApiVersionsResponse.decode(io.BytesIO(answer), version=spoken, header=False)
    assert correlation_id == 3
    assert told.error_code == (0 if version <= 4 else 35)
    assert {k.api_key: (k.min_version, k.max_version) for k in told.api_keys} == {
        int(api): (offered.first, offered.last) for api, offered in OFFERED.items()
    }


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">ihhih", 10, 3, 0, 1, -1),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 61, 0, 1, -1),
        struct.pack(">ih", 2, 61),
    ],
    ids=["a negative length", "a huge length", "an old version", "an unknown API", "a cut request", "half a header"],
)
def test_an_invalid_request_closes_only_its_connection(wired: WireCluster, frame: bytes) -> None:
    with socket.create_connection((HOST, wired.ports[1]), 10) as raw:
        raw.sendall(frame)
        with contextlib.suppress(ConnectionResetError):
            assert raw.makefile("rb").read() == b""
        assert producers(wired.ports[1], *SHAPE.key(0))


def test_each_answer_names_a_random_controller_and_is_otherwise_constant() -> None:
    answers = answers_of(SHAPE)
    broker = ServedBroker(1, answers, Kept())
    for request, api in ((MetadataRequest(topics=None), Api.Metadata), (DescribeClusterRequest(), Api.DescribeCluster)):
        at = answers.controller_at(api, OFFERED[api].first)
        assert at is not None
        frame = framed(request, version=OFFERED[api].first)[4:]
        told = {broker.body(api, OFFERED[api].first, frame) for _ in range(100)}
        assert {int.from_bytes(body[at : at + 4]) for body in told} == {1, 2, 3}
        assert len({body[:at] + body[at + 4 :] for body in told}) == 1


# --- the transaction log ---


def logged(shape: ClusterShape, k: int, bytes_max: int) -> list[LoggedTransaction]:
    """All records of a log partition, read in pieces of this size. Every whole batch has a valid checksum."""
    log = World(shape, STARTED_AT_MS, {}).state_log
    found: list[LoggedTransaction] = []
    offset = 0
    while offset < log.end(k):
        data = log.read(k, offset, bytes_max)
        first = 12 + int.from_bytes(data[8:12])
        assert first <= len(data) <= max(first, bytes_max)
        for batch in MemoryRecords(data):
            assert batch.validate_crc() and batch.base_offset >= offset
            assert batch.magic == 2 and not batch.is_transactional
            (record,) = batch
            name = transactional_id(record.key)
            assert name is not None
            found.append(decode(record.offset, 0, name, record.value))
            offset = record.offset + 1
    return found


LOGGED = [
    ClusterShape.busy(3, 500, transactional_ids=90, log_records=2_000, transaction_state_partitions=3),
    ClusterShape.busy(3, 500, transactional_ids=90, log_records=0, transaction_state_partitions=3),
    ClusterShape(partitions=90, ongoing=20, partitions_per_transaction=3, transaction_state_partitions=3),
    ClusterShape(transaction_state_partitions=3),
]


@pytest.mark.parametrize("shape", LOGGED, ids=["with a history", "cleaned", "nothing at rest", "empty"])
def test_the_last_logged_record_of_each_id_is_the_state_at_its_coordinator(shape: ClusterShape) -> None:
    records = {k: logged(shape, k, 10_000) for k in range(3)}
    assert sum(map(len, records.values())) >= shape.log_records
    last = {record.transactional_id: (k, record) for k, each in records.items() for record in each}
    ids = {one.name: one for one in shape.all_transactional_ids()}
    assert last.keys() == ids.keys()
    for name, (k, record) in last.items():
        one = ids[name]
        assert k == coordinator_partition(name, 3)
        said = (record.producer_id, record.producer_epoch, record.state.value)
        assert said == (one.producer_id, one.producer_epoch, one.state)
        assert record.partitions == {shape.key(ordinal) for ordinal in one.held}
        assert {*one.shown} <= {*one.held}
        assert record.start_time_ms == (-1 if one.began_ago_ms is None else STARTED_AT_MS - one.began_ago_ms)
    orphans = {t.producer_id for each in shape.open_transactions().values() for t in each if not t.transactional_id}
    assert not orphans & {record.producer_id for each in records.values() for record in each}


def test_each_record_of_the_log_follows_from_its_predecessor() -> None:
    order = {"Empty": {"Ongoing"}, "Ongoing": {"PrepareCommit", "PrepareAbort"}}
    order |= {f"Prepare{end}": {f"Complete{end}"} for end in ("Commit", "Abort")}
    order |= {f"Complete{end}": {"Ongoing", "Empty"} for end in ("Commit", "Abort")}
    raised = {"PrepareCommit", "PrepareAbort"}
    for k in range(3):
        before: dict[str, LoggedTransaction] = {}
        for record in logged(LOGGED[0], k, 1 << 20):
            last = before.get(record.transactional_id)
            if last is not None:
                assert record.state.value in order[last.state.value]
                anew = record.state.value == "Empty"
                assert record.producer_epoch == last.producer_epoch + (anew or record.state.value in raised)
                assert record.updated_ms >= last.updated_ms
            before[record.transactional_id] = record


@pytest.mark.parametrize("bytes_max", [1, 250, 700, 4_096])
def test_the_log_is_the_same_in_pieces_of_any_size(bytes_max: int) -> None:
    assert all(logged(LOGGED[0], k, bytes_max) == logged(LOGGED[0], k, 1 << 24) for k in range(3))


def test_the_log_cache_is_bounded_and_rebuilt_identically(monkeypatch: pytest.MonkeyPatch) -> None:
    log = World(LOGGED[0], STARTED_AT_MS, {}).state_log
    kept = [log.read(k, 0, 1 << 24) for k in range(3)]
    monkeypatch.setattr(state_log, "_ROWS_BYTES_MAX", 1)
    again = [log.read(k, 0, 1 << 24) for k in range(3)]
    assert again == kept and len(log._kept) == 1


def test_markers_are_at_the_end_of_a_log_after_the_open_transactions() -> None:
    shape = ClusterShape(brokers=1, partitions=1, hanging=1)
    world = World(shape, STARTED_AT_MS, {1: 9_001})
    world.end(0, Written(1_000_000_000, 0, 7, True))
    data = partition_log.read(world, 0, 0, 1 << 20, HIGH_WATERMARK + 1)
    batches = [*MemoryRecords(data)]
    assert all(batch.validate_crc() for batch in batches)
    assert [b.base_offset for b in batches][1:] == [b.last_offset + 1 for b in batches][:-1]
    (opened,) = (b for b in batches if b.is_transactional and not b.is_control_batch)
    assert (opened.base_offset, opened.producer_id, opened.base_sequence) == (100, 1_000_000_000, 0)
    assert batches[-1].is_control_batch and batches[-1].base_offset == HIGH_WATERMARK


# --- shapes ---


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ClusterShape.busy()),
        (["--brokers", "5", "--hanging", "7"], ClusterShape.busy(5, hanging=7)),
        (["--live-share", "0.5", "--log-records", "0"], ClusterShape.busy(live_share=0.5, log_records=0)),
        (["--ongoing", "3", "--prepared", "0"], ClusterShape.busy(ongoing=3, prepared=0)),
        (["--groups", "5"], ClusterShape.busy(groups=5)),
        (["--quiet", "--partitions", "9", "--latency-ms", "3"], ClusterShape(partitions=9, latency_ms=3)),
    ],
)
def test_by_hand_the_cluster_is_busy_unless_a_quiet_one_is_requested(
    arguments: list[str], expected: ClusterShape
) -> None:
    assert by_hand.parsed(arguments)[0] == expected


def test_each_number_of_a_shape_is_an_option_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        by_hand.parsed(["--help"])
    told = capsys.readouterr().out
    numbers = [one.name for one in fields(ClusterShape) if isinstance(one.default, int | float)]
    assert all(f"--{name.replace('_', '-')} N" in told for name in (*numbers, "live_share"))
    with pytest.raises(SystemExit):
        by_hand.parsed(["--quiet", "--live-share", "0.1"])
    assert "--live-share" in capsys.readouterr().err


def test_a_live_transaction_spans_different_topics_and_leaders() -> None:
    shape = ClusterShape.busy(10, 10_000)
    assert (shape.ongoing, shape.partitions_per_transaction, shape.prepared) == (50, 10, 1)
    for number in range(shape.ongoing):
        ordinals = shape.ongoing_ordinals(number)
        assert len({shape.key(ordinal)[0] for ordinal in ordinals}) == len({*ordinals}) == 10
        assert len({shape.leader(ordinal) for ordinal in ordinals}) > 3
    assert len({ordinal for n in range(shape.ongoing) for ordinal in shape.ongoing_ordinals(n)}) == 500
    states = Counter(one.state for one in shape.all_transactional_ids())
    assert states == {
        "Ongoing": 50,
        "PrepareCommit": 1,
        "Empty": 10_000,
        "CompleteAbort": 5_000,
        "CompleteCommit": 85_000,
    }


@pytest.mark.parametrize(("count", "brokers"), [(1, 3), (10, 3), (70, 7), (97, 5), (100, 5)])
def test_open_transactions_are_spread_over_partitions_and_leaders(count: int, brokers: int) -> None:
    shape = ClusterShape(brokers=brokers, partitions=100, partitions_per_topic=7, hanging=count, ongoing=count)
    opened = shape.open_transactions()
    assert {o for o, each in opened.items() for t in each if not t.transactional_id} == {
        shape.hanging_ordinal(n) for n in range(count)
    }
    assert len({ordinal for n in range(count) for ordinal in shape.ongoing_ordinals(n)}) == count
    leaders = Counter(shape.leader(shape.hanging_ordinal(n)) for n in range(count))
    assert count < 70 or max(leaders.values()) < 2 * count / brokers


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_a_busy_broker_leads_its_share_and_the_others_divide_the_rest(share: float) -> None:
    shape = ClusterShape(brokers=5, partitions=1_000, busy_share=share)
    led = Counter(map(shape.leader, range(1_000)))
    assert led[1] == (round(1_000 * share) or 200)
    rest = [led[b] for b in (2, 3, 4, 5)]
    assert max(rest) - min(rest) <= 1


@pytest.mark.parametrize(
    "wrong",
    [
        *({"brokers": 0}, {"partitions": -1}, {"hanging": 1_001}, {"replication_factor": 4}, {"busy_share": 1.1}),
        *({"ongoing": 101, "partitions_per_transaction": 10}, {"log_records": 1}),
        *({"groups": -1}, {"consumer_offsets_partitions": 0}),
    ],
)
def test_an_impossible_shape_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ClusterShape(**wrong)


def test_the_answer_cache_is_bounded_and_drops_the_oldest() -> None:
    kept = Kept(bytes_max=10)
    for name, size in ((b"a", 4), (b"b", 3), (b"c", 5), (b"d", 20)):
        kept.keep((1, name), bytes(size))
    assert [kept.get((1, name)) is not None for name in (b"a", b"b", b"c", b"d")] == [False, True, True, False]


def test_an_answer_is_constant_until_a_marker_is_written() -> None:
    shape = ClusterShape(brokers=2, partitions=4, hanging=4)
    broker = ServedBroker(1, answers_of(shape), Kept())
    frame = framed(
        DescribeProducersRequest(
            topics=[DescribeProducersRequest.TopicRequest(name="topic-00000", partition_indexes=[0])]
        )
    )[4:]
    first = broker.body(Api.DescribeProducers, 0, frame)
    assert broker.body(Api.DescribeProducers, 0, frame) is first
    marker = MarkerToWrite("topic-00000", 0, 1_000_000_000, 0, -1, True).request()
    broker.body(Api.WriteTxnMarkers, 1, framed(marker, version=1)[4:])
    assert broker.body(Api.DescribeProducers, 0, frame) != first


@pytest.mark.parametrize(
    ("groups", "why"),
    [(1, "one group for all topics"), (7, "several topics to a group"), (10, "one"), (29, "some topics with two more")],
)
def test_each_topic_has_a_blocked_group_and_offsets_belong_to_topics_of_their_group(groups: int, why: str) -> None:
    shape = ClusterShape(partitions=95, partitions_per_topic=10, hanging=5, ongoing=20, groups=groups)
    world = World(shape, STARTED_AT_MS, {})
    waiting = {topic for group in shape.all_groups() if group.reads is Reads.COMMITTED for topic in group.topics}
    assert waiting == {topic for group in shape.all_groups() for topic in group.topics} == {*range(10)}, why
    for group in shape.all_groups():
        assert shape.group(group.name) == group
        for ordinal in (ordinal for topic in group.topics for ordinal in shape.ordinals(topic)):
            held = world.held(*shape.key(ordinal))
            assert held is not None
            stable, end = world.last_stable_offset(held), world.high_watermark(held)
            expected = {Reads.COMMITTED: stable, Reads.UNCOMMITTED: end, Reads.LAGGING: LAGGING_OFFSET}[group.reads]
            assert world.committed_offset(group, ordinal) == expected
            assert stable - LAGGING_OFFSET > 1
    assert shape.group("consumers-7") is shape.group(f"consumers-{groups:07d}") is shape.group("nobody") is None


def test_groups_are_spread_over_coordinators_by_the_hash_of_their_names() -> None:
    shape = ClusterShape.busy(brokers=50, transactional_ids=0)
    world = World(shape, STARTED_AT_MS, {})
    assert sum(map(len, world.groups.values())) == shape.groups == 1_000
    assert min(map(len, world.groups.values())) > 0
    for broker_id, groups in world.groups.items():
        for group in groups:
            held = world.held(CONSUMER_OFFSETS_TOPIC, coordinator_partition(group.name, 50))
            assert held is not None and held.leader == broker_id


def test_a_cluster_without_groups_has_no_group_coordinators() -> None:
    answers = answers_of(SHAPE)
    told = answered(answers, 1, MetadataRequest(topics=None), MetadataResponse, OFFERED[Api.Metadata].last)
    assert CONSUMER_OFFSETS_TOPIC not in {topic.name for topic in told.topics}
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="nobody", topics=None)
    request = OffsetFetchRequest(groups=[group], require_stable=True)
    (none,) = answered(answers, 1, request, OffsetFetchResponse, 9).groups
    assert (none.error_code, none.topics) == (ErrorCode.NOT_COORDINATOR, [])
    found = answered(
        answers, 1, FindCoordinatorRequest(key_type=0, coordinator_keys=["nobody"]), FindCoordinatorResponse, 6
    )
    assert [one.error_code for one in found.coordinators] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


# --- processes ---


def test_by_hand_the_cluster_prints_its_address_and_ends_with_its_process() -> None:
    size = ["--brokers", "2", "--partitions", "4", "--hanging", "1", "--transactional-ids", "50"]
    command = [sys.executable, "-m", "tests.sim.wire", *size]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        servers = served.stdout.readline().strip()
        found = find_hanging(ScanConfig(servers))
        assert found.counts["hanging"] == 1
        with socket.create_connection((HOST, int(servers.rsplit(":", 1)[1])), 10) as raw:
            served.kill()
            assert raw.recv(1) == b"", "its child has seen it end, and ends"


def test_a_closed_cluster_does_not_answer() -> None:
    cluster = WireCluster(ClusterShape(brokers=1, partitions=1))
    cluster.close()
    cluster.close()
    with pytest.raises(RuntimeError):
        cluster.stats()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, cluster.ports[1]), 10)


class CountedHistory(NoHistory):
    """A history of only these incidents, which counts the waits for each part."""

    def __init__(self, incidents: Iterable[TransactionKey]) -> None:
        self.incidents = dict.fromkeys(incidents, Incident(1))
        self.waited_for: Counter[str] = Counter()

    def unresolved(self, cluster_id: str) -> Callable[[], Incidents]:
        return partial(self._wait, "unresolved", self.incidents)

    def last_seen(self, cluster_id: str) -> Callable[[], Sightings]:
        return partial(self._wait, "last seen", {})

    def facts(self, cluster_id: str, producer_ids: Collection[int]) -> Callable[[], Facts]:
        return partial(self._wait, "facts", {})

    def topic_reads(self, cluster_id: str, topics: Collection[str]) -> Callable[[], Sequence[TopicRead]]:
        return partial(self._wait, "topic reads", ())

    def disk_reads(self, cluster_id: str, partitions: Collection[PartitionId], now_ms: int) -> Callable[[], DiskReads]:
        return partial(self._wait, "disk reads", {})

    def _wait(self, part: str, seen: Any) -> Any:
        self.waited_for[part] += 1
        return seen


def with_history(
    cluster: WireCluster, incidents: Iterable[TransactionKey], engine: Engine | None = None
) -> tuple[Scan, CountedHistory]:
    history = CountedHistory(incidents)
    config = ScanConfig(cluster.bootstrap_servers)
    servers = parse_bootstrap_servers(config.bootstrap_servers)
    with Cluster(ClientFactory("history", ConnectionSettings(), servers)) as driver:
        found = scan(
            Run(
                config,
                driver,
                engine or ThreadsEngine(),
                sweep_id="history",
                now_ms=wall_clock_ms,
                history=history,
                progress=lambda stage, done, total: None,
            )
        )
    return found, history


class ApartEngine(ThreadsEngine):
    """Reads outside the driver, as executors do, and records the row types."""

    def __init__(self) -> None:
        super().__init__()
        self.read_apart: list[type] = []
        self.judged_apart = False

    @property
    def driver(self) -> Engine:
        return ThreadsEngine()

    def map(self, function: Any, batches: Any, row_type: Any, on_progress: Any) -> Any:
        if row_type is Judged:
            self.judged_apart = True
        else:
            self.read_apart.append(row_type)
        return super().map(function, batches, row_type, on_progress)


@pytest.mark.parametrize(
    ("few", "read_apart", "judged_apart"),
    [(1_000, [WideAnswer, LogRow], False), (0, [WideAnswer, ProvenRow, ProvenRow, LogRow], True)],
)
def test_executors_read_and_judge_only_many_unclaimed_partitions(
    monkeypatch: pytest.MonkeyPatch, few: int, read_apart: list[type], judged_apart: bool
) -> None:
    monkeypatch.setattr("txnscan.sweeps.reader.DRIVER_READS_MAX", few)
    monkeypatch.setattr("txnscan.sweeps.pipeline.DRIVER_JUDGES_MAX", few)
    engine = ApartEngine()
    with WireCluster(SHAPE) as cluster:
        found, _ = with_history(cluster, (), engine)
    assert found.complete and found.counts[Verdict.HANGING] == SHAPE.hanging
    assert engine.read_apart == read_apart
    assert engine.judged_apart == judged_apart


def test_the_history_is_read_once_and_only_as_far_as_needed() -> None:
    with WireCluster(SHAPE) as cluster:
        found, history = with_history(cluster, ())
        assert len(found.transactions) == SHAPE.hanging + SHAPE.ongoing
        assert history.waited_for == {"unresolved": 1, "last seen": 1, "facts": 1}
        again, history = with_history(cluster, (judged.observation.transaction_key for judged in found.transactions))
    assert history.waited_for == {"unresolved": 1, "facts": 1}, "all that is open is known already"
    assert {judged.observation.first_seen_ms for judged in again.transactions} == {1}
