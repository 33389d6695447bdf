"""Several clusters, swept at once from threads of one Spark session, with tables written by Spark."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.sim.wire import ClusterShape, WireCluster
from txnscan import ClusterUnreachable, ScanConfig, sweep_clusters
from txnscan.tables.open import through_spark
from txnscan.tables.schema import INCIDENTS, SWEEPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_clusters_of_one_session_are_stored_and_a_dead_cluster_fails_alone(
    spark: SparkSession, catalog_schema: str
) -> None:
    with ExitStack() as stack:
        shapes = [ClusterShape(brokers=2, partitions=20, hanging=n, cluster_id=f"id-{n}") for n in range(3)]
        servers = [stack.enter_context(WireCluster(shape, 1)).bootstrap_servers for shape in shapes]
        configs = {at: ScanConfig(at, tables=catalog_schema) for at in (*servers, "127.0.0.1:1")}
        found = sweep_clusters(spark, configs)
    assert [type(one.error) for one in found] == [*[type(None)] * 3, ClusterUnreachable]
    assert [one.result.candidates.count() for one in found if one.result is not None] == [0, 1, 2]
    tables = through_spark(catalog_schema, spark)
    assert {row["cluster_id"] for row in tables.rows(SWEEPS)} == {"id-0", "id-1", "id-2"}
    assert Counter(row["cluster_id"] for row in tables.rows(INCIDENTS)) == {"id-1": 1, "id-2": 2}
