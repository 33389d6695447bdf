"""Executors on other machines: a real standalone cluster whose Python has what Spark needs and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.brokers.test_sweep import EXPECTED
from tests.conftest import Planted
from tests.process import ROOT
from txnscan.demo.ports import HOST, choose_ports, is_listening
from txnscan.demo.process import GuardedProcess
from txnscan.demo.wait import wait_until
from txnscan.engine.java import find_java, pyspark_jars
from txnscan.engine.nodes import archive, in_one_jvm, remedy
from txnscan.engine.session import in_one_line

WORKERS = 2
# What the README says that nodes need: pyspark, pandas and pyarrow, with what these need.
OF_NODES = ("pyspark", "py4j", "pandas", "pyarrow", "numpy", "numpy.libs", "dateutil", "pytz", "tzdata", "six.py")
VERDICTS = {name: list(verdict[:2]) for name, verdict in EXPECTED.items()}

# A session that txnscan did not make. Executors tell where they import from.
NOTEBOOK = """
import json, sys
import pyarrow
from pyspark.sql import SparkSession
from txnscan import ScanConfig, sweep

def places(batches):
    import kafka, txnscan
    for batch in batches:
        yield pyarrow.record_batch([[kafka.__file__, txnscan.__file__]], names=["place"])

builder = SparkSession.builder.master(sys.argv[1]).config("spark.executor.memory", "512m")
spark = builder.config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1").getOrCreate()
path = list(sys.path)
for _ in range(2):
    found = sweep(spark, ScanConfig(sys.argv[2])).scan
rows = spark.range(0, 2, 1, 2).mapInArrow(places, "place string").distinct().collect()
print(json.dumps({
    "verdicts": {j.observation.topic_partition: [j.judgement.verdict, j.judgement.reason] for j in found.transactions},
    "sent": [file.rsplit("/", 1)[-1] for file in spark.sparkContext.listFiles],
    "places": sorted(row.place for row in rows),
    "path as before": sys.path == path,
}))
"""

# A server of Spark Connect, whose executors have the nodes' Python. PySpark takes it for granted that a local one has
# port 15002, which another may have.
CONNECT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import DefaultChannelBuilder
from txnscan import ScanConfig, sweep
from txnscan.engine.session import local_settings
port = int(sys.argv[4])
DefaultChannelBuilder.default_port = staticmethod(lambda: port)
builder = SparkSession.builder.remote("local[2]")
builder = builder.config("spark.connect.grpc.binding.address", "127.0.0.1")
builder = builder.config("spark.connect.grpc.binding.port", port)
for name, value in local_settings("elsewhere").items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
result = sweep(spark, ScanConfig(sys.argv[2], tables=sys.argv[3]))
rows = result.transactions.select("topic", "partition", "verdict", "reason").collect()
print(json.dumps({
    "verdicts": {f"{row.topic}-{row.partition}": [row.verdict, row.reason] for row in rows},
    "connect": type(spark).__module__,
}))
"""


@dataclass(frozen=True)
class Standalone:
    """A master with workers, the Python of their machines, and a directory of the driver's alone."""

    master: str
    python: Path
    driver: Path

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """A driver that has this environment, as one on another machine would: the nodes' Python by its name alone."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
        environment |= {"MASTER": self.master, "SPARK_LOCAL_IP": HOST, "PYSPARK_DRIVER_PYTHON": sys.executable}
        return subprocess.run(
            command,
            cwd=self.driver,
            env=environment | variables,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


def python_of_nodes(directory: Path) -> Path:
    """An environment with links to what nodes need, and to nothing else of this one."""
    venv.create(directory, with_pip=False)
    (packages,) = directory.glob("lib/python*/site-packages")
    installed = Path(str(find_spec("pyspark").origin)).parents[1]  # type: ignore[union-attr]
    for name in OF_NODES:
        if (installed / name).exists():
            (packages / name).symlink_to(installed / name)
    return directory / "bin" / "python3"


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master and two workers on loopback, whose `python3` is that of nodes."""
    directory = tmp_path_factory.mktemp("standalone")
    python = python_of_nodes(directory / "python")
    port, *_ = choose_ports(1)
    master = f"spark://{HOST}:{port}"
    variables = {
        "PATH": f"{python.parent}:{os.defpath}",
        "SPARK_HOME": str(pyspark_jars()[0].parents[1]),
        "SPARK_LOCAL_IP": HOST,
        # As Spark's own start scripts do.
        "SPARK_SCALA_VERSION": "2.13",
        **({"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}),
    }
    nothing_else = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in variables.items())]
    java = [str(find_java()), "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", str(pyspark_jars()[0].with_name("*"))]

    def started(stack: ExitStack, name: str, *arguments: str) -> GuardedProcess:
        command = [*nothing_else, *java, f"org.apache.spark.deploy.{name}", "--host", HOST, "--webui-port", "0"]
        process = GuardedProcess([*command, *arguments], directory / f"{name}.log")
        stack.callback(process.wait, 10)
        stack.callback(process.terminate)
        return process

    with ExitStack() as stack:
        started(stack, "master.Master", "--port", str(port))
        wait_until(lambda: is_listening(port), "the master listens")
        for number in range(WORKERS):
            work = directory / f"worker-{number}"
            started(stack, "worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", str(work), master)
        driver = directory / "driver"
        driver.mkdir()
        yield Standalone(master, python, driver)


def test_the_python_of_the_nodes_has_what_spark_needs_and_neither_kafka_nor_txnscan(standalone: Standalone) -> None:
    assert standalone.run(str(standalone.python), "-c", "import pyspark, pandas, pyarrow").returncode == 0
    for name in ("kafka", "txnscan"):
        ran = standalone.run(str(standalone.python), "-c", f"import {name}")
        assert f"No module named '{name}'" in ran.stderr


def test_spark_submit_sweeps_on_nodes_that_have_nothing_but_sparks_python(
    planted: Planted, standalone: Standalone
) -> None:
    ran = standalone.run(
        *(str(ROOT / "spark-submit.sh"), "sweep", "--bootstrap-server", planted.bootstrap_servers),
        *("--tables", str(standalone.driver / "tables"), "--format", "json", "--fail-on", "hanging"),
        # What Java itself writes on stdout is not in the JSON either.
        JDK_JAVA_OPTIONS="-Xlog:gc",
    )
    assert "[gc" in ran.stderr
    assert ran.returncode == 3, ran.stderr
    found = json.loads(ran.stdout)
    assert {f"{t['topic']}-{t['partition']}": [t["verdict"], t["reason"]] for t in found["transactions"]} == VERDICTS
    assert found["sweep"]["complete"]
    assert [file.name for file in standalone.driver.iterdir()] == ["tables"], "and nothing else was left"


def test_a_session_of_ones_own_is_given_what_its_executors_need_once_whatever_number_of_sweeps(
    planted: Planted, standalone: Standalone
) -> None:
    ran = standalone.run(
        *(sys.executable, "-c", NOTEBOOK, standalone.master, planted.bootstrap_servers), PYTHONPATH=str(ROOT)
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["verdicts"] == VERDICTS
    sent = archive()
    assert sent is not None and found["sent"] == [sent.name]
    assert len(found["places"]) >= 2 and all(f"/{sent.name}/" in place for place in found["places"])
    assert found["path as before"]


def test_a_session_of_spark_connect_is_given_it_too(planted: Planted, tmp_path: Path) -> None:
    python = python_of_nodes(tmp_path / "python")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
    port, *_ = choose_ports(1)
    ran = subprocess.run(
        [sys.executable, "-c", CONNECT, str(ROOT), planted.bootstrap_servers, str(tmp_path / "tables"), str(port)],
        cwd=tmp_path, env={**environment, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": HOST},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout.splitlines()[-1])
    assert answer["connect"].startswith("pyspark.sql.connect")
    assert answer["verdicts"] == VERDICTS


def test_what_is_sent_is_kafka_python_and_this_package_without_demo_and_simulator() -> None:
    sent = archive()
    assert sent is not None
    names = zipfile.ZipFile(sent).namelist()
    assert {name.split("/")[0] for name in names} == {"kafka", "txnscan"}
    assert [name for name in names if name.startswith(("txnscan/demo", "txnscan/sim")) or "__pycache__" in name] == []
    assert {"txnscan/evidence/tasks.py", "txnscan/engine/spark.py", "kafka/net/manager.py"} <= set(names)
    assert any(name.endswith(".json") for name in names), "kafka-python reads its messages' schemas from files"
    assert not [name for name in names if name.endswith((".so", ".pyd"))], "any machine can import it"


def test_what_is_sent_is_all_that_a_task_imports(tmp_path: Path) -> None:
    python = python_of_nodes(tmp_path / "python")
    sent = archive()
    modules = "txnscan.evidence.tasks, txnscan.engine.spark, txnscan.judge.rules"
    script = f"import sys; sys.path.insert(0, {str(sent)!r}); import {modules}"
    ran = subprocess.run([python, "-I", "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("master", "local"),
    [
        *(("local", True), ("local[2]", True), ("local[*, 3]", True), ("local-cluster[2,1,700]", False)),
        *(("spark://127.0.0.1:7077", False), ("yarn", False), ("k8s://https://127.0.0.1", False), ("", False)),
    ],
)
def test_packages_are_sent_to_executors_that_are_processes_of_their_own(master: str, local: bool) -> None:
    assert in_one_jvm(master) is local


HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
NAME_ONE = "with pyspark, pandas and pyarrow, in PYSPARK_PYTHON"
OTHER = "[PYTHON_VERSION_MISMATCH] Python in worker has different version: {} than that in driver: 3.11, PySpark cannot"
NO_PYARROW = f"Python on the executors has no pyarrow: install it there, or name a Python of theirs, {NAME_ONE}"
TOO_OLD = (
    f"Python is {{}} on the executors and {HERE} here, and txnscan needs 3.11 or newer on both: "
    f"name a {HERE} of theirs, {NAME_ONE}"
)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            OTHER.format("3.99"),
            f"Python is 3.99 on the executors and {HERE} here, and PySpark needs the same minor version on both: "
            f"name a {HERE} of theirs, {NAME_ONE}",
        ),
        (OTHER.format("3.10"), TOO_OLD.format("3.10")),
        # It does not get as far as telling its version.
        (
            '  File "/usr/lib/python3.8/runpy.py", line 185, in _run_module_as_main\n'
            "AttributeError: module 'importlib.resources' has no attribute 'files'",
            TOO_OLD.format("3.8"),
        ),
        (
            'java.io.IOException: Cannot run program "/opt/none/python3": error=2, No such file or directory',
            f"the executors cannot run /opt/none/python3: name a Python of theirs, {NAME_ONE}",
        ),
        ("  File \"/usr/lib/python3.12/x.py\"\nModuleNotFoundError: No module named 'pyarrow'", NO_PYARROW),
        ("[PACKAGE_NOT_INSTALLED] PyArrow >= 15.0.0 must be installed; however, it was not found.", NO_PYARROW),
        (
            "[UNSUPPORTED_PACKAGE_VERSION] PyArrow >= 15.0.0 must be installed; however, your version is 9.0.0.",
            "PyArrow is too old on the executors: install 15.0.0 or newer in their Python",
        ),
        (
            "ModuleNotFoundError: No module named 'txnscan'",
            "Python on the executors has no txnscan, and this cluster takes no files of a session: install txnscan in "
            "their Python, or read from the driver with --engine threads",
        ),
    ],
)
def test_what_is_wrong_with_the_nodes_python_is_one_sentence_with_what_to_do(said: str, sentence: str) -> None:
    assert remedy(said) == sentence
    assert in_one_line(Exception(f"An error occurred while calling o1.x.\n{said}\n\tat a.b")) == sentence


@pytest.mark.parametrize(
    "said", ["ModuleNotFoundError: No module named 'grpc'", "[TABLE_OR_VIEW_NOT_FOUND] The table cannot be found."]
)
def test_an_error_about_something_else_keeps_its_own_words(said: str) -> None:
    assert remedy(said) is None


def test_a_driver_on_the_cluster_is_left_to_spark_submit_with_the_jars_and_settings(tmp_path: Path) -> None:
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 5\n')
    submit.chmod(0o755)
    variables = {"SPARK_HOME": str(tmp_path), "MASTER": "yarn", "PYSPARK_DRIVER_PYTHON": sys.executable}
    ran = subprocess.run(
        [ROOT / "spark-submit.sh", "sweep", "--format", "json"],
        env={**os.environ, **variables, "SPARK_SUBMIT_OPTS_TXNSCAN": "--deploy-mode cluster"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    words = ran.stdout.splitlines()
    assert ran.returncode == 5
    assert words[:2] == ["--master", "yarn"] and words[-3:] == [str(ROOT / "jobs" / "sweep.py"), "--format", "json"]
    assert words[-5:-3] == ["--deploy-mode", "cluster"]
    assert "delta-spark" in words[words.index("--jars") + 1]


def test_spark_submit_passes_exit_status_and_streams_on() -> None:
    ran = subprocess.run(
        [ROOT / "spark-submit.sh", "resolve", "apply", "--nothing"],
        env={**os.environ, "PYSPARK_DRIVER_PYTHON": sys.executable}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--nothing" in ran.stderr
