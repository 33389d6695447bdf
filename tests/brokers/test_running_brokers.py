"""Files of running brokers: a transaction that ends between the reads of two files is not hanging.

A reader is stopped between two files, while real brokers continue. Links to the partitions stand for a disk without a
visible lock, for example a disk of another machine. Only the files show that a broker writes them.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.brokers.shared import Shared
from txnscan.cli.app import app
from txnscan.demo.admin import create_topic
from txnscan.demo.plant import describe_owner
from txnscan.demo.producer import Producer
from txnscan.demo.wait import wait_until
from txnscan.errors import ExitStatus
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.offline import paths
from txnscan.offline.contents import METADATA_TOPIC, Replica, ReplicaFiles
from txnscan.offline.disk import find
from txnscan.offline.live_broker import is_locked, look_again
from txnscan.offline.paths import FileContents, read_paths
from txnscan.offline.replica import read_replica
from txnscan.verdict.evidence import Verdict

LATE_AFTER_MS = 20 * 60_000
# `__transaction_state` sorts after the first of them, and before the second.
TOPICS = ("RUNNING", "running")
PARTITIONS = 2
# Longer than the maximum time between files of running brokers, including a second of clock difference.
QUIET_S = 3.0
BROKERS = (1, 2, 3)
# Several processes read the largest files first: the data, and then the transaction log.
_LARGER_THAN_THE_LOG = [b"live " * 2000] * 60


@dataclass(frozen=True)
class Running:
    """The disks of running brokers. linked: their stand-ins without visible locks."""

    shared: Shared
    linked: tuple[str, ...]
    producers: dict[tuple[str, int], Producer]

    @property
    def in_place(self) -> tuple[str, ...]:
        return tuple(str(self.shared.cluster.data_of(broker_id)) for broker_id in BROKERS)

    def is_quiet(self, topic: str) -> bool:
        """Whether a topic has had no write for a few seconds."""
        logs = (log for data in self.in_place for log in Path(data).glob(f"{topic}-*/*.log"))
        return time.time() - max(log.stat().st_mtime for log in logs) > QUIET_S

    def end(self, topic: str, partition: int, *, commit: bool) -> None:
        """Ends a transaction, and waits until its coordinator has written the completion."""
        producer = self.producers[topic, partition]
        producer.end(commit=commit)
        name, state = str(producer.transactional_id), "CompleteCommit" if commit else "CompleteAbort"
        wait_until(lambda: describe_owner(self.shared.wire, name).state == state, f"{name} was in {state}")


@pytest.fixture(scope="module")
def running(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    producers = {}
    for topic in TOPICS:
        create_topic(shared.wire, topic, [list(BROKERS)] * PARTITIONS)
        for partition in range(PARTITIONS):
            producer = producers[topic, partition] = Producer(shared.wire, f"offline-{topic}-{partition}", v2=False)
            producer.init_producer_id()
            producer.write(topic, partition, _LARGER_THAN_THE_LOG)
    root = tmp_path_factory.mktemp("linked")
    linked = tuple(_linked(shared.cluster.data_of(broker_id), root / str(broker_id)) for broker_id in BROKERS)
    one = Running(shared, linked, producers)
    wait_until(lambda: all(map(one.is_quiet, TOPICS)), "the partitions were left alone")
    yield one
    for topic, partition in producers:
        if describe_owner(shared.wire, f"offline-{topic}-{partition}").state == "Ongoing":
            one.end(topic, partition, commit=False)


def _linked(data: Path, to: Path) -> str:
    """A log directory of links to the required files of another."""
    to.mkdir()
    for one in data.iterdir():
        if one.name.startswith((*TOPICS, TRANSACTION_STATE_TOPIC, METADATA_TOPIC, "meta.", "replication-")):
            (to / one.name).symlink_to(one)
    return str(to)


# Synchronizes a reader with its test: the reader has reached the transaction log, and may continue.
_reached, _go_on = Path(), Path()


def _stops(files: ReplicaFiles, check_crc: bool = False) -> Replica:
    """Reads a replica, and stops before the first replica of the transaction log until the test continues it."""
    if files.key is not None and files.key[0] == TRANSACTION_STATE_TOPIC:
        _reached.touch()
        wait_until(_go_on.exists, "the reader was let go on", 300.0)
    return read_replica(files, check_crc)


def _read_while(act: Callable[[], None], paths: Sequence[str]) -> FileContents:
    """Reads the paths with a reader that stops until the action is done, while real brokers continue."""
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(read_paths, paths, late_after_ms=LATE_AFTER_MS)
        wait_until(_reached.exists, "the reader came to the transaction log", 300.0)
        act()
        _go_on.touch()
        return read.result()


def _verdicts(read: FileContents, topic: str, partition: int) -> list[tuple[str, str]]:
    return [
        (one.judged.judgement.verdict.value, one.judged.judgement.reason.value)
        for one in read.transactions
        if (one.judged.observation.topic, one.judged.observation.partition) == (topic, partition)
    ]


@pytest.mark.parametrize(
    ("topic", "partition", "commit", "processes"),
    [
        *(("RUNNING", 0, True, 1), ("RUNNING", 1, False, 2)),
        *(("running", 0, False, 1), ("running", 1, True, 2)),
    ],
)
def test_a_transaction_ending_between_two_files_is_not_hanging(
    running: Running,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    topic: str,
    partition: int,
    commit: bool,
    processes: int,
) -> None:
    this = sys.modules[__name__]
    monkeypatch.setattr(this, "_reached", tmp_path / "reached")
    monkeypatch.setattr(this, "_go_on", tmp_path / "go-on")
    monkeypatch.setattr(paths, "read_replica", _stops)
    monkeypatch.setattr(paths, "_PARALLEL_FROM_BYTES", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: processes)

    def ends() -> None:
        running.end(topic, partition, commit=commit)
        wait_until(lambda: running.is_quiet(TRANSACTION_STATE_TOPIC), "the transaction log was left alone")

    read = _read_while(ends, running.linked)
    # A single process reads the second topic last, and finds the marker.
    seen = [] if (topic, processes) == (TOPICS[1], 1) else [("indeterminate", "partition")]
    assert _verdicts(read, topic, partition) == seen
    assert read.changing and read.running_error is not None and "/.lock" not in read.running_error
    assert not any(one.judged.judgement.verdict is Verdict.HANGING for one in read.transactions)


def test_running_brokers_are_detected_by_their_locks(running: Running) -> None:
    """On this machine, before any of their files changes. Their owners are still known."""
    for data in running.in_place:
        assert is_locked(f"{data}/.lock")
        seen = find([data]).seen
        assert seen.locked == f"{data}/.lock" and look_again(seen) is not None
    assert find(running.linked).seen.locked is None
    read = read_paths(running.in_place, late_after_ms=LATE_AFTER_MS, vouched=True)
    assert read.changing
    # Including the demo's hanging transactions.
    verdicts = {one.judged.judgement.verdict for one in read.transactions}
    assert Verdict.HANGING not in verdicts and Verdict.INDETERMINATE in verdicts


@pytest.mark.parametrize("command", ["segments", "transaction-log"])
def test_files_of_running_brokers_are_incomplete(running: Running, command: str) -> None:
    options = ["--format", "json", "--fail-on", "hanging", "--fail-on", "incomplete", "--late-after", "1s"]
    ran = CliRunner().invoke(app, [command, *running.in_place, *options])
    assert ran.exit_code == ExitStatus.INCOMPLETE, ran.output
    found: dict[str, Any] = json.loads(ran.stdout)
    assert found["sweep"]["complete"] is False and found["sweep"]["counts"]["hanging"] == 0
    assert [error["stage"] for error in found["errors"]] == ["copies"]
    assert all(one["commands"] == [] for one in found["transactions"])


def test_an_idle_partition_of_a_running_broker_is_incomplete(running: Running) -> None:
    path = running.shared.cluster.data_of(1) / f"{running.shared.scene.torn.whole_topic}-0"
    read = read_paths([str(path)], late_after_ms=LATE_AFTER_MS)
    assert read.transactions == () and read.changing and read.running_error is not None


@pytest.mark.parametrize("command", ["segments", "transaction-log"])
def test_a_commit_in_the_files_has_no_abort_command(shared: Shared, tmp_path: Path, command: str) -> None:
    """A partition and the transaction log were copied, and no metadata log lists the replicas."""
    hanging = shared.scene.torn.hanging
    for broker_id in BROKERS:
        data = shared.cluster.data_of(broker_id)
        for one in data.iterdir():
            if one.name.startswith((f"{hanging.topic}-", TRANSACTION_STATE_TOPIC, "meta.")):
                to = tmp_path / str(broker_id) / one.name
                to.parent.mkdir(exist_ok=True)
                shutil.copytree(one, to) if one.is_dir() else shutil.copy(one, to)
    ran = CliRunner().invoke(app, [command, str(tmp_path), "--format", "json"])
    found = json.loads(ran.stdout)
    (one,) = (one for one in found["transactions"] if one["topic"] == hanging.topic)
    assert (one["verdict"], one["outcome"], one["commands"]) == ("indeterminate", None, [])
    said = CliRunner().invoke(app, [command, str(tmp_path)])
    assert said.exit_code == 0 and " abort " not in said.stdout
