"""The specification of `resolve apply`: the order of the steps, the refusals, and at most one marker per action."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from tests.builders import NOW_MS, P, Q, failed, judged, known, plan, stored, view
from tests.cases import Cases
from tests.fakes.applying import ACTION, GONE, PLAN, Crash, FakeBrokers, FakeJournal, now
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.write_txn_markers import MarkerToWrite
from txnscan.report.json import dumps
from txnscan.report.resolution import applied_object, print_applied
from txnscan.resolve.apply import (
    FORCE_TERMINATE,
    LOOKS_MAX,
    Attempt,
    JournalLost,
    PartitionState,
    Result,
    Status,
    apply_plan,
    changed,
    marker_for,
    settle_interrupted,
)
from txnscan.resolve.guard import ACCEPT_UNKNOWN, COMPLETE_COMMITS
from txnscan.resolve.lock import Process, parse_process, this_process
from txnscan.resolve.plan import Action, Plan
from txnscan.resolve.run import Applied
from txnscan.txnlog.facts import SeenMarker
from txnscan.verdict.evidence import Judged, Outcome, PeerPartitions, Reason, Verdict
from txnscan.verdict.outcome import with_outcome

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

OPEN = PartitionState(is_open=True, last_stable_offset=100, high_watermark=105)
UNREADABLE = PartitionState(error="broker 1 cannot be reached")


def orphaned(**changes: Any) -> Judged:
    """The same without an owner of the producer id."""
    return with_outcome(judged(**changes), known())


def apply(
    brokers: FakeBrokers | None = None,
    journal: FakeJournal | None = None,
    *,
    of: Plan = PLAN,
    execute: bool = True,
    options: Sequence[str] = (),
    on_step: Callable[[str, Action], None] = lambda step, action: None,
) -> list[Result]:
    return apply_plan(
        of,
        brokers or FakeBrokers(),
        journal or FakeJournal(),
        execute=execute,
        options=options,
        on_step=on_step,
        sleep=lambda seconds: None,
    )


def statuses(results: Sequence[Result]) -> list[Status]:
    return [result.status for result in results]


# --- the order --------------------------------------------------------------------------------------------------------


def test_each_step_is_journaled_before_the_next_and_the_proof_precedes_the_marker(
    wording: SnapshotAssertion,
) -> None:
    calls: list[str] = []
    brokers, journal = FakeBrokers(calls), FakeJournal(calls)
    (result,) = apply(brokers, journal, on_step=lambda step, action: calls.append(f"({step})"))
    assert calls == [
        *("hold", "(intend)", "intend", "(prove)", "prove", "connect", "(look)", "hold", "prove without log"),
        *("(send)", "write", "read partition", "(conclude)", "conclude"),
    ]
    assert (result.action, result.status) == (ACTION, Status.RESOLVED)
    assert result.detail == wording
    assert [attempt.status for attempt in journal.kept] == ["resolved"]


def test_actions_run_one_at_a_time_in_plan_order() -> None:
    calls: list[str] = []
    brokers = FakeBrokers(calls)
    results = apply(brokers, FakeJournal(calls), of=plan(stored(), stored(incident_id="incident-2", partition=1)))
    assert [result.action.topic_partition for result in results] == ["p-0", "p-1"]
    of_each = ["hold", "intend", "prove", "connect", "hold", "prove without log", "write", "read partition", "conclude"]
    assert calls == of_each * 2
    assert [marker.partition for _, marker in brokers.written] == [0, 1]


@pytest.mark.parametrize(
    ("transaction", "options", "leader", "epochs", "commit"),
    [
        ({}, (), 1, (3, 0), False),
        ({"coordinator_epoch": -1}, (), 1, (3, 0), False),
        ({"coordinator_epoch": 12}, (), 5, (3, 12), False),
        ({"producer_epoch": 8}, (), 1, (8, 0), False),
        ({"outcome": "unknown"}, (ACCEPT_UNKNOWN,), 1, (3, 0), False),
        ({"outcome": "committed"}, (COMPLETE_COMMITS,), 1, (3, 0), True),
    ],
)
def test_a_marker_is_sent_to_the_proven_leader_with_the_observed_epochs(
    transaction: dict[str, Any], options: tuple[str, ...], leader: int, epochs: tuple[int, int], commit: bool
) -> None:
    made = plan(stored(**transaction))
    shown: dict[str, Any] = {
        name: transaction[name] for name in ("coordinator_epoch", "producer_epoch") if name in transaction
    }
    if "producer_epoch" in shown:
        shown["second_producer_epoch"] = shown["producer_epoch"]
    brokers = FakeBrokers(proof=now(leader=leader, outcome=made.actions[0].outcome, **shown))
    assert statuses(apply(brokers, of=made, options=options)) == [Status.RESOLVED]
    ((to, marker),) = brokers.written
    assert to == leader and marker == marker_for(made.actions[0])
    request = marker.request()
    (sent,) = type(request).decode(request.encode(version=2, header=False), version=2, header=False).markers
    assert (sent.producer_id, sent.producer_epoch, sent.coordinator_epoch) == (7, *epochs)
    assert (sent.transaction_result, sent.transaction_version) == (commit, 0)
    assert [(topic.name, topic.partition_indexes) for topic in sent.topics] == [("p", [0])]


# --- without --execute ------------------------------------------------------------------------------------------------

FAILED_PROOF = RequestFailed("broker 1 cannot be reached")


@pytest.mark.parametrize(
    ("proof", "status", "said"),
    [
        (now(), Status.WOULD_SEND, "--execute sends its ABORT marker"),
        (None, Status.GONE, "the transaction is no longer open"),
        (now(second_start_offset=None), Status.GONE, "the transaction is no longer open"),
        (now(topic_id="t1"), Status.REFUSED, "another transaction is open there now"),
        (FAILED_PROOF, Status.REFUSED, "it could not be proven again: broker 1 cannot be reached"),
    ],
)
def test_a_dry_run_sends_and_journals_nothing(proof: Judged | BaseException | None, status: Status, said: str) -> None:
    calls: list[str] = []
    journal = FakeJournal(calls)
    (result,) = apply(FakeBrokers(calls, proof), journal, execute=False, on_step=lambda *_: calls.append("step"))
    assert result.status == status and said in result.detail
    assert calls == ["step", "prove"] and journal.kept == []


def test_a_dry_run_refuses_the_same_actions_as_an_apply() -> None:
    tried = FakeJournal(kept=[Attempt("a", "another plan", NOW_MS, ACTION, "unknown")])
    brokers = FakeBrokers()
    assert statuses(apply(brokers, tried, execute=False)) == [Status.REFUSED]
    assert statuses(apply(brokers, of=plan(stored(outcome="committed")), execute=False)) == [Status.REFUSED]
    assert brokers.calls == []


# --- proven again -----------------------------------------------------------------------------------------------------

CHANGED: tuple[tuple[str, Judged], ...] = (
    ("gone", now(second_start_offset=None, second_producer_epoch=None)),
    ("owned again", now(view("Ongoing", 9, (P,)))),
    ("late, and owned again", now(view("Ongoing", 9, (P,), start_time_ms=1))),
    ("decided", now(view("PrepareCommit", 9, (P,)))),
    ("not proven", now(second_failure=failed("NOT_LEADER_OR_FOLLOWER"))),
    ("not covered", now(view("Empty", 9, coverage_failure=failed("moved")))),
    ("behind", now(view("Empty", 2))),
    ("of another topic of that name", now(topic_id="t1")),
    ("of a topic of that name without an id", now(topic_id="")),
    ("of a higher epoch, without a topic id", now(topic_id="", producer_epoch=4, second_producer_epoch=4)),
    ("of a higher epoch", now(producer_epoch=4, second_producer_epoch=4)),
    ("of a lower epoch", now(producer_epoch=2, second_producer_epoch=2)),
    ("after another marker", now(coordinator_epoch=1)),
    ("before any marker", now(coordinator_epoch=-1)),
    ("a later one", now(start_offset=101, second_start_offset=101)),
    ("an earlier one", now(start_offset=99, second_start_offset=99)),
    ("an orphan now", orphaned()),
    ("checked against no log", now(outcome="not_committed", log_failure=failed("broker 2 cannot be reached"))),
    ("of a live owner", now(view("Empty", 3))),
    ("maybe committed", now(view("CompleteCommit", 4))),
    ("committed", now(outcome="committed")),
    ("not known", now(outcome="unknown")),
    ("maybe committed, by the log", now(outcome="maybe_committed")),
    ("committed in part", now(outcome="mixed")),
    ("without an outcome", now(outcome=None)),
    ("owned at its epoch", now(view("Empty", 3), reason=Reason.STALE_EPOCH)),
)


def test_any_difference_from_the_plan_is_reported_and_refuses_the_marker(wording: SnapshotAssertion) -> None:
    differences = {}
    with Cases() as cases:
        for difference, proof in CHANGED:
            with cases.case(difference) as name:
                why = changed(ACTION, proof)
                assert why is not None
                brokers, journal = FakeBrokers(proof=proof), FakeJournal()
                (result,) = apply(brokers, journal)
                gone = proof.judgement.verdict is Verdict.GONE
                assert result.status == (Status.GONE if gone else Status.REFUSED) and (gone or why in result.detail)
                assert brokers.calls == ["prove"] and [attempt.status for attempt in journal.kept] == [result.status]
                differences[name] = why
    assert differences == wording


@pytest.mark.parametrize(
    "proof",
    [
        now(),
        now(view("Empty", 4)),
        now(view("CompleteAbort", 9)),
        now(leader=2, leader_epoch=6),
        now(second_high_watermark=900, second_last_stable_offset=103),
        now(last_timestamp_ms=NOW_MS, first_seen_ms=NOW_MS),
    ],
    ids=[
        "the same",
        "a nearer owner",
        "at rest after an abort",
        "another leader",
        "more data",
        "not late by this proof",
    ],
)
def test_irrelevant_differences_from_the_plan_are_accepted(proof: Judged) -> None:
    assert changed(ACTION, proof) is None
    assert statuses(apply(FakeBrokers(proof=proof))) == [Status.RESOLVED]


def test_an_orphan_has_no_owner_to_compare() -> None:
    made = plan(stored(reason="orphan", owner_epoch=None, transactional_id=None))
    assert statuses(apply(FakeBrokers(proof=orphaned()), of=made)) == [Status.RESOLVED]


def test_a_closed_or_unproven_transaction_gets_no_marker() -> None:
    for proof, status in ((None, Status.GONE), (FAILED_PROOF, Status.REFUSED)):
        brokers, journal = FakeBrokers(proof=proof), FakeJournal()
        assert statuses(apply(brokers, journal)) == [status]
        assert brokers.written == [] and [attempt.status for attempt in journal.kept] == [status]


# --- the outcome, and the evidence of the log and of peer partitions --------------------------------------------------

PEERS = PeerPartitions(("q-0", "r-3"), (4,), NOW_MS)
SEEN = SeenMarker("q", 0, 12, 7, 4)
UNKNOWN_PLAN = plan(stored(outcome="unknown"))
COMMIT_PLAN = plan(stored(outcome="committed"))
EVERY_OPTION = (ACCEPT_UNKNOWN, COMPLETE_COMMITS)


def proof_of(outcome: str, **changes: Any) -> Judged:
    return with_outcome(now(outcome=None), known(outcome, **changes))


def test_a_marker_is_sent_only_if_the_outcome_equals_the_plan() -> None:
    with Cases() as cases:
        for planned, found in product((PLAN, UNKNOWN_PLAN, COMMIT_PLAN), Outcome):
            outcome = planned.actions[0].outcome
            with cases.case(f"planned as {outcome}, and {found} now"):
                brokers = FakeBrokers(proof=proof_of(found))
                (result,) = apply(brokers, of=planned, options=EVERY_OPTION)
                assert result.status is (Status.RESOLVED if found == outcome else Status.REFUSED)
                assert len(brokers.written) == (found == outcome)
                if found != outcome:
                    assert f"outcome was {outcome} in the plan and is {found} now" in result.detail


@pytest.mark.parametrize("planned", [PLAN, UNKNOWN_PLAN, COMMIT_PLAN], ids=["abort", "unknown", "commit"])
def test_an_unreadable_log_refuses_the_marker(planned: Plan, wording: SnapshotAssertion) -> None:
    brokers = FakeBrokers(proof=proof_of("unknown", log_failure=failed("broker 2 cannot be reached")))
    (result,) = apply(brokers, of=planned, options=EVERY_OPTION)
    assert result.status is Status.REFUSED and brokers.written == []
    assert result.detail == wording


def test_a_commit_marker_on_a_peer_partition_refuses_an_abort_and_is_stored_once() -> None:
    brokers, journal = FakeBrokers(proof=proof_of("unknown", peers=PEERS), seen_at_peer=SEEN), FakeJournal()
    (result,) = apply(brokers, journal, of=UNKNOWN_PLAN, options=EVERY_OPTION)
    assert (result.status, result.learned) == (Status.REFUSED, SEEN)
    assert result.detail == str(SEEN)
    assert brokers.calls == ["prove", "peers q-0, r-3"]
    assert journal.remembered == [SEEN]


def test_unreadable_peer_partitions_refuse_an_abort() -> None:
    brokers = FakeBrokers(proof=proof_of("unknown", peers=PEERS), seen_at_peer=RequestFailed("q-0 has no leader"))
    journal = FakeJournal()
    (result,) = apply(brokers, journal, of=UNKNOWN_PLAN, options=EVERY_OPTION)
    assert result.status is Status.REFUSED and "q-0 has no leader" in result.detail
    assert brokers.written == [] and journal.remembered == []


def test_peer_partitions_without_a_commit_marker_allow_the_accepted_abort() -> None:
    brokers, journal = FakeBrokers(proof=proof_of("unknown", peers=PEERS)), FakeJournal()
    assert statuses(apply(brokers, journal, of=UNKNOWN_PLAN, options=EVERY_OPTION)) == [Status.RESOLVED]
    assert brokers.calls[:3] == ["prove", "peers q-0, r-3", "connect"] and journal.remembered == []


def test_a_proven_outcome_does_not_read_peer_partitions() -> None:
    brokers = FakeBrokers(proof=proof_of("not_committed", peers=PEERS))
    assert statuses(apply(brokers)) == [Status.RESOLVED]
    assert not any(call.startswith("peers") for call in brokers.calls)


def test_a_lock_lost_while_waiting_for_an_owner_sends_no_marker() -> None:
    brokers, journal = FakeBrokers(looks=[BUSY, now()]), FakeJournal(lost_at=3)
    with pytest.raises(JournalLost):
        apply(brokers, journal)
    assert brokers.written == []


def test_a_dry_run_reads_peer_partitions_and_stores_nothing() -> None:
    brokers = FakeBrokers(proof=proof_of("unknown", peers=PEERS), seen_at_peer=SEEN)
    journal = FakeJournal()
    (result,) = apply(brokers, journal, of=UNKNOWN_PLAN, options=EVERY_OPTION, execute=False)
    assert result.status is Status.REFUSED and journal.remembered == []


# --- the last look ----------------------------------------------------------------------------------------------------

BUSY = now(view("Ongoing", 9, (Q,)))


@pytest.mark.parametrize(
    ("looked", "status", "said"),
    [
        (None, Status.GONE, "no longer open"),
        (now(view("Ongoing", 9, (P,))), Status.REFUSED, "it is ongoing now (owned)"),
        (now(coordinator_epoch=1), Status.REFUSED, "another transaction is open there now"),
        (now(leader=2), Status.FAILED, "the marker was not sent: its leader moved to broker 2: apply again"),
        (RequestFailed("broker 3 cannot be reached"), Status.REFUSED, "could not be proven again: broker 3"),
    ],
    ids=["gone", "owned", "another", "led elsewhere", "not proven"],
)
def test_a_change_after_the_proof_refuses_the_marker(
    looked: Judged | BaseException | None, status: Status, said: str
) -> None:
    brokers, journal = FakeBrokers(looks=[looked]), FakeJournal()
    (result,) = apply(brokers, journal)
    assert result.status == status and said in result.detail
    assert brokers.calls == ["prove", "connect", "prove without log"] and brokers.written == []
    assert [attempt.status for attempt in journal.kept] == [status]


def test_an_unreachable_leader_gets_no_marker(wording: SnapshotAssertion) -> None:
    brokers = FakeBrokers(unreachable=RequestFailed("broker 1 cannot be reached"))
    (result,) = apply(brokers)
    assert result.status == Status.FAILED
    assert result.detail == wording
    assert brokers.calls == ["prove", "connect"]


def test_apply_waits_until_the_owner_has_no_transaction() -> None:
    for state in ("Ongoing", "PrepareCommit", "PrepareAbort"):
        busy = replace(BUSY, evidence=replace(BUSY.evidence, coordinators=(view(state, 9, (Q,)),)))
        brokers = FakeBrokers(looks=[busy, busy, now()])
        assert statuses(apply(brokers)) == [Status.RESOLVED]
        assert brokers.calls.count("prove without log") == 3


def test_a_busy_owner_refuses_the_marker(wording: SnapshotAssertion) -> None:
    brokers = FakeBrokers(looks=[BUSY])
    (result,) = apply(brokers)
    assert result.status is Status.REFUSED and brokers.written == []
    assert result.detail == wording
    assert brokers.calls.count("prove without log") == LOOKS_MAX


# --- answers of the broker --------------------------------------------------------------------------------------------

# After an append the broker waits for the replicas. If it loses the lead meanwhile, it answers as if it had never led
# (`DelayedProduce.tryComplete`, cases A and B): the marker may be in the log, and the next leader may have it.
R, G, N, U = Status.RESOLVED, Status.GONE, Status.NOT_RESOLVED, Status.UNKNOWN
F, C = Status.FAILED, Status.RACED
ANSWERS: tuple[tuple[int, str, tuple[Status, Status, Status]], ...] = (
    # Code, its name, and the status if the next read shows: gone, still open, unreadable.
    (0, "the marker was written", (R, N, U)),
    (7, "REQUEST_TIMED_OUT", (G, U, U)),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", (G, U, U)),
    (3, "UNKNOWN_TOPIC_OR_PARTITION", (G, F, U)),
    (6, "NOT_LEADER_OR_FOLLOWER", (G, F, U)),
    (56, "KAFKA_STORAGE_ERROR", (G, F, U)),
    (-1, "UNKNOWN", (G, F, U)),
    (19, "NOT_ENOUGH_REPLICAS", (F, F, F)),
    (31, "CLUSTER_AUTHORIZATION_FAILED", (F, F, F)),
    (47, "INVALID_PRODUCER_EPOCH", (C, C, C)),
    (52, "TRANSACTION_COORDINATOR_FENCED", (C, C, C)),
)


def test_the_status_follows_from_the_brokers_answer_and_the_partition(wording: SnapshotAssertion) -> None:
    details = {}
    states = {"gone": GONE, "open": OPEN, "unreadable": UNREADABLE}
    with Cases() as cases:
        for code, answer, by_state in ANSWERS:
            for (then, state), status in zip(states.items(), by_state, strict=True):
                with cases.case(f"{answer}, then {then}") as name:
                    brokers, journal = FakeBrokers(answers=[code], state=state), FakeJournal()
                    (result,) = apply(brokers, journal)
                    assert result.status == status and answer in result.detail
                    assert len(brokers.written) == 1 and [attempt.status for attempt in journal.kept] == [status]
                    details[name] = result.detail
    assert details == wording


def test_an_unknown_error_code_is_a_failure() -> None:
    (result,) = apply(FakeBrokers(answers=[999]))
    assert result.status == Status.FAILED and "999" in result.detail


@pytest.mark.parametrize(
    ("sent", "state", "status", "calls"),
    [
        (False, OPEN, Status.FAILED, ["prove", "connect", "prove without log", "write"]),
        (False, GONE, Status.FAILED, ["prove", "connect", "prove without log", "write"]),
        (True, GONE, Status.GONE, ["prove", "connect", "prove without log", "write", "read partition"]),
        (True, OPEN, Status.UNKNOWN, ["prove", "connect", "prove without log", "write", "read partition"]),
        (True, UNREADABLE, Status.UNKNOWN, ["prove", "connect", "prove without log", "write", "read partition"]),
    ],
)
def test_a_missing_answer_is_judged_by_whether_the_request_was_sent(
    sent: bool, state: PartitionState, status: Status, calls: list[str]
) -> None:
    brokers = FakeBrokers(answers=[RequestFailed("the connection broke", sent=sent)], state=state)
    (result,) = apply(brokers)
    assert result.status == status and "the connection broke" in result.detail
    assert brokers.calls == calls


def test_another_transaction_below_the_high_watermark_is_reported(wording: SnapshotAssertion) -> None:
    (result,) = apply(FakeBrokers(state=PartitionState(is_open=False, last_stable_offset=102, high_watermark=105)))
    assert result.status == Status.RESOLVED and "from 100 to 102" in result.detail and "105" in result.detail
    assert result.detail == wording


THREE = plan(*(stored(incident_id=f"incident-{n}", partition=n) for n in range(3)))


def test_a_missing_acl_stops_the_remaining_actions_and_is_named_with_its_grant(wording: SnapshotAssertion) -> None:
    brokers, journal = FakeBrokers(answers=[0, 31, 0]), FakeJournal()
    results = apply(brokers, journal, of=THREE)
    assert statuses(results) == [Status.RESOLVED, Status.FAILED, Status.REFUSED]
    assert "--allow-principal User:ops --operation Alter" in results[1].detail
    assert results[2].detail == wording
    assert len(brokers.written) == len(journal.kept) == 2


def test_after_the_time_limit_no_other_marker_is_begun() -> None:
    """The marker that was begun is sent, read and concluded."""
    for execute in (True, False):
        brokers, journal = FakeBrokers(proofs_max=1), FakeJournal()
        first, second = apply(brokers, journal, of=TWO, execute=execute)
        assert (first.status, second.status) == (
            Status.RESOLVED if execute else Status.WOULD_SEND,
            Status.REFUSED,
        )
        assert brokers.time_is_up is not None and second.detail.endswith(brokers.time_is_up)
        assert (len(brokers.written), len(journal.kept)) == ((1, 1) if execute else (0, 0))
        assert [one.status for one in journal.kept] == ["resolved"] * execute


@pytest.mark.parametrize("code", [3, 6, 7, 19, 20, 47, 52, 56, -1])
def test_other_errors_do_not_stop_the_remaining_actions(code: int) -> None:
    brokers = FakeBrokers(answers=[0, code, 0], state=GONE)
    results = apply(brokers, of=THREE)
    assert len(brokers.written) == 3 and results[2].status == Status.RESOLVED


# --- refused actions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "options", "tried"),
    [
        ("committed", (), False),
        ("committed", (ACCEPT_UNKNOWN,), False),
        ("committed", (COMPLETE_COMMITS,), True),
        ("unknown", (), False),
        ("unknown", (COMPLETE_COMMITS,), False),
        ("unknown", (COMPLETE_COMMITS, ACCEPT_UNKNOWN), True),
        ("not_committed", (), True),
    ],
)
@pytest.mark.parametrize("execute", [True, False])
def test_a_marker_that_needs_an_option_is_not_sent_without_it(
    outcome: str, options: tuple[str, ...], tried: bool, execute: bool
) -> None:
    made = plan(stored(outcome=outcome))
    brokers, journal = FakeBrokers(proof=now(outcome=outcome)), FakeJournal()
    (result,) = apply(brokers, journal, of=made, options=options, execute=execute)
    if tried:
        assert result.status == (Status.RESOLVED if execute else Status.WOULD_SEND)
        return
    action = made.actions[0]
    assert result.status == Status.REFUSED and brokers.calls == journal.calls == []
    assert result.detail == f"its outcome is {outcome}: give {action.needs} to write this {action.marker} marker"


BEFORE_MS, AFTER_MS = NOW_MS - 1, NOW_MS + 1
EARLIER: tuple[tuple[str | None, int, Status], ...] = (
    # The status of an earlier attempt, its time, and the expected status now.
    (None, BEFORE_MS, Status.REFUSED),
    (None, NOW_MS, Status.REFUSED),
    (None, AFTER_MS, Status.REFUSED),
    ("resolved", BEFORE_MS, Status.RESOLVED),
    ("resolved", NOW_MS, Status.GONE),
    ("resolved", AFTER_MS, Status.GONE),
    ("gone", BEFORE_MS, Status.RESOLVED),
    ("gone", NOW_MS, Status.GONE),
    ("gone", AFTER_MS, Status.GONE),
    ("not_resolved", BEFORE_MS, Status.RESOLVED),
    ("not_resolved", NOW_MS, Status.REFUSED),
    ("not_resolved", AFTER_MS, Status.REFUSED),
    ("unknown", BEFORE_MS, Status.RESOLVED),
    ("unknown", NOW_MS, Status.REFUSED),
    ("unknown", AFTER_MS, Status.REFUSED),
    ("of a later version", AFTER_MS, Status.REFUSED),
    *(
        (status, at_ms, Status.RESOLVED)
        for status in ("refused", "failed", "raced")
        for at_ms in (BEFORE_MS, NOW_MS, AFTER_MS)
    ),
)


def test_a_marker_sent_by_an_earlier_apply_is_not_sent_again(wording: SnapshotAssertion) -> None:
    details = {}
    with Cases() as cases:
        for status, at_ms, expected in EARLIER:
            with cases.case(f"{status}, {at_ms - NOW_MS:+} ms") as name:
                brokers = FakeBrokers()
                (result,) = apply(brokers, FakeJournal(kept=[Attempt("a", "another plan", at_ms, ACTION, status)]))
                assert result.status == expected
                assert len(brokers.written) == (expected == Status.RESOLVED)
                assert brokers.calls == [] or expected == Status.RESOLVED
                details[name] = result.detail
    assert details == wording


@pytest.mark.parametrize("status", [None, "resolved", "unknown", "not_resolved"])
def test_attempts_on_other_transactions_are_ignored(status: str | None) -> None:
    other = Attempt("a", "another plan", NOW_MS, replace(ACTION, incident_id="incident-2"), status)
    assert statuses(apply(journal=FakeJournal(kept=[other]))) == [Status.RESOLVED]


def test_any_earlier_attempt_that_may_have_sent_the_marker_refuses_the_action() -> None:
    kept = [
        Attempt(f"{n}", "another plan", NOW_MS, ACTION, status)
        for n, status in enumerate(["refused", "failed", "unknown", "gone"])
    ]
    for order in (kept, kept[::-1]):
        assert statuses(apply(journal=FakeJournal(kept=order))) == [Status.REFUSED]


def test_a_plan_from_a_clock_ahead_of_time_is_applied_once() -> None:
    """`check_plan` accepts a plan that is dated up to a minute ahead."""
    brokers, journal = FakeBrokers(state=OPEN), FakeJournal(now_ms=NOW_MS - 30_000)
    assert statuses(apply(brokers, journal)) == [Status.NOT_RESOLVED]
    assert statuses(apply(brokers, journal)) == [Status.REFUSED]
    assert len(brokers.written) == 1


# --- interrupted attempts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "status", "kept", "said"),
    [
        (GONE, Status.GONE, "gone", "the transaction is gone, and it is not known whether"),
        (OPEN, Status.NOT_RESOLVED, "not_resolved", "so it is not known whether it sent its marker"),
        (UNREADABLE, Status.UNKNOWN, None, "and the partition cannot be read: broker 1 cannot be reached"),
    ],
)
def test_an_interrupted_attempt_is_settled_and_not_sent_again(
    state: PartitionState, status: Status, kept: str | None, said: str
) -> None:
    brokers, journal = FakeBrokers(state=state), FakeJournal(kept=[Attempt("a", "another plan", NOW_MS, ACTION, None)])
    (result,) = settle_interrupted("cluster-1", PLAN, brokers, journal)
    assert result.status == status and said in result.detail
    assert [attempt.status for attempt in journal.kept] == [kept]
    assert brokers.calls == ["read partition"] and journal.calls == ([] if kept is None else ["conclude"])
    (then,) = apply(brokers, journal)
    assert then.status == (Status.GONE if state is GONE else Status.REFUSED) and brokers.written == []


def test_only_attempts_without_an_outcome_are_settled_and_only_once() -> None:
    journal = FakeJournal(kept=[Attempt(status, "another plan", NOW_MS, ACTION, status) for status in Status])
    journal.kept.append(
        Attempt("open", "another plan", NOW_MS, replace(ACTION, incident_id="incident-2", partition=1), None)
    )
    brokers = FakeBrokers()
    (result,) = settle_interrupted("cluster-1", PLAN, brokers, journal)
    assert result.action.partition == 1 and brokers.calls == ["read partition"]
    assert settle_interrupted("cluster-1", PLAN, brokers, journal) == [] and brokers.calls == ["read partition"]


def test_after_the_time_limit_interrupted_attempts_stay_without_an_outcome(wording: SnapshotAssertion) -> None:
    fenced = replace(ACTION, incident_id="incident-2", reason=FORCE_TERMINATE)
    attempts = [Attempt("a", "another plan", NOW_MS, ACTION, None), Attempt("b", "another plan", NOW_MS, fenced, None)]
    reported: list[Result] = []
    brokers, journal = FakeBrokers(proofs_max=0), FakeJournal(kept=attempts)
    settled = settle_interrupted("cluster-1", PLAN, brokers, journal, reported.append)
    assert statuses(settled) == [Status.UNKNOWN] * 2 and reported == settled
    assert settled[0].detail == wording
    assert brokers.calls == journal.calls == [] and [one.status for one in journal.kept] == [None, None]
    assert statuses(apply(brokers, journal)) == [Status.REFUSED] and brokers.written == []


@pytest.mark.parametrize(
    ("lost_at", "calls"),
    [(1, ["hold"]), (2, ["hold", "intend", "prove", "connect", "hold"])],
    ids=["first", "before the marker"],
)
def test_an_apply_that_lost_its_lock_sends_no_marker(lost_at: int, calls: list[str]) -> None:
    done: list[str] = []
    journal = FakeJournal(done, lost_at=lost_at)
    with pytest.raises(JournalLost):
        apply(FakeBrokers(done), journal, of=THREE)
    assert done == calls
    assert [attempt.status for attempt in journal.kept] == [None] * (lost_at - 1)


@pytest.mark.parametrize("step", ["intend", "prove", "send", "conclude"])
def test_a_crash_leaves_an_intent_without_an_outcome(step: str) -> None:
    brokers, journal = FakeBrokers(), FakeJournal()

    def crash(now: str, action: Action) -> None:
        if now == step:
            raise Crash

    with pytest.raises(Crash):
        apply(brokers, journal, on_step=crash)
    assert [attempt.status for attempt in journal.kept] == ([] if step == "intend" else [None])
    assert len(brokers.written) == (step == "conclude")


def test_an_intent_left_by_a_journal_failure_is_settled_later() -> None:
    brokers, journal = FakeBrokers(), FakeJournal(fails_to_conclude=True)
    with pytest.raises(Crash):
        apply(brokers, journal)
    journal.fails_to_conclude = False
    assert statuses(apply(brokers, journal)) == [Status.REFUSED]
    assert statuses(settle_interrupted("cluster-1", PLAN, brokers, journal)) == [Status.GONE]
    assert statuses(apply(brokers, journal)) == [Status.GONE] and len(brokers.written) == 1


@pytest.mark.parametrize(("step", "sent"), [("prove", 0), ("send", 0), ("conclude", 1)])
def test_an_interrupted_apply_is_never_reported_as_resolved(step: str, sent: int) -> None:
    """An intent does not show whether its marker was sent: the coordinator may have ended the transaction."""
    brokers, journal = FakeBrokers(), FakeJournal()

    def crash(now: str, action: Action) -> None:
        if now == step:
            raise Crash

    with pytest.raises(Crash):
        apply(brokers, journal, on_step=crash)
    assert statuses(settle_interrupted("cluster-1", PLAN, brokers, journal)) == [Status.GONE]
    assert [attempt.status for attempt in journal.kept] == ["gone"] and len(brokers.written) == sent


def test_a_plan_sends_no_second_marker_if_a_gone_transaction_reappears() -> None:
    """An unreplicated marker is lost if another broker takes the lead."""
    brokers, journal = FakeBrokers(), FakeJournal(fails_to_conclude=True)
    with pytest.raises(Crash):
        apply(brokers, journal)
    journal.fails_to_conclude = False
    settle_interrupted("cluster-1", PLAN, brokers, journal)
    (result,) = apply(brokers, journal)
    assert result.status is Status.GONE
    assert len(brokers.written) == 1


# --- all combinations of failures -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fate:
    """The failures in one apply of one action.

    crash: the step before which the process ends, "in write" or "in conclude", or None. lost: which hold fails.
    lands: whether the marker ends the transaction. answer: what the broker answers. readable: whether reads succeed.
    """

    crash: str | None = None
    lost: int | None = None
    lands: bool = True
    answer: int | str = 0
    readable: bool = True


# Error codes that exclude an append.
WROTE_NOTHING = (19, 31, 47, 52, "not sent")
CRASHES = ("intend", "prove", "look", "send", "in write", "conclude", "in conclude")


class World:
    """A cluster and a journal under these failures. Proofs and reads show its real state."""

    def __init__(self) -> None:
        self.journal = FakeJournal()
        self.open = {action.partition: True for action in TWO.actions}
        self.sent: dict[int, list[Fate]] = {action.partition: [] for action in TWO.actions}
        self.fates: dict[int, Fate] = {}
        self.at = 0

    principal = "User:ops"

    time_is_up: str | None = None

    def prove(self, action: Action) -> Judged | None:
        self.at = action.partition
        return now(partition=action.partition) if self.open[action.partition] else None

    prove_without_log = prove

    def commit_seen(self, peers: PeerPartitions, producer_id: int) -> SeenMarker | None:
        raise AssertionError("nothing here is unknown")

    @contextmanager
    def marker_connection(self, leader: int) -> Iterator[Callable[[MarkerToWrite], int]]:
        yield lambda marker: self.write(leader, marker)

    def write(self, leader: int, marker: MarkerToWrite) -> int:
        fate = self.fates[marker.partition]
        self.sent[marker.partition].append(fate)
        if fate.lands and fate.answer not in WROTE_NOTHING:
            self.open[marker.partition] = False
        if fate.crash == "in write":
            raise Crash
        if isinstance(fate.answer, str):
            raise RequestFailed("no answer", sent=fate.answer == "sent")
        return fate.answer

    def read_partition(self, action: Action, *, sent: bool = True) -> PartitionState:
        if not self.fates[action.partition].readable:
            return UNREADABLE
        return OPEN if self.open[action.partition] else GONE

    def apply(self, fates: Sequence[Fate]) -> list[Result] | None:
        """Like `run.apply_to`. None if the process ended early."""
        self.fates = dict(enumerate(fates))
        self.journal.fails_to_conclude = False
        settle_interrupted("cluster-1", TWO, self, self.journal)

        def on_step(step: str, action: Action) -> None:
            fate = self.fates[action.partition]
            self.journal.fails_to_conclude = fate.crash == "in conclude"
            if fate.crash == step:
                raise Crash
            if step == "intend":
                self.journal.lost_at = self.journal.holds + 1 if fate.lost else None

        self.journal.lost_at = self.journal.holds + 1 if fates[0].lost == 0 else None
        try:
            return apply_plan(
                TWO, self, self.journal, execute=True, options=(), sleep=lambda seconds: None, on_step=on_step
            )
        except (Crash, JournalLost):
            return None


TWO = plan(*(stored(incident_id=f"incident-{n}", partition=n) for n in range(2)))
_FATES = st.builds(
    Fate,
    crash=st.none() | st.sampled_from(CRASHES),
    lost=st.sampled_from([None, None, None, 0, 1]),
    lands=st.booleans(),
    answer=st.sampled_from([0, 3, 6, 7, 20, 56, -1, "sent", *WROTE_NOTHING]),
    readable=st.booleans(),
)
_APPLIES = st.lists(st.tuples(_FATES, _FATES), min_size=1, max_size=4)
# Error codes that a broker returns both before and after an append. If the plan stops retrying after these, add them.
AMBIGUOUS = (3, 6, 56, -1)


def check_world(applies: Sequence[Sequence[Fate]]) -> None:
    """After a marker that may be in the log no further marker is written, and the final status is correct."""
    world = World()
    for fates in applies:
        world.apply(fates)
    results = world.apply([Fate(), Fate()])
    assert results is not None and len(results) == 2
    for partition, sent in world.sent.items():
        maybe_written = [fate for fate in sent if fate.answer not in WROTE_NOTHING or fate.crash == "in write"]
        unless = [fate for fate in maybe_written if fate.answer in AMBIGUOUS and not fate.lands and not fate.crash]
        assert len(maybe_written) - len(unless) <= 1, f"{sent} were sent to partition {partition}"
        landed = [n for n, fate in enumerate(sent) if fate.lands and fate.answer not in WROTE_NOTHING]
        assert landed in ([], [len(sent) - 1]), f"{sent}: something was sent after a marker that stands"
        result = results[partition]
        if result.status in (Status.RESOLVED, Status.GONE):
            assert not world.open[partition]
        elif world.open[partition]:
            assert result.status == Status.REFUSED
    assert all(attempt.status is not None for attempt in world.journal.kept)


@settings(max_examples=1_000)
@given(_APPLIES)
@example([(Fate(crash="in write", lands=False), Fate()), (Fate(), Fate())])
@example([(Fate(answer="sent", lands=False), Fate()), (Fate(), Fate())])
def test_each_marker_is_sent_at_most_once_in_any_number_of_applies(
    applies: list[tuple[Fate, Fate]],
) -> None:
    check_world(applies)


def every_fate() -> list[Fate]:
    answers = (0, 6, 7, 19, 31, 47, "sent", "not sent")
    crashes = [Fate(crash, None, lands) for crash in CRASHES for lands in (True, False)]
    answered = [
        Fate(None, None, lands, answer, seen) for lands in (True, False) for answer in answers for seen in (True, False)
    ]
    return [*crashes, *answered, Fate(lost=0), Fate(lost=1)]


def test_no_pair_of_failing_applies_sends_a_second_marker() -> None:
    for first in every_fate():
        for second in every_fate():
            check_world([(first, Fate()), (second, Fate(answer=19))])


# --- output -----------------------------------------------------------------------------------------------------------


def applied(*results: Result, executed: bool = True, settled: tuple[Result, ...] = ()) -> Applied:
    return Applied(executed, results, settled)


def shown(found: Applied) -> str:
    output = io.StringIO()
    print_applied(Console(file=output, width=300, highlight=False), found)
    return output.getvalue()


@pytest.mark.parametrize(
    ("statuses", "complete"),
    [
        ((), True),
        (("resolved", "gone", "would_send"), True),
        *((("resolved", s), False) for s in ("refused", "raced", "failed", "not_resolved", "unknown")),
    ],
)
def test_an_apply_is_complete_when_no_action_remains(statuses: tuple[str, ...], complete: bool) -> None:
    assert applied(*(Result(ACTION, Status(status), "") for status in statuses)).complete is complete


def test_results_are_shown_after_those_of_earlier_applies(
    wording: SnapshotAssertion,
) -> None:
    text = shown(
        applied(
            Result(ACTION, Status.RESOLVED, "it is gone"),
            Result(ACTION, Status.NOT_RESOLVED, "bad\nnews\x1b[2J"),
            settled=(Result(ACTION, Status.GONE, "it was gone"),),
        )
    )
    assert text == wording
    rehearsed = shown(applied(Result(ACTION, Status.WOULD_SEND, "proven again"), executed=False))
    assert rehearsed == wording
    assert [shown(applied(executed=executed)) for executed in (False, True)] == wording


def test_the_json_result_has_the_action_and_its_status() -> None:
    found = json.loads(dumps(applied_object(applied(Result(ACTION, Status.RACED, "why"), executed=True))))
    (result,) = found["results"]
    assert (found["executed"], found["settled"]) == (True, [])
    assert (result["status"], result["detail"], result["marker"], result["topic"]) == ("raced", "why", "ABORT", "p")


# --- the process that owns the lock -----------------------------------------------------------------------------------

HERE = this_process()
PID_MAX = 4_194_304


@pytest.mark.parametrize(
    ("text", "process"),
    [
        ("host process 7", Process("host", 7, "")),
        ("host process 7 of boot/pid:[1]", Process("host", 7, "boot/pid:[1]")),
        ("host process 7 of ", None),
        ("host process", None),
        ("host process -7", None),
        ("host process x", None),
        ("a host process 7", None),
        ("host process 7 of boot/pid:[1] and more", None),
        ("host process 7\n", None),
        ("", None),
    ],
)
def test_a_process_is_parsed_from_its_text_or_rejected(text: str, process: Process | None) -> None:
    assert parse_process(text) == process
    assert process is None or str(process) == text


def test_the_current_process_survives_a_round_trip_through_text() -> None:
    assert parse_process(str(HERE)) == HERE and HERE.pid == os.getpid()


@pytest.mark.parametrize(
    ("process", "gone"),
    [
        (HERE, False),
        (replace(HERE, pid=os.getppid()), False),
        (replace(HERE, pid=PID_MAX + 1), HERE.space != ""),
        (replace(HERE, pid=PID_MAX + 1, host="elsewhere"), False),
        (replace(HERE, pid=PID_MAX + 1, space="another boot/pid:[1]"), False),
        (replace(HERE, pid=PID_MAX + 1, space=""), False),
    ],
    ids=["this one", "its parent", "ended", "on another host", "in another space", "in a space that is not known"],
)
def test_a_process_is_gone_only_if_this_host_can_prove_it(process: Process, gone: bool) -> None:
    assert process.is_gone is gone


def test_without_a_pid_namespace_no_process_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txnscan.resolve.lock.this_process", lambda: Process("host", 1, ""))
    assert not Process("host", PID_MAX + 1, "").is_gone
