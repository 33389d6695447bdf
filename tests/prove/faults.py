"""`python -m tests.prove.faults --sweeps 100 --seed 1`: sweeps of real brokers while they break, with the truth known.

Two clusters of three brokers, one after the other: `__transaction_state` is replicated on the first, and on the second
every partition of it is on one broker alone. On each, hanging transactions are planted, transactions that live are held
open, and clients run transactions, some of which they abandon. Then, in an order that the seed decides, something
breaks, and sweeps run while it breaks, while it is broken, while it heals and after.

What must hold:

- **Never accuse the innocent.** Whatever a sweep calls hanging must never end by itself. At the end all is healed, all
  clients stop, and nothing may change any more for longer than any transaction's timeout: what was accused and is not
  open then, on a topic that still exists, was a false accusation. An application that comes back may end what hangs
  (its next transaction on the partition closes it), so most ids are used once; for the others such an end is excused,
  and counted.
- **Nothing planted is missed.** When a sweep is complete, every planted transaction is hanging, with its reason.
  Otherwise it is hanging or indeterminate; it is absent only where the sweep has an error for its partition.
- **In the end everything is found.** The last sweep is complete and calls hanging all that is open for ever, planted or
  made by the faults.

After that one fault is made that chance hardly ever meets (`skipped_marker`).

Faults come in the same order for the same seed; the machine decides the rest. Exit status 1 on any violation.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ListTransactionsRequest,
)
from kafka.protocol.metadata import MetadataRequest

from txnscan import ScanConfig, find_hanging
from txnscan.cluster import ClusterUnreachable
from txnscan.demo import plant
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.errors import DemoError
from txnscan.demo.plant import Planted
from txnscan.demo.producer import Producer
from txnscan.demo.wait import wait_until
from txnscan.demo.wire import Wire
from txnscan.kafka.coordinator import coordinator_partition
from txnscan.kafka.describe_producers import describe_producers
from txnscan.kafka.errors import ErrorCode, RequestFailed, error_name
from txnscan.model import TRANSACTION_STATE_TOPIC, Judged, Key, Verdict
from txnscan.scan import Identity, Scan, identity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Timed-out transactions are ended within a second, so that the end of a run need not wait long for them.
COMMON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
UNREPLICATED = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
TRAFFIC_TIMEOUT_MS = 10_000
# Longer than any transaction of the traffic may live, its coordinator's sweep included.
SETTLED_S = 15.0
QUIET_S_MAX = 240.0
THREAD_S_MAX = 240.0
STAGES = ("plan", "read every partition", "first read", "ask coordinators", "second read", "judge")
DOOMED = "doomed"
# Topic, and the brokers of each of its partitions: some lose their only replica, some can take no marker without two.
TRAFFIC_TOPICS: Mapping[str, tuple[Sequence[Sequence[int]], Mapping[str, str]]] = {
    "orders": ([[1, 2, 3], [2, 3, 1], [3, 1, 2]], {}),
    "lonely": ([[1], [2], [3]], {}),
    "strict": ([[1, 2], [2, 3], [3, 1]], {"min.insync.replicas": "2"}),
}
ENDED_STATES = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
# What an application that comes back may end: its own next transaction takes the open data with it.
EXCUSABLE = ("live_epoch", "stale_epoch", "maybe_committed")
_ELECTION_NOT_NEEDED = 84
_PREFERRED = 0


def say(text: str) -> None:
    """To stderr, at once."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# --- what is known of the truth --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """A planted hanging transaction: by what it is recognised, and the reasons that a sweep may give for it."""

    key: Identity
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Accusation:
    """A sweep called this hanging."""

    sweep: str
    at_ms: int
    judged: Judged

    @property
    def reason(self) -> str:
        return str(self.judged.judgement.reason)


def missed(scan: Scan, planted: Iterable[Known]) -> list[str]:
    """What this sweep got wrong of the planted transactions, which were open from its start to its end."""
    found = {identity(judged.observation): judged.judgement for judged in scan.transactions}
    unread = {(error.topic, error.partition) for error in scan.errors}
    wrong = []
    for known in planted:
        judgement = found.get(known.key)
        if judgement is None:
            if scan.complete or (known.key[0], known.key[2]) not in unread:
                wrong.append(f"planted {known.key} is absent, and no error stands for its partition")
        elif judgement.verdict is Verdict.HANGING:
            if str(judgement.reason) not in known.reasons:
                wrong.append(f"planted {known.key} is hanging for '{judgement.reason}' and not for {known.reasons}")
        elif scan.complete or judgement.verdict is not Verdict.INDETERMINATE:
            wrong.append(f"planted {known.key} is {judgement.verdict} ({judgement.reason}): {judgement.explanation}")
    return wrong


# --- clients ---------------------------------------------------------------------------------------------------------


class Traffic:
    """Clients in threads of their own. Most use each transactional id for one transaction and never come back: they
    commit, abort, or walk away. Some keep their id, and go on with it after errors.

    acts: what was done under each producer id: when, in words.
    """

    def __init__(self, cluster: KafkaCluster, seed: str, *, once: int = 3, lasting: int = 2) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.acts: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self.lasting: set[int] = set()
        self.fates: Counter[str] = Counter()
        self._threads = [
            threading.Thread(target=run, args=(number, random.Random(f"{seed}-{kind}-{number}")), daemon=True)
            for kind, run, many in (("once", self._run_once, once), ("lasting", self._run_lasting, lasting))
            for number in range(many)
        ]

    def start(self) -> None:
        with self._cluster.wire() as wire:
            for topic, (replicas, configs) in TRAFFIC_TOPICS.items():
                create_topic(wire, topic, replicas, configs)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(THREAD_S_MAX)
            if thread.is_alive():
                raise DemoError("a client did not stop")

    def _run_once(self, number: int, rng: random.Random) -> None:
        with self._cluster.wire() as wire:
            for turn in count():
                if self._stop.wait(rng.uniform(0.0, 0.3)):
                    return
                producer = self._producer(wire, f"once-{number}-{turn}", v2=rng.random() < 0.7)
                fate = rng.choice(("commit", "commit", "commit", "abort", "walk away"))
                with self._surviving(producer):
                    producer.init_producer_id()
                    self._transaction(producer, rng, fate)

    def _run_lasting(self, number: int, rng: random.Random) -> None:
        with self._cluster.wire() as wire:
            producer: Producer | None = None
            while not self._stop.wait(rng.uniform(0.0, 0.3)):
                fresh = producer is None
                producer = producer or self._producer(wire, f"lasting-{number}", v2=number % 2 == 0)
                went_well = False
                with self._surviving(producer):
                    if fresh:
                        producer.init_producer_id()
                    with self._lock:
                        self.lasting.add(producer.known.producer_id)
                    self._transaction(producer, rng, rng.choice(("commit", "commit", "abort")))
                    went_well = True
                # A new one ends what this one left open.
                producer = producer if went_well else None

    def _producer(self, wire: Wire, name: str, *, v2: bool) -> Producer:
        return Producer(wire, name, timeout_ms=TRAFFIC_TIMEOUT_MS, v2=v2, deadline_s=6.0)

    def _transaction(self, producer: Producer, rng: random.Random, fate: str) -> None:
        topics = [*TRAFFIC_TOPICS, DOOMED] if rng.random() < 0.2 else [*TRAFFIC_TOPICS]
        for topic in rng.sample(topics, rng.choice((1, 2, 2, 3))):
            index = 0 if topic == DOOMED else rng.randrange(3)
            self._note(producer, f"writes to {topic}-{index}")
            producer.write(topic, index, [b"record"])
            self._stop.wait(rng.uniform(0.0, 0.2))
        self._stop.wait(rng.choice((0.0, 0.3, 2.0)))
        self._note(producer, fate)
        if fate != "walk away":
            producer.end(commit=fate == "commit")
            self._note(producer, "was told that it ended")
        with self._lock:
            self.fates[fate] += 1

    @contextmanager
    def _surviving(self, producer: Producer) -> Iterator[None]:
        try:
            yield
        except (DemoError, RequestFailed) as error:
            if producer.identity is not None:
                self._note(producer, f"gives up: {error}")
            with self._lock:
                self.fates["error"] += 1

    def _note(self, producer: Producer, act: str) -> None:
        known = producer.known
        with self._lock:
            text = f"'{producer.transactional_id}' at epoch {known.producer_epoch} {act}"
            self.acts[known.producer_id].append((now_ms(), text))

    def came_back(self, accusation: Accusation) -> bool:
        """Whether the accused belongs to an id that was used again after the sweep."""
        producer_id = accusation.judged.observation.producer_id
        with self._lock:
            later = [act for at_ms, act in self.acts[producer_id] if at_ms > accusation.at_ms and "writes to" in act]
            return producer_id in self.lasting and bool(later)


class Sleepers:
    """Innocents: one transaction for each partition of `__transaction_state`, open from the start of a run to its end,
    when it commits. Every coordinator that a sweep fails to see has one to lose.
    """

    def __init__(self, wire: Wire) -> None:
        self._producers: list[Producer] = []
        create_topic(wire, "held", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        create_topic(wire, "held-alone", [[1], [2], [3]])
        partitions = len(wire.view([TRANSACTION_STATE_TOPIC]).partitions)
        for k in range(partitions):
            names = (f"sleeper-{number}" for number in count())
            name = next(name for name in names if coordinator_partition(name, partitions) == k)
            # Every other one as old clients do.
            producer = Producer(wire, name, v2=k % 2 == 0)
            producer.init_producer_id()
            for topic in ("held", "held-alone"):
                producer.write(topic, k % 3, [b"held"])
            self._producers.append(producer)

    def end(self) -> None:
        for producer in self._producers:
            producer.end(commit=True)


# --- the cluster and what is on it -----------------------------------------------------------------------------------


@dataclass
class World:
    """A cluster, what was planted on it, and who uses it. `wire` is for one thread at a time."""

    name: str
    cluster: KafkaCluster
    wire: Wire
    traffic: Traffic
    planted: list[Known] = field(default_factory=list)
    # Every one that was ever planted, those on topics that are deleted since included.
    ever_planted: set[Identity] = field(default_factory=set)

    def remember(self, planted: Planted, *reasons: str) -> None:
        topic_id = self.wire.partition(planted.topic, planted.partition).topic_id
        key = (planted.topic, topic_id, planted.partition, planted.producer_id, planted.start_offset)
        self.ever_planted.add(key)
        self.planted = [*self.planted, Known(key, reasons)]

    def forget(self, topic: str) -> None:
        self.planted = [known for known in self.planted if known.key[0] != topic]

    def plant(self) -> None:
        self.remember(plant.committed_but_hanging(self.cluster).hanging, "maybe_committed")
        self.remember(plant.orphan(self.wire), "orphan")
        self.remember(plant.orphan_from_the_future(self.wire), "orphan")
        self.remember(plant.stale_epoch(self.wire), "stale_epoch")
        # After 15 minutes its owner's transaction is aborted, which raises the owner's epoch.
        self.remember(plant.live_epoch(self.wire), "live_epoch", "stale_epoch")
        self.remember(plant.orphan(self.wire, DOOMED), "orphan")


# --- faults ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """Something that breaks and heals; both return when the brokers are done with it. `kind` is for counting."""

    kind: str
    what: str
    strike: Callable[[], None]
    heal: Callable[[], None]


def killed(world: World, rng: random.Random) -> Fault:
    victim = rng.choice(world.cluster.broker_ids)
    return Fault(
        "SIGKILL",
        f"SIGKILL of broker {victim}",
        lambda: world.cluster.kill_broker(victim),
        lambda: world.cluster.start_broker(victim),
    )


def stopped(world: World, rng: random.Random) -> Fault:
    """In good order. Where `__transaction_state` is not replicated, a part of it is offline meanwhile."""
    victim = rng.choice(world.cluster.broker_ids)
    return Fault(
        "SIGTERM" if world.name == "replicated" else "__transaction_state partly offline",
        f"SIGTERM of broker {victim}",
        lambda: world.cluster.stop_broker(victim),
        lambda: world.cluster.start_broker(victim),
    )


def paused(world: World, rng: random.Random) -> Fault:
    """For a moment, or until the others have given the broker up: it then wakes believing in what it led."""
    victim = rng.choice(world.cluster.broker_ids)
    others = [broker_id for broker_id in world.cluster.broker_ids if broker_id != victim]
    given_up = rng.random() < 0.7

    def strike() -> None:
        world.cluster.pause_broker(victim)
        if given_up:
            world.cluster.wait_for_brokers(others)

    def heal() -> None:
        world.cluster.resume_broker(victim)
        world.cluster.wait_for_brokers(world.cluster.broker_ids)

    return Fault("SIGSTOP", f"SIGSTOP of broker {victim}{', given up' if given_up else ''}", strike, heal)


def restarted(world: World, rng: random.Random) -> Fault:
    return Fault("full restart", "SIGKILL of all brokers", world.cluster.stop, world.cluster.start)


def leaders_moved(world: World, rng: random.Random) -> Fault:
    def move() -> None:
        moved = [p.key for p in world.wire.view().partitions if not p.topic.startswith("__") and rng.random() < 0.5]
        rotate(world.wire, moved)

    return Fault("leader moves", "leaders move", move, move)


def coordinators_moved(world: World, rng: random.Random) -> Fault:
    def move() -> None:
        every = [p.key for p in world.wire.view([TRANSACTION_STATE_TOPIC]).partitions]
        rotate(world.wire, rng.sample(every, rng.randint(2, len(every))))

    return Fault("coordinator moves", "coordinators move", move, move)


def recreated(world: World, rng: random.Random) -> Fault:
    """Twice: with a new orphan on the new topic each time."""

    def recreate() -> None:
        world.forget(DOOMED)
        delete_topic(world.wire, DOOMED)
        world.remember(plant.orphan(world.wire, DOOMED), "orphan")

    return Fault("topic recreated", "a topic is deleted and recreated", recreate, recreate)


FAULTS = (killed, stopped, paused, restarted, leaders_moved, coordinators_moved, recreated)


def rotate(wire: Wire, keys: Sequence[Key]) -> None:
    """Gives each partition another leader: the next of its replicas, or the next broker where it has one only."""
    brokers = [broker.broker_id for broker in wire.view([]).brokers]
    wanted = {}
    for key, (_, replicas) in _placed(wire).items():
        if key in keys:
            alone = len(replicas) == 1
            wanted[key] = (
                [brokers[(brokers.index(replicas[0]) + 1) % len(brokers)]] if alone else [*replicas[1:], replicas[0]]
            )
    if not wanted:
        return
    _reassign(wire, wanted)
    wait_until(lambda: all(_placed(wire)[key][1] == wanted[key] for key in wanted), "replicas had moved")

    def led() -> bool:
        if all(_placed(wire)[key][0] == replicas[0] for key, replicas in wanted.items()):
            return True
        _elect(wire, wanted)
        return False

    wait_until(led, "leaders had moved")


def _placed(wire: Wire) -> dict[Key, tuple[int, list[int]]]:
    """Leader and replicas of every partition."""
    answer = wire.send(wire.view([]).brokers[0].broker_id, MetadataRequest(topics=None))
    return {
        (t.name, p.partition_index): (p.leader_id, list(p.replica_nodes)) for t in answer.topics for p in t.partitions
    }


def _reassign(wire: Wire, wanted: Mapping[Key, Sequence[int]]) -> None:
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=30_000,
        topics=[
            topic(
                name=name,
                partitions=[
                    topic.ReassignablePartition(partition_index=index, replicas=list(replicas))
                    for (of, index), replicas in wanted.items()
                    if of == name
                ],
            )
            for name in {name for name, _ in wanted}
        ],
    )
    answer = wire.send(wire.view([]).brokers[0].broker_id, request)
    codes = {answer.error_code, *(p.error_code for t in answer.responses for p in t.partitions)}
    if codes != {int(ErrorCode.NONE)}:
        raise DemoError(f"partitions could not be reassigned: {', '.join(map(error_name, codes))}")


def _elect(wire: Wire, wanted: Iterable[Key]) -> None:
    """Asks for the first replica of each partition to lead. What is refused may be asked again."""
    topic = ElectLeadersRequest.TopicPartitions
    indexes: dict[str, list[int]] = defaultdict(list)
    for name, index in wanted:
        indexes[name].append(index)
    wire.send(
        wire.view([]).brokers[0].broker_id,
        ElectLeadersRequest(
            election_type=_PREFERRED,
            topic_partitions=[topic(topic=name, partitions=of_topic) for name, of_topic in indexes.items()],
            timeout_ms=10_000,
        ),
    )


def delete_topic(wire: Wire, topic: str) -> None:
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000, max_version=5)
    (answer,) = wire.send(wire.view([]).brokers[0].broker_id, request).responses
    if answer.error_code != ErrorCode.NONE:
        raise DemoError(f"topic {topic} could not be deleted: {error_name(answer.error_code)}")
    for broker in wire.brokers:
        wait_until(partial(_is_gone, wire, broker.broker_id, topic), f"{topic} was gone on broker {broker.broker_id}")


def _is_gone(wire: Wire, broker_id: int, topic: str) -> bool:
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    return all(t.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for t in wire.send(broker_id, request).topics)


# --- sweeps ----------------------------------------------------------------------------------------------------------


@dataclass
class Figures:
    """What a run came to."""

    sweeps: int = 0
    failed: int = 0
    complete: int = 0
    spark: int = 0
    by_fault: Counter[str] = field(default_factory=Counter)
    complete_by_fault: Counter[str] = field(default_factory=Counter)
    rounds: Counter[str] = field(default_factory=Counter)
    planted_seen: Counter[str] = field(default_factory=Counter)
    verdicts_on_others: Counter[str] = field(default_factory=Counter)
    accusations: Counter[str] = field(default_factory=Counter)
    open_for_ever: dict[str, int] = field(default_factory=dict)
    traffic: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


class Sweeper:
    """Sweeps a world and keeps what the sweeps said.

    impatient: a client.properties with short timeouts, so that a broker that is gone costs seconds.
    spark: makes the Spark session that every `spark_every`-th sweep uses; none does when it is None.
    """

    def __init__(
        self,
        world: World,
        figures: Figures,
        directory: Path,
        spark: Callable[[], SparkSession] | None,
        spark_every: int,
    ) -> None:
        self._world = world
        self._figures = figures
        self._impatient = directory / "impatient.properties"
        self._impatient.write_text("request.timeout.ms=4000\nsocket.connection.setup.timeout.ms=2000\n")
        self._tables = str(directory / f"tables-{world.name}")
        self._spark = spark
        self._spark_every = spark_every
        self.accusations: list[Accusation] = []

    def sweep(
        self, fault: Fault | None, moment: str, progress: Callable[[str, int, int], None] = lambda *_: None
    ) -> Scan | None:
        """One sweep, checked. None where no broker answered at all."""
        figures, before, started_s = self._figures, self._world.planted, time.monotonic()
        kind = fault.kind if fault is not None else "none"
        on_spark = self._spark is not None and (figures.sweeps + 1) % self._spark_every == 0
        name = f"#{figures.sweeps + 1} {self._world.name}, {fault.what if fault is not None else 'calm'}, {moment}"
        try:
            scan = self._on_spark(progress) if on_spark else self._in_threads(progress)
        except ClusterUnreachable as unreachable:
            figures.failed += 1
            say(f"{name}: failed as a whole ({str(unreachable)[:80]})")
            return None
        figures.sweeps += 1
        figures.spark += on_spark
        figures.complete += scan.complete
        figures.by_fault[kind] += 1
        figures.complete_by_fault[kind] += scan.complete
        self._check(name, scan, [known for known in before if known in self._world.planted])
        say(f"{name}{' (Spark)' if on_spark else ''}: {_line(scan)}, {time.monotonic() - started_s:.1f} s")
        return scan

    def _in_threads(self, progress: Callable[[str, int, int], None]) -> Scan:
        return find_hanging(self._config(), progress=progress)

    def _on_spark(self, progress: Callable[[str, int, int], None]) -> Scan:
        from txnscan import sweep

        assert self._spark is not None
        return sweep(self._spark(), self._config(tables=self._tables), progress=progress).scan

    def _config(self, **options: Any) -> ScanConfig:
        servers = self._world.cluster.bootstrap_servers
        return ScanConfig(servers, command_config=str(self._impatient), **options)

    def _check(self, name: str, scan: Scan, planted: Sequence[Known]) -> None:
        figures, keys = self._figures, self._world.ever_planted
        figures.violations += [f"{name}: {wrong}" for wrong in missed(scan, planted)]
        found = {identity(judged.observation): judged for judged in scan.transactions}
        for known in planted:
            verdict = str(found[known.key].judgement.verdict) if known.key in found else "absent, with an error"
            figures.planted_seen[f"{'complete' if scan.complete else 'incomplete'}: {verdict}"] += 1
        for key, judged in found.items():
            if key not in keys:
                figures.verdicts_on_others[str(judged.judgement.verdict)] += 1
            if judged.judgement.verdict is Verdict.HANGING:
                self.accusations.append(Accusation(name, scan.finished_at_ms, judged))


def _line(scan: Scan) -> str:
    verdicts = " ".join(f"{name} {number}" for name, number in scan.counts.items() if number)
    coverage = "complete" if scan.complete else "incomplete"
    return (
        f"{verdicts or 'nothing open'}; {coverage}, "
        f"coordinators {scan.coordinators_proven}/{scan.coordinators_planned}, "
        f"{scan.partitions_failed} of {scan.partitions_planned} partitions failed"
    )


class At:
    """Progress that starts an act in a thread of its own when a sweep reaches a stage; `join` raises what it raised.

    waits: the sweep goes on when the act is done, and else beside it.
    """

    def __init__(self, stage: str, act: Callable[[], None], *, waits: bool) -> None:
        self._stage = stage
        self._act = act
        self._waits = waits
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage == self._stage:
            thread = self._start()
            if self._waits:
                thread.join(THREAD_S_MAX)

    @property
    def under_way(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start(self) -> threading.Thread:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            return self._thread

    def _run(self) -> None:
        try:
            self._act()
        except BaseException as error:
            self._error = error

    def join(self) -> None:
        """Until the act is done, which begins now where the sweep never came to that stage."""
        thread = self._start()
        thread.join(THREAD_S_MAX)
        if thread.is_alive():
            raise DemoError("a fault took too long")
        if self._error is not None:
            raise self._error


def one_round(world: World, sweeper: Sweeper, fault: Fault, rng: random.Random) -> None:
    """A fault from before to after: it strikes in the middle of a sweep and heals in the middle of another, and more
    sweeps follow while the brokers are still at it, and when they are done.
    """
    for now, meanwhile, then, act in (
        ("as it strikes", "striking", "struck", fault.strike),
        ("as it heals", "healing", "healed", fault.heal),
    ):
        at = At(rng.choice(STAGES), act, waits=rng.random() < 0.4)
        sweeper.sweep(fault, now, at)
        for _ in range(rng.randint(0, 2)):
            if at.under_way:
                sweeper.sweep(fault, meanwhile)
        at.join()
        sweeper.sweep(fault, then)


def fault_order(rng: random.Random) -> Iterator[Callable[[World, random.Random], Fault]]:
    """Every fault once, in random order, again and again."""
    while True:
        yield from rng.sample(FAULTS, len(FAULTS))


# --- the end of a run ------------------------------------------------------------------------------------------------


def open_now(wire: Wire) -> set[Identity]:
    """Every open transaction, as the leaders of all partitions describe them. Raises RequestFailed."""
    found: set[Identity] = set()
    for partition in wire.view().partitions:
        if partition.leader < 0:
            raise RequestFailed(f"{partition.topic}-{partition.partition} has no leader")
        described = describe_producers(wire.send, partition.leader, [partition])[partition.key]
        if described.error is not None:
            raise RequestFailed(described.error)
        for producer in described.open_producers:
            found.add(
                (partition.topic, partition.topic_id, partition.partition, producer.producer_id, producer.start_offset)
            )
    return found


def under_way(wire: Wire) -> set[str]:
    """Transactional ids that a coordinator has still something to do for. Raises RequestFailed."""
    busy = set()
    for broker in wire.brokers:
        answer = wire.send(broker.broker_id, ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
        if answer.error_code != ErrorCode.NONE:
            raise RequestFailed(error_name(answer.error_code))
        busy |= {s.transactional_id for s in answer.transaction_states if s.transaction_state not in ENDED_STATES}
    return busy


def settle(world: World, sleepers: Sleepers) -> set[Identity]:
    """Stops everybody and waits until nothing changes any more. What is open then is open for ever."""
    world.traffic.stop()
    sleepers.end()
    owners = {"invoices-service"}  # the live epoch's, whose transaction is meant to stay
    wait_until(lambda: under_way(world.wire) <= owners, "coordinators had nothing left to do", QUIET_S_MAX)
    last: list[tuple[float, set[Identity]]] = []

    def unchanged() -> bool:
        now_s, found = time.monotonic(), open_now(world.wire)
        if not last or last[-1][1] != found:
            last[:] = [(now_s, found)]
        return now_s - last[-1][0] > SETTLED_S

    wait_until(unchanged, "nothing changed any more", QUIET_S_MAX)
    return last[-1][1]


def audit(world: World, sweeper: Sweeper, figures: Figures, for_ever: set[Identity]) -> None:
    """Holds what the sweeps said against what became of it."""
    topics = {(p.topic, p.topic_id) for p in world.wire.view().partitions}
    for key in {known.key for known in world.planted} - for_ever:
        figures.violations.append(f"{world.name}: planted {key} has ended by itself")
    for accusation in sweeper.accusations:
        fate = fate_of(world, accusation, topics, for_ever)
        figures.accusations[fate] += 1
        if fate == "FALSE":
            figures.violations.append(_false_accusation(world, accusation))
    final = sweeper.sweep(None, "in the end")
    if final is None or not final.complete:
        figures.violations.append(f"{world.name}: the last sweep of a healed cluster was not complete")
        for error in final.errors if final is not None else ():
            say(f"  {error}")
        return
    verdicts = {identity(judged.observation): judged.judgement for judged in final.transactions}
    for key in for_ever:
        topic, _, index, _, _ = key
        verdict = verdicts.get(key)
        # The other half of the planted live epoch: its owner holds it, and is given 15 minutes.
        held = (topic, index) == ("invoices", 0)
        if not held and (verdict is None or verdict.verdict is not Verdict.HANGING):
            figures.violations.append(f"{world.name}: {key} is open for ever, and the last sweep says {verdict}")


def fate_of(world: World, accusation: Accusation, topics: set[tuple[str, str]], for_ever: set[Identity]) -> str:
    """What became of what was accused. topics: those that are there now, with their ids; for_ever: what stays open."""
    key = identity(accusation.judged.observation)
    if key in world.ever_planted:
        return "of what was planted"
    if key in for_ever:
        return "of what the faults made hang"
    if key[:2] not in topics:
        return "on a topic that was deleted since"
    if accusation.reason in EXCUSABLE and world.traffic.came_back(accusation):
        return "ended by its own client's return"
    return "FALSE"


def _false_accusation(world: World, accusation: Accusation) -> str:
    observation = accusation.judged.observation
    acts = "\n".join(f"  {at_ms} {act}" for at_ms, act in world.traffic.acts.get(observation.producer_id, ()))
    return (
        f"FALSE ACCUSATION in {accusation.sweep} at {accusation.at_ms}: {identity(observation)} was called hanging "
        f"({accusation.reason}) and has ended.\n{json.dumps(asdict(accusation.judged), indent=2)}\n"
        f"What its client did:\n{acts or '  unknown'}"
    )


# --- one fault in full -----------------------------------------------------------------------------------------------


def skipped_marker(figures: Figures, directory: Path) -> None:
    """What chance hardly ever meets: a marker that was skipped, and is sent after all.

    A commit finds one partition without a leader (it is skipped, KAFKA-20734) and another that takes no writes (so the
    coordinator stays in PrepareCommit). When the first is back it is open, and its coordinator does not list it. The
    log of the coordinator still does: the next coordinator sends the marker. Who called it hanging was wrong. Five
    brokers, so that a quorum outlives two of them.
    """
    with KafkaCluster(directory / "skipped-marker", brokers=5) as cluster, cluster.wire() as wire:
        create_topic(wire, "skipped", [[3]])
        create_topic(wire, "awaited", [[2, 4]], {"min.insync.replicas": "2"})
        producer = plant.coordinated_by(wire, 1, "torn")
        for topic in ("skipped", "awaited"):
            producer.write(topic, 0, [b"record"])
        producer_id, owner = producer.known.producer_id, str(producer.transactional_id)
        cluster.stop_broker(3)
        cluster.stop_broker(4)
        cluster.wait_for_brokers(cluster.running)
        producer.end(commit=True)
        wait_until(lambda: plant.describe_owner(wire, owner).partitions == ("awaited-0",), "a marker was skipped")
        cluster.start_broker(3)
        cluster.wait_for_leader("skipped", 0, 3)
        scan = find_hanging(ScanConfig(cluster.bootstrap_servers))
        said = [j.judgement for j in scan.transactions if j.observation.topic == "skipped"]
        say(f"a skipped marker, its coordinator in PrepareCommit: {_line(scan)}")
        if [judgement.verdict for judgement in said] != [Verdict.INDETERMINATE]:
            figures.violations.append(f"a marker that the next coordinator sends was not waited for: {said}")
        cluster.stop_broker(1)
        cluster.wait_for_brokers(cluster.running)
        wait_until(
            lambda: plant.open_transaction(wire, "skipped", 0, producer_id) is None, "the next coordinator ended it"
        )


# --- the run ---------------------------------------------------------------------------------------------------------


def run_on(
    name: str,
    properties: Mapping[str, str],
    sweeps: int,
    seed: int,
    figures: Figures,
    directory: Path,
    spark: Callable[[], SparkSession] | None,
    spark_every: int,
) -> None:
    """As many sweeps on a cluster of its own, and the audit."""
    rng = random.Random(f"{seed}-{name}")
    wanted = figures.sweeps + sweeps
    with KafkaCluster(directory / name, properties={**COMMON, **properties}) as cluster, cluster.wire() as wire:
        world = World(name, cluster, wire, Traffic(cluster, f"{seed}-{name}"))
        say(f"{name}: planting")
        world.plant()
        sleepers = Sleepers(wire)
        world.traffic.start()
        sweeper = Sweeper(world, figures, directory, spark, spark_every)
        try:
            for make in fault_order(rng):
                if figures.sweeps >= wanted - 1:
                    break
                fault = make(world, rng)
                figures.rounds[fault.kind] += 1
                one_round(world, sweeper, fault, rng)
                sweeper.sweep(None, "between two faults")
            say(f"{name}: waiting until nothing changes any more")
            for_ever = settle(world, sleepers)
        finally:
            with suppress(DemoError):
                world.traffic.stop()
        figures.open_for_ever[name] = len(for_ever)
        figures.traffic.update(world.traffic.fates)
        audit(world, sweeper, figures, for_ever)


def report(figures: Figures, seed: int, seconds: float) -> dict[str, Any]:
    """The figures, for people and machines."""
    return {
        "seed": seed,
        "seconds": round(seconds),
        "sweeps": figures.sweeps,
        "sweeps that failed as a whole": figures.failed,
        "on Spark": figures.spark,
        "complete": figures.complete,
        "by fault": {
            kind: {"rounds": figures.rounds[kind], "sweeps": many, "complete": figures.complete_by_fault[kind]}
            for kind, many in sorted(figures.by_fault.items())
        },
        "planted": dict(sorted(figures.planted_seen.items())),
        "verdicts on all else": dict(figures.verdicts_on_others),
        "accusations": sum(figures.accusations.values()),
        "accusations by what became of them": dict(figures.accusations),
        "false accusations": figures.accusations["FALSE"],
        "open for ever at the end": figures.open_for_ever,
        "transactions of the traffic": dict(figures.traffic),
        "violations": len(figures.violations),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs and reports; 1 on any violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove.faults", description=__doc__.split("\n\n")[0])
    parser.add_argument("--sweeps", type=int, default=100, help="at least so many, over both clusters")
    parser.add_argument("--seed", type=int, default=1, help="decides the faults and their order")
    parser.add_argument("--spark-every", type=int, default=12, help="every so many sweeps one on Spark; 0 for none")
    options = parser.parse_args(arguments)
    figures, started_s = Figures(), time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="txnscan-faults-"))
    with ExitStack() as stack:
        spark = spark_once(stack) if options.spark_every else None
        of_first = options.sweeps * 3 // 5
        for name, properties, sweeps in (
            ("replicated", {}, of_first),
            ("unreplicated", UNREPLICATED, options.sweeps - of_first),
        ):
            run_on(name, properties, sweeps, options.seed, figures, directory, spark, options.spark_every)
        skipped_marker(figures, directory)
    for violation in figures.violations:
        say(f"VIOLATION: {violation}")
    print(json.dumps(report(figures, options.seed, time.monotonic() - started_s), indent=2))  # noqa: T201
    if figures.violations:
        say(f"The same faults again: python -m tests.prove.faults --sweeps {options.sweeps} --seed {options.seed}")
        say(f"The brokers' logs and data are in {directory}")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


def spark_once(stack: ExitStack) -> Callable[[], SparkSession]:
    """Makes a session when first asked, and stops it with the stack."""
    made: list[SparkSession] = []

    def session() -> SparkSession:
        if not made:
            from txnscan.session import spark_session

            made.append(spark_session("local[2]", app_name="txnscan-faults"))
            stack.callback(made[0].stop)
        return made[0]

    return session


if __name__ == "__main__":
    sys.exit(main())
