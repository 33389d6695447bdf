"""One history: the events of a cluster before a sweep, and between the answers to the sweep.

The sweep is the real one: `pipeline.scan` with the real reads, snapshot and rules. Only brokers and time are simulated.
The sweep asks in its usual order, and before each answer any events may happen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from tests.sim.answers import answer
from tests.sim.records import NOBODY, Data, Log, Marker, still_open, with_beginning
from tests.sim.truth import hanging, open_in, settled
from tests.sim.turns import Turns
from tests.sim.world import LOST_LOG_END, World
from txnscan.config import ScanConfig
from txnscan.coordinators.agreed_metadata import AgreedMetadata
from txnscan.coordinators.cluster import Cluster, Item, Result
from txnscan.coordinators.coordinator_listing import CoordinatorAnswers, CoordinatorListing
from txnscan.engine import Batch, Row
from txnscan.engine.threads import ThreadsEngine
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.protocol.frames import api_name
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Broker, Key
from txnscan.parallel import OnProgress
from txnscan.reads.observation import Observation, TransactionKey
from txnscan.reads.proven_read import ProvenReading, read_wide
from txnscan.reads.rows import OffsetsRow, ProvenRow, ReadBatch
from txnscan.reads.tasks import ReadProven
from txnscan.sweeps.history import History as ScanHistory
from txnscan.sweeps.history import Incident, Incidents, NoHistory
from txnscan.sweeps.observations import CLAIMED
from txnscan.sweeps.pipeline import scan
from txnscan.sweeps.result import Scan
from txnscan.sweeps.state import Run
from txnscan.txnlog.rows import LogRow
from txnscan.txnlog.scan import read_log
from txnscan.verdict.evidence import Judged, Reason, Verdict
from txnscan.verdict.join import Judge, JudgeBatch

NOW_MS = 1_700_003_600_000
CONFIG = ScanConfig("simulated:9092", topic=("[^_].*",))
_COORDINATOR_APIS = ("DescribeTransactions", "ListTransactions")
_PROBE = "probe-"

# Makes events happen during a sweep: called before each answer, with the number of answers so far, and the request.
Pilot = Callable[["Simulation", int, int, Any], None]


def nothing_happens(simulation: Simulation, point: int, broker_id: int, request: Any) -> None:
    """No events."""


@dataclass
class Simulation:
    """A world that answers the requests of a sweep.

    turns: the order in which brokers answer parallel requests; None for sequential answers. With keeps_worlds, it
    stores copies of the world. asked_worlds: when coordinators were asked. claim_worlds: when brokers were asked for
    claims, by listing and describing the ids in a transaction. last_asked: when each coordinator last showed the state
    of an id.
    """

    world: World
    pilot: Pilot = nothing_happens
    turns: Turns | None = None
    keeps_worlds: bool = False
    point: int = 0
    asked_worlds: list[World] = field(default_factory=list)
    claim_worlds: list[World] = field(default_factory=list)
    last_asked: dict[int, World] = field(default_factory=dict)
    _have_listed: set[int] = field(default_factory=set)

    def send(self, broker_id: int, request: Any) -> Any:
        """The answer, after the events before it."""
        if self.turns is not None:
            self.turns.hand_over()
        asked = abs(broker_id)  # a bootstrap server is numbered below zero
        self.pilot(self, self.point, asked, request)
        self.point += 1
        if self.keeps_worlds and api_name(request) in _COORDINATOR_APIS:
            copy = self.world.copy()
            self.asked_worlds.append(copy)
            if self._shows_ids(request):
                self.last_asked[asked] = copy
            if self._asks_for_claims(asked, request):
                self.claim_worlds.append(copy)
        return answer(self.world, asked, request)

    def _shows_ids(self, request: Any) -> bool:
        """Whether the answer shows the state of an id, not only the absence of a random id."""
        names = getattr(request, "transactional_ids", None)
        return names is None or any(name in self.world.producers for name in names)

    def _asks_for_claims(self, broker_id: int, request: Any) -> bool:
        """Whether this asks for claims: a listing of ids in a transaction, or the description after it."""
        if api_name(request) == "ListTransactions":
            self._have_listed.discard(broker_id)
            if request.state_filters:
                self._have_listed.add(broker_id)
            return broker_id in self._have_listed
        if broker_id not in self._have_listed or any(map(_is_probe, request.transactional_ids)):
            return False
        self._have_listed.remove(broker_id)
        return True

    def sleep(self, seconds: float) -> None:
        """Time does not pass here."""

    def learn(self, brokers: Iterable[Broker]) -> None:
        """Addresses have no meaning here."""


def _is_probe(transactional_id: str) -> bool:
    return transactional_id.startswith(_PROBE)


@dataclass(frozen=True)
class SimulatedConnect:
    """Replaces `ClientFactory`."""

    simulation: Simulation
    brokers: tuple[Broker, ...] = ()
    settings: ConnectionSettings = field(default_factory=ConnectionSettings)

    def for_controller(self) -> SimulatedConnect:
        """See ClientFactory."""
        return self

    def client(self) -> Simulation:
        """The simulated brokers."""
        return self.simulation

    def close(self) -> None:
        """There are no connections to close."""


class SimulatedEngine(ThreadsEngine):
    """Reads and judges with the real functions, in order."""

    def __init__(self, simulation: Simulation, now_ms: int = NOW_MS) -> None:
        super().__init__(threads=1)
        self.simulation = simulation
        self._now_ms = now_ms

    def map(
        self,
        function: Callable[[Batch], Iterable[Row]],
        batches: Sequence[Batch],
        row_type: type[Row],
        on_progress: OnProgress,
    ) -> list[Row]:
        """See Engine."""
        if isinstance(function, ReadProven):
            return self.read_proven(batches, function.how)  # type: ignore[arg-type, return-value]
        if isinstance(function, Judge):
            return self.judge(batches, function)  # type: ignore[arg-type, return-value]
        if row_type is OffsetsRow:
            # No verdict depends on these.
            return []
        if row_type is LogRow:
            return [row for batch in batches for row in read_log(batch, self.simulation.send)]  # type: ignore[arg-type, misc]
        return [read_wide(batch, self.simulation.send) for batch in batches]  # type: ignore[arg-type, misc]

    def judge(self, batches: Sequence[JudgeBatch], judge: Judge) -> list[Judged]:
        """The verdicts."""
        return [judged for batch in batches for judged in judge(batch)]

    def read_proven(self, batches: Sequence[ReadBatch], how: ProvenReading) -> list[ProvenRow]:
        """The proven reads of a sweep."""
        return [row for batch in batches for row in how(batch, self.simulation.send, lambda: self._now_ms)]


class SimulatedCluster(Cluster):
    """The driver's view of the simulated brokers."""

    def __init__(self, simulation: Simulation) -> None:
        bootstrap = tuple(Broker(-b, "simulated", 9000 + b) for b in sorted(simulation.world.brokers))
        numbers = count()
        super().__init__(
            SimulatedConnect(simulation, bootstrap),  # type: ignore[arg-type]
            threads=0,
            sleep=simulation.sleep,
            random_token=lambda: f"{_PROBE}{next(numbers)}",
        )
        self._simulation = simulation
        self._turns = simulation.turns

    def concluded(
        self, answers: Iterable[CoordinatorAnswers], before: AgreedMetadata, after: AgreedMetadata
    ) -> CoordinatorListing:
        """See Cluster."""
        return self.believed(super().concluded(answers, before, after))

    def ask_coordinators(
        self, before: AgreedMetadata, open_topics: Mapping[int, frozenset[str]], on_progress: OnProgress
    ) -> list[CoordinatorAnswers]:
        """See Cluster."""
        # The answers of an earlier attempt no longer count.
        self._simulation.asked_worlds.clear()
        return super().ask_coordinators(before, open_topics, on_progress)

    def believed(self, snapshot: CoordinatorListing) -> CoordinatorListing:
        """The snapshot as the sweep uses it: unchanged. Subclasses weaken it."""
        return snapshot

    def in_parallel(
        self, call: Callable[[Item], Result], items: Iterable[Item], on_progress: OnProgress | None = None
    ) -> list[Result]:
        """See Cluster."""
        if self._turns is None:
            return super().in_parallel(call, items, on_progress)
        return self._turns.in_parallel(call, items)


class _Watching(NoHistory):
    """A history with old open incidents on these partitions."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._incidents = {TransactionKey(topic, "", index, -1, -1): Incident(NOW_MS) for topic, index in keys}

    def unresolved(self, cluster_id: str) -> Callable[[], Incidents]:
        """See History."""
        return lambda: self._incidents


def sweep(
    simulation: Simulation,
    cluster_class: type[SimulatedCluster] = SimulatedCluster,
    engine_class: type[SimulatedEngine] = SimulatedEngine,
    history: ScanHistory | None = None,
    reads_log: bool = True,
    sweep_id: str = "simulated",
    now_ms: int = NOW_MS,
) -> Scan:
    """A sweep of the simulated cluster. now_ms: the time of the scanner's clock. Raises ClusterUnreachable if no broker
    answers.
    """
    return scan(
        Run(
            CONFIG,
            cluster_class(simulation),
            engine_class(simulation, now_ms),
            sweep_id=sweep_id,
            now_ms=lambda: now_ms,
            history=history if history is not None else _Watching(simulation.world.scenario.watched),
            progress=_unwatched,
            reads_log=reads_log,
        )
    )


def _unwatched(stage: str, done: int, total: int) -> None:
    """Ignores progress."""


# --- verdicts against the truth ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wrong:
    """A verdict that the truth contradicts. torn: its outcome is wrong. mistaken: its incident is wrong."""

    key: Key
    producer_id: int
    start_offset: int
    verdict: str
    reason: str
    why: str
    torn: bool = False
    mistaken: bool = False


def accused(found: Scan) -> list[Judged]:
    """The transactions that a sweep reports as hanging."""
    return [judged for judged in found.transactions if judged.judgement.verdict is Verdict.HANGING]


def _identity(judged: Judged) -> tuple[Key, int, int]:
    o = judged.observation
    return ((o.topic, o.partition), o.producer_id, o.start_offset)


def false_accusations(found: Scan, asked_worlds: Sequence[World], end: World) -> list[Wrong]:
    """False accusations: some coordinator would have ended the transaction.

    An orphan must hang forever. For the other reasons a transactional id is known, and its producer may add the
    partition a moment later and then end the transaction. So such a transaction must have hung at some moment when
    coordinators were asked.
    """
    suspects = accused(found)
    if not suspects:
        return []
    now = hanging(end)
    wrong = []
    for judged in suspects:
        identity = _identity(judged)
        if identity in now:
            continue
        if judged.judgement.reason != "orphan" and any(identity in hanging(world) for world in asked_worlds):
            continue
        wrong.append(_wrong(judged, "a coordinator would have ended it"))
    return wrong


def torn(found: Scan, end: World) -> list[Wrong]:
    """The transactions with outcomes that the truth contradicts."""
    certain = ("committed", "not_committed", "mixed")
    decided = [judged for judged in found.transactions if judged.outcome in certain]
    future = settled(end) if decided else end
    wrong = [judged for judged in decided if not _right(judged, future)]
    return [replace(_wrong(judged, "its transaction was decided otherwise"), torn=True) for judged in wrong]


def _right(judged: Judged, future: World) -> bool:
    """Whether a marker of this outcome would be right: a COMMIT must show no uncommitted data, and an ABORT must drop
    no committed data. For `mixed`, both kinds of data must exist.

    Only data below the high watermark of the last read counts. Later data has another epoch, at which a partition no
    longer accepts this marker (ProducerAppendInfo.checkProducerEpoch); and apply reads the partition again before it
    sends a marker.
    """
    read_up_to = judged.observation.second.high_watermark
    key, producer_id, start_offset = _identity(judged)
    open_data = _open_at(future, key, producer_id, start_offset, read_up_to)
    if judged.endangers_commit:
        # Its outcome is that of the first records. The live transaction is not decided.
        first = min((data.producer_epoch for data in open_data), default=None)
        open_data = {data for data in open_data if data.producer_epoch == first}
    known = {future.was_committed(key, data) for data in open_data}
    # If data cannot be distinguished from committed data (None), a COMMIT may be right or wrong.
    right = {
        "committed": known <= {True, None},
        "not_committed": True not in known,
        "mixed": True in known and known != {True},
    }
    return right[str(judged.outcome)]


def mistaken(found: Scan, end: World) -> list[Wrong]:
    """Transactions that continue the incident of an earlier transaction, although a marker had ended it before."""
    return [
        replace(_wrong(judged, "it goes on with the incident of another transaction"), mistaken=True)
        for judged in found.transactions
        if judged.observation.incident_offset is not None and not _is_one(end, judged.observation)
    ]


def closed_too_early(found: Scan, incidents: Incidents, end: World) -> list[Wrong]:
    """Incidents that a sweep reports as over, although no marker ended them and their producer id is still open, on the
    true leader or on a replica that a clean election may make the leader: its log has no marker of it behind the first
    record, deleted records included. Only the true leader counts if its log begins later than the transaction: others
    may have a state of records that are deleted there, and nothing shows a sweep which.
    """
    wrong = []
    for which in found.over(incidents):
        now = end.leadership(end.image, which.key)
        is_whole = now.leader != NOBODY and end.log_starts[which.key, now.leader] <= which.start_offset
        electable = {now.leader} | (now.isr if is_whole else frozenset())
        logs = [end.logs[which.key, b] for b in electable if b != NOBODY]
        if any(_goes_on(log, which.producer_id, which.start_offset) for log in logs):
            why = "its incident is over, and no marker ended it"
            wrong.append(Wrong(which.key, which.producer_id, which.start_offset, "", "", why, mistaken=True))
    return wrong


def _goes_on(log: Log, producer_id: int, start_offset: int) -> bool:
    """Whether a replica shows this transaction open, and no marker ended it."""
    ours = [r for _, r in with_beginning(log)[start_offset:] if r and r[0] == producer_id]
    is_open = bool(ours) and isinstance(ours[0], Data) and producer_id in still_open(log)
    return is_open and not any(isinstance(record, Marker) for record in ours)


def _is_one(world: World, o: Observation) -> bool:
    """Whether no marker is between the first record of the incident and the first record of the open transaction.

    The open transaction was read on a leader, below its high watermark.
    """
    logs = (with_beginning(world.logs[(o.topic, o.partition), b]) for b in world.places[o.topic, o.partition])
    between = [record for log in logs for _, record in log[o.incident_offset : o.start_offset]]
    return not any(isinstance(record, Marker) and record.producer_id == o.producer_id for record in between)


def _open_at(world: World, key: Key, producer_id: int, start_offset: int, behind: int | None) -> set[Data]:
    """The data on any replica from this offset to the marker that ends it, or to offset `behind`."""
    found = set()
    for replica in world.places[key]:
        for _, record in with_beginning(world.logs[key, replica])[start_offset:behind]:
            if isinstance(record, Marker) and record.producer_id == producer_id:
                break
            if isinstance(record, Data) and record.producer_id == producer_id:
                found.add(record)
    return found


def something_open(world: World) -> bool:
    """Whether some replica shows an open transaction."""
    topics = world.scenario.topics
    return any(still_open(world.logs[key, b]) for key, replicas in topics for b in replicas)


def overlooked(end: World) -> list[Wrong]:
    """Transactions that hang in this world, but that a sweep at rest does not report. At rest, every broker is back,
    and every coordinator has done its work. Then only hanging transactions are open, and one sweep must report all of
    them.

    A coordinator whose marker is permanently refused stays in Prepare* forever. A sweep cannot know that: the verdict
    on an open transaction is `pending_marker` (stuck) if such a coordinator lists its partition, else `indeterminate`
    (decided), with advice. If `__transaction_state` lost records, any transaction may be `indeterminate` or `stuck`,
    but none is left out.
    """
    # If an id is hidden, visibility does not hold, so the sweep promises no complete report. The same is true if a
    # coordinator has loaded a part of its log: it may write at an epoch that is over.
    if end.scenario.hidden or "partial load" in end.scenario.faults or not something_open(end):
        return []
    calm = settled(end)
    left = {
        (key, producer_id, start_offset)
        for key, _ in calm.scenario.topics
        for producer_id, start_offset in open_in(calm, key).items()
    }
    if not left:
        return []
    found = sweep(Simulation(calm))
    stuck = [judged for judged in found.transactions if _is_left_to_a_decision(judged, calm)]
    unended = (Verdict.INDETERMINATE, Verdict.PENDING_MARKER)
    doubtful = [judged for judged in found.transactions if judged.judgement.verdict in unended]
    stuck += doubtful if LOST_LOG_END in end.scenario.faults else []
    named = {_identity(judged) for judged in (*accused(found), *stuck)}
    return [Wrong(*identity, "", "", "it hangs, and a sweep at rest did not say so") for identity in left - named]


def _is_left_to_a_decision(judged: Judged, calm: World) -> bool:
    """Whether some coordinator stays in Prepare* with this producer id, and the verdict is `decided`, or `stuck` if it
    lists the partition and a partition refused its marker.
    """
    o, said = judged.observation, (judged.judgement.verdict, judged.judgement.reason)
    ours = [held for held in calm.held.values() if held.metadata.state in ("PrepareCommit", "PrepareAbort")]
    ours = [held for held in ours if held.metadata.producer_id == o.producer_id]
    if said == (Verdict.PENDING_MARKER, Reason.STUCK):
        return any(not held.sending and o.key in held.metadata.partitions for held in ours)
    return bool(ours) and said == (Verdict.INDETERMINATE, Reason.DECIDED)


def missed(found: Scan, begun: World, end: World) -> list[Wrong]:
    """Transactions that hung, open on the leader, before a complete sweep and after it, but that the sweep did
    not see.
    """
    if not found.complete:
        return []
    seen = {_identity(judged)[:2] for judged in found.transactions}
    return [
        Wrong(key, producer_id, start, "", "", "it hung all the while, and a complete sweep did not see it")
        for key, producer_id, start in hanging(begun) & hanging(end)
        if (key, producer_id) not in seen
        if start in (open_in(begun, key).get(producer_id), open_in(end, key).get(producer_id))
        if producer_id in open_in(begun, key) and producer_id in open_in(end, key)
    ]


def held_in_vain(found: Scan, begun: World, claim_worlds: Sequence[World], end: World) -> list[Wrong]:
    """Transactions that hung when all brokers were asked for claims, but whose claimant, which will not end them, kept
    them from the proof.

    Some of these claims are no error. Late data between a marker and its acknowledgement hangs, and its coordinator
    claims it for a moment longer. A deposed coordinator claims in a sweep that began before any broker learned of the
    change, and a re-elected one until it learns of that and loads its log. A broker that knows no live broker does not
    count: a sweep, like every client, treats its Metadata as a failure.
    """
    held = [judged for judged in found.transactions if judged.observation.first.failure == CLAIMED]
    now = hanging(end) if held else frozenset()
    return [
        Wrong(*_identity(judged), "", "", "it hangs, and a coordinator that will not end it kept it from the proof")
        for judged in held
        if _identity(judged) in now
        and all(_identity(judged) in hanging(w) and not _is_held(w, begun, *_identity(judged)) for w in claim_worlds)
    ]


def _is_held(world: World, begun: World, key: Key, producer_id: int, start_offset: int) -> bool:
    """Whether a valid coordinator of some id claims the partition for this producer id. Valid: it leads the id's log at
    the latest leader epoch that any broker knows, or knew when the sweep began; or it will load the log again as its
    leader.
    """
    for (broker_id, name), held in world.held.items():
        log = (TRANSACTION_STATE_TOPIC, world.coordinator_of(name))
        now = world.leadership(world.image, log)
        served = world.coordinators[broker_id, world.coordinator_of(name)]
        elected_anew = now.leader == broker_id and served.epoch < now.epoch
        if (
            (elected_anew or broker_id in (_latest_leader(world, log), _latest_leader(begun, log)))
            and held.metadata.producer_id == producer_id
            and key in held.metadata.partitions
        ):
            return not held.metadata.state.startswith("Complete")
    return False


def _latest_leader(world: World, log: Key) -> int:
    """The leader at the latest leader epoch that a broker knows which knows a live broker."""
    up = (broker.metadata for broker_id, broker in world.brokers.items() if world.up(broker_id))
    named = (world.leadership(image, log) for image in up if image.brokers)
    return max(((led.epoch, led.leader) for led in named), default=(0, NOBODY))[1]


def _wrong(judged: Judged, why: str) -> Wrong:
    judgement = judged.judgement
    return Wrong(*_identity(judged), judgement.verdict.value, judgement.reason.value, why)
