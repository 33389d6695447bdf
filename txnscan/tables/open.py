"""Which implementation of Delta opens a location.

Spark opens tables in catalogs and in storage that executors share. delta-rs opens the others: it commits in less time,
and with a hard link, where Spark's log store looks and then renames (`exclusive.py`).
"""

from __future__ import annotations

import mmap
import resource
from importlib.util import find_spec
from typing import TYPE_CHECKING

from txnscan.config import ConfigError, Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txnscan.tables.schema import Table
    from txnscan.tables.tables import Tables

# As measured on two cores. Most of it is never used.
_ADDRESS_BYTES = 1200 * 1024 * 1024


def needs_spark(location: Location) -> bool:
    """Whether only Spark can open it: it is in a catalog, or delta-rs is not installed."""
    return location.in_catalog or find_spec("deltalake") is None


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


def open_tables(location: Location | str, spark: SparkSession | None, *, to_maintain: bool = False) -> Tables:
    """The tables of a location. to_maintain: also with a log that is too large for all others. Raises ConfigError.

    With a session, Spark opens them. delta-rs does so if the driver itself runs all tasks of the session, the location
    is on the driver's disk, and delta-rs can write the tables that are there.
    """
    location = Location.of(location)
    if spark is not None and not _is_of_this_machine(location, spark, to_maintain=to_maintain):
        return through_spark(location, spark)
    if find_spec("deltalake") is None:
        raise ConfigError("--tables", "needs delta-rs or Spark; install txnscan[delta] or txnscan[spark]")
    check_address_space()
    from txnscan.tables.delta_rs import DeltaRs
    from txnscan.tables.tables import Tables

    return Tables(DeltaRs(location, to_maintain=to_maintain))


def through_spark(location: Location | str, spark: SparkSession) -> Tables:
    """The tables of a location, through a session. Raises ConfigError."""
    from txnscan.engine.spark.guest import own_session
    from txnscan.tables.spark import FOR_WRITES, SparkDelta
    from txnscan.tables.tables import Tables

    return Tables(SparkDelta(own_session(spark, FOR_WRITES), Location.of(location)))


def frame_of_files(spark: SparkSession, location: Location, table: Table) -> DataFrame | None:
    """The present files of a table as a DataFrame, for a session without Delta. None if delta-rs cannot open the same
    files, or if there is no such table. Raises ConfigError.
    """
    if not _is_of_this_machine(location, spark, to_maintain=False):
        return None
    from txnscan.tables.delta_rs import DeltaRs
    from txnscan.tables.spark import frame
    from txnscan.tables.tables import Tables

    delta = DeltaRs(location)
    folder = delta.files(table)
    if folder is None:
        return None
    Tables(delta).check_readable()
    empty, files = frame(spark, None, table, ()), delta.data_files(table)
    # Without a schema, Spark guesses the types of the columns in the names of folders.
    if not files:
        return empty
    # Spark puts the columns of folders last.
    return spark.read.schema(empty.schema).option("basePath", folder).parquet(*files).select(*empty.columns)


def _is_of_this_machine(location: Location, spark: SparkSession, *, to_maintain: bool) -> bool:
    """Whether delta-rs can open the same files as this session would."""
    if needs_spark(location) or location.path is None:
        return False
    from txnscan.engine.spark.files import local_file

    if local_file(spark, location.text) != str(location.path):
        return False
    try:
        check_address_space()
    except MemoryError:
        return False
    from txnscan.tables.delta_rs import DeltaRs

    return DeltaRs(location, to_maintain=to_maintain).can_write()
