"""The streaming queries that transactions block: the decision of groups, limits, rows, sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import judged, scan
from tests.cases import Cases
from tests.fakes import FakePartition, one_by_one
from tests.sim.encode import batch, marker
from tests.sim.records import Marker
from tests.unit.test_impact import ORPHAN, FakeGroups, live, marker_before, row
from txnscan.impact import readers as under_test
from txnscan.impact.blocking import blocks, gets_a_row
from txnscan.impact.cause import Cause
from txnscan.impact.checkpoint import Batch, QueryPosition
from txnscan.impact.impact import BlockedReader, BlockReason, Impact
from txnscan.impact.owner import Owner
from txnscan.impact.readers import BlockedReaders, Positions, blocked_readers, read_partitions, with_readers
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.report.impact import impact_sentences
from txnscan.report.json import scan_object
from txnscan.verdict.evidence import Judged

P = ("p", 0)
DAMAGED = Failure("/b: offsets/0 is damaged", FailureCode.FILE_UNUSABLE)
IMPACT = Impact(Cause.UNKNOWN, "", Owner(None, None, ""))


def query(*offsets: int, path: str = "/a", key: tuple[str, int] = P, **changes: Any) -> QueryPosition:
    return replace(QueryPosition(path, "id-1", 4, True, Batch(1_000, {key: offsets})), **changes)


def found(
    positions: Sequence[QueryPosition], *failures: Failure, one: Judged = ORPHAN, cluster: FakeGroups | None = None
) -> BlockedReaders:
    cluster = cluster or FakeGroups({})
    by_key = blocked_readers(cluster.send, one_by_one, [one], Positions(tuple(positions), failures))
    return by_key[one.observation.transaction_key]


# The last stable offset of p-0 is 100, and its high watermark 105. The offsets of a query, and the offset at which it
# waits.
WAITS: tuple[tuple[tuple[int, ...], int | None, str], ...] = (
    ((100,), 100, "at the last stable offset"),
    ((99,), None, "one before it: a record stands between"),
    ((98,), None, "it has something to read yet"),
    ((50,), None, "it only lags"),
    ((101,), None, "it is beyond: it reads read_uncommitted"),
    ((105,), None, "it has read everything"),
    ((), None, "it does not read the partition"),
    ((60, 100), 100, "one of two sources waits"),
)


def test_a_query_waits_under_the_condition_of_a_group() -> None:
    with Cases() as cases:
        for offsets, at, why in WAITS:
            with cases.case(why):
                blocked = found([query(*offsets)])
                expected = BlockedReader("id-1", "/a", BlockReason.AT_LSO, 4, True, 1_000, at or 0, 105 - (at or 0))
                assert blocked.readers == (() if at is None else (expected,))
                assert (blocked.count, blocked.unknown) == (int(at is not None), ())


def test_a_query_further_back_waits_if_only_markers_follow() -> None:
    cluster = FakeGroups({})
    cluster.partitions[P] = kept = FakePartition(leader=1, epoch=5, log_start=50, last_stable=100)
    kept.write(batch(50, 40 * [(None, b"value")]))
    for offset in range(90, 100):
        kept.write(marker(offset, Marker(8, 0, 0, True)))
    kept.write(batch(100, 5 * [(None, b"value")], producer_id=7, producer_epoch=3))
    assert [reader.next_offset for reader in found([query(90), query(80)], cluster=cluster).readers] == [90]


def test_a_failed_read_leaves_the_number_of_queries_unknown() -> None:
    cluster = FakeGroups({})
    cluster.lacks = {"Fetch"}
    blocked = found([query(100), query(60, path="/c")], cluster=cluster)
    assert (blocked.count, len(blocked.readers), len(blocked.unknown)) == (1, 1, 1)
    assert with_readers(IMPACT, blocked).readers_blocked is None


def test_a_checkpoint_that_could_not_be_read_leaves_the_number_unknown() -> None:
    impact = with_readers(IMPACT, found([query(100)], DAMAGED))
    assert impact.readers is not None
    assert ([one.path for one in impact.readers], impact.readers_blocked) == (["/a"], None)
    assert impact.readers_error == DAMAGED.error
    (warning,) = Positions(failures=(DAMAGED,)).warnings()
    assert "/b" in warning and FailureCode.FILE_UNUSABLE in warning
    assert Positions((query(100),)).warnings() == ()


def test_no_query_is_judged_without_the_last_stable_offset_of_the_transaction() -> None:
    with Cases() as cases:
        for name, one in {
            "another starts before it": judged(second_last_stable_offset=80),
            "not known": judged(second_last_stable_offset=None),
            "no high watermark": judged(second_high_watermark=None),
        }.items():
            with cases.case(name):
                blocked = found([query(80, 100)], one=one)
                assert (blocked.readers, [failure.code for failure in blocked.unknown]) == ((), [FailureCode.NOT_ASKED])


def test_topics_of_groups_have_no_readers() -> None:
    of_offsets = judged(topic="__consumer_offsets")
    nobody = blocked_readers(FakeGroups({}).send, one_by_one, [of_offsets], Positions((query(100),)))
    assert not nobody
    assert read_partitions([of_offsets, ORPHAN]) == {P}
    impact = with_readers(IMPACT, None)
    assert (impact.readers, impact.readers_blocked, impact.readers_error) == (None, None, None)


def test_only_some_partitions_are_read_for_queries_further_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "PARTITIONS_READ_MAX", 1)
    cluster = FakeGroups({})
    several = [judged(partition=index) for index in range(3)]
    behind = query(path="/a", batch=Batch(None, {("p", index): (60,) for index in range(3)}))
    blocked = blocked_readers(cluster.send, one_by_one, several, Positions((behind,)))
    assert [bool(blocked[one.observation.transaction_key].unknown) for one in several] == [False, True, True]
    assert {name for _, name in cluster.asked} == {"Fetch"}


def test_the_queries_with_the_greatest_lag_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "READERS_KEPT_MAX", 1)
    blocked = found([query(100, path="/near"), query(99, path="/far")], cluster=marker_before(FakeGroups({})))
    assert ([one.path for one in blocked.readers], blocked.count) == (["/far"], 2)


def test_a_waiting_query_gives_a_live_transaction_a_row() -> None:
    waiting = with_readers(IMPACT, found([query(100)], one=live()))
    assert gets_a_row(live(), waiting, 2**40) and blocks(live(), waiting, 2**40)
    reads = with_readers(IMPACT, found([query(105)], one=live()))
    assert not gets_a_row(live(), reads, 2**40) and not blocks(live(), reads, 2**40)


def test_json_has_the_waiting_queries_and_nulls_otherwise() -> None:
    impact = with_readers(IMPACT, found([query(99, committed=False)], cluster=marker_before(FakeGroups({}))))
    other = judged(partition=1)
    impacts = {ORPHAN.observation.transaction_key: impact, other.observation.transaction_key: IMPACT}
    with_query, without = scan_object(scan(ORPHAN, other, impacts=impacts))["transactions"]
    assert with_query["blocked_readers"] == [
        {
            "stream_id": "id-1",
            "path": "/a",
            "reason": "at_lso",
            "batch_id": 4,
            "batch_committed": False,
            "batch_timestamp_ms": 1_000,
            "next_offset": 99,
            "lag": 6,
        }
    ]
    assert (with_query["readers_blocked"], with_query["readers_error"]) == (1, None)
    assert {without[name] for name in ("blocked_readers", "readers_blocked", "readers_error")} == {None}


def test_sentences_name_the_checkpoints(wording: Any) -> None:
    readers = [
        {
            "stream_id": "id-1",
            "path": f"/data/{number}",
            "batch_id": 4,
            "batch_committed": number % 2 == 0,
            "next_offset": 99,
            "lag": 1_006,
        }
        for number in range(7)
    ]
    table: tuple[dict[str, Any], ...] = (
        {},
        {"blocked_readers": None, "readers_blocked": None},
        {"blocked_readers": (), "readers_blocked": 0},
        {"blocked_readers": readers[:1], "readers_blocked": 1},
        {"blocked_readers": readers, "readers_blocked": 9},
        {"blocked_readers": (), "readers_error": "why\n"},
    )
    assert [impact_sentences(row(groups_asked=0, **changes)) for changes in table] == wording


def test_a_refused_read_names_the_topic() -> None:
    """As for groups: the ACL to grant."""
    cluster = FakeGroups({})

    def refused(broker_id: int, request: Any) -> Any:
        raise RequestFailed("TOPIC_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED")

    positions = Positions((query(60),))
    by_key = blocked_readers(refused, one_by_one, [ORPHAN], positions)
    (failure,) = by_key[ORPHAN.observation.transaction_key].unknown
    assert (failure.code, cluster.asked) == ("TOPIC_AUTHORIZATION_FAILED", [])
