"""Requests to brokers that stop and start again.

The sweep's `Client` is for one sweep: it never retries an unreachable broker, and if a broker ended while a connection
was idle, kafka-python backs off for up to half a minute. The demo stops and starts brokers. So here each broker has its
own client, which is replaced after a failure or a pause.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from txnscan.demo.wait import wait_until
from txnscan.kafka.client.client import Client
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.metadata import read_metadata
from txnscan.kafka.topology import Broker, ClusterView, Partition

_SETTINGS = ConnectionSettings(client_id="txnscan-demo", request_timeout_ms=10_000, connection_setup_timeout_ms=3_000)
# A connection that was idle for longer is not reused. A broker needs more time than this to restart.
_IDLE_S_MAX = 0.5
# The brokers' default transaction.max.timeout.ms.
TIMEOUT_MS_MAX = 900_000


class Wire:
    """`send(broker_id, request)` to these brokers. Use it from one thread at a time.

    transactions_v2: whether the brokers use transactions v2, for producers that write through this.
    transaction_timeout_ms: the longest that the brokers allow.
    Close it, or use it as a context manager.
    """

    def __init__(
        self,
        brokers: Sequence[Broker],
        settings: ConnectionSettings = _SETTINGS,
        *,
        transactions_v2: bool = True,
        transaction_timeout_ms: int = TIMEOUT_MS_MAX,
    ) -> None:
        self.brokers = tuple(brokers)
        self.transactions_v2 = transactions_v2
        self.transaction_timeout_ms = transaction_timeout_ms
        self._settings = settings
        self._clients: dict[int, Client] = {}
        self._used_at_s: dict[int, float] = {}

    def send(self, broker_id: int, request: Any) -> Any:
        """The broker's answer. Raises RequestFailed; the next request may still succeed."""
        if time.monotonic() - self._used_at_s.get(broker_id, 0.0) > _IDLE_S_MAX:
            self._forget(broker_id)
        if broker_id not in self._clients:
            here = [broker for broker in self.brokers if broker.broker_id == broker_id]
            self._clients[broker_id] = Client(self._settings, here)
        try:
            answer = self._clients[broker_id].send(broker_id, request)
        except RequestFailed:
            self._forget(broker_id)
            raise
        self._used_at_s[broker_id] = time.monotonic()
        return answer

    def view(self, topics: Iterable[str] | None = None) -> ClusterView:
        """The Metadata of the first broker that answers. Raises RequestFailed."""
        wanted = None if topics is None else tuple(topics)
        failure = RequestFailed("there is no broker to ask")
        for broker in self.brokers:
            try:
                return read_metadata(self.send, broker.broker_id, wanted)
            except RequestFailed as failed:
                failure = failed
        raise failure

    def any_broker(self) -> int:
        """A running broker; it forwards requests for the controller. Raises RequestFailed."""
        return self.view([]).brokers[0].broker_id

    def partition(self, topic: str, partition: int) -> Partition:
        """That partition with its leader, after waiting for one. Raises DemoError."""
        return wait_until(lambda: self._led(topic, partition), f"{topic}-{partition} had a leader")

    def _led(self, topic: str, partition: int) -> Partition | None:
        for found in self.view([topic]).partitions:
            if found.key == (topic, partition) and found.leader >= 0:
                return found
        return None

    def _forget(self, broker_id: int) -> None:
        if (client := self._clients.pop(broker_id, None)) is not None:
            client.close()

    def close(self) -> None:
        """Closes all connections."""
        for broker_id in tuple(self._clients):
            self._forget(broker_id)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
