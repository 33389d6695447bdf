"""An interrupted sweep on a server of Spark Connect: it ends at once, and its Python workers end, too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.process import ROOT
from tests.sim.wire import ClusterShape, WireCluster
from txnscan.demo.ports import choose_ports
from txnscan.demo.wait import wait_until

# Each answer takes so long that the read of all partitions outlasts the test.
SLOW = ClusterShape(brokers=10, partitions=20_000, latency_ms=2_000)
# From the interrupt to the exception, and to the end of the last worker.
RAISED_S_MAX, ENDED_S_MAX = 2.0, 10.0

SERVER = """
import sys
from tests.connect import local_server
local_server(int(sys.argv[1]))
print("up", flush=True)
sys.stdin.readline()
"""

CLIENT = """
import json, sys, threading
from pyspark.sql import SparkSession
from txnscan import ScanConfig, sweep
port, servers, how = sys.argv[1:]
spark = SparkSession.builder.remote(f"sc://localhost:{port}").getOrCreate()
spark.addTag("of-the-user")
interrupt = {"interruptTag": lambda: spark.interruptTag("of-the-user"), "interruptAll": spark.interruptAll}

def wait_for_the_word():
    if sys.stdin.readline() and how in interrupt:
        interrupt[how]()

threading.Thread(target=wait_for_the_word, daemon=True).start()
try:
    sweep(spark, ScanConfig(servers, engine="spark"))
    raised = None
except BaseException as error:
    raised = type(error).__name__
print(json.dumps({"raised": raised}), flush=True)
print(json.dumps({"tags": sorted(spark.getTags()), "works": spark.range(3).count()}), flush=True)
"""


@contextmanager
def python(script: str, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """This script in a process of its own, which is ended."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    environment |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment | variables,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def workers(process_id: int) -> list[int]:
    """The workers below the daemon of Python in this process."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            commands[int(path.name)] = (path / "cmdline").read_text()
        except OSError:
            continue

    def is_below(one: int) -> bool:
        return one == process_id or (one in parents and is_below(parents[one]))

    daemons = {one for one, command in commands.items() if "pyspark" in command and "daemon" in command}
    return [one for one, parent in parents.items() if parent in daemons and is_below(one)]


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[int, int, str]]:
    """The process id, the port and the token of a server."""
    port, *_ = choose_ports(1)
    token = uuid.uuid4().hex
    with python(SERVER, str(port), SPARK_CONNECT_AUTHENTICATE_TOKEN=token) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        yield process.pid, port, token


@pytest.mark.parametrize("how", ["interruptTag", "interruptAll", "SIGINT"])
def test_an_interrupted_sweep_raises_at_once_and_its_workers_end(server: tuple[int, int, str], how: str) -> None:
    process_id, port, token = server
    with (
        WireCluster(SLOW) as cluster,
        python(CLIENT, str(port), cluster.bootstrap_servers, how, SPARK_CONNECT_AUTHENTICATE_TOKEN=token) as client,
    ):
        assert client.stdin is not None and client.stdout is not None

        def is_reading() -> bool:
            return any(broker.requests.get("DescribeProducers", 0) for broker in cluster.stats().values())

        wait_until(is_reading, "executors read", 120)
        assert workers(process_id)
        began_s = time.monotonic()
        if how == "SIGINT":
            os.kill(client.pid, signal.SIGINT)
        else:
            client.stdin.write("now\n")
            client.stdin.flush()
        assert json.loads(client.stdout.readline()) == {"raised": "KeyboardInterrupt"}
        assert time.monotonic() - began_s < RAISED_S_MAX
        wait_until(lambda: not workers(process_id), "the workers have ended", ENDED_S_MAX)
        assert json.loads(client.stdout.readline()) == {"tags": ["of-the-user"], "works": 3}
