"""The rules: one open transaction's evidence to one verdict. Pure.

Theory of operation
===================
A transaction *hangs* when a partition holds it open and no coordinator will ever end it. A coordinator durably adds a
partition to a transaction *before* data of that transaction can land in the partition, and drops it only after the
partition has acknowledged the marker that ends it (`TransactionStateManager`, `TransactionMarkerChannelManager`).
So whoever will end a transaction knows its partition, from before the first record until after the marker.

A sweep therefore reads in this order: the partition's leader, then every coordinator, then the leader again. Suppose
some coordinator were going to end a transaction that the first read found open. It held the partition at the first
read, and would hold it until the marker is acknowledged. The second read finds the transaction still open, so no marker
had been written by then, so the coordinator held the partition during the whole time between, in which all of them were
asked. Hence: open at the first read, held by nobody, still open at the second read, means that nobody will end it.

The step "held by nobody" rests on absence, and absence of evidence is not evidence of absence. It counts only when
- **L** both reads came from the leader, and what they saw is below the high watermark (`fenced_read.py`);
- **V** every `__transaction_state` partition was covered by the one broker that serves it (`snapshot.py`);
- **A** no transactional id is hidden from this principal (`visibility.py`).
Where one of these is missing the verdict is `indeterminate`, and says which. Evidence *for* an owner needs none of
them: a single broker that says "this transaction is mine" is enough to leave it alone, so those rules come first. A
transaction that the sieve took out (`claims.py`) has such evidence and no other, and never gets past them.

What coordinators say is checked against their own log, `__transaction_state`, unless this principal may not or this
version cannot read it (`verification.py`). A coordinator that could not load all of the log claims its partition and
lists what it has, an authorizer may hide an id without listing a rule for it, and an epoch that was raised in memory
alone is lost at the next load. So a log that contradicts the coordinators, or that its leader does not serve, makes
whatever would hang `indeterminate`.

One state at a coordinator is no evidence of absence: Prepare*. A partition that has acknowledged its marker leaves the
list only in the coordinator's memory; the log keeps the whole list until Complete* is written, and a coordinator that
takes over before that sends every marker once more, which ends whatever is open there at this epoch. So a partition
that a Prepare* does not list is `indeterminate`, until the end is complete.

What Kafka's epochs do to the comparison of the coordinator's epoch (cpe) with the partition's (pe): under transactions
v2 every end of a transaction raises cpe, so in Prepare* the coordinator is at pe + 1 while the marker is owed; fencing
(a timeout, InitProducerId) does the same under v1. Different epochs alone therefore prove nothing.

**T**, age, is a column of its own: `late` says that the transaction is older than any live one can be. A hanging
transaction that is not late yet is an early warning; hanging and late is a candidate in KIP-664's sense.

The rules stand in order below; the first that applies gives the verdict. What no rule covers is indeterminate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from txnscan.kafka.answers import IN_TRANSACTION, PREPARED, CoordinatorView
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.kafka.units import duration
from txnscan.reads.observation import Observation
from txnscan.verdict.evidence import Context, Evidence, Judged, Judgement, Reason, Verdict

# The transaction timeout of two-phase commit (KIP-939): an outside coordinator will decide.
TWO_PHASE_COMMIT_TIMEOUT_MS = 2**31 - 1
# Timed-out transactions are looked for every 10 s (`transaction.abort.timed.out.transaction.cleanup.interval.ms`);
# the rest is for clocks that differ.
TIMEOUT_SLACK_MS = 60_000

_BETWEEN = ("Empty", "Ongoing", "CompleteAbort")

# A coordinator whose marker a partition refused (INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED) sends none of
# that decision any more and stays in Prepare* (`TransactionMarkerRequestCompletionHandler`). A partition that has no
# leader when markers are sent is skipped by Kafka 4.3 (`TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue`).
SENDS_AGAIN = (
    "It sends again only when it loads its log anew: once every partition of the id has a leader, move the leader of "
    f"the id's {TRANSACTION_STATE_TOPIC} partition, or restart that broker"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """When `applies`, the verdict and reason are these, and `explain` says it in one sentence."""

    verdict: Verdict
    reason: Reason
    applies: Callable[[Evidence], bool]
    explain: Callable[[Evidence], str]


def judge(evidence: Evidence) -> Judgement:
    """The verdict on one open transaction. The same evidence always gives the same verdict."""
    rule = next(rule for rule in RULES if rule.applies(evidence))
    return Judgement(
        verdict=rule.verdict,
        reason=rule.reason,
        late=late(evidence),
        age_ms=age_ms(evidence),
        explanation=rule.explain(evidence),
    )


def judge_observation(observation: Observation, coordinators: Iterable[CoordinatorView], context: Context) -> Judged:
    """An observation joined with every coordinator's view of its producer id, and judged."""
    views = tuple(sorted(coordinators, key=lambda view: (view.transactional_id, view.broker_id)))
    evidence = Evidence(observation, views, context)
    return Judged(evidence, judge(evidence))


# --- what the evidence shows ------------------------------------------------------------------------------------------


def age_ms(e: Evidence) -> int:
    """How long the transaction is known to be open.

    By its coordinator's own start where one holds it. Otherwise since this scanner first saw it, or since its last
    record where that record's time is sane: clients choose record times, and one in the future, or none, says nothing.
    """
    started_ms = [view.start_time_ms for view in held_by(e, *IN_TRANSACTION) if view.start_time_ms >= 0]
    seen_ms, last_ms = e.observation.first_seen_ms, e.observation.last_timestamp_ms
    since_ms = started_ms or [seen_ms, last_ms if last_ms > 0 else seen_ms]
    return max(e.context.now_ms - min(since_ms), 0)


def late(e: Evidence) -> bool:
    """Obligation T: older than any transaction that a working coordinator lets live."""
    return age_ms(e) > e.context.late_after_ms


def held_by(e: Evidence, *states: str) -> tuple[CoordinatorView, ...]:
    """The coordinators' views, in one of these states, that hold this transaction's partition."""
    partition = e.observation.topic_partition
    return tuple(
        view
        for view in e.coordinators
        if view.describe_error is None and view.state in states and partition in view.partitions
    )


def owners(e: Evidence) -> tuple[CoordinatorView, ...]:
    """Views that will end this transaction: Ongoing, holding the partition, at this epoch or a later one."""
    return tuple(view for view in held_by(e, "Ongoing") if view.producer_epoch >= e.observation.producer_epoch)


def behind(e: Evidence) -> tuple[CoordinatorView, ...]:
    """Views at an epoch before the partition's."""
    described = (view for view in e.coordinators if view.describe_error is None)
    return tuple(view for view in described if view.producer_epoch < e.observation.producer_epoch)


def ongoing_nowhere(e: Evidence) -> tuple[CoordinatorView, ...]:
    """Views that are Ongoing and show no partition, as no transaction is: its partitions are hidden."""
    return tuple(view for view in e.coordinators if view.state == "Ongoing" and not view.partitions)


def bystander(e: Evidence, *states: str) -> CoordinatorView | None:
    """The one view of this producer id, in one of these states, where it does *not* hold the partition."""
    if len(e.coordinators) != 1:
        return None
    (view,) = e.coordinators
    return view if view.state in states and e.observation.topic_partition not in view.partitions else None


# --- the predicates, in the order of the rules ---


def ended(e: Evidence) -> bool:
    o = e.observation
    return o.second_error is None and o.second_start_offset != o.start_offset


def marker_owed(e: Evidence) -> bool:
    return bool(held_by(e, *PREPARED))


def marker_owed_and_late(e: Evidence) -> bool:
    return marker_owed(e) and late(e)


def two_phase_commit(e: Evidence) -> bool:
    return any(view.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS for view in owners(e))


def two_phase_commit_and_late(e: Evidence) -> bool:
    return two_phase_commit(e) and late(e)


def owned(e: Evidence) -> bool:
    return bool(owners(e))


def owned_past_timeout(e: Evidence) -> bool:
    return owned(e) and all(
        0 <= view.start_time_ms < e.context.now_ms - view.timeout_ms - TIMEOUT_SLACK_MS for view in owners(e)
    )


def partition_unproven(e: Evidence) -> bool:
    return partition_doubt(e) is not None


def coordinator_behind(e: Evidence) -> bool:
    return bool(behind(e))


def ongoing_without_partitions(e: Evidence) -> bool:
    return bool(ongoing_nowhere(e))


def split(e: Evidence) -> bool:
    if not e.coordinators:
        return e.context.split_error is not None
    view, *others = e.coordinators
    return bool(others) or view.split_error is not None


def owner_undescribed(e: Evidence) -> bool:
    return any(view.describe_error is not None for view in e.coordinators)


def uncovered(e: Evidence) -> bool:
    if not e.coordinators:
        return e.context.coverage_error is not None
    return any(view.coverage_error is not None for view in e.coordinators)


def hidden(e: Evidence) -> bool:
    """Whether the owner may be hidden: only where no id was seen to have this producer id."""
    return not e.coordinators and e.context.visibility_error is not None


def orphan(e: Evidence) -> bool:
    return not e.coordinators


def log_contradicts(e: Evidence) -> bool:
    return e.log_contradiction is not None


def may_send_again(e: Evidence) -> bool:
    return bystander(e, *PREPARED) is not None


def maybe_committed(e: Evidence) -> bool:
    pe = e.observation.producer_epoch
    view = bystander(e, "CompleteCommit")
    return view is not None and view.producer_epoch in (pe, pe + 1)


def stale_epoch(e: Evidence) -> bool:
    view = bystander(e, *_BETWEEN, "CompleteCommit")
    return view is not None and view.producer_epoch > e.observation.producer_epoch


def live_epoch(e: Evidence) -> bool:
    view = bystander(e, *_BETWEEN)
    return view is not None and view.producer_epoch == e.observation.producer_epoch


def otherwise(e: Evidence) -> bool:
    return True


def partition_doubt(e: Evidence) -> str | None:
    """Why the two reads of the partition do not prove that this transaction stood open through them, or None.

    A transaction that was written to between the reads has a producer that is alive: an owner may have added the
    partition after the coordinators were asked.
    """
    o = e.observation
    if o.first_error is not None:
        return o.first_error
    if o.second_error is not None:
        return o.second_error
    high_watermarks = (o.first_high_watermark, o.second_high_watermark)
    if any(mark is None or o.start_offset >= mark for mark in high_watermarks):
        return "the transaction starts at or above the high watermark and may still be truncated"
    if (o.second_producer_epoch, o.second_last_sequence) != (o.producer_epoch, o.last_sequence):
        return "the transaction was written to between the two reads"
    return None


# --- the sentences ----------------------------------------------------------------------------------------------------


def _the_view(e: Evidence) -> CoordinatorView:
    """The only view: where there are more, the verdict is a split."""
    (view,) = e.coordinators
    return view


def _the_id(e: Evidence) -> str:
    return f"Transactional id '{_the_view(e).transactional_id}'"


def _explain_pending(e: Evidence) -> str:
    view, *_ = held_by(e, *PREPARED)
    decision = "commit" if view.state == "PrepareCommit" else "abort"
    return (
        f"Transactional id '{view.transactional_id}' has decided to {decision} and still owes this partition the marker"
    )


def _explain_decided(e: Evidence) -> str:
    return f"{_explain_pending(e)}. As a rule it ends by itself as soon as the partition can take it."


def _explain_stuck(e: Evidence) -> str:
    return (
        f"{_explain_pending(e)}. It is overdue: see why the partition takes no writes. Where it takes writes, its "
        "coordinator has given up sending, because a partition refused a marker of this decision. "
        f"{SENDS_AGAIN}. Do not abort it."
    )


def _explain_owned(e: Evidence) -> str:
    return f"Transactional id '{owners(e)[0].transactional_id}' has this transaction open and will end it."


def _explain_late_owned(e: Evidence) -> str:
    view, *_ = owners(e)
    return (
        f"Transactional id '{view.transactional_id}' has this transaction open for longer than its own timeout of "
        f"{duration(view.timeout_ms)}; its coordinator, broker {view.broker_id}, should have aborted it and still can."
    )


def _explain_two_phase(e: Evidence) -> str:
    return (
        f"Transactional id '{owners(e)[0].transactional_id}' takes part in a two-phase commit: it has no timeout, and "
        "only its outside coordinator may end it."
    )


def _explain_behind(e: Evidence) -> str:
    view, *_ = behind(e)
    return (
        f"Broker {view.broker_id} knows '{view.transactional_id}' at epoch {view.producer_epoch}, before the "
        f"partition's {e.observation.producer_epoch}: it may have lost state, so what it says proves nothing."
    )


def _explain_ongoing_nowhere(e: Evidence) -> str:
    view, *_ = ongoing_nowhere(e)
    return (
        f"Transactional id '{view.transactional_id}' is Ongoing but shows no partitions, so some are hidden from this "
        "principal."
    )


def _explain_split(e: Evidence) -> str:
    if len(e.coordinators) > 1:
        claims = ", ".join(f"'{v.transactional_id}' on broker {v.broker_id}" for v in e.coordinators)
        return f"More than one claim stands on producer id {e.observation.producer_id} ({claims}), so neither is proof."
    why = _the_view(e).split_error if e.coordinators else e.context.split_error
    return f"Brokers disagree about {TRANSACTION_STATE_TOPIC}: {why}."


def _explain_undescribed(e: Evidence) -> str:
    view = _the_view(e)
    return (
        f"Transactional id '{view.transactional_id}' has this producer id but could not be described: "
        f"{view.describe_error}."
    )


def _explain_uncovered(e: Evidence) -> str:
    why = _the_view(e).coverage_error if e.coordinators else e.context.coverage_error
    return f"A coordinator that could own this transaction was not seen: {why}."


def _explain_may_send_again(e: Evidence) -> str:
    view = _the_view(e)
    return (
        f"{_the_id(e)} is in {view.state} and owes this partition nothing at present, yet sends it the marker again "
        "should a coordinator load its log before it completes. If it stays so, see which of its other partitions "
        f"takes no writes. Where all take writes, its coordinator has given up sending. {SENDS_AGAIN}."
    )


def _explain_committed(e: Evidence) -> str:
    return (
        f"{_the_id(e)} committed, yet this partition never got the marker and nobody will send it: the data "
        "is probably committed, and aborting would delete it."
    )


def _explain_stale(e: Evidence) -> str:
    view = _the_view(e)
    return (
        f"Transactional id '{view.transactional_id}' went on to epoch {view.producer_epoch} ({view.state}) and does "
        f"not hold this partition: nobody will end what epoch {e.observation.producer_epoch} left open."
    )


def _explain_live(e: Evidence) -> str:
    view = _the_view(e)
    return (
        f"Transactional id '{view.transactional_id}' is still at epoch {view.producer_epoch} ({view.state}) and does "
        "not hold this partition: nobody will end this, but its producer can still write here and must be fenced first."
    )


RULES: tuple[Rule, ...] = (
    Rule(Verdict.GONE, Reason.ENDED, ended, lambda e: "The transaction ended while the sweep was looking."),
    # A coordinator reports the transaction as its own. Any broker's answer counts, proven or not: no obligation needed.
    Rule(Verdict.PENDING_MARKER, Reason.STUCK, marker_owed_and_late, _explain_stuck),
    Rule(Verdict.PENDING_MARKER, Reason.DECIDED, marker_owed, _explain_decided),
    Rule(Verdict.LATE_ONGOING, Reason.TWO_PHASE_COMMIT, two_phase_commit_and_late, _explain_two_phase),
    Rule(Verdict.ONGOING, Reason.TWO_PHASE_COMMIT, two_phase_commit, _explain_two_phase),
    Rule(Verdict.LATE_ONGOING, Reason.OWNED, owned_past_timeout, _explain_late_owned),
    Rule(Verdict.ONGOING, Reason.OWNED, owned, _explain_owned),
    # What could not be observed, from the partition outwards.
    Rule(
        Verdict.INDETERMINATE,
        Reason.PARTITION,
        partition_unproven,
        lambda e: f"The partition could not be proven: {partition_doubt(e)}.",
    ),
    Rule(Verdict.INDETERMINATE, Reason.COORDINATOR_BEHIND, coordinator_behind, _explain_behind),
    Rule(
        Verdict.INDETERMINATE,
        Reason.VISIBILITY,
        ongoing_without_partitions,
        _explain_ongoing_nowhere,
    ),
    Rule(Verdict.INDETERMINATE, Reason.SPLIT, split, _explain_split),
    Rule(Verdict.INDETERMINATE, Reason.COORDINATOR, owner_undescribed, _explain_undescribed),
    Rule(Verdict.INDETERMINATE, Reason.COVERAGE, uncovered, _explain_uncovered),
    Rule(
        Verdict.INDETERMINATE,
        Reason.VISIBILITY,
        hidden,
        lambda e: f"A transactional id that this principal cannot see could own it: {e.context.visibility_error}.",
    ),
    Rule(Verdict.INDETERMINATE, Reason.DECIDED, may_send_again, _explain_may_send_again),
    # Absence is proven from here on, unless the log that coordinators load says otherwise.
    Rule(
        Verdict.INDETERMINATE,
        Reason.SPLIT,
        log_contradicts,
        lambda e: (
            f"The log {TRANSACTION_STATE_TOPIC} does not bear out what the coordinators said: {e.log_contradiction}. "
            "A coordinator that loads it anew may own this transaction."
        ),
    ),
    Rule(
        Verdict.HANGING,
        Reason.ORPHAN,
        orphan,
        lambda e: (
            f"No transactional id has producer id {e.observation.producer_id}: nobody will ever end this transaction."
        ),
    ),
    Rule(Verdict.HANGING, Reason.MAYBE_COMMITTED, maybe_committed, _explain_committed),
    Rule(Verdict.HANGING, Reason.STALE_EPOCH, stale_epoch, _explain_stale),
    Rule(Verdict.HANGING, Reason.LIVE_EPOCH, live_epoch, _explain_live),
    Rule(
        Verdict.INDETERMINATE,
        Reason.COORDINATOR,
        otherwise,
        lambda e: f"{_the_id(e)} is in state '{_the_view(e).state}', which contradicts what the partition shows.",
    ),
)
