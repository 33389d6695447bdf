"""Texts offer what the guards of a plan decide, for each verdict, reason and outcome."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from tests.builders import MINUTE_MS, NOW_MS, failed, judged, known, scan, stored, view
from tests.cases import Cases
from txnscan.explain.causes import cause_of
from txnscan.explain.facts import Facts, PartitionFacts
from txnscan.explain.symptom import symptom
from txnscan.kafka.answers import TWO_PHASE_COMMIT_TIMEOUT_MS
from txnscan.report.json import dumps, scan_object
from txnscan.report.overview import shared_sentences
from txnscan.report.paragraphs import outcome_sentence
from txnscan.report.sweep import print_sweep
from txnscan.resolve.abort import refusal
from txnscan.resolve.guard import (
    ACCEPT_UNKNOWN,
    COMPLETE_COMMITS,
    Allowed,
    Limits,
    Refused,
    Swept,
    guarded,
    offered,
)
from txnscan.resolve.offer import answer, in_words, swept, swept_row
from txnscan.verdict.evidence import Judged, Outcome, Reason, Verdict

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

OPTIONS = (COMPLETE_COMMITS, ACCEPT_UNKNOWN)
OFFSETS = "__consumer_offsets"


def row(**changes: Any) -> dict[str, Any]:
    """A hanging and late transaction of id X, which went on to epoch 9, as a row of the JSON object."""
    (made,) = scan_object(scan(judged(view("Empty", 9))))["transactions"]
    return {**made, "outcome": "not_committed", "outcome_reason": "so it is", **changes}


def plan_of(one: dict[str, Any]) -> Allowed | Refused:
    """What a plan decides about this row, once sweeps have observed it for long enough."""
    facts = {f.name: one[f.name] for f in fields(Swept) if f.name in one}
    return guarded(stored(**facts, owner_epoch=one["coordinator_producer_epoch"]), Limits())


def rows() -> Iterator[tuple[str, dict[str, Any]]]:
    for verdict, reason, outcome in product(Verdict, Reason, (*Outcome, None)):
        because = None if outcome is None else "so it is"
        for owner, epoch in ((None, None), ("X", 3), ("X", 9)):
            yield (
                f"{verdict} {reason} {outcome} owner epoch {epoch}",
                row(
                    verdict=verdict.value,
                    reason=reason.value,
                    outcome=outcome and outcome.value,
                    outcome_reason=because,
                    transactional_id=owner,
                    coordinator_producer_epoch=epoch,
                ),
            )
    yield "offsets of groups", row(topic=OFFSETS)
    yield "a log that was not read", row(log_failure=failed("broker 2 cannot be reached"))


def options(text: str) -> set[str]:
    return {option for option in OPTIONS if option in text}


def shown(one: dict[str, Any], *, verbose: bool) -> str:
    out = io.StringIO()
    found = scan_object(scan())
    found["sweep"]["counts"]["hanging"] = int(one["verdict"] == "hanging")
    print_sweep(Console(file=out, width=500), {**found, "transactions": [one]}, every=True, verbose=verbose)
    return out.getvalue()


def test_each_text_prints_the_decision_of_the_plan() -> None:
    """The answer has the plan's guard, marker and option, and the text has its words and no other option."""
    with Cases() as cases:
        for name, one in rows():
            with cases.case(name):
                given, planned = answer(swept_row(one)), plan_of(one)
                if one["verdict"] != "hanging":
                    assert given is None and isinstance(planned, Refused) and planned.guard == "not_hanging"
                    assert outcome_sentence(one) is None
                    continue
                assert given == planned
                said = outcome_sentence(one) or ""
                assert said.endswith(in_words(given))
                needs = given.needs if isinstance(given, Allowed) else None
                assert ("markers" in in_words(given, 3)) is isinstance(given, Allowed)
                assert options(in_words(given, 3)) == options(in_words(given))
                for text in (said, " ".join(shared_sentences([one]))):
                    assert options(text) == ({needs} if needs is not None else set())


def test_a_fence_is_offered_only_if_its_guard_allows_it() -> None:
    """Of an id in a two-phase commit, `force-terminate` refuses it."""
    for timeout_ms, offers in ((15 * MINUTE_MS, True), (TWO_PHASE_COMMIT_TIMEOUT_MS, False)):
        hanging = judged(view("Ongoing", 3, ("q-0",), timeout_ms=timeout_ms))
        assert hanging.judgement.reason is Reason.LIVE_EPOCH
        given = answer(swept(hanging))
        assert isinstance(given, Refused) and given.guard == "live_owner"
        cause = cause_of(explained_facts(hanging))
        commands = [one.split()[1] for one in cause.next]
        for said in (in_words(given), str(refusal(hanging, accept_unknown=False)), " ".join(commands)):
            assert ("force-terminate" in said) == offers


def explained_facts(hanging: Judged) -> Facts:
    found = PartitionFacts("p", 0, 105, 100, 100, open=(hanging,))
    return Facts(symptom(topic="p"), NOW_MS, 20 * MINUTE_MS, partitions=(found,))


def test_a_terminal_names_the_plan_only_if_it_can_end_something() -> None:
    with Cases() as cases:
        for name, one in rows():
            if one["verdict"] != "hanging":
                continue
            with cases.case(name):
                told = "txnscan plan" in shown(one, verbose=False).splitlines()[-1]
                assert told == isinstance(answer(swept_row(one)), Allowed)


def test_a_row_and_a_judged_transaction_get_the_same_answer() -> None:
    with Cases() as cases:
        for name, one in judged_ones():
            with cases.case(name):
                (made,) = scan_object(scan(one))["transactions"]
                assert swept_row(made) == swept(one)


def judged_ones() -> Iterable[tuple[str, Judged]]:
    views = {"orphan": (), "stale": (view("Empty", 9),), "live": (view("Empty", 3),), "moved on": (view("Ongoing", 4),)}
    for (name, of), outcome in product(views.items(), Outcome):
        made = judged(*of)
        yield f"{name} {outcome}", replace(made, known_outcome=known(outcome.value, "so it is"))
    away = known("unknown", log_failure=failed("broker 2 cannot be reached"))
    yield "a log that was not read", replace(judged(view("Empty", 9)), known_outcome=away)
    yield "no outcome", judged(view("Empty", 9))
    yield "undescribed", judged(view("Empty", 3, describe_failure=failed("COORDINATOR_NOT_AVAILABLE")))


@pytest.mark.parametrize("accept", [False, True])
def test_abort_takes_what_a_plan_would_abort(accept: bool) -> None:
    with Cases() as cases:
        for name, one in judged_ones():
            with cases.case(name):
                given = offered(swept(one))
                aborts = isinstance(given, Allowed) and not given.commit and (accept or given.needs is None)
                assert (refusal(one, accept) is None) == aborts


def test_each_marker_is_offered_with_its_option_alone() -> None:
    markers = [Allowed(True, COMPLETE_COMMITS), Allowed(False, ACCEPT_UNKNOWN), Allowed(False, None)]
    assert [options(in_words(one)) for one in markers] == [{COMPLETE_COMMITS}, {ACCEPT_UNKNOWN}, set()]
    assert not any("None" in in_words(one, partitions) for one in markers for partitions in (1, 2))
    for one, marker, needs in zip(markers, ("COMMIT", "ABORT", "ABORT"), OPTIONS, strict=False):
        assert options(in_words(one, 2)) == {needs}
        assert in_words(one, 2).split()[:2] == [marker, "markers"] and in_words(one, 1) == in_words(one)
    assert in_words(markers[-1], 2).split()[0] == "ABORT" and not options(in_words(markers[-1], 2))


def test_a_failure_from_a_table_is_the_same_failure() -> None:
    failure = failed("broker 2 cannot be reached")
    struct = {"error": failure.error, "code": failure.code, "lacks_api": None, "needs": None}
    assert swept_row(row(log_failure=struct)).log_failure == failure
    needs = {"operation": "Read", "resource_type": "Topic", "name": "p", "prefixed": False}
    found = swept_row(row(log_failure={**struct, "needs": needs})).log_failure
    assert found is not None and found.needs is not None and found.needs.operation == "Read"


def test_an_event_of_several_reasons_has_every_answer(wording: SnapshotAssertion) -> None:
    """An orphan that an ABORT ends, and a transaction whose owner is to be fenced first, are one event."""
    event = [
        row(reason="orphan", outcome="unknown", outcome_reason="no record", explanation="a"),
        row(reason="live_epoch", coordinator_producer_epoch=3, outcome="unknown", outcome_reason="no", explanation="b"),
        row(outcome="committed", outcome_reason="PrepareCommit", explanation="c"),
    ]
    said = list(shared_sentences(event))
    given = [answer(swept_row(one)) for one in event]
    assert [one.guard if isinstance(one, Refused) else one and one.needs for one in given] == [
        ACCEPT_UNKNOWN,
        "live_owner",
        COMPLETE_COMMITS,
    ]
    assert [sum(in_words(one) in line for line in said) for one in given if one is not None] == [1, 1, 1]
    assert said == wording


def test_an_event_of_many_owners_names_the_first_and_counts_the_rest() -> None:
    event = [
        row(
            reason="live_epoch", coordinator_producer_epoch=3, transactional_id=f"X{n}", explanation=f"{n}", partition=n
        )
        for n in range(5)
    ]
    said = [line for line in shared_sentences(event) if "X" in line or "live_owner" in line]
    assert len(said) == 4 and "2 more refusals of live_owner" in said[-1]


def test_names_in_an_answer_are_escaped() -> None:
    evil = row(reason="live_epoch", coordinator_producer_epoch=3, transactional_id="\x1b[31m\nX")
    assert "\n" not in (outcome_sentence(evil) or "\n") and "\x1b" not in " ".join(shared_sentences([evil]))
    assert dumps(evil)
