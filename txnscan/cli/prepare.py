"""`prepare`: what can be done before the first sweep."""

from __future__ import annotations

from txnscan.cli.app import app
from txnscan.cli.command import OneCommand
from txnscan.cli.errors import errors_in_one_line, note
from txnscan.report.help import examples


@app.command(cls=OneCommand, epilog=examples("txnscan prepare"))
def prepare() -> None:
    """Fetch Delta's jars, and archive the classes that Spark's JVM loads, before the first sweep.

    Then sweeps through Spark need no download, and start sooner. For a scheduler's machine, and for images. Both are
    kept in the cache directory (XDG_CACHE_HOME); the archive is for this Java and this PySpark, and made anew by the
    next `prepare` after either was updated.
    """
    with errors_in_one_line():
        from txnscan.engine.spark.errors import require_pyspark
        from txnscan.tables.prepare import prepare_spark

        require_pyspark()
        note(f"sweeps through Spark start with what is in {prepare_spark(note)}")
