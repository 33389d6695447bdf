"""An id whose timeout exceeds the broker's current maximum can still be fenced."""

from __future__ import annotations

import json
from pathlib import Path

from tests.process import run
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.producer import Producer

ID = "long-service"
ONE_BROKER = {
    **dict.fromkeys(("transaction.state.log.replication.factor", "transaction.state.log.min.isr"), "1"),
    "offsets.topic.replication.factor": "1",
}
LONG_MS, SHORT_MS = 800_000, 60_000


def cluster_of(directory: Path, max_timeout_ms: int) -> KafkaCluster:
    settings = {**ONE_BROKER, "transaction.max.timeout.ms": str(max_timeout_ms)}
    return KafkaCluster(directory, brokers=1, properties=settings)


def test_an_id_with_a_timeout_above_the_current_maximum_is_fenced(tmp_path: Path) -> None:
    with cluster_of(tmp_path / "broker", LONG_MS) as cluster, cluster.wire() as wire:
        create_topic(wire, "t", [[1]])
        producer = Producer(wire, ID, timeout_ms=LONG_MS)
        producer.init_producer_id()
        producer.write("t", 0, [b"x"])
    with cluster_of(tmp_path / "broker", SHORT_MS) as cluster:
        at = ("--bootstrap-server", cluster.bootstrap_servers, "--transactional-id", ID)
        ran = run("force-terminate", *at, "--yes")
        assert ran.returncode == 0, ran.stderr
        (after,) = json.loads(run("describe", *at, "--format", "json").stdout)["transactions"]
        assert (after["state"], after["partitions"], after["timeout_ms"]) == ("Empty", [], SHORT_MS)
