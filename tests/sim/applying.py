"""Resolve on a simulated cluster: sweeps, a plan, and the real `apply` with every option, with any events in between.

The effect of each marker is compared with the truth: it must never make a committed record invisible, nor an
uncommitted record visible, nor disturb a live producer. If the log has no record of a commit any more, and
`--accept-unknown-outcome` accepts its unknown outcome, it is counted separately. As time is not simulated, every
hanging transaction counts as watched for long enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.sim.answers import CLUSTER_ID
from tests.sim.history import CONFIG, NOW_MS, SimulatedCluster, SimulatedEngine, Simulation, accused, sweep
from tests.sim.memory import Memory
from tests.sim.records import NOBODY, Data, Marker, TransactionLogRecord, Txn, remembered
from tests.sim.truth import settled
from tests.sim.world import World
from txnscan.coordinators.cluster import Cluster, ClusterUnreachable
from txnscan.engine import Engine
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.protocol.write_txn_markers import MarkerToWrite
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key
from txnscan.resolve.apply import Attempt, Result, Status, apply_plan
from txnscan.resolve.brokers import LiveBrokers
from txnscan.resolve.guard import ACCEPT_UNKNOWN, COMPLETE_COMMITS, Limits, StoredTransaction
from txnscan.resolve.plan import Action, Plan, make_plan
from txnscan.sweeps.history import FactsAlone, History
from txnscan.sweeps.log_facts import with_stored
from txnscan.sweeps.result import Scan
from txnscan.txnlog.facts import NO_FACTS, SeenMarker
from txnscan.verdict.evidence import Judged
from txnscan.verdict.outcome import outcome

_LONG_AGO_MS = NOW_MS - 2 * 3_600_000
_OPTIONS = (COMPLETE_COMMITS, ACCEPT_UNKNOWN)


@dataclass
class MemoryJournal:
    """The journal of a simulated apply. See apply.Journal."""

    memory: Memory

    def attempts(self, cluster_id: str) -> Sequence[Attempt]:
        """See Journal."""
        return ()

    def remember(self, plan: Plan, marker: SeenMarker) -> None:
        """See Journal."""
        self.memory.remember(marker)

    def intend(self, plan: Plan, action: Action, forced: str | None) -> str:
        """See Journal."""
        return action.incident_id

    def conclude(self, plan: Plan, attempt_id: str, action: Action, status: Status, detail: str) -> None:
        """See Journal."""

    def hold(self) -> None:
        """See Journal."""


@dataclass(frozen=True)
class Written:
    """A marker that apply has written.

    accepted: whether the outcome was unknown and the option accepted that. described: by broker, the world when it last
    answered as a coordinator. world: the world before the marker was appended.
    """

    key: Key
    leader: int
    offset: int
    marker: Marker
    accepted: bool
    described: Mapping[int, World]
    world: World


class SimulatedBrokers(LiveBrokers):
    """`LiveBrokers` with its real proofs and reads, on a simulated cluster."""

    def __init__(
        self,
        simulation: Simulation,
        cluster_class: type[SimulatedCluster] = SimulatedCluster,
        history: History | None = None,
    ) -> None:
        super().__init__(CONFIG, history)
        simulation.keeps_worlds = True
        self._simulation = simulation
        self._cluster_class = cluster_class
        self._settings = ConnectionSettings()
        self._accepted = False
        self.written: list[Written] = []

    def _cluster(self, *, before_marker: bool = False) -> Cluster:
        return self._cluster_class(self._simulation)

    def _engine(self) -> Engine:
        return SimulatedEngine(self._simulation)

    def _now_ms(self) -> int:
        return NOW_MS

    def prove_without_log(self, action: Action) -> Judged | None:
        """See Brokers."""
        self._accepted = action.needs == ACCEPT_UNKNOWN
        return super().prove_without_log(action)

    @contextmanager
    def marker_connection(self, leader: int) -> Iterator[Callable[[MarkerToWrite], int]]:
        """See Brokers."""
        yield lambda marker: self._write(leader, marker)

    def _write(self, leader: int, marker: MarkerToWrite) -> int:
        world = self._simulation.world
        before, key = world.copy(), (marker.topic, marker.partition)
        code = marker.answered(self._simulation.send(leader, marker.request()))
        if code == ErrorCode.NONE:
            epochs = (marker.producer_epoch, max(marker.coordinator_epoch, 0))
            appended = Marker(marker.producer_id, *epochs, marker.commit)
            offset = len(world.logs[key, leader]) - 1
            described = dict(self._simulation.last_asked)
            self.written.append(Written(key, leader, offset, appended, self._accepted, described, before))
        return code


@dataclass
class Applied:
    """The result of an apply: its plan (None if no sweep succeeded), a result for each action, and the written
    markers.
    """

    plan: Plan | None = None
    results: list[Result] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)


@dataclass(frozen=True)
class Apply:
    """The behaviour of sweeps and of an apply. To show that a part is needed, another class omits it.

    lacks: the omitted part. options: of apply.
    """

    name: str = "everything"
    lacks: str = ""
    cluster_class: type[SimulatedCluster] = SimulatedCluster
    brokers_class: type[SimulatedBrokers] = SimulatedBrokers
    memory_class: type[Memory] = Memory
    options: tuple[str, ...] = _OPTIONS

    def resolve(
        self,
        world: World,
        between: Callable[[World, str], None],
        simulated: Callable[[World], Simulation] = Simulation,
    ) -> tuple[Applied, World]:
        """Runs two sweeps, a plan and an apply. Returns the results, and the final world.

        between: called with the world and the name of each step before that step, to add events. simulated: makes the
        simulation of a world, in which more events may happen between answers.
        """
        memory, done = self.memory_class(), Applied()
        hanging: list[Judged] = []
        for step in ("first sweep", "second sweep"):
            between(world, step)
            simulation = simulated(world)
            try:
                found = sweep(simulation, self.cluster_class, history=memory, sweep_id=step)
            except ClusterUnreachable:
                return done, world
            memory.keep(found)
            hanging = accused(found)
        between(world, "apply")
        done.plan = make_plan(
            [_stored(judged, found, memory) for judged in hanging],
            Limits(),
            cluster_id=CLUSTER_ID,
            sweep_id="second sweep",
            swept_at_ms=NOW_MS,
            planned_at_ms=NOW_MS,
            version="",
        )
        brokers = self.brokers_class(simulated(world), self.cluster_class, FactsAlone(memory))
        done.results = apply_plan(
            done.plan, brokers, MemoryJournal(memory), execute=True, options=self.options, sleep=lambda seconds: None
        )
        done.written = brokers.written
        return done, world


def _stored(judged: Judged, found: Scan, memory: Memory) -> StoredTransaction:
    """A hanging transaction as the tables would have it, watched for long enough."""
    seen = memory.facts(CLUSTER_ID, ())().get(judged.observation.producer_id, NO_FACTS)
    evidence = found.evidence_of_outcome(judged)
    known = outcome(with_stored(evidence, seen)) if evidence is not None else None
    o, judgement, views = judged.observation, judged.judgement, judged.evidence.coordinators
    return StoredTransaction(
        incident_id=o.transaction_key.incident_id(CLUSTER_ID),
        topic=o.topic,
        topic_id=o.topic_id,
        partition=o.partition,
        producer_id=o.producer_id,
        producer_epoch=o.producer_epoch,
        coordinator_epoch=o.coordinator_epoch,
        start_offset=o.start_offset,
        verdict=judgement.verdict.value,
        reason=judgement.reason.value,
        outcome=known.outcome.value if known is not None else None,
        outcome_reason=known.why if known is not None else None,
        log_failure=judged.known_outcome.log_failure if judged.known_outcome is not None else None,
        transactional_id=views[0].transactional_id if views else None,
        owner_epoch=views[0].producer_epoch if views else None,
        transaction_timeout_ms=views[0].timeout_ms if views else None,
        blocked_records=None,
        explanation=judgement.explanation,
        first_seen_ms=_LONG_AGO_MS,
        swept_at_ms=NOW_MS,
        sweeps=2,
        late_after_ms=3_600_000,
        max_timeout_ms=60_000,
    )


# --- the truth --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Harm:
    """The damage of a marker.

    forgotten: it made a committed record invisible, and the transaction log had no record of the commit any more; a
    user who accepts an unknown outcome takes this risk. undated: it made a record visible that was never added to its
    transaction, and whose date does not show that (see `World.was_committed`).
    """

    why: str
    forgotten: bool = False
    undated: bool = False


def harm(written: Written, end: World) -> Harm | None:
    """The damage of a marker of apply, in the healed future of `end`, if any.

    A marker that was truncated, or that ended no transaction there, does no damage.
    """
    disturbed = _disturbed(written)
    if disturbed is not None:
        return Harm(disturbed)
    future = settled(end)
    leader = future.leadership(future.image, written.key).leader
    log = remembered(future.logs[written.key, leader]) if leader != NOBODY else ()
    if len(log) <= written.offset or log[written.offset][1] != written.marker:
        return None
    for _, record in reversed(log[future.log_starts[written.key, leader] : written.offset]):
        if isinstance(record, Marker) and record.producer_id == written.marker.producer_id:
            break
        if isinstance(record, Data) and record.producer_id == written.marker.producer_id:
            committed = future.was_committed(written.key, record)
            if committed and not written.marker.committed:
                forgotten = not _has_commit(written.world, record.txn)
                return Harm(f"a committed record of {record.txn} was made invisible", forgotten)
            if written.marker.committed and not committed:
                why = f"a record of {record.txn}, which was not committed, was made visible"
                return Harm(why, undated=committed is None)
    return None


def _has_commit(world: World, txn: Txn) -> bool:
    """Whether a readable log has a record of the commit of this transaction. A log is readable on a broker that
    believes that it leads it. A replica that the controller has elected, but that does not know it yet, serves no
    reads.
    """
    key = (TRANSACTION_STATE_TOPIC, world.coordinator_of(txn[0]))
    logs = (world.logs[key, b] for b in world.places[key] if world.up(b) and world.leads(b, key) is not None)
    records = (record for log in logs for _, record in log if isinstance(record, TransactionLogRecord))
    logged = [record.metadata for record in records if record.metadata]
    return any(one.txn == txn and one.state in ("PrepareCommit", "CompleteCommit") for one in logged)


def _disturbed(written: Written) -> str | None:
    """The disturbed owner of the producer id, if any: it was in the middle of a transaction when its coordinator last
    answered, and still when the marker came. A transaction that began in between could not be seen.
    """
    producer_id = written.marker.producer_id
    for broker_id, described in written.described.items():
        disturbed = sorted(_busy(described, broker_id, producer_id) & _busy(written.world, broker_id, producer_id))
        if disturbed:
            return f"'{disturbed[0]}' was in the middle of a transaction"
    return None


def _busy(world: World, broker_id: int, producer_id: int) -> set[str]:
    """The ids with this producer id that are in the middle of a transaction and that this broker serves as
    coordinator.
    """
    return {
        name
        for (broker, name), held in world.held.items()
        if (broker, held.metadata.producer_id) == (broker_id, producer_id)
        and held.metadata.state in ("Ongoing", "PrepareCommit", "PrepareAbort")
        and _serves(world, broker_id, name)
    }


def _serves(world: World, broker_id: int, transactional_id: str) -> bool:
    coordinator = world.coordinators.get((broker_id, world.coordinator_of(transactional_id)))
    return coordinator is not None and coordinator.whole and not coordinator.loading and world.up(broker_id)
