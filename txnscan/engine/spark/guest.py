"""A Spark session of txnscan's own beside the user's, in the same application.

A session that is not ours is left as it is. Spark's defaults suit large data: 50 tasks look through the log of a small
table, and each query is compiled to Java, which takes longer than running it. A copy of the user's session has all that
the user has set, and these settings besides.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

# Queries over some hundred rows. One partition holds a snapshot of a table's log, and joins need few. What is merged
# comes from this process and is the same each time, so Delta need not keep a copy of it. Where the machine's own time
# zone is another than UTC, Delta goes through a table's whole log again after each commit, for dates before 1883.
SMALL_QUERIES: Mapping[str, str] = MappingProxyType(
    {
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.merge.materializeSource": "none",
        "spark.databricks.delta.allFilesInCrc.verificationMode.forceOnNonUTC.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # Else Spark warns that it shortens the text of a plan.
        "spark.sql.debug.maxToStringFields": "1000",
    }
)


def own_session(spark: SparkSession) -> SparkSession:
    """A copy of a session, with settings for small queries. The session itself where Spark cannot copy it, as Spark
    Connect; a setting that this Spark does not know or allow is left out.
    """
    try:
        own = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
    except Exception:
        # Py4J and Spark Connect fail in many ways where there is no such method.
        return spark
    for name, value in SMALL_QUERIES.items():
        try:
            own.conf.set(name, value)
        except PySparkException:
            continue
    return own


# PySpark has one active session for all threads of Python.
_activating = threading.Lock()


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """The rows as a DataFrame. PySpark makes its session the active one, and the user's code would find this copy."""
    with _activating, _active_session_restored(spark):
        return spark.createDataFrame(rows)


@contextmanager
def _active_session_restored(spark: SparkSession) -> Iterator[None]:
    kind = type(spark)
    try:
        in_java = kind._get_j_spark_session_class(spark._jvm)
        python, java = kind._activeSession, in_java.getActiveSession()
    except Exception:
        # Spark Connect has its own.
        yield
        return
    try:
        yield
    finally:
        with suppress(Exception):
            kind._activeSession = python
            in_java.setActiveSession(java.get()) if java.isDefined() else in_java.clearActiveSession()
