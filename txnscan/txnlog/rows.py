"""The result of a read of the transaction log."""

from __future__ import annotations

from dataclasses import dataclass

from txnscan.kafka.answers import EpochEnd
from txnscan.kafka.failure import Failure
from txnscan.txnlog.facts import RawRecord


@dataclass(frozen=True, slots=True)
class LogRow:
    """The records of some ids in a partition of `__transaction_state`, up to the offset `reached`, or the failure.

    unserved: the read failed because the broker that all brokers report as the leader did not serve the partition.
    contiguous_from: the read missed no offset from there to its end. expected: the next offset. read_bytes: bytes of
    the log as brokers sent them. epoch_ends: the ends of all leader epochs that batches have.
    """

    partition: int
    failure: Failure | None
    reached: int = -1
    records: tuple[RawRecord, ...] = ()
    contiguous_from: int = -1
    expected: int = -1
    unserved: bool = False
    read_bytes: int = 0
    epoch_ends: tuple[EpochEnd, ...] = ()
