"""The impact of hanging transactions on a real broker: a waiting consumer, and a group with withheld offsets."""

from __future__ import annotations

import socket
import struct
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from kafka.protocol.admin import DeleteGroupsRequest, IncrementalAlterConfigsRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from tests.brokers.offsets import commit_offset, commit_offset_within
from tests.brokers.shared import Shared
from tests.prove.moves import delete_records
from txnscan import ScanConfig, explain, find_hanging, sweep
from txnscan.demo.admin import create_topic, unverified
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.producer import PRODUCE_V1, Producer
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.protocol.describe_configs import share_isolation_levels
from txnscan.kafka.protocol.list_offsets import Offset, offset_of
from txnscan.kafka.protocol.primitives import NO_TAGS, NULL, items, string
from txnscan.report.json import scan_object
from txnscan.sweeps.result import Scan
from txnscan.waiting.cause import Cause
from txnscan.waiting.impact import BlockedGroup, BlockReason, Impact
from txnscan.waiting.owner import Framework

OFFSETS = "__consumer_offsets"
TOPIC, QUIET, BEHIND, WITHHELD = "impact-orders", "impact-quiet", "impact-billing", "impact-shipping"
RECORDS = [b"record %d" % number for number in range(5)]
OWNER = "impact-enricher-3-17"


@dataclass(frozen=True)
class World:
    """Brokers with a late record of a Flink job's id that hangs on TOPIC, and hanging offsets of WITHHELD."""

    cluster: KafkaCluster
    wire: Wire
    producer_id: int

    @property
    def config(self) -> ScanConfig:
        return ScanConfig(self.cluster.bootstrap_servers, topic_names=(TOPIC, OFFSETS))


@pytest.fixture(scope="module")
def world(shared: Shared) -> World:
    cluster, wire = shared.cluster, shared.wire
    create_topic(wire, TOPIC, [[1]], {"retention.ms": "86400000"})
    create_topic(wire, QUIET, [[1]])
    healthy = Producer(wire, "impact-service")
    healthy.init_producer_id()
    healthy.write(TOPIC, 0, RECORDS)
    healthy.end(commit=True)
    consume(cluster, BEHIND)
    consume(cluster, "impact-reporting", records_max=2)
    late = Producer(wire, OWNER, v2=False)
    late.init_producer_id()
    with unverified(wire):
        late.produce(TOPIC, 0, RECORDS, version=PRODUCE_V1)
        commit_offset_within(wire, WITHHELD, TOPIC, added=False)
    return World(cluster, wire, late.known.producer_id)


def consume(cluster: KafkaCluster, group: str, records_max: int = 5) -> None:
    """A read_committed consumer that reads this number of records, commits, and leaves."""
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=records_max,
    )
    try:
        read = wait_until(lambda: sum(map(len, consumer.poll(timeout_ms=500).values())), f"{group} had read")
        assert read == records_max
        consumer.commit()
    finally:
        consumer.close()


def impacts(scan: Scan) -> dict[str, Impact]:
    found = ((judged.observation.topic, scan.impact(judged)) for judged in scan.transactions)
    return {topic: impact for topic, impact in found if impact is not None}


def test_a_group_at_the_last_stable_offset_is_reported_with_its_lag(world: World) -> None:
    """A group with further records to read is not reported."""
    impact = impacts(find_hanging(world.config))[TOPIC]
    # Five records, a marker, five hanging records: the consumer commits after its last record or after the marker.
    (group,) = impact.groups
    assert (group.group, group.reason, group.state) == (BEHIND, BlockReason.AT_LSO, "Empty")
    assert (group.committed_offset, group.lag) in ((5, 6), (6, 5))
    assert (impact.groups_blocked, impact.groups_error) == (1, None)
    assert (impact.cleanup_policy, impact.compaction_blocked, impact.retention_ms) == ("delete", False, 86_400_000)


def test_a_group_with_only_markers_or_aborted_records_ahead_is_blocked(world: World) -> None:
    """At this offset, read_committed consumers of a real broker get no record before the hanging transaction."""
    wire, topic = world.wire, "impact-starved"
    create_topic(wire, topic, [[1]])
    service = Producer(wire, "impact-starved-service")
    # Three records and COMMIT, two records and ABORT, two records and ABORT: the last stable offset is 10.
    for count, commit in ((3, True), (2, False), (2, False)):
        service.init_producer_id()
        service.write(topic, 0, RECORDS[:count])
        service.end(commit=commit)
    late = Producer(wire, "impact-starved-late", v2=False)
    late.init_producer_id()
    with unverified(wire):
        late.produce(topic, 0, RECORDS, version=PRODUCE_V1)
    for offset in (0, 2, 3, 5, 7):
        commit_offset(world.cluster, f"impact-starved-{offset}", topic, offset)
    config = replace(world.config, topic_names=(topic,))
    impact = impacts(find_hanging(config))[topic]
    assert {(g.group, g.reason, g.committed_offset) for g in impact.groups} == {
        (f"impact-starved-{offset}", BlockReason.AT_LSO, offset) for offset in (3, 5, 7)
    }
    assert (impact.groups_blocked, impact.groups_error) == (3, None)


def test_readers_wait_at_the_log_start_if_deletion_cuts_the_first_batch(world: World) -> None:
    """The leader shows the last stable offset at the start of the batch, below the log start."""
    wire, topic = world.wire, "impact-cut"
    create_topic(wire, topic, [[1]])
    late = Producer(wire, "impact-cut-late", v2=False)
    late.init_producer_id()
    with unverified(wire):
        late.produce(topic, 0, RECORDS, version=PRODUCE_V1)
    delete_records(wire, topic, 3)
    assert offset_of(wire.send, wire.partition(topic, 0), Offset.LAST_STABLE) == 0
    for offset in (1, 3, 4):
        commit_offset(world.cluster, f"impact-cut-{offset}", topic, offset)
    config = replace(world.config, topic_names=(topic,))
    scan = find_hanging(config)
    (judged,) = scan.transactions
    assert (judged.observation.second.last_stable_offset, judged.blocked_records) == (3, 2)
    impact = impacts(scan)[topic]
    assert {group.committed_offset for group in impact.groups} == {1, 3} and impact.groups_error is None
    answers = {offset: explain(config, group=f"impact-cut-{offset}").code for offset in (1, 3, 4)}
    assert answers == {1: "hanging", 3: "hanging", 4: "not_read_committed"}


def test_a_share_group_makes_the_number_of_groups_unknown_unless_it_reads_uncommitted(world: World) -> None:
    """This is the default. The group is deleted, because other tests of the shared cluster count groups."""
    group = "impact-share"
    member = join_share_group(world.wire, group)
    try:
        impact = impacts(find_hanging(world.config))[TOPIC]
        assert impact.groups_blocked is not None and impact.groups_error is None
        set_isolation_level(world.wire, group, "read_committed")
        impact = impacts(find_hanging(world.config))[TOPIC]
        assert impact.groups_blocked is None and "share group" in str(impact.groups_error)
        assert BEHIND in {one.group for one in impact.groups}
    finally:
        leave_share_group(world.wire, group, member)


def join_share_group(wire: Wire, group: str) -> str:
    """Joins a share group (KIP-932), and returns the member id."""
    member = str(uuid.uuid4())

    def joined() -> bool:
        return share_heartbeat(wire, group, member, 0) == 0

    wait_until(joined, "the share group had a member")
    return member


def set_isolation_level(wire: Wire, group: str, level: str) -> None:
    """Sets it, and waits until every broker shows it."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name="share.isolation.level", config_operation=0, value=level)
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=32, resource_name=group, configs=[config])]
    )
    assert wire.send(1, request).responses[0].error_code == 0
    for broker in wire.brokers:
        wait_until(
            lambda b=broker.broker_id: share_isolation_levels(wire.send, b, [group])[group] == level,  # type: ignore[misc]
            f"broker {broker.broker_id} showed the isolation level of the share group",
        )


def leave_share_group(wire: Wire, group: str, member: str) -> None:
    """Leaves the group, and deletes it."""
    assert share_heartbeat(wire, group, member, -1) == 0

    def deleted() -> bool:
        answer = wire.send(coordinator(wire, group), DeleteGroupsRequest(groups_names=[group]))
        return bool(answer.results[0].error_code == 0)

    wait_until(deleted, "the share group was deleted")


def coordinator(wire: Wire, group: str) -> int:
    found = wire.send(1, FindCoordinatorRequest(key_type=0, coordinator_keys=[group], min_version=4))
    return int(found.coordinators[0].node_id)


def share_heartbeat(wire: Wire, group: str, member: str, epoch: int) -> int:
    """The error code of ShareGroupHeartbeat (76) version 1, which kafka-python does not have."""
    (broker,) = [one for one in wire.brokers if one.broker_id == coordinator(wire, group)]
    topics = items([string(TOPIC)]) if epoch == 0 else NULL
    body = string(group) + string(member) + struct.pack(">i", epoch) + NULL + topics + NO_TAGS
    request = struct.pack(">hhih", 76, 1, 1, -1) + NO_TAGS + body
    with socket.create_connection((broker.host, broker.port), timeout=30) as opened:
        opened.sendall(struct.pack(">i", len(request)) + request)
        answer = opened.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        # After the correlation id, no tags, and the throttle time.
        return int(struct.unpack_from(">h", answer.read(size), 4 + 1 + 4)[0])


def test_a_group_with_hanging_first_offsets_is_reported_with_its_partitions(
    world: World,
) -> None:
    # Other tests leave offsets of their own groups open.
    found = find_hanging(world.config).impacts.values()
    (impact,) = (one for one in found if any(group.group == WITHHELD for group in one.groups))
    assert impact.groups == (BlockedGroup(WITHHELD, BlockReason.UNSTABLE, "Empty", partitions=(f"{TOPIC}-0",)),)
    assert (impact.groups_error, impact.compaction_blocked, impact.retention_ms) == (None, True, None)


def test_without_hanging_transactions_no_group_is_asked_about(world: World) -> None:
    asked: dict[str, set[str]] = {QUIET: set(), TOPIC: set()}
    for topic, stages in asked.items():
        scan = find_hanging(
            ScanConfig(world.cluster.bootstrap_servers, topic=(topic,)),
            progress=lambda stage, done, total, stages=stages: stages.add(stage),  # type: ignore[misc]
        )
        assert scan.warnings == ()
    assert asked[TOPIC] - asked[QUIET] >= {"ask who waits"}


def test_cause_and_owner_come_from_the_transaction_log(world: World) -> None:
    impact = impacts(find_hanging(world.config))[TOPIC]
    assert (impact.cause, impact.owner.transactional_id) == (Cause.NEVER_ADDED, OWNER)
    assert impact.owner.framework == Framework.FLINK
    named = f"--transactional-id {OWNER} --producer-id {world.producer_id} --epoch 0"
    assert impact.owner.advice is not None and named in impact.owner.advice


def test_a_second_sweep_reports_the_time_without_progress(world: World, tmp_path: Path) -> None:
    config = replace(world.config, tables=str(tmp_path / "tables"), engine="threads")
    first, second = (sweep(None, config) for _ in range(2))
    assert {impact.lso_since_ms for impact in impacts(first.scan).values()} == {None}
    unmoved = {row["topic"]: row["lso_unmoved_ms"] for row in scan_object(second.scan)["transactions"]}
    assert set(unmoved) == {TOPIC, OFFSETS} and all(one >= 0 for one in unmoved.values())
    assert first.scan.complete and second.scan.complete and second.scan.warnings == ()
