"""Whole processes on the demo's three real brokers, with its planted transactions: from the command to its end.

- Kafka's tool for broker 1 alone, and `txnscan find-hanging` for the cluster.
- `bare.py`, a process that opens the same Spark session and appends one row to a Delta table that exists, and
  `txnscan sweep` with tables that exist, with executors and with threads, each with tables of its own.

Timed: each process from its start to its end, interpreter, imports and JVM included. Not timed: starting the brokers,
planting, and one run of each beforehand, which makes the tables and fills the file cache for all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.harness import Finding, Options, Ratio, Side, Work, say, timed_in_turn
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.kafka_tool import kafka_transactions
from txnscan.demo.story import plant_all

TOOL, FIND_HANGING = "Kafka's find-hanging for broker 1", "txnscan find-hanging, all brokers"
BARE, SWEEP = "PySpark: same session, one row to Delta", "txnscan sweep --tables"
SWEEP_IN_THREADS = f"{SWEEP} --engine threads"
RATIOS = (Ratio(FIND_HANGING, TOOL, 1), Ratio(SWEEP, BARE, 1.25), Ratio(SWEEP_IN_THREADS, BARE, 1.25))


def run(options: Options) -> Finding:
    """The five in turn."""
    with tempfile.TemporaryDirectory(prefix="txnscan-bench-cold-") as scratch:
        directory = Path(scratch)
        with KafkaCluster(directory / "brokers", say=say) as cluster, cluster.wire() as wire:
            scene = plant_all(cluster, wire, say)
            server = ("--bootstrap-server", cluster.bootstrap_servers)

            def by_tool() -> Work:
                answer = kafka_transactions(cluster, "find-hanging", "--broker-id", "1")
                if answer.exit_status:
                    raise RuntimeError(f"Kafka's tool failed: {answer.errors}")
                return {"hanging that the tool reports at broker 1": len(answer.rows)}

            def find_hanging() -> Work:
                return _seen(_ran(directory, _txnscan(), "find-hanging", *server, "--format", "json"))

            def bare() -> Work:
                _ran(directory, sys.executable, str(Path(__file__).with_name("bare.py")), str(directory / "one-row"))
                return {}

            def sweep(engine: str) -> Work:
                kept = ("--tables", str(directory / engine), "--engine", engine)
                return _seen(_ran(directory, _txnscan(), "sweep", *server, *kept, "--format", "json"))

            sides = (
                Side(TOOL, by_tool),
                Side(FIND_HANGING, find_hanging),
                Side(BARE, bare),
                Side(SWEEP, lambda: sweep("spark")),
                Side(SWEEP_IN_THREADS, lambda: sweep("threads")),
            )
            timed, work = timed_in_turn(sides, options.runs)
    setting = {"brokers": len(cluster.broker_ids), "Kafka": cluster.version, "planted": len(scene.planted)}
    return Finding("cold", "whole processes, on real brokers", setting, timed, RATIOS, work)


def _txnscan() -> str:
    return str(Path(sys.executable).with_name("txnscan"))


def _ran(directory: Path, *command: str) -> str:
    """The stdout of the command. Raises RuntimeError if it fails."""
    ran = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {ran.stderr.strip()}")
    return ran.stdout


def _seen(printed: str) -> Work:
    """The counts in a sweep's JSON."""
    swept: dict[str, Any] = json.loads(printed)["sweep"]
    return {"hanging": swept["counts"]["hanging"], "partitions": swept["partitions"]["planned"]}
