"""Metadata (3), DescribeCluster (60), DescribeConfigs (32), DescribeAcls (29): the cluster, its topics and settings.

The answer about all topics is joined from one block of bytes for each topic, so that a million partitions take a
second or two to encode, once.
"""

from __future__ import annotations

import struct
from functools import cache

from txnscan.kafka.compact import EMPTY, NO_TAGS, NULL, items, numbers, string, unsigned
from txnscan.kafka.errors import ErrorCode
from txnscan.model import TRANSACTION_STATE_TOPIC
from txnscan.sim.codec import Reader
from txnscan.sim.wire.shape import ClusterShape
from txnscan.sim.wire.world import CLUSTER_ID, CONTROLLER_ID, World

_NO_THROTTLE = bytes(4)
# "These were not asked for": authorised operations.
_NO_OPERATIONS = (-(2**31)).to_bytes(4, signed=True)
_UNKNOWN_TOPIC_ID = 100
_BROKER_RESOURCE = 4
_INVALID_REQUEST = 42
_SETTINGS = {"transaction.max.timeout.ms": "900000"}
_DEFAULT_CONFIG, _LONG = 5, 5
_PARTITION = struct.Struct(">hiii")


class Topics:
    """The topics of a cluster, encoded."""

    def __init__(self, shape: ClusterShape) -> None:
        self._shape = shape
        # What follows a leader and its epoch: replicas, replicas in sync, none offline, no tags.
        self._after_leader = cache(lambda leader: 2 * numbers(shape.replicas(leader)) + EMPTY + NO_TAGS)
        self._block = cache(self._encode)

    def block(self, name: str) -> bytes:
        """A topic, or that it is unknown."""
        known = name == TRANSACTION_STATE_TOPIC or self._shape.topic_number(name) is not None
        return self._block(name) if known else _no_topic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, string(name))

    def all(self) -> list[bytes]:
        """All topics."""
        users = map(self._shape.topic_name, range(self._shape.topics))
        return [self._block(name) for name in (*users, TRANSACTION_STATE_TOPIC)]

    def _encode(self, name: str) -> bytes:
        shape, after_leader = self._shape, self._after_leader
        number = shape.topic_number(name)
        if number is None:
            held = [
                (shape.transaction_state_leader(k), shape.transaction_state_epoch(k))
                for k in range(shape.transaction_state_partitions)
            ]
        else:
            held = [(shape.leader(ordinal), shape.leader_epoch(ordinal)) for ordinal in shape.ordinals(number)]
        partitions = [
            _PARTITION.pack(0, index, leader, epoch) + after_leader(leader)
            for index, (leader, epoch) in enumerate(held)
        ]
        is_internal = number is None
        head = bytes(2) + string(name) + shape.topic_id(name).bytes + bytes([is_internal])
        return head + items(partitions) + _NO_OPERATIONS + NO_TAGS


def _no_topic(error: int, name: bytes, topic_id: bytes = bytes(16)) -> bytes:
    return error.to_bytes(2) + name + topic_id + b"\0" + EMPTY + _NO_OPERATIONS + NO_TAGS


def metadata(world: World, topics: Topics, version: int, request: Reader) -> bytes:
    """Versions 10 to 13. Topics that are asked for by their ids are told to be unknown."""

    def wanted() -> bytes:
        topic_id, name = request.take(16), request.string()
        request.tags()
        return topics.block(name) if name is not None else _no_topic(_UNKNOWN_TOPIC_ID, NULL, topic_id)

    asked = request.items(wanted)
    blocks = topics.all() if asked is None else asked
    head = _NO_THROTTLE + world.broker_list + string(CLUSTER_ID) + CONTROLLER_ID.to_bytes(4) + unsigned(len(blocks) + 1)
    tail = _NO_OPERATIONS if version == 10 else bytes(2) if version >= 13 else b""
    return b"".join((head, *blocks, tail, NO_TAGS))


def describe_cluster(world: World, version: int, request: Reader) -> bytes:
    """Versions 0 to 2."""
    endpoint = b"\1" if version >= 1 else b""
    fenced = b"\0" if version >= 2 else b""
    brokers = items([broker + fenced + NO_TAGS for broker in world.brokers])
    head = _NO_THROTTLE + bytes(2) + NULL + endpoint + string(CLUSTER_ID) + CONTROLLER_ID.to_bytes(4)
    return head + brokers + _NO_OPERATIONS + NO_TAGS


def describe_configs(broker_id: int, request: Reader) -> bytes:
    """Version 4: of a broker, the one setting that matters here."""

    def result() -> bytes:
        kind, name = request.number("b"), request.name()
        keys = request.items(request.name)
        request.tags()
        if kind != _BROKER_RESOURCE or name != str(broker_id):
            return _INVALID_REQUEST.to_bytes(2) + NULL + bytes([kind]) + string(name) + EMPTY + NO_TAGS
        told = [setting for setting in _SETTINGS if keys is None or setting in keys]
        return bytes(2) + NULL + bytes([kind]) + string(name) + items([_setting(s) for s in told]) + NO_TAGS

    return _NO_THROTTLE + items(request.items(result) or []) + NO_TAGS


def _setting(name: str) -> bytes:
    """A setting: read-only, at its default, not sensitive, without synonyms, a number, undocumented."""
    return (
        string(name)
        + string(_SETTINGS[name])
        + bytes([1, _DEFAULT_CONFIG, 0])
        + EMPTY
        + bytes([_LONG])
        + NULL
        + NO_TAGS
    )


def describe_acls() -> bytes:
    """Versions 2 and 3: there is no authorizer."""
    message = string("No Authorizer is configured on the broker")
    return _NO_THROTTLE + ErrorCode.SECURITY_DISABLED.to_bytes(2) + message + EMPTY + NO_TAGS
