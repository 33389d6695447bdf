"""`sweep`, `find-hanging`, `check`: commands that ask the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from txnscan.cli.app import (
    advise,
    app,
    check_metrics_file,
    print_scan,
    progress_bar,
    spark_for,
    started_spark,
    warn,
    write_metrics,
)
from txnscan.cli.errors import complain, errors_in_one_line, fail_on_findings, note
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
    Timeout,
    TopicPattern,
)
from txnscan.config import ScanConfig
from txnscan.errors import ExitStatus
from txnscan.report.help import OneCommand, examples

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
            "--tables",
            metavar="LOCATION",
            help="Location of the Delta tables: a path (with a slash), or catalog.schema.",
        ),
    ] = None,
    command_config: CommandConfig = None,
    topic: TopicPattern = None,
    late_after: LateAfter = None,
    timeout: Timeout = None,
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
            in_flight_max=in_flight,
            store_all=store_all,
            owner_pattern=tuple(owner_pattern or ()),
            timeout=timeout,
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
