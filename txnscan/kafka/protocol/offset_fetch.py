"""OffsetFetch (api key 9): the committed offsets of groups. v8, Kafka 3.0, takes many groups in one request.

ACLs: Describe on each Group, else GROUP_AUTHORIZATION_FAILED for that group. Any broker checks this before anything
else, also for a group that does not exist. Describe on the topics, which are otherwise silently left out. For the
offsets themselves, only a group's coordinator answers.

With requireStable (v7, Kafka 2.5), if an open transaction has an offset of a partition, the answer for that partition
is UNSTABLE_OFFSET_COMMIT. If all topics are requested, the answer has only partitions with an offset that was committed
before. A partition whose only offset is in the open transaction must be requested by name. Source:
`OffsetMetadataManager.fetchOffsets`, `fetchAllOffsets`, `KafkaApis.handleOffsetFetchRequest`. v10 has topic ids in
place of names.

The request is encoded and the answer decoded here. For a thousand groups and a hundred partitions, nearly all without
an offset, kafka-python's objects took a second.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kafka.protocol.consumer import OffsetFetchRequest

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, answered
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.protocol.describe_producers import by_topic
from txnscan.kafka.protocol.frames import AsBytes, Body, CountedCursor, Cursor
from txnscan.kafka.protocol.primitives import NO_TAGS, NULL, items, numbers, string
from txnscan.kafka.topology import Key

_MIN_VERSION, _MAX_VERSION = 8, 9
_GROUPS_A_REQUEST = 100
# Kafka's own clients ask for all partitions of a group at once. This limit only bounds the size of one answer.
_OFFSETS_A_REQUEST = 10_000
# v9, KIP-848: null for the member id and -1 for its epoch, because the scanner is no member.
_NO_MEMBER = NULL + struct.pack(">i", -1)
_PARTITION = struct.Struct(">iqi")
# The bytes after the partition's number if a group has no committed offset there: an offset and a leader epoch of -1,
# no metadata, no error, no tags. Metadata is "" or null.
_NOTHING = frozenset(struct.pack(">qi", -1, -1) + metadata + bytes(3) for metadata in (b"\0", b"\1"))
(_NOTHING_SIZE,) = set(map(len, _NOTHING))


@dataclass(slots=True)
class GroupOffsets:
    """The committed offsets of a group. failure: why they are not known. unstable: partitions whose offset is in an
    open transaction.
    """

    failure: Failure | None = None
    committed: dict[Key, int] = field(default_factory=dict)
    unstable: set[Key] = field(default_factory=set)


def offset_fetch(
    send: Send, broker_id: int, wanted: Mapping[str, Collection[Key] | None], *, require_stable: bool
) -> dict[str, GroupOffsets]:
    """The offsets of these groups on these partitions, or all their offsets for None. Raises RequestFailed."""
    widest = max((len(keys) for keys in wanted.values() if keys is not None), default=1)
    size = max(1, min(_GROUPS_A_REQUEST, _OFFSETS_A_REQUEST // max(widest, 1)))
    found: dict[str, GroupOffsets] = {}
    every = list(wanted)
    for start in range(0, len(every), size):
        some = {name: wanted[name] for name in every[start : start + size]}
        plain = OffsetFetchRequest(groups=[], min_version=_MIN_VERSION, max_version=_MAX_VERSION)
        request = AsBytes(plain, lambda version, some=some: encode(version, some, require_stable))  # type: ignore[misc]
        fetched = decode(send(broker_id, request))
        left_out = GroupOffsets(Failure("the broker left it out", FailureCode.LEFT_OUT))
        found |= {name: fetched.get(name, left_out) for name in some}
    return found


def encode(version: int, wanted: Mapping[str, Collection[Key] | None], require_stable: bool) -> bytes:
    """The body of a request for these groups, in v8 or v9. Pure."""
    member = _NO_MEMBER if version >= _MAX_VERSION else b""
    written: dict[int, bytes] = {}

    def topics(keys: Collection[Key] | None) -> bytes:
        # Nearly always all groups are asked about the same partitions.
        if id(keys) not in written:
            written[id(keys)] = NULL if keys is None else _topics(keys)
        return written[id(keys)]

    groups = items(string(name) + member + topics(keys) + NO_TAGS for name, keys in wanted.items())
    return groups + bytes([require_stable]) + NO_TAGS


def _topics(keys: Iterable[Key]) -> bytes:
    return items(string(topic) + numbers(sorted(of)) + NO_TAGS for topic, of in by_topic(keys).items())


def decode(body: Body) -> dict[str, GroupOffsets]:
    """The groups of an answer. Pure. Raises RequestFailed if the bytes make no sense."""
    answer = CountedCursor(body.data)
    answer.skip(4)  # the throttle time, which the client waits out
    found: dict[str, GroupOffsets] = {}
    # The bytes of a group without any committed offset, like most groups. They are the same for all such groups.
    nothing: bytes | None = None
    for _ in range(answer.length()):
        name = answer.string() or ""
        group = GroupOffsets()
        if nothing is not None and answer.data.startswith(nothing, answer.at):
            answer.skip(len(nothing))
        else:
            begin = answer.at
            for _ in range(answer.length()):
                _decode_topic(answer, group)
            if not group.committed and not group.unstable:
                nothing = answer.data[begin : answer.at]
        error_code = answer.int16()
        answer.tags()
        found[name] = GroupOffsets(answered(error_code)) if error_code != ErrorCode.NONE else group
    answer.tags()
    answer.end()
    return found


def _decode_topic(answer: Cursor, group: GroupOffsets) -> None:
    """The partitions of a topic. Most of them have no offset."""
    topic = answer.string() or ""
    data = answer.data
    for _ in range(answer.length()):
        at = answer.at
        if data[at + 4 : at + 4 + _NOTHING_SIZE] in _NOTHING:
            answer.at = at + 4 + _NOTHING_SIZE
            continue
        answer.skip(_PARTITION.size)
        index, offset, _ = _PARTITION.unpack_from(data, at)
        answer.string()
        error_code = answer.int16()
        answer.tags()
        if error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            group.unstable.add((topic, index))
        elif error_code == ErrorCode.NONE and offset >= 0:
            group.committed[topic, index] = offset
    answer.tags()
