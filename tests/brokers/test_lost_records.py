"""Records lost from `__transaction_state` on real brokers never turn into a "not committed".

A commit that lost a partition (`plant.committed_but_hanging`) is planted many times, and then its decision is lost

- from the middle of the log: a replica that was offline while its leader compacted returns with the records from
  before, continues with the later ones, and leads again;
- from the beginning of the log, after a sweep had proven the commit.

Another planted transaction is in progress in the log and unknown to its coordinator. All this happens at once, so
that brokers stop only once, and the time of watching passes only once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.brokers.losses import RECORDS, by_topic, markers
from tests.prove.compaction import PROPERTIES, compact_transaction_log, id_served_by, logged
from tests.prove.moves import reassign
from tests.prove.placing import lead, replicas_of
from tests.prove.steps import write_transaction_log
from txnscan import ScanConfig, sweep
from txnscan.demo import plant
from txnscan.demo.admin import create_topic, unverified
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.producer import PRODUCE_V1, Producer, ProducerIdAndEpoch
from txnscan.demo.reader import read_values
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.answers import State
from txnscan.kafka.clock import wall_clock_ms
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.resolve.apply import Status
from txnscan.resolve.guard import ACCEPT_UNKNOWN, COMPLETE_COMMITS
from txnscan.resolve.plan import Action, Plan, Refusal
from txnscan.resolve.run import apply_to, plan_sweep
from txnscan.txnlog.facts import LoggedTransaction

# The shortest timeout for a planted torn commit. The scanner must have watched for longer.
MAX_TIMEOUT_MS = 20_000
EVERY_OPTION = (COMPLETE_COMMITS, ACCEPT_UNKNOWN)
# The brokers: the leader, the broker that expires idle ids, and the broker that is offline for a while.
KEEPER, FORGETFUL, AWAY = 1, 2, 3
# The partitions of `__transaction_state`, by their fate.
HOLED, CUT, EXPIRED, CONTRADICTED = range(4)
LOG_ON = (AWAY, KEEPER, KEEPER, KEEPER)
# Torn commits by the later activity of their ids, with these topic names. v1: of a client of transactions v1.
HOLES = ("rested", "went-on", "under-way", "rested-v1", "same-again-v1")
FORGOTTEN = ("cut-rested", "cut-went-on", "cut-anew", "cut-expired")
LOG_ONLY = "log-only"
COMPLETE = f"COMMIT: {len(RECORDS)} records"


@dataclass(frozen=True)
class Torn:
    """A transaction that stays open on the second of its topics. k: the log partition of its id."""

    name: str
    k: int
    producer: Producer
    hanging: ProducerIdAndEpoch

    @property
    def owner(self) -> str:
        return str(self.producer.transactional_id)

    @property
    def fine(self) -> str:
        return f"{self.name}-fine"

    @property
    def solo(self) -> str:
        return f"{self.name}-solo"

    def go_on(self) -> None:
        """Another transaction of the id, on the first topic alone."""
        self.producer.write(self.fine, 0, [b"later"])
        self.producer.end(commit=True)


@dataclass(frozen=True)
class World:
    """Brokers with transactions that were watched for long enough, and the plan for them.

    proven: the outcomes of the first sweep, with the beginning of the log. judged: the rows of the last sweep. Both by
    topic.
    """

    cluster: KafkaCluster
    wire: Wire
    config: ScanConfig
    torn: Mapping[str, Torn]
    proven: Mapping[str, str | None]
    judged: Mapping[str, Any]
    plan: Plan

    def entry(self, name: str) -> Action | Refusal | None:
        """Its entry in the plan: an action, a refusal, or None."""
        entries: tuple[Action | Refusal, ...] = (*self.plan.actions, *self.plan.refused)
        return next((entry for entry in entries if entry.topic == self.torn[name].solo), None)

    def fates(self) -> dict[str, str]:
        """The state of the open data, by name."""
        return {name: fate(self.wire, torn) for name, torn in self.torn.items()}


@dataclass(frozen=True)
class Afterwards:
    """The statuses of an apply of the whole plan, by topic, and the state of the open data, by name."""

    said: Mapping[str, Status]
    fates: Mapping[str, str]


def fate(wire: Wire, torn: Torn) -> str:
    """ "open", or its markers and the number of records for a read_committed consumer."""
    if plant.open_transaction(wire, torn.solo, 0, torn.hanging.producer_id) is not None:
        return "open"
    return f"{', '.join(markers(wire, torn.solo))}: {len(read_values(wire, torn.solo, 0, committed=True))} records"


def history(wire: Wire, torn: Torn) -> list[LoggedTransaction]:
    """The records of the id in the log of the current leader."""
    return [record for record in logged(wire, torn.k) if record.transactional_id == torn.owner]


# --- planting


def lay_out_log(wire: Wire) -> None:
    """`__transaction_state` with one replica per partition, and two for the partition with the hole."""
    create_topic(wire, TRANSACTION_STATE_TOPIC, [[on] for on in LOG_ON], {"cleanup.policy": "compact"})
    reassign(wire, {(TRANSACTION_STATE_TOPIC, HOLED): (AWAY, KEEPER)})

    def in_sync() -> bool:
        return set(replicas_of(wire, TRANSACTION_STATE_TOPIC)[HOLED].isr_nodes) == {AWAY, KEEPER}

    wait_until(in_sync, "the log that gets a hole had two replicas")


def owner(wire: Wire, name: str, k: int) -> Torn:
    """A producer on this log partition, and its topics."""
    transactional_id = id_served_by(f"{name}-service", k, len(LOG_ON))
    producer = Producer(wire, transactional_id, v2=k != CONTRADICTED and not name.endswith("v1"))
    torn = Torn(name, k, producer, producer.init_producer_id())
    create_topic(wire, torn.fine, [[KEEPER]])
    create_topic(wire, torn.solo, [[AWAY]])
    return torn


def begin(wire: Wire, name: str, k: int) -> Torn:
    """A transaction on both topics, not yet ended."""
    torn = owner(wire, name, k)
    for topic in (torn.fine, torn.solo):
        torn.producer.write(topic, 0, RECORDS)
    return torn


def tear(cluster: KafkaCluster, wire: Wire, torn: Iterable[Torn]) -> None:
    """Commits while the second topics have no leader. Their broker is offline afterwards."""
    cluster.stop_broker(AWAY)
    for one in torn:
        cluster.wait_for_leader(one.solo, 0, -1)
        one.producer.end(commit=True)
    for one in torn:
        wait_until(lambda o=one: plant.describe_owner(wire, o.owner).state == "CompleteCommit", f"{one.name} committed")  # type: ignore[misc]


def make_holes(wire: Wire, torn: Mapping[str, Torn]) -> None:
    """The leader compacts the decisions that the offline replica has not fetched."""
    again = torn["same-again-v1"]
    torn["went-on"].go_on()
    torn["under-way"].producer.write(torn["under-way"].fine, 0, [b"later"])
    # The same partitions at the same epoch: only its time distinguishes this transaction from its predecessor.
    again.producer.add_partitions([(again.fine, 0), (again.solo, 0)])
    compact_transaction_log(wire, HOLED, [torn[name].owner for name in HOLES])
    torn["under-way"].producer.end(commit=True)
    again.producer.end(commit=False)
    for name in ("rested-v1", "same-again-v1"):
        # An owner at the epoch of the open data could still write, and a plan would refuse it anyway.
        torn[name].producer.init_producer_id()


def under_way_in_the_log_only(cluster: KafkaCluster, wire: Wire) -> Torn:
    """Open data, a coordinator at rest at a later epoch, and a record in the log of an ongoing transaction.

    It simulates a coordinator that did not load all of its log, which brokers do not report (`TransactionStateManager.
    loadTransactionMetadata`): the next coordinator has the transaction, and its producer may commit it.
    """
    torn = owner(wire, LOG_ONLY, CONTRADICTED)
    with unverified(wire):
        torn.producer.produce(torn.solo, 0, RECORDS, version=PRODUCE_V1)
    torn.producer.init_producer_id()
    write_transaction_log(
        cluster, (TRANSACTION_STATE_TOPIC, torn.k), torn.owner, torn.hanging, ongoing=[(torn.solo, 0)]
    )
    return torn


def load_elsewhere(cluster: KafkaCluster, wire: Wire, k: int, broker_id: int) -> None:
    """Moves this log partition to another broker, which then coordinates its ids."""
    reassign(wire, {(TRANSACTION_STATE_TOPIC, k): (broker_id,)})
    cluster.wait_for_leader(TRANSACTION_STATE_TOPIC, k, broker_id)


def forget(cluster: KafkaCluster, wire: Wire, torn: Mapping[str, Torn]) -> None:
    """Removes the decisions from the log, on its single replica."""
    torn["cut-went-on"].go_on()
    torn["cut-anew"].producer.init_producer_id()
    expired = torn["cut-expired"].owner
    load_elsewhere(cluster, wire, EXPIRED, FORGETFUL)
    wait_until(lambda: plant.describe_owner(wire, expired).error == "TRANSACTIONAL_ID_NOT_FOUND", f"{expired} expired")
    for k in (CUT, EXPIRED):
        compact_transaction_log(wire, k, [one.owner for one in torn.values() if one.k == k])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("lost-records")
    properties = {
        **PROPERTIES,
        "auto.leader.rebalance.enable": "false",
        "transaction.max.timeout.ms": str(MAX_TIMEOUT_MS),
        "transaction.state.log.num.partitions": str(len(LOG_ON)),
    }
    forgetful = {
        "transactional.id.expiration.ms": "1000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    }
    with (
        KafkaCluster(directory / "kafka", properties=properties, broker_properties={FORGETFUL: forgetful}) as cluster,
        cluster.wire() as wire,
    ):
        lay_out_log(wire)
        logs = {**dict.fromkeys(HOLES, HOLED), **dict.fromkeys(FORGOTTEN, CUT), "cut-expired": EXPIRED}
        torn = {name: begin(wire, name, k) for name, k in logs.items()}
        tear(cluster, wire, torn.values())
        make_holes(wire, torn)
        cluster.start_broker(AWAY)
        lead(cluster, wire, (TRANSACTION_STATE_TOPIC, HOLED), (AWAY, KEEPER))
        torn[LOG_ONLY] = under_way_in_the_log_only(cluster, wire)
        for one in torn.values():
            cluster.wait_for_leader(one.solo, 0, AWAY)

        # Spark is not under test here.
        config = ScanConfig(
            cluster.bootstrap_servers,
            tables=str(directory / "tables"),
            late_after_ms=MAX_TIMEOUT_MS,
            engine="threads",
        )
        first = sweep(None, config)
        forget(cluster, wire, torn)
        seen_ms = first.scan.finished_at_ms
        wait_until(lambda: wall_clock_ms() - seen_ms > MAX_TIMEOUT_MS, "all was watched for long enough")
        last = sweep(None, config)
        proven = {topic: row["outcome"] for topic, row in by_topic(first).items()}
        plan = plan_sweep(None, str(config.tables), sweep_id=last.scan.sweep_id)
        yield World(cluster, wire, config, torn, proven, by_topic(last), plan)


def apply_whole(world: World, options: Iterable[str]) -> Afterwards:
    """Applies the plan with these options."""
    results = apply_to(None, world.config, world.plan, execute=True, options=tuple(options)).results
    return Afterwards({result.action.topic: result.status for result in results}, world.fates())


@pytest.fixture(scope="module")
def without_options(world: World) -> Afterwards:
    return apply_whole(world, ())


@pytest.fixture(scope="module")
def with_every_option(world: World, without_options: Afterwards) -> Afterwards:
    return apply_whole(world, EVERY_OPTION)


# --- a hole in the middle


def test_a_replica_that_missed_a_compaction_leads_a_log_with_a_hole(world: World) -> None:
    assert world.wire.partition(TRANSACTION_STATE_TOPIC, HOLED).leader == AWAY
    for name in HOLES:
        torn = world.torn[name]
        left = history(world.wire, torn)
        states = [record.state for record in left]
        named = [record for record in left if (torn.solo, 0) in record.partitions]
        assert named[0].state is State.ONGOING, name
        assert named[0].producer_epoch == torn.hanging.producer_epoch, name
        assert State.PREPARE_COMMIT not in [record.state for record in named], f"{name}: {states}"
        assert left[-1].state in (State.EMPTY, State.COMPLETE_COMMIT), f"{name}: {states}"


def test_a_log_with_a_hole_proves_no_outcome_not_committed(world: World) -> None:
    told = {name: world.judged[world.torn[name].solo]["outcome"] for name in HOLES}
    assert {name: outcome for name, outcome in told.items() if outcome == "not_committed"} == {}


def test_without_options_no_marker_is_sent_for_transactions_in_a_hole(
    world: World, without_options: Afterwards
) -> None:
    assert {name: without_options.fates[name] for name in HOLES} == dict.fromkeys(HOLES, "open")
    assert {without_options.said.get(world.torn[name].solo) for name in HOLES} <= {None, Status.REFUSED}


def test_an_accepted_unknown_outcome_aborts_no_transaction_with_a_committed_peer_partition(
    world: World, with_every_option: Afterwards
) -> None:
    for name in HOLES:
        assert "COMMIT" in markers(world.wire, world.torn[name].fine), name
    fates = {name: with_every_option.fates[name] for name in HOLES}
    # The proof of a commit is not under test. Committed data must not be lost.
    assert {name: fate for name, fate in fates.items() if fate not in ("open", COMPLETE)} == {}


# --- a lost beginning -------------------------------------------------------------------------------------------------


def test_the_first_sweep_proves_commits_that_the_log_then_loses(world: World) -> None:
    for name in FORGOTTEN:
        torn = world.torn[name]
        assert world.proven[torn.solo] == "committed", name
        assert [record for record in history(world.wire, torn) if (torn.solo, 0) in record.partitions] == [], name
    reasons = {name: world.judged[world.torn[name].solo]["reason"] for name in FORGOTTEN}
    assert reasons == {
        "cut-rested": "missed_commit",
        "cut-went-on": "stale_epoch",
        "cut-anew": "stale_epoch",
        "cut-expired": "orphan",
    }


def test_a_commit_proven_once_stays_planned_as_a_commit(world: World) -> None:
    planned = {name: world.entry(name) for name in FORGOTTEN}
    asked = {name: (getattr(e, "marker", None), getattr(e, "needs", None)) for name, e in planned.items()}
    assert asked == dict.fromkeys(FORGOTTEN, ("COMMIT", COMPLETE_COMMITS))


def test_without_options_no_marker_is_sent_for_lost_records(without_options: Afterwards) -> None:
    assert {name: without_options.fates[name] for name in FORGOTTEN} == dict.fromkeys(FORGOTTEN, "open")


def test_a_commit_proven_once_is_completed_although_the_log_lost_it(
    world: World, with_every_option: Afterwards
) -> None:
    assert {name: with_every_option.fates[name] for name in FORGOTTEN} == dict.fromkeys(FORGOTTEN, COMPLETE)
    for name in FORGOTTEN:
        assert with_every_option.said[world.torn[name].solo] is Status.RESOLVED, name
        whole = read_values(world.wire, world.torn[name].fine, 0, committed=True)
        assert [value for value in whole if value in RECORDS] == RECORDS, name


# --- a log that contradicts its coordinator ---------------------------------------------------------------------------


def test_a_transaction_ongoing_only_in_the_log_is_a_split(world: World) -> None:
    row = world.judged[world.torn[LOG_ONLY].solo]
    assert (row["verdict"], row["reason"]) == ("indeterminate", "split")
    assert world.entry(LOG_ONLY) is None


def test_a_producer_may_still_commit_a_transaction_ongoing_only_in_the_log(
    world: World, with_every_option: Afterwards
) -> None:
    torn = world.torn[LOG_ONLY]
    load_elsewhere(world.cluster, world.wire, torn.k, AWAY)
    torn.producer.identity = torn.hanging
    torn.producer.end(commit=True)
    wait_until(lambda: fate(world.wire, torn) != "open", "the marker was written")
    assert (with_every_option.fates[LOG_ONLY], fate(world.wire, torn)) == ("open", COMPLETE)
