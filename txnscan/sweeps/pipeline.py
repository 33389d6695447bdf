"""A sweep, whatever the engine: plan, read wide, sieve, read, ask the coordinators, read again, judge; and for what
hangs, read what was decided about it.

A transaction that its coordinator claims needs no proof (`claims.py`). On a busy cluster these are nearly all. The rest
is proven. From there on the order of the steps is the proof (see `rules.py`). Each step's results
are plain values in this process before the next begins.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from txnscan.config import LATE_BUFFER_MS, ConfigError, ScanConfig, parse_owner_pattern, printable
from txnscan.coordinators.cluster import Cluster
from txnscan.coordinators.snapshot import Snapshot
from txnscan.engine import Engine
from txnscan.impact.impact import Impact
from txnscan.impact.who_waits import impact_of, read_blockage
from txnscan.kafka.errors import API_SINCE
from txnscan.kafka.failure import ScanError, Unobserved
from txnscan.kafka.topology import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, ClusterView, Key, Topic
from txnscan.kafka.units import duration
from txnscan.reads.observation import Observation, TransactionKey
from txnscan.reads.rows import FencedRow
from txnscan.sweeps.history import History, Incidents, Sightings, StoredFacts
from txnscan.sweeps.identity import continued, first_records_are_gone
from txnscan.sweeps.log_reads import read_outcomes, signed
from txnscan.sweeps.observations import claimed_observation, observe, suspects, with_history, with_offsets
from txnscan.sweeps.reader import Reader, in_scope
from txnscan.sweeps.result import Progress, Scan
from txnscan.sweeps.stuck_markers import stuck_marker_warning
from txnscan.verdict.evidence import Context, Judged, OutcomeEvidence, Verdict
from txnscan.verdict.outcome import outcome, with_outcome
from txnscan.verdict.rules import judge, judge_observation
from txnscan.version import __version__


def scan(
    config: ScanConfig,
    cluster: Cluster,
    engine: Engine,
    *,
    sweep_id: str,
    now_ms: Callable[[], int],
    history: History,
    progress: Progress,
    reads_log: bool = True,
    reads_impact: bool = False,
) -> Scan:
    """Sweeps the cluster once. reads_log: whether to check what hangs against the transaction log, and to read outcomes
    from it. reads_impact: whether to find out what hanging transactions block, and whose they are.
    Raises ClusterUnreachable when no bootstrap server answers, and ConfigError when a topic, partition or broker that
    was asked for by name does not exist.
    """
    started_at_ms = now_ms()
    reader = Reader(cluster, engine, config)

    progress("plan", 0, 1)
    planned = cluster.latest()
    view = planned.view
    unresolved = history.unresolved(view.cluster_id)
    # Where all topics are asked for, those that brokers do not show would be missed silently.
    hidden_topics = cluster.hidden_topics() if config.scope == "all" else None
    check_scope(config, view, in_scope(config, view))
    max_timeout_ms, config_errors = cluster.max_timeout_ms()
    late_after_ms = config.late_after_ms or max_timeout_ms + LATE_BUFFER_MS

    wide = reader.wide(
        planned,
        lambda done, total: progress("read every partition", done, total),
        lambda done, total: progress("read again what failed", done, total),
    )
    read_at_ms = now_ms()
    view = wide.view
    topics = in_scope(config, view)
    open_wide = suspects(wide.rows)
    incidents = unresolved()
    stored = StoredFacts(history, view.cluster_id, {which.producer_id for which in incidents} if reads_log else ())
    # Partitions with incidents are read with proof, even if a coordinator holds all that is open there: only a proven
    # read shows that an incident is over.
    of_incidents = _topic_ids(topics, {(topic, index) for topic, _, index, _, _ in incidents})
    split = cluster.split_by_claim(
        open_wide, of_incidents, lambda done, total: progress("ask who holds them", done, total)
    )
    topic_ids = _topic_ids(topics, open_wide) | of_incidents
    format_failure = cluster.format_failure
    unproven = [claimed_observation(topic_ids[h.key], h, read_at_ms) for h in split.claimed]
    # Earlier sightings are read only where something is open that has no incident yet.
    last_seen = history.last_seen(view.cluster_id) if _has_news(unproven, incidents) else None

    first, agreed = reader.narrow(
        split.unclaimed.keys() | of_incidents.keys(),
        split.agreed,
        lambda done, total: progress("first read", done, total),
    )
    if last_seen is None and _has_news(observe(topic_ids, split.unclaimed, first, first, format_failure), incidents):
        last_seen = history.last_seen(view.cluster_id)

    snapshot, agreed = cluster.snapshot(
        _producer_ids(first) | {p.producer_id for row in split.unclaimed.values() for p in row.open_producers},
        frozenset(topic for topic, _ in first),
        agreed,
        lambda done, total: progress("ask coordinators", done, total),
    )

    still_open = [key for key, row in first.items() if row.open_producers or row.failure is not None]
    second, agreed = reader.narrow(still_open, agreed, lambda done, total: progress("second read", done, total))

    topics_gone = cluster.topics_gone(view, ((which.topic, which.topic_id) for which in incidents))

    progress("judge", 0, 1)
    seen = _earliest(incidents, last_seen() if last_seen is not None else {})
    same = partial(first_records_are_gone, cluster.send, agreed, incidents)
    observed = continued(observe(topic_ids, split.unclaimed, first, second, format_failure), incidents, same)
    observations = with_history(observed, seen)
    context = _context(snapshot, now_ms(), late_after_ms)
    of_held = zip(with_history(unproven, seen), split.claimed, strict=True)
    held = [judge_observation(o, (h.holder,), context) for o, h in of_held]
    # A held transaction that is overdue may block consumers: how much, its partition's offsets show, without proof.
    offsets = reader.offsets({_key(one) for one in held if not one.healthy}, view)
    judged = [
        *engine.judge(observations, snapshot.views, context),
        *(with_offsets(one, offsets.get(_key(one))) for one in held),
    ]
    progress("judge", 1, 1)
    decided: list[OutcomeEvidence] = []
    if reads_log:
        accused = [one for one in judged if one.judgement.verdict is Verdict.HANGING]
        in_logs = partial(progress, "read decisions")
        earlier = stored.of({one.observation.producer_id for one in accused})
        decided = [
            signed(evidence, sweep_id, started_at_ms)
            for evidence in read_outcomes(cluster, engine, config.in_flight_max, accused, earlier, in_logs)
        ]
        judged = with_outcomes(judged, decided)
    hanging = [one for one in judged if one.judgement.verdict is Verdict.HANGING]
    impacts, impact_warnings = (
        _impacts(config, cluster, view, hanging, decided, incidents, progress) if reads_impact and hanging else ({}, ())
    )

    last = {key: row for key, row in {**first, **second}.items() if row.failure is None}
    errors = (
        *([ScanError("plan", hidden_topics)] if hidden_topics is not None else ()),
        *config_errors,
        *(one.in_words(format_failure) for one in (*wide.errors, *_narrow_errors(first, second))),
        *_snapshot_errors(snapshot, judged),
    )
    return Scan(
        sweep_id=sweep_id,
        cluster_id=view.cluster_id,
        scope=config.scope,
        started_at_ms=started_at_ms,
        finished_at_ms=now_ms(),
        late_after_ms=late_after_ms,
        max_timeout_ms=max_timeout_ms,
        brokers=len(view.brokers),
        partitions_planned=wide.planned,
        partitions_failed=wide.planned - wide.answered,
        producers=wide.producers,
        coordinators_planned=snapshot.coordinators_planned,
        coordinators_proven=snapshot.coordinators_proven,
        transactional_ids=split.transactional_ids,
        visibility_error=snapshot.visibility_error or hidden_topics,
        proven={key: row.topic_id for key, row in last.items()},
        ends={key: (row.leader_epoch, row.high_watermark) for key, row in last.items()},
        transactions=tuple(sorted(judged, key=lambda j: _order(j.observation))),
        errors=errors,
        warnings=(
            *_idle_patterns(config, view),
            *_early_threshold(late_after_ms, max_timeout_ms),
            *_old_brokers(errors),
            *stuck_marker_warning(split.prepared, judged, now_ms(), late_after_ms),
            *impact_warnings,
        ),
        settings=config.settings,
        version=__version__,
        store_all=config.store_all,
        broker_ids=tuple(sorted(broker.broker_id for broker in view.brokers)),
        impacts=impacts,
        read_bytes=cluster.read_bytes,
        decided={evidence.observation.transaction_key: evidence for evidence in decided},
        log_epochs=agreed.leader_epochs(TRANSACTION_STATE_TOPIC),
        topics_gone=topics_gone,
    )


def _impacts(
    config: ScanConfig,
    cluster: Cluster,
    view: ClusterView,
    hanging: Sequence[Judged],
    decided: Sequence[OutcomeEvidence],
    incidents: Incidents,
    progress: Progress,
) -> tuple[dict[TransactionKey, Impact], tuple[str, ...]]:
    """What each of these blocks, how it came about and whose it is; and warnings of what could not be seen."""
    progress("ask who waits", 0, 1)
    topics = {topic.name: topic for topic in view.topics}
    offsets = topics.get(CONSUMER_OFFSETS_TOPIC)
    blockage = read_blockage(
        cluster.send,
        cluster.in_parallel,
        hanging,
        [broker.broker_id for broker in view.brokers],
        len(offsets.indexes) if offsets is not None else 0,
        random_token=cluster.random_token,
    )
    patterns = [parse_owner_pattern(text) for text in config.owner_pattern]
    logged = {e.observation.transaction_key: e.logged for e in decided if e.log_error is None}
    found = {}
    for one in hanging:
        which = one.observation.transaction_key
        incident = incidents.get(which)
        known = incident.impact if incident is not None else None
        found[which] = impact_of(
            *(one, blockage, logged.get(which, ()), known, topics, cluster.format_failure, patterns)
        )
    progress("ask who waits", 1, 1)
    return found, blockage.warnings(cluster.format_failure)


def with_outcomes(judged: Sequence[Judged], decided: Iterable[OutcomeEvidence]) -> list[Judged]:
    """The same transactions; those that hang with what was decided about them. Where the log contradicts the
    coordinators, or lacks what earlier sweeps read there, a transaction is judged again, and is not hanging.

    decided: the facts about each that hangs.
    """
    found = {e.observation.transaction_key: e for e in decided}
    concluded = []
    for one in judged:
        which = one.observation.transaction_key
        evidence = found.get(which) if one.judgement.verdict is Verdict.HANGING else None
        if evidence is None:
            concluded.append(one)
        elif evidence.contradiction is not None:
            contradicted = replace(one.evidence, log_contradiction=evidence.contradiction)
            concluded.append(Judged(contradicted, judge(contradicted)))
        else:
            concluded.append(with_outcome(one, outcome(evidence)))
    return concluded


def _has_news(observations: Iterable[Observation], incidents: Incidents) -> bool:
    """Whether one of these has no incident."""
    return any(o.transaction_key not in incidents for o in observations)


def _earliest(incidents: Incidents, last_seen: Sightings) -> Callable[[Observation], int | None]:
    """When an observed transaction was first seen: the earliest time that its incident or its last sighting has.

    A transaction that was only held was seen without proof, perhaps on a deposed leader: another transaction may since
    have begun at the same offset. Under transactions v2 that one has another epoch, and must not inherit the age.
    """

    def earliest(o: Observation) -> int | None:
        which = o.transaction_key
        incident, sighting = incidents.get(which), last_seen.get(which)
        times_ms = [incident.first_seen_ms] if incident is not None else []
        if sighting is not None and sighting.producer_epoch == o.producer_epoch:
            times_ms.append(sighting.first_seen_ms)
        return min(times_ms, default=None)

    return earliest


def _key(judged: Judged) -> Key:
    return (judged.observation.topic, judged.observation.partition)


def _order(o: Observation) -> tuple[str, int, int, int]:
    return (o.topic, o.partition, o.start_offset, o.producer_id)


def _producer_ids(rows: Mapping[Key, FencedRow]) -> frozenset[int]:
    return frozenset(producer.producer_id for row in rows.values() for producer in row.open_producers)


def _context(snapshot: Snapshot, now_ms: int, late_after_ms: int) -> Context:
    return Context(
        coverage_error=snapshot.coverage_error,
        split_error=snapshot.split_errors[0] if snapshot.split_errors else None,
        visibility_error=snapshot.visibility_error,
        now_ms=now_ms,
        late_after_ms=late_after_ms,
    )


def _topic_ids(topics: Iterable[Topic], keys: Collection[Key]) -> dict[Key, str]:
    """The topic id of each of these partitions that is in scope."""
    by_name = {topic.name: topic for topic in topics}
    indexes = {name: frozenset(by_name[name].indexes) for name in {name for name, _ in keys} if name in by_name}
    return {(name, index): by_name[name].topic_id for name, index in keys if index in indexes.get(name, ())}


def check_scope(config: ScanConfig, view: ClusterView, topics: Sequence[Topic]) -> None:
    """Checks that the scope is not empty: a sweep of nothing would report that nothing hangs. topics: those in scope.
    Raises ConfigError.
    """
    for name in config.topic_names:
        indexes = {index for topic in view.topics if topic.name == name for index in topic.indexes}
        if not indexes:
            raise ConfigError("--topic", f"'{name}' does not exist, or this principal may not describe it")
        for index in config.partitions:
            if index not in indexes:
                raise ConfigError("--partition", f"{name} has no partition {index}; it has {len(indexes)}")
    broker_ids = sorted(broker.broker_id for broker in view.brokers)
    for broker_id in config.broker_ids:
        if broker_id not in broker_ids:
            raise ConfigError("--broker-id", f"{broker_id} is not among the cluster's brokers {broker_ids}")
    if config.scope == "all" or any(topic.indexes for topic in topics):
        return
    if config.topic and not any(config.wants_topic(topic.name) for topic in view.topics):
        patterns = " or ".join(f"'{printable(pattern)}'" for pattern in config.topic)
        raise ConfigError(
            "--topic",
            f"{patterns} matches no topic that this principal may describe; a whole name has to match",
        )
    raise ConfigError("--broker-id", f"no partition in scope is led by {' or '.join(map(str, config.broker_ids))} now")


def _idle_patterns(config: ScanConfig, view: ClusterView) -> tuple[str, ...]:
    """A warning for each pattern that matched no topic, where others did."""
    idle = [p for p in config.topic if not any(re.fullmatch(p, topic.name) for topic in view.topics)]
    return tuple(f"--topic '{printable(pattern)}' matches no topic" for pattern in idle)


def _narrow_errors(first: Mapping[Key, FencedRow], second: Mapping[Key, FencedRow]) -> list[Unobserved]:
    return [
        Unobserved(stage, row.failure, row.leader if row.leader >= 0 else None, row.topic, row.partition)
        for stage, rows in (("first read", first), ("second read", second))
        for row in rows.values()
        if row.failure is not None
    ]


def _snapshot_errors(snapshot: Snapshot, judged: Sequence[Judged]) -> list[ScanError]:
    """What the snapshot missed. A cluster that never had a transaction has no coordinators, which is no error then."""
    errors = list(snapshot.errors)
    if snapshot.coordinators_planned or judged:
        errors += snapshot.coverage_errors
    if snapshot.visibility_error is not None:
        errors.append(ScanError("snapshot", snapshot.visibility_error))
    return errors


def _early_threshold(late_after_ms: int, max_timeout_ms: int) -> tuple[str, ...]:
    if late_after_ms >= max_timeout_ms:
        return ()
    return (
        f"--late-after {duration(late_after_ms)} is below the brokers' transaction.max.timeout.ms of "
        f"{duration(max_timeout_ms)}: transactions will be called late that may live",
    )


def _old_brokers(errors: Sequence[ScanError]) -> tuple[str, ...]:
    """One sentence on the brokers that lack an API, and what cannot be judged without it; nothing where none does."""
    lacking: dict[str | None, set[int]] = defaultdict(set)
    for error in errors:
        if error.broker is not None and error.lacks_api in API_SINCE:
            lacking[error.lacks_api].add(error.broker)
    consequences = (
        (("DescribeProducers",), "what is open on the partitions led there is not seen"),
        (
            ("ListTransactions", "DescribeTransactions"),
            "an open transaction is indeterminate unless another broker shows its owner",
        ),
    )
    clauses = [
        f"{' and '.join(f'{_brokers(lacking[api])} {api} (since Kafka {API_SINCE[api]})' for api in missing)}: {so}"
        for apis, so in consequences
        if (missing := [api for api in apis if api in lacking])
    ]
    return ("; ".join(clauses),) if clauses else ()


def _brokers(broker_ids: Iterable[int]) -> str:
    *others, last = map(str, sorted(broker_ids))
    return f"brokers {', '.join(others)} and {last} lack" if others else f"broker {last} lacks"
