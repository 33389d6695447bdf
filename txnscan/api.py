"""The public surface in Python: `sweep` on Spark with tables, `find_hanging` without either."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from txnscan.config import (
    ConfigError,
    ScanConfig,
    is_catalog_schema,
    parse_bootstrap_servers,
    parse_location,
    printable,
)
from txnscan.coordinators.cluster import Cluster
from txnscan.engine import Engine
from txnscan.engine.clock import Stopwatch, boot_time
from txnscan.engine.spark.jobs import described, inheriting
from txnscan.engine.threads import ThreadsEngine
from txnscan.errors import TxnscanError
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.deadline import Deadline
from txnscan.kafka.client.factory import ClientFactory
from txnscan.kafka.clock import wall_clock_ms
from txnscan.report.json import sweep_summary
from txnscan.sweeps.history import History, NoHistory
from txnscan.sweeps.pipeline import scan
from txnscan.sweeps.result import Progress, Scan
from txnscan.tables.open import open_tables
from txnscan.tables.schema import CANDIDATES, OPEN_TRANSACTIONS, SCAN_ERRORS, TABLES, Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from txnscan.tables.tables import Tables

# So many sweeps are under way at a time: each has connections and threads of its own.
_AT_ONCE_MAX = 10


@dataclass(frozen=True)
class SweepResult:
    """A finished sweep. `transactions`, `candidates` and `errors` are DataFrames (Arrow tables where there is no Spark)
    with the columns of the tables `open_transactions`, `candidates` and `scan_errors`, healthy transactions included;
    `summary` is the "sweep" object of the JSON output.
    """

    scan: Scan
    # The sweep's rows of a table; made when they are asked for.
    _rows: Callable[[Table], DataFrame | pa.Table]

    @cached_property
    def transactions(self) -> DataFrame | pa.Table:
        return self._rows(OPEN_TRANSACTIONS)

    @cached_property
    def candidates(self) -> DataFrame | pa.Table:
        return self._rows(CANDIDATES)

    @cached_property
    def errors(self) -> DataFrame | pa.Table:
        return self._rows(SCAN_ERRORS)

    @property
    def summary(self) -> dict[str, Any]:
        return sweep_summary(self.scan)


@dataclass(frozen=True)
class ClusterSweep:
    """A cluster of several, with its sweep or its error. With NotStored it has both."""

    name: str
    result: SweepResult | None
    error: Exception | None = None

    @property
    def scan(self) -> Scan | None:
        """What the sweep found."""
        return None if self.result is None else self.result.scan

    @property
    def failure(self) -> str | None:
        """The error as a sentence."""
        return None if self.error is None else _in_one_line(self.error)


class NotStored(TxnscanError):
    """The sweep is done, and the tables could not be written. `str()` is one sentence that names `--tables` and the
    cause. result: what the sweep found, which is in no table.
    """

    def __init__(self, why: str, result: SweepResult) -> None:
        super().__init__(why)
        self.result = result


def quiet(stage: str, done: int, total: int) -> None:
    """A progress callback that does nothing."""


def sweep(
    spark: SparkSession | None,
    config: ScanConfig,
    *,
    progress: Progress = quiet,
    say: Callable[[str], None] = lambda sentence: None,
) -> SweepResult:
    """Sweeps the cluster and stores the result in the tables of `config.tables`, where that is given.

    spark: the session that reads and writes. None, with the engine "threads", needs neither Spark nor Java: the tables
    are written through delta-rs, and the result's tables are Arrow's.
    The tables are created before anything is sent to the cluster. say: called with a sentence where tables of an
    earlier version were changed, as by new columns. Raises ConfigError for an option that cannot be used,
    ClusterUnreachable when no bootstrap server answers, and NotStored, which has the result, when the tables cannot be
    written, or writing them is interrupted.
    """
    settings = config.connection()
    with described(spark, config.bootstrap_servers, progress) as named:
        engine = _engine(spark, config.engine)
        tables = _created(spark, config.tables, named, say) if config.tables is not None else None
        return _swept(spark, config, settings, engine, tables, named)


def sweep_clusters(
    spark: SparkSession | None,
    configs: Mapping[str, ScanConfig],
    *,
    progress: Progress = quiet,
    say: Callable[[str], None] = lambda sentence: None,
) -> tuple[ClusterSweep, ...]:
    """Sweeps several clusters at once, by their names, each as `sweep` does. Returns them in the same order.

    Up to ten sweeps are under way at a time. A sweep that fails has its error in the result, and stops no other.
    Raises ConfigError before the first request if tables cannot be opened, or an engine cannot be used.
    """
    with described(spark, "sweep_clusters", progress) as named:
        engines = {name: _engine(spark, name) for name in {config.engine for config in configs.values()}}
        # Created once: two sweeps would both try to.
        for location in {config.tables: None for config in configs.values() if config.tables is not None}:
            _created(spark, location, named, say)

    def swept(name: str, config: ScanConfig) -> ClusterSweep:
        try:
            # Tables of its own: what a sweep finds in them when it begins is kept there until it is written.
            tables = open_tables(config.tables, spark) if config.tables is not None else None
            with described(spark, name, quiet) as named:
                result = _swept(spark, config, config.connection(), engines[config.engine], tables, named)
        except NotStored as error:
            return ClusterSweep(name, error.result, error)
        except Exception as error:
            return ClusterSweep(name, None, error)
        return ClusterSweep(name, result)

    progress("sweep clusters", 0, len(configs))
    pool = ThreadPoolExecutor(min(_AT_ONCE_MAX, len(configs) or 1), thread_name_prefix="txnscan-sweep")
    try:
        waiting = {pool.submit(inheriting(spark, swept), name, config): name for name, config in configs.items()}
        done: dict[str, ClusterSweep] = {}
        for future in as_completed(waiting):
            done[waiting[future]] = future.result()
            progress("sweep clusters", len(done), len(configs))
    finally:
        # Ctrl-C waits for no sweep under way.
        pool.shutdown(wait=False, cancel_futures=True)
    return tuple(done[name] for name in configs)


def _engine(spark: SparkSession | None, name: str) -> Engine:
    if name != "spark":
        return ThreadsEngine()
    if spark is None:
        raise ConfigError("--engine", "spark needs a session; give one, or use threads")
    return _spark_engine(spark)


def _created(spark: SparkSession | None, location: str, progress: Progress, say: Callable[[str], None]) -> Tables:
    tables = open_tables(location, spark)
    progress("open tables", 0, 1)
    tables.create(say)
    return tables


def _swept(
    spark: SparkSession | None,
    config: ScanConfig,
    settings: ConnectionSettings,
    engine: Engine,
    tables: Tables | None,
    progress: Progress,
) -> SweepResult:
    """Sweeps, and writes to these tables, which exist."""
    found = _scan(config, settings, engine, tables if tables is not None else NoHistory(), progress)
    result = SweepResult(found, partial(_unstored, spark, found))
    if tables is not None:
        progress("write tables", 0, 1)
        try:
            tables.write(found)
        except KeyboardInterrupt as interrupt:
            raise NotStored("--tables: the sweep was not stored, as it was interrupted", result) from interrupt
        except Exception as error:
            # Storage fails in as many ways as there are kinds of it. What was found must not be lost with it.
            said = f"the sweep was not stored, as {config.tables} cannot be written: {tables.why_failed(error)}"
            raise NotStored(f"--tables: {printable(said)}", result) from error
        progress("write tables", 1, 1)
    return result


def _in_one_line(error: Exception) -> str:
    """An error as a sentence, with its type if it was unforeseen."""
    from txnscan.engine.spark.session import in_one_line, is_of_spark

    if isinstance(error, TxnscanError):
        said = str(error) if error.option is None else f"{error.option}: {error}"
    else:
        said = f"Spark failed: {in_one_line(error)}" if is_of_spark(error) else f"{type(error).__name__}: {error}"
    return printable(" ".join(said.split()))


def _unstored(spark: SparkSession | None, found: Scan, table: Table) -> DataFrame | pa.Table:
    """The rows that a sweep has for a table, healthy transactions included, made from its result and not stored."""
    from txnscan.tables.tables import items_of

    items = found.transactions if table is OPEN_TRANSACTIONS else items_of(found, table)
    if spark is None:
        from txnscan.tables.delta import arrow_rows

        return arrow_rows(table.columns, table.rows(found, items))
    from txnscan.tables.spark import frame

    return frame(spark, found, table, items)


def _spark_engine(spark: SparkSession) -> Engine:
    from txnscan.engine.spark.executors import SparkEngine
    from txnscan.engine.spark.guest import own_session
    from txnscan.engine.spark.nodes import send_packages

    own = own_session(spark)
    send_packages(own)
    engine = SparkEngine(own)
    engine.start_workers()
    return engine


def table(spark: SparkSession, tables: str, name: str) -> DataFrame:
    """A table that sweeps have written, such as "incidents", as a DataFrame. tables: the location of the tables.

    Raises ConfigError for an invalid location, and for a name that no table has.
    """
    from txnscan.tables.spark import SparkDelta

    found = next((one for one in TABLES if one.name == name), None)
    if found is None:
        raise ConfigError("table", f"there is none of the name '{printable(name)}'; see docs/tables.md")
    return spark.table(SparkDelta(spark, tables).name(found))


def create_views(spark: SparkSession, tables: str) -> dict[str, str]:
    """Creates the SQL views for dashboards, and returns by the name of each view its name in SQL.

    In a catalog the views stand beside the tables. For tables at a path they are temporary views of this session, whose
    names begin with `txnscan_`. tables: the location of the tables. Raises ConfigError for an invalid location.
    """
    from txnscan.tables.views import VIEWS, view_name, view_statements

    location = parse_location(tables)
    in_catalog = is_catalog_schema(location)
    for statement in view_statements(location, in_catalog):
        spark.sql(statement)
    return {view.name: view_name(view, location, in_catalog) for view in VIEWS}


def find_hanging(config: ScanConfig, *, progress: Progress = quiet, history: History | None = None) -> Scan:
    """A sweep with the same proof, read in threads of this process: no Spark, no tables. history: what earlier sweeps
    left. Raises as `sweep` does.
    """
    return _scan(config, config.connection(), ThreadsEngine(), history or NoHistory(), progress)


def sweep_once(config: ScanConfig, settings: ConnectionSettings, sweep_id: str) -> Scan:
    """A sweep of this id in threads, with settings that were read elsewhere. Raises as `sweep` does."""
    return _scan(config, settings, ThreadsEngine(), NoHistory(), quiet, sweep_id)


def _scan(
    config: ScanConfig,
    settings: ConnectionSettings,
    engine: Engine,
    history: History,
    progress: Progress,
    sweep_id: str | None = None,
) -> Scan:
    sweep_id = new_sweep_id(wall_clock_ms) if sweep_id is None else sweep_id
    stages = Stopwatch(progress)
    deadline = Deadline.after(config.timeout_ms)
    servers = parse_bootstrap_servers(config.bootstrap_servers)
    clients = ClientFactory(sweep_id, settings, servers, deadline.time_left())
    with clients.driven(), Cluster(clients, deadline=clients.client().deadline) as cluster:
        found = scan(
            config,
            cluster,
            engine,
            sweep_id=sweep_id,
            now_ms=wall_clock_ms,
            history=history,
            progress=stages,
            reads_impact=True,
        )
    return replace(found, boot=boot_time(), stages=stages.times())


def new_sweep_id(now_ms: Callable[[], int]) -> str:
    """A UUID that sorts by time (RFC 9562, version 7)."""
    random_bits = uuid.uuid4().int & ((1 << 76) - 1)
    random_a, random_b = random_bits >> 64, random_bits & ((1 << 62) - 1)
    return str(uuid.UUID(int=now_ms() << 80 | 0x7 << 76 | random_a << 64 | 0b10 << 62 | random_b))
