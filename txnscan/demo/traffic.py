"""Healthy transactions, which a sweep must not report."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.errors import DemoError
from txnscan.demo.producer import Producer
from txnscan.demo.requests import Wire
from txnscan.kafka.errors import RequestFailed

_TIMEOUT_MS = 60_000
# One transaction in this many is aborted.
_ABORT_EVERY = 4
_PARTITIONS_EACH = 2
# How long each transaction stays open between its writes, and how long its producer waits before the next one: some
# transactions are always open, and most of the machine stays free.
_OPEN_S, _PAUSE_S = 0.05, 0.01


@dataclass(frozen=True, slots=True)
class TrafficCount:
    """How many transactions ended, and a sentence for each failure."""

    committed: int
    aborted: int
    errors: tuple[str, ...]


class HealthyTraffic:
    """Producers in their own threads that run short transactions over several partitions until the end of the `with`
    block. Most commit, some abort. Each producer ends its transaction before it stops.
    """

    def __init__(
        self, cluster: KafkaCluster, topic: str = "orders", *, partitions: int = 6, producers: int = 2
    ) -> None:
        self.topic = topic
        self._cluster = cluster
        self._partitions = partitions
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._committed = self._aborted = 0
        self._errors: list[str] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"{topic}-{number}", daemon=True)
            for number in range(producers)
        ]

    @property
    def count(self) -> TrafficCount:
        """The counts so far."""
        with self._lock:
            return TrafficCount(self._committed, self._aborted, tuple(self._errors))

    def __enter__(self) -> HealthyTraffic:
        ids = self._cluster.broker_ids
        replicas = [[ids[(p + r) % len(ids)] for r in range(min(3, len(ids)))] for p in range(self._partitions)]
        with self._cluster.wire() as wire:
            create_topic(wire, self.topic, replicas)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        with self._cluster.wire() as wire:
            producer = None
            turn = number
            while not self._stop.wait(_PAUSE_S):
                try:
                    producer = producer or self._new_producer(wire, number)
                    self._one_transaction(producer, turn)
                except (DemoError, RequestFailed) as error:
                    with self._lock:
                        self._errors.append(str(error))
                    # A new producer aborts the open transaction of this one.
                    producer = None
                turn += 1

    def _new_producer(self, wire: Wire, number: int) -> Producer:
        producer = Producer(
            wire, f"{self.topic}-service-{number}", timeout_ms=min(_TIMEOUT_MS, wire.transaction_timeout_ms)
        )
        producer.init_producer_id()
        return producer

    def _one_transaction(self, producer: Producer, turn: int) -> None:
        commit = turn % _ABORT_EVERY != 0
        for step in range(_PARTITIONS_EACH):
            if step:
                time.sleep(_OPEN_S)
            partition = (turn * _PARTITIONS_EACH + step) % self._partitions
            producer.write(self.topic, partition, [b"order %d.%d" % (turn, step)])
        producer.end(commit=commit)
        with self._lock:
            if commit:
                self._committed += 1
            else:
                self._aborted += 1
