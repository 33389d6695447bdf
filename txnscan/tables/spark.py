"""The Delta tables through Spark: at any location that Spark reaches, and in catalogs."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from txnscan.config import ConfigError, Location
from txnscan.engine.rows import spark_type
from txnscan.engine.spark.errors import spark_reason
from txnscan.engine.spark.guest import frame_of
from txnscan.engine.spark.jobs import inheriting
from txnscan.sweeps.column import StoredColumn
from txnscan.sweeps.result import Scan
from txnscan.tables.conditions import SPARK, Condition, spark_text
from txnscan.tables.delta import Answer, By, Compacted, Matched, NotMatched, Row, arrow_rows, from_arrow, properties
from txnscan.tables.delta_log import Examination
from txnscan.tables.exclusive import Setting, why_not_exclusive
from txnscan.tables.metadata import check, parsed
from txnscan.tables.schema import TABLES, Table

# Delta's errors for a conflicting commit of rows, or of a change of the table itself.
_CONFLICTS = ("Concurrent", "MetadataChanged", "ProtocolChanged")
_CONFLICTS_BY_NAME = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
_TASK_BYTES = 500_000
FOR_WRITES: Mapping[str, str] = MappingProxyType(
    {
        # Spark unites frames of at most this size into one task, whatever the number of frames.
        "spark.sql.execution.arrow.localRelationThreshold": "250KB",
        # Of a row group. By default 128 MiB, which exceeds the limits of `parquet.py`.
        "parquet.block.size": str(64 << 20),
    }
)
# A setting that every cluster of Databricks has.
_DATABRICKS = "spark.databricks.clusterUsageTags.sparkVersion"
# Errors of Spark and Delta for a missing table.
_ABSENT = ("DELTA_TABLE_NOT_FOUND", "PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE")


class SparkDelta:
    """See `delta.Delta`."""

    def __init__(self, spark: SparkSession, location: Location) -> None:
        self.location = location
        self._spark = spark
        # Files of this machine, if the session's Hadoop finds the path here.
        folder = location.path
        self._examinations = (
            {table.name: Examination(table, folder / table.name) for table in TABLES} if folder is not None else {}
        )

    def name(self, table: Table) -> str:
        """The table's name in SQL."""
        return self.location.sql_name(table.name)

    def check(self, table: Table, *, decodes: bool = False) -> None:
        """Checks that Spark may use the table: that its metadata makes Spark evaluate nothing. Spark evaluates nothing
        for that. The files of this machine come first: Delta then reads only files that passed. Raises TableRefused.

        decodes: and, on this machine, that no data file exhausts Spark.
        """
        if self._examinations:
            self.check_files(table, whole=False)
            if decodes:
                self._examinations[table.name].check_data()
        in_catalog = self.location.in_catalog
        at = self._detailed_location(table) if in_catalog else self.location.of_table(table.name)
        if at is None:
            return
        actions = last_actions(self._spark, at)
        if actions is None:
            self._ask_catalog(table)
        elif actions[0]:
            check(table, *actions)

    def check_files(self, table: Table, *, whole: bool = True) -> None:
        """See Delta. Spark has its own limits of memory for the log."""
        if self._examinations:
            self._examinations[table.name].check(whole=whole)

    def columns(self, table: Table) -> frozenset[str] | None:
        """See Delta."""
        self.check(table)
        try:
            # Spark Connect looks the table up only when its columns are asked for.
            return frozenset(self._spark.table(self.name(table)).columns)
        except Exception as error:
            if any(name in str(error) for name in _ABSENT):
                return None
            raise

    def properties(self, table: Table) -> dict[str, str]:
        """See Delta."""
        self.check(table)
        return self._properties(table)

    def _properties(self, table: Table) -> dict[str, str]:
        rows = self._spark.sql(f"SHOW TBLPROPERTIES {self.name(table)}").collect()
        return {row["key"]: row["value"] for row in rows}

    def create(self, table: Table) -> None:
        """See Delta."""
        self._spark.sql(_create_statement(self.name(table), table, clustered=_is_databricks(self._spark)))

    def add_columns(self, table: Table, columns: Sequence[StoredColumn]) -> None:
        """See Delta."""
        self.check(table)
        added = ", ".join(map(_column_definition, columns))
        self._spark.sql(f"ALTER TABLE {self.name(table)} ADD COLUMNS ({added})")

    def set_properties(self, table: Table, changed: Mapping[str, str]) -> None:
        """See Delta."""
        self.check(table)
        self._spark.sql(f"ALTER TABLE {self.name(table)} SET TBLPROPERTIES ({_listed(changed)})")

    def read(
        self,
        table: Table,
        *where: Condition,
        columns: Sequence[str] | None = None,
        order: Sequence[By] = (),
        limit: int | None = None,
    ) -> list[Row]:
        """See Delta."""
        rows = self._where(table, where)
        chosen = _own(table, rows) if columns is None else [name for name in columns if name in rows.columns]
        rows = rows.orderBy(*map(_ordered, order)).select(*chosen) if order else rows.select(*chosen)
        return from_arrow((rows if limit is None else rows.limit(limit)).toArrow(), columns)

    def newest(self, table: Table, by: Sequence[str], at: str, *where: Condition) -> list[Row]:
        """See Delta."""
        keys = [f"_key_{number}" for number in range(len(by))]
        rows = self._where(table, where)
        keyed = rows.select("*", *(F.expr(key).alias(name) for name, key in zip(keys, by, strict=True)))
        last = keyed.groupBy(*keys).agg(F.max(at).alias(at))
        return from_arrow(keyed.join(F.broadcast(last), [*keys, at], "left_semi").select(*_own(table, rows)).toArrow())

    def append(self, table: Table, rows: pa.Table, *, once: str | None = None) -> None:
        """See Delta."""
        writer = frame_in_tasks(self._spark, rows).write
        if once is not None:
            writer = writer.option("txnAppId", f"txnscan-{once}").option("txnVersion", 1)
        self._save(table, writer, "append")

    def replace(self, table: Table, rows: pa.Table, *where: Condition) -> None:
        """See Delta."""
        part = SPARK.all_of(where)
        writer = frame_in_tasks(self._spark, rows).write.option("replaceWhere", part)
        self._save(table, writer, "overwrite")

    def merge(self, table: Table, rows: pa.Table, on: str, clauses: Sequence[Matched | NotMatched]) -> None:
        """See Delta."""
        self.check(table, decodes=True)
        view = f"txnscan_{uuid.uuid4().hex}"
        frame_of(self._spark, rows).createOrReplaceTempView(view)
        try:
            whens = " ".join(map(_when, clauses))
            self._spark.sql(f"MERGE INTO {self.name(table)} AS t USING {view} AS s ON {on} {whens}")
        finally:
            self._spark.catalog.dropTempView(view)

    def update(self, table: Table, column: str, value: str, *where: Condition) -> None:
        """See Delta."""
        self.check(table, decodes=True)
        condition = SPARK.all_of(where)
        self._spark.sql(f"UPDATE {self.name(table)} SET {column} = {spark_text(value)} WHERE {condition}")

    def delete(self, table: Table, *where: Condition) -> int:
        """See Delta."""
        self.check(table, decodes=True)
        (row,) = self._spark.sql(f"DELETE FROM {self.name(table)} WHERE {SPARK.all_of(where)}").collect()
        return int(row["num_affected_rows"])

    def compact(self, table: Table) -> Compacted:
        """See Delta."""
        self.check(table, decodes=True)
        (row,) = self._spark.sql(f"OPTIMIZE {self.name(table)}").collect()
        return Compacted(row["metrics"]["numFilesRemoved"], row["metrics"]["numFilesAdded"])

    def vacuum(self, table: Table, older_than_hours: int) -> int | None:
        """See Delta. Spark does not say how many, and cleans the log when it makes a checkpoint."""
        self.check(table)
        self._spark.sql(f"VACUUM {self.name(table)} RETAIN {older_than_hours} HOURS")
        return None

    def files(self, table: Table) -> str | None:
        """See Delta."""
        if not self.location.in_catalog:
            self.check(table)
        return self._detailed_location(table)

    def _detailed_location(self, table: Table) -> str | None:
        try:
            (row,) = self._spark.sql(f"DESCRIBE DETAIL {self.name(table)}").select("location").collect()
        except PySparkException:
            return None
        return str(row["location"])

    def why_shared(self, scheme: str) -> str | None:
        """See Delta."""
        return why_not_exclusive(scheme, application_setting(self._spark))

    def check_place(self) -> None:
        """See Delta."""
        if self.location.in_catalog:
            self._spark.sql(f"DESCRIBE SCHEMA {self.location}")

    def can_write(self) -> bool:
        """See Delta. Features of a later Delta fail at the write."""
        return True

    def for_thread(self, call: Callable[[], Answer]) -> Callable[[], Answer]:
        """See Delta. The jobs of the call have the group and the description of this thread's."""
        return inheriting(self._spark, call)

    def is_conflict(self, error: BaseException) -> bool:
        """See Delta."""
        kind, said = type(error).__name__, str(error)
        return any(word in kind for word in _CONFLICTS) or any(name in said for name in _CONFLICTS_BY_NAME)

    def said(self, error: BaseException) -> str:
        """See Delta."""
        return spark_reason(error)

    def _ask_catalog(self, table: Table) -> None:
        """Examines what a catalog tells. It tells no generation expression: the catalog's owner is trusted with those.
        Raises TableRefused.
        """
        try:
            schema = self._spark.table(self.name(table)).schema.jsonValue()
            configuration = self._properties(table)
        except PySparkException as error:
            if any(name in str(error) for name in _ABSENT):
                return
            raise
        check(table, {"schemaString": json.dumps(schema), "configuration": configuration}, {})

    def _where(self, table: Table, where: Sequence[Condition]) -> DataFrame:
        self.check(table, decodes=True)
        rows = self._spark.table(self.name(table))
        return rows.where(SPARK.all_of(where))

    def _save(self, table: Table, writer: DataFrameWriter, mode: str) -> None:
        self.check(table, decodes=mode != "append")
        writer = writer.format("delta").mode(mode)
        if self.location.in_catalog:
            writer.saveAsTable(self.name(table))
        else:
            writer.save(self.location.of_table(table.name))


def _own(table: Table, rows: DataFrame) -> list[str]:
    """The columns of txnscan among these. Columns that a user added are not read."""
    return [column.name for column in table.columns if column.name in rows.columns]


def frame_in_tasks(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """The rows as a DataFrame for a write of few files, a task for each 500 KB. Spark warns of 1,000 KiB."""
    pieces = max(1, -(-rows.nbytes // _TASK_BYTES))
    size = -(-rows.num_rows // pieces)
    # PySpark cannot take a slice of a nested column that has nulls. Rows that were taken are a copy of their own.
    starts = range(0, rows.num_rows, size) if size else (0,)
    taken = (pa.array(range(start, min(start + size, rows.num_rows)), pa.int64()) for start in starts)
    frames = [frame_of(spark, rows.take(numbers)) for numbers in taken]
    return reduce(DataFrame.union, frames).coalesce(pieces)


def frame(spark: SparkSession, scan: Scan | None, table: Table, items: Sequence[object]) -> DataFrame:
    """The rows of a sweep as a DataFrame with the table's columns. Made from Arrow, which needs no Spark job."""
    return spark.createDataFrame(arrow_rows(table.columns, table.rows(scan, items)))


def frame_of_table(spark: SparkSession, location: Location, table: Table) -> DataFrame:
    """A stored table. A session without Delta reads the present files of one on this machine. Raises ConfigError."""
    from txnscan.tables.open import frame_of_files
    from txnscan.tables.tables import Tables

    delta = SparkDelta(spark, location)
    delta.check(table)
    try:
        found = spark.table(delta.name(table))
    except PySparkException as error:
        files = frame_of_files(spark, location, table)
        if files is None:
            why = "sweep first, or give the session Delta (delta-spark, or spark-submit.sh)"
            raise ConfigError("table", f"{delta.said(error)}; {why}") from None
        return files
    Tables(delta).check_readable()
    return found


def last_actions(spark: SparkSession, location: str) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """The metadata and the protocol of a table at a location, as Spark itself would use them now: Delta reads them from
    its log, and evaluates nothing for that. Both are empty if there is no table.

    None if this process has no access to Delta's classes, as with Spark Connect and on Databricks.
    """
    try:
        logs: Any = spark.sparkContext._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
        now = logs.forTableWithSnapshot(spark._jsparkSession, location)._2()
    except Py4JJavaError:
        raise
    except (PySparkException, Py4JError, TypeError, AttributeError):
        return None
    if now.version() < 0:
        return {}, {}
    return parsed(now.metadata().json())["metaData"], parsed(now.protocol().json())["protocol"]


def application_setting(spark: SparkSession) -> Setting:
    """The settings that Delta uses: those of the application, not later changes of the session.

    Spark Connect shows only some settings, those of the session.
    """

    def of_session(name: str) -> str | None:
        try:
            return spark.conf.get(name, None)
        except PySparkException:
            return None

    try:
        return spark.sparkContext.getConf().get
    except PySparkException:
        return of_session


def _ordered(by: By) -> SparkColumn:
    expression = F.expr(by.expression)
    return expression.desc_nulls_last() if by.descending else expression.asc_nulls_first()


def _when(clause: Matched | NotMatched) -> str:
    if isinstance(clause, Matched):
        to = ", ".join(f"t.{name} = {expression}" for name, expression in clause.to.items())
        return f"WHEN MATCHED AND {clause.condition} THEN UPDATE SET {to}"
    values = ", ".join(f"s.{name}" for name in clause.columns)
    return f"WHEN NOT MATCHED AND {clause.condition} THEN INSERT ({', '.join(clause.columns)}) VALUES ({values})"


def _sql_type(column: StoredColumn) -> str:
    return column.type if isinstance(column.type, str) else spark_type(column.type)


def _column_definition(column: StoredColumn) -> str:
    required = " NOT NULL" if column.required else ""
    return f"{column.name} {_sql_type(column)}{required} COMMENT {spark_text(column.meaning)}"


def _listed(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{spark_text(key)} = {spark_text(value)}" for key, value in properties.items())


def _is_databricks(spark: SparkSession) -> bool:
    """Whether the session is on Databricks, or connected to it."""
    if "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return True
    try:
        return spark.conf.get(_DATABRICKS, None) is not None
    except PySparkException:
        return False


def _create_statement(name: str, table: Table, *, clustered: bool) -> str:
    columns = ", ".join(map(_column_definition, table.columns))
    return (
        f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING DELTA COMMENT {spark_text(table.meaning)} "
        f"{_layout(table, clustered)}TBLPROPERTIES ({_listed(properties(table))})"
    )


def _layout(table: Table, clustered: bool) -> str:
    """Partitions, or clusters in their place: Delta allows no table with both.

    Databricks recommends clusters. Elsewhere they would need writer features that not every writer of Delta has, and
    that cannot be dropped again. Delta cannot cluster by a boolean.
    """
    if not table.partitioned_by:
        return ""
    if not clustered:
        return f"PARTITIONED BY ({', '.join(table.partitioned_by)}) "
    types = {column.name: column.type for column in table.columns}
    return f"CLUSTER BY ({', '.join(name for name in table.partitioned_by if types[name] != 'BOOLEAN')}) "
