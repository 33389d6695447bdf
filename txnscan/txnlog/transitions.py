"""Chains: records of one transactional id, of which each follows from the one before. Pure.

**What is left of a log has holes.** The topic is compacted, by each replica for itself. A replica that was down while
the leader compacted keeps what it had, never gets what was dropped meanwhile, fetches what came after, and may lead
again: then a PrepareCommit is missing in the middle. The cleaner may also drop records between two pieces of one read.
So the records of an id prove something only as a chain that is whole (`whole`): each follows from the one before by a
transition that a coordinator makes (`follows`), and between the two either no offset of the log is missing, or a record
that is missing would show. It would show under transactions v2, where each end raises the epoch. Under v1 any number of
transactions fit between two records of one epoch.

**A client may change between v1 and v2** within an epoch, when `transaction.version` is raised or lowered. So a gap
before the first record of a transaction of v2 may hide one of v1. It does not matter where the transaction of v2 has
the partition: its leader adds a partition only if no transaction of that producer id and epoch is open there
(`UnifiedLog.maybeStartTransactionVerification`). All that is open there was written later.

**A record need not count.** An append that times out stands in the log though its coordinator goes on from the state
before: a PrepareCommit may be followed by a PrepareAbort of the same transaction, an InitProducerId's Empty by a
transaction of the epoch before. Whether a record counts shows in what is built on it. CompleteCommit and CompleteAbort
are written only after their decision was acknowledged and its markers were sent. Any other record counts where it is
the id's last one, or where another than a repetition of it follows from it, with no offset missing between them.

A chain begins at a record from before the epoch in question (`_first_before`) and ends where that epoch is over
(`is_over`). Such a chain shows every decision at the epoch, and only there the absence of a decision proves something.
Where the chain ends before the epoch is over, a commit may still come.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from txnscan.kafka.answers import AT_REST, COMPLETE, PREPARED, State
from txnscan.reads.observation import Observation
from txnscan.txnlog.facts import LoggedTransaction

_TRANSACTIONS_V2 = 2
# From this epoch on a producer id is used up (`TransactionMetadata.isEpochExhausted`).
_LAST_EPOCH = 32_766
_ENDS = (*PREPARED, *COMPLETE)
_COMPLETED_AS = dict(zip(PREPARED, COMPLETE, strict=True))


def chain_of(logged: Sequence[LoggedTransaction], o: Observation) -> Sequence[LoggedTransaction]:
    """The records of an id from before the epoch of the open data until that epoch is over, or else to the last one.

    It ends at a record past the epoch that is seen to count, with one record more where only that shows it. Empty where
    the log does not reach back to before the epoch.
    """
    first = _first_before(logged, o)
    if first is None:
        return ()
    for at in range(first + 1, len(logged)):
        if _is_past(logged[at], o) and logged[at].state not in PREPARED:
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


def is_over(logged: Sequence[LoggedTransaction], o: Observation) -> bool:
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
    return record.state in COMPLETE and is_v2(record)


def is_v2(record: LoggedTransaction) -> bool:
    """Whether an end raised the epoch: that of a client of transactions v2, or of a broker that supports it, at a
    fence.
    """
    return record.client_version >= _TRANSACTIONS_V2


def first_doubt(
    chain: Sequence[LoggedTransaction], o: Observation
) -> tuple[LoggedTransaction, LoggedTransaction] | None:
    """The first two records of a chain between which something that matters may be missing; None if it is whole."""
    for a, b in pairwise(chain):
        if not whole(a, b, o) or (_may_hide_v1(a, b, o) and not _is_added(chain, b, o)):
            return a, b
    return None


def _may_hide_v1(a: LoggedTransaction, b: LoggedTransaction, o: Observation) -> bool:
    """Whether a transaction of v1 at the epoch of the open data fits between these two."""
    same = (a.producer_id, a.producer_epoch) == (o.producer_id, o.producer_epoch)
    return same and a.state in COMPLETE and b.state is not a.state and b.contiguous_from > a.offset


def _is_added(chain: Sequence[LoggedTransaction], begun: LoggedTransaction, o: Observation) -> bool:
    """Whether the transaction that begins with this record of v2 has the partition. A client speaks one version from
    the beginning of a transaction to its end.
    """
    same = (record for record in chain if record.start_time_ms == begun.start_time_ms)
    return begun.state is State.ONGOING and any((o.topic, o.partition) in record.partitions for record in same)


def whole(a: LoggedTransaction, b: LoggedTransaction, o: Observation) -> bool:
    """Whether b follows from a, and no transaction of v2 that matters to the open data is missing between them."""
    return follows(a, b) and (b.contiguous_from <= a.offset or _would_show(a, b, o))


def follows(a: LoggedTransaction, b: LoggedTransaction) -> bool:
    """Whether a coordinator that has written a may write b next (`TransactionMetadata.prepareTransitionTo`)."""
    if b.state is State.DEAD:
        return a.state in (*AT_REST, State.DEAD)
    if a.producer_id != b.producer_id:
        return _changes_producer_id(a, b)
    raised = b.producer_epoch - a.producer_epoch
    if a.state in AT_REST and b.state not in COMPLETE:
        # A client of v2 may abort before anything was added.
        aborts_nothing = b.state is State.PREPARE_ABORT and raised == 1 and is_v2(b) and not b.partitions
        begins = b.state is State.ONGOING and raised == 0
        return aborts_nothing or begins or (b.state is State.EMPTY and raised in (0, 1))
    if a.start_time_ms != b.start_time_ms:
        return False
    if a.state is State.ONGOING and b.state in PREPARED:
        # Partitions are added by Ongoing records alone, of which one may be missing.
        hole = b.contiguous_from > a.offset
        same = a.partitions <= b.partitions if hole else a.partitions == b.partitions
        return raised in _raised_by(b) and same
    if a.state is State.ONGOING:
        return b.state is State.ONGOING and raised == 0 and a.partitions <= b.partitions
    written_twice = a.state in _ENDS and a.state is b.state and a.partitions == b.partitions
    return raised == 0 and (written_twice or b.state is _COMPLETED_AS.get(a.state))


def completes(decision: LoggedTransaction, record: LoggedTransaction) -> bool:
    """Whether a record is the completion of a decision, whatever producer id and epoch the id has from then on."""
    return record.state is _COMPLETED_AS[decision.state] and record.start_time_ms == decision.start_time_ms


def _raised_by(decision: LoggedTransaction) -> Sequence[int]:
    """By how much a decision may raise the epoch of the data that it is about."""
    if decision.state is State.PREPARE_COMMIT:
        return (1,) if is_v2(decision) else (0,)
    # A fence raises it under v1 too, and by brokers of 4.0 twice.
    return (1, 2) if is_v2(decision) else (0, 1)


def _changes_producer_id(a: LoggedTransaction, b: LoggedTransaction) -> bool:
    """Whether the id gets its next producer id here: the epochs of the last one are used up, or the id had expired."""
    if b.producer_epoch != 0:
        return False
    if a.state is State.DEAD:
        return b.state is State.EMPTY
    if a.state in PREPARED:
        # The end of a transaction of the last epoch has raised it once more.
        used_up = is_v2(a) and a.producer_epoch > _LAST_EPOCH
        return used_up and b.state is _COMPLETED_AS[a.state] and a.start_time_ms == b.start_time_ms
    return a.state in AT_REST and b.state is State.EMPTY and a.producer_epoch >= _LAST_EPOCH


def _would_show(a: LoggedTransaction, b: LoggedTransaction, o: Observation) -> bool:
    """Whether a transaction that is missing between these two would show as a jump of epochs, as under v2.

    Between a PrepareCommit and its completion it would not, unless the PrepareCommit names this partition: partitions
    may have been added after a PrepareCommit that timed out, and a second one may have named them.
    """
    if not (is_v2(a) and is_v2(b)) or State.EMPTY in (a.state, b.state):
        return False
    if a.state is State.PREPARE_COMMIT:
        return (o.topic, o.partition) in a.partitions
    if a.state is State.ONGOING and b.state in PREPARED:
        return b.producer_epoch - a.producer_epoch == 1
    return True
