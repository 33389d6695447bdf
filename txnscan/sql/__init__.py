"""Sweeps in SQL: a data source for Spark. Raises SparkUnavailable if PySpark is too old for one."""

from txnscan.engine.spark.session import require_pyspark

require_pyspark()
