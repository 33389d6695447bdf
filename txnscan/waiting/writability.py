"""Whether the log of a partition takes a write, and whether the marker of a transaction will be lost there. Pure.

Coordinators and markers write with acks=all. A leader refuses such a write if fewer replicas are in sync than
`min.insync.replicas` of the topic (NOT_ENOUGH_REPLICAS, `Partition.appendRecordsToLeader`). Since Kafka 3.7 it caps the
setting at the number of replicas (`Partition.effectiveMinIsr`); before that, a partition with fewer replicas than the
setting never takes such a write. `transaction.state.log.min.isr` is not compared: it acts only when a broker creates
`__transaction_state`.

With enough replicas in sync the leader waits for each of them. Only the controllers take a replica out that has
stopped, and a majority of the controllers may have stopped with it: then the write waits for ever. So it is not known
whether a log takes writes if a broker with an in-sync replica of it does not answer.

- **The log of the coordinator** takes no writes. The coordinator answers, and can neither begin, nor end, nor time out
  a transaction of that partition of `__transaction_state`. When enough replicas are in sync again, it can.
- **A partition of the transaction** takes no writes. The coordinator decides the end, and sends the marker until the
  partition takes it. Until then the partition's last stable offset stops there, and the id begins no transaction.
- **A partition of the transaction has no leader.** The coordinator waits, as above. But coordinators of some releases
  drop the marker and complete the transaction, and the partition hangs (KAFKA-20734, `drops_markers`). So do
  coordinators that wait for the partition to take the marker, if it loses its last leader meanwhile.

Replicas move in and out of sync by themselves. So this is a state of the moment, and no verdict depends on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from txnscan.kafka.answers import PREPARED, CoordinatorView, State
from txnscan.kafka.failure import Failure
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key, PartitionReplicas
from txnscan.kafka.units import brokers_named, duration, first_of, plural
from txnscan.verdict.evidence import Judged, Verdict
from txnscan.verdict.explanations import joined_commit
from txnscan.verdict.predicates import held_by

_NAMED_MAX = 3


def takes_writes(
    in_sync: int, min_in_sync: int | None, replication_factor: int, *, is_capped: bool | None, silent: int = 0
) -> bool | None:
    """Whether a log takes a write with acks=all. The only place that decides it. None if that is not known.

    in_sync, replication_factor: the number of in-sync replicas, and of all replicas. min_in_sync: `min.insync.replicas`
    as it is in force at the leader, None if not known. is_capped: whether the leader's release caps the setting at the
    number of replicas, None if not known. silent: the number of in-sync replicas whose brokers do not answer.
    """
    enough = _enough_in_sync(in_sync, min_in_sync, replication_factor, is_capped=is_capped)
    return None if enough and silent else enough


def _enough_in_sync(
    in_sync: int, min_in_sync: int | None, replication_factor: int, *, is_capped: bool | None
) -> bool | None:
    if is_capped and in_sync >= replication_factor:
        return True
    if min_in_sync is None:
        return None
    if in_sync >= min_in_sync:
        return True
    return is_capped if in_sync >= replication_factor else False


@dataclass(frozen=True, slots=True)
class WriteState:
    """What decides whether a partition's log takes writes. min_in_sync, is_capped: see `takes_writes`. silent: the
    brokers of in-sync replicas that do not answer. failure: why min_in_sync is not known, or why one of them does not.
    """

    replicas: PartitionReplicas
    min_in_sync: int | None = None
    is_capped: bool | None = None
    silent: tuple[int, ...] = ()
    failure: Failure | None = None

    @property
    def name(self) -> str:
        return self.replicas.name

    @property
    def is_transaction_log(self) -> bool:
        """Whether it is a partition of `__transaction_state`."""
        return self.replicas.topic == TRANSACTION_STATE_TOPIC

    @property
    def takes_writes(self) -> bool | None:
        """None if that is not known."""
        one = self.replicas
        if one.has_no_leader:
            return False
        if not one.in_sync:
            # A leader is in sync with itself, so the answer is not usable.
            return None
        silent = len(set(self.silent).intersection(one.in_sync))
        return takes_writes(
            len(one.in_sync), self.min_in_sync, len(one.replicas), is_capped=self.is_capped, silent=silent
        )

    @property
    def may_take_none(self) -> bool:
        """Whether it may not take writes, though that is not known. With all replicas in sync, and brokers that answer,
        that is rare, and needs a release before 3.7.
        """
        lacks_one = 0 < len(self.replicas.in_sync) < len(self.replicas.replicas)
        return self.takes_writes is None and (lacks_one or bool(self.silent))

    @property
    def to_restore(self) -> tuple[int, ...]:
        """The brokers of its replicas that are not in sync, or do not answer."""
        return tuple(sorted({*self.replicas.missing, *self.silent}))

    @property
    def never(self) -> bool:
        """Whether it takes no writes even with all its replicas."""
        return not self.replicas.has_no_leader and self.replicas.is_complete and self.takes_writes is False

    @property
    def is_last(self) -> bool:
        """Whether it has no leader as soon as the leader stops."""
        one = self.replicas
        return one.leader >= 0 and not one.electable([one.leader])


@dataclass(frozen=True, slots=True)
class NoLog:
    """`__transaction_state` does not exist. factor: the number of replicas that brokers would give it
    (`transaction.state.log.replication.factor`), None if not known. brokers: the number of running brokers.
    """

    factor: int | None
    brokers: int

    @property
    def cannot_be_made(self) -> bool:
        """Whether too few brokers run to create it."""
        return self.factor is not None and self.factor > self.brokers


@dataclass(frozen=True, slots=True)
class BehindLast:
    """Open transactions on partitions that have no leader once this broker stops."""

    broker_id: int
    transactions: int


@dataclass(frozen=True, slots=True)
class WriteStates:
    """The write states of partitions. log_partitions: the number of partitions of `__transaction_state`. dropping: the
    brokers whose coordinator drops the marker of a partition without a leader. at_risk: partitions without a leader
    whose marker will be dropped, if all ids in a transaction were asked for them. no_log: set if `__transaction_state`
    does not exist. behind_last: by broker, the number of open transactions on partitions that have no leader once it
    stops; None if that was not read. failure: why nothing was read.
    """

    partitions: Mapping[Key, WriteState] = field(default_factory=dict)
    log_partitions: int = 0
    dropping: frozenset[int] = frozenset()
    at_risk: frozenset[Key] = frozenset()
    no_log: NoLog | None = None
    behind_last: Mapping[int, int] | None = None
    failure: Failure | None = None

    def log_of(self, transactional_id: str) -> WriteState | None:
        """The id's partition of `__transaction_state`."""
        if not self.log_partitions:
            return None
        k = coordinator_partition(transactional_id, self.log_partitions)
        return self.partitions.get((TRANSACTION_STATE_TOPIC, k))

    @property
    def stops(self) -> tuple[BehindLast, ...] | None:
        """The brokers behind which there are such transactions. None if that was not read."""
        if self.behind_last is None:
            return None
        return tuple(BehindLast(broker, count) for broker, count in sorted(self.behind_last.items()))

    @property
    def stopped(self) -> tuple[WriteState, ...]:
        """The partitions that take no writes, by name."""
        return tuple(one for _, one in sorted(self.partitions.items()) if one.takes_writes is False)

    @property
    def doubtful(self) -> tuple[WriteState, ...]:
        """The partitions that may take no writes, by name."""
        return tuple(one for _, one in sorted(self.partitions.items()) if one.may_take_none)

    def needed(self, transactional_id: str, state: str, keys: Iterable[Key]) -> tuple[WriteState, ...]:
        """The partitions to be written before a transaction in this state ends on these of its partitions. The log
        comes first while it is not decided, and last if it is: the markers are sent before the id completes.
        """
        log = self.log_of(transactional_id)
        here = [one for one in map(self.partitions.get, keys) if one is not None]
        if log is not None and log.replicas.leader in self.dropping:
            here = [one for one in here if not one.replicas.has_no_leader]
        logs = [log] if log is not None else []
        return (*here, *logs) if state in PREPARED else (*logs, *here)

    def blocker(self, transactional_id: str, state: str, keys: Iterable[Key]) -> WriteState | None:
        """The first of the needed partitions that takes no writes. If there is none, the first that may take none."""
        return _first_stopped(self.needed(transactional_id, state, keys))

    def blocker_of(self, judged: Judged) -> WriteState | None:
        """The same for an open transaction with one claim: what keeps it open on its partition. The log of a decided
        transaction does not.
        """
        claim = claim_of(judged)
        if claim is None:
            return None
        needed = self.needed(claim.transactional_id, claim.state, [judged.observation.key])
        if claim.state in PREPARED:
            needed = tuple(one for one in needed if one.replicas.key == judged.observation.key)
        return _first_stopped(needed)

    def in_danger(self, transactional_id: str, keys: Iterable[Key]) -> tuple[WriteState, ...]:
        """Of the partitions that an id in a transaction lists, those whose marker will be dropped, or would be if their
        leader stopped. Those without a leader come first.
        """
        log = self.log_of(transactional_id)
        if log is None or log.replicas.leader not in self.dropping:
            return ()
        listed = [one for one in map(self.partitions.get, keys) if one is not None]
        return (*(one for one in listed if one.replicas.has_no_leader), *(one for one in listed if one.is_last))


# Nothing was read.
UNREAD = WriteStates()


def _first_stopped(needed: Iterable[WriteState]) -> WriteState | None:
    found = list(needed)
    stopped = [one for one in found if one.takes_writes is False]
    return next(iter((*stopped, *(one for one in found if one.may_take_none))), None)


def claim_of(judged: Judged) -> CoordinatorView | None:
    """The coordinator's view of a transaction that it has to end."""
    if judged.judgement.verdict not in _CLAIMED:
        return None
    held = held_by(judged.evidence, State.ONGOING, *PREPARED)
    return held[0] if len(held) == 1 else None


_CLAIMED = (Verdict.ONGOING, Verdict.LATE_ONGOING, Verdict.PENDING_MARKER)


# --- words


def reason(state: WriteState) -> str:
    """Why the partition takes no writes, or may take none, as a clause that begins with its name."""
    one = state.replicas
    if one.has_no_leader:
        return f"{one.name} has no leader"
    brokers = brokers_named(one.in_sync)
    have = f"{len(one.in_sync)} of {plural(len(one.replicas), 'replica')} in sync ({brokers})"
    if state.takes_writes is None and state.silent:
        return f"{one.name} may take no writes: it has {have}, and no answer came from {brokers_named(state.silent)}"
    if state.min_in_sync is None:
        why = f": {state.failure}" if state.failure is not None else ""
        return f"{one.name} has {have}, and its min.insync.replicas is not known{why}"
    takes = "takes no writes" if state.takes_writes is False else "may take no writes"
    return f"{one.name} {takes}: it has {have}, and min.insync.replicas is {state.min_in_sync}"


def remedy(state: WriteState) -> str:
    """What makes the partition take writes, as a sentence without a full stop."""
    one = state.replicas
    if state.never:
        return (
            f"Set min.insync.replicas of {one.topic} to {len(one.replicas)}, or add replicas: before Kafka 3.7 a "
            "partition with fewer replicas than that never takes such writes"
        )
    if one.has_no_leader:
        missing = one.missing
        which = f"broker {missing[0]}" if len(missing) == 1 else f"one of the {brokers_named(missing)}"
        return f"Start {which}, which may lead it"
    away = state.to_restore
    return f"Restore {brokers_named(away)}; if {_it_does(away)} not come back, reassign the replicas of {one.name}"


def _it_does(broker_ids: Collection[int]) -> str:
    return "it does" if len(broker_ids) == 1 else "they do"


def remedy_of(lost: Collection[WriteState]) -> str:
    """The same for several partitions without a leader."""
    first, *others = {one.replicas.missing: one for one in lost}.values()
    if not others:
        return remedy(first)
    brokers = sorted({broker for one in lost for broker in one.replicas.missing})
    return f"Start {brokers_named(brokers)}, which may lead them"


def with_reason(judged: Judged, states: WriteStates) -> Judged:
    """The same transaction and verdict. If its end cannot be written, or may not be, its explanation says so, in place
    of when its coordinator ends it.
    """
    claim, blocker = claim_of(judged), states.blocker_of(judged)
    if claim is None or blocker is None:
        return judged
    verdict, name = judged.judgement.verdict, f"Transactional id '{claim.transactional_id}'"
    known = blocker.takes_writes is False
    if verdict is Verdict.PENDING_MARKER:
        decision = "commit" if claim.state == State.PREPARE_COMMIT else "abort"
        can = "the marker cannot be written here" if known else "it is not known whether the marker can be written here"
        said = f"{name} has decided to {decision}, and {can}"
    elif judged.endangers_commit:
        can = "its end cannot be written now" if known else "it is not known whether its end can be written now"
        explanation = joined_commit(judged.evidence, f"{can}: {reason(blocker)}. {remedy(blocker)}")
        return replace(judged, judgement=replace(judged.judgement, explanation=explanation))
    elif verdict is Verdict.LATE_ONGOING:
        can = "cannot abort it" if known else "may not be able to abort it"
        said = f"{name} has had this transaction open for longer than its timeout of {duration(claim.timeout_ms)}"
        said = f"{said}, and its coordinator, broker {claim.broker_id}, {can}"
    else:
        can = "its end cannot be written" if known else "it is not known whether its end can be written"
        said = f"{name} has this transaction open, and {can}"
    explanation = f"{said}: {reason(blocker)}. {remedy(blocker)}."
    return replace(judged, judgement=replace(judged.judgement, explanation=explanation))


def danger(state: WriteState, due: str | None) -> str:
    """The sentence about a partition whose marker will be dropped, or would be. due: when the transaction ends at the
    latest, as "in ...".
    """
    one, last = state.replicas, f" It ends {due} at the latest, and may end before." if due is not None else ""
    if one.has_no_leader:
        return (
            f"{one.name} has no leader: when the transaction ends, its coordinator drops the marker there, and the "
            f"partition hangs (KAFKA-20734). {remedy(state)}, before that.{last}"
        )
    return (
        f"Broker {one.leader} is the last that may lead {one.name}: if it stops before the transaction has ended "
        f"there, the coordinator drops the marker, and the partition hangs (KAFKA-20734). Keep it running until then."
        f"{last}"
    )


def no_log_reason(no_log: NoLog) -> str:
    """Why `__transaction_state` cannot be created, as a clause."""
    return (
        f"{TRANSACTION_STATE_TOPIC} does not exist, and cannot be created: it needs {no_log.factor} brokers "
        f"(transaction.state.log.replication.factor), and {plural(no_log.brokers, 'broker')} "
        f"{'runs' if no_log.brokers == 1 else 'run'}"
    )


def no_log_remedy(no_log: NoLog) -> str:
    """What makes brokers create it, as a sentence without a full stop."""
    return (
        f"Start more brokers; or set transaction.state.log.replication.factor to {no_log.brokers} and "
        "transaction.state.log.min.isr to no more, and restart the brokers"
    )


def stopped_logs(states: WriteStates) -> tuple[str, str] | None:
    """The partitions of `__transaction_state` that take no writes: their number and its effect as a clause, and the
    reasons with the remedy as sentences without the last full stop. None if there are none.
    """
    stopped = [one for one in states.stopped if one.is_transaction_log]
    if not stopped:
        return None
    what = f"{len(stopped)} of {plural(states.log_partitions, 'partition')} of {TRANSACTION_STATE_TOPIC}"
    takes = "takes no writes" if len(stopped) == 1 else "take no writes"
    effect = "no transaction of their transactional ids can begin, end or time out"
    return f"{what} {takes}: {effect}", _of_several(stopped)


def log_warning(states: WriteStates) -> str | None:
    """The same in one text."""
    found = stopped_logs(states)
    return None if found is None else ". ".join(found)


def doubt_warning(states: WriteStates) -> str | None:
    """The first partition that may take no writes, and the number of others. None if there are none."""
    doubts = states.doubtful
    if not doubts:
        return None
    more = f"; and {len(doubts) - 1} more like it" if len(doubts) > 1 else ""
    return f"it is not known whether transactions can end: {reason(doubts[0])}{more}"


def partition_warning(stopped: Collection[WriteState]) -> str | None:
    """The same for other partitions that have a leader."""
    found = [one for one in stopped if not one.is_transaction_log and not one.replicas.has_no_leader]
    if not found:
        return None
    which = f"{plural(len(found), 'partition')} {'takes' if len(found) == 1 else 'take'} no writes"
    return f"{which}, and no transaction can end there. {_of_several(found)}"


def _of_several(stopped: Collection[WriteState]) -> str:
    """The first reasons, and the brokers to restore."""
    first = next(iter(stopped))
    if len(stopped) == 1:
        return f"{reason(first)}. {remedy(first)}"
    never = next((one for one in stopped if one.never), None)
    brokers = sorted({broker for one in stopped for broker in one.replicas.missing})
    help_ = remedy(never) if never is not None else f"Restore {brokers_named(brokers)}"
    return f"{first_of([*map(_in_brief, stopped)], _NAMED_MAX)}. {help_}"


def _in_brief(state: WriteState) -> str:
    one = state.replicas
    return f"{one.name} ({len(one.in_sync)} of {len(one.replicas)} in sync, min.insync.replicas is {state.min_in_sync})"
