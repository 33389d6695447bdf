"""The demo from its first broker to its last line, and after an interrupt."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.process import ROOT, run
from txnscan.cli.demo import KafkaVersion
from txnscan.demo import story
from txnscan.demo.errors import DemoError
from txnscan.demo.jars import KAFKA_VERSION, NEXT_KAFKA_VERSION
from txnscan.demo.ports import choose_ports, is_listening
from txnscan.demo.story import timeout_s
from txnscan.demo.wait import wait_until


@contextmanager
def demo(directory: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(directory), "COLUMNS": "400"}
    command = [sys.executable, "-m", "txnscan", "demo", "--tables", str(directory / "tables"), *options]
    process = subprocess.Popen(
        command, cwd=directory, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def until(process: subprocess.Popen[str], text: str) -> str:
    """The output of the demo up to this text."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if text in line:
            return said
    raise AssertionError(f"the demo ended without saying {text!r}: {said}")


def ports(said: str) -> list[int]:
    return [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", said)]


@pytest.mark.parametrize(("spark_start_s", "longest_s"), [(0.5, 45), (5.6, 45), (15.0, 120), (24.6, 197), (300.0, 240)])
def test_a_slower_spark_start_allows_longer_transactions(spark_start_s: float, longest_s: int) -> None:
    """Otherwise the live transactions of the story would be aborted before the first sweep."""
    assert timeout_s(spark_start_s) == longest_s


@pytest.mark.parametrize("version", [*KafkaVersion])
def test_the_demo_describes_each_transaction_its_impact_and_the_answer_of_kafkas_tool(
    version: KafkaVersion, tmp_path: Path
) -> None:
    with demo(tmp_path, "--kafka-version", version) as process:
        said, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors
    assert f"Apache Kafka {version} brokers" in said
    expected = {
        "payments-solo-0": ("missed_commit", "reports it, and `abort` would delete what was committed"),
        "clicks-0": ("orphan", "find-hanging reports it"),
        "sensors-0": ("orphan", "does not report it, though it hangs"),
        "shipments-0": ("stale_epoch", "find-hanging reports it"),
        "invoices-1": ("live_epoch", "find-hanging reports it"),
        "backfill-0": ("ongoing (owned)", "find-hanging does not report it"),
    }
    told = re.split(r"\n(?=[a-z-]+-\d: )", said)
    for name, (verdict, kafka) in expected.items():
        (block,) = [part for part in told if part.startswith(f"{name}: ")]
        assert verdict in block and kafka in block, block
        # A live transaction is examined further only if it is old enough.
        assert "blocks 5 records from" in block or name == "backfill-0"
    assert re.search("5 of 5.*payments-fine.*0 of 5.*payments-solo", said)
    assert re.search(r"Healthy traffic: [1-9]\d*.*, 0 of", said)
    assert "COMMIT payments-solo-0; needs --complete-commits" in said
    assert "ABORT clicks-0; needs --accept-unknown-outcome" in said
    assert re.search(r"refunds-1  live_epoch.*\n +live_owner: ", said)
    assert said.count("would send  ") == 5 and "no marker was sent" in said
    assert (tmp_path / "plan.json").is_file()
    assert " watch --bootstrap-server 127.0.0.1:" in said and "--notify http://127.0.0.1:" in said
    opened, closed = said.split("Doing it: --execute")
    for name in ("payments-solo-0", "clicks-0", "sensors-0"):
        assert re.search(rf"  opened: {name} of 127\.0\.0\.1:\d+ .* 5 records", opened)
        assert re.search(rf"  closed: {name} of 127\.0\.0\.1:\d+, ", closed)
    # The others have the same cause. One of them stays open, because its owner is alive.
    events = re.findall(r"  (\w+): event ([0-9a-f]{8}) of ", said)
    assert len({event_id for _, event_id in events}) == 1 and "never_added" in opened
    assert events[-1][0] == "updated" and "closed" not in {kind for kind, _ in events}
    assert 'txnscan_candidates{cluster="127.0.0.1:' in opened
    assert "report.html shows sweep " in opened
    assert "<h1" in (tmp_path / "report.html").read_text("utf-8")
    assert "5 of 5 done." in closed and re.search(r"txnscan_candidates\{.*\} [01]\.0", closed)
    assert re.search("5 of 5.*payments-fine.*5 of 5.*payments-solo", closed)
    assert (tmp_path / "tables" / "sweeps" / "_delta_log").is_dir()
    assert not any(is_listening(port) for port in ports(said))
    assert [path.name for path in tmp_path.glob("txnscan-demo-*")] == []


def test_the_held_demo_answers_the_first_commands_of_the_readme(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text("utf-8").partition("## Start")[2].partition("##")[0]
    install, *commands = re.findall(r"^    (.+)$", readme, re.M)
    assert install == "pip install ." and [line.split()[1] for line in commands] == ["check", "find-hanging", "explain"]
    with demo(tmp_path, "--hold") as process:
        said = until(process, "The brokers stay up")
        at = f"127.0.0.1:{ports(said)[0]}"
        shown = {line.split()[1]: run(*shlex.split(line.replace("localhost:9092", at))[1:]) for line in commands}
        assert {name: ran.returncode for name, ran in shown.items()} == dict.fromkeys(shown, 0)
        assert all(topic in shown["find-hanging"].stdout for topic in ("payments-solo", "clicks", "sensors"))
        assert "'billing'" in shown["explain"].stdout and "payments-solo-0" in shown["explain"].stdout
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=600) in (0, 130)


def test_a_held_demo_takes_kafkas_port_if_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(story, "_KAFKAS_PORT", taken.getsockname()[1])
        assert story.kafkas_port() is None
    free = next(port for port in choose_ports(20) if is_free_from(port))
    monkeypatch.setattr(story, "_KAFKAS_PORT", free)
    assert story.kafkas_port() == free


def is_free_from(port: int) -> bool:
    """Whether this port and those behind it are free."""
    try:
        return bool(choose_ports(6, port))
    except DemoError:
        return False


def test_the_demo_runs_each_kafka_version_that_tears_a_commit() -> None:
    assert [*KafkaVersion] == [KAFKA_VERSION, NEXT_KAFKA_VERSION]


def test_ctrl_c_ends_the_brokers_and_removes_their_files(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        said = until(process, "Planting orphans")
        assert all(is_listening(port) for port in ports(said))
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=600) == 130
        assert process.stderr is not None
        assert process.stderr.read().splitlines()[-1] == "txnscan: interrupted"
    wait_until(lambda: not any(is_listening(port) for port in ports(said)), "the brokers were gone")
    assert [path.name for path in tmp_path.glob("txnscan-demo-*")] == []
