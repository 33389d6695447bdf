"""Put failures into words: the permission that a refused principal lacks, and the command that grants it. Pure.

The commands are Kafka's own `kafka-acls.sh`, between backquotes, so that the surrounding sentence cannot become part of
a command. They contain names and no secrets. HOST:PORT and ADMIN.properties stand for values that only an administrator
has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from txnscan.kafka.failure import Failure, Permission
from txnscan.shell import command

# Stands for the scanner's principal if its name is not known.
UNKNOWN_PRINCIPAL = "User:<principal>"
WILDCARD = "*"
_COMMAND = "kafka-acls.sh --bootstrap-server HOST:PORT --command-config ADMIN.properties"
_OPTIONS = {"Topic": "topic", "Group": "group", "TransactionalId": "transactional_id", "Cluster": "cluster"}
# The protocol's errors for a missing ACL.
_REFUSED = frozenset(
    f"{what}_AUTHORIZATION_FAILED" for what in ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN")
)
# org.apache.kafka.common.acl.AclOperation: the operations with which a DENY rule denies Describe. An ALLOW rule for
# Read, Write, Delete or Alter implies Describe, but a DENY rule for them does not
# (`StandardAuthorizerData.findResult`).
_DENYING = {2: "All", 8: "Describe"}


@dataclass(frozen=True, slots=True)
class AclRule:
    """A rule on transactional ids, as DescribeAcls returns it. operation: the number of its AclOperation."""

    name: str
    prefixed: bool
    principal: str
    host: str
    operation: int
    deny: bool

    def covers(self, transactional_id: str) -> bool:
        """Whether the rule applies to this id."""
        if self.prefixed:
            return transactional_id.startswith(self.name)
        return self.name in (WILDCARD, transactional_id)

    @property
    def denies_describe(self) -> bool:
        """Whether the rule denies its principal to describe the ids that it covers, even if other rules allow it."""
        return self.deny and self.operation in _DENYING


def needing(failure: Failure, permission: Permission) -> Failure:
    """The failure of a request that needs this permission. If its code is that of a missing ACL, the failure has this
    permission in `needs`, unless it already has another.
    """
    return replace(failure, needs=permission) if failure.code in _REFUSED and failure.needs is None else failure


def explained(failure: Failure, principal: str) -> str:
    """A failure in words. If a permission is missing, with the command that grants it."""
    return str(failure) if failure.needs is None else granted(str(failure), failure.needs, principal)


def granted(error: str, needs: Permission, principal: str) -> str:
    """A failure's words, with the command that grants the permission to this principal."""
    allowed = {"add": True, "allow_principal": principal, "operation": needs.operation}
    return f"{error}; grant it with `{command(_COMMAND, **allowed, **_resource(needs))}`"


def grants(permissions: Iterable[Permission], principal: str) -> Iterator[str]:
    """The commands that grant all of these permissions to this principal, one for each resource."""
    by_resource: dict[tuple[str, str, bool], list[str]] = {}
    for one in permissions:
        by_resource.setdefault((one.resource_type, one.name, one.prefixed), []).append(one.operation)
    for (resource_type, name, prefixed), operations in by_resource.items():
        allowed = {"add": True, "allow_principal": principal, "operation": tuple(dict.fromkeys(operations))}
        yield command(_COMMAND, **allowed, **_resource(Permission("", resource_type, name, prefixed)))


def denied(rule: AclRule) -> str:
    """A sentence that a rule denies Describe on transactional ids, with the command that removes it."""
    forbidden = Permission(_DENYING[rule.operation], "TransactionalId", rule.name, rule.prefixed)
    whose = {"deny_principal": rule.principal, "deny_host": None if rule.host == WILDCARD else rule.host}
    remove = command(_COMMAND, remove=True, **whose, operation=forbidden.operation, **_resource(forbidden))
    return f"a DENY rule forbids {forbidden} to {rule.principal}; remove it with `{remove}`"


def _resource(permission: Permission) -> dict[str, object]:
    """The resource of a permission as options of `kafka-acls.sh`."""
    name = True if permission.resource_type == "Cluster" else permission.name
    pattern = "prefixed" if permission.prefixed else None
    return {_OPTIONS[permission.resource_type]: name, "resource_pattern_type": pattern}
