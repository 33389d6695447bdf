"""A broker cut off from the controller comes first in the bootstrap list. A sweep uses newer metadata.

It answers like any other broker. It lacks topics created after the cut, and names itself the leader of partitions
that other brokers lead now.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.brokers.offsets import commit_offset
from tests.cut_off import CUT_OFF, cluster_to_cut
from txnscan import ScanConfig, find_hanging
from txnscan.cli.app import app
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.producer import PRODUCE_V1, Producer
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.protocol.api_versions import image_offset
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.metadata import read_metadata
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.sweeps.result import Scan

LINKED, OTHER = 1, 2
MOVED, FRESH = "moved", "fresh"
# It waits at the first offset of the moved topic.
GROUP = "moved-readers"


RECORDS = [b"late"] * 5


@dataclass(frozen=True)
class World:
    """Brokers of which the last is cut off, with two orphans unknown to it. moved_id: began after its coordinator moved
    away from that broker.
    """

    cluster: KafkaCluster
    wire: Wire
    moved_id: str

    def servers(self, *broker_ids: int) -> str:
        """These bootstrap servers."""
        address = {broker.broker_id: broker.address for broker in self.cluster.brokers}
        return ",".join(address[broker_id] for broker_id in broker_ids)

    def swept(self, *broker_ids: int) -> Scan:
        """A sweep by these bootstrap servers."""
        return find_hanging(ScanConfig(self.servers(*broker_ids)))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("stale-metadata")
    settings = {"transaction.partition.verification.enable": "false"}
    with cluster_to_cut(directory, settings) as (cluster, controllers), cluster.wire() as wire:
        Producer(wire, "any-service").init_producer_id()
        create_topic(wire, MOVED, [[CUT_OFF, LINKED, OTHER]])
        for asked in cluster.broker_ids:
            wait_until(lambda b=asked: leads(wire, b) == CUT_OFF, f"{CUT_OFF} led {MOVED}-0")  # type: ignore[misc]
        commit_offset(cluster, GROUP, MOVED, 0)
        controllers.cut_off()
        for asked in (LINKED, OTHER):
            wait_until(lambda b=asked: leads(wire, b) == LINKED, f"{LINKED} led {MOVED}-0")  # type: ignore[misc]
        create_topic(wire, FRESH, [[OTHER, LINKED]])
        for topic in (MOVED, FRESH):
            late = Producer(wire, v2=False)
            late.init_producer_id()
            late.produce(topic, 0, RECORDS, version=PRODUCE_V1)
        wait_until(lambda: _moved_id(wire) is not None, "another coordinator took over")
        name = _moved_id(wire) or ""
        Producer(wire, name).init_producer_id()
        yield World(cluster, wire, name)


def _moved_id(wire: Wire) -> str | None:
    """An id whose coordinator, in the view of the broker that is cut off, is that broker; and by now another one is."""
    old, new = (_leaders(wire, asked) for asked in (CUT_OFF, LINKED))
    for name in (f"service-{number}" for number in range(1_000)):
        k = coordinator_partition(name, len(new))
        if old.get(k) == CUT_OFF and new[k] in (LINKED, OTHER):
            return name
    return None


def _leaders(wire: Wire, asked: int) -> dict[int, int]:
    shown = read_metadata(wire.send, asked, [TRANSACTION_STATE_TOPIC]).partitions
    return {partition.partition: partition.leader for partition in shown}


def leads(wire: Wire, asked: int) -> int:
    """The leader of the moving partition in the view of a broker."""
    return next((p.leader for p in read_metadata(wire.send, asked, [MOVED]).partitions), -1)


def test_a_broker_that_is_cut_off_answers_from_an_older_image(world: World) -> None:
    cut_off, linked = (image_offset(world.wire.send, broker_id) for broker_id in (CUT_OFF, LINKED))
    assert cut_off is not None and linked is not None and cut_off < linked
    assert leads(world.wire, CUT_OFF) == CUT_OFF
    assert {topic.name for topic in read_metadata(world.wire.send, CUT_OFF).topics} & {MOVED, FRESH} == {MOVED}


@pytest.mark.parametrize("first", [(CUT_OFF,), (CUT_OFF, LINKED)], ids=str)
def test_a_sweep_starting_at_a_cut_off_broker_is_incomplete_and_names_it(world: World, first: tuple[int, ...]) -> None:
    """The newest metadata proves who leads, whatever the cut-off broker believes."""
    found = world.swept(*first)
    assert said(found) == dict.fromkeys((FRESH, MOVED), "hanging")
    assert not found.complete
    assert CUT_OFF in {error.broker for error in found.errors if error.stage == "plan"}


def test_a_sweep_starting_at_another_broker_is_not_affected(world: World) -> None:
    found = world.swept(LINKED, CUT_OFF)
    assert said(found) == dict.fromkeys((FRESH, MOVED), "hanging")
    assert found.complete


def test_check_names_the_cut_off_broker(world: World) -> None:
    ran = CliRunner().invoke(app, ["check", "--bootstrap-server", world.servers(CUT_OFF, LINKED), "--format", "json"])
    found = json.loads(ran.stdout)
    assert found["check"]["level"] == "incomplete"
    (metadata,) = [one for one in found["findings"] if one["area"] == "metadata"]
    assert metadata["level"] == "incomplete" and f"broker {CUT_OFF}" in metadata["said"]


def ran(world: World, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """The exit status, the object and the other output of a command that starts at the broker that is cut off."""
    servers = ("--bootstrap-server", world.servers(CUT_OFF, LINKED), "--format", "json")
    found = CliRunner().invoke(app, [*arguments, *servers])
    return found.exit_code, json.loads(found.stdout or "{}"), found.stderr


def test_an_id_that_the_first_broker_does_not_know_is_described(world: World) -> None:
    status, shown, _ = ran(world, "describe", "--transactional-id", world.moved_id)
    assert (status, [one["state"] for one in shown["transactions"]]) == (0, ["Empty"])


def test_an_unknown_id_may_be_known_to_a_broker_that_lags(world: World) -> None:
    status, shown, _ = ran(world, "describe", "--transactional-id", "never-used")
    assert status == 1
    assert {(one["stage"], one["code"]) for one in shown["errors"]} >= {("describe", "BROKER_BEHIND")}
    assert CUT_OFF in {one["broker"] for one in shown["errors"] if one["stage"] == "plan"}


def test_a_listing_has_the_ids_of_all_coordinators_and_names_the_broker_that_lags(world: World) -> None:
    status, shown, _ = ran(world, "list")
    assert status == 4
    assert world.moved_id in {one["transactional_id"] for one in shown["transactions"]}
    assert CUT_OFF in {one["broker"] for one in shown["errors"]}


def test_the_coordinator_is_that_of_the_newest_metadata(world: World) -> None:
    status, shown, _ = ran(world, "coordinator", "--transactional-id", world.moved_id)
    assert (status, [one["broker"] in (LINKED, OTHER) for one in shown["coordinators"]]) == (0, [True])


def test_explain_gives_no_negative_answer_while_a_broker_lags(world: World) -> None:
    status, shown, _ = ran(world, "explain", "--transactional-id", "never-used")
    assert (status, shown["cause"]) == (4, "not_observed")


def test_explain_proves_what_hangs_while_a_broker_lags(world: World) -> None:
    status, shown, _ = ran(world, "explain", "--topic", FRESH)
    assert (status, shown["cause"]) == (0, "hanging")


def test_explain_shows_that_a_group_is_blocked_where_a_broker_that_lags_has_nothing(world: World) -> None:
    """The broker that is cut off believes that it leads the partition, and has no open transaction there."""
    status, shown, _ = ran(world, "explain", "--group", GROUP)
    assert (status, shown["cause"]) == (0, "hanging")
    assert (shown["topic"], shown["partition"], shown["verdict"]) == (MOVED, 0, "hanging")
    assert (shown["committed_offset"], shown["last_stable_offset"], shown["blocked_records"]) == (0, 0, len(RECORDS))


def said(found: Scan) -> dict[str, str]:
    """The verdicts by topic."""
    return {judged.observation.topic: str(judged.judgement.verdict) for judged in found.transactions}
