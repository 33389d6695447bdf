"""What runs where the reading happens, in a driver's thread or on an executor: a process's client, a clock, a read.

An executor process keeps one client for as long as it works for one sweep, so that its tasks share connections and
what is known of dead brokers. Nothing is read from disk: connection settings and addresses travel with the task.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from txnscan.kafka.client import Client
from txnscan.kafka.connection import ConnectionSettings
from txnscan.model import Broker, NarrowRow, ReadBatch, WideRow
from txnscan.probe import read_narrow, read_wide


def wall_clock_ms() -> int:
    """Now, in epoch milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Connect:
    """How a process gets the client of a sweep."""

    sweep_id: str
    settings: ConnectionSettings
    brokers: tuple[Broker, ...]

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _current: ClassVar[tuple[str, Client] | None] = None

    def client(self) -> Client:
        """This process's client for the sweep; the client of an earlier sweep is closed."""
        with Connect._lock:
            current = Connect._current
            if current is None or current[0] != self.sweep_id:
                if current is not None:
                    current[1].close()
                current = (self.sweep_id, Client(self.settings))
                Connect._current = current
            client = current[1]
        client.learn(self.brokers)
        return client

    def close(self) -> None:
        """Closes this process's client of the sweep, if there is one."""
        with Connect._lock:
            if Connect._current is not None and Connect._current[0] == self.sweep_id:
                Connect._current[1].close()
                Connect._current = None


@dataclass(frozen=True, slots=True)
class ReadWide:
    """Picklable: the wide read of one batch."""

    connect: Connect

    def __call__(self, batch: ReadBatch) -> Iterable[WideRow]:
        return read_wide(batch, self.connect.client().send)


@dataclass(frozen=True, slots=True)
class ReadNarrow:
    """Picklable: the narrow read of one batch."""

    connect: Connect

    def __call__(self, batch: ReadBatch) -> Iterable[NarrowRow]:
        return read_narrow(batch, self.connect.client().send, wall_clock_ms)
