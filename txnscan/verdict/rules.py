"""The rules: from the evidence about one open transaction to one verdict. Pure.

Theory of operation
===================
A transaction *hangs* if it is open on a partition and no coordinator will ever end it. A coordinator durably adds a
partition to a transaction *before* data of that transaction can reach the partition. It removes the partition only
*after* the partition has acknowledged the marker that ends the transaction (`TransactionStateManager`,
`TransactionMarkerChannelManager`). So a coordinator that will end a transaction lists its partition from before the
first record until after the marker.

A sweep therefore reads in this order: the partition's leader, then every coordinator, then the leader again. Suppose
that a transaction is open at the first read, and that some coordinator will end it. That coordinator listed the
partition at the first read, and lists it until the marker is acknowledged. If the transaction is still open at the
second read, no marker was written before that. So the coordinator listed the partition during the whole time between
the two reads, and in that time the sweep asked every coordinator. Hence a transaction hangs if it is open at the first
read, unclaimed by all coordinators, and still open at the second read.

"Unclaimed" is the absence of a claim, and a claim may be absent only because the sweep could not see it. So this step
counts only under three obligations:
- **leader**: both reads came from the leader, and the transaction starts below the high watermark (`proven_read.py`,
  `metadata_image.py`);
- **coverage**: every `__transaction_state` partition is covered: its leader was asked, knew that it leads, and no other
  broker serves it (`coordinator_listing.py`);
- **visibility**: no transactional id is hidden from this principal (`visibility.py`).

If one of these obligations is not met, the verdict is `indeterminate`, with that reason. Evidence *for* an owner needs
no obligation: a claim by any broker is enough. So the rules about claims come first. For a claimed transaction
(`claims.py`) the sweep collects only that evidence, and one of these first rules applies.

The answers of coordinators are checked against their own log, `__transaction_state`, if this principal can read it and
this version understands it (`verification.py`). Three cases need this check. A coordinator that could not load its
whole log answers with a part of its ids. An authorizer may hide an id without an ACL that shows this. An epoch that was
raised only in memory is lost at the next load. If the log contradicts the coordinators, or its leader does not serve
it, the verdict is `indeterminate` instead of hanging.

In the state Prepare*, a missing partition is no proof. When a partition acknowledges its marker, the coordinator
removes it from the list only in memory. The log keeps the whole list until Complete* is written. If another coordinator
takes over before that, it sends every marker again, and this ends any transaction that is open there at this epoch. So
if a coordinator in Prepare* does not list the partition, the verdict is `indeterminate` until the state is Complete*.

A difference of epochs alone is no proof. Under transactions v2 every end of a transaction raises the coordinator's
epoch (cpe), so in Prepare*, while the marker is owed, cpe is already the partition's epoch (pe) + 1. Under v1, fencing
(a timeout, InitProducerId) does the same.

A partition has one open region for each producer id, and any marker ends all of it. If a partition missed the COMMIT
marker of a transaction, and the next transaction of the producer adds the partition, then the marker of that next
transaction also decides about the committed records: an abort tears the commit. Such a transaction is live, and has the
reason `joined_commit` if the log proves that commit (`outcome.py`).

The **age** has its own column: `late` means that the transaction is older than any live transaction can be. A hanging
transaction that is not late yet is an early warning. A hanging and late transaction is a candidate in KIP-664's sense.

The rules stand below in order. The first rule that applies gives the verdict. The last rule, `indeterminate`, always
applies.
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
    """If `applies` is true, the rule gives this verdict and reason, and `explain` returns the sentence for users."""

    verdict: Verdict
    reason: Reason
    applies: Callable[[Evidence], bool]
    explain: Callable[[Evidence], str]


RULES: tuple[Rule, ...] = (
    Rule(Verdict.GONE, Reason.ENDED, predicates.ended, explanations.ended),
    # A coordinator claims the transaction. A claim by any broker counts, with or without the obligations.
    Rule(Verdict.PENDING_MARKER, Reason.STUCK, predicates.marker_owed_and_late, explanations.stuck),
    Rule(Verdict.PENDING_MARKER, Reason.DECIDED, predicates.marker_owed, explanations.decided),
    Rule(Verdict.ONGOING, Reason.JOINED_COMMIT, predicates.joined_commit, explanations.joined_commit),
    Rule(Verdict.LATE_ONGOING, Reason.TWO_PHASE_COMMIT, predicates.two_phase_commit_and_late, explanations.two_phase),
    Rule(Verdict.ONGOING, Reason.TWO_PHASE_COMMIT, predicates.two_phase_commit, explanations.two_phase),
    Rule(Verdict.LATE_ONGOING, Reason.OWNED, predicates.owned_past_timeout, explanations.late_owned),
    Rule(Verdict.ONGOING, Reason.OWNED, predicates.owned, explanations.owned),
    # Facts that could not be observed, from the partition outwards.
    Rule(Verdict.INDETERMINATE, Reason.PARTITION, predicates.partition_unproven, explanations.partition),
    Rule(Verdict.INDETERMINATE, Reason.COORDINATOR_BEHIND, predicates.coordinator_behind, explanations.behind),
    Rule(Verdict.INDETERMINATE, Reason.VISIBILITY, predicates.ongoing_without_partitions, explanations.ongoing_nowhere),
    Rule(Verdict.INDETERMINATE, Reason.SPLIT, predicates.split, explanations.split),
    Rule(Verdict.INDETERMINATE, Reason.COORDINATOR, predicates.owner_undescribed, explanations.undescribed),
    Rule(Verdict.INDETERMINATE, Reason.COVERAGE, predicates.uncovered, explanations.uncovered),
    Rule(Verdict.INDETERMINATE, Reason.VISIBILITY, predicates.id_may_be_hidden, explanations.hidden),
    Rule(Verdict.INDETERMINATE, Reason.DECIDED, predicates.may_send_again, explanations.may_send_again),
    # From here on absence is proven, unless the coordinators' log contradicts it.
    Rule(Verdict.INDETERMINATE, Reason.SPLIT, predicates.log_contradicts, explanations.contradicted),
    Rule(Verdict.HANGING, Reason.ORPHAN, predicates.orphan, explanations.orphan),
    Rule(Verdict.HANGING, Reason.MISSED_COMMIT, predicates.missed_commit, explanations.committed),
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
    """The verdict on an observation, with every coordinator's view of its producer id."""
    views = tuple(sorted(coordinators, key=lambda view: (view.transactional_id, view.broker_id)))
    evidence = Evidence(observation, views, context)
    return Judged(evidence, judge(evidence))
