"""The rules: one open transaction's evidence to one verdict. Pure.

Theory of operation
===================
A transaction *hangs* when a partition holds it open and no coordinator will ever end it. A coordinator durably adds a
partition to a transaction *before* data of that transaction can land in the partition, and drops it only after the
partition has acknowledged the marker that ends it (`TransactionStateManager`, `TransactionMarkerChannelManager`).
So a coordinator that will end a transaction knows its partition from before the first record until after the marker.

A sweep therefore reads in this order: the partition's leader, then every coordinator, then the leader again. Suppose
some coordinator were going to end a transaction that the first read found open. It held the partition at the first
read, and would hold it until the marker is acknowledged. The second read finds the transaction still open, so no marker
had been written by then, so the coordinator held the partition during the whole time between, in which all of them were
asked. Hence a transaction hangs if it is open at the first read, unclaimed, and still open at the second read.

The step "unclaimed" rests on absence, and absence of evidence is not evidence of absence. It counts only when
- **L** both reads came from the leader, and what they saw is below the high watermark (`fenced_read.py`);
- **V** every `__transaction_state` partition was covered by the one broker that serves it (`snapshot.py`);
- **A** no transactional id is hidden from this principal (`visibility.py`).
If one of these is missing, the verdict is `indeterminate`, with that reason. Evidence *for* an owner needs no
obligation: one broker that claims the transaction is enough. So those rules come first. A claimed transaction
(`claims.py`) has such evidence alone, and never gets past them.

The answers of coordinators are checked against their own log, `__transaction_state`, unless this principal may not
read it or this version cannot (`verification.py`). A coordinator that could not load all of the log claims its
partition and lists a part, an authorizer may hide an id without listing a rule for it, and an epoch that was raised in
memory alone is lost at the next load. So if a log contradicts the coordinators, or its leader does not serve it, the
verdict is `indeterminate` instead of hanging.

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

from txnscan.kafka.answers import CoordinatorView
from txnscan.reads.observation import Observation
from txnscan.verdict import explanations, predicates
from txnscan.verdict.evidence import Context, Evidence, Judged, Judgement, Reason, Verdict
from txnscan.verdict.predicates import age_ms, late


@dataclass(frozen=True, slots=True)
class Rule:
    """When `applies`, the verdict and reason are these, and `explain` says it in one sentence."""

    verdict: Verdict
    reason: Reason
    applies: Callable[[Evidence], bool]
    explain: Callable[[Evidence], str]


RULES: tuple[Rule, ...] = (
    Rule(Verdict.GONE, Reason.ENDED, predicates.ended, explanations.ended),
    # A coordinator reports the transaction as its own. Any broker's answer counts, proven or not: no obligation needed.
    Rule(Verdict.PENDING_MARKER, Reason.STUCK, predicates.marker_owed_and_late, explanations.stuck),
    Rule(Verdict.PENDING_MARKER, Reason.DECIDED, predicates.marker_owed, explanations.decided),
    Rule(Verdict.LATE_ONGOING, Reason.TWO_PHASE_COMMIT, predicates.two_phase_commit_and_late, explanations.two_phase),
    Rule(Verdict.ONGOING, Reason.TWO_PHASE_COMMIT, predicates.two_phase_commit, explanations.two_phase),
    Rule(Verdict.LATE_ONGOING, Reason.OWNED, predicates.owned_past_timeout, explanations.late_owned),
    Rule(Verdict.ONGOING, Reason.OWNED, predicates.owned, explanations.owned),
    # What could not be observed, from the partition outwards.
    Rule(Verdict.INDETERMINATE, Reason.PARTITION, predicates.partition_unproven, explanations.partition),
    Rule(Verdict.INDETERMINATE, Reason.COORDINATOR_BEHIND, predicates.coordinator_behind, explanations.behind),
    Rule(Verdict.INDETERMINATE, Reason.VISIBILITY, predicates.ongoing_without_partitions, explanations.ongoing_nowhere),
    Rule(Verdict.INDETERMINATE, Reason.SPLIT, predicates.split, explanations.split),
    Rule(Verdict.INDETERMINATE, Reason.COORDINATOR, predicates.owner_undescribed, explanations.undescribed),
    Rule(Verdict.INDETERMINATE, Reason.COVERAGE, predicates.uncovered, explanations.uncovered),
    Rule(Verdict.INDETERMINATE, Reason.VISIBILITY, predicates.hidden, explanations.hidden),
    Rule(Verdict.INDETERMINATE, Reason.DECIDED, predicates.may_send_again, explanations.may_send_again),
    # Absence is proven from here on, unless the log that coordinators load says otherwise.
    Rule(Verdict.INDETERMINATE, Reason.SPLIT, predicates.log_contradicts, explanations.contradicted),
    Rule(Verdict.HANGING, Reason.ORPHAN, predicates.orphan, explanations.orphan),
    Rule(Verdict.HANGING, Reason.MAYBE_COMMITTED, predicates.maybe_committed, explanations.committed),
    Rule(Verdict.HANGING, Reason.STALE_EPOCH, predicates.stale_epoch, explanations.stale),
    Rule(Verdict.HANGING, Reason.LIVE_EPOCH, predicates.live_epoch, explanations.live),
    Rule(Verdict.INDETERMINATE, Reason.COORDINATOR, predicates.otherwise, explanations.otherwise),
)


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
