"""`txnscan prepare`: fetches and makes in advance what a local Spark session needs.

The class data archive is made by a session that does what a sweep does, in a process of its own:
`python -m txnscan.tables.prepare` with the options of its JVM.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from txnscan.engine.spark.java import cache_directory, delta_jars, find_java, jar_directory
from txnscan.reads.tasks import cannot_read
from txnscan.sweeps.result import Scan

_TRAINING_S_MAX = 600


# A sweep like most, without hanging transactions.
_NOTHING = Scan(
    sweep_id="prepare",
    cluster_id="none",
    scope="all",
    started_at_ms=0,
    finished_at_ms=0,
    late_after_ms=0,
    max_timeout_ms=0,
    brokers=0,
    partitions_planned=0,
    partitions_failed=0,
    producers=0,
    coordinators_planned=0,
    coordinators_proven=0,
    transactional_ids=0,
    visibility_failures=(),
    proven={},
    transactions=(),
    errors=(),
    warnings=(),
    settings="{}",
    version="",
)


def prepare_spark(say: Callable[[str], None]) -> Path:
    """Fetches Delta's jars, and makes the archive where it is not there. say: called with a sentence before each.
    Returns the directory that holds both.

    Raises JavaError.
    """
    from txnscan.engine.spark.session import spark_archive

    find_java()
    archive = spark_archive(sorted(jar_directory(delta_jars(), say=say).glob("*.jar")))
    if archive.file is None:
        say("Archiving the classes that Spark loads (about half a minute, 190 MB)")
        archive.make(_train)
    return cache_directory()


def _train(options: Sequence[str]) -> bool:
    command = [sys.executable, "-m", __name__, *options]
    try:
        ran = subprocess.run(command, capture_output=True, timeout=_TRAINING_S_MAX, check=False)
    except subprocess.TimeoutExpired:
        return False
    return ran.returncode == 0


def work(options: Sequence[str]) -> None:
    """Runs a session whose JVM has these options, and ends the JVM. The session starts Python workers, and makes,
    writes and reads tables.
    """
    import tempfile

    from txnscan.engine.spark.executors import SparkEngine
    from txnscan.engine.spark.jvm import end_jvm
    from txnscan.engine.spark.session import DRIVER_JAVA_OPTIONS, driver_options, spark_session
    from txnscan.tables.open import open_tables

    spark = spark_session("local[2]", settings={DRIVER_JAVA_OPTIONS: driver_options(options)})
    SparkEngine(spark).start_workers(partial(cannot_read, ()))
    with tempfile.TemporaryDirectory(prefix="txnscan-") as directory:
        tables = open_tables(str(Path(directory, "tables")), spark)
        tables.create()
        tables.write(_NOTHING)
        tables.unresolved(_NOTHING.cluster_id)()
    spark.stop()
    # The archive is written when the JVM ends.
    end_jvm()


if __name__ == "__main__":
    work(sys.argv[1:])
