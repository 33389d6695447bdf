"""A live transaction that has joined committed data: found, reported, and how it ends."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from tests.builders import MINUTE_MS, NOW_MS, P, Q, evidence, judged, known, observation, scan, unobserved, view
from tests.cases import Cases
from tests.fakes.batches import control, data
from tests.fakes.cluster import FakeCluster
from tests.fakes.records import V2, empty, numbered, ongoing, v1, v2
from txnscan.coordinators.agreed_metadata import TOPIC_DELETED, AgreedMetadata
from txnscan.coordinators.claims import CountedClaims
from txnscan.coordinators.transactions import Transaction
from txnscan.kafka.answers import OpenProducer
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.protocol.metadata import read_metadata
from txnscan.kafka.protocol.record_batch import Batch
from txnscan.kafka.topology import Key
from txnscan.reads.observation import Observation, TransactionKey
from txnscan.report.findings import FailOn, Findings
from txnscan.report.json import scan_object
from txnscan.report.sweep import print_sweep
from txnscan.resolve.terminate import aborted_keys, refusal
from txnscan.sweeps import endings as endings_module
from txnscan.sweeps.endings import endings
from txnscan.sweeps.enrichment import _may_endanger_commit, with_outcomes
from txnscan.sweeps.history import Incident
from txnscan.sweeps.identity import PIECE_BYTES
from txnscan.sweeps.news import Change
from txnscan.sweeps.observations import CLAIMED
from txnscan.sweeps.result import COMPLETED, ENDED, TORN, Scan
from txnscan.verdict.ending import coordinator_aborts
from txnscan.verdict.evidence import Judged, OutcomeEvidence, Reason, Verdict
from txnscan.verdict.outcome import joined_commit, may_join_commit, outcome, with_outcome
from txnscan.verdict.rules import judge
from txnscan.waiting.cause import Cause
from txnscan.waiting.impact import Impact
from txnscan.waiting.owner import Owner
from txnscan.watch.incident_tracker import IncidentTracker, remember

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

KEY, OTHER = ("p", 0), ("q", 0)
# Producer id 7 committed at epoch 3, and its next transaction is open at epoch 4.
COMMITTED = [*v2(True, OTHER, epoch=2), *v2(True, KEY), ongoing(4, KEY, client=V2)]


def facts(logged: list[Any], epoch: int = 4, **changes: Any) -> OutcomeEvidence:
    """The facts about the open data, whose first record has epoch 3. epoch: of the partition."""
    seen = observation(producer_epoch=epoch, coordinator_epoch=-1)
    return replace(OutcomeEvidence(seen, 4, 3, 0, None, numbered(logged), None, None), **changes)


def live(partition_epoch: int = 4, epoch: int = 4, **changes: Any) -> Judged:
    """A transaction that its coordinator has open at this epoch."""
    second = {"second_producer_epoch": partition_epoch, "producer_epoch": partition_epoch}
    return judged(view("Ongoing", epoch, (P,)), **{**second, **changes})


def batch_of(epoch: int) -> Batch:
    return Batch(100, 104, 7, epoch, 0, is_control=False, is_transactional=True)


def answers(first: Batch | Failure) -> Callable[[Sequence[Observation]], Sequence[Batch | Failure]]:
    """A read of first batches that finds this for each."""
    return lambda asked: [first] * len(asked)


def joined(**changes: Any) -> Judged:
    """A live transaction that is known to have joined a commit."""
    one = live(**changes)
    found = replace(one.evidence, joined_commit="'X' committed")
    return with_outcome(Judged(found, judge(found)), known("committed", "'X' committed"))


@dataclass(frozen=True)
class Case:
    why: str
    found: bool
    facts: OutcomeEvidence = field(default_factory=lambda: facts(COMMITTED))


def test_a_commit_is_joined_only_if_it_is_proven_and_earlier() -> None:
    table = (
        Case("the earlier transaction committed, and the next one has written", True),
        Case("the next one has not written yet", True, facts(COMMITTED, 3)),
        Case("the coordinator is still at the epoch of the data", False, facts(COMMITTED, 3, owner_epoch=3)),
        Case("nobody is known to have it", False, facts(COMMITTED, owner_epoch=None)),
        Case("it aborted", False, facts([*v2(True, OTHER, epoch=2), *v2(False, KEY), ongoing(4, KEY, client=V2)])),
        Case("it did not list the partition", False, facts([*v2(True, epoch=2), *v2(True, OTHER), ongoing(4, KEY)])),
        Case("its completion is not in the log", False, facts(COMMITTED[:5])),
        Case("the log lacks a record", False, facts([*COMMITTED[:3], None, *COMMITTED[5:]])),
        Case("under transactions v1, records may be later", False, facts([empty(2), *v1(True, KEY), ongoing(4, KEY)])),
        Case("the first record is not known", False, facts(COMMITTED, first_epoch=None)),
    )  # fmt: skip
    with Cases() as cases:
        for case in table:
            with cases.case(case.why):
                found = joined_commit(case.facts)
                assert (found is not None) == case.found
                assert found is None or (found.outcome, found.unproven) == ("committed", None)


def test_a_joined_commit_has_the_reason_and_the_evidence_of_the_commit_itself() -> None:
    """As if the next transaction had not written."""
    stored = tuple(replace(one, stored_by="sweep-1") for one in numbered(COMMITTED))
    with Cases() as cases:
        for what, logged in (("from the log", numbered(COMMITTED)), ("as a sweep stored it", stored)):
            with cases.case(what):
                alone = outcome(replace(facts(COMMITTED, 3), logged=logged))
                found = joined_commit(replace(facts(COMMITTED), logged=logged))
                assert found is not None and alone.evidence
                assert (found.why, found.evidence) == (alone.why, alone.evidence)


def test_a_live_transaction_with_earlier_committed_data_is_an_incident() -> None:
    one = live()
    assert (one.judgement.verdict, one.judgement.reason, one.is_incident) == (Verdict.ONGOING, Reason.OWNED, False)
    (found,) = with_outcomes([one], [facts(COMMITTED)])
    assert (found.judgement.verdict, found.judgement.reason) == (Verdict.ONGOING, Reason.JOINED_COMMIT)
    assert (found.outcome, found.is_incident, found.healthy, found.candidate) == (
        *("committed", True, False),
        False,
    )
    assert with_outcomes([one], [facts(COMMITTED[:5])]) == [one]


def test_only_live_transactions_with_earlier_data_are_looked_up_in_the_log() -> None:
    incidents = {live().observation.transaction_key: Incident(NOW_MS)}
    cases_of_asking: tuple[tuple[str, Judged, dict[TransactionKey, Incident], bool], ...] = (
        ("an earlier sweep saw the data hanging", live(), incidents, True),
        ("it is new", live(), {}, False),
        ("the coordinator is at a later epoch than the data", live(3), {}, True),
        ("its producer writes between the reads", live(second_last_sequence=9), incidents, True),
        ("it starts elsewhere at the second read", live(second_start_offset=101), incidents, False),
        ("the partition was not read with proof", live(3, second_failure=CLAIMED), incidents, False),
        ("the coordinator has decided", judged(view("PrepareCommit", 4, (P,))), incidents, False),
        ("the coordinator does not list the partition", judged(view("Ongoing", 4, (Q,))), incidents, False),
    )
    with Cases() as cases:
        for why, one, known_incidents, asked in cases_of_asking:
            with cases.case(why):
                assert _may_endanger_commit([one], known_incidents) == ([one] if asked else [])


def test_on_some_partitions_the_first_batches_of_live_transactions_are_read() -> None:
    """A new scanner has no incident, and once the next transaction has written, the partition shows its epoch."""
    unreadable = Failure("no", FailureCode.RECORD_GONE)
    table: tuple[tuple[str, tuple[Key, ...], Batch | Failure, bool], ...] = (
        ("its first batch is of an earlier epoch", (KEY,), batch_of(3), True),
        ("its first batch is its own", (KEY,), batch_of(4), False),
        ("its first batch cannot be read", (KEY,), unreadable, True),
        ("its partition was not named", (OTHER,), batch_of(3), False),
    )
    one = live()
    with Cases() as cases:
        for why, looks_at, first, asked in table:
            with cases.case(why):
                found = _may_endanger_commit([one], {}, looks_at, answers(first))
                assert found == ([one] if asked else [])


def looked_at(*found: Judged, about: OutcomeEvidence | None = None, **changes: Any) -> Scan:
    """A sweep that looked at p-0. about: what it read of the first batch and of the log."""
    evidence = {} if about is None else {about.observation.transaction_key: about}
    return scan(*found, outcome_evidence=evidence, **changes)


ABORTED = [*v2(True, OTHER, epoch=2), *v2(False, KEY), ongoing(4, KEY, client=V2)]
# What a sweep saw on the only partition of the transaction, and whether a fence of its id needs a reason.
FENCES: tuple[tuple[str, Scan | None, bool], ...] = (
    ("its first batch is its own", looked_at(live()), False),
    ("its producer writes between the reads", looked_at(live(second_last_sequence=9)), False),
    ("nothing is replicated yet", looked_at(live(first_high_watermark=100, second_high_watermark=100)), False),
    ("an earlier transaction committed, and it is joined", looked_at(joined(), about=facts(COMMITTED)), True),
    ("an earlier transaction aborted", looked_at(live(), about=facts(ABORTED)), False),
    ("an earlier transaction may have committed", looked_at(live(), about=facts(COMMITTED[:5])), True),
    ("the log could not be read", looked_at(live(), about=facts([], log_failure=Failure("no", "NO_ANSWER"))), True),
    ("the first batch could not be read",
     looked_at(live(), about=facts(COMMITTED, first_epoch=None, batch_failure=Failure("no", "NO_ANSWER"))), True),
    ("the partition starts elsewhere at the second read", looked_at(live(second_start_offset=101)), True),
    ("the partition was not read",
     looked_at(proven={}, errors=[unobserved("read", "no leader", 1, "p", 0)]), True),
    ("another partition was not read",
     looked_at(live(), errors=[unobserved("read", "no leader", 1, "p", 1)]), False),
    ("nothing is written there yet", looked_at(), False),
    ("nothing was seen there, and the leader is not proven", looked_at(proven={}), True),
    ("the verdict is not certain", looked_at(judged(view("Ongoing", 2, (P,)))), True),
    ("it ended meanwhile", looked_at(live(second_start_offset=None)), False),
    ("of another producer id", looked_at(judged(producer_id=8)), False),
    ("the metadata does not show it", None, True),
)  # fmt: skip


def test_a_fence_that_may_tear_a_commit_needs_a_reason() -> None:
    one = Transaction("X", 1, 7, "Ongoing", 4, NOW_MS, 60_000, 5_000, ("p-0",), 4)
    with Cases() as cases:
        for why, swept, refused in FENCES:
            with cases.case(why):
                said = refusal(one, swept)
                assert (said is not None) == refused
                assert said is None or "--force" in said
    # A decided transaction stands: its fence aborts nothing.
    decided = replace(one, state="PrepareCommit")
    assert aborted_keys(one) == [KEY] and aborted_keys(decided) == []
    assert refusal(decided, looked_at(proven={})) is None and refusal(decided, None) is None


def test_the_abort_tears_the_commit_of_any_earlier_epoch() -> None:
    """The marker of an abort is lost, the next transaction joins its data and commits, and its marker is lost, too."""
    between = [*v2(True, OTHER, epoch=2), *v2(False, KEY), *v2(True, KEY, epoch=4), ongoing(5, KEY, client=V2)]
    assert may_join_commit(facts(between, 5, owner_epoch=5)) is not None
    none = [*v2(True, OTHER, epoch=2), *v2(False, KEY), *v2(False, KEY, epoch=4), ongoing(5, KEY, client=V2)]
    assert may_join_commit(facts(none, 5, owner_epoch=5)) is None
    assert may_join_commit(facts(none, 5, owner_epoch=500)) is not None


def test_the_end_of_a_joined_transaction_is_by_its_own_timeout() -> None:
    def explained(**changes: Any) -> str:
        return judge(
            replace(evidence(view("Ongoing", 4, (P,), **changes), o={"producer_epoch": 4, "second_producer_epoch": 4}),
                    joined_commit="'X' committed")
        ).explanation  # fmt: skip

    assert coordinator_aborts(NOW_MS + 14 * MINUTE_MS, NOW_MS) in explained()
    past = explained(start_time_ms=NOW_MS - 20 * MINUTE_MS)
    assert coordinator_aborts(NOW_MS - 5 * MINUTE_MS, NOW_MS) in past
    assert not any("UTC" in explained(**one) for one in ({"timeout_ms": 2**31 - 1}, {"start_time_ms": -1}))


def test_a_claim_that_began_before_the_read_of_earlier_data_needs_the_proof() -> None:
    open_at_3 = OpenProducer(7, 3, 0, 100, NOW_MS, 4)
    read_from_ms = NOW_MS - 30_000
    cases_of_claims = (
        ("it began before the read, at a later epoch", {"epoch": 4}, False),
        ("the data has its epoch", {"epoch": 3}, True),
        ("it began after that: the data was that of a transaction that ended since", {"start_time_ms": NOW_MS}, True),
        ("it began just then", {"start_time_ms": read_from_ms}, True),
        ("it has decided, and decisions raise the epoch", {"state": "PrepareCommit"}, True),
        ("its start is not known", {"start_time_ms": -1}, True),
        ("it began at the first millisecond", {"start_time_ms": 0}, False),
    )
    with Cases() as cases:
        for why, changes, counts in cases_of_claims:
            with cases.case(why):
                given: Any = {"state": "Ongoing", "epoch": 4, "partitions": (P,), **changes}
                claim = view(**given)
                claims = CountedClaims({7: (claim, frozenset({P}))}, (), 1, read_from_ms)
                assert (claims.claimant(P, open_at_3) is claim) == counts


# --- the end of the incident ------------------------------------------------------------------------------------------

# It was open at the end of the log, at offset 105, when it was seen last.
WHICH = observation().transaction_key
SEEN_LAST = Incident(NOW_MS, None, 4, 4, 105, outcome="committed")
COMMIT, ABORT = control(107, 7, 4), control(107, 7, 4, 0)
RECORDS = data(105, 0, 8, 2)


@dataclass(frozen=True)
class End:
    why: str
    how: str
    log: tuple[bytes, ...]
    incident: Incident = SEEN_LAST
    spoil: Callable[[FakeCluster], object] = lambda cluster: None


ENDS = (
    End("a COMMIT marker", COMPLETED, (RECORDS, COMMIT)),
    End("an ABORT marker", TORN, (RECORDS, ABORT)),
    End("the marker stands at the end that was seen", TORN, (control(105, 7, 4, 0),)),
    End("the first marker counts", TORN, (RECORDS, ABORT, control(108, 7, 5))),
    End("a marker of another producer does not", COMPLETED, (control(105, 8, 4, 0), data(106, 0, 9, 1), COMMIT)),
    End("more of its own records stand before it", COMPLETED, (data(105, 5, 7, 2), COMMIT)),
    End("an offset is missing before it", ENDED, (data(105, 0, 8, 1), COMMIT)),
    End("the log starts after the end that was seen", ENDED, (data(106, 0, 8, 1), COMMIT)),
    End("there is no marker", ENDED, (RECORDS,)),
    End("there is none up to the end of the log", ENDED, (RECORDS, data(107, 2, 8, 2))),
    End("the end that was seen is not known", ENDED, (RECORDS, COMMIT), replace(SEEN_LAST, end_offset=None)),
    End("the data was not proven committed", ENDED, (RECORDS, ABORT), replace(SEEN_LAST, outcome="maybe_committed")),
    End("the partition cannot be read", ENDED, (RECORDS, COMMIT),
        spoil=lambda cluster: cluster.partitions["p", 0].errors.update({"fetch": 29})),
    End("its leader is not known", ENDED, (RECORDS, COMMIT),
        spoil=lambda cluster: setattr(cluster.partitions["p", 0], "leader", -1)),
)  # fmt: skip


def how_ended(end: End) -> str:
    cluster = FakeCluster()
    cluster.lead("p", [1])
    partition = cluster.partitions["p", 0]
    partition.log, partition.high_watermark = list(end.log), 109
    end.spoil(cluster)
    agreed = AgreedMetadata((read_metadata(cluster.send, 1, ["p"]),), ())
    swept, incidents = scan(proven={KEY: "t0"}), {WHICH: end.incident}
    return replace(swept, endings=endings(cluster.send, agreed, incidents, swept)).over(incidents)[WHICH]


@pytest.mark.parametrize("piece_bytes", [PIECE_BYTES, 1])
def test_the_first_marker_after_the_last_sighting_shows_the_end(
    piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings_module, "PIECE_BYTES", piece_bytes)
    with Cases() as cases:
        for end in ENDS:
            with cases.case(end.why):
                assert how_ended(end) == end.how


def test_each_incident_has_its_own_end() -> None:
    cluster = FakeCluster()
    cluster.lead("p", [1, 1])
    for partition, marker in enumerate((COMMIT, ABORT)):
        log = cluster.partitions["p", partition]
        log.log, log.high_watermark = [RECORDS, marker], 109
    agreed = AgreedMetadata((read_metadata(cluster.send, 1, ["p"]),), ())
    other = WHICH._replace(partition=1)
    swept = scan(proven={KEY: "t0", ("p", 1): "t0"})
    found = endings(cluster.send, agreed, {WHICH: SEEN_LAST, other: SEEN_LAST}, swept)
    assert found == {WHICH: COMPLETED, other: TORN}


def test_a_marker_behind_too_many_bytes_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings_module, "BYTES_MAX", 0)
    assert how_ended(ENDS[0]) == ENDED


def test_with_its_topic_a_transaction_ends_by_no_marker() -> None:
    cluster = FakeCluster()
    cluster.lead("p", [1])
    cluster.partitions["p", 0].log, cluster.partitions["p", 0].high_watermark = [RECORDS, COMMIT], 109
    agreed = AgreedMetadata((read_metadata(cluster.send, 1, ["p"]),), ())
    swept = scan(topics_gone={(WHICH.topic, WHICH.topic_id): TOPIC_DELETED})
    assert swept.over({WHICH: SEEN_LAST}) == {WHICH: TOPIC_DELETED}
    assert endings(cluster.send, agreed, {WHICH: SEEN_LAST}, swept) == {}


def test_an_open_incident_has_no_end() -> None:
    cluster = FakeCluster()
    swept = scan(joined(), proven={KEY: "t0"})
    assert endings(cluster.send, AgreedMetadata((), ()), {WHICH: SEEN_LAST}, swept) == {}
    assert swept.over({WHICH: SEEN_LAST}) == {}


# --- what users get ---------------------------------------------------------------------------------------------------


def test_danger_for_a_commit_is_news_at_once_and_again_after_it_hung() -> None:
    hangs, gone = judged(view("CompleteCommit", 4)), judged(second_start_offset=None, second_producer_epoch=None)
    young = joined(first_seen_ms=NOW_MS, last_timestamp_ms=NOW_MS)
    with Cases() as cases:
        for sweeps, expected in (
            ([scan(young)], ["opened"]),
            ([scan(young), scan(young)], ["opened"]),
            ([scan(hangs), scan(joined()), scan(joined())], ["opened", "opened"]),
            ([scan(hangs), scan(joined()), scan(gone)], ["opened", "opened", "closed"]),
            ([scan(joined()), scan(hangs), scan(joined())], ["opened", "opened"]),
        ):
            with cases.case(str(expected)):
                memory, kinds = IncidentTracker(), []
                for one in sweeps:
                    memory, news, _ = remember(memory, "c", one)
                    kinds += [each.kind.value for each in news]
                assert kinds == expected


def test_news_of_its_end_says_how() -> None:
    memory, _, _ = remember(IncidentTracker(), "c", scan(joined()))
    assert memory.incidents[WHICH].outcome == "committed"
    _, (closed,), _ = remember(memory, "c", scan(endings={WHICH: TORN}))
    assert (closed.kind, closed.how) == (Change.CLOSED, TORN)


def test_it_is_in_the_first_lines_with_its_end_and_no_marker(wording: SnapshotAssertion) -> None:
    with_cause = Impact(Cause.MARKER_MISSING, "its marker is missing", Owner("X", None, "its coordinator claims it"))
    output = io.StringIO()
    console = Console(file=output, width=300, highlight=False, color_system=None)
    print_sweep(console, scan_object(scan(live(), joined(), impacts={WHICH: with_cause})))
    said = output.getvalue()
    assert said == wording
    assert "COMMIT marker completes it" not in said


def test_it_fails_a_sweep_as_hanging_transactions_do() -> None:
    statuses = [[Findings.of(scan(one)).status([each]) for each in FailOn] for one in (joined(), live())]
    assert statuses == [[3, 3, 0], [0, 0, 0]]
    assert scan(joined()).candidates == ()
