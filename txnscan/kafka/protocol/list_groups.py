"""ListGroups (api key 16): the groups that a broker coordinates. v4, Kafka 2.6, has their states.

ACLs: Describe on the Cluster shows all groups; else those with Describe on the Group, and the others are silently left
out. A coordinator that loads answers COORDINATOR_LOAD_IN_PROGRESS for all. Source:
`KafkaApis.handleListGroupsRequest`, `GroupCoordinatorService.listGroups`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka.protocol.admin import ListGroupsRequest

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, present


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group. protocol_type: "consumer", "connect", "share" (KIP-932), and "" where it only commits offsets. state:
    None before v4.
    """

    group: str
    protocol_type: str
    state: str | None


def list_groups(send: Send, broker_id: int) -> tuple[ListedGroup, ...]:
    """The broker's groups in the order of their ids. Raises RequestFailed."""
    response = send(broker_id, ListGroupsRequest(states_filter=[], types_filter=[]))
    if response.error_code != ErrorCode.NONE:
        raise RequestFailed.answered(f"broker {broker_id}", "ListGroups", response.error_code)
    found = {
        group.group_id: ListedGroup(group.group_id, group.protocol_type or "", group.group_state or None)
        for group in present(response.groups)
    }
    return tuple(found[name] for name in sorted(found))
