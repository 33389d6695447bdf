"""A Spark session of txnscan's own beside the user's session, in the same application.

The user's session is not changed. Spark's defaults suit large data: 50 tasks search the log of a small table, and each
query is compiled to Java, which takes longer than running it. A copy of the user's session has all settings of the
user, and also these settings.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from txnscan.engine.spark.errors import require_pyspark

# For queries over some hundred rows. A snapshot of a table's log fits in one partition, and joins need few partitions.
# The source of a merge is in this process and the same each time, so Delta need not keep a copy of it. If the machine's
# time zone is not UTC, Delta reads a table's whole log again after each commit, for dates before 1883.
SMALL_QUERIES: Mapping[str, str] = MappingProxyType(
    {
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.merge.materializeSource": "none",
        "spark.databricks.delta.allFilesInCrc.verificationMode.forceOnNonUTC.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # Otherwise Spark warns that it shortens the text of a plan.
        "spark.sql.debug.maxToStringFields": "1000",
    }
)

# Functions of Spark SQL that call a method of any class.
_CALLS_JAVA = frozenset({"java_method", "reflect", "try_reflect"})


def own_session(spark: SparkSession, settings: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """A copy of a session, with settings for small queries and these settings. The session itself if Spark cannot copy
    it, as in Spark Connect. Settings that this Spark does not know or allow are left out. The copy lacks the functions
    that call Java.

    Raises SparkUnavailable if PySpark is too old.
    """
    require_pyspark()
    try:
        own = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
    except Exception:
        # If the method is missing, Py4J and Spark Connect fail in many ways.
        return spark
    _forget_java(own)
    for name, value in {**SMALL_QUERIES, **settings}.items():
        try:
            own.conf.set(name, value)
        except PySparkException:
            continue
    return own


def _forget_java(own: SparkSession) -> None:
    """Takes the functions that call any method of Java from a copy of a session. Expressions of a table's metadata are
    examined before a table is used, and a writer of the table could change them in between.
    """
    registry = own._jsparkSession.sessionState().functionRegistry()
    functions = registry.listFunction()
    # All names in one call to the JVM.
    for at, name in enumerate(functions.mkString("\n").split("\n")):
        if name.rpartition(".")[2] in _CALLS_JAVA:
            registry.dropFunction(functions.apply(at))


# PySpark has one active session for all threads of Python.
_activating = threading.Lock()


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """The rows as a DataFrame. PySpark makes its session the active session, and user code would then see this copy."""
    with _activating, _active_session_restored(spark):
        return spark.createDataFrame(rows)


@contextmanager
def _active_session_restored(spark: SparkSession) -> Iterator[None]:
    kind = type(spark)
    try:
        in_java = kind._get_j_spark_session_class(spark._jvm)
        python, java = kind._activeSession, in_java.getActiveSession()
    except Exception:
        # Spark Connect has its own active session.
        yield
        return
    try:
        yield
    finally:
        with suppress(Exception):
            kind._activeSession = python
            in_java.setActiveSession(java.get()) if java.isDefined() else in_java.clearActiveSession()
