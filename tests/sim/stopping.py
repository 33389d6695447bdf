"""Random histories in which a broker stops after `check --before-stop` said that it may.

The check is the real one, between the answers of which anything may happen but the begin of a transaction. A broker may
leave answers out. Then the broker stops. No transaction begins, and no other broker fails: producers end what they
began, coordinators do their work, and the broker comes back at last. If the check said safe, no commit may be torn, no
committed record lost, and each transaction must be able to end while the broker is down.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import SimpleNamespace
from typing import Any

from kafka.protocol.metadata import MetadataResponse

from tests.fakes.cluster import as_bytes
from tests.sim.answers import CLUSTER_ID
from tests.sim.history import CONFIG, NOW_MS, SimulatedCluster, SimulatedEngine, Simulation
from tests.sim.records import NOBODY, Broker, Data, Image, TransactionLogRecord, TransactionMetadata
from tests.sim.scenarios import DOWN, P, Q, begun_and_written, opened
from tests.sim.table import Event
from tests.sim.transitions import TRANSITIONS, can_happen, happen, settle
from tests.sim.truth import HEALING, hanging, settled, withdraw_unacknowledged_adds
from tests.sim.wander import CALM, at_random, begun, go_on
from tests.sim.world import Scenario, World
from txnscan.coordinators.cluster import ClusterUnreachable
from txnscan.coordinators.metadata_image import Latest
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.frames import api_name
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key
from txnscan.sweeps.before_stop import read_before_stop
from txnscan.waiting.before_stop import StopVerdict

# What begins a transaction, or takes another partition into one. `send data` writes where a transaction already is.
BEGINS = ("InitProducerId", "AddPartitionsToTxn", "send data without adding", "change transactions version")
UNCLEAN = "unclean election"
_TRIES, _BEFORE_MAX, _AFTER_MAX = 200, 5, 12
# How often a world has any history.
_ANY_HISTORY = 0.4
# How often a replica is behind when a world begins, and how often what began before has ended then.
_BEHIND, _ENDED = 0.5, 0.5
# How often followers lack what a transaction has written.
_UNFETCHED = 0.5
# How often a broker was cut off before the last change.
_CUT_OFF = 0.5
# How often producers do nothing but end what they began, once the check has answered.
_QUIET = 0.5
# How often all producers commit at last what they had begun.
_ALL_COMMIT = 0.7
# About as many answers as a check needs.
_ANSWERS = 50
_LEVEL_4_2, _LEVEL_4_3, _PRODUCE_OF_3_7 = 29, 30, 10
_ENDS = tuple(name for name in HEALING if name != "start broker")
_FAILS = ("kill broker", "pause broker", "cut broker off")
# A broker runs and is registered again, and it hears of it. Its replicas do not catch up.
_BACK = ("resume broker", "link broker again", "start broker", "unfence broker")
_HEARING = ("publish metadata", "apply to replicas", "elect coordinators", "load")
_ENDING = ("complete transition", "marker unanswered", "marker acknowledged", "write marker", "skip marker")
_COMPLETING = ("write completion", "timeout")

# A partition with one replica, whose coordinators drop its markers.
SOLO = Scenario(
    "a broker stops that has the only replica",
    topics=((P, (2,)), (Q, (1, 2))),
    coordinators=((1, 3),),
    versions=(2,),
    verify=True,
    faults=frozenset({"kill", "leader move", "cut", "pause", "slow follower"}),
)
# Two replicas must be in sync.
WIDE = replace(
    SOLO, name="a broker stops of several", topics=((P, (1, 2)), (Q, (1, 2, 3))), coordinators=((1, 2, 3),), min_isr=2
)
# One of two replicas suffices.
PAIR = replace(WIDE, name="a broker stops that has one of two replicas", min_isr=1)
UNCLEANLY = replace(PAIR, name="a broker stops, and elections may be unclean", faults=SOLO.faults | {UNCLEAN})
STOPS = (
    SOLO,
    replace(SOLO, name=f"{SOLO.name}, transactions v1", versions=(1,)),
    WIDE,
    PAIR,
    UNCLEANLY,
)


@dataclass
class Answers(Simulation):
    """A simulation with the answers that only this check needs. lost: an API, and the broker that never answers it."""

    lost: tuple[str, int] = ("", NOBODY)

    def send(self, broker_id: int, request: Any) -> Any:
        """See Simulation."""
        name, world = api_name(request), self.world
        if (name, abs(broker_id)) == self.lost:
            raise RequestFailed(f"broker {broker_id} closed the connection")
        if name == "DescribeTopicPartitions":
            raise RequestFailed.unsupported(f"broker {broker_id}", name)
        found = super().send(broker_id, request)
        if name == "Metadata":
            found = as_bytes(_with_replicas(world, abs(broker_id), request))
        elif name == "ApiVersions":
            level = _LEVEL_4_3 if world.scenario.skips_leaderless else _LEVEL_4_2
            found.supported_features = [SimpleNamespace(name="metadata.version", max_version=level)]
            found.api_keys = [SimpleNamespace(api_key=0, min_version=0, max_version=_PRODUCE_OF_3_7)]
        elif name == "DescribeConfigs":
            values = {"min.insync.replicas": world.scenario.min_isr, "unclean.leader.election.enable": _unclean(world)}
            found = SimpleNamespace(
                results=[
                    SimpleNamespace(
                        error_code=0,
                        resource_name=one.resource_name,
                        configs=[SimpleNamespace(name=k, value=str(values[k])) for k in one.configuration_keys],
                    )
                    for one in request.resources
                ]
            )
        return found


def _unclean(world: World) -> str:
    return "true" if UNCLEAN in world.scenario.faults else "false"


def _with_replicas(world: World, broker_id: int, request: Any) -> Any:
    """The Metadata of a broker, with replicas and in-sync replicas."""
    image, kind = world.brokers[broker_id].metadata, MetadataResponse
    topics: dict[str, list[Any]] = {}
    wanted = None if request.topics is None else {topic.name for topic in request.topics}
    for (topic, index), replicas in world.scenario.partitions:
        now = world.leadership(image, (topic, index))
        shown = kind.MetadataResponseTopic.MetadataResponsePartition(
            error_code=0,
            partition_index=index,
            leader_id=now.leader if now.leader != NOBODY else -1,
            leader_epoch=now.epoch,
            replica_nodes=list(replicas),
            isr_nodes=sorted(now.isr),
            offline_replicas=[one for one in replicas if one not in image.brokers],
        )
        topics.setdefault(topic, []).append(shown)
    names = sorted(topics) if wanted is None else sorted(wanted)
    return kind(
        version=12,
        cluster_id=CLUSTER_ID,
        brokers=[
            kind.MetadataResponseBroker(node_id=b, host="simulated", port=9000 + b) for b in sorted(image.brokers)
        ],
        topics=[
            kind.MetadataResponseTopic(error_code=0 if one in topics else 3, name=one, partitions=topics.get(one, []))
            for one in names
        ],
    )


class AskedCluster(SimulatedCluster):
    """The cluster of a check. image: the newest image of any broker, when the check last asked for it. The controller
    may have a newer one, of which no broker has heard: such a change counts as one after the answer.
    """

    def latest(self, topics: Iterable[str] | None = None) -> Latest:
        """See Cluster."""
        world = self._simulation.world
        images = [one.metadata for one in world.brokers.values() if one.run != "down"]
        self.image = max(images, key=lambda image: image.offset, default=world.image)
        return super().latest(topics)


@dataclass
class _BeginsNothing:
    """Events between answers, none of which begins a transaction. chance: of a random event before each answer.
    fault_chance: that it is a fault. changes_at: the number of answers before a change that all brokers hear of.
    """

    chooser: random.Random
    chance: float = 0.0
    fault_chance: float = 0.0
    changes_at: int | None = None

    def __call__(self, simulation: Simulation, point: int, broker_id: int, request: Any) -> None:
        """See Pilot."""
        world = simulation.world
        while self.chooser.random() < self.chance:
            event = at_random(world, self.chooser, self.fault_chance)
            if event is not None and event[0] not in BEGINS:
                happen(world, event)
        if point == self.changes_at:
            _change(world, self.chooser)
            settle(world, _HEARING)


def _change(world: World, chooser: random.Random) -> None:
    """A fault, and what the controller does about it. A broker that fails is back at once, and is no longer in sync."""
    drawn = (at_random(world, chooser, 1.0) for _ in range(_TRIES))
    event = next((one for one in drawn if one is not None and one[0] not in (*BEGINS, *_BACK)), None)
    if event is None:
        return
    happen(world, event)
    if event[0] in _FAILS:
        if world.image.brokers.issuperset(event[1]):
            happen(world, ("fence broker", event[1]))
        for name in _BACK:
            if can_happen(world, (name, event[1])):
                happen(world, (name, event[1]))


def _some_hear(world: World, chooser: random.Random) -> None:
    """Some brokers, or all, hear of the last change, and some of these act on it."""
    hearing = [*world.brokers]
    for step in ("publish metadata", "apply to replicas", "elect coordinators"):
        hearing = chooser.sample(hearing, chooser.randint(min(1, len(hearing)), len(hearing)))
        for broker_id in hearing:
            if can_happen(world, (step, (broker_id,))):
                happen(world, (step, (broker_id,)))


class Change(StrEnum):
    """What happens while the check reads: nothing; random events; one change, of which all brokers hear at once; one
    just before it, of which some brokers have heard.
    """

    NONE = "none"
    EVENTS = "events"
    MEANWHILE = "meanwhile"
    BEFORE = "before"


# The answers that one broker may not give; or it gives all.
LOST = ("ApiVersions", "Metadata", "DescribeProducers", "ListTransactions", "DescribeTransactions", "DescribeConfigs")
ANSWERED = "none"


def _asked(world: World, chooser: random.Random, change: Change, lost: str) -> Answers:
    """The cluster that the check asks."""
    pilot = _BeginsNothing(chooser)
    if change is Change.EVENTS:
        pilot = _BeginsNothing(chooser, chooser.choice((0.02, 0.1)), chooser.choice((0.0, 0.1, 0.3)))
    elif change is Change.MEANWHILE:
        pilot = _BeginsNothing(chooser, changes_at=chooser.randrange(_ANSWERS))
    elif change is Change.BEFORE:
        if "cut" in world.scenario.faults and chooser.random() < _CUT_OFF:
            happen(world, ("cut broker off", (chooser.choice(world.scenario.brokers),)))
        _change(world, chooser)
        _some_hear(world, chooser)
        pilot = _BeginsNothing(chooser, chooser.choice((0.0, 0.1)))
    return Answers(world, pilot, lost=(lost, chooser.choice(world.scenario.brokers)))


@dataclass
class Stopped:
    """The result of histories. safe: how often the check said safe, and the broker stopped. torn: the partitions of
    torn commits. lost: the partitions that lost committed records. blocked: the ids of transactions that cannot end
    while the broker is down.
    """

    asked: int = 0
    safe: int = 0
    verdicts: dict[StopVerdict, int] = field(default_factory=dict)
    torn: list[Key] = field(default_factory=list)
    lost: list[Key] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)


def stop(scenario: Scenario, seed: int, done: Stopped, change: Change | None = None, lost: str | None = None) -> None:
    """One random history, and its result into `done`. change, lost: what happens while the check reads; at random if
    they are not given. The same seed gives the same history.
    """
    chooser = random.Random(seed)
    world = _underway(scenario, chooser, seed)
    if chooser.random() < CALM:
        settle(world, HEALING)
    withdraw_unacknowledged_adds(world)
    leader = world.leadership(world.image, P).leader
    broker_id = chooser.choice((leader, chooser.choice(scenario.brokers)))
    if broker_id == NOBODY or not world.up(broker_id):
        return
    some, one = chooser.choice(tuple(Change)), chooser.choice((*LOST, *(ANSWERED,) * len(LOST)))
    simulation = _asked(world, chooser, change or some, lost or one)
    cluster = AskedCluster(simulation)
    try:
        engine = SimulatedEngine(simulation)
        # Long after all records of the simulation, so that no producer counts as at work.
        now_ms = NOW_MS + 10**9
        found = read_before_stop(cluster, engine, CONFIG, [broker_id], lambda: now_ms, lambda done, total: None)
    except ClusterUnreachable:
        return
    done.asked += 1
    done.verdicts[found.verdict] = done.verdicts.get(found.verdict, 0) + 1
    settle(world, ["resume broker"])
    others = [broker for number, broker in world.brokers.items() if number != broker_id]
    is_covered = world.image == cluster.image and all(_stays(one, world.image) for one in others)
    if found.verdict is not StopVerdict.SAFE or not world.up(broker_id) or not is_covered:
        # A leader or a replica changed since, or another broker fails: the answer does not cover that.
        return
    done.safe += 1
    before, had = hanging(world), _committed_records(world)
    ending = _ending(world, broker_id)
    is_quiet = chooser.random() < _QUIET
    _go_on(world, chooser, 0 if is_quiet else chooser.randint(0, _BEFORE_MAX))
    happen(world, ("kill broker", (broker_id,)))
    _go_on(world, chooser, 0 if is_quiet else chooser.randint(0, 3))
    # And each broker that was cut off before.
    settle(world, ["fence broker"])
    _go_on(world, chooser, 0 if is_quiet else chooser.randint(0, _AFTER_MAX))
    if chooser.random() < _ALL_COMMIT:
        _commit_all(world)
    done.blocked += [name for name in _blocked(world) if name not in ending]
    kept = _committed_records(settled(world))
    done.lost += [key for key, records in had.items() if not records <= kept[key]]
    for key, producer_id, _ in hanging(world) - before:
        if _committed(world, key, producer_id):
            done.torn.append(key)


def _underway(scenario: Scenario, chooser: random.Random, seed: int) -> World:
    """A world with any history; or one with a transaction that has just begun, or has just written."""
    events = begun_and_written(scenario.versions[0], scenario.coordinators[0][0])
    if chooser.random() < _ANY_HISTORY:
        return begun(scenario, seed)
    if UNCLEAN in scenario.faults and chooser.random() < _BEHIND:
        return _with_one_behind(scenario, events, is_ended=chooser.random() < _ENDED)
    length = chooser.choice((2, 3, 4, 4))
    world = opened(scenario, events[:length])
    if length == len(events) - 1 and chooser.random() < _UNFETCHED:
        happen(world, events[-1])
    elif length > 2:
        go_on(world, chooser, chooser.randint(0, _BEFORE_MAX), 0.1, [])
    return world


def _with_one_behind(scenario: Scenario, events: Iterable[Event], *, is_ended: bool) -> World:
    """These events happened while broker 2 was down. It is back, and its replicas are empty and not in sync."""
    world = opened(scenario, (*DOWN, *events))
    if is_ended:
        _commit_all(world)
    settle(world, _BACK)
    settle(world, _HEARING)
    return world


def _ending(world: World, broker_id: int) -> set[str]:
    """The ids whose markers the next coordinator sends again if this broker stops, which the check does not cover
    (`waiting/before_stop.py`): that coordinator shows Prepare*, or a replica that may be the next one does.
    """
    found = {
        name for (b, name), held in world.held.items() if b == broker_id and (held.pending or _ends(held.metadata))
    }
    for k in range(len(world.scenario.coordinators)):
        key = (TRANSACTION_STATE_TOPIC, k)
        for replica in world.leadership(world.image, key).isr:
            records = (record for _, record in world.logs[key, replica])
            last = {one.transactional_id: one.metadata for one in records if isinstance(one, TransactionLogRecord)}
            found |= {name for name, metadata in last.items() if metadata is not None and _ends(metadata)}
    return found


def _ends(metadata: TransactionMetadata) -> bool:
    return metadata.state.startswith("Prepare")


def _commit_all(world: World) -> None:
    """Producers commit what they have begun, and coordinators do what they can while the broker is down."""
    settle(world, _ENDS)
    for subject in tuple(TRANSITIONS["EndTxn"].when(world)):
        if subject[2] and subject in tuple(TRANSITIONS["EndTxn"].when(world)):
            happen(world, ("EndTxn", subject))
    settle(world, (*_ENDS, *_ENDING, "write completion"))


def _stays(broker: Broker, image: Image) -> bool:
    """Whether a broker runs, and is not cut off without a sign: one that is cut off, and has the newest image, fails
    later. One that lags shows it.
    """
    return broker.run == "up" and (broker.linked or broker.metadata != image)


def _go_on(world: World, chooser: random.Random, events: int) -> None:
    """So many events that begin nothing and are no faults; or an unclean election, where it is allowed."""
    for _ in range(events):
        if UNCLEAN in world.scenario.faults:
            settle(world, [UNCLEAN])
        for _ in range(_TRIES):
            event = at_random(world, chooser, 0.0)
            if event is not None and event[0] not in (*BEGINS, "timeout"):
                happen(world, event)
                break


def _blocked(world: World) -> list[str]:
    """The ids that are in a transaction even when all is done that can be done while the broker is down."""
    future = world.copy()
    future.in_flight = ()
    names = (*_ENDS, *(_ENDING + _COMPLETING))
    settle(future, [name for name in names if name in TRANSITIONS])
    return [name for (b, name), held in future.held.items() if future.up(b) and held.metadata.state not in _AT_REST]


_AT_REST = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")


def _committed_records(world: World) -> dict[Key, set[Data]]:
    """The committed records of each partition, by its leader."""
    found: dict[Key, set[Data]] = {}
    for key, _ in world.scenario.topics:
        leader = world.leadership(world.image, key).leader
        records = (record for _, record in world.logs[key, leader]) if leader != NOBODY else iter(())
        found[key] = {one for one in records if isinstance(one, Data) and world.was_committed(key, one)}
    return found


def _committed(world: World, key: Key, producer_id: int) -> bool:
    """Whether a replica of the partition has committed records of this producer."""
    return any(
        isinstance(record, Data) and record.producer_id == producer_id and world.was_committed(key, record)
        for broker_id in world.places[key]
        for _, record in world.logs[key, broker_id]
    )
