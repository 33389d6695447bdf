"""The principals of the shared cluster: one for each gap in ACLs, what it sees for it, and what it is told.

All that their sweeps look at begins with `acl-`, so that other tests on the cluster are not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PASSWORD = "b0b-S3cret"
# org.apache.kafka.common.resource.ResourceType and PatternType, common.acl.AclOperation and AclPermissionType.
RESOURCES = {"Topic": 2, "Group": 3, "Cluster": 4, "TransactionalId": 5}
OPERATIONS = {"All": 2, "Read": 3, "Write": 4, "Describe": 8, "DescribeConfigs": 10}
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
STATE, OFFSETS = "__transaction_state", "__consumer_offsets"


@dataclass(frozen=True)
class Acl:
    """One rule. Without a principal it is for the one whose case it is."""

    operation: str
    resource: str
    name: str = "*"
    prefixed: bool = False
    deny: bool = False
    principal: str = ""
    host: str = "*"

    @property
    def fields(self) -> dict[str, Any]:
        """What CreateAcls calls them."""
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
        """What DescribeAcls and DeleteAcls call them."""
        names = {"resource_pattern_type": "pattern_type_filter", "operation": "operation"}
        names |= {"permission_type": "permission_type"}
        return {names.get(name, f"{name}_filter"): value for name, value in self.fields.items()}


def deny(operation: str, resource: str, name: str, **changes: Any) -> Acl:
    return Acl(operation, resource, name, deny=True, **changes)


def only(*prefixes: str) -> tuple[Acl, ...]:
    """Describe and Read on the topics whose names begin so."""
    return tuple(Acl(operation, "Topic", p, prefixed=True) for operation in ("Describe", "Read") for p in prefixes)


TOPICS = (Acl("Describe", "Topic"), Acl("Read", "Topic"))
IDS = (Acl("Describe", "TransactionalId"),)
ACLS = (Acl("Describe", "Cluster", "kafka-cluster"),)
CONFIGS = (Acl("DescribeConfigs", "Cluster", "kafka-cluster"),)
# What the docs' table lists; without the last ones all verdicts are the same.
PROOF = (*TOPICS, *IDS, *ACLS, *CONFIGS)
LISTED = (*PROOF, Acl("Describe", "Group"), Acl("DescribeConfigs", "Topic"))

HANGING = ("hanging", "orphan")
OWNED = ("ongoing", "owned")
HIDDEN = ("indeterminate", "visibility")
# What is planted, by partition, and what a principal that sees everything says of it.
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
    """A principal with these rules, and in what its sweep differs from the truth. None: it is not seen at all.

    says: what the sweep's errors name, in any order; there is an error for nothing else. topics: the scope of
    the sweep; a principal that sees no other topics sweeps everything.
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
        # The id is seen, but not whether its coordinator has it whole.
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
    # Rules that do not hide anything from their principal: it, and not the rules, is what the broker is asked about.
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
    # A topic that may be read but not described is invisible, also in the transactions that hold it.
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
        # Any other topic would be as invisible to it as this one.
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

USERS = (*(case.user for case in CASES), REVOKED, REPAIRED, COMMANDED, RESOLVER)
