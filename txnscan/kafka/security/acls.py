"""Put failures into words: the permission that a refused principal lacks, and the command that grants it. Pure.

The commands are Kafka's own `kafka-acls.sh`, between backquotes, so that the surrounding sentence cannot become part of
a command. They contain names and no secrets. HOST:PORT and ADMIN.properties stand for values that only an administrator
has.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from txnscan.kafka.failure import Failure, Permission

# Stands for the scanner's principal if its name is not known.
UNKNOWN_PRINCIPAL = "User:<principal>"
WILDCARD = "*"
_COMMAND = "kafka-acls.sh --bootstrap-server HOST:PORT --command-config ADMIN.properties"
_OPTIONS = {"Topic": "--topic", "Group": "--group", "TransactionalId": "--transactional-id", "Cluster": "--cluster"}
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
    allow = f"{_COMMAND} --add --allow-principal {shlex.quote(principal)} {_options(needs)}"
    return f"{error}; grant it with `{allow}`"


def grants(permissions: Iterable[Permission], principal: str) -> Iterator[str]:
    """The commands that grant all of these permissions to this principal, one for each resource."""
    by_resource: dict[tuple[str, str, bool], list[str]] = {}
    for one in permissions:
        by_resource.setdefault((one.resource_type, one.name, one.prefixed), []).append(one.operation)
    for (resource_type, name, prefixed), operations in by_resource.items():
        words = [f"--operation {operation}" for operation in dict.fromkeys(operations)]
        resource = _resource(Permission("", resource_type, name, prefixed))
        yield f"{_COMMAND} --add --allow-principal {shlex.quote(principal)} {' '.join(words)} {resource}"


def denied(rule: AclRule) -> str:
    """A sentence that a rule denies Describe on transactional ids, with the command that removes it."""
    forbidden = Permission(_DENYING[rule.operation], "TransactionalId", rule.name, rule.prefixed)
    host = "" if rule.host == WILDCARD else f" --deny-host {shlex.quote(rule.host)}"
    return (
        f"a DENY rule forbids {forbidden} to {rule.principal}; remove it with "
        f"`{_COMMAND} --remove --deny-principal {shlex.quote(rule.principal)}{host} {_options(forbidden)}`"
    )


def _options(permission: Permission) -> str:
    """A permission as options of `kafka-acls.sh`."""
    return f"--operation {permission.operation} {_resource(permission)}"


def _resource(permission: Permission) -> str:
    """The resource of a permission as options of `kafka-acls.sh`."""
    named = "" if permission.resource_type == "Cluster" else f" {shlex.quote(permission.name)}"
    pattern = " --resource-pattern-type prefixed" if permission.prefixed else ""
    return f"{_OPTIONS[permission.resource_type]}{named}{pattern}"
