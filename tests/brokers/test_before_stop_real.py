"""`check --before-stop` on three real brokers: what it says, and what then happens when the broker stops."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.brokers.offsets import commit_offset
from tests.process import run_here
from txnscan import ScanConfig, find_hanging
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.producer import Producer
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until

# Broker 3 stops. With a short session a busy machine would fence the others, too.
AWAY, PATIENT = 3, {"broker.session.timeout.ms": "20000"}
WHOLE, PAIR, SOLO, NEAR = "whole", "pair", "solo", "near"


@dataclass(frozen=True)
class World:
    cluster: KafkaCluster
    wire: Wire

    def asked(self, *brokers: int, status: int, more: tuple[str, ...] = ()) -> dict[str, Any]:
        words = [word for broker in brokers for word in ("--before-stop", str(broker))]
        servers = ("--bootstrap-server", self.cluster.bootstrap_servers)
        ran = run_here("check", *words, *servers, "--format", "json", *more)
        assert ran.returncode == status, (ran.stdout, ran.stderr)
        found: dict[str, Any] = json.loads(ran.stdout)
        return found

    def harms(self, *brokers: int, status: int) -> dict[str, tuple[str, str, list[str]]]:
        """By partition: the effect, the reason, and the ids."""
        found = self.asked(*brokers, status=status)
        return {
            f"{one['topic']}-{one['partition']}": (
                one["effect"],
                one["reason"],
                [each["transactional_id"] for each in one["transactions"]],
            )
            for one in found["partitions"]
        }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with (
        KafkaCluster(tmp_path_factory.mktemp("before-stop"), properties=PATIENT) as cluster,
        cluster.wire() as wire,
    ):
        for topic, replicas, minimum in (
            (WHOLE, [1, 2, 3], "2"),
            (PAIR, [1, AWAY], "2"),
            (SOLO, [AWAY], "1"),
            (NEAR, [1], "1"),
        ):
            create_topic(wire, topic, [replicas], {"min.insync.replicas": minimum})
        yield World(cluster, wire)


def at_work(world: World, name: str, *topics: str) -> Producer:
    """A transaction of this id that is open on these topics."""
    producer = Producer(world.wire, name, timeout_ms=900_000)
    producer.init_producer_id()
    for topic in topics:
        producer.write(topic, 0, [b"a record"])
    return producer


def test_before_any_transaction_every_single_broker_may_stop(world: World) -> None:
    for broker in (1, 2, AWAY):
        found = world.asked(broker, status=0)
        assert (found["before_stop"]["verdict"], found["partitions"], found["errors"]) == ("safe", [], [])
        assert found["before_stop"]["brokers"] == [broker]


def test_each_harm_is_named_with_its_ids(world: World) -> None:
    whole, pair, solo = (at_work(world, f"at-{topic}", topic) for topic in (WHOLE, PAIR, SOLO))
    blocked = {"pair-0": ("blocked", "too_few_in_sync", ["at-pair"])}
    torn = {"solo-0": ("torn", "marker_dropped", ["at-solo"])}
    assert world.harms(2, status=0) == {}
    assert world.harms(1, status=3) == blocked
    assert world.harms(AWAY, status=3) == blocked | torn
    # Two brokers at once leave one replica of three.
    both = world.harms(1, AWAY, status=3)
    assert both["whole-0"] == ("blocked", "too_few_in_sync", ["at-whole"])
    assert both["pair-0"] == ("torn", "marker_dropped", ["at-pair"])
    for producer in (whole, pair, solo):
        producer.end(commit=True)
    print(both)


def test_an_id_that_may_write_to_the_partition_counts(world: World) -> None:
    """Its coordinator lists the partition, which has no data of it yet."""
