"""The command line: each wrong option and each missing resource, with its sentence and its exit status.

In one process through Typer's runner, or as a process of its own for streams, signals and start-up.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

import txnscan
from tests.builders import plan, scan, stored
from tests.cases import Cases
from tests.process import ROOT, ended, run, run_to_end
from txnscan.cli import app as base
from txnscan.cli.app import app
from txnscan.cli.command import NAMES
from txnscan.cli.errors import errors_in_one_line
from txnscan.config import ConfigError, EngineName
from txnscan.demo.wait import wait_until
from txnscan.engine import EXECUTORS_PAY_FROM_PARTITIONS, advice
from txnscan.engine.choice import EngineChoice, EngineReason
from txnscan.engine.spark.jvm import _listen
from txnscan.kafka.clock import wall_clock_ms
from txnscan.report.help import CHANGE_A_CLUSTER, COMMAND_GROUPS
from txnscan.report.progress import _STAGES, TerminalProgress
from txnscan.resolve.apply import ApplyRunning
from txnscan.resolve.plan import to_json

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion


class Listener:
    """Counts the connections to a port that never answers."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.connections = 0
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        try:
            while True:
                self._socket.accept()[0].close()
                self.connections += 1
        except OSError:
            return

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


AT = ("--bootstrap-server", "{at}")
FIND = ("find-hanging", *AT)
SWEEP = ("sweep", *AT)
ON_SPARK = ("sweep", "--bootstrap-server", "localhost:9092", "--engine", "spark")
CAPACITY = ("capacity", "--brokers", "3", "--partitions", "10")
ABORT = ("abort", *AT, "--topic", "t", "--partition", "0")

# The wrong option, and a command line with it. No request is sent, and the status is 2.
USAGE: list[tuple[str, tuple[str, ...]]] = [
    ("--bootstrap-server", ("find-hanging",)),
    ("--bootstrap-server", ("find-hanging", "--bootstrap-server", "")),
    ("--bootstrap-server", ("find-hanging", "--bootstrap-server", "{at},")),
    ("--bootstrap-server", ("find-hanging", "--bootstrap-server", "localhost")),
    ("--bootstrap-server", ("find-hanging", "--bootstrap-server", "a:1:2")),
    ("--bootstrap-server", ("find-hanging", "--bootstrap-server", "[::1:9092")),
    ("--bootstrap-server", ("find-hanging", "--bootstrap-server", "a b:1")),
    ("--bootstrap-server", ("find-hanging", "--bootstrap-server", "a:0")),
    ("--bootstrap-server", ("find-hanging", "--bootstrap-server", "a:65536")),
    ("--late-after", (*FIND, "--late-after", "15")),
    ("--late-after", (*FIND, "--late-after", "15x")),
    ("--late-after", (*FIND, "--late-after", "0s")),
    ("--late-after", (*FIND, "--late-after", "-1m")),
    ("--late-after", (*FIND, "--late-after", "NaN")),
    ("--late-after", (*FIND, "--late-after", "999999999999d")),
    ("--late-after", (*FIND, "--late-after", "\x1b[31m")),
    ("--max-transaction-timeout", (*FIND, "--max-transaction-timeout", "0")),
    ("--max-transaction-timeout", (*FIND, "--max-transaction-timeout", "99999999999999")),
    ("--max-transaction-timeout", (*FIND, "--max-transaction-timeout", "9", "--late-after", "9m")),
    ("--partition", (*FIND, "--partition", "1")),
    ("--partition", (*FIND, "--topic", "t", "--partition", "-1")),
    ("--partition", (*FIND, "--partition", "x")),
    ("--broker-id", (*FIND, "--broker-id", "x")),
    ("--topic", (*FIND, "--topic", "a/b")),
    ("--topic", (*FIND, "--topic", "..")),
    ("--topic", (*FIND, "--topic", "a\nb")),
    ("--format", (*FIND, "--format", "xml")),
    ("--fail-on", (*FIND, "--fail-on", "late")),
    ("--abort", (*FIND, "--abort")),
    ("--command-config", (*FIND, "--command-config", "")),
    ("--broker-id", (*FIND, "--broker-id", "-1")),
    ("--topic", (*FIND, "--topic", "a\udcff")),
    ("--topic", (*FIND, "--topic", "a\x1b[31m")),
    ("--keep", ("maintain", "--tables", "./t", "--keep", "-1d")),
    ("--out", ("report", "--tables", "./t", "--out", "/nowhere/x")),
    ("--tables", ("views", "--tables", "t")),
    ("--topic", (*SWEEP, "--topic", "(")),
    ("--batch-size", (*SWEEP, "--batch-size", "0")),
    ("--batch-size", (*SWEEP, "--batch-size", "10001")),
    ("--in-flight", (*SWEEP, "--in-flight", "-1")),
    ("--in-flight", (*SWEEP, "--in-flight", "65")),
    ("--tables", (*SWEEP, "--tables", " ")),
    *(
        ("--tables", (*command, "--tables", "main.tx-scan"))
        for command in (
            *(SWEEP, ("check", *AT), ("show",), ("history",), ("plan", "--out", "plan.json"), ("demo",)),
            ("apply", "plan.json", *AT),
        )
    ),
    ("--max-age", ("show", "--tables", "./t", "--max-age", "15")),
    ("--max-age", ("plan", "--tables", "./t", "--out", "plan.json", "--max-age", "x")),
    ("--incident", ("history", "--tables", "./t", "--incident", "x'y")),
    ("--engine", (*SWEEP, "--engine", "flink")),
    ("--tables", ("show",)),
    ("--out", ("plan", "--tables", "./t")),
    ("--out", ("plan", "--tables", "./t", "--out", "/nowhere/plan.json")),
    ("--topic", ("plan", "--tables", "./t", "--out", "plan.json", "--topic", "(")),
    ("--limit", ("plan", "--tables", "./t", "--out", "plan.json", "--limit", "0")),
    ("--partitions", ("capacity", "--brokers", "3")),
    ("--brokers", ("capacity", "--brokers", "fifty", "--partitions", "9")),
    ("--brokers", ("capacity", "--brokers", "0", "--partitions", "9")),
    ("--open", (*CAPACITY, "--open", "11")),
    ("--latency-ms", (*CAPACITY, "--latency-ms", "nan")),
    ("--producers", (*CAPACITY, "--producers", "-1")),
    ("PLAN", ("apply", *AT, "--tables", "./t")),
    ("PLAN", ("apply", "/nowhere/plan.json", *AT, "--tables", "./t")),
    ("--max-plan-age", ("apply", "x", *AT, "--tables", "./t", "--max-plan-age", "1")),
    ("--bootstrap-server", ("check",)),
    ("--tables", ("check", *AT, "--tables", " ")),
    ("--port", ("demo", "--port", "80")),
    ("--kafka-version", ("demo", "--kafka-version", "3.5.2")),
    ("--state", ("list", *AT, "--state", "open")),
    ("--producer-id", ("list", *AT, "--producer-id", "-1")),
    ("--format", ("list", *AT, "--format", "xml")),
    ("--transactional-id", ("describe", *AT)),
    ("--transactional-id", ("describe", *AT, "--transactional-id", "")),
    ("--partition", ("describe-producers", *AT, "--partition", "0")),
    ("--topic", ("describe-producers", *AT, "--topic", "a/b")),
    ("--transactional-id", ("coordinator", *AT)),
    ("--transactional-id", ("transaction-log", *AT)),
    ("--producer-id", ("transaction-log", *AT, "--producer-id", "-1")),
    ("--topic", ("abort", *AT, "--partition", "0")),
    ("--start-offset", ABORT),
    ("--start-offset", (*ABORT, "--start-offset", "1", "--producer-id", "1")),
    ("--producer-epoch", (*ABORT, "--producer-id", "1")),
    ("--start-offset", (*ABORT, "--start-offset", "-1")),
    ("--producer-epoch", (*ABORT, "--producer-id", "1", "--producer-epoch", "32768", "--coordinator-epoch", "0")),
    ("--force", (*ABORT, "--start-offset", "1", "--force", " ")),
    ("--tables", (*ABORT, "--start-offset", "1", "--tables", " ")),
    ("--transactional-id", ("force-terminate", *AT)),
    ("--transactional-id", ("force-terminate", *AT, "--transactional-id", "")),
    *(
        (command[-1], (*command, "a\udcff"))
        for command in (
            ("describe", *AT, "--transactional-id"),
            ("force-terminate", *AT, "--yes", "--transactional-id"),
            ("transaction-log", *AT, "--transactional-id"),
            ("coordinator", "--partitions", "50", "--group"),
            ("list", *AT, "--transactional-id-pattern"),
            ("explain", *AT, "--group"),
            (*SWEEP, "--topic"),
            (*SWEEP, "--owner-pattern"),
            ("show", "--tables", "./t", "--cluster-id"),
            ("apply", "plan.json", *AT, "--tables", "./t", "--only"),
        )
    ),
    ("--error", ("explain", *AT, "--error", "PRODUCER_FENCED transactionalId=a\udcff")),
    *(
        (command[-1], (*command, "99999999999999999999"))
        for command in (
            ("transaction-log", *AT, "--producer-id"),
            ("list", *AT, "--producer-id"),
            ("list", *AT, "--broker-id"),
            ("list", *AT, "--duration-filter"),
            ("describe-producers", *AT, "--broker-id"),
            ("explain", *AT, "--producer-id"),
            ("explain", *AT, "--topic", "t", "--partition"),
            (*FIND, "--broker-id"),
            (*FIND, "--topic", "t", "--partition"),
            ("check", *AT, "--before-stop"),
            ("capacity", "--partitions", "3", "--brokers"),
            ("capacity", "--brokers", "3", "--partitions"),
        )
    ),
    ("--topic", ("explain", *AT, "--group", "a", "--topic", "b")),
    ("--partition", ("explain", *AT, "--partition", "7")),
    ("--out", ("plan", "--tables", "./t", "--out", "-")),
    ("--out", ("report", "--tables", "./t", "--out", "-")),
    ("--metrics-file", (*FIND, "--metrics-file", "-")),
    ("--topc", (*FIND, "--topc", "t")),
    ("sweeep", ("sweeep",)),
]


def test_a_wrong_option_is_named_with_exit_status_2_and_no_request(
    listener: Listener, wording: SnapshotAssertion
) -> None:
    sentences = {}
    with Cases() as cases:
        for option, arguments in USAGE:
            with cases.case(ascii(" ".join(arguments))[1:-1]) as name:
                ran = CliRunner().invoke(app, [word.format(at=listener.address) for word in arguments])
                sentence = ran.stderr.removeprefix("txnscan: ").removesuffix("\n")
                assert (ran.exit_code, ran.stdout, ran.stderr) == (2, "", f"txnscan: {sentence}\n")
                assert option in sentence and "\n" not in sentence
                assert listener.connections == 0
                sentences[name] = sentence.replace(listener.address, "<address>")
    assert sentences == wording


# The metavars of options whose values are no names: words of txnscan, numbers, times, and places.
NO_NAMES = {
    *("DURATION", "FILE", "HOST:PORT", "HOST:PORT[,...]", "LOCATION", "MASTER", "PATH", "REASON", "STATE", "TEXT"),
    *("TIME", "URL|@FILE", "json|slack|pagerduty|alertmanager|apprise"),
}


def test_every_option_with_a_text_is_known_to_be_a_name_or_none() -> None:
    """Names are checked to be UTF-8 (`cli.command`)."""
    texts = {
        one.metavar
        for command in get_command(app).commands.values()  # type: ignore[attr-defined]
        for one in command.params
        if one.type.name == "str"
    }
    assert texts - NAMES == NO_NAMES


MADE = plan(stored(), stored(incident_id="incident-2", partition=1, reason="live_epoch"))


def made() -> str:
    return to_json(MADE)


def fresh() -> str:
    """Created when the test runs, which may be an hour after the start of the run."""
    return to_json(replace(MADE, planned_at_ms=wall_clock_ms()))


def edited() -> str:
    return fresh().replace("ABORT", "COMMIT")


# A plan, further options, and the status. No request is sent, and Spark does not start.
REFUSED: dict[str, tuple[Callable[[], str], tuple[str, ...], int]] = {
    "prose": (lambda: "nothing", (), 6),
    "another object": (lambda: "{}", (), 6),
    "expired": (made, (), 6),
    "edited": (edited, (), 6),
    "--only of another partition": (fresh, ("--only", "p-9"), 2),
    "--only of a refused one": (fresh, ("--only", "p-1"), 2),
}


def test_an_unacceptable_plan_is_refused_before_any_request(
    listener: Listener, tmp_path: Path, wording: SnapshotAssertion
) -> None:
    sentences = {}
    with Cases() as cases:
        for why, (text, more, status) in REFUSED.items():
            with cases.case(why) as name:
                (tmp_path / "plan.json").write_text(text())
                words = [
                    "apply",
                    str(tmp_path / "plan.json"),
                    "--bootstrap-server",
                    listener.address,
                    "--tables",
                    "./t",
                    *more,
                ]
                ran = CliRunner().invoke(app, words)
                assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (status, "", 1)
                assert ran.stderr.startswith("txnscan: --only: " if more else "txnscan: ")
                assert listener.connections == 0
                sentences[name] = re.sub(r"\d+ d( \d+ h)?", "<age>", ran.stderr.replace(str(tmp_path), "<tmp>"))
    assert sentences == wording


def test_another_running_apply_has_its_own_status() -> None:
    with pytest.raises(typer.Exit) as ended, errors_in_one_line():
        raise ApplyRunning("--tables", "another apply is under way")
    assert ended.value.exit_code == 7


LOGIN = "sasl.mechanism=PLAIN\nsasl.jaas.config=hunter2\n"
# The setting at the start of the error, and the file. The secret in a file is hunter2.
PROPERTIES: list[tuple[str, str | bytes | None]] = [
    ("", None),
    ("", ""),
    ("", "\ufeff"),
    ("", b"\xff\xfes\x00"),
    ("sasl.kerberos.service.name", "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\n"),
    ("security.protocol", "security.protocol=TLS\n"),
    ("ssl.provider", "ssl.provider=hunter2\n"),
    ("ssl.truststore.location", "security.protocol=SSL\nssl.truststore.location=/x.jks\n"),
    ("sasl.jaas.config", f"security.protocol=SASL_PLAINTEXT\n{LOGIN}"),
    ("sasl.jaas.config", LOGIN),
    ("securty.protocol", "securty.protocol=SSL\n"),
    ("security_protocol", "security_protocol=SSL\n"),
    ("admin.security.protocol", "admin.security.protocol=SSL\n"),
    ("sasl.jaas.confg", "sasl.jaas.confg=hunter2\n"),
    ("request.timeout", "request.timeout=1\n"),
    ("security.protocol", "\ufeffsecurity.protocol=TLS\n"),
    ("x\\ufeffsecurity.protocol", "a=1\nx\ufeffsecurity.protocol=SSL"),
    ("config.providers.file.class", "config.providers=file\nconfig.providers.file.class=x\n"),
]


def test_a_wrong_client_properties_file_is_reported_by_key_without_the_value(
    listener: Listener, tmp_path: Path, wording: SnapshotAssertion
) -> None:
    sentences = {}
    with Cases() as cases:
        for number, (key, text) in enumerate(PROPERTIES):
            with cases.case(f"{number}: {key}") as name:
                path = tmp_path / f"{number}.properties"
                if text is not None:
                    path.write_bytes(text if isinstance(text, bytes) else text.encode())
                ran = CliRunner().invoke(
                    app, [*FIND[:1], "--bootstrap-server", listener.address, "--command-config", str(path)]
                )
                begins, _, sentence = ran.stderr.partition(str(path))
                assert (ran.exit_code, ran.stdout, begins) == (2, "", "txnscan: --command-config: ")
                assert sentence.startswith(f": {key} " if key else " ") and sentence.count("\n") == 1
                assert "hunter2" not in ran.stderr
                assert listener.connections == 0
                sentences[name] = sentence
    assert sentences == wording


# The start of each warning.
WARNED = [
    ("acks=all\nmax.poll.records=5\nmetric.reporters=x\n", []),
    ("schema.registry.url=http://hunter2@x\n", ["schema.registry.url"]),
    ("acks=all\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ\n", ["line 2"]),
]


@pytest.mark.parametrize(("text", "warnings"), WARNED, ids=["Kafka's own", "foreign", "a line of a key"])
def test_an_unknown_setting_is_a_warning_without_its_value(
    tmp_path: Path, text: str, warnings: list[str], wording: SnapshotAssertion
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(text)
    ran = CliRunner().invoke(app, ["find-hanging", "--bootstrap-server", "127.0.0.1:1", "--command-config", str(path)])
    *said, last = ran.stderr.splitlines()
    assert last.startswith("txnscan: --bootstrap-server: ") and ran.exit_code == 1
    told = [line.removeprefix(f"warning: --command-config: {path}: ") for line in said]
    assert all(line.startswith(f"{start} ") for line, start in zip(told, warnings, strict=True))
    assert "hunter2" not in ran.stderr and "MIIE" not in ran.stderr
    assert told == wording


UNREACHED = ["127.0.0.1:{closed}", "nosuch.invalid:9092"]


ASKING = [
    ("list",),
    ("describe", "--transactional-id", "a"),
    ("describe-producers",),
    ("coordinator", "--group", "g"),
    ("transaction-log", "--transactional-id", "a"),
    ("abort", "--topic", "t", "--partition", "0", "--start-offset", "1"),
    ("force-terminate", "--transactional-id", "a"),
]


@pytest.mark.parametrize("command", ASKING, ids=[command[0] for command in ASKING])
def test_every_command_reports_an_unreachable_cluster_in_one_sentence(command: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    ran = CliRunner().invoke(app, [*command, "--bootstrap-server", address])
    assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert ran.stderr.startswith("txnscan: --bootstrap-server: ") and f"({address})" in ran.stderr


@pytest.mark.parametrize("command", ASKING, ids=[command[0] for command in ASKING])
def test_ctrl_c_ends_every_command_with_one_sentence(command: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        process = started(*command, "--bootstrap-server", f"127.0.0.1:{mute.getsockname()[1]}")
        mute.accept()
        assert interrupted(process) == (130, "", "txnscan: interrupted\n")


@pytest.mark.parametrize("address", UNREACHED)
def test_an_unreachable_bootstrap_server_is_one_sentence_and_exits_with_1(
    address: str, wording: SnapshotAssertion
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = address.format(closed=closed.getsockname()[1])
    ran = CliRunner().invoke(app, ["find-hanging", "--bootstrap-server", address])
    assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert ran.stderr.startswith("txnscan: --bootstrap-server: ") and address in ran.stderr
    assert ran.stderr.replace(address, "<address>") == wording


def test_a_silent_port_is_named(tmp_path: Path, wording: SnapshotAssertion) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text("request.timeout.ms=300\nsocket.connection.setup.timeout.ms=300\n")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        options = ["--bootstrap-server", address, "--command-config", str(settings)]
        ran = CliRunner().invoke(app, ["find-hanging", *options])
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.replace(address, "<address>") == wording


def test_blanks_around_bootstrap_servers_are_stripped_as_in_kafka() -> None:
    ran = CliRunner().invoke(app, ["find-hanging", "--bootstrap-server", "127.0.0.1:1, 127.0.0.1:2"])
    assert ran.exit_code == 1 and "(127.0.0.1:1)" in ran.stderr and "(127.0.0.1:2)" in ran.stderr


def test_the_failure_of_each_bootstrap_server_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in (one, other)]
    ran = CliRunner().invoke(app, ["find-hanging", "--bootstrap-server", ",".join(addresses)])
    assert all(address in ran.stderr for address in addresses)


def test_an_unwritable_table_location_is_one_line_before_any_request(listener: Listener, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    tables = ("--tables", str(tmp_path / "file" / "tables"), "--engine", "threads")
    ran = run("sweep", "--bootstrap-server", listener.address, *tables)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines()[-1].startswith("txnscan: --tables: ")
    assert "Traceback" not in ran.stderr and listener.connections == 0


def test_without_java_a_sweep_fails_in_one_line(tmp_path: Path, wording: SnapshotAssertion) -> None:
    environment = {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    ran = run(*ON_SPARK, environment=environment)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.replace(str(tmp_path), "<tmp>") == wording


def test_an_old_java_is_named_with_its_version(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    ran = run(*ON_SPARK, environment={"JAVA_HOME": str(tmp_path)})
    assert ran.returncode == 1
    assert f"{java} is Java 8" in ran.stderr and ran.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [ON_SPARK, ("demo",)])
def test_without_spark_a_command_names_the_extra_to_install(
    tmp_path: Path, command: tuple[str, ...], wording: SnapshotAssertion
) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('no pyspark here')")
    ran = run(*command, environment={"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"})
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == wording


def test_a_missing_registry_is_one_line_with_a_log(tmp_path: Path, wording: SnapshotAssertion) -> None:
    """Simulates a network without registries, by an empty Ivy settings file."""
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{tmp_path}/nowhere/[artifact].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TXNSCAN_IVY_SETTINGS": str(settings)}
    ran = run(*ON_SPARK, environment=environment)
    assert ran.returncode == 1
    last = ran.stderr.splitlines()[-1]
    assert last.replace(str(tmp_path), "<tmp>") == wording
    assert Path(last.rsplit(" ", 1)[1]).is_file()
    assert "Traceback" not in ran.stderr


def test_an_exception_of_an_executor_is_one_line() -> None:
    from txnscan.engine.spark.errors import spark_reason

    worker = "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File x\n"
    raised = "ModuleNotFoundError: No module named 'somelib'"
    assert spark_reason(RuntimeError(f"{worker}{raised}\n\tat org.x")) == raised
    java = "An error occurred while calling o48.sql.\n: org.apache.spark.DeltaIOException: [X] No file\n\tat y"
    assert spark_reason(RuntimeError(java)) == "[X] No file"


@pytest.mark.parametrize(
    ("engine", "partitions", "advised"),
    [
        ("spark", EXECUTORS_PAY_FROM_PARTITIONS - 1, "--engine threads"),
        ("spark", EXECUTORS_PAY_FROM_PARTITIONS, None),
        ("threads", EXECUTORS_PAY_FROM_PARTITIONS - 1, None),
        ("threads", EXECUTORS_PAY_FROM_PARTITIONS, "--engine spark"),
    ],
)
def test_a_sweep_recommends_the_faster_engine(engine: str, partitions: int, advised: str | None) -> None:
    said = advice(engine, partitions)
    if advised is None:
        assert said is None
    else:
        assert said is not None and advised in said and f"{partitions:,} partitions" in said


@pytest.mark.parametrize("terminal", [True, False])
def test_the_faster_engine_is_named_only_on_a_terminal(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wording: SnapshotAssertion
) -> None:
    monkeypatch.setattr(base, "_stderr", lambda: Console(stderr=True, force_terminal=terminal))
    base.advise(scan(engine=EngineChoice(EngineName.SPARK, EngineReason.REQUESTED)))
    said = capsys.readouterr().err
    assert bool(said) == terminal and said.startswith("note: " if terminal else "")
    assert said == wording


# --- streams, signals and the start of Spark --------------------------------------------------------------------------


def shell(typed: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command line in a shell, with `txnscan` for the installed command."""
    script = f'set -o pipefail; txnscan() {{ "{sys.executable}" -m txnscan "$@"; }}; {typed}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return run_to_end(["bash", "-c", script], environment=environment)


_PREDICT = "txnscan capacity --brokers 3 --partitions 10"
STREAMS = [
    (f"{_PREDICT} >/dev/full", 1, "txnscan: stdout cannot be written: no space left on device\n"),
    ("txnscan --help >/dev/full", 1, "txnscan: stdout cannot be written: no space left on device\n"),
    (f"{_PREDICT} >&-", 1, "txnscan: stdout is closed\n"),
    (f"{_PREDICT} | head -1 >/dev/null", 0, ""),
    ("txnscan find-hanging --bootstrap-server x 2>/dev/full", 2, ""),
]


@pytest.mark.parametrize(("command", "status", "said"), STREAMS, ids=[command for command, _, _ in STREAMS])
def test_a_full_closed_or_unread_stream_leaves_no_traceback(command: str, status: int, said: str) -> None:
    ran = shell(command)
    assert (ran.returncode, ran.stdout, ran.stderr) == (status, "", said)


def java_that(directory: Path, does: str) -> dict[str, str]:
    """The environment with a Java of version 17 that does this when Spark starts it."""
    java = directory / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\n[ "$1" = -version ] && {{ echo \'openjdk version "17.0.1"\' >&2; exit; }}\n{does}\n')
    java.chmod(0o755)
    return {"JAVA_HOME": str(java.parent.parent)}


def test_a_failed_start_of_spark_is_one_sentence_without_a_traceback(
    tmp_path: Path, wording: SnapshotAssertion
) -> None:
    java = java_that(
        tmp_path,
        "echo 'WARNING: Using incubator modules: jdk.incubator.vector' >&2\n"
        "echo 'Exception in thread \"main\" org.apache.spark.SparkException: HADOOP_CONF_DIR must be set.' >&2\n"
        "printf '\\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1)\\n' >&2; exit 1",
    )
    ran = run("show", "--tables", str(tmp_path), "--master", "yarn", environment=java)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == wording


def test_an_unreachable_master_is_reported_at_once(tmp_path: Path, wording: SnapshotAssertion) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        master = f"spark://127.0.0.1:{closed.getsockname()[1]}"
    ran = run("show", "--tables", str(tmp_path), "--master", master, environment=java_that(tmp_path, "exit 1"))
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.replace(master[8:], "<address>") == wording


@pytest.mark.parametrize("variable", ["MASTER", "--master"])
@pytest.mark.parametrize("master", ["foo", "local[x]", "sc://", "sc:///;token=secret", "spark://x"])
def test_an_unknown_master_is_an_error_of_its_option(
    variable: str, master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    from txnscan.engine.spark.session import _master

    if variable == "MASTER":
        monkeypatch.setenv("MASTER", master)
    with pytest.raises(ConfigError) as error:
        _master(None if variable == "MASTER" else master)
    assert str(error.value).startswith(f"{variable}: '{master.partition('/;')[0]}' ")
    assert "secret" not in str(error.value)
    assert str(error.value) == wording


@pytest.mark.parametrize(
    ("environment", "master", "named"),
    [
        ({}, None, False),
        ({}, "local[2]", True),
        ({"MASTER": "local[2]"}, None, True),
        ({"MASTER": ""}, None, False),
        ({"SPARK_REMOTE": "sc://localhost"}, None, True),
        ({"PYSPARK_GATEWAY_PORT": "1"}, None, True),
        ({"DATABRICKS_RUNTIME_VERSION": "17.3"}, None, True),
    ],
)
def test_a_sweep_without_an_engine_uses_spark_only_if_a_session_is_named(
    environment: dict[str, str], master: str | None, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MASTER", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "DATABRICKS_RUNTIME_VERSION"):
        monkeypatch.setenv(name, environment.get(name, ""))
    # Other tests of this process may have a session.
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    assert base.names_session(master) == named


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    process.send_signal(signal.SIGINT)
    stdout, stderr = ended(process)
    return process.returncode, stdout, stderr


def started(*arguments: str, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-m", "txnscan", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def test_ctrl_c_during_the_jvm_start_is_one_sentence_and_leaves_no_jvm(tmp_path: Path) -> None:
    """Spark's launcher names the command of the JVM. Here the command ignores the end of its parent, like a JVM that is
    still starting.
    """
    there = tmp_path / "there"
    jvm = f"echo $$ >{there}.part; echo Exception >&2; mv {there}.part {there}; exec sleep 60"
    process = started(
        "show",
        "--tables",
        str(tmp_path),
        "--master",
        "local[1]",
        **java_that(tmp_path, f"printf '\\0\\nsh\\0-c\\0%s\\0' '{jvm}'"),
    )
    wait_until(there.exists, "Spark started its JVM")
    assert interrupted(process) == (130, "", "txnscan: interrupted\n")
    command = Path("/proc", there.read_text().strip(), "cmdline")
    wait_until(lambda: not command.exists() or not command.read_bytes(), "the JVM was gone")


def test_ctrl_c_during_a_broker_wait_is_one_sentence_and_exits_with_130() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        process = started("find-hanging", "--bootstrap-server", f"127.0.0.1:{mute.getsockname()[1]}")
        mute.accept()
        assert interrupted(process) == (130, "", "txnscan: interrupted\n")


def test_ctrl_c_during_the_import_prints_nothing(tmp_path: Path) -> None:
    """A module that waits simulates a slow disk."""
    there = tmp_path / "there"
    (tmp_path / "typer.py").write_text(f"open({str(there)!r}, 'w'); import time; time.sleep(60)")
    process = started("find-hanging", PYTHONPATH=f"{tmp_path}:{ROOT}")
    wait_until(there.exists, "the command was being imported")
    assert interrupted(process) == (130, "", "")


# --- progress ---------------------------------------------------------------------------------------------------------


def test_every_stage_of_a_command_has_a_description() -> None:
    package = Path(txnscan.__file__).parent
    files = [package / "sweeps" / "pipeline.py", package / "api.py", *(package / "cli").glob("*.py")]
    sources = [file.read_text("utf-8") for file in files]
    stages = {stage for source in sources for stage in re.findall(r'progress\("([^"]+)"', source)}
    assert len(stages) > 10
    assert stages <= _STAGES.keys()


def test_only_commands_with_tables_say_that_they_read_them() -> None:
    """`find-hanging` and `explain` have the stages of a sweep, and no tables."""
    told = {stage for stage, texts in _STAGES.items() if re.search("tables|earlier", " ".join(texts))}
    assert told == {"open tables", "write tables", "read tables", "tidy tables"}


def test_progress_is_one_fitting_line_and_shows_the_next_stage_after_a_finished_one() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    seen = []
    with TerminalProgress(console) as progress:
        for stage, done, total in (
            ("start Spark", 0, 1),
            ("read every partition", 999_999, 1_000_000),
            ("read every partition", 1_000_000, 1_000_000),
        ):
            progress(stage, done, total)
            page = Console(file=io.StringIO(), width=80)
            with page.capture() as captured:
                page.print(progress._progress.make_tasks_table(progress._progress.tasks))
            seen.append(captured.get().rstrip("\n"))
    assert all("\n" not in line and len(line) <= 80 for line in seen)
    for line, says in zip(
        seen,
        ("Starting Spark", "Reading every partition 999,999 of 1,000,000", "Looking for open transactions"),
        strict=True,
    ):
        assert says in line
    assert " of " not in seen[-1]


def test_usual_output_of_the_jvm_is_dropped_and_errors_are_passed_on() -> None:
    heard: list[str] = []
    error = "2026-11-22 08:00:00 ERROR Executor: no space left"
    begun = threading.Event()
    begun.set()
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as jvm:
        jvm.write(
            "WARNING: Using incubator modules: jdk.incubator.vector\n"
            'Setting default log level to "WARN".\n'
            "Picked up JAVA_TOOL_OPTIONS: -Dproxy=hunter2\n"
            f"{error}\n"
            "\tat org.apache.spark.Executor.run(Executor.scala:1)\n"
        )
    _listen(reader, deque(), begun, heard.append)
    assert heard == [error]


# --- help -------------------------------------------------------------------------------------------------------------


def shown_commands() -> list[str]:
    return sorted(name for name, one in get_command(app).commands.items() if not one.hidden)  # type: ignore[attr-defined]


def test_help_shows_no_python_types_and_ends_with_valid_examples() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    with Cases() as cases:
        for command in shown_commands():
            with cases.case(command):
                ran = CliRunner().invoke(app, [command, "-h"], env={"COLUMNS": "80"})
                assert (
                    ran.exit_code == 0
                    and ran.stdout == CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"}).stdout
                )
                assert not re.search(r"<(list|int|str|float|path|bool)|\{|\}", ran.stdout)
                # Lines are not truncated. The usage marks repeatable options.
                assert not re.search(r"\.\.\.$", ran.stdout.partition("\n")[2], re.M)
                shown = re.findall(r"^ +(?:MASTER=\S+ )?txnscan (\S.*)$", ran.stdout.partition("Examples:")[2], re.M)
                assert shown
                for line in shown:
                    name, *words = shlex.split(line)
                    commands[name].make_context(name, words)


def test_the_list_of_commands_is_grouped_by_task_and_has_unabridged_summaries() -> None:
    ran = CliRunner().invoke(app, ["-h"], env={"COLUMNS": "80"})
    listed = ran.stdout.partition("\nFind:")[2].partition("\n  Examples:")[0]
    assert listed and "..." not in listed
    assert sorted(name for names in COMMAND_GROUPS.values() for name in names) == shown_commands()
    assert re.findall(r"^  ([a-z-]+)(?: \*)?  +[A-Z]", listed, re.M) == [
        name for names in COMMAND_GROUPS.values() for name in names
    ]
    assert tuple(re.findall(r"^  (\S+) \*  ", listed, re.M)) == CHANGE_A_CLUSTER


def test_the_commands_that_change_a_cluster_are_those_that_the_readme_names() -> None:
    """apply only with --execute."""
    (named,) = re.findall(
        r"^- \*\*It reads\.\*\* Only (.*) change a cluster\.$", (ROOT / "README.md").read_text("utf-8"), re.M
    )
    assert tuple(re.findall(r"`([a-z-]+)", named)) == CHANGE_A_CLUSTER
