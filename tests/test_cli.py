"""Wrong input: one line that names the option, the right exit status, and nothing sent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.builders import scan
from tests.test_sweep import run
from txnscan import cli
from txnscan.cli import app
from txnscan.engine import EXECUTORS_PAY_FROM_PARTITIONS, advice


class Listener:
    """Counts the connections to a port where nobody answers."""

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


USAGE = [
    (["find-hanging"], "--bootstrap-server"),
    (["find-hanging", "--bootstrap-server", ""], "--bootstrap-server: is empty"),
    (["find-hanging", "--bootstrap-server", "{at},"], "--bootstrap-server: '' is not host:port"),
    (["find-hanging", "--bootstrap-server", "localhost"], "--bootstrap-server: 'localhost' is not host:port"),
    (["find-hanging", "--bootstrap-server", "localhost:0"], "--bootstrap-server: port 0"),
    (["find-hanging", "--bootstrap-server", "{at}", "--late-after", "15"], "--late-after: '15' is not a duration"),
    (["find-hanging", "--bootstrap-server", "{at}", "--late-after", "-1m"], "--late-after"),
    (["find-hanging", "--bootstrap-server", "{at}", "--max-transaction-timeout", "0"], "--max-transaction-timeout"),
    (
        ["find-hanging", "--bootstrap-server", "{at}", "--max-transaction-timeout", "9", "--late-after", "9m"],
        "--max-transaction-timeout: is the same as --late-after",
    ),
    (["find-hanging", "--bootstrap-server", "{at}", "--partition", "1"], "--partition: needs --topic"),
    (["find-hanging", "--bootstrap-server", "{at}", "--topic", "a/b"], "--topic: 'a/b' is not a legal topic name"),
    (["find-hanging", "--bootstrap-server", "{at}", "--topic", "a\nb"], "--topic: 'a\\nb' is not a legal topic name"),
    (["find-hanging", "--bootstrap-server", "{at}", "--format", "xml"], "--format"),
    (["find-hanging", "--bootstrap-server", "{at}", "--fail-on", "late"], "--fail-on"),
    (["find-hanging", "--bootstrap-server", "{at}", "--abort"], "--abort"),
    (["sweep", "--bootstrap-server", "{at}", "--topic", "("], "--topic: '(' is not a regular expression"),
    (["sweep", "--bootstrap-server", "{at}", "--batch-size", "0"], "--batch-size: 0 is out of range"),
    (["sweep", "--bootstrap-server", "{at}", "--in-flight", "65"], "--in-flight: 65 is out of range"),
    (["sweep", "--bootstrap-server", "{at}", "--tables", " "], "--tables: is empty"),
    (["sweep", "--bootstrap-server", "{at}", "--engine", "flink"], "--engine"),
    (["show"], "--tables"),
    (["plan", "--tables", "t"], "--out"),
    (["plan", "--tables", "t", "--out", "/nowhere/plan.json"], "--out: /nowhere/plan.json cannot be written"),
    (["plan", "--tables", "t", "--out", "plan.json", "--topic", "("], "--topic: '(' is not a regular expression"),
    (["plan", "--tables", "t", "--out", "plan.json", "--limit", "0"], "--limit"),
    (["simulate", "--cluster", "fifty"], "--cluster: 'fifty' is no size; use BROKERSxPARTITIONS"),
    (["simulate", "--cluster", "0x10"], "--cluster: a cluster has brokers and partitions"),
    (["simulate", "--cluster", "3x10", "--open", "11"], "--open: there are 10 partitions"),
    (["simulate", "--cluster", "3x10", "--latency-ms", "nan"], "--latency-ms: must be 0 or more"),
    (["simulate", "--cluster", "3x10", "--producers", "-1"], "--producers: must be 0 or more"),
    (["apply", "--bootstrap-server", "{at}", "--tables", "t"], "PLAN"),
    (["apply", "/nowhere/plan.json", "--bootstrap-server", "{at}", "--tables", "t"], "PLAN: /nowhere/plan.json cannot"),
    (["apply", "pyproject.toml", "--bootstrap-server", "{at}", "--tables", "t"], "plan: the file is not JSON"),
    (
        ["apply", "x", "--bootstrap-server", "{at}", "--tables", "t", "--max-plan-age", "1"],
        "--max-plan-age: '1' is not",
    ),
    (["demo", "--port", "80"], "--port"),
    (["sweeep"], "sweeep"),
]


@pytest.mark.parametrize(("arguments", "says"), USAGE, ids=[" ".join(arguments) for arguments, _ in USAGE])
def test_a_wrong_option_is_named_and_exits_with_2_before_anything_is_sent(
    listener: Listener, arguments: list[str], says: str
) -> None:
    ran = CliRunner().invoke(app, [word.format(at=listener.address) for word in arguments])
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert says in ran.stderr
    assert listener.connections == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "does not exist"),
        ("", "holds no settings"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\n", "sasl.mechanism must be one of"),
        ("security.protocol=TLS\n", "security.protocol must be one of"),
        ("ssl.keystore.password=hunter2\n", "ssl.keystore.password is not supported"),
        ("security.protocol=SSL\nssl.truststore.location=/x.jks\n", "ssl.truststore.type must be PEM"),
        (
            "sasl.jaas.config=hunter2\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n",
            "sasl.jaas.config must read",
        ),
    ],
)
def test_a_wrong_client_properties_names_the_key_and_never_the_value(
    listener: Listener, tmp_path: Path, text: str | None, says: str
) -> None:
    path = tmp_path / "client.properties"
    if text is not None:
        path.write_text(text)
    arguments = ["find-hanging", "--bootstrap-server", listener.address, "--command-config", str(path)]
    ran = CliRunner().invoke(app, arguments)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"txnscan: --command-config: {path}") and says in ran.stderr
    assert ran.stderr.count("\n") == 1 and "hunter2" not in ran.stderr
    assert listener.connections == 0


def test_a_bootstrap_server_that_cannot_be_reached_is_one_line_and_exits_with_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    ran = CliRunner().invoke(app, ["find-hanging", "--bootstrap-server", address])
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith("txnscan: --bootstrap-server: ") and ran.stderr.count("\n") == 1
    assert address in ran.stderr


def test_one_bootstrap_server_that_answers_is_enough_to_say_what_the_others_did() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in (one, other)]
    ran = CliRunner().invoke(app, ["find-hanging", "--bootstrap-server", ",".join(addresses)])
    assert all(address in ran.stderr for address in addresses)


def test_a_table_location_that_cannot_be_written_is_one_line_before_anything_is_sent(
    listener: Listener, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    ran = run("sweep", "--bootstrap-server", listener.address, "--tables", str(tmp_path / "file" / "tables"))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines()[-1].startswith("txnscan: --tables: ")
    assert "Traceback" not in ran.stderr and listener.connections == 0


def test_without_java_a_sweep_says_so_in_one_line(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    ran = run("sweep", "--bootstrap-server", "localhost:9092", environment=environment)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        f"txnscan: Java 17 or newer is needed, but JAVA_HOME is {tmp_path}, which has no bin/java; "
        "install one or set JAVA_HOME\n"
    )


def test_an_old_java_is_named_with_its_version(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    ran = run("sweep", "--bootstrap-server", "localhost:9092", environment={"JAVA_HOME": str(tmp_path)})
    assert ran.returncode == 1
    assert f"{java} is Java 8" in ran.stderr and ran.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [("sweep", "--bootstrap-server", "localhost:9092"), ("demo",)])
def test_without_spark_a_command_says_what_to_install_at_once(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('no pyspark here')")
    ran = run(*command, environment={"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"})
    assert (ran.returncode, ran.stdout) == (1, "")
    assert (
        ran.stderr == "txnscan: Spark is not installed: install txnscan[spark], or use find-hanging, which needs none\n"
    )


def test_a_missing_registry_is_one_line_with_a_log(tmp_path: Path) -> None:
    """An Ivy settings file that reaches nothing stands for a network without registries."""
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{tmp_path}/nowhere/[artifact].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TXNSCAN_IVY_SETTINGS": str(settings)}
    ran = run("sweep", "--bootstrap-server", "localhost:9092", environment=environment)
    assert ran.returncode == 1
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("txnscan: Delta Lake 4.4.0 could not be downloaded: check the network")
    assert Path(last.rsplit(" ", 1)[1]).is_file()
    assert "Traceback" not in ran.stderr


def test_what_an_executor_raised_is_one_line() -> None:
    from txnscan.session import in_one_line

    worker = "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File x\n"
    assert in_one_line(RuntimeError(worker + "ModuleNotFoundError: No module named 'txnscan'\n\tat org.x")) == (
        "ModuleNotFoundError: No module named 'txnscan'"
    )
    java = "An error occurred while calling o48.sql.\n: org.apache.spark.DeltaIOException: [X] No file\n\tat y"
    assert in_one_line(RuntimeError(java)) == "[X] No file"


@pytest.mark.parametrize(
    ("engine", "partitions", "advised"),
    [
        ("spark", EXECUTORS_PAY_FROM_PARTITIONS - 1, "--engine threads"),
        ("spark", EXECUTORS_PAY_FROM_PARTITIONS, None),
        ("threads", EXECUTORS_PAY_FROM_PARTITIONS - 1, None),
        ("threads", EXECUTORS_PAY_FROM_PARTITIONS, "--engine spark"),
    ],
)
def test_a_sweep_says_when_the_other_engine_would_be_quicker(engine: str, partitions: int, advised: str | None) -> None:
    said = advice(engine, partitions)
    assert said is None if advised is None else advised in said and f"{partitions:,} partitions" in said


@pytest.mark.parametrize("terminal", [True, False])
def test_which_engine_is_quicker_is_told_to_people_and_not_to_schedulers(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_stderr", lambda: Console(stderr=True, force_terminal=terminal))
    cli._advise("spark", scan())
    assert capsys.readouterr().err.startswith("note: this sweep read 2 partitions") == terminal
