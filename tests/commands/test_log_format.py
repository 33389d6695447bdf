"""`--log-format json`: each line on stderr is a JSON object, without secrets."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.brokers.shared import PLAIN
from tests.builders import NOW_MS
from tests.cases import Cases
from tests.process import run
from tests.sim.wire import ClusterShape, WireCluster
from txnscan.cli.logs import JsonLines, LogFormat, StderrLines
from txnscan.errors import ExitStatus

KEYS = ["time", "level", "logger", "message"]
SECRET = "s3cr3t"
JSON = {"TXNSCAN_LOG_FORMAT": "json"}
DEBUG = ("--log-level", "debug")
# Arguments before the command and after it, the environment, the exit status, and levels and loggers of the lines.
RUNS: tuple[tuple[tuple[str, ...], tuple[str, ...], Mapping[str, str], int, set[tuple[str, str]]], ...] = (
    (("--log-format", "json"), ("list",), {}, ExitStatus.DONE, set()),
    ((), ("list", "--command-config", "SECRET"), JSON, ExitStatus.FAILED, {("error", "txnscan")}),
    ((), ("find-hanging", "--command-config", "UNKNOWN"), JSON, ExitStatus.DONE, {("warning", "txnscan")}),
    (
        *(DEBUG, ("list", "--command-config", "SECRET"), JSON, ExitStatus.FAILED),
        {("error", "txnscan"), ("debug", "txnscan.kafka.client.client")},
    ),
)


def test_each_line_is_an_object_without_a_secret(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("SECRET", "UNKNOWN")}
    sasl = f'sasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} required username="u" password="{SECRET}";\n'
    files["SECRET"].write_text(f"security.protocol=SASL_PLAINTEXT\n{sasl}")
    files["UNKNOWN"].write_text(f"not.of.kafka={SECRET}\n")
    files["SECRET"].chmod(0o600)
    with WireCluster(ClusterShape(brokers=1, partitions=5), 1) as cluster, Cases() as cases:
        for before, words, environment, status, expected in RUNS:
            with cases.case((before, words)):
                command, *rest = (str(files.get(word, word)) for word in words)
                at = (command, "--bootstrap-server", cluster.bootstrap_servers, *rest)
                ran = run(*before, *at, environment=environment)
                lines = [json.loads(line) for line in ran.stderr.splitlines()]
                assert ran.returncode == status
                assert all(list(line)[:4] == KEYS for line in lines)
                assert {(line["level"], line["logger"]) for line in lines} >= expected
                assert bool(lines) == bool(expected) and SECRET not in ran.stderr


def test_levels_and_times_of_lines() -> None:
    lines = StderrLines(lambda: NOW_MS)
    lines.format = LogFormat.JSON
    with Cases() as cases:
        for message, level, text in (
            ("txnscan: --tables: no", "error", "--tables: no"),
            ("warning: a\nb\x1b[0m ✓", "warning", "a\nb\x1b[0m ✓"),
            ("note: so it is", "info", "so it is"),
            ("orders: swept", "info", "orders: swept"),
        ):
            with cases.case(message):
                for line in (lines.line(message), lines.timed(message)):
                    found: dict[str, Any] = json.loads(line)
                    assert line.isascii() and "\n" not in line
                    assert found == {"time": found["time"], "level": level, "logger": "txnscan", "message": text}
                    assert found["time"].endswith("Z")
    lines.format = LogFormat.TEXT
    assert lines.line("warning: a\nb") == "warning: a\\nb"
    assert lines.timed("swept").endswith("Z swept")


def test_a_log_record_includes_its_exception() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        error = sys.exc_info()
    record = logging.LogRecord("kafka", logging.WARNING, "f", 1, "%s\n%s", ("a", "b"), error)
    line = JsonLines().format(record)
    found = json.loads(line)
    assert (found["level"], found["logger"], found["message"]) == ("warning", "kafka", "a\nb")
    assert "ValueError: broken" in found["exception"] and "\n" not in line
