"""A sweep of real brokers: planted transactions get their verdicts, and healthy ones are never hanging."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.brokers.shared import AT_SCENE, EXPECTED, SCENE_TOPICS, Shared
from tests.process import ROOT, run, run_here
from tests.prove.faults.admin import delete_topic
from txnscan import ScanConfig, find_hanging, sweep
from txnscan.demo import plant
from txnscan.demo.admin import create_topic
from txnscan.demo.plant import HealthyTraffic
from txnscan.sweeps.result import Scan
from txnscan.tables.open import open_tables
from txnscan.tables.schema import INCIDENTS, SWEEPS
from txnscan.verdict.evidence import Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE_FIELDS = {
    "topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch", "start_offset", "last_timestamp_ms",
    "verdict", "reason", "late", "outcome", "transactional_id", "coordinator_state", "explanation",
}  # fmt: skip


def said(scan: Scan) -> dict[str, tuple[str, str, bool]]:
    return {
        j.observation.topic_partition: (str(j.judgement.verdict), str(j.judgement.reason), j.judgement.late)
        for j in scan.transactions
    }


def at(shared: Shared) -> tuple[str, str]:
    return "--bootstrap-server", shared.bootstrap_servers


def test_every_planted_transaction_gets_its_verdict_and_reason(shared: Shared) -> None:
    found = find_hanging(shared.of_scene())
    assert said(found) == EXPECTED
    assert found.complete
    assert found.errors == ()
    assert found.coordinators_proven == found.coordinators_planned == 6


def test_each_outcome_is_reported_if_it_is_known(shared: Shared) -> None:
    found = find_hanging(shared.of_scene())
    told = {j.observation.topic_partition: j.outcome for j in found.transactions}
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


def test_ten_sweeps_under_traffic_find_all_hanging_transactions_and_no_others(shared: Shared, location: str) -> None:
    """With tables, and without."""
    with_tables = under_traffic(shared, tables=location)
    bare = replace(with_tables, tables=None)
    assert_sound(shared, [(None, with_tables), *[(None, with_tables), (None, bare), (None, bare)] * 3])
    tables = open_tables(location, None)
    assert len(tables.rows(SWEEPS)) == 4
    assert [row["sweeps"] for row in tables.rows(INCIDENTS)] == [4] * 5


def test_sweeps_through_spark_under_traffic_find_no_false_hanging_transactions(
    spark: SparkSession, shared: Shared, location: str
) -> None:
    by_threads = under_traffic(shared, tables=location)
    assert_sound(shared, [(spark, replace(by_threads, engine="spark")), (None, by_threads)])
    assert spark.read.format("delta").load(f"{location}/sweeps").count() == 2
    incidents = spark.read.format("delta").load(f"{location}/incidents")
    assert [row["sweeps"] for row in incidents.collect()] == [2] * 5


def test_an_incident_is_closed_if_its_topic_is_deleted_or_recreated(shared: Shared, location: str) -> None:
    for topic in ("gone-deleted", "gone-anew", "gone-not"):
        plant.orphan(shared.wire, topic)
    config = ScanConfig(shared.bootstrap_servers, topic=("gone-.*",), engine="threads", tables=location)
    assert set(said(sweep(None, config).scan)) == {"gone-deleted-0", "gone-anew-0", "gone-not-0"}
    for topic in ("gone-deleted", "gone-anew"):
        delete_topic(shared.wire, topic)
    create_topic(shared.wire, "gone-anew", [[1]])
    sweep(None, config)
    found = {row["topic"]: (row["is_open"], row["resolved_how"]) for row in open_tables(location, None).rows(INCIDENTS)}
    assert found == {
        "gone-deleted": (False, "topic_deleted"),
        "gone-anew": (False, "topic_recreated"),
        "gone-not": (True, None),
    }
    delete_topic(shared.wire, "gone-not")


def under_traffic(shared: Shared, **changes: Any) -> ScanConfig:
    """Sweeps of the demo's transactions and of a topic with traffic, by threads."""
    topics = (*SCENE_TOPICS, "under-sweeps")
    return ScanConfig(shared.bootstrap_servers, topic=topics, engine="threads", **changes)


def assert_sound(shared: Shared, ways: Sequence[tuple[SparkSession | None, ScanConfig]]) -> None:
    """Sweeps in each of these ways while short transactions commit and abort."""
    with HealthyTraffic(shared.cluster, "under-sweeps") as traffic:
        before = traffic.count
        scans = [sweep(session, way).scan for session, way in ways]
        after = traffic.count
    delete_topic(shared.wire, "under-sweeps")
    assert after.errors == ()
    assert after.committed > before.committed and after.aborted > before.aborted
    for scan in scans:
        verdicts = said(scan)
        healthy = {p: v for p, v in verdicts.items() if p.startswith("under-sweeps-")}
        assert {verdict for verdict, _, _ in healthy.values()} <= {"gone", "ongoing", "pending_marker"}
        # The orphan from the future ages by the scanner's own clock.
        assert {p: v[:2] for p, v in verdicts.items() if p in EXPECTED} == {p: v[:2] for p, v in EXPECTED.items()}
        assert scan.complete


def test_both_engines_give_the_same_rows(spark: SparkSession, shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    # Executors read as much as they may.
    monkeypatch.setattr("txnscan.sweeps.reader.DRIVER_READS_MAX", 0)
    monkeypatch.setattr("txnscan.sweeps.pipeline.DRIVER_JUDGES_MAX", 0)
    by_spark: Any
    by_threads: Any
    by_spark, by_threads = (
        sweep(session, shared.of_scene(engine=engine)).transactions
        for session, engine in ((spark, "spark"), (None, "threads"))
    )
    rows = [as_rows(by_spark.collect()), as_rows(by_threads.to_pylist())]
    assert rows[0] == rows[1] and len(rows[0]) == len(EXPECTED)


def as_rows(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Rows in order, with a part of the evidence, without the fields that differ between any two sweeps."""
    passing = {"sweep_id", "started_at", "age_ms", "first_seen_at", "read_at", "evidence"}
    found = []
    for row in rows:
        columns = row if isinstance(row, dict) else row.asDict(recursive=True)
        evidence = columns["evidence"]
        observed = {"high_watermark": evidence["observation"]["second"]["high_watermark"]}
        proof = {"coordinators": evidence["coordinators"], "coverage": evidence["context"]["coverage_failure"]}
        # Spark's rows have local times without a zone.
        ends_by = columns["ends_by"]
        proof |= {"ends_by": ends_by.astimezone(UTC) if ends_by is not None else None}
        found.append({name: value for name, value in columns.items() if name not in passing} | observed | proof)
    return sorted(found, key=lambda row: (row["topic"], row["partition"]))


def test_only_a_late_hanging_transaction_is_a_candidate(shared: Shared, location: str) -> None:
    result: Any = sweep(None, shared.of_scene(tables=location, engine="threads"))
    names = {f"{row['topic']}-{row['partition']}" for row in result.candidates.to_pylist()}
    assert names == {name for name, (verdict, _, late) in EXPECTED.items() if verdict == "hanging" and late}
    assert result.summary["counts"]["hanging"] == 5
    assert result.errors.num_rows == 0
    assert result.transactions.num_rows == len(EXPECTED)


def test_an_orphan_from_the_future_becomes_late_by_the_scanners_clock(shared: Shared, location: str) -> None:
    config = ScanConfig(
        shared.bootstrap_servers, tables=location, topic=("sensors",), late_after_ms=1, engine="threads"
    )
    _, second = (sweep(None, config).scan for _ in range(2))
    assert said(second)["sensors-0"][2]


def test_a_scope_reads_only_matching_topics_and_proves_every_coordinator(shared: Shared) -> None:
    found = find_hanging(ScanConfig(shared.bootstrap_servers, topic=("invoices", "click.")))
    assert set(said(found)) == {"invoices-0", "invoices-1", "clicks-0"}
    assert (found.partitions_planned, found.coordinators_proven) == (3, 6)


def test_concurrent_sweeps_in_one_process_are_independent(shared: Shared) -> None:
    with ThreadPoolExecutor(4) as pool:
        scans = list(pool.map(find_hanging, [shared.of_scene()] * 8))
    assert [(said(scan), scan.errors) for scan in scans] == [(EXPECTED, ())] * 8


def test_a_transaction_shows_its_blocked_records(shared: Shared) -> None:
    (judged,) = find_hanging(ScanConfig(shared.bootstrap_servers, topic_names=("clicks",))).transactions
    o = judged.observation
    assert (o.second.last_stable_offset, o.second.high_watermark) == (o.start_offset, o.start_offset + 5)


# --- the command line


def test_find_hanging_prints_json_and_exits_with_3_for_candidates(shared: Shared) -> None:
    ran = run_here("find-hanging", *AT_SCENE, *at(shared), "--format", "json", "--fail-on", "hanging")
    assert (ran.returncode, ran.stderr) == (3, "")
    found = json.loads(ran.stdout)
    assert set(found) == {"sweep", "transactions", "errors"}
    assert found["sweep"]["complete"] is True
    assert {t["verdict"] for t in found["transactions"]} == {"hanging", "ongoing"}
    assert all(set(t) >= TABLE_FIELDS for t in found["transactions"])


def test_find_hanging_needs_neither_spark_nor_java(shared: Shared, tmp_path: Path) -> None:
    for name in ("pyspark", "pyarrow", "pandas", "delta"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('no {name} here')")
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/nowhere", "JAVA_HOME": "/nowhere"}
    ran = run("find-hanging", *AT_SCENE, *at(shared), environment=environment)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "5 hanging" in ran.stdout and "4 late" in ran.stdout


def test_find_hanging_takes_the_options_of_kafkas_tool(shared: Shared) -> None:
    options = ("--topic", "invoices", "--partition", "1", "--max-transaction-timeout", "60", "--format", "json")
    ran = run_here("find-hanging", *at(shared), *options)
    found = json.loads(ran.stdout)
    assert [(t["topic"], t["partition"], t["late"]) for t in found["transactions"]] == [("invoices", 1, False)]
    assert found["sweep"]["late_after_ms"] == 3_600_000


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        (("--topic", "nothing"), 2, "txnscan: --topic: there is no topic 'nothing'"),
        (("--topic", "clicks", "--partition", "7"), 2, "txnscan: --partition: clicks has no partition 7"),
        (("--broker-id", "9"), 2, "txnscan: --broker-id: 9 is not among the cluster's brokers [1, 2, 3]"),
    ],
)
def test_an_unknown_topic_is_a_usage_error(shared: Shared, options: tuple[str, ...], status: int, says: str) -> None:
    ran = run_here("find-hanging", *at(shared), *options)
    assert (ran.returncode, ran.stdout) == (status, "")
    assert ran.stderr.startswith(says) and ran.stderr.count("\n") == 1


def test_a_short_late_after_causes_a_warning(shared: Shared) -> None:
    ran = run_here("find-hanging", "--topic", "clicks", *at(shared), "--late-after", "1s", "--format", "json")
    assert ran.returncode == 0
    assert "transaction.max.timeout.ms" in ran.stderr
    json.loads(ran.stdout)


@pytest.mark.parametrize("engine", [("--engine", "threads"), ("--master", "local[1]")], ids=["threads", "spark"])
def test_sweep_and_show_print_the_same_object(shared: Shared, location: str, engine: tuple[str, str]) -> None:
    """Spark writes the tables, and delta-rs reads them."""
    options = ("--tables", location, "--format", "json")
    swept = run("sweep", "--topic", "clicks", *at(shared), "--store-all", *engine, *options)
    shown = run_here("show", *options, "--fail-on", "hanging", "--fail-on", "incomplete")
    assert (swept.returncode, shown.returncode) == (0, 3), swept.stderr + shown.stderr
    assert json.loads(swept.stdout) == json.loads(shown.stdout)


def test_an_unknown_job_lists_the_jobs() -> None:
    ran = subprocess.run([ROOT / "spark-submit.sh", "nothing"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("usage: ./spark-submit.sh ") and ran.stderr.endswith("jobs: resolve sweep\n")


def _verdicts(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {f"{t['topic']}-{t['partition']}": (t["verdict"], t["reason"]) for t in found["transactions"]}


def test_every_verdict_has_a_count_in_the_summary(shared: Shared) -> None:
    assert set(find_hanging(shared.of_scene()).counts) == {verdict.value for verdict in Verdict}
