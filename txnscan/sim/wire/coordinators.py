"""FindCoordinator (10), ListTransactions (66), DescribeTransactions (65): what coordinators answer."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from txnscan.kafka.compact import EMPTY, NO_TAGS, NULL, items, numbers, string
from txnscan.kafka.errors import ErrorCode
from txnscan.sim.codec import Reader
from txnscan.sim.wire.shape import ClusterShape, TransactionalId
from txnscan.sim.wire.world import HOST, RECENT_AGE_MS, World

_NO_THROTTLE = bytes(4)
_TRANSACTION = 1
_TIMEOUT_MS = 900_000
_STATES = {
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence"),
    *("Dead",),
}


def ids_by_broker(shape: ClusterShape) -> dict[int, list[TransactionalId]]:
    """The ids that each broker coordinates. A million of them take some seconds."""
    found: dict[int, list[TransactionalId]] = defaultdict(list)
    for one in shape.all_transactional_ids():
        found[shape.coordinator(one.name)].append(one)
    return found


def find_coordinator(world: World, request: Reader) -> bytes:
    """Versions 4 to 6. There are no groups."""
    is_transaction = request.number("b") == _TRANSACTION

    def coordinator(name: str) -> bytes:
        if not is_transaction:
            nobody = (-1).to_bytes(4, signed=True)
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE.to_bytes(2)
            return string(name) + nobody + string("") + nobody + error + NULL + NO_TAGS
        broker_id = shape.coordinator(name)
        address = string(HOST) + world.ports[broker_id].to_bytes(4)
        return string(name) + broker_id.to_bytes(4) + address + bytes(2) + NULL + NO_TAGS

    shape = world.shape
    return _NO_THROTTLE + items([coordinator(name) for name in request.items(request.name) or []]) + NO_TAGS


def list_transactions(
    world: World, held: dict[int, list[TransactionalId]], broker_id: int, version: int, request: Reader
) -> bytes:
    """Versions 0 to 2. Durations are counted up to the start of the cluster, and only Ongoing ones have any."""
    states, producer_ids = request.items(request.name) or [], request.numbers("q")
    duration_ms = request.number("q") if version >= 1 else -1
    pattern = request.string() if version >= 2 else None
    listed: Iterable[TransactionalId] = held.get(broker_id, ())
    if producer_ids:
        owners = (world.shape.owner(producer_id) for producer_id in producer_ids)
        listed = [one for one in owners if one is not None and world.shape.coordinator(one.name) == broker_id]
    if states:
        listed = [one for one in listed if one.state in states]
    if duration_ms >= 0:
        listed = [one for one in listed if one.ordinal is not None and duration_ms < RECENT_AGE_MS]
    if pattern:
        listed = [one for one in listed if re.fullmatch(pattern, one.name)]
    unknown = items([string(state) for state in states if state not in _STATES])
    return _NO_THROTTLE + bytes(2) + unknown + items([_listed(one) for one in listed]) + NO_TAGS


def _listed(one: TransactionalId) -> bytes:
    return string(one.name) + one.producer_id.to_bytes(8) + string(one.state) + NO_TAGS


def describe_transactions(world: World, broker_id: int, request: Reader) -> bytes:
    """Version 0."""
    described = [_described(world, broker_id, name) for name in request.items(request.name) or []]
    return _NO_THROTTLE + items(described) + NO_TAGS


def _described(world: World, broker_id: int, name: str) -> bytes:
    shape = world.shape
    if shape.coordinator(name) != broker_id:
        return _not_described(ErrorCode.NOT_COORDINATOR, name)
    one = shape.transactional_id(name)
    if one is None:
        return _not_described(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, name)
    topics, start_ms = EMPTY, -1
    if one.ordinal is not None:
        topic, index = shape.key(one.ordinal)
        topics, start_ms = items([string(topic) + numbers([index]) + NO_TAGS]), world.started_at_ms - RECENT_AGE_MS
    times = _TIMEOUT_MS.to_bytes(4) + start_ms.to_bytes(8, signed=True)
    # The producer epoch is 0.
    return (
        bytes(2) + string(name) + string(one.state) + times + one.producer_id.to_bytes(8) + bytes(2) + topics + NO_TAGS
    )


def _not_described(error: int, name: str) -> bytes:
    return error.to_bytes(2) + string(name) + string("") + bytes(4 + 8 + 8 + 2) + EMPTY + NO_TAGS
