"""Spark and delta-rs in turns on the same tables, and tables that only Spark can open."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import NOW_MS, plan, scan, stored
from tests.process import ROOT
from tests.spark.storing import ORPHAN, STALE, sweep
from tests.tables.stored import reads_of
from txnscan.resolve.apply import ApplyRunning
from txnscan.resolve.guard import Limits
from txnscan.resolve.plan import make_plan
from txnscan.sweeps.row import incident_id
from txnscan.tables.delta import By
from txnscan.tables.open import open_tables, through_spark
from txnscan.tables.schema import CANDIDATES, INCIDENTS, OPEN_TRANSACTIONS, SWEEPS, TABLES
from txnscan.txnlog.facts import SeenMarker

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_a_clustered_table_is_copied_by_the_statement_in_the_docs(spark: SparkSession, tmp_path: Path) -> None:
    """delta-rs refuses the original, and writes the copy."""
    old, new = f"{tmp_path}/old", f"{tmp_path}/new"
    by_spark = through_spark(old, spark)
    by_spark.create()
    table = f"delta.`{old}/sweeps`"
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in by_spark.delta.properties(SWEEPS).items())
    spark.sql(
        f"REPLACE TABLE {table} USING DELTA CLUSTER BY (sweep_id) TBLPROPERTIES ({properties}) AS SELECT * FROM {table}"
    )
    by_spark.write(sweep(1, ORPHAN))
    refused = open_tables(old, None)
    with pytest.raises(Exception, match="Unsupported table features") as raised:
        refused.write(sweep(2, ORPHAN))
    assert "docs/tables.md" in refused.why_failed(raised.value)
    copied = open_tables(new, None)
    copied.create()
    (copy,) = re.findall(r"```sql\n(INSERT OVERWRITE .*?);\n```", (ROOT / "docs/tables.md").read_text("utf-8"), re.S)
    spark.sql(copy.replace("/data/txnscan-new", new).replace("/data/txnscan", old))
    copied.write(sweep(2, ORPHAN))
    assert sorted(row["sweep_id"] for row in copied.rows(SWEEPS)) == ["sweep-1", "sweep-2"]


def test_on_databricks_tables_are_clustered_instead_of_partitioned(
    spark: SparkSession, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    tables = through_spark(location, spark)
    tables.create()
    clustered = {}
    for table in TABLES:
        detail = spark.sql(f"DESCRIBE DETAIL {tables.delta.name(table)}").first()
        assert detail is not None and detail["partitionColumns"] == []
        clustered[table.name] = detail["clusteringColumns"]
    assert clustered == {table.name: [name for name in table.partitioned_by if name != "is_open"] for table in TABLES}
    for number in (1, 2):
        tables.write(sweep(number, ORPHAN, STALE))
    tables.write(sweep(3, ORPHAN))
    assert [(row["sweeps"], row["is_open"]) for row in tables.rows(INCIDENTS, order=[By("sweeps")])] == [
        (2, False),
        (3, True),
    ]


def test_spark_and_delta_rs_write_in_turns(spark: SparkSession, location: str) -> None:
    from txnscan.resolve.journal import TablesJournal
    from txnscan.tables.history import life

    marker = SeenMarker("q", 0, 50, 7, 3)
    by_spark, by_rust = through_spark(location, spark), open_tables(location, None)
    by_rust.create()
    by_spark.create()
    by_spark.write(sweep(1, ORPHAN, STALE))
    by_rust.write(sweep(2, ORPHAN, STALE))
    by_spark.write(sweep(3, ORPHAN))
    by_rust.write(sweep(4, ORPHAN))
    for tables in (by_spark, by_rust):
        TablesJournal(tables).remember(plan(stored()), marker)
    for tables in (by_spark, by_rust):
        assert [row["sweep_id"] for row in tables.last_sweeps()] == ["sweep-4"]
        assert len(tables.unresolved("cluster-1")()) == 1
        facts = tables.facts("cluster-1", {7})()[7]
        assert set(facts.reads) == set(reads_of(*(sweep(number, ORPHAN) for number in range(1, 5))))
        assert facts.markers == (marker,)
        assert {commit.producer_epoch for commit in facts.commits} == {1, 2, 3, 4}
        counted = {row["incident_id"]: (row["sweeps"], row["resolved_how"]) for row in tables.rows(INCIDENTS)}
        assert counted == {incident_id("cluster-1", ORPHAN): (4, None), incident_id("cluster-1", STALE): (2, "ended")}
        assert [row["sweep_id"] for row in life(tables, incident_id("cluster-1", STALE)).seen] == ["sweep-1", "sweep-2"]
    assert by_spark.rows(OPEN_TRANSACTIONS, order=()) and sorted(
        by_spark.rows(SWEEPS), key=lambda row: row["sweep_id"]
    ) == sorted(by_rust.rows(SWEEPS), key=lambda row: row["sweep_id"])


@pytest.mark.parametrize("first", ["spark", "delta-rs"])
def test_the_change_feed_of_incidents_has_the_changes_of_both(spark: SparkSession, location: str, first: str) -> None:
    """Opened and closed incidents, by the query of docs/dashboards.md and by delta-rs."""
    import pyarrow as pa
    from deltalake import DeltaTable

    by_spark, by_rust = through_spark(location, spark), open_tables(location, None)
    (by_spark if first == "spark" else by_rust).create()
    by_rust.write(sweep(1, ORPHAN))
    by_spark.write(sweep(2, ORPHAN, STALE))
    by_rust.write(sweep(3, STALE))
    by_spark.write(sweep(4))
    page = (ROOT / "docs" / "dashboards.md").read_text("utf-8")
    (query,) = re.findall(r"```sql\n(SELECT _commit_version.*?);\n```", page, re.S)
    query = query.replace("table_changes('incidents', 1)", f"table_changes_by_path('{location}/incidents', 1)")
    changed = [(row["partition"], row["what"]) for row in spark.sql(query).collect()]
    assert changed == [(0, "opened"), (1, "opened"), (0, "ended"), (1, "ended")]
    stream = DeltaTable(f"{location}/incidents").load_cdf(starting_version=1)
    changes = pa.RecordBatchReader.from_stream(stream).read_all().to_pylist()
    kinds = Counter((row["_commit_version"], row["_change_type"]) for row in changes)
    assert kinds == {
        (1, "insert"): 1,
        (2, "insert"): 2,
        (2, "delete"): 1,
        (3, "insert"): 2,
        (3, "delete"): 2,
        (4, "insert"): 1,
        (4, "delete"): 1,
    }


def test_both_see_the_same_plan_lock_and_attempt(spark: SparkSession, location: str) -> None:
    from txnscan.resolve.journal import TablesJournal
    from txnscan.resolve.lock import Lock
    from txnscan.resolve.plan_of_sweep import stored_hanging

    by_spark, by_rust = through_spark(location, spark), open_tables(location, None)
    by_spark.create()
    for number in (1, 2):
        by_spark.write(sweep(number, ORPHAN))
    hanging = stored_hanging(by_rust, "sweep-2")
    assert hanging == stored_hanging(by_spark, "sweep-2")
    times: Any = {"swept_at_ms": NOW_MS, "planned_at_ms": NOW_MS}
    made = make_plan(hanging, Limits(), cluster_id="cluster-1", sweep_id="sweep-2", scope="all", version="1", **times)
    assert [action.marker for action in made.actions] == ["COMMIT"]
    TablesJournal(by_rust).planned(made)
    TablesJournal(by_spark).planned(made)
    TablesJournal(by_spark).check_planned(made)
    with Lock(by_spark, "cluster-1"), pytest.raises(ApplyRunning), Lock(by_rust, "cluster-1"):
        pass
    with Lock(by_rust, "cluster-1") as lock:
        attempt_id = TablesJournal(by_rust, lock).intend(made, made.actions[0], None)
        (attempt,) = TablesJournal(by_spark).attempts("cluster-1")
    assert (attempt.attempt_id, attempt.status, attempt.action.incident_id) == (
        attempt_id,
        None,
        incident_id("cluster-1", ORPHAN),
    )


def test_spark_describes_tables_that_delta_rs_created(spark: SparkSession, location: str) -> None:
    """With their comments, and without a feature that only Spark can write."""
    open_tables(location, None).create()
    # Writer version 4 has the change data feed, and generated columns with it.
    features = {"appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants"}
    for table in TABLES:
        fields = spark.read.format("delta").load(f"{location}/{table.name}").schema.fields
        assert [(f.name, f.metadata.get("comment")) for f in fields] == [(c.name, c.meaning) for c in table.columns]
        (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{location}/{table.name}`").collect()
        assert set(detail["tableFeatures"]) <= features
        assert (detail["clusteringColumns"], detail["partitionColumns"]) == ([], list(table.partitioned_by))
        assert {f"delta.constraints.{check}" for check, _ in table.checks} <= set(detail["properties"])


def test_tables_in_a_schema_of_the_catalog_are_written_and_read(spark: SparkSession) -> None:
    from chispa import assert_df_equality

    spark.sql("CREATE SCHEMA IF NOT EXISTS audit")
    tables = through_spark("spark_catalog.audit", spark)
    try:
        tables.create()
        tables.write(scan(ORPHAN))
        assert len(tables.rows(CANDIDATES)) == 1
        found = spark.table("audit.candidates").select("start_offset", "reason", "late")
        expected = spark.createDataFrame([(100, "orphan", True)], found.schema)
        assert_df_equality(found, expected, ignore_nullable=True)
    finally:
        spark.sql("DROP SCHEMA audit CASCADE")
