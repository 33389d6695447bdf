"""`explain` on real brokers: each cause is created, and gets its code and its numbers."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka.protocol.admin import DeleteRecordsRequest

from tests.brokers.locked import Locked
from tests.brokers.offsets import commit_offset, commit_offset_within
from tests.brokers.principals import REPAIRED, Acl
from tests.brokers.shared import Shared, set_topic
from tests.cases import Cases
from tests.process import run_here
from txnscan.demo.admin import create_topic, unverified
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.plant import Planted, describe_owner
from txnscan.demo.producer import Producer, ProducerIdAndEpoch
from txnscan.demo.requests import Wire
from txnscan.demo.traffic import HealthyTraffic
from txnscan.demo.wait import wait_until
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.describe_configs import topic_cleaning

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

RECORDS = [b"record %d" % number for number in range(5)]
MIXED, LIVE, QUIET, COMPACT, GONE = (f"explain-{name}" for name in ("mixed", "live", "quiet", "compact", "gone"))
TIMEOUT_MS = 900_000
# Fields that change on a live cluster.
UNDER_TRAFFIC = (
    "at_marker",
    "owned",
    "marker_owed",
    "marker_lag",
    "aborted_data",
    "not_read_committed",
    "no_transaction",
)


@dataclass(frozen=True)
class World:
    """Brokers with topics in every state. live: the producer with a transaction open on LIVE and COMPACT."""

    cluster: KafkaCluster
    wire: Wire
    live: Producer
    withheld: ProducerIdAndEpoch
    orphan: Planted
    stale: Planted

    def explain(self, *words: str, status: int = 0) -> dict[str, Any]:
        return explained(self.cluster.bootstrap_servers, *words, status=status)


def explained(servers: str, *words: str, status: int = 0) -> dict[str, Any]:
    ran = run_here("explain", *words, "--bootstrap-server", servers, "--format", "json")
    assert ran.returncode == status, (ran.stdout, ran.stderr)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.fixture(scope="module")
def world(shared: Shared) -> World:
    cluster, wire = shared.cluster, shared.wire
    create_topic(wire, MIXED, [[1]])
    create_topic(wire, LIVE, [[1]])
    create_topic(wire, QUIET, [[1]])
    create_topic(wire, COMPACT, [[1]])
    # Three records and COMMIT, two records and ABORT: offsets 0 to 6.
    service = Producer(wire, "explain-mixed-service")
    service.init_producer_id()
    service.write(MIXED, 0, RECORDS[:3])
    service.end(commit=True)
    service.write(MIXED, 0, RECORDS[:2])
    service.end(commit=False)
    plain = Producer(wire, "explain-quiet-service")
    plain.init_producer_id()
    plain.write(QUIET, 0, RECORDS)
    plain.end(commit=True)
    live = Producer(wire, "explain-live-service", timeout_ms=TIMEOUT_MS)
    live.init_producer_id()
    live.write(LIVE, 0, RECORDS)
    live.write(COMPACT, 0, RECORDS)
    # Only now: a compacted topic refuses records without a key.
    set_topic(wire, COMPACT, "cleanup.policy", "compact")
    for broker in wire.brokers:
        wait_until(
            lambda b=broker.broker_id: topic_cleaning(wire.send, b, [COMPACT])[COMPACT].cleanup_policy == "compact",  # type: ignore[misc]
            f"broker {broker.broker_id} compacted the topic",
        )
    create_topic(wire, GONE, [[1]])
    plain.write(GONE, 0, RECORDS)
    plain.end(commit=True)
    delete_records(wire, GONE, 3)
    for topic, offsets in ((GONE, (1,)), (MIXED, (2, 3, 4, 7)), (LIVE, (0, 3)), (QUIET, (0, 5, 6)), ("clicks", (0, 5))):
        for offset in offsets:
            commit_offset(cluster, f"explain-{topic}-{offset}", topic, offset)
    with unverified(wire):
        withheld = commit_offset_within(wire, "explain-withheld", QUIET, added=False).known
    by_topic = {(one.topic, one.partition): one for one in shared.scene.planted}
    return World(cluster, wire, live, withheld, by_topic["clicks", 0], by_topic["shipments", 0])


def delete_records(wire: Wire, topic: str, before: int) -> None:
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    partition = kind.DeleteRecordsPartition(partition_index=0, offset=before)
    request = DeleteRecordsRequest(topics=[kind(name=topic, partitions=[partition])], timeout_ms=30_000)
    answer = wire.send(1, request).topics[0].partitions[0]
    assert (answer.error_code, answer.low_watermark) == (0, before)


# --- groups -----------------------------------------------------------------------------------------------------------


def test_each_group_gets_its_cause_and_its_lag(world: World) -> None:
    """MIXED: for a group at offset 3, a marker, two aborted records and a marker follow."""
    table = (
        ("explain-clicks-0", "hanging", {"topic": "clicks", "lag": 5, "blocked_records": 5, "verdict": "hanging"}),
        ("explain-clicks-5", "not_read_committed", {"committed_offset": 5, "last_stable_offset": 0, "lag": 0}),
        (f"explain-{LIVE}-0", "owned", {"topic": LIVE, "lag": 5, "transactional_id": "explain-live-service"}),
        (f"explain-{LIVE}-3", "not_read_committed", {"committed_offset": 3, "last_stable_offset": 0, "lag": 2}),
        (f"explain-{QUIET}-0", "no_transaction", {"topic": QUIET, "lag": 6, "group_state": "Empty"}),
        (f"explain-{GONE}-1", "no_transaction", {"topic": GONE, "lag": 5}),
        (f"explain-{QUIET}-5", "marker_lag", {"topic": QUIET, "lag": 1, "markers": 1, "aborted": 0}),
        (f"explain-{QUIET}-6", "no_transaction", {"lag": 0, "asked": 1}),
        (f"explain-{MIXED}-2", "no_transaction", {"lag": 5}),
        (f"explain-{MIXED}-3", "aborted_data", {"lag": 4, "markers": 2, "aborted": 2}),
        (f"explain-{MIXED}-4", "aborted_data", {"lag": 3, "markers": 1, "aborted": 2}),
        (f"explain-{MIXED}-7", "no_transaction", {"lag": 0}),
    )
    with Cases() as cases:
        for group, cause, numbers in table:
            with cases.case(group):
                found = world.explain("--group", group)
                assert (found["cause"], found["group"]) == (cause, group), found
                assert {name: found[name] for name in numbers} == numbers, found
                assert ("KAFKA-20734" in found["known_causes"]) == (cause == "hanging")
                assert any("Cause:" in line for line in found["evidence"]) == (cause == "hanging")


def test_offsets_in_a_hanging_transaction_are_pending(world: World) -> None:
    """The coordinator withholds the first offset of a group only if it is asked for its partition by name."""
    found = world.explain("--group", "explain-withheld")
    assert (found["cause"], found["verdict"], found["group"]) == ("pending_offsets", "hanging", "explain-withheld")
    assert (found["topic"], found["producer_id"]) == ("__consumer_offsets", world.withheld.producer_id)
    count = len(world.wire.view(["__consumer_offsets"]).partitions)
    assert found["partition"] == coordinator_partition("explain-withheld", count)
    alone = world.explain("--error", "UnstableOffsetCommitException: There are unstable offsets")
    assert (alone["cause"], alone["topic"]) == ("pending_offsets", "__consumer_offsets")
    named = world.explain("--error", "[Consumer clientId=c, groupId=explain-withheld] UNSTABLE_OFFSET_COMMIT")
    assert (named["cause"], named["group"]) == ("pending_offsets", "explain-withheld")


def test_offsets_in_a_live_transaction_are_pending_until_it_ends(world: World) -> None:
    producer = commit_offset_within(world.wire, "explain-live-offsets", QUIET)
    found = world.explain("--group", "explain-live-offsets")
    assert (found["cause"], found["verdict"]) == ("pending_offsets", "ongoing")
    assert found["transactional_id"] == "explain-live-offsets-service" and found["ends_by"] is not None
    producer.end(commit=True)

    def has_ended() -> bool:
        after = world.explain("--group", "explain-live-offsets")
        return (after["cause"], after["committed_offset"]) == ("no_transaction", 1)

    wait_until(has_ended, "the offset was committed")


def test_groups_and_topics_under_traffic_are_never_reported_as_stuck(world: World) -> None:
    topic, group = "explain-busy", "explain-busy-group"
    with HealthyTraffic(world.cluster, topic, partitions=2) as traffic:
        wait_until(lambda: traffic.count.committed > 5, "transactions were committed")
        for asked in range(3):
            high_watermark = world.explain("--topic", topic, "--partition", "0")["high_watermark"]
            commit_offset(world.cluster, group, topic, high_watermark)
            for words in (("--topic", topic), ("--group", group), ("--transactional-id", f"{topic}-service-0")):
                found = world.explain(*words)
                assert found["cause"] in UNDER_TRAFFIC, (asked, found)
    assert traffic.count.errors == ()


@pytest.mark.parametrize("option", ["--group", "--topic", "--transactional-id"])
def test_a_name_that_does_not_exist_is_a_usage_error(world: World, option: str) -> None:
    ran = run_here("explain", "--bootstrap-server", world.cluster.bootstrap_servers, option, "explain-nobody")
    assert (ran.returncode, ran.stdout) == (2, "")


# --- topics -----------------------------------------------------------------------------------------------------------


def test_each_topic_gets_its_cause(world: World) -> None:
    table = (
        ("clicks", "hanging", {"producer_id": world.orphan.producer_id, "start_offset": 0, "reason": "orphan"}),
        ("payments-solo", "hanging", {"reason": "missed_commit", "blocked_records": 5}),
        (LIVE, "owned", {"transactional_id": "explain-live-service", "timeout_ms": TIMEOUT_MS, "compacted": False}),
        (COMPACT, "owned", {"compacted": True}),
        (QUIET, "marker_lag", {"high_watermark": 6, "markers": 1}),
        (MIXED, "aborted_data", {"high_watermark": 7, "markers": 1, "aborted": 2}),
    )
    with Cases() as cases:
        for topic, cause, numbers in table:
            with cases.case(topic):
                found = world.explain("--topic", topic, "--partition", "0")
                assert (found["cause"], found["topic"], found["partition"]) == (cause, topic, 0), found
                assert {name: found[name] for name in numbers} == numbers, found


def test_an_open_transaction_ends_at_its_start_plus_its_timeout(world: World) -> None:
    found = world.explain("--topic", LIVE)
    began = describe_owner(world.wire, "explain-live-service").start_time_ms
    assert (found["started_at"], found["timeout_ms"]) == (iso(began), TIMEOUT_MS)
    assert (found["ends_by"], found["overdue_ms"]) == (iso(began + TIMEOUT_MS), 0)


def iso(epoch_ms: int) -> str:
    from txnscan.report.plain import iso_utc

    return iso_utc(epoch_ms)


def test_an_old_open_transaction_stops_the_cleaner(world: World) -> None:
    found = world.explain("--topic", COMPACT, "--late-after", "1s")
    assert (found["cause"], found["verdict"], found["compacted"]) == ("cleaner_stuck", "ongoing", True)
    assert (found["transactional_id"], found["last_stable_offset"]) == ("explain-live-service", 0)


def test_an_unknown_topic_is_a_usage_error(world: World) -> None:
    server = world.cluster.bootstrap_servers
    ran = run_here("explain", "--bootstrap-server", server, "--topic", "explain-nothing")
    assert (ran.returncode, ran.stdout) == (2, "") and ran.stderr.startswith("txnscan: --topic")


# --- ids --------------------------------------------------------------------------------------------------------------


def test_each_id_gets_its_cause(world: World) -> None:
    live, stale = world.live.known, world.stale
    table: tuple[tuple[tuple[str, ...], str, dict[str, Any]], ...] = (
        (("--transactional-id", "explain-live-service"), "owned", {"blocked_records": 5, "state": "Ongoing"}),
        (("--producer-id", str(live.producer_id)), "owned", {"transactional_id": "explain-live-service"}),
        (("--transactional-id", "shipments-service"), "hanging", {"topic": "shipments", "reason": "stale_epoch"}),
        (("--producer-id", str(world.orphan.producer_id)), "hanging", {"topic": "clicks", "reason": "orphan"}),
        (("--transactional-id", "explain-mixed-service"), "no_transaction", {"state": "CompleteAbort"}),
        (("--producer-id", "987654321"), "no_transaction", {"producer_id": 987654321}),
        (
            ("--transactional-id", "explain-live-service", "--error", "CONCURRENT_TRANSACTIONS"),
            "owned",
            {"state": "Ongoing"},
        ),
        (
            ("--transactional-id", "explain-mixed-service", "--error", "InvalidTxnStateException"),
            "no_transaction",
            {"state": "CompleteAbort"},
        ),
        (
            ("--transactional-id", "shipments-service", "--error", "ProducerFencedException"),
            "fenced",
            {"owner_epoch": stale.producer_epoch + 1},
        ),
        (
            (
                "--error",
                f"ProducerIdAndEpoch(producerId={stale.producer_id}, epoch={stale.producer_epoch}) PRODUCER_FENCED",
            ),
            "fenced",
            {"transactional_id": "shipments-service", "producer_epoch": stale.producer_epoch},
        ),
        (
            (
                "--error",
                f"INVALID_PRODUCER_EPOCH producerId={live.producer_id}, epoch={live.producer_epoch}",
            ),
            "owned",
            {"owner_epoch": live.producer_epoch},
        ),
    )
    with Cases() as cases:
        for words, cause, numbers in table:
            with cases.case(" ".join(words)):
                found = world.explain(*words)
                assert found["cause"] == cause, found
                assert {name: found[name] for name in numbers} == numbers, found


def test_an_error_without_an_id_gets_a_cause_of_the_cluster(world: World) -> None:
    table: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("INVALID_TRANSACTION_TIMEOUT", "no_transaction", {"max_timeout_ms": world.wire.transaction_timeout_ms}),
        ("UnknownProducerIdException", "no_transaction", {}),
        ("ProducerFencedException", "fenced", {"transactional_id": None}),
        ("ConcurrentTransactionsException", "no_transaction", {}),
        ("TimeoutException: Timeout expired after 60000ms while awaiting InitProducerId", "no_transaction", {}),
    )
    with Cases() as cases:
        for text, cause, numbers in table:
            with cases.case(text):
                found = world.explain("--error", text)
                assert found["cause"] == cause, found
                assert {name: found[name] for name in numbers} == numbers, found


def test_without_a_permission_the_cause_is_not_observed(world: World, shared: Shared, tmp_path: Path) -> None:
    """The sentence has the grant command."""
    shutil.copy(shared.directory / "ca.pem", tmp_path)
    locked = Locked(world.cluster, world.wire, tmp_path)
    of_cluster = (Acl("Describe", "Cluster", "kafka-cluster"), Acl("DescribeConfigs", "Cluster", "kafka-cluster"))
    describe = (Acl("Describe", "Topic"), *of_cluster)
    ids, groups = Acl("Describe", "TransactionalId"), Acl("Describe", "Group")
    table: tuple[tuple[str, tuple[Acl, ...], tuple[str, ...], str], ...] = (
        ("no-groups", (*describe, ids), ("--group", f"explain-{QUIET}-5"), "--operation Describe --group"),
        ("no-read", (*describe, ids, groups), ("--group", f"explain-{QUIET}-5"), f"--operation Read --topic {QUIET}"),
        ("no-read", (*describe, ids, groups), ("--topic", "clicks"), "--operation Read --topic clicks"),
        ("no-ids", (*describe, groups, Acl("Read", "Topic")), ("--producer-id", "987654321"), "--transactional-id"),
        (
            "no-ids",
            (*describe, groups, Acl("Read", "Topic")),
            ("--error", "CONCURRENT_TRANSACTIONS"),
            "--transactional-id",
        ),
    )
    with Cases() as cases:
        for name, acls, words, grants in table:
            with cases.case(f"{name} {' '.join(words)}"):
                config = locked.config(REPAIRED)
                rules = locked.add(REPAIRED, *acls)
                try:
                    found = explained(
                        config.bootstrap_servers, *words, "--command-config", str(config.command_config), status=4
                    )
                finally:
                    locked.remove(*rules)
                assert found["cause"] == "not_observed", found
                assert "kafka-acls.sh" in found["sentence"] and grants in found["sentence"], found


def test_the_answer_begins_with_a_sentence(world: World, wording: SnapshotAssertion) -> None:
    server = world.cluster.bootstrap_servers
    ran = run_here("explain", "--bootstrap-server", server, "--group", f"explain-{QUIET}-5")
    assert ran.stdout.replace(server, "localhost:9092") == wording
