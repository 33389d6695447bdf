"""The last steps of a sweep: outcomes, and what transactions block. No verdict depends on them, with one exception: if
the transaction log contradicts the verdict `hanging`, it is withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from txnscan.coordinators.agreed_metadata import AgreedMetadata
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.failure import Failure, Unobserved
from txnscan.kafka.protocol.record_batch import Batch
from txnscan.kafka.topology import Key
from txnscan.patterns import PatternError, matching
from txnscan.reads.observation import Observation, TransactionKey
from txnscan.sweeps.checkpoints import read_positions
from txnscan.sweeps.complete_up_to import STAGE, read_topics
from txnscan.sweeps.disk import with_disks
from txnscan.sweeps.history import Incidents
from txnscan.sweeps.log_facts import signed, with_closed
from txnscan.sweeps.log_reads import first_batches, read_outcomes
from txnscan.sweeps.observations import with_offsets
from txnscan.sweeps.state import AllRead, Enriched, Run, SweepPlan
from txnscan.sweeps.write_states import read_for
from txnscan.verdict.evidence import Judged, OutcomeEvidence, Verdict
from txnscan.verdict.outcome import joined_commit, outcome, with_outcome
from txnscan.verdict.predicates import open_at_both_reads, owned, owners
from txnscan.verdict.rules import judge
from txnscan.waiting.blocking import gets_a_row, looked_at, only_counted_warning
from txnscan.waiting.cause import Cause
from txnscan.waiting.checkpoint import Positions
from txnscan.waiting.complete_up_to import TopicRead
from txnscan.waiting.event import Member, event_ids
from txnscan.waiting.impact import Impact
from txnscan.waiting.owner import NO_OWNERS, id_of
from txnscan.waiting.who_waits import impact_of, live_impact_of, read_blockage, read_partitions
from txnscan.waiting.writability import UNREAD


def enrich(
    run: Run, planned: SweepPlan, everything: AllRead, judged: Sequence[Judged], agreed: AgreedMetadata
) -> Enriched:
    """Adds the outcome of hanging transactions, and the impact of hanging and live transactions. If the log contradicts
    the verdict `hanging`, it is withdrawn. agreed: the metadata after the second read.
    """
    outcome_evidence: list[OutcomeEvidence] = []
    if run.reads_log:
        first = partial(first_batches, run.cluster, agreed)
        asked = [*_hanging(judged), *_may_endanger_commit(judged, everything.incidents, run.looks_at, first)]
        stored = everything.stored.of({one.observation.producer_id for one in asked})
        in_flight_max, progress = run.config.in_flight_max, run.stage("read decisions")
        found = read_outcomes(run.cluster, run.engine, in_flight_max, agreed, asked, stored, progress)
        found = [with_closed(evidence, everything.wide.closed) for evidence in found]
        outcome_evidence = [signed(evidence, run.sweep_id, run.started_at_ms) for evidence in found]
        judged = _from_log_start(run, everything, with_outcomes(judged, outcome_evidence), found)
    hanging = [one for one in judged if one.is_incident]
    live, left = looked_at([one for one in judged if not one.is_incident], planned.blocking_after_ms)
    states, stopped = UNREAD, tuple[str, ...]()
    if run.reads_impact:
        judged, states, stopped = read_for(run, everything, judged, live, agreed)
    if not (run.reads_impact and (hanging or live)):
        return Enriched(judged, outcome_evidence, {}, stopped, writes=states)
    impacts, warnings = _impacts(run, everything, hanging, live, outcome_evidence)
    lives = {one.observation.transaction_key: one for one in live}
    kept = {
        which: impact
        for which, impact in impacts.items()
        if which not in lives or gets_a_row(lives[which], impact, planned.blocking_after_ms)
    }
    clocks = run.now_ms, run.boot
    kept, not_measured = with_disks(kept, run.cluster, run.history, everything.view, *clocks)
    counted = only_counted_warning(left, planned.blocking_after_ms)
    return Enriched(judged, outcome_evidence, kept, (*stopped, *warnings, *not_measured, *counted), writes=states)


def _from_log_start(
    run: Run, everything: AllRead, judged: Sequence[Judged], found: Sequence[OutcomeEvidence]
) -> list[Judged]:
    """These, with last stable offsets that are not below the log start: if a first batch is deleted in whole or in
    part, the offsets of its partition are read again. No verdict depends on them.
    """
    failures = ((one.observation.key, one.batch_failure) for one in found)
    gone = ErrorCode.OFFSET_OUT_OF_RANGE.name
    deleted = {key for key, failure in failures if failure is not None and failure.code == gone}
    return with_offsets(judged, run.reader.offsets(deleted, everything.view))


def read_topics_named(
    run: Run, everything: AllRead
) -> tuple[Sequence[TopicRead], tuple[TopicRead, ...], tuple[Unobserved, ...]]:
    """The stored reads of the topics that the user named; reads of these topics after that; and the failures of these.
    No verdict depends on them.
    """
    topics = run.config.complete_up_to
    if not topics:
        return (), (), ()
    stored = run.history.topic_reads(everything.view.cluster_id, topics)()
    return stored, *read_topics(run.cluster, run.reader, topics, run.now_ms(), run.stage(STAGE))


def _hanging(judged: Iterable[Judged]) -> list[Judged]:
    return [one for one in judged if one.judgement.verdict is Verdict.HANGING]


def _may_endanger_commit(
    judged: Iterable[Judged],
    incidents: Incidents,
    looks_at: Collection[Key] = (),
    first: Callable[[Sequence[Observation]], Sequence[Batch | Failure]] = lambda _: (),
) -> list[Judged]:
    """The live transactions that may have joined committed data: an earlier sweep saw the open data hanging, or the
    coordinator is at a later epoch than the data. On partitions of `looks_at`, also those whose first batch has an
    earlier epoch than their coordinator, or cannot be read. Both reads of the partition must be proven. first: reads
    first batches.
    """
    live = [one for one in judged if owned(one.evidence) and open_at_both_reads(one.evidence)]
    found = [one for one in live if one.observation.transaction_key in incidents or _is_behind(one)]
    others = [one for one in live if one.observation.key in looks_at and one not in found]
    return found + [
        one
        for one, batch in zip(others, first([one.observation for one in others]), strict=True)
        if isinstance(batch, Failure) or _is_behind(one, batch.producer_epoch)
    ]


def _is_behind(judged: Judged, producer_epoch: int | None = None) -> bool:
    """Whether data of this epoch is of an earlier transaction than that of its coordinator. Without an epoch: the data
    of the partition's epoch.
    """
    epoch = judged.observation.producer_epoch if producer_epoch is None else producer_epoch
    return all(view.producer_epoch > epoch for view in owners(judged.evidence))


def _impacts(
    run: Run,
    everything: AllRead,
    hanging: Sequence[Judged],
    live: Sequence[Judged],
    outcome_evidence: Sequence[OutcomeEvidence],
) -> tuple[dict[TransactionKey, Impact], tuple[str, ...]]:
    """The impact, cause and owner of each of these; and warnings about information that could not be read."""
    positions = _positions(run, (*hanging, *live))
    run.progress("ask who waits", 0, 1)
    cluster, view = run.cluster, everything.view
    topics = {topic.name: topic for topic in view.topics}
    blockage = read_blockage(
        cluster.send,
        cluster.in_parallel,
        view,
        hanging,
        random_token=cluster.random_token,
        live=live,
        positions=positions,
    )
    logged = {e.observation.transaction_key: e.logged for e in outcome_evidence if e.log_failure is None}
    carried = {which: incident.impact for which, incident in everything.incidents.items()}
    earlier = {which: impact.owner_id for which, impact in carried.items() if impact is not None}
    ids = [id_of(one) for one in live]
    for one in hanging:
        which = one.observation.transaction_key
        ids.append(id_of(one, logged.get(which, ()), earlier.get(which)))
    own, unmatched = owners_by_pattern(run.config.owners, {name for name in ids if name is not None})
    found = {}
    for one in hanging:
        which = one.observation.transaction_key
        found[which] = impact_of(one, blockage, logged.get(which, ()), carried.get(which), topics, own)
    run.progress("ask who waits", 1, 1)
    found = with_events(view.cluster_id, hanging, found, everything.incidents)
    found |= {one.observation.transaction_key: live_impact_of(one, blockage, topics, own) for one in live}
    return found, (*blockage.warnings(cluster.format_failure), *unmatched)


def owners_by_pattern(
    patterns: Sequence[tuple[str, str]], ids: Collection[str]
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """By transactional id, its owner by the first of the user's patterns that matches; and a warning if they take too
    long. That is no reason for a sweep to fail: clients choose the ids. patterns: names with their patterns.
    """
    try:
        matched = matching([pattern for _, pattern in patterns], sorted(ids))
    except PatternError as error:
        return NO_OWNERS, (f"--owner-pattern: {error}; this sweep names no owner by a pattern",)
    return {name: owner for owner, pattern in reversed(patterns) for name in matched[pattern]}, ()


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


def with_outcomes(judged: Sequence[Judged], outcome_evidence: Iterable[OutcomeEvidence]) -> list[Judged]:
    """The same transactions, with the outcomes of the hanging ones. If the log contradicts the coordinators, or lacks
    records that earlier sweeps read, a transaction is judged again, and no longer hangs. A live transaction is judged
    again if it endangers a commit.

    outcome_evidence: the facts about each hanging transaction, and about those that may endanger a commit.
    """
    found = {e.observation.transaction_key: e for e in outcome_evidence}
    concluded = []
    for one in judged:
        which = one.observation.transaction_key
        evidence = found.get(which)
        if evidence is None:
            concluded.append(one)
        elif one.judgement.verdict is not Verdict.HANGING:
            known = joined_commit(evidence)
            if known is not None:
                joined = replace(one.evidence, joined_commit=known.why)
                one = with_outcome(Judged(joined, judge(joined)), known)
            concluded.append(one)
        elif evidence.contradiction is not None:
            contradicted = replace(one.evidence, log_contradiction=evidence.contradiction)
            concluded.append(Judged(contradicted, judge(contradicted)))
        else:
            concluded.append(with_outcome(one, outcome(evidence)))
    return concluded
