"""The ACLs that a principal lacks: each row of `kafka/security/needs.py` is asked of the brokers. Only reads.

All rows are asked at once: no missing ACL hides another one. Brokers decide about an ACL before they look at the
resource. So a random name shows whether the principal has an ACL on all resources. A principal with ACLs on some
resources is judged by the topics that it may describe: it lacks nothing if it has the ACL on each of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TypeVar

from txnscan.coordinators.cluster import Cluster
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import Failure, Permission
from txnscan.kafka.protocol.api_versions import ApiVersions
from txnscan.kafka.protocol.describe_acls import transactional_id_rules
from txnscan.kafka.protocol.describe_cluster import cluster_operations
from txnscan.kafka.protocol.describe_configs import min_in_sync_replicas
from txnscan.kafka.protocol.describe_producers import describe_producers
from txnscan.kafka.security.acls import needing
from txnscan.kafka.security.needs import (
    ACLS,
    ALTER_CLUSTER,
    CONFIGS_OF_BROKERS,
    CONFIGS_OF_GROUPS,
    CONFIGS_OF_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUPS,
    DESCRIBE_IDS,
    DESCRIBE_TOPICS,
    READ_TOPICS,
    Acl,
    Use,
)
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Topic
from txnscan.waiting.groups import hidden_groups, hidden_share_levels

Item = TypeVar("Item")
_TOPICS_A_REQUEST = 500


@dataclass(frozen=True, slots=True)
class Lacking:
    """Why something cannot be read with an ACL of the list. failure.needs: the permission to grant, if it is missing.
    topics: those that are refused; empty if the failure is not about topics.
    """

    acl: Acl
    failure: Failure
    topics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Asked:
    """The cluster to ask. topics: those in scope that this principal may describe, with `__transaction_state`.
    shown_by: the broker that showed them. whole: whether all topics are in scope. versions: of the brokers that answer.
    """

    cluster: Cluster
    topics: Sequence[Topic]
    shown_by: int
    whole: bool
    versions: Mapping[int, ApiVersions]

    @cached_property
    def nowhere(self) -> str:
        """A name that no resource has."""
        return f"txnscan-{self.cluster.random_token()}"

    @cached_property
    def brokers(self) -> tuple[int, ...]:
        """The brokers that answer."""
        return tuple(sorted(self.versions))

    @cached_property
    def hidden(self) -> Failure | None:
        """Why topics in scope may be invisible."""
        return self.cluster.hidden_topics(self.shown_by) if self.whole else None


def read_lacking(asked: Asked, uses: Collection[Use]) -> Iterator[Lacking]:
    """What this principal lacks for these uses, in the order of the list."""
    for acl in ACLS:
        if acl.use in uses and acl in PROBES:
            yield from PROBES[acl](asked)


def _describe_topics(asked: Asked) -> Iterator[Lacking]:
    if asked.hidden is not None:
        yield Lacking(DESCRIBE_TOPICS, asked.hidden)
        return
    # Without scope, the topic is one of all.
    errors = dict(asked.cluster.newest([TRANSACTION_STATE_TOPIC]).topic_errors)
    if errors.get(TRANSACTION_STATE_TOPIC) == ErrorCode.TOPIC_AUTHORIZATION_FAILED.name:
        yield _refused(
            DESCRIBE_TOPICS, Failure("", ErrorCode.TOPIC_AUTHORIZATION_FAILED.name), [TRANSACTION_STATE_TOPIC]
        )


def _read_topics(asked: Asked) -> Iterator[Lacking]:
    """Reads one partition of each topic."""
    by_leader: dict[int, dict[str, tuple[int, ...]]] = defaultdict(dict)
    for topic in asked.topics:
        led = ((leader, index) for index, leader in zip(topic.indexes, topic.leaders, strict=True) if leader >= 0)
        for leader, index in list(led)[:1]:
            by_leader[leader][topic.name] = (index,)
    if asked.hidden is not None and asked.brokers:
        by_leader[asked.brokers[0]][asked.nowhere] = (0,)
    send = asked.cluster.send

    def answers(leader: int, names: Sequence[str]) -> Iterator[tuple[str, Failure | None]]:
        found = describe_producers(send, leader, {name: by_leader[leader][name] for name in names})
        return ((name, answer.failure) for (name, _), answer in found.items())

    yield from _of_topics(READ_TOPICS, asked, {leader: sorted(names) for leader, names in by_leader.items()}, answers)


def _configs_of_topics(asked: Asked) -> Iterator[Lacking]:
    names = [*(topic.name for topic in asked.topics), *([asked.nowhere] if asked.hidden is not None else [])]
    send = asked.cluster.send

    def answers(broker_id: int, names: Sequence[str]) -> Iterator[tuple[str, Failure | None]]:
        found = min_in_sync_replicas(send, broker_id, names)
        return ((name, one if isinstance(one, Failure) else None) for name, one in found.items())

    yield from _of_topics(CONFIGS_OF_TOPICS, asked, dict.fromkeys(asked.brokers[:1], names), answers)


def _of_topics(
    acl: Acl,
    asked: Asked,
    by_broker: Mapping[int, Sequence[str]],
    answers: Callable[[int, Sequence[str]], Iterable[tuple[str, Failure | None]]],
) -> Iterator[Lacking]:
    """The topics that brokers refuse, by the reason. Of a name that no topic has, only a missing ACL counts."""
    refused: dict[Failure, list[str]] = defaultdict(list)
    for broker_id, names in by_broker.items():
        for some in _parts(names, _TOPICS_A_REQUEST):
            try:
                found = list(answers(broker_id, some))
            except RequestFailed as failed:
                found = [(name, failed.failure) for name in some]
            for name, failure in found:
                lacks = failure is not None and needing(failure, acl.permission).needs is not None
                if failure is not None and (lacks or name != asked.nowhere):
                    refused[failure].append(name)
    for failure, names in sorted(refused.items(), key=lambda item: (item[0].error, item[1])):
        yield _refused(acl, failure, sorted(names), everywhere=asked.nowhere in names)


def _refused(acl: Acl, failure: Failure, topics: Sequence[str], *, everywhere: bool = False) -> Lacking:
    """One topic needs the ACL on itself, several need it on all."""
    needs = acl.permission if everywhere or len(topics) > 1 else acl.on(topics[0])
    return Lacking(acl, needing(failure, needs), () if everywhere else tuple(topics))


def _describe_ids(asked: Asked) -> Iterator[Lacking]:
    hidden = asked.cluster.hidden_ids(asked.brokers)
    if hidden is not None:
        yield Lacking(DESCRIBE_IDS, hidden)


def _describe_cluster(asked: Asked) -> Iterator[Lacking]:
    for broker_id in asked.brokers[:1]:
        try:
            transactional_id_rules(asked.cluster.send, broker_id)
        except RequestFailed as failed:
            yield Lacking(DESCRIBE_CLUSTER, needing(failed.failure, DESCRIBE_CLUSTER.permission))


def _configs_of_brokers(asked: Asked) -> Iterator[Lacking]:
    _, errors = asked.cluster.max_timeout_ms()
    yield from (Lacking(CONFIGS_OF_BROKERS, error.failure) for error in errors[:1])


def _describe_groups(asked: Asked) -> Iterator[Lacking]:
    hidden = hidden_groups(asked.cluster.send, asked.brokers, asked.nowhere)
    if hidden is not None:
        yield Lacking(DESCRIBE_GROUPS, hidden)


def _configs_of_groups(asked: Asked) -> Iterator[Lacking]:
    """Only brokers with share groups know the settings of groups that matter."""
    able = [broker_id for broker_id, one in sorted(asked.versions.items()) if one.has_share_groups]
    hidden = hidden_share_levels(asked.cluster.send, able, asked.nowhere)
    if hidden is not None:
        yield Lacking(CONFIGS_OF_GROUPS, hidden)


def _alter_cluster(asked: Asked) -> Iterator[Lacking]:
    """ClusterAction is enough, too. Whoever has Alter has Describe, and without Describe the answer is empty."""
    for broker_id in asked.brokers[:1]:
        try:
            may = cluster_operations(asked.cluster.send, broker_id)
        except RequestFailed as failed:
            # Brokers before Kafka 2.8 do not report operations.
            if failed.failure.lacks_api is None:
                yield Lacking(ALTER_CLUSTER, failed.failure)
            return
        if not may & {"Alter", "ClusterAction"}:
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED.name
            yield Lacking(ALTER_CLUSTER, Failure("", code, needs=ALTER_CLUSTER.permission))


# No request shows without a change whether an id may be written.
PROBES: Mapping[Acl, Callable[[Asked], Iterator[Lacking]]] = MappingProxyType(
    {
        DESCRIBE_TOPICS: _describe_topics,
        READ_TOPICS: _read_topics,
        DESCRIBE_IDS: _describe_ids,
        DESCRIBE_CLUSTER: _describe_cluster,
        CONFIGS_OF_BROKERS: _configs_of_brokers,
        DESCRIBE_GROUPS: _describe_groups,
        CONFIGS_OF_TOPICS: _configs_of_topics,
        CONFIGS_OF_GROUPS: _configs_of_groups,
        ALTER_CLUSTER: _alter_cluster,
    }
)


def permissions_of(lacking: Iterable[Lacking]) -> tuple[Permission, ...]:
    """The permissions to grant, each once."""
    return tuple(dict.fromkeys(one.failure.needs for one in lacking if one.failure.needs is not None))


def _parts(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))
