"""The demo: real brokers, real transactions, one sweep through Spark, and the report of Kafka's own tool for
comparison.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from txnscan.config import ScanConfig, printable
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.errors import DemoError
from txnscan.demo.kafka_tool import ToolHanging, find_hanging
from txnscan.demo.plant import (
    HealthyTraffic,
    Planted,
    TornCommit,
    committed_but_hanging,
    live_epoch,
    live_with_old_timestamps,
    open_transaction,
    orphan,
    orphan_from_the_future,
    read_both,
    stale_epoch,
)
from txnscan.demo.ports import choose_ports
from txnscan.demo.reader import commit_offset
from txnscan.demo.requests import Wire
from txnscan.engine.spark.errors import require_pyspark
from txnscan.kafka.units import duration
from txnscan.report.paragraphs import where
from txnscan.report.sweep import headline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A group that waits for a planted transaction, as in the README.
GROUP = "billing"
# Kafka's own port, as in the README, and how many ports three brokers need: for clients, and for controllers.
_KAFKAS_PORT, _PORTS = 9092, 6
# The longest transaction that the brokers allow: long enough that live transactions are alive during a sweep, short
# enough that the demo can watch for longer.
_TIMEOUT_S_MIN, _TIMEOUT_S_MAX = 45, 240
# The first sweep through Spark takes up to four times as long as Spark's start, on any machine. The factor is doubled,
# because the machine may have become busier since.
_STARTS = 8


@dataclass(frozen=True, slots=True)
class Scene:
    """The planted transactions. `torn` is the committed transaction, and the first of `planted`."""

    torn: TornCommit
    planted: tuple[Planted, ...]


def plant_all(cluster: KafkaCluster, wire: Wire, say: Callable[[str], None] = lambda _: None) -> Scene:
    """Plants every scenario of the demo on these brokers. Restarts the last broker."""
    say("Planting a transaction that commits while one of its partitions is offline (default settings)")
    torn = committed_but_hanging(cluster)
    say("Planting orphans, a stale epoch, a live epoch and a live transaction with old timestamps")
    return plant_beside(wire, torn)


def plant_beside(wire: Wire, torn: TornCommit) -> Scene:
    """Plants every scenario of the demo except the torn commit, which exists."""
    planted = (
        torn.hanging,
        orphan(wire),
        orphan_from_the_future(wire),
        stale_epoch(wire),
        live_epoch(wire),
        live_with_old_timestamps(wire),
    )
    return Scene(torn, planted)


def timeout_s(spark_start_s: float) -> int:
    """The brokers' longest transaction, in seconds, on a machine where Spark needs this long to start."""
    return min(_TIMEOUT_S_MAX, max(_TIMEOUT_S_MIN, round(_STARTS * spark_start_s)))


def run_demo(
    tables: str, *, kafka_version: str, base_port: int | None, hold: bool, console: Console, progress: Any
) -> None:
    """Starts brokers, plants, sweeps, plans, notifies and resolves. Ends all processes that it started, also after
    Ctrl-C.

    kafka_version: 4.3 or later, because older brokers do not tear a commit. hold: keep the brokers until Ctrl-C, and
    leave the transactions hanging; without a base port they listen at Kafka's own port, if it is free. Raises
    DemoError, SparkUnavailable and the errors of a sweep.
    """
    require_pyspark()
    from txnscan.demo.finale import tell_and_resolve
    from txnscan.demo.resolution import plan_and_rehearse
    from txnscan.engine.spark.session import spark_session

    say = _teller(console)
    directory = Path(tempfile.mkdtemp(prefix="txnscan-demo-"))
    try:
        with _terminated_as_interrupted():
            say("Starting Spark")
            began_s = time.monotonic()
            spark = spark_session(say=say)
            longest_s = timeout_s(time.monotonic() - began_s)
            properties = {"transaction.max.timeout.ms": str(longest_s * 1_000)}
            port = kafkas_port() if hold and base_port is None else base_port
            with KafkaCluster(
                directory, base_port=port, version=kafka_version, say=say, properties=properties
            ) as cluster:
                console.print(f"Three Apache Kafka {cluster.version} brokers run at {cluster.bootstrap_servers}")
                with cluster.wire() as wire, HealthyTraffic(cluster) as traffic:
                    scene = plant_all(cluster, wire, say)
                    say(f"Letting a consumer group, {GROUP}, wait at the torn commit")
                    commit_offset(cluster, GROUP, scene.torn.hanging.topic, 0)
                    config = ScanConfig(cluster.bootstrap_servers, tables=tables, late_after_ms=longest_s * 1_000)
                    _sweep_and_show(spark, cluster, wire, config, scene, traffic, console, progress)
                    hanging = [p for p in scene.planted if p.topic != "backfill"]
                    plan = plan_and_rehearse(wire, config, hanging, console, say)
                    # With `hold`, the user tries the commands on the hanging transactions, so they must stay.
                    tell_and_resolve(wire, config, plan, scene.torn, console, say, resolve=not hold)
                if hold:
                    _hold(cluster, tables, scene.torn.hanging.topic, console)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def kafkas_port() -> int | None:
    """Kafka's own port, for brokers that people connect to. None if it or a port behind it is taken."""
    try:
        choose_ports(_PORTS, _KAFKAS_PORT)
    except DemoError:
        return None
    return _KAFKAS_PORT


def _sweep_and_show(
    spark: SparkSession,
    cluster: KafkaCluster,
    wire: Wire,
    config: ScanConfig,
    scene: Scene,
    traffic: HealthyTraffic,
    console: Console,
    progress: Any,
) -> None:
    from txnscan.api import sweep
    from txnscan.report.json import scan_object

    say = _teller(console)
    say("Sweeping, while healthy transactions go on")
    before = traffic.count
    with progress() as stages:
        found = sweep(spark, config, progress=stages).scan
    ended = traffic.count
    say("Asking Kafka's own find-hanging, broker by broker")
    kafka = [report for broker_id in cluster.broker_ids for report in find_hanging(cluster, broker_id)]
    shown = scan_object(found)
    console.rule("What txnscan found, and what Kafka's own tool says", align="left")
    console.print()
    console.print(
        "Most of these records are back-dated by their producers, by half an hour to two hours, so that they look old "
        "at once: Kafka's tool goes by such times. txnscan shows them, and counts from when it first saw a transaction "
        "before anything may be done about it. Late is what is older than the longest transaction that these brokers "
        f"allow, {duration(config.late_after_ms or 0)}."
    )
    console.print()
    for planted in scene.planted:
        _show(console, wire, planted, shown, kafka)
    _show_torn(console, wire, scene.torn)
    healthy = ended.committed + ended.aborted - before.committed - before.aborted
    topics = {planted.topic for planted in scene.planted}
    accused = [t for t in shown["transactions"] if t["verdict"] == "hanging" and t["topic"] not in topics]
    console.print(
        f"Healthy traffic: {healthy} transactions ended during the sweep, {len(accused)} of them were called hanging."
    )
    console.print()
    console.print(*headline(shown), sep="\n", end="\n\n")
    console.print(Text(f"The tables are in {Path(str(config.tables)).absolute()}. Look at them again:"))
    console.print(Text(f"  {sys.argv[0]} show --tables {config.tables}"), soft_wrap=True)
    console.print()


def _show(console: Console, wire: Wire, planted: Planted, shown: dict[str, Any], kafka: Sequence[ToolHanging]) -> None:
    """Shows one planted transaction: its description, the sweep's verdict, what it blocks, and the report of Kafka's
    tool.
    """
    console.print(Text(f"{planted.topic}-{planted.partition}: {planted.what}", style="bold"))
    said = Table.grid(padding=(0, 2))
    said.add_column(style="dim")
    said.add_column(overflow="fold")
    mine = [t for t in shown["transactions"] if _same(planted, t["topic"], t["partition"], t["producer_id"])]
    for t in mine:
        style = "bold red" if t["verdict"] == "hanging" else "green"
        verdict = Text.assemble((f"{t['verdict']} ({t['reason']})", style), ". ", printable(t["explanation"]))
        said.add_row("txnscan", verdict)
        said.add_row("blocks" if t["blocked_records"] else "", where(t, shown["sweep"]["started_at"]))
    if not mine and open_transaction(wire, planted.topic, planted.partition, planted.producer_id) is None:
        said.add_row("txnscan", "it ended before the sweep looked: its coordinator aborted it at its timeout")
    elif not mine:
        said.add_row("txnscan", Text("does not show it", style="bold red"))
    reported = [r for r in kafka if _same(planted, r.topic, r.partition, r.producer_id)]
    said.add_row("Kafka", _kafka_says(planted, bool(reported), mine))
    console.print(Padding(said, (0, 0, 1, 2)))


def _same(planted: Planted, topic: str, partition: int, producer_id: int) -> bool:
    return (planted.topic, planted.partition, planted.producer_id) == (topic, partition, producer_id)


def _kafka_says(planted: Planted, reported: bool, mine: Sequence[dict[str, Any]]) -> str:
    hanging = any(t["verdict"] == "hanging" for t in mine)
    committed = any(t["reason"] == "missed_commit" for t in mine)
    if reported and committed:
        return "find-hanging reports it, and `abort` would delete what was committed"
    if reported:
        return "find-hanging reports it" + ("" if hanging else ", though it does not hang")
    return "find-hanging does not report it" + (", though it hangs" if hanging else "")


def _show_torn(console: Console, wire: Wire, torn: TornCommit) -> None:
    read = read_both(wire, torn)
    whole = f"{read.whole_committed} of {torn.records} records of {torn.whole_topic}"
    part = f"{read.torn_committed} of {read.torn_uncommitted} of {torn.hanging.topic}"
    console.print(f"The torn commit: of one transaction, read_committed consumers get {whole} and {part}.")


def _hold(cluster: KafkaCluster, tables: str, topic: str, console: Console) -> None:
    console.print()
    console.print(Text("The brokers stay up until Ctrl-C; in another terminal:"))
    there = f"--bootstrap-server {cluster.bootstrap_servers}"
    for command in (
        f"find-hanging {there}",
        f"explain {there} --group {GROUP}",
        f"explain {there} --topic {topic}",
        f"describe-producers {there} --topic {topic} --open",
        f"sweep {there} --tables {tables}",
        f"plan --tables {tables} --out plan.json",
    ):
        console.print(Text(f"  {sys.argv[0]} {command}"), soft_wrap=True)
    try:
        while True:
            signal.pause()
    except KeyboardInterrupt:
        console.print()


def _teller(console: Console) -> Callable[[str], None]:
    return lambda sentence: console.print(Text(f"{sentence} ..."))


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Makes SIGTERM end the demo as Ctrl-C does, with all cleanup."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
