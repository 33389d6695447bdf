"""A rolling restart of three real brokers under transactions of Java clients, with and without the check.

    python -m tests.brokers.rolling RUNS

prints for each run, with the check between the steps and without it, the number of torn commits. docs/prevention.md has
the figures.

Topics with two replicas are under load all the time. Each broker also has a topic with one replica: its writer pauses
while the check names its id, as docs/prevention.md advises. Without the check, a step waits until all replicas are in
sync, as rollers do.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.process import run_here
from txnscan import ScanConfig, find_hanging
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.jars import java
from txnscan.demo.node import java_command
from txnscan.demo.process import GuardedProcess
from txnscan.demo.wait import wait_until
from txnscan.kafka.protocol.replicas import read_incomplete
from txnscan.report.output import write_line
from txnscan.waiting.before_stop import StopVerdict

WRITERS = Path(__file__).with_name("Writers.java")
# With a short session a busy machine would fence brokers that run.
PATIENT = {"broker.session.timeout.ms": "20000"}
BROKERS = (1, 2, 3)
PAIRS = {"pair-12": [1, 2], "pair-23": [2, 3], "pair-31": [3, 1]}
SOLOS = {f"solo-{broker}": [broker] for broker in BROKERS}
# Each id of a topic with one replica also writes to one with two, as most transactions have several partitions.
WRITERS_OF = {"full": tuple(PAIRS), **{f"w-{topic}": (topic, "pair-12") for topic in SOLOS}}
_WAIT_S, _ASKED_MAX = 240.0, 200


@dataclass(frozen=True)
class Load:
    """The writers, and the directory of the files that control them."""

    cluster: KafkaCluster
    directory: Path

    def pause(self, name: str) -> None:
        (self.directory / f"pause-{name}").touch()
        self._until(name, paused=True)

    def resume(self) -> None:
        for file in self.directory.glob("pause-*"):
            file.unlink()
            self._until(file.name.removeprefix("pause-"), paused=False)

    def _until(self, name: str, *, paused: bool) -> None:
        file = self.directory / f"paused-{name}"
        wait_until(lambda: file.exists() == paused, f"{name} {'paused' if paused else 'went on'}", timeout_s=_WAIT_S)


@contextmanager
def load(cluster: KafkaCluster, directory: Path) -> Iterator[Load]:
    """The topics, and the writers until they have ended all their transactions."""
    with cluster.wire() as wire:
        for topic, replicas in (PAIRS | SOLOS).items():
            create_topic(wire, topic, [replicas], {"min.insync.replicas": "1"})
    ids = [f"{name}={','.join(topics)}" for name, topics in WRITERS_OF.items()]
    arguments = [cluster.bootstrap_servers, str(directory), *ids]
    command = java_command(java(), cluster.jars, directory, str(WRITERS), arguments, log_level="ERROR")
    process = GuardedProcess(command, directory / "writers.log")
    made = Load(cluster, directory)
    try:
        # Each has begun once it has paused and gone on.
        for name in WRITERS_OF:
            made.pause(name)
        made.resume()
        yield made
        (directory / "stop").touch()
        if not process.wait(_WAIT_S):
            raise AssertionError((directory / "writers.log").read_text("utf-8"))
    finally:
        process.kill()


def until_safe(load: Load, broker: int) -> None:
    """What an operator does: asks, pauses the writers that are named, and waits."""
    servers = ("--bootstrap-server", load.cluster.bootstrap_servers)
    for _ in range(_ASKED_MAX):
        ran = run_here("check", "--before-stop", str(broker), *servers, "--wait", "5s", "--format", "json")
        found = json.loads(ran.stdout)
        if found["before_stop"]["verdict"] == StopVerdict.SAFE:
            return
        for one in found["partitions"]:
            # With another replica, the check says so as soon as that is in sync: nobody has to pause.
            if len(one["replicas"]) == 1:
                for name in WRITERS_OF:
                    if one["topic"] in WRITERS_OF[name] and not (load.directory / f"pause-{name}").exists():
                        load.pause(name)
    raise AssertionError(found)


def until_in_sync(load: Load) -> None:
    """What rollers do: wait until no replica is missing."""
    with load.cluster.wire() as wire:
        wait_until(lambda: not read_incomplete(wire.send, BROKERS[0]), "all replicas were in sync", timeout_s=_WAIT_S)


def torn(cluster: KafkaCluster, directory: Path, *, checked: bool) -> list[str]:
    """The partitions that hang after all brokers have restarted one by one. checked: with the check between them."""
    with load(cluster, directory) as made:
        for broker in BROKERS:
            until_in_sync(made)
            if checked:
                until_safe(made, broker)
            cluster.stop_broker(broker)
            cluster.wait_for_leader(f"solo-{broker}", 0, -1)
            cluster.start_broker(broker)
            cluster.wait_for_leader(f"solo-{broker}", 0, broker)
            made.resume()
        until_in_sync(made)
    found = find_hanging(ScanConfig(cluster.bootstrap_servers))
    return sorted(one.observation.topic_partition for one in found.transactions if one.judgement.verdict == "hanging")


def rolled(*, checked: bool) -> list[str]:
    """The same of a new cluster."""
    with tempfile.TemporaryDirectory(prefix="txnscan-rolling-") as directory:
        (Path(directory) / "writers").mkdir()
        with KafkaCluster(Path(directory) / "brokers", properties=PATIENT) as cluster:
            return torn(cluster, Path(directory) / "writers", checked=checked)


if __name__ == "__main__":
    for number in range(1, int(sys.argv[1]) + 1):
        for checked in (False, True):
            told = f"{number} {'with the check' if checked else 'without it'} {rolled(checked=checked)}"
            write_line(told)
