"""A restored cluster, swept into the tables of its later history. The results of that history prove no outcome here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cases import Cases
from tests.sim.check import Figures, Sweeps
from tests.sim.history import NOW_MS, Simulation
from tests.sim.obligations import EVERYTHING
from tests.sim.restoring import Restored, wander_restored
from tests.sim.scenarios import DOWN, LEADERLESS, UP, WIDE, A, P, begun_and_written, opened
from tests.sim.table import Event
from tests.sim.world import NEVER_ADDED, World
from txnscan.sweeps import log_reads, pipeline

SEEDS = range(12)
_NEXT: tuple[Event, ...] = (("InitProducerId", (1, A)),)


def _ended(version: int, commit: bool, later: tuple[Event, ...], behind: tuple[Event, ...]) -> World:
    """A transaction ends while its partition has no leader, so that its marker is skipped."""
    scenario = replace(LEADERLESS, versions=(version,), faults=LEADERLESS.faults | {NEVER_ADDED})
    return opened(
        scenario,
        (
            *(*begun_and_written(version), *later, *DOWN, ("EndTxn", (1, A, commit, version))),
            *(("skip marker", (1, A, P)), ("write completion", (1, A)), *UP, *behind),
        ),
    )


def _outcomes(version: int, commit: bool, behind: tuple[Event, ...]) -> list[str | None]:
    """The outcome by a sweep of the later history, and by the next two, of the restored cluster. In that, the same
    transaction ended otherwise, and no position is below the stored one.
    """
    later_history = _ended(version, commit, (), behind)
    restored = _ended(version, not commit, (("time passes", ()),), behind)
    sweeps, found = Sweeps(EVERYTHING), []
    for number, world in enumerate((later_history, restored, restored)):
        swept = sweeps.sweep(Simulation(world.copy()), tuple(range(number)), NOW_MS + number)
        (judged,) = swept.transactions
        assert swept.fall is None
        found.append(judged.outcome)
    return found


def test_a_stored_outcome_of_another_history_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    table = [(2, True, "committed"), (2, False, "not_committed"), (1, True, "committed"), (1, False, "not_committed")]
    with Cases() as cases:
        for version, commit, first in table:
            for behind in (_NEXT, ()) if version == 2 else (_NEXT,):
                with cases.case(f"v{version}, {first}, and {len(behind)} later records"):
                    assert _outcomes(version, commit, behind) == [first, "maybe_committed", "maybe_committed"]
    monkeypatch.setattr(log_reads, "_has_last_of", lambda send, log, reads: True)
    assert _outcomes(1, False, _NEXT)[1:] == ["not_committed"] * 2, "the look at the last record is what shows it"


@pytest.mark.parametrize("world", WIDE)
def test_no_sweep_of_a_restored_cluster_believes_what_it_knows_to_be_of_another(world: str) -> None:
    total, unnoticed = Figures(), []
    for seed in SEEDS:
        found = wander_restored(WIDE[world], seed)
        assert found.figures.wrong == [], f"wander_restored(WIDE[{world!r}], {seed})"
        total.add(found.figures)
        unnoticed += found.wrong_unnoticed
    assert total.histories
    assert [one for one in unnoticed if one.torn or one.verdict] == [], "only ages are of another history"


def test_the_search_finds_an_age_of_another_history(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(seed: int) -> Restored:
        return wander_restored(WIDE["upgraded-commit"], seed)

    with monkeypatch.context() as believing:
        believing.setattr(pipeline, "believed", lambda everything, now: everything)
        seed = next(seed for seed in range(300) if found(seed).figures.mistaken)
    assert found(seed).noticed and not found(seed).figures.mistaken
