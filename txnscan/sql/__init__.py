"""Sweeps in SQL: a data source for Spark. Raises SparkUnavailable if PySpark is too old for one."""

from txnscan.engine.spark.errors import require_pyspark

require_pyspark()
