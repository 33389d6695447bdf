"""The read of the transaction log, as a task for a thread of the driver or an executor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from txnscan.kafka.client.factory import ClientFactory
from txnscan.reads.rows import LogBatch
from txnscan.txnlog.rows import LogRow
from txnscan.txnlog.scan import read_log


@dataclass(frozen=True, slots=True)
class ReadLog:
    """The read of one partition of `__transaction_state`. Picklable."""

    clients: ClientFactory

    def __call__(self, batch: LogBatch) -> Iterable[LogRow]:
        return read_log(batch, self.clients.client().send)
