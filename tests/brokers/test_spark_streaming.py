"""Streaming queries of a real Spark, stalled by a hanging transaction of real brokers, and found by checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.shared import Shared
from tests.golden.spark_checkpoints import recorded
from tests.process import run_here, run_python
from txnscan import ScanConfig, find_hanging, sweep
from txnscan.demo.admin import create_topic, unverified
from txnscan.demo.producer import PRODUCE_V1, Producer
from txnscan.sweeps.checkpoints import read_position
from txnscan.verdict.evidence import Verdict
from txnscan.waiting.checkpoint import QueryPosition
from txnscan.waiting.impact import BlockReason

TOPIC, OTHER = "streaming-orders", "streaming-other"
BEFORE, HANGING = 5, 3
# Five records and a marker.
LAST_STABLE_OFFSET = BEFORE + 1
HIGH_WATERMARK = LAST_STABLE_OFFSET + HANGING
COMMITTED = {"committed", "two", "mixed", "v2", "named"}


@dataclass(frozen=True)
class Stalled:
    """config: of a sweep of the topic, with the checkpoints. queries: ids and records by the name of the query."""

    config: ScanConfig
    directory: Path
    queries: Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="module")
def stalled(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Stalled:
    """Queries that have read everything that they get, and a hanging transaction behind that."""
    wire, directory = shared.wire, tmp_path_factory.mktemp("checkpoints")
    create_topic(wire, TOPIC, [[1]])
    create_topic(wire, OTHER, [[1], [2]])
    before = Producer(wire, f"{TOPIC}-before")
    before.init_producer_id()
    before.write(TOPIC, 0, [b"read"] * BEFORE)
    before.end(commit=True)
    orphan = Producer(wire, v2=False)
    orphan.init_producer_id()
    with unverified(wire):
        orphan.produce(TOPIC, 0, [b"stuck"] * HANGING, version=PRODUCE_V1)
    ran = run_python("-m", "tests.streaming", shared.bootstrap_servers, str(directory), TOPIC, OTHER)
    assert ran.returncode == 0, ran.stderr[-3_000:]
    queries = json.loads(ran.stdout.splitlines()[-1])
    config = ScanConfig(
        shared.bootstrap_servers,
        topic_names=(TOPIC,),
        engine="threads",
        spark_checkpoint=tuple(str(directory / name) for name in sorted(queries)),
    )
    return Stalled(config, directory, queries)


def test_each_query_stands_where_its_isolation_level_stops_it(stalled: Stalled) -> None:
    """They got all committed records, or all records. The checkpoints have the form of the recorded ones."""
    wanted = {(TOPIC, 0)}
    assert stalled.queries.keys() == recorded().keys() == COMMITTED | {"uncommitted"}
    for name, query in stalled.queries.items():
        found = read_position(str(stalled.directory / name), wanted)
        assert isinstance(found, QueryPosition), found
        assert found.stream_id == query["id"]
        assert found.committed or name == "mixed"
        offset = LAST_STABLE_OFFSET if name in COMMITTED else HIGH_WATERMARK
        assert found.batch.offsets == {(TOPIC, 0): (offset,)}
    assert stalled.queries["committed"]["records"] == BEFORE
    assert stalled.queries["uncommitted"]["records"] == BEFORE + HANGING


def test_a_sweep_names_the_queries_that_wait_for_a_hanging_transaction(stalled: Stalled) -> None:
    found = find_hanging(stalled.config)
    (hanging,) = (one for one in found.transactions if one.judgement.verdict is Verdict.HANGING)
    impact = found.impact(hanging)
    assert impact is not None and impact.readers is not None
    assert (impact.readers_blocked, impact.readers_error, found.warnings) == (len(COMMITTED), None, ())
    named = {Path(reader.path).name: (reader.stream_id, reader.next_offset, reader.lag) for reader in impact.readers}
    assert named == {name: (stalled.queries[name]["id"], LAST_STABLE_OFFSET, HANGING) for name in COMMITTED}
    assert {reader.reason for reader in impact.readers} == {BlockReason.AT_LSO}
    # No group shows them: Spark commits no offsets.
    assert impact.groups == ()


def test_a_stored_sweep_has_the_queries(stalled: Stalled, tmp_path: Path) -> None:
    result: Any = sweep(None, replace(stalled.config, tables=str(tmp_path / "tables")))
    (row,) = (one for one in result.transactions.to_pylist() if one["verdict"] == "hanging")
    assert {Path(one["path"]).name for one in row["blocked_readers"]} == COMMITTED
    assert (row["readers_blocked"], row["blocked_records"]) == (len(COMMITTED), HANGING)


def test_explain_finds_the_hanging_transaction_from_the_checkpoint(stalled: Stalled) -> None:
    at = ("explain", "--bootstrap-server", stalled.config.bootstrap_servers, "--format", "json")
    for name, cause in (("committed", "hanging"), ("named", "hanging"), ("uncommitted", "not_read_committed")):
        ran = run_here(*at, "--spark-checkpoint", str(stalled.directory / name))
        assert ran.returncode == 0, ran.stderr
        found = json.loads(ran.stdout)
        assert (found["cause"], found["topic"], found["partition"]) == (cause, TOPIC, 0)
