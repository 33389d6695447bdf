"""Withheld offsets are requested again until a transaction explains them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.builders import judged, scan, unobserved, view
from tests.cases import Cases
from tests.fakes.replicas import FakeBrokers as FakeReplicas
from txnscan.config import ConfigError
from txnscan.coordinators.locate import Coordinator
from txnscan.coordinators.transactions import Transaction
from txnscan.explain import ask_error, ask_group, ask_id
from txnscan.explain.cause import CauseCode
from txnscan.explain.causes import cause_of
from txnscan.explain.cluster_reads import Asking, failures_of, no_offsets_of, partition_facts, read_writes
from txnscan.explain.facts import Facts, PartitionFacts, PendingOffsets
from txnscan.explain.symptom import Symptom, SymptomKind, symptom
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.failure import Failure, FailureCode, Unobserved
from txnscan.kafka.protocol.list_groups import ListedGroup
from txnscan.kafka.protocol.offset_fetch import GroupOffsets
from txnscan.kafka.protocol.share_group_offsets import ShareGroupPartitions
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Broker, ClusterView, Key, Topic
from txnscan.reads.rows import OffsetsRow
from txnscan.sweeps.names import Absent
from txnscan.verdict.evidence import Judged
from txnscan.waiting import groups
from txnscan.waiting.ahead import Ahead
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
    patch.setattr(ask_group, "offsets_at", brokers.read_offsets)
    patch.setattr(ask_group, "sweep_of", brokers.sweep)
    patch.setattr(ask_group, "pending_offsets", brokers.pending)
    asking = cast(Asking, type("Fake", (), {"cluster": NoCluster()})())
    return ask_group._withheld(asking, LOG, 1, "g")


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
    found = partition_facts(LOG, scan(), before, after)
    assert (found.failure.code if found.failure is not None else None) == code


MAPPING = "INVALID_PRODUCER_ID_MAPPING"
# The options, and whether an id that no coordinator and no log knows is an error of the option.
ABSENT_IDS: tuple[tuple[dict[str, str], bool], ...] = (
    ({"transactional_id": "refund-service"}, True),
    ({"transactional_id": "refund-service", "error": "PRODUCER_FENCED"}, True),
    ({"transactional_id": "refund-service", "error": "CONCURRENT_TRANSACTIONS"}, True),
    ({"transactional_id": "refund-service", "error": "something else"}, True),
    ({"transactional_id": "refund-service", "error": MAPPING}, False),
    ({"error": "[Producer transactionalId=refund-service] PRODUCER_FENCED"}, False),
    ({"error": f"[Producer transactionalId=refund-service] {MAPPING}"}, False),
)


def test_a_mistyped_id_is_a_usage_error_beside_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.name
    unknown = Unobserved("coordinator", Failure("no such id", code))
    monkeypatch.setattr(ask_id, "describe", lambda *_: ([], [unknown]))
    monkeypatch.setattr(ask_id, "_with_log", lambda _, facts, __: facts)
    monkeypatch.setattr(ask_id, "read_writes", lambda _, facts: facts)
    monkeypatch.setattr(
        ask_id, "absent_id", lambda _, name: Absent("--transactional-id", "id", name, None, "refunds-service")
    )
    cluster = type("Cluster", (), {"send": None, "newest": None, "format_failure": str})
    given = {"cluster": cluster, "progress": staticmethod(lambda *_: None), "now_ms": None, "sleep": None}
    asking = cast(Asking, type("Fake", (), given)())
    with Cases() as cases:
        for options, is_usage in ABSENT_IDS:
            with cases.case(str(options)):
                facts = Facts(symptom(**options), 0, 0)  # type: ignore[arg-type]
                if not is_usage:
                    assert ask_id.ask_id(asking, facts).absent
                    continue
                with pytest.raises(ConfigError, match="refunds-service"):
                    ask_id.ask_id(asking, facts)


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
    return read_writes(asking, Facts(symptom, 0, 0, failures=failures, **changes)), fake.asked


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


@pytest.mark.parametrize(
    ("place", "error", "said"),
    [
        (("p", 0), "the partition has no leader", "p-0: the partition has no leader"),
        (("p", 0), "p-0 has no leader", "p-0 has no leader"),
        (("p", 1), "p-10 has no leader", "p-1: p-10 has no leader"),
        ((None, None), "broker 2 does not answer", "broker 2 does not answer"),
    ],
)
def test_a_failure_of_a_partition_names_it(place: tuple[str | None, int | None], error: str, said: str) -> None:
    found = scan(errors=[unobserved("read", error, None, *place)])
    assert [one.error for one in failures_of(found)] == [said]


@pytest.mark.parametrize(
    ("partition", "leader", "code"),
    [(0, 3, FailureCode.NOT_ASKED), (0, -1, FailureCode.NO_LEADER), (1, 3, FailureCode.NOT_ASKED)],
    ids=["it did not answer", "no leader", "unknown partition"],
)
def test_offsets_that_are_not_known_have_the_reason_of_the_metadata(
    partition: int, leader: int, code: FailureCode
) -> None:
    shown = ClusterView(3, "c", (Broker(3, "h", 1),), (Topic("p", "", (0,), (leader,), (5,)),))
    assert no_offsets_of(shown, ("p", partition)).code == code


# --- what this principal may not see

HIDDEN = Failure("topics may be invisible", ErrorCode.TOPIC_AUTHORIZATION_FAILED.name)


def test_offsets_on_hidden_topics_are_not_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the group has records to read on a visible partition."""
    slow = replace(PartitionFacts("t", 0, 9, 9, 9), committed=2, ahead=Ahead(has_record=True, record_at=2))
    read = replace(PartitionFacts("t", 0, 9, 9, 9), committed=9)
    at = Coordinator("group", "g", LOG[0], 9, 50, Broker(1, "b", 9092))
    monkeypatch.setattr(ask_group, "coordinator_of", lambda *_: at)
    monkeypatch.setattr(ask_group, "group_offsets", lambda *_, **__: GroupOffsets(committed={KEY: 2}))
    monkeypatch.setattr(ask_group, "_withheld", lambda *_: ((), None))
    monkeypatch.setattr(ask_group, "share_level", lambda *_: "read_committed")
    monkeypatch.setattr(ask_group, "share_group_partitions", lambda *_: ShareGroupPartitions(keys=(KEY,)))
    with Cases() as cases:
        for protocol in ("consumer", groups.SHARE):
            for one in (slow, read):
                for hidden in (HIDDEN, None):
                    with cases.case(f"{protocol}, {one.lag}, {hidden}"):
                        listed = ListedGroup("g", protocol, "Stable")
                        monkeypatch.setattr(ask_group, "listed_group", lambda *_, listed=listed: listed)
                        monkeypatch.setattr(ask_group, "_stands", lambda *_, one=one: ((one,), None))
                        found = ask_group.ask_group(asking_of(hidden), Facts(symptom(group="g"), 0, 0))
                        assert found.failures == (() if hidden is None else (hidden,))
                        code = cause_of(found).code
                        assert code is (CauseCode.NO_TRANSACTION if hidden is None else CauseCode.NOT_OBSERVED)


def test_a_hidden_topic_of_offsets_is_not_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for unseen in (HIDDEN, None):
        absent = Absent("--error", "topic", LOG[0], unseen)
        monkeypatch.setattr(ask_error, "absent_topic", lambda *_, absent=absent: absent)
        found = ask_error._ask_all_offsets(asking_of(None), Facts(symptom(error="UNSTABLE_OFFSET_COMMIT"), 0, 0))
        assert cause_of(found).code is (CauseCode.NO_TRANSACTION if unseen is None else CauseCode.NOT_OBSERVED)


def asking_of(hidden: Failure | None) -> Asking:
    """A cluster without topics, as far as this principal sees."""
    given = {
        "send": None,
        "newest": staticmethod(lambda topics: ClusterView(1, "fake", (), ())),
        "newest_leaders": staticmethod(lambda topics: None),
        "hidden_topics": staticmethod(lambda asked: hidden),
    }
    cluster = type("Cluster", (), given)()
    return cast(Asking, type("Fake", (), {"cluster": cluster, "progress": staticmethod(lambda *_: None)})())
