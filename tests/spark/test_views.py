"""Views for dashboards: each is run on tables that sweeps wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import Row, SparkSession
from typer.testing import CliRunner

from tests.builders import MINUTE_MS, NOW_MS, judged, scan, view
from tests.process import ROOT
from txnscan import create_views
from txnscan.cli import app
from txnscan.findings import Scan
from txnscan.model import Judged
from txnscan.store.open import open_tables
from txnscan.store.views import VIEWS

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
    return {name: spark.table(view_of).collect() for name, view_of in create_views(spark, location).items()}


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


BUNDLE = ROOT / "docs" / "deployment" / "databricks"
BOARD = json.loads((BUNDLE / "txnscan.lvdash.json").read_text("utf-8"))


def queries() -> list[tuple[str, str]]:
    """Every query in the docs for dashboards, alerts and checks, in which a view stands by its own name."""
    alerts = yaml.safe_load((BUNDLE / "databricks.yml").read_text("utf-8"))["resources"]["alerts"]
    page = (ROOT / "docs" / "dashboards.md").read_text("utf-8")
    (checks,) = re.findall(r"```sql\n(-- No complete.*?)```", page, re.S)
    return [
        *((one["displayName"], "".join(one["queryLines"])) for one in BOARD["datasets"]),
        *((one["display_name"], re.sub(r"\$\{var\.\w+\}\.", "", one["query_text"])) for one in alerts.values()),
        *((check.splitlines()[0], check) for check in checks.strip().rstrip(";").split(";\n\n")),
    ]


@pytest.mark.parametrize(("title", "query"), queries(), ids=[title for title, _ in queries()])
def test_the_queries_of_dashboard_alerts_and_checks_are_answered(
    spark: SparkSession, seen: dict[str, list[Row]], title: str, query: str
) -> None:
    for view_of in VIEWS:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view_of.name} AS SELECT * FROM txnscan_{view_of.name}")
    try:
        found = spark.sql(query)
        shown = {"".join(one["queryLines"]): one["name"] for one in BOARD["datasets"]}
        fields = {
            field["name"]
            for placed in BOARD["pages"][0]["layout"]
            for asked in placed["widget"]["queries"]
            if asked["query"]["datasetName"] == shown.get(query)
            for field in asked["query"]["fields"]
        }
        assert fields <= set(found.columns)
        # Of sweeps of the year 2023: the trend of a week has none.
        assert found.collect() or title == "Share that was observed"
    finally:
        for view_of in VIEWS:
            spark.catalog.dropTempView(view_of.name)


def test_the_page_of_views_has_each_with_its_meaning() -> None:
    page = (ROOT / "docs" / "dashboards.md").read_text("utf-8")
    assert re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.M) == [(one.name, one.meaning) for one in VIEWS]


def test_in_a_catalog_they_stand_beside_the_tables(spark: SparkSession) -> None:
    spark.sql("CREATE SCHEMA IF NOT EXISTS viewed")
    try:
        open_tables("spark_catalog.viewed", spark).create()
        made = create_views(spark, "spark_catalog.viewed")
        assert made["coverage"] == "spark_catalog.viewed.coverage"
        assert all(spark.table(name).count() == 0 for name in made.values())
    finally:
        spark.sql("DROP SCHEMA viewed CASCADE")


def test_the_command_prints_what_can_be_run(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["views", "--tables", str(tmp_path / "tables")])
    assert (ran.exit_code, ran.stdout.count("CREATE OR REPLACE TEMPORARY VIEW txnscan_")) == (0, len(VIEWS))
    ran = CliRunner().invoke(app, ["views", "--tables", "main.txnscan"])
    assert "CREATE OR REPLACE VIEW main.txnscan.open_incidents COMMENT" in ran.stdout
    ran = CliRunner().invoke(app, ["views", "--tables", str(tmp_path / "tables"), "--create"])
    assert ran.exit_code == 2 and ran.stderr.startswith("txnscan: --create: is for tables in a catalog")
