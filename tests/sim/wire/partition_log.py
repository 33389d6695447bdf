"""The log of a user partition: batches from its start to its end, with the batches of open transactions in their
places.

It is a sequence of batches with fixed offsets, followed by the markers that were written since. At the start offset of
an open transaction is its first batch. All other batches belong to an idle producer, without transactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.sim.wire.batches import batch, marker
from tests.sim.wire.shape import (
    HANGING_AGE_MS,
    HANGING_START_OFFSET,
    HIGH_WATERMARK,
    ONGOING_START_OFFSET,
    PREPARED_START_OFFSET,
    RECENT_AGE_MS,
)
from tests.sim.wire.world import World
from txnscan.kafka.protocol.record_batch import TRANSACTIONAL

# The number of records that an open transaction has written.
OPEN_RECORDS = 5
_STARTS = (HANGING_START_OFFSET, ONGOING_START_OFFSET, PREPARED_START_OFFSET)
_BOUNDS = (0, *sorted(at for start in _STARTS for at in (start, start + OPEN_RECORDS)), HIGH_WATERMARK)
_RECORD = (None, b"x")


def read(world: World, ordinal: int, offset: int, bytes_max: int, end: int) -> bytes:
    """The batches from this offset to `end`: at least one batch. The last batch may be cut off."""
    found, size, whole = [], 0, 0
    for data in _batches(world, ordinal, offset, end):
        found.append(data)
        size += len(data)
        whole = whole or size
        if size >= bytes_max:
            break
    return b"".join(found)[: max(bytes_max, whole)]


def _batches(world: World, ordinal: int, offset: int, end: int) -> Iterator[bytes]:
    """From the batch that has this offset on, the batches that begin below `end`."""
    epoch = world.shape.leader_epoch(ordinal)
    opened = {one.start_offset: one for one in world.open_transactions.get(ordinal, ())}
    for first, last in pairwise(_BOUNDS):
        if last <= offset or first >= end:
            continue
        one, ms = opened.get(first), _written_ms(world, first)
        if one is None:
            idle = world.shape.idle_producer_ids(ordinal)
            yield batch(
                *(first, [_RECORD] * (last - first)),
                timestamp_ms=ms,
                leader_epoch=epoch,
                producer_id=idle[0] if idle else -1,
                producer_epoch=0 if idle else -1,
                base_sequence=first if idle else -1,
            )
        else:
            yield batch(
                *(first, [_RECORD] * (last - first)),
                timestamp_ms=ms,
                leader_epoch=epoch,
                producer_id=one.producer_id,
                producer_epoch=0,
                base_sequence=0,
                attributes=TRANSACTIONAL,
            )
    for place, written in enumerate(world.markers.get(ordinal, ()), HIGH_WATERMARK):
        if offset <= place < end:
            yield marker(
                *(place, written.producer_id, written.producer_epoch, written.coordinator_epoch, written.commit),
                world.started_at_ms,
            )


def _written_ms(world: World, offset: int) -> int:
    return world.started_at_ms - (HANGING_AGE_MS if offset < ONGOING_START_OFFSET else RECENT_AGE_MS)


def first_since(world: World, time_ms: int) -> tuple[int, int] | None:
    """The first offset whose record is not older than this, and that record's time. None if all are older."""
    return next(((at, ms) for at in _BOUNDS[:-1] if (ms := _written_ms(world, at)) >= time_ms), None)
