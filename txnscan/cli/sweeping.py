"""`sweep`, `find-hanging`, `check`: commands that ask the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from txnscan.cli.base import (
    advise,
    app,
    check_metrics_file,
    print_scan,
    progress_bar,
    spark_for,
    started_spark,
    warn,
    write_json,
    write_metrics,
)
from txnscan.cli.ending import complain, errors_in_one_line, fail_on_findings, note
from txnscan.cli.options import (
    BootstrapServer,
    CommandConfig,
    EngineName,
    EveryTransaction,
    FailOn,
    FailOnOption,
    Format,
    LateAfter,
    MetricsFile,
    OutputFormat,
    OwnerPattern,
    SparkMaster,
    TopicPattern,
)
from txnscan.config import ConfigError, ScanConfig
from txnscan.errors import ExitStatus
from txnscan.report.help import OneCommand, examples
from txnscan.report.output import stdout_console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Kafka's own tool takes an int.
_MINUTES_MAX = 2**31 - 1


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan sweep --bootstrap-server localhost:9092 --tables /data/txnscan --fail-on hanging",
        "txnscan sweep --bootstrap-server localhost:9092 --command-config client.properties --topic 'orders-.*'",
        "MASTER=spark://host:7077 txnscan sweep --bootstrap-server localhost:9092 --tables s3a://bucket/txnscan",
    ),
)
def sweep(
    bootstrap_server: BootstrapServer,
    tables: Annotated[
        str | None,
        typer.Option(
            "--tables", metavar="LOCATION", help="Where the Delta tables are: a path (with a slash), or catalog.schema."
        ),
    ] = None,
    command_config: CommandConfig = None,
    topic: TopicPattern = None,
    late_after: LateAfter = None,
    engine: Annotated[
        EngineName,
        typer.Option(
            "--engine", metavar="spark|threads", help="Read on Spark's executors, or in threads of the driver."
        ),
    ] = EngineName.SPARK,
    batch_size: Annotated[int, typer.Option("--batch-size", metavar="NUMBER", help="Partitions in one request.")] = 500,
    in_flight: Annotated[
        int, typer.Option("--in-flight", metavar="NUMBER", help="Requests in flight at one broker.")
    ] = 2,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="MASTER", help="Spark master; MASTER in the environment, else local[*]."),
    ] = None,
    format: OutputFormat = Format.TABLE,
    every: EveryTransaction = False,
    store_all: Annotated[
        bool, typer.Option("--store-all", help="Store a row for each healthy transaction too, not counts alone.")
    ] = False,
    owner_pattern: OwnerPattern = None,
    metrics_file: MetricsFile = None,
    fail_on: FailOnOption = None,
) -> None:
    """Sweep the whole cluster through Spark, and keep the result in Delta tables.

    Exit status: 0 done, 1 failed, and the --fail-on statuses. Where the tables cannot be written, what was found is
    printed all the same, a line on stderr says why, and the status is 1, or 3 by --fail-on hanging.
    """
    with errors_in_one_line():
        config = ScanConfig(
            bootstrap_servers=bootstrap_server,
            command_config=command_config,
            tables=tables,
            topic=tuple(topic or ()),
            late_after=late_after,
            engine=engine.value,
            batch_size=batch_size,
            lanes_per_leader=in_flight,
            store_all=store_all,
            owner_pattern=tuple(owner_pattern or ()),
        )
        warn(config)
        check_metrics_file(metrics_file)
        from txnscan.api import NotStored
        from txnscan.api import sweep as run_sweep

        not_stored: str | None = None
        with progress_bar() as progress:
            spark: SparkSession | None = None
            if engine is EngineName.SPARK:
                spark = started_spark(master, progress)
            elif tables is not None:
                spark = spark_for(tables, master, progress)
            try:
                found = run_sweep(spark, config, progress=progress, say=note).scan
            except NotStored as error:
                found, not_stored = error.result.scan, str(error)
        try:
            write_metrics(metrics_file, config, found)
            print_scan(found, format, every)
        finally:
            if not_stored is not None:
                complain(f"txnscan: {not_stored}")
        advise(config.engine, found)
    if not_stored is not None:
        raise typer.Exit(
            ExitStatus.HANGING if FailOn.HANGING in (fail_on or ()) and found.candidates else ExitStatus.FAILED
        )
    fail_on_findings(len(found.candidates), found.complete, fail_on)


@app.command(
    "find-hanging",
    cls=OneCommand,
    epilog=examples(
        "txnscan find-hanging --bootstrap-server localhost:9092",
        "txnscan find-hanging --bootstrap-server localhost:9092 --topic orders --partition 3 --all",
        "txnscan find-hanging --bootstrap-server localhost:9092 --format json --fail-on hanging --fail-on incomplete",
    ),
)
def find_hanging(
    bootstrap_server: BootstrapServer,
    command_config: CommandConfig = None,
    broker_id: Annotated[
        list[int] | None,
        typer.Option("--broker-id", metavar="ID", help="Only partitions that this broker leads. May be repeated."),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME", help="Only this topic. May be repeated.")
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", metavar="NUMBER", help="Only this partition of --topic. May be repeated."),
    ] = None,
    max_transaction_timeout: Annotated[
        int | None,
        typer.Option(
            "--max-transaction-timeout",
            metavar="MINUTES",
            help="Age in minutes from which a transaction is late, as in Kafka's tool.",
        ),
    ] = None,
    late_after: LateAfter = None,
    format: OutputFormat = Format.TABLE,
    every: EveryTransaction = False,
    owner_pattern: OwnerPattern = None,
    metrics_file: MetricsFile = None,
    fail_on: FailOnOption = None,
) -> None:
    """Find hanging transactions with the same proof, without Spark, Java or tables."""
    with errors_in_one_line():
        if max_transaction_timeout is not None:
            if late_after is not None:
                raise ConfigError("--max-transaction-timeout", "is the same as --late-after; give one of them")
            if not 1 <= max_transaction_timeout <= _MINUTES_MAX:
                raise ConfigError(
                    "--max-transaction-timeout",
                    f"{max_transaction_timeout} is out of range; use 1 to {_MINUTES_MAX} minutes",
                )
            late_after = f"{max_transaction_timeout}m"
        config = ScanConfig(
            bootstrap_servers=bootstrap_server,
            command_config=command_config,
            late_after=late_after,
            engine="threads",
            broker_ids=tuple(broker_id or ()),
            topic_names=tuple(topic or ()),
            partitions=tuple(partition or ()),
            owner_pattern=tuple(owner_pattern or ()),
        )
        warn(config)
        check_metrics_file(metrics_file)
        from txnscan.api import find_hanging as run_find_hanging

        with progress_bar() as progress:
            found = run_find_hanging(config, progress=progress)
        write_metrics(metrics_file, config, found)
        print_scan(found, format, every)
    fail_on_findings(len(found.candidates), found.complete, fail_on)


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan check --bootstrap-server localhost:9092",
        "txnscan check --bootstrap-server localhost:9092 --command-config client.properties --tables /data/txnscan",
    ),
)
def check(
    bootstrap_server: BootstrapServer,
    command_config: CommandConfig = None,
    tables: Annotated[
        str | None,
        typer.Option(
            "--tables", metavar="LOCATION", help="Check also that tables can be kept there, and that Spark runs."
        ),
    ] = None,
    master: SparkMaster = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Check what a sweep needs: connection, security, ACLs, APIs, coordinators, clock, Java, tables. Changes nothing.

    Exit status: 0 when a sweep can observe everything, 4 when not everything, 1 when it is not possible.
    """
    with errors_in_one_line():
        config = ScanConfig(bootstrap_server, command_config=command_config, tables=tables, engine="threads")
        warn(config)
        from txnscan.api import new_sweep_id
        from txnscan.engine.clock import wall_clock_ms
        from txnscan.report.check import check_object, print_check
        from txnscan.sweeps.preflight import Level
        from txnscan.sweeps.preflight import check as run_check
        from txnscan.tables.preflight import check_tables

        with progress_bar() as progress:
            progress("check", 0, 1)

            checked = run_check(
                config,
                now_ms=wall_clock_ms,
                sweep_id=new_sweep_id(wall_clock_ms),
                check_tables=lambda location: check_tables(location, lambda: started_spark(master, progress)),
            )
        if format is Format.JSON:
            write_json(check_object(checked))
        else:
            print_check(stdout_console(), checked)
    statuses = {Level.FAILED: ExitStatus.FAILED, Level.INCOMPLETE: ExitStatus.INCOMPLETE}
    if checked.level in statuses:
        raise typer.Exit(statuses[checked.level])
