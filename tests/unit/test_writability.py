"""Whether a log takes a write, which log keeps a transaction open, and which marker will be lost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.builders import MINUTE_MS, NOW_MS, P, failed, judged, view
from tests.cases import Cases
from tests.fakes.write_states import LOG, P0, Q0, replicas, state
from txnscan.kafka.answers import State
from txnscan.kafka.topology import NO_LEADER_ID, NO_LISTENER_ID, Key, PartitionReplicas
from txnscan.verdict.evidence import Reason, Verdict
from txnscan.verdict.rules import judge
from txnscan.waiting.writability import (
    NoLog,
    WriteState,
    WriteStates,
    claim_of,
    danger,
    doubt_warning,
    log_warning,
    no_log_reason,
    no_log_remedy,
    partition_warning,
    reason,
    remedy,
    takes_writes,
    with_reason,
)

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

# Times of transaction X, which is open on p-0.
YOUNG = {"start_time_ms": NOW_MS - 2 * MINUTE_MS}
OVERDUE = {"start_time_ms": NOW_MS - 18 * MINUTE_MS}


def states(log: WriteState | None = None, *others: WriteState, dropping: frozenset[int] = frozenset()) -> WriteStates:
    found = (log or state(key=LOG), *others)
    return WriteStates({one.replicas.key: one for one in found}, log_partitions=1, dropping=dropping)


def unanswered(key: Key = P0) -> WriteState:
    """A partition with all replicas in sync, of which two do not answer."""
    return replace(state(key=key), silent=(2, 3))


def test_a_log_takes_writes_with_enough_replicas_in_sync() -> None:
    """in sync, min.insync.replicas, replicas, whether the release caps the setting."""
    cases: tuple[tuple[str, int, int | None, int, bool | None, bool | None], ...] = (
        ("all in sync", 3, 2, 3, True, True),
        ("as many as needed", 2, 2, 3, True, True),
        ("too few", 1, 2, 3, True, False),
        ("too few, on an old release", 1, 2, 3, False, False),
        ("too few, on an unknown release", 1, 2, 3, None, False),
        ("the default setting", 1, 1, 3, None, True),
        ("more needed than replicas, since 3.7", 1, 2, 1, True, True),
        ("more needed than replicas, before 3.7", 1, 2, 1, False, False),
        ("more needed than replicas, on an unknown release", 1, 2, 1, None, None),
        ("more needed than replicas, not all in sync", 1, 3, 2, True, False),
        ("more needed than replicas, not all in sync, before 3.7", 1, 3, 2, False, False),
        ("the setting is not known", 1, None, 2, True, None),
        ("the setting is not known, and all are in sync since 3.7", 2, None, 2, True, True),
        ("the setting is not known, and all are in sync", 2, None, 2, None, None),
        ("the setting is not known, and all are in sync before 3.7", 2, None, 2, False, None),
    )
    with Cases() as table:
        for name, in_sync, needed, factor, is_capped, expected in cases:
            with table.case(name):
                assert takes_writes(in_sync, needed, factor, is_capped=is_capped) is expected
                # The leader waits for a replica in sync that does not answer, perhaps for ever.
                with_silent = takes_writes(in_sync, needed, factor, is_capped=is_capped, silent=1)
                assert with_silent is (None if expected else expected)


def test_a_partition_takes_writes_by_its_leader_and_its_replicas() -> None:
    """Whether it takes writes, may take none, never does, and has no leader once its leader stops."""
    cases: tuple[tuple[str, WriteState, tuple[bool | None, bool, bool, bool]], ...] = (
        ("all in sync", state(), (True, False, False, False)),
        ("one in sync", state((1,)), (False, False, False, True)),
        ("one in sync, which is enough", state((1,), min_in_sync=1), (True, False, False, True)),
        ("one in sync, and another may lead", state((1,), eligible=(3,)), (False, False, False, False)),
        ("the other is down", state((1,), eligible=(3,), offline=(3,)), (False, False, False, True)),
        ("no leader", state(()), (False, False, False, False)),
        ("no leader, by the last one in sync", state((3,), leader=NO_LEADER_ID), (False, False, False, False)),
        ("no listener", state(leader=NO_LISTENER_ID), (True, False, False, False)),
        ("no listener, one in sync", state((1,), leader=NO_LISTENER_ID), (False, False, False, False)),
        ("an answer that is not usable", state((), leader=1), (None, False, False, True)),
        ("the setting is not known", state((1,), min_in_sync=None), (None, True, False, True)),
        ("the setting is not known, and all are in sync", state(min_in_sync=None), (None, False, False, False)),
        ("too many needed", replace(state(min_in_sync=4), is_capped=False), (False, False, True, False)),
        ("one in sync does not answer", replace(state(), silent=(2,)), (None, True, False, False)),
        ("one not in sync does not answer", replace(state((1, 2)), silent=(3,)), (True, False, False, False)),
        ("too few in sync, and they do not answer", replace(state((1,)), silent=(1,)), (False, False, False, True)),
        ("too many needed, since 3.7", replace(state(min_in_sync=4), is_capped=True), (True, False, False, False)),
    )
    with Cases() as table:
        for name, one, expected in cases:
            with table.case(name):
                assert (one.takes_writes, one.may_take_none, one.never, one.is_last) == expected


def test_replicas_know_who_may_lead_and_who_must_come_back() -> None:
    """Who may lead, now and without broker 1; and the brokers whose replicas are missing."""
    cases: tuple[tuple[str, PartitionReplicas, set[int], set[int], tuple[int, ...]], ...] = (
        ("all in sync", replicas(), {1, 2, 3}, {2, 3}, ()),
        ("two in sync", replicas((1, 3)), {1, 3}, {3}, (2,)),
        ("one in sync, one eligible", replicas((1,), eligible=(2,)), {1, 2}, {2}, (2, 3)),
        ("the eligible one is down", replicas((1,), eligible=(2,), offline=(2, 3)), {1}, set(), (2, 3)),
        ("no leader, the last one is in sync", replicas((2,), leader=NO_LEADER_ID, offline=(2,)), set(), set(), (2,)),
        ("no leader, the last one is eligible", replicas((), eligible=(3,), offline=(3,)), set(), set(), (3,)),
        ("no leader, nobody is known to have all", replicas(()), set(), set(), (1, 2, 3)),
    )
    with Cases() as table:
        for name, one, now, later, missing in cases:
            with table.case(name):
                assert ({*one.electable()}, {*one.electable({1})}, one.missing) == (now, later, missing)


def test_the_first_partition_that_takes_no_writes_keeps_a_transaction_open() -> None:
    short_log, short_p, short_q = state((1,), LOG), state((1,), P0), state((1,), Q0)
    doubtful = state((1,), LOG, min_in_sync=None)
    cases: tuple[tuple[str, WriteStates, str, WriteState | None], ...] = (
        ("all take writes", states(None, state(), state(key=Q0)), State.ONGOING, None),
        ("the log", states(short_log, short_p), State.ONGOING, short_log),
        ("a partition", states(None, short_p), State.ONGOING, short_p),
        ("the second partition", states(None, state(), short_q), State.ONGOING, short_q),
        ("decided: the partition first", states(short_log, short_p), State.PREPARE_COMMIT, short_p),
        ("decided: the log last", states(short_log, state()), State.PREPARE_ABORT, short_log),
        ("not known", states(doubtful, state()), State.ONGOING, doubtful),
        ("not known, and a partition", states(doubtful, short_p), State.ONGOING, short_p),
        ("no leader", states(None, state(())), State.ONGOING, state(())),
        ("no leader, and its marker is dropped", states(None, state(()), dropping=frozenset({1})), State.ONGOING, None),
        ("nothing was read", WriteStates(), State.ONGOING, None),
    )
    with Cases() as table:
        for name, found, of, expected in cases:
            with table.case(name):
                assert found.blocker("X", of, [P0, Q0]) == expected


def test_an_open_transaction_is_kept_open_by_its_log_or_its_own_partition() -> None:
    live, decided = judged(view("Ongoing", 3, (P, "q-0"))), judged(view("PrepareCommit", 4, (P, "q-0")))
    hanging, short_log, short_p = judged(view("CompleteCommit", 3)), state((1,), LOG), state((1,))
    cases = (
        ("the log", live, states(short_log), short_log),
        ("its partition", live, states(None, short_p), short_p),
        ("another of its partitions", live, states(None, state((1,), Q0)), None),
        ("decided: the log does not matter", decided, states(short_log), None),
        ("decided: its partition", decided, states(short_log, short_p), short_p),
        ("hanging", hanging, states(short_log, short_p), None),
        ("two claims", judged(*(view("Ongoing", 3, (P,), broker_id=b) for b in (2, 3))), states(short_log), None),
    )
    with Cases() as table:
        for name, one, found, expected in cases:
            with table.case(name):
                assert found.blocker_of(one) == expected


def test_only_coordinators_that_drop_markers_put_partitions_in_danger() -> None:
    lost, last, fine = state((), Q0), state((1,)), state(key=("r", 0))
    no_listener = state((1, 2), ("s", 0), leader=NO_LISTENER_ID)
    every = [one.replicas.key for one in (last, lost, fine, no_listener)]
    of = (None, last, lost, fine, no_listener)
    assert states(*of, dropping=frozenset({1})).in_danger("X", every) == (lost, last)
    assert states(*of, dropping=frozenset({2})).in_danger("X", every) == ()
    assert WriteStates(dropping=frozenset({1})).in_danger("X", every) == ()


def test_the_reason_replaces_the_promise_of_an_end_and_keeps_the_verdict(wording: SnapshotAssertion) -> None:
    short = states(state((1,), LOG), state((1,)))
    found = {}
    for name, one in (
        ("ongoing", judged(view("Ongoing", 3, (P,), **YOUNG))),
        ("overdue", judged(view("Ongoing", 3, (P,), **OVERDUE))),
        ("decided", judged(view("PrepareAbort", 4, (P,)))),
    ):
        told = with_reason(one, short)
        assert (told.judgement.verdict, told.judgement.reason) == (one.judgement.verdict, one.judgement.reason)
        assert told.evidence is one.evidence and "will end it" not in told.judgement.explanation
        found[name] = told.judgement.explanation
        assert with_reason(one, states(state(key=LOG), state())) is one
        in_doubt = with_reason(one, states(unanswered(LOG), unanswered()))
        assert in_doubt.judgement.verdict is one.judgement.verdict
        assert "will end it" not in in_doubt.judgement.explanation
        found[f"{name}, in doubt"] = in_doubt.judgement.explanation
    joined = judged(view("Ongoing", 3, (P,), **YOUNG))
    evidence = replace(joined.evidence, joined_commit="'X' committed epoch 3")
    endangers = replace(joined, evidence=evidence, judgement=judge(evidence))
    assert endangers.judgement.reason is Reason.JOINED_COMMIT
    found["joined commit"] = with_reason(endangers, short).judgement.explanation
    found["joined commit, in doubt"] = with_reason(endangers, states(unanswered(LOG))).judgement.explanation
    hanging = judged(view("CompleteCommit", 3))
    assert hanging.judgement.verdict is Verdict.HANGING and with_reason(hanging, short) is hanging
    assert claim_of(hanging) is None
    assert found == wording


def test_words(wording: SnapshotAssertion) -> None:
    never = replace(state(key=LOG, min_in_sync=4), is_capped=False)
    one_log, two_logs = states(state((1,), LOG)), states(state((1,), LOG), state((2,), (LOG[0], 1)))
    of_p = states(None, state((1,)), state((1,), Q0))
    unread = replace(state((1,), LOG, min_in_sync=None), failure=failed("TOPIC_AUTHORIZATION_FAILED"))
    lost = (state(()), state((), eligible=(3,)))
    assert [log_warning(states()), partition_warning(one_log.stopped), partition_warning(lost)] == [None] * 3
    assert doubt_warning(one_log) is None
    assert {
        "reasons": [
            reason(one) for one in (state((1,)), state((1, 2), min_in_sync=3), unread, unanswered(), never, state(()))
        ],
        "remedies": [remedy(one) for one in (state((1,)), state((1, 2), min_in_sync=3), unanswered(), never, *lost)],
        "logs": [log_warning(one) for one in (one_log, replace(two_logs, log_partitions=2), states(never))],
        "partitions": [partition_warning(one.stopped) for one in (states(None, state((1,))), of_p)],
        "doubts": [doubt_warning(states(unread)), doubt_warning(states(unread, state((1,), min_in_sync=None)))],
        "dangers": [danger(state(()), "in 9 min"), danger(state((1,)), "in 9 min"), danger(state((1,)), None)],
        "no log": [f"{no_log_reason(one)}. {no_log_remedy(one)}" for one in (NoLog(3, 1), NoLog(3, 2))],
    } == wording


def test_a_log_cannot_be_made_with_fewer_brokers_than_its_replicas() -> None:
    assert [NoLog(factor, 2).cannot_be_made for factor in (1, 2, 3, None)] == [False, False, True, False]
