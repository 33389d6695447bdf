"""A sweep of real brokers: the planted transactions get their verdicts, and nothing healthy is accused."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.conftest import Planted
from tests.process import ROOT, run
from txnscan import ScanConfig, find_hanging, sweep
from txnscan.demo.plant import HealthyTraffic
from txnscan.findings import Scan
from txnscan.model import Verdict

# What the demo plants, in its order: verdict, reason, late.
EXPECTED = {
    "payments-solo-0": ("hanging", "maybe_committed", True),
    "clicks-0": ("hanging", "orphan", True),
    "sensors-0": ("hanging", "orphan", False),
    "shipments-0": ("hanging", "stale_epoch", True),
    "invoices-1": ("hanging", "live_epoch", True),
    "backfill-0": ("ongoing", "owned", False),
    # The live epoch's owner has added its other partition.
    "invoices-0": ("ongoing", "owned", False),
}
TABLE_FIELDS = {
    "topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch", "start_offset", "last_timestamp_ms",
    "verdict", "reason", "late", "outcome", "transactional_id", "coordinator_state", "explanation",
}  # fmt: skip


def said(scan: Scan) -> dict[str, tuple[str, str, bool]]:
    return {
        j.observation.topic_partition: (str(j.judgement.verdict), str(j.judgement.reason), j.judgement.late)
        for j in scan.transactions
    }


def test_every_planted_transaction_gets_its_verdict_and_reason(planted: Planted) -> None:
    found = find_hanging(ScanConfig(planted.bootstrap_servers))
    assert said(found) == EXPECTED
    assert found.complete
    assert found.errors == ()
    assert found.coordinators_proven == found.coordinators_planned == 6


def test_what_was_decided_about_each_is_told_where_it_can_be_known(planted: Planted) -> None:
    found = find_hanging(ScanConfig(planted.bootstrap_servers))
    told = {j.observation.topic_partition: j.judgement.outcome for j in found.transactions}
    assert told == {
        "payments-solo-0": "committed",
        "clicks-0": "unknown",
        "sensors-0": "unknown",
        "shipments-0": "not_committed",
        # Its owner is still at the epoch of the data.
        "invoices-1": "unknown",
        "backfill-0": None,
        "invoices-0": None,
    }


def test_ten_sweeps_under_traffic_accuse_nothing_healthy_and_find_all_that_hangs(
    spark: SparkSession, planted: Planted, location: str
) -> None:
    """Through Spark, without it, and without tables."""
    config = ScanConfig(planted.bootstrap_servers, tables=location)
    by_threads = replace(config, engine="threads")
    bare = replace(by_threads, tables=None)
    ways = ((spark, config), *[(None, by_threads), (None, bare), (None, bare)] * 3)
    with HealthyTraffic(planted.cluster, "under-sweeps") as traffic:
        before = traffic.count
        scans = [sweep(session, way).scan for session, way in ways]
        after = traffic.count
    assert after.errors == ()
    assert after.committed > before.committed and after.aborted > before.aborted
    for scan in scans:
        verdicts = said(scan)
        healthy = {p: v for p, v in verdicts.items() if p.startswith("under-sweeps-")}
        assert {verdict for verdict, _, _ in healthy.values()} <= {"gone", "ongoing", "pending_marker"}
        # The orphan from the future ages by the scanner's own clock.
        assert {p: v[:2] for p, v in verdicts.items() if p in EXPECTED} == {p: v[:2] for p, v in EXPECTED.items()}
        assert scan.complete
    assert spark.read.format("delta").load(f"{location}/sweeps").count() == 4
    incidents = spark.read.format("delta").load(f"{location}/incidents")
    assert {row["sweeps"] for row in incidents.collect()} == {4} and incidents.count() == 5


def test_both_engines_give_the_same_rows(
    spark: SparkSession, planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All that executors may read, they read.
    monkeypatch.setattr("txnscan.evidence.reads.DRIVER_READS_MAX", 0)
    frames = [
        sweep(spark, ScanConfig(planted.bootstrap_servers, engine=engine)).transactions
        for engine in ("spark", "threads")
    ]
    # What differs between any two sweeps, whatever the engine.
    passing = ("sweep_id", "started_at", "age_ms", "first_seen_at", "evidence")
    by_spark, by_threads = (frame.drop(*passing) for frame in frames)
    assert_df_equality(by_spark, by_threads, ignore_row_order=True)
    evidence = ("observation.topic", "observation.second_high_watermark", "coordinators", "context.coverage_error")
    columns = [F.col(f"evidence.{name}").alias(name.replace(".", "_")) for name in evidence]
    assert_df_equality(frames[0].select(*columns), frames[1].select(*columns), ignore_row_order=True)


def test_a_late_hanging_transaction_is_a_candidate_and_the_rest_are_not(
    spark: SparkSession, planted: Planted, location: str
) -> None:
    result = sweep(spark, ScanConfig(planted.bootstrap_servers, tables=location))
    names = {f"{row['topic']}-{row['partition']}" for row in result.candidates.collect()}
    assert names == {name for name, (verdict, _, late) in EXPECTED.items() if verdict == "hanging" and late}
    assert result.summary["counts"]["hanging"] == 5
    assert result.errors.count() == 0
    assert result.transactions.count() == len(EXPECTED)


def test_an_orphan_from_the_future_becomes_late_by_the_scanners_own_time(
    spark: SparkSession, planted: Planted, location: str
) -> None:
    def late() -> bool:
        config = ScanConfig(planted.bootstrap_servers, tables=location, topic=("sensors",), late_after="1ms")
        return said(sweep(spark, config).scan)["sensors-0"][2]

    late()
    assert late()


def test_a_scope_reads_only_the_topics_that_match_and_still_proves_every_coordinator(planted: Planted) -> None:
    found = find_hanging(ScanConfig(planted.bootstrap_servers, topic=("invoices", "click.")))
    assert set(said(found)) == {"invoices-0", "invoices-1", "clicks-0"}
    assert (found.partitions_planned, found.coordinators_proven) == (3, 6)


def test_sweeps_at_the_same_time_in_one_process_do_not_disturb_each_other(planted: Planted) -> None:
    with ThreadPoolExecutor(4) as pool:
        scans = list(pool.map(find_hanging, [ScanConfig(planted.bootstrap_servers)] * 8))
    assert [(said(scan), scan.errors) for scan in scans] == [(EXPECTED, ())] * 8


def test_what_a_transaction_blocks_is_shown(planted: Planted) -> None:
    (judged,) = find_hanging(ScanConfig(planted.bootstrap_servers, topic_names=("clicks",))).transactions
    o = judged.observation
    assert (o.second_last_stable_offset, o.second_high_watermark) == (o.start_offset, o.start_offset + 5)


# --- the command line


def test_find_hanging_prints_one_json_object_and_exits_with_3_when_candidates_are_there(planted: Planted) -> None:
    ran = run(
        "find-hanging", "--bootstrap-server", planted.bootstrap_servers, "--format", "json", "--fail-on", "hanging"
    )
    assert (ran.returncode, ran.stderr) == (3, "")
    found = json.loads(ran.stdout)
    assert set(found) == {"sweep", "transactions", "errors"}
    assert found["sweep"]["complete"] is True
    assert {t["verdict"] for t in found["transactions"]} == {"hanging", "ongoing"}
    assert all(set(t) >= TABLE_FIELDS for t in found["transactions"])


def test_find_hanging_needs_neither_spark_nor_java(planted: Planted, tmp_path: Path) -> None:
    for name in ("pyspark", "pyarrow", "pandas", "delta"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('no {name} here')")
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/nowhere", "JAVA_HOME": "/nowhere"}
    ran = run("find-hanging", "--bootstrap-server", planted.bootstrap_servers, environment=environment)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "5 hanging, of which 4 late" in ran.stdout


def test_find_hanging_takes_the_options_of_kafkas_tool(planted: Planted) -> None:
    options = ("--topic", "invoices", "--partition", "1", "--max-transaction-timeout", "60", "--format", "json")
    ran = run("find-hanging", "--bootstrap-server", planted.bootstrap_servers, *options)
    found = json.loads(ran.stdout)
    assert [(t["topic"], t["partition"], t["late"]) for t in found["transactions"]] == [("invoices", 1, False)]
    assert found["sweep"]["late_after_ms"] == 3_600_000


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        (("--topic", "nothing"), 2, "txnscan: --topic: 'nothing' does not exist"),
        (("--topic", "clicks", "--partition", "7"), 2, "txnscan: --partition: clicks has no partition 7"),
        (("--broker-id", "9"), 2, "txnscan: --broker-id: 9 is not among the cluster's brokers [1, 2, 3]"),
    ],
)
def test_what_does_not_exist_is_a_usage_error(
    planted: Planted, options: tuple[str, ...], status: int, says: str
) -> None:
    ran = run("find-hanging", "--bootstrap-server", planted.bootstrap_servers, *options)
    assert (ran.returncode, ran.stdout) == (status, "")
    assert ran.stderr.startswith(says) and ran.stderr.count("\n") == 1


def test_a_short_late_after_is_allowed_with_a_warning(planted: Planted) -> None:
    ran = run("find-hanging", "--bootstrap-server", planted.bootstrap_servers, "--late-after", "1s", "--format", "json")
    assert ran.returncode == 0
    assert "below the brokers' transaction.max.timeout.ms" in ran.stderr
    json.loads(ran.stdout)


def test_sweep_and_show_print_the_same_object(planted: Planted, location: str) -> None:
    """Spark has written what delta-rs reads."""
    options = ("--tables", location, "--format", "json")
    at = ("--bootstrap-server", planted.bootstrap_servers)
    swept = run("sweep", *at, "--store-all", "--master", "local[1]", *options)
    shown = run("show", *options, "--fail-on", "hanging", "--fail-on", "incomplete")
    assert (swept.returncode, shown.returncode) == (0, 3), swept.stderr + shown.stderr
    assert json.loads(swept.stdout) == json.loads(shown.stdout)


def test_an_unknown_job_lists_those_there_are() -> None:
    ran = subprocess.run([ROOT / "spark-submit.sh", "nothing"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "usage: ./spark-submit.sh <job> [options]; jobs: resolve sweep\n"


def _verdicts(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {f"{t['topic']}-{t['partition']}": (t["verdict"], t["reason"]) for t in found["transactions"]}


def test_every_verdict_has_a_count_in_the_summary(planted: Planted) -> None:
    assert set(find_hanging(ScanConfig(planted.bootstrap_servers)).counts) == {verdict.value for verdict in Verdict}
