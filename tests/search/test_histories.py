"""Verdicts of the real sweep against the truth of simulated histories. `make prove` runs half a million."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim.check import Figures, History, run
from tests.sim.exhaustive import exhaustive
from tests.sim.history import Simulation, accused, overlooked, sweep
from tests.sim.scenarios import OPENINGS, SMALL, WIDE, Small, opened
from tests.sim.shorten import shortened
from tests.sim.truth import hanging, settled
from tests.sim.wander import wander

# In each world. A wrong verdict names its seed; `make simulate ARGS="--world WORLD --seed SEED"` shows it.
SEEDS = range(250)
# Where partitions lose their markers, hardly any transaction ends while a sweep runs.
RARE = {"lost-markers-v2": {"gone"}, "new-replicas-v2": {"gone"}}


@pytest.mark.parametrize("small", SMALL, ids=lambda small: f"{small.scenario.name}, {len(small.opening)}")
def test_no_history_of_a_small_world_has_a_wrong_verdict(small: Small) -> None:
    found = exhaustive(small, small.brief)
    assert found.histories > 0
    assert found.wrong == []


@pytest.mark.parametrize("world", WIDE)
def test_no_random_history_has_a_wrong_verdict(world: str) -> None:
    total = Figures()
    for seed in SEEDS:
        figures, _ = wander(WIDE[world], seed)
        assert figures.wrong == [], f"python -m tests.sim --world {world} --seed {seed}"
        total.add(figures)
    assert total.histories > len(SEEDS) / 2
    kinds = {kind.split("/")[0] for kind in total.verdicts}
    expected = {"gone", "pending_marker", "indeterminate", "late_ongoing"} - RARE.get(world, set())
    assert kinds >= expected, "the histories show too little"


def test_random_histories_have_hanging_transactions_of_every_reason() -> None:
    seen: set[str] = set()
    for seed in range(4_000):
        figures, _ = wander(WIDE["v1-unverified"], seed)
        seen |= {kind.split("/")[1] for kind in figures.verdicts if kind.startswith("hanging")}
        if len(seen) == 4:
            break
    assert seen == {"orphan", "missed_commit", "stale_epoch", "live_epoch"}


def test_a_seed_determines_the_history_and_its_verdicts() -> None:
    for seed in range(50):
        figures, history = wander(WIDE["two-brokers"], seed)
        again, same = wander(WIDE["two-brokers"], seed)
        assert (history, figures.verdicts) == (same, again.verdicts)
        if figures.histories:
            scan, wrong, _ = run(history)
            assert wrong == []
            assert sum(figures.verdicts.values()) == len(scan.transactions)


def test_a_history_is_shortened_while_its_property_remains() -> None:
    seed, history = next(
        (seed, history)
        for seed in range(2_000)
        for figures, history in [wander(WIDE["v1-unverified"], seed)]
        if "hanging/live_epoch" in figures.verdicts
    )

    def accuses(candidate) -> bool:  # type: ignore[no-untyped-def]
        return any(str(judged.judgement.reason) == "live_epoch" for judged in accused(run(candidate)[0]))

    short = shortened(history, accuses)
    assert accuses(short), seed
    assert len(short.before) + len(short.during) < len(history.before) + len(history.during)


def test_a_sweep_at_rest_finds_every_hanging_transaction() -> None:
    """Completeness, in the worlds with hanging late data: no other transaction is open once the cluster is at rest."""
    late = next(small for small in SMALL if small.scenario.name == "late data")
    world = opened(late.scenario, (*late.opening, *_ABORTED_BEFORE_ITS_DATA))
    assert len(hanging(world)) == 1
    assert overlooked(world) == []
    assert [str(judged.judgement.reason) for judged in accused(sweep(Simulation(world)))] == ["live_epoch"]


def test_a_claim_counts_if_only_a_broker_without_live_peers_knows_its_end() -> None:
    """Both brokers are fenced. Broker 2 has led the log since then, is back, and knows it. Clients reject Metadata
    without brokers, so the sweep has only the answer of broker 1, which is in good faith.
    """
    found, wrong, world = run(History(WIDE["unacknowledged-appends"], (), _BOTH_FENCED, ()))
    assert [str(judged.judgement.verdict) for judged in found.transactions] == ["late_ongoing"]
    assert not world.brokers[2].metadata.brokers
    assert not found.complete
    assert wrong == []


def test_a_claim_counts_at_the_time_of_its_description() -> None:
    """Late data hangs while its coordinator is listed. By the time of the description the next transaction of the id
    has
    taken it up, and then loses the partition in turn.
    """
    found, wrong, world = run(History(WIDE["unclean-elections"], (), _LISTED, _TAKEN_UP))
    assert [str(judged.judgement.verdict) for judged in found.transactions] == ["late_ongoing"]
    assert len(hanging(world)) == 1
    assert wrong == []


def test_data_of_a_decision_that_never_completes_is_not_overlooked() -> None:
    """A PrepareCommit of v2 timed out, yet it is in the log. Its coordinator commits by v1, at the epoch before. The
    next coordinator writes the marker of the first decision. After it the partition permanently refuses the marker of
    the second. A partition missing in a Prepare* may still get its marker, as far as any read shows.
    """
    _, wrong, world = run(History(WIDE["unacknowledged-appends"], (), _TIMED_OUT, _DECIDED_TWICE))
    calm = settled(world)
    assert [held.metadata.state for held in calm.held.values()] == ["PrepareCommit"]
    assert len(hanging(world)) == 1
    (judged,) = sweep(Simulation(calm)).transactions
    assert (str(judged.judgement.verdict), str(judged.judgement.reason)) == ("indeterminate", "decided")
    assert wrong == []


def test_a_pending_marker_gives_no_outcome_of_the_open_data() -> None:
    """Committed data hangs without its marker. Two aborts skip the partition as well, and a third is pending there."""
    name = "holes-in-the-log-v2"
    watched = replace(WIDE[name], watched=frozenset({_P, _Q}))
    found, wrong, world = run(History(watched, OPENINGS[name], _OWED, _OWED_ABORT))
    (judged,) = [one for one in found.transactions if one.observation.topic == "p"]
    assert (str(judged.judgement.verdict), judged.outcome) == ("pending_marker", None)
    assert len(hanging(world)) == 1
    assert wrong == []


_P = ("p", 0)
_ABORTED_BEFORE_ITS_DATA = (
    ("EndTxn", (1, "a", False, 1)),
    ("write marker", (1, "a", _P)),
    ("marker acknowledged", (1, "a", _P)),
    ("write completion", (1, "a")),
    ("append data", (0,)),
)
_Q, _LOG = ("q", 0), ("__transaction_state", 0)
_COPIED = (("fetch", (_LOG, 2)), ("complete transition", (1, "a")))
_ENDED = (("write completion", (1, "a")), *_COPIED)
_BOTH_FENCED = (
    *(("InitProducerId", (1, "a")), *_COPIED, ("AddPartitionsToTxn", (1, "a", _Q)), *_COPIED),
    *(("send data", ("a", _Q, 1)), ("EndTxn", (1, "a", False, 2)), ("lose a request", (0,)), *_COPIED),
    *(("cut broker off", (1,)), ("write marker", (1, "a", _Q)), ("fence broker", (1,))),
    *(("marker acknowledged", (1, "a", _Q)), *_ENDED, ("AddPartitionsToTxn", (1, "a", _Q)), ("publish metadata", (2,))),
    *(("cut broker off", (2,)), *_COPIED, ("fence broker", (2,)), ("AddPartitionsToTxn", (1, "a", _P)), *_COPIED),
    *(("send data", ("a", _P, 2)), ("send data", ("a", _P, 2)), ("apply to replicas", (2,))),
    *(("send data", ("a", _Q, 2)), ("elect coordinators", (2,)), ("load", (2, 0)), ("EndTxn", (2, "a", False, 2))),
    *(("complete transition", (2, "a")), ("skip marker", (2, "a", _Q)), ("write marker", (2, "a", _P))),
    *(("marker acknowledged", (2, "a", _P)), ("link broker again", (2,)), ("write completion", (2, "a"))),
    *(("complete transition", (2, "a")), ("publish metadata", (2,)), ("append data", (2,))),
)
_DONE = ("complete transition", (3, "b"))
_LISTED = (
    *(("InitProducerId", (3, "b")), _DONE, ("AddPartitionsToTxn", (3, "b", _P)), _DONE),
    *(("EndTxn", (3, "b", True, 1)), _DONE, ("write marker", (3, "b", _P)), ("fetch", (_P, 2))),
    *(("marker acknowledged", (3, "b", _P)), ("kill broker", (2,)), ("write completion", (3, "b"))),
    *(("fence broker", (2,)), _DONE, ("publish metadata", (1,)), ("AddPartitionsToTxn", (3, "b", _P)), _DONE),
    *(("send data", ("b", _P, 1)), ("apply to replicas", (1,)), ("EndTxn", (3, "b", False, 1)), _DONE),
    *(("publish metadata", (3,)), ("write marker", (3, "b", _P)), ("apply to replicas", (3,)), ("append data", (0,))),
)
_TAKEN_UP = (
    *((3, ("marker acknowledged", (3, "b", _P))), (4, ("cut broker off", (1,))), (8, ("elect coordinators", (3,)))),
    *((9, ("fence broker", (1,))), (10, ("publish metadata", (3,))), (10, ("write completion", (3, "b"))), (10, _DONE)),
    *((11, ("AddPartitionsToTxn", (3, "b", _P))), (11, _DONE), (12, ("EndTxn", (3, "b", False, 1))), (13, _DONE)),
    (15, ("skip marker", (3, "b", _P))),
)
_TIMED_OUT = (
    *(("InitProducerId", (1, "a")), *_COPIED, ("AddPartitionsToTxn", (1, "a", _P)), *_COPIED),
    *(("send data", ("a", _P, 1)), ("EndTxn", (1, "a", False, 1)), *_COPIED, ("write marker", (1, "a", _P))),
    *(("append data", (0,)), ("marker acknowledged", (1, "a", _P)), *_ENDED),
    *(("AddPartitionsToTxn", (1, "a", _Q)), *_COPIED, ("EndTxn", (1, "a", True, 2)), ("append timeout", (1, "a"))),
    *(("move leader", (_LOG, 2)), ("fetch", (_LOG, 2)), ("publish metadata", (2,)), ("apply to replicas", (2,))),
)
_DECIDED_TWICE = (
    *((0, ("EndTxn", (1, "a", True, 1))), (2, ("elect coordinators", (2,))), (3, ("load", (2, 0)))),
    *((6, ("write marker", (2, "a", _Q))), (6, ("pause broker", (2,))), (6, ("fence broker", (2,)))),
)
_HERE = ("complete transition", (1, "a"))
_TO_P, _NO_MARKER = ("AddPartitionsToTxn", (1, "a", _P)), ("skip marker", (1, "a", _P))
_ABORTS = ("EndTxn", (1, "a", False, 2))
_OWED = (
    *(("AddPartitionsToTxn", (1, "a", _Q)), _HERE, _TO_P, _HERE, _ABORTS, _HERE, ("write marker", (1, "a", _Q))),
    *(("marker acknowledged", (1, "a", _Q)), _NO_MARKER, ("write completion", (1, "a")), _HERE),
    *(_TO_P, _HERE, _ABORTS, _HERE, _NO_MARKER, ("write completion", (1, "a")), _HERE, ("InitProducerId", (1, "a"))),
    *(("start broker", (2,)), _HERE, ("unfence broker", (2,)), ("kill broker", (1,)), ("publish metadata", (2,))),
    ("fence broker", (1,)),
)
_OWED_ABORT = (
    *((4, ("cut broker off", (2,))), (10, ("fence broker", (2,))), (13, ("start broker", (1,)))),
    *((13, ("unfence broker", (1,))), (19, ("publish metadata", (1,))), (20, ("apply to replicas", (1,)))),
    *((25, ("elect coordinators", (1,))), (46, ("load", (1, 0))), (46, _TO_P), (46, _HERE)),
    *((49, _ABORTS), (51, _HERE), (56, _NO_MARKER)),
)
