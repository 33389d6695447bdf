"""Check whether `__transaction_state` and the coordinators agree about a hanging transaction. Pure.

A coordinator answers from memory, and memory should match its log: its description of an id should match the id's last
acknowledged record. The two differ in three cases:
- The coordinator could not load the whole log. `TransactionStateManager.loadTransactionMetadata` catches the error and
  serves what it has loaded.
- An authorizer hides an id from the scanner without an ACL that shows this.
- An epoch was raised in memory, and the append of its record failed (`hasFailedEpochFence` under transactions v1).
In each case a coordinator that loads the log again knows more, and may own the transaction that seems to hang. The last
record of an id is never compacted away, so its absence from the log is proof.

A coordinator that loaded a part of the log may also continue an id from an earlier state. Then the log has a decision,
and the next record does not follow from it. The coordinator that made the decision may only be paused or cut off. It
still has the decision in memory, and sends its markers when it comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from txnscan.kafka.answers import IN_TRANSACTION, PREPARED, CoordinatorView
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.reads.observation import Observation
from txnscan.txnlog.facts import LoggedTransaction
from txnscan.txnlog.transitions import completes, follows


@dataclass(frozen=True, slots=True)
class Described:
    """A transactional id as its coordinator describes it at some moment."""

    transactional_id: str
    broker_id: int
    producer_id: int
    producer_epoch: int
    state: str

    @staticmethod
    def of(view: CoordinatorView) -> Described:
        """The description in a coordinator's view of the id."""
        return Described(view.transactional_id, view.broker_id, view.producer_id, view.producer_epoch, view.state)

    def is_of(self, record: LoggedTransaction) -> bool:
        """Whether this description matches that record."""
        said = (record.transactional_id, record.producer_id, record.producer_epoch, record.state.value)
        return said == (self.transactional_id, self.producer_id, self.producer_epoch, self.state)

    def __str__(self) -> str:
        return f"broker {self.broker_id} describes it as {self.state} at epoch {self.producer_epoch}"


def last_records(logged: Iterable[LoggedTransaction]) -> Mapping[str, LoggedTransaction]:
    """The last record of each id."""
    return {record.transactional_id: record for record in logged}


def orphan_contradiction(o: Observation, logged: Iterable[LoggedTransaction]) -> Failure | None:
    """How the log contradicts that no transactional id has this producer id, if it does."""
    for name, last in last_records(logged).items():
        if last.producer_id == o.producer_id:
            said = f"its last record of '{name}' has producer id {o.producer_id}, and no coordinator shows that id"
            return _contradicts(said)
    return None


def dropped_decision(o: Observation, logged: Iterable[LoggedTransaction]) -> Failure | None:
    """A decision about this partition that its id ignored, if there is such a decision.

    If an append timed out, its coordinator continues from the record before; that is no ignored decision. If offsets
    are missing, the completion may be among them, and the result is None.
    """
    of_ids: dict[str, list[LoggedTransaction]] = {}
    for record in logged:
        of_ids.setdefault(record.transactional_id, []).append(record)
    for name, records in of_ids.items():
        before: LoggedTransaction | None = None
        undone: list[LoggedTransaction] = []
        for record in records:
            if record.state in PREPARED:
                undone.append(record)
                continue
            goes_on = before is not None and follows(before, record)
            if not goes_on and not any(completes(decision, record) for decision in undone):
                for decision in undone:
                    if _holds(decision, o) and record.contiguous_from <= decision.offset:
                        shown = f"the {decision.state} of '{name}' with this partition at offset {decision.offset}"
                        follows_not = f"the record at offset {record.offset} does not follow"
                        return _contradicts(f"{shown} is not completed, and {follows_not}")
            before, undone = record, []
    return None


def owner_contradiction(
    o: Observation,
    described: Described,
    logged: Sequence[LoggedTransaction],
    later: Sequence[LoggedTransaction] = (),
) -> Failure | None:
    """How the log contradicts the coordinator's description of the owner, if it does.

    later: the records appended after `logged` was read and before the description was taken. The id may have changed
    its state in them.
    """
    last = last_records(logged).get(described.transactional_id)
    name = f"'{described.transactional_id}'"
    if last is None:
        return _contradicts(f"it holds nothing of {name}, and {described}")
    now = [last, *(record for record in later if record.transactional_id == described.transactional_id)]
    if not any(described.is_of(record) for record in now):
        state = f"{last.state} at epoch {last.producer_epoch}"
        return _contradicts(f"its last record of {name} is {state}, and {described}")
    if _holds(now[-1], o):
        shown_by_log = f"its last record of {name} is {now[-1].state} with this partition"
        return _contradicts(f"{shown_by_log}, which its coordinator does not show")
    return None


def ended_since(o: Observation, described: Described, logged: Sequence[LoggedTransaction]) -> Failure | None:
    """Why the owner may have ended the hanging transaction since the description. It may have ended it if it has had
    the partition in a transaction since then. None if it has not.

    logged: all records up to now. If no record of the owner matches the description, the later records are not known.
    """
    of_owner = [record for record in logged if record.transactional_id == described.transactional_id]
    name = f"'{described.transactional_id}'"
    then = [number for number, record in enumerate(of_owner) if described.is_of(record)]
    if not then:
        return _contradicts(f"it has gone on with {name}, and holds no record of what was described: {described}")
    # Under transactions v1 an id completes many transactions at the same epoch, and several records may match the
    # description. The last of them counts.
    since = next((record for record in of_owner[then[-1] :] if _holds(record, o)), None)
    if since is None:
        return None
    return _contradicts(f"it has {name} {since.state} with this partition later, and {described}")


def _contradicts(how: str) -> Failure:
    return Failure(how, FailureCode.LOG_CONTRADICTS)


def _holds(record: LoggedTransaction, o: Observation) -> bool:
    """Whether a coordinator that loads this record has the id in a transaction with this partition."""
    under_way = record.state in IN_TRANSACTION
    same = (record.producer_id, o.key in record.partitions) == (o.producer_id, True)
    return under_way and same
