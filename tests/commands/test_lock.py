"""One apply at a time: across processes on a local path, and refused on storage without exclusive commits."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql import SparkSession

from tests.conftest import Opens
from tests.process import ROOT
from txnscan import ScanConfig
from txnscan.config import ConfigError
from txnscan.resolve.apply import ApplyRunning, JournalLost
from txnscan.resolve.lock import Lock, check_exclusive, location_of
from txnscan.resolve.plan import Plan
from txnscan.resolve.run import apply_to
from txnscan.tables.delta import READABLE_PROPERTY, VERSION_PROPERTY
from txnscan.tables.open import open_tables, through_spark
from txnscan.tables.schema import APPLY_LOCKS, SCHEMA_VERSION, SWEEPS
from txnscan.tables.tables import Tables

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

CLUSTER = "a cluster/with a name of its own"
# A lease that expires at once: only the operating system's lock excludes then.
NO_LEASE_MS = 0

OTHER_PROCESS = """
import sys
from txnscan.engine.spark.session import spark_session
from txnscan.resolve.lock import ApplyRunning, Lock
from txnscan.tables.open import open_tables, through_spark

store, location, cluster = sys.argv[1:]
tables = through_spark(location, spark_session("local[1]")) if store == "spark" else open_tables(location, None)
try:
    with Lock(tables, cluster, lease_ms=0):
        print("taken", flush=True)
except ApplyRunning as running:
    print(running, flush=True)
sys.stdin.readline()
with Lock(tables, cluster, lease_ms=0):
    print("taken", flush=True)
    sys.stdin.readline()
"""


def without_holder(text: str) -> str:
    """The sentence without the host and the process of the lock."""
    return re.sub(r"\(.* process .*\)", "(<holder>)", text)


@pytest.mark.parametrize("store", ["spark", "delta-rs"])
def test_only_one_process_on_a_local_path_has_the_lock_until_it_ends(
    tmp_path: Path, store: str, wording: SnapshotAssertion
) -> None:
    """For either of them through Spark."""
    location = str(tmp_path / "tables of two")
    tables = open_tables(location, None)
    tables.create()
    child = subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, store, location, CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        with Lock(tables, CLUSTER, lease_ms=NO_LEASE_MS):
            said = child.stdout.readline()
            assert f"process {os.getpid()}" in said
            assert without_holder(said) == wording
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "taken\n"
        with (
            pytest.raises(ApplyRunning) as error,
            Lock(tables, CLUSTER, lease_ms=NO_LEASE_MS),
        ):
            pass
        assert f"process {child.pid}" in str(error.value)
        assert without_holder(str(error.value)) == wording
        with Lock(tables, "another cluster", lease_ms=NO_LEASE_MS):
            pass
    finally:
        child.kill()
        child.communicate()
    with Lock(tables, CLUSTER, lease_ms=NO_LEASE_MS):
        pass


def test_a_refused_lock_leaves_no_file_locked(opens: Opens, location: str, wording: SnapshotAssertion) -> None:
    tables = opens(location)
    tables.create()
    with Lock(tables, CLUSTER):
        (file,) = Path(location, "apply_locks").glob("_*.lock")
        file.rename(file.with_suffix(".moved"))
        # Now the lease in the table refuses, after the file was locked.
        with pytest.raises(ApplyRunning) as error, Lock(tables, CLUSTER):
            pass
        assert "300 s" in str(error.value)
        assert without_holder(str(error.value)) == wording
    with Lock(tables, CLUSTER):
        pass


class Host:
    """A host with a clock that is minutes off. Time passes when it sleeps."""

    def __init__(self, minutes_ahead: int = 0) -> None:
        self.ahead_ms = minutes_ahead * 60_000
        self.slept: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def lock(self, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> Lock:
        """Its lock. The file of the operating system excludes only processes of the same host."""
        monkeypatch.setattr("txnscan.resolve.lock.is_local", lambda scheme: False)
        monkeypatch.setattr("txnscan.resolve.lock.Process.is_gone", False)
        return Lock(
            tables,
            CLUSTER,
            now_ms=lambda: 1_700_000_000_000 + self.ahead_ms + round(HOSTS_TIME[0] * 1_000),
            monotonic_s=lambda: HOSTS_TIME[0],
            sleep=self.sleep,
        )

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        HOSTS_TIME[0] += seconds
        self.meanwhile()


# Seconds that have passed on all hosts.
HOSTS_TIME = [0.0]


@pytest.fixture
def tables(opens: Opens, location: str, monkeypatch: pytest.MonkeyPatch) -> Tables:
    monkeypatch.setattr("tests.commands.test_lock.HOSTS_TIME", [0.0])
    found = opens(location)
    found.create()
    return found


def test_a_host_with_a_clock_ahead_does_not_take_a_renewed_lock(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its clock the lease expires at once."""
    here, there = Host(), Host(minutes_ahead=6)
    with here.lock(tables, monkeypatch) as held:
        there.meanwhile = held.hold
        with pytest.raises(ApplyRunning), there.lock(tables, monkeypatch):
            pass
        # Until the first renewal.
        assert 150 <= sum(there.slept) <= 160
        held.hold()


def test_an_unrenewed_lease_is_taken_over_and_its_former_holder_stops(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = Host(), Host(minutes_ahead=6)
    with contextlib.ExitStack() as paused:
        held = paused.enter_context(here.lock(tables, monkeypatch))
        with there.lock(tables, monkeypatch) as taken:
            assert sum(there.slept) == 300
            with pytest.raises(JournalLost):
                held.hold()
            taken.hold()
            paused.pop_all()
            held.__exit__(None, None, None)
            # A late release does not release the lock of another.
            taken.hold()


def test_a_host_with_a_clock_behind_does_not_wait_for_a_lease(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = Host(), Host(minutes_ahead=-6)
    with here.lock(tables, monkeypatch):
        with pytest.raises(ApplyRunning), there.lock(tables, monkeypatch):
            pass
        assert there.slept == []


def test_a_holder_with_a_jumping_clock_keeps_the_lock(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Host()
    with here.lock(tables, monkeypatch) as held:
        for minutes in (60, -60):
            here.ahead_ms = minutes * 60_000
            held.hold()
        (row,) = tables.rows(APPLY_LOCKS)
        assert row["renewals"] == 1
        HOSTS_TIME[0] += 150
        held.hold()
        (row,) = tables.rows(APPLY_LOCKS)
        assert row["renewals"] == 2


def test_only_one_of_two_hosts_takes_over_an_expired_lease(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there, third = Host(), Host(minutes_ahead=6), Host(minutes_ahead=6)
    with contextlib.ExitStack() as stack:
        dead = stack.enter_context(here.lock(tables, monkeypatch))
        HOSTS_TIME[0] += 1
        one, other = there.lock(tables, monkeypatch), third.lock(tables, monkeypatch)
        # The second host reads and waits before the first host writes.
        seen = other._dead()
        stack.enter_context(one)
        assert other._write(over=seen) is not None
        one.hold()
        with pytest.raises(JournalLost):
            dead.hold()
        stack.pop_all()
        one.__exit__(None, None, None)


def test_a_lock_file_that_cannot_be_locked_is_reported(opens: Opens, location: str, wording: SnapshotAssertion) -> None:
    tables = opens(location)
    tables.create()
    with Lock(tables, CLUSTER):
        (file,) = Path(location, "apply_locks").glob("_*.lock")
    file.unlink()
    file.mkdir()
    with pytest.raises(ConfigError) as error, Lock(tables, CLUSTER):
        pass
    assert str(error.value).replace(str(file), "<file>") == wording


class Untouched:
    """A session whose tables must not be read."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings

    @property
    def sparkContext(self) -> Any:
        return self

    def getConf(self) -> dict[str, str]:
        return self._settings


def test_an_apply_refuses_s3_before_any_request() -> None:
    config = ScanConfig("127.0.0.1:1", tables="s3a://bucket/txnscan")
    with pytest.raises(
        ConfigError, match=r"--execute refuses s3a://bucket/txnscan: .*spark\.delta\.logStore\.s3a\.impl"
    ):
        apply_to(cast(SparkSession, Untouched({})), config, cast(Plan, None), execute=True)


@pytest.mark.parametrize("execute", [True, False])
def test_an_apply_refuses_tables_of_a_later_version_before_any_request(location: str, execute: bool) -> None:
    """A rehearsal refuses what the execution would refuse."""
    later = {VERSION_PROPERTY: str(SCHEMA_VERSION + 1), READABLE_PROPERTY: str(SCHEMA_VERSION)}
    tables = open_tables(location, None)
    tables.create()
    tables.delta.set_properties(SWEEPS, later)
    with pytest.raises(ConfigError, match=f"version {SCHEMA_VERSION + 1}"):
        apply_to(None, ScanConfig("127.0.0.1:1", tables=location), cast(Plan, None), execute=execute)


def test_s3_with_an_exclusive_log_store_is_accepted() -> None:
    settings = {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}
    location = "s3a://bucket/txnscan"
    check_exclusive(open_tables(location, cast(SparkSession, Untouched(settings))))


def test_session_settings_do_not_count_because_delta_ignores_them(spark: SparkSession) -> None:
    location, name = "s3a://bucket/txnscan", "spark.delta.logStore.s3a.impl"
    spark.conf.set(name, "io.delta.storage.S3DynamoDBLogStore")
    try:
        with pytest.raises(ConfigError, match="excludes no other process"):
            check_exclusive(through_spark(location, spark))
    finally:
        spark.conf.unset(name)


def test_tables_of_a_catalog_are_located_by_their_files(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    spark.sql("CREATE SCHEMA IF NOT EXISTS spark_catalog.locked")
    # The schema is of spark_catalog, which is the default catalog.
    tables = through_spark("spark_catalog.locked", spark)
    tables.create()
    location = location_of(tables, APPLY_LOCKS)
    assert location.startswith("file:/") and location.endswith("/locked.db/apply_locks")
    check_exclusive(tables)
    with Lock(tables, CLUSTER):
        assert list(Path(location.removeprefix("file:")).glob("_*.lock"))
    monkeypatch.setattr("txnscan.resolve.lock.location_of", lambda tables, table: f"s3a://bucket/{table.name}")
    with pytest.raises(ConfigError, match=r"refuses spark_catalog\.locked: .*for s3a"):
        check_exclusive(tables)


def test_a_location_without_tables_is_reported(opens: Opens, location: str, wording: SnapshotAssertion) -> None:
    with pytest.raises(ConfigError) as error:
        check_exclusive(opens(location))
    assert str(error.value) == wording


def test_delta_rs_commits_are_exclusive_unless_configured_otherwise(
    monkeypatch: pytest.MonkeyPatch,
    wording: SnapshotAssertion,
) -> None:
    location = "s3://bucket/txnscan"
    check_exclusive(open_tables(location, None))
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    with pytest.raises(ConfigError) as error:
        check_exclusive(open_tables(location, None))
    assert str(error.value) == wording
