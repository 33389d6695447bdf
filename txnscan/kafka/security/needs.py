"""The ACLs that txnscan needs: the only list. Pure.

Whoever sends a request names the ACL of its failure by a row of this list. `check` asks the brokers for each row
(`sweeps/permissions.py`), and docs/acls.md shows the rows as `kafka-acls.sh` lines and as a Strimzi `KafkaUser`.
Sources of the operations: the modules of `kafka/protocol`, each of which starts with its ACLs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from txnscan.kafka.failure import Permission


class Use(StrEnum):
    """What an ACL is for.

    PROOF: a sweep; without it the sweep is incomplete. IMPACT: what transactions block; without it a sweep has a
    warning. APPLY: markers, by `apply --execute` and `abort`. FENCE: `force-terminate`.
    """

    PROOF = "proof"
    IMPACT = "impact"
    APPLY = "apply"
    FENCE = "fence"

    @property
    def only_reads(self) -> bool:
        """Whether a principal that only scans needs it."""
        return self in (Use.PROOF, Use.IMPACT)


@dataclass(frozen=True, slots=True)
class Acl:
    """An ACL. reads: what is read or sent with it. lacking: what is missing without it, as a sentence."""

    operation: str
    resource_type: str
    use: Use
    reads: str
    lacking: str

    @property
    def permission(self) -> Permission:
        """On all resources of its type."""
        return Permission(self.operation, self.resource_type)

    def on(self, name: str, *, prefixed: bool = False) -> Permission:
        """On the resource of this name, or on all whose names begin with it."""
        return Permission(self.operation, self.resource_type, name, prefixed)


DESCRIBE_TOPICS = Acl(
    *("Describe", "Topic", Use.PROOF),
    "Metadata, ListOffsets, OffsetForLeaderEpoch",
    "a topic is invisible to any client, so the sweep is incomplete",
)
READ_TOPICS = Acl(
    *("Read", "Topic", Use.PROOF),
    "DescribeProducers, and Fetch of `__transaction_state` and of the records around a transaction",
    "the partitions of a topic cannot be read, so the sweep is incomplete",
)
DESCRIBE_IDS = Acl(
    *("Describe", "TransactionalId", Use.PROOF),
    "ListTransactions, DescribeTransactions",
    "the owner of a transaction may be hidden, so orphans are indeterminate",
)
DESCRIBE_CLUSTER = Acl(
    *("Describe", "Cluster", Use.PROOF),
    "DescribeAcls, to find the rules that could hide an id; DescribeQuorum, to prove leaders if a broker does not "
    "answer, and for `check --before-stop`; DescribeLogDirs, for the size of partitions whose compaction is blocked, "
    "and the free space of their disk",
    "an orphan cannot be distinguished from a transaction with a hidden owner, so it is indeterminate",
)
CONFIGS_OF_BROKERS = Acl(
    *("DescribeConfigs", "Cluster", Use.PROOF),
    "`transaction.max.timeout.ms`; without a transaction log `transaction.state.log.replication.factor`",
    "the longest timeout is taken to be 15 minutes, and the sweep is incomplete",
)
DESCRIBE_GROUPS = Acl(
    *("Describe", "Group", Use.IMPACT),
    "ListGroups, OffsetFetch, to find the groups that wait for a hanging or live transaction",
    "the groups that wait for a transaction are not known",
)
CONFIGS_OF_TOPICS = Acl(
    *("DescribeConfigs", "Topic", Use.IMPACT),
    "the cleanup policy and retention of topics with a transaction that hangs or holds readers back; "
    "`min.insync.replicas` of `__transaction_state` and of topics with open transactions; for `check --before-stop` "
    "also `unclean.leader.election.enable`",
    "it is not known whether compaction or retention waits for a transaction, and whether logs take writes",
)
CONFIGS_OF_GROUPS = Acl(
    *("DescribeConfigs", "Group", Use.IMPACT),
    "the isolation level of share groups, only on a cluster that has them",
    "the share groups that wait for a transaction are not known",
)
ALTER_CLUSTER = Acl(
    *("Alter", "Cluster", Use.APPLY),
    "WriteTxnMarkers of `apply --execute` and `abort` (brokers before 3.8 need ClusterAction instead)",
    "brokers refuse every marker of apply --execute and abort",
)
WRITE_IDS = Acl(
    *("Write", "TransactionalId", Use.FENCE),
    "InitProducerId of `force-terminate`. Grant it only on the ids that you fence",
    "brokers refuse force-terminate",
)

ACLS = (
    *(DESCRIBE_TOPICS, READ_TOPICS, DESCRIBE_IDS, DESCRIBE_CLUSTER, CONFIGS_OF_BROKERS),
    *(DESCRIBE_GROUPS, CONFIGS_OF_TOPICS, CONFIGS_OF_GROUPS, ALTER_CLUSTER, WRITE_IDS),
)
TO_SCAN = tuple(one for one in ACLS if one.use.only_reads)
