"""Executors on other machines: a real standalone cluster whose Python has only the dependencies of Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.brokers.shared import AT_SCENE, EXPECTED, PASSWORD, PLAIN, SCENE_TOPICS, Shared
from tests.nodes import python_of_nodes
from tests.process import ROOT
from txnscan.demo.ports import HOST, choose_ports, is_listening
from txnscan.demo.process import GuardedProcess
from txnscan.demo.wait import wait_until
from txnscan.engine.spark.java import find_java, pyspark_jars
from txnscan.engine.spark.nodes import archive

WORKERS = 2
VERDICTS = {name: list(verdict[:2]) for name, verdict in EXPECTED.items()}

# A session not created by txnscan. Executors report the origin of their imports.
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
    found = sweep(spark, ScanConfig(sys.argv[2], topic_names=tuple(sys.argv[3:]))).scan
rows = spark.range(0, 2, 1, 2).mapInArrow(places, "place string").distinct().collect()
print(json.dumps({
    "verdicts": {j.observation.topic_partition: [j.judgement.verdict, j.judgement.reason] for j in found.transactions},
    "sent": [file.rsplit("/", 1)[-1] for file in spark.sparkContext.listFiles],
    "places": sorted(row.place for row in rows),
    "path as before": sys.path == path,
}))
"""

# A server of Spark Connect, whose executors have the nodes' Python.
CONNECT = """
import json, os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from tests.connect import local_server
from txnscan import ScanConfig, sweep
port = int(sys.argv[4])
spark = local_server(port)
result = sweep(spark, ScanConfig(sys.argv[2], tables=sys.argv[3], topic_names=tuple(sys.argv[5:])))
rows = result.transactions.select("topic", "partition", "verdict", "reason").collect()
# The command line, in a process of its own. It has the server's token in its environment.
topics = [word for topic in sys.argv[5:] for word in ("--topic", topic)]
where = ("--bootstrap-server", sys.argv[2], "--tables", sys.argv[3], "--master", f"sc://localhost:{port}/;user_id=cli")
environment = {name: value for name, value in os.environ.items() if name not in ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE")}
command = [sys.executable, "-m", "txnscan", "sweep", *where, *topics, "--format", "json"]
ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
print(json.dumps({
    "command": json.loads(ran.stdout)["sweep"] if ran.returncode == 0 else ran.stderr,
    "verdicts": {f"{row.topic}-{row.partition}": [row.verdict, row.reason] for row in rows},
    "connect": type(spark).__module__,
}))
"""


# Where a password is while the session of a sweep lives: the processes of executors, the event log, and local files.
SECRETS = """
import json, os, sys
from pathlib import Path
from pyspark.sql import SparkSession
from txnscan import ScanConfig, sweep

master, servers, properties, password, here, *topics = sys.argv[1:]
secret = password.encode()
builder = SparkSession.builder.master(master).config("spark.executor.memory", "512m")
for name, value in (
    ("spark.eventLog.enabled", "true"), ("spark.eventLog.dir", f"{here}/events"), ("spark.eventLog.compress", "false"),
    ("spark.local.dir", f"{here}/local"),
):
    builder = builder.config(name, value)
spark = builder.getOrCreate()
config = ScanConfig(servers, engine="spark", command_config=properties, topic_names=tuple(topics))
result = sweep(spark, config)

def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""

processes = {}
for process in Path("/proc").glob("[0-9]*"):
    command = read(process / "cmdline")
    # The text of this script, which is in its own command line, has the names as well.
    for name in (b"CoarseGrainedExecutorBackend", b"pyspark.daemon") if process.name != str(os.getpid()) else ():
        if name in command:
            processes.setdefault(name.decode(), []).append(secret in read(process / "environ") + command)
files = {folder: [path for path in Path(here, folder).rglob("*") if path.is_file()] for folder in ("events", "local")}
print(json.dumps({
    "complete": result.summary["complete"],
    "processes": {name: [len(has), sum(has)] for name, has in processes.items()},
    "files": {name: [len(paths), sum(secret in read(path) for path in paths)] for name, paths in files.items()},
}))
"""


@dataclass(frozen=True)
class Standalone:
    """A master with workers, the Python of their machines, and a directory of the driver's alone."""

    master: str
    python: Path
    driver: Path

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """A driver with this environment, as on another machine: the nodes' Python is found by name."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
        environment |= {"MASTER": self.master, "SPARK_LOCAL_IP": HOST, "PYSPARK_DRIVER_PYTHON": sys.executable}
        return subprocess.run(
            command,
            cwd=self.driver,
            env=environment | variables,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master and two workers on loopback, with a `python3` that has only the packages of nodes."""
    directory = tmp_path_factory.mktemp("standalone")
    python = python_of_nodes(directory / "python")
    port, *_ = choose_ports(1)
    master = f"spark://{HOST}:{port}"
    variables = {
        "PATH": f"{python.parent}:{os.defpath}",
        "SPARK_HOME": str(pyspark_jars()[0].parents[1]),
        "SPARK_LOCAL_IP": HOST,
        # As in Spark's own start scripts.
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


def test_the_python_of_the_nodes_has_the_dependencies_of_spark_without_kafka_and_txnscan(
    standalone: Standalone,
) -> None:
    assert standalone.run(str(standalone.python), "-c", "import pyspark, pandas, pyarrow").returncode == 0
    for name in ("kafka", "txnscan"):
        ran = standalone.run(str(standalone.python), "-c", f"import {name}")
        assert f"No module named '{name}'" in ran.stderr


def test_spark_submit_sweeps_on_nodes_with_only_sparks_python(shared: Shared, standalone: Standalone) -> None:
    ran = standalone.run(
        *(str(ROOT / "spark-submit.sh"), "sweep", *AT_SCENE, "--bootstrap-server", shared.bootstrap_servers),
        *("--tables", str(standalone.driver / "tables"), "--format", "json", "--fail-on", "hanging"),
        # Output of Java on stdout is not in the JSON either.
        JDK_JAVA_OPTIONS="-Xlog:gc",
    )
    assert "[gc" in ran.stderr
    assert ran.returncode == 3, ran.stderr
    found = json.loads(ran.stdout)
    assert {f"{t['topic']}-{t['partition']}": [t["verdict"], t["reason"]] for t in found["transactions"]} == VERDICTS
    assert found["sweep"]["complete"]
    assert [file.name for file in standalone.driver.iterdir()] == ["tables"], "and nothing else was left"


def test_an_existing_session_gets_the_packages_once_for_any_number_of_sweeps(
    shared: Shared, standalone: Standalone
) -> None:
    ran = standalone.run(
        *(sys.executable, "-c", NOTEBOOK, standalone.master, shared.bootstrap_servers, *SCENE_TOPICS),
        PYTHONPATH=str(ROOT),
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["verdicts"] == VERDICTS
    sent = archive()
    assert sent is not None and found["sent"] == [sent.name]
    assert len(found["places"]) >= 2 and all(f"/{sent.name}/" in place for place in found["places"])
    assert found["path as before"]


def test_executors_get_a_password_with_their_tasks_alone(
    shared: Shared, standalone: Standalone, tmp_path: Path
) -> None:
    """Not by their command lines and environments, which others on their machines may see, nor by the event log."""
    properties = tmp_path / "client.properties"
    login = f'{PLAIN} required username="alice" password="{PASSWORD}";'
    properties.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n")
    properties.chmod(0o600)
    (tmp_path / "events").mkdir()
    servers = shared.cluster.bootstrap_servers_of("SASL_PLAINTEXT")
    ran = standalone.run(
        *(sys.executable, "-c", SECRETS, standalone.master, servers, str(properties), PASSWORD, str(tmp_path)),
        *SCENE_TOPICS,
        PYTHONPATH=str(ROOT),
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["complete"]
    # How many there are, and how many have the password.
    for kind in (*found["processes"].values(), *found["files"].values()):
        assert kind[0] > 0 and kind[1] == 0, found
    assert len(found["processes"]) == 2, found


def test_a_session_of_spark_connect_gets_the_packages(shared: Shared, tmp_path: Path) -> None:
    python = python_of_nodes(tmp_path / "python")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
    port, *_ = choose_ports(1)
    ran = subprocess.run(
        [sys.executable, "-c", CONNECT, str(ROOT), shared.bootstrap_servers, str(tmp_path / "tables"), str(port),
         *SCENE_TOPICS],
        cwd=tmp_path, env={**environment, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": HOST},
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout.splitlines()[-1])
    assert answer["connect"].startswith("pyspark.sql.connect")
    assert answer["verdicts"] == VERDICTS
    swept = answer["command"]
    assert (swept["engine"], swept["engine_reason"]) == ("spark", "executors_connect"), swept
    assert swept["counts"]["hanging"] == sum(verdict == "hanging" for verdict, _ in VERDICTS.values())
