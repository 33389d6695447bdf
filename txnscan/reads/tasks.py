"""The reads as tasks, for a thread of the driver or an executor: with the client of the process, and its clock.

An executor process keeps one client for as long as it works for one sweep, so that its tasks share connections and
what is known of dead brokers. Nothing is read from disk: connection settings and addresses travel with the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from txnscan.kafka.client.factory import ClientFactory
from txnscan.reads.fenced_read import read_fenced, read_offsets, read_wide
from txnscan.reads.rows import FencedRow, OffsetsRow, ReadBatch, WideBatch, WideRow


@dataclass(frozen=True, slots=True)
class ReadWide:
    """Picklable: the wide read of one batch."""

    clients: ClientFactory

    def __call__(self, batch: WideBatch) -> Iterable[WideRow]:
        return read_wide(batch, self.clients.client().send)


@dataclass(frozen=True, slots=True)
class ReadFenced:
    """Picklable: the fenced read of one batch. now_ms: the clock where the batch is read."""

    clients: ClientFactory
    now_ms: Callable[[], int]

    def __call__(self, batch: ReadBatch) -> Iterable[FencedRow]:
        return read_fenced(batch, self.clients.client().send, self.now_ms)


@dataclass(frozen=True, slots=True)
class ReadOffsets:
    """Picklable: the offsets of the partitions of one batch."""

    clients: ClientFactory

    def __call__(self, batch: ReadBatch) -> Iterable[OffsetsRow]:
        return read_offsets(batch, self.clients.client().send)
