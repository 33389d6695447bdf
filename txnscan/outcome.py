"""What became of the transaction that hanging data belongs to: committed, not committed, or not known. Pure.

Theory
======
A hanging transaction needs a marker that nobody will send, and which one is right depends on what its coordinator has
decided. The decision stands in `__transaction_state`: a PrepareCommit or PrepareAbort with all partitions of the
transaction, and before it the Ongoing record that tells the epoch at which its data was written (the end itself may
raise the epoch: transactions v2 always, a fence always, else never).

That topic is compacted, but in one way only: the cleaner drops a record when a later one of the same id stands in what
it cleans, from the log's start onwards (`Cleaner.cleanSegments`). What is left of an id is therefore always the *end*
of its history, without a gap. So where a record is left from before the epoch in question, every decision at that epoch
is there to be seen, and only then does a decision that is not there prove something.

The data of a hanging transaction was written at one epoch, that of its first batch, or else nothing is said. Under
transactions v2 an epoch has one transaction, and a commit at it that names the partition is the commit of this data.
Under v1 an epoch has many: the data may belong to any of them, or be a late record of one whose marker the partition
has. Then a commit is told only where it is the one transaction of that epoch with this partition, and the partition
never had a marker of this producer id; and that nothing was committed, where no commit of that epoch names it and the
epoch is over. Everything else is unknown, or `maybe_committed` where a commit was seen
that may be of this data: that forbids an abort as much as a commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from txnscan.model import Observation
from txnscan.transaction_log import LoggedTransaction, State

_NO_MARKER_YET = -1
_TRANSACTIONS_V2 = 2
_PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
_COMPLETE = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


class Outcome(StrEnum):
    """What is known of the decision about hanging data. MAYBE_COMMITTED: some commit may be of this data."""

    COMMITTED = "committed"
    MAYBE_COMMITTED = "maybe_committed"
    NOT_COMMITTED = "not_committed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Told:
    """An outcome, and why in a clause."""

    outcome: Outcome
    why: str


@dataclass(frozen=True, slots=True)
class OutcomeEvidence:
    """What was read to learn an outcome.

    owner_epoch: the epoch of the id that has the producer id now, None where none has. first_epoch, first_sequence: the
    producer epoch and base sequence of the transaction's first batch, None where it could not be read, which
    `batch_error` explains. logged: what is left in `__transaction_state` of every id that has ever had the producer
    id, in the order of the log. log_error: why some of it could not be read, or None.
    """

    observation: Observation
    owner_epoch: int | None
    first_epoch: int | None
    first_sequence: int | None
    batch_error: str | None
    logged: tuple[LoggedTransaction, ...]
    log_error: str | None


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision in the log. epoch: at which the data of its transaction was written, None where that is not told."""

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


def outcome(evidence: OutcomeEvidence) -> Told:
    """What became of the transaction that is open. The same evidence always gives the same answer."""
    o, logged = evidence.observation, evidence.logged
    names = sorted({record.transactional_id for record in logged})
    ends = [decision for decision in decisions(logged) if decision.may_concern(o)] if len(names) == 1 else []
    commits = [decision for decision in ends if decision.committed and decision.names(o)]
    doubt = _doubt(evidence, names)
    if commits:
        commit, *_ = commits
        if doubt is None and is_of_this_data(commit, ends, evidence):
            why = f"'{names[0]}' committed its transaction of epoch {commit.epoch} with this partition"
            return Told(Outcome.COMMITTED, f"{why}, which has no marker of it")
        why = f"'{names[0]}' committed at epoch {commit.epoch} with this partition"
        return Told(
            Outcome.MAYBE_COMMITTED, f"{why}, but {doubt or 'under transactions v1 that need not be this data'}"
        )
    if doubt is None and evidence.owner_epoch == o.producer_epoch:
        doubt = f"'{names[0]}' is still at epoch {o.producer_epoch}, and may yet commit"
    if doubt is not None:
        return Told(Outcome.UNKNOWN, doubt)
    return Told(Outcome.NOT_COMMITTED, _nothing_committed(names[0], ends, o))


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
    if not reaches_before(evidence.logged, o):
        return f"the transaction log of '{names[0]}' does not reach back to before epoch {o.producer_epoch}"
    return None


def decisions(logged: Iterable[LoggedTransaction]) -> list[Decision]:
    """Every decision of one id, with the epoch of the data that it is about.

    That is the epoch of the Ongoing record before it. Where that is gone, a commit by a client of transactions v2
    raised the epoch by one and any other commit did not; an abort may be either. A decision that was written twice,
    because its acknowledgement was lost, is one; two that differ are both told.
    """
    found: list[Decision] = []
    epoch: int | None = None
    for record in logged:
        if record.state is State.ONGOING:
            epoch = record.producer_epoch
        elif record.state in _PREPARED:
            decision = Decision(record, epoch if epoch is not None else _epoch_alone(record))
            if not found or not _alike(found[-1], decision):
                found.append(decision)
        else:
            epoch = None
    return found


def _epoch_alone(record: LoggedTransaction) -> int | None:
    if record.state is State.PREPARE_ABORT:
        return None
    return record.producer_epoch - (record.client_version >= _TRANSACTIONS_V2)


def _alike(one: Decision, two: Decision) -> bool:
    """Whether these are one decision. Its time is when it was made, so that a repetition has the same start."""
    a, b = one.record, two.record
    return (one.epoch, a.state, a.producer_epoch, a.partitions, a.start_time_ms) == (
        two.epoch,
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


def reaches_before(logged: Sequence[LoggedTransaction], o: Observation) -> bool:
    """Whether the log holds a record of the id from before its first transaction at the open data's epoch.

    An id never gets a producer id back that it had, and its epochs rise; so what comes first tells. An Empty record at
    a later epoch than 0 does not: Kafka 3 writes it again for an InitProducerId that is repeated after a transaction.
    """
    first = logged[0]
    if first.producer_id != o.producer_id:
        return any(record.producer_id == o.producer_id for record in logged)
    if first.producer_epoch != o.producer_epoch:
        return first.producer_epoch < o.producer_epoch
    raised_to_this = first.state in (*_PREPARED, *_COMPLETE) and first.client_version >= _TRANSACTIONS_V2
    return (first.state is State.EMPTY and first.producer_epoch == 0) or raised_to_this


def _nothing_committed(name: str, ends: Sequence[Decision], o: Observation) -> str:
    if any(decision.names(o) for decision in ends):
        return f"'{name}' aborted its transaction of epoch {o.producer_epoch} on this partition"
    if any(decision.committed for decision in ends):
        return f"'{name}' committed at epoch {o.producer_epoch}, but never with this partition"
    return f"'{name}' never committed anything at epoch {o.producer_epoch}"
