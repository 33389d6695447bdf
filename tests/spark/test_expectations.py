"""Rules for data-quality tools: every constraint of a table, as conditions that Spark evaluates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from tests.cases import Cases
from tests.spark.storing import ORPHAN, STALE, sweep
from txnscan import ConfigError, dqx_rules, expectations
from txnscan.tables.open import open_tables, through_spark
from txnscan.tables.schema import INCIDENTS, TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_table_without_constraints_has_the_rules_of_its_required_columns() -> None:
    for table in TABLES:
        rules = expectations(table.name)
        assert [name for name, _ in table.checks] == list(rules)[-len(table.checks) :] or not table.checks
        assert len(rules) == len(table.checks) + sum(column.required for column in table.columns)


def test_stored_rows_meet_every_expectation_and_a_bad_row_does_not(spark: SparkSession, location: str) -> None:
    written = open_tables(location, None)
    written.create()
    written.write(sweep(1, ORPHAN, STALE))
    tables = through_spark(location, spark)
    with Cases() as cases:
        for table in (one for one in TABLES if one.checks):
            rows = spark.table(tables.delta.name(table))
            with cases.case(table.name):
                met = [F.expr(condition).alias(name) for name, condition in expectations(table.name).items()]
                assert all(all(row.asDict().values()) for row in rows.select(*met).collect())
    bad = spark.table(tables.delta.name(INCIDENTS)).withColumn("sweeps", F.lit(0)).withColumn("topic", F.lit(None))
    of_bad = bad.select(*(F.expr(condition).alias(name) for name, condition in expectations("incidents").items()))
    broken = {name for row in of_bad.collect() for name, is_met in row.asDict().items() if not is_met}
    assert broken == {"sweeps_positive", "topic_is_set"}


def test_dqx_gets_the_same_rules() -> None:
    rules = dqx_rules("incidents")
    assert {rule["name"]: rule["check"]["arguments"]["expression"] for rule in rules} == expectations("incidents")
    assert {(rule["criticality"], rule["check"]["function"]) for rule in rules} == {("error", "sql_expression")}


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(ConfigError, match="'nowhere'"):
        expectations("nowhere")
