"""Output of the admin commands: a failing broker is one row, rows are streamed, and memory is bounded."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.builders import said, unobserved
from tests.cases import Cases
from tests.fakes.cluster import FakeCluster, FakeId, FakePartition, producer
from tests.fakes.old_brokers import FakeOld, connected
from tests.fakes.transaction_log import LOG, log_of
from tests.sim.encode import batch, transaction_log_value
from tests.sim.records import TransactionMetadata
from txnscan.config import ConfigError
from txnscan.coordinators.agreed_metadata import AgreedMetadata, read_all_views
from txnscan.coordinators.claims import ask_claims
from txnscan.coordinators.cluster import Cluster
from txnscan.coordinators.locate import coordinator_of
from txnscan.coordinators.producers import PartitionProducers, Portion, portions, read_portion, read_producers
from txnscan.coordinators.streamed import streamed
from txnscan.coordinators.transactions import Transaction, describe, list_on, located
from txnscan.kafka.answers import State
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import NO_LEADER, Unobserved
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.list_transactions import ListingFilter
from txnscan.kafka.protocol.metadata import read_metadata
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.report.admin_output import write_listed
from txnscan.report.plain import error_object
from txnscan.report.rows import Column, CsvRows, JsonRows, TableRows
from txnscan.txnlog.decode import transactional_id_key
from txnscan.txnlog.facts import LoggedTransaction
from txnscan.txnlog.timeline import Checker, timeline, to_read

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

NOW_MS = 1_700_000_600_000
BEGUN_MS = 1_700_000_000_000


def cluster_of(**ids: FakeId) -> FakeCluster:
    """Three brokers. Each id is at its coordinator, by its hash."""
    cluster = FakeCluster()
    cluster.lead(TRANSACTION_STATE_TOPIC, (1, 2, 3))
    for name, held in ids.items():
        cluster.ids.setdefault(coordinator_partition(name, 3) + 1, {})[name] = held
    return cluster


def view(cluster: FakeCluster) -> Any:
    return lambda topics: read_metadata(cluster.send, 1, topics)


# --- streaming --------------------------------------------------------------------------------------------------------


def test_answers_are_yielded_as_they_arrive() -> None:
    gate = threading.Event()

    def call(item: str) -> Iterator[str]:
        if item == "slow":
            assert gate.wait(600)
        yield item

    given = streamed(call, ["slow", "quick"])
    assert next(given) == "quick"
    gate.set()
    assert list(given) == ["slow"]


def test_rows_are_read_only_as_far_as_the_reader_consumes_them() -> None:
    made = 0

    def call(item: int) -> Iterator[int]:
        nonlocal made
        for number in range(10_000):
            made += 1
            yield number

    given = streamed(call, [1])
    assert [next(given) for _ in range(3)] == [0, 1, 2]
    assert made < 100
    given.close()  # type: ignore[attr-defined]


def test_an_exception_in_a_call_ends_the_stream() -> None:
    def call(item: int) -> Iterator[int]:
        raise ValueError("broken")
        yield 1

    with pytest.raises(ValueError, match="broken"):
        list(streamed(call, [1, 2]))


# --- listing and describing -------------------------------------------------------------------------------------------


def test_only_ids_in_a_transaction_are_listed_with_times() -> None:
    cluster = cluster_of(busy=FakeId(1, 0, "Ongoing", start_time_ms=BEGUN_MS), idle=FakeId(2, 0, "Empty"))
    rows = [
        row
        for broker in (1, 2, 3)
        for some in list_on(cluster.send, broker, ListingFilter(), lambda: NOW_MS)
        for row in ([some] if isinstance(some, Unobserved) else some)
    ]
    by_id = {row.transactional_id: row for row in rows if isinstance(row, Transaction)}
    assert (by_id["busy"].age_ms, by_id["busy"].start_time_ms) == (600_000, BEGUN_MS)
    assert (by_id["idle"].age_ms, by_id["idle"].timeout_ms) == (None, None)


def test_an_id_that_moved_on_during_the_listing_has_no_times() -> None:
    cluster = cluster_of(moved=FakeId(5, 0, "Ongoing", listed_producer_id=4))
    asked = coordinator_partition("moved", 3) + 1
    (rows,) = list_on(cluster.send, asked, ListingFilter(), lambda: NOW_MS)
    assert not isinstance(rows, Unobserved)
    (row,) = rows
    assert isinstance(row, Transaction) and (row.producer_id, row.age_ms) == (4, None)


def test_a_failing_broker_is_one_error() -> None:
    cluster = cluster_of()
    cluster.unreachable = {2}
    (error,) = list_on(cluster.send, 2, ListingFilter(), lambda: NOW_MS)
    assert isinstance(error, Unobserved) and error.broker == 2


FILTERS = [
    (ListingFilter(longer_than_ms=0), "broker 1 cannot filter by duration, which brokers can from Kafka 3.8 on"),
    (ListingFilter(pattern="a.*"), "broker 1 cannot filter by a pattern of ids, which brokers can from Kafka 4.1 on"),
    (ListingFilter(), "broker 1 lacks an API of Kafka 3.0 and newer"),
]


@pytest.mark.parametrize(("wanted", "says"), FILTERS, ids=["duration", "pattern", "none"])
def test_an_unsupported_filter_is_an_error(wanted: ListingFilter, says: str) -> None:
    def send(broker_id: int, request: Any) -> Any:
        raise RequestFailed.unsupported("broker 1", "ListTransactions")

    (error,) = list_on(send, 1, wanted, lambda: NOW_MS)
    assert isinstance(error, Unobserved) and error.failure.error.startswith(says)


def test_a_pattern_that_brokers_refuse_is_the_users_error(wording: SnapshotAssertion) -> None:
    """A listing would otherwise be empty, with one failure for each broker."""

    def send(broker_id: int, request: Any) -> Any:
        raise RequestFailed.answered(f"broker {broker_id}", "ListTransactions", ErrorCode.INVALID_REGULAR_EXPRESSION)

    cluster = SimpleNamespace(send=send, principal="User:x", behind=lambda: ())
    with pytest.raises(ConfigError) as error:
        write_listed(JsonRows("transactions"), cast(Cluster, cluster), [1, 2], ListingFilter(pattern="["), lambda: 0)
    assert str(error.value) == wording


def test_a_list_says_that_ids_may_be_invisible(capsys: pytest.CaptureFixture[str], wording: SnapshotAssertion) -> None:
    """A listing leaves out ids without a word, so that a principal without ACLs sees an empty one."""
    cases: dict[str, tuple[Callable[[int, str], bool], set[int], bool]] = {
        "without ACLs": (lambda broker_id, name: True, set(), True),
        "with all ids": (lambda broker_id, name: False, set(), False),
        "with a prefix": (lambda broker_id, name: not name.startswith("app-"), set(), True),
        "a broker is down": (lambda broker_id, name: True, {2}, True),
    }
    with Cases() as table:
        for what, (hides, unreachable, is_hidden) in cases.items():
            with table.case(what):
                fake = FakeOld({})
                fake.hides, fake.unreachable = hides, unreachable
                with connected(fake) as cluster:
                    cluster.view([])
                    errors = write_listed(JsonRows("transactions"), cluster, [2, 3], ListingFilter(), lambda: NOW_MS)
                said = [one["error"] for one in errors if one["code"] == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"]
                assert bool(said) is is_hidden
                if is_hidden:
                    assert said == wording(name="hidden")
    capsys.readouterr()


def described(cluster: FakeCluster, *names: str) -> tuple[Sequence[Transaction], Sequence[Unobserved]]:
    return describe(cluster.send, names, view(cluster), lambda: NOW_MS, lambda seconds: None)


def test_ids_are_described_by_their_coordinators_in_the_given_order() -> None:
    cluster = cluster_of(**{name: FakeId(n, 1, "Ongoing") for n, name in enumerate("abcdef")})
    found, errors = described(cluster, *"fedcba")
    assert [one.transactional_id for one in found] == list("fedcba") and not errors
    assert all(one.coordinator == coordinator_partition(one.transactional_id, 3) + 1 for one in found)
    # One request to each coordinator.
    assert sum(name == "DescribeTransactions" for _, name in cluster.asked) == len({one.coordinator for one in found})


def test_a_loading_coordinator_is_retried_and_an_unknown_id_is_not(
    wording: SnapshotAssertion,
) -> None:
    loading = FakeId(2, error=14)
    cluster = cluster_of(a=FakeId(1), b=loading)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            loading.error = 0

    found, errors = describe(cluster.send, ["a", "b", "nobody"], view(cluster), lambda: NOW_MS, sleep)
    assert [one.transactional_id for one in found] == ["a", "b"] and len(waits) == 2
    assert [said(error.failure) for error in errors] == wording


def test_a_hidden_log_asks_every_broker_and_a_missing_log_asks_none() -> None:
    shown = read_metadata(cluster_of().send, 1, [TRANSACTION_STATE_TOPIC])
    hidden = replace(shown, topics=(), topic_errors=((TRANSACTION_STATE_TOPIC, "TOPIC_AUTHORIZATION_FAILED"),))
    by_broker, unserved = located(["a"], hidden)
    assert (by_broker, unserved) == ({1: ["a"], 2: ["a"], 3: ["a"]}, {})
    missing = replace(shown, topics=(), topic_errors=((TRANSACTION_STATE_TOPIC, "UNKNOWN_TOPIC_OR_PARTITION"),))
    by_broker, unserved = located(["a"], missing)
    assert by_broker == {} and "no id was ever used" in unserved["a"].failure.error


# --- producers --------------------------------------------------------------------------------------------------------


def test_producers_without_a_transaction_are_listed_and_offsets_accompany_open_ones() -> None:
    cluster = FakeCluster()
    cluster.partitions["t", 0] = FakePartition(producers=[producer(7, 100), producer(8, -1)], high_watermark=200)
    cluster.partitions["t", 1] = FakePartition(producers=[producer(9, -1)])
    seen = read_metadata(cluster.send, 1, ["t"])
    (share,), errors = portions(seen.topics, None)
    first, second = read_portion(cluster.send, share, seen)
    assert not errors and isinstance(first, PartitionProducers) and isinstance(second, PartitionProducers)
    assert [(p.producer_id, p.start_offset) for p in first.producers] == [(7, 100), (8, -1)]
    assert first.offsets is not None and (first.offsets.last_stable_offset, first.offsets.high_watermark) == (100, 200)
    assert (second.offsets, second.of_leader) == (None, True)


def test_a_partition_without_a_leader_is_an_error_unless_a_broker_is_named() -> None:
    cluster = FakeCluster()
    cluster.partitions["t", 0] = FakePartition(leader=-1)
    topics = read_metadata(cluster.send, 1, ["t"]).topics
    assert portions(topics, None) == ([], [Unobserved("read", NO_LEADER, None, "t", 0)])
    (share,), errors = portions(topics, 2)
    assert (share.broker_id, errors) == (2, [])


def test_an_unreachable_broker_is_an_error_of_each_partition() -> None:
    cluster = FakeCluster()
    cluster.partitions["t", 0] = cluster.partitions["t", 1] = FakePartition()
    seen = read_metadata(cluster.send, 2, ["t"])
    cluster.unreachable = {1}
    found = list(read_portion(cluster.send, Portion(1, seen.partitions), seen))
    assert [(one.topic, one.partition) for one in found if isinstance(one, Unobserved)] == [("t", 0), ("t", 1)]


def test_an_owner_that_a_broker_may_have_is_not_observed() -> None:
    """Broker 3 does not answer. A producer whose owner another broker lists needs no answer of it."""
    for owner, brokers in ({}, [3]), ({"X": FakeId(7, 3, partitions=(("t", 0),))}, []):
        fake = FakeCluster()
        fake.partitions["t", 0] = FakePartition(producers=[producer(7, 100)], high_watermark=200)
        fake.ids[1] = dict(owner)
        fake.unreachable = {3}
        seen = read_metadata(fake.send, 1, ["t"])
        cluster = SimpleNamespace(
            send=fake.send, ask_claims=lambda ids, _, send=fake.send: [ask_claims(send, n, ids) for n in (1, 2, 3)]
        )
        one, *errors = read_producers(cast(Cluster, cluster), seen.topics, seen, None)
        assert isinstance(one, PartitionProducers) and [*one.owners] == [7] * len(owner)
        assert [error.broker for error in errors if isinstance(error, Unobserved)] == brokers


# --- coordinators -----------------------------------------------------------------------------------------------------


def test_a_disputed_coordinator_is_not_named(wording: SnapshotAssertion) -> None:
    cluster = cluster_of()

    def ask() -> AgreedMetadata:
        return read_all_views(
            cluster.send, (1, 2, 3), [TRANSACTION_STATE_TOPIC], lambda call, items: [call(one) for one in items], print
        )

    known = coordinator_of("transactional_id", "a", ask())
    assert known.broker is not None and known.broker.broker_id == coordinator_partition("a", 3) + 1
    cluster.unreachable = {2}
    unknown = coordinator_of("transactional_id", "a", ask())
    assert unknown.broker is None
    assert str(said(unknown.failure)) == wording


def test_a_topic_shown_by_any_broker_is_not_reported_as_missing(wording: SnapshotAssertion) -> None:
    """A topic is missing only if all brokers report it as missing. An authorization error means that it exists."""
    cluster = FakeCluster()

    def error() -> str:
        agreed = read_all_views(
            cluster.send, (1, 2), [TRANSACTION_STATE_TOPIC], lambda call, items: [call(one) for one in items], print
        )
        return str(said(coordinator_of("transactional_id", "a", agreed).failure))

    assert error() == wording
    cluster.topic_errors[TRANSACTION_STATE_TOPIC] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert error() == wording
    cluster.believes[2] = FakeCluster()
    assert error().startswith(f"brokers disagree on whether {TRANSACTION_STATE_TOPIC} exists: ")


# --- the transaction log ----------------------------------------------------------------------------------------------


def logged(offset: int, state: State, epoch: int = 3, contiguous_from: int = 0, **changes: Any) -> LoggedTransaction:
    base = LoggedTransaction(offset, contiguous_from, "X", 7, epoch, state, frozenset({("p", 0)}), 0, 5, 9)
    return replace(base, **changes)


STEPS = [
    ("a commit", [logged(0, State.ONGOING), logged(1, State.PREPARE_COMMIT), logged(2, State.COMPLETE_COMMIT)], None),
    ("no decision", [logged(0, State.ONGOING), logged(1, State.COMPLETE_COMMIT)], "impossible"),
    ("an epoch that falls", [logged(0, State.EMPTY), logged(1, State.EMPTY, 2)], "impossible"),
    (
        "records that are gone",
        [logged(0, State.ONGOING), logged(9, State.COMPLETE_COMMIT, contiguous_from=9)],
        "does not follow from the record before; records between them are missing",
    ),
    (
        "a decision that did not count",
        [logged(0, State.ONGOING), logged(1, State.PREPARE_COMMIT), logged(2, State.PREPARE_ABORT)],
        "follows from an earlier record",
    ),
]


@pytest.mark.parametrize(("records", "says"), [case[1:] for case in STEPS], ids=[case[0] for case in STEPS])
def test_an_impossible_step_is_marked_if_no_record_is_missing(
    records: Sequence[LoggedTransaction], says: str | None
) -> None:
    checker = Checker(0)
    *_, last = [checker.step(record) for record in records]
    assert (last.impossible_after is not None) == (says == "impossible")
    assert last.note is None if says is None else str(last.note).startswith(says)


def record(name: str, producer_id: int, state: str) -> tuple[bytes, bytes]:
    metadata = TransactionMetadata(producer_id, 3, state, frozenset({("p", 0)}))
    return transactional_id_key(name), transaction_log_value(metadata, BEGUN_MS)


def test_only_records_of_the_requested_ids_and_their_producer_ids_are_shown() -> None:
    cluster = log_of(
        batch(0, [record("X", 7, "Empty")]),
        batch(1, [record("Y", 8, "Empty")]),
        batch(2, [record("X", 9, "Ongoing")]),
        batch(3, [(transactional_id_key("X"), None)]),
    )
    by_id = [one for one in timeline(cluster.send, LOG, names=["X"]) if not isinstance(one, Unobserved)]
    assert [(one.record.offset, one.record.state) for one in by_id] == [
        (0, State.EMPTY),
        (2, State.ONGOING),
        (3, State.DEAD),
    ]
    assert list(timeline(cluster.send, LOG, producer_ids=[7])) == by_id
    assert list(timeline(cluster.send, LOG, producer_ids=[1])) == []


def test_an_unreadable_log_is_an_error_of_its_partition() -> None:
    cluster = log_of()
    cluster.unreachable = {1}
    (error,) = timeline(cluster.send, LOG, names=["X"])
    assert isinstance(error, Unobserved) and error.failure.error.startswith(f"{TRANSACTION_STATE_TOPIC}-0: ")


def test_an_id_is_searched_on_its_partition_and_a_producer_id_on_all_partitions() -> None:
    seen = read_metadata(cluster_of().send, 1, [TRANSACTION_STATE_TOPIC])
    (share,), _ = to_read(seen, ["a"], [])
    assert (share.partition.partition, share.names) == (coordinator_partition("a", 3), ("a",))
    assert len(to_read(seen, [], [7])[0]) == 3
    assert to_read(replace(seen, topics=()), ["a"], [])[0] == []


# --- rows -------------------------------------------------------------------------------------------------------------

ROWS = [{"id": "=a,\x1b", "n": 1, "list": ["p-0", "q-1"]}, {"id": "x" * 90, "n": None, "list": []}]
ERROR = error_object(unobserved("list", "it is away", 2), "User:bob")


def written(rows: Any, capsys: pytest.CaptureFixture[str], *some: Any) -> str:
    for one in some:
        rows.write(one)
    rows.end([ERROR])
    return capsys.readouterr().out


def test_batches_of_rows_form_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(written(JsonRows("rows"), capsys, ROWS[:1], [], ROWS[1:]))
    assert (found["rows"], [error["error"] for error in found["errors"]]) == (ROWS, ["it is away"])
    assert json.loads(written(JsonRows("rows"), capsys)) == {
        "rows": [],
        "errors": [dict(ERROR)],
    }


def test_csv_escapes_unprintable_text_and_spreadsheet_formulas(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert written(CsvRows(("id", "n", "list")), capsys, ROWS[:1], ROWS[1:]) == (
        f'"id","n","list"\n"\'=a,\\x1b","1","p-0 q-1"\n"{"x" * 90}","",""\n'
    )
    assert written(CsvRows(("id",)), capsys) == '"id"\n'


def test_a_table_never_cuts_or_wraps(capsys: pytest.CaptureFixture[str]) -> None:
    columns = (Column("N", 3, lambda row: row["n"], right=True), Column("Id", 0, lambda row: row["id"]))
    assert written(TableRows(columns), capsys, ROWS[:1], ROWS[1:]) == f"  N  Id\n  1  =a,\\x1b\n  -  {'x' * 90}\n"
