"""FindCoordinator (10), ListTransactions (66), DescribeTransactions (65): the answers of coordinators."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from tests.sim.codec import Reader
from tests.sim.wire.shape import TransactionalId
from tests.sim.wire.state_log import TIMEOUT_MS
from tests.sim.wire.world import HOST, World
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.protocol.primitives import EMPTY, NO_TAGS, items, numbers, string

_NO_THROTTLE = bytes(4)
_GROUP, _TRANSACTION = 0, 1
_INVALID_REQUEST, _INVALID_REGULAR_EXPRESSION = 42, 128
# Ids in flight are described repeatedly.
_DESCRIBED_KEPT = 10_000
_STATES = {
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence"),
    *("Dead",),
}


def find_coordinator(world: World, request: Reader) -> bytes:
    """Versions 4 to 6. Without groups, groups have no coordinator."""
    kind = request.number("b")

    def coordinator(name: str) -> bytes:
        if kind != _TRANSACTION and not (kind == _GROUP and shape.groups):
            nobody = (-1).to_bytes(4, signed=True)
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE.to_bytes(2)
            return string(name) + nobody + string("") + nobody + error + string("") + NO_TAGS
        broker_id = shape.coordinator(name) if kind == _TRANSACTION else shape.group_coordinator(name)
        address = string(HOST) + world.ports[broker_id].to_bytes(4)
        return string(name) + broker_id.to_bytes(4) + address + bytes(2) + string("") + NO_TAGS

    shape = world.shape
    return _NO_THROTTLE + items([coordinator(name) for name in request.items(request.name) or []]) + NO_TAGS


def list_transactions(world: World, broker_id: int, version: int, request: Reader) -> bytes:
    """Versions 0 to 2: the ids that pass every filter; an empty filter passes all
    (`TransactionStateManager.listTransactionStates`). Durations are counted up to the start of the cluster.
    """
    states, producer_ids = request.items(request.name) or [], request.numbers("q")
    duration_ms = request.number("q") if version >= 1 else -1
    pattern = request.string() if version >= 2 else None
    try:
        matches = re.compile(pattern or ".*").fullmatch
    except re.error:
        return _NO_THROTTLE + _INVALID_REGULAR_EXPRESSION.to_bytes(2) + EMPTY + EMPTY + NO_TAGS
    listed = _of_producers(world, broker_id, producer_ids) if producer_ids else _of_broker(world, broker_id)
    # An unknown state also counts as a filter, which no id passes.
    wanted = frozenset(states)
    passed = [
        _listed(one)
        for one in listed
        if (not wanted or one.state in wanted)
        and (duration_ms < 0 or _lasts_longer(world, one, duration_ms))
        and (not pattern or matches(one.name))
    ]
    unknown = items([string(state) for state in states if state not in _STATES])
    return _NO_THROTTLE + bytes(2) + unknown + items(passed) + NO_TAGS


def _of_broker(world: World, broker_id: int) -> Iterable[TransactionalId]:
    return (one for k, ids in world.ids.items() if world.shape.transaction_state_leader(k) == broker_id for one in ids)


def _of_producers(world: World, broker_id: int, producer_ids: Iterable[int]) -> Iterable[TransactionalId]:
    owners = map(world.shape.owner, dict.fromkeys(producer_ids))
    return (one for one in owners if one is not None and world.shape.coordinator(one.name) == broker_id)


def _lasts_longer(world: World, one: TransactionalId, duration_ms: int) -> bool:
    """Whether an id's last transaction began longer ago. A broker counts from -1 if the id had no transaction."""
    return world.started_at_ms - _began_ms(world, one) > duration_ms


def _began_ms(world: World, one: TransactionalId) -> int:
    return -1 if one.began_ago_ms is None else world.started_at_ms - one.began_ago_ms


def _listed(one: TransactionalId) -> bytes:
    return string(one.name) + one.producer_id.to_bytes(8) + string(one.state) + NO_TAGS


class Descriptions:
    """DescribeTransactions, version 0."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._of_own = lru_cache(_DESCRIBED_KEPT)(self._describe)

    def answer(self, broker_id: int, request: Reader) -> bytes:
        """The body of an answer."""
        described = [self._described(broker_id, name) for name in request.items(request.name) or []]
        return _NO_THROTTLE + items(described) + NO_TAGS

    def _described(self, broker_id: int, name: str) -> bytes:
        if not name:
            return _not_described(_INVALID_REQUEST, name)
        if self._world.shape.coordinator(name) != broker_id:
            return _not_described(ErrorCode.NOT_COORDINATOR, name)
        return self._of_own(name)

    def _describe(self, name: str) -> bytes:
        shape = self._world.shape
        one = shape.transactional_id(name)
        if one is None:
            return _not_described(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, name)
        by_topic: dict[str, list[int]] = {}
        for topic, index in map(shape.key, one.shown):
            by_topic.setdefault(topic, []).append(index)
        topics = items(string(topic) + numbers(indexes) + NO_TAGS for topic, indexes in by_topic.items())
        times = TIMEOUT_MS.to_bytes(4) + _began_ms(self._world, one).to_bytes(8, signed=True)
        producer = one.producer_id.to_bytes(8) + one.producer_epoch.to_bytes(2)
        return bytes(2) + string(name) + string(one.state) + times + producer + topics + NO_TAGS


def _not_described(error: int, name: str) -> bytes:
    return error.to_bytes(2) + string(name) + string("") + bytes(4 + 8 + 8 + 2) + EMPTY + NO_TAGS
