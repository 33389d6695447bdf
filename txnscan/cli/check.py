"""`check`: what a sweep needs, looked at before it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated

import typer

from txnscan.cli.app import app, progress_bar, started_spark, wants_session, warn, write_json
from txnscan.cli.command import OneCommand
from txnscan.cli.errors import complain_of, errors_in_one_line
from txnscan.cli.given import Given, takes
from txnscan.cli.options import QUESTION_TIMEOUT, SERVER, Engine, Format, OutputFormat, SparkMaster
from txnscan.config import ConfigError, EngineName, ScanConfig, check_number, parse_optional_duration_ms
from txnscan.config.settings import COMMAND_CONFIG, COMPLETE_UP_TO, SPARK_CHECKPOINT, TABLES, TOPIC
from txnscan.errors import ExitStatus
from txnscan.kafka.units import INT_MAX
from txnscan.report.help import examples
from txnscan.report.output import stdout_console


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan check --bootstrap-server localhost:9092",
        "txnscan check --bootstrap-server localhost:9092 --command-config client.properties --tables /data/txnscan",
        "txnscan check --bootstrap-server localhost:9092 --before-stop 3 --wait 10m",
        "txnscan check --bootstrap-server localhost:9092 --command-config admin.properties --apply",
    ),
)
@takes(
    SERVER,
    COMMAND_CONFIG,
    replace(TABLES, help="Check also the tables there, as the sweep would use them."),
    TOPIC,
    COMPLETE_UP_TO,
    SPARK_CHECKPOINT,
    QUESTION_TIMEOUT,
)
def check(
    given: Given,
    engine: Engine = EngineName.AUTO,
    master: SparkMaster = None,
    applies: Annotated[
        bool, typer.Option("--apply", help="Check also what apply --execute needs: the right to send markers.")
    ] = False,
    before_stop: Annotated[
        list[int] | None,
        typer.Option(
            "--before-stop",
            metavar="BROKER",
            help="Check instead if this broker may stop without harm to transactions. May be repeated, for brokers "
            "that stop together.",
        ),
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option(
            "--wait", metavar="DURATION", help="With --before-stop: ask again until it is safe, for this long."
        ),
    ] = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Check what a sweep needs: connection, security, ACLs, APIs, coordinators, clock, Java, tables. Changes no data.

    Give the options of the sweep: the check asks for what a sweep with these options needs, and lists all missing ACLs
    at once, with the commands that grant them. With --before-stop: check if brokers may stop.

    Exit status: 0 if a sweep can observe everything, 4 if only a part, 1 if it is not possible. With --before-stop: 0
    if it is safe, 3 if not, 4 if that could not be observed.
    """
    with errors_in_one_line():
        tables = given.text(TABLES)
        if before_stop and (tables is not None or master is not None):
            raise ConfigError("--before-stop", "needs no tables and no Spark; leave out --tables and --master")
        if wait is not None and not before_stop:
            raise ConfigError("--wait", "is for --before-stop")
        wait_ms = parse_optional_duration_ms(wait, "--wait")
        config = given.config(engine=engine.value)
        warn(config)
        for broker_id in before_stop or ():
            check_number("--before-stop", broker_id, INT_MAX)
        if before_stop:
            _before_stop(config, before_stop, wait_ms or 0, format)
            return
        from txnscan.api import check_sweep
        from txnscan.engine.spark.session import starts_jvm
        from txnscan.report.check import check_object, print_check
        from txnscan.sweeps.preflight import Level

        with progress_bar() as progress:
            progress("check", 0, 1)
            checked = check_sweep(
                config,
                (lambda: started_spark(master, progress)) if wants_session(engine, config.location, master) else None,
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


def _before_stop(config: ScanConfig, brokers: list[int], wait_ms: int, format: Format) -> None:
    """Whether these brokers may stop."""
    from txnscan.api import check_before_stop
    from txnscan.kafka.clock import wall_clock_ms
    from txnscan.report.before_stop import before_stop_object, print_before_stop, waits_for
    from txnscan.sweeps.before_stop import BeforeStop, wait_until_safe
    from txnscan.waiting.before_stop import StopVerdict

    said: list[str] = []
    with progress_bar() as progress:

        def say(found: BeforeStop) -> None:
            # Each reason to wait is said once.
            if (sentence := waits_for(before_stop_object(found, principal))) not in said[-1:]:
                said.append(sentence)
                progress.say(sentence)

        principal = config.connection().principal
        found = wait_until_safe(
            lambda: check_before_stop(config, brokers, progress=progress),
            wait_ms=wait_ms,
            now_ms=wall_clock_ms,
            sleep=time.sleep,
            say=say,
        )
    shown = before_stop_object(found, principal)
    if format is Format.JSON:
        write_json(shown)
    else:
        print_before_stop(stdout_console(), shown)
        complain_of(shown["errors"])
    statuses = {StopVerdict.UNSAFE: ExitStatus.UNSAFE, StopVerdict.NOT_OBSERVED: ExitStatus.INCOMPLETE}
    if found.verdict in statuses:
        raise typer.Exit(statuses[found.verdict])
