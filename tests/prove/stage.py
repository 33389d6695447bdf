"""One history on two stages: what a step of a script does to real brokers, and what it does to simulated ones.

The real side is driven through the demo's cluster and wire-level producer. The simulated side makes the same events of
`txnscan/sim` happen, and then everything that follows of itself. Both have the same topics, transactional ids, replicas
and leaders, so that what they answer can be compared as it stands.
"""

from __future__ import annotations

import copy
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import ProduceRequest
from kafka.record import MemoryRecordsBuilder

from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.errors import DemoError
from txnscan.demo.jars import KAFKA_VERSION, OLD_KAFKA_VERSION
from txnscan.demo.producer import PRODUCE_V1, TIMEOUT_MS_MAX, Identity, Producer, ProducerError
from txnscan.demo.wait import wait_until
from txnscan.demo.wire import Wire
from txnscan.kafka.connection import ConnectionSettings
from txnscan.kafka.coordinator import coordinator_partition
from txnscan.kafka.errors import ErrorCode, error_name
from txnscan.model import TRANSACTION_STATE_TOPIC, Key
from txnscan.sim.records import (
    Data,
    Produce,
    TransactionLogRecord,
    TransactionMetadata,
)
from txnscan.sim.scenarios import rest
from txnscan.sim.table import Event
from txnscan.sim.transitions import TRANSITIONS, can_happen, happen
from txnscan.sim.world import Scenario, World

# The partitions of `__transaction_state` by what scripts want of them: where they are. The one that moves has no
# replica on broker 3, which scripts stop so that a partition takes no writes: Kafka 3.5 would load it again for that.
COORDINATORS = {"moves": (1, 2), "stays": (1,), "forgets": (3,)}
_LOG_CONFIGS = {"cleanup.policy": "compact", "compression.type": "uncompressed"}
# Timed-out transactions are looked for often, and broker 3 forgets the ids that it coordinates within seconds.
PROPERTIES = {
    "auto.leader.rebalance.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": str(len(COORDINATORS)),
}
BROKER_PROPERTIES = {
    3: {
        "transactional.id.expiration.ms": "4000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    }
}
# What happens in a cluster that is left alone, before any timeout or expiry.
_OF_ITSELF = (
    *("fetch", "complete transition", "publish metadata", "apply to replicas", "elect coordinators", "load"),
    *("fence broker", "unfence broker", "expand isr"),
    *("marker unanswered", "marker acknowledged", "skip marker", "write marker", "write completion"),
)
_EVENTS_MAX = 2_000
_PREFERRED = 0
_TOPIC = 2
_SET = 0
# As `TransactionLogValue` writes them.
_EMPTY, _NO_PARTITIONS = 0, -1


@dataclass(frozen=True)
class Setting:
    """What a script runs under: the brokers' version, and the transactions version of the clients."""

    kafka: str
    client: int

    def __str__(self) -> str:
        return f"Kafka {self.kafka}, clients v{self.client}"

    @property
    def new(self) -> bool:
        return self.kafka == KAFKA_VERSION


NEW_V2, NEW_V1, OLD_V1 = Setting(KAFKA_VERSION, 2), Setting(KAFKA_VERSION, 1), Setting(OLD_KAFKA_VERSION, 1)
SETTINGS = (NEW_V2, NEW_V1, OLD_V1)


class NotPossible(Exception):
    """The simulator cannot do what the script asks for."""


@dataclass
class Stage:
    """Both sides of one run of a script. ids, keys: the real names by the script's."""

    cluster: KafkaCluster
    wire: Wire
    setting: Setting
    world: World
    ids: Mapping[str, str]
    keys: Mapping[str, Key]
    producers: dict[str, Producer] = field(default_factory=dict)
    late: list[tuple[Producer, Key]] = field(default_factory=list)

    def make(self, *events: Event) -> None:
        """Makes simulated events happen, each of which must be possible, and what follows of itself."""
        for event in events:
            if not can_happen(self.world, event):
                raise NotPossible(f"the simulator cannot do {event}")
            happen(self.world, event)
            rest(self.world)
        settle(self.world)

    def log_key(self, who: str) -> Key:
        """The `__transaction_state` partition of a transactional id."""
        return (TRANSACTION_STATE_TOPIC, self.world.coordinator_of(self.ids[who]))

    def coordinator(self, who: str) -> int:
        """The simulated coordinator of a transactional id."""
        return self.world.leadership(self.world.image, self.log_key(who)).leader


def settle(world: World) -> None:
    """Lets everything happen that follows of itself, until nothing does."""
    for _ in range(_EVENTS_MAX):
        event = next(((name, s) for name in _OF_ITSELF for s in TRANSITIONS[name].when(world)), None)
        if event is None:
            return
        happen(world, event)
    raise NotPossible("the simulated cluster does not come to rest")


# --- the steps --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Init:
    """A new instance of a producer asks for its producer id until it has it."""

    who: str = "a"
    timeout_ms: int = TIMEOUT_MS_MAX

    def play(self, stage: Stage) -> None:
        producer = Producer(stage.wire, stage.ids[self.who], timeout_ms=self.timeout_ms, v2=stage.setting.client == 2)
        producer.init_producer_id()
        stage.producers[self.who] = producer
        stage.make(("InitProducerId", (stage.coordinator(self.who), stage.ids[self.who])))


@dataclass(frozen=True)
class Fence:
    """A new instance asks once, and finds a transaction under way, which is aborted for it."""

    who: str = "a"

    def play(self, stage: Stage) -> None:
        wait_until(lambda: _asked_once(stage.wire, stage.ids[self.who]), "the coordinator was asked for a producer id")
        stage.make(("InitProducerId", (stage.coordinator(self.who), stage.ids[self.who])))


@dataclass(frozen=True)
class Add:
    """AddPartitionsToTxn, and no data."""

    key: str
    who: str = "a"

    def play(self, stage: Stage) -> None:
        stage.producers[self.who].add_partitions([stage.keys[self.key]])
        # What the producer has added already it does not add again in the simulator, and the coordinator need not care.
        if stage.keys[self.key] not in stage.world.producers[stage.ids[self.who]].added:
            stage.make(("AddPartitionsToTxn", (stage.coordinator(self.who), stage.ids[self.who], stage.keys[self.key])))


@dataclass(frozen=True)
class Write:
    """One record, in the transaction: the partition is added first, by the client (v1) or by its leader (v2)."""

    key: str
    who: str = "a"

    def play(self, stage: Stage) -> None:
        name, key = stage.ids[self.who], stage.keys[self.key]
        stage.producers[self.who].write(*key, [b"record"])
        if key not in stage.world.producers[name].added:
            stage.make(("AddPartitionsToTxn", (stage.coordinator(self.who), name, key)))
        stage.make(("send data", (name, key, stage.setting.client)))
        stage.make(("append data", (len(stage.world.in_flight) - 1,)))


@dataclass(frozen=True)
class Hold:
    """A record sets out for a partition of the transaction, and is on its way for long."""

    key: str
    who: str = "a"

    def play(self, stage: Stage) -> None:
        # It keeps its identity, and takes that identity's next sequence when it arrives, so that it is no duplicate.
        stage.late.append((copy.copy(stage.producers[self.who]), stage.keys[self.key]))
        stage.make(("send data", (stage.ids[self.who], stage.keys[self.key], stage.setting.client)))


@dataclass(frozen=True)
class Arrive:
    """The record that was held first arrives at last, and is taken or refused."""

    taken: bool

    def play(self, stage: Stage) -> None:
        late, key = stage.late.pop(0)
        before = _data(stage.world, key)
        stage.make(("append data", (0,)))
        simulated = _data(stage.world, key) > before
        real = _taken(lambda: late.produce(*key, [b"late"]))
        if not simulated == (real is None) == self.taken:
            raise NotPossible(f"the record was to be taken: {self.taken}; simulated: {simulated}; real: {real}")


@dataclass(frozen=True)
class Forge:
    """A record at an epoch that nobody handed out, so many above the producer's. For unverified partitions."""

    key: str
    above: int
    who: str = "a"

    def play(self, stage: Stage) -> None:
        key, name = stage.keys[self.key], stage.ids[self.who]
        forger = Producer(stage.wire, name, v2=False)
        known = stage.producers[self.who].known
        forger.identity = Identity(known.producer_id, known.producer_epoch + self.above)
        forger.produce(*key, [b"forged"])
        producer = stage.world.producers[name]
        data = Data(producer.producer_id, producer.producer_epoch + self.above, (name, producer.txn))
        stage.world.in_flight = (*stage.world.in_flight, Produce(key, data, 1))
        stage.make(("append data", (len(stage.world.in_flight) - 1,)))


@dataclass(frozen=True)
class Age:
    """The id's record in the coordinators' log says that it is at this epoch; who loads it next will believe it."""

    epoch: int
    who: str = "a"

    def play(self, stage: Stage) -> None:
        name, key = stage.ids[self.who], stage.log_key(self.who)
        known = stage.producers[self.who].known
        write_transaction_log(stage.cluster, key, name, Identity(known.producer_id, self.epoch))
        producer_id = stage.world.producers[name].producer_id
        record = TransactionLogRecord(name, TransactionMetadata(producer_id, self.epoch, "Empty"))
        stage.world.append(stage.coordinator(self.who), key, record)
        stage.make()


@dataclass(frozen=True)
class End:
    """EndTxn, until the coordinator agrees."""

    commit: bool
    who: str = "a"

    def play(self, stage: Stage) -> None:
        stage.producers[self.who].end(commit=self.commit)
        at = (stage.coordinator(self.who), stage.ids[self.who], self.commit, stage.setting.client)
        stage.make(("EndTxn", at))


@dataclass(frozen=True)
class TimeOut:
    """The transaction is past its timeout."""

    who: str = "a"

    def play(self, stage: Stage) -> None:
        stage.make(("timeout", (stage.coordinator(self.who), stage.ids[self.who])))


@dataclass(frozen=True)
class Expire:
    """The transactional id is at rest for longer than ids are kept."""

    who: str = "a"

    def play(self, stage: Stage) -> None:
        stage.make(("expire id", (stage.coordinator(self.who), stage.ids[self.who])))


@dataclass(frozen=True)
class Stop:
    """A broker ends: in good order, or killed."""

    broker_id: int
    kill: bool = False

    def play(self, stage: Stage) -> None:
        (stage.cluster.kill_broker if self.kill else stage.cluster.stop_broker)(self.broker_id)
        stage.cluster.wait_for_brokers(stage.cluster.running)
        stage.make(("kill broker", (self.broker_id,)))


@dataclass(frozen=True)
class Start:
    """It is back, and in sync again."""

    broker_id: int

    def play(self, stage: Stage) -> None:
        stage.cluster.start_broker(self.broker_id)
        stage.make(("start broker", (self.broker_id,)))
        for key in (*stage.keys.values(), stage.log_key("a")):
            isr = stage.world.leadership(stage.world.image, key).isr
            wait_until(
                lambda key=key, isr=isr: set(_replicas(stage.wire, key[0])[key[1]].isr_nodes) == isr,  # type: ignore[misc]
                f"the replicas {sorted(isr)} of {key[0]}-{key[1]} were in sync",
            )


@dataclass(frozen=True)
class Move:
    """Another replica leads: of a topic by its name in the script, or of the coordinators' log, as "coordinator"."""

    what: str
    to: int

    def play(self, stage: Stage) -> None:
        key = stage.log_key("a") if self.what == "coordinator" else stage.keys[self.what]
        stage.make(("move leader", (key, self.to)))
        others = [b for b in stage.world.places[key] if b != self.to]
        lead(stage.cluster, stage.wire, key, (self.to, *others))


Step = Init | Fence | Add | Write | Hold | Arrive | Forge | Age | End | TimeOut | Expire | Stop | Start | Move


def _asked_once(wire: Wire, name: str) -> bool:
    """One InitProducerId. Not counted where the coordinator does nothing because it still fetches producer ids."""
    try:
        Producer(wire, name, deadline_s=0.0).init_producer_id()
    except DemoError as failed:
        return error_name(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) not in str(failed)
    return True


def write_transaction_log(cluster: KafkaCluster, key: Key, name: str, identity: Identity) -> None:
    """Appends a TransactionLogValue (v0) of an id at rest. Brokers take it from a client of that name alone."""
    now_ms = int(time.time() * 1000)
    text = name.encode()
    fields = (0, identity.producer_id, identity.producer_epoch, TIMEOUT_MS_MAX, _EMPTY, _NO_PARTITIONS, now_ms, -1)
    builder = MemoryRecordsBuilder(
        magic=2,
        compression_type=0,
        batch_size=64 * 1024,
        transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )
    builder.append(
        timestamp=now_ms, key=struct.pack(">hh", 0, len(text)) + text, value=struct.pack(">hqhibiqq", *fields)
    )
    builder.close()
    topic = ProduceRequest.TopicProduceData
    batch = topic.PartitionProduceData(index=key[1], records=bytes(builder.buffer()))
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[topic(name=key[0], partition_data=[batch])],
        max_version=PRODUCE_V1,
    )
    with Wire(cluster.brokers, ConnectionSettings(client_id="__admin_client")) as wire:
        answer = wire.send(wire.partition(*key).leader, request).responses[0].partition_responses[0]
    if answer.error_code != ErrorCode.NONE:
        raise DemoError(f"{key[0]} could not be written: {error_name(answer.error_code)}")


def _data(world: World, key: Key) -> int:
    """How many records of data a partition's simulated replicas have at most."""
    return max(sum(isinstance(r, Data) for _, r in world.logs[key, b]) for b in world.places[key])


def _taken(act: Callable[[], object]) -> str | None:
    """None, or the error with which a write was refused for good."""
    try:
        act()
    except ProducerError as refused:
        return refused.error
    return None


# --- setting the stage ------------------------------------------------------------------------------------------------


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
    """A healed cluster with fresh topics, and its simulated double."""
    heal(cluster, wire)
    _log_min_isr(wire, min_isr)
    prefix = next(p for n in count() if not wire.view([f"{(p := f'{name}-{n}')}-{next(iter(topics))}"]).partitions)
    keys = {letter: (f"{prefix}-{letter}", 0) for letter in topics}
    for letter, replicas in topics.items():
        create_topic(wire, keys[letter][0], [replicas], {"min.insync.replicas": str(min(min_isr, len(replicas)))})
        cluster.wait_for_leader(*keys[letter], replicas[0])
    k = tuple(COORDINATORS).index(coordinator)
    ids = {who: _id(f"{prefix}-{who}", k) for who in "a"}
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
        faults=frozenset({"kill", "leader move"}),
    )
    return Stage(cluster, wire, setting, World(scenario), ids, keys)


def _id(prefix: str, k: int) -> str:
    """A transactional id that this partition of `__transaction_state` serves."""
    ids = (f"{prefix}-{number}" for number in count())
    return next(name for name in ids if coordinator_partition(name, len(COORDINATORS)) == k)


def heal(cluster: KafkaCluster, wire: Wire) -> None:
    """All brokers up, every replica in sync, and each coordinator where its partition of the log prefers it."""
    for broker_id in set(cluster.broker_ids) - set(cluster.running):
        cluster.start_broker(broker_id)
    if not wire.view([TRANSACTION_STATE_TOPIC]).partitions:
        # A topic is born with as many replicas everywhere.
        create_topic(wire, TRANSACTION_STATE_TOPIC, [[1, 2]] * len(COORDINATORS), _LOG_CONFIGS)
        for k, replicas in enumerate(COORDINATORS.values()):
            _reassign(wire, (TRANSACTION_STATE_TOPIC, k), replicas)
    wait_until(lambda: _in_sync(wire), "every coordinator's log was in sync")
    for k, replicas in enumerate(COORDINATORS.values()):
        key = (TRANSACTION_STATE_TOPIC, k)
        lead(cluster, wire, key, replicas)
        # The second replica is preferred, so that a move to it is one change of the partition, and not two.
        _reassign(wire, key, (*replicas[1::-1], *replicas[2:]))


def _log_min_isr(wire: Wire, min_isr: int) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name="min.insync.replicas", config_operation=_SET, value=str(min_isr))
    topic = resource(resource_type=_TOPIC, resource_name=TRANSACTION_STATE_TOPIC, configs=[config])
    wire.send(wire.view([]).brokers[0].broker_id, IncrementalAlterConfigsRequest(resources=[topic]))


def _in_sync(wire: Wire) -> bool:
    shown = _replicas(wire, TRANSACTION_STATE_TOPIC)
    return all(set(shown[k].isr_nodes) == set(replicas) for k, replicas in enumerate(COORDINATORS.values()))


def _replicas(wire: Wire, topic: str) -> dict[int, Any]:
    """The partitions of a topic, with their replicas, as Metadata shows them."""
    asked = MetadataRequest.MetadataRequestTopic(name=topic)
    request = MetadataRequest(topics=[asked], allow_auto_topic_creation=False)
    (shown,) = wire.send(wire.view([]).brokers[0].broker_id, request).topics
    return {p.partition_index: p for p in shown.partitions}


def lead(cluster: KafkaCluster, wire: Wire, key: Key, replicas: tuple[int, ...]) -> None:
    """The first of these replicas leads the partition, and every broker knows it."""

    def led() -> bool:
        if wire.partition(*key).leader != replicas[0]:
            _elect(wire, key)
        return wire.partition(*key).leader == replicas[0]

    _reassign(wire, key, replicas)
    wait_until(led, f"broker {replicas[0]} led {key[0]}-{key[1]}")
    cluster.wait_for_leader(*key, replicas[0])


def _reassign(wire: Wire, key: Key, replicas: tuple[int, ...]) -> None:
    """Asks for these replicas, where they are not so already."""
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    if tuple(_replicas(wire, key[0])[key[1]].replica_nodes) != replicas:
        wanted = topic.ReassignablePartition(partition_index=key[1], replicas=list(replicas))
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=30_000, topics=[topic(name=key[0], partitions=[wanted])]
        )
        wire.send(wire.view([]).brokers[0].broker_id, request)


def _elect(wire: Wire, key: Key) -> None:
    """Asks for the first replica to lead. What is refused may be asked again."""
    topic = ElectLeadersRequest.TopicPartitions(topic=key[0], partitions=[key[1]])
    request = ElectLeadersRequest(election_type=_PREFERRED, topic_partitions=[topic], timeout_ms=10_000)
    wire.send(wire.view([]).brokers[0].broker_id, request)
