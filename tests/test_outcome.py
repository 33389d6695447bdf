"""The specification of outcomes: each case is what is left in the log, what else was read, and what must be told.

Unless noted producer id 7 is open on p-0 at epoch 3, its first batch is of that epoch, the partition never had a marker
of it, and its id X is at epoch 9 by now. The log is that of X alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import NOW_MS, observation
from txnscan.model import Key, Observation
from txnscan.outcome import Outcome, OutcomeEvidence, Told, decisions, outcome
from txnscan.transaction_log import LoggedTransaction, State

P, Q = ("p", 0), ("q", 0)
V1, V2 = 0, 2
Records = list[LoggedTransaction]
COMMITTED, MAYBE, NOT, UNKNOWN = Outcome.COMMITTED, Outcome.MAYBE_COMMITTED, Outcome.NOT_COMMITTED, Outcome.UNKNOWN


def record(state: State, epoch: int, *partitions: Key, client: int = V1, **changes: Any) -> LoggedTransaction:
    base = LoggedTransaction(0, "X", 7, epoch, state, frozenset(partitions), client, NOW_MS, NOW_MS)
    return replace(base, **changes)


def empty(epoch: int, **changes: Any) -> LoggedTransaction:
    return record(State.EMPTY, epoch, **changes)


def ongoing(epoch: int, *partitions: Key, **changes: Any) -> LoggedTransaction:
    return record(State.ONGOING, epoch, *partitions, **changes)


def prepare(committed: bool, epoch: int, *partitions: Key, client: int = V1, **changes: Any) -> LoggedTransaction:
    state = State.PREPARE_COMMIT if committed else State.PREPARE_ABORT
    return record(state, epoch, *partitions, client=client, **changes)


def complete(committed: bool, epoch: int, client: int = V1, **changes: Any) -> LoggedTransaction:
    return record(State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT, epoch, client=client, **changes)


def v1(committed: bool, *partitions: Key, epoch: int = 3, raised: int = 0, client: int = V1, **changes: Any) -> Records:
    """A whole transaction; `raised` by a fence."""
    return [
        ongoing(epoch, *partitions, client=client, **changes),
        prepare(committed, epoch + raised, *partitions, client=client, **changes),
        complete(committed, epoch + raised, client=client, **changes),
    ]


def v2(committed: bool, *partitions: Key, epoch: int = 3, **changes: Any) -> Records:
    return v1(committed, *partitions, epoch=epoch, raised=1, client=V2, **changes)


def told(logged: Iterable[LoggedTransaction], o: dict[str, Any] | None = None, **changes: Any) -> Told:
    """What is told of this log; `o` changes the observation."""
    numbered = tuple(replace(one, offset=offset) for offset, one in enumerate(logged))
    seen = observation(**{"coordinator_epoch": -1, **(o or {})})
    base = OutcomeEvidence(seen, 9, seen.producer_epoch, 0, None, numbered, None)
    return outcome(replace(base, **changes))


@dataclass(frozen=True)
class Case:
    why: str
    logged: Sequence[LoggedTransaction]
    expected: Outcome
    said: str
    o: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)


COMMIT, ABORT = True, False
MARKED = {"coordinator_epoch": 0}
BEFORE = [empty(2), empty(3)]
NOTHING_OF_IT = "never with this partition"
NOT_BACK = "does not reach back to before epoch 3"

CASES = (
    # transactions v2: an epoch has one transaction
    Case(
        "v2: the one transaction of its epoch was committed with this partition",
        [*BEFORE, *v2(COMMIT, P)],
        COMMITTED,
        "'X' committed its transaction of epoch 3 with this partition, which has no marker of it",
    ),
    Case(
        "v2: a marker of an earlier transaction says nothing of this one",
        [*v2(COMMIT, P, epoch=2), *v2(COMMIT, P)],
        COMMITTED,
        "committed its transaction of epoch 3",
        MARKED,
    ),
    Case("v2: a commit without this partition", [*BEFORE, *v2(COMMIT, Q)], NOT, NOTHING_OF_IT),
    Case("v2: another partition of the topic is another", [*BEFORE, *v2(COMMIT, ("p", 1))], NOT, NOTHING_OF_IT),
    Case("v2: an abort", [*BEFORE, *v2(ABORT, P)], NOT, "'X' aborted its transaction of epoch 3 on this partition"),
    Case(
        "v2: the commit of the next epoch is of the next transaction",
        [*BEFORE, *v2(ABORT, P), *v2(COMMIT, P, epoch=4)],
        NOT,
        "aborted its transaction of epoch 3",
    ),
    Case(
        "v2: the commit of the epoch before stands at this one and is not of it",
        [*v2(COMMIT, P, epoch=2), *v2(ABORT, P)],
        NOT,
        "aborted its transaction of epoch 3",
    ),
    Case(
        "v2: that commit alone",
        v2(COMMIT, P, epoch=2),
        NOT,
        "never committed anything at epoch 3",
    ),
    Case(
        "v2: committed, while the completion is still to be written",
        [*BEFORE, *v2(COMMIT, P)[:2]],
        COMMITTED,
        "committed its transaction",
    ),
    Case(
        "v2: a transaction grows partition by partition, and counts as it stood at its end",
        [*BEFORE, ongoing(3, Q), ongoing(3, Q, P), *v2(COMMIT, Q, P)[1:]],
        COMMITTED,
        "committed its transaction",
    ),
    Case(
        "v2: an abort before anything was added is not of what the next transaction wrote",
        [empty(2), prepare(ABORT, 3, client=V2), complete(ABORT, 3, client=V2), *v2(COMMIT, P)],
        COMMITTED,
        "committed its transaction of epoch 3",
    ),
    # transactions v1: an epoch has many
    Case(
        "v1: the one commit of its epoch, and the partition never had a marker",
        [*BEFORE, *v1(COMMIT, P)],
        COMMITTED,
        "committed its transaction of epoch 3 with this partition",
    ),
    Case(
        "v1: the same with a marker, which may be that of this commit",
        [*BEFORE, *v1(COMMIT, P)],
        MAYBE,
        "under transactions v1 that need not be this data",
        MARKED,
    ),
    Case("v1: a commit without this partition", [*BEFORE, *v1(COMMIT, Q)], NOT, NOTHING_OF_IT),
    Case("v1: an abort", [*BEFORE, *v1(ABORT, P)], NOT, "aborted its transaction"),
    Case("v1: an abort, and a marker before", [*BEFORE, *v1(ABORT, P)], NOT, "aborted its transaction", MARKED),
    Case(
        "v1: nothing was ever decided at its epoch",
        [*BEFORE, empty(4)],
        NOT,
        "'X' never committed anything at epoch 3",
    ),
    Case(
        "v1: a commit and then an abort, both with this partition, which missed both",
        [*BEFORE, *v1(COMMIT, P), *v1(ABORT, P)],
        MAYBE,
        "need not be this data",
    ),
    Case(
        "v1: the other way round",
        [*BEFORE, *v1(ABORT, P), *v1(COMMIT, P)],
        MAYBE,
        "need not be this data",
    ),
    Case(
        "v1: a commit with it, and a fenced abort without it, while it had no marker",
        [*BEFORE, *v1(COMMIT, P), *v1(ABORT, Q, raised=1)],
        COMMITTED,
        "committed its transaction of epoch 3",
    ),
    Case(
        "v1: the same after a marker",
        [*BEFORE, *v1(COMMIT, P), *v1(ABORT, Q, raised=1)],
        MAYBE,
        "need not be this data",
        MARKED,
    ),
    Case(
        "v1: a commit with it and a fenced abort with it",
        [*BEFORE, *v1(COMMIT, P), *v1(ABORT, P, raised=1)],
        MAYBE,
        "need not be this data",
    ),
    Case(
        "v1: a fenced abort alone, by brokers that raise the epoch twice",
        [*BEFORE, *v1(ABORT, P, raised=2, client=V2)],
        NOT,
        "aborted its transaction of epoch 3",
    ),
    Case(
        "v1: a commit at another epoch is not of it",
        [*v1(COMMIT, P, epoch=2), empty(3), *v1(ABORT, P), empty(4), *v1(COMMIT, P, epoch=4)],
        NOT,
        "aborted its transaction of epoch 3",
    ),
    Case(
        "an upgrade in the midst of an epoch: its last transaction is of v2 and not its only one",
        [*BEFORE, *v1(ABORT, P), *v2(COMMIT, P)],
        MAYBE,
        "need not be this data",
        MARKED,
    ),
    # what is left of the log
    Case(
        "a suffix that begins with a commit at this epoch",
        v1(COMMIT, P)[1:],
        MAYBE,
        NOT_BACK,
    ),
    Case("a suffix that begins with the transaction itself", v2(COMMIT, P), MAYBE, NOT_BACK),
    Case("a suffix that begins with its decision", v2(COMMIT, P)[1:], MAYBE, NOT_BACK),
    Case("a suffix without a commit", v1(ABORT, P), UNKNOWN, NOT_BACK),
    Case("a suffix that begins with the completion at this epoch", v1(ABORT, P)[2:], UNKNOWN, NOT_BACK),
    Case("a suffix that begins with an Empty that may be written again", [empty(3), *v1(ABORT, P)], UNKNOWN, NOT_BACK),
    Case("the same by a v2 client", [empty(3, client=V2), *v2(ABORT, P)], UNKNOWN, NOT_BACK),
    Case(
        "a new producer id, whose first Empty is the first",
        [empty(0), *v1(ABORT, P, epoch=0)],
        NOT,
        "aborted",
        {"producer_epoch": 0},
    ),
    Case(
        "v1: a commit, of which the partition may have forgotten the marker",
        [*BEFORE, *v1(COMMIT, P)],
        MAYBE,
        "need not be this data",
        changes={"first_sequence": 5},
    ),
    Case("a suffix that begins after its epoch", [empty(4), *v1(COMMIT, P, epoch=4)], UNKNOWN, NOT_BACK),
    Case(
        "a suffix that begins with a completion by a v2 client at this epoch: it began it",
        [complete(COMMIT, 3, V2), *v2(ABORT, P)],
        NOT,
        "aborted its transaction of epoch 3",
    ),
    Case(
        "with the completion of an abort by a v2 client at this epoch: that began it too",
        [complete(ABORT, 3, V2), *v2(COMMIT, P)],
        COMMITTED,
        "committed its transaction of epoch 3",
    ),
    Case(
        "with a completion by a v1 client at this epoch: others may have come before",
        [complete(COMMIT, 3), *v2(ABORT, P)],
        UNKNOWN,
        NOT_BACK,
    ),
    Case(
        "with one by a client that tells version 1, which raises no epoch either",
        [complete(COMMIT, 3, client=1), *v2(ABORT, P)],
        UNKNOWN,
        NOT_BACK,
    ),
    Case(
        "the same with a commit after it",
        [complete(ABORT, 3), *v1(COMMIT, P)],
        MAYBE,
        NOT_BACK,
    ),
    Case(
        "with a decision by a v2 client at this epoch: it is of the epoch before",
        [*v2(COMMIT, P, epoch=2)[1:], *v2(COMMIT, P)],
        COMMITTED,
        "committed its transaction of epoch 3",
    ),
    Case(
        "with an abort by a v2 client at this epoch: that too is of an epoch before",
        [*v2(ABORT, P, epoch=2)[1:], *v2(COMMIT, P)],
        COMMITTED,
        "committed its transaction of epoch 3",
    ),
    Case(
        "with an abort at this epoch by a v1 client, which may be of this epoch or a fence of the one before",
        [*v1(ABORT, P)[1:], *v1(COMMIT, P)],
        MAYBE,
        NOT_BACK,
    ),
    Case("with any record of an earlier epoch", [complete(COMMIT, 2), *v1(COMMIT, P)], COMMITTED, "of epoch 3"),
    # producer ids that rotate
    Case(
        "the last epoch of a producer id, whose end already holds the next one",
        [
            empty(32765),
            empty(32766),
            ongoing(32766, P),
            prepare(COMMIT, 32767, P, client=V2),
            complete(COMMIT, 0, V2, producer_id=8),
        ],
        COMMITTED,
        "committed its transaction of epoch 32766",
        {"producer_epoch": 32766},
        {"owner_epoch": None},
    ),
    Case(
        "the first epoch of a producer id, after the last of the one before",
        [
            prepare(COMMIT, 32767, P, client=V2, producer_id=6),
            complete(COMMIT, 0, V2),
            *v2(ABORT, P, epoch=0),
        ],
        NOT,
        "aborted its transaction of epoch 0",
        {"producer_epoch": 0},
    ),
    Case(
        "the completion that gave it the producer id is the first that is left",
        [complete(COMMIT, 0, V2), *v2(COMMIT, P, epoch=0)],
        COMMITTED,
        "committed its transaction of epoch 0",
        {"producer_epoch": 0},
    ),
    Case(
        "a suffix that begins after its producer id",
        [complete(COMMIT, 0, V2, producer_id=8), *v2(COMMIT, P, epoch=0, producer_id=8)],
        UNKNOWN,
        NOT_BACK,
        {},
        {"owner_epoch": None},
    ),
    Case(
        "an earlier producer id at the same epoch is not this one",
        [*v1(COMMIT, P, producer_id=6), empty(3), *v1(ABORT, P)],
        NOT,
        "aborted its transaction of epoch 3",
    ),
    Case(
        "a later one neither",
        [*BEFORE, *v1(ABORT, P), empty(3, producer_id=8), *v1(COMMIT, P, producer_id=8)],
        NOT,
        "aborted its transaction of epoch 3",
        {},
        {"owner_epoch": None},
    ),
    # what was written twice
    Case(
        "a decision that was written twice is one",
        [*BEFORE, ongoing(3, P), *[prepare(COMMIT, 4, P, client=V2)] * 2, complete(COMMIT, 4, V2)],
        COMMITTED,
        "committed its transaction",
    ),
    Case(
        "so it is under v1",
        [*BEFORE, ongoing(3, P), *[prepare(COMMIT, 3, P)] * 2, complete(COMMIT, 3)],
        COMMITTED,
        "committed its transaction",
    ),
    Case(
        "a commit that was not acknowledged, and an abort after it",
        [*BEFORE, ongoing(3, P), prepare(COMMIT, 4, P, client=V2), prepare(ABORT, 4, P), complete(ABORT, 4)],
        MAYBE,
        "need not be this data",
    ),
    Case(
        "the same under v1",
        [*BEFORE, ongoing(3, P), prepare(COMMIT, 3, P), prepare(ABORT, 4, P), complete(ABORT, 4)],
        MAYBE,
        "need not be this data",
    ),
    Case(
        "an abort that was not acknowledged, and a commit after it",
        [*BEFORE, ongoing(3, P), prepare(ABORT, 4, P, client=V2), prepare(COMMIT, 4, P, client=V2)],
        MAYBE,
        "need not be this data",
    ),
    # an abort that nothing began: brokers write none, and it is taken for what it may be
    Case(
        "at its epoch it may be of it",
        [*BEFORE, *v1(COMMIT, P), prepare(ABORT, 3, P)],
        MAYBE,
        "need not be this data",
    ),
    Case(
        "at its epoch by a v2 client it is of the epoch before",
        [*BEFORE, *v1(COMMIT, P), prepare(ABORT, 3, P, client=V2)],
        COMMITTED,
        "committed its transaction of epoch 3",
    ),
    Case(
        "at the next epoch it may be a fence of it",
        [*BEFORE, *v1(COMMIT, P), prepare(ABORT, 4, P)],
        MAYBE,
        "need not be this data",
    ),
    Case(
        "at the epoch after that it is of another",
        [*BEFORE, *v1(COMMIT, P), prepare(ABORT, 5, P)],
        COMMITTED,
        "committed its transaction of epoch 3",
    ),
    # who has the producer id now
    Case(
        "its owner is still at this epoch, and may commit it yet",
        [*BEFORE, *v1(ABORT, P)],
        UNKNOWN,
        "'X' is still at epoch 3, and may yet commit",
        {},
        {"owner_epoch": 3},
    ),
    Case(
        "the same before anything was decided",
        [*BEFORE, ongoing(3, Q)],
        UNKNOWN,
        "may yet commit",
        {},
        {"owner_epoch": 3},
    ),
    Case(
        "a commit with it is one already",
        [*BEFORE, *v1(COMMIT, P)],
        COMMITTED,
        "committed its transaction",
        {},
        {"owner_epoch": 3},
    ),
    Case("an orphan that the log still knows", [*BEFORE, *v1(ABORT, P)], NOT, "aborted", {}, {"owner_epoch": None}),
    # what else is not known
    Case(
        "the log holds nothing of its producer id",
        [],
        UNKNOWN,
        "the transaction log holds nothing of producer id 7",
        {},
        {"owner_epoch": None},
    ),
    Case(
        "the same, whose owner is still at this epoch",
        [],
        UNKNOWN,
        "the transaction log holds nothing of producer id 7",
        {},
        {"owner_epoch": 3},
    ),
    Case(
        "the open transaction began at an epoch before",
        [*BEFORE, *v2(ABORT, P)],
        UNKNOWN,
        "records of epochs 2 to 3 stand in the open transaction",
        {},
        {"first_epoch": 2},
    ),
    Case(
        "the same with a commit",
        [*BEFORE, *v2(COMMIT, P)],
        MAYBE,
        "records of epochs 2 to 3",
        {},
        {"first_epoch": 2},
    ),
    Case(
        "its first batch could not be read",
        [*BEFORE, *v2(ABORT, P)],
        UNKNOWN,
        "the first record of the transaction could not be read: it is deleted",
        {},
        {"first_epoch": None, "batch_error": "it is deleted"},
    ),
    Case(
        "the same with a commit",
        [*BEFORE, *v2(COMMIT, P)],
        MAYBE,
        "could not be read: it is deleted",
        {},
        {"first_epoch": None, "batch_error": "it is deleted"},
    ),
    Case(
        "some of the log could not be read",
        [*BEFORE, *v2(ABORT, P)],
        UNKNOWN,
        "the transaction log could not be read: it moved",
        {},
        {"log_error": "it moved"},
    ),
    Case(
        "the same with a commit in what could",
        [*BEFORE, *v2(COMMIT, P)],
        MAYBE,
        "could not be read: it moved",
        {},
        {"log_error": "it moved"},
    ),
    Case(
        "two ids have had its producer id, which is against all rules",
        [*BEFORE, *v2(COMMIT, P), empty(3, transactional_id="Y")],
        UNKNOWN,
        "the transaction log gives producer id 7 to 2 ids",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_each_case_gets_the_outcome_of_the_specification(case: Case) -> None:
    found = told(case.logged, case.o, **case.changes)
    assert found.outcome == case.expected
    assert case.said in found.why
    assert "None" not in found.why and "\n" not in found.why and not found.why.endswith(".")


def test_every_outcome_is_that_of_some_case() -> None:
    assert {case.expected for case in CASES} == set(Outcome)


def test_outcomes_have_these_names_in_reports_and_tables() -> None:
    assert [one.value for one in Outcome] == ["committed", "maybe_committed", "not_committed", "unknown"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
@pytest.mark.parametrize(
    "doubt",
    [{"first_epoch": None, "batch_error": "x"}, {"first_epoch": 2}, {"log_error": "x"}],
    ids=["no first batch", "another epoch", "no log"],
)
def test_no_doubt_leaves_anything_standing_that_is_certain(case: Case, doubt: dict[str, Any]) -> None:
    assert told(case.logged, case.o, **{**case.changes, **doubt}).outcome in (MAYBE, UNKNOWN)


@pytest.mark.parametrize(
    ("logged", "expected", "why"),
    [
        ([ongoing(3, P), prepare(COMMIT, 4, P, client=V2)], [3], "the epoch of the Ongoing record before it"),
        ([prepare(COMMIT, 4, P, client=V2)], [3], "a commit by a v2 client raised it"),
        ([prepare(COMMIT, 4, P)], [4], "one by a v1 client did not"),
        ([prepare(COMMIT, 4, P, client=1)], [4], "nor did one by a client that tells version 1"),
        ([prepare(ABORT, 4, P)], [None], "an abort by a v1 client may be a fence"),
        ([*v1(COMMIT, P, epoch=2), prepare(ABORT, 4, P)], [2, None], "an Ongoing record counts for one transaction"),
        ([*v1(COMMIT, P), *v1(COMMIT, Q)], [3, 3], "two in a row are two"),
        ([ongoing(3, P), empty(4), prepare(COMMIT, 4, P)], [4], "what was begun anew has no Ongoing record before it"),
    ],
)
def test_a_decision_is_about_data_of_the_epoch_that(logged: Records, expected: list[int | None], why: str) -> None:
    assert [decision.epoch for decision in decisions(logged)] == expected, why


# --- histories at random ----------------------------------------------------------------------------------------------

EPOCH_MAX = 32767


@dataclass(frozen=True)
class Txn:
    """A transaction of a history, with the epoch of its data. raised: whether its end raised the epoch."""

    producer_id: int
    epoch: int
    committed: bool
    partitions: frozenset[Key]
    raised: bool

    @property
    def names(self) -> bool:
        return P in self.partitions

    def same_epoch(self, other: Txn) -> bool:
        return (self.producer_id, self.epoch) == (other.producer_id, other.epoch)


@dataclass
class History:
    """What a coordinator writes of one id, as `TransactionMetadata` moves from state to state."""

    epoch: int
    producer_id: int = 7
    records: Records = field(default_factory=list)
    transactions: list[Txn] = field(default_factory=list)
    time_ms: int = NOW_MS

    def write(self, state: State, *partitions: Key, client: int = V1) -> None:
        changes = {"producer_id": self.producer_id, "offset": len(self.records), "start_time_ms": self.time_ms}
        self.records.append(record(state, self.epoch, *sorted(partitions), client=client, **changes))

    def init(self) -> None:
        """InitProducerId where nothing is open."""
        if self.epoch >= EPOCH_MAX - 1:
            self.producer_id, self.epoch = self.producer_id + 1, -1
        self.epoch += 1
        self.write(State.EMPTY)

    def end(self, committed: bool, partitions: frozenset[Key], client: int, raised: int, times: int = 1) -> None:
        """From Ongoing to Complete*. The next producer id is there from the completion on, where epochs are used up."""
        self.time_ms += 1
        exhausted = client == V2 and self.epoch >= EPOCH_MAX - 1
        self.transactions.append(Txn(self.producer_id, self.epoch, committed, partitions, raised > 0))
        for size in range(1, len(partitions) + 1):
            self.write(State.ONGOING, *sorted(partitions)[:size], client=client)
        self.epoch += raised
        for _ in range(times):
            self.write(State.PREPARE_COMMIT if committed else State.PREPARE_ABORT, *partitions, client=client)
        if exhausted:
            self.producer_id, self.epoch = self.producer_id + 1, 0
        self.write(State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT, client=client)

    def fence(self, partitions: frozenset[Key], twice: bool) -> None:
        """A timeout or another producer: the epoch is raised, by brokers with transactions v2 twice."""
        both = twice and self.epoch < EPOCH_MAX - 2
        self.end(False, partitions, V2 if both else V1, 2 if both else 1)
        self.init()

    def abort_nothing(self) -> None:
        """EndTxn of a v2 client whose first record never arrived (`noPartitionAdded`)."""
        if self.epoch < EPOCH_MAX - 1:
            self.end(False, frozenset(), V2, 1)
            self.transactions.pop()


SETS = st.frozensets(st.sampled_from([P, Q, ("p", 1)]), min_size=1)
ENDS = st.tuples(st.just("end"), SETS, st.booleans(), st.integers(1, 2))
FENCES = st.tuples(st.just("fence"), SETS, st.booleans(), st.just(1))
OTHERS = st.tuples(st.sampled_from(["init", "abort nothing"]), st.just(frozenset[Key]()), st.just(False), st.just(1))
STEPS = st.lists(st.tuples(st.one_of(ENDS, ENDS, FENCES, OTHERS), st.sampled_from([V1, V2])), min_size=1, max_size=8)
FIRST_EPOCHS = st.sampled_from([-1, 5, EPOCH_MAX - 5, EPOCH_MAX - 3])


def history(first_epoch: int, steps: Iterable[tuple[tuple[str, frozenset[Key], bool, int], int]]) -> History:
    made = History(first_epoch)
    if first_epoch >= 0:
        made.write(State.EMPTY)
    made.init()
    for (kind, partitions, flag, times), client in steps:
        if kind == "end":
            made.end(flag, partitions, client, int(client == V2), times)
        elif kind == "fence":
            made.fence(partitions, flag)
        elif kind == "init" or client == V1:
            made.init()
        else:
            made.abort_nothing()
    return made


def with_client(client: int) -> st.SearchStrategy[History]:
    steps = STEPS.map(lambda drawn: [(step, client) for step, _ in drawn])
    return st.builds(history, FIRST_EPOCHS, steps)


def open_data(txn: Txn, coordinator_epoch: int) -> Observation:
    return observation(producer_id=txn.producer_id, producer_epoch=txn.epoch, coordinator_epoch=coordinator_epoch)


def suffixes(made: History, o: Observation, expired: bool) -> Iterator[OutcomeEvidence]:
    """What can be read of it, from the full log to the last record; an expired id has no owner."""
    last = made.records[-1]
    owner_epoch = None if expired or last.producer_id != o.producer_id else last.producer_epoch
    for cut in range(len(made.records)):
        left = tuple(made.records[cut:])
        logged = left if any(one.producer_id == o.producer_id for one in left) else ()
        yield OutcomeEvidence(o, owner_epoch, o.producer_epoch, 0, None, logged, None)


def contradicts(found: Told, committed: bool) -> bool:
    return found.outcome == (NOT if committed else COMMITTED)


@settings(max_examples=400)
@given(with_client(V2), st.booleans())
def test_under_v2_no_suffix_of_a_log_contradicts_the_decision_and_the_full_log_tells_it(
    made: History, expired: bool
) -> None:
    for txn in made.transactions:
        for coordinator_epoch in (-1, 0):
            committed = txn.committed and txn.names
            full, *cut = (outcome(one) for one in suffixes(made, open_data(txn, coordinator_epoch), expired))
            assert full.outcome == (COMMITTED if committed else NOT), (txn, full)
            assert not [found for found in cut if contradicts(found, committed)], txn


@settings(max_examples=400)
@given(st.one_of(with_client(V1), st.builds(history, FIRST_EPOCHS, STEPS)), st.booleans())
def test_no_suffix_of_a_log_contradicts_the_decision_about_data_whose_marker_was_missed(
    made: History, expired: bool
) -> None:
    """Under v1, and where clients change between v1 and v2. All later markers of the partition were missed too."""
    for at, txn in enumerate(made.transactions):
        earlier = any(one.names and one.producer_id == txn.producer_id for one in made.transactions[:at])
        for coordinator_epoch in (-1, 0) if earlier else (-1,):
            if txn.names:
                assert_none_contradicts(made, txn, coordinator_epoch, expired)


@settings(max_examples=400)
@given(st.one_of(with_client(V1), st.builds(history, FIRST_EPOCHS, STEPS)), st.booleans())
def test_nor_about_a_late_record_that_came_after_its_own_marker(made: History, expired: bool) -> None:
    """A marker at a higher epoch would keep it out; later ones of its epoch need not."""
    for txn in made.transactions:
        if txn.names and not txn.raised:
            assert_none_contradicts(made, txn, 0, expired)


@settings(max_examples=400)
@given(st.one_of(with_client(V1), st.builds(history, FIRST_EPOCHS, STEPS)), st.booleans())
def test_nor_about_data_on_a_partition_that_was_never_added(made: History, expired: bool) -> None:
    """Every marker of the partition before it was written, and none came after it."""
    for at, txn in enumerate(made.transactions):
        of_it = [n for n, one in enumerate(made.transactions) if one.names and one.producer_id == txn.producer_id]
        if not txn.names and max(of_it, default=-1) < at:
            committed = False
            for one in suffixes(made, open_data(txn, 0 if of_it else -1), expired):
                assert not contradicts(outcome(one), committed), (txn, one)


def assert_none_contradicts(made: History, txn: Txn, coordinator_epoch: int, expired: bool) -> None:
    for one in suffixes(made, open_data(txn, coordinator_epoch), expired):
        assert not contradicts(outcome(one), txn.committed), (txn, one)
