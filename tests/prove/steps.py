"""The steps of scripts: their actions on real brokers, and the same events in the simulator."""

from __future__ import annotations

import copy
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kafka.protocol.producer import ProduceRequest
from kafka.record import MemoryRecordsBuilder

from tests.prove.compaction import alter_topic
from tests.prove.disks import TWO_DISKS, begins_at, lose_end, lose_snapshots
from tests.prove.moves import delete_records, directories_of, elect, move_to_other_disk, reassign
from tests.prove.placing import compacting_log, forgetting_producers, lead, replicas_of
from tests.prove.stage import NotPossible, Stage
from tests.sim.records import Data, Produce, TransactionLogRecord, TransactionMetadata
from tests.sim.transitions import can_happen, possible
from tests.sim.world import World
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.errors import DemoError
from txnscan.demo.producer import PRODUCE_V1, Producer, ProducerError, ProducerIdAndEpoch
from txnscan.demo.requests import TIMEOUT_MS_MAX, Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.client.client import Send
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.errors import ErrorCode, RequestFailed, error_name
from txnscan.kafka.protocol.describe_producers import by_topic, describe_producers
from txnscan.kafka.protocol.fetch import fetch
from txnscan.kafka.protocol.record_batch import Batch
from txnscan.kafka.topology import Key, Partition
from txnscan.txnlog.decode import transactional_id

# The values in `TransactionLogValue`.
_EMPTY, _ONGOING, _NO_PARTITIONS = 0, 1, -1
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Init:
    """A new instance of a producer asks for its producer id until it gets one."""

    who: str = "a"
    timeout_ms: int = TIMEOUT_MS_MAX

    def play(self, stage: Stage) -> None:
        producer = Producer(stage.wire, stage.ids[self.who], timeout_ms=self.timeout_ms, v2=stage.setting.client == 2)
        producer.init_producer_id()
        stage.producers[self.who] = producer
        stage.make(("InitProducerId", (stage.coordinator(self.who), stage.ids[self.who])))


@dataclass(frozen=True)
class Fence:
    """A new instance asks once. The transaction in progress is aborted for it."""

    who: str = "a"

    def play(self, stage: Stage) -> None:
        wait_until(lambda: _asked_once(stage.wire, stage.ids[self.who]), "the coordinator was asked for a producer id")
        stage.make(("InitProducerId", (stage.coordinator(self.who), stage.ids[self.who])))


@dataclass(frozen=True)
class Add:
    """AddPartitionsToTxn, without data."""

    key: str
    who: str = "a"

    def play(self, stage: Stage) -> None:
        stage.producers[self.who].add_partitions([stage.keys[self.key]])
        # The simulated producer does not add a partition twice; for the coordinator it makes no difference.
        if stage.keys[self.key] not in stage.world.producers[stage.ids[self.who]].added:
            stage.make(("AddPartitionsToTxn", (stage.coordinator(self.who), stage.ids[self.who], stage.keys[self.key])))


@dataclass(frozen=True)
class Write:
    """One record in the transaction. The partition is added first, by the client (v1) or by its leader (v2)."""

    key: str
    who: str = "a"

    def play(self, stage: Stage) -> None:
        name, key = stage.ids[self.who], stage.keys[self.key]
        stage.producers[self.who].write(*key, [b"record"])
        # Under v2 a leader does not add a partition where a transaction of that epoch is open.
        add = ("AddPartitionsToTxn", (stage.coordinator(self.who), name, key))
        if can_happen(stage.world, add):
            stage.make(add)
        stage.make(("send data", (name, key, stage.setting.client)))
        stage.make(("append data", (len(stage.world.in_flight) - 1,)))


@dataclass(frozen=True)
class Hold:
    """A record is sent to a partition of the transaction, and stays in flight for long."""

    key: str
    who: str = "a"

    def play(self, stage: Stage) -> None:
        # The late record keeps its identity, and gets that identity's next sequence when it arrives, so that it is no
        # duplicate.
        stage.late.append((copy.copy(stage.producers[self.who]), stage.keys[self.key]))
        stage.make(("send data", (stage.ids[self.who], stage.keys[self.key], stage.setting.client)))


@dataclass(frozen=True)
class Arrive:
    """The record that was sent first with `Hold` arrives, and is accepted or refused."""

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
    """A record at an epoch that was never assigned, above the producer's epoch by `above`. For unverified
    partitions.
    """

    key: str
    above: int
    who: str = "a"

    def play(self, stage: Stage) -> None:
        key, name = stage.keys[self.key], stage.ids[self.who]
        forger = Producer(stage.wire, name, v2=False)
        known = stage.producers[self.who].known
        forger.identity = ProducerIdAndEpoch(known.producer_id, known.producer_epoch + self.above)
        forger.produce(*key, [b"forged"])
        producer = stage.world.producers[name]
        epoch = producer.producer_epoch + self.above
        data = Data(producer.producer_id, epoch, (name, producer.txn), instance=producer.instance)
        stage.world.in_flight = (*stage.world.in_flight, Produce(key, data, 1))
        stage.make(("append data", (len(stage.world.in_flight) - 1,)))


@dataclass(frozen=True)
class Age:
    """Sets the id's epoch in the coordinators' log; the next coordinator that loads it uses that epoch."""

    epoch: int
    who: str = "a"

    def play(self, stage: Stage) -> None:
        name, key = stage.ids[self.who], stage.log_key(self.who)
        known = stage.producers[self.who].known
        write_transaction_log(stage.cluster, key, name, ProducerIdAndEpoch(known.producer_id, self.epoch))
        producer_id = stage.world.producers[name].producer_id
        record = TransactionLogRecord(name, TransactionMetadata(producer_id, self.epoch, "Empty"))
        stage.world.append(stage.coordinator(self.who), key, record)
        stage.make()


@dataclass(frozen=True)
class End:
    """EndTxn, repeated until the coordinator accepts it."""

    commit: bool
    who: str = "a"

    def play(self, stage: Stage) -> None:
        stage.producers[self.who].end(commit=self.commit)
        at = (stage.coordinator(self.who), stage.ids[self.who], self.commit, stage.setting.client)
        stage.make(("EndTxn", at))


@dataclass(frozen=True)
class EndInVain:
    """EndTxn while the other replica of the coordinator's log is paused: the record is appended, but not acknowledged
    within the transaction's timeout. Then the replica resumes, and the timeout aborts the transaction.
    """

    commit: bool
    paused: int
    who: str = "a"

    def play(self, stage: Stage) -> None:
        name, coordinator = stage.ids[self.who], stage.coordinator(self.who)
        stage.cluster.pause_broker(self.paused)
        try:
            error = _end_once(stage, self.who, self.commit)
        finally:
            stage.cluster.resume_broker(self.paused)
        if error_name(ErrorCode.COORDINATOR_NOT_AVAILABLE) not in error:
            raise NotPossible(f"the append was to time out, and did not: {error}")
        stage.make_at_once(
            ("pause broker", (self.paused,)),
            ("EndTxn", (coordinator, name, self.commit, stage.setting.client)),
            ("append timeout", (coordinator, name)),
            ("resume broker", (self.paused,)),
        )
        stage.make(("timeout", (coordinator, name)))


@dataclass(frozen=True)
class TimeOut:
    """The transaction exceeds its timeout."""

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
    """A broker stops, cleanly or by SIGKILL."""

    broker_id: int
    kill: bool = False

    def play(self, stage: Stage) -> None:
        (stage.cluster.kill_broker if self.kill else stage.cluster.stop_broker)(self.broker_id)
        stage.cluster.wait_for_brokers(stage.cluster.running)
        stage.make(("kill broker", (self.broker_id,)))


@dataclass(frozen=True)
class Start:
    """The broker starts, and is in sync again."""

    broker_id: int

    def play(self, stage: Stage) -> None:
        stage.cluster.start_broker(self.broker_id)
        stage.make(("start broker", (self.broker_id,)))
        for key in (*stage.keys.values(), stage.log_key("a")):
            isr = stage.world.leadership(stage.world.image, key).isr
            wait_until(
                lambda key=key, isr=isr: set(replicas_of(stage.wire, key[0])[key[1]].isr_nodes) == isr,  # type: ignore[misc]
                f"the replicas {sorted(isr)} of {key[0]}-{key[1]} were in sync",
            )


@dataclass(frozen=True)
class Move:
    """Another replica leads: of a topic by its name in the script, or of the coordinators' log ("coordinator")."""

    what: str
    to: int

    def play(self, stage: Stage) -> None:
        key = stage.log_key("a") if self.what == "coordinator" else stage.keys[self.what]
        stage.make(("move leader", (key, self.to)))
        others = [b for b in stage.world.places[key] if b != self.to]
        lead(stage.cluster, stage.wire, key, (self.to, *others))


@dataclass(frozen=True)
class Compact:
    """The log of the ids is compacted on every running broker, up to a record of another id that begins a new
    segment.
    """

    def play(self, stage: Stage) -> None:
        key = stage.log_key("a")
        with compacting_log(stage.wire):
            Init("b").play(stage)
            for broker_id in stage.world.places[key]:
                # The last of the different ends is directly before the new segment.
                ends = [subject for name, subject in possible(stage.world) if name == "clean log"]
                if mine := [subject for subject in ends if subject[:2] == (key, broker_id)]:
                    stage.make(("clean log", mine[-1]))
            log = stage.world.logs[key, stage.coordinator("a")]
            left = [offset for offset, (_, record) in enumerate(log) if record is not None]
            wait_until(lambda: _offsets(stage, key) == left, f"{key[0]}-{key[1]} was compacted")


@dataclass(frozen=True)
class ForgetProducers:
    """The replicas of these brokers forget every producer without an open transaction."""

    brokers: tuple[int, ...]

    def play(self, stage: Stage) -> None:
        for broker_id in self.brokers:
            events = [e for e in possible(stage.world) if e[0] == "expire producer" and e[1][1] == broker_id]
            if not events:
                raise NotPossible(f"broker {broker_id} knows no idle producer")
            stage.make(*events)
            with forgetting_producers(stage.wire, broker_id):
                wait_until(lambda asked=broker_id: _knows_only_open(stage, asked), f"broker {broker_id} forgot")  # type: ignore[misc]


@dataclass(frozen=True)
class Delete:
    """DeleteRecords: the log of a topic begins at this offset."""

    key: str
    before: int

    def play(self, stage: Stage) -> None:
        key = stage.keys[self.key]
        stage.make(("delete records", (key, stage.world.leadership(stage.world.image, key).leader, self.before)))
        delete_records(stage.wire, key[0], self.before)
        for broker_id in stage.world.places[key]:
            wait_until(
                lambda on=broker_id: begins_at(stage.cluster, on, key, self.before),  # type: ignore[misc]
                f"the replica of {key[0]} on broker {broker_id} began at offset {self.before}",
            )


@dataclass(frozen=True)
class MoveDisk:
    """The replica of a topic on the broker with two log directories moves to the other one."""

    key: str

    def play(self, stage: Stage) -> None:
        key = stage.keys[self.key]
        stage.make(("move to another disk", (key, TWO_DISKS)))
        before = directories_of(stage.wire, TWO_DISKS, key)
        move_to_other_disk(stage.wire, TWO_DISKS, [key])
        wait_until(
            lambda: directories_of(stage.wire, TWO_DISKS, key).isdisjoint(before), f"{key[0]} moved to another disk"
        )


@dataclass(frozen=True)
class Rebuild:
    """A broker that was killed has no snapshots of a topic's producers, and builds their state from the segments."""

    key: str
    broker_id: int

    def play(self, stage: Stage) -> None:
        stage.make(("rebuild producers' state", (stage.keys[self.key], self.broker_id)))
        lose_snapshots(stage.cluster, self.broker_id, stage.keys[self.key])


@dataclass(frozen=True)
class Crash:
    """The machine of the broker with the ids' log crashes: of the script's records in that log, the first ones are
    left. started: a broker that was down, and starts at the same time.
    """

    broker_id: int
    left: int
    started: int | None = None

    def play(self, stage: Stage) -> None:
        key = stage.log_key("a")
        end = _offset_of(stage, key, self.left)
        if self.started is None:
            Stop(self.broker_id, kill=True).play(stage)
        else:
            Swap(self.broker_id, self.started).play(stage)
        stage.make(("lose log end", (key, self.broker_id, self.left)))
        lose_end(stage.cluster, self.broker_id, key, end)


@dataclass(frozen=True)
class Swap:
    """A broker is killed, for example the one of the only in-sync replicas, and a broker that was down starts. In
    between, the controllers have no majority.
    """

    killed: int
    started: int

    def play(self, stage: Stage) -> None:
        stage.cluster.kill_broker(self.killed)
        stage.cluster.start_broker(self.started)
        stage.make_at_once(("kill broker", (self.killed,)), ("start broker", (self.started,)))
        stage.make()


@dataclass(frozen=True)
class ElectUncleanly:
    """A replica leads that was not in sync: of a topic by its name in the script, or of the coordinators' log
    ("coordinator").
    """

    what: str
    to: int

    def play(self, stage: Stage) -> None:
        of_log = self.what == "coordinator"
        key = stage.log_key("a") if of_log else stage.keys[self.what]
        name = "unclean election of a coordinator" if of_log else "unclean election"
        stage.make((name, (key, self.to)))
        elect(stage.wire, [key], uncleanly=True)
        stage.cluster.wait_for_leader(*key, self.to)


@dataclass(frozen=True)
class Replace:
    """A follower's replica of a topic is taken away, and comes back empty."""

    key: str
    broker_id: int

    def play(self, stage: Stage) -> None:
        key = stage.keys[self.key]
        stage.make(("replace replica", (key, self.broker_id)))
        replicas = stage.world.places[key]
        for wanted in ([b for b in replicas if b != self.broker_id], replicas):
            reassign(stage.wire, {key: wanted})
            wait_until(
                lambda wanted=wanted: set(replicas_of(stage.wire, key[0])[key[1]].isr_nodes) == set(wanted),  # type: ignore[misc]
                f"{key[0]} had its replicas on {wanted}",
            )


@dataclass(frozen=True)
class Roll:
    """Every append to a topic begins a new segment from here on."""

    key: str

    def play(self, stage: Stage) -> None:
        alter_topic(stage.wire, stage.keys[self.key][0], {"segment.ms": "1"})
        stage.make()


Step = (
    Init
    | Fence
    | Add
    | Write
    | Hold
    | Arrive
    | Forge
    | Age
    | End
    | EndInVain
    | TimeOut
    | Expire
    | Stop
    | Start
    | Move
    | Compact
    | ForgetProducers
    | Delete
    | MoveDisk
    | Rebuild
    | Roll
    | Crash
    | Swap
    | ElectUncleanly
    | Replace
)


def _knows_only_open(stage: Stage, broker_id: int) -> bool:
    """Whether every producer that a real broker knows on the script's topics has an open transaction."""
    mine = [key for key in stage.keys.values() if broker_id in stage.world.places[key]]
    found = describe_producers(stage.wire.send, broker_id, by_topic(mine))
    return all(shown.producers == len(shown.open_producers) for shown in found.values())


def _offsets(stage: Stage, key: Key) -> list[int]:
    """The offsets of the script's ids in the real log."""
    records = read_log(stage.wire.send, stage.wire.partition(*key), stage.log_start, tuple(stage.ids.values()))
    return [offset for offset, _, _ in records]


def _offset_of(stage: Stage, key: Key, number: int) -> int:
    """The offset in the real log of the script's record with this number, from 0."""
    partition, ids = stage.wire.partition(*key), tuple(stage.ids.values())
    records = _records(stage.wire.send, partition, stage.log_start)
    return [offset for offset, name, _ in records if transactional_id(name) in ids][number]


def read_log(send: Send, partition: Partition, start: int, ids: Sequence[str]) -> list[tuple[int, str, bytes | None]]:
    """Offset, id and value of every record of these ids in a log partition, from an offset to its high watermark.

    Offsets count from the first, without the records of other ids: ids of earlier scripts still end and expire.
    """
    found: list[tuple[int, str, bytes | None]] = []
    others = 0
    for offset, key, value in _records(send, partition, start):
        name = transactional_id(key)
        if name is not None and name in ids:
            found.append((offset - start - others, name, value))
        else:
            others += 1
    return found


def _records(send: Send, partition: Partition, start: int) -> list[tuple[int, bytes, bytes | None]]:
    """Offset, key and value of every record."""
    return [
        (offset, key, value)
        for batch in log_batches(send, partition, start)
        for offset, key, value in batch.records or ()
        if offset >= start and key is not None
    ]


def log_batches(send: Send, partition: Partition, start: int) -> Iterator[Batch]:
    """The batches of a log partition, from the batch with this offset to the high watermark."""
    while True:
        fetched = fetch(send, partition, start, _PIECE_BYTES, records=True)
        yield from (batch for batch in fetched.batches if not batch.is_control)
        reached = fetched.next_offset(start)
        if reached >= fetched.high_watermark:
            return
        if reached == start:
            raise RequestFailed(f"no record at offset {start}")
        start = reached


def _end_once(stage: Stage, who: str, commit: bool) -> str:
    """Sends one EndTxn. Returns the error, or ""."""
    producer = Producer(stage.wire, stage.ids[who], v2=stage.setting.client == 2, deadline_s=0.0)
    producer.identity = stage.producers[who].known
    try:
        producer.end(commit=commit)
    except DemoError as failed:
        return str(failed)
    return ""


def _asked_once(wire: Wire, name: str) -> bool:
    """Sends one InitProducerId. False if the coordinator refused because it still fetches producer ids."""
    try:
        Producer(wire, name, deadline_s=0.0).init_producer_id()
    except DemoError as failed:
        return error_name(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) not in str(failed)
    return True


def write_transaction_log(
    cluster: KafkaCluster, key: Key, name: str, identity: ProducerIdAndEpoch, ongoing: Iterable[Key] = ()
) -> None:
    """Appends a TransactionLogValue (v0) of an id: at rest, or Ongoing with these partitions.

    Brokers accept it only from a client with that client id. The coordinator does not know of it until it loads its
    log.
    """
    now_ms = int(time.time() * 1000)
    added = [_text(topic) + struct.pack(">ii", 1, partition) for topic, partition in ongoing]
    status, start_ms, partitions = (_ONGOING, now_ms, len(added)) if added else (_EMPTY, -1, _NO_PARTITIONS)
    head = (0, identity.producer_id, identity.producer_epoch, TIMEOUT_MS_MAX, status, partitions)
    value = struct.pack(">hqhibi", *head) + b"".join(added) + struct.pack(">qq", now_ms, start_ms)
    builder = MemoryRecordsBuilder(
        magic=2,
        compression_type=0,
        batch_size=64 * 1024,
        transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )
    builder.append(timestamp=now_ms, key=struct.pack(">h", 0) + _text(name), value=value)
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


def _text(text: str) -> bytes:
    """A string in the encoding of non-flexible values."""
    return struct.pack(">h", len(text.encode())) + text.encode()


def _data(world: World, key: Key) -> int:
    """The largest number of data records on a simulated replica of a partition."""
    return max(sum(isinstance(r, Data) for _, r in world.logs[key, b]) for b in world.places[key])


def _taken(act: Callable[[], object]) -> str | None:
    """None, or the permanent error of a refused write."""
    try:
        act()
    except ProducerError as refused:
        return refused.error
    return None
