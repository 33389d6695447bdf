"""The principals of the shared cluster: each has a gap in its ACLs, the resulting view, and the expected errors.

Their topics begin with `acl-`, so sweeps do not see other tests on the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from txnscan.kafka.security import needs

PASSWORD = "b0b-S3cret"
# org.apache.kafka.common.resource.ResourceType and PatternType, common.acl.AclOperation and AclPermissionType.
RESOURCES = {"Topic": 2, "Group": 3, "Cluster": 4, "TransactionalId": 5}
OPERATIONS = {"All": 2, "Read": 3, "Write": 4, "Alter": 7, "Describe": 8, "DescribeConfigs": 10}
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
STATE, OFFSETS = "__transaction_state", "__consumer_offsets"


@dataclass(frozen=True)
class Acl:
    """A rule. Without a principal it applies to the principal of its case."""

    operation: str
    resource: str
    name: str = "*"
    prefixed: bool = False
    deny: bool = False
    principal: str = ""
    host: str = "*"

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of CreateAcls."""
        return {
            "resource_type": RESOURCES[self.resource],
            "resource_name": self.name,
            "resource_pattern_type": PREFIXED if self.prefixed else LITERAL,
            "principal": self.principal,
            "host": self.host,
            "operation": OPERATIONS[self.operation],
            "permission_type": DENY if self.deny else ALLOW,
        }

    @property
    def filter(self) -> dict[str, Any]:
        """The fields of DescribeAcls and DeleteAcls."""
        names = {"resource_pattern_type": "pattern_type_filter", "operation": "operation"}
        names |= {"permission_type": "permission_type"}
        return {names.get(name, f"{name}_filter"): value for name, value in self.fields.items()}


def deny(operation: str, resource: str, name: str, **changes: Any) -> Acl:
    return Acl(operation, resource, name, deny=True, **changes)


def only(*prefixes: str) -> tuple[Acl, ...]:
    """Describe and Read on the topics with this prefix."""
    return tuple(Acl(operation, "Topic", p, prefixed=True) for operation in ("Describe", "Read") for p in prefixes)


TOPICS = (Acl("Describe", "Topic"), Acl("Read", "Topic"))
IDS = (Acl("Describe", "TransactionalId"),)
ACLS = (Acl("Describe", "Cluster", "kafka-cluster"),)
CONFIGS = (Acl("DescribeConfigs", "Cluster", "kafka-cluster"),)


def of_need(one: needs.Acl) -> Acl:
    """The rule for a row of the list."""
    return Acl(one.operation, one.resource_type, "kafka-cluster" if one.resource_type == "Cluster" else "*")


# The list in the docs. Without the rules for the impact all verdicts are the same.
PROOF = tuple(of_need(one) for one in needs.TO_SCAN if one.use is needs.Use.PROOF)
LISTED = tuple(map(of_need, needs.TO_SCAN))

HANGING = ("hanging", "orphan")
OWNED = ("ongoing", "owned")
HIDDEN = ("indeterminate", "visibility")
# The planted transactions by partition, with their verdicts for a principal with full access.
TRUTH = {
    "acl-clicks-0": HANGING,
    "acl-backfill-0": OWNED,
    "acl-shipments-0": ("hanging", "stale_epoch"),
    "acl-first-0": OWNED,
    "acl-other-0": OWNED,
    "acl-lone-0": ("hanging", "live_epoch"),
    "offsets": OWNED,
}


@dataclass(frozen=True)
class Case:
    """A principal with these rules, and the differences of its sweep from the truth. None: not visible at all.

    says: the errors of the sweep, in any order, without others. topics: the scope of the sweep. A principal that sees
    no other topics sweeps everything.
    """

    user: str
    acls: tuple[Acl, ...]
    differs: Mapping[str, tuple[str, str] | None]
    says: tuple[str, ...]
    complete: bool = False
    topics: tuple[str, ...] = ("acl-.*", OFFSETS)


def hides(*partitions: str) -> dict[str, tuple[str, str] | None]:
    return dict.fromkeys(partitions, HIDDEN)


NEEDS_IDS = "needs Describe on TransactionalId '*'"
WITHOUT_IDS = (*TOPICS, *ACLS, *CONFIGS)
CASES = (
    Case("everything", LISTED, {}, (), complete=True),
    Case("no-groups", PROOF, {}, (), complete=True),
    Case("no-ids", WITHOUT_IDS, hides(*TRUTH), (NEEDS_IDS,)),
    Case(
        "ids-by-prefix",
        (*WITHOUT_IDS, Acl("Describe", "TransactionalId", "acl-backfill-", prefixed=True)),
        hides(*TRUTH) | {"acl-backfill-0": OWNED},
        (NEEDS_IDS,),
    ),
    Case(
        "bystander-by-prefix",
        (*WITHOUT_IDS, Acl("Describe", "TransactionalId", "acl-shipments-", prefixed=True)),
        # The id is visible, but the claim of its coordinator may be incomplete.
        hides(*TRUTH) | {"acl-shipments-0": ("indeterminate", "coverage")},
        (NEEDS_IDS,),
    ),
    Case(
        "denied-one-id",
        (*LISTED, deny("Describe", "TransactionalId", "acl-backfill-service")),
        hides("acl-clicks-0", "acl-backfill-0"),
        ("a DENY rule forbids Describe on TransactionalId 'acl-backfill-service' to User:denied-one-id",),
    ),
    Case(
        "denied-a-prefix-here",
        (*LISTED, deny("All", "TransactionalId", "acl-back", prefixed=True, host="127.0.0.1")),
        hides("acl-clicks-0", "acl-backfill-0"),
        ("a DENY rule forbids All on TransactionalId prefix 'acl-back' to User:denied-a-prefix-here",),
    ),
    # Rules that hide no id from their principal: the broker is asked about the principal, not about the rules.
    Case("denied-elsewhere", (*LISTED, deny("All", "TransactionalId", "*", host="192.0.2.1")), {}, (), complete=True),
    Case("denied-write", (*LISTED, deny("Write", "TransactionalId", "*")), {}, (), complete=True),
    Case(
        "others-are-denied",
        (*LISTED, deny("Describe", "TransactionalId", "acl-backfill-service", principal="User:somebody")),
        {},
        (),
        complete=True,
    ),
    Case(
        "no-read",
        (Acl("Describe", "Topic"), *only(*(f"acl-{letter}" for letter in "bsfol"), "__"), *IDS, *ACLS, *CONFIGS),
        {"acl-clicks-0": None},
        ("needs Read on Topic 'acl-clicks'",),
    ),
    # A topic with Read and without Describe is invisible, also within transactions.
    Case(
        "denied-a-topic",
        (*LISTED, deny("Describe", "Topic", "acl-other")),
        {"acl-other-0": None, "acl-lone-0": HIDDEN},
        (),
    ),
    Case("denied-the-offsets", (*LISTED, deny("Describe", "Topic", OFFSETS)), {"offsets": None}, (), complete=True),
    Case("no-acls", (*TOPICS, *IDS, *CONFIGS), hides("acl-clicks-0"), ("needs Describe on Cluster",)),
    Case("no-configs", (*TOPICS, *IDS, *ACLS), {}, ("needs DescribeConfigs on Cluster",), complete=False),
    Case(
        "no-coordinators",
        (*only("acl-", "__c"), *IDS, *ACLS, *CONFIGS),
        dict.fromkeys(TRUTH, ("indeterminate", "coverage")),
        # Any other topic would be as invisible to it.
        (f"needs Describe on Topic '{STATE}'", "topics may be invisible: this principal needs Describe on Topic '*'"),
        topics=(),
    ),
    Case(
        "nothing",
        (),
        dict.fromkeys(TRUTH),
        (
            f"needs Describe on Topic '{STATE}'",
            "topics may be invisible",
            "needs Describe on Cluster",
            "needs DescribeConfigs on Cluster",
        ),
        topics=(),
    ),
)
# Principals whose rules change while their tests run.
REVOKED, REPAIRED, COMMANDED, RESOLVER = "revoked", "repaired", "commanded", "resolver"
# Principals with the ACLs of the docs; and each with all rows of the list but one.
OF_DOCS = ("txnscan", "txnscan-apply")
WITHOUT = {f"without-{one.operation}-{one.resource_type}": one for one in needs.ACLS if one.use is not needs.Use.FENCE}
EMPTY_HANDED = "empty-handed"

USERS = (*(case.user for case in CASES), REVOKED, REPAIRED, COMMANDED, RESOLVER, *OF_DOCS, *WITHOUT, EMPTY_HANDED)
