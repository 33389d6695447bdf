"""The reads as tasks for a thread of the driver or an executor. A task uses the client of its process, and its clock.

An executor process keeps one client while it works for a sweep, so that its tasks share connections and the knowledge
of dead brokers. A task reads no files: it carries its connection settings and addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from txnscan.kafka.client.factory import ClientFactory
from txnscan.kafka.client.listener import accepts
from txnscan.kafka.topology import Broker
from txnscan.reads.proven_read import ProvenReading, read_offsets, read_wide
from txnscan.reads.rows import OffsetsRow, ProvenRow, ReadBatch, WideAnswer, WideBatch

# A process tries to connect to at most this many bootstrap servers, each for at most this many seconds.
_SERVERS_TRIED = 3
_CONNECT_S = 5.0


def cannot_read(servers: Sequence[Broker]) -> str | None:
    """Why an executor cannot run these tasks, for a trial there: it can connect to none of the first servers. Without
    servers it need not. A package that tasks need and that is missing on a node fails with this module's imports.
    """
    if not servers or any(accepts(one.host, one.port, _CONNECT_S) for one in servers[:_SERVERS_TRIED]):
        return None
    return "an executor cannot connect to any bootstrap server"


@dataclass(frozen=True, slots=True)
class ReadWide:
    """The wide read of one batch. Picklable."""

    clients: ClientFactory

    def __call__(self, batch: WideBatch) -> Iterable[WideAnswer]:
        yield read_wide(batch, self.clients.client().send)


@dataclass(frozen=True, slots=True)
class ReadProven:
    """A proven read of one batch. Picklable. how: one of the functions in `proven_read.py`. now_ms: the clock of the
    process that reads.
    """

    clients: ClientFactory
    how: ProvenReading
    now_ms: Callable[[], int]

    def __call__(self, batch: ReadBatch) -> Iterable[ProvenRow]:
        return self.how(batch, self.clients.client().send, self.now_ms)


@dataclass(frozen=True, slots=True)
class ReadOffsets:
    """The offsets of the partitions of one batch. Picklable."""

    clients: ClientFactory

    def __call__(self, batch: ReadBatch) -> Iterable[OffsetsRow]:
        return read_offsets(batch, self.clients.client().send)
