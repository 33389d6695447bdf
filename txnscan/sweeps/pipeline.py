"""A sweep on any engine: plan, read all, claims, first read, listing, second read, confirmation, judge, enrich.

A transaction that its coordinator claims needs no proof (`claims.py`). On a busy cluster nearly all transactions are
claimed. The others need proof, and then the order of the steps is the proof (see `rules.py`). Each step returns plain
values before the next step begins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from txnscan.config import LATE_BUFFER_MS
from txnscan.coordinators.cluster import RETRY_WAIT_S
from txnscan.coordinators.coordinator_listing import CoordinatorListing
from txnscan.kafka.client.deadline import sweep_limit_ms
from txnscan.kafka.failure import Failure, FailureCode, Unobserved
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key
from txnscan.reads.observation import Observation, TransactionKey
from txnscan.reads.proven_read import failed_partitions, read_first
from txnscan.reads.rows import ProvenRow, WideRow
from txnscan.sweeps.capacity import longest_expected_s
from txnscan.sweeps.endings import endings, replicated, with_ends
from txnscan.sweeps.enrichment import enrich, read_topics_named
from txnscan.sweeps.history import Ended, Incidents, Sightings, StoredFacts
from txnscan.sweeps.identity import BYTES_MAX, Identity, Seen, continued, identified, replaced, seen_of
from txnscan.sweeps.observations import CLAIMED, claimed_observations, observe, with_history, with_offsets
from txnscan.sweeps.positions import (
    ends_of,
    of_incidents,
    of_rows,
    of_topics,
    of_transaction_log,
    offset_now,
    offset_of_any,
    open_in,
)
from txnscan.sweeps.reader import PROVEN_TRIES, confirmed
from txnscan.sweeps.restored import Past, Present, fall, together_positions
from txnscan.sweeps.result import Scan
from txnscan.sweeps.scope import check_scope, in_scope, topic_ids
from txnscan.sweeps.state import AllRead, Claimed, Enriched, HistoryNow, Proof, Run, SweepPlan
from txnscan.sweeps.stuck_markers import stuck_marker_warning
from txnscan.sweeps.warnings import (
    early_threshold,
    hidden_matches,
    history_warnings,
    idle_patterns,
    old_brokers,
    unreplicated_ends,
)
from txnscan.txnlog.facts import NO_FACTS, ProducerFacts
from txnscan.verdict.evidence import Context, Judged
from txnscan.verdict.join import Judge, batches_of, by_producer_id
from txnscan.verdict.outcome import CLOCK_SLACK_MS
from txnscan.verdict.rules import judge_observation
from txnscan.version import __version__
from txnscan.waiting.blocking import LATE_DIVISOR, looked_at
from txnscan.waiting.complete_up_to import TopicRead, concluded

# At most this many open transactions are judged in the driver, in a second. Executors on two cores take three times as
# long: `python -m tests.bench judge`.
DRIVER_JUDGES_MAX = 20_000
# The wide read reports closed producers of so many incidents: each answer is searched for each of them.
CLOSED_PRODUCERS_MAX = 100
_UNSURE = Failure(
    "its log does not show whether its incident goes on: the records between the two start offsets cannot be read, are "
    f"deleted, or exceed {BYTES_MAX >> 20} MiB",
    FailureCode.UNUSABLE_ANSWER,
)


def scan(run: Run) -> Scan:
    """Sweeps the cluster once.

    Raises ClusterUnreachable if no bootstrap server answers, and ConfigError if a topic, partition or broker that the
    user named does not exist.
    """
    cluster = run.cluster
    planned = plan(run)
    everything = read_all(run, planned)
    claims = ask_claims(run, everything)
    proof = prove(run, planned, everything, claims)
    ended = ended_before(run, everything, proof)
    known = ((one.topic, one.topic_id) for one in everything.incidents)
    topics_gone = cluster.topics_gone(everything.view, known, outside_kraft=planned.latest.outside_kraft)
    stored_reads, reads, unread = read_topics_named(run, everything)
    now = history_now(run, planned, everything, ended, proof, (stored_reads, reads))
    everything = believed(everything, now)
    reads = tuple(concluded(read, () if now.is_new else stored_reads) for read in reads)
    judged, unsure = judge_all(run, planned, everything, claims, proof, now)
    enriched = replace(
        enrich(run, planned, everything, judged, proof.agreed), unsure=unsure, topic_reads=reads, topic_errors=unread
    )
    found = result(run, planned, everything, claims, proof, enriched, topics_gone)
    return in_history(with_endings(run, everything, proof, found), now)


def plan(run: Run) -> SweepPlan:
    """The most recent metadata, and the ages from which a transaction is late, and from which a live one gets a row."""
    run.progress("plan", 0, 1)
    latest = run.cluster.latest()
    run.cluster.deadline.allow(sweep_limit_ms(longest_expected_s(latest.view)))
    unresolved = run.history.unresolved(latest.view.cluster_id)
    past = run.history.past(latest.view.cluster_id) if run.reads_log else Past
    # If all topics are requested, or those that patterns match, hidden topics would be missed silently. With patterns
    # that is no error: ACLs may limit a principal to the topics of its patterns.
    is_whole = run.config.scope == "all"
    may_be_hidden = run.cluster.hidden_topics(latest.view.answered_by) if is_whole or run.config.topic else None
    hidden_topics = may_be_hidden if is_whole else None
    check_scope(run.config, latest.view, in_scope(run.config, latest.view), run.cluster)
    max_timeout_ms, errors = run.cluster.max_timeout_ms()
    late_after_ms = run.config.late_after_ms or max_timeout_ms + LATE_BUFFER_MS
    blocking_after_ms = run.config.blocking_after_ms or late_after_ms // LATE_DIVISOR
    return SweepPlan(
        *(latest, past, unresolved, hidden_topics, max_timeout_ms, late_after_ms, blocking_after_ms, errors),
        hidden_matches=None if is_whole else may_be_hidden,
    )


def read_all(run: Run, planned: SweepPlan) -> AllRead:
    """Reads every partition in scope, without proof. This read only finds the partitions that need a closer look."""
    # Everything that is compared with stored positions is read after them.
    past, incidents = planned.past(), planned.unresolved()
    producer_ids = {which.producer_id for which in incidents} if run.reads_log else set()
    on_progress, on_retry = run.stage("read every partition"), run.stage("read again what failed")
    kept = sorted(producer_ids)[:CLOSED_PRODUCERS_MAX]
    wide = run.reader.wide(planned.latest, on_progress, on_retry, kept)
    read_at_ms = run.now_ms()
    topics = in_scope(run.config, wide.view)
    stored = StoredFacts(run.history, wide.view.cluster_id, producer_ids)
    # Partitions with incidents are read with proof, even if coordinators claim all their open transactions: only a
    # proven read shows that an incident is over.
    with_incidents = {(topic, index) for topic, _, index, _, _ in incidents}
    always = topic_ids(topics, with_incidents.union(run.looks_at))
    return AllRead(wide, read_at_ms, topics, {row.key: row for row in wide.rows}, incidents, stored, always, past)


def ask_claims(run: Run, everything: AllRead) -> Claimed:
    """The claims of coordinators: evidence for an owner, which needs no proof."""
    separated = run.cluster.separate_by_claim(
        everything.suspects,
        everything.always,
        everything.wide.latest.agreed,
        run.stage("ask who claims them"),
        run.started_at_ms - CLOCK_SLACK_MS,
    )
    ids = topic_ids(everything.topics, everything.suspects) | dict(everything.always)
    claimed = claimed_observations(ids, separated.claimed, everything.read_at_ms)
    # Earlier sightings are read only if an open transaction has no incident yet.
    is_new = _has_news(claimed, everything.incidents)
    return Claimed(separated, ids, claimed, run.history.last_seen(everything.view.cluster_id) if is_new else None)


def prove(run: Run, planned: SweepPlan, everything: AllRead, claims: Claimed) -> Proof:
    """Reads the remaining partitions, asks the coordinators of all open transactions, reads the partitions again, and
    asks for the metadata that confirms all of it. Repeated for what moved meanwhile or is not covered.
    """
    unclaimed = claims.separated.unclaimed
    missing: Collection[Key] = unclaimed.keys() | everything.always.keys()
    topics = {topic for topic, _ in missing}
    # Who leads is proven by the metadata after the reads. Until then it is enough to know whom to ask.
    before, last_seen = everything.wide.latest.agreed.unproven, claims.last_seen
    first: dict[Key, ProvenRow] = {}
    for attempt in range(1, PROVEN_TRIES + 1):
        if attempt > 1:
            run.cluster.sleep(RETRY_WAIT_S * (attempt - 1))
        first |= run.reader.proven_once(missing, before, run.stage("first read"), read_first)
        last_seen = _sightings(run, everything, claims, first, last_seen)
        answers = run.cluster.ask_coordinators(before, _open_topics([unclaimed, first]), run.stage("ask coordinators"))
        second = run.reader.second(first, run.stage("second read"))
        after = run.cluster.metadata_after(answers, topics)
        listing = run.cluster.concluded(answers, before, after)
        first, second = ({key: confirmed(row, after) for key, row in rows.items()} for rows in (first, second))
        missing = failed_partitions(second.values())
        if not (missing or listing.may_improve) or run.cluster.deadline.is_up:
            break
        before = after.unproven
    # The read of all partitions may have named a broker already.
    named = {error.broker for error in everything.wide.errors if error.stage == "plan"}
    silent = (replace(error, stage="plan") for error in (*after.errors, *after.unheard))
    late = run.cluster.late(after, planned.latest.offset)
    errors = tuple(error for error in (*silent, *late) if error.broker not in named)
    return Proof(first, listing, second, after, last_seen, errors)


def _sightings(
    run: Run,
    everything: AllRead,
    claims: Claimed,
    rows: Mapping[Key, ProvenRow],
    last_seen: Callable[[], Sightings] | None,
) -> Callable[[], Sightings] | None:
    """Claimed.last_seen, which is needed from the first open transaction on that has no incident."""
    if last_seen is not None:
        return last_seen
    seen = observe(claims.topic_ids, claims.separated.unclaimed, rows, rows)
    return run.history.last_seen(everything.view.cluster_id) if _has_news(seen, everything.incidents) else None


def _open_topics(rows: Iterable[Mapping[Key, WideRow | ProvenRow]]) -> dict[int, frozenset[str]]:
    """By producer id, the topics in which it has open transactions."""
    topics: dict[int, set[str]] = defaultdict(set)
    for (topic, _), row in chain.from_iterable(one.items() for one in rows):
        for producer in row.open_producers:
            topics[producer.producer_id].add(topic)
    return {producer_id: frozenset(names) for producer_id, names in topics.items()}


def ended_before(run: Run, everything: AllRead, proof: Proof) -> Ended:
    """The transactions that are open at the first read, and whose end an earlier sweep has proven."""
    seen = (
        TransactionKey(row.topic, row.topic_id, row.partition, producer.producer_id, producer.start_offset)
        for row in proof.first.values()
        if row.failure is None
        for producer in row.open_producers
    )
    news = [which for which in seen if which not in everything.incidents]
    return run.history.ended(everything.view.cluster_id, news)() if news else {}


def history_now(
    run: Run,
    planned: SweepPlan,
    everything: AllRead,
    ended: Ended,
    proof: Proof,
    topic_reads: tuple[Sequence[TopicRead], Sequence[TopicRead]],
) -> HistoryNow:
    """The history of the cluster, which begins with this sweep if a position fell (`restored.py`). topic_reads: the
    stored ones, and those of now.
    """
    past, cluster, (stored_reads, reads) = everything.past, run.cluster, topic_reads
    rows = [row for row in proof.second.values() if row.failure is None]
    positions = together_positions([*of_transaction_log(proof.agreed), *of_rows(rows)])
    offset = offset_now(cluster, planned.latest, past)
    fell = None
    # The last look before a marker reads no stored facts, and must be short.
    if run.reads_log:
        stored = [*past.positions, *of_incidents(everything.incidents, past), *of_topics(stored_reads)]
        past = replace(past, positions=tuple(stored), ended=ended)
        now = together_positions([*positions, *of_topics(reads)])
        agreed = None if reads else proof.agreed
        present = Present(offset, now, ends_of(cluster, past, now, agreed), open_in(proof.second, ended))
        fell = fall(past, present)
    is_new = fell is not None or run.config.new_history
    history, vetoes_from, dropped = past.history + is_new, past.vetoes_from, None
    if run.config.new_history:
        vetoes_from, dropped = history, run.history.vetoes(everything.view.cluster_id)
    stored_offset = offset_of_any(planned.latest, offset)
    return HistoryNow(history, vetoes_from, fell, is_new, dropped, stored_offset, positions)


def believed(everything: AllRead, now: HistoryNow) -> AllRead:
    """What was stored, as far as it shows anything in the present history."""
    if now.is_new:
        # The user's word ends the vetoes as well.
        everything.stored.believed = ProducerFacts.only_vetoes if now.vetoes_from < now.history else lambda _: NO_FACTS
    incidents = {which: one for which, one in everything.incidents.items() if one.history == now.history}
    return replace(everything, incidents=incidents)


def with_endings(run: Run, everything: AllRead, proof: Proof, found: Scan) -> Scan:
    """The result, with the ends of incidents that no election can undo; and an error if the time of the sweep did not
    suffice, now that everything was asked.
    """
    incidents, cluster = everything.incidents, run.cluster
    ended = with_ends(found, incidents, proof.agreed)
    found = replace(found, replicated=replicated(cluster, ended))
    unreplicated = unreplicated_ends(partition.key for partition in ended if partition.key not in found.replicated)
    ends = endings(cluster.send, proof.agreed, incidents, found)
    late = [Unobserved("timeout", cluster.deadline.time_is_up)] if cluster.deadline.missed else []
    return replace(found, endings=ends, warnings=(*found.warnings, *unreplicated), errors=(*found.errors, *late))


def in_history(found: Scan, now: HistoryNow) -> Scan:
    """The result, with the history to which it belongs. The first warning says that it went back."""
    return replace(
        found,
        history=now.history,
        fall=now.fall,
        vetoes_from=now.vetoes_from,
        vetoes_dropped=now.vetoes_dropped,
        image_offset=now.image_offset,
        positions=now.positions,
        warnings=(*history_warnings(now.fall, now.vetoes_dropped), *found.warnings),
    )


def judge_all(
    run: Run,
    planned: SweepPlan,
    everything: AllRead,
    claims: Claimed,
    proof: Proof,
    now: HistoryNow,
) -> tuple[list[Judged], frozenset[Key]]:
    """A verdict for each open transaction, by the rules; and the partitions of Enriched.unsure."""
    run.progress("judge", 0, 1)
    listing, incidents, separated = proof.listing, everything.incidents, claims.separated
    last_seen = proof.last_seen if proof.last_seen is not None and not now.is_new else dict
    seen = _earliest(incidents, last_seen())
    unsure: set[Key] = set()

    def relation(o: Observation, earlier: Seen, later: Seen) -> Identity:
        return identified(run.cluster.send, proof.agreed, o.key, earlier, later)

    def to_incident(o: Observation, earlier: Seen) -> Identity:
        return relation(o, earlier, seen_of(o))

    observed = observe(claims.topic_ids, separated.unclaimed, proof.first, proof.second)
    observed = [replaced(o, relation) for o in observed]
    observations = with_history(continued(observed, incidents, to_incident, unsure.add), seen)
    context = _context(listing, run.now_ms(), planned.late_after_ms)
    of_claims = zip(with_history(claims.claimed, seen), separated.claimed, strict=True)
    claimed = [judge_observation(o, (one.claimant,), context) for o, one in of_claims]
    # If the time is up, there is no reason to wait for executors.
    few = len(observations) <= DRIVER_JUDGES_MAX
    engine = run.engine.driver if few or run.cluster.deadline.is_up else run.engine
    others = engine.map(
        Judge(by_producer_id(listing.views), context), batches_of(observations), Judged, run.stage("judge")
    )
    # An overdue or old claimed transaction may block consumers. The offsets of its partition show how much, without
    # proof.
    live = looked_at([*others, *claimed], planned.blocking_after_ms)[0] if run.reads_impact else ()
    unread = {one.observation.key for one in live if one.observation.second.failure == CLAIMED}
    unread |= {one.observation.key for one in claimed if not one.healthy}
    judged = [*others, *with_offsets(claimed, run.reader.offsets(unread, everything.view))]
    run.progress("judge", 1, 1)
    return judged, frozenset(unsure)


def result(
    run: Run,
    planned: SweepPlan,
    everything: AllRead,
    claims: Claimed,
    proof: Proof,
    enriched: Enriched,
    topics_gone: Mapping[tuple[str, str], str],
) -> Scan:
    """The result of the sweep."""
    listing, wide, view, config = proof.listing, everything.wide, everything.view, run.config
    unsure, rows = enriched.unsure, proof.second
    # If a partition is in `unsure`, its read does not prove the end of an incident.
    last = {key: row for key, row in rows.items() if row.failure is None and key not in unsure}
    unobserved = (*wide.errors, *proof.errors, *_fenced_errors(proof.first, proof.second))
    errors = (
        *([Unobserved("plan", planned.hidden_topics)] if planned.hidden_topics is not None else ()),
        *planned.errors,
        *unobserved,
        *_listing_errors(listing, enriched.judged),
        *(Unobserved("judge", _UNSURE, rows[key].leader, *key) for key in sorted(unsure)),
        *enriched.topic_errors,
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
        coordinators_planned=listing.coordinators_planned,
        coordinators_proven=listing.coordinators_proven,
        transactional_ids=claims.separated.transactional_ids,
        principal=run.cluster.principal,
        visibility_failures=_visibility_failures(listing, planned),
        proven={key: row.topic_id for key, row in last.items()},
        ends={key: (row.leader_epoch, row.high_watermark) for key, row in last.items()},
        transactions=tuple(sorted(enriched.judged, key=lambda one: _order(one.observation))),
        errors=errors,
        warnings=(
            *idle_patterns(config, view),
            *hidden_matches(planned.hidden_matches, run.cluster.format_failure),
            *early_threshold(planned.late_after_ms, planned.max_timeout_ms),
            *old_brokers(errors),
            *stuck_marker_warning(claims.separated.prepared, enriched.judged, run.now_ms(), planned.late_after_ms),
            *enriched.warnings,
        ),
        settings=config.settings,
        version=__version__,
        store_all=config.store_all,
        broker_ids=tuple(sorted(broker.broker_id for broker in view.brokers)),
        impacts=enriched.impacts,
        read_bytes=run.cluster.read_bytes,
        outcome_evidence={evidence.observation.transaction_key: evidence for evidence in enriched.outcome_evidence},
        log_epochs=proof.agreed.leader_epochs(TRANSACTION_STATE_TOPIC),
        topics_gone=topics_gone,
        topic_reads=enriched.topic_reads,
        writes=enriched.writes,
    )


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


def _context(listing: CoordinatorListing, now_ms: int, late_after_ms: int) -> Context:
    return Context(
        coverage_failure=listing.coverage_failure,
        split_failure=listing.split_failures[0] if listing.split_failures else None,
        visibility_failures=listing.visibility_failures,
        now_ms=now_ms,
        late_after_ms=late_after_ms,
    )


def _fenced_errors(first: Mapping[Key, ProvenRow], second: Mapping[Key, ProvenRow]) -> list[Unobserved]:
    return [
        Unobserved(stage, row.failure, row.leader if row.leader >= 0 else None, row.topic, row.partition)
        for stage, rows in (("first read", first), ("second read", second))
        for row in rows.values()
        if row.failure is not None
    ]


def _listing_errors(listing: CoordinatorListing, judged: Sequence[Judged]) -> list[Unobserved]:
    """The failures of the listing. A cluster that never had a transaction has no coordinators; that is no error."""
    errors = list(listing.errors)
    if listing.coordinators_planned or judged:
        errors += listing.coverage_errors
    return errors + [Unobserved("snapshot", failure) for failure in listing.visibility_failures]


def _visibility_failures(listing: CoordinatorListing, planned: SweepPlan) -> tuple[Failure, ...]:
    hidden = planned.hidden_topics
    return listing.visibility_failures or (() if hidden is None else (hidden,))
