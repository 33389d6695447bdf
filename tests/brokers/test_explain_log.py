"""`explain` of ids whose history the transaction log decides, on a real broker with short timeouts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.brokers.offsets import commit_offset
from tests.cases import Cases
from tests.process import run_here
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.plant import describe_owner, stale_epoch
from txnscan.demo.producer import Producer, ProducerError
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.protocol.record_batch import HEADER, LENGTH_AT

TOPIC, EXPIRATION_MS = "log", 15_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    properties = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "transactional.id.expiration.ms": str(EXPIRATION_MS),
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    }
    with KafkaCluster(tmp_path_factory.mktemp("log"), brokers=1, properties=properties) as started:
        yield started


@pytest.fixture(scope="module")
def wire(cluster: KafkaCluster) -> Iterator[Wire]:
    with cluster.wire() as opened:
        create_topic(opened, TOPIC, [[1]])
        yield opened


def explain(cluster: KafkaCluster, *words: str) -> dict[str, Any]:
    ran = run_here("explain", *words, "--bootstrap-server", cluster.bootstrap_servers, "--format", "json")
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def instance(wire: Wire, name: str, timeout_ms: int = 60_000) -> Producer:
    one = Producer(wire, name, timeout_ms=timeout_ms)
    one.init_producer_id()
    return one


def test_a_fence_by_a_timeout_differs_from_a_takeover(cluster: KafkaCluster, wire: Wire) -> None:
    late = instance(wire, "late", 1_000)
    late.write(TOPIC, 0, [b"x"])
    wait_until(lambda: describe_owner(wire, "late").state == "CompleteAbort", "it timed out")
    old = instance(wire, "taken")
    old.write(TOPIC, 0, [b"x"])
    instance(wire, "taken")
    fought = instance(wire, "fought")
    for _ in range(3):
        instance(wire, "fought")
    table = (
        ("late", late, "timeout"),
        ("taken", old, "instance"),
        ("fought", fought, "instances"),
    )
    with Cases() as cases:
        for name, producer, how in table:
            known = producer.known
            ids = f"transactionalId={name} producerId={known.producer_id}, epoch={known.producer_epoch}"
            for words in (
                ("--error", f"{ids} PRODUCER_FENCED"),
                ("--transactional-id", name, "--error", "PRODUCER_FENCED"),
            ):
                with cases.case(words):
                    found = explain(cluster, *words)
                    assert (found["cause"], found["fenced_by"]) == ("fenced", how), found
                    assert found["fenced_at"] is not None
    found = explain(cluster, "--transactional-id", "late", "--error", "INVALID_TXN_STATE")
    assert (found["cause"], found["state"], found["fenced_by"]) == ("no_transaction", "CompleteAbort", "timeout")


def test_an_end_without_data_is_named(cluster: KafkaCluster, wire: Wire) -> None:
    one = instance(wire, "idle")
    with pytest.raises(ProducerError, match="INVALID_TXN_STATE"):
        one.end(commit=True)
    found = explain(cluster, "--transactional-id", "idle", "--error", "INVALID_TXN_STATE")
    assert (found["cause"], found["state"]) == ("no_transaction", "Empty")
    assert "nothing was added" in found["sentence"]


def test_an_expired_id_has_its_time_and_an_unknown_id_has_none(cluster: KafkaCluster, wire: Wire) -> None:
    one = instance(wire, "old")
    one.write(TOPIC, 0, [b"x"])
    one.end(commit=True)
    began_ms = time.time() * 1_000
    wait_until(lambda: not is_known(wire, "old"), "the id expired")
    found = explain(cluster, "--transactional-id", "old")
    assert explain(cluster, "--error", "transactionalId=old InvalidPidMappingException")["expired_at"] is not None
    assert (found["cause"], found["state"]) == ("no_transaction", None)
    expired_ms = datetime.fromisoformat(found["expired_at"]).timestamp() * 1_000
    assert began_ms + EXPIRATION_MS - 2_000 < expired_ms < time.time() * 1_000 + 2_000
    assert "expired at about" in found["sentence"]
    never = ("explain", "--transactional-id", "never", "--bootstrap-server", cluster.bootstrap_servers)
    assert run_here(*never).returncode == 2
    ran = run_here(
        *("transaction-log", "--bootstrap-server", cluster.bootstrap_servers, "--transactional-id", "old"),
        *("--format", "json"),
    )
    last = json.loads(ran.stdout)["records"][-1]
    assert (last["state"], last["written_at"]) == ("Dead", found["expired_at"])


def test_what_an_expired_id_left_hanging_is_named_also_if_another_application_has_the_id(
    cluster: KafkaCluster, wire: Wire
) -> None:
    planted = stale_epoch(wire, "log-left")
    name = str(planted.transactional_id)
    wait_until(lambda: not is_known(wire, name), "the id expired")
    left = ("hanging", planted.topic, planted.producer_id, "orphan")
    expired = explain(cluster, "--transactional-id", name)
    assert (expired["cause"], expired["topic"], expired["producer_id"], expired["reason"]) == left
    assert instance(wire, name).known.producer_id != planted.producer_id
    again = explain(cluster, "--transactional-id", name)
    assert (again["cause"], again["topic"], again["producer_id"], again["reason"]) == left


def is_known(wire: Wire, name: str) -> bool:
    return describe_owner(wire, name).error_code == ErrorCode.NONE


def test_a_long_run_of_aborted_records_is_skipped(cluster: KafkaCluster, wire: Wire) -> None:
    """40 MB of them, before the next record of a group."""
    topic, count = "aborted", 45
    create_topic(wire, topic, [[1]])
    one = instance(wire, "aborting", 600_000)
    for _ in range(count):
        one.write(topic, 0, [bytes(900_000)])
    one.end(commit=False)
    other = instance(wire, "committing")
    other.write(topic, 0, [b"x"])
    other.end(commit=True)
    commit_offset(cluster, "far-behind", topic, 0)
    found = explain(cluster, "--group", "far-behind")
    numbers = (found["aborted"], found["markers"], found["next_record_offset"])
    assert (found["cause"], *numbers) == ("no_transaction", count, 1, count + 1)


def test_a_group_on_a_marker_with_records_behind_it(cluster: KafkaCluster, wire: Wire) -> None:
    topic = "on-marker"
    create_topic(wire, topic, [[1]])
    for name in ("first", "second"):
        one = instance(wire, f"{topic}-{name}")
        one.write(topic, 0, [b"x"])
        one.end(commit=True)
    commit_offset(cluster, "on-marker-group", topic, 1)
    found = explain(cluster, "--group", "on-marker-group")
    numbers = (found["committed_offset"], found["next_record_offset"], found["lag"])
    assert (found["cause"], *numbers) == ("at_marker", 1, 2, 3)


def test_a_damaged_log_is_the_cause(cluster: KafkaCluster, wire: Wire) -> None:
    """A wrong length in a header, which the leader finds itself, and a wrong byte in a value, which readers find."""
    with Cases() as cases:
        for topic, at, wrong, code in (
            ("bad-length", LENGTH_AT, bytes(4), "CORRUPT_MESSAGE"),
            ("bad-value", HEADER.size + 8, b"y", "DAMAGED_BATCH"),
        ):
            with cases.case(topic):
                create_topic(wire, topic, [[1]])
                one = instance(wire, f"{topic}-service")
                one.write(topic, 0, [b"xxxxxxxxxxxx"])
                one.end(commit=True)
                commit_offset(cluster, f"{topic}-group", topic, 0)
                segment = cluster.data_of(1) / f"{topic}-0" / f"{0:020}.log"
                with segment.open("r+b") as file:
                    file.seek(at)
                    file.write(wrong)
                found = explain(cluster, "--group", f"{topic}-group")
                assert (found["cause"], found["failure"]) == ("unreadable", code), json.dumps(found)
