"""A sweep as a data source of Spark. After `register(spark)`:

    spark.read.format("kafka_transactions").option("kafka.bootstrap.servers", "host:9092").load()
    spark.readStream.format("kafka_transactions").option("kafka.bootstrap.servers", "host:9092").load()
    CREATE TEMPORARY VIEW transactions_now USING kafka_transactions OPTIONS (kafka.bootstrap.servers 'host:9092')

The columns are those of the table `open_transactions`, healthy transactions included. A batch is one sweep, and so is
each micro-batch of a stream. A sweep is one task that reads in threads, because the proof needs one process that reads
the whole cluster in order. No state is kept between sweeps, and no table is written; `sweep` with tables does both.

Options as those of Spark's source for Kafka: kafka.bootstrap.servers, and each other setting of Kafka's clients after
`kafka.`, such as kafka.security.protocol. In place of these settings: commandConfig, the path of a client.properties on
the driver, which keeps secrets out of the options. bootstrapServers is the same as kafka.bootstrap.servers. The other
settings of a cluster are those of `txnscan.config.settings`, such as topic and lateAfter; each has one value.
interval: the minimum time from the start of one sweep of a stream to the start of the next; "60s" by default.
failOnIncomplete: "true" by default: a sweep that could not observe everything fails, because unobserved data has no
rows, and missing rows must not look like the absence of hanging transactions. With "false" the sweep returns the rows
that it observed.

The reader accepts no filters. Spark 4.2 keeps a view's reader with the filters of the first query and reuses it for
later queries, which would lack rows. To limit the sweep, use the option `topic`.

txnscan must be installed in the executors' Python, because Spark itself imports this class there. In a local session
that is this Python, unless PYSPARK_PYTHON names another. Source of the rules:
PySpark's `pyspark.sql.datasource`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from txnscan.api import new_sweep_id, sweep_once
from txnscan.config import ConfigError, ScanConfig, parse_duration_ms, printable
from txnscan.config.settings import BOOTSTRAP_SERVER, SETTINGS
from txnscan.engine.rows import plain, spark_type
from txnscan.engine.spark.python import register_here
from txnscan.errors import TxnscanError
from txnscan.kafka.client.client_configs import KNOWN, nearest
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.properties import connection_settings
from txnscan.kafka.clock import wall_clock_ms
from txnscan.kafka.security.providers import resolved
from txnscan.kafka.units import first_of
from txnscan.sweeps.result import Scan
from txnscan.tables.schema import OPEN_TRANSACTIONS

NAME = "kafka_transactions"
INTERVAL = "60s"
_OF_CLUSTER = {one.sql_option: one for one in SETTINGS.values() if one.in_sql}
_OPTIONS = (*_OF_CLUSTER, "interval", "failOnIncomplete")
_KAFKA, _SERVERS = "kafka.", "bootstrap.servers"
_GIVEN_TWICE = "is the same as bootstrapServers; give one of them"
_SWEEP = "sweep_id"
_SHOWN_MAX = 3


class Incomplete(TxnscanError):
    """A sweep could not observe everything. `str()` is one sentence with the gap and the remedy."""


class KafkaTransactions(DataSource):
    """The data source; see the module. Raises ConfigError for options that cannot be used."""

    @classmethod
    def name(cls) -> str:
        """The argument for `format`."""
        return NAME

    def schema(self) -> str:
        """The columns of `open_transactions`."""
        types = ((c.name, c.type if isinstance(c.type, str) else spark_type(c.type)) for c in OPEN_TRANSACTIONS.columns)
        return ", ".join(f"`{name}` {type_}" for name, type_ in types)

    def reader(self, schema: Any) -> DataSourceReader:
        """A reader of one sweep."""
        return OneSweep(Settings(self.options))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """A reader with one sweep in each micro-batch."""
        return Sweeps(Settings(self.options))


class Settings:
    """The checked options, with the contents of the files that they name: read on the driver, sent to the executor.

    Raises ConfigError.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        settings, given = _separated(options)
        servers = settings.pop(_SERVERS, None)
        if (servers is None) == (BOOTSTRAP_SERVER.sql_option not in given):
            raise ConfigError(f"{_KAFKA}{_SERVERS}", "is missing; give host:port" if servers is None else _GIVEN_TWICE)
        names = {one.option: option for option, one in _OF_CLUSTER.items()}
        if servers is not None:
            given[BOOTSTRAP_SERVER.sql_option] = servers
            names[BOOTSTRAP_SERVER.option] = f"{_KAFKA}{_SERVERS}"
        of_cluster = {one: given[option] for option, one in _OF_CLUSTER.items() if option in given}
        with _named_as_here(names):
            self.config = ScanConfig(
                **{one.field: one.of_text(text, one.option) for one, text in of_cluster.items()}, engine="threads"
            )
        if settings and self.config.command_config is not None:
            raise ConfigError("commandConfig", f"has the settings of Kafka's client; give it, or {_KAFKA} options")
        with _named_as_here(names):
            self.connection = _connection(settings) if settings else self.config.connection()
        self.interval_ms = parse_duration_ms(given.get("interval", INTERVAL), "interval")
        self.fail_on_incomplete = _flag(given.get("failOnIncomplete", "true"))

    def rows(self, sweep_id: str) -> Iterator[tuple[Any, ...]]:
        """Sweeps, and yields a row for each open transaction. Raises Incomplete, and the errors of a sweep."""
        found = sweep_once(self.config, self.connection, sweep_id)
        why = not_observed(found)
        if self.fail_on_incomplete and why is not None:
            raise Incomplete(why)
        for row in OPEN_TRANSACTIONS.rows(found, found.transactions):
            yield tuple(plain(value) for value in row.values())


class OneSweep(DataSourceReader):
    """A batch: one sweep in one task."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def partitions(self) -> Sequence[InputPartition]:
        """One partition: a sweep cannot be divided. If Spark runs its task twice, both runs have the same sweep id."""
        return [InputPartition(_new_id())]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Runs on an executor."""
        return self._settings.rows(partition.value)


class Sweeps(DataSourceStreamReader):
    """A stream. An offset is the id of a sweep, which contains its start time.

    If a micro-batch is retried, it sweeps again under the same id. A sink that drops duplicates by the id of the sweep,
    or by the id of the micro-batch, keeps one of the two.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._last: dict[str, str] = {}

    def initialOffset(self) -> dict[str, str]:
        """The offset before the first sweep."""
        return {_SWEEP: ""}

    def latestOffset(self, start: dict[str, str] | None = None, limit: Any = None) -> dict[str, str]:
        """The offset of the next sweep. If it is not due yet, the offset of the last sweep, so the stream has no new
        data. start: the offset of the last sweep. Spark before 4.2 gives none, and uses one reader for the whole query.
        """
        last = self._last if start is None else start
        self._last = next_offset(last, wall_clock_ms(), self._settings.interval_ms)
        return self._last

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """One partition, as in a batch; empty if there is no new data."""
        return [InputPartition(end[_SWEEP])] if start != end else []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Runs on an executor."""
        return self._settings.rows(partition.value)


def next_offset(start: Mapping[str, str], now_ms: int, interval_ms: int) -> dict[str, str]:
    """The offset of a sweep that begins now; unchanged if the last sweep began less than `interval_ms` ago."""
    last = start.get(_SWEEP, "")
    if last and now_ms - _begun_ms(last) < interval_ms:
        return dict(start)
    return {_SWEEP: _new_id()}


def not_observed(found: Scan) -> str | None:
    """A sentence about the data that has no rows; None if every open transaction has a row."""
    if not found.errors:
        return None
    errors = [printable(str(error.failure)) for error in found.errors]
    shown = first_of(errors, _SHOWN_MAX, separator="; ")
    return (
        f"the sweep did not observe everything: {shown}; `txnscan check` says what to do, and failOnIncomplete="
        "false reads what was observed"
    )


def _separated(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The settings of Kafka's clients, without their prefix, and the options of this module."""
    kafkas = {name[len(_KAFKA) :].lower(): value for name, value in options.items() if name.lower().startswith(_KAFKA)}
    own = {name: value for name, value in options.items() if not name.lower().startswith(_KAFKA)}
    return kafkas, _known(own)


@contextmanager
def _named_as_here(names: Mapping[str, str]) -> Iterator[None]:
    """Errors about an option of a command name the option here in its place."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(names.get(error.named, error.named), error.why) from None


def _connection(settings: Mapping[str, str]) -> ConnectionSettings:
    """The connection with these settings of Kafka's clients. There is no place for warnings, so an unknown setting is
    an error.
    """
    unknown = next((name for name in settings if name not in KNOWN and not name.startswith("config.providers")), None)
    if unknown is not None:
        meant = nearest(unknown)
        hint = f"; did you mean {_KAFKA}{meant}?" if meant is not None else "; leave it out"
        raise ConfigError(f"{_KAFKA}{printable(unknown)}", f"is no setting of Kafka's clients{hint}")
    try:
        return connection_settings(resolved(settings))
    except ValueError as error:
        raise ConfigError(f"{_KAFKA}*", str(error)) from None


def _known(options: Mapping[str, str]) -> dict[str, str]:
    """The options by their names in this module. Spark ignores upper and lower case."""
    names = {name.lower(): name for name in _OPTIONS}
    given = {}
    for name, value in options.items():
        if name.lower() not in names:
            like = difflib.get_close_matches(name.lower(), names, n=1)
            hint = f"did you mean {names[like[0]]}?" if like else f"known are {', '.join(_OPTIONS)}"
            raise ConfigError(printable(name), f"is no option of {NAME}; {hint}")
        given[names[name.lower()]] = value
    return given


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError("failOnIncomplete", f"'{printable(text)}' is neither true nor false")
    return text.lower() == "true"


def _new_id() -> str:
    return new_sweep_id(wall_clock_ms)


def _begun_ms(sweep_id: str) -> int:
    """The time in the id of a sweep (RFC 9562, version 7)."""
    return int(sweep_id.replace("-", "")[:12], 16)


def register(spark: SparkSession) -> None:
    """Registers `kafka_transactions` as a data source of this session, for `spark.read` and `spark.readStream`. Each
    batch or micro-batch is one sweep. See the module for its options and columns.
    """
    register_here(spark, KafkaTransactions)
