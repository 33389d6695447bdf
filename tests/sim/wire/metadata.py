"""Metadata (3), DescribeCluster (60), DescribeConfigs (32), DescribeAcls (29): the cluster, its topics and settings.

The answer about all topics joins one block of bytes per topic, so that encoding a million partitions takes a second or
two, once. Each answer names a random broker as the controller, as brokers with KRaft do
(`KRaftMetadataCache.getRandomAliveBrokerId`); `controller_at` is its position in the answer. Topics are in the order of
the hash tables in which a broker has them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import cache

from tests.sim.codec import Reader
from tests.sim.wire.shape import ClusterShape
from tests.sim.wire.world import World
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.protocol.coordinator_partition import java_hash_code
from txnscan.kafka.protocol.primitives import EMPTY, NO_TAGS, NULL, items, numbers, string, unsigned
from txnscan.kafka.topology import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

_NO_THROTTLE = bytes(4)
# Authorised operations were not requested.
_NO_OPERATIONS = (-(2**31)).to_bytes(4, signed=True)
_UNKNOWN_TOPIC_ID = 100
_TOPIC_RESOURCE, _BROKER_RESOURCE = 2, 4
_INVALID_REQUEST = 42
# The sources and the types of setting values.
_TOPIC_CONFIG, _DEFAULT_CONFIG = 1, 5
_BOOLEAN, _INT, _LONG, _LIST = 1, 3, 5, 7
_NOBODY = bytes(4)
_HASH_BITS = 32
# Scala's immutable Set keeps up to this many elements in insertion order.
_SMALL_SET = 4
_INTERNAL = (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC, "__share_group_state")
_PARTITION = struct.Struct(">hiii")


class Topics:
    """The encoded topics of a cluster."""

    def __init__(self, shape: ClusterShape) -> None:
        self._shape = shape
        # The bytes after a leader and its epoch: replicas, in-sync replicas, no offline replicas, no tags.
        self._after_leader = cache(lambda leader: 2 * numbers(shape.replicas(leader)) + EMPTY + NO_TAGS)
        self._block = cache(self._encode)

    def block(self, name: str) -> bytes:
        """A topic, or the error that it is unknown."""
        if self.knows(name):
            return self._block(name)
        return _no_topic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, string(name), is_internal=name in _INTERNAL)

    def knows(self, name: str) -> bool:
        """Whether there is such a topic."""
        return name in self._shape.internal_topics or self._shape.topic_number(name) is not None

    def all(self) -> list[bytes]:
        """All topics."""
        users = map(self._shape.topic_name, range(self._shape.topics))
        return [self._block(name) for name in as_in_a_java_set((*users, *self._shape.internal_topics))]

    def _encode(self, name: str) -> bytes:
        shape, after_leader = self._shape, self._after_leader
        number = shape.topic_number(name)
        if number is None:
            held = [shape.internal(name, k) for k in range(shape.internal_topics[name])]
        else:
            held = [(shape.leader(ordinal), shape.leader_epoch(ordinal)) for ordinal in shape.ordinals(number)]
        partitions = [
            _PARTITION.pack(0, index, leader, epoch) + after_leader(leader)
            for index, (leader, epoch) in enumerate(held)
        ]
        is_internal = number is None
        head = bytes(2) + string(name) + shape.topic_id(name).bytes + bytes([is_internal])
        return head + items(partitions) + _NO_OPERATIONS + NO_TAGS


def _no_topic(error: int, name: bytes, topic_id: bytes = bytes(16), *, is_internal: bool = False) -> bytes:
    return error.to_bytes(2) + name + topic_id + bytes([is_internal]) + EMPTY + _NO_OPERATIONS + NO_TAGS


def as_in_a_java_set(names: Sequence[str]) -> list[str]:
    """The order of these names in a `java.util.HashSet`: a broker answers a request for all topics in this order."""
    size = 16
    while size * 3 < len(names) * 4:
        size *= 2

    def place(name: str) -> int:
        code = java_hash_code(name) & 0xFFFFFFFF
        return (code ^ code >> 16) & size - 1

    return sorted(names, key=place)


def as_in_a_scala_set(names: Iterable[str]) -> list[str]:
    """The order of these names in an immutable `Set` of Scala: a broker answers a request for named topics in this
    order.
    """
    once = list(dict.fromkeys(names))
    if len(once) <= _SMALL_SET:
        return once
    return _as_in_a_trie(once)


def _as_in_a_trie(names: Iterable[str]) -> list[str]:
    return _trie([(_improved(java_hash_code(name)), name) for name in names], 0)


def _trie(entries: Sequence[tuple[int, str]], shift: int) -> list[str]:
    """A node of a hash trie: first the names that are alone in their place, then the nodes below."""
    if shift > _HASH_BITS:
        return [name for _, name in entries]
    places: dict[int, list[tuple[int, str]]] = {}
    for code, name in entries:
        places.setdefault(code >> shift & 31, []).append((code, name))
    nodes = [places[at] for at in sorted(places)]
    alone = [node[0][1] for node in nodes if len(node) == 1]
    return alone + [name for node in nodes if len(node) > 1 for name in _trie(node, shift + 5)]


def _improved(code: int) -> int:
    """`scala.collection.Hashing.improve`."""
    code = code + ~(code << 9) & 0xFFFFFFFF
    code ^= code >> 14
    code = code + (code << 4) & 0xFFFFFFFF
    return code ^ code >> 10


def metadata(world: World, topics: Topics, version: int, request: Reader) -> bytes:
    """Versions 10 to 13, without the controller. Topics that are requested by id are answered as unknown."""

    def wanted() -> tuple[bytes, str | None]:
        asked = request.take(16), request.string()
        request.tags()
        return asked

    asked = request.items(wanted)
    if asked is None:
        blocks = topics.all()
    else:
        names = as_in_a_scala_set(name for _, name in asked if name is not None)
        unknown = [name for name in names if not topics.knows(name)]
        # A subset of a large set is also a hash trie, even if it is small, without the nodes of the others.
        unknown = unknown if len(names) <= _SMALL_SET else _as_in_a_trie(unknown)
        blocks = [topics.block(name) for name in (*filter(topics.knows, names), *unknown)]
        blocks += [_no_topic(_UNKNOWN_TOPIC_ID, NULL, topic_id) for topic_id, name in asked if name is None]
    head = _NO_THROTTLE + world.broker_list + string(world.shape.cluster_id) + _NOBODY + unsigned(len(blocks) + 1)
    tail = _NO_OPERATIONS if version == 10 else bytes(2) if version >= 13 else b""
    return b"".join((head, *blocks, tail, NO_TAGS))


def describe_cluster(world: World, version: int, request: Reader) -> bytes:
    """Versions 0 to 2, without the controller."""
    endpoint = b"\1" if version >= 1 else b""
    fenced = b"\0" if version >= 2 else b""
    brokers = items([broker + fenced + NO_TAGS for broker in world.brokers])
    head = _NO_THROTTLE + bytes(2) + NULL + endpoint + string(world.shape.cluster_id) + _NOBODY
    return head + brokers + _NO_OPERATIONS + NO_TAGS


def controller_at(world: World, version: int, *, of_cluster: bool) -> int:
    """The position of the controller's id in an answer to Metadata or DescribeCluster."""
    if of_cluster:
        return len(_NO_THROTTLE) + 2 + len(NULL) + (version >= 1) + len(string(world.shape.cluster_id))
    return len(_NO_THROTTLE) + len(world.broker_list) + len(string(world.shape.cluster_id))


def describe_configs(topics: Topics, broker_id: int, request: Reader) -> bytes:
    """Version 4, without synonyms: the relevant settings of a broker and of a topic."""

    def result() -> bytes:
        kind, name = request.number("b"), request.name()
        keys = request.items(request.name)
        request.tags()
        error, why, settings = 0, "", {}
        if kind == _TOPIC_RESOURCE:
            error = 0 if topics.knows(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            settings = {} if error else _topic_settings(name)
        elif kind == _BROKER_RESOURCE and name == str(broker_id):
            settings = _BROKER_SETTINGS
        else:
            error = _INVALID_REQUEST
            why = f"Unexpected broker id, expected {broker_id} or empty string, but received {name}"
        shown = items(setting for key, setting in settings.items() if not keys or key in keys)
        return error.to_bytes(2) + string(why) + bytes([kind]) + string(name) + shown + NO_TAGS

    return _NO_THROTTLE + items(request.items(result) or []) + NO_TAGS


def _topic_settings(name: str) -> dict[str, bytes]:
    """The settings of a topic that are relevant; user topics have the brokers' defaults."""
    policy, source = ("compact", _TOPIC_CONFIG) if name in _INTERNAL else ("delete", _DEFAULT_CONFIG)
    return {
        "cleanup.policy": _setting("cleanup.policy", policy, _LIST, source),
        "retention.ms": _setting("retention.ms", "604800000", _LONG),
        "remote.storage.enable": _setting("remote.storage.enable", "false", _BOOLEAN),
        "min.insync.replicas": _setting("min.insync.replicas", "1", _INT),
        "unclean.leader.election.enable": _setting("unclean.leader.election.enable", "false", _BOOLEAN),
    }


def _setting(name: str, value: str, kind: int, source: int = _DEFAULT_CONFIG, *, read_only: bool = False) -> bytes:
    """A setting: not sensitive, without synonyms, undocumented."""
    return string(name) + string(value) + bytes([read_only, source, 0]) + EMPTY + bytes([kind]) + NULL + NO_TAGS


_BROKER_SETTINGS = {
    "transaction.max.timeout.ms": _setting("transaction.max.timeout.ms", "900000", _INT, read_only=True)
}


def describe_acls() -> bytes:
    """Versions 2 and 3: there is no authorizer."""
    message = string("No Authorizer is configured on the broker")
    return _NO_THROTTLE + ErrorCode.SECURITY_DISABLED.to_bytes(2) + message + EMPTY + NO_TAGS
