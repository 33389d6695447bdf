"""The reads as tasks for a thread of the driver or an executor. A task uses the client of its process, and its clock.

An executor process keeps one client while it works for a sweep, so that its tasks share connections and the knowledge
of dead brokers. A task reads no files: it carries its connection settings and addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from txnscan.kafka.client.factory import ClientFactory
from txnscan.reads.fenced_read import read_ends, read_fenced, read_offsets, read_wide
from txnscan.reads.rows import FencedRow, OffsetsRow, ReadBatch, WideBatch, WideRow


@dataclass(frozen=True, slots=True)
class ReadWide:
    """The wide read of one batch. Picklable."""

    clients: ClientFactory

    def __call__(self, batch: WideBatch) -> Iterable[WideRow]:
        return read_wide(batch, self.clients.client().send)


@dataclass(frozen=True, slots=True)
class ReadFenced:
    """The fenced read of one batch. Picklable. now_ms: the clock of the process that reads."""

    clients: ClientFactory
    now_ms: Callable[[], int]

    def __call__(self, batch: ReadBatch) -> Iterable[FencedRow]:
        return read_fenced(batch, self.clients.client().send, self.now_ms)


@dataclass(frozen=True, slots=True)
class ReadEnds:
    """The high watermarks and last stable offsets of one batch, with proof. Picklable. now_ms: see ReadFenced."""

    clients: ClientFactory
    now_ms: Callable[[], int]

    def __call__(self, batch: ReadBatch) -> Iterable[FencedRow]:
        return read_ends(batch, self.clients.client().send, self.now_ms)


@dataclass(frozen=True, slots=True)
class ReadOffsets:
    """The offsets of the partitions of one batch. Picklable."""

    clients: ClientFactory

    def __call__(self, batch: ReadBatch) -> Iterable[OffsetsRow]:
        return read_offsets(batch, self.clients.client().send)
