"""OffsetFetch (api key 9): the offsets that groups have committed. v8, Kafka 3.0, takes many groups in one request.

ACLs: Describe on each Group, else GROUP_AUTHORIZATION_FAILED for that group, which is looked at before anything else,
so that any broker answers it for any name; and Describe on the topics, which are silently left out otherwise. Only a
group's coordinator answers for it.

With requireStable (v7, Kafka 2.5) a partition whose offset is in a transaction that has not ended is answered with
UNSTABLE_OFFSET_COMMIT. Where all topics are asked for, a partition is only shown if an offset of it was committed
before: one that is in the open transaction alone has to be asked for by name. Source: `OffsetMetadataManager.
fetchOffsets`, `fetchAllOffsets`, `KafkaApis.handleOffsetFetchRequest`. v10 has topic ids in place of names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.consumer import OffsetFetchRequest

from txnscan.kafka.client import Send
from txnscan.kafka.errors import ErrorCode, error_name, present
from txnscan.model import Key

_MIN_VERSION, _MAX_VERSION = 8, 9
_GROUPS_A_REQUEST = 100
# Kafka's own clients ask for all partitions of a group at once; this only bounds the size of one answer.
_OFFSETS_A_REQUEST = 10_000


@dataclass(slots=True)
class GroupOffsets:
    """What a group has committed. error: why nothing is known of it, or None. unstable: partitions whose offset is in
    an open transaction.
    """

    error: str | None = None
    committed: dict[Key, int] = field(default_factory=dict)
    unstable: set[Key] = field(default_factory=set)


def offset_fetch(
    send: Send, broker_id: int, wanted: Mapping[str, Collection[Key] | None], *, require_stable: bool
) -> dict[str, GroupOffsets]:
    """The offsets of these groups on these partitions, or all that they have where it is None. Raises RequestFailed."""
    widest = max((len(keys) for keys in wanted.values() if keys is not None), default=1)
    size = max(1, min(_GROUPS_A_REQUEST, _OFFSETS_A_REQUEST // max(widest, 1)))
    found: dict[str, GroupOffsets] = {}
    every = list(wanted)
    for start in range(0, len(every), size):
        names = every[start : start + size]
        request = OffsetFetchRequest(
            groups=[_group(name, wanted[name]) for name in names],
            require_stable=require_stable,
            min_version=_MIN_VERSION,
            max_version=_MAX_VERSION,
        )
        answered = {group.group_id: group for group in present(send(broker_id, request).groups)}
        for name in names:
            found[name] = _offsets(answered[name]) if name in answered else GroupOffsets("the broker left it out")
    return found


def _group(name: str, keys: Iterable[Key] | None) -> Any:
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    if keys is None:
        return group(group_id=name, topics=None)
    indexes: dict[str, list[int]] = defaultdict(list)
    for topic, index in keys:
        indexes[topic].append(index)
    topics = [group.OffsetFetchRequestTopics(name=t, partition_indexes=sorted(of)) for t, of in indexes.items()]
    return group(group_id=name, topics=topics)


def _offsets(group: Any) -> GroupOffsets:
    if group.error_code != ErrorCode.NONE:
        return GroupOffsets(error_name(group.error_code))
    found = GroupOffsets()
    for topic in present(group.topics):
        for one in present(topic.partitions):
            key = (topic.name, one.partition_index)
            if one.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                found.unstable.add(key)
            elif one.error_code == ErrorCode.NONE and one.committed_offset >= 0:
                found.committed[key] = one.committed_offset
    return found
