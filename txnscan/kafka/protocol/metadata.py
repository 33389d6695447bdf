"""Metadata (api key 3): brokers, partitions with leader and leader epoch, topic ids.

Versions: leader epochs since v7 (Kafka 2.1), topic ids since v10 (2.8). ACLs: Describe on each topic. If all topics are
requested, topics that the principal may not describe are left out. If they are requested by name, the answer for them
is TOPIC_AUTHORIZATION_FAILED. The answer is the view of *that* broker. A broker that is cut off from the controller
keeps its old view.

A million partitions make an answer of 40 MB, and every broker gives the same answer. So flexible versions are decoded
here, into columns. If all brokers get the same request, it is encoded once and equal answers are decoded once
(`MetadataRound`).
"""

from __future__ import annotations

import base64
import hashlib
import struct
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import lru_cache, partial
from operator import le
from typing import TYPE_CHECKING, Any

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from txnscan.kafka.errors import ErrorCode, RequestFailed, error_name, present
from txnscan.kafka.protocol.frames import AsBytes, Body, Cursor
from txnscan.kafka.topology import NO_LISTENER_ID, PORT_MAX, Broker, ClusterView, Topic

if TYPE_CHECKING:
    # The client asks for Metadata itself.
    from txnscan.kafka.client.client import Send

# v3 is the first version that begins with a throttle time. v13 only adds an error of the whole answer.
_MIN_VERSION, _MAX_VERSION = 3, 12
_FLEXIBLE_SINCE = 9
_TOPIC_IDS_SINCE = 10
# Error code, number, leader and leader epoch, followed by arrays of replicas.
_PARTITION = struct.Struct(">hiii")
_NO_BROKER = -1
# The limits of an answer. The largest clusters have two million partitions (KIP-500) and some hundred brokers. Kafka
# allows names of topics of 249 characters (`Topic.MAX_NAME_LENGTH`). A topic counts as one partition more.
PARTITIONS_MAX, BROKERS_MAX = 4_000_000, 10_000
# The limit of the different answers to one request, all together. Brokers that are up to date give equal answers.
DIFFERENT_MAX = 2 * PARTITIONS_MAX
# A broker takes the memory of so many partitions.
_PARTITIONS_A_BROKER = 10
NAME_LENGTH_MAX, HOST_LENGTH_MAX = 249, 255

# Numbers, leaders and leader epochs.
Columns = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def read_metadata(send: Send, broker_id: int, topics: Iterable[str] | None = None) -> ClusterView:
    """One broker's view of the named topics or of all. Raises RequestFailed."""
    return _told_by(broker_id, decode(send(broker_id, as_bytes(topics))))


def as_bytes(topics: Iterable[str] | None) -> AsBytes:
    """The request about these topics or about all, whose answer is returned as bytes."""
    request = _request(_named(topics))
    return AsBytes(request, partial(_encoded, request))


class MetadataRound:
    """One Metadata request to several brokers. Encodes it once, and decodes equal answers once. Safe to use from many
    threads.

    Answers are equal if they differ only in fields that no verdict uses: the throttle time and the controller. For the
    controller, brokers in KRaft mode name a random live broker (`KRaftMetadataCache.getRandomAliveBrokerId`).
    """

    def __init__(self, topics: Iterable[str] | None = None) -> None:
        self.topics = None if topics is None else frozenset(topics)
        self._named = _named(self.topics)
        self._lock = threading.Lock()
        self._encoded: dict[int, bytes] = {}
        self._decoded: dict[bytes, Future[ClusterView]] = {}
        # The bytes before the controller in the answers so far. Nearly always they are the same list of brokers.
        self._before_controller: set[bytes] = set()
        self._room = DIFFERENT_MAX

    @property
    def request(self) -> AsBytes:
        """The request."""
        request = _request(self._named)
        return AsBytes(request, partial(self._encode, request))

    def ask(self, send: Send, broker_id: int) -> ClusterView:
        """One broker's view. Raises RequestFailed."""
        return _told_by(broker_id, self.shown(send(broker_id, self.request)))

    def _encode(self, request: Any, version: int) -> bytes:
        # Runs on the client's I/O thread, which must not wait for a thread that decodes. Encoding twice does no harm.
        if version not in self._encoded:
            self._encoded[version] = _encoded(request, version)
        return self._encoded[version]

    def shown(self, body: Body) -> ClusterView:
        """The view in an answer to the request. Raises RequestFailed."""
        said = self._said(body)
        with self._lock:
            decoded = self._decoded.get(said)
            if decoded is None:
                decoding = self._decoded[said] = Future[ClusterView]()
        if decoded is not None:
            return decoded.result()
        try:
            view = decode(body)
            decoding.set_result(view)
            self._make_room(_items(view))
        except RequestFailed as failed:
            decoding.set_exception(failed)
        return decoding.result()

    def _make_room(self, size: int) -> None:
        """Forgets all answers, if they are too large together: each broker could give another one."""
        with self._lock:
            self._room -= size
            if self._room < 0:
                self._decoded.clear()
                self._before_controller.clear()
                self._room = DIFFERENT_MAX

    def _said(self, body: Body) -> bytes:
        """A digest of the used parts of an answer."""
        digest = hashlib.blake2b(body.version.to_bytes(2))
        data = memoryview(body.data)
        if body.version < _FLEXIBLE_SINCE:
            digest.update(data[4:])
        else:
            controller = self._controller_at(body.data)
            digest.update(data[4:controller])
            digest.update(data[controller + 4 :])
        return digest.digest()

    def _controller_at(self, data: bytes) -> int:
        """The position of the controller. Raises RequestFailed if the bytes make no sense."""
        for known in tuple(self._before_controller):
            if data.startswith(known, 4):
                return 4 + len(known)
        answer = Cursor(data, 4)
        for _ in range(few("brokers", answer.length(), BROKERS_MAX)):
            _broker(answer)
        answer.string()
        self._before_controller.add(data[4 : answer.at])
        return answer.at


class DifferentAnswers:
    """Limits the memory of different answers to one request. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[int, ClusterView] = {}
        self._room = DIFFERENT_MAX

    def kept(self, view: ClusterView) -> ClusterView:
        """The view, if there is room for it. Raises RequestFailed."""
        with self._lock:
            if id(view.topics) not in self._kept:
                cost = _items(view)
                if self._kept and cost > self._room:
                    raise RequestFailed("the answer is one of too many different ones about the same topics")
                self._room -= cost
                self._kept[id(view.topics)] = view
        return view


def _items(view: ClusterView) -> int:
    """The size of a decoded answer, counted in partitions."""
    return sum(1 + len(topic.indexes) for topic in view.topics) + _PARTITIONS_A_BROKER * len(view.brokers)


def _named(topics: Iterable[str] | None) -> list[Any] | None:
    return None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(set(topics))]


def _request(named: list[Any] | None) -> Any:
    return MetadataRequest(
        topics=named, allow_auto_topic_creation=False, min_version=_MIN_VERSION, max_version=_MAX_VERSION
    )


def _encoded(request: Any, version: int) -> bytes:
    return bytes(request.encode(version=version))


def _told_by(broker_id: int, view: ClusterView) -> ClusterView:
    if not view.brokers:
        raise RequestFailed(f"broker {broker_id} answered Metadata without any broker")
    return replace(view, answered_by=broker_id)


def decode(body: Body) -> ClusterView:
    """The view in an answer, with `answered_by` -1 for the caller to set. Pure. Raises RequestFailed if the bytes make
    no sense.
    """
    if body.version < _FLEXIBLE_SINCE:
        return _decode_old(body)
    answer = Cursor(body.data)
    answer.skip(4)  # the throttle time, which the client waits out
    brokers = [_broker(answer) for _ in range(few("brokers", answer.length(), BROKERS_MAX))]
    cluster_id = answer.string()
    few("characters in the id of the cluster", len(cluster_id or ""), NAME_LENGTH_MAX)
    answer.skip(4)  # the controller
    topics, errors = [], []
    count = few("topics", answer.length(), PARTITIONS_MAX)
    for _ in range(count):
        error_code, topic = _topic(answer, body.version, PARTITIONS_MAX - count)
        count += len(topic.indexes)
        if error_code == ErrorCode.NONE:
            topics.append(topic)
        else:
            errors.append((topic.name, error_name(error_code)))
    answer.skip(4 if body.version <= 10 else 0)  # authorised operations, which were not asked for
    answer.tags()
    answer.end()
    return _view(cluster_id, brokers, topics, errors)


def _broker(answer: Cursor) -> Broker:
    node_id, host, port = answer.int32(), answer.string(), answer.int32()
    answer.string()  # the rack
    answer.tags()
    return _sound_broker(node_id, host or "", port)


def few(what: str, count: int, most: int) -> int:
    """The count. Raises RequestFailed if it exceeds the limit."""
    if count > most:
        raise RequestFailed(f"the answer has more {what} than txnscan reads, {count:,}")
    return count


def _sound_broker(node_id: int, host: str, port: int) -> Broker:
    """The broker. Raises RequestFailed for an address that cannot be one: a port above 65535 becomes another port. A
    negative number is that of a bootstrap server.
    """
    if node_id < 0:
        raise RequestFailed(f"the answer has a broker with the number {node_id}")
    if len(host) > HOST_LENGTH_MAX or not 0 <= port <= PORT_MAX:
        raise RequestFailed(f"the address of broker {node_id} is none: its port is {port}")
    return Broker(node_id, host, port)


def sound_name(name: str) -> str:
    """The name of a topic. Raises RequestFailed if it is longer than Kafka allows."""
    few("characters in the name of a topic", len(name), NAME_LENGTH_MAX)
    return name


def _topic(answer: Cursor, version: int, partitions_max: int) -> tuple[int, Topic]:
    error_code = answer.int16()
    name = sound_name(answer.string() or "")
    topic_id = b""
    if version >= _TOPIC_IDS_SINCE:
        answer.skip(16)
        topic_id = answer.data[answer.at - 16 : answer.at]
    answer.skip(1)  # whether it is internal
    columns = _partitions(answer, few("partitions", answer.length(), partitions_max))
    answer.skip(4)  # authorised operations, which were not asked for
    answer.tags()
    return error_code, Topic(name, _topic_id(topic_id), *columns)


def _partitions(answer: Cursor, count: int) -> Columns:
    """Numbers, leaders and leader epochs of a topic's partitions."""
    at = answer.at
    columns = partitions_alike(answer, count)
    if columns is None or _NO_BROKER in columns[1]:
        # Only the error of a partition shows why it has no leader.
        answer.at = at
        columns = _partitions_in_turn(answer, count)
    return _in_order(columns)


def partitions_alike(answer: Cursor, count: int) -> Columns | None:
    """Numbers, leaders and leader epochs of a topic's partitions, if all of them have as many replicas, in-sync and
    offline replicas as the first one: a tenth of a microsecond for each. None otherwise.
    """
    data, at = answer.data, answer.at
    try:
        lists = lengths_at(data, at)
        plain = _is_plain([data[one] for one in lists])
    except IndexError:
        return None
    width = lists[-1] + 1 - at
    end = at + width * count
    if count == 0 or not plain or end > len(data):
        return None
    if any(data[one:end:width] != data[one : one + 1] * count for one in lists):
        return None
    answer.at = end
    rows = _leaders_every(width).iter_unpack(data[at:end])
    indexes, leaders, epochs = zip(*rows, strict=True)
    return indexes, leaders, epochs


@lru_cache
def _leaders_every(width: int) -> struct.Struct:
    """Number, leader and leader epoch of a partition of this width."""
    return struct.Struct(f">2x3i{width - _PARTITION.size}x")


def lengths_at(data: bytes, at: int) -> tuple[int, int, int, int]:
    """The positions of the lengths of a partition's three lists and of its tagged fields, if each takes one byte.

    Raises IndexError if the bytes end before.
    """
    replicas = at + _PARTITION.size
    in_sync = replicas + 4 * data[replicas] - 3
    offline = in_sync + 4 * data[in_sync] - 3
    tags = offline + 4 * data[offline] - 3
    return replicas, in_sync, offline, tags


def _is_plain(lengths: Sequence[int]) -> bool:
    """Whether no field is tagged, and each list has fewer than 127 brokers, so its length takes one byte (1: empty)."""
    *lists, tags = lengths
    return all(0 < length < 128 for length in lists) and not tags


def _partitions_in_turn(answer: Cursor, count: int) -> Columns:
    """The same for any partitions: about a microsecond for each."""
    indexes, leaders, epochs = [], [], []
    data, at, unpack = answer.data, answer.at, _PARTITION.unpack_from
    for _ in range(count):
        try:
            error_code, index, leader, epoch = unpack(data, at)
            leader = shown_leader(error_code, leader)
            lists = lengths_at(data, at)
            plain = _is_plain([data[one] for one in lists])
        except (IndexError, struct.error):
            plain = False
        if plain:
            at = lists[-1] + 1
        else:
            answer.at = at
            index, leader, epoch = _partition(answer)
            at = answer.at
        indexes.append(index)
        leaders.append(leader)
        epochs.append(epoch)
    answer.at = at
    return tuple(indexes), tuple(leaders), tuple(epochs)


def shown_leader(error_code: int, leader: int) -> int:
    """The leader, or what stands in its place."""
    return NO_LISTENER_ID if leader == _NO_BROKER and error_code == ErrorCode.LISTENER_NOT_FOUND else leader


def _in_order(columns: Columns) -> Columns:
    """The same columns, sorted by partition number. Brokers need not sort them. Raises RequestFailed for a negative
    number.
    """
    if not all(map(le, columns[0], columns[0][1:])):
        indexes, leaders, epochs = zip(*sorted(zip(*columns, strict=True)), strict=True)
        columns = indexes, leaders, epochs
    if columns[0] and columns[0][0] < 0:
        raise RequestFailed(f"the answer has a partition with the number {columns[0][0]}")
    return columns


def _partition(answer: Cursor) -> tuple[int, int, int]:
    """One partition, with lists of any length and any tagged fields."""
    error_code = answer.int16()
    index, leader, epoch = answer.int32(), answer.int32(), answer.int32()
    for _ in ("replicas", "in sync", "offline"):
        answer.skip(4 * answer.length())
    answer.tags()
    return index, shown_leader(error_code, leader), epoch


def _decode_old(body: Body) -> ClusterView:
    """An answer of a broker before Kafka 2.4, decoded by kafka-python. Fields that it lacks are -1 or ""."""
    answer = MetadataResponse.decode(body.data, version=body.version)
    topics, errors, count = [], [], 0
    for topic in present(answer.topics):
        sound_name(topic.name or "")
        shown = list(present(topic.partitions))
        count = few("partitions", count + 1 + len(shown), PARTITIONS_MAX)
        if topic.error_code == ErrorCode.NONE:
            columns = (
                tuple(p.partition_index for p in shown),
                tuple(shown_leader(p.error_code, p.leader_id) for p in shown),
                tuple(p.leader_epoch for p in shown),
            )
            topics.append(Topic(topic.name or "", "", *_in_order(columns)))
        else:
            errors.append((topic.name or "", error_name(topic.error_code)))
    few("characters in the id of the cluster", len(answer.cluster_id or ""), NAME_LENGTH_MAX)
    listed = list(present(answer.brokers))
    few("brokers", len(listed), BROKERS_MAX)
    brokers = [_sound_broker(b.node_id, b.host or "", b.port) for b in listed]
    return _view(answer.cluster_id, brokers, topics, errors)


def _view(
    cluster_id: str | None, brokers: Iterable[Broker], topics: Iterable[Topic], errors: Iterable[tuple[str, str]]
) -> ClusterView:
    return ClusterView(
        answered_by=_NO_BROKER,
        cluster_id=cluster_id or "",
        brokers=tuple(sorted((replace(b, cluster_id=cluster_id or "") for b in brokers), key=lambda b: b.broker_id)),
        topics=tuple(sorted(topics, key=lambda t: t.name)),
        topic_errors=tuple(sorted(errors)),
    )


def _topic_id(topic_id: bytes) -> str:
    """A topic id as Kafka prints it (`Uuid.toString`: URL-safe base64, no padding), or "" if there is no topic id."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode("ascii") if any(topic_id) else ""
