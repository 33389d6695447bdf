"""The Delta tables: what a sweep leaves, seen by the next sweep and by dashboards."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.builders import MINUTE_MS, NOW_MS, judged, known, scan, view
from tests.conftest import Opens
from txnscan.config import ConfigError
from txnscan.engine.rows import from_row
from txnscan.findings import Incident, KnownImpact, Scan, Sighting
from txnscan.judge.outcome import best_known, with_outcome
from txnscan.judge.rules import judge
from txnscan.model import (
    BlockedGroup,
    Cause,
    Evidence,
    Impact,
    Judged,
    KnownOutcome,
    Outcome,
    Owner,
    ScanError,
    Siblings,
    Standing,
)
from txnscan.resolve.journal import stored_hanging
from txnscan.store.delta import CHECKPOINT_INTERVAL, REVISION_PROPERTY, By, Renewal, Row, arrow_rows, properties
from txnscan.store.delta_rs import DeltaRs
from txnscan.store.schema import (
    CANDIDATES,
    FIRST_SEEN,
    INCIDENTS,
    OPEN_TRANSACTIONS,
    RESOLUTIONS,
    SCAN_ERRORS,
    SCHEMA_REVISION,
    SWEEPS,
    TABLES,
    incident_id,
)
from txnscan.store.spark import SparkDelta
from txnscan.store.tables import Tables

ORPHAN = judged()
STALE = judged(view("Empty", 5), partition=1)
YOUNG = judged(start_offset=200, second_start_offset=200, first_seen_ms=NOW_MS, last_timestamp_ms=NOW_MS,
               first_high_watermark=300, second_high_watermark=300)  # fmt: skip
ONGOING = judged(view("Ongoing", 3, ("p-0",)), start_offset=90, second_start_offset=90)
ENDED = judged(start_offset=80, second_start_offset=None)
DOUBTFUL = judged(view("Empty", 5, coverage_error="x"), partition=1)
LATER_MS = 5 * MINUTE_MS


@pytest.fixture(scope="module")
def empty(opens: Opens, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tables are that nothing was written to."""
    made = tmp_path_factory.mktemp("empty") / "tables"
    opens(str(made)).create()
    return made


# Tables to which these sweeps were written, in a process that has ended since.
After = Callable[..., Tables]


@pytest.fixture(scope="module")
def written(opens: Opens, empty: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Where tables are that these sweeps were written to. Many tests begin alike, and a write takes Spark seconds."""
    made: list[tuple[tuple[Scan, ...], Path]] = [((), empty)]

    def find(*sweeps: Scan) -> Path:
        for known_sweeps, there in made:
            if known_sweeps == sweeps:
                return there
        there = tmp_path_factory.mktemp("written") / "tables"
        shutil.copytree(empty, there)
        for sweep in sweeps:
            opens(str(there)).write(sweep)
        made.append((sweeps, there))
        return there

    return find


@pytest.fixture
def after(opens: Opens, location: str, written: Callable[..., Path]) -> After:
    def copied(*sweeps: Scan) -> Tables:
        shutil.copytree(written(*sweeps), location)
        return opens(location)

    return copied


@pytest.fixture
def tables(after: After) -> Tables:
    return after()


def next_sweep(number: int, *transactions: Judged, **changes: Any) -> Scan:
    when_ms = NOW_MS + number * LATER_MS
    return scan(
        *transactions, sweep_id=f"sweep-{number}", started_at_ms=when_ms, finished_at_ms=when_ms + 500, **changes
    )


def incidents(tables: Tables) -> dict[str, Row]:
    return {row["incident_id"]: row for row in tables.rows(INCIDENTS)}


def test_a_sweep_leaves_every_transaction_its_candidates_its_errors_and_itself(
    spark: SparkSession, tables: Tables, location: str
) -> None:
    """Whoever wrote the tables, Spark reads them."""
    error = ScanError("read", "broker 3 cannot be reached", 3, "p", 1)
    tables.write(scan(ORPHAN, YOUNG, ONGOING, errors=(error,), partitions_failed=1, store_all=True))

    stored = spark.read.format("delta").load(f"{location}/open_transactions")
    found = stored.select("start_offset", "verdict", "reason", "late", "candidate")
    expected = spark.createDataFrame(
        [
            (90, "ongoing", "owned", False, False),
            (100, "hanging", "orphan", True, True),
            (200, "hanging", "orphan", False, False),
        ],
        found.schema,
    )
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)
    assert [row["start_offset"] for row in tables.read(CANDIDATES, "sweep-1")] == [100]
    (row,) = tables.read(SCAN_ERRORS, "sweep-1")
    assert (row["stage"], row["broker"], row["topic"], row["partition"]) == ("read", 3, "p", 1)
    last = tables.last_sweep()
    assert last is not None
    assert (last["hanging"], last["candidates"], last["complete"], last["partitions_answered"]) == (2, 1, False, 1)


def test_times_are_stored_in_utc(spark: SparkSession, after: After, location: str) -> None:
    tables = after(scan(ORPHAN))
    started = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    (row,) = tables.read(OPEN_TRANSACTIONS, "sweep-1", ("started_at", "sweep_date"))
    assert row == {"started_at": started, "sweep_date": started.date()}
    stored = spark.read.format("delta").load(f"{location}/open_transactions")
    shown = stored.select(F.date_format("started_at", "yyyy-MM-dd HH:mm:ss"), F.col("sweep_date").cast("string"))
    assert [tuple(one) for one in shown.collect()] == [(f"{started:%Y-%m-%d %H:%M:%S}", f"{started:%Y-%m-%d}")]


def test_the_stored_evidence_gives_the_stored_verdict_again(tables: Tables) -> None:
    tables.write(scan(ORPHAN, STALE, ONGOING, YOUNG, store_all=True))
    rows = tables.read(OPEN_TRANSACTIONS, "sweep-1")
    evidence = [from_row(Evidence, row["evidence"]) for row in rows]
    again = {(str(judge(e).verdict), str(judge(e).reason), judge(e).explanation) for e in evidence}
    assert again == {(r["verdict"], r["reason"], r["explanation"]) for r in rows}
    assert len(evidence) == 4


def test_writing_the_same_sweep_twice_leaves_it_once(tables: Tables) -> None:
    tables.write(scan(ORPHAN))
    tables.write(scan(ORPHAN))
    assert [len(tables.rows(table)) for table in (OPEN_TRANSACTIONS, CANDIDATES, SWEEPS)] == [1, 1, 1]
    (incident,) = incidents(tables).values()
    assert incident["sweeps"] == 1


def test_a_sweep_that_broke_off_before_its_last_row_is_not_visible(tables: Tables) -> None:
    tables._append(scan(ORPHAN), OPEN_TRANSACTIONS)
    assert len(tables.read(OPEN_TRANSACTIONS, "sweep-1")) == 0
    assert tables.last_sweep() is None


def test_a_transaction_keeps_the_time_at_which_it_was_first_seen(after: After) -> None:
    tables = after(scan(YOUNG))
    assert tables.last_seen("cluster-1")() == {YOUNG.observation.transaction_key: Sighting(NOW_MS, 3)}
    assert tables.unresolved("cluster-1")() == {YOUNG.observation.transaction_key: Incident(NOW_MS, None)}
    assert tables.last_seen("another cluster")() == {}
    assert tables.unresolved("another cluster")() == {}


def test_what_hangs_keeps_its_age_while_sweeps_cannot_see_it_and_what_does_not_starts_anew(after: After) -> None:
    tables = after(next_sweep(1, ORPHAN, ONGOING))
    tables.write(next_sweep(2, DOUBTFUL, proven={}))
    assert set(tables.unresolved("cluster-1")()) == {ORPHAN.observation.transaction_key}
    assert set(tables.last_seen("cluster-1")()) == {DOUBTFUL.observation.transaction_key}


def test_a_sweep_of_some_topics_does_not_end_the_ages_of_the_others(after: After) -> None:
    tables = after(next_sweep(1, ORPHAN, ONGOING))
    tables.write(next_sweep(2, scope="topic=x"))
    assert set(tables.last_seen("cluster-1")()) == {one.observation.transaction_key for one in (ORPHAN, ONGOING)}


def test_of_two_scopes_that_saw_a_transaction_the_earlier_counts(tables: Tables) -> None:
    observation = replace(ONGOING.observation, first_seen_ms=NOW_MS + 1)
    later = replace(ONGOING, evidence=replace(ONGOING.evidence, observation=observation))
    for number, seen, scope in ((1, later, "topic=p"), (2, ONGOING, "all"), (3, later, "topic=p.*")):
        tables.write(next_sweep(number, seen, scope=scope))
    (last_seen,) = tables.last_seen("cluster-1")().values()
    assert last_seen == Sighting(ONGOING.observation.first_seen_ms, 3)


def test_what_is_healthy_is_counted_by_topic_and_verdict_and_has_no_row(tables: Tables) -> None:
    owed = judged(view("PrepareCommit", 4, ("p-1",)), partition=1, first_seen_ms=NOW_MS)
    tables.write(scan(ORPHAN, ONGOING, ENDED, owed))
    assert [row["start_offset"] for row in tables.read(OPEN_TRANSACTIONS, "sweep-1")] == [100]
    last = tables.last_sweep()
    assert last is not None
    assert [tuple(count.values()) for count in last["healthy"]] == [
        ("p", "gone", 1),
        ("p", "ongoing", 1),
        ("p", "pending_marker", 1),
    ]
    assert set(tables.last_seen("cluster-1")()) == {one.observation.transaction_key for one in (ORPHAN, ONGOING, owed)}


def test_since_when_things_are_open_is_kept_once_however_many_sweeps_there_are(after: After) -> None:
    tables = after(next_sweep(1, ORPHAN, ONGOING))
    for number in (2, 3):
        tables.write(next_sweep(number, ORPHAN, ONGOING))
    assert len(tables.rows(FIRST_SEEN)) == 2


def test_incidents_are_watched_until_they_are_resolved(after: After) -> None:
    tables = after(next_sweep(1, ORPHAN, STALE))
    assert set(tables.unresolved("cluster-1")()) == {
        ORPHAN.observation.transaction_key,
        STALE.observation.transaction_key,
    }
    tables.write(next_sweep(2, ORPHAN))
    assert set(tables.unresolved("cluster-1")()) == {ORPHAN.observation.transaction_key}


@pytest.mark.parametrize("changed", [{"topic_id": "t1"}, {"start_offset": 201}, {"producer_id": 8}, {"partition": 1}])
def test_another_transaction_does_not_inherit_an_age(after: After, changed: dict[str, Any]) -> None:
    tables = after(scan(YOUNG))
    another = replace(YOUNG.observation, **changed).transaction_key
    assert another not in {**tables.last_seen("cluster-1")(), **tables.unresolved("cluster-1")()}


def test_the_next_sweep_knows_where_the_last_stable_offset_stood_and_since_when(tables: Tables) -> None:
    """From the incident; what the second sweep knew of it stays, and its groups are those it saw."""
    group = BlockedGroup("billing", Standing.AT_LSO, "Stable", 100, 5)
    impact = Impact(Cause.NEVER_ADDED, "said so", Owner("sink-3-17", "Flink", "ask"), groups=(group,), groups_blocked=1)
    tables.write(scan(ORPHAN, impacts={ORPHAN.observation.transaction_key: impact}))
    (incident,) = tables.unresolved("cluster-1")().values()
    read_at_ms = ORPHAN.observation.second_read_at_ms
    assert incident.impact == KnownImpact(100, read_at_ms, Cause.NEVER_ADDED, "said so", "sink-3-17")

    again = replace(impact, lso_since_ms=read_at_ms, groups=(), groups_blocked=0)
    later = judged(second_read_at_ms=read_at_ms + LATER_MS)
    at_ms = NOW_MS + LATER_MS
    second = scan(later, impacts={ORPHAN.observation.transaction_key: again}, sweep_id="sweep-2")
    tables.write(replace(second, started_at_ms=at_ms, finished_at_ms=at_ms + 500))
    (incident,) = tables.unresolved("cluster-1")().values()
    assert incident.impact is not None and incident.impact.lso_since_ms == read_at_ms
    rows = sorted(tables.rows(OPEN_TRANSACTIONS), key=lambda row: row["started_at"])
    assert [row["lso_unmoved_ms"] for row in rows] == [None, LATER_MS]
    assert [[one["group"] for one in row["blocked_groups"]] for row in rows] == [["billing"], []]
    (row,) = tables.rows(INCIDENTS)
    assert (row["groups_blocked"], row["framework"]) == (0, "Flink")


def test_an_incident_counts_its_sweeps_and_ends_when_a_sweep_proves_it(after: After) -> None:
    tables = after(next_sweep(1, ORPHAN, STALE))
    tables.write(next_sweep(2, ORPHAN, STALE))
    tables.write(next_sweep(3, ORPHAN))
    rows = incidents(tables)
    still, ended = rows[incident_id("cluster-1", ORPHAN)], rows[incident_id("cluster-1", STALE)]
    assert (still["sweeps"], still["last_sweep_id"], still["resolved_at"]) == (3, "sweep-3", None)
    assert (ended["sweeps"], ended["last_sweep_id"], ended["resolved_how"]) == (2, "sweep-2", "ended")
    assert ended["resolved_at"] > ended["last_seen_at"]


@pytest.mark.parametrize(
    ("why", "changes"),
    [
        ("its partition was not proven", {"proven": {("p", 0): "t0"}}),
        ("no partition was proven", {"proven": {}}),
        ("it is still open, if no longer called hanging", {"transactions": (DOUBTFUL,)}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_an_incident_stays_open_when(after: After, why: str, changes: dict[str, Any]) -> None:
    tables = after(next_sweep(1, STALE))
    tables.write(replace(next_sweep(2), **changes))
    assert incidents(tables)[incident_id("cluster-1", STALE)]["resolved_at"] is None, why


def test_an_incident_of_a_topic_that_was_created_anew_says_so(after: After) -> None:
    tables = after(next_sweep(1, STALE))
    tables.write(next_sweep(2, proven={("p", 1): "t1"}))
    assert incidents(tables)[incident_id("cluster-1", STALE)]["resolved_how"] == "topic_recreated"


def test_an_incident_that_hangs_again_is_open_again(after: After) -> None:
    tables = after(next_sweep(1, STALE))
    tables.write(next_sweep(2))
    tables.write(next_sweep(3, STALE))
    row = incidents(tables)[incident_id("cluster-1", STALE)]
    assert (row["sweeps"], row["resolved_at"], row["resolved_how"]) == (2, None, None)


def test_a_sweep_does_not_end_an_incident_that_another_one_opened_after_it_had_begun(
    opens: Opens, tables: Tables, location: str
) -> None:
    tables.unresolved("cluster-1")()
    opens(location).write(next_sweep(1, STALE))
    tables.write(next_sweep(2))
    assert incidents(tables)[incident_id("cluster-1", STALE)]["resolved_at"] is None


def test_two_sweeps_may_write_at_the_same_time(tables: Tables) -> None:
    sweeps = [next_sweep(number, ORPHAN, STALE) for number in (1, 2, 3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(tables.write, sweeps))
    assert len(tables.rows(SWEEPS)) == 3
    assert len(tables.rows(OPEN_TRANSACTIONS)) == 6
    assert len(tables.rows(INCIDENTS)) == 2


def test_every_column_says_what_it_means_and_every_row_keeps_its_table_s_checks(
    spark: SparkSession, tables: Tables, location: str
) -> None:
    """Whoever made the tables, both see that."""
    for table in TABLES:
        fields = spark.read.format("delta").load(f"{location}/{table.name}").schema.fields
        assert [(f.name, f.metadata.get("comment")) for f in fields] == [(c.name, c.meaning) for c in table.columns]
        assert DeltaTable(f"{location}/{table.name}").metadata().description == table.meaning
    guilty = [{**row, "verdict": "guilty"} for row in OPEN_TRANSACTIONS.rows(scan(), [ORPHAN])]
    nobodys = [{**row, "cluster_id": None} for row in OPEN_TRANSACTIONS.rows(scan(), [ORPHAN])]
    for store in (SparkDelta(spark, location), DeltaRs(location)):
        for rows in (guilty, nobodys):
            with pytest.raises(Exception, match=r"verdict|cluster_id|validation"):  # each library has its own
                store.append(OPEN_TRANSACTIONS, arrow_rows(OPEN_TRANSACTIONS.columns, rows))
    assert tables.rows(OPEN_TRANSACTIONS) == []


def test_tables_need_no_writer_feature_that_only_spark_has(spark: SparkSession, tables: Tables, location: str) -> None:
    # Writer version 4 has the feed of changes, and generated columns with it.
    features = {"appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants"}
    for table in TABLES:
        (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{location}/{table.name}`").collect()
        assert set(detail["tableFeatures"]) <= features
        assert (detail["clusteringColumns"], detail["partitionColumns"]) == ([], list(table.partitioned_by))
        properties = detail["properties"]
        assert properties["txnscan.schemaVersion"] == "1"
        assert {f"delta.constraints.{check}" for check, _ in table.checks} <= set(properties)


def test_ages_that_are_lost_are_begun_anew_and_nothing_else_is(tables: Tables, location: str) -> None:
    """Tables of a version before there were ages have none, and need not be refused for it."""
    tables.write(scan(ORPHAN, ONGOING))
    shutil.rmtree(f"{location}/first_seen")
    said: list[str] = []
    tables.create(said.append)
    assert [line.partition(" is made anew")[0] for line in said] == [tables.delta.name(FIRST_SEEN)]
    assert tables.last_seen("cluster-1")() == {}
    assert set(tables.unresolved("cluster-1")()) == {ORPHAN.observation.transaction_key}


def test_creating_twice_changes_nothing(tables: Tables, location: str) -> None:
    before = [DeltaTable(f"{location}/{table.name}").version() for table in TABLES]
    tables.create()
    assert [DeltaTable(f"{location}/{table.name}").version() for table in TABLES] == before


def test_tables_live_in_a_schema_of_the_catalog_too(spark: SparkSession) -> None:
    spark.sql("CREATE SCHEMA IF NOT EXISTS audit")
    tables = Tables(SparkDelta(spark, "spark_catalog.audit"))
    try:
        tables.create()
        tables.write(scan(ORPHAN))
        assert spark.table("audit.candidates").count() == 1
    finally:
        spark.sql("DROP SCHEMA audit CASCADE")


def test_a_location_that_cannot_be_written_is_one_sentence(opens: Opens, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(ConfigError) as raised:
        opens(str(tmp_path / "file" / "tables")).create()
    assert str(raised.value).startswith("--tables: ") and "\n" not in str(raised.value)


def test_a_table_of_another_make_is_refused(opens: Opens, location: str) -> None:
    write_deltalake(f"{location}/sweeps", pa.table({"sweep_id": pa.array([], pa.string())}))
    with pytest.raises(ConfigError, match="not of this version"):
        opens(location).create()


def test_tables_of_an_earlier_version_get_the_columns_that_are_new_and_that_is_said(
    spark: SparkSession, opens: Opens, after: After, location: str
) -> None:
    after(scan(ORPHAN))
    old = f"{location}-old"
    for table in TABLES:
        columns = [c.name for c in table.columns if c.name not in ("warnings", "os_user", "principal")]
        stored = spark.read.format("delta").load(f"{location}/{table.name}")
        stored.select(*columns).write.format("delta").save(f"{old}/{table.name}")
    said: list[str] = []
    upgraded = opens(old)
    upgraded.create(said.append)
    assert sorted(said[:2]) == [
        f"{upgraded.delta.name(RESOLUTIONS)} is of an earlier version of txnscan: added os_user, principal",
        f"{upgraded.delta.name(SWEEPS)} is of an earlier version of txnscan: added warnings",
    ]
    assert said[2:] == [RENEWED.format(old)]
    upgraded.write(next_sweep(2, ORPHAN, warnings=("w",)))
    rows = upgraded.rows(SWEEPS, order=(By("started_at"),))
    assert [row["warnings"] for row in rows] == [None, ["w"]]
    upgraded.create(said.append)
    assert len(said) == 3


RENEWED = "{} is of an earlier version of txnscan: renewed its constraints and properties"


def test_tables_of_an_earlier_revision_get_the_constraints_and_properties_of_this_one(
    opens: Opens, tables: Tables, location: str
) -> None:
    """Once: what is there and what is new need not be written alike."""
    narrow = {"verdict_known": "verdict IN ('hanging')", "no_more": "partition < 1000"}
    tables.delta.renew(OPEN_TRANSACTIONS, Renewal(["verdict_known"], narrow, {"delta.checkpointInterval": "10"}))
    tables.delta.renew(SWEEPS, Renewal([], {}, {REVISION_PROPERTY: "0"}))
    with pytest.raises(Exception, match=r"verdict|validation"):
        tables.write(scan(ONGOING, store_all=True))
    said: list[str] = []
    renewed = opens(location)
    renewed.create(said.append)
    assert said == [RENEWED.format(location)]
    checks = {check for check, _ in OPEN_TRANSACTIONS.checks}
    has = renewed.delta.properties(OPEN_TRANSACTIONS)
    assert {key.removeprefix("delta.constraints.") for key in has if key.startswith("delta.constraints.")} == checks
    assert has["delta.checkpointInterval"] == str(CHECKPOINT_INTERVAL)
    renewed.write(next_sweep(2, ONGOING, store_all=True))
    assert [row["verdict"] for row in renewed.read(OPEN_TRANSACTIONS, "sweep-2")] == ["ongoing"]
    guilty = [{**row, "verdict": "guilty"} for row in OPEN_TRANSACTIONS.rows(scan(), [ORPHAN])]
    with pytest.raises(Exception, match=r"verdict|validation"):
        renewed.delta.append(OPEN_TRANSACTIONS, arrow_rows(OPEN_TRANSACTIONS.columns, guilty))
    before = [DeltaTable(f"{location}/{table.name}").version() for table in TABLES]
    opens(location).create(said.append)
    assert len(said) == 1
    assert [DeltaTable(f"{location}/{table.name}").version() for table in TABLES] == before


def test_two_sweeps_may_renew_the_tables_at_the_same_time(opens: Opens, tables: Tables, location: str) -> None:
    tables.delta.renew(OPEN_TRANSACTIONS, Renewal(["verdict_known"], {"verdict_known": "verdict = 'hanging'"}, {}))
    tables.delta.renew(SWEEPS, Renewal([], {}, {REVISION_PROPERTY: "0"}))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: opens(location).create(), range(2)))
    tables.create()
    tables.write(scan(ONGOING, store_all=True))
    assert [row["verdict"] for row in tables.read(OPEN_TRANSACTIONS, "sweep-1")] == ["ongoing"]


def test_tables_of_a_later_revision_are_written_and_left_as_they_are(tables: Tables) -> None:
    wider = {"step_known": "step <> 'nothing'"}
    tables.delta.renew(RESOLUTIONS, Renewal(["step_known"], wider, {}))
    tables.delta.renew(SWEEPS, Renewal([], {}, {REVISION_PROPERTY: str(SCHEMA_REVISION + 1)}))
    said: list[str] = []
    tables.create(said.append)
    assert said == []
    assert "nothing" in tables.delta.properties(RESOLUTIONS)["delta.constraints.step_known"]


def test_constraints_that_what_is_stored_does_not_keep_are_one_sentence(tables: Tables) -> None:
    rows = OPEN_TRANSACTIONS.rows(scan(), [ORPHAN])
    tables.delta.renew(OPEN_TRANSACTIONS, Renewal(["partition_not_negative"], {}, {}))
    nowhere = arrow_rows(OPEN_TRANSACTIONS.columns, [{**row, "partition": -1} for row in rows])
    tables.delta.append(OPEN_TRANSACTIONS, nowhere)
    tables.delta.renew(SWEEPS, Renewal([], {}, {REVISION_PROPERTY: "0"}))
    with pytest.raises(ConfigError) as raised:
        tables.create()
    assert str(raised.value).startswith("--tables: ") and "\n" not in str(raised.value)


def test_whoever_changes_a_constraint_or_property_raises_the_revision() -> None:
    """Else tables that are there keep theirs. Put the new digest here, under the next number."""
    kept = {table.name: {**properties(table), REVISION_PROPERTY: ""} for table in TABLES}
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]
    assert (SCHEMA_REVISION, digest) == (1, "7190a61c0132")


def test_tables_of_a_later_schema_are_refused(spark: SparkSession, tables: Tables, location: str) -> None:
    spark.sql(f"ALTER TABLE delta.`{location}/sweeps` ADD COLUMNS (later STRING)")
    tables.create()
    spark.sql(f"ALTER TABLE delta.`{location}/sweeps` SET TBLPROPERTIES ('txnscan.schemaVersion' = '2')")
    with pytest.raises(ConfigError, match="has tables of schema version 2, and this txnscan writes 1; use the version"):
        tables.create()


def test_a_creation_that_broke_off_is_taken_up_again(tables: Tables, location: str) -> None:
    for name in ("candidates", "sweeps"):
        shutil.rmtree(f"{location}/{name}")
    tables.create()
    tables.write(scan(ORPHAN))
    assert len(tables.read(CANDIDATES, "sweep-1")) == 1


def test_the_rest_is_not_made_anew_where_the_table_of_sweeps_is_gone(after: After, location: str) -> None:
    tables = after(scan(ORPHAN))
    shutil.rmtree(f"{location}/sweeps")
    with pytest.raises(ConfigError, match=r"sweeps of .* is gone or without a _delta_log"):
        tables.create()
    with pytest.raises(ConfigError, match=r"sweeps of .* is gone"):
        tables.last_sweep()


def test_a_place_without_tables_says_so(opens: Opens, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no tables of txnscan"):
        opens(str(tmp_path / "nowhere")).last_sweep()


# --- what is known of an outcome --------------------------------------------------------------------------------------

KNOWN = known(
    "committed",
    "it committed",
    siblings=Siblings(("q-0", "r-1"), (4,), NOW_MS),
    owner_committed=True,
    evidence=("offset 1: PrepareCommit",),
)


def hanging(start_offset: int, outcome: KnownOutcome) -> Judged:
    marks = {"first_high_watermark": 300, "second_high_watermark": 300}
    return with_outcome(judged(start_offset=start_offset, second_start_offset=start_offset, **marks), outcome)


def test_what_is_known_of_an_incident_is_read_back_as_it_was(after: After) -> None:
    tables = after(next_sweep(1, hanging(100, KNOWN)))
    (incident,) = tables.unresolved("cluster-1")().values()
    assert incident.known == KNOWN


def test_of_two_sweeps_that_know_different_things_the_tables_keep_what_is_best_known(tables: Tables) -> None:
    pairs = {100 + n: pair for n, pair in enumerate(itertools.product(Outcome, repeat=2))}
    first, second = (
        {at: known(pair[which], f"{which}", settled=bool(which)) for at, pair in pairs.items()} for which in (0, 1)
    )
    tables.write(next_sweep(1, *(hanging(at, one) for at, one in first.items())))
    # As where an incident was resolved in between: the second sweep did not know of the first one's.
    tables.write(next_sweep(2, *(hanging(at, one) for at, one in second.items())))
    kept = {row["start_offset"]: row for row in incidents(tables).values()}
    for at in pairs:
        best = best_known(first[at], second[at])
        assert (kept[at]["outcome"], kept[at]["outcome_settled"]) == (best.outcome.value, True), pairs[at]
        assert kept[at]["outcome_reason"] in best.why, pairs[at]


def test_what_was_known_of_one_epoch_counts_against_an_abort_alone_once_others_have_joined_it(tables: Tables) -> None:
    pairs = {100 + n: pair for n, pair in enumerate(itertools.product(Outcome, repeat=2))}
    first, second = (
        {at: known(pair[n], f"{n}", settled=n == 0, producer_epoch=3 + n) for at, pair in pairs.items()} for n in (0, 1)
    )
    tables.write(next_sweep(1, *(hanging(at, one) for at, one in first.items())))
    tables.write(next_sweep(2, *(hanging(at, one) for at, one in second.items())))
    kept = {row["start_offset"]: row for row in incidents(tables).values()}
    for at in pairs:
        best = best_known(first[at], second[at])
        found = (kept[at]["outcome"], kept[at]["outcome_settled"], kept[at]["outcome_epoch"])
        assert found == (best.outcome.value, False, 4), pairs[at]
        assert kept[at]["outcome_reason"] in best.why, pairs[at]


def test_what_was_known_of_an_incident_outlives_its_being_resolved(after: After) -> None:
    tables = after(next_sweep(1, hanging(100, KNOWN)))
    tables.write(next_sweep(2))
    assert tables.unresolved("cluster-1")() == {}
    tables.write(next_sweep(3, hanging(100, known("unknown", "the log holds nothing"))))
    (row,) = incidents(tables).values()
    assert (row["outcome"], row["outcome_reason"], row["owner_committed"]) == ("committed", "it committed", True)
    assert row["siblings"]["partitions"] == ["q-0", "r-1"] and row["resolved_at"] is None


def test_what_an_apply_learns_is_added_to_what_is_known(tables: Tables) -> None:
    unknown = hanging(100, known("unknown", "nothing tells", siblings=KNOWN.siblings))
    tables.write(next_sweep(1, unknown, hanging(200, known("unknown", "nothing tells"))))
    tables.remember(incident_id("cluster-1", unknown), known("maybe_committed", "q-0 has a COMMIT marker"))
    kept = {row["start_offset"]: row for row in incidents(tables).values()}
    assert (kept[100]["outcome"], kept[100]["outcome_reason"]) == ("maybe_committed", "q-0 has a COMMIT marker")
    assert kept[100]["siblings"]["marker_epochs"] == [4]
    assert kept[200]["outcome"] == "unknown"


def test_a_plan_rests_on_the_best_that_is_known_and_on_what_the_last_sweep_could_not_read(after: After) -> None:
    tables = after(next_sweep(1, hanging(100, KNOWN)))
    lost = known("unknown", "the log holds nothing", settled=False, log_error="broker 2 cannot be reached")
    tables.write(next_sweep(2, hanging(100, lost)))
    (stored,) = stored_hanging(tables, "sweep-2")
    assert (stored.outcome, stored.outcome_reason, stored.owner_committed) == ("committed", "it committed", True)
    assert stored.log_error == "broker 2 cannot be reached"
