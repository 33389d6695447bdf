"""The specification of the judge: each case has the evidence, the expected verdict, and the reason.

The numbers come from the scenarios behind the rules. By default producer id 7 is open on p-0 at epoch 3 from offset
100, both reads are proven, every coordinator is covered, no id is hidden, and the transaction is late.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from tests.builders import LATE_AFTER_MS, MINUTE_MS, NOW_MS, P, Q, context, evidence, failed, observation, view
from tests.cases import Cases
from txnscan.kafka.answers import TWO_PHASE_COMMIT_TIMEOUT_MS
from txnscan.verdict.evidence import Evidence, Reason, Verdict
from txnscan.verdict.predicates import TIMEOUT_SLACK_MS
from txnscan.verdict.rules import RULES, judge, judge_observation

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion


@dataclass(frozen=True)
class Case:
    number: str
    seen: Evidence
    verdict: Verdict
    reason: Reason
    why: str


HANGING, INDETERMINATE = Verdict.HANGING, Verdict.INDETERMINATE
DAY_MS = 24 * 60 * MINUTE_MS

CASES = (
    # gone
    Case(
        "7",
        evidence(
            view("CompleteCommit"),
            o={"second_start_offset": None, "second_producer_epoch": None, "second_last_sequence": None},
        ),
        Verdict.GONE,
        Reason.ENDED,
        "it ended between the reads",
    ),
    Case(
        "61",
        evidence(view("Ongoing", 4, (P,)), o={"second_start_offset": 160, "is_replaced": True}),
        Verdict.GONE,
        Reason.ENDED,
        "another transaction at another start offset",
    ),
    Case(
        "61b",
        evidence(o={"second_start_offset": 160}),
        INDETERMINATE,
        Reason.PARTITION,
        "another start offset alone is no end: retention and a rebuilt replica show it too",
    ),
    Case(
        "7b",
        evidence(view("Ongoing", 3, (P,)), o={"second_start_offset": None}),
        Verdict.GONE,
        Reason.ENDED,
        "gone outranks a coordinator that still lists it",
    ),
    # owned
    Case(
        "3",
        evidence(view("Ongoing", 3, (P,), start_time_ms=NOW_MS - 60 * MINUTE_MS)),
        Verdict.LATE_ONGOING,
        Reason.OWNED,
        "its coordinator will still end it",
    ),
    Case(
        "4",
        evidence(view("Ongoing", 3, (P, Q))),
        Verdict.ONGOING,
        Reason.OWNED,
        "a live transaction with old timestamps is not late by them",
    ),
    Case(
        "5",
        evidence(view("PrepareAbort", 4, (P,)), o={"last_timestamp_ms": NOW_MS, "first_seen_ms": NOW_MS}),
        Verdict.PENDING_MARKER,
        Reason.DECIDED,
        "fenced: the epoch differs by design",
    ),
    Case(
        "5b",
        evidence(view("PrepareCommit", 4, (P,)), o={"last_timestamp_ms": NOW_MS, "first_seen_ms": NOW_MS}),
        Verdict.PENDING_MARKER,
        Reason.DECIDED,
        "transactions v2: Prepare stands at epoch + 1",
    ),
    Case(
        "15",
        evidence(view("Ongoing", 4, (P,))),
        Verdict.ONGOING,
        Reason.OWNED,
        "stale data that the owner's marker will close",
    ),
    Case(
        "41",
        evidence(
            view("PrepareCommit", 32767, (P,)),
            o={
                "producer_epoch": 32766,
                "second_producer_epoch": 32766,
                "last_timestamp_ms": NOW_MS,
                "first_seen_ms": NOW_MS,
            },
        ),
        Verdict.PENDING_MARKER,
        Reason.DECIDED,
        "epoch overflow still shows the old producer id",
    ),
    Case(
        "45",
        evidence(view("Ongoing", 3, (P,), timeout_ms=2_147_483_647, start_time_ms=NOW_MS - 3 * DAY_MS)),
        Verdict.LATE_ONGOING,
        Reason.TWO_PHASE_COMMIT,
        "two-phase commit never times out",
    ),
    Case(
        "46",
        replace(
            evidence(view("Ongoing", 4, (P,), timeout_ms=TWO_PHASE_COMMIT_TIMEOUT_MS)),
            joined_commit="'X' committed its transaction of epoch 3 with this partition",
        ),
        Verdict.ONGOING,
        Reason.JOINED_COMMIT,
        "its abort would tear a commit, with or without a timeout",
    ),
    Case(
        "46b",
        replace(evidence(view("Ongoing", 4, (P,))), joined_commit="'X' committed"),
        Verdict.ONGOING,
        Reason.JOINED_COMMIT,
        "its coordinator will end it, and a commit with it",
    ),
    Case(
        "46c",
        replace(evidence(view("PrepareAbort", 4, (P,))), joined_commit="'X' committed"),
        Verdict.PENDING_MARKER,
        Reason.DECIDED,
        "the decision is made, and nothing can stop it",
    ),
    Case(
        "46d",
        replace(
            evidence(view("PrepareAbort", 4, (P,)), view("Ongoing", 4, (P,), broker_id=3)),
            joined_commit="'X' committed",
        ),
        Verdict.PENDING_MARKER,
        Reason.DECIDED,
        "one of two coordinators has decided: its marker comes, whatever the other says",
    ),
    Case(
        "46e",
        replace(
            evidence(
                view("Ongoing", 4, (P,), timeout_ms=TWO_PHASE_COMMIT_TIMEOUT_MS, start_time_ms=NOW_MS - 3 * DAY_MS)
            ),
            joined_commit="'X' committed",
        ),
        Verdict.ONGOING,
        Reason.JOINED_COMMIT,
        "late or not, its abort would tear a commit",
    ),
    Case(
        "46f",
        replace(evidence(view("Empty", 4)), joined_commit="'X' committed"),
        HANGING,
        Reason.STALE_EPOCH,
        "nobody owns it, so no live transaction can tear the commit",
    ),
    Case(
        "45b",
        evidence(
            view("Ongoing", 3, (P,), timeout_ms=TWO_PHASE_COMMIT_TIMEOUT_MS),
            o={"last_timestamp_ms": NOW_MS, "first_seen_ms": NOW_MS},
        ),
        Verdict.ONGOING,
        Reason.TWO_PHASE_COMMIT,
        "a young two-phase commit is healthy",
    ),
    Case(
        "47",
        evidence(view("PrepareCommit", 4, (P,), start_time_ms=NOW_MS - 120 * MINUTE_MS)),
        Verdict.PENDING_MARKER,
        Reason.STUCK,
        "decided hours ago and still owed: the partition is the trouble",
    ),
    Case(
        "own-1",
        evidence(
            view("Ongoing", 3, (P,), coverage_failure=failed("moved")),
            o={"second_failure": failed("NOT_LEADER_OR_FOLLOWER")},
        ),
        Verdict.ONGOING,
        Reason.OWNED,
        "an owner needs no proof of anything else",
    ),
    Case(
        "own-2",
        evidence(view("PrepareCommit", 2, (P,))),
        Verdict.PENDING_MARKER,
        Reason.DECIDED,
        "a decision at any epoch is a claim on the partition",
    ),
    Case(
        "own-3",
        evidence(view("Empty", 9, broker_id=1), view("Ongoing", 3, (P,))),
        Verdict.ONGOING,
        Reason.OWNED,
        "any broker may say mine, even beside one that contradicts it",
    ),
    Case(
        "own-4",
        evidence(view("Ongoing", 3, (P,), start_time_ms=-1)),
        Verdict.ONGOING,
        Reason.OWNED,
        "an unknown start is not a late one",
    ),
    Case(
        "own-5",
        evidence(view("Ongoing", 3, (P,), start_time_ms=0)),
        Verdict.LATE_ONGOING,
        Reason.OWNED,
        "a start at the epoch is known, and late",
    ),
    Case(
        "own-6",
        evidence(view("Ongoing", 3, (P,), start_time_ms=NOW_MS - DAY_MS), view("Ongoing", 3, (P,), broker_id=3)),
        Verdict.ONGOING,
        Reason.OWNED,
        "of two brokers that have it open, one is in time",
    ),
    Case(
        "own-7",
        evidence(view("Ongoing", 3, (P,), describe_failure=failed("NOT_COORDINATOR"))),
        INDETERMINATE,
        Reason.COORDINATOR,
        "what could not be described holds nothing",
    ),
    # if two rules apply, the first decides
    Case(
        "first-1",
        evidence(
            view("PrepareCommit", 4, (P,), start_time_ms=NOW_MS - DAY_MS),
            o={"second_start_offset": None, "second_producer_epoch": None, "second_last_sequence": None},
        ),
        Verdict.GONE,
        Reason.ENDED,
        "it got the marker that was long overdue",
    ),
    Case(
        "first-2",
        evidence(
            view("Ongoing", 3, (P,), timeout_ms=TWO_PHASE_COMMIT_TIMEOUT_MS, start_time_ms=NOW_MS - 30 * DAY_MS),
            c={"late_after_ms": 60 * DAY_MS},
        ),
        Verdict.ONGOING,
        Reason.TWO_PHASE_COMMIT,
        "what stands for no timeout is not a timeout of 25 days",
    ),
    Case(
        "first-3",
        evidence(view("Empty", 2), o={"second_failure": failed("NOT_LEADER_OR_FOLLOWER")}),
        INDETERMINATE,
        Reason.PARTITION,
        "unproven and behind: an epoch that is not proven is not one to be behind of",
    ),
    Case(
        "first-4",
        evidence(view("Ongoing", 2)),
        INDETERMINATE,
        Reason.COORDINATOR_BEHIND,
        "behind and without partitions: lost state explains both",
    ),
    Case(
        "first-5",
        evidence(view("Ongoing", 4, split_failure=failed("brokers 1, 2 each claim it"))),
        INDETERMINATE,
        Reason.VISIBILITY,
        "without partitions and claimed twice",
    ),
    Case(
        "first-6",
        evidence(
            view("", -1, describe_failure=failed("NOT_COORDINATOR"), split_failure=failed("brokers 1, 2 each claim it"))
        ),
        INDETERMINATE,
        Reason.SPLIT,
        "claimed twice and undescribed: the claims are why",
    ),
    Case(
        "first-7",
        evidence(view("", -1, describe_failure=failed("NOT_COORDINATOR"), coverage_failure=failed("moved"))),
        INDETERMINATE,
        Reason.COORDINATOR,
        "undescribed and uncovered: the likely owner is known, and is what to look at",
    ),
    Case(
        "first-8",
        evidence(
            c={
                "coverage_failure": failed("broker 3 cannot be reached"),
                "visibility_failures": (failed("a DENY rule stands"),),
            }
        ),
        INDETERMINATE,
        Reason.COVERAGE,
        "uncovered and hidden: a broker that does not answer comes before ids that one hides",
    ),
    Case(
        "first-9",
        replace(
            evidence(view("PrepareCommit", 4, (Q,))), log_contradiction=failed("its last record of 'X' is Ongoing")
        ),
        INDETERMINATE,
        Reason.DECIDED,
        "its marker may be sent again, and the log says otherwise: what to do about the decision is known",
    ),
    # unproven partition
    Case(
        "35",
        evidence(o={"second_failure": failed("FENCED_LEADER_EPOCH")}),
        INDETERMINATE,
        Reason.PARTITION,
        "the leader moved between the offsets",
    ),
    Case(
        "35b",
        evidence(o={"first_failure": failed("UNKNOWN_LEADER_EPOCH")}),
        INDETERMINATE,
        Reason.PARTITION,
        "the first read is not proven",
    ),
    Case(
        "R1",
        evidence(o={"start_offset": 105, "second_start_offset": 105}),
        INDETERMINATE,
        Reason.PARTITION,
        "at the high watermark it may be truncated",
    ),
    Case(
        "R1b",
        evidence(o={"first_high_watermark": 100}),
        INDETERMINATE,
        Reason.PARTITION,
        "not replicated yet at the first read",
    ),
    Case(
        "R1c",
        evidence(o={"second_high_watermark": None}),
        INDETERMINATE,
        Reason.PARTITION,
        "no high watermark, no proof",
    ),
    Case(
        "39",
        evidence(
            o={
                "first_failure": failed("the topic was deleted and created again"),
                "second_failure": failed("the topic was deleted and created again"),
            }
        ),
        INDETERMINATE,
        Reason.PARTITION,
        "another log under the same name",
    ),
    Case(
        "7c",
        evidence(o={"second_start_offset": None, "second_failure": failed("NOT_LEADER_OR_FOLLOWER")}),
        INDETERMINATE,
        Reason.PARTITION,
        "an unproven read does not prove that it is gone either",
    ),
    Case(
        "alive-1",
        evidence(view("Ongoing", 4, (Q,)), o={"second_producer_epoch": 4}),
        INDETERMINATE,
        Reason.PARTITION,
        "the owner wrote after the coordinators were asked: its marker will close this",
    ),
    Case(
        "alive-2",
        evidence(view("Ongoing", 3, (Q,)), o={"second_last_sequence": 9}),
        INDETERMINATE,
        Reason.PARTITION,
        "written to between the reads: the producer lives",
    ),
    # unproven coordinators
    Case(
        "17",
        evidence(view("Ongoing", 2, (P,))),
        INDETERMINATE,
        Reason.COORDINATOR_BEHIND,
        "an epoch that goes back is lost state",
    ),
    Case("17b", evidence(view("Empty", 2)), INDETERMINATE, Reason.COORDINATOR_BEHIND, "behind, in any state"),
    Case(
        "R7",
        evidence(view("Ongoing", 3)),
        INDETERMINATE,
        Reason.VISIBILITY,
        "Ongoing always has partitions: they are hidden",
    ),
    Case(
        "27",
        evidence(c={"split_failure": failed("brokers 1, 2 each claim __transaction_state-3")}),
        INDETERMINATE,
        Reason.SPLIT,
        "two coordinators for one partition",
    ),
    Case(
        "63",
        evidence(view("Empty", 4), view("Empty", 4, transactional_id="Y")),
        INDETERMINATE,
        Reason.SPLIT,
        "a producer id under two ids is no longer unique",
    ),
    Case(
        "split",
        evidence(view("Empty", 4, split_failure=failed("brokers 1, 2 each claim it"))),
        INDETERMINATE,
        Reason.SPLIT,
        "its own coordinator partition is claimed twice",
    ),
    Case(
        "29",
        evidence(
            view("", -1, describe_failure=failed("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"), producer_epoch=-1),
            o={"producer_epoch": -1, "second_producer_epoch": -1},
        ),
        INDETERMINATE,
        Reason.COORDINATOR,
        "the owner could not be described",
    ),
    Case(
        "29b",
        evidence(view("", -1, describe_failure=failed("NOT_COORDINATOR"))),
        INDETERMINATE,
        Reason.COORDINATOR,
        "an epoch that was not answered is not behind",
    ),
    Case(
        "23",
        evidence(c={"coverage_failure": failed("broker 2 answered COORDINATOR_LOAD_IN_PROGRESS")}),
        INDETERMINATE,
        Reason.COVERAGE,
        "absence from a loading coordinator proves nothing",
    ),
    Case(
        "25",
        evidence(c={"coverage_failure": failed("__transaction_state-4 moved")}),
        INDETERMINATE,
        Reason.COVERAGE,
        "both sides of a move may leave an id out",
    ),
    Case(
        "25b",
        evidence(view("Empty", 4, coverage_failure=failed("__transaction_state-4 moved"))),
        INDETERMINATE,
        Reason.COVERAGE,
        "what an unproven coordinator says is no proof",
    ),
    Case(
        "33",
        evidence(c={"visibility_failures": (failed("a DENY rule stands on transactional id 'secret-'"),)}),
        INDETERMINATE,
        Reason.VISIBILITY,
        "the owner may be the hidden one",
    ),
    Case(
        "23b",
        evidence(view("CompleteAbort", 4), c={"coverage_failure": failed("broker 3 cannot be reached")}),
        HANGING,
        Reason.STALE_EPOCH,
        "other coordinators do not matter once the owner is known and proven",
    ),
    Case(
        "33b",
        evidence(view("CompleteAbort", 4), c={"visibility_failures": (failed("a DENY rule stands"),)}),
        HANGING,
        Reason.STALE_EPOCH,
        "an id that was described is not hidden",
    ),
    # hanging
    *(
        Case(
            f"log {number}",
            replace(evidence(*views), log_contradiction=failed("its last record of 'X' is Ongoing at epoch 3")),
            INDETERMINATE,
            Reason.SPLIT,
            why,
        )
        for number, views, why in (
            (1, (), "the log has an id that no coordinator shows: one that loads it anew would"),
            (2, (view("Empty", 5),), "the coordinator is not where its log is"),
            (3, (view("CompleteCommit", 4),), "neither after a commit"),
        )
    ),
    Case(
        "log 4",
        replace(evidence(view("Ongoing", 3, (P,))), log_contradiction=failed("it is at rest")),
        Verdict.ONGOING,
        Reason.OWNED,
        "who says that it is theirs is believed whatever the log says",
    ),
    Case("1", evidence(), HANGING, Reason.ORPHAN, "nobody has this producer id"),
    Case(
        "43",
        evidence(o={"coordinator_epoch": 4}),
        HANGING,
        Reason.ORPHAN,
        "the id expired; who had it does not matter",
    ),
    Case(
        "9",
        evidence(view("CompleteCommit", 4)),
        HANGING,
        Reason.MISSED_COMMIT,
        "transactions v2: epoch 3 was committed, and stands at 4",
    ),
    Case(
        "9b",
        evidence(view("CompleteCommit", 3)),
        HANGING,
        Reason.MISSED_COMMIT,
        "transactions v1: the commit stands at the same epoch",
    ),
    Case(
        "49",
        evidence(view("PrepareCommit", 3, (Q,))),
        INDETERMINATE,
        Reason.DECIDED,
        "p has its marker, or it was skipped; a coordinator that takes over now sends it again",
    ),
    Case(
        "49b",
        evidence(view("PrepareAbort", 4, (Q,))),
        INDETERMINATE,
        Reason.DECIDED,
        "the same of an abort",
    ),
    Case(
        "49c",
        evidence(view("PrepareAbort", 4)),
        INDETERMINATE,
        Reason.DECIDED,
        "every partition acknowledged, and the completion is not written: the log still has them all",
    ),
    Case(
        "9c",
        evidence(view("CompleteCommit", 5)),
        HANGING,
        Reason.STALE_EPOCH,
        "a later transaction committed; nothing is known of this one",
    ),
    Case("11", evidence(view("Empty", 5)), HANGING, Reason.STALE_EPOCH, "the producer was initialised again"),
    Case(
        "11b",
        evidence(view("Ongoing", 4, (Q,))),
        HANGING,
        Reason.STALE_EPOCH,
        "the next transaction runs elsewhere",
    ),
    Case(
        "11c",
        evidence(view("CompleteAbort", 4)),
        HANGING,
        Reason.STALE_EPOCH,
        "fenced by a timeout, and p was never added",
    ),
    Case("13", evidence(view("Ongoing", 3, (Q,))), HANGING, Reason.LIVE_EPOCH, "the owner can still write here"),
    Case(
        "13b",
        evidence(view("CompleteAbort", 3)),
        HANGING,
        Reason.LIVE_EPOCH,
        "the owner can start again at this epoch",
    ),
    Case("13c", evidence(view("Empty", 3)), HANGING, Reason.LIVE_EPOCH, "the owner can start at this epoch"),
    Case(
        "59",
        evidence(o={"second_last_stable_offset": 103}),
        HANGING,
        Reason.ORPHAN,
        "its first records are deleted; it hangs all the same",
    ),
    # cases outside all rules
    Case("dead", evidence(view("Dead", 4)), INDETERMINATE, Reason.COORDINATOR, "a state that is never shown"),
    Case(
        "new",
        evidence(view("PrepareSomethingNew", 4)),
        INDETERMINATE,
        Reason.COORDINATOR,
        "a state of a later Kafka",
    ),
    Case(
        "odd",
        evidence(view("CompleteCommit", 4, (P,))),
        INDETERMINATE,
        Reason.COORDINATOR,
        "complete, and yet it lists the partition",
    ),
)


def test_each_case_gets_the_specified_verdict() -> None:
    with Cases() as cases:
        for case in CASES:
            with cases.case(f"{case.number}: {case.why}"):
                judged = judge(case.seen)
                assert (judged.verdict, judged.reason) == (case.verdict, case.reason)


def test_every_rule_has_a_case() -> None:
    reached = {next(index for index, rule in enumerate(RULES) if rule.applies(case.seen)) for case in CASES}
    assert reached == set(range(len(RULES)))


def test_every_explanation_is_one_line(wording: SnapshotAssertion) -> None:
    explanations = {}
    with Cases() as cases:
        for case in CASES:
            with cases.case(f"{case.number}: {case.why}") as name:
                sentence = judge(case.seen).explanation
                assert (
                    sentence[0].isupper() and sentence.endswith(".") and "\n" not in sentence and "None" not in sentence
                )
                explanations[name] = sentence
    assert explanations == wording


@pytest.mark.parametrize(
    ("seen_ms_ago", "timestamp_ms", "late", "why"),
    [
        (0, NOW_MS - 60 * MINUTE_MS, True, "19: the record's own time is sane and old"),
        (30_000, NOW_MS - 30_000, False, "19b: too young"),
        (60 * MINUTE_MS, NOW_MS + 365 * DAY_MS, True, "21: a timestamp in the future cannot keep it young"),
        (0, NOW_MS + 1, False, "a timestamp in the future says nothing of its age"),
        (0, -1, False, "no timestamp says nothing"),
        (LATE_AFTER_MS, -1, False, "exactly at the threshold is not above it"),
        (LATE_AFTER_MS + 1, -1, True, "one above it is"),
        (-5_000, -1, False, "a clock that went back does not make it late"),
        (0, 0, False, "neither does a time of 0 say anything"),
        (0, 1, True, "the smallest time that does"),
    ],
)
def test_lateness_uses_first_sightings_and_plausible_record_times(
    seen_ms_ago: int, timestamp_ms: int, late: bool, why: str
) -> None:
    judged = judge(evidence(o={"first_seen_ms": NOW_MS - seen_ms_ago, "last_timestamp_ms": timestamp_ms}))
    assert (judged.verdict, judged.late) == (HANGING, late), why


@pytest.mark.parametrize(
    ("started_ms", "age_ms", "why"),
    [
        ([NOW_MS - MINUTE_MS], MINUTE_MS, "as its coordinator says"),
        ([NOW_MS - MINUTE_MS, NOW_MS - 2 * MINUTE_MS], 2 * MINUTE_MS, "of two that have it open, the earlier start"),
        ([NOW_MS - MINUTE_MS, -1], MINUTE_MS, "an unknown start is no start"),
        ([-1], DAY_MS, "without a known start, as the partition shows"),
        ([0], NOW_MS, "0 is a time"),
        ([NOW_MS + MINUTE_MS], 0, "a start in the future is no negative age"),
    ],
)
def test_an_owned_transaction_has_the_age_of_its_coordinator(started_ms: list[int], age_ms: int, why: str) -> None:
    held = [view("Ongoing", 3, (P,), broker_id=n, start_time_ms=start_ms) for n, start_ms in enumerate(started_ms)]
    judged = judge(evidence(*held, o={"last_timestamp_ms": NOW_MS - DAY_MS, "first_seen_ms": NOW_MS}))
    assert judged.age_ms == age_ms, why


def test_a_first_sighting_in_the_future_gives_age_zero() -> None:
    assert judge(evidence(o={"first_seen_ms": NOW_MS + 1, "last_timestamp_ms": -1})).age_ms == 0


def test_an_owner_is_late_only_past_its_timeout_and_slack() -> None:
    limit_ms = 15 * MINUTE_MS + TIMEOUT_SLACK_MS
    just = view("Ongoing", 3, (P,), start_time_ms=NOW_MS - limit_ms)
    assert judge(evidence(just)).verdict is Verdict.ONGOING
    assert judge(evidence(replace(just, start_time_ms=just.start_time_ms - 1))).verdict is Verdict.LATE_ONGOING


@pytest.mark.parametrize("epoch", [3, 4, 9])
@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort"])
def test_a_pending_marker_is_no_proof_that_data_hangs(state: str, epoch: int) -> None:
    """Found in random histories: aborted late data after the marker of its producer's next transaction, at the same
    epoch; and committed data without its marker, seven epochs before an abort that is pending on its partition.
    """
    judged = judge(evidence(view(state, epoch, (P,))))
    assert judged.verdict is Verdict.PENDING_MARKER


@pytest.mark.parametrize(
    ("seen", "told", "why"),
    [
        (evidence(view("PrepareCommit", 4, (P,))), ["'X'", "to commit"], "what was decided"),
        (evidence(view("PrepareAbort", 4, (P,))), ["'X'", "to abort"], "what was decided"),
        (
            evidence(view("PrepareAbort", 4, (P,))),
            ["Normally the transaction ends by itself"],
            "nothing need be done yet",
        ),
        (
            evidence(view("PrepareCommit", 4, (P,), start_time_ms=NOW_MS - 60 * MINUTE_MS)),
            [
                "has stopped sending",
                "has a leader, move the leader of the id's __transaction_state",
                "Do not abort the transaction",
            ],
            "a coordinator that was refused sends no more by itself",
        ),
        (
            evidence(view("PrepareCommit", 4, (Q,))),
            ["has stopped sending", "has a leader, move the leader of the id's __transaction_state"],
            "the same where another partition waits",
        ),
        (
            evidence(view("Empty", 9, broker_id=1), view("Empty", 2, transactional_id="Y", broker_id=3)),
            ["Broker 3", "'Y'", "epoch 2"],
            "the broker that is behind, not the one beside it",
        ),
        (
            evidence(view("Empty", 9), view("Ongoing", 4, transactional_id="Y")),
            ["'Y'"],
            "the id without partitions, not the one beside it",
        ),
        (evidence(view("Empty", 4), view("Empty", 4, transactional_id="Y")), ["'X'", "'Y'"], "both claims"),
        (
            evidence(view("Empty", 4, split_failure=failed("both claim it"))),
            ["both claim it"],
            "how brokers disagree about it",
        ),
        (evidence(c={"split_failure": failed("two claim one")}), ["two claim one"], "how brokers disagree"),
        (evidence(view("Empty", 4, coverage_failure=failed("it moved"))), ["it moved"], "why it is not covered"),
        (evidence(c={"coverage_failure": failed("one moved")}), ["one moved"], "why something is not covered"),
    ],
)
def test_an_explanation_names_its_evidence(seen: Evidence, told: list[str], why: str) -> None:
    sentence = judge(seen).explanation
    assert all(part in sentence for part in told), why


STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "Unheard",
)


def test_any_single_doubt_removes_a_hanging_verdict() -> None:
    """Each hanging evidence is spoiled in one place, and the verdict is no longer hanging."""
    doubts_of_the_partition = (
        {"first_failure": failed("x")},
        {"second_failure": failed("x")},
        {"first_high_watermark": 100},
        {"second_high_watermark": 100},
        {"second_start_offset": None},
        {"second_start_offset": 101},
        {"second_producer_epoch": 4},
        {"second_last_sequence": 5},
    )
    hanging = 0
    for state, epoch, partitions in itertools.product(STATES, (3, 4, 5), ((), (Q,))):
        one = view(state, epoch, partitions)
        if judge(evidence(one)).verdict is not HANGING:
            continue
        hanging += 1
        spoiled = [evidence(one, o=doubt) for doubt in doubts_of_the_partition]
        spoiled += [
            evidence(replace(one, **doubt))
            for doubt in (
                {"coverage_failure": failed("x")},
                {"describe_failure": failed("x")},
                {"split_failure": failed("x")},
                {"producer_epoch": 2},
                {"state": "Ongoing", "partitions": (P,)},
                {"state": "PrepareCommit", "partitions": (P,)},
            )
        ]
        spoiled.append(evidence(one, view("Empty", 9, transactional_id="Y")))
        assert all(judge(e).verdict is not HANGING for e in spoiled), one
    assert hanging >= 10
    orphan = [evidence(o=doubt) for doubt in doubts_of_the_partition]
    orphan += [evidence(c={name: failed("x")}) for name in ("coverage_failure", "split_failure")]
    orphan.append(evidence(c={"visibility_failures": (failed("x"),)}))
    assert judge(evidence()).verdict is HANGING
    assert all(judge(e).verdict is not HANGING for e in orphan)


def test_the_order_of_coordinator_views_does_not_matter() -> None:
    views = (view("Empty", 9, broker_id=1), view("Ongoing", 3, (P,)), view("Empty", 4, transactional_id="Y"))
    (judged,) = {judge_observation(observation(), order, context()) for order in itertools.permutations(views)}
    assert (judged.judgement.verdict, judged.judgement.reason) == (Verdict.ONGOING, Reason.OWNED)
