"""The user's own local session: executors run txnscan in this Python, and all else as before."""

from __future__ import annotations

import os
import sys
import venv
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.process import run_python
from tests.sim.wire import ClusterShape, WireCluster
from txnscan.engine.choice import EngineReason
from txnscan.engine.spark.executors import SparkEngine
from txnscan.engine.spark.python import own_python, unusable
from txnscan.reads.tasks import cannot_read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHAPE = ClusterShape(brokers=2, partitions=20, hanging=2)
# A session as a user makes it, with the choice of the engine, and the interpreter of the user's functions.
SESSION = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
from txnscan import ScanConfig, sweep
found = sweep(spark, ScanConfig(sys.argv[1]))
print(found.scan.engine.name, found.scan.engine.reason, len(found.scan.warnings), spark.sparkContext.pythonExec)
spark.stop()
"""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder with a `python3` that has no packages."""
    venv.create(tmp_path / "bare", with_pip=False)
    return tmp_path / "bare" / "bin"


@pytest.fixture
def unnamed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, bare: Path) -> SparkSession:
    """The session, as if the user had named no Python when it started."""
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    monkeypatch.setenv("PATH", f"{bare}{os.pathsep}{os.environ['PATH']}")
    return spark


def test_executors_of_this_machine_get_this_python_and_the_context_stays(unnamed: SparkSession) -> None:
    context = unnamed.sparkContext
    before = dict(context.environment)
    own = own_python(unnamed)
    assert own is not None and own.pythonExec == sys.executable
    assert SparkEngine(unnamed).start_workers(partial(cannot_read, ()))() is None
    assert (context.pythonExec, context.environment) == ("python3", before)


def test_the_data_source_runs_in_this_python(unnamed: SparkSession) -> None:
    from txnscan import register

    register(unnamed)
    try:
        with WireCluster(SHAPE, 1) as cluster:
            options = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
            frame = unnamed.read.format("kafka_transactions").options(**options).load()
            assert frame.where("verdict = 'hanging'").count() == SHAPE.hanging
    finally:
        # In the Python of the session again, for other tests.
        with pytest.MonkeyPatch.context() as again:
            again.setattr(unnamed.sparkContext, "pythonExec", sys.executable)
            register(unnamed)


def test_a_python_that_the_user_named_is_kept(unnamed: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    assert own_python(unnamed) is None


def test_an_unusable_python_is_named_before_a_job_runs(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, bare: Path
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare / "python3"))
    assert "pyarrow" in (unusable(spark) or "")
    assert "pyarrow" in (SparkEngine(spark).start_workers(partial(cannot_read, ()))() or "")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nonexistent/python3")
    assert "/nonexistent/python3" in (SparkEngine(spark).start_workers(partial(cannot_read, ()))() or "")


@pytest.mark.parametrize(
    ("named", "engine", "reason", "lines"),
    [(False, "spark", EngineReason.EXECUTORS_CONNECT, 0), (True, "threads", EngineReason.EXECUTORS_FAILED, 1)],
    ids=["no Python named", "a Python without packages named"],
)
def test_an_ordinary_session_reads_on_its_executors_or_says_why_not_in_a_line(
    bare: Path, named: bool, engine: str, reason: EngineReason, lines: int
) -> None:
    variables = {"PATH": f"{bare}{os.pathsep}{os.environ['PATH']}", "PYSPARK_PYTHON": str(bare / "python3")}
    with pytest.MonkeyPatch.context() as here, WireCluster(SHAPE, 1) as cluster:
        here.delenv("PYSPARK_PYTHON", raising=False)
        if not named:
            variables.pop("PYSPARK_PYTHON")
        ran = run_python("-c", SESSION, cluster.bootstrap_servers, environment=variables)
    assert ran.returncode == 0, ran.stderr
    python = variables.get("PYSPARK_PYTHON", "python3")
    assert ran.stdout.split() == [engine, reason, str(lines), python]
    said = [line for line in ran.stderr.splitlines() if line.startswith("txnscan: ")]
    assert len(said) == lines and all("pyarrow" in line for line in said)
    assert "\tat " not in ran.stderr and "Traceback" not in ran.stderr
