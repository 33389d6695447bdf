"""DescribeAcls (api key 29): the rules on transactional ids, as one broker knows them.

ACLs: Describe on the Cluster. SECURITY_DISABLED means that the brokers have no authorizer, so no id is hidden. A broker
answers from its own copy of the rules (`AclApis.handleDescribeAcls`), and authorizes by the same copy.
"""

from __future__ import annotations

from kafka.protocol.admin import DescribeAclsRequest

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, present
from txnscan.kafka.security.acls import AclRule

# org.apache.kafka.common.resource.ResourceType and PatternType, common.acl.AclOperation and AclPermissionType.
_TRANSACTIONAL_ID = 5
_ANY = 1
_LITERAL = 3
_PREFIXED = 4
_DENY, _ALLOW = 2, 3
# Of the operations 0 is unknown, and 1 any.
_OPERATION_MIN = 2


def transactional_id_rules(send: Send, broker_id: int) -> frozenset[AclRule]:
    """All rules on transactional ids, for any principal.

    Raises RequestFailed if the ACLs cannot be described, or contain a rule of an unknown kind.
    """
    request = DescribeAclsRequest(
        resource_type_filter=_TRANSACTIONAL_ID,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    response = send(broker_id, request)
    if response.error_code == ErrorCode.SECURITY_DISABLED:
        return frozenset()
    if response.error_code != ErrorCode.NONE:
        raise RequestFailed.answered(f"broker {broker_id}", "DescribeAcls", response.error_code)
    rules = set()
    for resource in present(response.resources):
        acls = tuple(present(resource.acls))
        # Version 0, of brokers before Kafka 2.0, has only literal names.
        pattern_type = getattr(resource, "pattern_type", _LITERAL)
        named = resource.resource_type == _TRANSACTIONAL_ID and isinstance(resource.resource_name, str)
        known = all(acl.permission_type in (_DENY, _ALLOW) and acl.operation >= _OPERATION_MIN for acl in acls)
        texts = all(isinstance(text, str) for acl in acls for text in (acl.principal, acl.host))
        if not (named and acls and known and texts) or pattern_type not in (_LITERAL, _PREFIXED):
            raise RequestFailed(f"broker {broker_id} answered DescribeAcls with what is no rule on a name or a prefix")
        for acl in acls:
            deny = acl.permission_type == _DENY
            prefixed = pattern_type == _PREFIXED
            rules.add(AclRule(resource.resource_name, prefixed, acl.principal, acl.host, acl.operation, deny))
    return frozenset(rules)
