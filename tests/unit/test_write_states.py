"""What a sweep reads and warns about the logs that its transactions need for their end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import MINUTE_MS, NOW_MS, P, judged, unobserved, view
from tests.cases import Cases
from tests.fakes.write_states import LOG, Q0, state
from txnscan.coordinators.agreed_metadata import AgreedMetadata
from txnscan.coordinators.transactions import Transaction
from txnscan.kafka.topology import NO_LEADER_ID, NO_LISTENER_ID, ClusterView, Key, Topic
from txnscan.sweeps import write_states as under_test
from txnscan.sweeps.write_states import leaderless_in, read_for, read_in_danger
from txnscan.verdict.evidence import Judged
from txnscan.waiting.writability import UNREAD, WriteState, WriteStates

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

AGREED = AgreedMetadata((ClusterView(2, "fake", (), ()),), ())
YOUNG = judged(view("Ongoing", 3, (P, "r-0")))
OVERDUE = judged(view("Ongoing", 3, (P, "r-0"), start_time_ms=NOW_MS - 18 * MINUTE_MS))
DECIDED = judged(view("PrepareCommit", 4, (P, "r-0")))
HANGING = judged(view("CompleteCommit", 3))
LOST = state((), Q0, eligible=(3,))
FINE = (state(key=LOG), state(), state(key=("r", 0)))


def x(name: str = "X", **changes: Any) -> Transaction:
    start_ms = NOW_MS - 2 * MINUTE_MS
    base = Transaction(name, 1, 7, "Ongoing", 3, start_ms, 15 * MINUTE_MS, 2 * MINUTE_MS, ("p-0", "q-0"))
    return replace(base, **changes)


class FakeBrokers:
    """shown: the states of all partitions. ids: in a transaction, on broker 1. Broker 2 does not answer."""

    def __init__(
        self, *shown: WriteState, ids: tuple[Transaction, ...] = (), dropping: frozenset[int] = frozenset({1})
    ) -> None:
        self.shown, self.ids, self.dropping = shown, ids, dropping
        self.read: list[tuple[int, set[Key]]] = []
        self.listed: list[int] = []

    def states(self, cluster: object, asked: int, keys: Collection[Key], *, silent: object = None) -> WriteStates:
        self.read.append((asked, {*keys}))
        wanted = {LOG, *keys}
        found = {one.replicas.key: one for one in self.shown if one.replicas.key in wanted}
        return WriteStates(found, log_partitions=1, dropping=self.dropping)

    def list_on(self, send: object, broker_id: int, wanted: Any, now_ms: Callable[[], int]) -> Iterator[Any]:
        self.listed.append(broker_id)
        assert set(wanted.states) == {"Ongoing", "PrepareCommit", "PrepareAbort"}
        yield list(self.ids) if broker_id == 1 else unobserved("list", "broker 2 cannot be reached", 2)

    @property
    def cluster(self) -> Any:
        return SimpleNamespace(
            send=None, broker_ids=(1, 2), in_parallel=lambda call, items: [call(item) for item in items]
        )


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeBrokers]:
    def made(*shown: WriteState, **changes: Any) -> FakeBrokers:
        brokers = FakeBrokers(*shown, **changes)
        monkeypatch.setattr(under_test, "read_write_states", brokers.states)
        monkeypatch.setattr(under_test, "list_on", brokers.list_on)
        return brokers

    return made


def swept(
    brokers: FakeBrokers, *found: Judged, live: tuple[Judged, ...] = (), lost: bool = False
) -> tuple[list[Judged], WriteStates, tuple[str, ...]]:
    run = SimpleNamespace(cluster=brokers.cluster, now_ms=lambda: NOW_MS, reads_stops=False)
    topics = (Topic("q", "t1", (0,), (NO_LEADER_ID if lost else 1,), (5,)),)
    everything = SimpleNamespace(topics=topics)
    return read_for(run, everything, found, live, AGREED)  # type: ignore[arg-type]


def test_only_partitions_without_a_leader_are_leaderless() -> None:
    topics = (Topic("a", "", (0, 1, 2), (1, NO_LEADER_ID, NO_LISTENER_ID), (1, 1, 1)), Topic("b", "", (0,), (1,), (1,)))
    assert leaderless_in(topics) == {("a", 1)}


def test_a_sweep_looks_at_transactions_that_need_a_marker_now_or_soon(fake: Callable[..., FakeBrokers]) -> None:
    of_claim = {("p", 0), ("r", 0)}
    cases: tuple[tuple[str, tuple[Judged, ...], tuple[Judged, ...], set[Key]], ...] = (
        ("a young one: the log alone", (YOUNG,), (), set()),
        ("one that the sweep looks at", (YOUNG,), (YOUNG,), of_claim),
        ("an overdue one", (OVERDUE,), (), of_claim),
        ("a decided one", (DECIDED,), (), of_claim),
        ("a hanging one", (HANGING,), (), {("p", 0)}),
    )
    with Cases() as table:
        for name, found, live, keys in cases:
            with table.case(name):
                brokers = fake(*FINE)
                same, states, warnings = swept(brokers, *found, live=live)
                assert (brokers.read, brokers.listed, warnings) == ([(2, keys)], [], ())
                assert same == [*found] and states.at_risk == frozenset()
    brokers = fake(*FINE)
    assert swept(brokers) == ([], UNREAD, ()) and brokers.read == []


def test_a_stopped_log_explains_its_transactions_and_is_one_warning(fake: Callable[..., FakeBrokers]) -> None:
    (told,), states, (warning,) = swept(fake(state((1,), LOG), state()), YOUNG)
    assert told.judgement.verdict is YOUNG.judgement.verdict
    assert "__transaction_state-0 takes no writes" in told.judgement.explanation and "takes no writes" in warning
    assert [one.name for one in states.stopped] == ["__transaction_state-0"]
    unknown = state((1,), LOG, min_in_sync=None)
    (doubted,), _, (doubt,) = swept(fake(unknown, state()), YOUNG)
    assert doubted.judgement.verdict is YOUNG.judgement.verdict and doubt.startswith("it is not known")
    assert doubted.judgement.explanation != YOUNG.judgement.explanation


def test_ids_are_asked_for_only_if_a_partition_has_no_leader(
    fake: Callable[..., FakeBrokers], wording: SnapshotAssertion
) -> None:
    """Their transaction is open on a partition that no sweep can read."""
    ids = (
        x(),
        x("overdue", start_time_ms=NOW_MS - 18 * MINUTE_MS),
        x("two-phase", timeout_ms=2**31 - 1),
        x("elsewhere", partitions=("p-0",)),
    )
    brokers = fake(*FINE, LOST, ids=ids)
    _, states, (warning,) = swept(brokers, lost=True)
    assert (brokers.read, brokers.listed) == ([(2, {Q0})], [1, 2])
    assert states.at_risk == {Q0} and "'elsewhere'" not in warning
    last = fake(FINE[0], state((1,), min_in_sync=1), FINE[2], LOST, ids=ids[:1])
    assert swept(last, OVERDUE, lost=True)[1].at_risk == {Q0}
    waits = swept(fake(*FINE, LOST, ids=ids[:1], dropping=frozenset()), lost=True)
    assert waits[1].at_risk == frozenset()
    many = swept(fake(*FINE, LOST, ids=tuple(x(f"id-{n}") for n in range(7))), lost=True)[2]
    stopped = fake(state((1,), LOG), *FINE[1:], LOST, ids=ids[:1])
    without_end = read_in_danger(stopped.cluster, 1, (), {Q0}, lambda: NOW_MS)[1]
    assert [warning, *waits[2], *many, without_end] == wording
    brokers = fake(*FINE, LOST)
    _, states, warnings = swept(brokers, lost=True)
    assert (warnings, states.at_risk, brokers.read) == ((), frozenset(), [(2, set())])


def test_a_check_asks_the_same(fake: Callable[..., FakeBrokers]) -> None:
    brokers = fake(*FINE, LOST, ids=(x(),))
    states, warning = read_in_danger(brokers.cluster, 1, (), {Q0}, lambda: NOW_MS)
    assert states.at_risk == {Q0} and warning is not None and "'X'" in warning
    assert read_in_danger(brokers.cluster, 1, (), (), lambda: NOW_MS)[1] is None
