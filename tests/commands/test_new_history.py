"""A cluster whose history went back, as whole commands see it, with tables and simulated brokers.

The cluster is swept twice. Then another one takes its place, with the same ids and transactions: a copy of an earlier
time, whose leader epochs are lower.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from tests.sim.wire import ClusterShape, WireCluster
from txnscan import ScanConfig, sweep
from txnscan.cli.app import app
from txnscan.errors import ExitStatus
from txnscan.resolve.apply import Status
from txnscan.resolve.guard import ACCEPT_UNKNOWN
from txnscan.resolve.plan import Plan, PlanRefused
from txnscan.resolve.run import apply_to, plan_sweep
from txnscan.sweeps.restored import Sign
from txnscan.tables.open import open_tables
from txnscan.tables.schema import INCIDENTS

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

SHAPE = ClusterShape(brokers=2, partitions=4, hanging=1, transaction_state_partitions=4)
# An earlier sweep stands for a scanner that watched for longer than any live transaction may last.
WATCHED_MS = 25 * 60_000


@dataclass(frozen=True)
class Stored:
    """The copy of the cluster, the tables of its original, and a plan of them."""

    restored: WireCluster
    tables: str
    plan: Plan

    @property
    def config(self) -> ScanConfig:
        return ScanConfig(self.restored.bootstrap_servers, tables=self.tables, engine="threads")

    def swept(self, *options: str) -> tuple[int, dict[str, Any]]:
        """The exit status and the JSON object of a sweep of the copy."""
        servers = ("--bootstrap-server", self.restored.bootstrap_servers, "--tables", self.tables)
        ran = CliRunner().invoke(app, ["sweep", *servers, "--engine", "threads", "--format", "json", *options])
        found: dict[str, Any] = json.loads(ran.stdout)
        return ran.exit_code, found

    def incident(self) -> tuple[int, int, bool]:
        """The history of the only incident, the number of its sweeps, and whether it is open."""
        (row,) = open_tables(self.tables, None).rows(INCIDENTS)
        return row["history"], row["sweeps"], row["is_open"]

    def positions(self) -> tuple[int, int]:
        """The number of the present history, and the first history whose facts veto."""
        past = open_tables(self.tables, None).past(SHAPE.cluster_id)()
        return past.history, past.vetoes_from


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WireCluster, Path, Plan]]:
    tables = tmp_path_factory.mktemp("new-history") / "tables"
    with WireCluster(SHAPE, 1) as original:
        config = ScanConfig(original.bootstrap_servers, tables=str(tables), engine="threads")
        with pytest.MonkeyPatch.context() as patch:
            earlier = SimpleNamespace(time_ns=lambda: time.time_ns() - WATCHED_MS * 1_000_000)
            patch.setattr("txnscan.kafka.clock.time", earlier)
            patch.setattr("txnscan.engine.clock.time", earlier)
            sweep(None, config)
        assert sweep(None, config).scan.fall is None
    plan = plan_sweep(None, str(tables))
    assert len(plan.actions) == 1
    with WireCluster(ClusterShape(**{**vars(SHAPE), "epochs_lower_by": 1}), 1) as restored:
        yield restored, tables, plan


@pytest.fixture
def stored(template: tuple[WireCluster, Path, Plan], tmp_path: Path) -> Stored:
    restored, tables, plan = template
    copy = tmp_path / "tables"
    shutil.copytree(tables, copy)
    return Stored(restored, str(copy), plan)


def test_a_sweep_notices_the_fall_and_begins_a_new_history(stored: Stored) -> None:
    assert (stored.positions(), stored.incident()) == ((0, 0), (0, 2, True))
    found = sweep(None, stored.config).scan
    assert found.fall is not None and found.fall.sign is Sign.LEADER_EPOCH
    assert (found.history, found.vetoes_from, found.vetoes_dropped) == (1, 0, None)
    assert [one.judgement.verdict for one in found.transactions] == ["hanging"]
    assert (stored.positions(), stored.incident()) == ((1, 0), (1, 1, True))
    assert {one.guard for one in plan_sweep(None, stored.tables).refused} == {"too_young"}
    with pytest.raises(PlanRefused, match="went back"):
        apply_to(None, stored.config, stored.plan, execute=True, options=(ACCEPT_UNKNOWN,))
    again = sweep(None, stored.config).scan
    assert (again.fall, again.history, stored.incident()) == (None, 1, (1, 2, True))


def test_new_history_on_the_command_line_ends_the_vetoes_too(stored: Stored) -> None:
    status, found = stored.swept("--new-history")
    assert status == ExitStatus.DONE
    assert any("--new-history" in warning for warning in found["sweep"]["warnings"])
    assert (stored.positions(), stored.incident()) == ((1, 1), (1, 1, True))
    stored.swept()
    assert (stored.positions(), stored.incident()) == ((1, 1), (1, 2, True))
    stored.swept("--new-history")
    assert stored.positions() == (2, 2)


@pytest.mark.parametrize("execute", [True, False])
def test_apply_itself_notices_a_fall_and_sends_no_marker(
    stored: Stored, execute: bool, wording: SnapshotAssertion
) -> None:
    """No sweep has seen the copy yet."""
    stored.restored.reset_stats()
    applied = apply_to(None, stored.config, stored.plan, execute=execute, options=(ACCEPT_UNKNOWN,))
    (result,) = applied.results
    assert result.status is Status.REFUSED
    assert result.detail == wording
    assert sum(one.requests.get("WriteTxnMarkers", 0) for one in stored.restored.stats().values()) == 0
    assert stored.positions() == (0, 0)
