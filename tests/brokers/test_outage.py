"""One broker is down while transactions end: 50 partitions hang, and users hear of one event."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process import run
from txnscan import ScanConfig
from txnscan import find_hanging as find_hanging_here
from txnscan.demo import plant
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.wait import wait_until
from txnscan.report.notifications import SHAPES, bodies
from txnscan.sweeps.news import Change
from txnscan.tables.open import open_tables
from txnscan.tables.schema import INCIDENTS
from txnscan.watch.incident_tracker import IncidentTracker, remember

KEEPER, AWAY = 1, 3
TOPICS, PARTITIONS = ("orders", "payments", "refunds", "shipments", "clicks"), 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Brokers after the outage. Each of five producers committed to a topic of ten partitions without a leader."""
    with KafkaCluster(tmp_path_factory.mktemp("outage")) as cluster, cluster.wire() as wire:
        producers = []
        for topic in TOPICS:
            create_topic(wire, topic, [[AWAY]] * PARTITIONS)
            producers.append(plant.coordinated_by(wire, KEEPER, f"{topic}-service"))
            for partition in range(PARTITIONS):
                producers[-1].write(topic, partition, [b"1", b"2"])
        cluster.stop_broker(AWAY)
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                cluster.wait_for_leader(topic, partition, -1)
        for producer in producers:
            producer.end(commit=True)
        names = [str(producer.transactional_id) for producer in producers]
        wait_until(
            lambda: {plant.describe_owner(wire, name).state for name in names} == {"CompleteCommit"}, "all are complete"
        )
        cluster.start_broker(AWAY)
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                cluster.wait_for_leader(topic, partition, AWAY)
        yield cluster


def find_hanging(cluster: KafkaCluster, *options: str) -> str:
    ran = run("find-hanging", "--bootstrap-server", cluster.bootstrap_servers, *options)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_an_outage_is_one_event(cluster: KafkaCluster) -> None:
    found = json.loads(find_hanging(cluster, "--format", "json"))["transactions"]
    hanging = [one for one in found if one["verdict"] == "hanging"]
    assert len(hanging) == len(TOPICS) * PARTITIONS
    assert {one["cause"] for one in hanging} == {"marker_missing"}
    assert len({one["event_id"] for one in hanging}) == 1


def test_an_outage_fits_on_a_screen(cluster: KafkaCluster) -> None:
    shown = find_hanging(cluster).splitlines()
    assert sum(line.split()[-1].rsplit("-", 1)[0] in TOPICS for line in shown if line.strip()) == 50
    assert len(shown) <= 70
    assert len(find_hanging(cluster, "--verbose").splitlines()) > 70


def test_an_outage_is_one_notification(cluster: KafkaCluster) -> None:
    found = find_hanging_here(ScanConfig(cluster.bootstrap_servers, engine="threads", late_after_ms=1_000))
    (event,) = remember(IncidentTracker(), "prod", found).events
    assert (event.kind, event.open_incidents, len(event.opened)) == (Change.OPENED, 50, 50)
    assert {name: len(bodies(shape, [event], "key")) for name, shape in SHAPES.items()} == dict.fromkeys(SHAPES, 1)


def test_an_outage_is_one_event_on_the_page_and_in_the_tables(cluster: KafkaCluster, tmp_path: Path) -> None:
    tables, page = str(tmp_path / "tables"), tmp_path / "page.html"
    where = ("--bootstrap-server", cluster.bootstrap_servers, "--tables", tables)
    for _ in range(2):
        assert run("sweep", *where, "--engine", "threads").returncode == 0
    assert run("report", "--tables", tables, "--out", str(page)).returncode == 0
    text = page.read_text("utf-8")
    assert (text.count("<article>"), text.count("<details>")) == (1, 50)
    incidents = open_tables(tables, None).rows(INCIDENTS)
    assert ({one["sweeps"] for one in incidents}, len({one["event_id"] for one in incidents})) == ({2}, 1)
    assert incidents[0]["event_id"] in {one["incident_id"] for one in incidents}
