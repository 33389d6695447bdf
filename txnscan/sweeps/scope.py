"""The topics and partitions of a sweep."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from txnscan.config import ConfigError, ScanConfig, printable
from txnscan.coordinators.cluster import Cluster
from txnscan.kafka.topology import ClusterView, Key, Topic
from txnscan.sweeps.names import NotObserved, absent_topic


def in_scope(config: ScanConfig, view: ClusterView) -> list[Topic]:
    """The partitions that the user selected, by topic."""
    wanted = config.wanted_topics(topic.name for topic in view.topics)
    topics = [topic for topic in view.topics if topic.name in wanted]
    if not config.partitions and not config.broker_ids:
        return topics
    return [
        topic.only(
            lambda index, leader: (
                (not config.partitions or index in config.partitions)
                and (not config.broker_ids or leader in config.broker_ids)
            )
        )
        for topic in topics
    ]


def check_scope(config: ScanConfig, view: ClusterView, topics: Sequence[Topic], cluster: Cluster) -> None:
    """Checks that the scope is not empty: a sweep of an empty scope would report that no transaction hangs. topics:
    those in scope. Raises ConfigError, and NotObserved if it was not observed that a topic does not exist.
    """
    for name in config.topic_names:
        indexes = {index for topic in view.topics if topic.name == name for index in topic.indexes}
        if not indexes:
            raise absent_topic(cluster, "--topic", name).error(cluster.format_failure)
        for index in config.partitions:
            if index not in indexes:
                raise ConfigError("--partition", f"{name} has no partition {index}; it has {len(indexes)}")
    chosen_brokers(view, config.broker_ids)
    if config.scope == "all" or any(topic.indexes for topic in topics):
        return
    if config.topic and not config.wanted_topics(topic.name for topic in view.topics):
        patterns = " or ".join(f"'{printable(pattern)}'" for pattern in config.topic)
        unseen = cluster.hidden_topics(view.answered_by) or next((one.failure for one in cluster.behind()), None)
        if unseen is not None:
            raise NotObserved(f"--topic: {patterns} matches no visible topic: {cluster.format_failure(unseen)}")
        raise ConfigError("--topic", f"{patterns} matches no topic; a whole name has to match")
    raise ConfigError("--broker-id", f"no partition in scope is led by {' or '.join(map(str, config.broker_ids))} now")


def chosen_brokers(view: ClusterView, wanted: Collection[int]) -> list[int]:
    """The brokers to ask: these, or all if none are given. Raises ConfigError for a broker that the cluster does not
    have.
    """
    known = sorted(broker.broker_id for broker in view.brokers)
    for broker_id in wanted:
        if broker_id not in known:
            raise ConfigError("--broker-id", f"{broker_id} is not among the cluster's brokers {known}")
    return [broker_id for broker_id in known if not wanted or broker_id in wanted]


def narrowed(config: ScanConfig, keys: Collection[Key]) -> ScanConfig:
    """The config for a sweep of these partitions. If they are of several topics, it sweeps whole topics."""
    topics = tuple(sorted({topic for topic, _ in keys}))
    indexes = tuple(sorted({index for _, index in keys})) if len(topics) == 1 else ()
    return replace(config, topic_names=topics, partitions=indexes)


def topic_ids(topics: Iterable[Topic], keys: Collection[Key]) -> dict[Key, str]:
    """The topic id of each of these partitions that is in scope."""
    by_name = {topic.name: topic for topic in topics}
    indexes = {name: frozenset(by_name[name].indexes) for name in {name for name, _ in keys} if name in by_name}
    return {(name, index): by_name[name].topic_id for name, index in keys if index in indexes.get(name, ())}
