"""The streaming queries that transactions block: the decision of groups, limits, rows, sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import judged, scan
from tests.cases import Cases
from tests.fakes.cluster import FakePartition, one_by_one
from tests.fakes.groups import ORPHAN, FakeGroups, live, marker_before, row, shown
from tests.sim.encode import batch, marker
from tests.sim.records import Marker
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.report.impact import impact_sentences
from txnscan.report.json import scan_object
from txnscan.verdict.evidence import Judged
from txnscan.waiting import relation as relation_module
from txnscan.waiting import who_waits as under_test
from txnscan.waiting.blocking import blocks, gets_a_row
from txnscan.waiting.checkpoint import MicroBatch, Positions, QueryPosition
from txnscan.waiting.impact import BlockedReader, BlockReason, Impact
from txnscan.waiting.relation import Blocked
from txnscan.waiting.who_waits import Blockage, impact_of, read_blockage, read_partitions

P = ("p", 0)
DAMAGED = Failure("/b: offsets/0 is damaged", FailureCode.FILE_UNUSABLE)


def query(*offsets: int, path: str = "/a", key: tuple[str, int] = P, **changes: Any) -> QueryPosition:
    return replace(QueryPosition(path, "id-1", 4, True, MicroBatch(1_000, {key: offsets})), **changes)


def blockage_of(send: Send, *transactions: Judged, positions: Positions | None) -> Blockage:
    """Without groups."""
    return read_blockage(
        send, one_by_one, shown((), 0), transactions, random_token=lambda: "no-such-group", positions=positions
    )


def found(
    positions: Sequence[QueryPosition], *failures: Failure, one: Judged = ORPHAN, cluster: FakeGroups | None = None
) -> Blocked[BlockedReader]:
    cluster = cluster or FakeGroups({})
    blocked = blockage_of(cluster.send, one, positions=Positions(tuple(positions), failures))
    return blocked.queries[one.observation.transaction_key]


def impact(
    positions: Sequence[QueryPosition] | None,
    *failures: Failure,
    one: Judged = ORPHAN,
    cluster: FakeGroups | None = None,
) -> Impact:
    named = Positions(tuple(positions), failures) if positions is not None else None
    blocked = blockage_of((cluster or FakeGroups({})).send, one, positions=named)
    return impact_of(one, blocked, (), None, ())


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
    assert blocked.known_count is None


def test_a_checkpoint_that_could_not_be_read_leaves_the_number_unknown() -> None:
    waiting = impact([query(100)], DAMAGED)
    assert waiting.readers is not None
    assert ([one.path for one in waiting.readers], waiting.readers_blocked) == (["/a"], None)
    assert waiting.readers_error == DAMAGED.error
    send = FakeGroups({}).send
    (warning,) = blockage_of(send, ORPHAN, positions=Positions(failures=(DAMAGED,))).warnings(str)
    assert "/b" in warning and FailureCode.FILE_UNUSABLE in warning
    assert blockage_of(send, ORPHAN, positions=Positions((query(100),))).warnings(str) == ()


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
    cluster = FakeGroups({})
    cluster.partitions["__consumer_offsets", 0] = FakePartition()
    assert not blockage_of(cluster.send, of_offsets, positions=Positions((query(100),))).queries
    assert read_partitions([of_offsets, ORPHAN]) == {P}
    without = impact(None)
    assert (without.readers, without.readers_blocked, without.readers_error) == (None, None, None)


def test_only_some_partitions_are_read_for_queries_further_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "PARTITIONS_MAX", 1)
    cluster = FakeGroups({})
    several = [judged(partition=index) for index in range(3)]
    behind = query(path="/a", batch=MicroBatch(None, {("p", index): (60,) for index in range(3)}))
    blocked = blockage_of(cluster.send, *several, positions=Positions((behind,))).queries
    assert [bool(blocked[one.observation.transaction_key].unknown) for one in several] == [False, True, True]
    assert {name for _, name in cluster.asked} == {"DescribeConfigs", "Fetch"}


def test_the_queries_with_the_greatest_lag_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relation_module, "KEPT_MAX", 1)
    blocked = found([query(100, path="/near"), query(99, path="/far")], cluster=marker_before(FakeGroups({})))
    assert ([one.path for one in blocked.readers], blocked.count) == (["/far"], 2)


def test_a_waiting_query_gives_a_live_transaction_a_row() -> None:
    waiting = impact([query(100)], one=live())
    assert gets_a_row(live(), waiting, 2**40) and blocks(live(), waiting, 2**40)
    reads = impact([query(105)], one=live())
    assert not gets_a_row(live(), reads, 2**40) and not blocks(live(), reads, 2**40)


def test_json_has_the_waiting_queries_and_nulls_otherwise() -> None:
    waiting = impact([query(99, committed=False)], cluster=marker_before(FakeGroups({})))
    other = judged(partition=1)
    impacts = {ORPHAN.observation.transaction_key: waiting, other.observation.transaction_key: impact(None)}
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
    by_key = blockage_of(refused, ORPHAN, positions=positions).queries
    (failure,) = by_key[ORPHAN.observation.transaction_key].unknown
    assert (failure.code, cluster.asked) == ("TOPIC_AUTHORIZATION_FAILED", [])
