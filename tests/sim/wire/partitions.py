"""DescribeProducers (61), ListOffsets (2), OffsetForLeaderEpoch (23), Fetch (1), WriteTxnMarkers (27): the answers of
partitions.

A sweep consists mainly of DescribeProducers. A partition's answer is its number and a block of bytes: one of a few
shared blocks if it has no open transaction, otherwise its own block.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator

from tests.sim.codec import Reader
from tests.sim.wire import partition_log
from tests.sim.wire.shape import HANGING_AGE_MS, IDLE_SETS, RECENT_AGE_MS, OpenTransaction
from tests.sim.wire.world import Held, World, Written
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.protocol.primitives import EMPTY, NO_TAGS, NULL, items, string, unsigned

_NO_THROTTLE = bytes(4)
# Producer id, producer epoch, last sequence, last timestamp, coordinator epoch, start offset, no tags: 37 bytes.
_PRODUCER = struct.Struct(">qiiqiqb")
_OFFSET = struct.Struct(">ihqqib")
_EPOCH_END = struct.Struct(">hiiqb")
_FETCHED = struct.Struct(">ihqqq")
# Aborted transactions: null if they were not requested.
_NONE_ABORTED, _NOT_ASKED = bytes(4), (-1).to_bytes(4, signed=True)
_LAST_SEQUENCE = 4
_NO_TRANSACTION = -1
# The coordinator epoch of a producer without a marker on the partition.
_NO_COORDINATOR = -1
_EARLIEST = -2
_UNDEFINED_EPOCH = -1
# The maximum size of an answer, for all partitions together (`fetch.max.bytes`).
_FETCH_BYTES_MAX = 55 * 1024 * 1024
_HOSTED_NOWHERE = "This server does not host this topic-partition."
_READ_COMMITTED = 1
_OFFSET_OUT_OF_RANGE = 1
_INVALID_PRODUCER_EPOCH = 47
_TRANSACTION_COORDINATOR_FENCED = 52


class Producers:
    """The blocks of DescribeProducers answers: all bytes after the number of a partition."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._idle = [self._encode(ordinal, ()) for ordinal in range(IDLE_SETS)]
        self._others: dict[int, bytes] = {}

    def forget(self) -> None:
        """Call it after a marker was written: the open transactions have changed."""
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
            entry = (one.producer_id, 0, _LAST_SEQUENCE, last_ms, _NO_COORDINATOR, one.start_offset, 0)
            marked = world.marked(ordinal, one.producer_id)
            if marked is not None:
                # A marker of a later epoch clears the sequence of the earlier epoch.
                sequence = -1 if marked.producer_epoch else _LAST_SEQUENCE
                ended = (marked.producer_epoch, sequence, world.started_at_ms, marked.coordinator_epoch)
                entry = (one.producer_id, *ended, _NO_TRANSACTION, 0)
            entries.append(_PRODUCER.pack(*entry))
        return bytes(2) + NULL + items(entries) + NO_TAGS


def _error_block(error: int, message: str | None = None) -> bytes:
    return error.to_bytes(2) + string(message) + EMPTY + NO_TAGS


_REFUSED = _error_block(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_UNKNOWN = _error_block(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_UNKNOWN_TOPIC = _error_block(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _HOSTED_NOWHERE)
_EMPTY = _error_block(ErrorCode.NONE)


def describe_producers(world: World, producers: Producers, broker_id: int, request: Reader) -> bytes:
    """Version 0. Any broker with a replica answers."""
    throttle_ms = world.shape.throttle_ms.get(broker_id, 0)
    topics = request.numbered()
    parts = [throttle_ms.to_bytes(4), unsigned(len(topics) + 1)]
    for name, indexes in topics:
        parts += (string(name), unsigned(len(indexes) + 1))
        # An existing topic has a partition 0.
        unknown = _UNKNOWN if world.held(name, 0) is not None else _UNKNOWN_TOPIC
        for index in indexes:
            held = world.held(name, index)
            block = unknown if held is None else _block(world, producers, broker_id, held)
            parts += (index.to_bytes(4, signed=True), block)
        parts.append(NO_TAGS)
    parts.append(NO_TAGS)
    return b"".join(parts)


def _block(world: World, producers: Producers, broker_id: int, held: Held) -> bytes:
    if broker_id != held.leader and broker_id not in world.shape.replicas(held.leader):
        return _REFUSED
    return _EMPTY if held.ordinal is None else producers.block(held.ordinal)


def list_offsets(world: World, broker_id: int, request: Reader) -> bytes:
    """Versions 6 to 11: high watermark, last stable offset, log start, and the first record since a time."""
    request.number("i")
    isolation_level = request.number("b")

    def partition(topic: str) -> bytes:
        index, leader_epoch, timestamp = request.number("i"), request.number("i"), request.number("q")
        request.tags()
        held = world.held(topic, index)
        error = _leadership_error(world, broker_id, held, leader_epoch)
        if held is None or error:
            return _OFFSET.pack(index, error, -1, -1, -1, 0)
        if timestamp >= 0:
            found = partition_log.first_since(world, timestamp)
            if found is None:
                return _OFFSET.pack(index, 0, -1, -1, -1, 0)
            return _OFFSET.pack(index, 0, found[1], found[0], held.leader_epoch, 0)
        if timestamp == _EARLIEST:
            offset = 0
        elif isolation_level == _READ_COMMITTED:
            offset = world.last_stable_offset(held)
        else:
            offset = world.high_watermark(held)
        return _OFFSET.pack(index, 0, -1, offset, held.leader_epoch, 0)

    return _NO_THROTTLE + _topics(request, partition)


def offset_for_leader_epoch(world: World, broker_id: int, request: Reader) -> bytes:
    """Version 4. The whole log has the partition's leader epoch (`LeaderEpochFileCache.endOffsetFor`)."""
    request.number("i")

    def partition(topic: str) -> bytes:
        index, leader_epoch, asked = request.number("i"), request.number("i"), request.number("i")
        request.tags()
        held = world.held(topic, index)
        error = _leadership_error(world, broker_id, held, leader_epoch)
        if held is None or error or asked == _UNDEFINED_EPOCH or asked > held.leader_epoch:
            return _EPOCH_END.pack(error, index, _UNDEFINED_EPOCH, -1, 0)
        # An epoch below the first one seems to end where the first one begins.
        end = world.high_watermark(held) if asked == held.leader_epoch else 0
        return _EPOCH_END.pack(0, index, asked, end, 0)

    return _NO_THROTTLE + _topics(request, partition)


def fetch(world: World, broker_id: int, request: Reader) -> bytes:
    """Version 10: batches from an offset on, from the leader only, as for all clients before version 11 (KIP-392).

    This version is not flexible: lengths of lists and strings are plain numbers, and there are no tags.
    """
    request.take(4 + 4 + 4)
    left = min(request.number("i"), _FETCH_BYTES_MAX)
    isolation_level = request.number("b")
    request.take(2 * 4)
    is_first = True

    def partition(topic: str) -> bytes:
        nonlocal left, is_first
        index, leader_epoch, offset = request.number("i"), request.number("i"), request.number("q")
        request.take(8)
        bytes_max = min(request.number("i"), left)
        held = world.held(topic, index)
        error = _leadership_error(world, broker_id, held, leader_epoch)
        if held is None or error:
            return _not_fetched(index, error, known=held is not None)
        end, stable = world.high_watermark(held), world.last_stable_offset(held)
        if not 0 <= offset <= end:
            return _not_fetched(index, _OFFSET_OUT_OF_RANGE, known=True)
        committed = isolation_level == _READ_COMMITTED
        # The first batch is complete, however large, but only for one partition of a request.
        data = b""
        if offset < (stable if committed else end) and (is_first or bytes_max > 0):
            if held.ordinal is None:
                data = world.state_log.read(held.index, offset, bytes_max)
            else:
                data = partition_log.read(world, held.ordinal, offset, bytes_max, stable if committed else end)
        if data:
            is_first, left = False, max(0, left - len(data))
        aborted = _NONE_ABORTED if committed else _NOT_ASKED
        return _FETCHED.pack(index, 0, end, stable, 0) + aborted + len(data).to_bytes(4) + data

    answered = []
    for _ in range(request.number("i")):
        name = request.take(request.number("h")).decode()
        of_topic = [partition(name) for _ in range(request.number("i"))]
        answered.append(len(name).to_bytes(2) + name.encode() + len(of_topic).to_bytes(4) + b"".join(of_topic))
    # No error and no session.
    return _NO_THROTTLE + bytes(2) + bytes(4) + len(answered).to_bytes(4) + b"".join(answered)


def _not_fetched(index: int, error: int, *, known: bool) -> bytes:
    return _FETCHED.pack(index, error, -1, -1, -1) + (_NOT_ASKED if known else _NONE_ABORTED) + bytes(4)


def _topics(request: Reader, partition: Callable[[str], bytes]) -> bytes:
    """The answers of all partitions of all topics, in order."""

    def topic() -> bytes:
        name = request.name()
        answered = request.items(lambda: partition(name)) or []
        request.tags()
        return string(name) + items(answered) + NO_TAGS

    return items(request.items(topic) or []) + NO_TAGS


def _leadership_error(world: World, broker_id: int, held: Held | None, leader_epoch: int) -> int:
    """The error of a request that only the leader answers. The epoch is checked first (`Partition.getLocalLog`)."""
    error = _replica_error(world, broker_id, held, leader_epoch)
    if not error and held is not None and broker_id != held.leader:
        return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return error


def _replica_error(world: World, broker_id: int, held: Held | None, leader_epoch: int) -> int:
    """The same for requests that followers answer too."""
    if held is None:
        return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker_id not in world.shape.replicas(held.leader):
        return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if leader_epoch in (-1, held.leader_epoch):
        return 0
    newer = leader_epoch > held.leader_epoch
    return int(ErrorCode.UNKNOWN_LEADER_EPOCH if newer else ErrorCode.FENCED_LEADER_EPOCH)


def write_txn_markers(world: World, broker_id: int, version: int, request: Reader) -> bytes:
    """Versions 1 and 2: ends transactions."""

    def marker() -> bytes:
        producer_id, producer_epoch, commit = request.number("q"), request.number("h"), request.number("b")
        topics = request.numbered()
        coordinator_epoch = request.number("i")
        if version >= 2:
            request.number("b")
        request.tags()
        written = Written(producer_id, producer_epoch, coordinator_epoch, bool(commit))

        def answered(name: str, indexes: tuple[int, ...]) -> Iterator[bytes]:
            for index in indexes:
                error = _write(world, broker_id, (name, index), written)
                yield index.to_bytes(4, signed=True) + error.to_bytes(2) + NO_TAGS

        marked = [string(name) + items([*answered(name, indexes)]) + NO_TAGS for name, indexes in topics]
        return producer_id.to_bytes(8, signed=True) + items(marked) + NO_TAGS

    return items(request.items(marker) or []) + NO_TAGS


def _write(world: World, broker_id: int, key: tuple[str, int], written: Written) -> int:
    """Writes a marker, or returns an error, by the checks of `ProducerAppendInfo`; these do not check the start
    offset.
    """
    held = world.held(*key)
    error = _leadership_error(world, broker_id, held, -1)
    if error or held is None:
        return error
    if held.ordinal is None:
        return int(ErrorCode.NONE)
    earlier = world.marked(held.ordinal, written.producer_id)
    if written.producer_epoch < (earlier.producer_epoch if earlier is not None else 0):
        return _INVALID_PRODUCER_EPOCH
    if written.coordinator_epoch < (earlier.coordinator_epoch if earlier is not None else _NO_COORDINATOR):
        return _TRANSACTION_COORDINATOR_FENCED
    world.end(held.ordinal, written)
    return 0
