"""DescribeLogDirs (35): each broker has one directory, on a volume that is half full."""

from __future__ import annotations

from collections.abc import Iterable

from tests.sim.codec import Reader
from tests.sim.wire.world import World
from txnscan.kafka.protocol.primitives import NO_TAGS, items, string

_NO_THROTTLE = bytes(4)
TOTAL_BYTES, USABLE_BYTES = 1 << 40, 1 << 39
# No record of a wire cluster has a size. So a replica has this size for each of its offsets.
BYTES_PER_OFFSET = 1 << 10


def describe_log_dirs(world: World, broker_id: int, version: int, request: Reader) -> bytes:
    """Versions 2 to 5. Topics of which the broker has no requested replica are left out."""
    topics = []
    for name, indexes in request.numbered():
        replicas = list(_replicas(world, broker_id, name, indexes))
        if replicas:
            topics.append(string(name) + items(replicas) + NO_TAGS)
    volume = TOTAL_BYTES.to_bytes(8) + USABLE_BYTES.to_bytes(8) if version >= 4 else b""
    cordoned = b"\0" if version >= 5 else b""
    directory = bytes(2) + string(f"/var/lib/kafka/{broker_id}") + items(topics) + volume + cordoned + NO_TAGS
    error = bytes(2) if version >= 3 else b""
    return _NO_THROTTLE + error + items([directory]) + NO_TAGS


def _replicas(world: World, broker_id: int, topic: str, indexes: Iterable[int]) -> Iterable[bytes]:
    """Number, size, lag, and whether it is the future replica."""
    for index in dict.fromkeys(indexes):
        held = world.held(topic, index)
        if held is not None and broker_id in world.shape.replicas(held.leader):
            size_bytes = world.high_watermark(held) * BYTES_PER_OFFSET
            yield index.to_bytes(4) + size_bytes.to_bytes(8) + bytes(8) + b"\0" + NO_TAGS
