"""The search of each rule in the facts, in their order. Without a match, a search returns None. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from txnscan.coordinators.transactions import Transaction, key_of
from txnscan.explain.cause import Subject
from txnscan.explain.client_errors import ErrorKind
from txnscan.explain.facts import Facts, PartitionFacts
from txnscan.explain.symptom import SymptomKind
from txnscan.kafka.answers import PREPARED, State
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.failure import FailureCode
from txnscan.kafka.protocol.describe_configs import READ_UNCOMMITTED
from txnscan.verdict.evidence import Judged, Reason, Verdict
from txnscan.waiting.blocking import LATE_DIVISOR, is_live
from txnscan.waiting.known_causes import LONG_TIMEOUT_MS
from txnscan.waiting.relation import NotBlocked
from txnscan.waiting.writability import WriteState, claim_of

_OF_DISKS = ("CORRUPT_MESSAGE", ErrorCode.KAFKA_STORAGE_ERROR.name, FailureCode.DAMAGED_BATCH)


def fenced(f: Facts) -> Subject | None:
    """A fencing error, unless no later epoch of the id shows it."""
    if f.symptom.error is None or f.symptom.error.kind is not ErrorKind.FENCED:
        return None
    if f.transaction is None:
        return None if f.failures or f.absent else Subject()
    return None if has_no_later_epoch(f) else Subject(transaction=f.transaction)


def has_no_later_epoch(f: Facts) -> bool:
    """Whether the id of a fencing error is still at the epoch that logged it. Without an epoch in the text: whether it
    is at the first epoch of the only producer id that its records show, so that no earlier epoch was fenced.
    """
    one, epoch = f.transaction, f.symptom.producer_epoch
    if one is None or one.producer_epoch is None or f.symptom.producer_id not in (None, one.producer_id):
        return False
    if epoch is not None:
        return one.producer_epoch <= epoch
    return one.producer_epoch == 0 and all(logged.producer_id == one.producer_id for logged in f.logged)


def setting(f: Facts) -> Subject | None:
    error = f.symptom.error
    about = error is not None and error.kind is ErrorKind.SETTING
    return Subject() if about and f.max_timeout_ms is not None else None


def itself(f: Facts) -> Subject | None:
    """An error that shows its cause, or that is Kafka's and none of a transaction."""
    kind = f.symptom.error.kind if f.symptom.error is not None else None
    alone = kind is ErrorKind.OTHER and f.symptom.kind is SymptomKind.ERROR
    asked = f.symptom.brokers_know_more and (f.absent or f.transaction is not None)
    return Subject() if (kind is ErrorKind.ITSELF and not asked) or alone else None


def unrecognised(f: Facts) -> Subject | None:
    """A text without an error and without an id."""
    return Subject() if f.symptom.kind is SymptomKind.ERROR and f.symptom.error is None else None


def pending(f: Facts) -> Subject | None:
    """Offsets in a hanging transaction first."""
    ordered = sorted(f.pending, key=lambda one: one.holder is None or not is_(one.holder, Verdict.HANGING))
    return Subject(pending=ordered[0], judged=ordered[0].holder) if ordered else None


def _judged(f: Facts, applies: Callable[[Judged], bool]) -> Subject | None:
    """The first transaction like this that can cause the symptom."""
    return next(_every(f, applies), None)


def _every(f: Facts, applies: Callable[[Judged], bool]) -> Iterator[Subject]:
    """The transactions like this that can cause the symptom: for a reader, the holders of the last stable offsets at
    which it waits; for an id, the transactions of its producer; otherwise all. The partition that blocks most comes
    first.
    """
    for one in sorted(f.partitions, key=lambda p: -(p.blocked_records or 0)):
        for judged in _in_the_way(f, one):
            if applies(judged):
                yield Subject(one, judged)


def _in_the_way(f: Facts, p: PartitionFacts) -> tuple[Judged, ...]:
    if f.is_share:
        reads_committed = f.isolation_level is not None and f.isolation_level != READ_UNCOMMITTED
        return (p.holder,) if p.holder is not None and reads_committed else ()
    if f.symptom.is_reader:
        return (p.holder,) if p.holder is not None and p.waits else ()
    if f.symptom.kind in (SymptomKind.TRANSACTIONAL_ID, SymptomKind.PRODUCER_ID):
        now = f.symptom.producer_id if f.transaction is None else f.transaction.producer_id
        wanted = {now, *f.earlier_producer_ids}
        return tuple(one for one in p.still_open if one.observation.producer_id in wanted)
    return p.still_open


def hanging(f: Facts) -> Subject | None:
    return next(every_hanging(f), None)


def every_hanging(f: Facts) -> Iterator[Subject]:
    """All hanging transactions that can cause the symptom."""
    return _every(f, lambda one: is_(one, Verdict.HANGING))


def long_lived(f: Facts) -> bool:
    """Whether a live transaction that can cause the symptom has a timeout that is a known cause by itself."""
    found = owned(f)
    view = claim_of(found.judged) if found is not None and found.judged is not None else None
    timeout_ms = view.timeout_ms if view is not None else None
    if found is not None and found.transaction is not None:
        timeout_ms = found.transaction.timeout_ms
    return timeout_ms is not None and timeout_ms > LONG_TIMEOUT_MS


def no_writes(f: Facts) -> Subject | None:
    """A partition that takes no writes: one that a transaction above needs for its end, or the log of an id that is
    about to begin one.
    """
    found = _judged(f, lambda one: _stopped(f.writes.blocker_of(one)) is not None)
    if found is not None and found.judged is not None:
        return replace(found, stopped=f.writes.blocker_of(found.judged))
    for one in (f.transaction,) if f.transaction is not None else f.prepared:
        blocker = _stopped(f.blocker_of(one))
        if blocker is not None:
            return Subject(transaction=one, stopped=blocker)
    about, logs = f.symptom.transactional_id, [one for one in f.writes.stopped if one.is_transaction_log]
    if about is not None:
        stopped = _stopped(f.writes.log_of(about)) if f.absent else None
    else:
        stopped = logs[0] if logs and is_busy(f) else None
    return Subject(stopped=stopped) if stopped is not None else None


def leaderless(f: Facts) -> Subject | None:
    """A partition without a leader, which therefore could not be observed."""
    for one in f.partitions:
        state = f.writes.partitions.get((one.topic, one.partition))
        if one.failure is not None and state is not None and state.replicas.has_no_leader:
            return Subject(one, stopped=state)
    return None


def _stopped(state: WriteState | None) -> WriteState | None:
    return state if state is not None and state.takes_writes is False else None


def is_busy(f: Facts) -> bool:
    """Whether an error says that an id cannot begin or end a transaction."""
    return f.symptom.error is not None and f.symptom.error.kind is ErrorKind.BUSY


def marker_at_risk(f: Facts) -> Subject | None:
    """A partition without a leader, of the id's open transaction, whose marker its coordinator will drop."""
    one = f.transaction
    if one is None or one.state != State.ONGOING:
        return None
    danger = f.writes.in_danger(one.transactional_id, map(key_of, one.partitions))
    lost = [state for state in danger if state.replicas.has_no_leader]
    return Subject(transaction=one, stopped=lost[0]) if lost else None


def no_log(f: Facts) -> Subject | None:
    """A transaction log that too few brokers could create, if the symptom is that an id cannot use it."""
    concerns = f.symptom.transactional_id is not None or is_busy(f)
    return Subject() if concerns and f.writes.no_log is not None and f.writes.no_log.cannot_be_made else None


def stuck_prepare(f: Facts) -> Subject | None:
    found = _judged(f, lambda one: is_(one, Verdict.PENDING_MARKER, Reason.STUCK))
    return found or _prepared(f, lambda one: one.age_ms is not None and one.age_ms > f.late_after_ms)


def marker_owed(f: Facts) -> Subject | None:
    found = _most_lag(f, _judged(f, lambda one: is_(one, Verdict.PENDING_MARKER)))
    return found or _prepared(f, lambda one: True)


def _prepared(f: Facts, applies: Callable[[Transaction], bool]) -> Subject | None:
    """The oldest id in Prepare* like this."""
    asked = (f.transaction,) if f.transaction is not None else f.prepared
    found = [one for one in asked if one is not None and one.state in PREPARED and applies(one)]
    return Subject(transaction=max(found, key=lambda one: one.age_ms or 0)) if found else None


def cleaner_stuck(f: Facts) -> Subject | None:
    return _kept_by_live(f, lambda one: one.compacted)


def tiering_stuck(f: Facts) -> Subject | None:
    """As `cleaner_stuck`, for a tiered topic: segments above the last stable offset are not moved to remote storage."""
    return _kept_by_live(f, lambda one: one.tiered)


def _kept_by_live(f: Facts, applies: Callable[[PartitionFacts], bool | None]) -> Subject | None:
    """A live transaction that has kept the data of a topic like this for long."""
    if f.symptom.kind is not SymptomKind.TOPIC:
        return None

    def waits(one: Judged) -> bool:
        return is_live(one) and one.judgement.age_ms * LATE_DIVISOR > f.late_after_ms

    found = _judged(f, waits)
    return found if found is not None and found.partition is not None and applies(found.partition) else None


def cleaner_gave_up(f: Facts) -> Subject | None:
    """A line of a broker's log that says so. Without a partition in it, the cleaner as a whole."""
    if f.symptom.error is None or f.symptom.error.kind is not ErrorKind.CLEANER:
        return None
    return Subject(f.partitions[0] if f.symptom.kind is SymptomKind.TOPIC and f.partitions else None)


def cleaner_behind(f: Facts) -> Subject | None:
    """A compacted partition whose cleaning is due, though no transaction is open on it."""
    found = [one for one in _compacted(f) if one.cleaning is not None and one.cleaning.is_due]
    return Subject(found[0]) if found else None


def compaction_free(f: Facts) -> Subject | None:
    """The largest of the compacted partitions, if no transaction is open on them."""
    found = _compacted(f)
    return Subject(found[0]) if found else None


def _compacted(f: Facts) -> list[PartitionFacts]:
    """The compacted partitions of a topic without open transactions, the largest first."""
    if f.symptom.kind is not SymptomKind.TOPIC or any(one.still_open for one in f.partitions):
        return []
    return sorted((one for one in f.partitions if one.compacted), key=lambda p: -(p.disk.partition_bytes or 0))


def owned(f: Facts) -> Subject | None:
    found = _judged(f, lambda one: is_(one, Verdict.LATE_ONGOING))
    found = found or _most_lag(f, _judged(f, lambda one: is_(one, Verdict.ONGOING)))
    if found is not None:
        return found
    one = f.transaction
    return Subject(transaction=one) if one is not None and one.state == State.ONGOING else None


def _most_lag(f: Facts, found: Subject | None) -> Subject | None:
    """The subject, unless the group has more lag elsewhere, with records to read. If producers are active, a group that
    reads everything at once waits for a healthy transaction most of the time, so that explains no lag.
    """
    elsewhere = real_lag(f)
    if found is None or found.partition is None or elsewhere is None or elsewhere.partition is None:
        return found
    return found if (found.partition.lag or 0) >= (elsewhere.partition.lag or 0) else None


def not_observed(f: Facts) -> Subject | None:
    found = _judged(f, lambda one: is_(one, Verdict.INDETERMINATE))
    if found is not None:
        return found
    if f.failures:
        return Subject(failure=f.failures[0])
    failed = next((one for one in f.partitions if one.failure is not None), None)
    if failed is not None:
        return Subject(failed, failure=failed.failure)
    # A read that ended early counts, unless another partition shows lag with records to read.
    unread = next((one for one in f.partitions if one.ahead is not None and one.ahead.failure is not None), None)
    if unread is None or unread.ahead is None or real_lag(f) is not None or not_read_committed(f) is not None:
        return None
    return Subject(unread, failure=unread.ahead.failure)


def share_uncommitted(f: Facts) -> Subject | None:
    """A share group that waits for no transaction, by its setting. The partition with a transaction comes first."""
    if f.isolation_level != READ_UNCOMMITTED:
        return None
    return Subject(next((one for one in f.partitions if one.still_open), None))


def not_read_committed(f: Facts) -> Subject | None:
    """A committed offset above the last stable offset: no read_committed reader gets there by reading."""
    for one in f.partitions:
        if one.relation is NotBlocked.BEYOND:
            return Subject(one, one.holder)
    return None


def unreadable(f: Facts) -> Subject | None:
    """A partition whose leader answers the reader's next Fetch with an error of its disk."""
    found = [
        one
        for one in f.partitions
        if one.ahead is not None and one.ahead.failure is not None and one.ahead.failure.code in _OF_DISKS
    ]
    return Subject(found[0], failure=found[0].ahead.failure if found[0].ahead is not None else None) if found else None


def at_marker(f: Facts) -> Subject | None:
    """The partition with the most lag, if its next offset is a control record before records."""
    found = real_lag(f)
    if found is None or found.partition is None or found.partition.ahead is None:
        return None
    return found if found.partition.ahead.begins_with_marker else None


def real_lag(f: Facts) -> Subject | None:
    found = [one for one in f.partitions if one.has_records]
    return Subject(max(found, key=lambda one: one.lag or 0)) if found else None


def nothing_to_read(f: Facts, aborted: bool) -> Subject | None:
    """A partition without open transactions that ends without a record to a read_committed reader."""
    found = [
        one
        for one in f.partitions
        if one.ahead is not None
        and one.ahead.has_record is False
        and one.blocked_records == 0
        and (one.ahead.aborted > 0 if aborted else one.ahead.aborted == 0 and one.ahead.markers > 0)
    ]
    return Subject(max(found, key=lambda one: one.lag or 0)) if found else None


def is_(judged: Judged, verdict: Verdict, reason: Reason | None = None) -> bool:
    """Whether it has this verdict, and this reason if one is given."""
    return judged.judgement.verdict is verdict and reason in (None, judged.judgement.reason)
