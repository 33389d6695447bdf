"""Where `check` is green, the sweep with the same options does not refuse; where the sweep works, `check` is green."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cases import Cases
from tests.check_and_sweep import MACHINES, NO_JAVA, STORES, disagreement
from tests.process import run_here
from tests.sim.wire import ClusterShape, WireCluster
from txnscan import ScanConfig
from txnscan.api import check
from txnscan.errors import ExitStatus
from txnscan.sweeps import preflight
from txnscan.sweeps.preflight import Level

SHAPE = ClusterShape(brokers=1, partitions=20, hanging=1, transactional_ids=20, log_records=50, groups=1)
# Where Spark starts, tests/spark/test_check_and_sweep_spark.py compares them.
WITHOUT_SPARK = (
    *(("everything", "auto"), ("everything", "threads"), ("no delta-rs", "auto")),
    *(("no Java", "auto"), ("no Java", "spark")),
    *(("neither Spark nor Java", "auto"), ("neither Spark nor Java", "spark")),
    *(("threads alone", "auto"), ("threads alone", "spark")),
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with WireCluster(SHAPE) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each kind of location, made once."""
    folder = tmp_path_factory.mktemp("stores")
    for name, make in STORES.items():
        make(folder / name)
    return folder


def copied(stores: Path, name: str, place: Path) -> str:
    """A copy of this kind of location: a sweep changes it."""
    original = stores / name
    if original.is_dir():
        shutil.copytree(original, place)
    elif original.exists():
        shutil.copy(original, place)
    return str(place)


def test_check_and_sweep_agree_on_every_engine_machine_and_store(address: str, stores: Path, tmp_path: Path) -> None:
    with Cases() as cases:
        for number, (machine, engine) in enumerate(WITHOUT_SPARK):
            for store in (None, *STORES):
                # On this machine only Spark opens tables, and the machine has it.
                if machine == "no delta-rs" and store is not None:
                    continue
                with cases.case(f"{machine}, --engine {engine}, {store or 'no tables'}"):
                    options = ["--engine", engine]
                    if store is not None:
                        options += ["--tables", copied(stores, store, tmp_path / f"{number} {store}")]
                    with pytest.MonkeyPatch.context() as here:
                        MACHINES[machine].apply(here)
                        assert disagreement(address, options) is None


def test_tables_at_a_path_need_neither_spark_nor_java(address: str, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as here:
        MACHINES["neither Spark nor Java"].apply(here)
        ran = run_here("check", "--bootstrap-server", address, "--tables", str(tmp_path / "tables"))
    assert ran.returncode == ExitStatus.DONE


def test_check_and_sweep_agree_on_every_scope(address: str, tmp_path: Path) -> None:
    checkpoint = tmp_path / "no checkpoint"
    table = {
        "every topic": (),
        "a topic": ("--topic", ".*"),
        "no such topic": ("--topic", "no-such-topic"),
        "complete up to a topic that is not there": ("--complete-up-to", "no-such-topic"),
        "no such checkpoint": ("--spark-checkpoint", str(checkpoint)),
        "no engine": ("--engine", "spark"),
    }
    with Cases() as cases:
        for name, options in table.items():
            with cases.case(name), pytest.MonkeyPatch.context() as here:
                for variable, value in NO_JAVA.items():
                    here.setenv(variable, value)
                assert disagreement(address, options) is None


def test_check_claims_nothing_about_brokers_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that does not answer is no matter of ACLs, and shows no clock."""
    monkeypatch.setattr(preflight, "QUESTION_MS", 3_000)
    shape = replace(SHAPE, brokers=3)
    findings: dict[str, dict[Level, str]] = {}
    with WireCluster(shape) as cluster:
        cluster.pause(1)
        for one in check(ScanConfig(cluster.bootstrap_servers)).findings:
            findings.setdefault(one.area, {})[one.level] = one.said
    assert "acls" not in findings
    gaps = {"connection", "partitions", "coordinators"}
    assert {area for area, found in findings.items() if Level.INCOMPLETE in found} == gaps
    assert set(findings["clock"]) == {Level.NOTE}
    assert all("answer" in findings[area][Level.OK] for area in ("metadata", "apis", "causes"))
    said = findings["coordinators"][Level.INCOMPLETE]
    assert said.startswith(f"0 of {shape.transaction_state_partitions} coordinator partitions proven")
