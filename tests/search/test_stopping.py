"""A broker stops after the check said that it may, in random histories: no commit is torn, and nothing is blocked. If a
condition of the rule is dropped, the search finds a history in which it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.cases import Cases
from tests.sim.stopping import SOLO, STOPS, WIDE, Stopped, stop
from tests.sim.world import Scenario
from txnscan.sweeps import before_stop as reads
from txnscan.waiting import before_stop as rules
from txnscan.waiting.before_stop import StopVerdict

SEEDS = range(150)


def searched(scenario: Scenario, seeds: Iterable[int]) -> Stopped:
    """The result of these histories, until one is wrong."""
    done = Stopped()
    for seed in seeds:
        stop(scenario, seed, done)
        if done.torn or done.lost or done.blocked:
            break
    return done


def test_no_commit_is_torn_and_nothing_is_blocked_after_safe() -> None:
    with Cases() as cases:
        for scenario in STOPS:
            with cases.case(scenario.name):
                done = searched(scenario, SEEDS)
                assert (done.torn, done.lost, done.blocked) == ([], [], [])
                # The search sees each verdict, and most stops that were safe.
                assert {*done.verdicts} == {*StopVerdict} and done.safe > 20


def _ignores_data_and_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads._Ids, "concerned", lambda self, key, opened: ())


def _ignores_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    by_place = reads._by_place

    def without(*arguments: Any) -> Any:
        return replace(by_place(*arguments), by_key={})

    monkeypatch.setattr(reads, "_by_place", without)


def _without(*reasons: str) -> Callable[[pytest.MonkeyPatch], None]:
    def drop(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rules, "RULES", tuple(one for one in rules.RULES if one.reason not in reasons))

    return drop


# A partition without a leader takes no writes, either.
_LEADERLESS = ("marker_dropped", "marker_waits", "too_few_in_sync")
DROPPED: tuple[tuple[str, Callable[[pytest.MonkeyPatch], None], Scenario, range, str], ...] = (
    ("what transactions a partition concerns", _ignores_data_and_lists, SOLO, range(150), "torn"),
    ("partitions without data that coordinators list", _ignores_lists, SOLO, range(840, 870), "torn"),
    ("no replica remains", _without(*_LEADERLESS), SOLO, range(150), "torn"),
    ("too few remain in sync", _without("too_few_in_sync"), WIDE, range(150), "blocked"),
)


def test_the_search_finds_where_each_condition_is_needed() -> None:
    with Cases() as cases:
        for name, drop, scenario, seeds, expected in DROPPED:
            with cases.case(name), pytest.MonkeyPatch.context() as monkeypatch:
                drop(monkeypatch)
                assert getattr(searched(scenario, seeds), expected)
