"""The reads as tasks for a thread of the driver or an executor. A task uses the client of its process, and its clock.

An executor process keeps one client while it works for a sweep, so that its tasks share connections and the knowledge
of dead brokers. A task reads no files: it carries its connection settings and addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from txnscan.kafka.client.factory import ClientFactory
from txnscan.reads.fenced_read import FencedReading, read_offsets, read_wide
from txnscan.reads.rows import FencedRow, OffsetsRow, ReadBatch, WideBatch, WideRow


@dataclass(frozen=True, slots=True)
class ReadWide:
    """The wide read of one batch. Picklable."""

    clients: ClientFactory

    def __call__(self, batch: WideBatch) -> Iterable[WideRow]:
        return read_wide(batch, self.clients.client().send)


@dataclass(frozen=True, slots=True)
class ReadFenced:
    """A fenced read of one batch. Picklable. how: one of the functions in `fenced_read.py`. now_ms: the clock of the
    process that reads.
    """

    clients: ClientFactory
    how: FencedReading
    now_ms: Callable[[], int]

    def __call__(self, batch: ReadBatch) -> Iterable[FencedRow]:
        return self.how(batch, self.clients.client().send, self.now_ms)


@dataclass(frozen=True, slots=True)
class ReadOffsets:
    """The offsets of the partitions of one batch. Picklable."""

    clients: ClientFactory

    def __call__(self, batch: ReadBatch) -> Iterable[OffsetsRow]:
        return read_offsets(batch, self.clients.client().send)
