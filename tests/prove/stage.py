"""One history on two stages: real brokers and simulated brokers.

Each step of a script (`steps.py`) acts on both. The real side uses the demo's cluster and wire-level producer. The
simulated side makes the corresponding events of `tests/sim` happen, and then all events that follow by themselves. Both
have the same topics, transactional ids, replicas and leaders, so that their answers can be compared directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

from tests.prove.placing import COORDINATORS, heal, set_log_min_isr
from tests.sim.scenarios import rest
from tests.sim.table import Event
from tests.sim.transitions import can_happen, happen, settle
from tests.sim.world import IDLE_PRODUCERS, LOST_LOG_END, Scenario, World
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.jars import KAFKA_VERSION, NEXT_KAFKA_VERSION, OLD_KAFKA_VERSION
from txnscan.demo.producer import Producer
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.list_offsets import Offset, list_offsets
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key

# Brokers look for timed-out transactions and for logs to compact often, and broker 3 forgets the ids that it
# coordinates within seconds.
PROPERTIES = {
    "auto.leader.rebalance.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": str(len(COORDINATORS)),
    "log.cleaner.backoff.ms": "100",
    "producer.id.expiration.check.interval.ms": "100",
    # The start of a log survives a crash soon after records were deleted.
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    # Segments below the start are deleted soon.
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "100",
    # A broker that is paused for the duration of a short transaction stays in sync.
    "broker.session.timeout.ms": "9000",
}
BROKER_PROPERTIES = {
    3: {
        "transactional.id.expiration.ms": "4000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    }
}
# The events of an idle cluster, before any timeout or expiry.
OF_ITSELF = (
    *("fetch", "complete transition", "publish metadata", "apply to replicas", "elect coordinators", "load"),
    *("fence broker", "unfence broker", "expand isr"),
    *("marker unanswered", "marker acknowledged", "skip marker", "write marker", "write completion"),
)


@dataclass(frozen=True)
class Setting:
    """The versions of a run: of the brokers, and of the clients' transactions."""

    kafka: str
    client: int

    def __str__(self) -> str:
        return f"Kafka {self.kafka}, clients v{self.client}"

    @property
    def new(self) -> bool:
        return self.kafka != OLD_KAFKA_VERSION


NEW_V2, NEW_V1, OLD_V1 = Setting(KAFKA_VERSION, 2), Setting(KAFKA_VERSION, 1), Setting(OLD_KAFKA_VERSION, 1)
SETTINGS = (NEW_V2, NEW_V1, OLD_V1)
# Kafka 4.4 must answer as 4.3 does, so a script runs on both.
_NEXT = {NEW_V2: Setting(NEXT_KAFKA_VERSION, 2), NEW_V1: Setting(NEXT_KAFKA_VERSION, 1)}
ALL_SETTINGS = (*SETTINGS, *_NEXT.values())


def settings_of(on: Iterable[Setting]) -> tuple[Setting, ...]:
    """The settings of a script, and the same settings on the next Kafka version."""
    named = tuple(on)
    return (*named, *(_NEXT[setting] for setting in named if setting in _NEXT))


class NotPossible(Exception):
    """The simulator cannot do a step of the script."""


@dataclass
class Stage:
    """Both sides of one run of a script. ids, keys: the real names by the names in the script. log_start: the offset at
    which the script begins in the real log of the ids; 0 in the simulated log.
    """

    cluster: KafkaCluster
    wire: Wire
    setting: Setting
    world: World
    ids: Mapping[str, str]
    keys: Mapping[str, Key]
    log_start: int
    producers: dict[str, Producer] = field(default_factory=dict)
    late: list[tuple[Producer, Key]] = field(default_factory=list)

    def make(self, *events: Event) -> None:
        """Makes simulated events happen, each of which must be possible, and then all events that follow by
        themselves.
        """
        for event in events:
            if not can_happen(self.world, event):
                raise NotPossible(f"the simulator cannot do {event}")
            happen(self.world, event)
            rest(self.world)
        settle(self.world, OF_ITSELF)

    def make_at_once(self, *events: Event) -> None:
        """Makes simulated events happen, without the events that follow by themselves."""
        for event in events:
            if not can_happen(self.world, event):
                raise NotPossible(f"the simulator cannot do {event}")
            happen(self.world, event)

    def log_key(self, who: str) -> Key:
        """The `__transaction_state` partition of a transactional id."""
        return (TRANSACTION_STATE_TOPIC, self.world.coordinator_of(self.ids[who]))

    def coordinator(self, who: str) -> int:
        """The simulated coordinator of a transactional id."""
        return self.world.leadership(self.world.image, self.log_key(who)).leader


def opened_stage(
    cluster: KafkaCluster,
    wire: Wire,
    setting: Setting,
    name: str,
    topics: Mapping[str, tuple[int, ...]],
    coordinator: str,
    min_isr: int,
    verified: bool,
) -> Stage:
    """A restored cluster with new topics, and its simulated double."""
    heal(cluster, wire)
    # Kafka 3.5 would write nothing to a log with fewer replicas.
    set_log_min_isr(wire, min(min_isr, len(COORDINATORS[coordinator])))
    prefix = next(p for n in count() if not wire.view([f"{(p := f'{name}-{n}')}-{next(iter(topics))}"]).partitions)
    scenario, ids, keys = scenario_of(setting, name, prefix, topics, coordinator, min_isr, verified)
    for letter, replicas in topics.items():
        create_topic(wire, keys[letter][0], [replicas], {"min.insync.replicas": str(min(min_isr, len(replicas)))})
        cluster.wait_for_leader(*keys[letter], replicas[0])
    k = tuple(COORDINATORS).index(coordinator)
    # In a tuple, because an offset may be 0.
    (log_start,) = wait_until(lambda: (_end_of_log(wire, k),), "the end of the ids' log was known")
    return Stage(cluster, wire, setting, simulated(scenario, setting), ids, keys, log_start)


def simulated(scenario: Scenario, setting: Setting) -> World:
    """A simulated cluster with clients of one transactions version."""
    world = World(scenario)
    world.producers = {name: one._replace(version=setting.client) for name, one in world.producers.items()}
    return world


def scenario_of(
    setting: Setting,
    name: str,
    prefix: str,
    topics: Mapping[str, tuple[int, ...]],
    coordinator: str,
    min_isr: int,
    verified: bool,
) -> tuple[Scenario, dict[str, str], dict[str, Key]]:
    """The simulated side: the scenario, and its transactional ids and partitions by their names in the script."""
    keys = {letter: (f"{prefix}-{letter}", 0) for letter in topics}
    k = tuple(COORDINATORS).index(coordinator)
    # "b" only writes to the log of "a".
    ids = {who: _id(f"{prefix}-{who}", k) for who in "ab"}
    scenario = Scenario(
        name,
        topics=tuple((keys[letter], replicas) for letter, replicas in topics.items()),
        coordinators=tuple(COORDINATORS.values()),
        producers=tuple(ids.values()),
        min_isr=min_isr,
        verify=verified and setting.new,
        skips_leaderless=setting.new,
        reloads=not setting.new,
        versions=(1, 2) if setting.new else (1,),
        faults=frozenset(
            {
                *("kill", "pause", "leader move", "compaction", "append timeout", IDLE_PRODUCERS),
                *("deleted records", "disk move", "lost snapshots", LOST_LOG_END),
                *("unclean election", "reassignment"),
            }
        ),
    )
    return scenario, ids, keys


def _end_of_log(wire: Wire, k: int) -> int:
    """The end of the log. Raises RequestFailed if its leader does not answer."""
    log = wire.partition(TRANSACTION_STATE_TOPIC, k)
    end = list_offsets(wire.send, log.leader, [log], Offset.HIGH_WATERMARK)[log.key]
    if end.failure is not None:
        raise RequestFailed(end.failure)
    return end.offset


def _id(prefix: str, k: int) -> str:
    """A transactional id that belongs to this partition of `__transaction_state`."""
    ids = (f"{prefix}-{number}" for number in count())
    return next(name for name in ids if coordinator_partition(name, len(COORDINATORS)) == k)
