"""`--spark-checkpoint`, with simulated brokers: the last stable offset is 100, and the high watermark 200."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.spark_checkpoints import lay_out
from tests.process import run_here
from tests.sim.wire import ClusterShape, WireCluster
from txnscan.errors import ExitStatus
from txnscan.kafka.failure import FailureCode

SHAPE = ClusterShape(brokers=2, partitions=20, partitions_per_topic=10, hanging=2)
TOPIC = "topic-00000"


def checkpoint(directory: Path, offset: int) -> str:
    """A checkpoint of a query that reads all partitions of the topic up to this offset."""
    partitions = {str(index): offset for index in range(10)}
    files = {
        "metadata": f'{{"id":"query-{offset}"}}',
        "offsets/3": f'v1\n{{"batchTimestampMs":5}}\n{json.dumps({TOPIC: partitions})}',
    }
    return str(lay_out(files, directory / f"at-{offset}"))


def test_find_hanging_names_the_queries_at_the_last_stable_offset(tmp_path: Path) -> None:
    """One reads read_uncommitted, and one only lags."""
    paths = [checkpoint(tmp_path, offset) for offset in (100, 200, 0)]
    options = [text for path in paths for text in ("--spark-checkpoint", path)]
    with WireCluster(SHAPE) as cluster:
        at = ("find-hanging", "--bootstrap-server", cluster.bootstrap_servers)
        ran = run_here(*at, "--format", "json", *options)
        table, verbose = run_here(*at, *options), run_here(*at, "--verbose", *options)
        without = run_here(*at, "--format", "json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    (row,) = (one for one in found["transactions"] if one["topic"] == TOPIC)
    (reader,) = row["blocked_readers"]
    assert reader == {
        "stream_id": "query-100",
        "path": paths[0],
        "reason": "at_lso",
        "batch_id": 3,
        "batch_committed": False,
        "batch_timestamp_ms": 5,
        "next_offset": 100,
        "lag": 100,
    }
    assert (row["readers_blocked"], row["readers_error"], found["sweep"]["warnings"]) == (1, None, [])
    others = [one["readers_blocked"] for one in found["transactions"] if one["topic"] != TOPIC]
    assert others and {*others} == {0}
    assert all(paths[0] in out and paths[1] not in out for out in (table.stdout, verbose.stdout))
    assert {one["blocked_readers"] is None for one in json.loads(without.stdout)["transactions"]} == {True}


def test_a_checkpoint_that_cannot_be_read_changes_no_verdict(tmp_path: Path) -> None:
    missing = f"{tmp_path}/missing"
    with WireCluster(SHAPE) as cluster:
        at = ("--bootstrap-server", cluster.bootstrap_servers, "--format", "json", "--fail-on", "hanging")
        plain = run_here("find-hanging", *at)
        ran = run_here("find-hanging", *at, "--spark-checkpoint", missing)
        same = (*at[:2], "--spark-checkpoint", missing)
        others = [
            run_here("find-hanging", *same, "--fail-on", "incomplete"),
            run_here("check", *same),
            run_here("explain", *same),
        ]
    # No part of the proof, and not observed, say all.
    assert {one.returncode for one in others} == {ExitStatus.INCOMPLETE}
    found, before = json.loads(ran.stdout), json.loads(plain.stdout)
    assert (ran.returncode, found["sweep"]["counts"]) == (plain.returncode, before["sweep"]["counts"])
    assert found["sweep"]["complete"]
    (warning,) = found["sweep"]["warnings"]
    assert missing in warning and FailureCode.FILE_UNREADABLE in warning
    assert {(one["readers_blocked"], one["readers_error"] is None) for one in found["transactions"]} == {(None, False)}


def test_a_stored_sweep_has_the_queries_of_each_cluster(tmp_path: Path) -> None:
    """The path in the file of clusters is relative to the file."""
    checkpoint(tmp_path, 100)
    tables, file = f"{tmp_path}/tables", tmp_path / "clusters.toml"
    with WireCluster(SHAPE) as cluster:
        file.write_text(
            f'[clusters.one]\nbootstrap-server = "{cluster.bootstrap_servers}"\nspark-checkpoint = "at-100"\n'
        )
        ran = run_here("sweep", "--config", str(file), "--engine", "threads", "--tables", tables, "--format", "json")
    assert ran.returncode == 0, ran.stderr
    shown = json.loads(run_here("show", "--tables", tables, "--format", "json").stdout)
    rows: list[dict[str, Any]] = [one for one in shown["transactions"] if one["topic"] == TOPIC]
    assert [[reader["stream_id"] for reader in one["blocked_readers"]] for one in rows] == [["query-100"]]


def test_explain_finds_the_cause_of_a_query_that_stands_still(tmp_path: Path) -> None:
    """Also of a query that reads on, and of a wrong path."""
    waiting, reading = checkpoint(tmp_path, 100), checkpoint(tmp_path, 200)
    with WireCluster(SHAPE) as cluster:
        at = ("explain", "--bootstrap-server", cluster.bootstrap_servers, "--format", "json", "--spark-checkpoint")
        of_path = {path: run_here(*at, path) for path in (waiting, reading, f"{tmp_path}/none")}
    found = {path: (ran.returncode, json.loads(ran.stdout)) for path, ran in of_path.items()}
    assert [(status, one["cause"]) for status, one in found.values()] == [
        (0, "hanging"),
        (0, "not_read_committed"),
        (4, "not_observed"),
    ]
    numbers = found[waiting][1]
    assert (numbers["checkpoint"], numbers["committed_offset"], numbers["lag"]) == (waiting, 100, 100)
    assert found[f"{tmp_path}/none"][1]["failure"] == FailureCode.FILE_UNREADABLE


@pytest.mark.parametrize("command", ["sweep", "watch"])
def test_with_a_file_of_clusters_the_option_stands_in_the_file(command: str, tmp_path: Path) -> None:
    file = tmp_path / "clusters.toml"
    file.write_text('[clusters.one]\nbootstrap-server = "localhost:9"\nspark-checkpoint = 5\n')
    assert run_here(command, "--config", str(file), "--spark-checkpoint", "/x").returncode == 2
    ran = run_here(command, "--config", str(file))
    assert (ran.returncode, "spark-checkpoint" in ran.stderr) == (2, True)
