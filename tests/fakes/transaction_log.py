"""A transaction log on a fake cluster."""

from __future__ import annotations

import itertools
from typing import Any

from tests.builders import said
from tests.fakes.cluster import FakeCluster, FakePartition, partition
from tests.sim.encode import transaction_log_value
from tests.sim.records import TransactionMetadata
from txnscan.kafka.answers import State
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC as STATE
from txnscan.kafka.topology import Key
from txnscan.txnlog.decode import transactional_id_key
from txnscan.txnlog.rows import LogRow

LEADERS = (1, 2, 3)
P = ("p", 0)
Record = tuple[bytes | None, bytes | None]


def id_for(k: int, prefix: str = "app") -> str:
    """A transactional id on partition k of three."""
    return next(name for n in itertools.count() if coordinator_partition(name := f"{prefix}-{n}", len(LEADERS)) == k)


def record(name: str, state: State, epoch: int = 3, producer_id: int = 7, partitions: tuple[Key, ...] = ()) -> Record:
    metadata = TransactionMetadata(producer_id, epoch, state.value, frozenset(partitions))
    return transactional_id_key(name), transaction_log_value(metadata, 1_700_000_000_000)


def history(name: str, producer_id: int = 7) -> list[Record]:
    return [
        record(name, State.EMPTY, 3, producer_id),
        record(name, State.ONGOING, 3, producer_id, (P,)),
        record(name, State.PREPARE_COMMIT, 3, producer_id, (P,)),
        record(name, State.COMPLETE_COMMIT, 3, producer_id),
    ]


LOG = partition(STATE, 0)


def log_of(*batches: bytes, **changes: Any) -> FakeCluster:
    """A cluster with these batches in the log."""
    cluster = FakeCluster()
    cluster.partitions[STATE, 0] = kept = FakePartition(**{"high_watermark": 0, **changes})
    for one in batches:
        kept.write(one)
    return cluster


def kept(row: LogRow) -> list[tuple[int, str]]:
    assert said(row.failure) is None
    return [(one.offset, one.transactional_id) for one in row.records]
