"""Views for dashboards, run on the tables of three sweeps."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import MINUTE_MS, NOW_MS, judged
from tests.builders import view as claim
from tests.cases import Cases
from tests.process import ROOT
from tests.tables.stored import ORPHAN, STALE, swept
from txnscan import create_views
from txnscan.tables.delta import arrow_rows
from txnscan.tables.open import open_tables, through_spark
from txnscan.tables.schema import TOPIC_READS
from txnscan.tables.views import VIEWS
from txnscan.waiting.cause import Cause
from txnscan.waiting.complete_up_to import PartitionRead, TopicRead, concluded
from txnscan.waiting.impact import BlockedGroup, BlockReason, Impact
from txnscan.waiting.owner import Owner

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from txnscan.sweeps.result import Scan
    from txnscan.verdict.evidence import Judged


def at_ms(number: int) -> int:
    return NOW_MS + number * 10 * MINUTE_MS


def sweep(number: int, *transactions: Judged, **changes: Any) -> Scan:
    times = {"started_at_ms": at_ms(number), "finished_at_ms": at_ms(number) + 2_000}
    return swept(*transactions, sweep_id=f"sweep-{number}", **times, **changes)


def topic_reads(number: int, *partitions: PartitionRead) -> tuple[TopicRead, ...]:
    """Reads of the topics `orders`, with these partitions, and `gone`."""
    of = {"topic_id": "t0", "read_at_ms": at_ms(number)}
    gone = TopicRead("gone", **of, code="UNKNOWN_TOPIC_OR_PARTITION")  # type: ignore[arg-type]
    return concluded(TopicRead("orders", **of, partitions=partitions)), gone  # type: ignore[arg-type]


# A live transaction of two partitions: readers of one of them wait for it.
CLAIM = claim("Ongoing", 3, ("p-1", "q-0"), producer_id=8, start_time_ms=NOW_MS - 6 * MINUTE_MS)
BLOCKING = judged(CLAIM, producer_id=8, partition=1)
BEHIND = judged(CLAIM, producer_id=8, topic="q", second_last_stable_offset=80)
OF_LIVE = Impact(None, None, Owner("X", "Flink", None), groups_blocked=0, groups_asked=4)
WAITING = replace(OF_LIVE, groups=(BlockedGroup("billing", BlockReason.AT_LSO, "Stable", 100, 5),), groups_blocked=1)


IMPACT = Impact(Cause.LATE_WRITE, "a late write", Owner("sink", None, "ask"), event_id="e1")


def in_one_event(*transactions: Judged) -> dict[str, Any]:
    """Impacts of transactions of one event."""
    return {"impacts": {one.observation.transaction_key: IMPACT for one in transactions}}


@pytest.fixture(scope="module")
def seen(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Row]]:
    """The rows of each view, by its name."""
    location = str(tmp_path_factory.mktemp("views") / "tables")
    tables = open_tables(location, None)
    tables.create()
    first = topic_reads(1, PartitionRead(0, 1, 9, 9), PartitionRead(1, 1, 9, 9))
    tables.write(sweep(1, ORPHAN, STALE, **in_one_event(ORPHAN, STALE), topic_reads=first))
    second = topic_reads(2, PartitionRead(0, 1, 12, 10), PartitionRead(1, code="NO_LEADER"))
    impacts = in_one_event(ORPHAN)["impacts"] | {
        BLOCKING.observation.transaction_key: WAITING,
        BEHIND.observation.transaction_key: OF_LIVE,
    }
    last = (ORPHAN, BLOCKING, BEHIND)
    tables.write(sweep(2, *last, partitions_failed=1, impacts=impacts, topic_reads=(second[0], first[1])))
    # A sweep of one topic does not count for the views of current hanging transactions.
    third = concluded(replace(second[0], read_at_ms=at_ms(3), partitions=(PartitionRead(0, 1, 12, 10),)), first)
    tables.write(sweep(3, scope="topic=x", proven={}, topic_reads=(third,)))
    # This sweep was never finished.
    tables.delta.append(TOPIC_READS, arrow_rows(TOPIC_READS.columns, TOPIC_READS.rows(sweep(4), topic_reads(4))))
    return {name: spark.table(view_of).collect() for name, view_of in create_views(spark, location).items()}


def test_the_current_views_use_the_last_full_sweep(seen: dict[str, list[Row]]) -> None:
    assert [(row["sweep_id"], row["partition"]) for row in seen["current_candidates"]] == [("sweep-2", 0)]
    rows = {(row["topic"], row["partition"]): row for row in seen["current_transactions"]}
    verdicts = {which: row["verdict"] for which, row in rows.items()}
    assert verdicts == {("p", 0): "hanging", ("p", 1): "ongoing", ("q", 0): "ongoing"}
    assert "evidence" not in rows["p", 0]


def test_live_transactions_that_hold_readers_back_have_their_owner_groups_and_end(seen: dict[str, list[Row]]) -> None:
    (row,) = seen["blocking_transactions"]
    assert (row["topic"], row["partition"], row["transactional_id"], row["framework"]) == ("p", 1, "X", "Flink")
    assert (row["verdict"], row["blocked_records"], row["groups_blocked"], row["groups"]) == (
        *("ongoing", 5, 1),
        ["billing"],
    )
    assert row["ends_by"] == local(NOW_MS + 9 * MINUTE_MS)


def test_incidents_are_open_or_have_a_time_to_resolve(seen: dict[str, list[Row]]) -> None:
    assert [(row["partition"], row["sweeps"]) for row in seen["open_incidents"]] == [(0, 2)]
    (over,) = seen["time_to_resolve"]
    assert (over["partition"], over["resolved_how"]) == (1, "ended") and over["lasted_s"] > 0
    assert [
        (sum(r["opened"] for r in seen["incidents_by_day"]), sum(r["closed"] for r in seen["incidents_by_day"]))
    ] == [(2, 1)]
    assert [tuple(row)[1:4] for row in seen["worst_topics"]] == [("p", 2, 1)]


def test_an_event_counts_its_incidents(seen: dict[str, list[Row]]) -> None:
    (event,) = seen["events"]
    assert (event["event_id"], event["incidents"], event["open"], event["resolved_at"]) == ("e1", 2, 1, None)
    assert (event["topics"], event["causes"], event["owner_ids"]) == (["p"], ["late_write"], ["sink"])


def test_coverage_is_one_if_everything_was_observed(seen: dict[str, list[Row]]) -> None:
    shares = {row["sweep_id"]: (row["complete"], float(row["partitions"]), row["took_s"]) for row in seen["coverage"]}
    assert shares["sweep-1"] == (True, 1.0, 2) and shares["sweep-2"][:2] == (False, 0.5)


def test_a_topic_is_complete_up_to_the_time_of_its_last_stored_sweep(seen: dict[str, list[Row]]) -> None:
    """A sweep of another scope counts too."""
    found = {row["topic"]: row for row in seen["complete_up_to"]}
    orders, gone = found.pop("orders"), found.pop("gone")
    assert not found
    assert (orders["status"], orders["sweep_id"], orders["code"]) == ("blocked", "sweep-3", None)
    assert (orders["complete_up_to"], orders["read_at"]) == tuple(map(local, (at_ms(1), at_ms(3))))
    assert (orders["blocked"], orders["not_observed"]) == ([0], [])
    assert (gone["status"], gone["complete_up_to"], gone["code"]) == (
        "not_observed",
        None,
        "UNKNOWN_TOPIC_OR_PARTITION",
    )


def local(time_ms: int) -> datetime:
    """A time as Spark's rows have it."""
    return datetime.fromtimestamp(time_ms / 1_000)


BUNDLE = ROOT / "docs" / "deployment" / "databricks"


def queries(board: dict[str, Any]) -> list[tuple[str, str]]:
    """The title and text of every query for dashboards, alerts and checks. They name views without a schema."""
    import yaml

    alerts = yaml.safe_load((BUNDLE / "databricks.yml").read_text("utf-8"))["resources"]["alerts"]
    page = (ROOT / "docs" / "dashboards.md").read_text("utf-8")
    (checks,) = re.findall(r"```sql\n(-- No complete.*?)```", page, re.S)
    return [
        *((one["displayName"], "".join(one["queryLines"])) for one in board["datasets"]),
        *((one["display_name"], re.sub(r"\$\{var\.\w+\}\.", "", one["query_text"])) for one in alerts.values()),
        *((check.splitlines()[0], check) for check in checks.strip().rstrip(";").split(";\n\n")),
    ]


@pytest.mark.usefixtures("seen")
def test_the_queries_of_dashboard_alerts_and_checks_run(spark: SparkSession) -> None:
    """Every query has rows, except the trend of the last week: the sweeps are of 2023."""
    board = json.loads((BUNDLE / "txnscan.lvdash.json").read_text("utf-8"))
    shown = {"".join(one["queryLines"]): one["name"] for one in board["datasets"]}
    for view in VIEWS:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view.name} AS SELECT * FROM txnscan_{view.name}")
    try:
        with Cases() as cases:
            for title, query in queries(board):
                with cases.case(title):
                    found = spark.sql(query)
                    expressions = {
                        field["expression"]
                        for placed in board["pages"][0]["layout"]
                        for asked in placed["widget"]["queries"]
                        if asked["query"]["datasetName"] == shown.get(query)
                        for field in asked["query"]["fields"]
                        if not field["name"].endswith("_associativity")
                    }
                    for expression in sorted(expressions):
                        found.selectExpr(expression)
                    assert found.collect() or title == "Share that was observed"
    finally:
        for view in VIEWS:
            spark.catalog.dropTempView(view.name)


def test_in_a_catalog_the_views_are_created_beside_the_tables(spark: SparkSession) -> None:
    spark.sql("CREATE SCHEMA IF NOT EXISTS viewed")
    try:
        through_spark("spark_catalog.viewed", spark).create()
        made = create_views(spark, "spark_catalog.viewed")
        assert made["coverage"] == "spark_catalog.viewed.coverage"
        assert all(spark.table(name).count() == 0 for name in made.values())
    finally:
        spark.sql("DROP SCHEMA viewed CASCADE")
