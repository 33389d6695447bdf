"""The public functions: `sweep` on Spark with tables, `find_hanging` without Spark and tables, and functions for stored
tables.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

from txnscan.config import (
    ConfigError,
    EngineName,
    Location,
    ScanConfig,
    check_topic_name,
    is_local,
    printable,
    scheme_of,
)
from txnscan.coordinators.cluster import Cluster, clients_of, opened_cluster
from txnscan.engine import Engine
from txnscan.engine.choice import WITHOUT_SESSION, AutoEngine, EngineChoice, EngineReason
from txnscan.engine.clock import Stopwatch, boot_time
from txnscan.engine.spark.interrupts import interruptible, is_interrupt
from txnscan.engine.spark.jobs import described, inheriting
from txnscan.engine.threads import ThreadsEngine
from txnscan.errors import TxnscanError
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.deadline import sweep_limit_ms
from txnscan.kafka.clock import wall_clock_ms
from txnscan.reads.tasks import cannot_read
from txnscan.report.json import sweep_summary
from txnscan.sweeps.checkpoints import FILE_BYTES_MAX, OpenFiles, open_files
from txnscan.sweeps.history import History, NoHistory
from txnscan.sweeps.pipeline import scan
from txnscan.sweeps.result import Progress, Scan
from txnscan.sweeps.state import Run
from txnscan.tables.open import open_tables
from txnscan.tables.schema import CANDIDATES, OPEN_TRANSACTIONS, SCAN_ERRORS, TABLES, Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from txnscan.explain.cause import Explanation
    from txnscan.explain.symptom import Symptom
    from txnscan.sweeps.before_stop import BeforeStop
    from txnscan.sweeps.gate import Gate
    from txnscan.sweeps.preflight import Checked
    from txnscan.tables.tables import Tables

# At most this many sweeps run at a time: each has its own connections and threads.
_AT_ONCE_MAX = 10


@dataclass(frozen=True)
class SweepResult:
    """A finished sweep. `transactions`, `candidates` and `errors` are DataFrames (without Spark: Arrow tables) with the
    columns of the tables `open_transactions`, `candidates` and `scan_errors`, healthy transactions included. `summary`
    is the "sweep" object of the JSON output.
    """

    scan: Scan
    # The sweep's rows of a table, made on request.
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
    """One of several clusters, with its sweep or its error. With NotStored it has both."""

    name: str
    result: SweepResult | None
    error: Exception | None = None

    @property
    def scan(self) -> Scan | None:
        """The result of the sweep, if there is one."""
        return None if self.result is None else self.result.scan

    @property
    def failure(self) -> str | None:
        """The error as a sentence, if there is one."""
        from txnscan.engine.spark.errors import in_one_line

        return None if self.error is None else in_one_line(self.error)


class NotStored(TxnscanError):
    """The sweep is complete, but the tables could not be written. `str()` is one sentence with `--tables` and the
    cause. result: the sweep, which is in no table.
    """

    def __init__(self, why: str, result: SweepResult) -> None:
        super().__init__(why)
        self.result = result


def quiet(stage: str, done: int, total: int) -> None:
    """A progress callback that ignores all progress."""


def to_stderr(sentence: str) -> None:
    """A line on stderr, which notebooks show."""
    print(f"txnscan: {printable(sentence)}", file=sys.stderr)  # noqa: T201


def sweep(
    spark: SparkSession | None,
    config: ScanConfig,
    *,
    progress: Progress = quiet,
    say: Callable[[str], None] | None = None,
) -> SweepResult:
    """Sweeps the cluster, and stores the result in the tables of `config.tables`, if that is set.

    spark: the session that reads and writes. Without a session, the engine "threads" needs neither Spark nor Java:
    delta-rs writes the tables, and the result has Arrow tables. In a session with the master `local`, delta-rs writes
    the tables of a local path (`tables.open`). The tables are created before the first request to the
    cluster. say: called with a sentence if a table is made again. Without it, such a sentence is a line on stderr, and
    also the reason if threads read in place of Spark's executors.
    Raises ConfigError for an option that cannot be used, ClusterUnreachable if no bootstrap server answers, and
    NotStored, which has the result, if the tables cannot be written or the writing is interrupted. Raises
    KeyboardInterrupt if its Spark jobs are interrupted.
    """
    settings = config.connection()
    with interruptible(spark, NotStored), described(spark, config.bootstrap_servers, progress) as named:
        engine = _engine(spark, config)
        tables = None if config.location is None else _created(spark, config.location, named, say or to_stderr)
        result = _swept(spark, config, settings, engine, tables, named)
    if say is None and (warning := result.scan.engine.warning) is not None:
        to_stderr(warning)
    return result


def sweep_clusters(
    spark: SparkSession | None,
    configs: Mapping[str, ScanConfig],
    *,
    progress: Progress = quiet,
    say: Callable[[str], None] | None = None,
) -> tuple[ClusterSweep, ...]:
    """Sweeps several clusters at once, by name, each as `sweep` does. Returns them in the same order.

    At most ten sweeps run at a time. If a sweep fails, its result has the error, and the other sweeps continue.
    Raises ConfigError before the first request if tables cannot be opened, or an engine cannot be used.
    """
    with interruptible(spark):
        found = _all_swept(spark, configs, progress, say or to_stderr)
    if say is None:
        choices = (one.scan.engine.warning for one in found if one.scan is not None)
        for warning in dict.fromkeys(one for one in choices if one is not None):
            to_stderr(warning)
    return found


def _all_swept(
    spark: SparkSession | None,
    configs: Mapping[str, ScanConfig],
    progress: Progress,
    say: Callable[[str], None],
) -> tuple[ClusterSweep, ...]:
    with described(spark, "sweep_clusters", progress) as named:
        engines = {name: _engine(spark, config) for name, config in configs.items()}
        # Create the tables once: two sweeps would both try to create them.
        for location in {one.location: None for one in configs.values() if one.location is not None}:
            _created(spark, location, named, say)

    def swept(name: str, config: ScanConfig) -> ClusterSweep:
        try:
            # Each sweep opens its own tables: they keep the state from the start of the sweep until it is written.
            tables = None if config.location is None else open_tables(config.location, spark)
            with described(spark, name, quiet) as named:
                result = _swept(spark, config, config.connection(), engines[name], tables, named)
        except NotStored as error:
            return ClusterSweep(name, error.result, error)
        except Exception as error:
            if is_interrupt(error):
                raise
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
        # After Ctrl-C, do not wait for running sweeps.
        pool.shutdown(wait=False, cancel_futures=True)
    return tuple(done[name] for name in configs)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """An engine, and why it was chosen. choice: waits until that is known."""

    engine: Engine
    choice: Callable[[], EngineChoice]


_THREADS = _Chosen(ThreadsEngine(), lambda: EngineChoice(EngineName.THREADS, EngineReason.REQUESTED))
_NO_SESSION = _Chosen(ThreadsEngine(), lambda: WITHOUT_SESSION)


def _engine(spark: SparkSession | None, config: ScanConfig) -> _Chosen:
    if config.engine == EngineName.THREADS:
        return _THREADS
    if spark is None and config.engine == EngineName.AUTO:
        return _NO_SESSION
    if spark is None:
        raise ConfigError("--engine", "spark needs a session; give one, or use threads")
    from txnscan.engine.spark.executors import SparkEngine
    from txnscan.engine.spark.guest import own_session
    from txnscan.engine.spark.nodes import send_packages

    own = own_session(spark)
    send_packages(own)
    executors = SparkEngine(own)
    if config.engine == EngineName.SPARK:
        executors.start_workers(partial(cannot_read, ()))
        return _Chosen(executors, lambda: EngineChoice(EngineName.SPARK, EngineReason.REQUESTED))
    auto = AutoEngine(executors, executors.start_workers(partial(cannot_read, config.brokers)))
    return _Chosen(auto, lambda: auto.choice)


def _created(spark: SparkSession | None, location: Location, progress: Progress, say: Callable[[str], None]) -> Tables:
    tables = open_tables(location, spark)
    progress("open tables", 0, 1)
    tables.create(say)
    return tables


def _swept(
    spark: SparkSession | None,
    config: ScanConfig,
    settings: ConnectionSettings,
    engine: _Chosen,
    tables: Tables | None,
    progress: Progress,
) -> SweepResult:
    """Sweeps, and writes to these tables, which must exist."""
    history, stored = tables if tables is not None else NoHistory(), tables is not None
    found = _scan(config, settings, engine, history, progress, spark=spark, reads_stops=stored)
    result = SweepResult(found, partial(_unstored, spark, found))
    if tables is not None:
        progress("write tables", 0, 1)
        try:
            tables.write(found)
        except (Exception, KeyboardInterrupt) as error:
            if is_interrupt(error):
                raise NotStored("--tables: the sweep was not stored, as it was interrupted", result) from error
            # Each kind of storage fails in its own ways. The result must not be lost.
            said = f"the sweep was not stored, as {config.tables} cannot be written: {tables.why_failed(error)}"
            raise NotStored(f"--tables: {printable(said)}", result) from error
        progress("write tables", 1, 1)
    return result


def _unstored(spark: SparkSession | None, found: Scan, table: Table) -> DataFrame | pa.Table:
    """The rows of a sweep for a table, healthy transactions included, made from its result, not from storage."""
    from txnscan.tables.tables import items_of

    items = found.transactions if table is OPEN_TRANSACTIONS else items_of(found, table)
    if spark is None:
        from txnscan.tables.delta import arrow_rows

        return arrow_rows(table.columns, table.rows(found, items))
    from txnscan.tables.spark import frame

    return frame(spark, found, table, items)


def table(spark: SparkSession, tables: str, name: str) -> DataFrame:
    """A stored table, such as "incidents", as a DataFrame. tables: the location of the tables.

    A session without Delta reads the present files of a table on this machine. Raises ConfigError for an invalid
    location, for an unknown table name, and if the session cannot read the table.
    """
    from txnscan.tables.spark import frame_of_table

    found = next((one for one in TABLES if one.name == name), None)
    if found is None:
        raise ConfigError("table", f"there is none of the name '{printable(name)}'; see docs/tables.md")
    return frame_of_table(spark, Location.of(tables), found)


def create_views(spark: SparkSession, tables: str) -> dict[str, str]:
    """Creates the SQL views for dashboards, and returns the SQL name of each view by its name.

    In a catalog, the views are in the schema of the tables. For tables at a path they are temporary views of this
    session, with names that begin with `txnscan_`. tables: the location of the tables. Raises ConfigError for an
    invalid location, and for tables that this release cannot read by their version.
    """
    from txnscan.tables.spark import SparkDelta
    from txnscan.tables.tables import Tables
    from txnscan.tables.views import VIEWS, view_name, view_statements

    location = Location.of(tables)
    delta = SparkDelta(spark, location)
    for one in TABLES:
        delta.check(one)
    Tables(delta).check_readable()
    for statement in view_statements(location):
        spark.sql(statement)
    return {view.name: view_name(view, location) for view in VIEWS}


def find_hanging(
    config: ScanConfig, *, progress: Progress = quiet, history: History | None = None, reads_stops: bool = False
) -> Scan:
    """A sweep with the same proof, read by threads of this process, without Spark and tables. history: the results of
    earlier sweeps. reads_stops: whether to count, for each broker, the open transactions on partitions that have no
    leader once it stops. Raises the same errors as `sweep`.
    """
    return _scan(config, config.connection(), _NO_SESSION, history or NoHistory(), progress, reads_stops=reads_stops)


def gate(
    config: ScanConfig,
    topics: Sequence[str],
    until: datetime | None = None,
    *,
    wait_s: float = 30.0,
    spark: SparkSession | None = None,
    progress: Progress = quiet,
) -> Gate:
    """Whether read_committed consumers can read everything of these topics up to a time, by default now.

    until: with a time zone. wait_s: how long to read topics again that are not complete. spark: opens the tables of
    `config`, if it has any: they may have earlier reads. Raises ConfigError, also for a topic that does not exist, and
    ClusterUnreachable.
    """
    if until is not None and until.utcoffset() is None:
        raise ConfigError("until", "has no time zone; give one, such as datetime.now(UTC)")
    until_ms = wall_clock_ms() if until is None else round(until.timestamp() * 1_000)
    for name in topics:
        check_topic_name("topics", name)
    tables = None if config.location is None else open_tables(config.location, spark)
    wait_ms = round(wait_s * 1_000)
    return gate_of_cluster(config, tables, topics, until_ms=until_ms, wait_ms=wait_ms, progress=progress)[0]


def gate_of_cluster(
    config: ScanConfig,
    tables: Tables | None,
    topics: Sequence[str],
    *,
    cluster_id: str | None = None,
    until_ms: int,
    wait_ms: int,
    progress: Progress = quiet,
) -> tuple[Gate, str]:
    """The state of these topics, by reads of the cluster and the stored ones; and the principal. Raises ConfigError if
    a topic does not exist, or if the cluster is another one, and ClusterUnreachable.
    """
    from txnscan.sweeps.complete_up_to import STAGE, read_topics
    from txnscan.sweeps.gate import wait_at_gate
    from txnscan.sweeps.names import absent_topic
    from txnscan.sweeps.positions import fall_in_topics
    from txnscan.sweeps.reader import SweepReader
    from txnscan.sweeps.restored import Past

    with opened_cluster(config, waits_ms=wait_ms) as cluster:
        reader = SweepReader(cluster, ThreadsEngine(), config)
        view = cluster.newest(topics)
        if cluster_id not in (None, view.cluster_id):
            raise ConfigError("--cluster-id", f"these brokers are of cluster {printable(view.cluster_id)}")
        shown = {topic.name for topic in view.topics if topic.indexes}
        absent = [absent_topic(cluster, "--topic", name) for name in topics if name not in shown]
        for one in absent:
            if one.unseen is None:
                raise one.error(cluster.format_failure)
        past = Past() if tables is None else tables.past(view.cluster_id)()
        earlier = () if tables is None else tables.topic_reads(view.cluster_id, topics)()
        found = wait_at_gate(
            lambda names: read_topics(cluster, reader, names, wall_clock_ms(), partial(progress, STAGE)),
            view.cluster_id,
            topics,
            until_ms=until_ms,
            # A topic that this principal may not see does not become complete.
            wait_ms=0 if absent else wait_ms,
            earlier=earlier,
            now_ms=wall_clock_ms,
            sleep=time.sleep,
            fall_in=partial(fall_in_topics, cluster, past, earlier),
        )
        return found, cluster.principal


def explain(
    config: ScanConfig | None,
    *,
    group: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
    transactional_id: str | None = None,
    producer_id: int | None = None,
    error: str | None = None,
    spark_checkpoint: str | None = None,
    progress: Progress = quiet,
) -> Explanation:
    """The cause of a symptom, as the command `explain` prints it. Only reads. Give one symptom, as the command takes
    them. config: may be None for an error, which is then answered by its text alone.

    Raises ConfigError, also for a name that does not exist, and ClusterUnreachable.
    """
    from txnscan.explain.symptom import symptom

    asked = symptom(
        group=group,
        topic=topic,
        partition=partition,
        transactional_id=transactional_id,
        producer_id=producer_id,
        error=error,
        spark_checkpoint=spark_checkpoint,
    )
    return explain_symptom(config, asked, progress=progress)


def check(config: ScanConfig, spark: SparkSession | None = None, *, applies: bool = False) -> Checked:
    """Whether a sweep with these settings could observe everything, as the command `check` prints it. Only reads.
    spark: the session of the sweep. applies: whether to check, too, what `apply` with `execute` needs.

    Raises ConfigError, and NotObserved if it is not observed whether the scope is empty.
    """
    return check_sweep(config, None if spark is None else lambda: spark, applies=applies)


def explain_symptom(config: ScanConfig | None, symptom: Symptom, *, progress: Progress = quiet) -> Explanation:
    """The cause of a symptom. Only reads. config: with None, an error is answered by its text alone, and any other
    symptom raises ConfigError. Raises the same errors as `sweep`.
    """
    from txnscan.explain.ask import ask
    from txnscan.explain.causes import cause_of, cause_unasked
    from txnscan.explain.cluster_reads import Asking
    from txnscan.explain.facts import Facts

    if symptom.needs_no_broker and (config is None or not symptom.brokers_know_more):
        facts = Facts(symptom, wall_clock_ms(), 0)
        return cause_of(facts if config is None else replace(facts, connection=config.connection_options()))
    if config is None and symptom.error is not None:
        return cause_unasked(symptom)
    if config is None:
        raise ConfigError("--bootstrap-server", "is missing: this symptom needs the cluster")
    with opened_cluster(config) as cluster:
        asking = Asking(cluster, config, wall_clock_ms, time.sleep, lambda: new_sweep_id(wall_clock_ms), progress)
        return cause_of(ask(asking, symptom))


def check_sweep(
    config: ScanConfig,
    starts: Callable[[], SparkSession] | None,
    *,
    starts_jvm: bool = False,
    applies: bool = False,
) -> Checked:
    """Whether a sweep with these settings could observe everything. Only reads. starts: gives the session of the sweep,
    None for a sweep without. starts_jvm: whether it starts Java on this machine. applies: whether to check, too, what
    `apply --execute` needs. Raises ConfigError.
    """
    from txnscan.sweeps.machine import Part
    from txnscan.sweeps.preflight import Machine, check
    from txnscan.tables.preflight import check_tables

    session = cache(starts) if starts is not None else lambda: None

    def executors() -> str | None:
        return _engine(session(), replace(config, engine=EngineName.AUTO)).choice().failure

    parts = frozenset({Part.SESSION, *([Part.JVM] if starts_jvm else [])} if starts is not None else ())
    return check(
        config,
        now_ms=wall_clock_ms,
        sweep_id=new_sweep_id(wall_clock_ms),
        check_tables=lambda location: check_tables(location, lambda: open_tables(location, session()), applies=applies),
        machine=Machine(parts, executors if starts is not None else None, lambda: _opens_checkpoints(session())),
        applies=applies,
    )


def check_before_stop(config: ScanConfig, brokers: Collection[int], *, progress: Progress = quiet) -> BeforeStop:
    """Whether these brokers may stop together without harm to transactions. Only reads. Raises ConfigError for a broker
    that does not exist, and ClusterUnreachable.
    """
    from txnscan.sweeps.before_stop import STAGE, read_before_stop

    with opened_cluster(config) as cluster:
        return read_before_stop(cluster, ThreadsEngine(), config, brokers, wall_clock_ms, partial(progress, STAGE))


def sweep_once(config: ScanConfig, settings: ConnectionSettings, sweep_id: str) -> Scan:
    """A sweep with this id in threads, with settings that were read elsewhere. Raises the same errors as `sweep`."""
    return _scan(config, settings, _NO_SESSION, NoHistory(), quiet, sweep_id)


def _scan(
    config: ScanConfig,
    settings: ConnectionSettings,
    chosen: _Chosen,
    history: History,
    progress: Progress,
    sweep_id: str | None = None,
    *,
    spark: SparkSession | None = None,
    reads_stops: bool = False,
) -> Scan:
    sweep_id = new_sweep_id(wall_clock_ms) if sweep_id is None else sweep_id
    stages = Stopwatch(progress)
    clients = clients_of(config, settings, sweep_id, sweep_limit_ms())
    with clients.driven(), Cluster(clients, deadline=clients.client().deadline) as cluster:
        found = scan(
            Run(
                config,
                cluster,
                chosen.engine,
                sweep_id=sweep_id,
                now_ms=wall_clock_ms,
                history=history,
                progress=stages,
                reads_impact=True,
                reads_stops=reads_stops,
                open_checkpoint=_opens_checkpoints(spark),
                boot=boot_time,
            )
        )
    choice = chosen.choice()
    warnings = found.warnings if choice.warning is None else (*found.warnings, choice.warning)
    return replace(found, boot=boot_time(), stages=stages.times(), engine=choice, warnings=warnings)


def _opens_checkpoints(spark: SparkSession | None) -> OpenFiles:
    """Opens the checkpoints of streaming queries: local ones directly, others through the session if it has a JVM."""
    if spark is None:
        return open_files
    from txnscan.engine.spark.files import hadoop_files

    remote = hadoop_files(spark, FILE_BYTES_MAX) or open_files
    return lambda path: (open_files if is_local(scheme_of(path)) else remote)(path)


def new_sweep_id(now_ms: Callable[[], int]) -> str:
    """A UUID that sorts by time (RFC 9562, version 7)."""
    random_bits = uuid.uuid4().int & ((1 << 76) - 1)
    random_a, random_b = random_bits >> 64, random_bits & ((1 << 62) - 1)
    return str(uuid.UUID(int=now_ms() << 80 | 0x7 << 76 | random_a << 64 | 0b10 << 62 | random_b))
