"""`--timeout`: a sweep ends soon after it even if brokers are silent, and lists everything unobserved.

Brokers are paused when a stage begins: they accept connections and do not answer. Times have wide margins.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cases import Cases
from tests.process import run
from tests.sim.wire import ClusterShape, WireCluster
from txnscan import ScanConfig, find_hanging, sweep
from txnscan.config import ConfigError
from txnscan.coordinators.cluster import ClusterUnreachable
from txnscan.errors import ExitStatus
from txnscan.kafka.client import deadline
from txnscan.kafka.client.client import Send
from txnscan.kafka.client.deadline import Patience
from txnscan.reads import tasks
from txnscan.reads.observation import TransactionKey
from txnscan.reads.proven_read import read_wide
from txnscan.reads.rows import WideAnswer, WideBatch
from txnscan.sweeps.result import Scan
from txnscan.tables.open import open_tables
from txnscan.verdict.evidence import Verdict
from txnscan.watch.clusters import ClustersError, read_clusters

# Brokers 1 and 3 are in the same process, and broker 2 is in another.
SHAPE = ClusterShape(brokers=3, partitions=90, partitions_per_topic=10, hanging=6, ongoing=5, groups=20)
TIMEOUT_S = 1
# Without a timeout, silent brokers delay a sweep by 15 to 30 seconds.
SECONDS_MAX = TIMEOUT_S + 10
SLOW_MS = 600_000
STAGES = (
    *("plan", "read every partition", "ask who claims them", "first read", "ask coordinators", "second read", "judge"),
    *("read decisions", "ask who waits"),
)
ALL, SOME = None, 1
# The stage at which brokers fall silent, and the number of their processes.
SILENCES = (*((stage, ALL) for stage in STAGES), ("read every partition", SOME), ("ask coordinators", SOME))


def accused(found: Scan) -> set[TransactionKey]:
    return {j.observation.transaction_key for j in found.transactions if j.judgement.verdict is Verdict.HANGING}


def test_a_sweep_ends_soon_after_its_timeout_in_any_stage(tmp_path: Path) -> None:
    location = str(tmp_path / "tables")
    with WireCluster(SHAPE) as cluster, Cases() as cases:
        config = ScanConfig(cluster.bootstrap_servers, engine="threads", tables=location)
        whole = sweep(None, config).scan
        assert whole.complete and len(accused(whole)) == SHAPE.hanging
        assert {one.stage for one in whole.stages} >= set(STAGES)
        for stage, processes in SILENCES:
            with cases.case(f"{stage}, {'all' if processes is ALL else 'some'} brokers"):

                def progress(at: str, done: int, total: int, stage: str = stage, of: int | None = processes) -> None:
                    if at == stage:
                        cluster.pause(of)

                began_s = time.monotonic()
                try:
                    found = sweep(None, replace(config, timeout_ms=TIMEOUT_S * 1_000), progress=progress).scan
                except ClusterUnreachable:
                    assert stage == "plan"
                    continue
                finally:
                    took_s = time.monotonic() - began_s
                    cluster.resume()
                assert took_s < SECONDS_MAX
                assert accused(found) <= accused(whole)
                # No verdict depends on the stages after the log.
                assert stage in ("judge", "ask who waits") or not found.complete
                if stage == "ask who waits":
                    assert all(one.groups_error is not None for one in found.impacts.values())
                open_now = open_tables(location, None).unresolved(whole.cluster_id)()
                assert open_now.keys() == accused(whole), "no incident is closed"


def test_the_command_prints_and_stores_a_partial_result_as_incomplete(tmp_path: Path) -> None:
    slow = ClusterShape(brokers=3, partitions=90, partitions_per_topic=10, hanging=6, slow_brokers={2: SLOW_MS})
    tables = str(tmp_path / "tables")
    with WireCluster(slow) as cluster:
        common = ("--bootstrap-server", cluster.bootstrap_servers, "--timeout", f"{TIMEOUT_S}s", "--format", "json")
        began_s = time.monotonic()
        ran = run("sweep", "--engine", "threads", "--tables", tables, *common, "--fail-on", "incomplete")
        assert time.monotonic() - began_s < SECONDS_MAX
        assert ran.returncode == ExitStatus.INCOMPLETE
        partitions = json.loads(ran.stdout)["sweep"]["partitions"]
        assert 30 <= partitions["failed"] < partitions["planned"]
        stored = run("show", "--tables", tables, "--format", "json")
        assert json.loads(stored.stdout)["sweep"]["partitions"] == partitions
        ran = run("find-hanging", *common, "--fail-on", "incomplete")
        assert ran.returncode == ExitStatus.INCOMPLETE


def test_a_slow_broker_costs_a_bounded_time_without_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its 60 requests would take 24 seconds, and its limit is a few."""
    monkeypatch.setattr(deadline, "QUICK_MS_MAX", 100)
    monkeypatch.setattr(deadline, "WAITS_MAX", 0.1)
    shape = ClusterShape(brokers=2, partitions=120, partitions_per_topic=10, hanging=2, slow_brokers={2: 400})
    with WireCluster(shape) as cluster:
        found = find_hanging(ScanConfig(cluster.bootstrap_servers, engine="threads", batch_size=1))
        asked = cluster.stats()[2].requests
    assert not found.complete
    assert sum(asked.values()) < 20
    assert {error.broker for error in found.errors if error.stage == "read"} == {2}


def test_a_broker_silent_for_a_moment_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("request.timeout.ms=2000\n")
    silent: list[bool] = []
    first: dict[str, WideBatch] = {}
    unanswered = Patience.unanswered
    with WireCluster(SHAPE) as cluster:

        def heard(patience: Patience, *, answered_before: bool) -> bool:
            silent.append(answered_before)
            cluster.resume()
            return unanswered(patience, answered_before=answered_before)

        def read_paused(batch: WideBatch, send: Send) -> WideAnswer:
            if batch is not first.setdefault("batch", batch):
                return read_wide(batch, send)
            cluster.pause(SOME)
            return read_wide(batch, send)

        monkeypatch.setattr(Patience, "unanswered", heard)
        monkeypatch.setattr(tasks, "read_wide", read_paused)
        found = find_hanging(ScanConfig(cluster.bootstrap_servers, str(properties), engine="threads", batch_size=5))
    assert silent and all(silent)
    assert found.complete and len(accused(found)) == SHAPE.hanging


@pytest.mark.parametrize("timeout_ms", [0, -1, 2**53])
def test_a_timeout_is_a_positive_number_of_milliseconds(timeout_ms: int) -> None:
    with pytest.raises(ConfigError) as refused:
        ScanConfig("localhost:9092", timeout_ms=timeout_ms)
    assert str(refused.value).startswith("--timeout: ")
    assert ScanConfig("localhost:9092").timeout_ms is None


def test_watch_has_a_timeout_for_each_cluster(tmp_path: Path) -> None:
    path = tmp_path / "clusters.toml"
    one = '[clusters.{name}]\nbootstrap-server = "{name}:9092"\n'
    path.write_text(one.format(name="a") + 'timeout = "50s"\n' + one.format(name="b"))
    clusters = read_clusters(path, {}).clusters
    assert {name: config.timeout_ms for name, config in clusters.items()} == {"a": 50_000, "b": None}
    path.write_text(one.format(name="a") + "timeout = 50\n" + one.format(name="b") + 'timeout = "50"\n')
    with pytest.raises(ClustersError) as refused:
        read_clusters(path, {})
    assert len(refused.value.complaints) == 2
    ran = run("watch", "--config", str(path), "--timeout", "50s")
    assert ran.returncode == ExitStatus.USAGE
