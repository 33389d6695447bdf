"""`spark.read.format("kafka_transactions")`: a task of Spark sweeps simulated brokers."""

from __future__ import annotations

from collections import Counter
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


@pytest.mark.parametrize("pushdown", ["false", "true"])
def test_each_query_of_a_view_is_a_sweep_with_its_options(
    registered: SparkSession, cluster: WireCluster, pushdown: str
) -> None:
    """With and without filter pushdown: no query limits the rows of the next."""
    setting = "spark.sql.python.filterPushdown.enabled"
    # Spark 4.0 has no such setting.
    before = registered.conf.get(setting, None)
    found = find_hanging(ScanConfig(cluster.bootstrap_servers)).candidates
    of_topic = Counter(one.observation.topic for one in found)
    try:
        registered.conf.set(setting, pushdown)
        for view, option in (("transactions_now", ""), ("of_one_topic", f", topic '{min(of_topic)}'")):
            registered.sql(
                f"CREATE OR REPLACE TEMPORARY VIEW {view} USING {NAME} "
                f"OPTIONS (bootstrapServers '{cluster.bootstrap_servers}'{option})"
            )
        query = "SELECT topic, started_at FROM {} WHERE verdict = 'hanging'"
        one = registered.sql(f"{query.format('transactions_now')} AND topic = '{min(of_topic)}'").collect()
        every = registered.sql(query.format("transactions_now")).collect()
        limited = registered.sql(query.format("of_one_topic")).collect()
        assert len(one) == len(limited) == of_topic[min(of_topic)]
        assert Counter(row["topic"] for row in every) == of_topic
        assert len({rows[0]["started_at"] for rows in (one, every, limited)}) == 3
    finally:
        registered.conf.unset(setting) if before is None else registered.conf.set(setting, before)
        for view in ("transactions_now", "of_one_topic"):
            registered.sql(f"DROP VIEW IF EXISTS {view}")


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
        {"bootstrapServers": "h:1", "batchSize": "many"},
        {"bootstrapServers": "h:1", "inFlight": "1000"},
        {"bootstrapServers": "h:1", "blockingAfter": "5"},
        {"bootstrapServers": "h:1", "ownerPattern": "billing"},
        {"bootstrapServers": "h:1", "commandConfig": "/nowhere"},
        {"bootstrapServers": "h:1", "kafka.bootstrap.servers": "h:1"},
        {"kafka.bootstrap.servers": "h"},
        {"kafka.bootstrap.servers": "h:1", "kafka.security.protokol": "SSL"},
        {"kafka.bootstrap.servers": "h:1", "kafka.no.such.thing": "1"},
        {"kafka.bootstrap.servers": "h:1", "kafka.security.protocol": "TLS"},
        {"kafka.bootstrap.servers": "h:1", "kafka.client.id": "me", "commandConfig": "/nowhere"},
    ):
        with pytest.raises(ConfigError) as error:
            KafkaTransactions(options).reader(None)
        refused[str(options)] = str(error.value)
    assert refused == wording


def test_settings_of_kafkas_clients_are_those_of_client_properties() -> None:
    from txnscan.sql.source import Settings

    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";'
    settings = Settings(
        {
            "kafka.bootstrap.servers": "h:1,i:2",
            "topic": "orders-.*",
            "Kafka.Request.Timeout.Ms": "20000",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": jaas,
        }
    )
    assert settings.config.bootstrap_servers == "h:1,i:2"
    assert (settings.connection.principal, settings.connection.security_protocol) == ("User:alice", "SASL_PLAINTEXT")
    assert settings.connection.request_timeout_ms == 20_000
    assert "secret" not in repr(settings.connection)


def test_option_names_are_case_insensitive() -> None:
    from txnscan.sql.source import Settings

    settings = Settings({"bootstrapservers": "h:1", "LATEAFTER": "20m", "topic": "orders-.*"})
    assert (settings.config.late_after_ms, settings.config.topic) == (1_200_000, ("orders-.*",))


def test_every_setting_of_a_cluster_is_an_option() -> None:
    from txnscan.config.settings import SETTINGS, Kind
    from txnscan.sql.source import Settings

    values = {Kind.WHOLE_NUMBER: "7", Kind.DURATION: "7m"}
    of_itself = {"bootstrapServers": "h:1", "commandConfig": None, "ownerPattern": "a=b"}
    with Cases() as cases:
        for one in SETTINGS.values():
            text = of_itself.get(one.sql_option, values.get(one.kind, "/a.*"))
            if one.in_sql and text is not None:
                with cases.case(one.sql_option):
                    config = Settings({"bootstrapServers": "h:1", one.sql_option: text}).config
                    assert getattr(config, one.field) == one.of_text(text, one.sql_option)


@pytest.mark.parametrize(
    ("begun_ms_ago", "anew"), [(None, True), (59_999, False), (60_000, True)], ids=["first", "too soon", "due"]
)
def test_a_stream_sweeps_after_each_interval(begun_ms_ago: int | None, anew: bool) -> None:
    from txnscan.sql.source import next_offset

    start = {"sweep_id": "" if begun_ms_ago is None else new_sweep_id(lambda: NOW_MS - begun_ms_ago)}
    assert (next_offset(start, NOW_MS, 60_000) != start) is anew


def test_without_a_start_offset_a_stream_counts_from_its_last_sweep() -> None:
    """Spark 4.0 and 4.1 give no offset."""
    from txnscan.sql.source import Settings, Sweeps

    slow, fast = (Sweeps(Settings({"bootstrapServers": "h:1", "interval": interval})) for interval in ("1h", "1ms"))
    assert slow.latestOffset()["sweep_id"]
    assert slow.latestOffset() == slow.latestOffset()
    first = fast.latestOffset()
    wait_until(lambda: fast.latestOffset() != first, "the next sweep was due")


def test_an_incomplete_sweep_fails_the_read_unless_accepted(
    monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    """An unobserved partition has no row, and would look healthy."""
    from txnscan.sql import source as spark_source
    from txnscan.sql.source import Incomplete, Settings

    partial = scan(judged(), errors=(unobserved("read every partition", "broker 3 did not answer", 3),))
    monkeypatch.setattr(spark_source, "sweep_once", lambda *_: partial)
    with pytest.raises(Incomplete) as incomplete:
        list(Settings({"bootstrapServers": "h:1"}).rows("sweep-1"))
    assert str(incomplete.value) == wording
    assert len(list(Settings({"bootstrapServers": "h:1", "failOnIncomplete": "false"}).rows("sweep-1"))) == 1
