"""A sweep that runs out of time may miss transactions and never invents a verdict.

The clock of these deadlines counts requests: the time runs out in each stage, before each request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, cast

import pytest

from tests.cases import Cases
from tests.fakes.cluster import FakeId, FakePartition, broker, last_offset, producer
from tests.fakes.groups import FakeGroup, FakeGroups
from tests.fakes.transaction_log import history, id_for
from tests.sim.encode import batch
from tests.sim.history import NOW_MS, SimulatedCluster, Simulation
from tests.sim.history import sweep as simulated_sweep
from tests.sim.scenarios import DELETED, DELETED_V1, NEW_REPLICA, P, opened, torn_commit
from tests.sim.table import Event
from tests.sim.transitions import happen, settle
from txnscan import ScanConfig
from txnscan.coordinators.cluster import Cluster, ClusterUnreachable
from txnscan.engine.threads import ThreadsEngine
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.deadline import Deadline, TimeLeft
from txnscan.kafka.client.factory import ClientFactory
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC as STATE
from txnscan.kafka.topology import Broker
from txnscan.reads.observation import TransactionKey
from txnscan.sweeps.history import Incident, Incidents, NoHistory
from txnscan.sweeps.pipeline import scan
from txnscan.sweeps.result import Scan
from txnscan.sweeps.state import Run
from txnscan.verdict.evidence import Verdict
from txnscan.waiting.complete_up_to import Completeness

COMMITTED, ORPHAN, ONGOING, GOES_ON = 7, 8, 9, 11
SWEEP_MS = 1_700_000_100_000
# Open at the last sweep. Since then: ended, another first record, or topic deleted.
INCIDENTS: Mapping[TransactionKey, Incident] = {
    TransactionKey("ended", "", 0, 10, 100): Incident(SWEEP_MS - 1_000, producer_epoch=3, last_sequence=4),
    TransactionKey("goes-on", "", 0, GOES_ON, 100): Incident(SWEEP_MS - 1_000, producer_epoch=3, last_sequence=9),
    TransactionKey("deleted", "", 0, 12, 100): Incident(SWEEP_MS - 1_000, producer_epoch=3, last_sequence=4),
}
STAGES = [
    *("plan", "read every partition", "ask who claims them", "first read", "ask coordinators", "second read"),
    *("complete up to", "judge", "read decisions", "ask who waits"),
]


def requests_answered(clock: Callable[[], int], requests: int | None) -> Deadline:
    """A deadline after this number of requests from now on, if given."""
    if requests is None:
        return Deadline()
    left = TimeLeft(10**15, requests * 1_000, requests * 1_000)
    return Deadline(left, monotonic_s=lambda: float(clock()), now_ms=lambda: 0)


class Brokers(FakeGroups):
    """Three brokers with a transaction of each kind, incidents, a transaction log, and a waiting group."""

    def __init__(self) -> None:
        super().__init__({1: {"waits": FakeGroup(committed={("orphan", 0): 100})}}, brokers=(1, 2, 3))
        self.deadline = Deadline()
        self.config["transaction.max.timeout.ms"] = "900000"
        self.partitions["p", 0].producers = [producer(COMMITTED)]
        self._open("orphan", 2, ORPHAN)
        self._open("ongoing", 3, ONGOING)
        self._open("goes-on", 3, GOES_ON, 105)
        self.partitions["goes-on", 0].log_start = 103
        self.lead("ended", [2])
        self.lead(STATE, [1, 2, 3])
        for k in range(3):
            self.partitions[STATE, k].high_watermark = 0
        self._own(0, COMMITTED, FakeId(COMMITTED, 3, "CompleteCommit"))
        self._own(1, ONGOING, FakeId(ONGOING, 3, "Ongoing", (("ongoing", 0),)))
        for one in history(id_for(0), COMMITTED):
            log = self.partitions[STATE, 0]
            log.write(batch(log.high_watermark, [one]))

    def _open(self, topic: str, leader: int, producer_id: int, offset: int = 100) -> None:
        data = batch(offset, 5 * [(None, b"value")], producer_id=producer_id, producer_epoch=3, base_sequence=5)
        self.partitions[topic, 0] = held = FakePartition(leader, producers=[producer(producer_id, offset)])
        held.log, held.high_watermark = [data], last_offset(data) + 1

    def _own(self, k: int, producer_id: int, held: FakeId) -> None:
        self.ids.setdefault(k + 1, {})[id_for(k)] = held

    def send(self, broker_id: int, request: Any) -> Any:
        self.deadline.check()
        return super().send(abs(broker_id), request)

    def learn(self, brokers: Iterable[Broker]) -> None:
        """Ignores addresses."""


@dataclass(frozen=True)
class ConnectToFake:
    """Stands in for ClientFactory."""

    fake: Brokers
    brokers: tuple[Broker, ...] = (broker(-1),)
    settings: ConnectionSettings = field(default_factory=ConnectionSettings)
    time_left: TimeLeft | None = None

    def for_controller(self) -> ConnectToFake:
        return self

    def client(self) -> Brokers:
        return self.fake

    def close(self) -> None:
        """Has no connections to close."""


class Remembers(NoHistory):
    """The incidents of earlier sweeps."""

    def unresolved(self, cluster_id: str) -> Callable[[], Incidents]:
        return lambda: INCIDENTS


@dataclass(frozen=True)
class Cut:
    """A sweep, if it found a broker. stage: of its last request. requests: how many it sent."""

    found: Scan | None
    stage: str
    requests: int


def cut(requests: int | None) -> Cut:
    """A sweep with time for this number of requests."""
    fake = Brokers()
    fake.deadline = requests_answered(lambda: len(fake.asked), requests)
    stages, slept_s = ["plan"], list[float]()

    def progress(stage: str, done: int, total: int) -> None:
        if not fake.deadline.missed:
            stages.append(stage)

    found: Scan | None = None
    factory = cast(ClientFactory, ConnectToFake(fake))
    try:
        with Cluster(factory, threads=0, deadline=fake.deadline, sleep=slept_s.append) as cluster:
            found = scan(
                Run(
                    ScanConfig("fake:9092", late_after_ms=1_000, complete_up_to=("ended", "orphan")),
                    cluster,
                    ThreadsEngine(1),
                    sweep_id="sweep",
                    now_ms=lambda: SWEEP_MS,
                    history=Remembers(),
                    progress=progress,
                    reads_impact=True,
                )
            )
    except ClusterUnreachable:
        assert fake.deadline.missed
    if fake.deadline.missed:
        assert sum(slept_s) < 1, "after the end nothing is waited for"
    return Cut(found, stages[-1], len(fake.asked))


def verdicts(found: Scan) -> dict[tuple[str, int], tuple[Verdict, bool, str | None]]:
    """By topic and producer id: the verdict, whether the transaction is a candidate, and the outcome."""
    return {
        (j.observation.topic, j.observation.producer_id): (j.judgement.verdict, j.candidate, j.outcome)
        for j in found.transactions
    }


def check_cut(found: Scan, whole: Scan, incidents: Incidents) -> None:
    """Each verdict equals the whole sweep's or is `indeterminate`. A closed incident is closed there, too."""
    expected = verdicts(whole)
    for which, judged in verdicts(found).items():
        assert judged[0] is Verdict.INDETERMINATE or judged == expected[which], which
        assert not (judged[1] and judged[0] is Verdict.INDETERMINATE), which
    assert found.over(incidents).items() <= whole.over(incidents).items()
    for read, in_whole in zip(found.topic_reads, whole.topic_reads, strict=True):
        assert read.status is Completeness.NOT_OBSERVED or read == in_whole
    if found.complete:
        assert (verdicts(found), found.impacts) == (expected, whole.impacts)
        assert (found.outcome_evidence.keys(), found.over(incidents)) == (
            whole.outcome_evidence.keys(),
            whole.over(incidents),
        )


def test_the_whole_sweep_is_complete() -> None:
    found = cut(None).found
    assert found is not None and found.complete and not found.errors
    assert verdicts(found) == {
        ("p", COMMITTED): (Verdict.HANGING, True, "maybe_committed"),
        ("orphan", ORPHAN): (Verdict.HANGING, True, "unknown"),
        ("goes-on", GOES_ON): (Verdict.HANGING, True, "unknown"),
        ("ongoing", ONGOING): (Verdict.ONGOING, False, None),
    }
    assert sorted(which.topic for which in found.over(INCIDENTS)) == ["deleted", "ended"]
    assert [(read.topic, read.status.value) for read in found.topic_reads] == [
        ("ended", "complete"),
        ("orphan", "blocked"),
    ]
    # The live transaction is older than a quarter of --late-after, so it has an impact too.
    of_live = found.impacts[next(one for one in found.impacts if one.topic == "ongoing")]
    assert of_live.cause is None and len(found.blocking) == 1
    assert sorted(impact.groups_blocked or 0 for impact in found.impacts.values()) == [0, 0, 0, 1]


def test_a_sweep_cut_short_reports_no_verdict_that_the_whole_sweep_contradicts() -> None:
    whole = cut(None)
    assert whole.found is not None
    stages: dict[str, int] = {}
    with Cases() as cases:
        for requests in range(whole.requests):
            with cases.case(f"time for {requests} requests"):
                one = cut(requests)
                stages[one.stage] = stages.get(one.stage, 0) + 1
                assert one.requests == requests
                if one.found is None:
                    assert one.stage == "plan"
                else:
                    assert not one.found.complete
                    assert [e.stage for e in one.found.errors].count("timeout") == 1
                    check_cut(one.found, whole.found, INCIDENTS)
    assert list(stages) == STAGES, "the time was up in each stage"


def test_a_sweep_with_enough_time_is_complete() -> None:
    whole = cut(None)
    found = cut(whole.requests + 1).found
    assert found is not None and whole.found is not None and found.complete
    check_cut(found, whole.found, INCIDENTS)


def test_a_task_carries_the_remaining_time() -> None:
    fake = Brokers()
    factory = cast(ClientFactory, ConnectToFake(fake))
    for requests, expected in ((None, None), (60, TimeLeft(60_000, 60_000, 60_000))):
        deadline = requests_answered(lambda: len(fake.asked), requests)
        with Cluster(factory, threads=0, deadline=deadline) as cluster:
            assert cluster.clients.time_left == expected


class CutSimulation(Simulation):
    """Simulated brokers that answer until the time is up."""

    deadline = Deadline()

    def send(self, broker_id: int, request: Any) -> Any:
        self.deadline.check()
        return super().send(broker_id, request)


class CutCluster(SimulatedCluster):
    """The driver's view of them."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self.deadline = cast(CutSimulation, simulation).deadline

    @property
    def clients(self) -> ClientFactory:
        """See Cluster. All reads are made here."""
        return self._clients


# Histories that end with hanging transactions or with decided ones.
OPENINGS: tuple[tuple[Any, tuple[Event, ...]], ...] = (
    (DELETED, (*torn_commit(2, 3), ("delete records", (P, 2, 2)), *NEW_REPLICA)),
    (DELETED_V1, (*torn_commit(1, 3), ("delete records", (P, 2, 2)), *NEW_REPLICA)),
    (DELETED, torn_commit(2, 3)),
    (DELETED_V1, torn_commit(1, 3)),
)


def test_simulated_histories_cut_short_have_no_false_verdicts() -> None:
    with Cases() as cases:
        for (scenario, opening), number in zip(OPENINGS, count(), strict=False):
            world = opened(scenario)
            for event in opening:
                happen(world, event)
                settle(world, ("fetch", "complete transition"))
            whole = Simulation(world.copy())
            expected = simulated_sweep(whole)
            assert any(j.judgement.verdict is Verdict.HANGING for j in expected.transactions), number
            for requests in range(whole.point):
                with cases.case(f"history {number}, {requests} requests"):
                    simulation = CutSimulation(world.copy())
                    simulation.deadline = requests_answered(lambda at=simulation: at.point, requests)  # type: ignore[misc]
                    try:
                        found = simulated_sweep(simulation, CutCluster, now_ms=NOW_MS)
                    except ClusterUnreachable:
                        continue
                    assert not found.complete
                    check_cut(found, expected, {})


def test_an_executor_ends_at_the_earlier_of_two_ends() -> None:
    table = (
        ("clocks agree", 10_000, 10_000, 0, 10.0),
        ("its clock is ahead", 10_000, 10_000, 4_000, 6.0),
        ("its clock is behind", 10_000, 10_000, -60_000, 10.0),
        ("its clock is past the end", 10_000, 10_000, 60_000, 0.0),
        ("it began late", 10_000, 10_000, 3_000, 7.0),
    )
    with Cases() as cases:
        for name, ends_at_ms, left_ms, now_ms, expected_s in table:
            with cases.case(name):
                left = TimeLeft(ends_at_ms, left_ms, 60_000)
                deadline = Deadline(left, monotonic_s=lambda: 100.0, now_ms=partial(int, now_ms))
                assert deadline.left_s == pytest.approx(expected_s)
                assert deadline.is_up is (expected_s == 0)
