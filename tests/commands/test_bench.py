"""The benchmarks run, do the same work on all sides, and report it as a table and as JSON. No test depends on time."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from tests.bench import __main__ as bench
from tests.bench import busy, history, long_log, metadata, stop, wide
from tests.bench.clusters import big
from tests.bench.harness import (
    DifferentWork,
    Finding,
    Options,
    Ratio,
    Side,
    Timed,
    most_memory_of_spark_mb,
    show,
    timed_in_turn,
)
from tests.bench.processes import Failed, apart
from tests.bench.stamps import Stamp, busy_s
from txnscan.tables.views import VIEWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from syrupy.assertion import SnapshotAssertion

TINY = Options(runs=1, brokers=2, partitions=120, transactional_ids=200, log_records=500, groups=0)


def shown(finding: Finding) -> str:
    out = io.StringIO()
    show(finding, Console(file=out, width=200))
    return out.getvalue()


def timed(**samples_s: tuple[float, ...]) -> list[Timed]:
    return [Timed(name, each) for name, each in samples_s.items()]


def told(finding: Finding) -> dict[str, Any]:
    """The finding as read back from its file."""
    return dict(json.loads(json.dumps(finding.as_json())))


def test_the_memory_of_sparks_jvm_and_python_worker_is_measured(spark: SparkSession) -> None:
    spark.range(1).mapInArrow(lambda batches: batches, "id bigint").collect()
    found = most_memory_of_spark_mb()
    assert set(found) == {"jvm", "worker"}
    assert min(found.values()) > 0


def test_the_wide_read_sends_the_same_requests_on_all_sides() -> None:
    finding = wide.compare(TINY, None)
    names = [wide.DRAIN, wide.OURS, wide.ALONE]
    assert [each.name for each in finding.timed] == names
    assert [(ratio.ours, ratio.peer) for ratio in finding.ratios] == [(wide.OURS, wide.DRAIN), (wide.OURS, wide.ALONE)]
    # 50 partitions of __transaction_state. Ten producers on each other partition, a hanging one on 100, a live one on
    # 6, and a decided one on 2.
    assert {**finding.work, "answer bytes": 0} == {
        "requests": finding.setting["requests"],
        "answer bytes": 0,
        "partitions": 170,
        "producers": 1_308,
        "open": 108,
    }
    assert finding.work["answer bytes"] > 1_308 * 37
    table, report = shown(finding), told(finding)
    assert all(name in table for name in names) and "at most 3" in table
    assert list(report["sides"]) == names
    assert report["sides"][wide.OURS]["runs"] == len(report["sides"][wide.OURS]["samples_s"]) == 1


def test_a_long_history_is_read_by_every_view_the_page_and_the_next_sweep(spark: SparkSession) -> None:
    finding = history.compare(replace(TINY, sweeps=3, incidents=6), spark)
    # Three sweeps, and two rounds of two more: a warm-up, and a counted round.
    assert (finding.setting["sweeps"], finding.setting["incidents"]) == (7, 14)
    names = [each.name for each in finding.timed]
    assert names == [*(f"view {view.name}" for view in VIEWS), *names[len(VIEWS) :]]
    assert names[len(VIEWS) :] == [
        *("txnscan history", "txnscan report", "one more sweep, delta-rs", "one more sweep, Spark")
    ]


def test_a_cluster_at_work_is_measured_beside_a_quiet_cluster() -> None:
    finding = busy.compare(replace(TINY, groups=40), None)
    assert [each.name for each in finding.timed] == ["find_hanging, quiet", "find_hanging, busy"]
    # Each of two topics has 20 groups, of which 7 are at the last stable offset of each of its partitions.
    assert finding.work == {
        "failed, quiet": 0,
        "groups blocked, quiet": 100 * 7,
        "hanging, quiet": 100,
        "failed, busy": 0,
        "groups blocked, busy": 100 * 7,
        "hanging, busy": 100,
        "ongoing, busy": 6,
        "pending_marker, busy": 2,
    }
    assert "at most 1.3" in shown(finding)
    (asked,) = finding.grids
    quiet, busier = asked.rows
    assert (quiet[0], busier[0]) == ("quiet", "busy") and quiet[2] < busier[2]


def test_the_check_before_a_stop_is_measured_beside_a_sweep() -> None:
    finding = stop.run(TINY)
    assert [each.name for each in finding.timed] == [stop.FIND_HANGING, stop.ONE, stop.ZONE]
    # Each of the two brokers has a replica of every partition.
    assert finding.work == {
        "partitions": 170,
        f"partitions held, {stop.ONE}": 170,
        f"other failures, {stop.ONE}": 0,
        f"partitions held, {stop.ZONE}": 170,
        f"other failures, {stop.ZONE}": 0,
    }
    assert "at most 1.2" in shown(finding)


def test_a_long_log_is_read_only_by_the_first_sweep() -> None:
    finding = long_log.run(replace(TINY, long_log_records=10_000))
    clusters = [long_log.ORPHAN, long_log.SHORT, long_log.NOTHING]
    assert [each.name for each in finding.timed] == clusters
    for name, hanging in zip(clusters, (1, 1, 0), strict=True):
        assert (finding.work[f"failed; {name}"], finding.work[f"hanging; {name}"]) == (0, hanging)
    (grid,) = finding.grids
    (_, _, first_mb, _, later_mb), (_, _, short_mb, _, _), (_, _, nothing_mb, _, nothing_later_mb) = grid.rows
    log_mb = (10_000 - 500) * 100 / 1e6
    assert min(first_mb - short_mb, first_mb - nothing_mb) > log_mb
    assert later_mb - nothing_later_mb < log_mb
    assert "at most 1.1" in shown(finding)


def test_the_big_cluster_is_busy_unless_a_quiet_one_is_requested() -> None:
    standard = big(Options())
    assert (standard.ongoing * standard.partitions_per_transaction, standard.transactional_ids) == (5_000, 100_000)
    assert (standard.hanging, standard.replication_factor, standard.groups) == (100, 3, 1_000)
    quiet = big(bench.parsed(["--quiet"])[2])
    assert (quiet.hanging, quiet.open_partitions_of_ids, quiet.transactional_ids, quiet.groups) == (100, 0, 0, 1_000)
    named = bench.parsed(["--live-share", "0.5", "--transactional-ids", "7", "--log-records", "0", "--groups", "9"])[2]
    assert (named.live_share, named.transactional_ids, named.log_records, big(named).groups) == (0.5, 7, 0, 9)


@pytest.mark.parametrize("wrong", [["--live-share", "1.5"], ["--live-share", "-1"], ["--runs", "0"]])
def test_invalid_benchmark_options_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.parsed(wrong)
    assert f"{wrong[0]} must be" in capsys.readouterr().err


def test_metadata_is_equal_on_all_sides() -> None:
    finding = metadata.run(TINY)
    names = [metadata.TWO_CALLS, metadata.OBJECTS, metadata.OURS]
    assert [each.name for each in finding.timed] == names
    assert finding.work == {"topics": 3, "partitions": 170}
    assert all(name in shown(finding) for name in names)
    assert list(told(finding)["sides"]) == names


def test_sides_run_in_turn_without_counting_the_warm_up() -> None:
    ran: list[str] = []

    def side(name: str, runs_max: int | None = None) -> Side:
        return Side(name, lambda: ran.append(name) or {}, runs_max)  # type: ignore[func-returns-value]

    found, _ = timed_in_turn([side("slow", 1), side("ours")], 2)
    assert ran == ["slow", "ours", "slow", "ours", "ours"]
    assert [len(each.samples_s) for each in found] == [1, 2]


def test_sides_with_different_work_are_not_compared(wording: SnapshotAssertion) -> None:
    sides = [Side("peer", lambda: {"partitions": 3}), Side("ours", lambda: {"partitions": 2})]
    with pytest.raises(DifferentWork) as error:
        timed_in_turn(sides, 1)
    assert str(error.value) == wording


def test_ratios_are_of_medians_and_are_compared_with_their_targets() -> None:
    ratios = (Ratio("ours", "peer", 0.25), Ratio("ours", "peer", 5, faster=True), Ratio("ours", "peer"))
    finding = Finding("name", "title", {}, timed(peer=(4.0, 4.0, 90.0), ours=(1.0,)), ratios)
    rows = told(finding)["ratios"]
    assert [(row["target"], row["met"]) for row in rows] == [(0.25, True), (5, False), (None, None)]
    assert [row.get("times_as_long", row.get("times_faster")) for row in rows] == [0.25, 4.0, 0.25]
    assert "0.25 x peer" in shown(finding) and "4.0 times faster" in shown(finding)


def test_overlapping_requests_keep_a_process_busy_once() -> None:
    spans = ((0, 4), (1, 2), (3, 6), (8, 9))
    assert busy_s(Stamp(1, 1, began * 10**9, ended * 10**9, 1, 1) for began, ended in spans) == 7


def test_a_separate_run_uses_another_process_and_reports_its_error() -> None:
    assert apart(os.getpid) != os.getpid()
    with pytest.raises(Failed, match="ZeroDivisionError"):
        apart(divmod, 1, 0)


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.parsed(["wide", "--runs", "2"])[0] == ["wide"]
    with pytest.raises(SystemExit):
        bench.parsed(["wider"])
    assert "there is no benchmark wider" in capsys.readouterr().err
