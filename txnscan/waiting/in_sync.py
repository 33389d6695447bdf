"""Reads whether the logs of partitions take writes (`writability.py`). The only place that reads it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from txnscan.coordinators.cluster import Cluster
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import Failure
from txnscan.kafka.protocol.api_versions import ApiVersions
from txnscan.kafka.protocol.describe_configs import min_in_sync_replicas, transaction_log_factor
from txnscan.kafka.protocol.replicas import numbers_of, read_incomplete, read_last, read_replicas, with_eligible
from txnscan.kafka.security.acls import needing
from txnscan.kafka.security.needs import CONFIGS_OF_TOPICS
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, ClusterView, Key, PartitionReplicas
from txnscan.waiting.exposure import read_versions
from txnscan.waiting.known_causes import drops_markers
from txnscan.waiting.writability import NoLog, WriteState, WriteStates


def read_write_states(
    cluster: Cluster,
    asked: int,
    keys: Collection[Key],
    *,
    with_last: bool = False,
    silent: Mapping[int, Failure] | None = None,
) -> WriteStates:
    """The write states of `__transaction_state`, and of these partitions. Never raises.

    asked: a broker with the newest metadata. An older one may show replicas in sync that are not, or the reverse.
    with_last: whether partitions matter, too, that would have no leader if theirs stopped. silent: the brokers that did
    not answer a moment ago, and why; None to ask those of all in-sync replicas.
    """
    try:
        found = read_replicas(cluster.send, asked, {**numbers_of(keys), TRANSACTION_STATE_TOPIC: None})
    except RequestFailed as failed:
        return WriteStates(failure=failed.failure)
    logs = [key for key in found if key[0] == TRANSACTION_STATE_TOPIC]
    wanted = [found[key] for key in sorted({*logs, *keys}) if key in found]
    states = states_of(cluster, asked, wanted, silent)
    others = [one for one in states if not one.is_transaction_log]
    at_risk = any(one.replicas.has_no_leader or (with_last and one.is_last) for one in others)
    coordinators = {found[key].leader for key in logs} if at_risk else set[int]()
    return WriteStates({one.replicas.key: one for one in states}, len(logs), _dropping(cluster, coordinators))


def read_behind_last(cluster: Cluster, asked: int, opened: Mapping[Key, int]) -> dict[int, int] | None:
    """By broker, the number of open transactions on partitions that have no leader once it stops. None if that is not
    known. asked: see `read_write_states`. opened: the number of open transactions on each partition.
    """
    try:
        found = read_last(cluster.send, asked, {topic for topic, _ in opened})
    except RequestFailed:
        return None
    counts: dict[int, int] = defaultdict(int)
    for one in with_eligible(cluster.send, asked, [each for each in found if each.key in opened]):
        if not one.electable(one.in_sync):
            counts[one.in_sync[0]] += opened[one.key]
    return dict(counts)


def read_stopped(cluster: Cluster, asked: int) -> list[WriteState]:
    """Of all topics, the partitions that take no writes, as far as they lack a replica or a leader. Raises
    RequestFailed. asked: see `read_write_states`.
    """
    states = states_of(cluster, asked, read_incomplete(cluster.send, asked))
    return [one for one in states if one.takes_writes is False]


def read_no_log(cluster: Cluster, view: ClusterView) -> NoLog | None:
    """The reason if `__transaction_state` does not exist. None if it does, or if that is not known. view: the newest
    metadata, of this topic.
    """
    if dict(view.topic_errors).get(TRANSACTION_STATE_TOPIC) != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
        return None
    for broker in view.brokers:
        try:
            return NoLog(transaction_log_factor(cluster.send, broker.broker_id), len(view.brokers))
        except RequestFailed:
            continue
    return NoLog(None, len(view.brokers))


def states_of(
    cluster: Cluster, asked: int, partitions: Iterable[PartitionReplicas], silent: Mapping[int, Failure] | None = None
) -> list[WriteState]:
    """The write states of these partitions. silent: see `read_write_states`.

    A topic's own setting is the same at every broker, so one is asked. But a leader without it has its own default, and
    decides by that. So if replicas are not in sync, leaders are asked. The release of a leader matters only if the
    setting exceeds the number of replicas.
    """
    found = list(partitions)
    lacking = [one for one in found if not one.is_complete]
    eligible = {one.key: one for one in with_eligible(cluster.send, asked, lacking)}
    found = [eligible.get(one.key, one) for one in found]
    settings = _settings(
        cluster, {one.key: asked if one.is_complete or one.leader < 0 else one.leader for one in found}
    )
    doubtful = {one.leader for one in found if _exceeds(settings[one.key], len(one.replicas))}
    to_ask = doubtful if silent is not None else {broker for one in found for broker in one.in_sync}
    answers, failures = read_versions(cluster, (one for one in to_ask if one >= 0))
    silent = {broker: one.failure for broker, one in failures.items()} | dict(silent or {})
    return [_with_answers(one, settings[one.key], answers.get(one.leader), silent) for one in found]


def _exceeds(setting: int | Failure, replicas: int) -> bool:
    return not isinstance(setting, Failure) and setting > replicas


def _with_answers(
    partition: PartitionReplicas,
    setting: int | Failure,
    leader: ApiVersions | None,
    silent: Mapping[int, Failure],
) -> WriteState:
    """The write state by these answers. leader: its API versions, None if it did not answer. silent: why brokers did
    not answer.
    """
    mute = tuple(broker for broker in partition.in_sync if broker in silent)
    state = WriteState(partition, is_capped=leader.caps_min_in_sync if leader is not None else None, silent=mute)
    if isinstance(setting, Failure):
        return replace(state, failure=setting)
    return replace(state, min_in_sync=setting, failure=silent[mute[0]] if mute else None)


def _settings(cluster: Cluster, at: dict[Key, int]) -> dict[Key, int | Failure]:
    """`min.insync.replicas` of each partition, by the broker to ask."""
    by_broker: dict[int, set[str]] = defaultdict(set)
    for (topic, _), broker_id in at.items():
        by_broker[broker_id].add(topic)

    def ask(broker_id: int) -> dict[str, int | Failure]:
        topics = sorted(by_broker[broker_id])
        try:
            found = min_in_sync_replicas(cluster.send, broker_id, topics)
        except RequestFailed as failed:
            return dict.fromkeys(topics, failed.failure)
        return {
            topic: needing(one, CONFIGS_OF_TOPICS.on(topic)) if isinstance(one, Failure) else one
            for topic, one in found.items()
        }

    answers = dict(zip(by_broker, cluster.in_parallel(ask, by_broker), strict=True))
    return {key: answers[broker_id][key[0]] for key, broker_id in at.items()}


def _dropping(cluster: Cluster, broker_ids: Iterable[int]) -> frozenset[int]:
    versions, _ = read_versions(cluster, (one for one in broker_ids if one >= 0))
    return frozenset(broker_id for broker_id, one in versions.items() if drops_markers(one.metadata_level))
