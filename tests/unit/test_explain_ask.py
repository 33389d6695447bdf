"""Withheld offsets are requested again until a transaction explains them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.builders import judged, scan, view
from tests.fakes.replicas import FakeBrokers as FakeReplicas
from txnscan.coordinators.transactions import Transaction
from txnscan.explain import ask as under_test
from txnscan.explain.ask import Asking
from txnscan.explain.facts import Facts, PartitionFacts, PendingOffsets
from txnscan.explain.symptom import Symptom, SymptomKind, symptom
from txnscan.kafka.failure import Failure
from txnscan.kafka.protocol.offset_fetch import GroupOffsets
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Broker, ClusterView, Key
from txnscan.reads.rows import OffsetsRow
from txnscan.verdict.evidence import Judged
from txnscan.waiting import groups
from txnscan.waiting.pending_offsets import TransactionOffsets
from txnscan.waiting.writability import UNREAD, NoLog

LOG: Key = ("__consumer_offsets", 9)
KEY: Key = ("t", 0)
CLOSED = OffsetsRow(*LOG, high_watermark=105, last_stable_offset=105)
OPEN = OffsetsRow(*LOG, high_watermark=105, last_stable_offset=100)
LIVE = judged(view("Ongoing", 3, ("__consumer_offsets-9",)), topic=LOG[0], partition=LOG[1])


class FakeBrokers:
    """A coordinator and the leader of its log. unstable: its answers in turn, the last one repeats. offsets:
    where the log stands, in turn. found: the sweep's transactions. names: the partitions of a group in a transaction.
    """

    def __init__(
        self, unstable: list[set[Key]], offsets: list[OffsetsRow], found: tuple[Judged, ...] = (), names: Any = ()
    ) -> None:
        self.unstable, self.offsets, self.found, self.names = unstable, offsets, found, names
        self.asked = 0

    @staticmethod
    def turn(answers: list[Any]) -> Any:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def offset_fetch(
        self, send: object, broker_id: int, wanted: Mapping[str, Any], **_: bool
    ) -> dict[str, GroupOffsets]:
        self.asked += 1
        return {name: GroupOffsets(unstable=set(self.turn(self.unstable))) for name in wanted}

    def read_offsets(self, asking: Asking, keys: Collection[Key]) -> tuple[dict[Key, OffsetsRow], ClusterView]:
        return {LOG: self.turn(self.offsets)}, ClusterView(1, "fake", (), ())

    def sweep(self, asking: Asking, keys: Collection[Key]) -> Any:
        return scan(*self.found)

    def pending(self, send: object, observation: object) -> TransactionOffsets:
        return TransactionOffsets({"g": set(self.names)} if self.names else {})


class NoCluster:
    def send(self, broker_id: int, request: object) -> object:
        raise AssertionError("all answers are faked")


def withheld(brokers: FakeBrokers, patch: pytest.MonkeyPatch) -> tuple[tuple[PendingOffsets, ...], Failure | None]:
    patch.setattr(groups, "offset_fetch", brokers.offset_fetch)
    patch.setattr(under_test, "_offsets", brokers.read_offsets)
    patch.setattr(under_test, "_sweep", brokers.sweep)
    patch.setattr(under_test, "pending_offsets", brokers.pending)
    asking = cast(Asking, type("Fake", (), {"cluster": NoCluster()})())
    return under_test._withheld(asking, LOG, 1, "g")


def test_a_group_without_pending_offsets_takes_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = FakeBrokers([set()], [CLOSED])
    assert withheld(brokers, monkeypatch) == ((), None)
    assert brokers.asked == 1


def test_a_live_transaction_explains_pending_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    found, failure = withheld(FakeBrokers([{KEY}], [OPEN], (LIVE,), {KEY}), monkeypatch)
    assert [(one.group, one.partitions, one.holder) for one in found] == [("g", ("t-0",), LIVE)]
    assert failure is None


def test_first_offsets_are_requested_by_the_names_in_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = withheld(FakeBrokers([set(), {KEY}], [OPEN], (LIVE,), {KEY}), monkeypatch)
    assert [one.holder for one in found] == [LIVE]


def test_offsets_that_became_stable_are_not_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = FakeBrokers([{KEY}, set()], [OPEN, CLOSED])
    assert withheld(brokers, monkeypatch) == ((), None)


def test_a_coordinator_withholding_offsets_without_a_transaction_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found, failure = withheld(FakeBrokers([{KEY}], [CLOSED]), monkeypatch)
    assert [(one.partitions, one.holder, one.unread) for one in found] == [(("t-0",), None, None)]
    assert failure is None


def test_alternating_transactions_leave_withheld_offsets_unexplained(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator withholds the offsets each time, and each sweep finds another transaction."""
    brokers = FakeBrokers([{KEY}], [OPEN], (LIVE,))
    found, failure = withheld(brokers, monkeypatch)
    assert found == () and failure is not None and failure.code == "ENDED_MEANWHILE"
    assert brokers.asked == 6


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (OPEN, OPEN, "ENDED_MEANWHILE"),
        (OPEN, CLOSED, None),
        (replace(CLOSED, high_watermark=100, last_stable_offset=100), OPEN, None),
    ],
    ids=["open before and after", "ended during the sweep", "began during the sweep"],
)
def test_only_a_transaction_open_throughout_the_sweep_must_be_seen(
    before: OffsetsRow, after: OffsetsRow, code: str | None
) -> None:
    found = under_test._partition_facts(LOG, scan(), before, after)
    assert (found.failure.code if found.failure is not None else None) == code


# --- logs that take no writes


def asked(
    symptom: Symptom, *, no_log: bool = False, failures: tuple[Failure, ...] = (), **changes: Any
) -> tuple[Facts, list[tuple[str, int]]]:
    """The facts with write states, and the requests. One of two replicas of the log is in sync. The newest metadata is
    broker 2's.
    """
    partitions = {} if no_log else {(TRANSACTION_STATE_TOPIC, 0): (1, (1,)), KEY: (1, (1, 2))}
    fake = FakeReplicas(partitions, {TRANSACTION_STATE_TOPIC: "2", "t": "2", "1": "3"}, replicas=(1, 2))
    errors = ((TRANSACTION_STATE_TOPIC, "UNKNOWN_TOPIC_OR_PARTITION"),) if no_log else ()
    cluster = fake.cluster
    cluster.newest = lambda topics: ClusterView(2, "fake", (Broker(1, "b", 9092),), (), errors)
    asking = cast(Asking, type("Fake", (), {"cluster": cluster, "progress": staticmethod(lambda *_: None)})())
    return under_test._with_writes(asking, Facts(symptom, 0, 0, failures=failures, **changes)), fake.asked


ID, BUSY = Symptom(SymptomKind.TRANSACTIONAL_ID, transactional_id="X"), symptom(error="CONCURRENT_TRANSACTIONS")
OPEN_ON_T = Transaction("X", 1, 7, "Ongoing", 3, 1, 900_000, 1, ("t-0",))


def test_the_logs_of_ids_are_read_from_the_broker_with_the_newest_metadata() -> None:
    found, requests = asked(ID, transaction=OPEN_ON_T)
    assert {key: one.takes_writes for key, one in found.writes.partitions.items()} == {
        (TRANSACTION_STATE_TOPIC, 0): False,
        KEY: True,
    }
    assert requests[0] == ("Metadata", 2) and ("DescribeConfigs", 1) in requests
    for symptom_, changes in ((ID, {"absent": True}), (BUSY, {}), (BUSY, {"prepared": (OPEN_ON_T,)})):
        assert asked(symptom_, **changes)[0].writes.log_partitions == 1


def test_without_an_id_no_log_is_read() -> None:
    found, requests = asked(Symptom(SymptomKind.GROUP, group="g"), partitions=(PartitionFacts("t", 0, 5, 5, 5),))
    assert (found.writes, requests) == (UNREAD, [])


def test_transactions_are_told_by_the_state_of_their_log() -> None:
    one = judged(view("Ongoing", 3, ("t-0",)), topic="t")
    found, _ = asked(ID, partitions=(PartitionFacts("t", 0, 105, 100, 100, open=(one,)),))
    (told,) = found.partitions[0].open
    assert TRANSACTION_STATE_TOPIC in told.judgement.explanation
    pending = PendingOffsets("g", (), PartitionFacts("t", 0, 105, 100, 100, open=(one,)), one)
    (told_pending,) = asked(ID, pending=(pending,))[0].pending
    assert told_pending.holder == told


def test_without_a_log_no_coordinator_was_missed() -> None:
    missed, other = Failure("no coordinators", "UNKNOWN_TOPIC_OR_PARTITION"), Failure("behind", "BROKER_BEHIND")
    found, _ = asked(BUSY, no_log=True, failures=(missed, other))
    assert (found.writes.no_log, found.failures) == (NoLog(3, 1), (other,))
    assert asked(BUSY, failures=(missed, other))[0].failures == (missed, other)
