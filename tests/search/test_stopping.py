"""A broker stops after the check said that it may, in random histories: no commit is torn, no committed record is lost,
and nothing is blocked. If a condition of the rule is dropped, the search finds a history in which it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest

from tests.cases import Cases
from tests.sim.history import CONFIG, NOW_MS, Pilot, SimulatedEngine, Simulation, nothing_happens
from tests.sim.scenarios import A, P, begun_and_written, heard, opened, rest
from tests.sim.stopping import (
    ANSWERED,
    PAIR,
    SOLO,
    STOPS,
    UNCLEANLY,
    WIDE,
    Answers,
    AskedCluster,
    Change,
    Stopped,
    stop,
)
from tests.sim.table import Event
from tests.sim.transitions import happen, settle
from tests.sim.world import Scenario, World
from txnscan.coordinators import metadata_image
from txnscan.coordinators.cluster import Cluster
from txnscan.coordinators.metadata_image import Latest, Reported
from txnscan.kafka.client.client import Send
from txnscan.kafka.protocol.metadata import MetadataRound
from txnscan.kafka.topology import ClusterView
from txnscan.sweeps import before_stop as reads
from txnscan.waiting import before_stop as rules
from txnscan.waiting import in_sync
from txnscan.waiting.before_stop import StopVerdict
from txnscan.waiting.exposure import read_versions

SEEDS = range(150)


def searched(
    scenario: Scenario, seeds: Iterable[int], change: Change | None = None, lost: str | None = None
) -> Stopped:
    """The result of these histories, until one is wrong. change, lost: see `stop`."""
    done = Stopped()
    for seed in seeds:
        stop(scenario, seed, done, change, lost)
        if done.torn or done.lost or done.blocked:
            break
    return done


def test_nothing_is_torn_lost_or_blocked_after_safe() -> None:
    with Cases() as cases:
        for scenario in STOPS:
            with cases.case(scenario.name):
                done = searched(scenario, SEEDS)
                assert (done.torn, done.lost, done.blocked) == ([], [], [])
                # The search sees each verdict, and many stops that were safe.
                assert {*done.verdicts} == {*StopVerdict} and done.safe > 10


# Broker 2 was away for a moment, and its replicas are not in sync.
AWAY: tuple[Event, ...] = (
    *(("cut broker off", (2,)), ("fence broker", (2,)), ("link broker again", (2,)), ("unfence broker", (2,))),
    *heard(1, 2, 3),
)
ENDING = ("fetch", "complete transition", "write marker", "marker acknowledged", "write completion")


def _write_and_commit(world: World) -> None:
    happen(world, ("send data", (A, P, 2)))
    happen(world, ("append data", (0,)))
    rest(world)
    happen(world, ("EndTxn", (1, A, True, 2)))
    settle(world, ENDING)
    assert world.held[1, A].metadata.state == "CompleteCommit"


@dataclass
class _Once:
    """Lets the transaction commit before the answer of this number."""

    at: int

    def __call__(self, simulation: Simulation, point: int, broker_id: int, request: Any) -> None:
        if point == self.at:
            _write_and_commit(simulation.world)


def asked(world: World, pilot: Pilot) -> tuple[StopVerdict, int]:
    """The verdict if broker 1 stops, and the number of answers."""
    simulation = Answers(world, pilot)
    engine, cluster = SimulatedEngine(simulation), AskedCluster(simulation)
    found = reads.read_before_stop(cluster, engine, CONFIG, [1], lambda: NOW_MS + 10**9, lambda done, total: None)
    return found.verdict, simulation.point


def test_a_transaction_that_ends_between_any_two_answers_is_seen() -> None:
    """It began before, and has no data yet. If it is missed, the unclean election loses its records."""
    begun = opened(UNCLEANLY, begun_and_written(2)[:2])
    for event in AWAY:
        happen(begun, event)
    verdict, answers = asked(begun.copy(), nothing_happens)
    assert verdict is StopVerdict.UNSAFE and answers > 20
    with Cases() as cases:
        for at in range(answers):
            with cases.case(f"before answer {at}"):
                assert asked(begun.copy(), _Once(at))[0] is StopVerdict.UNSAFE


# --- each condition is needed -----------------------------------------------------------------------------------------

Drops = Callable[[pytest.MonkeyPatch], None]


def _returns(owner: object, name: str, value: object) -> Drops:
    """Drops a condition by the result of this function or property."""
    shown = property(lambda self: value) if isinstance(getattr(owner, name), property) else lambda *_: value
    return lambda monkeypatch: monkeypatch.setattr(owner, name, shown)


def _changes(owner: object, name: str, **changes: object) -> Drops:
    """Drops a condition by these fields of what this function returns."""
    function = getattr(owner, name)

    def changed(*arguments: Any) -> Any:
        return replace(function(*arguments), **changes)

    return lambda monkeypatch: monkeypatch.setattr(owner, name, changed)


def _without(*reasons: str) -> Drops:
    left = tuple(one for one in rules.RULES if one.reason not in reasons)
    return lambda monkeypatch: monkeypatch.setattr(rules, "RULES", left)


def _asks_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asks the broker with the oldest image for the replicas, and does not look who lags."""

    def ask(send: Send, metadata: MetadataRound, reported: dict[int, Reported]) -> ClusterView | None:
        images = {broker_id: at for broker_id, at in reported.items() if isinstance(at, int)}
        return metadata.ask(send, min(images, key=lambda broker_id: (images[broker_id], broker_id)))

    monkeypatch.setattr(metadata_image, "_ask_newest", ask)
    monkeypatch.setattr(Cluster, "lagging", lambda *_: ())


def _ignores_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignores brokers that do not answer, for their images, as coordinators and in sync: each would report them."""
    _returns(Latest, "unreachable", ())(monkeypatch)
    _changes(Cluster, "coordinator_listing", coverage_errors=())(monkeypatch)
    monkeypatch.setattr(in_sync, "read_versions", lambda *asked: (read_versions(*asked)[0], {}))


class Dropped(NamedTuple):
    """A condition of the rule, and where the search finds that it is needed. change, lost: see `stop`. expected: the
    harm, a field of Stopped.
    """

    condition: str
    drop: Drops
    scenario: Scenario
    change: Change | None
    lost: str | None
    seeds: range
    expected: str


def _with(scenario: Scenario, *faults: str, **changes: Any) -> Scenario:
    return replace(scenario, faults=frozenset(faults), **changes)


# A partition without a leader takes no writes, either.
_LEADERLESS = ("marker_dropped", "marker_waits", "too_few_in_sync")
_READING = reads._Reading
_NO_CHANGE, _MEANWHILE, _BEFORE = Change.NONE, Change.MEANWHILE, Change.BEFORE
# The coordinator is the last broker that is asked for ids, and may move to one that was asked before. Broker 2 has no
# replica of its log, so that only the leader differs.
_MOVES = _with(WIDE, "leader move", topics=((P, (2, 1)),), coordinators=((3, 1),))
_AWAY, _SLOW = _with(PAIR, "cut"), _with(PAIR, "slow follower")
_HIDDEN = replace(WIDE, hidden=frozenset({A}))
RULES = (
    ("no replica remains", _without(*_LEADERLESS), SOLO, None, None, range(100), "torn"),
    ("too few remain in sync", _without("too_few_in_sync"), WIDE, None, None, range(30), "blocked"),
    ("an unclean election", _without("unclean_election"), UNCLEANLY, _NO_CHANGE, ANSWERED, range(320, 340), "lost"),
    ("transactions that a partition concerns", _returns(reads._Ids, "concerned", ()), SOLO, None, None, range(100),
     "torn"),
    ("partitions without data", _changes(reads, "_by_place", by_key={}), SOLO, None, None, range(1580, 1590), "torn"),
)  # fmt: skip
IMAGES = (
    ("the same leaders in both", _returns(_READING, "_same_leaders", True), _MOVES, _MEANWHILE, ANSWERED,
     range(340, 350), "blocked"),
    ("the same replicas, and a broker was away", _returns(_READING, "_same_replicas", True), _AWAY, _MEANWHILE,
     ANSWERED, range(20), "torn"),
    ("the same replicas, and a follower is slow", _returns(_READING, "_same_replicas", True), _SLOW, _MEANWHILE,
     ANSWERED, range(30), "torn"),
    ("the newest", _asks_the_oldest, _SLOW, _BEFORE, ANSWERED, range(30), "torn"),
    ("no broker lags, as it may be cut off", _returns(Cluster, "late", ()), _with(PAIR, "cut", "leader move"), _BEFORE,
     ANSWERED, range(1420, 1430), "torn"),
)  # fmt: skip
FAILURES = (
    ("a broker that does not answer", _ignores_silence, _with(PAIR, "pause"), _BEFORE, "ApiVersions", range(480, 490),
     "torn"),
    ("a partition that was not read", _changes(reads, "_held", failure=None), UNCLEANLY, _NO_CHANGE,
     "DescribeProducers", range(320, 330), "lost"),
    ("ids that were not listed", _changes(reads, "_by_place", errors=()), WIDE, _NO_CHANGE, "ListTransactions",
     range(30), "blocked"),
    ("ids that were not described", _changes(reads, "_by_place", errors=()), WIDE, _NO_CHANGE, "DescribeTransactions",
     range(30), "blocked"),
    ("a coordinator without its ids", _changes(Cluster, "coordinator_listing", coverage_errors=()),
     _with(WIDE, "leader move"), _BEFORE, ANSWERED, range(30, 50), "blocked"),
    ("ids that are hidden", _changes(Cluster, "coordinator_listing", visibility_failures=()), _HIDDEN, _NO_CHANGE,
     ANSWERED, range(30), "blocked"),
    ("whether elections may be unclean", _changes(reads, "judge", unknown=()), UNCLEANLY, _NO_CHANGE,
     "DescribeConfigs", range(660, 670), "lost"),
    ("how many must be in sync", _changes(reads, "judge", unknown=()), WIDE, _NO_CHANGE, "DescribeConfigs", range(30),
     "blocked"),
)  # fmt: skip


def test_the_search_finds_where_each_condition_is_needed() -> None:
    with Cases() as cases:
        for one in (Dropped(*row) for row in (*RULES, *IMAGES, *FAILURES)):
            with cases.case(one.condition), pytest.MonkeyPatch.context() as monkeypatch:
                right = searched(one.scenario, one.seeds, one.change, one.lost)
                assert not getattr(right, one.expected)
                one.drop(monkeypatch)
                assert getattr(searched(one.scenario, one.seeds, one.change, one.lost), one.expected)
