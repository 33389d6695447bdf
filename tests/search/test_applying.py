"""apply with every option on simulated clusters: the effect of its markers, and the rules that prevent harm.

Each rule is dropped in a history that needs it: then a marker hides a committed record, or exposes an uncommitted one,
or disturbs a live producer. With the rule no marker does harm.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from tests.builders import plan, stored
from tests.known_histories import KNOWN as FOOLED_ONCE
from tests.sim.applying import Applied, Apply, Harm, SimulatedBrokers, harm
from tests.sim.history import SimulatedCluster, Simulation
from tests.sim.memory import Memory
from tests.sim.scenarios import (
    BACK,
    COMPACTED,
    DELETED,
    DOWN,
    HIDDEN_BETWEEN,
    LOG,
    MORE_WRITTEN,
    MOVED,
    NEW_REPLICA,
    OPENINGS,
    UP,
    WIDE,
    A,
    P,
    Q,
    away,
    begun_and_written,
    down_again,
    heard,
    opened,
    torn_commit,
)
from tests.sim.scenarios import LATE_DATA as LATE
from tests.sim.table import Event
from tests.sim.transitions import can_happen, happen, settle
from tests.sim.truth import HEALING
from tests.sim.wander import Resolved, wander_and_apply
from tests.sim.world import Scenario, World
from txnscan.reads.observation import Observation
from txnscan.resolve.apply import Status
from txnscan.resolve.plan import Action
from txnscan.sweeps import log_reads
from txnscan.sweeps.history import FactsAlone
from txnscan.sweeps.result import Scan
from txnscan.tables.incidents import Row
from txnscan.txnlog import transitions
from txnscan.txnlog.facts import Facts, SeenMarker
from txnscan.verdict import outcome
from txnscan.verdict.evidence import Judged, PeerPartitions
from txnscan.verdict.outcome import Decision

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

# In each world. A harmful marker names its seed.
SEEDS = range(150)
Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Case:
    """A history: the events first, before each step of resolving, and after it.

    drop: disables the rule. broken: the harm of its markers.
    """

    rule: str
    scenario: Scenario
    opening: tuple[Event, ...]
    broken: str
    drop: Patch
    before: Mapping[str, tuple[Event, ...]] = field(default_factory=dict)
    after: tuple[Event, ...] = ()
    way: Apply = Apply()  # noqa: RUF009


def played(case: Case) -> tuple[Applied, list[str]]:
    """The actions of apply, and the harm of its markers."""
    world = opened(case.scenario, case.opening)

    def happens(world: World, events: tuple[Event, ...]) -> None:
        for event in events:
            assert can_happen(world, event), event
            happen(world, event)
            settle(world, ("fetch", "complete transition"))

    def between(world: World, step: str) -> None:
        happens(world, case.before.get(step, ()))
        settle(world, HEALING)

    done, end = case.way.resolve(world, between)
    happens(end, case.after)
    return done, [broken.why for written in done.written if (broken := harm(written, end)) is not None]


def patched(target: object, name: str, value: object) -> Patch:
    return lambda monkeypatch: monkeypatch.setattr(target, name, value)


def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dropped rule is in the way of applying."""


class Forgetful(Memory):
    """Knows only the results of the last sweep."""

    def keep(self, found: Scan, at_start: Sequence[Row] | None = None) -> None:
        """See Memory."""
        self.learned.clear()
        self.incidents.clear()
        super().keep(found, at_start)

    def facts(self, cluster_id: str, producer_ids: Collection[int]) -> Callable[[], Facts]:
        """See scan.History."""
        return dict


class Blind(SimulatedBrokers):
    """Ignores peer partitions."""

    def commit_seen(self, peers: PeerPartitions, producer_id: int) -> SeenMarker | None:
        """See Brokers."""
        return None


class Hasty(SimulatedBrokers):
    """Uses the proof as the last look, whatever owners do meanwhile."""

    def prove_without_log(self, action: Action) -> Judged | None:
        """See Brokers."""
        judged = super().prove_without_log(action)
        if judged is None:
            return None
        at_rest = tuple(replace(view, state="Empty") for view in judged.evidence.coordinators)
        return replace(judged, evidence=replace(judged.evidence, coordinators=at_rest))


class OfOpenIncidents(Memory):
    """Drops the facts of a producer id with its last open incident, like the memory of `watch`."""

    def keep(self, found: Scan, at_start: Sequence[Row] | None = None) -> None:
        """See Memory."""
        super().keep(found, at_start)
        known = {row["producer_id"] for row in self.open_incidents}
        self.learned = {
            history: {one: facts for one, facts in news.items() if one in known}
            for history, news in self.learned.items()
        }


UNADDED = "a record of ('a', 2), which was not committed, was made visible"
INVISIBLE = "a committed record of ('a', 1) was made invisible"
VISIBLE = "a record of ('a', 1), which was not committed, was made visible"
_TWO = replace(COMPACTED, name="two partitions", topics=((P, (2,)), (Q, (1,))))
# A commit on both partitions while p-0 is offline: q-0 has the marker. Then the decision is compacted.
_TORN: tuple[Event, ...] = (
    *begun_and_written(2),
    *(("AddPartitionsToTxn", (1, A, Q)), ("send data", (A, Q, 2)), ("append data", (0,))),
    *(("kill broker", (2,)), ("fence broker", (2,)), *heard(1)),
    *(("EndTxn", (1, A, True, 2)), ("write marker", (1, A, Q)), ("marker acknowledged", (1, A, Q))),
    *(("skip marker", (1, A, P)), ("write completion", (1, A)), *(("InitProducerId", (1, A)),) * 2),
)
_HOLED: tuple[Event, ...] = (("clean log", (LOG, 1, 6)), *BACK, *MOVED)
_STALE_AND_BUSY: tuple[Event, ...] = (
    # A late record of an aborted transaction, whose owner has an ongoing transaction elsewhere at the next epoch.
    *(("InitProducerId", (1, A)), ("AddPartitionsToTxn", (1, A, P)), ("send data", (A, P, 1))),
    *(("EndTxn", (1, A, False, 1)), ("write marker", (1, A, P)), ("marker acknowledged", (1, A, P))),
    *(("write completion", (1, A)), ("append data", (0,)), ("InitProducerId", (1, A))),
    ("AddPartitionsToTxn", (1, A, Q)),
)


def _aborted_while_down(version: int) -> tuple[Event, ...]:
    return (
        *(("EndTxn", (1, A, False, version)), ("skip marker", (1, A, P)), ("write completion", (1, A))),
        *(*UP, ("InitProducerId", (1, A))),
    )


# The next epoch is one of transactions v2, whose commit loses the partition as well.
_COMMITTED_WHILE_DOWN: tuple[Event, ...] = (
    *(("InitProducerId", (1, A)), ("AddPartitionsToTxn", (1, A, P)), ("send data", (A, P, 2)), ("append data", (0,))),
    *(*DOWN, ("EndTxn", (1, A, True, 2)), ("skip marker", (1, A, P)), ("write completion", (1, A)), *UP),
    ("InitProducerId", (1, A)),
)
_by_date = outcome._by_date


def _of_the_last_epoch_alone(commit: Decision, o: Observation, last: Observation) -> str | None:
    return _by_date(commit, o, last) if o.producer_epoch == last.producer_epoch else None


def known(name: str) -> tuple[Scenario, tuple[Event, ...]]:
    history = FOOLED_ONCE[name].history
    return history.scenario, (*history.opening, *history.before)


# The producer goes on under v2 at the epoch of a lost marker, and writes where no leader adds the partition.
_JOINED: tuple[Event, ...] = (
    *(("send data", (A, P, 2)), ("append data", (0,)), ("AddPartitionsToTxn", (1, A, Q)), ("send data", (A, Q, 2))),
    ("append data", (0,)),
)


def _ended_on_q(commit: bool) -> tuple[Event, ...]:
    return (
        *(("EndTxn", (1, A, commit, 2)), ("write marker", (1, A, Q)), ("marker acknowledged", (1, A, Q))),
        ("write completion", (1, A)),
    )


def _taken_for_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every log is treated as complete, without missing or ineffective records."""
    monkeypatch.setattr(outcome, "whole", lambda a, b, o: True)
    monkeypatch.setattr(outcome, "first_doubt", lambda chain, o: None)
    monkeypatch.setattr(outcome, "_commit_without_partitions", lambda logged, o: None)


CASES = (
    Case("a chain is whole", *known("commit-in-a-hole"), INVISIBLE, _taken_for_whole),
    Case(
        "no offset is missing under v1",
        *known("commit-in-a-hole-v1"),
        INVISIBLE,
        _taken_for_whole,
    ),
    Case(
        "each record follows from the one before",
        *known("abort-in-a-hole-behind-a-commit-in-vain-v2"),
        VISIBLE,
        _taken_for_whole,
    ),
    Case(
        "what was proven is not forgotten",
        COMPACTED,
        (*away(2), ("InitProducerId", (1, A)), *BACK),
        INVISIBLE,
        nothing,
        before={"second sweep": (("clean log", (LOG, 1, 5)), ("clean log", (LOG, 2, 5)))},
        way=Apply("forgets", "what was proven is kept", memory_class=Forgetful),
    ),
    Case(
        "an outcome is of all epochs that the open data has",
        WIDE["lost-markers-v2"],
        (*down_again(2), *_aborted_while_down(2)),
        INVISIBLE,
        patched(outcome, "_epochs", lambda evidence: [evidence.observation.producer_epoch]),
    ),
    Case(
        "v1: a commit is proven by an epoch with one transaction on the partition",
        WIDE["lost-markers-v1"],
        (*down_again(1), *_aborted_while_down(1)),
        "a record of ('a', 2), which was not committed, was made visible",
        patched(outcome, "_not_of_this_data", lambda commit, ends, evidence, o: None),
    ),
    Case(
        "v1: what is dated after a commit is not of it",
        WIDE["never-added-v1"],
        (*MORE_WRITTEN, ("InitProducerId", (1, A))),
        UNADDED,
        patched(outcome, "_by_date", lambda commit, o, last: None),
    ),
    Case(
        "v1: the dates of an earlier epoch are not known",
        WIDE["never-added-v1-v2"],
        (*MORE_WRITTEN, *_COMMITTED_WHILE_DOWN),
        UNADDED,
        patched(outcome, "_by_date", _of_the_last_epoch_alone),
    ),
    Case(
        "a commit of v2 counts where v1 has left data open",
        WIDE["upgraded-abort"],
        (*OPENINGS["upgraded-abort"], *_JOINED, *_ended_on_q(True)),
        "a committed record of ('a', 2) was made invisible",
        patched(outcome, "_not_added", lambda ends, logged, o, doubt: None),
    ),
    Case(
        "an abort of v2 counts where v1 has left committed data open",
        WIDE["upgraded-commit"],
        (*OPENINGS["upgraded-commit"], *_JOINED, *_ended_on_q(False)),
        UNADDED,
        patched(outcome, "_not_of_this_data", lambda commit, ends, evidence, o: None),
    ),
    Case(
        "a gap before a transaction of v2 may hide one of v1",
        WIDE["downgraded"],
        (*HIDDEN_BETWEEN, ("send data", (A, Q, 2)), ("append data", (0,)), *_ended_on_q(True)),
        "a committed record of ('a', 2) was made invisible",
        patched(transitions, "_may_hide_v1", lambda a, b, o: False),
        before={
            "first sweep": (
                *(("expand isr", (LOG, 3)), *heard(1, 2, 3), ("move leader", (LOG, 3)), *heard(1, 2, 3)),
                ("load", (3, 0)),
            )
        },
    ),
    Case(
        "peer partitions are read",
        _TWO,
        (*_TORN, *_HOLED),
        INVISIBLE,
        nothing,
        before={"first sweep": (("load", (2, 0)),)},
        way=Apply("blind", "peer partitions are read", brokers_class=Blind),
    ),
    Case(
        "the log is held against the coordinators",
        *known("nothing-loaded"),
        INVISIBLE,
        patched(log_reads, "orphan_contradiction", lambda o, logged: None),
        after=(
            *(("move leader", (LOG, 1)), *heard(1, 2), ("load", (1, 0)), ("EndTxn", (1, A, True, 1))),
            ("write marker", (1, A, P)),
        ),
    ),
    Case(
        "no owner is in the middle of a transaction",
        LATE,
        _STALE_AND_BUSY,
        "'a' was in the middle of a transaction",
        nothing,
        way=Apply("hasty", "owners are at rest", brokers_class=Hasty),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_without_this_rule_a_marker_does_harm(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.drop(monkeypatch)
    assert played(case)[1] == [case.broken]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_with_this_rule_no_marker_does_harm(case: Case) -> None:
    done, broken = played(replace(case, way=Apply()))
    assert broken == []
    assert (done.plan is not None and done.plan.actions + done.plan.refused) or case.rule.startswith("the log")


def _lost(world: str, *further: Event) -> tuple[Scenario, tuple[Event, ...]]:
    return WIDE[world], (*OPENINGS[world], *further)


# Under v1 an earlier commit of the same epoch, on the same partition, vetoes as well.
LOST_COMMITS = {
    "unflushed": _lost("lost-log-ends-unflushed-v2", ("InitProducerId", (1, A))),
    "unclean": _lost("lost-log-ends-unclean-v2", ("InitProducerId", (3, A))),
}


@pytest.mark.parametrize("name", LOST_COMMITS)
@pytest.mark.parametrize("rule", [True, False], ids=["with the rule", "without it"])
def test_a_commit_that_an_election_lost_is_deleted_only_with_the_option(
    name: str, rule: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application restarts after the loss, as the remedies of guards say."""
    if not rule:
        monkeypatch.setattr(outcome, "election_of", lambda logged, o: None)
    done, end = Apply("no options", options=()).resolve(opened(*LOST_COMMITS[name]), at_rest)
    (result,) = done.results
    assert result.status is (Status.REFUSED if rule else Status.RESOLVED)
    assert [broken is not None for broken in (harm(written, end) for written in done.written)] == [True] * (not rule)


def test_a_commit_proven_before_compaction_is_completed_afterwards() -> None:
    case = next(case for case in CASES if case.rule == "what was proven is not forgotten")
    done, broken = played(replace(case, way=Apply()))
    assert broken == []
    assert [result.status for result in done.results] == [Status.RESOLVED]
    assert [written.marker.committed for written in done.written] == [True]


@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_stays_known_with_deleted_first_records_and_a_new_replica(
    version: int,
) -> None:
    """Its incident continues, and so does its proof. Under v1 the first record is part of the proof, so the marker is
    refused.
    """
    _, _, *replaced = NEW_REPLICA  # Broker 3 is back before the first sweep.
    case = Case(
        "an incident goes on where its first records are gone",
        replace(DELETED, versions=(version,), faults=DELETED.faults | {"compaction"}),
        (*torn_commit(version, 3), ("InitProducerId", (1, A))),
        INVISIBLE,
        nothing,
        before={"second sweep": (("delete records", (P, 2, 2)), *replaced, ("clean log", (LOG, 1, 5)))},
        way=Apply("of incidents", memory_class=OfOpenIncidents),
    )
    done, broken = played(case)
    assert broken == []
    assert [written.marker.committed for written in done.written] == ([True] if version == 2 else [])
    assert done.plan is not None
    assert [refusal.guard for refusal in done.plan.refused] == ([] if version == 2 else ["maybe_committed"])


def test_an_unadded_record_with_the_same_date_becomes_visible_with_the_commit() -> None:
    """The limitation described in `outcome.py` and `docs/proof.md`."""
    opening = tuple(event for event in MORE_WRITTEN if event[0] != "time passes")
    done, end = Apply().resolve(opened(WIDE["never-added-v1"], (*opening, ("InitProducerId", (1, A)))), at_rest)
    (written,) = done.written
    assert written.marker.committed
    assert harm(written, end) == Harm(UNADDED, undated=True)


@pytest.mark.parametrize(
    ("start_offset", "events", "is_open", "is_known"),
    [
        (0, NEW_REPLICA, True, False),
        (2, NEW_REPLICA, True, True),
        (0, (), True, True),
    ],
    ids=["a rebuilt replica shows a later start", "the start that it shows", "the old leader"],
)
def test_after_a_marker_another_start_offset_is_no_end(
    start_offset: int, events: tuple[Event, ...], is_open: bool, is_known: bool
) -> None:
    """The log has no marker, and a replica with a rebuilt state shows a later start offset."""
    world = opened(DELETED, (*torn_commit(2, 3), ("delete records", (P, 2, 2)), *events))
    brokers = SimulatedBrokers(Simulation(world), SimulatedCluster, FactsAlone(None))
    (action,) = plan(stored(producer_id=7, producer_epoch=0, start_offset=start_offset)).actions
    state = brokers.read_partition(action)
    assert (state.is_open, state.error is None) == (is_open, is_known)


def at_rest(world: World, step: str) -> None:
    """No events between two steps."""


def test_a_peer_partition_with_the_commit_marker_refuses_the_abort(wording: SnapshotAssertion) -> None:
    case = next(case for case in CASES if case.rule == "peer partitions are read")
    done, _ = played(replace(case, way=Apply()))
    (result,) = done.results
    assert result.status is Status.REFUSED
    assert result.detail == wording


def test_a_permanently_busy_owner_refuses_the_marker(wording: SnapshotAssertion) -> None:
    case = next(case for case in CASES if case.rule.startswith("no owner"))
    done, _ = played(replace(case, way=Apply()))
    (result,) = done.results
    assert result.status is Status.REFUSED
    assert result.detail == wording


@pytest.mark.parametrize("world", WIDE)
def test_no_random_history_has_a_harmful_marker(world: str) -> None:
    total = Resolved()
    for seed in SEEDS:
        found = wander_and_apply(WIDE[world], seed)
        assert found.harm == [], f"wander_and_apply(WIDE[{world!r}], {seed})"
        total.add(found)


def test_random_histories_have_both_markers_and_refusals() -> None:
    results: list[str] = []
    for world in ("v1-unverified", "holes-in-the-log-v2"):
        for seed in range(300):
            results += wander_and_apply(WIDE[world], seed).results
    kinds = {result.split(":")[0] for result in results}
    assert {"resolved", "refused"} <= kinds
