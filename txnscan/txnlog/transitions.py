"""Chains: sequences of records of one transactional id in which each record follows from the one before. Pure.

**A log has gaps.** Each replica compacts the topic by itself. A replica may be down while the leader compacts. It keeps
its old records, never gets the records that the leader dropped meanwhile, then fetches the records that came after, and
may lead again. Then a PrepareCommit is missing in the middle of its log. The cleaner may also drop records while a scan
reads the log in pieces. So the records of an id prove something only as a chain without gaps (`whole`):
- each record follows from the one before by a transition that a coordinator makes (`follows`);
- between the two, either no offset of the log is missing, or a missing record would show.

A missing record would show under transactions v2, where each end raises the epoch. Under v1 any number of transactions
may be missing between two records of the same epoch.

**A client may change between v1 and v2** within an epoch, when `transaction.version` is raised or lowered. So a gap
before the first record of a v2 transaction may hide a v1 transaction. This does not matter if the v2 transaction has
the partition. Its leader adds a partition only if no transaction of that producer id and epoch is open there
(`UnifiedLog.maybeStartTransactionVerification`), so all open data there was written later.

**A record need not count.** If an append times out, its record may stand in the log although the coordinator continues
from the state before. Such a record does not count. So a PrepareCommit may be followed by a PrepareAbort of the same
transaction, and the Empty of an InitProducerId by a transaction of the epoch before. Later records show whether a
record counts. CompleteCommit and CompleteAbort are written only after their decision was acknowledged and its markers
were sent. Any other record counts if it is the id's last record, or if a record that is not its repetition follows from
it with no offset missing between.

A chain begins at a record from before the epoch in question (`_first_before`) and ends when that epoch is over
(`is_over`). Such a chain shows all decisions at the epoch, and only in such a chain the absence of a decision is proof.
If the chain ends before the epoch is over, a commit may still come.
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
ENDS = (*PREPARED, *COMPLETE)
_COMPLETED_AS = dict(zip(PREPARED, COMPLETE, strict=True))


def chain_of(logged: Sequence[LoggedTransaction], o: Observation) -> Sequence[LoggedTransaction]:
    """The chain of an id: its records from before the epoch of the open data until that epoch is over, or to the last.

    The chain ends at a record past the epoch that is known to count. If only a later record shows that it counts, the
    chain includes that record. Empty if the log does not reach back to before the epoch.
    """
    first = _first_before(logged, o)
    if first is None:
        return ()
    for at in range(first + 1, len(logged)):
        if is_past(logged[at], o) and logged[at].state not in PREPARED:
            return logged[first : _counted_at(logged, at) + 1]
    return logged[first:]


def _counted_at(logged: Sequence[LoggedTransaction], at: int) -> int:
    """The position at which this record is known to count: its own, or that of the next record that differs from it."""
    if ends_and_raises(logged[at]):
        return at
    later = range(at + 1, len(logged))
    return next((n for n in later if not same_state(logged[n], logged[at])), len(logged) - 1)


def same_state(a: LoggedTransaction, b: LoggedTransaction) -> bool:
    """Whether one may be the other, written again."""
    return (a.state, a.producer_id, a.producer_epoch) == (b.state, b.producer_id, b.producer_epoch)


def is_over(logged: Sequence[LoggedTransaction], o: Observation) -> bool:
    """Whether the chain reaches the end of the open data's epoch."""
    return any(is_past(record, o) for record in chain_of(logged, o)[1:])


def _first_before(logged: Sequence[LoggedTransaction], o: Observation) -> int | None:
    """The position at which a chain begins: the last record from before the first transaction at the open data's epoch.

    An id never gets an earlier producer id again, and its epochs only rise. A Complete* that raised the epoch belongs
    to the epoch before. An Empty record at epoch 0 begins a producer id. At a later epoch an Empty record alone proves
    no beginning: Kafka 3 writes it again if an InitProducerId is repeated after a transaction.
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
    return ends_and_raises(record)


def is_past(record: LoggedTransaction, o: Observation) -> bool:
    """Whether the epoch of the open data is over at this record of a chain, if the record counts."""
    return record.producer_id != o.producer_id or record.producer_epoch > o.producer_epoch


def ends_and_raises(record: LoggedTransaction) -> bool:
    """Whether the record is a completed end that raised the epoch. Such a record counts, whatever comes after it."""
    return record.state in COMPLETE and is_v2(record)


def is_v2(record: LoggedTransaction) -> bool:
    """Whether an end raised the epoch. This is so if the client uses transactions v2, or if a broker that supports v2
    fences the producer.
    """
    return record.client_version >= _TRANSACTIONS_V2


def first_doubt(
    chain: Sequence[LoggedTransaction], o: Observation
) -> tuple[LoggedTransaction, LoggedTransaction] | None:
    """The first two records of a chain between which a relevant record may be missing, if there are any."""
    for a, b in pairwise(chain):
        if not whole(a, b, o) or (_may_hide_v1(a, b, o) and not _is_added(chain, b, o)):
            return a, b
    return None


def _may_hide_v1(a: LoggedTransaction, b: LoggedTransaction, o: Observation) -> bool:
    """Whether a v1 transaction at the epoch of the open data may be missing between these two records."""
    same = (a.producer_id, a.producer_epoch) == (o.producer_id, o.producer_epoch)
    return same and a.state in COMPLETE and b.state is not a.state and b.contiguous_from > a.offset


def _is_added(chain: Sequence[LoggedTransaction], begun: LoggedTransaction, o: Observation) -> bool:
    """Whether the v2 transaction that begins with this record has the partition. A client uses the same transactions
    version from the beginning of a transaction to its end.
    """
    same = (record for record in chain if record.start_time_ms == begun.start_time_ms)
    return begun.state is State.ONGOING and any(o.key in record.partitions for record in same)


def whole(a: LoggedTransaction, b: LoggedTransaction, o: Observation) -> bool:
    """Whether b follows from a, and no v2 transaction that matters to the open data is missing between them."""
    return follows(a, b) and (b.contiguous_from <= a.offset or _would_show(a, b, o))


def follows(a: LoggedTransaction, b: LoggedTransaction) -> bool:
    """Whether a coordinator that has written a may write b next (`TransactionMetadata.prepareTransitionTo`)."""
    if b.state is State.DEAD:
        return a.state in (*AT_REST, State.DEAD)
    if a.producer_id != b.producer_id:
        return _changes_producer_id(a, b)
    raised = b.producer_epoch - a.producer_epoch
    if a.state in AT_REST and b.state not in COMPLETE:
        # A v2 client may abort before any partition was added.
        aborts_nothing = b.state is State.PREPARE_ABORT and raised == 1 and is_v2(b) and not b.partitions
        begins = b.state is State.ONGOING and raised == 0
        return aborts_nothing or begins or (b.state is State.EMPTY and raised in (0, 1))
    if a.start_time_ms != b.start_time_ms:
        return False
    if a.state is State.ONGOING and b.state in PREPARED:
        # Only Ongoing records add partitions. If offsets are missing, an Ongoing record may be missing.
        hole = b.contiguous_from > a.offset
        same = a.partitions <= b.partitions if hole else a.partitions == b.partitions
        return raised in _raised_by(b) and same
    if a.state is State.ONGOING:
        return b.state is State.ONGOING and raised == 0 and a.partitions <= b.partitions
    written_twice = a.state in ENDS and a.state is b.state and a.partitions == b.partitions
    return raised == 0 and (written_twice or b.state is _COMPLETED_AS.get(a.state))


def completes(decision: LoggedTransaction, record: LoggedTransaction) -> bool:
    """Whether a record completes a decision. The completion may change the id's producer id and epoch."""
    return record.state is _COMPLETED_AS[decision.state] and record.start_time_ms == decision.start_time_ms


def _raised_by(decision: LoggedTransaction) -> Sequence[int]:
    """The possible differences between the epoch of a decision and the epoch of the data that it is about."""
    if decision.state is State.PREPARE_COMMIT:
        return (1,) if is_v2(decision) else (0,)
    # A fence raises it under v1 too, and Kafka 4.0 raises it twice.
    return (1, 2) if is_v2(decision) else (0, 1)


def _changes_producer_id(a: LoggedTransaction, b: LoggedTransaction) -> bool:
    """Whether the id gets its next producer id here: the old one has no epochs left, or the id had expired."""
    if b.producer_epoch != 0:
        return False
    if a.state is State.DEAD:
        return b.state is State.EMPTY
    if a.state in PREPARED:
        # The end of a transaction at the last epoch has raised the epoch once more.
        used_up = is_v2(a) and a.producer_epoch > _LAST_EPOCH
        return used_up and b.state is _COMPLETED_AS[a.state] and a.start_time_ms == b.start_time_ms
    return a.state in AT_REST and b.state is State.EMPTY and a.producer_epoch >= _LAST_EPOCH


def _would_show(a: LoggedTransaction, b: LoggedTransaction, o: Observation) -> bool:
    """Whether a transaction that is missing between these two would show as a jump of epochs, as under v2.

    Between a PrepareCommit and its completion it would show only if the PrepareCommit lists this partition. A
    PrepareCommit may time out, partitions may then be added, and a second PrepareCommit may list them.
    """
    if not (is_v2(a) and is_v2(b)) or State.EMPTY in (a.state, b.state):
        return False
    if a.state is State.PREPARE_COMMIT:
        return o.key in a.partitions
    if a.state is State.ONGOING and b.state in PREPARED:
        return b.producer_epoch - a.producer_epoch == 1
    return True
