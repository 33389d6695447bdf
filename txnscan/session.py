"""A Spark session for the command line: local by default, with the settings of `conf/spark-defaults.conf`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import javaproperties

from txnscan.demo.errors import DemoError
from txnscan.demo.java import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkUnavailable(Exception):
    """There can be no Spark session; the message is one sentence that says what to install."""


def spark_defaults() -> dict[str, str]:
    """The settings of conf/spark-defaults.conf, from the installed package or from a checkout."""
    here = Path(__file__).parent
    for path in (here / "conf" / "spark-defaults.conf", here.parent / "conf" / "spark-defaults.conf"):
        if path.exists():
            return dict(javaproperties.loads(path.read_text("utf-8")))
    return {}


def spark_session(master: str | None = None, app_name: str = "txnscan") -> SparkSession:
    """The session that is already there (spark-submit, Databricks), else a new one on `master`, `local[*]` by default.

    Raises SparkUnavailable when PySpark or Java is missing or the master cannot be reached.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkUnavailable(
            "Spark is not installed: install txnscan[spark], or use find-hanging, which needs none"
        ) from None
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    try:
        java()
    except DemoError as error:
        raise SparkUnavailable(str(error)) from None
    # Python workers must be this interpreter, with this environment's packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    # Under spark-submit the master and the settings are the launcher's.
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.config(map=spark_defaults()).config(
            "spark.jars", ",".join(str(p) for p in Path("/tmp/w/delta").glob("*.jar"))
        )
        builder = builder.master(master or os.environ.get("MASTER", "local[*]"))
    try:
        return builder.getOrCreate()
    except Exception as error:
        why = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise SparkUnavailable(f"Spark could not start: {why}") from None
