"""DescribeAcls (api key 29): whether some transactional id is hidden from some principal.

ACLs: Describe on the Cluster. SECURITY_DISABLED says that the brokers have no authorizer, so nothing is hidden.
"""

from __future__ import annotations

from kafka.protocol.admin import DescribeAclsRequest

from txnscan.kafka.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, error_name, present

# org.apache.kafka.common.resource.ResourceType and PatternType, common.acl.AclOperation and AclPermissionType.
_TRANSACTIONAL_ID = 5
_ANY = 1
_DENY = 2


def denied_transactional_ids(send: Send, broker_id: int) -> tuple[str, ...]:
    """The resource names of all DENY rules on transactional ids, whoever they are for.

    Raises RequestFailed where the ACLs cannot be described.
    """
    request = DescribeAclsRequest(
        resource_type_filter=_TRANSACTIONAL_ID,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_DENY,
    )
    response = send(broker_id, request)
    if response.error_code == ErrorCode.SECURITY_DISABLED:
        return ()
    if response.error_code != ErrorCode.NONE:
        raise RequestFailed(f"broker {broker_id} answered DescribeAcls with {error_name(response.error_code)}")
    return tuple(sorted(resource.resource_name for resource in present(response.resources)))
