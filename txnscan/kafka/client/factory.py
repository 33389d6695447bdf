"""One client for each sweep in a process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

from txnscan.kafka.client.client import Client
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.deadline import Deadline, TimeLeft
from txnscan.kafka.topology import Broker

_CLIENTS_MAX = 8
# For an answer of the active controller. Controllers that have a majority answer within a second.
_CONTROLLER_MS_MAX = 8_000


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

    def for_controller(self) -> ClientFactory:
        """The same for requests that a broker passes on to the active controller. Without a majority of controllers
        such a request waits for its whole time, and that says nothing about the broker. So these have their own client,
        with its own patience, and less time.
        """
        timeout_ms = min(self.settings.request_timeout_ms, _CONTROLLER_MS_MAX)
        settings = replace(self.settings, request_timeout_ms=timeout_ms)
        return replace(self, sweep_id=self._of_controller, settings=settings)

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
        """Closes this process's clients of the sweep, if there are any."""
        with ClientFactory._lock:
            clients = [ClientFactory._clients.pop(name, None) for name in (self.sweep_id, self._of_controller)]
        for client in clients:
            if client is not None:
                client.close()

    @property
    def _of_controller(self) -> str:
        return f"{self.sweep_id}-controller"
