"""`txnscan check` reports gaps before a sweep, with remedies. Its exit status is the worst finding."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from tests.brokers.shared import Shared
from txnscan.cli.app import app
from txnscan.config import Location, parse_bootstrap_servers
from txnscan.coordinators.cluster import Cluster
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.factory import ClientFactory
from txnscan.kafka.clock import wall_clock_ms
from txnscan.sweeps.preflight import Checked, Finding, Level, check_cluster
from txnscan.tables.open import open_tables
from txnscan.tables.preflight import check_tables
from txnscan.tables.schema import TABLES

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion


def found(path: Path) -> Finding:
    return next(iter(check_tables(Location.of(str(path)), lambda: open_tables(str(path), None))))


def test_a_fully_visible_cluster_is_reported_on_one_page(shared: Shared, wording: SnapshotAssertion) -> None:
    ran = CliRunner().invoke(app, ["check", "--bootstrap-server", shared.bootstrap_servers])
    assert (ran.exit_code, ran.stderr) == (0, "")
    page = ran.stdout.splitlines()
    areas = ["security", "connection", "metadata", "apis", "acls", "coordinators", "partitions", "clock", "java"]
    causes = [line for line in page[1:-1] if line.split()[1] == "causes"]
    assert [line.split()[:3] for line in causes] == [["note", "causes", "KAFKA-20734"]]
    assert [line.split()[:2] for line in page[1:-1] if line not in causes] == [["ok", area] for area in areas]
    assert page[-1] == wording


def test_json_has_the_same_findings(shared: Shared) -> None:
    ran = CliRunner().invoke(app, ["check", "--bootstrap-server", shared.bootstrap_servers, "--format", "json"])
    said = json.loads(ran.stdout)
    assert ran.exit_code == 0 and said["check"]["level"] == "note" and said["check"]["cluster_id"]
    (connection,) = [one for one in said["findings"] if one["area"] == "connection"]
    assert connection["level"] == "ok" and connection["said"].startswith("3 brokers")


def test_a_broker_whose_clock_is_ahead_is_noted(shared: Shared) -> None:
    """Simulated by a local clock that is hours behind."""
    servers = parse_bootstrap_servers(shared.bootstrap_servers)
    with Cluster(ClientFactory("check", ConnectionSettings(), servers)) as cluster:
        findings = list(check_cluster(cluster, cluster.latest(), lambda: wall_clock_ms() - 36_000_000))
    clocks = [finding for finding in findings if finding.area == "clock"]
    assert clocks and all(finding.level is Level.NOTE for finding in clocks)
    assert all("ahead of this machine's" in finding.said and "NTP" in finding.said for finding in clocks)


def test_an_unreachable_cluster_fails_and_other_checks_still_run(tmp_path: Path, wording: SnapshotAssertion) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    ran = CliRunner().invoke(app, ["check", "--bootstrap-server", address, "--tables", str(tmp_path)])
    assert ran.exit_code == 1
    findings = [line.split()[:2] for line in ran.stdout.splitlines()[1:-1]]
    assert findings == [["failed", "connection"], ["ok", "java"], ["ok", "tables"]]
    assert ran.stdout.replace(address, "<address>").replace(str(tmp_path), "<tables>") == wording


@pytest.mark.parametrize(
    ("levels", "worst"),
    [
        ((Level.OK, Level.OK), Level.OK),
        ((Level.NOTE, Level.OK), Level.NOTE),
        ((Level.INCOMPLETE, Level.NOTE), Level.INCOMPLETE),
        ((Level.INCOMPLETE, Level.FAILED, Level.OK), Level.FAILED),
    ],
)
def test_the_worst_finding_decides(levels: tuple[Level, ...], worst: Level) -> None:
    assert Checked(None, tuple(Finding("x", level, "x") for level in levels)).level is worst


def test_local_tables_are_checked_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    place = tmp_path / "tables"
    findings = [found(place)]
    open_tables(str(place), None).create()
    findings.append(found(place))
    # As an interrupted creation leaves it.
    shutil.rmtree(place / "sweeps")
    findings.append(found(place))
    other = tmp_path / "other"
    with monkeypatch.context() as another:
        another.setattr("txnscan.tables.delta.SCHEMA_VERSION", 1)
        open_tables(str(other), None).create()
    findings.append(found(other))
    assert {finding.area for finding in findings} == {"tables"}
    assert [finding.level for finding in findings] == [Level.OK, Level.OK, Level.OK, Level.FAILED]
    assert [finding.said.replace(str(tmp_path), "<tmp>") for finding in findings] == wording


def test_a_table_that_can_be_recreated_is_not_reported_as_missing(tmp_path: Path) -> None:
    place = tmp_path / "tables"
    open_tables(str(place), None).create()
    for table in TABLES:
        if table.made_anew:
            shutil.rmtree(place / table.name)
    assert found(place).level is Level.OK


def test_a_file_instead_of_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    finding = found(tmp_path / "file" / "tables")
    assert (finding.area, finding.level) == ("tables", Level.FAILED)
    assert f"{tmp_path}/file " in finding.said
