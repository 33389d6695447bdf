"""txnscan works in a copy of the user's Spark session. The original is not changed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from txnscan.engine.spark.guest import SMALL_QUERIES, frame_of, own_session
from txnscan.engine.spark.session import spark_defaults
from txnscan.tables.parquet import GROUP_BYTES_MAX
from txnscan.tables.spark import FOR_WRITES, frame_in_tasks

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

USERS = "spark.sql.session.timeZone"


def settings(spark: SparkSession) -> dict[str, str | None]:
    return {name: spark.conf.get(name, None) for name in (USERS, *SMALL_QUERIES)}


def test_the_user_s_session_is_unchanged_and_its_settings_apply(spark: SparkSession) -> None:
    before = settings(spark)
    spark.conf.set(USERS, "Asia/Tokyo")
    spark.createDataFrame([(1,)], "n INT").createOrReplaceTempView("of_the_user")
    try:
        own = own_session(spark)
        assert settings(own) == {USERS: "Asia/Tokyo", **SMALL_QUERIES}
        assert own.table("of_the_user").count() == 1
        own.sql("SELECT 1 AS n").createOrReplaceTempView("of_ours")
        own.conf.set(USERS, "UTC")
        assert settings(spark) == before | {USERS: "Asia/Tokyo"}
        assert not spark.catalog.tableExists("of_ours")
        assert own.sparkContext is spark.sparkContext
    finally:
        spark.catalog.dropTempView("of_the_user")
        spark.conf.set(USERS, str(before[USERS]))


def test_the_active_session_stays_the_users_while_threads_make_frames(spark: SparkSession) -> None:
    active = type(spark).getActiveSession()
    own, rows = own_session(spark), pa.table({"n": [1, 2]})

    def made(_: int) -> bool:
        return frame_of(own, rows).sparkSession is own

    with ThreadPoolExecutor(4) as pool:
        assert made(0) and all(pool.map(made, range(8)))
    assert type(spark).getActiveSession() is active


def test_many_rows_are_written_by_several_tasks(spark: SparkSession) -> None:
    """Spark warns about a task that takes 1,000 KiB, such as the one with 5,000 first observations."""
    own = own_session(spark, FOR_WRITES)
    for count, tasks in ((3, 1), (5_000, 2), (40_000, 9)):
        rows = pa.table({"n": range(count), "text": ["x" * 100] * count})
        frame = frame_in_tasks(own, rows)
        assert frame.rdd.getNumPartitions() == tasks
        assert frame.count() == count


def test_nested_columns_with_nulls_are_written_by_several_tasks(spark: SparkSession) -> None:
    """PySpark refuses a slice of such a column, as the transactions of a sweep with more than 500 KB have it."""
    own = own_session(spark, FOR_WRITES)
    owners = [[{"id": "x" * 400, "at": datetime(2026, 1, 1, tzinfo=UTC)}], None] * 2_000
    frame = frame_in_tasks(own, pa.table({"owners": owners}))
    assert frame.rdd.getNumPartitions() == 2
    assert frame.where("owners IS NULL").count() == 2_000
    assert frame_in_tasks(own, pa.table({"owners": owners}).slice(0, 0)).count() == 0


def test_row_groups_of_spark_are_below_the_limit_of_readers(spark: SparkSession, tmp_path: Path) -> None:
    size = "parquet.block.size"
    assert int(FOR_WRITES[size]) < GROUP_BYTES_MAX
    groups = []
    for block in (FOR_WRITES[size], "1000000"):
        own = own_session(spark, {**FOR_WRITES, size: block})
        own.range(200_000).selectExpr("uuid() AS u").coalesce(1).write.parquet(str(tmp_path / block))
        (file,) = (tmp_path / block).glob("*.parquet")
        groups.append(pq.read_metadata(file).num_row_groups)
    assert groups[0] == 1 < groups[1]


def test_sessions_of_the_command_line_have_the_same_settings() -> None:
    ours = spark_defaults()
    assert {name: ours[name] for name in SMALL_QUERIES if name in ours} == {
        name: value for name, value in SMALL_QUERIES.items() if name != "spark.sql.debug.maxToStringFields"
    }


def test_a_session_that_cannot_be_copied_is_used_directly() -> None:
    class Uncopied:
        sparkContext = None

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(name)

    session = cast("SparkSession", Uncopied())
    assert own_session(session) is session
