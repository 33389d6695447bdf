"""Views for dashboards: each is run on tables that sweeps wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from typer.testing import CliRunner

from tests.builders import MINUTE_MS, NOW_MS, judged, scan, view
from txnscan.cli import app
from txnscan.findings import Scan
from txnscan.model import Judged
from txnscan.store.open import open_tables
from txnscan.store.views import VIEWS, view_statements

ORPHAN = judged()
STALE = judged(view("Empty", 5), partition=1)


def sweep(number: int, *transactions: Judged, **changes: Any) -> Scan:
    at_ms = NOW_MS + number * 10 * MINUTE_MS
    return scan(*transactions, sweep_id=f"sweep-{number}", started_at_ms=at_ms, finished_at_ms=at_ms + 2_000, **changes)


@pytest.fixture(scope="module")
def seen(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Row]]:
    """What each view shows, by its name."""
    location = str(tmp_path_factory.mktemp("views") / "tables")
    tables = open_tables(location, None)
    tables.create()
    tables.write(sweep(1, ORPHAN, STALE))
    tables.write(sweep(2, ORPHAN, partitions_failed=1))
    # Of one topic alone: it is not what hangs now.
    tables.write(sweep(3, scope="topic=x", proven={}))
    for statement in view_statements(location, in_catalog=False):
        spark.sql(statement)
    return {one.name: spark.table(f"txnscan_{one.name}").collect() for one in VIEWS}


def test_what_hangs_now_is_of_the_last_sweep_of_everything(seen: dict[str, list[Row]]) -> None:
    assert [(row["sweep_id"], row["partition"]) for row in seen["current_candidates"]] == [("sweep-2", 0)]
    (row,) = seen["current_transactions"]
    assert row["verdict"] == "hanging" and "evidence" not in row


def test_incidents_are_open_or_have_a_time_to_resolve(seen: dict[str, list[Row]]) -> None:
    assert [(row["partition"], row["sweeps"]) for row in seen["open_incidents"]] == [(0, 2)]
    (over,) = seen["time_to_resolve"]
    assert (over["partition"], over["resolved_how"]) == (1, "ended") and over["lasted_s"] > 0
    assert [
        (sum(r["opened"] for r in seen["incidents_by_day"]), sum(r["closed"] for r in seen["incidents_by_day"]))
    ] == [(2, 1)]
    assert [tuple(row)[1:4] for row in seen["worst_topics"]] == [("p", 2, 1)]


def test_coverage_is_one_where_everything_was_observed(seen: dict[str, list[Row]]) -> None:
    shares = {row["sweep_id"]: (row["complete"], float(row["partitions"]), row["took_s"]) for row in seen["coverage"]}
    assert shares["sweep-1"] == (True, 1.0, 2) and shares["sweep-2"][:2] == (False, 0.5)


def test_in_a_catalog_they_stand_beside_the_tables(spark: SparkSession) -> None:
    spark.sql("CREATE SCHEMA IF NOT EXISTS viewed")
    try:
        open_tables("spark_catalog.viewed", spark).create()
        for statement in view_statements("spark_catalog.viewed", in_catalog=True):
            spark.sql(statement)
        assert spark.table("spark_catalog.viewed.coverage").count() == 0
    finally:
        spark.sql("DROP SCHEMA viewed CASCADE")


def test_the_command_prints_what_can_be_run(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["views", "--tables", str(tmp_path / "tables")])
    assert (ran.exit_code, ran.stdout.count("CREATE OR REPLACE TEMPORARY VIEW txnscan_")) == (0, len(VIEWS))
    ran = CliRunner().invoke(app, ["views", "--tables", "main.txnscan"])
    assert "CREATE OR REPLACE VIEW main.txnscan.open_incidents COMMENT" in ran.stdout
    ran = CliRunner().invoke(app, ["views", "--tables", str(tmp_path / "tables"), "--create"])
    assert ran.exit_code == 2 and ran.stderr.startswith("txnscan: --create: is for tables in a catalog")
