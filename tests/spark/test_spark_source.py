"""`spark.read.format("kafka_transactions")`: a task of Spark sweeps simulated brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.builders import NOW_MS, judged, scan, unobserved
from tests.cases import Cases
from tests.sim.wire import ClusterShape, WireCluster
from txnscan import ScanConfig, find_hanging
from txnscan.api import new_sweep_id
from txnscan.config import ConfigError
from txnscan.demo.wait import wait_until
from txnscan.tables.schema import OPEN_TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from syrupy.assertion import SnapshotAssertion

NAME = "kafka_transactions"


@pytest.fixture(scope="module")
def cluster() -> Iterator[WireCluster]:
    with WireCluster(ClusterShape.busy(brokers=3, partitions=60, hanging=2)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def registered(spark: SparkSession) -> SparkSession:
    from txnscan import register

    register(spark)
    return spark


def test_a_batch_is_one_sweep_with_the_columns_of_open_transactions(
    registered: SparkSession, cluster: WireCluster, tmp_path: Path
) -> None:
    from txnscan.tables.delta import arrow_of

    (tmp_path / "client.properties").write_text("request.timeout.ms=20000\n", "utf-8")
    frame = (
        registered.read.format(NAME)
        .option("bootstrapServers", cluster.bootstrap_servers)
        .option("commandConfig", str(tmp_path / "client.properties"))
        .load()
    )
    assert frame.columns == [column.name for column in OPEN_TRANSACTIONS.columns]
    read = frame.toArrow()
    assert read.schema.types[:30] == [arrow_of(column) for column in OPEN_TRANSACTIONS.columns][:30]
    rows = read.to_pylist()
    found = find_hanging(ScanConfig(cluster.bootstrap_servers))
    where = [(j.observation.topic, j.observation.partition, str(j.judgement.verdict)) for j in found.transactions]
    assert sorted((row["topic"], row["partition"], row["verdict"]) for row in rows) == sorted(where)
    assert len({row["sweep_id"] for row in rows}) == 1
    hanging = [row for row in rows if row["verdict"] == "hanging"]
    assert len(hanging) == 2 and all(row["evidence"]["observation"]["topic"] == row["topic"] for row in hanging)


def test_each_micro_batch_of_a_stream_is_a_sweep_of_its_own(
    registered: SparkSession, cluster: WireCluster, tmp_path: Path
) -> None:
    stream = (
        registered.readStream.format(NAME)
        .option("bootstrapServers", cluster.bootstrap_servers)
        .option("interval", "1ms")
        .load()
    )
    query = (
        stream.where("verdict = 'hanging'")
        .writeStream.format("memory")
        .queryName("hanging_now")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:

        def sweeps() -> list[int]:
            if query.exception() is not None:
                raise AssertionError(str(query.exception()))
            return [row["count"] for row in registered.table("hanging_now").groupBy("sweep_id").count().collect()]

        wait_until(lambda: len(sweeps()) >= 2, "two sweeps were there", 300)
        assert set(sweeps()) == {2}
    finally:
        query.stop()
    registered.sql("DROP VIEW IF EXISTS hanging_now")


@pytest.mark.parametrize("pushes", [True, False])
def test_a_view_in_sql_takes_options_and_pushes_filters_on_topic_down_where_the_session_does(
    spark: SparkSession, pushes: bool
) -> None:
    """One partition of topic-00001 answers with an error, which fails every sweep of that topic."""
    from txnscan import register

    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting)
    shape = ClusterShape(brokers=2, partitions=40, partitions_per_topic=20, hanging=4, error_every=25)
    query = "SELECT topic, verdict FROM transactions_now WHERE topic IN ('topic-00000', 'none') AND verdict = 'hanging'"
    with WireCluster(shape, 1) as cluster:
        try:
            spark.conf.set(setting, str(pushes).lower())
            register(spark)
            spark.sql(
                "CREATE OR REPLACE TEMPORARY VIEW transactions_now USING kafka_transactions "
                f"OPTIONS (bootstrapServers '{cluster.bootstrap_servers}', topic 'topic-.*')"
            )
            if pushes:
                assert [row["topic"] for row in spark.sql(query).collect()] == ["topic-00000"] * 2
            else:
                with pytest.raises(Exception, match="did not observe everything"):
                    spark.sql(query).collect()
            with pytest.raises(Exception, match="did not observe everything"):
                spark.sql("SELECT count(*) FROM transactions_now").collect()
        finally:
            spark.sql("DROP VIEW IF EXISTS transactions_now")
            spark.conf.set(setting, str(before))
            register(spark)


def test_the_error_of_an_unreachable_cluster_names_its_address(registered: SparkSession) -> None:
    frame = registered.read.format(NAME).option("bootstrapServers", "127.0.0.1:1").load()
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        frame.collect()


# --- without Spark


def test_the_name_of_the_format_is_a_contract() -> None:
    from txnscan.sql import source as spark_source

    assert (spark_source.NAME, spark_source.KafkaTransactions.name()) == (NAME, NAME)


def test_bad_options_are_refused(wording: SnapshotAssertion) -> None:
    from txnscan.sql.source import KafkaTransactions

    refused: dict[str, str] = {}
    for options in (
        {},
        {"bootstrapServers": "h"},
        {"bootstrapServers": "h:1", "topics": "x"},
        {"bootstrapServers": "h:1", "path": "/x"},
        {"bootstrapServers": "h:1", "interval": "60"},
        {"bootstrapServers": "h:1", "failOnIncomplete": "no"},
        {"bootstrapServers": "h:1", "commandConfig": "/nowhere"},
    ):
        with pytest.raises(ConfigError) as error:
            KafkaTransactions(options).reader(None)
        refused[str(options)] = str(error.value)
    assert refused == wording


def test_filters_on_topic_limit_the_sweep_and_all_are_given_back() -> None:
    from pyspark.sql.datasource import (
        DataSourceReader,
        EqualNullSafe,
        EqualTo,
        Filter,
        GreaterThan,
        In,
        Not,
        StringStartsWith,
    )

    from txnscan.sql.source import FilteredSweep, FilteredTransactions, KafkaTransactions

    topic, names = ("topic",), ("orders-eu", "orders-us", "orders.eu", "logs")
    table: tuple[tuple[list[Filter], str | None, tuple[str, ...]], ...] = (
        ([EqualTo(topic, "orders.eu")], None, ("orders.eu",)),
        ([EqualNullSafe(topic, "logs"), GreaterThan(("age_ms",), 1)], None, ("logs",)),
        ([In(topic, ("logs", "orders-eu", "x"))], "orders.*", ("orders-eu",)),
        ([StringStartsWith(topic, "orders."), EqualTo(("verdict",), "hanging")], None, ("orders.eu",)),
        ([StringStartsWith(topic, "orders"), In(topic, ("orders-us", "logs"))], "logs|orders-.*", ("orders-us",)),
        ([EqualTo(topic, "logs")], "orders.*", ()),
        ([Not(EqualTo(topic, "logs")), EqualTo(("evidence", "topic"), "x"), EqualTo(topic, None)], None, names),
        ([In(topic, tuple(f"t{n}" for n in range(1_001)))], None, names),
        ([], None, names),
    )
    with Cases() as cases:
        for filters, option, wanted in table:
            with cases.case((filters[:2], option)):
                options = {"bootstrapServers": "h:1"} | ({} if option is None else {"topic": option})
                reader = FilteredTransactions(options).reader(None)
                assert isinstance(reader, FilteredSweep) and list(reader.pushFilters(filters)) == filters
                assert tuple(filter(reader._settings.config.wants_topic, names)) == wanted
    # A source that has this method fails in a session without pushdown.
    assert type(KafkaTransactions({"bootstrapServers": "h:1"}).reader(None)).pushFilters is DataSourceReader.pushFilters


def test_filters_that_no_topic_matches_leave_the_option_to_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    from txnscan.sql import source

    swept: list[tuple[str, ...]] = []

    def sweep(config: ScanConfig, connection: object, sweep_id: str) -> object:
        swept.append(config.topic)
        if config.topic != ("orders.*",):
            raise ConfigError("--topic", "matches no topic")
        return scan(judged())

    monkeypatch.setattr(source, "sweep_once", sweep)
    whole = source.Settings({"bootstrapServers": "h:1", "topic": "orders.*"})
    assert len(list(whole.of_topics(["none"]).rows("sweep-1"))) == 1
    assert len(swept) == 2
    with pytest.raises(ConfigError):
        list(source.Settings({"bootstrapServers": "h:1", "topic": "none"}).of_topics(["x"]).rows("sweep-1"))


def test_options_are_taken_in_any_case_as_spark_hands_them_on() -> None:
    from txnscan.sql.source import Settings

    settings = Settings({"bootstrapservers": "h:1", "LATEAFTER": "20m", "topic": "orders-.*"})
    assert (settings.config.late_after, settings.config.topic) == ("20m", ("orders-.*",))


@pytest.mark.parametrize(
    ("begun_ms_ago", "anew"), [(None, True), (59_999, False), (60_000, True)], ids=["first", "too soon", "due"]
)
def test_a_stream_sweeps_when_the_interval_is_over(begun_ms_ago: int | None, anew: bool) -> None:
    from txnscan.sql.source import next_offset

    start = {"sweep_id": "" if begun_ms_ago is None else new_sweep_id(lambda: NOW_MS - begun_ms_ago)}
    assert (next_offset(start, NOW_MS, 60_000) != start) is anew


def test_an_incomplete_sweep_fails_the_read_unless_it_is_accepted(
    monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    """A partition that was not observed has no row, and would look healthy."""
    from txnscan.sql import source as spark_source
    from txnscan.sql.source import Incomplete, Settings

    partial = scan(judged(), errors=(unobserved("read every partition", "broker 3 did not answer", 3),))
    monkeypatch.setattr(spark_source, "sweep_once", lambda *_: partial)
    with pytest.raises(Incomplete) as incomplete:
        list(Settings({"bootstrapServers": "h:1"}).rows("sweep-1"))
    assert str(incomplete.value) == wording
    assert len(list(Settings({"bootstrapServers": "h:1", "failOnIncomplete": "false"}).rows("sweep-1"))) == 1
