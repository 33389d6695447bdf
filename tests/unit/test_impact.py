"""The impact of hanging transactions, read from a fake cluster: requests, conclusions and failures."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import NOW_MS, judged, scan, view
from tests.cases import Cases
from tests.fakes.cluster import FakePartition
from tests.fakes.groups import (
    ORPHAN,
    REFUSED,
    FakeGroup,
    FakeGroups,
    P,
    blockage,
    blocked,
    key_of,
    live,
    marker_before,
    row,
)
from tests.sim.encode import batch, marker
from tests.sim.records import Marker
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.failure import Failure
from txnscan.kafka.security.acls import explained
from txnscan.report.impact import end_sentence, impact_sentences
from txnscan.report.json import scan_object
from txnscan.verdict.evidence import Judged
from txnscan.waiting import groups as groups_module
from txnscan.waiting import pending_offsets as consumer_offsets
from txnscan.waiting import relation as relation_module
from txnscan.waiting import who_waits as under_test
from txnscan.waiting.cause import Cause
from txnscan.waiting.impact import BlockedGroup, BlockReason, CarriedImpact
from txnscan.waiting.owner import Framework
from txnscan.waiting.pending_offsets import offset_key, pending_offsets
from txnscan.waiting.relation import Blocked
from txnscan.waiting.who_waits import impact_of, live_impact_of

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

OFFSETS, SHARE_STATE = "__consumer_offsets", "__share_group_state"


def on_offsets(**changes: Any) -> Judged:
    return judged(topic=OFFSETS, partition=3, **changes)


def say(failure: Failure) -> str:
    return explained(failure, "User:scanner")


def error_of(found: Blocked[BlockedGroup]) -> str | None:
    """The error of an impact."""
    return "; ".join(map(say, found.unknown)) or None


# --- groups of other topics


@pytest.mark.parametrize(
    ("committed", "stands", "why"),
    [
        (100, True, "at the last stable offset"),
        (99, False, "one before it: a record stands between"),
        (98, False, "it has something to read yet"),
        (101, False, "it reads read_uncommitted"),
        (105, False, "it has read everything"),
        (None, False, "it never committed here"),
    ],
)
def test_a_group_is_blocked_if_its_committed_offset_is_at_the_last_stable_offset(
    committed: int | None, stands: bool, why: str
) -> None:
    group = FakeGroup({P: committed} if committed is not None else {("other", 0): 100})
    found = blocked(FakeGroups({2: {"billing": group}}))
    assert (found.count, found.asked, error_of(found)) == (int(stands), 1, None), why
    if stands:
        lag = 105 - (committed or 0)
        assert found.readers == (BlockedGroup("billing", BlockReason.AT_LSO, "Stable", committed, lag),)


def test_all_brokers_are_asked_and_only_about_consumer_groups() -> None:
    standing = FakeGroup({P: 100})
    workers = FakeGroup({P: 100}, protocol_type="connect")
    cluster = FakeGroups({1: {"b": standing, "workers": workers}, 2: {"a": replace(standing, state="Empty")}})
    found = blockage(cluster)
    assert [group.group for group in found.groups[ORPHAN.observation.transaction_key].readers] == ["a", "b"]
    assert found.connect_groups == {"workers"}


# The isolation level of share groups, the error of DescribeConfigs, and the number of known blocked groups.
SHARES: tuple[tuple[str | None, ErrorCode, int | None], ...] = (
    ("read_uncommitted", ErrorCode.NONE, 1),
    ("read_committed", ErrorCode.NONE, None),
    ("of a later release", ErrorCode.NONE, None),
    (None, ErrorCode.NONE, None),
    ("read_uncommitted", ErrorCode.GROUP_AUTHORIZATION_FAILED, None),
)


@pytest.mark.parametrize(("level", "code", "blocked"), SHARES)
def test_share_groups_are_judged_only_if_they_read_uncommitted_records(
    level: str | None, code: ErrorCode, blocked: int | None, wording: SnapshotAssertion
) -> None:
    share = FakeGroup(protocol_type="share")
    cluster = FakeGroups({1: {"a": FakeGroup({P: 100}), "queue": share}, 2: {"other": replace(share, state="Empty")}})
    cluster.config |= {"share.isolation.level": level} if level is not None else {}
    cluster.config_error = int(code)
    found = blockage(cluster)
    impact = impact_of(ORPHAN, found, (), None, ())
    assert ([group.group for group in impact.groups], impact.groups_blocked, impact.groups_asked) == (["a"], blocked, 1)
    assert error_of(found.groups[ORPHAN.observation.transaction_key]) == wording
    assert bool(found.warnings(say)) == (blocked is None)


def test_no_group_is_judged_behind_another_open_transaction(wording: SnapshotAssertion) -> None:
    behind = judged(second_last_stable_offset=80)
    cluster = FakeGroups({1: {"billing": FakeGroup({P: 80})}})
    found = blocked(cluster, behind)
    assert found == Blocked(unknown=found.unknown)
    assert error_of(found) == wording
    assert not [one for one in cluster.asked if one[1] == "ListGroups"]


def test_an_unknown_last_stable_offset_is_reported(wording: SnapshotAssertion) -> None:
    assert error_of(blocked(FakeGroups({}), judged(second_last_stable_offset=None))) == wording


def test_groups_with_members_come_first_and_truncation_is_reported(
    monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    monkeypatch.setattr(groups_module, "GROUPS_MAX", 2)
    idle, live = FakeGroup({P: 100}, state="Empty"), FakeGroup({P: 100})
    found = blockage(FakeGroups({1: {"a": idle, "b": idle, "y": live, "z": live}}))
    one = found.groups[ORPHAN.observation.transaction_key]
    assert ([group.group for group in one.readers], one.asked) == (["y", "z"], 2)
    assert error_of(one) == wording
    assert found.warnings(say) == wording


def test_groups_with_the_greatest_lag_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relation_module, "KEPT_MAX", 1)
    found = blocked(marker_before(FakeGroups({1: {"near": FakeGroup({P: 100}), "far": FakeGroup({P: 99})}})))
    assert ([group.group for group in found.readers], found.count) == (["far"], 2)


def test_the_largest_blockers_are_read_first(monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion) -> None:
    monkeypatch.setattr(under_test, "PARTITIONS_MAX", 1)
    more = judged(partition=1, second_high_watermark=1_000, first_high_watermark=1_000)
    cluster = FakeGroups({1: {"billing": FakeGroup({P: 100, ("p", 1): 100})}})
    found = blockage(cluster, ORPHAN, more)
    assert found.groups[more.observation.transaction_key].count == 1
    assert error_of(found.groups[ORPHAN.observation.transaction_key]) == wording
    assert found.warnings(say)


def test_a_live_transaction_has_the_groups_that_wait_for_it_and_no_cause() -> None:
    cluster = FakeGroups({2: {"billing": FakeGroup({P: 100}), "reads": FakeGroup({P: 60})}})
    found = live_impact_of(live(), blockage(cluster, live=(live(),)), ())
    assert found.groups == (BlockedGroup("billing", BlockReason.AT_LSO, "Stable", 100, 5),)
    assert (found.groups_blocked, found.groups_asked, found.groups_error) == (1, 2, None)
    assert (found.cause, found.cause_reason, found.event_id, found.owner.framework) == (
        *(None, None, None),
        Framework.FLINK,
    )
    assert found.cleanup_policy == "delete"


def test_hanging_transactions_are_asked_about_before_live_ones(
    monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    """Even if live transactions block more records. A warning has the number of the others."""
    monkeypatch.setattr(under_test, "PARTITIONS_MAX", 2)
    groups = FakeGroup({("p", index): 100 for index in range(4)})
    some = [live(1, 7), live(2, 9), live(3, 8)]
    found = blockage(FakeGroups({1: {"billing": groups}}), live=some)
    counts = [found.groups[one.observation.transaction_key].count for one in some]
    assert counts == [0, 1, 1]
    mixed = blockage(FakeGroups({1: {"billing": groups}}), ORPHAN, live=some)
    counts = [mixed.groups[one.observation.transaction_key].count for one in (ORPHAN, *some)]
    assert counts == [1, 0, 1, 0]
    assert [say(*mixed.groups[one.observation.transaction_key].unknown) for one in (some[0], some[2])] == wording
    assert mixed.warnings(say) == wording


def test_the_number_of_live_transactions_does_not_raise_the_number_of_requests(
    monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    monkeypatch.setattr(under_test, "LIVE_PARTITIONS_MAX", 2)
    monkeypatch.setattr(under_test, "LIVE_ON_OFFSETS_MAX", 1)
    asked = []
    for number in (2, 20):
        cluster = FakeGroups({1: {"billing": FakeGroup({("p", 1): 100})}})
        every = [live(index) for index in range(number)]
        every += [live(topic=OFFSETS, producer_id=index) for index in range(number)]
        cluster.partitions[OFFSETS, 0] = FakePartition(leader=1, epoch=5)
        found = blockage(cluster, live=every)
        asked.append(len(cluster.asked))
    assert asked[0] == asked[1]
    (warning,) = found.warnings(say)
    assert "18 more partitions" in warning and "19 more live transactions" in warning
    assert say(*found.groups[every[-1].observation.transaction_key].unknown) == wording


def test_a_group_further_back_is_blocked_if_only_markers_remain_to_read() -> None:
    cluster = FakeGroups({1: {"far": FakeGroup({P: 97}), "reads": FakeGroup({P: 96})}})
    cluster.partitions[P] = kept = FakePartition(leader=1, epoch=5, last_stable=100)
    kept.write(batch(50, 47 * [(None, b"value")], producer_id=8, producer_epoch=0))
    for offset in (97, 98, 99):
        kept.write(marker(offset, Marker(8, 0, 0, True)))
    kept.write(batch(100, 5 * [(None, b"value")], producer_id=7, producer_epoch=3))
    found = blocked(cluster)
    assert found.readers == (BlockedGroup("far", BlockReason.AT_LSO, "Stable", 97, 8),)
    assert (found.count, error_of(found)) == (1, None)


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_an_unreadable_partition_leaves_the_count_unknown(code: ErrorCode) -> None:
    cluster = FakeGroups({1: {"near": FakeGroup({P: 100}), "far": FakeGroup({P: 97})}})
    cluster.partitions[P].errors["fetch"] = int(code)
    found = blockage(cluster)
    impact = impact_of(ORPHAN, found, (), None, ())
    assert ([group.group for group in impact.groups], impact.groups_blocked) == (["near"], None)
    assert code.name in str(impact.groups_error) and code.name in found.warnings(say)[0]
    needs_read = "needs Read on Topic" in str(impact.groups_error)
    assert needs_read == (code == ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def test_no_records_are_read_without_a_group_further_back() -> None:
    cluster = FakeGroups({1: {"there": FakeGroup({P: 100}), "ahead": FakeGroup({P: 103})}})
    blockage(cluster)
    assert not [one for one in cluster.asked if one[1] == "Fetch"]


# --- groups of __consumer_offsets


def with_log(cluster: FakeGroups, *records: tuple[int, bytes], pid: int = 7) -> FakeGroups:
    """The same with these records on `__consumer_offsets`-3, led by broker 1, each in a batch of its own."""
    cluster.partitions[OFFSETS, 3] = kept = FakePartition(leader=1, epoch=5, log_start=100)
    for offset, key in records:
        kept.write(batch(offset, [(key, b"value")], producer_id=pid, producer_epoch=3))
    return cluster


def test_a_group_is_unstable_if_both_transaction_and_coordinator_name_it() -> None:
    """A group does not wait if it is unstable for another transaction, or if its offsets are available."""
    pending = ("p", 0)
    cluster = FakeGroups(
        {
            1: {
                "held": FakeGroup(unstable=[pending, ("p", 1)]),
                "given-out": FakeGroup({pending: 5}),
                "of-another": FakeGroup({("q", 0): 1}, unstable=[("q", 0)]),
            }
        }
    )
    with_log(cluster, (100, key_of("held", "p", 0)), (101, key_of("given-out", "p", 0)), (102, b"\x00\x02"))
    found = blocked(cluster, on_offsets())
    assert found.readers == (BlockedGroup("held", BlockReason.UNSTABLE, "Stable", partitions=("p-0",)),)
    assert (found.count, found.asked, error_of(found)) == (1, 2, None)
    assert [broker for broker, name in cluster.asked if name == "ListGroups"] == [1]


def test_two_transactions_on_one_partition_have_separate_groups() -> None:
    cluster = FakeGroups({1: {name: FakeGroup(unstable=[("p", 0)]) for name in ("seven", "eight")}})
    with_log(cluster, (100, key_of("seven", "p", 0)))
    cluster.partitions[OFFSETS, 3].write(batch(101, [(key_of("eight", "p", 0), b"")], producer_id=8, producer_epoch=0))
    seven, eight = on_offsets(), on_offsets(producer_id=8, start_offset=101)
    found = blockage(cluster, seven, eight).groups
    names = {
        one.observation.producer_id: [g.group for g in found[one.observation.transaction_key].readers]
        for one in (seven, eight)
    }
    assert names == {7: ["seven"], 8: ["eight"]}


def test_an_unreadable_transaction_gives_possibly_unstable_groups_of_its_partition() -> None:
    # With five partitions "b" hashes to 3, and "a" does not.
    held = FakeGroup({("p", 0): 1}, unstable=[("p", 0)])
    cluster = with_log(FakeGroups({1: {"b": held, "a": held}}))
    cluster.partitions[OFFSETS, 3].errors["fetch"] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    found = blocked(cluster, on_offsets())
    assert found.readers == (BlockedGroup("b", BlockReason.MAYBE_UNSTABLE, "Stable", partitions=("p-0",)),)
    assert "could not be read: TOPIC_AUTHORIZATION_FAILED" in str(error_of(found))


def test_a_long_transaction_is_read_up_to_a_reported_bound(
    monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    monkeypatch.setattr(consumer_offsets, "PIECES_MAX", 1)
    cluster = with_log(FakeGroups({}), (100, key_of("a", "p", 0)), (101, key_of("b", "p", 0)))
    cluster.fetch_max_bytes = 1
    found = pending_offsets(cluster.send, on_offsets().observation)
    assert set(found.groups) == {"a"}
    assert str(found.failure) == wording


@pytest.mark.parametrize("version", [0, 1])
def test_an_offset_key_names_group_and_partition(version: int) -> None:
    assert offset_key(key_of("grüppe", "p", 4, version)) == ("grüppe", ("p", 4))


@pytest.mark.parametrize("key", [b"", b"\x00", key_of("g", "p", 0, 2), b"\x00\x01\xff\xff", b"\x00\x01\x00\x01\xff"])
def test_a_key_of_another_kind_or_a_truncated_key_is_skipped(key: bytes) -> None:
    assert offset_key(key) is None


def test_a_truncated_key_names_no_group() -> None:
    with Cases() as cases:
        for size in range(len(key_of("group", "topic", 3))):
            with cases.case(f"{size} bytes"):
                assert offset_key(key_of("group", "topic", 3)[:size]) is None


# --- share groups of __share_group_state


def test_acknowledgements_of_share_groups_make_the_number_of_groups_unknown() -> None:
    """No group commits offsets there, so the answers of consumer groups do not show that no group waits."""
    one = judged(topic=SHARE_STATE, partition=3)
    cluster = FakeGroups({1: {"billing": FakeGroup({(SHARE_STATE, 3): 100})}})
    found = blockage(cluster, one)
    groups = found.groups[one.observation.transaction_key]
    assert (groups.readers, [failure.code for failure in groups.unknown]) == ((), ["NOT_ASKED"])
    assert not [name for _, name in cluster.asked if name == "ListGroups"]
    (warning,) = found.warnings(say)
    assert f"{SHARE_STATE}-3: share groups may wait" in warning
    impact = impact_of(one, found, (), None, ())
    assert (impact.groups_blocked, impact.groups_asked) == (None, 0) and "share groups" in str(impact.groups_error)


def test_other_transactions_are_judged_beside_one_on_share_group_state() -> None:
    of_shares = judged(topic=SHARE_STATE, partition=3, producer_id=8)
    found = blockage(FakeGroups({2: {"billing": FakeGroup({P: 100})}}), ORPHAN, of_shares)
    assert found.groups[ORPHAN.observation.transaction_key].count == 1
    assert found.groups[ORPHAN.observation.transaction_key].unknown == ()


# --- unreadable groups and settings -----------------------------------------------------------------------------------


def test_a_refused_describe_group_is_reported_once_with_its_grant() -> None:
    cluster = FakeGroups({1: {"a": FakeGroup({P: 100})}, 2: {"b": FakeGroup({P: 100})}})
    cluster.refuses = True
    found = blockage(cluster)
    (warning,) = found.warnings(say)
    assert warning.count("needs Describe on Group '*'") == 1 and "--operation Describe --group '*'`" in warning
    assert found.groups[ORPHAN.observation.transaction_key].readers == ()


def test_a_named_group_without_describe_permission_may_be_unstable() -> None:
    cluster = with_log(FakeGroups({1: {"held": FakeGroup()}}), (100, key_of("held", "p", 0)))
    cluster.refuses = True
    (group,) = blocked(cluster, on_offsets()).readers
    assert (group.group, group.reason, group.partitions) == ("held", BlockReason.MAYBE_UNSTABLE, ("p-0",))


def test_an_old_broker_is_named_in_one_sentence(wording: SnapshotAssertion) -> None:
    cluster = FakeGroups({1: {"a": FakeGroup({P: 100})}}, brokers=(1,))
    cluster.lacks = {"OffsetFetch"}
    (warning,) = blockage(cluster).warnings(say)
    assert warning == wording


def test_an_unreachable_broker_hides_only_its_own_groups() -> None:
    cluster = FakeGroups({1: {"a": FakeGroup({P: 100})}, 2: {"b": FakeGroup({P: 100})}})
    cluster.unreachable = {2}
    found = blocked(cluster)
    assert ([group.group for group in found.readers], error_of(found)) == (["a"], "broker 2 cannot be reached")


@pytest.mark.parametrize("broken", ["ListGroups", "OffsetFetch", "DescribeConfigs"])
def test_any_failure_is_a_warning(broken: str) -> None:
    cluster = FakeGroups({1: {"a": FakeGroup({P: 100})}})
    cluster.lacks = {broken}
    assert blockage(cluster).warnings(say)


def test_only_the_first_reasons_are_named(wording: SnapshotAssertion) -> None:
    cluster = FakeGroups({}, brokers=range(1, 9))
    cluster.listing_error = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    (warning,) = blockage(cluster).warnings(say)
    assert warning.count("answered ListGroups") == 5
    assert warning == wording


def test_a_loading_coordinator_is_reported(wording: SnapshotAssertion) -> None:
    loading = FakeGroup(error=int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    found = blocked(FakeGroups({1: {"a": loading, "b": loading, "c": FakeGroup({P: 100})}}))
    assert (found.count, found.asked) == (1, 1)
    assert error_of(found) == wording


def test_refused_topic_settings_are_reported_with_their_grant() -> None:
    cluster = FakeGroups({})
    cluster.config_error = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    (warning,) = blockage(cluster).warnings(say)
    assert "needs DescribeConfigs on Topic '*'" in warning


# --- the impact -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "compaction", "tiering", "retention_ms"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "5"}, False, False, 5),
        ({"cleanup.policy": "compact", "retention.ms": "5"}, True, False, None),
        ({"cleanup.policy": "compact,delete", "retention.ms": "-1"}, True, False, -1),
        # Records that are not uploaded are not deleted, nor are those above the last stable offset.
        ({"cleanup.policy": "delete", "retention.ms": "5", "remote.storage.enable": "true"}, False, True, None),
        ({}, None, None, None),
    ],
)
def test_compaction_and_tiering_are_blocked_and_retention_is_not(
    config: dict[str, str], compaction: bool | None, tiering: bool | None, retention_ms: int | None
) -> None:
    cluster = FakeGroups({})
    cluster.config = config
    found = impact_of(ORPHAN, blockage(cluster), (), None, ())
    assert (found.compaction_blocked, found.tiering_blocked) == (compaction, tiering)
    assert (found.retention_ms, found.fills_disk) == (retention_ms, bool(compaction or tiering))


def test_the_last_stable_offset_is_stuck_since_the_first_sweep_with_the_same_offset() -> None:
    carried = CarriedImpact(100, NOW_MS - 90_000, Cause.NEVER_ADDED, "said so", "sink-3-17")
    elsewhere = replace(carried, last_stable_offset=90)
    nothing = blockage(FakeGroups({}))
    first, same, moved = (impact_of(ORPHAN, nothing, (), one, ()) for one in (None, carried, elsewhere))
    key = ORPHAN.observation.transaction_key
    assert (first.lso_since_ms, same.lso_since_ms, moved.lso_since_ms) == (None, NOW_MS - 90_000, None)
    # An earlier sweep supplies facts that this sweep lacks.
    assert (same.cause, same.owner.framework) == (Cause.NEVER_ADDED, Framework.FLINK)
    passed_on = [scan(ORPHAN, impacts={key: one}).carried_impact(ORPHAN) for one in (first, same, moved)]
    read_at_ms = ORPHAN.observation.second.read_at_ms
    assert [one and one.lso_since_ms for one in passed_on] == [read_at_ms, NOW_MS - 90_000, read_at_ms]


@pytest.mark.parametrize(
    ("groups", "refuses", "count"),
    [
        ({}, False, 0),
        ({}, True, None),
        ({1: {"a": FakeGroup({P: 1})}}, False, None),
        ({1: {"a": FakeGroup({P: 60})}}, False, 0),
        ({1: {"a": FakeGroup({P: 100})}}, False, 1),
        ({1: {"a": FakeGroup({P: 100}), "b": FakeGroup(error=REFUSED)}}, False, None),
    ],
    ids=["there are none", "they may be hidden", "offset deleted", "one reads", "one waits", "one waits, one refuses"],
)
def test_the_number_of_blocked_groups_is_known_only_if_all_were_asked(
    groups: dict[int, dict[str, FakeGroup]], refuses: bool, count: int | None
) -> None:
    cluster = FakeGroups(groups)
    cluster.refuses = refuses
    assert impact_of(ORPHAN, blockage(cluster), (), None, ()).groups_blocked == count


def test_json_has_the_impact_of_hanging_transactions_and_nulls_otherwise() -> None:
    found = impact_of(ORPHAN, blockage(marker_before(FakeGroups({1: {"billing": FakeGroup({P: 99})}}))), (), None, ())
    key = ORPHAN.observation.transaction_key
    other = judged(view("Ongoing", 3, ("p-1",)), partition=1)
    hanging, ongoing = scan_object(scan(ORPHAN, other, impacts={key: found}))["transactions"]
    (group,) = hanging["blocked_groups"]
    assert (group["group"], group["reason"], group["committed_offset"], group["lag"]) == ("billing", "at_lso", 99, 6)
    assert (hanging["holds_lso"], hanging["cause"], hanging["groups_blocked"]) == (True, "unknown", 1)
    assert ongoing["holds_lso"] is True
    assert {ongoing[name] for name in ("blocked_groups", "cause", "advice", "groups_asked")} == {None}


# --- sentences --------------------------------------------------------------------------------------------------------


def at_lso(name: str, lag: int) -> dict[str, Any]:
    return {"group": name, "reason": "at_lso", "lag": lag, "partitions": (), "state": None}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ["No group waits there, by committed offsets (4 groups checked)."]),
        ({"cause": None, "groups_asked": None}, []),
        (
            {"holds_lso": False, "cause": None, "groups_asked": None},
            ["Another open transaction starts before it, and must end first."],
        ),
        ({"holds_lso": False, "groups_asked": 0}, ["Another open transaction starts before it, and must end first."]),
        (
            {"blocked_groups": (at_lso("a\n", 1_200),), "groups_blocked": 1, "lso_unmoved_ms": 300_000},
            [
                "The last stable offset has not moved for at least 5 min.",
                "1 group has no record to read before the last stable offset, with this lag up to the high watermark: "
                "'a\\n' 1,200.",
                "Isolation levels are not visible, so some of these may not be waiting.",
            ],
        ),
        (
            {"blocked_groups": tuple(at_lso(name, 6) for name in "abcdefg"), "groups_blocked": 9},
            [
                "7 groups have no record to read before the last stable offset, with this lag up to the high "
                "watermark: "
                "'a' 6, 'b' 6, 'c' 6, 'd' 6, 'e' 6 and 2 more.",
                "Isolation levels are not visible, so some of these may not be waiting.",
                "2 more groups wait there, not named here.",
            ],
        ),
        (
            {
                "blocked_groups": ({"group": "g", "reason": "unstable", "partitions": ["p-0"], "lag": None},),
                "groups_blocked": 1,
                "compaction_blocked": True,
            },
            [
                "1 group does not get its committed offsets, which are in this transaction: 'g' (p-0).",
                "Compaction does not pass the last stable offset.",
            ],
        ),
        (
            {"tiering_blocked": True, "groups_asked": 0},
            ["Tiering does not pass the last stable offset: segments above it stay on local disks."],
        ),
        ({"groups_error": "why", "groups_asked": 0}, ["Groups may be missing: why."]),
        ({"groups_error": "why", "groups_blocked": None}, ["Groups may be missing: why."]),
        (
            {"retention_ms": 100_000, "groups_asked": 0},
            ["Retention does not wait: records older than 1 min 40 s are deleted even if not read."],
        ),
        ({"retention_ms": -1, "groups_asked": 0}, []),
    ],
)
def test_sentences_report_blocked_groups_and_blocked_compaction(changes: dict[str, Any], said: list[str]) -> None:
    assert impact_sentences(row(**changes)) == said


def test_a_time_that_is_past_is_not_announced(wording: SnapshotAssertion) -> None:
    ends = datetime(2026, 11, 27, 18, 43, 59, tzinfo=UTC)
    row = {"verdict": "ongoing", "ends_by": ends.isoformat()}
    minute = timedelta(minutes=1)
    said = {name: end_sentence(row, at) for name, at in (("before", ends - minute), ("after", ends + minute))}
    assert said == wording
    assert end_sentence({**row, "ends_by": None}, ends) is None
