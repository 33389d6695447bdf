"""Tables that somebody changed: what a user may add still works, and nothing of a table runs in Spark's JVM."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cases import Cases
from tests.tables.stored import next_sweep
from txnscan import create_views
from txnscan import table as stored_table
from txnscan.config import ConfigError, Location
from txnscan.engine.spark.guest import own_session
from txnscan.tables.conditions import Is
from txnscan.tables.creation import check_files
from txnscan.tables.delta import arrow_rows
from txnscan.tables.delta_rs import DeltaRs
from txnscan.tables.metadata import TableRefused
from txnscan.tables.open import open_tables, through_spark
from txnscan.tables.schema import SWEEPS
from txnscan.tables.spark import SparkDelta

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

# The statements of a user, on the table `{}`.
ALLOWED = {
    "clusters": "REPLACE TABLE {} USING DELTA CLUSTER BY (sweep_id) AS SELECT * FROM {}",
    "deletion vectors": "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "column mapping": "ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "row tracking": "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    "in-commit timestamps": "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
    "change feed": "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    "checkpoints of version 2": "ALTER TABLE {} SET TBLPROPERTIES "
    "('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '1')",
    "features that nothing uses": "ALTER TABLE {} SET TBLPROPERTIES ('delta.minReaderVersion' = '3', "
    "'delta.minWriterVersion' = '7', 'delta.feature.allowColumnDefaults' = 'supported', "
    "'delta.feature.identityColumns' = 'supported')",
    "columns": "ALTER TABLE {} ADD COLUMNS (team STRING, more STRUCT<a: ARRAY<DECIMAL(10, 2)>>)",
    "properties": "ALTER TABLE {} SET TBLPROPERTIES ('team' = 'me', 'a.default' = 'reflect()')",
}


def test_tables_that_users_changed_in_allowed_ways_still_work(spark: SparkSession, tmp_path: Path) -> None:
    """Created by Spark or by delta-rs, changed by a user, and then used through Spark."""
    own = own_session(spark)
    rows = [arrow_rows(SWEEPS.columns, SWEEPS.rows(one, [one])) for one in (next_sweep(1), next_sweep(2))]
    with Cases() as cases:
        for number, (name, statement) in enumerate(ALLOWED.items()):
            location = f"{tmp_path}/{number}"
            delta = SparkDelta(own, Location.of(location))
            creates = (delta, DeltaRs(Location.of(location)))[number % 2]
            with cases.case(f"{name}, created by {type(creates).__name__}"):
                creates.create(SWEEPS)
                creates.append(SWEEPS, rows[0])
                own.sql(statement.replace("{}", f"delta.`{location}/sweeps`"))
                delta.append(SWEEPS, rows[1])
                assert delta.delete(SWEEPS, Is("sweep_id", "sweep-1")) == 1
                delta.compact(SWEEPS)
                (row,) = delta.read(SWEEPS)
                assert row["sweep_id"] == "sweep-2" and set(row) == {column.name for column in SWEEPS.columns}
                check_files(delta)


def planted(location: str, table: str, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """Adds a commit that changes the table's metadata and its schema, as a writer of the folder could."""
    log = Path(location, table, "_delta_log")
    commits = sorted(log.glob("*.json"))
    lines = [json.loads(line) for commit in commits for line in commit.read_text("utf-8").splitlines()]
    metadata = [line["metaData"] for line in lines if "metaData" in line][-1]
    schema = json.loads(metadata["schemaString"])
    change(metadata, schema)
    metadata["schemaString"] = json.dumps(schema)
    features = ["deletionVectors"]
    writes = [*features, "allowColumnDefaults", "appendOnly", "checkConstraints", "generatedColumns", "invariants"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": writes}
    added = [{"protocol": protocol}, {"metaData": metadata}]
    text = "".join(f"{json.dumps(one)}\n" for one in added)
    (log / f"{len(commits):020}.json").write_text(text, "utf-8")


RUNS = "reflect('java.lang.System', 'setProperty', 'txnscan.test', 'ran')"


def add(column: dict[str, Any]) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda metadata, schema: schema["fields"].append({"name": "z", "type": "string", "nullable": True} | column)


def constrain(name: str, condition: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda metadata, schema: metadata["configuration"].update({f"delta.constraints.{name}": condition})


INVARIANT = json.dumps({"expression": {"expression": f"{RUNS} IS NULL OR true"}})
NESTED = {"type": "struct", "fields": [{"name": "a", "type": "string", "nullable": True,
                                        "metadata": {"delta.generationExpression": RUNS}}]}  # fmt: skip
HOSTILE = {
    "a generated column": add({"metadata": {"delta.generationExpression": RUNS}}),
    "a default": add({"metadata": {"CURRENT_DEFAULT": RUNS, "EXISTS_DEFAULT": RUNS}}),
    "an invariant": add({"metadata": {"delta.invariants": INVARIANT}}),
    "a constraint": constrain("z", f"{RUNS} IS NULL OR true"),
    "a constraint in place of txnscan's": constrain("finished_after_start", f"{RUNS} IS NULL OR true"),
    "a generated column in a struct": add({"type": NESTED, "metadata": {}}),
}


def property_of(spark: SparkSession) -> Any:
    jvm: Any = spark.sparkContext._jvm
    return jvm.java.lang.System.getProperty("txnscan.test")


def test_an_expression_in_a_table_is_never_evaluated(spark: SparkSession, tmp_path: Path) -> None:
    own = own_session(spark)
    rows = arrow_rows(SWEEPS.columns, SWEEPS.rows(next_sweep(1), [next_sweep(1)]))
    with Cases() as cases:
        for name, change in HOSTILE.items():
            location = str(tmp_path / name.replace(" ", "-"))
            delta = SparkDelta(own, Location.of(location))
            delta.create(SWEEPS)
            assert delta.columns(SWEEPS)
            planted(location, "sweeps", change)
            uses: dict[str, Callable[[], Any]] = {
                "append, after it was opened": partial(delta.append, SWEEPS, rows),
                "read": partial(delta.read, SWEEPS),
                "create": through_spark(location, spark).create,
                "a DataFrame of a user": partial(stored_table, spark, location, "sweeps"),
                "views of a user": partial(create_views, spark, location),
                "delta-rs": open_tables(location, None).create,
                "delta-rs, by its own reading": partial(DeltaRs(Location.of(location)).columns, SWEEPS),
                "a session chooses": partial(open_tables, location, spark),
            }
            for use, call in uses.items():
                with cases.case(f"{name}: {use}"):
                    with pytest.raises(TableRefused):
                        call()
                    assert property_of(spark) is None


def test_delta_itself_is_asked_where_files_of_the_log_cannot_be_read(
    spark: SparkSession, catalog_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In catalogs and object stores; and if Delta's classes are out of reach, the catalog."""
    delta = SparkDelta(spark, Location.of(catalog_schema))
    delta.check(SWEEPS)
    delta.create(SWEEPS)
    location = str(delta.files(SWEEPS)).removeprefix("file:")
    delta.check(SWEEPS)
    with monkeypatch.context() as patched:
        patched.setattr("txnscan.tables.spark.last_actions", lambda *_: None)
        delta.check(SWEEPS)
    with Cases() as cases:
        for name in ("a generated column", "a constraint"):
            planted(location, "", HOSTILE[name])
            with cases.case(name), pytest.raises(TableRefused):
                delta.check(SWEEPS)
        with cases.case("by properties"), monkeypatch.context() as patched:
            patched.setattr("txnscan.tables.spark.last_actions", lambda *_: None)
            with pytest.raises(TableRefused):
                delta.check(SWEEPS)
    assert property_of(spark) is None


def test_a_table_that_changes_after_it_was_examined_cannot_call_java(
    spark: SparkSession, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta = SparkDelta(own_session(spark), Location.of(location))
    delta.create(SWEEPS)
    monkeypatch.setattr(SparkDelta, "check", lambda *_, **__: None)
    planted(location, "sweeps", HOSTILE["a generated column"])
    with pytest.raises(Exception, match="UNRESOLVED_ROUTINE"):
        delta.append(SWEEPS, arrow_rows(SWEEPS.columns, SWEEPS.rows(next_sweep(1), [next_sweep(1)])))
    assert property_of(spark) is None
    for function in ("reflect", "java_method", "try_reflect", "system.builtin.reflect"):
        query = f"SELECT {function}('java.lang.System', 'getProperty', 'user.dir')"
        with pytest.raises(Exception, match="SQLSTATE"):
            own_session(spark).sql(query).collect()
    # The user's session keeps them.
    assert spark.sql("SELECT reflect('java.lang.System', 'getProperty', 'user.dir')").collect()


def test_what_delta_rs_cannot_read_is_named(location: str) -> None:
    tables = open_tables(location, None)
    tables.create()
    planted(location, "sweeps", lambda metadata, schema: schema.update(type="map"))
    with pytest.raises(ConfigError, match="sweeps"):
        tables.create()
