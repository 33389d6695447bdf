"""Spark and delta-rs on the same tables, in turns; and what is left where a process is killed between two commits."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.builders import MINUTE_MS, NOW_MS, judged, known, scan, view
from tests.process import ROOT
from txnscan.findings import Scan
from txnscan.judge.outcome import with_outcome
from txnscan.model import Judged, Siblings
from txnscan.resolve.apply import ApplyRunning
from txnscan.resolve.guard import Limits
from txnscan.resolve.journal import TablesJournal, stored_hanging
from txnscan.resolve.lock import Lock
from txnscan.resolve.plan import make_plan
from txnscan.store.history import life
from txnscan.store.open import open_tables
from txnscan.store.schema import INCIDENTS, OPEN_TRANSACTIONS, SWEEPS, TABLES, incident_id

COMMITTED = known("committed", "it committed", siblings=Siblings(("q-0",), (4,), NOW_MS), evidence=("offset 1",))
ORPHAN = with_outcome(judged(), COMMITTED)
STALE = judged(view("Empty", 5), partition=1)


def sweep(number: int, *transactions: Judged) -> Scan:
    at_ms = NOW_MS + number * 10 * MINUTE_MS
    return scan(*transactions, sweep_id=f"sweep-{number}", started_at_ms=at_ms, finished_at_ms=at_ms + 500)


def test_a_table_that_was_clustered_is_copied_as_the_docs_say_and_then_delta_rs_writes_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    old, new = f"{tmp_path}/old", f"{tmp_path}/new"
    by_spark = open_tables(old, spark)
    by_spark.create()
    spark.sql(f"ALTER TABLE delta.`{old}/sweeps` CLUSTER BY (sweep_id)")
    by_spark.write(sweep(1, ORPHAN))
    refused = open_tables(old, None)
    with pytest.raises(Exception, match="Unsupported table features") as raised:
        refused.write(sweep(2, ORPHAN))
    assert "as CLUSTER BY adds them; write it through Spark, or copy" in refused.why_failed(raised.value)
    copied = open_tables(new, None)
    copied.create()
    (copy,) = re.findall(r"```sql\n(INSERT OVERWRITE .*?);\n```", (ROOT / "docs/tables.md").read_text("utf-8"), re.S)
    spark.sql(copy.replace("/data/txnscan-new", new).replace("/data/txnscan", old))
    copied.write(sweep(2, ORPHAN))
    assert sorted(row["sweep_id"] for row in copied.rows(SWEEPS)) == ["sweep-1", "sweep-2"]


def test_what_one_writes_the_other_goes_on_with(spark: SparkSession, location: str) -> None:
    by_spark, by_rust = open_tables(location, spark), open_tables(location, None)
    by_rust.create()
    by_spark.create()
    by_spark.write(sweep(1, ORPHAN, STALE))
    by_rust.write(sweep(2, ORPHAN, STALE))
    by_spark.write(sweep(3, ORPHAN))
    by_rust.write(sweep(4, ORPHAN))
    for tables in (by_spark, by_rust):
        assert [row["sweep_id"] for row in tables.last_sweeps()] == ["sweep-4"]
        (unresolved,) = tables.unresolved("cluster-1")().values()
        assert unresolved.known == COMMITTED
        counted = {row["incident_id"]: (row["sweeps"], row["resolved_how"]) for row in tables.rows(INCIDENTS)}
        assert counted == {incident_id("cluster-1", ORPHAN): (4, None), incident_id("cluster-1", STALE): (2, "ended")}
        assert [row["sweep_id"] for row in life(tables, incident_id("cluster-1", STALE)).seen] == ["sweep-1", "sweep-2"]
    assert by_spark.rows(OPEN_TRANSACTIONS, order=()) and sorted(
        by_spark.rows(SWEEPS), key=lambda row: row["sweep_id"]
    ) == sorted(by_rust.rows(SWEEPS), key=lambda row: row["sweep_id"])


@pytest.mark.parametrize("first", ["spark", "delta-rs"])
def test_the_feed_of_incidents_has_what_each_of_them_changed(spark: SparkSession, location: str, first: str) -> None:
    """What opened and what closed, by the query of docs/dashboards.md, and the same by delta-rs."""
    by_spark, by_rust = open_tables(location, spark), open_tables(location, None)
    (by_spark if first == "spark" else by_rust).create()
    by_rust.write(sweep(1, ORPHAN))
    by_spark.write(sweep(2, ORPHAN, STALE))
    by_rust.write(sweep(3, STALE))
    by_spark.write(sweep(4))
    page = (ROOT / "docs" / "dashboards.md").read_text("utf-8")
    (query,) = re.findall(r"```sql\n(SELECT _commit_version.*?);\n```", page, re.S)
    query = query.replace("table_changes('incidents', 1)", f"table_changes_by_path('{location}/incidents', 1)")
    told = [(row["partition"], row["what"]) for row in spark.sql(query).collect()]
    assert told == [(0, "opened"), (1, "opened"), (0, "ended"), (1, "ended")]
    stream = DeltaTable(f"{location}/incidents").load_cdf(starting_version=1)
    changes = pa.RecordBatchReader.from_stream(stream).read_all().to_pylist()
    kinds = Counter((row["_commit_version"], row["_change_type"]) for row in changes)
    before = {(2, "update_preimage"): 1, (3, "update_preimage"): 2, (4, "update_preimage"): 1}
    after = {(version, "update_postimage"): count for (version, _), count in before.items()}
    assert kinds == {(1, "insert"): 1, (2, "insert"): 1, **before, **after}


def test_a_plan_of_one_is_known_to_the_other_and_so_is_who_applies_it(spark: SparkSession, location: str) -> None:
    by_spark, by_rust = open_tables(location, spark), open_tables(location, None)
    by_spark.create()
    for number in (1, 2):
        by_spark.write(sweep(number, ORPHAN))
    stored = stored_hanging(by_rust, "sweep-2")
    assert stored == stored_hanging(by_spark, "sweep-2")
    times: Any = {"swept_at_ms": NOW_MS, "planned_at_ms": NOW_MS}
    plan = make_plan(stored, Limits(), cluster_id="cluster-1", sweep_id="sweep-2", scope="all", version="1", **times)
    assert [action.marker for action in plan.actions] == ["COMMIT"]
    TablesJournal(by_rust).planned(plan)
    TablesJournal(by_spark).planned(plan)
    TablesJournal(by_spark).check_planned(plan)
    with (
        Lock(by_spark, "cluster-1"),
        pytest.raises(ApplyRunning, match="under way on this cluster"),
        Lock(by_rust, "cluster-1"),
    ):
        pass
    with Lock(by_rust, "cluster-1") as lock:
        attempt_id = TablesJournal(by_rust, lock).intend(plan, plan.actions[0], None)
        (attempt,) = TablesJournal(by_spark).attempts("cluster-1")
    assert (attempt.attempt_id, attempt.status, attempt.action.incident_id) == (
        attempt_id,
        None,
        incident_id("cluster-1", ORPHAN),
    )


# Each in a process of its own, forked before delta-rs has begun any thread.
KILLED = """
import json, os, signal, sys
from tests.spark.test_stores import ORPHAN, STALE, sweep
from txnscan.store.delta_rs import DeltaRs
from txnscan.store.open import open_tables

commits = 0

def mortal(write, number):
    def writes(*arguments, **options):
        global commits
        commits += 1
        if commits == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return write(*arguments, **options)
    return writes

def killed_at(location, number):
    for name in ("append", "replace", "merge", "create"):
        setattr(DeltaRs, name, mortal(getattr(DeltaRs, name), number))
    tables = open_tables(location, None)
    tables.create()
    tables.write(sweep(1, ORPHAN, STALE))

ended = {}
for number in map(int, sys.argv[2:]):
    child = os.fork()
    if not child:
        killed_at(f"{sys.argv[1]}/{number}", number)
        os._exit(0)
    ended[number] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(ended))
"""
# Eight tables, four appends of which one has nothing to append, ages and incidents.
COMMITS = range(1, len(TABLES) + 7)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """Where the tables are, by the write that the process did not live to make, and how each process ended."""
    directory = tmp_path_factory.mktemp("killed")
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, str(directory), *map(str, COMMITS)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return directory, json.loads(ran.stdout)


@pytest.mark.parametrize("commit", COMMITS)
def test_a_process_that_is_killed_before_any_of_its_writes_leaves_tables_that_go_on(
    killed: tuple[Path, dict[str, int]], commit: int
) -> None:
    directory, ended = killed
    location = str(directory / str(commit))
    finished = commit > len(TABLES) + 5
    assert ended[str(commit)] == (0 if finished else -signal.SIGKILL)
    tables = open_tables(location, None)
    tables.create()
    for table in TABLES:
        has = DeltaTable(f"{location}/{table.name}").metadata().configuration
        assert {f"delta.constraints.{check}" for check, _ in table.checks} <= has.keys()
    visible = tables.last_sweep()
    assert (visible is not None) == finished
    assert len(tables.read(OPEN_TRANSACTIONS, "sweep-1")) == (2 if finished else 0)
    tables.write(sweep(2, ORPHAN))
    counted = {row["start_offset"]: row["sweeps"] for row in tables.rows(INCIDENTS)}
    assert counted[ORPHAN.observation.start_offset] in (1, 2)
    assert len(tables.read(OPEN_TRANSACTIONS, "sweep-2")) == 1
