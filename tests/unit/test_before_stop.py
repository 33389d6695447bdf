"""What the stop of brokers does to a partition, and the verdict: the table of rules, and every condition of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from tests.builders import NOW_MS, failed
from tests.cases import Cases
from txnscan.coordinators.quorum import keeps_majority, voters_left
from txnscan.kafka.protocol.describe_quorum import Quorum, Voter
from txnscan.kafka.topology import NO_LEADER_ID, NO_LISTENER_ID, TRANSACTION_STATE_TOPIC, PartitionReplicas
from txnscan.waiting.before_stop import (
    RECENT_MS,
    Concerned,
    Effect,
    Held,
    Note,
    StopEffects,
    StopVerdict,
    What,
    after_stop,
    effect,
    judge,
    verdict,
)
from txnscan.waiting.writability import WriteState

OPEN = (Concerned(7, "X", "Ongoing"),)
RECENTLY, LONG_AGO = NOW_MS - RECENT_MS, NOW_MS - RECENT_MS - 1


def replicas(
    in_sync: tuple[int, ...] = (1, 2, 3), every: tuple[int, ...] = (1, 2, 3), topic: str = "p", **changes: Any
) -> PartitionReplicas:
    """A partition whose first in-sync replica leads."""
    leader = in_sync[0] if in_sync else NO_LEADER_ID
    return replace(PartitionReplicas(topic, 0, leader, every, in_sync), **changes)


def held(
    one: PartitionReplicas,
    stopping: Collection[int],
    minimum: int | None = 1,
    *,
    is_capped: bool | None = True,
    **changes: Any,
) -> Held:
    """With a transaction, unless `changes` say otherwise."""
    after = WriteState(after_stop(one, stopping), minimum, is_capped)
    return replace(Held(one, after, transactions=OPEN), **changes)


def test_what_remains_of_a_partition() -> None:
    """Its leader, its in-sync replicas, and its eligible ones, when brokers have stopped."""
    eligible = replicas((1,), eligible=(2, 3))
    none = (NO_LEADER_ID, (), ())
    cases: tuple[tuple[str, PartitionReplicas, tuple[int, ...], tuple[int, tuple[int, ...], tuple[int, ...]]], ...] = (
        ("a follower stops", replicas(), (3,), (1, (1, 2), ())),
        ("the leader stops", replicas(), (1,), (2, (2, 3), ())),
        ("the order of the assignment decides", replicas((1, 2, 3), (1, 3, 2)), (1,), (3, (2, 3), ())),
        ("two stop", replicas(), (1, 2), (3, (3,), ())),
        ("all stop", replicas(), (1, 2, 3), none),
        ("the last in sync stops", replicas((1,)), (1,), none),
        ("the other in sync is offline", replicas((1, 2), offline=(2,)), (1,), none),
        ("an eligible one remains", eligible, (1,), (2, (2,), (2, 3))),
        ("the eligible ones stop, too", eligible, (1, 2, 3), none),
        ("the eligible one is offline", replicas((1,), eligible=(2,), offline=(2,)), (1,), none),
        ("a broker without a replica stops", replicas((1,)), (9,), (1, (1,), ())),
        ("a leader without our listener", replicas(leader=NO_LISTENER_ID), (3,), (NO_LISTENER_ID, (1, 2), ())),
        ("it had no leader", replicas((), eligible=(2,)), (1,), (2, (2,), (2,))),
    )
    with Cases() as table:
        for name, one, stopping, expected in cases:
            with table.case(name):
                after = after_stop(one, stopping)
                shown = (after.leader, tuple(sorted(after.in_sync)), after.eligible)
                assert shown == expected
                assert {*stopping}.intersection(one.replicas).issubset(after.offline)


LOG = replicas((1,), topic=TRANSACTION_STATE_TOPIC)
LAST, SOLO, PAIR = replicas((1,)), replicas((1,), (1,)), replicas((1, 2), (1, 2))


def test_the_first_rule_that_holds_gives_the_effect() -> None:
    """drops: whether a coordinator drops the marker of a partition without a leader."""
    cases: tuple[tuple[str, Held, bool | None, str | None], ...] = (
        ("an unclean election", held(LAST, [1], unclean=True), True, "unclean_election"),
        ("of the transaction log", held(LOG, [1], unclean=True), True, "unclean_election"),
        ("an unclean election, and no other replica", held(SOLO, [1], unclean=True), True, "marker_dropped"),
        ("and the others stop, too", held(LAST, [1, 2, 3], unclean=True), True, "marker_dropped"),
        ("and the others are offline", held(replace(LAST, offline=(2, 3)), [1], unclean=True), True, "marker_dropped"),
        ("no unclean election", held(LAST, [1], unclean=False), True, "marker_dropped"),
        ("it is not known", held(LAST, [1]), True, "marker_dropped"),
        ("no coordinator drops markers", held(LAST, [1]), False, "marker_waits"),
        ("the release is not known", held(LAST, [1]), None, "marker_dropped"),
        ("the transaction log", held(LOG, [1]), True, "no_coordinator"),
        ("the transaction log, whatever the release", held(LOG, [1]), False, "no_coordinator"),
        ("another replica remains", held(PAIR, [1]), True, None),
        ("an eligible one remains", held(replicas((1,), eligible=(2,)), [1]), True, None),
        ("too few remain in sync", held(PAIR, [1], 2), True, "too_few_in_sync"),
        ("too few of the transaction log", held(replace(LOG, in_sync=(1, 2)), [1], 2), False, "too_few_in_sync"),
        ("as many as needed", held(replicas(), [1], 2), True, None),
        ("more needed than replicas", held(PAIR, [2], 3), True, "too_few_in_sync"),
        ("more needed than replicas, and all remain, since 3.7", held(PAIR, [9], 3), True, None),
        ("the same before 3.7", held(PAIR, [9], 3, is_capped=False), True, "too_few_in_sync"),
        ("the minimum is not known", held(PAIR, [1], None), True, None),
    )
    with Cases() as table:
        for name, one, drops, expected in cases:
            with table.case(name):
                rule = effect(one, drops)
                assert (None if rule is None else rule.reason) == expected


def test_only_partitions_with_transactions_are_harmed() -> None:
    """Each partition is harmed (its effect), idle, unknown, or untouched."""
    idle: dict[str, Any] = {"transactions": ()}
    unread = {**idle, "failure": failed("UNREADABLE")}
    ended = {**idle, "ended": 1, "newest_ended_ms": LONG_AGO}
    at_work = {**idle, "ended": 1, "newest_ended_ms": RECENTLY}
    unclean = {"unclean": True}
    torn, lost, blocked = Effect.TORN, Effect.END_LOST, Effect.BLOCKED
    cases: tuple[tuple[str, Held, str], ...] = (
        ("torn, open", held(LAST, [1]), torn),
        ("torn, listed", held(LAST, [1], transactions=(Concerned(7, "X", "Ongoing", has_data=False),)), torn),
        ("torn, idle", held(LAST, [1], **idle), "idle"),
        ("torn, ended long ago", held(LAST, [1], **ended, unclean=False), "idle"),
        ("torn, at work", held(LAST, [1], **at_work), torn),
        ("torn, by another clock", held(LAST, [1], **{**at_work, "newest_ended_ms": NOW_MS + 10_000}), torn),
        ("torn, not read", held(LAST, [1], **unread), "unknown"),
        ("torn, listed and not read", held(LAST, [1], **{**unread, "transactions": OPEN}), torn),
        ("end lost, open", held(LAST, [1], **unclean), lost),
        ("end lost, idle", held(LAST, [1], **idle, **unclean), "idle"),
        ("end lost, ended long ago", held(LAST, [1], **ended, **unclean), lost),
        ("perhaps end lost, ended long ago", held(LAST, [1], **ended, unclean=None), "unknown"),
        ("perhaps end lost, idle", held(LAST, [1], **idle, unclean=None), "idle"),
        ("no other replica, ended long ago", held(SOLO, [1], **ended, unclean=None), "idle"),
        ("end lost, not read", held(LAST, [1], **unread, **unclean), "unknown"),
        ("end of the transaction log lost", held(LOG, [1], **idle, **unclean), lost),
        ("blocked, open", held(PAIR, [1], 2), blocked),
        ("blocked, idle", held(PAIR, [1], 2, **idle), "idle"),
        ("blocked, ended long ago", held(PAIR, [1], 2, **ended), "idle"),
        ("blocked, at work", held(PAIR, [1], 2, **at_work), blocked),
        ("blocked, not read", held(PAIR, [1], 2, **unread), "unknown"),
        ("no coordinator, without a transaction", held(LOG, [1], **idle), blocked),
        ("the minimum is not known, open", held(PAIR, [1], None), "unknown"),
        ("the minimum is not known, idle", held(PAIR, [1], None, **idle), "untouched"),
        ("the minimum is not known, not read", held(PAIR, [1], None, **unread), "unknown"),
        ("the minimum of the log is not known", held(replace(LOG, in_sync=(1, 2)), [1], None, **idle), "unknown"),
        ("nothing happens to it", held(PAIR, [1]), "untouched"),
        ("nothing happens to it, not read", held(PAIR, [1], **unread), "untouched"),
    )
    with Cases() as table:
        for name, one, expected in cases:
            with table.case(name):
                found = judge([one], True, NOW_MS)
                parts = [harm.rule.effect.value for harm in found.harms]
                parts += ["idle"] * sum(count for _, count in found.idle) + ["unknown"] * len(found.unknown)
                assert parts == ([] if expected == "untouched" else [expected])


def test_harm_that_was_seen_counts_first_and_what_was_not_observed_is_never_safe() -> None:
    harmed = judge([held(LAST, [1])], True, NOW_MS)
    unknown = judge([held(PAIR, [1], None)], True, NOW_MS)
    moved, lost = Note(Effect.MOVED, What.IDS, 5), Note(Effect.NO_MAJORITY, What.VOTERS, 1, unsafe=True)
    safe, unsafe, not_observed = StopVerdict.SAFE, StopVerdict.UNSAFE, StopVerdict.NOT_OBSERVED
    cases: tuple[tuple[str, StopEffects, tuple[Note, ...], bool, StopVerdict], ...] = (
        ("nothing", StopEffects(), (), True, safe),
        ("a note", StopEffects(), (moved,), True, safe),
        ("idle partitions", judge([held(LAST, [1], transactions=())], True, NOW_MS), (), True, safe),
        ("harm", harmed, (), True, unsafe),
        ("harm, and not all observed", harmed, (), False, unsafe),
        ("no majority", StopEffects(), (moved, lost), True, unsafe),
        ("a partition is not known", unknown, (), True, not_observed),
        ("not all observed", StopEffects(), (moved,), False, not_observed),
    )
    with Cases() as table:
        for name, judged, notes, observed, expected in cases:
            with table.case(name):
                assert verdict(judged, notes, observed=observed) is expected


def test_a_majority_of_controllers_that_fetch_must_remain() -> None:
    """By the clock of the leader, 1. A node that is no voter takes none away."""

    def quorum(*fetched_ms: int) -> Quorum:
        voters = (Voter(one, at) for one, at in enumerate(fetched_ms, start=1))
        return Quorum(1, 5, 100, NOW_MS, tuple(voters))

    away = NOW_MS - 10_000
    three, lame = quorum(NOW_MS, NOW_MS - 400, NOW_MS - 3_000), quorum(NOW_MS, NOW_MS, away)
    cases: tuple[tuple[str, Quorum, tuple[int, ...], int, bool], ...] = (
        ("a follower", three, (3,), 2, True),
        ("the leader", three, (1,), 2, True),
        ("two of three", three, (1, 2), 1, False),
        ("one is away already", lame, (2,), 1, False),
        ("the one that is away", lame, (3,), 2, True),
        ("a broker alone", three, (9,), 3, True),
        ("a broker alone, and no majority anyway", quorum(NOW_MS, away, away), (9,), 1, True),
        ("the only one", quorum(NOW_MS), (1,), 0, False),
        ("one of two", quorum(NOW_MS, NOW_MS), (2,), 1, False),
        ("the leader fetches from nobody", quorum(-1, NOW_MS, away), (3,), 2, True),
        ("five", quorum(NOW_MS, NOW_MS, NOW_MS, away, NOW_MS), (2,), 3, True),
        ("two of five, one away", quorum(NOW_MS, NOW_MS, NOW_MS, away, NOW_MS), (2, 3), 2, False),
    )
    with Cases() as table:
        for name, one, stopping, left, expected in cases:
            with table.case(name):
                assert (voters_left(one, stopping), keeps_majority(one, stopping)) == (left, expected)
