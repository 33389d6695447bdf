"""DescribeProducers (61), ListOffsets (2), Fetch (1), WriteTxnMarkers (27): what a partition answers.

DescribeProducers is what a sweep consists of. A partition's answer is its number and a block of bytes: one of a few
for partitions without an open transaction, its own for each of the others.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator

from txnscan.kafka.compact import EMPTY, NO_TAGS, NULL, items, string, unsigned
from txnscan.kafka.errors import ErrorCode
from txnscan.model import TRANSACTION_STATE_TOPIC
from txnscan.sim.codec import Reader
from txnscan.sim.wire.shape import IDLE_SETS, OpenTransaction
from txnscan.sim.wire.world import HANGING_AGE_MS, RECENT_AGE_MS, Held, World

_NO_THROTTLE = bytes(4)
# Producer id, producer epoch, last sequence, last timestamp, coordinator epoch, start offset, no tags: 37 bytes.
_PRODUCER = struct.Struct(">qiiqiqb")
_OFFSET = struct.Struct(">ihqqib")
_FETCHED = struct.Struct(">ihqqq")
_LAST_SEQUENCE = 4
_NO_TRANSACTION = -1
# What a partition shows for a coordinator that never wrote a marker on it.
_NO_COORDINATOR = -1
_EARLIEST = -2
_READ_COMMITTED = 1
_OFFSET_OUT_OF_RANGE = 1
_INVALID_PRODUCER_EPOCH = 47
_TRANSACTION_COORDINATOR_FENCED = 52


class Producers:
    """The blocks of DescribeProducers answers: all that follows the number of a partition."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._idle = [self._encode(ordinal, ()) for ordinal in range(IDLE_SETS)]
        self._others: dict[int, bytes] = {}

    def forget(self) -> None:
        """What is open has changed: a marker was written."""
        self._others.clear()

    def block(self, ordinal: int) -> bytes:
        """The block of a partition."""
        if self._world.shape.is_in_error(ordinal):
            return _REFUSED
        opened = self._world.open_transactions.get(ordinal)
        if opened is None:
            return self._idle[ordinal % IDLE_SETS]
        if ordinal not in self._others:
            self._others[ordinal] = self._encode(ordinal, opened)
        return self._others[ordinal]

    def _encode(self, ordinal: int, opened: Iterable[OpenTransaction]) -> bytes:
        world = self._world
        recent_ms = world.started_at_ms - RECENT_AGE_MS
        entries = [
            _PRODUCER.pack(producer_id, 0, _LAST_SEQUENCE, recent_ms, 0, _NO_TRANSACTION, 0)
            for producer_id in world.shape.idle_producer_ids(ordinal)
        ]
        for one in opened:
            last_ms = recent_ms if one.transactional_id else world.started_at_ms - HANGING_AGE_MS
            ended = world.ended.get((ordinal, one.producer_id))
            epoch, start = (_NO_COORDINATOR, one.start_offset) if ended is None else (ended, _NO_TRANSACTION)
            entries.append(_PRODUCER.pack(one.producer_id, 0, _LAST_SEQUENCE, last_ms, epoch, start, 0))
        return bytes(2) + NULL + items(entries) + NO_TAGS


def _error_block(error: int) -> bytes:
    return error.to_bytes(2) + NULL + EMPTY + NO_TAGS


_REFUSED = _error_block(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_UNKNOWN = _error_block(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_EMPTY = _error_block(ErrorCode.NONE)


def describe_producers(world: World, producers: Producers, broker_id: int, request: Reader) -> bytes:
    """Version 0. Whoever has a replica answers."""
    throttle_ms = world.shape.throttle_ms.get(broker_id, 0)
    topics = request.numbered()
    parts = [throttle_ms.to_bytes(4), unsigned(len(topics) + 1)]
    for name, indexes in topics:
        parts += (string(name), unsigned(len(indexes) + 1))
        for index in indexes:
            held = world.held(name, index)
            parts += (index.to_bytes(4, signed=True), _block(world, producers, broker_id, held))
        parts.append(NO_TAGS)
    parts.append(NO_TAGS)
    return b"".join(parts)


def _block(world: World, producers: Producers, broker_id: int, held: Held | None) -> bytes:
    if held is None:
        return _UNKNOWN
    if broker_id != held.leader and broker_id not in world.shape.replicas(held.leader):
        return _REFUSED
    return _EMPTY if held.ordinal is None else producers.block(held.ordinal)


def list_offsets(world: World, broker_id: int, request: Reader) -> bytes:
    """Versions 6 to 9: high watermark, last stable offset and log start."""
    request.number("i")
    isolation_level = request.number("b")

    def partition(topic: str) -> bytes:
        index, leader_epoch, timestamp = request.number("i"), request.number("i"), request.number("q")
        request.tags()
        held = world.held(topic, index)
        error = _leadership_error(broker_id, held, leader_epoch)
        if held is None or error:
            return _OFFSET.pack(index, error, -1, -1, -1, 0)
        if timestamp == _EARLIEST:
            offset = 0
        elif isolation_level == _READ_COMMITTED:
            offset = world.last_stable_offset(held.ordinal)
        else:
            offset = world.high_watermark(held.ordinal)
        return _OFFSET.pack(index, 0, -1, offset, held.leader_epoch, 0)

    return _NO_THROTTLE + _topics(request, partition)


def fetch(world: World, broker_id: int, request: Reader) -> bytes:
    """Version 12: no partition holds records that could be read, whatever its offsets say."""
    request.take(4 * 4 + 1 + 2 * 4)

    def partition(topic: str) -> bytes:
        index, leader_epoch, offset = request.number("i"), request.number("i"), request.number("q")
        request.take(4 + 8 + 4)
        request.tags()
        held = world.held(topic, index)
        error = _leadership_error(broker_id, held, leader_epoch)
        end = stable = -1
        if held is not None and not error:
            end, stable = world.high_watermark(held.ordinal), world.last_stable_offset(held.ordinal)
            error = 0 if 0 <= offset <= end else _OFFSET_OUT_OF_RANGE
        # No aborted transactions, no preferred replica, no records.
        return _FETCHED.pack(index, error, end, stable, 0) + EMPTY + (-1).to_bytes(4, signed=True) + EMPTY + NO_TAGS

    # No error and no session.
    return _NO_THROTTLE + bytes(2) + bytes(4) + _topics(request, partition)


def _topics(request: Reader, partition: Callable[[str], bytes]) -> bytes:
    """Answers topic after topic, partition after partition."""

    def topic() -> bytes:
        name = request.name()
        answered = request.items(lambda: partition(name)) or []
        request.tags()
        return string(name) + items(answered) + NO_TAGS

    return items(request.items(topic) or []) + NO_TAGS


def _leadership_error(broker_id: int, held: Held | None, leader_epoch: int) -> int:
    if held is None:
        return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker_id != held.leader:
        return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if leader_epoch in (-1, held.leader_epoch):
        return 0
    newer = leader_epoch > held.leader_epoch
    return int(ErrorCode.UNKNOWN_LEADER_EPOCH if newer else ErrorCode.FENCED_LEADER_EPOCH)


def write_txn_markers(world: World, broker_id: int, version: int, request: Reader) -> bytes:
    """Versions 1 and 2: ends transactions."""

    def marker() -> bytes:
        producer_id, producer_epoch, _ = request.number("q"), request.number("h"), request.number("b")
        topics = request.numbered()
        coordinator_epoch = request.number("i")
        if version >= 2:
            request.number("b")
        request.tags()

        def answered(name: str, indexes: tuple[int, ...]) -> Iterator[bytes]:
            for index in indexes:
                error = _written(world, broker_id, (name, index), producer_id, producer_epoch, coordinator_epoch)
                yield index.to_bytes(4, signed=True) + error.to_bytes(2) + NO_TAGS

        written = [string(name) + items([*answered(name, indexes)]) + NO_TAGS for name, indexes in topics]
        return producer_id.to_bytes(8, signed=True) + items(written) + NO_TAGS

    return items(request.items(marker) or []) + NO_TAGS


def _written(
    world: World, broker_id: int, key: tuple[str, int], producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> int:
    """Writes a marker, or says why not: as `ProducerAppendInfo` checks it, and nobody asks for the start offset."""
    held = world.held(*key)
    error = _leadership_error(broker_id, held, -1)
    if error or held is None:
        return error
    if held.ordinal is None:
        return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if key[0] != TRANSACTION_STATE_TOPIC else ErrorCode.NONE)
    if producer_epoch < 0:
        return _INVALID_PRODUCER_EPOCH
    if coordinator_epoch < world.ended.get((held.ordinal, producer_id), _NO_COORDINATOR):
        return _TRANSACTION_COORDINATOR_FENCED
    world.end(held.ordinal, producer_id, coordinator_epoch)
    return 0
