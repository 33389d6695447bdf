"""`explain` of share groups (KIP-932) on a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin import IncrementalAlterConfigsRequest

from tests.cases import Cases
from tests.process import run_here, run_to_end
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.jars import java
from txnscan.demo.node import java_command
from txnscan.demo.plant import orphan
from txnscan.demo.producer import Producer
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until

READER = Path(__file__).with_name("ShareReader.java")
LIVE, HUNG, QUIET = "share-live", "share-hung", "share-quiet"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    properties = {"share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1"}
    with KafkaCluster(tmp_path_factory.mktemp("share"), brokers=1, properties=properties) as started:
        yield started


def set_level(wire: Wire, group: str, level: str) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    values = {"share.isolation.level": level, "share.auto.offset.reset": "earliest"}
    configs = [resource.AlterableConfig(name=name, config_operation=0, value=value) for name, value in values.items()]
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=32, resource_name=group, configs=configs)]
    )
    assert wire.send(1, request).responses[0].error_code == 0


def read(cluster: KafkaCluster, directory: Path, group: str, topic: str) -> int:
    """Reads the topic as a share group. The number of records that it got."""
    arguments = [cluster.bootstrap_servers, group, topic, "8"]
    command = java_command(java(), cluster.jars, directory, str(READER), arguments, log_level="ERROR")
    ran = run_to_end(command)
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    return int(ran.stdout.split()[-1])


def explain(cluster: KafkaCluster, group: str) -> dict[str, Any]:
    ran = run_here(*("explain", "--group", group, "--bootstrap-server", cluster.bootstrap_servers, "--format", "json"))
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_a_share_group_gets_its_isolation_level_and_its_transactions(cluster: KafkaCluster, tmp_path: Path) -> None:
    with cluster.wire() as wire:
        for topic in (LIVE, QUIET):
            create_topic(wire, topic, [[1]])
            plain = Producer(wire, f"{topic}-plain")
            plain.init_producer_id()
            plain.write(topic, 0, [b"1", b"2"])
            plain.end(commit=True)
        live = Producer(wire, "share-live-service", timeout_ms=900_000)
        live.init_producer_id()
        live.write(LIVE, 0, [b"3", b"4"])
        orphan(wire, HUNG)
        table = (
            (LIVE, "read_committed", 2, "owned", 3),
            (LIVE, "read_uncommitted", 4, "no_transaction", None),
            (HUNG, "read_committed", 0, "hanging", 0),
            (QUIET, "read_committed", 2, "no_transaction", None),
        )
        with Cases() as cases:
            for topic, level, count, cause, at in table:
                with cases.case((topic, level)):
                    group = f"{topic}-{level}"
                    set_level(wire, group, level)
                    assert read(cluster, tmp_path, group, topic) == count
                    wait_until(lambda: explain(cluster, group)["group_state"] == "Empty", "the group is empty")  # noqa: B023
                    found = explain(cluster, group)
                    assert (found["cause"], found["isolation_level"]) == (cause, level), json.dumps(found)
                    assert "hare group" in found["sentence"]
                    assert at is None or (found["last_stable_offset"], found["topic"]) == (at, topic), found
        open_there = explain(cluster, f"{LIVE}-read_uncommitted")["evidence"]
        assert any(f"{LIVE}-0" in line and "offset 3" in line for line in open_there), open_there
