"""ACLs in words: what a principal that was refused lacks, and the command that puts it right. Pure.

The commands are Kafka's own `kafka-acls.sh`, between backquotes, so that no sentence around one can become part of it.
They hold names and no secrets. HOST:PORT and ADMIN.properties stand for what only an administrator has.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

# Stands for the scanner's principal where nothing tells its name.
UNKNOWN_PRINCIPAL = "User:<principal>"
WILDCARD = "*"
_COMMAND = "kafka-acls.sh --bootstrap-server HOST:PORT --command-config ADMIN.properties"
_OPTIONS = {"Topic": "--topic", "Group": "--group", "TransactionalId": "--transactional-id", "Cluster": "--cluster"}
# The protocol's errors for a missing ACL.
_REFUSED = frozenset(
    f"{what}_AUTHORIZATION_FAILED" for what in ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN")
)
# org.apache.kafka.common.acl.AclOperation: what a DENY rule must name to deny Describe. Read, Write, Delete and Alter
# imply Describe where they are allowed, but not where they are denied (`StandardAuthorizerData.findResult`).
_DENYING = {2: "All", 8: "Describe"}


@dataclass(frozen=True, slots=True)
class Permission:
    """An operation on a resource, or on all whose names begin so. `name` means nothing for the Cluster."""

    operation: str
    resource_type: str
    name: str = WILDCARD
    prefixed: bool = False

    def __str__(self) -> str:
        return f"{self.operation} on {self._named}"

    @property
    def _named(self) -> str:
        if self.resource_type == "Cluster":
            return self.resource_type
        return f"{self.resource_type}{' prefix' if self.prefixed else ''} '{self.name}'"

    @property
    def _options(self) -> str:
        """The same for `kafka-acls.sh`."""
        named = "" if self.resource_type == "Cluster" else f" {shlex.quote(self.name)}"
        pattern = " --resource-pattern-type prefixed" if self.prefixed else ""
        return f"--operation {self.operation} {_OPTIONS[self.resource_type]}{named}{pattern}"


DESCRIBE_CLUSTER = Permission("Describe", "Cluster")
DESCRIBE_CONFIGS = Permission("DescribeConfigs", "Cluster")
DESCRIBE_ALL_IDS = Permission("Describe", "TransactionalId")
DESCRIBE_ALL_GROUPS = Permission("Describe", "Group")


@dataclass(frozen=True, slots=True)
class AclRule:
    """A rule on transactional ids as DescribeAcls tells it. operation: the number of its AclOperation."""

    name: str
    prefixed: bool
    principal: str
    host: str
    operation: int
    deny: bool

    def covers(self, transactional_id: str) -> bool:
        """Whether the rule is about this id."""
        if self.prefixed:
            return transactional_id.startswith(self.name)
        return self.name in (WILDCARD, transactional_id)

    @property
    def denies_describe(self) -> bool:
        """Whether whom it is for may not describe what it is about, whatever else allows it."""
        return self.deny and self.operation in _DENYING


def lacks(permission: Permission, principal: str) -> str:
    """That this permission is missing, and the command that grants it."""
    return (
        f"this principal needs {permission}, and no DENY rule against it; grant it with "
        f"`{_COMMAND} --add --allow-principal {shlex.quote(principal)} {permission._options}`"
    )


def explained(error: str, code: str | None, permission: Permission, principal: str) -> str:
    """The error of a request that needs this permission; where its code is that of a missing ACL, with the remedy.

    code: the name of the protocol's error, None where it is none.
    """
    return f"{error}: {lacks(permission, principal)}" if code in _REFUSED else error


def denied(rule: AclRule) -> str:
    """That a rule denies Describe on transactional ids, and the command that removes it."""
    forbidden = Permission(_DENYING[rule.operation], "TransactionalId", rule.name, rule.prefixed)
    host = "" if rule.host == WILDCARD else f" --deny-host {shlex.quote(rule.host)}"
    return (
        f"a DENY rule forbids {forbidden} to {rule.principal}; remove it with "
        f"`{_COMMAND} --remove --deny-principal {shlex.quote(rule.principal)}{host} {forbidden._options}`"
    )
