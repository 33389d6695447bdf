"""A cluster whose history went back: what earlier sweeps stored proves nothing any more, and still vetoes.

One node, which is both broker and controller. A transaction hangs, and its incident is stored. Then it is ended, and
the incident closes. Then the node gets back an earlier state of its disk:

- the whole disk from a copy, as a restore and a clone do;
- only the end of the partition's log is gone, as after a crash of the machine. Kafka 3.5.2 keeps the leader epoch.
  In two cases the log grows beyond its former end before the next read: then the end of the former leader epoch shows
  it, and where the leader epoch stayed, only the transaction itself.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from txnscan import ScanConfig, sweep
from txnscan.cli.app import app
from txnscan.demo import plant
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.jars import KAFKA_VERSION, OLD_KAFKA_VERSION
from txnscan.demo.plant import Planted
from txnscan.demo.producer import Producer
from txnscan.kafka.protocol.write_txn_markers import MarkerToWrite
from txnscan.resolve.run import plan_sweep
from txnscan.sweeps.result import Scan
from txnscan.tables.open import open_tables
from txnscan.tables.schema import INCIDENTS

TOPIC = "clicks"
_SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
}


@dataclass(frozen=True)
class World:
    """A cluster with a hanging transaction, and tables."""

    cluster: KafkaCluster
    planted: Planted
    tables: str

    def sweep(self, **changes: Any) -> Scan:
        config = ScanConfig(self.cluster.bootstrap_servers, tables=self.tables, engine="threads")
        return sweep(None, replace(config, complete_up_to=(TOPIC,), **changes)).scan

    def incident(self) -> dict[str, Any]:
        (row,) = open_tables(self.tables, None).rows(INCIDENTS)
        return row

    def end(self) -> None:
        """Aborts the transaction, as another tool would."""
        with self.cluster.wire() as wire:
            p = wire.partition(TOPIC, 0)
            one = self.planted
            marker = MarkerToWrite(TOPIC, 0, one.producer_id, one.producer_epoch, -1, commit=False)
            assert marker.answered(wire.send(p.leader, marker.request())) == 0

    def gate(self) -> dict[str, Any]:
        servers = ("--bootstrap-server", self.cluster.bootstrap_servers)
        arguments = ["gate", *servers, "--tables", self.tables, "--topic", TOPIC, "--wait", "0s"]
        result = CliRunner().invoke(app, [*arguments, "--format", "json"])
        found: dict[str, Any] = json.loads(result.stdout)["gate"]
        return found | {"status": result.exit_code}


def _restored_from_copy(cluster: KafkaCluster, copy: Path, logs: Path) -> None:
    shutil.rmtree(cluster.data_of(1))
    shutil.copytree(copy, cluster.data_of(1))


def _grown(cluster: KafkaCluster, copy: Path, logs: Path) -> None:
    """A lost end, and then more records than were lost."""
    _without_the_end(cluster, copy, logs)
    cluster.start()
    with cluster.wire() as wire:
        other = Producer(wire, "other-service")
        other.init_producer_id()
        other.write(TOPIC, 0, [b"later"] * 5)
        other.end(commit=True)
        # Is answered once the marker is written. Otherwise Kafka 4.3 may skip the marker when the broker stops.
        other.init_producer_id()
    cluster.stop()


def _without_the_end(cluster: KafkaCluster, copy: Path, logs: Path) -> None:
    shutil.rmtree(logs)
    shutil.copytree(copy / logs.name, logs)


@pytest.mark.parametrize(
    ("version", "restore", "signs"),
    [
        (KAFKA_VERSION, _restored_from_copy, {"image_offset", "leader_epoch", "high_watermark"}),
        (OLD_KAFKA_VERSION, _restored_from_copy, {"image_offset", "leader_epoch", "high_watermark"}),
        (OLD_KAFKA_VERSION, _without_the_end, {"high_watermark", "open_again", "epoch_end"}),
        (KAFKA_VERSION, _grown, {"epoch_end"}),
        (OLD_KAFKA_VERSION, _grown, {"open_again"}),
    ],
    ids=[
        *("restored", "restored, 3.5.2", "a lost end of a log, 3.5.2", "a lost end, and a later one"),
        "a lost end, and a later one, 3.5.2",
    ],
)
def test_a_cluster_that_went_back(
    tmp_path: Path, version: str, restore: Callable[[KafkaCluster, Path, Path], None], signs: set[str]
) -> None:
    directory, tables = tmp_path / "kafka", str(tmp_path / "tables")
    with KafkaCluster(directory, brokers=1, version=version, properties=_SETTINGS) as cluster:
        with cluster.wire() as wire:
            world = World(cluster, plant.stale_epoch(wire, TOPIC), tables)
        first = world.sweep()
        assert [one.judgement.verdict for one in first.transactions] == ["hanging"], first.errors
        logs, copy = cluster.data_of(1) / f"{TOPIC}-0", tmp_path / "copy"
        cluster.stop()
        shutil.copytree(cluster.data_of(1), copy)
        cluster.start()
        world.end()
        second = world.sweep()
        assert (second.fall, second.history, second.transactions) == (None, 0, ())
        assert (world.incident()["resolved_how"], world.gate()["state"]) == ("ended", "complete")

        cluster.stop()
        restore(cluster, copy, logs)
        cluster.start()

        gate = world.gate()
        assert (gate["state"], gate["status"]) == ("blocked", 3)
        # A gate reads offsets and leader epochs alone. At the same leader epoch, the offsets of the grown log are past
        # the stored ones.
        assert gate["went_back"] is None if signs == {"open_again"} else gate["went_back"]["code"] in signs
        third = world.sweep()
        assert third.fall is not None and third.fall.sign in signs
        assert [one.judgement.verdict for one in third.transactions] == ["hanging"]
        assert (third.history, third.vetoes_dropped) == (1, None)
        assert "went back" in third.warnings[0]
        found = world.incident()
        assert (found["is_open"], found["history"], found["sweeps"]) == (True, 1, 1)
        assert found["first_seen_at"].timestamp() * 1_000 >= third.started_at_ms
        refused = {one.guard for one in plan_sweep(None, tables).refused}
        assert refused == {"too_young"}

        again = world.sweep()
        assert (again.fall, again.history, world.incident()["sweeps"]) == (None, 1, 2)
        told = world.sweep(new_history=True)
        assert (told.history, told.vetoes_from, told.fall) == (2, 2, None)
        assert told.vetoes_dropped is not None
