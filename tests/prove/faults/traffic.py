"""The users of the cluster: clients that come and go, and healthy transactions that stay open during the whole run."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import count

from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.errors import DemoError
from txnscan.demo.producer import Producer
from txnscan.demo.requests import Wire
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC

# A topic that is deleted and recreated while clients write to it.
DOOMED = "doomed"
# Topics, with the brokers of each partition: some partitions lose their only replica, some accept a marker only with
# two replicas.
_TOPICS: Mapping[str, tuple[Sequence[Sequence[int]], Mapping[str, str]]] = {
    "orders": ([[1, 2, 3], [2, 3, 1], [3, 1, 2]], {}),
    "lonely": ([[1], [2], [3]], {}),
    "strict": ([[1, 2], [2, 3], [3, 1]], {"min.insync.replicas": "2"}),
}
_TIMEOUT_MS = 10_000
_DEADLINE_S = 6.0
_STOP_S_MAX = 240.0


class Traffic:
    """Clients in their own threads. Most clients use a transactional id for one transaction and never return: they
    commit, abort, or abandon it. Some keep their id, and continue with it after errors.

    acts: by producer id: the actions with their times, as text. fates: how many transactions ended in which way.
    """

    def __init__(self, cluster: KafkaCluster, seed: str, *, once: int = 3, lasting: int = 2) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._last_write_ms: dict[int, int] = {}
        self.acts: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self.fates: Counter[str] = Counter()
        self._threads = [
            threading.Thread(target=run, args=(number, random.Random(f"{seed}-{kind}-{number}")), daemon=True)
            for kind, run, many in (("once", self._run_once, once), ("lasting", self._run_lasting, lasting))
            for number in range(many)
        ]

    def start(self) -> None:
        with self._cluster.wire() as wire:
            for topic, (replicas, configs) in _TOPICS.items():
                create_topic(wire, topic, replicas, configs)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(_STOP_S_MAX)
            if thread.is_alive():
                raise DemoError("a client did not stop")

    def came_back(self, producer_id: int, since_ms: int) -> bool:
        """Whether this producer id belongs to a client that keeps its id, and wrote after that time."""
        with self._lock:
            return self._last_write_ms.get(producer_id, 0) > since_ms

    def _run_once(self, number: int, rng: random.Random) -> None:
        with self._cluster.wire() as wire:
            for turn in count():
                if self._stop.wait(rng.uniform(0.0, 0.3)):
                    return
                producer = _producer(wire, f"once-{number}-{turn}", v2=rng.random() < 0.7)
                self._survive(producer, rng, rng.choice(("commit", "commit", "commit", "abort", "walk away")))

    def _run_lasting(self, number: int, rng: random.Random) -> None:
        with self._cluster.wire() as wire:
            producer: Producer | None = None
            while not self._stop.wait(rng.uniform(0.0, 0.3)):
                producer = producer or _producer(wire, f"lasting-{number}", v2=number % 2 == 0)
                fate = rng.choice(("commit", "commit", "abort"))
                if not self._survive(producer, rng, fate, lasting=True):
                    # A new producer ends the open transaction of this producer.
                    producer = None

    def _survive(self, producer: Producer, rng: random.Random, fate: str, *, lasting: bool = False) -> bool:
        """Runs one transaction. Returns False if it ended in an error."""
        try:
            if producer.identity is None:
                producer.init_producer_id()
            self._transaction(producer, rng, fate, lasting)
        except (DemoError, RequestFailed) as error:
            if producer.identity is not None:
                self._note(producer, f"gives up: {error}")
            fate = "error"
        with self._lock:
            self.fates[fate] += 1
        return fate != "error"

    def _transaction(self, producer: Producer, rng: random.Random, fate: str, lasting: bool) -> None:
        topics = [*_TOPICS, DOOMED] if rng.random() < 0.2 else [*_TOPICS]
        for topic in rng.sample(topics, rng.choice((1, 2, 2, 3))):
            index = 0 if topic == DOOMED else rng.randrange(3)
            written_at_ms = self._note(producer, f"writes to {topic}-{index}")
            if lasting:
                with self._lock:
                    self._last_write_ms[producer.known.producer_id] = written_at_ms
            producer.write(topic, index, [b"record"])
            self._stop.wait(rng.uniform(0.0, 0.2))
        self._stop.wait(rng.choice((0.0, 0.3, 2.0)))
        self._note(producer, fate)
        if fate != "walk away":
            producer.end(commit=fate == "commit")
            self._note(producer, "was told that it ended")

    def _note(self, producer: Producer, act: str) -> int:
        """Records an action with the present time, and returns that time."""
        known, at_ms = producer.known, time.time_ns() // 1_000_000
        with self._lock:
            self.acts[known.producer_id].append(
                (at_ms, f"'{producer.transactional_id}' at epoch {known.producer_epoch} {act}")
            )
        return at_ms


class Sleepers:
    """Healthy transactions: one for each partition of `__transaction_state`, open from the start of a run to its end,
    when it commits. So if a sweep fails to see a coordinator, it loses such a transaction.
    """

    def __init__(self, wire: Wire) -> None:
        self._producers: list[Producer] = []
        create_topic(wire, "held", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        create_topic(wire, "held-alone", [[1], [2], [3]])
        partitions = len(wire.view([TRANSACTION_STATE_TOPIC]).partitions)
        for k in range(partitions):
            names = (f"sleeper-{number}" for number in count())
            name = next(name for name in names if coordinator_partition(name, partitions) == k)
            # Half of them behave like old clients.
            producer = Producer(wire, name, v2=k % 2 == 0)
            producer.init_producer_id()
            for topic in ("held", "held-alone"):
                producer.write(topic, k % 3, [b"held"])
            self._producers.append(producer)

    def end(self) -> None:
        for producer in self._producers:
            producer.end(commit=True)


def _producer(wire: Wire, name: str, *, v2: bool) -> Producer:
    return Producer(wire, name, timeout_ms=_TIMEOUT_MS, v2=v2, deadline_s=_DEADLINE_S)
