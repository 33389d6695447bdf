"""What became of the transaction that hanging data belongs to: committed, not committed, or not known. Pure.

Theory
======
A hanging transaction needs a marker that nobody will send, and which one is right depends on what its coordinator has
decided. The decision stands in `__transaction_state`: a PrepareCommit or PrepareAbort with all partitions of the
transaction, and before it the Ongoing record with the epoch at which its data was written (the end itself may raise the
epoch: transactions v2 always, a fence always, else never).

**What is left of a log has holes.** The topic is compacted, by each replica for itself. A replica that was down while
the leader compacted keeps what it had, never gets what was dropped meanwhile, fetches what came after, and may lead
again: then a PrepareCommit is missing in the middle. The cleaner may also drop records between two pieces of one read.
So the records of an id prove something only as a chain that is whole (`whole`): each follows from the one before by a
transition that a coordinator makes (`follows`), and between the two either no offset of the log is missing, or a record
that is missing would show. It would show under transactions v2, where each end raises the epoch; under v1 any number of
transactions fit between two records of one epoch.

**A record need not count.** An append that times out stands in the log though its coordinator goes on from the state
before: a PrepareCommit may be followed by a PrepareAbort of the same transaction, an InitProducerId's Empty by a
transaction of the epoch before. Whether a record counts shows in what is built on it. CompleteCommit and CompleteAbort
are written only after their decision was acknowledged and its markers were sent. Any other record counts where it is
the id's last one, or where another than a repetition of it follows from it, with no offset missing between them.

A chain begins at a record from before the epoch in question (`_first_before`) and ends where that epoch is over
(`_is_over`). Such a chain shows every decision at the epoch, and only there the absence of a decision proves something.
Where the chain ends before the epoch is over, a commit may still come.

The data of a hanging transaction must have been written at one epoch, that of its first batch, or else nothing is
concluded. Under transactions v2 an epoch has one transaction, and a commit at it that names the partition is the commit
of this data. Under v1 an epoch has many: the data may belong to any of them, or be a late record of one whose marker
the partition has. Then a commit is proven only where it is the one transaction of that epoch with this partition, and
the partition never had a marker of this producer id. That nothing was committed is proven where no commit of that epoch
names the partition and the epoch is over. Everything else is unknown, or `maybe_committed` where a commit was seen
anywhere that may be of this data, even if only its completion is left: that forbids an abort as much as a commit.

**What a later Kafka writes is not understood.** Where a record of the chain has fields that are not known here, nothing
is concluded from it. And wherever nothing can be concluded, a commit of this producer id at any later epoch that names
the partition forbids an abort too: a later version may raise an epoch by more than one (KIP-939). So does a commit
whose partitions are missing, where a record has such fields.

**Decisions never change**, but logs are compacted; so what was proven once is kept (`best_known`).

Not covered: a producer that goes from v2 to v1 and back to v2 within one epoch, while exactly those records are
missing; an InitProducerId that first used up a producer id and is repeated after transactions of v1; an id that expired
while a replica was away for longer than tombstones are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from txnscan.model import Judged, KnownOutcome, LoggedTransaction, Observation, Outcome, Reason, Siblings, State

_NO_MARKER_YET = -1
_TRANSACTIONS_V2 = 2
# From this epoch on a producer id is used up (`TransactionMetadata.isEpochExhausted`).
_LAST_EPOCH = 32_766
_PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
_COMPLETE = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
_AT_REST = (State.EMPTY, *_COMPLETE)
_ENDS = (*_PREPARED, *_COMPLETE)
# Records of an outcome's evidence that are kept, for people to read.
_EVIDENCE_MAX = 50
_COMPLETED_AS = dict(zip(_PREPARED, _COMPLETE, strict=True))


@dataclass(frozen=True, slots=True)
class OutcomeEvidence:
    """What was read to learn an outcome.

    owner_epoch: the epoch of the id that has the producer id now, None where none has. first_epoch, first_sequence: the
    producer epoch and base sequence of the transaction's first batch, None where it could not be read, which
    `batch_error` explains. logged: what is left in `__transaction_state` of every id that has ever had the producer
    id, in the order of the log. log_error: why some of it could not be read, or None. contradiction: how the log
    contradicts what the coordinators said, or None (`log_check.py`).
    """

    observation: Observation
    owner_epoch: int | None
    first_epoch: int | None
    first_sequence: int | None
    batch_error: str | None
    logged: tuple[LoggedTransaction, ...]
    log_error: str | None
    contradiction: str | None


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision in the log. epoch: at which the data of its transaction was written, None where it cannot be known."""

    record: LoggedTransaction
    epoch: int | None

    @property
    def committed(self) -> bool:
        return self.record.state is State.PREPARE_COMMIT

    @property
    def raised(self) -> bool:
        """Whether the end raised the epoch."""
        return self.epoch is not None and self.epoch < self.record.producer_epoch

    def names(self, o: Observation) -> bool:
        """Whether the transaction has this partition."""
        return (o.topic, o.partition) in self.record.partitions

    def may_concern(self, o: Observation) -> bool:
        """Whether this is, or may be, about data of this producer id and epoch."""
        if self.record.producer_id != o.producer_id:
            return False
        if self.epoch is None:
            raised = self.record.producer_epoch - o.producer_epoch
            return raised == 1 or (raised == 0 and self.record.client_version < _TRANSACTIONS_V2)
        return self.epoch == o.producer_epoch


def outcome(evidence: OutcomeEvidence) -> KnownOutcome:
    """What was decided about the open transaction. The same evidence always gives the same answer."""
    found = _outcome(evidence)
    undecided = evidence.owner_epoch == evidence.observation.producer_epoch
    return replace(
        found,
        settled=evidence.log_error is None and evidence.batch_error is None and not undecided,
        log_error=evidence.log_error,
        siblings=siblings(evidence.logged, evidence.observation),
        evidence=_in_words(evidence.logged, evidence.observation),
        producer_epoch=evidence.observation.producer_epoch,
    )


def _outcome(evidence: OutcomeEvidence) -> KnownOutcome:
    o, logged = evidence.observation, evidence.logged
    names = sorted({record.transactional_id for record in logged})
    ends = [decision for decision in decisions(logged) if decision.may_concern(o)]
    commits = [decision for decision in ends if decision.committed and decision.names(o)]
    doubt = _doubt(evidence, names)
    if commits:
        commit, *_ = commits
        name = commit.record.transactional_id
        if doubt is None and is_of_this_data(commit, ends, evidence):
            why = f"'{name}' committed its transaction of epoch {commit.epoch} with this partition"
            return KnownOutcome(Outcome.COMMITTED, f"{why}, which has no marker of it")
        why = f"'{name}' committed at epoch {commit.epoch} with this partition"
        but = doubt or "under transactions v1 that need not be this data"
        return KnownOutcome(Outcome.MAYBE_COMMITTED, f"{why}, but {but}")
    completed = _commit_without_partitions(logged, o)
    if completed is not None:
        why = f"'{completed.transactional_id}' completed a commit at epoch {o.producer_epoch}"
        return KnownOutcome(Outcome.MAYBE_COMMITTED, f"{why}, and the transaction log lacks which partitions it had")
    later = _later_commit(logged, o) if doubt is not None else None
    if later is not None:
        why = f"'{later.transactional_id}' committed at the later epoch {later.producer_epoch}"
        return KnownOutcome(Outcome.MAYBE_COMMITTED, f"{why}, which may be of this data, since {doubt}")
    if doubt is None and evidence.owner_epoch == o.producer_epoch:
        doubt = f"'{names[0]}' is still at epoch {o.producer_epoch}, and may yet commit"
    if doubt is None and not _is_over(logged, o):
        doubt = f"the transaction log of '{names[0]}' does not show that epoch {o.producer_epoch} is over"
    if doubt is not None:
        return KnownOutcome(Outcome.UNKNOWN, doubt)
    return KnownOutcome(Outcome.NOT_COMMITTED, _nothing_committed(names[0], ends, o))


def _doubt(evidence: OutcomeEvidence, names: Sequence[str]) -> str | None:
    """Why nothing can be concluded at all, or None."""
    o = evidence.observation
    if evidence.first_epoch is None:
        return f"the first record of the transaction could not be read: {evidence.batch_error}"
    if evidence.first_epoch != o.producer_epoch:
        return f"records of epochs {evidence.first_epoch} to {o.producer_epoch} stand in the open transaction"
    if evidence.log_error is not None:
        return f"the transaction log could not be read: {evidence.log_error}"
    if not names:
        return f"the transaction log holds nothing of producer id {o.producer_id}"
    if len(names) > 1:
        return f"the transaction log gives producer id {o.producer_id} to {len(names)} ids"
    chain = chain_of(evidence.logged, o)
    if not chain:
        return f"the transaction log of '{names[0]}' does not reach back to before epoch {o.producer_epoch}"
    strange = next((record for record in chain if record.unknown_fields), None)
    if strange is not None:
        unknown = " and ".join(strange.unknown_fields)
        return f"the record of '{names[0]}' at offset {strange.offset} has {unknown}, which this version does not know"
    broken = next(((a, b) for a, b in pairwise(chain) if not whole(a, b, o)), None)
    if broken is not None:
        a, b = broken
        if b.whole_from <= a.offset:
            return f"the records of '{names[0]}' at offsets {a.offset} and {b.offset} contradict each other"
        return f"the transaction log of '{names[0]}' may lack records between offsets {a.offset} and {b.offset}"
    if chain[-1].state in _PREPARED:
        # It may be an append that timed out, after which the coordinator may decide otherwise.
        return f"the transaction log of '{names[0]}' ends with a decision that is not complete"
    return None


# --- a chain of records -----------------------------------------------------------------------------------------------


def chain_of(logged: Sequence[LoggedTransaction], o: Observation) -> Sequence[LoggedTransaction]:
    """The records of an id from before the epoch of the open data until that epoch is over, or else to the last one.

    It ends at a record past the epoch that is seen to count, with one record more where only that shows it. Empty where
    the log does not reach back to before the epoch.
    """
    first = _first_before(logged, o)
    if first is None:
        return ()
    for at in range(first + 1, len(logged)):
        if _is_past(logged[at], o) and logged[at].state not in _PREPARED:
            return logged[first : _counted_at(logged, at) + 1]
    return logged[first:]


def _counted_at(logged: Sequence[LoggedTransaction], at: int) -> int:
    """Where this record is seen to count: at its own position, or at the next record that is no repetition of it."""
    if _ends_and_raises(logged[at]):
        return at
    later = range(at + 1, len(logged))
    return next((n for n in later if not _same_state(logged[n], logged[at])), len(logged) - 1)


def _same_state(a: LoggedTransaction, b: LoggedTransaction) -> bool:
    return (a.state, a.producer_id, a.producer_epoch) == (b.state, b.producer_id, b.producer_epoch)


def _is_over(logged: Sequence[LoggedTransaction], o: Observation) -> bool:
    """Whether the chain goes on until the epoch of the open data is over."""
    return any(_is_past(record, o) for record in chain_of(logged, o)[1:])


def _first_before(logged: Sequence[LoggedTransaction], o: Observation) -> int | None:
    """Where a chain begins: at the last record from before the first transaction at the open data's epoch.

    An id never gets back a producer id that it had, and its epochs rise. A Complete* that raised the epoch belongs to
    the epoch before. An Empty record at epoch 0 begins a producer id; at a later epoch it proves nothing by itself:
    Kafka 3 writes it again for an InitProducerId that is repeated after a transaction.
    """
    ours = next((at for at, record in enumerate(logged) if record.producer_id == o.producer_id), None)
    if ours is None:
        return None
    before = [at for at, record in enumerate(logged) if _is_before(record, o, earlier_producer_id=at < ours)]
    if logged[ours].state is State.EMPTY and logged[ours].producer_epoch == 0 == o.producer_epoch:
        before.append(ours)
    return max(before, default=None)


def _is_before(record: LoggedTransaction, o: Observation, earlier_producer_id: bool) -> bool:
    if record.producer_id != o.producer_id:
        return earlier_producer_id
    if record.producer_epoch != o.producer_epoch:
        return record.producer_epoch < o.producer_epoch
    return _ends_and_raises(record)


def _is_past(record: LoggedTransaction, o: Observation) -> bool:
    """Whether the epoch of the open data is over at this record of a chain, if the record counts."""
    return record.producer_id != o.producer_id or record.producer_epoch > o.producer_epoch


def _ends_and_raises(record: LoggedTransaction) -> bool:
    """Whether this is a completed end that raised the epoch. Such a record counts, whatever comes after it."""
    return record.state in _COMPLETE and _is_v2(record)


def _is_v2(record: LoggedTransaction) -> bool:
    """Whether an end raised the epoch: that of a client of transactions v2, or of a broker that supports it, at a
    fence.
    """
    return record.client_version >= _TRANSACTIONS_V2


def whole(a: LoggedTransaction, b: LoggedTransaction, o: Observation) -> bool:
    """Whether b follows from a, and nothing that matters to the open data can be missing between them."""
    return follows(a, b) and (b.whole_from <= a.offset or _would_show(a, b, o))


def follows(a: LoggedTransaction, b: LoggedTransaction) -> bool:
    """Whether a coordinator that has written a may write b next (`TransactionMetadata.prepareTransitionTo`)."""
    if b.state is State.DEAD:
        return a.state in (*_AT_REST, State.DEAD)
    if a.producer_id != b.producer_id:
        return _changes_producer_id(a, b)
    raised = b.producer_epoch - a.producer_epoch
    if a.state in _AT_REST and b.state not in _COMPLETE:
        # A client of v2 may abort before anything was added.
        aborts_nothing = b.state is State.PREPARE_ABORT and raised == 1 and _is_v2(b) and not b.partitions
        begins = b.state is State.ONGOING and raised == 0
        return aborts_nothing or begins or (b.state is State.EMPTY and raised in (0, 1))
    if a.start_time_ms != b.start_time_ms:
        return False
    if a.state is State.ONGOING and b.state in _PREPARED:
        # Partitions are added by Ongoing records alone, of which one may be missing.
        hole = b.whole_from > a.offset
        same = a.partitions <= b.partitions if hole else a.partitions == b.partitions
        return raised in _raised_by(b) and same
    if a.state is State.ONGOING:
        return b.state is State.ONGOING and raised == 0 and a.partitions <= b.partitions
    written_twice = a.state in _ENDS and a.state is b.state and a.partitions == b.partitions
    return raised == 0 and (written_twice or b.state is _COMPLETED_AS.get(a.state))


def _raised_by(decision: LoggedTransaction) -> Sequence[int]:
    """By how much a decision may raise the epoch of the data that it is about."""
    if decision.state is State.PREPARE_COMMIT:
        return (1,) if _is_v2(decision) else (0,)
    # A fence raises it under v1 too, and by brokers of 4.0 twice.
    return (1, 2) if _is_v2(decision) else (0, 1)


def _changes_producer_id(a: LoggedTransaction, b: LoggedTransaction) -> bool:
    """Whether the id gets its next producer id here: the epochs of the last one are used up, or the id had expired."""
    if b.producer_epoch != 0:
        return False
    if a.state is State.DEAD:
        return b.state is State.EMPTY
    if a.state in _PREPARED:
        # The end of a transaction of the last epoch has raised it once more.
        used_up = _is_v2(a) and a.producer_epoch > _LAST_EPOCH
        return used_up and b.state is _COMPLETED_AS[a.state] and a.start_time_ms == b.start_time_ms
    return a.state in _AT_REST and b.state is State.EMPTY and a.producer_epoch >= _LAST_EPOCH


def _would_show(a: LoggedTransaction, b: LoggedTransaction, o: Observation) -> bool:
    """Whether a transaction that is missing between these two would show as a jump of epochs, as under v2.

    Between a PrepareCommit and its completion it would not, unless the PrepareCommit names this partition: partitions
    may have been added after a PrepareCommit that timed out, and a second one may have named them.
    """
    if not (_is_v2(a) and _is_v2(b)) or State.EMPTY in (a.state, b.state):
        return False
    if a.state is State.PREPARE_COMMIT:
        return (o.topic, o.partition) in a.partitions
    if a.state is State.ONGOING and b.state in _PREPARED:
        return b.producer_epoch - a.producer_epoch == 1
    return True


# --- decisions --------------------------------------------------------------------------------------------------------


def decisions(logged: Iterable[LoggedTransaction]) -> list[Decision]:
    """Every decision, with the epoch of the data that it is about.

    A commit by a client of transactions v2 raised the epoch by one, and any other commit did not. An abort may be
    either, so its epoch is that of the record before it, where it follows from that. A decision that was written twice,
    because its acknowledgement was lost, is returned once; two that differ are both returned.
    """
    found: list[Decision] = []
    before: LoggedTransaction | None = None
    for record in logged:
        if record.state in _PREPARED:
            decision = Decision(record, _data_epoch(before, record))
            if not found or not _alike(found[-1], decision):
                found.append(decision)
        else:
            before = record
    return found


def _commit_without_partitions(logged: Sequence[LoggedTransaction], o: Observation) -> LoggedTransaction | None:
    """A completed commit at the epoch of the open data whose decision, with its partitions, is missing; or None.

    Under v1 an epoch may have many commits. There one counts only where the transaction in the record before it had
    this partition.
    """
    before: dict[str, LoggedTransaction] = {}
    for record in logged:
        previous = before.get(record.transactional_id)
        before[record.transactional_id] = record
        if record.state is not State.COMPLETE_COMMIT or not _ends_epoch(previous, record, o):
            continue
        if previous is not None and whole(previous, record, o):
            continue
        if _is_v2(record) or (previous is not None and (o.topic, o.partition) in previous.partitions):
            return record
    return None


def _later_commit(logged: Sequence[LoggedTransaction], o: Observation) -> LoggedTransaction | None:
    """A commit of this producer id at a later epoch that had the partition, or may have had it; or None."""
    not_understood = any(record.unknown_fields for record in logged)
    for record in logged:
        if record.producer_id != o.producer_id or record.producer_epoch <= o.producer_epoch:
            continue
        named = record.state is State.PREPARE_COMMIT and (o.topic, o.partition) in record.partitions
        if named or (not_understood and record.state is State.COMPLETE_COMMIT):
            return record
    return None


def _ends_epoch(before: LoggedTransaction | None, record: LoggedTransaction, o: Observation) -> bool:
    """Whether a completed commit is, or may be, of a transaction at the epoch of the open data."""
    if record.producer_id == o.producer_id:
        return record.producer_epoch - _is_v2(record) == o.producer_epoch
    ours = before is not None and before.producer_id == o.producer_id
    return ours and _is_v2(record) and record.producer_epoch == 0


def _data_epoch(before: LoggedTransaction | None, record: LoggedTransaction) -> int | None:
    if record.state is State.PREPARE_COMMIT:
        return record.producer_epoch - _is_v2(record)
    if before is not None and follows(before, record):
        return before.producer_epoch
    return None


def _alike(one: Decision, two: Decision) -> bool:
    """Whether these are one decision, written twice: a repetition has the same start time, too."""
    a, b = one.record, two.record
    return (one.epoch, a.transactional_id, a.state, a.producer_epoch, a.partitions, a.start_time_ms) == (
        two.epoch,
        b.transactional_id,
        b.state,
        b.producer_epoch,
        b.partitions,
        b.start_time_ms,
    )


def is_of_this_data(commit: Decision, ends: Sequence[Decision], evidence: OutcomeEvidence) -> bool:
    """Whether this commit, which names the partition, must be the commit of the open data, all `ends` being known."""
    o = evidence.observation
    if commit.raised:
        # Transactions v2: the one transaction of its epoch. Had the partition its marker, it would refuse this data.
        return len(ends) == 1
    alone = not any(decision.names(o) for decision in ends if decision is not commit)
    # A partition forgets an idle producer and its markers, but what is written after that does not begin at 0 again.
    return alone and o.coordinator_epoch == _NO_MARKER_YET and evidence.first_sequence == 0


def _nothing_committed(name: str, ends: Sequence[Decision], o: Observation) -> str:
    if any(decision.names(o) for decision in ends):
        return f"'{name}' aborted its transaction of epoch {o.producer_epoch} on this partition"
    if any(decision.committed for decision in ends):
        return f"'{name}' committed at epoch {o.producer_epoch}, but never with this partition"
    return f"'{name}' never committed anything at epoch {o.producer_epoch}"


def siblings(logged: Sequence[LoggedTransaction], o: Observation) -> Siblings | None:
    """The other partitions that may show how the transaction ended: a COMMIT marker there is evidence of a commit."""
    ended = [decision.record for decision in decisions(logged) if decision.may_concern(o)]
    begun = [r for r in logged if (r.state, r.producer_id, r.producer_epoch) == (State.ONGOING, *_identity(o))]
    keys = {key for record in (*begun, *ended) for key in record.partitions} - {(o.topic, o.partition)}
    if not keys:
        return None
    raised = all(_is_v2(record) for record in (*begun, *ended))
    epoch = o.producer_epoch
    return Siblings(
        partitions=tuple(f"{topic}-{partition}" for topic, partition in sorted(keys)),
        marker_epochs=(epoch + 1,) if raised else (epoch, epoch + 1),
        since_ms=min(record.start_time_ms for record in (*begun, *ended)),
    )


def _identity(o: Observation) -> tuple[int, int]:
    return (o.producer_id, o.producer_epoch)


def _in_words(logged: Sequence[LoggedTransaction], o: Observation) -> tuple[str, ...]:
    """The records that an outcome rests on, in words: the chain, or all where there is none; the last ones of many."""
    return tuple(map(str, (chain_of(logged, o) or logged)[-_EVIDENCE_MAX:]))


# --- what is known for ever -------------------------------------------------------------------------------------------

_C, _M, _N, _U = Outcome.COMMITTED, Outcome.MAYBE_COMMITTED, Outcome.NOT_COMMITTED, Outcome.UNKNOWN
# What two proofs of one transaction's outcome make together, the earlier one first. Two that contradict each other
# prove nothing, but that a commit may be of this data.
TOGETHER: Mapping[tuple[Outcome, Outcome], Outcome] = {
    (_C, _C): _C,
    (_C, _M): _C,
    (_C, _N): _M,
    (_C, _U): _C,
    (_M, _C): _C,
    (_M, _M): _M,
    (_M, _N): _M,
    (_M, _U): _M,
    (_N, _C): _M,
    (_N, _M): _M,
    (_N, _N): _N,
    (_N, _U): _N,
    (_U, _C): _C,
    (_U, _M): _M,
    (_U, _N): _N,
    (_U, _U): _U,
}


def best_known(earlier: KnownOutcome | None, found: KnownOutcome) -> KnownOutcome:
    """What is known of a transaction, given what was known of it earlier. A commit that was seen is never forgotten."""
    if earlier is None:
        return found
    if None not in (earlier.producer_epoch, found.producer_epoch) and earlier.producer_epoch != found.producer_epoch:
        return _since_another_epoch(earlier, found)
    together = TOGETHER[earlier.outcome, found.outcome]
    if together is found.outcome:
        why, evidence = found.why, found.evidence
    elif together is earlier.outcome:
        why, evidence = earlier.why, earlier.evidence
    else:
        why = f"two reads of the transaction log contradict each other: {earlier.why}; {found.why}"
        evidence = (*earlier.evidence, *found.evidence)
    return KnownOutcome(
        outcome=together,
        why=why,
        settled=earlier.settled or found.settled,
        log_error=found.log_error,
        siblings=earlier.siblings or found.siblings,
        owner_committed=earlier.owner_committed or found.owner_committed,
        evidence=evidence,
        producer_epoch=earlier.producer_epoch if found.producer_epoch is None else found.producer_epoch,
    )


def _since_another_epoch(earlier: KnownOutcome, found: KnownOutcome) -> KnownOutcome:
    """What is known where the partition showed another epoch before: late records have joined those that the earlier
    outcome was about, or have taken their place. Before or among them, a COMMIT would make visible what was aborted,
    and an ABORT delete what was committed. So of what was known only a commit counts, and only against an ABORT.
    """
    if earlier.outcome in (Outcome.COMMITTED, Outcome.MAYBE_COMMITTED) and found.outcome is not Outcome.COMMITTED:
        outcome, why = Outcome.MAYBE_COMMITTED, f"{earlier.why}, but {found.why}"
    else:
        outcome, why = found.outcome, found.why
    return replace(
        found,
        outcome=outcome,
        why=why,
        siblings=_of_both(earlier.siblings, found.siblings),
        owner_committed=earlier.owner_committed or found.owner_committed,
        evidence=(*earlier.evidence, *found.evidence),
    )


def _of_both(one: Siblings | None, other: Siblings | None) -> Siblings | None:
    if one is None or other is None:
        return one or other
    return Siblings(
        partitions=tuple(sorted({*one.partitions, *other.partitions})),
        marker_epochs=tuple(sorted({*one.marker_epochs, *other.marker_epochs})),
        since_ms=min(one.since_ms, other.since_ms),
    )


def with_outcome(judged: Judged, known: KnownOutcome | None) -> Judged:
    """The hanging transaction with what is known of its outcome."""
    if known is None:
        return judged
    committed = known.owner_committed or judged.judgement.reason is Reason.MAYBE_COMMITTED
    judgement = replace(judged.judgement, outcome=known.outcome.value, outcome_reason=known.why)
    return replace(judged, judgement=judgement, known=replace(known, owner_committed=committed))
