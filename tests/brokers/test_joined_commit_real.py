"""A torn commit whose producer goes on: the next transaction joins the committed records, and decides about them.

Brokers of Kafka 4.3 skip the marker of a partition without a leader (KAFKA-20734). The broker is stopped once for both
histories. The first sweep has an earlier clock, as if what hangs had been watched for long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.losses import AWAY, KEEPER, MORE, RECORDS, by_topic, ended_all, swept
from txnscan import ScanConfig, explain, sweep
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.producer import Producer
from txnscan.demo.reader import read_values
from txnscan.report.findings import Findings
from txnscan.resolve.brokers import LiveBrokers
from txnscan.resolve.terminate import aborted_keys, refusal
from txnscan.tables.conditions import Is
from txnscan.tables.delta import Row
from txnscan.tables.open import open_tables
from txnscan.tables.schema import INCIDENTS

COMMITS, ABORTS = "joined-and-commits", "joined-and-aborts"
TOPICS = (COMMITS, ABORTS)
Rows = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class World:
    """The transactions of sweeps: while both hang, after the next transactions wrote, and after these ended.

    fences, advised: by topic, why a fence of its id needs a reason, and the next commands of `explain` without tables.
    readable: by topic, how many records a read_committed consumer gets at the end.
    """

    hanging: Mapping[str, str | None]
    joined: Rows
    fail_on_hanging: int
    fences: Mapping[str, str | None]
    advised: Mapping[str, Sequence[str]]
    incidents: Mapping[str, Row]
    ended: Mapping[str, Row]
    readable: Mapping[str, int]


def incidents_of(config: ScanConfig) -> dict[str, Row]:
    """The one incident of each topic."""
    tables = open_tables(str(config.tables), None)
    found = {}
    for topic in TOPICS:
        (found[topic],) = tables.rows(INCIDENTS, Is("topic", topic))
    return found


def fence_refused(brokers: LiveBrokers, transactional_id: str) -> str | None:
    one = brokers.describe(transactional_id)
    return refusal(one, brokers.looked_at(aborted_keys(one)))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory: Path = tmp_path_factory.mktemp("joined-commit")
    with KafkaCluster(directory / "kafka") as cluster, cluster.wire() as wire:
        producers = {}
        for topic in TOPICS:
            create_topic(wire, topic, [[AWAY]])
            create_topic(wire, f"{topic}-fine", [[KEEPER]])
            producers[topic] = Producer(wire, f"{topic}-service", v2=True)
            producers[topic].init_producer_id()
            for each in (topic, f"{topic}-fine"):
                producers[topic].write(each, 0, RECORDS)
        cluster.stop_broker(AWAY)
        for topic in TOPICS:
            cluster.wait_for_leader(topic, 0, -1)
        ended_all(wire, producers, dict.fromkeys(TOPICS, True))
        cluster.start_broker(AWAY)
        for topic in TOPICS:
            cluster.wait_for_leader(topic, 0, AWAY)
        config = ScanConfig(cluster.bootstrap_servers, tables=str(directory / "tables"), engine="threads")
        hanging = swept(config, 40)

        for topic in TOPICS:
            producers[topic].write(topic, 0, MORE)
        found = sweep(None, config)
        joined, urgent, incidents = by_topic(found), Findings.of(found.scan).endangered, incidents_of(config)
        alone = ScanConfig(cluster.bootstrap_servers)
        fences = {topic: fence_refused(LiveBrokers(alone), f"{topic}-service") for topic in TOPICS}
        advised = {topic: explain(alone, transactional_id=f"{topic}-service").next for topic in TOPICS}

        ended_all(wire, producers, {COMMITS: True, ABORTS: False})
        sweep(None, config)
        readable = {topic: len(read_values(wire, topic, 0, committed=True)) for topic in TOPICS}
        yield World(hanging, joined, urgent, fences, advised, incidents, incidents_of(config), readable)


def test_a_live_transaction_that_joined_a_commit_stays_an_incident(world: World) -> None:
    assert {topic: world.hanging[topic] for topic in TOPICS} == dict.fromkeys(TOPICS, "committed")
    for topic in TOPICS:
        row = world.joined[topic]
        assert (row["verdict"], row["reason"], row["outcome"]) == ("ongoing", "joined_commit", "committed")
        incident = world.incidents[topic]
        assert (incident["is_open"], incident["reason"], incident["sweeps"]) == (True, "joined_commit", 1)
    assert world.fail_on_hanging == len(TOPICS)


def test_no_fence_is_offered_that_would_tear_the_commit(world: World) -> None:
    """Without tables: only the first records show the earlier commit."""
    for topic in TOPICS:
        assert "earlier transaction committed" in str(world.fences[topic])
        assert world.advised[topic] and not [one for one in world.advised[topic] if "force-terminate" in one]


def test_its_end_completes_or_tears_the_commit(world: World) -> None:
    assert {topic: world.ended[topic]["resolved_how"] for topic in TOPICS} == {COMMITS: "completed", ABORTS: "torn"}
    assert world.readable == {COMMITS: len(RECORDS) + len(MORE), ABORTS: 0}
