"""The jobs of a sweep in the user's Spark session: each is in the user's job group, and describes its stage."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.sim.wire import ClusterShape, WireCluster
from txnscan import ScanConfig, sweep
from txnscan.engine.spark.jobs import described, inheriting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Delta sets these in the application's session whenever it reads a table.
OF_DELTA = {"spark.sql.parquet.fieldId.read.enabled", "spark.sql.parquet.fieldId.write.enabled"}
GROUP, DESCRIPTION = "spark.jobGroup.id", "spark.job.description"


def jobs(spark: SparkSession) -> dict[int, tuple[str | None, str | None]]:
    """Job group and description of each job that the session has run."""
    store = spark.sparkContext._jsc.sc().statusStore()
    found = store.jobsList(None)
    rows = (found.apply(at) for at in range(found.size()))
    return {row.jobId(): (_value(row.jobGroup()), _value(row.description())) for row in rows}


def _value(option: Any) -> str | None:
    return option.get() if option.isDefined() else None


def test_each_job_of_a_sweep_is_in_the_users_group_and_names_its_stage(
    spark: SparkSession, catalog_schema: str
) -> None:
    context = spark.sparkContext
    before = jobs(spark).keys()
    settings, active = dict(spark.conf.getAll), type(spark).getActiveSession()
    context.setJobGroup("of-the-user", "the user's own job")
    try:
        with WireCluster(
            ClusterShape(brokers=2, partitions=40, hanging=2, ongoing=2, transactional_ids=4), 1
        ) as cluster:
            at = cluster.bootstrap_servers
            for _ in range(2):
                assert len(sweep(spark, ScanConfig(at, tables=catalog_schema)).scan.candidates) == 2
        assert context.getLocalProperty(DESCRIPTION) == "the user's own job"
        changed = dict(spark.conf.getAll).items() ^ settings.items()
        assert {name for name, _ in changed} <= OF_DELTA
        assert type(spark).getActiveSession() is active
    finally:
        for name in (GROUP, DESCRIPTION):
            context.setLocalProperty(name, cast(str, None))
    ours = [job for number, job in jobs(spark).items() if number not in before]
    assert {group for group, _ in ours} == {"of-the-user"}
    stages = {(text or "").partition(f"txnscan {at}: ")[2].partition(":")[0] for _, text in ours}
    assert stages >= {"start Python", "open tables", "plan", "read every partition", "judge", "write tables"}
    assert "" not in stages


def test_a_thread_inherits_job_properties_and_the_former_description_is_restored(
    spark: SparkSession,
) -> None:
    context = spark.sparkContext
    seen: list[tuple[str, int, int]] = []

    def properties() -> tuple[str | None, str | None]:
        return context.getLocalProperty(GROUP), context.getLocalProperty(DESCRIPTION)

    context.setJobGroup("of-the-user", "theirs")
    try:
        with described(spark, "orders\n", lambda *stage: seen.append(stage)) as named, ThreadPoolExecutor(1) as pool:
            named("plan", 0, 1)
            # This thread's jobs keep their description.
            pool.submit(named, "judge", 1, 2).result()
            assert properties() == ("of-the-user", "txnscan orders\\n: plan")
            assert pool.submit(inheriting(spark, properties)).result() == properties()
        assert properties() == ("of-the-user", "theirs")
        assert seen == [("plan", 0, 1), ("judge", 1, 2)]
    finally:
        for name in (GROUP, DESCRIPTION):
            context.setLocalProperty(name, cast(str, None))


@pytest.mark.filterwarnings("ignore:Spark session is not provided")
def test_without_a_session_or_its_context_progress_is_passed_on() -> None:
    class Connect:
        """As of Spark Connect."""

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    def progress(stage: str, done: int, total: int) -> None:
        raise AssertionError

    for session in (None, cast("SparkSession", Connect())):
        with described(session, "orders", progress) as named:
            assert named is progress
        assert inheriting(session, len)("ab") == 2
