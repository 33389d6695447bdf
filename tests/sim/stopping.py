"""Random histories in which a broker stops after `check --before-stop` said that it may.

The check is the real one, between the answers of which anything may happen but the begin of a transaction. Then the
broker stops. No transaction begins, and no other broker fails: producers end what they began, coordinators do their
work, and the broker comes back at last. If the check said safe, no commit may be torn, and each transaction must be
able to end while the broker is down.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from kafka.protocol.metadata import MetadataResponse

from tests.fakes import as_bytes
from tests.sim.answers import CLUSTER_ID
from tests.sim.history import CONFIG, NOW_MS, SimulatedCluster, SimulatedEngine, Simulation
from tests.sim.records import NOBODY, Data, Held
from tests.sim.scenarios import DOWN, P, Q, begun_and_written, heard, opened
from tests.sim.transitions import TRANSITIONS, happen, settle
from tests.sim.truth import HEALING, hanging, settled, withdraw_unacknowledged_adds
from tests.sim.wander import CALM, Wandering, at_random, begun, go_on
from tests.sim.world import Scenario, World
from txnscan.coordinators.cluster import ClusterUnreachable
from txnscan.coordinators.metadata_image import Latest
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.frames import api_name
from txnscan.kafka.topology import Key
from txnscan.sweeps.before_stop import read_before_stop
from txnscan.waiting.before_stop import StopVerdict

# What begins a transaction, or takes another partition into one. `send data` writes where a transaction already is.
BEGINS = ("InitProducerId", "AddPartitionsToTxn", "send data without adding", "change transactions version")
UNCLEAN = "unclean election"
_TRIES, _BEFORE_MAX, _AFTER_MAX = 200, 5, 12
# Broker 2 is back, and not in sync; and how often a world begins so, if elections may be unclean.
_BEGUN_BEHIND = (*DOWN, ("start broker", (2,)), ("unfence broker", (2,)), *heard(1, 2))
_BEHIND = 0.5
# How often a world has any history.
_ANY_HISTORY = 0.4
# How often all producers commit at last what they had begun.
_ALL_COMMIT = 0.7
_LEVEL_4_2, _LEVEL_4_3, _PRODUCE_OF_3_7 = 29, 30, 10
_ENDS = tuple(name for name in HEALING if name != "start broker")
_ENDING = ("complete transition", "marker unanswered", "marker acknowledged", "write marker", "skip marker")
_COMPLETING = ("write completion", "timeout")

# A partition with one replica, whose coordinators drop its markers.
SOLO = Scenario(
    "a broker stops that has the only replica",
    topics=((P, (2,)), (Q, (1, 2))),
    coordinators=((1, 3),),
    versions=(2,),
    verify=True,
    faults=frozenset({"kill", "leader move", "cut"}),
)
# Two replicas must be in sync.
WIDE = replace(
    SOLO, name="a broker stops of several", topics=((P, (1, 2)), (Q, (1, 2, 3))), coordinators=((1, 2, 3),), min_isr=2
)
STOPS = (
    SOLO,
    replace(SOLO, name=f"{SOLO.name}, transactions v1", versions=(1,)),
    WIDE,
    replace(WIDE, name="a broker stops, and elections may be unclean", min_isr=1, faults=SOLO.faults | {UNCLEAN}),
)


class _Answers(Simulation):
    """A simulation with the answers that only this check needs."""

    def send(self, broker_id: int, request: Any) -> Any:
        """See Simulation."""
        name, world = api_name(request), self.world
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


class _Cluster(SimulatedCluster):
    """The cluster of a check. image: of the controller, when the check last asked for the newest metadata."""

    def latest(self, topics: Iterable[str] | None = None) -> Latest:
        """See Cluster."""
        self.image = self._simulation.world.image
        return super().latest(topics)


class _BeginsNothing(Wandering):
    """Random events between answers, none of which begins a transaction."""

    def __call__(self, simulation: Simulation, point: int, broker_id: int, request: Any) -> None:
        """See Wandering."""
        while self.chooser.random() < self.chance:
            event = at_random(simulation.world, self.chooser, self.fault_chance)
            if event is not None and event[0] not in BEGINS:
                happen(simulation.world, event)


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


def stop(scenario: Scenario, seed: int, done: Stopped) -> None:
    """One random history, and its result into `done`. The same seed gives the same history."""
    chooser = random.Random(seed)
    world = _underway(scenario, chooser, seed)
    if chooser.random() < CALM:
        settle(world, HEALING)
    withdraw_unacknowledged_adds(world)
    broker_id = chooser.choice(scenario.brokers)
    if not world.up(broker_id):
        return
    pilot = _BeginsNothing(chooser, chooser.choice((0.0, 0.0, 0.02, 0.1)), chooser.choice((0.0, 0.1, 0.3)))
    simulation = _Answers(world, pilot)
    cluster = _Cluster(simulation)
    try:
        engine = SimulatedEngine(simulation)
        # Long after all records of the simulation, so that no producer counts as at work.
        now_ms = NOW_MS + 10**9
        found = read_before_stop(cluster, engine, CONFIG, [broker_id], lambda: now_ms, lambda done, total: None)
    except ClusterUnreachable:
        return
    done.asked += 1
    done.verdicts[found.verdict] = done.verdicts.get(found.verdict, 0) + 1
    if found.verdict is not StopVerdict.SAFE or not _alone(world, broker_id) or world.image != cluster.image:
        # Another broker failed meanwhile, or a leader or a replica changed since: the answer does not cover that.
        return
    done.safe += 1
    before, had = hanging(world), _committed_records(world)
    # The next coordinator sends their markers again, which the check does not cover (`waiting/before_stop.py`).
    ending = {name for (b, name), held in world.held.items() if b == broker_id and (held.pending or _is_ending(held))}
    _go_on(world, chooser, chooser.randint(0, _BEFORE_MAX))
    happen(world, ("kill broker", (broker_id,)))
    _go_on(world, chooser, chooser.randint(0, 3))
    happen(world, ("fence broker", (broker_id,)))
    _go_on(world, chooser, chooser.randint(0, _AFTER_MAX))
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
    events = begun_and_written(scenario.versions[0])
    if chooser.random() < _ANY_HISTORY:
        return begun(scenario, seed)
    if UNCLEAN in scenario.faults and chooser.random() < _BEHIND:
        return opened(scenario, (*_BEGUN_BEHIND, *events))
    length = chooser.choice((2, 3, 4, 4))
    world = opened(scenario, events[:length])
    if length > 2:
        go_on(world, chooser, chooser.randint(0, _BEFORE_MAX), 0.1, [])
    return world


def _is_ending(held: Held) -> bool:
    return held.metadata.state.startswith("Prepare")


def _commit_all(world: World) -> None:
    """Producers commit what they have begun, and coordinators do what they can while the broker is down."""
    settle(world, _ENDS)
    for subject in tuple(TRANSITIONS["EndTxn"].when(world)):
        if subject[2] and subject in tuple(TRANSITIONS["EndTxn"].when(world)):
            happen(world, ("EndTxn", subject))
    settle(world, (*_ENDS, *_ENDING, "write completion"))


def _alone(world: World, broker_id: int) -> bool:
    """Whether all other brokers run and hear the controller."""
    others = [broker for number, broker in world.brokers.items() if number != broker_id]
    return all(one.run == "up" and one.linked for one in others) and world.up(broker_id)


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
