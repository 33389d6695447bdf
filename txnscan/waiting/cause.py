"""Why a transaction hangs, as far as the evidence shows. Pure, and no part of the verdict.

There are four causes, each reported only if evidence shows it:
- **marker_missing**: the transaction was decided, its coordinator counts it as complete, and this partition lacks its
  marker. The marker was skipped or lost, but the evidence does not show which. Kafka 4.3 skips a partition that has no
  leader at that moment (KAFKA-20734). An unclean leader election loses acknowledged records. Leader epochs do not show
  such a loss: OffsetForLeaderEpoch returns where an epoch ends, not which records were cut off there.
- **late_write**: the records are dated after the end of their epoch, or after its last transaction, which had its
  marker. The dates come from the producer's clock, so this may be wrong if clocks differ by more than
  `CLOCK_SLACK_MS`.
- **never_added**: `__transaction_state` has no gaps for this epoch (`transitions.py`), has lost none of its records at
  an election (`elections.py`), and no transaction in it has this partition. The broker took the records without asking
  the coordinator: it is older than Kafka 3.6, verification is off, or verification failed open (KIP-890).
- **fenced**: InitProducerId raised the epoch. Another producer may have done so, or the same one after an error
  (KIP-360): the log does not show which.

A date may contradict a cause: if the data is dated after its abort, it is a late write, and its marker was not missing.
A partition forgets an idle producer and its markers (`producer.id.expiration.ms`), so a missing marker shows nothing.

In all other cases the cause is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from txnscan.kafka.answers import COMPLETE, PREPARED, State
from txnscan.reads.observation import Observation
from txnscan.txnlog.elections import Election, election_of
from txnscan.txnlog.facts import LoggedTransaction
from txnscan.txnlog.transitions import chain_of, completes, first_doubt
from txnscan.verdict.evidence import Judged, Outcome, Reason
from txnscan.verdict.outcome import CLOCK_SLACK_MS, decisions


class Cause(StrEnum):
    """The cause of a hanging transaction, as far as the evidence shows (`waiting/cause.py`)."""

    MARKER_MISSING = "marker_missing"
    LATE_WRITE = "late_write"
    NEVER_ADDED = "never_added"
    FENCED = "fenced"
    UNKNOWN = "unknown"


def sentence(cause: str, reason: str) -> str:
    """The cause for people. reason: as `cause_of` gives it."""
    return f"Cause: {'not known: ' if cause == Cause.UNKNOWN else ''}{reason}."


_HOW_MISSED = (
    "is complete, and this partition lacks its marker. Kafka 4.3 skips markers for a partition without a leader "
    "(KAFKA-20734), and an unclean leader election loses them"
)


def cause_of(
    judged: Judged, logged: Sequence[LoggedTransaction], earlier: tuple[Cause, str] | None = None
) -> tuple[Cause, str]:
    """The cause of a hanging transaction, and its explanation as a sentence without a full stop.

    logged: the records that `__transaction_state` still has of the ids that ever had its producer id; empty if they
    were not read. earlier: the result of an earlier sweep. It is kept if this sweep finds no cause.
    """
    found = _cause(judged, logged)
    if found[0] is Cause.UNKNOWN and earlier is not None:
        return earlier
    return found


def _cause(judged: Judged, logged: Sequence[LoggedTransaction]) -> tuple[Cause, str]:
    o = judged.observation
    names = sorted({record.transactional_id for record in logged})
    if judged.outcome == Outcome.COMMITTED:
        return Cause.MARKER_MISSING, f"the commit {_HOW_MISSED}"
    aborted = _completed_abort(logged, o)
    if aborted is not None and _is_dated_after(aborted.updated_ms, o):
        name = aborted.transactional_id
        return (
            Cause.LATE_WRITE,
            f"a late write: by the producer's clock, the last record is later than the abort of '{name}'",
        )
    if aborted is not None:
        return Cause.MARKER_MISSING, f"the abort of '{aborted.transactional_id}' {_HOW_MISSED}"
    if not names:
        return Cause.UNKNOWN, f"the transaction log has no records of producer id {o.producer_id}"
    if len(names) > 1:
        return Cause.UNKNOWN, f"{len(names)} ids in the transaction log have producer id {o.producer_id}"
    (name,) = names
    chain = chain_of(logged, o)
    if chain and first_doubt(chain, o) is None:
        return _of_whole_log(name, chain, election_of(logged, o), o)
    again = next((r for r in logged if _initialised_later(r, o)), None)
    if judged.judgement.reason is Reason.STALE_EPOCH and again is not None:
        return Cause.FENCED, f"the epoch of '{name}' was raised to {again.producer_epoch} before its transaction ended"
    return Cause.UNKNOWN, f"the remaining records of '{name}' in the transaction log do not show it"


def _of_whole_log(
    name: str, chain: Sequence[LoggedTransaction], election: Election | None, o: Observation
) -> tuple[Cause, str]:
    """The cause, if the log has no gaps for the epoch. election: at which it may have lost records, if any."""
    ended_ms = _ended_ms(chain, o)
    had_it = _names_partition(chain, o)
    late = ended_ms is not None and _is_dated_after(ended_ms, o)
    # If a transaction had the partition, later records have no owner only after that transaction had its marker.
    if late and (not had_it or o.coordinator_epoch >= 0):
        return (
            Cause.LATE_WRITE,
            f"a late write: by the producer's clock, the last record has a later date than the end of epoch "
            f"{o.producer_epoch} of '{name}'",
        )
    if not had_it and election is not None:
        return (
            Cause.UNKNOWN,
            f"'{name}' has not added this partition to a transaction of epoch {o.producer_epoch}, unless the "
            f"transaction log lost acknowledged records at {election}",
        )
    if not had_it:
        return (
            Cause.NEVER_ADDED,
            f"'{name}' never added this partition to a transaction of epoch {o.producer_epoch}, and the broker did not "
            "verify it, as before Kafka 3.6, or with transaction.partition.verification.enable=false at that time",
        )
    return Cause.UNKNOWN, f"'{name}' had this partition in a transaction, and the log does not show the cause"


def _is_dated_after(ended_ms: int, o: Observation) -> bool:
    """Whether the last record is later than this time by the producer's clock, and not in the future."""
    return ended_ms > 0 and ended_ms + CLOCK_SLACK_MS < o.last_timestamp_ms <= o.second.read_at_ms


def _completed_abort(logged: Sequence[LoggedTransaction], o: Observation) -> LoggedTransaction | None:
    """The completed abort of exactly this data. If an abort raised the epoch, it is of no other data."""
    for decision in decisions(logged):
        record = decision.record
        ours = record.producer_id == o.producer_id and decision.epoch == o.producer_epoch
        if not (ours and decision.raised and decision.names(o)) or decision.committed:
            continue
        if any(_is_completed_by(record, later) for later in logged):
            return record
    return None


def _is_completed_by(decision: LoggedTransaction, later: LoggedTransaction) -> bool:
    """Whether a later record completes this decision with the same producer id and epoch."""
    same = (later.transactional_id, later.producer_id, later.producer_epoch) == (
        decision.transactional_id,
        decision.producer_id,
        decision.producer_epoch,
    )
    return same and later.offset > decision.offset and completes(decision, later)


def _names_partition(chain: Sequence[LoggedTransaction], o: Observation) -> bool:
    """Whether a transaction that is, or may be, at the epoch of the open data has its partition."""
    key = o.key
    ongoing = any(
        record.state is State.ONGOING
        and (record.producer_id, record.producer_epoch) == (o.producer_id, o.producer_epoch)
        and key in record.partitions
        for record in chain
    )
    return ongoing or any(decision.may_concern(o) and decision.names(o) for decision in decisions(chain))


def _ended_ms(chain: Sequence[LoggedTransaction], o: Observation) -> int | None:
    """When the epoch of the open data ended, by its coordinator's clock. If the epoch is not over, when its last
    transaction ended. None if a transaction is still open, or if the log does not show the time.
    """
    for record in chain[1:]:
        past = record.producer_id != o.producer_id or record.producer_epoch > o.producer_epoch
        if past and record.state not in PREPARED:
            return record.updated_ms if record.updated_ms > 0 else None
    last = chain[-1]
    return last.updated_ms if last.state in COMPLETE and last.updated_ms > 0 else None


def _initialised_later(record: LoggedTransaction, o: Observation) -> bool:
    return (
        record.state is State.EMPTY and record.producer_id == o.producer_id and record.producer_epoch > o.producer_epoch
    )
