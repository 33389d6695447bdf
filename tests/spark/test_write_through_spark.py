"""One write through Spark, which `make test` runs. The others are slow."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.builders import NOW_MS, unobserved
from tests.tables.stored import COMMIT, ONGOING, ORPHAN, YOUNG, read_for, reads_of, swept
from txnscan.tables.open import open_tables, through_spark
from txnscan.tables.schema import CANDIDATES, FACTS, FIRST_SEEN, INCIDENTS, OPEN_TRANSACTIONS, SCAN_ERRORS, SWEEPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITTEN = (FACTS, OPEN_TRANSACTIONS, CANDIDATES, SCAN_ERRORS, FIRST_SEEN, INCIDENTS, SWEEPS)


def test_a_sweep_written_by_spark_is_read_by_both_stores(spark: SparkSession, location: str) -> None:
    from pyspark.sql import functions as F

    by_rust, by_spark = open_tables(location, None), through_spark(location, spark)
    by_rust.create()
    error = unobserved("read", "it's down", 3, "p", 1)
    sweep = swept(ORPHAN, YOUNG, ONGOING, errors=(error,), store_all=True, **read_for(ORPHAN, COMMIT))
    by_spark.write(sweep)
    counts: list[int] = []
    for table in WRITTEN:
        read, read_by_rust = ([repr(row) for row in tables.rows(table)] for tables in (by_spark, by_rust))
        assert sorted(read) == sorted(read_by_rust)
        counts.append(len(read))
    assert counts == [1, 3, 1, 1, 3, 2, 1]
    for tables in (by_spark, by_rust):
        assert list(tables.facts("cluster-1", {7})()[7].reads) == reads_of(sweep)
    started = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    sweeps = spark.read.format("delta").load(f"{location}/sweeps")
    shown = sweeps.select(F.date_format("started_at", "yyyy-MM-dd HH:mm:ss"), F.col("sweep_date"))
    assert [tuple(row) for row in shown.collect()] == [(f"{started:%Y-%m-%d %H:%M:%S}", started.date())]
