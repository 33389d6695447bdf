"""States of replicas, of which some take no writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from txnscan.kafka.topology import NO_LEADER_ID, TRANSACTION_STATE_TOPIC, Key, PartitionReplicas
from txnscan.waiting.writability import (
    WriteState,
)

P0, Q0 = ("p", 0), ("q", 0)


LOG: Key = (TRANSACTION_STATE_TOPIC, 0)


def replicas(
    in_sync: tuple[int, ...] = (1, 2, 3), key: Key = P0, *, leader: int | None = None, **changes: Any
) -> PartitionReplicas:
    """Three replicas, of which these are in sync. The first of them leads."""
    first = in_sync[0] if in_sync else NO_LEADER_ID
    base = PartitionReplicas(*key, first if leader is None else leader, (1, 2, 3), in_sync)
    return replace(base, **changes)


def state(
    in_sync: tuple[int, ...] = (1, 2, 3), key: Key = P0, min_in_sync: int | None = 2, **changes: Any
) -> WriteState:
    return WriteState(replicas(in_sync, key, **changes), min_in_sync)
