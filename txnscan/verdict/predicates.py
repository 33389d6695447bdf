"""The conditions of the rules, as predicates over evidence. Pure."""

from __future__ import annotations

from txnscan.kafka.answers import IN_TRANSACTION, PREPARED, TWO_PHASE_COMMIT_TIMEOUT_MS, CoordinatorView
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.verdict.evidence import Evidence

# Coordinators check for timed-out transactions every 10 s
# (`transaction.abort.timed.out.transaction.cleanup.interval.ms`). The rest allows for different clocks.
TIMEOUT_SLACK_MS = 60_000

_ABOVE_HIGH_WATERMARK = Failure(
    "the transaction starts at or above the high watermark and may still be truncated", FailureCode.ABOVE_HIGH_WATERMARK
)
_START_MOVED = Failure(
    "its start offset changed between the two reads, and no marker shows that it ended", FailureCode.START_MOVED
)
_WRITTEN_MEANWHILE = Failure("the transaction was written to between the two reads", FailureCode.WRITTEN_MEANWHILE)
# In these states an id owes no marker, and shows no commit.
_NEITHER_PREPARED_NOR_COMMITTED = ("Empty", "Ongoing", "CompleteAbort")


def age_ms(e: Evidence) -> int:
    """The time for which the transaction is known to be open.

    If a coordinator claims the transaction, its start time counts. Otherwise the age counts from the first sighting by
    this scanner, or from the last record if that is earlier. Clients choose record times: a time in the future or a
    missing time is ignored.
    """
    started_ms = [view.start_time_ms for view in held_by(e, *IN_TRANSACTION) if view.start_time_ms >= 0]
    seen_ms, last_ms = e.observation.first_seen_ms, e.observation.last_timestamp_ms
    since_ms = started_ms or [seen_ms, last_ms if last_ms > 0 else seen_ms]
    return max(e.context.now_ms - min(since_ms), 0)


def late(e: Evidence) -> bool:
    """Whether the transaction is older than any transaction can get under a working coordinator."""
    return age_ms(e) > e.context.late_after_ms


def held_by(e: Evidence, *states: str) -> tuple[CoordinatorView, ...]:
    """The coordinators' views, in these states, that list this transaction's partition."""
    return tuple([view for view in e.views_listing_partition if view.state in states])


def owners(e: Evidence) -> tuple[CoordinatorView, ...]:
    """Views that will end this transaction: Ongoing, at the partition's epoch or later, and listing the partition."""
    epoch = e.observation.producer_epoch
    return tuple([view for view in held_by(e, "Ongoing") if view.producer_epoch >= epoch])


def behind(e: Evidence) -> tuple[CoordinatorView, ...]:
    """Views at an epoch before the partition's epoch: such a broker may have lost state."""
    described = (view for view in e.coordinators if view.describe_failure is None)
    return tuple(view for view in described if view.producer_epoch < e.observation.producer_epoch)


def ongoing_nowhere(e: Evidence) -> tuple[CoordinatorView, ...]:
    """Views that are Ongoing without partitions. No real transaction looks so: its partitions are hidden by ACLs."""
    return tuple(view for view in e.coordinators if view.state == "Ongoing" and not view.partitions)


def sole_id_without_partition(e: Evidence, *states: str) -> CoordinatorView | None:
    """The only view of this producer id, if it is in one of these states and does *not* list the partition."""
    if len(e.coordinators) != 1:
        return None
    (view,) = e.coordinators
    return view if view.state in states and e.observation.topic_partition not in view.partitions else None


def partition_doubt(e: Evidence) -> Failure | None:
    """Why the two reads of the partition do not prove that this transaction was open from the first to the second read.

    A write between the reads shows that the producer is alive. Its coordinator may have added the partition after the
    sweep asked it.
    """
    o = e.observation
    if o.first.failure is not None:
        return o.first.failure
    if o.second.failure is not None:
        return o.second.failure
    if o.second.start_offset != o.start_offset:
        return _START_MOVED
    high_watermarks = (o.first.high_watermark, o.second.high_watermark)
    if any(mark is None or o.start_offset >= mark for mark in high_watermarks):
        return _ABOVE_HIGH_WATERMARK
    if (o.second.producer_epoch, o.second.last_sequence) != (o.producer_epoch, o.last_sequence):
        return _WRITTEN_MEANWHILE
    return None


def open_at_both_reads(e: Evidence) -> bool:
    """Whether the two reads prove that the transaction was open at each. A live producer may write between them, which
    does not end its transaction.
    """
    doubt = partition_doubt(e)
    return doubt is None or doubt is _WRITTEN_MEANWHILE


# --- the predicates, in the order of the rules


def ended(e: Evidence) -> bool:
    """A proven read shows nothing open of the producer id, or another transaction (`sweeps/identity.py`)."""
    o = e.observation
    return o.second.failure is None and (o.second.start_offset is None or o.is_replaced)


def marker_owed_and_late(e: Evidence) -> bool:
    return marker_owed(e) and late(e)


def marker_owed(e: Evidence) -> bool:
    return bool(held_by(e, *PREPARED))


def joined_commit(e: Evidence) -> bool:
    """A live transaction whose marker will also end records that an earlier transaction committed."""
    return e.joined_commit is not None and owned(e)


def two_phase_commit_and_late(e: Evidence) -> bool:
    return two_phase_commit(e) and late(e)


def two_phase_commit(e: Evidence) -> bool:
    return any(view.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS for view in owners(e))


def owned_past_timeout(e: Evidence) -> bool:
    views, now_ms = owners(e), e.context.now_ms
    return bool(views) and all(0 <= view.start_time_ms < now_ms - view.timeout_ms - TIMEOUT_SLACK_MS for view in views)


def owned(e: Evidence) -> bool:
    return bool(owners(e))


def partition_unproven(e: Evidence) -> bool:
    return partition_doubt(e) is not None


def coordinator_behind(e: Evidence) -> bool:
    return bool(behind(e))


def ongoing_without_partitions(e: Evidence) -> bool:
    return bool(ongoing_nowhere(e))


def split(e: Evidence) -> bool:
    if not e.coordinators:
        return e.context.split_failure is not None
    view, *others = e.coordinators
    return bool(others) or view.split_failure is not None


def owner_undescribed(e: Evidence) -> bool:
    return any(view.describe_failure is not None for view in e.coordinators)


def uncovered(e: Evidence) -> bool:
    if not e.coordinators:
        return e.context.coverage_failure is not None
    return any(view.coverage_failure is not None for view in e.coordinators)


def id_may_be_hidden(e: Evidence) -> bool:
    """Whether the owner may be hidden by ACLs. This matters only if no visible id has this producer id."""
    return not e.coordinators and bool(e.context.visibility_failures)


def may_send_again(e: Evidence) -> bool:
    return sole_id_without_partition(e, *PREPARED) is not None


def log_contradicts(e: Evidence) -> bool:
    return e.log_contradiction is not None


def orphan(e: Evidence) -> bool:
    return not e.coordinators


def missed_commit(e: Evidence) -> bool:
    pe = e.observation.producer_epoch
    view = sole_id_without_partition(e, "CompleteCommit")
    return view is not None and view.producer_epoch in (pe, pe + 1)


def stale_epoch(e: Evidence) -> bool:
    view = sole_id_without_partition(e, *_NEITHER_PREPARED_NOR_COMMITTED, "CompleteCommit")
    return view is not None and view.producer_epoch > e.observation.producer_epoch


def live_epoch(e: Evidence) -> bool:
    view = sole_id_without_partition(e, *_NEITHER_PREPARED_NOR_COMMITTED)
    return view is not None and view.producer_epoch == e.observation.producer_epoch


def otherwise(e: Evidence) -> bool:
    return True
