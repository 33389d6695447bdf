"""The outcome of hanging data: committed, not committed, mixed, or not known. A pure function of facts.

Theory
======
A hanging transaction needs a marker that no coordinator will send. The right marker depends on the coordinator's
decision. The decision is in `__transaction_state`: a PrepareCommit or PrepareAbort record that lists all partitions of
the transaction.

**An outcome is sound for every subset of true facts, in any order of arrival.** Facts come from reads of the log, in
this sweep and in earlier sweeps (`lineage.py`), and from reads of partitions. No conclusion follows from a missing
fact. So a decision is proven only by a chain of records without gaps (`transitions.py`).

**The open data may have several epochs.** A partition without a leader can miss the marker of a transaction, and also
the marker of the next transaction. Then all data from the first record on waits for a single marker. The outcome is
computed for each epoch from that of the first record to that of the partition. If all are committed, the outcome is
`committed`. If all are not committed, it is `not_committed`. If some are committed and some are not, no marker is
right, and it is `mixed`.

**A commit is proven** under transactions v2 by the only decision of its epoch. Under v1 an epoch has many transactions,
and a partition may have data that was never added to a transaction. So under v1 a commit is proven only if
- the epoch is over;
- it is the only transaction of that epoch with this partition;
- the partition never had a marker of this producer id;
- the open data has no later epoch, because the partition shows only the date of its last record.

Under both versions, a record that is dated after the commit does not belong to it. The date comes from a client's
clock, so it can veto a commit but never prove it.

**The absence of a commit is proven** (`not_committed`) if the chain shows the whole epoch, no commit in it lists
the partition, and the log lost no records there: the whole chain was written at one leader epoch (`elections.py`). If
the log may have lost a commit at an election, the outcome is `unknown`, and the reason names the election. Exception: a
commit of v2 need not list it. A leader adds a partition to a v2 transaction only if no transaction of that epoch is
open there. If the epoch may also have a v1 transaction, that transaction may still be open there, and then the v2
commit may include this data.

**All other evidence of a commit is a veto.** A commit that may include this data forbids an abort (`maybe_committed`):
- a PrepareCommit without its completion;
- a CompleteCommit whose partitions are missing from the log;
- a commit record of another lineage;
- a COMMIT marker on another partition;
- a commit of v2 at an epoch that also has v1 transactions;
- a closed producer on another partition that only a lost decision explains (`signs_of_loss.py`);
- a commit at a later epoch, if the log has fields that this version does not know (KIP-939 may raise an epoch by 2 or
  more).

Under v2, a CompleteAbort of the same transaction in a chain without gaps lifts the veto of a PrepareCommit.

Three cases are not covered:
- an InitProducerId that first used up a producer id, and is repeated after v1 transactions;
- an id that expired while a replica was away for longer than tombstones are kept;
- under v1, a client that writes more records to a partition that missed its commit, without adding the partition, and
  not dated later than the commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from txnscan.kafka.answers import PREPARED, State
from txnscan.kafka.units import plural
from txnscan.reads.observation import Observation
from txnscan.txnlog.elections import election_of
from txnscan.txnlog.facts import LoggedTransaction, SeenCommit, SeenMarker
from txnscan.txnlog.signs_of_loss import sign_of_loss
from txnscan.txnlog.transitions import ENDS, chain_of, first_doubt, follows, is_over, is_v2, whole
from txnscan.verdict.evidence import Judged, KnownOutcome, Outcome, OutcomeEvidence, PeerPartitions, Unproven

_NO_MARKER_YET = -1
# Clocks that are synchronised by NTP differ by less.
CLOCK_SLACK_MS = 5_000
# If the open data may have more epochs than this, they are not examined one by one.
_EPOCHS_MAX = 64
# The number of records that an outcome keeps as evidence, for people to read.
_EVIDENCE_MAX = 50
_CERTAIN = (Outcome.COMMITTED, Outcome.NOT_COMMITTED, Outcome.MIXED)
_C, _M, _N, _U = Outcome.COMMITTED, Outcome.MAYBE_COMMITTED, Outcome.NOT_COMMITTED, Outcome.UNKNOWN


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision in the log. epoch: the epoch of the transaction's data, None if it is not known."""

    record: LoggedTransaction
    epoch: int | None

    @property
    def committed(self) -> bool:
        return self.record.state is State.PREPARE_COMMIT

    @property
    def raised(self) -> bool:
        """Whether the decision raised the epoch."""
        return self.epoch is not None and self.epoch < self.record.producer_epoch

    def names(self, o: Observation) -> bool:
        """Whether the transaction lists this partition."""
        return o.key in self.record.partitions

    def may_concern(self, o: Observation) -> bool:
        """Whether the decision is, or may be, about data of this producer id and epoch."""
        if self.record.producer_id != o.producer_id:
            return False
        if self.epoch is None:
            raised = self.record.producer_epoch - o.producer_epoch
            return raised == 1 or (raised == 0 and not is_v2(self.record))
        return self.epoch == o.producer_epoch


@dataclass(frozen=True, slots=True)
class _Found:
    """The outcome of the data of one epoch. why: the reason, as a clause. unproven: see KnownOutcome."""

    epoch: int
    outcome: Outcome
    why: str
    unproven: Unproven | None = None


def outcome(evidence: OutcomeEvidence) -> KnownOutcome:
    """The outcome of the open transaction. The same evidence always gives the same outcome."""
    o, epochs = evidence.observation, _epochs(evidence)
    each = [_at_epoch(evidence, epoch) for epoch in epochs or _seen_epochs(evidence)]
    found = _together(each) if epochs else _of_unknown_epochs(evidence, each)
    if found.outcome is _U:
        found = _unless_seen(evidence.seen.commits, evidence, found, epochs)
    if found.outcome in (_U, _N):
        # The log of this history says nothing about a commit of an earlier one.
        found = _unless_seen(evidence.seen.commits_before, evidence, found, epochs)
    at_each = [replace(o, producer_epoch=epoch) for epoch in epochs or _open_at(each, o.producer_epoch)]
    shown = list(dict.fromkeys(one for at in at_each for one in _shown(evidence.logged, at)))
    return KnownOutcome(
        found.outcome,
        f"{found.why}{_stored_alone(shown) if found.outcome in _CERTAIN else ''}",
        log_failure=evidence.log_failure,
        peers=_of_all([peer_partitions(evidence.logged, at) for at in at_each]),
        evidence=tuple(map(str, shown)),
        unproven=found.unproven,
    )


def joined_commit(evidence: OutcomeEvidence) -> KnownOutcome | None:
    """The proven commit of the first records of the open data, if a live transaction has joined them; None without such
    a proof. owner_epoch of the evidence: the epoch of the live transaction.
    """
    first, owner_epoch = next(iter(_epochs(evidence)), None), evidence.owner_epoch
    if first is None or owner_epoch is None or first >= owner_epoch:
        return None
    found, at = _at_epoch(evidence, first), replace(evidence.observation, producer_epoch=first)
    if found.outcome is not _C:
        return None
    shown = tuple(_shown(evidence.logged, at))
    return KnownOutcome(_C, f"{found.why}{_stored_alone(shown)}", evidence=tuple(map(str, shown)))


def may_join_commit(evidence: OutcomeEvidence) -> str | None:
    """Why the abort of a live transaction may delete records that an earlier transaction committed, as a clause; None
    if it deletes none, as far as epochs show. Under transactions v1, the earlier transaction may be of the same epoch.
    """
    first, owner_epoch = evidence.first_epoch, evidence.owner_epoch
    if first is None or owner_epoch is None:
        return str(evidence.batch_failure or "its coordinator was not observed")
    if owner_epoch - first > _EPOCHS_MAX:
        return f"its partition has data of epoch {first}"
    each = (_at_epoch(evidence, epoch) for epoch in range(first, owner_epoch))
    return next((found.why for found in each if found.outcome is not _N), None)


def _epochs(evidence: OutcomeEvidence) -> Sequence[int]:
    """All epochs that the open data may have. Empty if the first epoch is not known, or if there are too many."""
    first, last = evidence.first_epoch, evidence.observation.producer_epoch
    return range(first, last + 1) if first is not None and last - first < _EPOCHS_MAX else ()


def _seen_epochs(evidence: OutcomeEvidence) -> Iterator[int]:
    """The epochs, up to that of the partition, that appear in the log or in a marker on another partition."""
    last = evidence.observation.producer_epoch
    ends: tuple[LoggedTransaction | SeenMarker, ...] = (*evidence.logged, *evidence.vetoes, *evidence.seen.markers)
    seen = {epoch for end in ends for epoch in _may_be_of(end)}
    return (epoch for epoch in sorted({*seen, last}) if 0 <= epoch <= last)


def _open_at(each: Iterable[_Found], last: int) -> Sequence[int]:
    """The epochs that may have open data, if the first epoch is not known: the last epoch, and all others except those
    with the outcome `not_committed`.
    """
    return [found.epoch for found in each if found.outcome is not _N or found.epoch == last]


def _may_be_of(end: LoggedTransaction | SeenCommit | SeenMarker) -> tuple[int, int]:
    """The possible epochs of a transaction's data, given its end. The end may have raised the epoch by 1."""
    return (end.producer_epoch - 1, end.producer_epoch)


def _of_unknown_epochs(evidence: OutcomeEvidence, each: Sequence[_Found]) -> _Found:
    """The outcome if the epochs of the open data are not known. Any earlier epoch may have open data."""
    last = evidence.observation.producer_epoch
    if evidence.first_epoch is None:
        doubt = f"the first record of the transaction could not be read: {evidence.batch_failure}"
    else:
        doubt = f"the open transaction has records of epochs {evidence.first_epoch} to {last}"
    commit = next((found for found in each if found.outcome in (_C, _M)), None)
    return _Found(last, _U, doubt) if commit is None else _Found(last, _M, f"{commit.why}, and {doubt}")


def _together(each: Sequence[_Found]) -> _Found:
    """The outcome of all epochs together. The first and the last epoch have open data; the others may have."""
    first, *_, last = (*each, each[-1])
    outcomes = {found.outcome for found in each}
    if len(outcomes) == 1:
        return last
    several = f"the open transaction has records of epochs {first.epoch} to {last.epoch}"
    commit = next((found for found in each if found.outcome is _C), None)
    other = next(found for found in each if found.outcome is not _C)
    if {first.outcome, last.outcome} == {_C, _N}:
        return _Found(last.epoch, Outcome.MIXED, f"{several}: {first.why}; {last.why}")
    if commit is not None:
        return _Found(last.epoch, _M, f"{several}: {commit.why}; {other.why}")
    worst = next((found for found in each if found.outcome is _M), None) or next(f for f in each if f.outcome is _U)
    return replace(worst, why=f"{several}: {worst.why}")


def _at_epoch(evidence: OutcomeEvidence, epoch: int) -> _Found:
    """The outcome of the data of one epoch."""
    o, logged = replace(evidence.observation, producer_epoch=epoch), evidence.logged
    names = sorted({record.transactional_id for record in logged})
    doubt = _doubt(evidence, names, o)
    ends = [decision for decision in decisions(logged) if decision.may_concern(o)]
    commits = [decision for decision in ends if decision.committed and decision.names(o)]
    if commits:
        commit, *_ = commits
        name = commit.record.transactional_id
        but = doubt or _not_of_this_data(commit, ends, evidence, o) or _contrary(evidence, o)
        if but is None:
            why = f"'{name}' committed its transaction of epoch {commit.epoch} with this partition"
            return _Found(epoch, _C, f"{why}, which lacks its marker")
        return _Found(epoch, _M, f"'{name}' committed at epoch {commit.epoch} with this partition, but {but}")
    veto = _not_added(ends, logged, o, doubt) or _veto(
        evidence, _aborted(logged, o) if doubt is None else None, o, doubt
    )
    if veto is not None:
        return _Found(epoch, _M, veto)
    if doubt is None and evidence.owner_epoch == epoch:
        doubt = f"'{names[0]}' is still at epoch {epoch}, and may still commit"
    if doubt is None and not is_over(logged, o):
        doubt = f"the transaction log of '{names[0]}' does not show that epoch {epoch} is over"
    if doubt is not None:
        return _Found(epoch, _U, doubt)
    nothing = _nothing_committed(names[0], ends, o)
    sign = sign_of_loss(logged, o, evidence.seen.closed, evidence.seen.sent)
    if sign is not None:
        return _Found(epoch, _M, f"{nothing}, but {sign}, and the transaction log lacks that decision")
    election = election_of(logged, o)
    if election is not None:
        lost = f"unless the transaction log lost acknowledged records at {election}"
        return _Found(epoch, _U, f"{nothing}, {lost}", Unproven.ELECTION)
    return _Found(epoch, _N, nothing)


def _doubt(evidence: OutcomeEvidence, names: Sequence[str], o: Observation) -> str | None:
    """Why the log allows no conclusion about this epoch, if it does not."""
    if evidence.log_failure is not None:
        return f"the transaction log could not be read: {evidence.log_failure}"
    if evidence.contradiction is not None:
        return f"the transaction log is contradicted: {evidence.contradiction}"
    if not names:
        return f"the transaction log has no records of producer id {o.producer_id}"
    if len(names) > 1:
        return f"{len(names)} ids in the transaction log have producer id {o.producer_id}"
    chain = chain_of(evidence.logged, o)
    if not chain:
        return f"the transaction log of '{names[0]}' does not reach back to before epoch {o.producer_epoch}"
    strange = next((record for record in chain if record.unknown_fields), None)
    if strange is not None:
        unknown = " and ".join(strange.unknown_fields)
        return f"the record of '{names[0]}' at offset {strange.offset} has {unknown}, which this version does not know"
    broken = first_doubt(chain, o)
    if broken is not None:
        a, b = broken
        if b.contiguous_from <= a.offset:
            return f"the records of '{names[0]}' at offsets {a.offset} and {b.offset} contradict each other"
        return f"the transaction log of '{names[0]}' may lack records between offsets {a.offset} and {b.offset}"
    if chain[-1].state in PREPARED:
        # The append of this decision may have timed out. Then the coordinator may still decide otherwise.
        return f"the transaction log of '{names[0]}' ends with a decision that is not complete"
    return None


# --- decisions --------------------------------------------------------------------------------------------------------


def decisions(logged: Iterable[LoggedTransaction]) -> list[Decision]:
    """All decisions, each with the epoch of the data that it is about.

    A commit by a client of transactions v2 raised the epoch by 1; any other commit did not raise it. An abort may or
    may not have raised it, so its epoch is that of the record before, if it follows from that record. If a decision was
    written twice, because its acknowledgement was lost, it is returned once. Two different decisions are both returned.
    """
    found: list[Decision] = []
    before: LoggedTransaction | None = None
    for record in logged:
        if record.state in PREPARED:
            decision = Decision(record, _data_epoch(before, record))
            if not found or not _alike(found[-1], decision):
                found.append(decision)
        else:
            before = record
    return found


def _data_epoch(before: LoggedTransaction | None, record: LoggedTransaction) -> int | None:
    if record.state is State.PREPARE_COMMIT:
        return record.producer_epoch - is_v2(record)
    if before is not None and follows(before, record):
        return before.producer_epoch
    return None


def _alike(one: Decision, two: Decision) -> bool:
    """Whether both are the same decision, written twice. A repetition also has the same start time."""
    a, b = one.record, two.record
    return (one.epoch, a.transactional_id, a.state, a.producer_epoch, a.partitions, a.start_time_ms) == (
        two.epoch,
        b.transactional_id,
        b.state,
        b.producer_epoch,
        b.partitions,
        b.start_time_ms,
    )


def _not_of_this_data(
    commit: Decision, ends: Sequence[Decision], evidence: OutcomeEvidence, o: Observation
) -> str | None:
    """Why this commit, which lists the partition, may not be that of the open data. ends: all known decisions."""
    dated = _by_date(commit, o, evidence.observation)
    if dated is not None:
        return dated
    if commit.raised:
        # It is the only transaction of its epoch. If the partition had its marker, it would have refused this data.
        return None if len(ends) == 1 else "the log has another decision about that epoch"
    if any(decision.names(o) for decision in ends if decision is not commit):
        return (
            "under transactions v1 the commit may be of other data: another transaction of that epoch has the partition"
        )
    if any(is_v2(decision.record) for decision in ends):
        return (
            "a v2 transaction of that epoch may have written to the partition without listing it, because leaders do "
            "not add a partition with an open transaction"
        )
    if not is_over(evidence.logged, o):
        return "under transactions v1 another transaction of that epoch may still have the partition"
    # A partition forgets an idle producer and its markers. But the next data after that does not begin at sequence 0.
    starts = (evidence.first_epoch, evidence.first_sequence) == (o.producer_epoch, 0)
    if o.coordinator_epoch != _NO_MARKER_YET or not starts:
        return "under transactions v1 the commit may be of other data"
    return None


def _by_date(commit: Decision, o: Observation, last: Observation) -> str | None:
    """Why, by their dates, the open data of this epoch may include records that were written after the commit. The
    partition shows the date of its last record only, so dates at an earlier epoch are not known.
    """
    if o.producer_epoch == last.producer_epoch:
        slack_ms = CLOCK_SLACK_MS if commit.raised else 0
        later = last.last_timestamp_ms > commit.record.updated_ms + slack_ms
        return "the partition has a record with a later date than the commit" if later else None
    # Under v2 no other transaction has that epoch.
    return (
        None if commit.raised else "under transactions v1 records of that epoch may have been written after the commit"
    )


def _contrary(evidence: OutcomeEvidence, o: Observation) -> str | None:
    """A clause about an abort in another lineage that may concern this data, if there is such an abort."""
    for record in evidence.vetoes:
        aborts = record.state in (State.PREPARE_ABORT, State.COMPLETE_ABORT)
        # Kafka 4.0 raises the epoch twice at a fence.
        fenced = is_v2(record) and record.producer_epoch == o.producer_epoch + 2
        of_this = o.producer_epoch in _may_be_of(record) or fenced
        if aborts and record.producer_id == o.producer_id and of_this:
            return f"an earlier read of the transaction log shows an abort at offset {record.offset}"
    return None


def _nothing_committed(name: str, ends: Sequence[Decision], o: Observation) -> str:
    if any(decision.names(o) for decision in ends):
        return f"'{name}' aborted its transaction of epoch {o.producer_epoch} on this partition"
    if any(decision.committed for decision in ends):
        return f"'{name}' committed at epoch {o.producer_epoch}, but never with this partition"
    return f"'{name}' never committed at epoch {o.producer_epoch}"


# --- vetoes -----------------------------------------------------------------------------------------------------------


def _not_added(
    ends: Iterable[Decision], logged: Iterable[LoggedTransaction], o: Observation, doubt: str | None
) -> str | None:
    """A clause about a v2 commit that may include this data although it does not list the partition, if there is any.

    A leader adds a partition to a v2 transaction only if no transaction of that producer id and epoch is open there
    (`UnifiedLog.maybeStartTransactionVerification`). A v1 transaction whose marker was lost may be open there.
    """
    commit = next((one.record for one in ends if one.committed and is_v2(one.record)), None)
    at_epoch = (one for one in logged if (one.producer_id, one.producer_epoch) == (o.producer_id, o.producer_epoch))
    v1 = any(one.state in (State.ONGOING, *ENDS) and not is_v2(one) for one in at_epoch)
    if commit is None or (doubt is None and not v1):
        return None
    why = f"'{commit.transactional_id}' committed at epoch {o.producer_epoch}, perhaps with this partition"
    return f"{why}: a v2 transaction does not add a partition with an open v1 transaction"


def _veto(
    evidence: OutcomeEvidence, aborted: LoggedTransaction | None, o: Observation, doubt: str | None
) -> str | None:
    """A clause about an unproven commit that may include this data, if there is such a commit."""
    logged = evidence.logged
    completed = _commit_without_partitions(logged, o)
    if completed is not None:
        why = f"'{completed.transactional_id}' completed a commit that may be of epoch {o.producer_epoch}"
        return f"{why}, and the transaction log lacks its partitions"
    for record in evidence.vetoes:
        if _may_commit(record, o, logged) and not _is_lifted(record, aborted):
            why = f"'{record.transactional_id}' committed at epoch {record.producer_epoch}"
            return f"{why}, by an earlier read of the transaction log, at offset {record.offset}"
    for marker in evidence.seen.markers:
        other = (marker.topic, marker.partition) != o.key
        if other and o.producer_epoch in _may_be_of(marker):
            return str(marker)
    later = _later_commit((*logged, *evidence.vetoes), o) if doubt is not None else None
    if later is not None:
        why = f"'{later.transactional_id}' committed at the later epoch {later.producer_epoch}"
        return f"{why}, and this data may be part of it, because {doubt}"
    return None


def _unless_seen(
    commits: Iterable[SeenCommit], evidence: OutcomeEvidence, found: _Found, epochs: Collection[int]
) -> _Found:
    """The outcome if the log does not exclude these commits. A coordinator that was seen in CompleteCommit may have
    committed this data. epochs: of the open data, empty if they are not known.
    """
    last = evidence.observation.producer_epoch
    for commit in commits:
        at = _may_be_of(commit)
        if any(epoch in epochs for epoch in at) or (not epochs and min(at) <= last):
            return replace(found, outcome=_M, why=f"{commit}, and {found.why}", unproven=None)
    return found


def _aborted(logged: Sequence[LoggedTransaction], o: Observation) -> LoggedTransaction | None:
    """The record of the final abort of this epoch's transaction, under transactions v2, if there is one. The chain must
    have no gaps: markers are sent only after a decision was acknowledged, so an earlier commit had no markers.
    """
    chain = chain_of(logged, o)
    return next(
        (
            b
            for a, b in pairwise(chain)
            if b.state is State.COMPLETE_ABORT
            and is_v2(b)
            and a.state is State.PREPARE_ABORT
            and (b.producer_id, b.producer_epoch) == (o.producer_id, o.producer_epoch + 1)
        ),
        None,
    )


def _is_lifted(commit: LoggedTransaction, aborted: LoggedTransaction | None) -> bool:
    """Whether the transaction of this PrepareCommit was finally aborted."""
    prepared = commit.state is State.PREPARE_COMMIT
    return prepared and aborted is not None and commit.start_time_ms == aborted.start_time_ms


def _may_commit(record: LoggedTransaction, o: Observation, logged: Sequence[LoggedTransaction]) -> bool:
    """Whether a single record belongs to a commit that may include this data."""
    if record.state is State.PREPARE_COMMIT:
        decision = Decision(record, record.producer_epoch - is_v2(record))
        return decision.may_concern(o) and decision.names(o)
    return record.state is State.COMPLETE_COMMIT and _may_end_epoch(None, record, o, logged)


def _commit_without_partitions(logged: Sequence[LoggedTransaction], o: Observation) -> LoggedTransaction | None:
    """A completed commit that may be of the epoch of the open data, and whose decision the log lacks, if any."""
    before: dict[str, LoggedTransaction] = {}
    for record in logged:
        previous = before.get(record.transactional_id)
        before[record.transactional_id] = record
        if record.state is not State.COMPLETE_COMMIT or not _may_end_epoch(previous, record, o, logged):
            continue
        if previous is None or not whole(previous, record, o):
            return record
    return None


def _may_end_epoch(
    before: LoggedTransaction | None, record: LoggedTransaction, o: Observation, logged: Sequence[LoggedTransaction]
) -> bool:
    """Whether a completed commit belongs, or may belong, to a transaction at the epoch of the open data.

    If `transaction.version` was lowered between a decision and its completion, the epoch was raised, but the completion
    does not show this.
    """
    if record.producer_id == o.producer_id:
        raised = record.producer_epoch - o.producer_epoch
        lowered = raised == 1 and any(map(is_v2, logged))
        return raised == 1 if is_v2(record) else raised == 0 or lowered
    ours = before is not None and before.producer_id == o.producer_id
    return ours and record.producer_epoch == 0


def _later_commit(logged: Sequence[LoggedTransaction], o: Observation) -> LoggedTransaction | None:
    """A commit of this producer id at a later epoch that lists the partition, or may have listed it, if any."""
    not_understood = any(record.unknown_fields for record in logged)
    for record in logged:
        if record.producer_id != o.producer_id or record.producer_epoch <= o.producer_epoch:
            continue
        named = record.state is State.PREPARE_COMMIT and o.key in record.partitions
        if named or (not_understood and record.state is State.COMPLETE_COMMIT):
            return record
    return None


# --- other evidence in the log ----------------------------------------------------------------------------------------


def peer_partitions(logged: Sequence[LoggedTransaction], o: Observation) -> PeerPartitions | None:
    """The other partitions that may show how the transaction ended. A COMMIT marker there is evidence of a commit. The
    result is not sorted.
    """
    ended = [decision.record for decision in decisions(logged) if decision.may_concern(o)]
    ours = (State.ONGOING, o.producer_id, o.producer_epoch)
    begun = [r for r in logged if (r.state, r.producer_id, r.producer_epoch) == ours]
    keys = {key for record in (*begun, *ended) for key in record.partitions} - {o.key}
    if not keys:
        return None
    raised = all(is_v2(record) for record in (*begun, *ended))
    epoch = o.producer_epoch
    return PeerPartitions(
        partitions=tuple(f"{topic}-{partition}" for topic, partition in keys),
        marker_epochs=(epoch + 1,) if raised else (epoch, epoch + 1),
        since_ms=min(record.start_time_ms for record in (*begun, *ended)),
    )


def _of_all(found: Iterable[PeerPartitions | None]) -> PeerPartitions | None:
    each = [one for one in found if one is not None]
    if not each:
        return None
    return PeerPartitions(
        partitions=tuple(sorted({name for one in each for name in one.partitions})),
        marker_epochs=tuple(sorted({epoch for one in each for epoch in one.marker_epochs})),
        since_ms=min(one.since_ms for one in each),
    )


def _shown(logged: Sequence[LoggedTransaction], o: Observation) -> Sequence[LoggedTransaction]:
    """The records that support an outcome: the chain, or all records if there is no chain. Only the last are kept."""
    return (chain_of(logged, o) or logged)[-_EVIDENCE_MAX:]


def _stored_alone(shown: Iterable[LoggedTransaction]) -> str:
    """A clause about the evidence that only the tables still have."""
    stored = [one.stored_by for one in shown if one.stored_by is not None]
    if not stored:
        return ""
    sweeps = " and ".join(sorted(set(stored)))
    return f", by {plural(len(stored), 'record')} that {sweeps} stored and the log no longer has"


def with_outcome(judged: Judged, known: KnownOutcome) -> Judged:
    """The hanging transaction with its known outcome."""
    return replace(judged, known_outcome=known)
