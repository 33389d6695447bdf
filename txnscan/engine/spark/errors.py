"""Errors on one line, with Spark's in one sentence; and the error that no session is possible. Executors import this
module, so it needs no package that they lack.
"""

from __future__ import annotations

import re

from txnscan.config import printable
from txnscan.engine.spark.nodes import remedy
from txnscan.errors import TxnscanError

_FIRST_MAJOR = 4


class SparkUnavailable(TxnscanError):
    """No Spark session is possible. The message is one sentence with the remedy."""


def require_pyspark() -> None:
    """Raises SparkUnavailable if PySpark is not installed, or is older than 4.0: older versions do not exchange Arrow
    tables, and have no data sources in Python.
    """
    try:
        from pyspark import __version__ as version
    except ImportError:
        raise SparkUnavailable(
            "Spark is not installed: install txnscan[spark], or txnscan[delta] for tables at a path; "
            "find-hanging needs neither"
        ) from None
    major = version.split(".")[0]
    if major.isdigit() and int(major) < _FIRST_MAJOR:
        raise SparkUnavailable(
            f"PySpark {printable(version)} is too old, txnscan needs {_FIRST_MAJOR}.0 or later: install "
            "txnscan[spark], or txnscan[delta] for tables at a path"
        )


def is_of_spark(error: BaseException) -> bool:
    """Whether Spark, or Py4J on its behalf, raised this error."""
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j")


# Errors in the words of Spark and Delta, with their meaning here and the remedy.
_MEANS = (
    (
        r"REQUIRES_SINGLE_PART_NAMESPACE|CATALOG_NOT_FOUND|UnresolvedNamespace",
        "Spark has no such catalog; name one that it has (spark.sql.catalog.NAME), or a path",
    ),
    (r"SCHEMA_NOT_FOUND", "the catalog has no such schema; create it, or name another"),
    (
        r"DELTA_STATE_RECOVER_ERROR|DELTA_TABLE_NOT_FOUND|DELTA_MISSING_DELTA_TABLE|DELTA_CREATE_TABLE_WITH_NON_EMPTY",
        "the location holds no Delta table, or a damaged one; name another with --tables, or restore it",
    ),
    (
        r"DELTA_CREATE_TABLE_SCHEME_MISMATCH|DELTA_FAILED_TO_MERGE_FIELDS|DELTA_METADATA_MISMATCH|UNRESOLVED_COLUMN",
        "the location holds tables of somebody else, or of another version of txnscan; name another with --tables",
    ),
    (
        r"No FileSystem for scheme|ClassNotFoundException: Class \S*FileSystem",
        "Spark has no file system of this kind; start it with the jars (for s3a spark.jars.packages="
        "org.apache.hadoop:hadoop-aws:VERSION, of Spark's own version of Hadoop)",
    ),
    (r"All masters are unresponsive", "no Spark master answers; start it, or name another with --master"),
)
_SAID_MAX = 400


def in_one_line(error: BaseException, *, names_option: bool = True) -> str:
    """Any error on one line, for people; an unforeseen one with its type. names_option: whether the line begins with
    the option that the error is about, if any; a cluster of a file has no options.
    """
    if isinstance(error, TxnscanError):
        said = error.sentence if names_option else str(error)
    else:
        said = f"Spark failed: {spark_reason(error)}" if is_of_spark(error) else f"{type(error).__name__}: {error}"
    return printable(" ".join(said.split()))


def spark_reason(error: BaseException) -> str:
    """The message of an error of Spark or Java, without its trace and without names of classes."""
    if (sentence := remedy(str(error))) is not None:
        return sentence
    for pattern, meaning in _MEANS:
        if re.search(pattern, str(error)):
            return meaning
    said = _first_said(error)
    return said if len(said) <= _SAID_MAX else f"{said[:_SAID_MAX]} ..."


def _first_said(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # The last line of a Python worker's traceback has the error that it raised.
    raised = [line for line in lines if re.match(r"\w*(Error|Exception): ", line)]
    if raised:
        return raised[-1]
    # Py4J: "An error occurred while calling o48.sql.", then the Java exception.
    said = lines[1] if len(lines) > 1 and lines[0].startswith("An error occurred while calling") else (lines or [""])[0]
    return re.sub(r"^:?\s*(?:[\w$]+\.)+[\w$]+:\s*", "", said) or type(error).__name__
