"""Prometheus metrics of a sweep: each value, and the bounded number of labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from tests.builders import MINUTE_MS, NOW_MS, P, failed, judged, scan, unobserved, view
from tests.cases import Cases
from tests.fakes.write_states import LOG, Q0, state
from tests.sim.wire import ClusterShape, WireCluster
from txnscan.cli import app as base
from txnscan.cli.app import app
from txnscan.report import metrics
from txnscan.report.metrics import (
    LATE_PARTITIONS,
    NAMES,
    OTHERS,
    TOPICS_MAX,
    Notified,
    Stuck,
    Watched,
    families,
    metrics_text,
    stuck_since,
    watched_once,
)
from txnscan.sweeps.result import Scan
from txnscan.verdict.evidence import Judged
from txnscan.waiting.cause import Cause
from txnscan.waiting.complete_up_to import PartitionRead, TopicRead, concluded
from txnscan.waiting.impact import BlockedGroup, BlockReason, Impact
from txnscan.waiting.owner import Owner
from txnscan.waiting.writability import WriteStates

Samples = dict[tuple[str, tuple[str, ...]], float]


def samples(watched: Watched, *told: Notified) -> Samples:
    """Values by name and labels, without the cluster's."""
    return {
        (one.name, tuple(value for name, value in one.labels.items() if name != "cluster")): one.value
        for family in families([watched], told)
        for one in family.samples
    }


def of(found: Scan, **changes: Any) -> Samples:
    return samples(replace(watched_once("c", found), **changes))


HANGING = judged(view("Empty", epoch=9))
# Claimed by its owner, within its timeout.
ONGOING = judged(view("Ongoing", partitions=(P,)), first_seen_ms=NOW_MS, last_timestamp_ms=NOW_MS)


def test_open_transactions_are_counted_by_topic_verdict_reason_and_lateness() -> None:
    found = of(scan(HANGING, judged(view("Empty", epoch=9), partition=1), ONGOING))
    assert found["txnscan_open_transactions", ("p", "hanging", "stale_epoch", "true")] == 2
    assert found["txnscan_open_transactions", ("p", "ongoing", "owned", "false")] == 1
    assert found["txnscan_candidates", ()] == 2


def test_a_sweep_has_its_duration_and_read_bytes() -> None:
    found = of(scan(started_at_ms=NOW_MS - 1_500, finished_at_ms=NOW_MS, read_bytes=12_345))
    assert (found["txnscan_sweep_duration_seconds", ()], found["txnscan_sweep_read_bytes", ()]) == (1.5, 12_345)


def test_scrapes_reuse_the_transaction_counts_and_refresh_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 10,000 candidates each scrape took 0.1 s."""
    watched = replace(watched_once("c", scan(HANGING)), sweeps={"done": 1, "failed": 0})
    monkeypatch.setattr(metrics, "_of_transactions", pytest.fail)
    for waiting in (0, 1):
        found = samples(watched, Notified("slack", {"sent": waiting}, waiting=waiting))
        assert found["txnscan_notifications_waiting", ("slack",)] == waiting
        assert found["txnscan_open_transactions", ("p", "hanging", "stale_epoch", "true")] == 1
    monkeypatch.undo()
    found = samples(replace(watched, up=False, sweeps={"done": 1, "failed": 1}))
    assert (found["txnscan_up", ()], found["txnscan_sweeps_total", ("failed",)]) == (0, 1)
    assert found["txnscan_open_transactions", ("p", "hanging", "stale_epoch", "true")] == 1


def test_a_named_topic_has_the_time_up_to_which_it_is_complete_or_zero() -> None:
    """An alert compares it with the clock, so a time that is not known fires too."""
    reads = (
        concluded(TopicRead("orders", "t0", NOW_MS, (PartitionRead(0, 1, 9, 9),))),
        concluded(TopicRead("refunds", "t1", NOW_MS, (PartitionRead(0, 1, 9, 5),))),
    )
    found = of(scan(topic_reads=reads))
    name = "txnscan_complete_up_to_timestamp_seconds"
    assert (found[name, ("orders",)], found[name, ("refunds",)]) == (NOW_MS / 1_000, 0)


def test_a_closed_transaction_is_not_counted_as_open() -> None:
    found = of(scan(judged(second_start_offset=None, second_producer_epoch=None)))
    assert not [name for name, _ in found if name == "txnscan_open_transactions"]
    assert found["txnscan_oldest_open_transaction_seconds", ()] == 0


def test_metrics_without_hanging_transactions_are_zero() -> None:
    """An alert and a panel distinguish zero from missing data."""
    found = of(scan(broker_ids=(1, 2)))
    assert {name: found[name, ()] for name in ("txnscan_candidates", "txnscan_oldest_open_transaction_seconds")} == {
        "txnscan_candidates": 0,
        "txnscan_oldest_open_transaction_seconds": 0,
    }
    assert found[LATE_PARTITIONS, ("1",)] == found[LATE_PARTITIONS, ("2",)] == 0


def test_the_age_is_that_of_the_oldest_transaction() -> None:
    found = of(scan(HANGING, judged(view("Empty", epoch=9), partition=1, last_timestamp_ms=NOW_MS - 90 * MINUTE_MS)))
    assert found["txnscan_oldest_transaction_seconds", ("p", "hanging")] == 90 * 60
    assert found["txnscan_oldest_open_transaction_seconds", ()] == 90 * 60


def test_blocked_records_of_a_partition_count_once() -> None:
    found = of(scan(HANGING, judged(view("Empty", epoch=9), start_offset=102), ONGOING))
    assert found["txnscan_blocked_records", ("p",)] == 5


def test_a_healthy_transaction_blocks_no_records() -> None:
    assert ("txnscan_blocked_records", ("p",)) not in of(scan(ONGOING))


def test_blocked_groups_are_the_maximum_per_partition_and_missing_if_unknown() -> None:
    other = judged(view("Empty", epoch=9), partition=1)
    impact = Impact(Cause.UNKNOWN, "", Owner(None, None, ""))
    impacts = {
        HANGING.observation.transaction_key: replace(impact, groups_blocked=3),
        other.observation.transaction_key: replace(impact, groups_blocked=2),
    }
    assert of(scan(HANGING, other, impacts=impacts))["txnscan_blocked_groups", ("p",)] == 3
    nobody_waits = {HANGING.observation.transaction_key: replace(impact, groups_blocked=0)}
    assert of(scan(HANGING, impacts=nobody_waits))["txnscan_blocked_groups", ("p",)] == 0
    assert ("txnscan_blocked_groups", ("p",)) not in of(scan(HANGING))
    # One of the two is unknown.
    impacts[other.observation.transaction_key] = replace(impact, groups_blocked=None, groups_error="why")
    assert ("txnscan_blocked_groups", ("p",)) not in of(scan(HANGING, other, impacts=impacts))


def test_blocked_readers_are_the_maximum_per_partition_and_missing_if_unknown() -> None:
    other = judged(view("Empty", epoch=9), partition=1)
    impact = Impact(Cause.UNKNOWN, "", Owner(None, None, ""))
    table: dict[tuple[int | None, int | None], int | None] = {(2, 3): 3, (0, 0): 0, (None, None): None, (2, None): None}
    with Cases() as cases:
        for counts, expected in table.items():
            with cases.case(counts):
                impacts = {
                    one.observation.transaction_key: replace(impact, readers_blocked=count)
                    for one, count in zip((HANGING, other), counts, strict=True)
                }
                assert of(scan(HANGING, other, impacts=impacts)).get(("txnscan_blocked_readers", ("p",))) == expected


def live(partition: int, age_ms: int, timeout_ms: int = 60 * MINUTE_MS) -> Judged:
    """A transaction within its timeout, on this partition."""
    times = {"start_time_ms": NOW_MS - age_ms, "timeout_ms": timeout_ms}
    return judged(view("Ongoing", partitions=(f"p-{partition}",), **times), partition=partition)


def blocking(*groups_blocked: int | None) -> Samples:
    """Live transactions of 6 minutes, one more for each number of groups, and an older one under two-phase commit if
    the number is not known.
    """
    owner = Owner("X", None, None)
    group = BlockedGroup("billing", BlockReason.AT_LSO)
    found = {}
    for index, count in enumerate(groups_blocked):
        one = live(index, (6 + index) * MINUTE_MS, 60 * MINUTE_MS if count is not None else 2**31 - 1)
        found[one] = Impact(None, None, owner, groups=(group,), groups_blocked=count, groups_asked=1)
    young = live(9, 2 * MINUTE_MS)
    found[young] = Impact(None, None, owner, groups=(group,), groups_blocked=1, groups_asked=1)
    counted = judged(view("Ongoing", partitions=("q-0",)), topic="q")
    impacts = {one.observation.transaction_key: impact for one, impact in found.items()}
    return of(scan(*found, counted, impacts=impacts))


def test_live_transactions_that_hold_readers_back_have_their_own_metrics() -> None:
    """They are not among the metrics of hanging transactions."""
    found = blocking(2, 1)
    assert found["txnscan_blocking_transactions", ("p", "true")] == 2
    assert found["txnscan_blocking_transactions", ("p", "false")] == 1
    assert found["txnscan_blocking_records", ("p",)] == 15
    assert found["txnscan_blocking_groups", ("p",)] == 2
    # The youngest one ends last: all have the same timeout.
    end_ms = NOW_MS - 2 * MINUTE_MS + 60 * MINUTE_MS
    assert found["txnscan_blocking_ends_by_timestamp_seconds", ("p",)] == end_ms / 1_000
    names = {name for name, labels in found if labels[:1] in {("p",), ("q",)}}
    assert not names & {"txnscan_blocked_groups", "txnscan_blocked_records"}
    assert ("txnscan_blocking_records", ("q",)) not in found


def test_an_unknown_end_or_number_of_groups_is_no_sample() -> None:
    found = blocking(2, None)
    assert found["txnscan_blocking_transactions", ("p", "true")] == 2
    assert ("txnscan_blocking_ends_by_timestamp_seconds", ("p",)) not in found
    assert ("txnscan_blocking_groups", ("p",)) not in found


def test_partitions_that_take_no_writes_are_counted_and_end_no_transaction() -> None:
    one = live(0, 6 * MINUTE_MS)
    impact = Impact(None, None, Owner("X", None, None), groups=(BlockedGroup("billing", BlockReason.AT_LSO),))
    swept = scan(one, impacts={one.observation.transaction_key: impact})
    ends_by = ("txnscan_blocking_ends_by_timestamp_seconds", ("p",))
    unwritable = "txnscan_unwritable_partitions"
    found = of(swept)
    assert ends_by in found and (unwritable, ("log",)) not in found and ("txnscan_markers_at_risk", ()) not in found
    shown = (state(key=LOG), state((1,)), state((), Q0))
    states = WriteStates({each.replicas.key: each for each in shown}, log_partitions=1, at_risk=frozenset({Q0}))
    found = of(replace(swept, writes=states))
    assert ends_by not in found
    assert (found[unwritable, ("log",)], found[unwritable, ("data",)]) == (0, 1)
    assert found["txnscan_markers_at_risk", ()] == 1


def test_open_transactions_that_a_stop_leaves_without_a_leader_are_counted_for_each_broker() -> None:
    name = "txnscan_stop_leaderless_transactions"
    swept = scan(ONGOING, broker_ids=(1, 2))
    assert not any(which == name for which, _ in of(swept))
    # Broker 3 stopped meanwhile.
    found = of(replace(swept, writes=WriteStates(behind_last={2: 5, 3: 1})))
    assert [found[name, (broker,)] for broker in ("1", "2", "3")] == [0, 5, 1]


def test_late_partitions_are_counted_by_leader_as_in_the_brokers_gauge() -> None:
    late = (HANGING, judged(view("Empty", epoch=9), start_offset=102), judged(view("Empty", epoch=9), partition=1))
    found = of(scan(*late, ONGOING, broker_ids=(1, 2, 3)))
    assert [found[LATE_PARTITIONS, (str(broker),)] for broker in (1, 2, 3)] == [2, 0, 0]


@pytest.mark.parametrize(
    ("changes", "partitions", "coordinators", "complete"),
    [
        ({}, 1, 1, 1),
        ({"partitions_failed": 1}, 0.5, 1, 0),
        ({"coordinators_proven": 3}, 1, 0.5, 0),
        # A cluster that never had a transaction has no coordinators.
        ({"coordinators_planned": 0, "coordinators_proven": 0}, 1, 1, 1),
        ({"visibility_failures": (failed("ids may be hidden"),)}, 1, 1, 0),
    ],
)
def test_coverage_is_a_ratio_and_completeness_needs_more(
    changes: dict[str, Any], partitions: float, coordinators: float, complete: int
) -> None:
    found = of(scan(**changes))
    assert found["txnscan_coverage_ratio", ("partitions",)] == partitions
    assert found["txnscan_coverage_ratio", ("coordinators",)] == coordinators
    assert found["txnscan_sweep_complete", ()] == complete


def test_only_a_complete_sweep_updates_the_last_complete_time() -> None:
    assert of(scan())["txnscan_last_complete_sweep_timestamp_seconds", ()] == (NOW_MS + 500) / 1_000
    found = of(scan(partitions_failed=1))
    assert found["txnscan_last_complete_sweep_timestamp_seconds", ()] == 0
    assert found["txnscan_last_sweep_timestamp_seconds", ()] == (NOW_MS + 500) / 1_000


def test_before_the_first_sweep_a_cluster_is_down_with_zero_times() -> None:
    found = samples(Watched("c", None, up=False))
    del found["txnscan_build_info", next(labels for name, labels in found if name == "txnscan_build_info")]
    assert found == {
        ("txnscan_up", ()): 0,
        ("txnscan_last_sweep_timestamp_seconds", ()): 0,
        ("txnscan_last_complete_sweep_timestamp_seconds", ()): 0,
    }


def test_a_failed_sweep_keeps_the_previous_values() -> None:
    assert of(scan(HANGING), up=False) == {**of(scan(HANGING)), ("txnscan_up", ()): 0}


def test_topics_beyond_the_cap_are_summed_under_one_label() -> None:
    many = [judged(view("Empty", epoch=9), topic=f"t{n:04}", last_timestamp_ms=NOW_MS - n) for n in range(1_000)]
    orphan = judged(topic="worst", last_timestamp_ms=NOW_MS - 90 * MINUTE_MS)
    found = of(scan(*many, orphan, ONGOING))
    counts = {labels: value for (name, labels), value in found.items() if name == "txnscan_open_transactions"}
    assert len({topic for topic, *_ in counts}) == TOPICS_MAX + 1 and sum(counts.values()) == 1_002
    assert counts["worst", "hanging", "orphan", "true"] == 1, "what is worst has a label of its own"
    assert counts[OTHERS, "hanging", "stale_epoch", "true"] == 1_001 - TOPICS_MAX
    assert sum(value for (name, _), value in found.items() if name == "txnscan_blocked_records") == 5 * 1_001


def test_producer_ids_are_not_labels() -> None:
    labels = {label for _, labels in NAMES.values() for label in labels}
    assert labels == {
        *("cluster", "cluster_id", "version", "topic", "verdict", "reason", "late", "broker", "stage"),
        *("of", "state", "result", "target", "past_limit"),
    }


def at(minutes: int, offset: int | None = 100, **changes: Any) -> Scan:
    """A sweep after this number of minutes with the last stable offset here."""
    now_ms = NOW_MS + minutes * MINUTE_MS
    hanging = judged(view("Empty", epoch=9), second_last_stable_offset=offset, second_read_at_ms=now_ms)
    return scan(hanging, finished_at_ms=now_ms, **changes)


NOT_READ = unobserved("read", "broker 1 cannot be reached", 1, "p", 0)


@pytest.mark.parametrize(
    ("sweeps", "seconds"),
    [
        ([at(0)], 0),
        ([at(0), at(1), at(5)], 300),
        ([at(0), at(1, offset=103), at(5, offset=103)], 240),
        # A sweep without the partition does not show a move.
        ([at(0), scan(errors=(NOT_READ,)), at(5)], 300),
        ([at(0), scan(), at(5)], 0),
        ([at(0), at(4, offset=None), at(5)], 300),
    ],
    ids=["seen once", "stuck", "moved", "not read once", "over, and stuck again", "offsets not known once"],
)
def test_an_offset_is_stuck_for_as_long_as_sweeps_saw_it_unchanged(sweeps: list[Scan], seconds: float) -> None:
    stuck: Stuck = {}
    for sweep in sweeps:
        stuck = stuck_since(sweep, stuck)
    found = of(sweeps[-1], stuck=stuck)
    assert found["txnscan_last_stable_offset_stuck_seconds", ("p",)] == seconds


def test_a_sweep_without_history_has_no_stuck_duration() -> None:
    assert not [name for name, _ in of(scan(HANGING)) if "stuck" in name]


def test_the_file_is_parsed_by_prometheus_own_parser() -> None:
    text = metrics_text([watched_once('a "cluster"\n', scan(HANGING, broker_ids=(1,)))])
    read = {one.name: one for family in text_string_to_metric_families(text) for one in family.samples}
    assert read["txnscan_candidates"].value == 1
    assert read["txnscan_candidates"].labels == {"cluster": 'a "cluster"\n'}


def test_notifications_are_counted_by_target_and_result() -> None:
    found = samples(Watched("c", None, up=False), Notified("slack", {"sent": 3, "failed": 1}, waiting=2))
    assert found["txnscan_notifications_total", ("slack", "sent")] == 3
    assert found["txnscan_notifications_waiting", ("slack",)] == 2


@pytest.fixture(scope="module")
def wired() -> Iterator[WireCluster]:
    with WireCluster(ClusterShape(brokers=2, partitions=20, hanging=2)) as cluster:
        yield cluster


def test_find_hanging_replaces_the_file_for_node_exporter(wired: WireCluster, tmp_path: Path) -> None:
    file = tmp_path / "txnscan.prom"
    file.write_text("old", "utf-8")
    arguments = ["find-hanging", "--bootstrap-server", wired.bootstrap_servers, "--metrics-file", str(file)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    read = {one.name: one for f in text_string_to_metric_families(file.read_text("utf-8")) for one in f.samples}
    assert read["txnscan_candidates"].value == 2
    assert read["txnscan_up"].labels == {"cluster": wired.bootstrap_servers}
    assert [path.name for path in tmp_path.iterdir()] == ["txnscan.prom"]


def test_an_unwritable_file_is_refused_before_any_request(tmp_path: Path) -> None:
    arguments = ["find-hanging", "--bootstrap-server", "127.0.0.1:1", "--metrics-file", str(tmp_path / "no" / "x.prom")]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 2 and ran.stderr.startswith("txnscan: --metrics-file: ")


def test_a_missing_library_is_reported_with_its_installation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(base, "find_spec", lambda name: None)
    arguments = ["find-hanging", "--bootstrap-server", "127.0.0.1:1", "--metrics-file", str(tmp_path / "x.prom")]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 2 and "install txnscan[watch]" in ran.stderr
