"""`--engine auto`: executors read if they can connect to the brokers, else the driver. The reason is stored."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.sim.wire import ClusterShape, WireCluster
from txnscan import ScanConfig, api, sweep
from txnscan.config import EngineName
from txnscan.demo.ports import choose_ports
from txnscan.engine.choice import EngineReason
from txnscan.engine.spark.executors import SparkEngine
from txnscan.kafka.topology import Broker
from txnscan.reads.tasks import cannot_read
from txnscan.tables.open import open_tables
from txnscan.tables.schema import SWEEPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Trial = Callable[[object], str | None]

SHAPE = ClusterShape(brokers=2, partitions=20, hanging=2)


# Functions without a name, which executors get by value: they cannot import this module.
def cut_off() -> Trial:
    """The answer of executors without a route to the brokers."""
    return lambda servers: "no route"


def broken() -> Trial:
    """Executors whose Python cannot start a task."""

    def fail(servers: object) -> str | None:
        raise ModuleNotFoundError("No module named 'pyarrow'")

    return fail


@pytest.mark.parametrize(
    ("engine", "trial", "name", "reason"),
    [
        ("auto", None, EngineName.SPARK, EngineReason.EXECUTORS_CONNECT),
        ("auto", cut_off, EngineName.THREADS, EngineReason.EXECUTORS_FAILED),
        ("auto", broken, EngineName.THREADS, EngineReason.EXECUTORS_FAILED),
        ("spark", cut_off, EngineName.SPARK, EngineReason.REQUESTED),
        ("threads", cut_off, EngineName.THREADS, EngineReason.REQUESTED),
    ],
    ids=["connected", "cut off", "broken", "spark", "threads"],
)
def test_the_engine_of_a_session_and_its_reason_are_stored(
    spark: SparkSession,
    location: str,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    trial: Callable[[], Trial] | None,
    name: EngineName,
    reason: EngineReason,
) -> None:
    if trial is not None:
        monkeypatch.setattr(api, "cannot_read", trial())
    with WireCluster(SHAPE, 1) as cluster:
        found = sweep(spark, ScanConfig(cluster.bootstrap_servers, tables=location, engine=engine))
    assert (found.scan.engine.name, found.scan.engine.reason) == (name, reason)
    assert found.scan.complete and found.scan.counts["hanging"] == SHAPE.hanging
    assert (found.summary["engine"], found.summary["engine_reason"]) == (name, reason)
    (row,) = open_tables(location, None).rows(SWEEPS)
    assert (row["engine"], row["engine_reason"]) == (name, reason)
    assert len(row["warnings"]) == (reason is EngineReason.EXECUTORS_FAILED)


def test_executors_need_one_of_the_bootstrap_servers(spark: SparkSession) -> None:
    (port,) = choose_ports(1)
    closed = Broker(-1, "127.0.0.1", port)
    engine = SparkEngine(spark)
    assert engine.start_workers(partial(cannot_read, ()))() is None
    assert engine.start_workers(partial(cannot_read, [closed]))() is not None
    with WireCluster(SHAPE, 1) as cluster:
        host, _, its_port = cluster.bootstrap_servers.partition(",")[0].rpartition(":")
        assert engine.start_workers(partial(cannot_read, [closed, Broker(-2, host, int(its_port))]))() is None
