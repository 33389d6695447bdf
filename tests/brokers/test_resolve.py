"""Resolving on real brokers:

hanging partitions are freed, committed data is kept, and live producers are not affected.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.brokers.shared import KEPT, LOST, Shared
from tests.process import ROOT, run_to_end
from txnscan import ScanConfig, sweep
from txnscan.demo import plant
from txnscan.demo.admin import create_topic, unverified
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.kafka_tool import kafka_transactions
from txnscan.demo.plant import HealthyTraffic, Planted, TornCommit
from txnscan.demo.producer import PRODUCE_V1, Producer
from txnscan.demo.reader import read_values
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.resolve.apply import ApplyRunning, Result, Status
from txnscan.resolve.guard import ACCEPT_UNKNOWN, COMPLETE_COMMITS
from txnscan.resolve.lock import Lock
from txnscan.resolve.plan import Plan, PlanRefused, from_json, to_json
from txnscan.resolve.run import Applied, apply_to, plan_sweep
from txnscan.tables.open import open_tables
from txnscan.tables.schema import INCIDENTS

# An earlier sweep stands for a scanner that watched for longer than any live transaction may last.
WATCHED_MS = 25 * 60_000
EVERY_OPTION = (COMPLETE_COMMITS, ACCEPT_UNKNOWN)
ORPHANS = ("freed", "killed-before-send", "killed-after-send", "raced")
STALE, REVIVED, SAME_EPOCH = "stale", "revived", "same-epoch"


@dataclass(frozen=True)
class World:
    """Brokers with hanging transactions that were watched for long enough, and the plan for them."""

    cluster: KafkaCluster
    wire: Wire
    config: ScanConfig
    plan: Plan
    kept: TornCommit
    lost: TornCommit
    orphans: dict[str, Planted]
    revived: Producer
    same_epoch: Producer

    def planned(self, *topics: str) -> Plan:
        """The plan for these topics alone. It has another digest, so it must be stored in the tables."""
        return replace(self.plan, actions=tuple(a for a in self.plan.actions if a.topic in topics))


def late_write(wire: Wire, name: str) -> Producer:
    """A v1 producer that wrote to its topic without adding it."""
    create_topic(wire, name, [[1, 2, 3]])
    producer = Producer(wire, f"{name}-service", v2=False)
    producer.init_producer_id()
    with unverified(wire):
        producer.produce(name, 0, [b"late"], version=PRODUCE_V1)
    return producer


@pytest.fixture(scope="module")
def world(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> World:
    cluster, wire = shared.cluster, shared.wire
    orphans = {topic: plant.orphan(wire, topic) for topic in ORPHANS}
    plant.stale_epoch(wire, STALE)
    revived, same_epoch = late_write(wire, REVIVED), late_write(wire, SAME_EPOCH)
    revived.init_producer_id()
    tables = str(tmp_path_factory.mktemp("resolve") / "tables")
    topics = (f"{KEPT}-solo", f"{LOST}-solo", *ORPHANS, STALE, REVIVED, SAME_EPOCH)
    config = ScanConfig(cluster.bootstrap_servers, tables=tables, topic_names=topics, engine="threads")
    with pytest.MonkeyPatch.context() as patch:
        earlier = SimpleNamespace(time_ns=lambda: time.time_ns() - WATCHED_MS * 1_000_000)
        patch.setattr("txnscan.kafka.clock.time", earlier)
        patch.setattr("txnscan.engine.clock.time", earlier)
        sweep(None, config)
    sweep(None, config)
    plan = plan_sweep(None, tables)
    assert len(plan.actions) == len(ORPHANS) + 4
    return World(cluster, wire, config, plan, shared.kept, shared.lost, orphans, revived, same_epoch)


def applied(world: World, plan: Plan, **changes: object) -> Applied:
    """Applies a plan with some of its actions, stored in the tables like a real plan."""
    from txnscan.resolve.journal import TablesJournal

    assert world.config.tables is not None
    TablesJournal(open_tables(world.config.tables, None)).planned(plan)
    return apply_to(None, world.config, plan, **changes)  # type: ignore[arg-type]


def only(applied: Applied) -> Result:
    (result,) = applied.results
    return result


def stuck(wire: Wire, topic: str) -> bool:
    """Whether a read_committed consumer gets no record of the topic's first partition."""
    return read_values(wire, topic, 0, committed=True) == []


def test_a_plan_follows_each_outcome_and_refuses_an_owner_that_may_write(world: World) -> None:
    planned = {action.topic: (action.marker, action.outcome, action.needs) for action in world.plan.actions}
    assert planned == {
        "kept-solo": ("COMMIT", "committed", COMPLETE_COMMITS),
        "lost-solo": ("COMMIT", "committed", COMPLETE_COMMITS),
        STALE: ("ABORT", "not_committed", None),
        REVIVED: ("ABORT", "not_committed", None),
        **dict.fromkeys(ORPHANS, ("ABORT", "unknown", ACCEPT_UNKNOWN)),
    }
    (refused,) = world.plan.refused
    assert (refused.topic, refused.reason, refused.guard) == (SAME_EPOCH, "live_epoch", "live_owner")


def test_a_dry_run_sends_nothing(world: World) -> None:
    rehearsed = apply_to(None, world.config, world.plan, options=EVERY_OPTION)
    assert {result.status for result in rehearsed.results} == {Status.WOULD_SEND}
    assert all(stuck(world.wire, action.topic) for action in world.plan.actions)


def test_without_its_option_no_marker_is_sent(world: World) -> None:
    results = applied(world, world.planned("kept-solo", "freed"), execute=True).results
    assert [result.status for result in results] == [Status.REFUSED, Status.REFUSED]
    assert [needed in result.detail for needed, result in zip(reversed(EVERY_OPTION), results, strict=True)] == [
        True
    ] * 2
    assert stuck(world.wire, "freed") and stuck(world.wire, "kept-solo")


def test_an_aborted_orphan_frees_its_partition(world: World) -> None:
    # A live consumer's view: records after the orphan are delivered as soon as the marker is written.
    behind = Producer(world.wire, "behind-service")
    behind.init_producer_id()
    behind.write("freed", 0, [b"behind"])
    behind.end(commit=True)
    wait_until(lambda: plant.open_transaction(world.wire, "freed", 0, behind.known.producer_id) is None, "it ended")
    assert stuck(world.wire, "freed")
    result = only(applied(world, world.planned("freed"), execute=True, options=EVERY_OPTION))
    assert result.status is Status.RESOLVED
    assert read_values(world.wire, "freed", 0, committed=True) == [b"behind"]
    assert "below the high watermark" not in result.detail  # the last stable offset is the high watermark


def test_a_torn_commit_is_completed_and_kafkas_abort_loses_it(world: World) -> None:
    before = plant.read_both(world.wire, world.kept)
    assert (before.whole_committed, before.torn_committed) == (5, 0)
    result = only(applied(world, world.planned("kept-solo"), execute=True, options=EVERY_OPTION))
    assert result.status is Status.RESOLVED
    kafka = kafka_transactions(
        world.cluster, "abort", "--topic", "lost-solo", "--partition", "0",
        "--start-offset", str(world.lost.hanging.start_offset),
    )  # fmt: skip
    assert kafka.exit_status == 0
    kept, lost = plant.read_both(world.wire, world.kept), plant.read_both(world.wire, world.lost)
    assert (kept.whole_committed, kept.torn_committed) == (5, 5)
    assert (lost.whole_committed, lost.torn_committed) == (5, 0)
    # The transaction aborted by Kafka's tool is gone for this plan as well.
    gone = only(applied(world, world.planned("lost-solo"), execute=True, options=EVERY_OPTION))
    assert gone.status is Status.GONE


def test_the_owner_of_a_stale_epoch_continues_after_the_abort(world: World) -> None:
    owner = Producer(world.wire, "stale-service", v2=False)
    owner.init_producer_id()
    epoch = owner.known
    with HealthyTraffic(world.cluster, "beside-apply") as traffic:
        result = only(applied(world, world.planned(STALE), execute=True, options=EVERY_OPTION))
    assert result.status is Status.RESOLVED
    assert traffic.count.errors == ()
    # It continues at its epoch, on the freed partition.
    owner.write(STALE, 0, [b"after"])
    owner.end(commit=True)
    assert owner.known == epoch
    wait_until(lambda: read_values(world.wire, STALE, 0, committed=True) == [b"after"], "the commit was seen")


def test_an_owner_that_resumes_between_plan_and_apply_is_not_affected(world: World) -> None:
    for topic, owner in ((REVIVED, world.revived), (SAME_EPOCH, world.same_epoch)):
        owner.write(topic, 0, [b"awake"])
    result = only(applied(world, world.planned(REVIVED), execute=True, options=EVERY_OPTION))
    assert result.status is Status.REFUSED
    assert "ongoing" in result.detail
    for topic, owner in ((REVIVED, world.revived), (SAME_EPOCH, world.same_epoch)):
        owner.end(commit=True)
        wait_until(lambda t=topic: b"awake" in read_values(world.wire, t, 0, committed=True), "the commit was seen")  # type: ignore[misc]


KILL = """
import os, signal, sys
from pathlib import Path
from txnscan import ScanConfig
from txnscan.resolve.plan import from_json
from txnscan.resolve.run import apply_to

bootstrap, tables, plan, step = sys.argv[1:]

def on_step(now, action):
    if now == step:
        os.kill(os.getpid(), signal.SIGKILL)

config = ScanConfig(bootstrap, tables=tables)
options = ("--complete-commits", "--accept-unknown-outcome")
apply_to(None, config, from_json(Path(plan).read_text()), execute=True, options=options, on_step=on_step)
"""


@pytest.mark.parametrize(
    ("topic", "step", "settled", "after", "freed"),
    [
        ("killed-before-send", "send", Status.NOT_RESOLVED, Status.REFUSED, False),
        ("killed-after-send", "conclude", Status.GONE, Status.GONE, True),
    ],
)
def test_a_killed_apply_is_settled_by_the_next_without_a_second_marker(
    world: World,
    tmp_path: Path,
    topic: str,
    step: str,
    settled: Status,
    after: Status,
    freed: bool,
) -> None:
    from txnscan.resolve.journal import TablesJournal

    tables, plan = world.config.tables, world.planned(topic)
    assert tables is not None
    TablesJournal(open_tables(tables, None)).planned(plan)
    (tmp_path / "plan.json").write_text(to_json(plan))
    arguments = (world.config.bootstrap_servers, tables, str(tmp_path / "plan.json"), step)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = run_to_end([sys.executable, "-c", KILL, *arguments], environment=environment)
    assert killed.returncode == -signal.SIGKILL
    next_one = applied(world, plan, execute=True, options=EVERY_OPTION)
    assert [result.status for result in next_one.settled] == [settled]
    assert only(next_one).status is after
    look = plant.open_transaction(world.wire, topic, 0, world.orphans[topic].producer_id)
    assert (look is None) is freed
    assert only(applied(world, plan, execute=True, options=EVERY_OPTION)).status is after


def test_a_second_concurrent_apply_is_refused_at_once(world: World) -> None:
    assert world.config.tables is not None
    tables = open_tables(world.config.tables, None)
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with Lock(tables, world.plan.cluster_id):
            inside.set()
            leave.wait(600)

    holder = threading.Thread(target=first)
    holder.start()
    assert inside.wait(600)
    with pytest.raises(ApplyRunning, match="another apply is running"):
        applied(world, world.planned("raced"), execute=True, options=EVERY_OPTION)
    leave.set()
    holder.join()
    assert only(applied(world, world.planned("raced"), execute=True, options=EVERY_OPTION)).status is Status.RESOLVED


def test_only_one_of_two_simultaneous_locks_succeeds(world: World) -> None:
    assert world.config.tables is not None
    tables = open_tables(world.config.tables, None)
    ready = threading.Barrier(2)
    done = threading.Barrier(2)
    said: list[str] = []

    def take() -> None:
        ready.wait(600)
        try:
            with Lock(tables, "a cluster of its own"):
                said.append("got it")
                done.wait(600)
        except ApplyRunning:
            said.append("refused")
            done.wait(600)

    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == ["got it", "refused"]


def test_a_plan_of_other_tables_or_another_cluster_is_refused(world: World, location: str) -> None:
    elsewhere = replace(world.config, tables=location)
    open_tables(location, None).create()
    with pytest.raises(PlanRefused, match="not made from the tables"):
        apply_to(None, elsewhere, world.plan)
    with pytest.raises(PlanRefused, match="it is for cluster elsewhere"):
        apply_to(None, world.config, from_json(to_json(replace(world.plan, cluster_id="elsewhere"))))


def test_a_later_sweep_reports_the_end_of_each_incident(world: World) -> None:
    sweep(None, world.config)
    assert world.config.tables is not None
    how = {row["topic"]: row["resolved_how"] for row in open_tables(world.config.tables, None).rows(INCIDENTS)}
    assert how["kept-solo"] == "commit_marker"
    assert how["freed"] == how[STALE] == "abort_marker"
    # Kafka's tool aborted what was committed.
    assert how["lost-solo"] == "torn"
