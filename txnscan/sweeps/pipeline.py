"""A sweep on any engine: plan, read all, claims, first read, snapshot, second read, judge, enrich.

A transaction that its coordinator claims needs no proof (`claims.py`). On a busy cluster nearly all transactions are
claimed. The others need proof, and then the order of the steps is the proof (see `rules.py`). Each step returns plain
values before the next step begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from txnscan.config import LATE_BUFFER_MS, ScanConfig, parse_owner_pattern
from txnscan.coordinators.claims import ClaimSplit
from txnscan.coordinators.cluster import Cluster
from txnscan.coordinators.metadata_image import Latest
from txnscan.coordinators.metadata_quorum import Agreement
from txnscan.coordinators.snapshot import Snapshot
from txnscan.engine import Engine
from txnscan.engine.clock import BootTime
from txnscan.impact.blocking import SHARE_OF_LATE, gets_a_row, looked_at, only_counted_warning
from txnscan.impact.cause import Cause
from txnscan.impact.complete import TopicRead, concluded
from txnscan.impact.event import Member, event_ids
from txnscan.impact.impact import Impact
from txnscan.impact.readers import Positions, blocked_readers, read_partitions, with_readers
from txnscan.impact.who_waits import impact_of, live_impact_of, read_blockage
from txnscan.kafka.client.deadline import TIME_IS_UP
from txnscan.kafka.failure import Failure, FailureCode, Unobserved
from txnscan.kafka.topology import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, ClusterView, Key, Topic
from txnscan.reads.observation import Observation, TransactionKey
from txnscan.reads.rows import FencedRow, OnProgress, WideRow
from txnscan.sweeps.checkpoints import OpenFiles, open_files, read_positions
from txnscan.sweeps.complete import STAGE, read_topics
from txnscan.sweeps.disk import with_disks
from txnscan.sweeps.history import History, Incidents, Sightings, StoredFacts
from txnscan.sweeps.identity import continued, first_records_are_gone
from txnscan.sweeps.log_reads import read_outcomes, signed
from txnscan.sweeps.observations import CLAIMED, claimed_observations, observe, suspects, with_history, with_offsets
from txnscan.sweeps.reader import Reader, Wide
from txnscan.sweeps.result import Progress, Scan
from txnscan.sweeps.scope import check_scope, in_scope, topic_ids
from txnscan.sweeps.stuck_markers import stuck_marker_warning
from txnscan.sweeps.warnings import early_threshold, idle_patterns, old_brokers
from txnscan.verdict.evidence import Context, Judged, OutcomeEvidence, Verdict
from txnscan.verdict.outcome import outcome, with_outcome
from txnscan.verdict.rules import judge, judge_observation
from txnscan.version import __version__

# At most this many open transactions are judged in the driver, in 0.8 s. A join on two cores takes five times as long:
# `python -m tests.bench judge`.
DRIVER_JUDGES_MAX = 20_000
_UNSURE = Failure("the start of its log cannot be read: does its incident go on?", FailureCode.UNUSABLE_ANSWER)


@dataclass(frozen=True, slots=True)
class Run:
    """The arguments that all steps of a sweep share. reads_log, reads_impact, open_checkpoint: see `scan`."""

    config: ScanConfig
    cluster: Cluster
    engine: Engine
    reader: Reader
    sweep_id: str
    started_at_ms: int
    now_ms: Callable[[], int]
    history: History
    progress: Progress
    reads_log: bool
    reads_impact: bool
    boot: Callable[[], BootTime | None]
    open_checkpoint: OpenFiles = open_files

    def stage(self, name: str) -> OnProgress:
        """The progress callback of a step."""
        return partial(self.progress, name)


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of a sweep. latest: the metadata behind the plan. unresolved: waits for the incidents of earlier sweeps.
    hidden_topics: why topics may be hidden from this principal, or None.
    """

    latest: Latest
    unresolved: Callable[[], Incidents]
    hidden_topics: Failure | None
    max_timeout_ms: int
    late_after_ms: int
    blocking_after_ms: int
    errors: tuple[Unobserved, ...]


@dataclass(frozen=True, slots=True)
class AllRead:
    """The read of every partition, without proof. suspects: the partitions with open transactions. of_incidents: the
    topic ids of partitions with incidents.
    """

    wide: Wide
    read_at_ms: int
    topics: Sequence[Topic]
    suspects: Mapping[Key, WideRow]
    incidents: Incidents
    stored: StoredFacts
    of_incidents: Mapping[Key, str]

    @property
    def view(self) -> ClusterView:
        """The metadata for all later steps."""
        return self.wide.view


@dataclass(frozen=True, slots=True)
class Claimed:
    """split: the claimed transactions, and the partitions that need proof. claimed: an observation of each claimed
    transaction. last_seen: waits for the sightings of earlier sweeps; None until they are needed.
    """

    split: ClaimSplit
    topic_ids: Mapping[Key, str]
    claimed: Sequence[Observation]
    last_seen: Callable[[], Sightings] | None


@dataclass(frozen=True, slots=True)
class Fenced:
    """A read with proof, and the agreement of all brokers after it. last_seen: see Claimed."""

    rows: Mapping[Key, FencedRow]
    agreed: Agreement
    last_seen: Callable[[], Sightings] | None


@dataclass(frozen=True, slots=True)
class Snapshotted:
    """The coordinators' answers, and the agreement of all brokers after them."""

    snapshot: Snapshot
    agreed: Agreement


@dataclass(frozen=True, slots=True)
class Enriched:
    """The judged transactions with their outcomes; the facts behind the outcomes; and the impact of hanging
    transactions, and of live transactions that get a row.

    unsure: partitions whose open transaction may or may not continue an incident. topic_reads: of the topics of
    `complete_up_to`, with a failure for each partition without a proven read.
    """

    judged: Sequence[Judged]
    decided: Sequence[OutcomeEvidence]
    impacts: Mapping[TransactionKey, Impact]
    warnings: tuple[str, ...]
    unsure: frozenset[Key] = frozenset()
    topic_reads: tuple[TopicRead, ...] = ()
    topic_errors: tuple[Unobserved, ...] = ()


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
    open_checkpoint: OpenFiles = open_files,
    boot: Callable[[], BootTime | None] = lambda: None,
) -> Scan:
    """Sweeps the cluster once.

    reads_log: whether to check hanging transactions against the transaction log, and to read their outcomes there.
    reads_impact: whether to find out what hanging and live transactions block, and who owns them. open_checkpoint:
    opens a checkpoint of a streaming query. boot: the time since boot. Raises ClusterUnreachable if no bootstrap server
    answers, and ConfigError if a topic, partition or broker that the user named does not exist.
    """
    run = Run(
        *(config, cluster, engine, Reader(cluster, engine, config), sweep_id, now_ms(), now_ms, history, progress),
        reads_log=reads_log,
        reads_impact=reads_impact,
        open_checkpoint=open_checkpoint,
        boot=boot,
    )
    planned = plan(run)
    everything = read_all(run, planned)
    claims = ask_claims(run, everything)
    first = first_read(run, everything, claims)
    snapshotted = ask_coordinators(run, claims, first)
    second = second_read(run, first, snapshotted)
    topics_gone = cluster.topics_gone(everything.view, ((one.topic, one.topic_id) for one in everything.incidents))
    judged, unsure = judge_all(run, planned, everything, claims, (first, snapshotted, second))
    reads, unread = complete_up_to(run, everything)
    enriched = replace(enrich(run, planned, everything, judged), unsure=unsure, topic_reads=reads, topic_errors=unread)
    return result(run, planned, everything, claims, (first, snapshotted, second), enriched, topics_gone)


def plan(run: Run) -> Planned:
    """The most recent metadata, and the ages from which a transaction is late, and from which a live one gets a row."""
    run.progress("plan", 0, 1)
    latest = run.cluster.latest()
    unresolved = run.history.unresolved(latest.view.cluster_id)
    # If all topics are requested, hidden topics would be missed silently.
    hidden_topics = run.cluster.hidden_topics() if run.config.scope == "all" else None
    check_scope(run.config, latest.view, in_scope(run.config, latest.view))
    max_timeout_ms, errors = run.cluster.max_timeout_ms()
    late_after_ms = run.config.late_after_ms or max_timeout_ms + LATE_BUFFER_MS
    blocking_after_ms = run.config.blocking_after_ms or late_after_ms // SHARE_OF_LATE
    return Planned(latest, unresolved, hidden_topics, max_timeout_ms, late_after_ms, blocking_after_ms, errors)


def read_all(run: Run, planned: Planned) -> AllRead:
    """Reads every partition in scope, without proof. This read only finds the partitions that need a closer look."""
    wide = run.reader.wide(planned.latest, run.stage("read every partition"), run.stage("read again what failed"))
    read_at_ms = run.now_ms()
    topics = in_scope(run.config, wide.view)
    incidents = planned.unresolved()
    producer_ids = {which.producer_id for which in incidents} if run.reads_log else ()
    stored = StoredFacts(run.history, wide.view.cluster_id, producer_ids)
    # Partitions with incidents are read with proof, even if coordinators claim all their open transactions: only a
    # proven read shows that an incident is over.
    of_incidents = topic_ids(topics, {(topic, index) for topic, _, index, _, _ in incidents})
    return AllRead(wide, read_at_ms, topics, suspects(wide.rows), incidents, stored, of_incidents)


def ask_claims(run: Run, everything: AllRead) -> Claimed:
    """The claims of coordinators: evidence for an owner, which needs no proof."""
    split = run.cluster.split_by_claim(everything.suspects, everything.of_incidents, run.stage("ask who claims them"))
    ids = topic_ids(everything.topics, everything.suspects) | dict(everything.of_incidents)
    claimed = claimed_observations(ids, split.claimed, everything.read_at_ms)
    # Earlier sightings are read only if an open transaction has no incident yet.
    is_new = _has_news(claimed, everything.incidents)
    return Claimed(split, ids, claimed, run.history.last_seen(everything.view.cluster_id) if is_new else None)


def first_read(run: Run, everything: AllRead, claims: Claimed) -> Fenced:
    """Reads the remaining partitions with proof, before the coordinators are asked."""
    split, last_seen = claims.split, claims.last_seen
    keys = split.unclaimed.keys() | everything.of_incidents.keys()
    rows, agreed = run.reader.fenced(keys, split.agreed, run.stage("first read"))
    if last_seen is None:
        seen = observe(claims.topic_ids, split.unclaimed, rows, rows)
        if _has_news(seen, everything.incidents):
            last_seen = run.history.last_seen(everything.view.cluster_id)
    return Fenced(rows, agreed, last_seen)


def ask_coordinators(run: Run, claims: Claimed, first: Fenced) -> Snapshotted:
    """Asks the coordinators of all open transactions, and proves that no coordinator was missed."""
    open_wide = {p.producer_id for row in claims.split.unclaimed.values() for p in row.open_producers}
    topics = frozenset(topic for topic, _ in first.rows)
    progress = run.stage("ask coordinators")
    return Snapshotted(*run.cluster.snapshot(_producer_ids(first.rows) | open_wide, topics, first.agreed, progress))


def second_read(run: Run, first: Fenced, snapshotted: Snapshotted) -> Fenced:
    """Reads the same partitions again, with proof, after the coordinators were asked."""
    still_open = [key for key, row in first.rows.items() if row.open_producers or row.failure is not None]
    rows, agreed = run.reader.fenced(still_open, snapshotted.agreed, run.stage("second read"))
    return Fenced(rows, agreed, first.last_seen)


def judge_all(
    run: Run, planned: Planned, everything: AllRead, claims: Claimed, proven: tuple[Fenced, Snapshotted, Fenced]
) -> tuple[list[Judged], frozenset[Key]]:
    """A verdict for each open transaction, by the rules; and the partitions of Enriched.unsure."""
    run.progress("judge", 0, 1)
    first, snapshotted, second = proven
    snapshot, incidents, split = snapshotted.snapshot, everything.incidents, claims.split
    seen = _earliest(incidents, second.last_seen() if second.last_seen is not None else {})
    unsure: set[Key] = set()

    def same(o: Observation, which: TransactionKey) -> bool:
        gone = first_records_are_gone(run.cluster.send, second.agreed, incidents, o, which)
        if gone is None:
            unsure.add(o.key)
        return gone is True

    observed = observe(claims.topic_ids, split.unclaimed, first.rows, second.rows)
    observations = with_history(continued(observed, incidents, same), seen)
    context = _context(snapshot, run.now_ms(), planned.late_after_ms)
    of_claims = zip(with_history(claims.claimed, seen), split.claimed, strict=True)
    claimed = [judge_observation(o, (one.claimant,), context) for o, one in of_claims]
    # If the time is up, there is no reason to wait for executors.
    few = len(observations) <= DRIVER_JUDGES_MAX
    engine = run.engine.driver if few or run.cluster.deadline.is_up else run.engine
    others = engine.judge(observations, snapshot.views, context)
    # An overdue or old claimed transaction may block consumers. The offsets of its partition show how much, without
    # proof.
    live = looked_at([*others, *claimed], planned.blocking_after_ms)[0] if run.reads_impact else ()
    unread = {one.observation.key for one in live if one.observation.second.failure == CLAIMED}
    unread |= {one.observation.key for one in claimed if not one.healthy}
    offsets = run.reader.offsets(unread, everything.view)
    judged = [*others, *(with_offsets(one, offsets.get(one.observation.key)) for one in claimed)]
    run.progress("judge", 1, 1)
    return judged, frozenset(unsure)


def enrich(run: Run, planned: Planned, everything: AllRead, judged: Sequence[Judged]) -> Enriched:
    """Adds the outcome of hanging transactions, and the impact of hanging and live transactions. If the log contradicts
    the verdict `hanging`, it is withdrawn.
    """
    decided: list[OutcomeEvidence] = []
    if run.reads_log:
        accused = _hanging(judged)
        stored = everything.stored.of({one.observation.producer_id for one in accused})
        in_flight_max, progress = run.config.in_flight_max, run.stage("read decisions")
        found = read_outcomes(run.cluster, run.engine, in_flight_max, accused, stored, progress)
        decided = [signed(evidence, run.sweep_id, run.started_at_ms) for evidence in found]
        judged = with_outcomes(judged, decided)
    hanging = _hanging(judged)
    live, left = looked_at(judged, planned.blocking_after_ms)
    if not (run.reads_impact and (hanging or live)):
        return Enriched(judged, decided, {}, ())
    impacts, warnings = _impacts(run, everything, hanging, live, decided)
    lives = {one.observation.transaction_key: one for one in live}
    kept = {
        which: impact
        for which, impact in impacts.items()
        if which not in lives or gets_a_row(lives[which], impact, planned.blocking_after_ms)
    }
    clocks = run.now_ms, run.boot
    kept, not_measured = with_disks(kept, run.cluster, run.history, everything.view.cluster_id, *clocks)
    counted = only_counted_warning(left, planned.blocking_after_ms)
    return Enriched(judged, decided, kept, (*warnings, *not_measured, *counted))


def complete_up_to(run: Run, everything: AllRead) -> tuple[tuple[TopicRead, ...], tuple[Unobserved, ...]]:
    """Reads the topics that the user named, and concludes up to which time each is complete. No verdict depends on it.

    Also the failures of these reads.
    """
    topics = run.config.complete_up_to
    if not topics:
        return (), ()
    earlier = run.history.topic_reads(everything.view.cluster_id, topics)
    reads, errors = read_topics(run.cluster, run.reader, topics, run.now_ms(), run.stage(STAGE))
    known = earlier()
    return tuple(concluded(read, known) for read in reads), errors


def result(
    run: Run,
    planned: Planned,
    everything: AllRead,
    claims: Claimed,
    proven: tuple[Fenced, Snapshotted, Fenced],
    enriched: Enriched,
    topics_gone: Mapping[tuple[str, str], str],
) -> Scan:
    """The result of the sweep."""
    first, snapshotted, second = proven
    snapshot, wide, view, config = snapshotted.snapshot, everything.wide, everything.view, run.config
    unsure = enriched.unsure
    rows = {**first.rows, **second.rows}
    # If a partition is in `unsure`, its read does not prove the end of an incident.
    last = {key: row for key, row in rows.items() if row.failure is None and key not in unsure}
    unobserved = (*wide.errors, *_fenced_errors(first.rows, second.rows))
    errors = (
        *([Unobserved("plan", planned.hidden_topics)] if planned.hidden_topics is not None else ()),
        *planned.errors,
        *unobserved,
        *_snapshot_errors(snapshot, enriched.judged),
        *(Unobserved("judge", _UNSURE, rows[key].leader, *key) for key in sorted(unsure)),
        *enriched.topic_errors,
        *([Unobserved("timeout", TIME_IS_UP)] if run.cluster.deadline.missed else ()),
    )
    return Scan(
        sweep_id=run.sweep_id,
        cluster_id=view.cluster_id,
        scope=config.scope,
        started_at_ms=run.started_at_ms,
        finished_at_ms=run.now_ms(),
        late_after_ms=planned.late_after_ms,
        blocking_after_ms=planned.blocking_after_ms,
        max_timeout_ms=planned.max_timeout_ms,
        brokers=len(view.brokers),
        partitions_planned=wide.planned,
        partitions_failed=wide.planned - wide.answered,
        producers=wide.producers,
        coordinators_planned=snapshot.coordinators_planned,
        coordinators_proven=snapshot.coordinators_proven,
        transactional_ids=claims.split.transactional_ids,
        principal=run.cluster.principal,
        visibility_failures=_visibility_failures(snapshot, planned),
        proven={key: row.topic_id for key, row in last.items()},
        ends={key: (row.leader_epoch, row.high_watermark) for key, row in last.items()},
        transactions=tuple(sorted(enriched.judged, key=lambda one: _order(one.observation))),
        errors=errors,
        warnings=(
            *idle_patterns(config, view),
            *early_threshold(planned.late_after_ms, planned.max_timeout_ms),
            *old_brokers(errors),
            *stuck_marker_warning(claims.split.prepared, enriched.judged, run.now_ms(), planned.late_after_ms),
            *enriched.warnings,
        ),
        settings=config.settings,
        version=__version__,
        store_all=config.store_all,
        broker_ids=tuple(sorted(broker.broker_id for broker in view.brokers)),
        impacts=enriched.impacts,
        read_bytes=run.cluster.read_bytes,
        decided={evidence.observation.transaction_key: evidence for evidence in enriched.decided},
        log_epochs=second.agreed.leader_epochs(TRANSACTION_STATE_TOPIC),
        topics_gone=topics_gone,
        topic_reads=enriched.topic_reads,
    )


def _hanging(judged: Iterable[Judged]) -> list[Judged]:
    return [one for one in judged if one.judgement.verdict is Verdict.HANGING]


def _impacts(
    run: Run,
    everything: AllRead,
    hanging: Sequence[Judged],
    live: Sequence[Judged],
    decided: Sequence[OutcomeEvidence],
) -> tuple[dict[TransactionKey, Impact], tuple[str, ...]]:
    """The impact, cause and owner of each of these; and warnings about information that could not be read."""
    run.progress("ask who waits", 0, 1)
    cluster, view = run.cluster, everything.view
    topics = {topic.name: topic for topic in view.topics}
    offsets = topics.get(CONSUMER_OFFSETS_TOPIC)
    blockage = read_blockage(
        cluster.send,
        cluster.in_parallel,
        hanging,
        [broker.broker_id for broker in view.brokers],
        len(offsets.indexes) if offsets is not None else 0,
        random_token=cluster.random_token,
        live=live,
    )
    patterns = [parse_owner_pattern(text) for text in run.config.owner_pattern]
    logged = {e.observation.transaction_key: e.logged for e in decided if e.log_failure is None}
    found = {}
    for one in hanging:
        which = one.observation.transaction_key
        incident = everything.incidents.get(which)
        known = incident.impact if incident is not None else None
        found[which] = impact_of(one, blockage, logged.get(which, ()), known, topics, patterns)
    run.progress("ask who waits", 1, 1)
    found = with_events(view.cluster_id, hanging, found, everything.incidents)
    found |= {one.observation.transaction_key: live_impact_of(one, blockage, topics, patterns) for one in live}
    positions = _positions(run, (*hanging, *live))
    if positions is None:
        return found, blockage.warnings(cluster.format_failure)
    readers = blocked_readers(cluster.send, cluster.in_parallel, (*hanging, *live), positions)
    found = {which: with_readers(impact, readers.get(which)) for which, impact in found.items()}
    return found, (*blockage.warnings(cluster.format_failure), *positions.warnings())


def _positions(run: Run, transactions: Sequence[Judged]) -> Positions | None:
    """The streaming queries of the checkpoints that the user named. None if no checkpoint was named."""
    paths = run.config.spark_checkpoint
    if not paths:
        return None
    run.progress("read checkpoints", 0, 1)
    wanted, left_s = read_partitions(transactions), run.cluster.deadline.left_s
    found = read_positions(paths, wanted, open_files=run.open_checkpoint, left_s=left_s)
    run.progress("read checkpoints", 1, 1)
    return found


def with_events(
    cluster_id: str, hanging: Iterable[Judged], impacts: Mapping[TransactionKey, Impact], incidents: Incidents
) -> dict[TransactionKey, Impact]:
    """The impacts, each with its event. incidents: with the events that earlier sweeps stored."""
    members = {}
    for one in hanging:
        o, which = one.observation, one.observation.transaction_key
        incident = incidents.get(which)
        members[which] = Member(
            incident_id=which.incident_id(cluster_id),
            first_seen_ms=o.first_seen_ms,
            last_timestamp_ms=o.last_timestamp_ms,
            producer_id=o.producer_id,
            owner_id=impacts[which].owner.transactional_id,
            cause=impacts[which].cause or Cause.UNKNOWN,
            event_id=incident.impact.event_id if incident is not None and incident.impact is not None else None,
        )
    events = event_ids(members.values())
    return {which: replace(impacts[which], event_id=events[member.incident_id]) for which, member in members.items()}


def with_outcomes(judged: Sequence[Judged], decided: Iterable[OutcomeEvidence]) -> list[Judged]:
    """The same transactions, with the outcomes of the hanging ones. If the log contradicts the coordinators, or lacks
    records that earlier sweeps read, a transaction is judged again, and no longer hangs.

    decided: the facts about each hanging transaction.
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
    """Whether any of these transactions has no incident."""
    return any(o.transaction_key not in incidents for o in observations)


def _earliest(incidents: Incidents, last_seen: Sightings) -> Callable[[Observation], int | None]:
    """A function that gives the time of the first sighting: the earlier one of its incident and its last sighting.

    A transaction that was only claimed was seen without proof, perhaps on a deposed leader. Since then another
    transaction may have begun at the same offset. Under transactions v2 that other transaction has another epoch, and
    must not inherit the age.
    """

    def earliest(o: Observation) -> int | None:
        which = o.transaction_key
        incident, sighting = incidents.get(which), last_seen.get(which)
        times_ms = [incident.first_seen_ms] if incident is not None else []
        if sighting is not None and sighting.producer_epoch == o.producer_epoch:
            times_ms.append(sighting.first_seen_ms)
        return min(times_ms, default=None)

    return earliest


def _order(o: Observation) -> tuple[str, int, int, int]:
    return (o.topic, o.partition, o.start_offset, o.producer_id)


def _producer_ids(rows: Mapping[Key, FencedRow]) -> frozenset[int]:
    return frozenset(producer.producer_id for row in rows.values() for producer in row.open_producers)


def _context(snapshot: Snapshot, now_ms: int, late_after_ms: int) -> Context:
    return Context(
        coverage_failure=snapshot.coverage_failure,
        split_failure=snapshot.split_failures[0] if snapshot.split_failures else None,
        visibility_failures=snapshot.visibility_failures,
        now_ms=now_ms,
        late_after_ms=late_after_ms,
    )


def _fenced_errors(first: Mapping[Key, FencedRow], second: Mapping[Key, FencedRow]) -> list[Unobserved]:
    return [
        Unobserved(stage, row.failure, row.leader if row.leader >= 0 else None, row.topic, row.partition)
        for stage, rows in (("first read", first), ("second read", second))
        for row in rows.values()
        if row.failure is not None
    ]


def _snapshot_errors(snapshot: Snapshot, judged: Sequence[Judged]) -> list[Unobserved]:
    """The failures of the snapshot. A cluster that never had a transaction has no coordinators; that is no error."""
    errors = list(snapshot.errors)
    if snapshot.coordinators_planned or judged:
        errors += snapshot.coverage_errors
    return errors + [Unobserved("snapshot", failure) for failure in snapshot.visibility_failures]


def _visibility_failures(snapshot: Snapshot, planned: Planned) -> tuple[Failure, ...]:
    hidden = planned.hidden_topics
    return snapshot.visibility_failures or (() if hidden is None else (hidden,))
