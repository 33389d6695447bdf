"""ListGroups (api key 16): the groups that a broker coordinates. v4, Kafka 2.6, has their states.

ACLs: with Describe on the Cluster, all groups. Otherwise the groups with Describe on the Group; the others are silently
left out. While a coordinator loads, it answers COORDINATOR_LOAD_IN_PROGRESS for all groups. Source:
`KafkaApis.handleListGroupsRequest`, `GroupCoordinatorService.listGroups`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka.protocol.admin import ListGroupsRequest

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, present


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group. protocol_type: "consumer", "connect", "share" (KIP-932), or "" for a group that only commits offsets.
    state: None before v4.
    """

    group: str
    protocol_type: str
    state: str | None


def list_groups(send: Send, broker_id: int) -> tuple[ListedGroup, ...]:
    """The broker's groups, sorted by id. Raises RequestFailed."""
    response = send(broker_id, ListGroupsRequest(states_filter=[], types_filter=[]))
    if response.error_code != ErrorCode.NONE:
        raise RequestFailed.answered(f"broker {broker_id}", "ListGroups", response.error_code)
    found = {
        group.group_id: ListedGroup(group.group_id, group.protocol_type or "", group.group_state or None)
        for group in present(response.groups)
    }
    return tuple(found[name] for name in sorted(found))
