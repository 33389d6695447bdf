"""What a read of the transaction log is given, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass

from txnscan.kafka.answers import EpochEnd
from txnscan.kafka.failure import Failure
from txnscan.txnlog.facts import RawRecord


@dataclass(frozen=True, slots=True)
class LogRow:
    """What a partition of `__transaction_state` holds of some ids, up to the offset that was reached, or the failure.

    unserved: the failure is that the broker which all brokers name as its leader did not serve it. contiguous_from:
    from there to the end of what was read no offset is missing. expected: the offset that comes next. read_bytes: bytes
    of the log, as brokers sent them. epoch_ends: of all leader epochs that batches have.
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
