"""`sweep --config`: the clusters of a file are swept at once into the same tables, including an unreachable cluster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cases import Cases
from tests.process import run_here
from tests.sim.wire import ClusterShape, WireCluster
from txnscan import ClusterUnreachable, ConfigError, NotStored, ScanConfig, sweep_clusters
from txnscan.cli.sweep import worst_status
from txnscan.errors import ExitStatus
from txnscan.tables.open import open_tables
from txnscan.tables.schema import INCIDENTS, SWEEPS
from txnscan.tables.tables import Tables

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

HANGING = {"orders": 2, "billing": 1, "logs": 0}
SECRET = "https://hooks.example/s3cr3t"
DEAD = "127.0.0.1:1"


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    """The bootstrap servers of live clusters by name. Every partition of `failing` answers with an error."""
    shapes = {name: ClusterShape(brokers=2, partitions=20, hanging=count) for name, count in HANGING.items()}
    shapes["failing"] = ClusterShape(brokers=2, partitions=20, error_every=1)
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(WireCluster(replace(shape, cluster_id=f"id-of-{name}"), 1)).bootstrap_servers
            for name, shape in shapes.items()
        }


def written(tmp_path: Path, servers: dict[str, str], more: str = "") -> str:
    path = tmp_path / "clusters.toml"
    tables = (f'[clusters.{name}]\nbootstrap-server = "{at}"\n' for name, at in servers.items())
    path.write_text("\n".join((*tables, more)), "utf-8")
    return str(path)


def test_clusters_are_swept_at_once_into_the_same_tables_and_a_dead_one_fails_alone(
    servers: dict[str, str], tmp_path: Path
) -> None:
    location = str(tmp_path / "tables")
    config = written(tmp_path, servers | {"dead": DEAD}, f'[[notify]]\nurl = "{SECRET}"\nas = "none"\n')
    names = [*servers, "dead"]
    for time in (1, 2):
        ran = run_here("sweep", "--config", config, "--engine", "threads", "--tables", location, "--format", "json")
        assert ran.returncode == ExitStatus.FAILED
        found: list[dict[str, Any]] = json.loads(ran.stdout)["sweeps"]
        assert [one["cluster"] for one in found] == names
        assert [one["cluster"] for one in found if one["failure"] is not None] == ["dead"]
        assert (found[-1]["sweep"], found[-1]["transactions"], found[-1]["errors"]) == (None, [], [])
        assert {one["cluster"]: len(one["transactions"]) for one in found if one["cluster"] in HANGING} == HANGING
        assert [line.partition(": ")[2].partition(": ")[0] for line in ran.stderr.splitlines() if DEAD in line] == [
            "dead"
        ]
        assert SECRET not in ran.stderr + ran.stdout
        tables = open_tables(location, None)
        assert Counter(row["cluster_id"] for row in tables.rows(SWEEPS)) == dict.fromkeys(
            map("id-of-{}".format, servers), time
        )
        incidents = Counter((row["cluster_id"], row["sweeps"]) for row in tables.rows(INCIDENTS))
        assert incidents == {("id-of-orders", time): 2, ("id-of-billing", time): 1}


def test_the_table_has_a_line_per_cluster_and_the_sweeps_that_need_attention(
    servers: dict[str, str], tmp_path: Path
) -> None:
    metrics = tmp_path / "txnscan.prom"
    words = ("--config", written(tmp_path, {"dead": DEAD} | servers), "--engine", "threads")
    ran = run_here("sweep", *words, "--metrics-file", str(metrics))
    summary, _, details = ran.stdout.partition("\n\n")
    assert [line.split() for line in summary.splitlines()[1:]] == [
        ["dead", "failed", "-", "-", "-", "-"],
        ["orders", "complete", "70", "2", "2", "0"],
        ["billing", "complete", "70", "1", "1", "0"],
        ["logs", "complete", "70", "0", "0", "0"],
        ["failing", "incomplete", "50", "0", "0", "0"],
    ]
    heads = [line for line in details.splitlines() if line in servers]
    assert heads == ["orders", "billing", "failing"]
    assert ["id-of-logs" in run_here("sweep", *words, *all_).stdout for all_ in ([], ["--all"])] == [False, True]
    up = dict(line.split() for line in metrics.read_text("utf-8").splitlines() if line.startswith("txnscan_up{"))
    assert {name.split('"')[1]: float(value) for name, value in up.items()} == {"dead": 0.0} | dict.fromkeys(
        servers, 1.0
    )


# The clusters of the file, the options, and the status.
STATUSES: tuple[tuple[list[str], list[str], ExitStatus], ...] = (
    (["orders", "logs"], [], ExitStatus.DONE),
    (["orders", "failing"], ["incomplete"], ExitStatus.INCOMPLETE),
    (["orders", "failing"], ["incomplete", "hanging"], ExitStatus.HANGING),
    (["logs", "failing", "dead"], ["incomplete", "hanging"], ExitStatus.FAILED),
    (["orders", "dead"], ["hanging"], ExitStatus.HANGING),
)


def test_the_status_is_the_worst_of_all_clusters(servers: dict[str, str], tmp_path: Path) -> None:
    with Cases() as cases:
        for names, fail_on, status in STATUSES:
            with cases.case((names, fail_on)):
                config = written(tmp_path, {name: (servers | {"dead": DEAD})[name] for name in names})
                options = [word for one in fail_on for word in ("--fail-on", one)]
                assert run_here("sweep", "--config", config, "--engine", "threads", *options).returncode == status
    worst = [ExitStatus.HANGING, ExitStatus.FAILED, ExitStatus.USAGE, ExitStatus.INCOMPLETE, ExitStatus.DONE]
    assert [worst_status([*reversed(worst[at:])]) for at in range(5)] == worst
    assert worst_status([]) == ExitStatus.DONE


def test_a_cluster_whose_sweep_cannot_be_stored_keeps_its_result(
    servers: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Tables.write

    def broken(tables: Tables, scan: Any) -> None:
        if scan.cluster_id == "id-of-orders":
            raise OSError("no space left")
        write(tables, scan)

    monkeypatch.setattr(Tables, "write", broken)
    location = str(tmp_path / "tables")
    configs = {
        name: ScanConfig(at, engine="threads", tables=location) for name, at in (servers | {"dead": DEAD}).items()
    }
    found = {
        one.name: one
        for one in sweep_clusters(
            None, configs | {"empty": ScanConfig(servers["logs"], engine="threads", topic=("none",))}
        )
    }
    errors = {name: type(one.error) for name, one in found.items() if one.error is not None}
    assert errors == {"orders": NotStored, "dead": ClusterUnreachable, "empty": ConfigError}
    orders = found["orders"]
    assert orders.scan is not None and len(orders.scan.candidates) == 2
    assert orders.failure is not None and "no space left" in orders.failure and "\n" not in orders.failure
    assert {row["cluster_id"] for row in open_tables(location, None).rows(SWEEPS)} == {
        f"id-of-{name}" for name in servers if name != "orders"
    }
    with pytest.raises(ConfigError):
        sweep_clusters(None, {"orders": ScanConfig(servers["orders"], engine="spark")})


USAGE = (
    [],
    ["--config", "FILE", "--bootstrap-server", "h:1"],
    ["--config", "nowhere.toml"],
    *(
        ["--config", "FILE", option, "1"]
        for option in ("--topic", "--late-after", "--timeout", "--batch-size", "--in-flight")
    ),
)


def test_an_option_that_conflicts_with_the_file_is_an_error(tmp_path: Path, wording: SnapshotAssertion) -> None:
    config = written(tmp_path, {"dead": DEAD})
    said = {}
    with Cases() as cases:
        for words in USAGE:
            with cases.case(" ".join(words)) as name:
                ran = run_here("sweep", *(config if word == "FILE" else word for word in words))
                assert ran.returncode == ExitStatus.USAGE
                said[name] = ran.stderr.replace(str(tmp_path), "<tmp>")
    assert said == wording
