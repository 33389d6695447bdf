"""A peer that names thousands of brokers, or ever new ones: the work grows with their number and not faster, and ends.

The work is the number of Python calls in txnscan. It is the same on a busy machine.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, cast

import pytest
from kafka.protocol.admin import DescribeClusterResponse

from tests.cases import Cases
from tests.fakes.cluster import FakeCluster, FakePartition, broker, no_progress, one_by_one, producer
from tests.fakes.groups import FakeGroups
from txnscan import ScanConfig
from txnscan.coordinators import cluster as cluster_module
from txnscan.coordinators import coordinator_listing
from txnscan.coordinators.agreed_metadata import NOT_ASKED, ROUNDS_MAX, AgreedMetadata, read_all_views
from txnscan.coordinators.cluster import Cluster, ClusterUnreachable
from txnscan.coordinators.metadata_image import read_latest
from txnscan.engine.threads import ThreadsEngine, in_lanes
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.deadline import Deadline, TimeLeft
from txnscan.kafka.client.factory import ClientFactory
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import FailureCode, Unobserved
from txnscan.kafka.protocol.frames import AsBytes, api_name
from txnscan.kafka.protocol.metadata import MetadataRound
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC as STATE
from txnscan.kafka.topology import Broker, ClusterView
from txnscan.parallel import as_finished
from txnscan.sweeps.history import NoHistory
from txnscan.sweeps.pipeline import scan
from txnscan.sweeps.preflight import check_cluster
from txnscan.sweeps.state import Run

NOW_MS = 1_700_000_100_000
FEW, MANY = 100, 400
# For four times as many brokers. A part that grows with their square makes it more.
GROWTH_MAX = 4.2


class Crowd(FakeGroups):
    """Brokers 1, 2, ... of which each leads a partition. answering: brokers 1 to this one; all others refuse."""

    def __init__(self, brokers: int, answering: int) -> None:
        super().__init__({}, brokers=range(1, brokers + 1))
        self.config["transaction.max.timeout.ms"] = "900000"
        self.answering = answering
        self.deadline = Deadline()
        self.lead("t", self.brokers)
        self.lead(STATE, [1])
        self.partitions["t", 0].producers = [producer(7)]
        self._encoded: dict[object, Any] = {}

    def send(self, broker_id: int, request: Any) -> Any:
        self.deadline.check()
        broker_id = abs(broker_id)
        if broker_id > self.answering:
            self.asked.append((broker_id, api_name(request)))
            raise RequestFailed(f"broker {broker_id} cannot be reached", FailureCode.UNREACHABLE)
        if api_name(request) != "Metadata" or not isinstance(request, AsBytes):
            return super().send(broker_id, request)
        # All of them give the same answer. It is encoded once. The text of AsBytes itself has only its address, which
        # the next request may get.
        what = str(request.request)
        if what in self._encoded:
            self.asked.append((broker_id, api_name(request)))
        else:
            self._encoded[what] = super().send(broker_id, request)
        return self._encoded[what]

    def learn(self, brokers: Iterable[Broker]) -> None:
        """Ignores addresses."""

    def _answer_DescribeCluster(self, broker_id: int, request: Any) -> Any:
        return DescribeClusterResponse(error_code=0, authorized_operations=[])


@dataclass(frozen=True)
class ConnectTo:
    """Stands in for ClientFactory."""

    fake: Any
    brokers: tuple[Broker, ...] = (broker(-1),)
    settings: ConnectionSettings = field(default_factory=ConnectionSettings)
    time_left: TimeLeft | None = None

    def for_controller(self) -> ConnectTo:
        return self

    def client(self) -> Any:
        return self.fake

    def close(self) -> None:
        """Has no connections to close."""


def cluster_of(fake: Any, deadline: Deadline | None = None, threads: int = 0) -> Cluster:
    return Cluster(cast(ClientFactory, ConnectTo(fake)), threads=threads, deadline=deadline, sleep=lambda _: None)


def sweep(fake: Crowd) -> None:
    with cluster_of(fake, fake.deadline) as cluster:
        scan(
            Run(
                ScanConfig("fake:9092", late_after_ms=1_000),
                cluster,
                ThreadsEngine(1),
                sweep_id="sweep",
                now_ms=lambda: NOW_MS,
                history=NoHistory(),
                progress=lambda stage, done, total: None,
                reads_impact=True,
            )
        )


def check(fake: Crowd) -> None:
    with cluster_of(fake, fake.deadline) as cluster:
        assert list(check_cluster(cluster, cluster.latest(), lambda: NOW_MS))


def calls(run: Callable[[], object]) -> int:
    """The number of calls of Python functions of txnscan, with the methods that dataclasses generate."""
    count = 0

    def counted(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        if event == "call" and ("/txnscan/" in frame.f_code.co_filename or frame.f_code.co_filename == "<string>"):
            count += 1

    sys.setprofile(counted)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def after(requests: int) -> Callable[[Crowd], None]:
    """Ends the time of a crowd's sweep after this number of requests."""

    def limit(fake: Crowd) -> None:
        left = TimeLeft(10**15, requests * 1_000, requests * 1_000)
        fake.deadline = Deadline(left, monotonic_s=lambda: float(len(fake.asked)), now_ms=lambda: 0)

    return limit


def test_the_work_grows_with_the_number_of_brokers_and_not_faster() -> None:
    with Cases() as cases:
        for name, run in (("find-hanging", sweep), ("check", check)):
            for behaviour, answering in (("refuse", lambda n: 1), ("answer", lambda n: n)):
                # All of the time, and until each broker was asked about once.
                for time, limit in (("all the time", lambda n: 10**9), ("time for one round", lambda n: n + 8)):
                    with cases.case(f"{name}: brokers that {behaviour}, {time}"):
                        work = []
                        for brokers in (FEW, MANY):
                            fake = Crowd(brokers, answering(brokers))
                            after(limit(brokers))(fake)
                            work.append(calls(lambda: run(fake)))  # noqa: B023
                            if time == "time for one round":
                                assert fake.deadline.missed
                        assert work[1] / work[0] < GROWTH_MAX, work


class Walked(tuple[ClusterView, ...]):
    """Views that count how often all of them are walked."""

    times = 0

    def __iter__(self) -> Iterator[ClusterView]:
        type(self).times += 1
        return super().__iter__()


def test_the_view_of_each_broker_is_found_without_a_search() -> None:
    agreed = AgreedMetadata(Walked(ClusterView(n, "c", (), ()) for n in range(1_000)), ())
    for number in range(1_000):
        view = agreed.view_of(number)
        assert view is not None and view.answered_by == number
    assert agreed.view_of(1_000) is None
    assert Walked.times == 1


class Pool(ThreadPoolExecutor):
    """Counts its tasks."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.tasks = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.tasks += 1
        return super().submit(fn, *args, **kwargs)


@dataclass(frozen=True)
class Piece:
    """A batch of one lane."""

    lane: int
    size: int = 1


def test_thousands_of_items_are_no_thousands_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task for each broker took a second for each step of a sweep, long after its time limit."""
    pools: list[Pool] = []

    def pool(threads: int, **_: object) -> Pool:
        pools.append(Pool(threads))
        return pools[-1]

    monkeypatch.setattr(cluster_module, "ThreadPoolExecutor", pool)
    monkeypatch.setattr("txnscan.engine.threads.ThreadPoolExecutor", pool)
    with cluster_of(FakeCluster(), threads=4) as cluster:
        assert cluster.in_parallel(lambda n: n * n, range(10_000)) == [n * n for n in range(10_000)]
        assert cluster.in_parallel(str, ()) == []
    found = list(in_lanes(lambda one: [one.lane * 2], [[Piece(n)] for n in range(10_000)], 4))
    assert sorted(rows[0] for _, rows in found) == [n * 2 for n in range(10_000)]
    assert [done for done, _ in found] == [1] * 10_000
    assert [one.tasks for one in pools] == [4, 4]


def test_after_the_time_limit_the_threads_are_not_used() -> None:
    """Each request fails at once, and threads would wait for each other."""
    fake = Crowd(1, 1)
    with cluster_of(fake, Deadline(TimeLeft(10**15, 0, 1_000)), threads=4) as cluster:
        assert cluster._pool is not None
        cluster._pool.shutdown()
        assert cluster.in_parallel(str, range(3)) == ["0", "1", "2"]


@pytest.mark.parametrize("threads", (0, 4))
def test_progress_is_reported_in_the_callers_thread(threads: int) -> None:
    """A callback of a user, which may ask brokers itself, was called by several threads at once."""
    reported: list[tuple[int, int]] = []
    here = threading.get_ident()

    def on_progress(done: int, total: int) -> None:
        assert threading.get_ident() == here
        reported.append((done, total))

    with cluster_of(FakeCluster(), threads=threads) as cluster:
        assert cluster.in_parallel(str, range(5), on_progress) == ["0", "1", "2", "3", "4"]
    assert reported == [(done, 5) for done in range(1, 6)]


def test_an_error_or_an_early_end_of_the_caller_ends_the_calls() -> None:
    asked: list[int] = []
    stopped = threading.Event()

    def ask(number: int) -> int:
        asked.append(number)
        if number == 5:
            raise ValueError
        if number > 6:
            assert stopped.wait(60)
        return number

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(ValueError):
            list(as_finished(pool, 1, ask, range(1_000)))
        assert asked == list(range(6))
        asked.clear()
        for number, result in as_finished(pool, 1, ask, range(6, 1_000)):
            assert (number, result) == (0, 6)
            break
        stopped.set()
    assert asked in ([6], [6, 7])


def test_brokers_that_answer_with_an_image_and_without_metadata_are_tried_in_linear_work() -> None:
    work = []
    for brokers in (FEW, MANY):
        fake = Crowd(brokers, brokers)
        fake.fail_when = lambda broker_id, request, asked: api_name(request) == "Metadata"

        def latest() -> None:
            with pytest.raises(RequestFailed):
                read_latest(fake.send, fake.brokers, MetadataRound(), one_by_one, fake.learn)  # noqa: B023

        work.append(calls(latest))
        assert Counter(name for _, name in fake.asked) == {"ApiVersions": brokers, "Metadata": brokers}
    assert work[1] / work[0] < GROWTH_MAX, work


class EverNew(FakeCluster):
    """Each broker names a broker that no other one names."""

    def __init__(self, kraft: bool) -> None:
        super().__init__((1,))
        self.lead("t", [1])
        self._kraft = kraft
        self.learned: set[int] = set()

    def send(self, broker_id: int, request: Any) -> Any:
        self.brokers = [broker_id, broker_id + 1]
        self.images = {broker_id: broker_id if self._kraft else None}
        return super().send(broker_id, request)

    def learn(self, brokers: Iterable[Broker]) -> None:
        self.learned |= {one.broker_id for one in brokers}


def test_brokers_that_name_ever_new_brokers_are_asked_in_a_few_rounds() -> None:
    """Each broker that was named and not asked is a failure, so nothing is proven."""
    last = ROUNDS_MAX + 1
    with Cases() as cases:
        with cases.case("agreed metadata"):
            fake = EverNew(kraft=False)
            agreed = read_all_views(fake.send, (1,), ["t"], one_by_one, fake.learn)
            assert Counter(fake.asked) == Counter({(n, "Metadata"): 1 for n in range(1, last)})
            assert agreed.errors == (Unobserved("metadata", NOT_ASKED, last),)
        for kraft in (True, False):
            with cases.case(f"latest metadata, {kraft=}"):
                fake = EverNew(kraft)
                latest = read_latest(fake.send, (1,), MetadataRound(["t"]), one_by_one, fake.learn)
                assert len(fake.asked) <= 2 * ROUNDS_MAX + kraft
                assert [(one.broker, one.failure) for one in latest.unreachable()] == [(last, NOT_ASKED)]


def test_all_answers_together_name_a_limited_number_of_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "BROKERS_MAX", 3)
    fake = EverNew(kraft=False)
    with cluster_of(fake) as cluster:
        cluster._learn([broker(1), broker(2)])
        for _ in range(3):
            cluster.agreed_metadata(["t"])
        assert cluster.broker_ids == (1, 2, 3)
        assert fake.learned == {1, 2, 3}
        # A known broker may get another address.
        cluster._learn([broker(2, 5), broker(9)])
        assert cluster._brokers[2].port == 5 and cluster.broker_ids == (1, 2, 3)


class Differing(FakeCluster):
    """Each broker shows another leader epoch."""

    def __init__(self, brokers: int) -> None:
        super().__init__(range(1, brokers + 1))
        self.lead("t", 10 * [1])

    def send(self, broker_id: int, request: Any) -> Any:
        self.lead("t", 10 * [1], epoch=broker_id)
        return super().send(broker_id, request)


def test_different_answers_about_the_same_topics_take_a_limited_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of thousands of brokers could show millions of other partitions."""
    # Six brokers, a topic and its partitions.
    monkeypatch.setattr("txnscan.kafka.protocol.metadata.DIFFERENT_MAX", 3 * (6 * 10 + 11))
    fake = Differing(6)
    agreed = read_all_views(fake.send, fake.brokers, ["t"], one_by_one, lambda brokers: None)
    assert [view.answered_by for view in agreed.views] == [1, 2, 3]
    assert {one.broker: one.failure.code for one in agreed.errors} == dict.fromkeys(
        (4, 5, 6), FailureCode.UNUSABLE_ANSWER
    )
    same = FakeCluster(range(1, 7))
    same.lead("t", 10 * [1])
    agreed = read_all_views(same.send, same.brokers, ["t"], one_by_one, lambda brokers: None)
    assert len(agreed.views) == 6 and not agreed.errors


def test_a_round_of_metadata_forgets_answers_that_are_too_large_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txnscan.kafka.protocol.metadata.DIFFERENT_MAX", 3 * (6 * 10 + 11))
    fake, asked = Differing(6), MetadataRound(["t"])
    most = 0
    for broker_id in fake.brokers:
        assert asked.ask(fake.send, broker_id).topics[0].leader_epochs == (broker_id,) * 10
        most = max(most, len(asked._decoded))
    assert most == 3


def test_a_transaction_log_with_too_many_partitions_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for an id of each partition took minutes, which no time limit ended."""
    for module in (coordinator_listing, cluster_module):
        monkeypatch.setattr(module, "COORDINATOR_PARTITIONS_MAX", 5)
    with Cases() as cases:
        for count, proven in ((5, 5), (6, 0)):
            with cases.case(count):
                fake = Crowd(1, 1)
                fake.lead(STATE, [1] * count)
                made: list[int] = []

                def token() -> str:
                    made.append(1)  # noqa: B023
                    return f"probe-{len(made)}"  # noqa: B023

                with cluster_of(fake) as cluster:
                    cluster.random_token = token
                    cluster.view([])
                    agreed = cluster.agreed_metadata([STATE])
                    snapshot = cluster.coordinator_listing({7: frozenset()}, agreed, no_progress)
                assert (snapshot.coordinators_proven, snapshot.complete) == (proven, proven == count)
                assert bool(made) == (proven == count)
                assert snapshot.coordinators_planned == count
                codes = {one.failure.code for one in snapshot.coverage_errors}
                assert codes == (set() if proven else {FailureCode.NOT_ASKED})


def test_a_sweep_whose_time_is_up_does_not_repeat_the_snapshot() -> None:
    asked: Mapping[str, int]
    with Cases() as cases:
        for time_is_up, expected in ((False, 6), (True, 2)):
            with cases.case(f"{time_is_up=}"):
                fake = Crowd(1, 1)
                fake.cached.clear()
                deadline = Deadline(TimeLeft(10**15, 1_000, 1_000), monotonic_s=lambda: 0.0, now_ms=lambda: 0)
                with cluster_of(fake, deadline) as cluster:
                    cluster.view([])
                    agreed = cluster.agreed_metadata([STATE])
                    fake.asked.clear()
                    if time_is_up:
                        deadline._ends_s = -1.0
                    cluster.coordinator_listing({7: frozenset()}, agreed, no_progress)
                asked = Counter(name for _, name in fake.asked)
                assert asked["Metadata"] == expected


def test_without_time_no_other_broker_is_asked_for_metadata() -> None:
    fake = Crowd(1_000, 1_000)
    deadline = Deadline(TimeLeft(10**15, 1_000, 1_000), monotonic_s=lambda: 0.0, now_ms=lambda: 0)
    with cluster_of(fake, deadline) as cluster:
        cluster.view([])
        fake.answering = 0
        deadline._ends_s = -1.0
        fake.asked.clear()
        with pytest.raises(ClusterUnreachable):
            cluster.view([])
    assert len(fake.asked) == 1


def test_partitions_without_a_broker_that_answers_are_failures_in_linear_work() -> None:
    """Each partition of a crowd has its own leader, and so its own batch."""
    work = []
    for brokers in (FEW, MANY):
        fake = Crowd(brokers, 1)
        fake.partitions |= {("u", n): FakePartition(leader=n + 1) for n in range(brokers)}
        work.append(calls(lambda: sweep(fake)))  # noqa: B023
    assert work[1] / work[0] < GROWTH_MAX, work
