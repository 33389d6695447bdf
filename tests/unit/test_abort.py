"""The expert's commands: the refusals, and the proof of an open transaction that no `--reason` replaces."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import NOW_MS, P, failed, judged, known, lacks, scan, unobserved, view
from tests.cases import Cases
from tests.fakes.applying import ACTION, PLAN, FakeBrokers, FakeJournal, now
from tests.fakes.cluster import FakeCluster, FakePartition
from tests.sim.encode import batch
from txnscan.config import ScanConfig
from txnscan.coordinators.agreed_metadata import read_all_views
from txnscan.coordinators.transactions import Transaction
from txnscan.kafka.answers import TWO_PHASE_COMMIT_TIMEOUT_MS
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import Permission, Unobserved
from txnscan.kafka.protocol.init_producer_id import Fenced
from txnscan.kafka.protocol.write_txn_markers import MarkerToWrite
from txnscan.resolve import terminate as fencing
from txnscan.resolve.abort import (
    AbortRefused,
    BrokersWithoutDescribeProducers,
    NamedTransaction,
    NothingOpen,
    PartitionUnreadable,
    ReadAnyway,
    action_for,
    cannot_be_asked,
    plan_of,
    refusal,
    target_in,
    unread_action,
)
from txnscan.resolve.apply import FORCE_TERMINATE, Result, Status, apply_plan, settle_interrupted
from txnscan.resolve.brokers import LiveBrokers
from txnscan.sweeps.history import NoHistory
from txnscan.txnlog.facts import Facts, ProducerFacts, SeenMarker
from txnscan.verdict.evidence import Judged, PeerPartitions
from txnscan.verdict.outcome import with_outcome
from txnscan.verdict.rules import judge

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

STALE = (view("Empty", 9),)


def hangs(*views: Any, outcome: str = "not_committed", **changes: Any) -> Judged:
    return with_outcome(judged(*views, **changes), known(outcome))


def test_a_proven_uncommitted_hanging_transaction_is_not_refused() -> None:
    assert refusal(hangs(*STALE), accept_unknown=False) is None


YOUNG: dict[str, Any] = {"last_timestamp_ms": NOW_MS, "first_seen_ms": NOW_MS}
REFUSED = [
    ("live", judged(view("Ongoing", 3, (P,))), "it is live (ongoing)"),
    ("decided", judged(view("PrepareCommit", 3, (P,))), "it is not proven to hang: it is pending_marker"),
    (
        "unproven",
        judged(first_failure=failed("NOT_LEADER_OR_FOLLOWER")),
        "it is not proven to hang: it is indeterminate",
    ),
    ("an owner at its epoch", hangs(view("Empty", 3)), "its owner is still at epoch 3 and can write here"),
    ("young", hangs(*STALE, **YOUNG), "it is not late yet"),
    ("committed", hangs(*STALE, outcome="committed"), "it committed, and an abort would delete its data"),
    ("maybe committed", hangs(*STALE, outcome="maybe_committed"), "its data may be committed"),
    ("mixed", hangs(*STALE, outcome="mixed"), "some of its data was committed and some was not"),
    ("unknown", hangs(*STALE, outcome="unknown"), "it is not known whether it committed"),
    (
        "not looked for",
        judged(*STALE),
        "it could not be checked against the transaction log: the sweep did not read it",
    ),
    (
        "a log that was not read",
        with_outcome(judged(*STALE), known("not_committed", log_failure=failed("away"))),
        "it could not be checked against the transaction log: away",
    ),
    (
        "an owner that stands in CompleteCommit",
        with_outcome(judged(view("CompleteCommit", 4)), known("unknown")),
        "its data may be committed",
    ),
]


@pytest.mark.parametrize(("found", "says"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_other_transactions_are_refused_with_a_reason(found: Judged, says: str) -> None:
    assert str(refusal(found, accept_unknown=False)).startswith(says)


def test_a_refusal_of_a_live_transaction_offers_a_fence_only_if_its_guard_does() -> None:
    live = judged(view("Ongoing", 3, (P,)))
    evidence = replace(live.evidence, joined_commit="'X' committed epoch 3")
    endangers = replace(live, evidence=evidence, judgement=judge(evidence))
    assert endangers.endangers_commit
    two_phase = judged(view("Ongoing", 3, (P,), timeout_ms=TWO_PHASE_COMMIT_TIMEOUT_MS))
    for one, offers in ((live, True), (two_phase, False), (endangers, False)):
        assert ("force-terminate" in str(refusal(one, accept_unknown=False))) == offers


def test_only_an_unknown_outcome_can_be_accepted() -> None:
    accepted = {name: refusal(found, accept_unknown=True) is None for name, found, _ in REFUSED}
    assert [name for name, is_accepted in accepted.items() if is_accepted] == ["unknown"]


def test_a_partly_committed_transaction_is_refused_with_instructions(wording: SnapshotAssertion) -> None:
    assert refusal(hangs(*STALE, outcome="mixed"), accept_unknown=True) == wording


class Kept(NoHistory):
    """Tables with a COMMIT marker of each requested producer id."""

    def facts(self, cluster_id: str, producer_ids: Collection[int]) -> Callable[[], Facts]:
        return lambda: {one: ProducerFacts(markers=(SeenMarker(cluster_id, 0, 1, one, 4),)) for one in producer_ids}


def test_the_proof_takes_only_producer_facts_from_the_tables() -> None:
    history = ReadAnyway("p", 0, Kept())
    assert history.facts("c", [7])() == {7: ProducerFacts(markers=(SeenMarker("c", 0, 1, 7, 4),))}
    assert ReadAnyway("p", 0).facts("c", [7])() == {}
    ((which, incident),) = history.unresolved("c")().items()
    assert (which.topic, which.partition) == ("p", 0)
    assert incident.first_seen_ms > NOW_MS
    assert history.last_seen("c")() == {}


def test_the_target_is_matched_by_offset_or_producer(wording: SnapshotAssertion) -> None:
    found = scan(hangs(*STALE), hangs(*STALE, producer_id=8, start_offset=200, second_start_offset=200))
    assert target_in(NamedTransaction("p", 0, 200), found).observation.producer_id == 8
    by_producer = NamedTransaction("p", 0, producer_id=7, producer_epoch=3, coordinator_epoch=0)
    assert target_in(by_producer, found).observation.start_offset == 100
    with pytest.raises(NothingOpen) as error:
        target_in(NamedTransaction("p", 0, 150), found)
    assert str(error.value) == wording
    with pytest.raises(AbortRefused) as refused:
        target_in(replace(by_producer, producer_epoch=4), found)
    assert str(refused.value) == wording
    with pytest.raises(NothingOpen, match="no transaction is open there"):
        target_in(NamedTransaction("p", 0, 100), scan(hangs(*STALE, second_start_offset=None)))


def test_unsupported_brokers_are_distinguished_from_unreachable_brokers() -> None:
    assert cannot_be_asked(scan()) is None
    old = failed("broker 1 does not support it", lacks_api="DescribeProducers")
    refused = unobserved("configs", "broker 1 does not say its timeout", 1)
    assert cannot_be_asked(scan(partitions_failed=1, errors=(refused, Unobserved("read", old, 1, "p", 0)))) == old.error
    with pytest.raises(PartitionUnreadable, match="away"):
        cannot_be_asked(scan(partitions_failed=1, errors=(unobserved("read", "away", 1, "p", 0),)))


# --- against the guards -----------------------------------------------------------------------------------------------

LIVE = now(view("Ongoing", 3, (P,)), outcome=None)
OF_LIVE = action_for("cluster-1", LIVE)


def forced(brokers: FakeBrokers, journal: FakeJournal, action: Any = OF_LIVE, why: str | None = "it blocks") -> Result:
    plan = plan_of(action, scan(), NOW_MS)
    (result,) = apply_plan(plan, brokers, journal, execute=True, options=(), sleep=lambda s: None, forced=why)
    return result


def test_a_reason_sends_a_refused_marker() -> None:
    assert forced(FakeBrokers(proof=LIVE), FakeJournal(), why=None).status is Status.REFUSED
    brokers = FakeBrokers(proof=LIVE)
    assert forced(brokers, FakeJournal()).status is Status.RESOLVED
    ((leader, marker),) = brokers.written
    assert (leader, marker.producer_epoch, marker.commit) == (1, 3, False)


NEVER = [
    ("another transaction", now(start_offset=101, second_start_offset=101), "another transaction is open there now"),
    ("another epoch", now(producer_epoch=4), "another transaction is open there now"),
    (
        "a first read without proof",
        now(first_failure=failed("moved")),
        "the partition cannot be read with proof: moved",
    ),
    (
        "a second read without proof",
        now(second_failure=failed("moved")),
        "the partition cannot be read with proof: moved",
    ),
    ("nothing there", None, "the transaction is no longer open"),
]


@pytest.mark.parametrize(("found", "says"), [case[1:] for case in NEVER], ids=[case[0] for case in NEVER])
@pytest.mark.parametrize("at", ["the proof", "the last look"])
def test_a_reason_does_not_replace_the_proof_at_the_leader(at: str, found: Judged | None, says: str) -> None:
    brokers = FakeBrokers(proof=found) if at == "the proof" else FakeBrokers(proof=LIVE, looks=(found,))
    assert forced(brokers, FakeJournal()).detail.startswith(says)
    assert brokers.written == []


def test_a_plan_file_is_never_forced() -> None:
    brokers = FakeBrokers(proof=LIVE)
    (result,) = apply_plan(PLAN, brokers, FakeJournal(), execute=True, options=(), sleep=lambda s: None)
    assert result.status is Status.REFUSED and brokers.written == []


# --- brokers without DescribeProducers --------------------------------------------------------------------------------


class Old(BrokersWithoutDescribeProducers):
    """Brokers without DescribeProducers, from data.

    moves_to: the last stable offset after a marker. stands_at: the producer id of the batch at the last stable
    offset. None makes the batch unreadable.
    """

    def __init__(self, moves_to: int, stands_at: int | None = 7, *, epoch: int = 3, log_start: int = 0) -> None:
        super().__init__(LiveBrokers(ScanConfig("h:1")))
        self.fake = FakeCluster()
        self.fake.partitions["p", 0] = held = FakePartition(last_stable=100, high_watermark=200)
        held.log_start = log_start
        if stands_at is None:
            held.errors["fetch"] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        else:
            held.write(batch(100, [(None, b"x")] * 3, producer_id=stands_at, producer_epoch=epoch))
            held.high_watermark = 200
        self.moves_to = moves_to
        self.written: list[MarkerToWrite] = []

    @contextmanager
    def _cluster(self, **_: bool) -> Iterator[Any]:  # type: ignore[override]
        ask = lambda call, ids: [call(one) for one in ids]  # noqa: E731
        cluster = SimpleNamespace(
            send=self.fake.send,
            view=lambda topics: None,
            agreed_metadata=lambda topics: read_all_views(self.fake.send, (1, 2, 3), topics, ask, lambda brokers: None),
            clients=SimpleNamespace(brokers=()),
            sleep=lambda seconds: None,
        )
        yield cluster

    @contextmanager
    def marker_connection(self, leader: int) -> Iterator[Callable[[MarkerToWrite], int]]:
        def write(marker: MarkerToWrite) -> int:
            self.written.append(marker)
            self.fake.partitions["p", 0].last_stable = self.moves_to
            return 0

        yield write


# The last stable offset after the marker, the producer id of the batch at the earlier offset, and the expected status.
UNASKED = [
    (200, 7, Status.RESOLVED),
    (150, 7, Status.RESOLVED),
    (100, 7, Status.UNKNOWN),
    (200, 8, Status.UNKNOWN),
    (200, None, Status.UNKNOWN),
]


@pytest.mark.parametrize(("moves_to", "stands_at", "status"), UNASKED)
def test_a_marker_on_old_brokers_resolves_if_the_last_stable_offset_leaves_the_transaction(
    moves_to: int, stands_at: int | None, status: Status, wording: SnapshotAssertion
) -> None:
    target = NamedTransaction("p", 0, producer_id=7, producer_epoch=3, coordinator_epoch=-1)
    old = Old(moves_to, stands_at)
    result = forced(old, FakeJournal(), unread_action(target, "cluster-1"))  # type: ignore[arg-type]
    assert result.status is status and result.detail == wording
    ((marker),) = old.written
    assert (marker.producer_id, marker.producer_epoch, marker.commit) == (7, 3, False)


@pytest.mark.parametrize("changes", [{"epoch": 5}, {"log_start": 100}])
def test_another_epoch_or_the_log_start_does_not_identify_the_transaction(changes: dict[str, int]) -> None:
    target = NamedTransaction("p", 0, producer_id=7, producer_epoch=3, coordinator_epoch=-1)
    old = Old(200, **changes)
    result = forced(old, FakeJournal(), unread_action(target, "cluster-1"))  # type: ignore[arg-type]
    assert result.status is Status.UNKNOWN


def test_an_undescribable_partition_is_reported_with_the_grant_it_needs() -> None:
    old = Old(200)
    old.fake.topic_errors["p"] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(RequestFailed) as failed:
        old.commit_seen(PeerPartitions(("p-0",), (3,), NOW_MS), 7)
    told = [old.read_partition(ACTION).error, LiveBrokers.read_partition(old, ACTION).error, failed.value.error]
    needs = lacks(Permission("Describe", "Topic", "p"), old.principal)
    assert told == [f"p: TOPIC_AUTHORIZATION_FAILED: {needs}"] * 3


# --- fencing ----------------------------------------------------------------------------------------------------------

BEFORE = Transaction("X", 2, 7, "Ongoing", 3, NOW_MS, 60_000, 5_000, ("p-0", "p-1"), 4)
AFTER = replace(BEFORE, state="Empty", producer_epoch=5, partitions=(), start_time_ms=None, age_ms=None)
OF_ID = fencing.action_for(BEFORE, 6)


@dataclass
class FakeCoordinators:
    answers: Sequence[Fenced | RequestFailed]
    after: Transaction | RequestFailed = AFTER
    asked: list[tuple[str, int]] = field(default_factory=list)
    principal: str = "User:ops"

    def describe(self, transactional_id: str) -> Transaction:
        if isinstance(self.after, RequestFailed):
            raise self.after
        return self.after

    longest: int | RequestFailed = 45_000

    def timeout_max_ms(self, transactional_id: str) -> int:
        if isinstance(self.longest, RequestFailed):
            raise self.longest
        return self.longest

    def fence(self, transactional_id: str, timeout_ms: int) -> Fenced:
        self.asked.append((transactional_id, timeout_ms))
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(answer, RequestFailed):
            raise answer
        return answer


def fence(coordinators: FakeCoordinators, before: Transaction = BEFORE, journal: FakeJournal | None = None) -> Result:
    plan = fencing.plan_of(OF_ID, "cluster-1", NOW_MS)
    kept = journal or FakeJournal()
    return fencing.terminate(plan, OF_ID, before, coordinators, kept, timeout_ms=30_000, sleep=lambda s: None).result


FENCED = [
    ("at once", (Fenced(0, 7, 5),), AFTER, Status.RESOLVED, 1),
    ("after its coordinator has ended it", (Fenced(51, -1, -1), Fenced(14, -1, -1), Fenced(0, 7, 5)), AFTER, "", 3),
    ("refused for want of an ACL", (Fenced(53, -1, -1),), AFTER, Status.FAILED, 1),
    ("never ended", (Fenced(51, -1, -1),), BEFORE, Status.UNKNOWN, fencing.TRIES_MAX),
    (
        "not sent again, once it was under way",
        (Fenced(51, -1, -1), RequestFailed("away", sent=False)),
        BEFORE,
        Status.NOT_RESOLVED,
        2,
    ),
    ("not sent", (RequestFailed("away", sent=False),), AFTER, Status.FAILED, 1),
    ("not answered, and done", (RequestFailed("away"),), AFTER, Status.UNKNOWN, 1),
    ("not answered, and not done", (RequestFailed("away"),), BEFORE, Status.NOT_RESOLVED, 1),
    ("not answered, nor described", (RequestFailed("away"),), RequestFailed("away"), Status.UNKNOWN, 1),
]


@pytest.mark.parametrize(
    ("answers", "after", "status", "asked"), [case[1:] for case in FENCED], ids=[case[0] for case in FENCED]
)
def test_an_id_is_fenced_again_only_if_its_coordinator_asks_for_a_retry(
    answers: Any, after: Any, status: Any, asked: int
) -> None:
    coordinators = FakeCoordinators(answers, after)
    result = fence(coordinators)
    assert result.status is (status or Status.RESOLVED)
    assert len(coordinators.asked) == asked


def test_a_fence_reports_the_ended_transaction_and_advises_another_sweep(wording: SnapshotAssertion) -> None:
    detail = fence(FakeCoordinators((Fenced(0, 7, 5),))).detail
    assert detail == wording
    assert detail.endswith("Sweep again")


def test_a_fence_keeps_the_timeout_of_the_id_or_uses_the_default() -> None:
    own, none = FakeCoordinators((Fenced(0, 7, 5),)), FakeCoordinators((Fenced(0, 7, 5),))
    fence(own)
    fence(none, replace(BEFORE, timeout_ms=2**31 - 1))
    assert (own.asked, none.asked) == ([("X", 60_000)], [("X", 30_000)])


@pytest.mark.parametrize(
    ("longest", "asked", "status"),
    [
        (45_000, [60_000, 45_000], Status.RESOLVED),
        (RequestFailed("CLUSTER_AUTHORIZATION_FAILED"), [60_000, 30_000], Status.RESOLVED),
        # The broker rejects a timeout that it allows: the request is not repeated.
        (60_000, [60_000], Status.FAILED),
    ],
)
def test_a_rejected_timeout_is_replaced_by_the_longest_allowed_timeout(
    longest: int | RequestFailed, asked: list[int], status: Status
) -> None:
    coordinators = FakeCoordinators((Fenced(50, -1, -1), Fenced(0, 7, 5)), longest=longest)
    assert fence(coordinators).status is status
    assert [timeout_ms for _, timeout_ms in coordinators.asked] == asked


def test_a_two_phase_commit_id_needs_a_reason() -> None:
    at_rest = replace(BEFORE, state="Empty", partitions=())
    assert fencing.refusal(at_rest, None) is None
    assert "two-phase commit" in str(fencing.refusal(replace(at_rest, timeout_ms=2**31 - 1), None))


def test_a_fence_warns_of_a_lost_checkpoint_if_the_id_may_be_flinks() -> None:
    """A decided transaction stands, so nothing can be lost."""
    with Cases() as cases:
        for name, state, warns in (
            ("sink-0-42", "Ongoing", True),
            ("sink-0-42", "Empty", True),
            ("sink-0-42", "CompleteCommit", True),
            ("sink-0-42", "PrepareCommit", False),
            ("sink-0-42", "PrepareAbort", False),
            ("X", "Ongoing", False),
        ):
            with cases.case((name, state)):
                said = fencing.warnings(replace(BEFORE, transactional_id=name, state=state))
                assert sum("may be Flink's" in one and "checkpoint" in one for one in said) == warns


def test_a_fence_is_journaled_before_and_after_it_is_sent() -> None:
    journal = FakeJournal()
    coordinators = FakeCoordinators((Fenced(0, 7, 5),))
    fence(coordinators, journal=journal)
    assert journal.calls[:2] == ["hold", "intend"] and journal.calls[-1] == "conclude"
    (attempt,) = journal.kept
    assert (attempt.action.reason, attempt.status) == (FORCE_TERMINATE, Status.RESOLVED)


def test_an_interrupted_fence_is_settled_as_unknown_without_reading_a_partition() -> None:
    journal, brokers = FakeJournal(), FakeBrokers()
    journal.intend(PLAN, OF_ID, "fence 'X'")
    (result,) = settle_interrupted("cluster-1", PLAN, brokers, journal)
    assert result.status is Status.UNKNOWN and "describe the id" in result.detail
    assert brokers.calls == [] and ACTION.incident_id != OF_ID.incident_id
