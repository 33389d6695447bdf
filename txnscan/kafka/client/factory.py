"""One client for each sweep in a process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from txnscan.kafka.client.client import Client
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.deadline import Deadline, TimeLeft
from txnscan.kafka.topology import Broker

_CLIENTS_MAX = 8


@dataclass(frozen=True, slots=True)
class ClientFactory:
    """Creates or returns the client of a sweep in this process. time_left: the rest of the sweep's time, if limited."""

    sweep_id: str
    settings: ConnectionSettings
    brokers: tuple[Broker, ...]
    time_left: TimeLeft | None = None

    _lock: ClassVar[threading.Lock] = threading.Lock()
    # The clients of the last few sweeps, oldest first. Several sweeps may run at once, and an executor does not learn
    # when a sweep ends.
    _clients: ClassVar[dict[str, Client]] = {}
    # The sweeps that this process drives (`driven`). It closes their clients itself.
    _driven: ClassVar[set[str]] = set()

    def client(self) -> Client:
        """This process's client for the sweep."""
        with ClientFactory._lock:
            client = ClientFactory._clients.get(self.sweep_id)
            if client is None:
                idle = [sweep_id for sweep_id in ClientFactory._clients if sweep_id not in ClientFactory._driven]
                for sweep_id in idle[: max(0, len(idle) + 1 - _CLIENTS_MAX)]:
                    ClientFactory._clients.pop(sweep_id).close()
                client = ClientFactory._clients[self.sweep_id] = Client(
                    self.settings, deadline=Deadline(self.time_left)
                )
        client.learn(self.brokers)
        return client

    @contextmanager
    def driven(self) -> Iterator[None]:
        """Within this context, no other sweep of this process closes the client, for any number of sweeps. A process
        that watches many clusters drives as many sweeps at once.
        """
        with ClientFactory._lock:
            ClientFactory._driven.add(self.sweep_id)
        try:
            yield
        finally:
            with ClientFactory._lock:
                ClientFactory._driven.discard(self.sweep_id)

    def close(self) -> None:
        """Closes this process's client of the sweep, if there is one."""
        with ClientFactory._lock:
            client = ClientFactory._clients.pop(self.sweep_id, None)
        if client is not None:
            client.close()
