"""`explain` of a tiered topic, on a real broker: a transaction keeps its segments on the local disk."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process import run_here
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.jars import java, kafka_jars
from txnscan.demo.producer import Producer
from txnscan.demo.wait import wait_until
from txnscan.kafka.protocol.describe_log_dirs import describe_log_dirs

SOURCE = Path(__file__).with_name("Remote.java")
SEGMENT_BYTES, SEGMENTS = 1_048_576, 6
SETTINGS = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "100",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A broker with remote storage that keeps nothing."""
    classes = tmp_path_factory.mktemp("classes")
    compiler = java().with_name("javac")
    if not compiler.exists():
        pytest.skip("there is no javac")
    subprocess.run([str(compiler), "-cp", f"{kafka_jars()}/*", "-d", str(classes), str(SOURCE)], check=True)
    manager = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
    properties = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "Remote",
        "remote.log.storage.manager.class.path": f"{classes}/",
        "remote.log.metadata.manager.class.name": manager,
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
    }
    with KafkaCluster(tmp_path_factory.mktemp("tiered"), brokers=1, properties=properties) as started:
        yield started


def explain(cluster: KafkaCluster, topic: str) -> dict[str, Any]:
    words = ("explain", "--bootstrap-server", cluster.bootstrap_servers, "--late-after", "1s", "--topic", topic)
    ran = run_here(*words, "--format", "json")
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_a_transaction_keeps_segments_on_the_local_disk(cluster: KafkaCluster) -> None:
    with cluster.wire() as wire:

        def local_bytes(topic: str) -> int:
            return sum(
                size for one in describe_log_dirs(wire.send, 1, [(topic, 0)]) for size in one.sizes_bytes.values()
            )

        def write(topic: str) -> Producer:
            create_topic(wire, topic, [[1]], SETTINGS)
            one = Producer(wire, f"{topic}-service", timeout_ms=900_000)
            one.init_producer_id()
            for _ in range(2 * SEGMENTS):
                one.write(topic, 0, [bytes(SEGMENT_BYTES // 2)])
            return one

        held = write("held")
        write("moved").end(commit=True)
        wait_until(lambda: local_bytes("moved") < 3 * SEGMENT_BYTES, "its segments left the local disk", timeout_s=120)
        assert local_bytes("held") > (SEGMENTS - 1) * SEGMENT_BYTES
        found = explain(cluster, "held")
        assert (found["cause"], found["tiered"], found["last_stable_offset"]) == ("tiering_stuck", True, 0)
        assert found["partition_bytes"] > (SEGMENTS - 1) * SEGMENT_BYTES and found["usable_bytes"] > 0
        after = explain(cluster, "moved")
        assert (after["cause"], after["partition_bytes"]) == ("marker_lag", local_bytes("moved"))
        held.end(commit=False)
        wait_until(lambda: local_bytes("held") < 3 * SEGMENT_BYTES, "its segments left the local disk", timeout_s=120)
