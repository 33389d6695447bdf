"""`check`: what a sweep needs, looked at before it."""

from __future__ import annotations

from typing import Annotated

import typer

from txnscan.cli.app import app, progress_bar, started_spark, wants_session, warn, write_json
from txnscan.cli.errors import errors_in_one_line
from txnscan.cli.options import (
    BootstrapServer,
    CommandConfig,
    CompleteUpTo,
    Engine,
    Format,
    OutputFormat,
    QuestionTimeout,
    SparkCheckpoint,
    SparkMaster,
    TopicPattern,
)
from txnscan.config import EngineName, ScanConfig, parse_optional_duration_ms
from txnscan.errors import ExitStatus
from txnscan.report.help import OneCommand, examples
from txnscan.report.output import stdout_console


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan check --bootstrap-server localhost:9092",
        "txnscan check --bootstrap-server localhost:9092 --command-config client.properties --tables /data/txnscan",
        "txnscan check --bootstrap-server localhost:9092 --command-config admin.properties --apply",
    ),
)
def check(
    bootstrap_server: BootstrapServer,
    command_config: CommandConfig = None,
    tables: Annotated[
        str | None,
        typer.Option("--tables", metavar="LOCATION", help="Check also the tables there, as the sweep would use them."),
    ] = None,
    topic: TopicPattern = None,
    complete_up_to: CompleteUpTo = None,
    spark_checkpoint: SparkCheckpoint = None,
    engine: Engine = EngineName.AUTO,
    master: SparkMaster = None,
    applies: Annotated[
        bool, typer.Option("--apply", help="Check also what apply --execute needs: the right to send markers.")
    ] = False,
    timeout: QuestionTimeout = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Check what a sweep needs: connection, security, ACLs, APIs, coordinators, clock, Java, tables. Changes no data.

    Give the options of the sweep: the check asks for what a sweep with these options needs, and lists all missing ACLs
    at once, with the commands that grant them.

    Exit status: 0 if a sweep can observe everything, 4 if only a part, 1 if it is not possible.
    """
    with errors_in_one_line():
        config = ScanConfig(
            bootstrap_server,
            command_config=command_config,
            tables=tables,
            topic=tuple(topic or ()),
            complete_up_to=tuple(complete_up_to or ()),
            spark_checkpoint=tuple(spark_checkpoint or ()),
            engine=engine.value,
            timeout_ms=parse_optional_duration_ms(timeout, "--timeout"),
        )
        warn(config)
        from txnscan.api import check_sweep
        from txnscan.engine.spark.session import starts_jvm
        from txnscan.report.check import check_object, print_check
        from txnscan.sweeps.preflight import Level

        with progress_bar() as progress:
            progress("check", 0, 1)
            checked = check_sweep(
                config,
                (lambda: started_spark(master, progress)) if wants_session(engine, tables, master) else None,
                starts_jvm=starts_jvm(master),
                applies=applies,
            )
        if format is Format.JSON:
            write_json(check_object(checked))
        else:
            print_check(stdout_console(), checked)
    statuses = {Level.FAILED: ExitStatus.FAILED, Level.INCOMPLETE: ExitStatus.INCOMPLETE}
    if checked.level in statuses:
        raise typer.Exit(statuses[checked.level])
