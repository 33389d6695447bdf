"""`check --before-stop` on three real brokers: what it says, and what then happens when the broker stops."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.process import run_here
from txnscan import ScanConfig, find_hanging
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.plant import describe_owner
from txnscan.demo.producer import Producer
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.waiting import before_stop

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


def test_an_id_counts_before_it_has_written_to_the_partition(world: World) -> None:
    idle = at_work(world, "lists", NEAR)
    idle.add_partitions([(SOLO, 0)])
    found = world.asked(AWAY, status=3)
    (solo,) = [one for one in found["partitions"] if one["topic"] == SOLO]
    assert [(one["transactional_id"], one["has_data"]) for one in solo["transactions"]] == [("lists", False)]
    idle.end(commit=True)


def test_producers_at_work_count_and_those_of_long_ago_do_not(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other tests have just ended transactions on two of the topics."""
    at_work(world, "at-solo", SOLO).end(commit=True)
    assert world.harms(AWAY, status=3)["solo-0"] == ("torn", "marker_dropped", [])
    # As a minute later.
    monkeypatch.setattr(before_stop, "RECENT_MS", 0)
    found = world.asked(AWAY, status=0)
    assert found["before_stop"]["partitions_idle"]["torn"] == 1


def test_the_command_says_it_in_one_sentence_and_knows_the_brokers(world: World) -> None:
    servers = ("--bootstrap-server", world.cluster.bootstrap_servers)
    ran = run_here("check", "--before-stop", "9", *servers)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    producer = at_work(world, "at-solo", SOLO)
    ran = run_here("check", "--before-stop", str(AWAY), *servers)
    assert ran.returncode == 3 and "at-solo" in ran.stdout
    producer.end(commit=False)


def test_a_commit_is_torn_after_unsafe_and_not_after_safe(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both transactions are committed while broker 3 is stopped."""
    monkeypatch.setattr(before_stop, "RECENT_MS", 0)

    def hanging_after_stop(*topics: str, status: int) -> list[str]:
        """The partitions that hang after this broker was stopped with a transaction on these topics."""
        producer = at_work(world, f"of-{topics[-1]}", *topics)
        world.asked(AWAY, status=status)
        world.cluster.stop_broker(AWAY)
        world.cluster.wait_for_brokers(world.cluster.running)
        world.cluster.wait_for_leader(SOLO, 0, -1)
        producer.end(commit=True)
        name = str(producer.transactional_id)
        wait_until(lambda: describe_owner(world.wire, name).state == "CompleteCommit", f"{name} was complete")
        world.cluster.start_broker(AWAY)
        world.cluster.wait_for_leader(SOLO, 0, AWAY)
        found = find_hanging(ScanConfig(world.cluster.bootstrap_servers))
        return [
            f"{one.observation.topic_partition}" for one in found.transactions if one.judgement.verdict == "hanging"
        ]

    assert hanging_after_stop(NEAR, WHOLE, status=0) == []
    assert hanging_after_stop(NEAR, SOLO, status=3) == [f"{SOLO}-0"]
    # What hangs has no coordinator, and would hang for ever without the only broker that has it.
    found = world.asked(AWAY, status=3)
    (note,) = [one for one in found["notes"] if one["what"] == "unclaimed_transactions"]
    assert (note["effect"], note["count"]) == ("exposed", 1)
