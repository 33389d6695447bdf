"""`txnscan abort`: why it refuses a transaction, the plan of its one marker, and brokers without DescribeProducers.

The command is for experts. It needs more input than `plan` and `apply`, but waits for no second sweep. `apply.py` runs
its steps. It refuses a transaction
- that is not proven to hang, or is not late yet;
- whose owner is still at the transaction's epoch: fence the owner first;
- that committed, or may have committed, even in part: an abort deletes committed data;
- whose outcome is unknown, without --accept-unknown-outcome.

`--force REASON` overrides all of these. One condition remains: a proven read must show that the partition's leader has
exactly this transaction open. Brokers before Kafka 2.8 cannot answer that; there the user gives the producer id and the
epochs, and every marker needs --force. Pure, except `BrokersWithoutDescribeProducers`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from txnscan.config import ConfigError, printable
from txnscan.coordinators.agreed_metadata import LeaderUnknown
from txnscan.coordinators.cluster import ClusterUnreachable
from txnscan.errors import ExitStatus, TxnscanError
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.fetch import fetch
from txnscan.kafka.protocol.list_offsets import Offset, list_offsets
from txnscan.kafka.security.acls import explained
from txnscan.kafka.topology import Partition
from txnscan.kafka.units import duration
from txnscan.reads.observation import Observation, ProvenRead, TransactionKey
from txnscan.resolve.apply import Attempt, PartitionState, Status
from txnscan.resolve.brokers import LiveBrokers
from txnscan.resolve.guard import Limits, Refused, fence_refusal, offered
from txnscan.resolve.offer import swept
from txnscan.resolve.plan import Action, Plan
from txnscan.shell import command
from txnscan.sweeps.history import FactsAlone, Incident, Incidents, KnowsFacts
from txnscan.sweeps.result import Scan
from txnscan.sweeps.row import incident_id
from txnscan.txnlog.facts import SeenMarker
from txnscan.verdict.evidence import Context, Evidence, Judged, Judgement, Outcome, Reason, Verdict
from txnscan.verdict.predicates import two_phase_commit
from txnscan.version import __version__

FORCE = "--force"
# The reason of a transaction that is known only from the user's options.
UNREAD = "unread"


class AbortRefused(ConfigError):
    """A marker is not sent. The message says why, and what to do."""

    exit_status = ExitStatus.REFUSED


class PartitionUnreadable(TxnscanError):
    """The leader of the partition did not answer. The message says why."""


class NothingOpen(ConfigError):
    """The partition has no such open transaction. The message lists its open transactions."""

    exit_status = ExitStatus.FAILED


@dataclass(frozen=True, slots=True)
class NamedTransaction:
    """The transaction that the user names: by its start offset, or by its producer."""

    topic: str
    partition: int
    start_offset: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    coordinator_epoch: int | None = None

    @property
    def where(self) -> str:
        return f"{self.topic}-{self.partition}"


class ReadAnyway(FactsAlone):
    """A history that makes the sweep read one partition with proof, even if coordinators claim all its open
    transactions.

    It has no times of first sightings. tables: see FactsAlone.
    """

    def __init__(self, topic: str, partition: int, tables: KnowsFacts | None = None) -> None:
        super().__init__(tables)
        self._key = TransactionKey(topic, "", partition, -1, -1)

    def unresolved(self, cluster_id: str) -> Callable[[], Incidents]:
        """See History."""
        return lambda: {self._key: Incident(2**62)}


def target_in(target: NamedTransaction, found: Scan) -> Judged:
    """The open transaction that the user names. Raises NothingOpen if there is none, and AbortRefused if it is open at
    epochs other than the given ones.
    """
    still_open = [j for j in found.transactions if j.judgement.verdict is not Verdict.GONE]
    for judged in still_open:
        o = judged.observation
        if target.start_offset is not None and o.start_offset == target.start_offset:
            return judged
        if target.producer_id is not None and o.producer_id == target.producer_id:
            _check_epochs(target, o)
            return judged
    meant = (
        f"starts at offset {target.start_offset}"
        if target.start_offset is not None
        else f"has producer id {target.producer_id}"
    )
    raise NothingOpen("abort", f"no open transaction on {printable(target.where)} {meant}; {_open_there(still_open)}")


def _check_epochs(target: NamedTransaction, o: Observation) -> None:
    for what, given, shown in (
        ("--producer-epoch", target.producer_epoch, o.producer_epoch),
        ("--coordinator-epoch", max(target.coordinator_epoch or 0, 0), max(o.coordinator_epoch, 0)),
    ):
        if given != shown:
            raise AbortRefused(
                what, f"{given} is not the epoch of the partition, {shown}; another epoch could fence a live producer"
            )


def _open_there(judged: Sequence[Judged]) -> str:
    if not judged:
        return "no transaction is open there"
    shown = (f"offset {j.observation.start_offset} (producer id {j.observation.producer_id})" for j in judged)
    return f"open there: {', '.join(shown)}"


def refusal(judged: Judged, accept_unknown: bool) -> str | None:
    """Why no marker may be sent for this transaction, and what to do instead. None if a marker may be sent. The guards
    of a plan decide (`guard.offered`), except that the user has named the partition, and that only an ABORT is sent.
    """
    about = swept(judged)
    given = offered(about, _NAMED)
    if isinstance(given, Refused) and given.guard in _BY_VERDICT:
        return _BY_VERDICT[given.guard](judged)
    if not judged.judgement.late:
        return f"it is not late yet: its known age is {duration(judged.judgement.age_ms)}; try again later"
    known = judged.known_outcome
    if known is None or known.log_failure is not None:
        why = known.log_failure if known is not None else "the sweep did not read it"
        return f"it could not be checked against the transaction log: {why}"
    if isinstance(given, Refused):
        return given.why
    if given.commit:
        return (
            f"it committed, and an abort would delete its data: {known.why}; complete it with txnscan plan and "
            f"txnscan apply {given.needs}"
        )
    if given.needs is not None and not accept_unknown:
        return f"it is not known whether it committed: {known.why}; give {given.needs} to abort it anyway"
    return None


def _not_hanging(judged: Judged) -> str:
    now = judged.judgement
    if now.verdict in (Verdict.ONGOING, Verdict.LATE_ONGOING):
        refused = fence_refusal(
            two_phase_commit=two_phase_commit(judged.evidence), endangers_commit=judged.endangers_commit
        )
        ends = f" To end the whole transaction of that id, use {_force_terminate(judged)}." if refused is None else ""
        return f"it is live ({now.verdict}). {now.explanation}{ends}"
    return f"it is not proven to hang: it is {now.verdict} ({now.reason}): {now.explanation}"


def _owner_may_write(judged: Judged) -> str:
    about = swept(judged)
    given = offered(about, _NAMED)
    if isinstance(given, Refused) and about.fence_refusal is not None:
        return given.why
    return (
        f"its owner is still at epoch {judged.observation.producer_epoch} and can write here; fence it first with "
        f"{_force_terminate(judged)}, and try again"
    )


# The user names the partition, so its topic needs no option.
_NAMED = Limits(consumer_offsets=True)
# These refusals have other remedies than in a plan, and come before the age.
_BY_VERDICT: Mapping[str, Callable[[Judged], str]] = {"not_hanging": _not_hanging, "live_owner": _owner_may_write}


def _force_terminate(judged: Judged) -> str:
    """The command that fences the owner, or a pattern of it."""
    names = [view.transactional_id for view in judged.evidence.coordinators]
    return command("txnscan force-terminate", transactional_id=printable(names[0]) if names else "ID")


def action_for(cluster_id: str, judged: Judged) -> Action:
    """The ABORT marker that ends this transaction."""
    o, now = judged.observation, judged.judgement
    views = judged.evidence.coordinators
    return Action(
        **o.ref,
        incident_id=incident_id(cluster_id, judged),
        reason=now.reason.value,
        outcome=judged.outcome or Outcome.UNKNOWN.value,
        why=now.explanation,
        transactional_id=views[0].transactional_id if views else None,
    )


def question(action: Action) -> str:
    """The question to the user before the marker is sent."""
    what = f"producer id {action.producer_id} at epoch {action.producer_epoch}"
    since = f", open from offset {action.start_offset}" if action.start_offset >= 0 else ""
    return f"Write an ABORT marker to {printable(action.topic_partition)} for {what}{since}?"


def only(found: Scan, judged: Judged) -> Scan:
    """The sweep's result, reduced to this transaction."""
    return replace(found, transactions=(judged,), errors=())


def plan_of(action: Action, found: Scan, now_ms: int) -> Plan:
    """A plan with this marker alone; the journal needs a plan."""
    return Plan(
        cluster_id=found.cluster_id,
        sweep_id=found.sweep_id,
        scope=found.scope,
        swept_at_ms=found.started_at_ms,
        warnings=(),
        planned_at_ms=now_ms,
        late_after_ms=found.late_after_ms,
        version=__version__,
        actions=(action,),
        refused=(),
    )


class NoJournal:
    """A journal that stores nothing. See `apply.Journal`."""

    def attempts(self, cluster_id: str) -> Sequence[Attempt]:
        """See Journal."""
        return ()

    def remember(self, plan: Plan, marker: SeenMarker) -> None:
        """See Journal."""

    def intend(self, plan: Plan, action: Action, forced: str | None) -> str:
        """See Journal."""
        return ""

    def conclude(self, plan: Plan, attempt_id: str, action: Action, status: Status, detail: str) -> None:
        """See Journal."""

    def hold(self) -> None:
        """See Journal."""


# --- brokers that cannot be asked -------------------------------------------------------------------------------------


def cannot_be_asked(found: Scan) -> str | None:
    """Why the partition's leader cannot list open transactions: it lacks the API. None if the partition was read.
    Raises PartitionUnreadable if the read failed for another reason.
    """
    if not found.partitions_failed:
        return None
    failed = next(error.failure for error in found.errors if error.partition is not None)
    if failed.lacks_api != "DescribeProducers":
        raise PartitionUnreadable(f"abort: the partition cannot be read: {failed.error}")
    return failed.error


def unread_needs(error: str) -> str:
    """The options that the user has to give if brokers cannot list open transactions."""
    return (
        f"{error}, so no proof is possible here; find the transaction in the log of the partition, and give "
        "--producer-id, --producer-epoch, --coordinator-epoch and --force REASON"
    )


# With this limit a broker returns one batch, however large the batch is.
_ONE_BATCH_BYTES = 1


class BrokersWithoutDescribeProducers(LiveBrokers):
    """Brokers before Kafka 2.8, which lack DescribeProducers. The user says which transaction is open.

    Only the last stable offset (LSO) can show that a marker ended the transaction, and only if the LSO stood at its
    start before: otherwise the LSO may have moved because another transaction ended.
    """

    def __init__(self, brokers: LiveBrokers) -> None:
        super().__init__(brokers.config)
        self._before: int | None = None
        self._stood_there = False

    def prove(self, action: Action) -> Judged | None:
        """See Brokers."""
        partition = self._led(action)
        self._before = self._offset(partition, Offset.LAST_STABLE)
        self._stood_there = self._begins_at(partition, self._before, action)
        return unread(action, partition, self._before, self._now_ms())

    def prove_without_log(self, action: Action) -> Judged | None:
        """See Brokers."""
        return self.prove(action)

    def read_partition(self, action: Action, *, sent: bool = True) -> PartitionState:
        """See Brokers."""
        try:
            partition = self._led(action)
            last_stable = self._offset(partition, Offset.LAST_STABLE)
            high_watermark = self._offset(partition, Offset.HIGH_WATERMARK)
        except RequestFailed as failed:
            return PartitionState(error=failed.error)
        moved = self._before is not None and last_stable > self._before
        if not moved:
            return PartitionState(
                error="these brokers do not list open transactions, and the last stable offset has not moved"
            )
        if not self._stood_there:
            why = "the last stable offset moved, but no read showed it at this transaction before"
            return PartitionState(error=f"these brokers do not list open transactions, and {why}")
        return PartitionState(is_open=False, last_stable_offset=last_stable, high_watermark=high_watermark)

    def _begins_at(self, partition: Partition, offset: int, action: Action) -> bool:
        """Whether the record at this last stable offset is of the named transaction. False if the record cannot be
        read.

        At the start of the log it is False: the open transaction may have begun before it, so the record may be of
        another one.
        """
        try:
            if offset <= self._offset(partition, Offset.LOG_START):
                return False
            with self._cluster() as cluster:
                cluster.view([partition.topic])
                fetched = fetch(cluster.send, partition, offset, _ONE_BATCH_BYTES, records=False)
        except (RequestFailed, ClusterUnreachable):
            return False
        there = (batch for batch in fetched.batches if batch.base_offset <= offset <= batch.last_offset)
        named = (action.producer_id, action.producer_epoch, True, False)
        return any((b.producer_id, b.producer_epoch, b.is_transactional, b.is_control) == named for b in there)

    def _led(self, action: Action) -> Partition:
        try:
            with self._cluster() as cluster:
                cluster.view([action.topic])
                partition = cluster.agreed_metadata([action.topic]).partition(*action.key)
                self._known |= {broker.broker_id: broker for broker in cluster.clients.brokers}
                return partition
        except ClusterUnreachable as error:
            raise RequestFailed(str(error), sent=False) from None
        except LeaderUnknown as failed:
            raise RequestFailed(explained(failed.failure, self.principal), sent=False) from None

    def _offset(self, partition: Partition, which: Offset) -> int:
        with self._cluster() as cluster:
            cluster.view([partition.topic])
            listed = list_offsets(cluster.send, partition.leader, [partition], which)[partition.key]
        if listed.failure is not None:
            raise RequestFailed(listed.failure.within(f"{partition.topic}-{partition.partition}"), sent=False)
        return listed.offset


def unread_action(target: NamedTransaction, cluster_id: str) -> Action:
    """The marker for the transaction that the user describes."""
    return Action(
        incident_id=f"{UNREAD}-{uuid.uuid4()}",
        topic=target.topic,
        topic_id="",
        partition=target.partition,
        producer_id=target.producer_id if target.producer_id is not None else -1,
        producer_epoch=target.producer_epoch if target.producer_epoch is not None else -1,
        coordinator_epoch=target.coordinator_epoch if target.coordinator_epoch is not None else -1,
        start_offset=-1,
        reason=UNREAD,
        outcome=Outcome.UNKNOWN.value,
        why="These brokers do not list open transactions.",
    )


def unread(action: Action, partition: Partition, last_stable_offset: int, now_ms: int) -> Judged:
    """The user's description in the form of an observation. Only the partition's leader is proven."""
    o = Observation(
        **action.ref,
        last_timestamp_ms=-1,
        last_sequence=-1,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        first=ProvenRead(now_ms),
        second=ProvenRead(now_ms, last_stable_offset=last_stable_offset),
        first_seen_ms=now_ms,
    )
    context = Context(None, None, (), now_ms, 0)
    judgement = Judgement(Verdict.INDETERMINATE, Reason.PARTITION, False, 0, action.why)
    return Judged(Evidence(o, (), context), judgement)
