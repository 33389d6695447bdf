"""DescribeShareGroupOffsets (api key 90, Kafka 4.1): the partitions that a share group reads.

A share group (KIP-932) has no committed offsets. The answer has a start offset for each partition. It does not show
where the group stands: it may be behind records that are acknowledged already, and is -1 before the first of them.
Only the group's coordinator answers. ACLs: Describe on the Group, else GROUP_AUTHORIZATION_FAILED; Describe on the
topics, which are otherwise left out. Source: `KafkaApis.handleDescribeShareGroupOffsetsRequest`,
`GroupCoordinatorService.describeShareGroupAllOffsets`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kafka.protocol.api_message import ApiMessage

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, answered, present
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.protocol.messages import __name__ as _MESSAGES
from txnscan.kafka.security.acls import needing
from txnscan.kafka.security.needs import DESCRIBE_GROUPS
from txnscan.kafka.topology import Key


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=_MESSAGES):  # type: ignore[misc, call-arg]
    """The request."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=_MESSAGES):  # type: ignore[misc, call-arg]
    """The answer."""


@dataclass(frozen=True, slots=True)
class ShareGroupPartitions:
    """The partitions of a share group. failure: why they are not known."""

    failure: Failure | None = None
    keys: tuple[Key, ...] = ()


def share_group_partitions(send: Send, broker_id: int, group: str) -> ShareGroupPartitions:
    """The partitions of this share group, as its coordinator shows them. Never raises."""
    asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    try:
        answer = send(broker_id, DescribeShareGroupOffsetsRequest(groups=[asked]))
        return ShareGroupPartitions(keys=_keys(present(answer.groups), group))
    except RequestFailed as failed:
        why = needing(failed.failure, DESCRIBE_GROUPS.on(group))
        return ShareGroupPartitions(why.within(f"the partitions of share group '{group}'"))


def _keys(groups: Iterable[Any], group: str) -> tuple[Key, ...]:
    one = next((found for found in groups if found.group_id == group), None)
    if one is None:
        raise RequestFailed("the broker left it out", FailureCode.LEFT_OUT)
    if one.error_code != ErrorCode.NONE:
        raise RequestFailed(answered(one.error_code))
    found = {
        (topic.topic_name, each.partition_index)
        for topic in present(one.topics)
        for each in present(topic.partitions)
        if each.error_code == ErrorCode.NONE
    }
    return tuple(sorted(found))
