"""ListGroups (16), OffsetFetch (9): the consumer groups that a broker coordinates, and their committed offsets.

`__consumer_offsets` has no open transaction: no offset is unstable, and requireStable changes no answer. Markers do not
change committed offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tests.sim.codec import Reader
from tests.sim.wire.shape import Group
from tests.sim.wire.world import World
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.protocol.primitives import EMPTY, NO_TAGS, items, string

_NO_THROTTLE = bytes(4)
_TYPE = "classic"
_UNKNOWN_TOPIC_ID = 100
# The first versions with states and types in ListGroups; with members, and with ids instead of names, in OffsetFetch.
_WITH_STATES, _WITH_TYPES = 4, 5
_WITH_MEMBERS, _WITH_TOPIC_IDS = 9, 10
# Partition, committed offset, its leader epoch, empty metadata, error, no tags.
_COMMITTED = struct.Struct(">iqibhb")
_NO_METADATA = 1
_Topic = tuple[bytes, str | None, tuple[int, ...]]


def list_groups(world: World, broker_id: int, version: int, request: Reader) -> bytes:
    """Versions 3 to 5: the groups that pass both filters; an empty filter passes all
    (`GroupMetadataManager.listGroups`). Filters ignore upper and lower case.
    """
    states = _lower(request) if version >= _WITH_STATES else ()
    types = _lower(request) if version >= _WITH_TYPES else ()
    passed = [
        _listed(one, version)
        for one in world.groups[broker_id]
        if (not states or one.state.lower() in states) and (not types or _TYPE in types)
    ]
    return _NO_THROTTLE + bytes(2) + items(passed) + NO_TAGS


def _lower(request: Reader) -> Sequence[str]:
    return [name.lower() for name in request.items(request.name) or []]


def _listed(one: Group, version: int) -> bytes:
    state = string(one.state) if version >= _WITH_STATES else b""
    kind = string(_TYPE) if version >= _WITH_TYPES else b""
    return string(one.name) + string(one.protocol_type) + state + kind + NO_TAGS


def offset_fetch(world: World, broker_id: int, version: int, request: Reader) -> bytes:
    """Versions 8 to 10: for each group the requested partitions, or all that it has committed."""

    def topic() -> _Topic:
        if version >= _WITH_TOPIC_IDS:
            named = request.take(16)
            name = world.topic_names.get(named)
        else:
            name = request.name()
            named = string(name)
        indexes = request.numbers("i")
        request.tags()
        return named, name, indexes

    def group() -> bytes:
        name = request.name()
        if version >= _WITH_MEMBERS:
            # A member under the protocol of KIP-848 identifies itself; there are no such members here.
            request.string()
            request.number("i")
        asked = request.items(topic)
        request.tags()
        if not world.shape.groups or world.shape.group_coordinator(name) != broker_id:
            return string(name) + EMPTY + ErrorCode.NOT_COORDINATOR.to_bytes(2) + NO_TAGS
        one = world.shape.group(name)
        wanted = _all(world, one, version) if asked is None else asked
        # Unknown ids come last.
        wanted = sorted(wanted, key=lambda each: each[1] is None)
        return string(name) + items(_committed(world, one, each) for each in wanted) + bytes(2) + NO_TAGS

    return _NO_THROTTLE + items(request.items(group) or []) + NO_TAGS


def _all(world: World, group: Group | None, version: int) -> list[_Topic]:
    shape = world.shape
    names = [(topic, shape.topic_name(topic)) for topic in (group.topics if group is not None else ())]
    return [
        (
            shape.topic_id(name).bytes if version >= _WITH_TOPIC_IDS else string(name),
            name,
            tuple(range(len(shape.ordinals(topic)))),
        )
        for topic, name in names
    ]


def _committed(world: World, group: Group | None, asked: _Topic) -> bytes:
    """A topic: offset -1 if an offset was never committed, even if the partition does not exist."""
    named, name, indexes = asked
    shape = world.shape
    number = shape.topic_number(name) if name is not None else None
    ordinals = (
        shape.ordinals(number) if number is not None and group is not None and number in group.topics else range(0)
    )

    def partition(index: int) -> bytes:
        if name is None:
            return _COMMITTED.pack(index, -1, -1, _NO_METADATA, _UNKNOWN_TOPIC_ID, 0)
        if group is None or not 0 <= index < len(ordinals):
            return _COMMITTED.pack(index, -1, -1, _NO_METADATA, 0, 0)
        ordinal = ordinals[index]
        offset = world.committed_offset(group, ordinal)
        return _COMMITTED.pack(index, offset, shape.leader_epoch(ordinal), _NO_METADATA, 0, 0)

    return named + items(map(partition, indexes)) + NO_TAGS
