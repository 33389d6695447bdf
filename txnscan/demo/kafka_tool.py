"""Kafka's own tool: its transactions command, run from the same jars."""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.errors import DemoError
from txnscan.demo.jars import java
from txnscan.demo.node import java_command

_COMMAND = "org.apache.kafka.tools.TransactionsCommand"
# If a partition has no leader, the tool retries for a minute before it gives up.
_RUN_S_MAX = 180


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The tool's output. `rows` is its table; each row has the values as text, by column name."""

    exit_status: int
    output: str
    errors: str
    rows: tuple[dict[str, str], ...]


@dataclass(frozen=True, slots=True)
class ToolHanging:
    """A transaction that the tool reports as hanging."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    duration_min: int


def kafka_transactions(cluster: KafkaCluster, *arguments: str) -> ToolAnswer:
    """Runs `kafka-transactions.sh --bootstrap-server ... arguments`. Its exit status is part of the result."""
    with tempfile.TemporaryDirectory(prefix="txnscan-kafka-tool-") as scratch:
        command = java_command(
            java(),
            cluster.jars,
            Path(scratch),
            _COMMAND,
            ["--bootstrap-server", cluster.bootstrap_servers, *arguments],
            log_level="WARN",
            to="SYSTEM_ERR",
        )
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_S_MAX, check=False)
        except subprocess.TimeoutExpired:
            raise DemoError(f"Kafka's transactions command did not end within {_RUN_S_MAX} s") from None
    return ToolAnswer(ran.returncode, ran.stdout, ran.stderr, _table(ran.stdout))


def find_hanging(cluster: KafkaCluster, broker_id: int, *arguments: str) -> tuple[ToolHanging, ...]:
    """The report of `find-hanging --broker-id`. Raises DemoError if the tool fails."""
    answer = kafka_transactions(cluster, "find-hanging", "--broker-id", str(broker_id), *arguments)
    if answer.exit_status != 0:
        raise DemoError(f"Kafka's transactions command failed: {(answer.errors or answer.output).strip()}")
    return tuple(
        ToolHanging(
            topic=row["Topic"],
            partition=int(row["Partition"]),
            producer_id=int(row["ProducerId"]),
            producer_epoch=int(row["ProducerEpoch"]),
            coordinator_epoch=int(row["CoordinatorEpoch"]),
            start_offset=int(row["StartOffset"]),
            last_timestamp_ms=int(row["LastTimestamp"]),
            duration_min=int(row["Duration(min)"]),
        )
        for row in answer.rows
    )


def _table(output: str) -> tuple[dict[str, str], ...]:
    """The tool's table: a line with the column names, then one line per row, with columns separated by white space."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    return tuple(dict(zip(lines[0], line, strict=False)) for line in lines[1:]) if lines else ()
