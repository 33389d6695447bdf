"""Which implementation of Delta opens a location."""

from __future__ import annotations

import mmap
import resource
from importlib.util import find_spec
from typing import TYPE_CHECKING

from txnscan.config import ConfigError, is_catalog_schema, parse_location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnscan.tables.tables import Tables

# As measured on two cores. Most of it is never used.
_ADDRESS_BYTES = 1200 * 1024 * 1024


def needs_spark(location: str) -> bool:
    """Whether only Spark can open it: it is in a catalog, or delta-rs is not installed. Raises ConfigError."""
    return is_catalog_schema(parse_location(location)) or find_spec("deltalake") is None


def check_address_space() -> None:
    """Raises MemoryError if a limit (`ulimit -v`) leaves too little for delta-rs and Arrow. They would hang, or end the
    process with words of their own.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    try:
        mmap.mmap(-1, _ADDRESS_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ).close()
    except OSError:
        raise MemoryError(f"delta-rs needs {_ADDRESS_BYTES >> 20} MiB of address space") from None


def open_tables(location: str, spark: SparkSession | None) -> Tables:
    """The tables of a location, through Spark where a session is given, else through delta-rs. Raises ConfigError."""
    from txnscan.tables.tables import Tables

    if spark is not None:
        from txnscan.engine.spark.guest import own_session
        from txnscan.tables.spark import SparkDelta

        return Tables(SparkDelta(own_session(spark), location))
    if find_spec("deltalake") is None:
        raise ConfigError("--tables", "needs delta-rs or Spark; install txnscan[delta] or txnscan[spark]")
    check_address_space()
    from txnscan.tables.delta_rs import DeltaRs

    return Tables(DeltaRs(location))
