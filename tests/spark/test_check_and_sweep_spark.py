"""`check` and `sweep` with the same options agree where a Spark session reads or writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.cases import Cases
from tests.check_and_sweep import STORES, disagreement
from tests.sim.wire import ClusterShape, WireCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHAPE = ClusterShape(brokers=1, partitions=20, hanging=1, transactional_ids=20, log_records=50, groups=1)


def test_check_and_sweep_agree_with_a_session(spark: SparkSession, catalog_schema: str, tmp_path: Path) -> None:
    with Cases() as cases, WireCluster(SHAPE) as cluster:
        for store in ("nothing yet", "tables of another version", "a file"):
            STORES[store](tmp_path / store)
        locations = {
            "no tables": None,
            **{store: str(tmp_path / store) for store in ("nothing yet", "tables of another version", "a file")},
            "a schema": catalog_schema,
            "no such schema": "spark_catalog.txnscan_no_such_schema",
            "no such catalog": "no_such_catalog.txnscan",
        }
        for engine in ("spark", "auto"):
            for name, location in locations.items():
                with cases.case(f"--engine {engine}, {name}"):
                    tables = () if location is None else ("--tables", location)
                    assert disagreement(cluster.bootstrap_servers, ["--engine", engine, *tables]) is None
