"""The Python of executors on this machine.

Unless PYSPARK_PYTHON is set when a session starts, PySpark runs `python3` of the PATH on executors. In a notebook that
is seldom the environment of the notebook, and lacks pyarrow or this package. So the functions of txnscan run in this
interpreter there. Functions of the user do not: neither the session nor its context is changed. PySpark takes the
interpreter of a function from a context (`pyspark.sql.udf._wrap_function`). txnscan gives it another context for that,
with the attributes of the user's.
"""

from __future__ import annotations

import os
import site
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceRegistration
from pyspark.sql.types import DataType
from pyspark.sql.udf import UserDefinedFunction, _wrap_function
from pyspark.util import PythonEvalType

from txnscan.engine.spark.nodes import in_one_jvm

if TYPE_CHECKING:
    import pyarrow as pa

    Run = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

# PySpark's own default.
_DEFAULT, _VARIABLE, _SETTING = "python3", "PYSPARK_PYTHON", "spark.pyspark.python"
_MODULE_PATH = "PYTHONPATH"
_ANSWER_S = 60
# As a worker of Spark says it.
_SCRIPT = """
import sys
there = ".".join(map(str, sys.version_info[:2]))
if there != "{here}":
    sys.exit("Python in worker has different version: " + there + " than that in driver: {here}")
import {needed}
"""


class ThisPython:
    """A context whose functions run in this interpreter. Everything else is that of the user's context."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.pythonExec = sys.executable
        self.environment = {**context.environment, **_own_path(context.environment)}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def own_python(spark: SparkSession) -> ThisPython | None:
    """The context for functions of txnscan. None if the executors are on other machines, or if the user named their
    Python.
    """
    try:
        context = spark.sparkContext
    except PySparkException:  # Spark Connect: the session has no context, and the server's executors are anywhere
        return None
    named = context.pythonExec != _DEFAULT or _VARIABLE in os.environ or context.getConf().contains(_SETTING)
    # Also local-cluster, whose executors are processes of this machine.
    return ThisPython(context) if (context.master or "").startswith("local") and not named else None


def unusable(spark: SparkSession) -> str | None:
    """Why the Python that the user named for executors on this machine cannot run functions, in words that
    `nodes.remedy` knows. None if it can, and if the executors are elsewhere.

    Otherwise Spark would log a trace of a hundred lines for each task.
    """
    try:
        context = spark.sparkContext
    except PySparkException:
        return None
    master = context.master or ""
    if not master.startswith("local") or own_python(spark) is not None or context.pythonExec == sys.executable:
        return None
    here = ".".join(map(str, sys.version_info[:2]))
    # Files of this package are sent to other processes.
    needed = ("pyarrow", "pandas", *(("kafka", "txnscan") if in_one_jvm(master) else ()))
    script = _SCRIPT.format(here=here, needed=", ".join(needed))
    try:
        ran = subprocess.run(
            [context.pythonExec, "-c", script],
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=False,
            env={**os.environ, **context.environment},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f'Cannot run program "{context.pythonExec}": {error}'
    return ran.stderr if ran.returncode else None


def register_here(spark: SparkSession, source: type[DataSource]) -> None:
    """Registers a data source of this package. Its functions run in the interpreter of `own_python`."""
    context = own_python(spark)
    if context is None:
        spark.dataSource.register(source)
        return
    session = SimpleNamespace(sparkContext=context, _jsparkSession=spark._jsparkSession)
    DataSourceRegistration(cast("SparkSession", session)).register(source)


def _own_path(environment: dict[str, str]) -> dict[str, str]:
    """The variable with which this interpreter finds this package, if it is not installed there."""
    root = str(Path(__file__).parents[3])
    if root in (*site.getsitepackages(), site.getusersitepackages()):
        return {}
    return {_MODULE_PATH: os.pathsep.join(filter(None, (environment.get(_MODULE_PATH), root)))}


def map_in_arrow(frame: DataFrame, run: Run, schema: str) -> DataFrame:
    """`DataFrame.mapInArrow`, in the interpreter of `own_python`."""
    context = own_python(frame.sparkSession)
    if context is None:
        return frame.mapInArrow(run, schema)
    column = _Function(context, frame.sparkSession, run, schema)(*(frame[name] for name in frame.columns))
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


class _Function(UserDefinedFunction):
    """A function of `mapInArrow` that runs in the interpreter of a context."""

    def __init__(self, context: ThisPython, spark: SparkSession, run: Run, schema: str) -> None:
        super().__init__(run, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
        self._context, self._session = context, spark

    def _create_judf(self, func: Callable[..., Any]) -> Any:
        """As that of PySpark."""
        returns: DataType = self.returnType
        function = _wrap_function(self._context, func, returns)  # type: ignore[arg-type]
        named = getattr(self._context._jvm, "org.apache.spark.sql.execution.python.UserDefinedPythonFunction")
        type_ = self._session._jsparkSession.parseDataType(returns.json())
        return named(self._name, function, type_, self.evalType, self.deterministic)
