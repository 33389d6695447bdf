"""Read the facts that a symptom needs, and no more. No request changes the cluster."""

from __future__ import annotations

from dataclasses import replace

from txnscan.config import LATE_BUFFER_MS
from txnscan.coordinators.cluster import Cluster
from txnscan.explain import finding
from txnscan.explain.ask_error import ask_error
from txnscan.explain.ask_group import ask_group, ask_query
from txnscan.explain.ask_id import ask_id, ask_producer_id
from txnscan.explain.ask_topic import ask_topic
from txnscan.explain.client_errors import ErrorKind
from txnscan.explain.cluster_reads import Asking, read_writes
from txnscan.explain.facts import Facts
from txnscan.explain.symptom import Symptom, SymptomKind
from txnscan.waiting.exposure import read_exposure, read_versions
from txnscan.waiting.known_causes import ExposedTo, exposed, sentence


def ask(asking: Asking, symptom: Symptom) -> Facts:
    """The facts about a symptom. Raises ClusterUnreachable, and ConfigError for a topic that does not exist."""
    facts = _begun(asking, symptom)
    if symptom.error is not None and symptom.error.kind is ErrorKind.SETTING:
        return facts
    questions = {
        SymptomKind.GROUP: ask_group,
        SymptomKind.QUERY: ask_query,
        SymptomKind.TOPIC: ask_topic,
        SymptomKind.TRANSACTIONAL_ID: ask_id,
        SymptomKind.PRODUCER_ID: ask_producer_id,
        SymptomKind.ERROR: ask_error,
    }
    found = questions[symptom.kind](asking, facts)
    if finding.hanging(found) or finding.stuck_prepare(found) or finding.long_lived(found):
        found = replace(found, exposed_to=_exposed_to(asking.cluster))
    return replace(read_writes(asking, found), now_ms=asking.now_ms())


def _exposed_to(cluster: Cluster) -> tuple[ExposedTo, ...]:
    """The known causes to which the cluster is exposed. Empty if no broker answers."""
    brokers = sorted(broker.broker_id for broker in cluster.newest([]).brokers)
    exposure = read_exposure(cluster, read_versions(cluster, brokers)[0])
    return tuple(ExposedTo(cause.id, sentence(cause, exposure), cause.explains) for cause in exposed(exposure))


def _begun(asking: Asking, symptom: Symptom) -> Facts:
    """The facts of every answer: the connection, the principal and the longest timeout."""
    cluster, config = asking.cluster, asking.config
    behind = tuple(one.failure for one in cluster.behind())
    max_timeout_ms, errors = cluster.max_timeout_ms()
    about_it = symptom.error is not None and symptom.error.kind is ErrorKind.SETTING
    return Facts(
        symptom,
        asking.now_ms(),
        config.late_after_ms or max_timeout_ms + LATE_BUFFER_MS,
        connection=config.connection_options(),
        principal=cluster.principal,
        max_timeout_ms=None if errors else max_timeout_ms,
        failures=tuple(one.failure for one in errors) if about_it else behind,
    )
