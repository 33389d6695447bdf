"""Closed producers on other partitions that only a lost decision explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.builders import observation
from tests.cases import Cases
from tests.fakes.records import ABORT, BEFORE, V2, complete, empty, led, numbered, ongoing, prepare, told, v1, v2
from txnscan.sweeps.log_facts import with_closed
from txnscan.txnlog.facts import ClosedProducer, ProducerFacts, SentMarker
from txnscan.txnlog.signs_of_loss import sign_of_loss
from txnscan.verdict.evidence import Outcome, OutcomeEvidence, Unproven

P, Q = ("p", 0), ("q", 0)
# The open data has producer id 7 and epoch 3. The coordinator of leader epoch 5 gave out that epoch. The transaction
# log then lost its end, and the coordinator of leader epoch 6 wrote the next state.
LOST = [*led(5, v2(True, epoch=2)), *led(6, [empty(4, client=V2)])]
LOST_V1 = [*led(5, [empty(2), empty(3)]), *led(6, [empty(4)])]
LATER = led(6, [empty(4, client=V2)])


def closed(epoch: int, coordinator_epoch: int, **changes: Any) -> ClosedProducer:
    return replace(ClosedProducer("q", 0, 7, epoch, coordinator_epoch), **changes)


@dataclass(frozen=True)
class Case:
    why: str
    is_sign: bool
    logged: Sequence[Any]
    one: ClosedProducer
    sent: tuple[SentMarker, ...] = ()
    epoch: int = 3


CASES = (
    Case("a v2 transaction of the epoch had its marker, and the log has no decision", True, LOST, closed(4, 5)),
    Case("the same with v1", True, LOST_V1, closed(3, 5)),
    Case("the coordinator after the election may have written it", False, LOST, closed(4, 6)),
    Case("the epoch is not over, so no later transaction can have it", True, LOST[:3], closed(4, 9)),
    Case("another epoch", False, LOST, closed(5, 5)),
    Case("an earlier epoch", False, LOST, closed(2, 5)),
    Case("the end before the data raised the epoch, and explains it", False, LOST, closed(3, 5)),
    Case("that end was decided at a later leader epoch", False, LOST, closed(3, 4)),
    Case("it was complete before this coordinator", True, LOST, closed(3, 6)),
    Case("another producer id", False, LOST, closed(4, 5, producer_id=8)),
    Case("the partition of the open data", False, LOST, closed(4, 5, topic="p")),
    Case("another partition of its topic", True, LOST, closed(4, 5, topic="p", partition=1)),
    Case("it has had no marker", False, LOST, closed(4, -1)),
    Case("txnscan sent it", False, LOST, closed(4, 5), (SentMarker("q", 0, 7, 4),)),
    Case("txnscan sent another", True, LOST, closed(4, 5), (SentMarker("q", 0, 7, 3),)),
    Case("the decision is in the log", False, [*led(5, [*v2(True, epoch=2), *v2(False, Q)]), *LATER], closed(4, 5)),
    Case("the decision is at another epoch", True, [*led(5, [*v1(True, Q, epoch=2), *v1(True, Q, epoch=3)]), *LATER],
         closed(4, 5)),
    Case("a coordinator that took over wrote the marker again", False,
         [*led(4, [*v2(True, epoch=2), *v2(False, Q)[:2]]), *led(5, v2(False, Q)[2:]), *LATER], closed(4, 5)),
    Case("the coordinator that decided it", False,
         [*led(4, [*v2(True, epoch=2), *v2(False, Q)[:2]]), *led(5, v2(False, Q)[2:]), *LATER], closed(4, 4)),
    Case("no coordinator before the decision", True,
         [*led(4, [*v2(True, epoch=2), *v2(False, Q)[:2]]), *led(5, v2(False, Q)[2:]), *LATER], closed(4, 3)),
    Case("no coordinator after its completion", True,
         [*led(4, [empty(2), empty(3), *v1(False, Q)[:2]]), *led(5, v1(False, Q)[2:]), *LATER], closed(3, 6)),
    Case("the coordinator that completed it", False,
         [*led(4, [empty(2), empty(3), *v1(False, Q)[:2]]), *led(5, v1(False, Q)[2:]), *LATER], closed(3, 5)),
    Case("the decision is not complete", False, led(4, [*v2(True, epoch=2), *v2(False, Q)[:2]]), closed(4, 9)),
    Case("leader epochs of records are not known", False, [*led(-1, v2(True, epoch=2)), *LATER], closed(3, 9)),
    Case("those of the decision and its completion are not known", False,
         [*led(-1, [empty(2), empty(3), *v1(False, Q)]), *LATER], closed(3, 9)),
    Case("the end before the data raised the epoch to another", True,
         [*led(5, [*v2(True, epoch=1), empty(3)]), *LATER], closed(3, 5)),
    Case("an earlier end of the epoch is no completion of this one", False,
         [*led(4, [empty(2), empty(3), *v1(False, Q), *v1(False, Q)[:2]]), *led(5, v1(False, Q)[2:]), *LATER],
         closed(3, 5)),
    Case("the chain begins with the producer id", True,
         [*led(5, [empty(0, client=V2)]), *led(6, [empty(1, client=V2)])], closed(0, 5), epoch=0),
    Case("the decision has another epoch, and its completion a later coordinator", True,
         [*led(4, [*BEFORE, ongoing(3, Q), prepare(ABORT, 5, client=V2)]), *led(5, [complete(ABORT, 5, V2)])],
         closed(4, 4)),
)  # fmt: skip


def test_only_a_lost_decision_leaves_an_unexplained_marker() -> None:
    with Cases() as cases:
        for case in CASES:
            with cases.case(case.why):
                o = observation(producer_epoch=case.epoch)
                found = sign_of_loss(numbered(case.logged), o, [case.one], case.sent)
                assert found == (case.one if case.is_sign else None)


def test_of_several_signs_the_first_partition_is_named() -> None:
    def sign(topic: str, partition: int, epoch: int, coordinator_epoch: int) -> ClosedProducer:
        return closed(epoch, coordinator_epoch, topic=topic, partition=partition)

    pairs = (
        ("by topic", sign("a", 5, 4, 5), sign("b", 0, 3, 4)),
        ("then by partition", sign("a", 5, 4, 5), sign("a", 6, 3, 4)),
        ("then by epoch", sign("a", 5, 3, 5), sign("a", 5, 4, 4)),
        ("then by the coordinator's epoch", sign("a", 5, 3, 4), sign("a", 5, 3, 5)),
    )
    with Cases() as cases:
        for why, first, other in pairs:
            with cases.case(why):
                assert sign_of_loss(numbered(LOST_V1), observation(), [other], ()) == other
                for signs in ([first, other], [other, first]):
                    assert sign_of_loss(numbered(LOST_V1), observation(), signs, ()) == first


def test_a_closed_producer_without_a_sign_hides_no_other() -> None:
    explained, sign = closed(4, 6), closed(4, 5, partition=1)
    assert sign_of_loss(numbered(LOST), observation(), [explained, sign], ()) == sign


def test_a_sign_of_loss_vetoes_the_absence_of_a_commit() -> None:
    one_epoch = [*led(5, [*v2(True, epoch=2), empty(4, client=V2)]), *led(5, [ongoing(4, Q, client=V2)])]
    cases_of_logs = (
        ("a log that may have lost it", LOST, Outcome.UNKNOWN, Unproven.ELECTION),
        ("a log at one leader epoch, if its epoch did not rise at a loss", one_epoch, Outcome.NOT_COMMITTED, None),
    )
    with Cases() as cases:
        for why, logged, without, unproven in cases_of_logs:
            with cases.case(why):
                o = {"coordinator_epoch": 5}
                found = told(logged, o)
                assert (found.outcome, found.unproven) == (without, unproven)
                signs = ProducerFacts(closed=(closed(4, 4),))
                assert told(logged, o, seen=signs).outcome is Outcome.MAYBE_COMMITTED


def test_an_epoch_with_a_known_commit_needs_no_sign() -> None:
    logged = led(5, [*v2(True, epoch=2), *v2(True, P), ongoing(4, client=V2)])
    assert told(logged, seen=ProducerFacts(closed=(closed(4, 5),))).outcome is Outcome.COMMITTED


def test_only_closed_producers_of_possible_epochs_become_facts() -> None:
    seen = observation(producer_epoch=4)
    evidence = OutcomeEvidence(seen, 9, 3, 0, None, (), None, None, seen=ProducerFacts(closed=(closed(3, 5),)))
    listed = [closed(epoch, 5) for epoch in range(2, 7)] + [closed(4, 5, producer_id=8)]
    found = with_closed(evidence, listed)
    assert found.news.closed == (closed(4, 5), closed(5, 5))
    assert found.seen.closed == (closed(3, 5), closed(4, 5), closed(5, 5))
    unread = with_closed(replace(evidence, first_epoch=None, seen=ProducerFacts()), listed)
    assert unread.news.closed == (closed(4, 5), closed(5, 5))
