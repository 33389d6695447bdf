"""The commands of kafka-transactions.sh on three real brokers, compared with Kafka's own tool, and their effects."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command

from tests.brokers.shared import Shared
from tests.cases import Cases
from tests.process import ROOT, ended, run_here
from tests.sim.wire import ClusterShape, WireCluster
from txnscan import ScanConfig
from txnscan.cli.app import app
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.kafka_tool import kafka_transactions
from txnscan.demo.plant import (
    Planted,
    TornCommit,
    open_transaction,
    stale_epoch,
)
from txnscan.demo.producer import Producer
from txnscan.demo.requests import Wire
from txnscan.report.help import as_txnscan_writes
from txnscan.resolve.brokers import LiveBrokers
from txnscan.resolve.lock import Lock
from txnscan.tables.open import open_tables

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

# An id wider than a terminal, and a name with control characters.
LONG_ID = "a" * 200
ODD_ID = "=1+1,\x1b[31m\n"


@dataclass(frozen=True)
class World:
    cluster: KafkaCluster
    wire: Wire
    torn: TornCommit
    orphan: Planted
    stale: Planted
    live_epoch: Planted
    live: Planted

    def txnscan(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_here(*words, "--bootstrap-server", self.cluster.bootstrap_servers, environment={"COLUMNS": "80"})

    def json(self, *words: str) -> dict[str, Any]:
        ran = self.txnscan(*words, "--format", "json")
        assert ran.returncode == 0, ran.stderr
        found: dict[str, Any] = json.loads(ran.stdout)
        return found

    def is_open(self, planted: Planted) -> bool:
        return open_transaction(self.wire, planted.topic, planted.partition, planted.producer_id) is not None


@pytest.fixture(scope="module")
def world(shared: Shared) -> World:
    """The demo's transactions, and two ids that are hard to print."""
    by_topic = {(one.topic, one.partition): one for one in shared.scene.planted}
    for name in (LONG_ID, ODD_ID):
        Producer(shared.wire, name).init_producer_id()
    return World(
        shared.cluster,
        shared.wire,
        shared.scene.torn,
        orphan=by_topic["clicks", 0],
        stale=by_topic["shipments", 0],
        live_epoch=by_topic["invoices", 1],
        live=by_topic["backfill", 0],
    )


# --- parity -----------------------------------------------------------------------------------------------------------

TOOLS = ("list", "describe", "describe-producers", "abort", "find-hanging", "forceTerminateTransaction")


def options_of(command: str) -> set[str]:
    parameters = get_command(app).commands[command].params  # type: ignore[attr-defined]
    return {option for parameter in parameters for option in parameter.opts}


def test_every_command_and_option_of_kafkas_tool_exists(world: World) -> None:
    helped = kafka_transactions(world.cluster, "--help").output
    listed = re.findall(r"^    ([a-zA-Z-]+)(?: |$)", helped.partition("  COMMAND\n")[2], re.M)
    assert set(listed) == set(TOOLS)
    everywhere = set(re.findall(r"--[a-z-]+", helped)) - {"--help", "--version"}
    for command in TOOLS:
        said = kafka_transactions(world.cluster, command, "--help").output
        its = set(re.findall(r"^  (?:-\w, )?(--[a-zA-Z-]+)", said, re.M)) - {"--help"}
        assert its | everywhere <= options_of(command), command
        assert its or command == "list"
    root = get_command(app)
    assert {"--version", "-v"} <= {option for parameter in root.params for option in parameter.opts}


# As in KIP-664, in its order.
KIP_664 = [
    "--list --bootstrap-server localhost:9092",
    "--list --broker 1 --bootstrap-server localhost:9092",
    "--find-hanging --broker 1 --bootstrap-server localhost:9092",
    "--find-hanging --broker 1 --topic foo --partition 0 --bootstrap-server localhost:9092",
    "--describe --transactional-id my-txn-id --bootstrap-server localhost:9092",
    "--describe-producers --topic foo --partition 0 --bootstrap-server localhost:9092",
    "--describe-producers --broker 1 --topic foo --partition 0 --bootstrap-server localhost:9092",
    # These two are last: after the first, no transaction remains for the second.
    "--abort --topic foo --partition 0 --start-offset 0 --bootstrap-server localhost:9092",
    "--abort --topic foo --partition 0 --producer-id 134132 --producer-epoch 23 --coordinator-epoch 15 "
    "--bootstrap-server localhost:9092",
]


def test_every_example_of_kip_664_runs_with_txnscan(world: World) -> None:
    foo = stale_epoch(world.wire, "foo")
    wanted = dict.fromkeys(KIP_664, 0)
    # Its transaction has ended already, which is no success.
    wanted[KIP_664[-1]] = 1
    for line, status in wanted.items():
        told = line.replace("localhost:9092", world.cluster.bootstrap_servers)
        words = shlex.split(told.replace("my-txn-id", str(world.live.transactional_id)))
        # It needs a confirmation, and there is no terminal.
        ran = run_here(*words, *(["--yes"] if words[0] == "--abort" else []))
        assert ran.returncode == status, (line, ran.stderr)
        assert ran.stdout or status
    assert not world.is_open(foo)


REORDERED = [
    (["--bootstrap-server", "h:1", "list"], ["list", "--bootstrap-server", "h:1"]),
    (["--command-config=c", "--bootstrap-server=h", "abort"], ["abort", "--command-config=c", "--bootstrap-server=h"]),
    (["list", "--broker", "1"], ["list", "--broker-id", "1"]),
    (["--list", "--bootstrap-server", "h:1"], ["list", "--bootstrap-server", "h:1"]),
    (["list", "--bootstrap-server", "h:1"], ["list", "--bootstrap-server", "h:1"]),
    (["--version"], ["--version"]),
    (["--bootstrap-server"], ["--bootstrap-server"]),
    ([], []),
]


@pytest.mark.parametrize(("written", "understood"), REORDERED, ids=[" ".join(one[0]) for one in REORDERED])
def test_a_command_line_of_kafkas_tool_is_reordered(written: list[str], understood: list[str]) -> None:
    assert as_txnscan_writes(written) == understood


def test_kafkas_tool_and_txnscan_agree(world: World) -> None:
    # The tool separates columns by blanks, and one id contains some.
    tool = {row["TransactionalId"]: row for row in kafka_transactions(world.cluster, "list").rows if len(row) == 4}
    ours = {one["transactional_id"]: one for one in world.json("list")["transactions"]}
    assert {str(world.live.transactional_id), LONG_ID} <= ours.keys() & tool.keys()
    for name in ours.keys() & tool.keys():
        assert (str(ours[name]["coordinator"]), str(ours[name]["producer_id"]), ours[name]["state"]) == (
            tool[name]["Coordinator"],
            tool[name]["ProducerId"],
            tool[name]["TransactionState"],
        )

    name = str(world.live.transactional_id)
    (said,) = kafka_transactions(world.cluster, "describe", "--transactional-id", name).rows
    (one,) = world.json("describe", "--transactional-id", name)["transactions"]
    assert said["TransactionState"] == one["state"] == "Ongoing"
    assert said["TopicPartitions"] == "backfill-0"
    assert [(p["topic"], p["partition"]) for p in one["partitions"]] == [("backfill", 0)]
    for theirs, mine in (
        ("CoordinatorId", "coordinator"),
        ("ProducerId", "producer_id"),
        ("ProducerEpoch", "producer_epoch"),
        ("TransactionTimeoutMs", "timeout_ms"),
    ):
        assert said[theirs] == str(one[mine])

    where = ("--topic", world.torn.hanging.topic, "--partition", "0")
    (said,) = kafka_transactions(world.cluster, "describe-producers", *where).rows
    (one,) = world.json("describe-producers", *where)["producers"]
    for theirs, mine in (
        ("ProducerId", "producer_id"),
        ("ProducerEpoch", "producer_epoch"),
        ("LatestCoordinatorEpoch", "coordinator_epoch"),
        ("LastSequence", "last_sequence"),
        ("LastTimestamp", "last_timestamp_ms"),
        ("CurrentTransactionStartOffset", "start_offset"),
    ):
        assert said[theirs] == str(one[mine])

    # The tool reports transactions without a visible owner by their record times: here both agree.
    said = kafka_transactions(world.cluster, "find-hanging", "--topic", world.orphan.topic).rows[0]
    (hangs,) = world.json("find-hanging", "--topic", world.orphan.topic)["transactions"]
    assert (hangs["verdict"], said["ProducerId"], said["StartOffset"]) == (
        "hanging",
        str(hangs["producer_id"]),
        str(hangs["start_offset"]),
    )


# --- information missing in the tool ----------------------------------------------------------------------------------


def test_a_list_shows_age_and_timeout_of_ongoing_transactions(world: World) -> None:
    found = {one["transactional_id"]: one for one in world.json("list")["transactions"]}
    live, rest = found[str(world.live.transactional_id)], found[LONG_ID]
    assert (live["timeout_ms"], live["overdue_ms"]) == (900_000, None) and 0 <= live["age_ms"] < 900_000
    # The records are hours old, which does not affect the coordinator.
    assert (rest["age_ms"], rest["timeout_ms"]) == (None, None)


OF_SCENE = {"backfill-service", "invoices-service", "shipments-service", LONG_ID}
# The ids that remain after a filter.
FILTERS: list[tuple[tuple[str, ...], set[str]]] = [
    ((), OF_SCENE),
    (("--state", "ongoing"), {"backfill-service", "invoices-service"}),
    (("--duration-filter", "86400000", "--state", "Ongoing"), set()),
    (("--duration-filter", "0", "--state", "Ongoing"), {"backfill-service", "invoices-service"}),
    (("--transactional-id-pattern", "back.*"), {"backfill-service"}),
    (("--transactional-id-pattern", "back"), set()),
    (("--producer-id", "987654321"), set()),
]


def test_a_list_is_filtered_by_the_brokers(world: World) -> None:
    with Cases() as cases:
        for words, listed in FILTERS:
            with cases.case(" ".join(words)):
                found = {one["transactional_id"] for one in world.json("list", *words)["transactions"]}
                assert found & OF_SCENE == listed


def test_a_pattern_that_brokers_refuse_is_named_once(world: World) -> None:
    ran = world.txnscan("list", "--transactional-id-pattern", "[")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.count("--transactional-id-pattern") == 1 and len(ran.stderr.splitlines()) == 1


def test_ids_are_unbroken_at_80_columns_and_escaped_in_every_format(world: World) -> None:
    table = world.txnscan("list").stdout
    assert any(line.endswith(LONG_ID) for line in table.splitlines())
    assert any(line.endswith("=1+1,\\x1b[31m\\n") for line in table.splitlines())
    rows = list(csv.DictReader(io.StringIO(world.txnscan("list", "--format", "csv").stdout)))
    # The apostrophe prevents a formula in spreadsheets.
    assert {LONG_ID, "'=1+1,\\x1b[31m\\n"} <= {row["transactional_id"] for row in rows}
    assert ODD_ID in {one["transactional_id"] for one in world.json("list")["transactions"]}
    assert "\x1b" not in world.txnscan("list", "--format", "json").stdout


def test_describe_reports_known_ids_and_names_unknown_ones(world: World, wording: SnapshotAssertion) -> None:
    name = str(world.live.transactional_id)
    ran = world.txnscan("describe", "--transactional-id", name, "--transactional-id", "nobody")
    assert ran.returncode == 2
    assert ran.stderr == wording
    for said in ("state         Ongoing", "epoch 0", "15 min (900000 ms)", "last stable offset 0, high watermark 5"):
        assert said in ran.stdout
    assert world.txnscan("describe", "--transactional-id", "nobody").returncode == 2


def test_describe_producers_shows_owner_and_offsets_of_open_transactions(
    world: World,
) -> None:
    producers = world.json("describe-producers", "--open")["producers"]
    by_partition = {(one["topic"], one["partition"]): one for one in producers}
    live, lost = by_partition["backfill", 0], by_partition["clicks", 0]
    assert (live["transactional_id"], live["state"], live["has_partition"]) == ("backfill-service", "Ongoing", True)
    assert (live["last_stable_offset"], live["high_watermark"], live["timeout_ms"]) == (0, 5, 900_000)
    assert (lost["transactional_id"], lost["last_stable_offset"], lost["high_watermark"]) == (None, 0, 5)
    # Its owner is alive, and has added another partition.
    assert by_partition["invoices", 1]["has_partition"] is False
    assert all(one["of_leader"] for one in producers)


def test_an_answer_of_a_follower_is_marked_as_unproven(world: World) -> None:
    leader = world.wire.partition("clicks", 0).leader
    follower = next(one for one in world.cluster.broker_ids if one != leader)
    ran = world.txnscan("describe-producers", "--topic", "clicks", "--partition", "0", "--broker-id", str(follower))
    assert ran.returncode == 0
    assert f"by broker {follower}, a follower" in ran.stdout
    assert "no proof" in ran.stderr


def test_a_coordinator_is_found_without_creating_topics(world: World) -> None:
    name = str(world.live.transactional_id)
    (served,) = world.json("coordinator", "--transactional-id", name)["coordinators"]
    (described,) = world.json("describe", "--transactional-id", name)["transactions"]
    assert (served["broker"], served["partition"]) == (
        described["coordinator"],
        described["coordinator_partition"],
    )


def test_a_group_coordinator_is_not_requested_if_that_would_create_its_topic() -> None:
    with WireCluster(ClusterShape(partitions=3, groups=0)) as cluster:
        ran = run_here("coordinator", "--group", "billing", "--bootstrap-server", cluster.bootstrap_servers)
        asked = {api for stats in cluster.stats().values() for api in stats.requests}
    assert ran.returncode == 1 and "__consumer_offsets" in ran.stdout
    assert "FindCoordinator" not in asked and "Metadata" in asked


def test_the_transaction_log_of_an_id_or_producer_id_is_its_history(world: World) -> None:
    name = str(world.torn.hanging.transactional_id)
    records = world.json("transaction-log", "--transactional-id", name)["records"]
    assert [one["state"] for one in records] == ["Empty", "Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit"]
    assert records[3]["partitions"] == ["payments-fine-0", "payments-solo-0"]
    assert not any(one["impossible"] or one["note"] for one in records)
    same = world.json("transaction-log", "--producer-id", str(world.torn.hanging.producer_id))["records"]
    assert same == records
    ran = world.txnscan("transaction-log", "--producer-id", "987654321")
    assert (ran.returncode, ran.stdout) == (0, "") and ran.stderr.count("\n") == 1


# --- abort ------------------------------------------------------------------------------------------------------------


def abort(world: World, planted: Planted, *words: str) -> subprocess.CompletedProcess[str]:
    where = ("--topic", planted.topic, "--partition", str(planted.partition))
    return world.txnscan("abort", *where, "--start-offset", str(planted.start_offset), *words)


REFUSED = [
    ("torn", ("--yes", "--accept-unknown-outcome")),
    ("orphan", ("--yes",)),
    ("live_epoch", ("--yes",)),
    ("live", ("--yes",)),
]


def test_committed_live_and_unknown_transactions_are_refused_and_stay_open(
    world: World, wording: SnapshotAssertion
) -> None:
    sentences = {}
    with Cases() as cases:
        for what, words in REFUSED:
            planted = world.torn.hanging if what == "torn" else getattr(world, what)
            with cases.case(what):
                ran = abort(world, planted, *words)
                assert ran.returncode == 6
                assert world.is_open(planted)
                sentences[what] = re.sub(r"\d{3,}|(?<=service-)\d+", "<number>", ran.stderr)
    assert sentences == wording


def test_a_start_offset_without_a_transaction_is_refused_with_the_open_ones(world: World) -> None:
    ran = world.txnscan("abort", "--topic", "clicks", "--partition", "0", "--start-offset", "3", "--yes")
    assert ran.returncode == 1
    assert f"offset 0 (producer id {world.orphan.producer_id})" in ran.stderr


def test_epochs_that_differ_from_the_partition_are_refused(world: World) -> None:
    of_it = ("--topic", "clicks", "--partition", "0", "--producer-id", str(world.orphan.producer_id))
    for epochs in (("1", "0"), ("0", "9")):
        words = ("--producer-epoch", epochs[0], "--coordinator-epoch", epochs[1])
        ran = world.txnscan("abort", *of_it, *words, "--yes", "--accept-unknown-outcome")
        assert ran.returncode == 6 and ran.stderr.startswith("txnscan: ")
    assert world.is_open(world.orphan)


def answered(world: World, answer: str, *words: str) -> tuple[int, str]:
    """The command with a terminal to confirm at; its stderr."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "txnscan", *words, "--bootstrap-server", world.cluster.bootstrap_servers]
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        os.write(ours, answer.encode())
        _, said = ended(process)
    os.close(ours)
    os.close(theirs)
    return process.returncode, said


def test_abort_asks_for_confirmation_and_sends_only_for_yes(world: World) -> None:
    planted = stale_epoch(world.wire, "asked")
    words = ("abort", "--topic", "asked", "--partition", "0", "--start-offset", "0")
    status, said = answered(world, "y\n", *words)
    assert (status, world.is_open(planted)) == (6, True)
    assert "ABORT marker to asked-0" in said and "nothing was sent" in said
    assert "--tables" in said
    status, _ = answered(world, "yes\n", *words)
    assert (status, world.is_open(planted)) == (0, False)


def test_without_a_terminal_abort_needs_the_yes_option(world: World) -> None:
    ran = abort(world, world.stale)
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1].startswith("txnscan: --yes: ")
    assert world.is_open(world.stale)


def test_a_forced_abort_ends_a_live_transaction_and_reports_its_refusal(world: World) -> None:
    create_topic(world.wire, "forced", [[1, 2, 3]])
    producer = Producer(world.wire, "forced-service")
    producer.init_producer_id()
    offset = producer.write("forced", 0, [b"x"])
    ran = world.txnscan(
        *("abort", "--topic", "forced", "--partition", "0", "--start-offset", str(offset), "--yes"),
        *("--force", "it blocks billing"),
    )
    assert ran.returncode == 0, ran.stderr
    assert "forced (it blocks billing)" in ran.stderr and "live (ongoing)" in ran.stderr
    assert open_transaction(world.wire, "forced", 0, producer.known.producer_id) is None


def test_a_transaction_is_aborted_by_producer_or_by_offset(world: World) -> None:
    planted = stale_epoch(world.wire, "by-producer")
    ran = world.txnscan(
        *("abort", "--topic", "by-producer", "--partition", "0", "--producer-id", str(planted.producer_id)),
        *("--producer-epoch", "0", "--coordinator-epoch", "-1", "--yes", "--format", "json"),
    )
    assert ran.returncode == 0, ran.stderr
    (result,) = json.loads(ran.stdout)["results"]
    assert result["status"] == "resolved" and not world.is_open(planted)


# --- force-terminate --------------------------------------------------------------------------------------------------


def test_force_terminate_ends_all_partitions_of_an_id_and_fences_its_producer(world: World) -> None:
    create_topic(world.wire, "fenced", [[1, 2, 3], [1, 2, 3]])
    producer = Producer(world.wire, "fenced-service")
    producer.init_producer_id()
    for index in (0, 1):
        producer.write("fenced", index, [b"x"])
    ran = world.txnscan("force-terminate", "--transactional-id", "fenced-service", "--yes")
    assert ran.returncode == 0, ran.stderr
    assert "aborted on 2 partitions" in ran.stdout and "fences the producer" in ran.stderr
    (after,) = world.json("describe", "--transactional-id", "fenced-service")["transactions"]
    # The id keeps its own timeout. Kafka's tool replaces it with the timeout of its requests.
    assert (after["state"], after["partitions"], after["timeout_ms"]) == ("Empty", [], 900_000)
    assert after["producer_epoch"] > producer.known.producer_epoch


def test_force_terminate_creates_no_unknown_id(world: World) -> None:
    ran = world.txnscan("forceTerminateTransaction", "--transactionalId", "mistyped", "--yes")
    assert ran.returncode == 2 and "'mistyped'" in ran.stderr
    assert world.txnscan("describe", "--transactional-id", "mistyped").returncode == 2


def test_force_terminate_without_yes_changes_nothing(world: World) -> None:
    name = str(world.live.transactional_id)
    ran = world.txnscan("force-terminate", "--transactional-id", name)
    assert ran.returncode == 2 and "--yes: is needed" in ran.stderr
    assert world.is_open(world.live)


# --- the journal, and a silent broker ---------------------------------------------------------------------------------


def journal(tables: Path) -> str:
    ran = run_here("history", "--tables", str(tables))
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.partition("Journal of apply:")[2]


def test_with_tables_intent_reason_and_outcome_are_journaled(world: World, tmp_path: Path) -> None:
    create_topic(world.wire, "kept", [[1, 2, 3]])
    producer = Producer(world.wire, "kept-service")
    producer.init_producer_id()
    offset = producer.write("kept", 0, [b"x"])
    where = ("--topic", "kept", "--partition", "0", "--start-offset", str(offset), "--yes")
    ran = world.txnscan("abort", *where, "--tables", f"{tmp_path}/t", "--force", "it blocks billing")
    assert ran.returncode == 0, ran.stderr
    assert "nothing of this is journaled" not in ran.stderr
    said = journal(tmp_path / "t")
    assert "intent  ABORT kept-0" in said and "forced: it blocks billing" in said
    assert "outcome resolved  ABORT kept-0" in said
    ran = world.txnscan("force-terminate", "--transactional-id", "kept-service", "--yes", "--tables", f"{tmp_path}/t")
    assert ran.returncode == 0, ran.stderr
    assert "fence 'kept-service'" in journal(tmp_path / "t")


def test_a_running_apply_blocks_an_abort(world: World, tmp_path: Path) -> None:
    planted = stale_epoch(world.wire, "locked")
    tables = open_tables(f"{tmp_path}/t", None)
    tables.create()
    with Lock(tables, LiveBrokers(ScanConfig(world.cluster.bootstrap_servers)).cluster_id()):
        ran = abort(world, planted, "--yes", "--tables", f"{tmp_path}/t")
    assert ran.returncode == 7 and world.is_open(planted)


def test_a_silent_broker_does_not_delay_other_brokers_or_ctrl_c(world: World, tmp_path: Path) -> None:
    patient = tmp_path / "client.properties"
    patient.write_text("request.timeout.ms=600000\n")
    victim = world.cluster.broker_ids[-1]
    world.cluster.pause_broker(victim)
    try:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "txnscan", "list", "--command-config", str(patient)),
                *("--bootstrap-server", world.cluster.bootstrap_servers),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert process.stdout is not None and "TransactionalId" in process.stdout.readline()
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = ended(process)
    finally:
        world.cluster.resume_broker(victim)
        world.cluster.wait_for_brokers(world.cluster.broker_ids)
    assert (process.returncode, said) == (130, "txnscan: interrupted\n")
