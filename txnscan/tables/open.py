"""Which implementation of Delta opens a location."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from txnscan.config import ConfigError, is_catalog_schema, parse_location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnscan.tables.tables import Tables


def needs_spark(location: str) -> bool:
    """Whether only Spark can open it: it is in a catalog, or delta-rs is not installed. Raises ConfigError."""
    return is_catalog_schema(parse_location(location)) or find_spec("deltalake") is None


def open_tables(location: str, spark: SparkSession | None) -> Tables:
    """The tables of a location, through Spark where a session is given, else through delta-rs. Raises ConfigError."""
    from txnscan.tables.tables import Tables

    if spark is not None:
        from txnscan.engine.spark.guest import own_session
        from txnscan.tables.spark import SparkDelta

        return Tables(SparkDelta(own_session(spark), location))
    if find_spec("deltalake") is None:
        raise ConfigError("--tables", "needs delta-rs or Spark; install txnscan[delta] or txnscan[spark]")
    from txnscan.tables.delta_rs import DeltaRs

    return Tables(DeltaRs(location))
