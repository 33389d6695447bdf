"""`demo`: real brokers with real hanging transactions."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from txnscan.cli.app import app, progress_bar
from txnscan.cli.command import OneCommand
from txnscan.cli.errors import errors_in_one_line
from txnscan.config import Location
from txnscan.report.help import examples
from txnscan.report.output import stdout_console


class KafkaVersion(StrEnum):
    """Of the demo's brokers. Brokers before 4.3 do not tear a commit, which the demo shows."""

    V4_3 = "4.3.1"
    V4_4 = "4.4.0"


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan demo",
        "txnscan demo --hold --tables /tmp/tables",
        "txnscan demo --kafka-version 4.4.0",
    ),
)
def demo(
    tables: Annotated[
        str, typer.Option("--tables", metavar="LOCATION", help="Location for the Delta tables.")
    ] = "txnscan-demo/tables",
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="PORT",
            min=1024,
            max=65_000,
            help="First port of the brokers. Default: free ones; with --hold from 9092 on, if those are free.",
        ),
    ] = None,
    kafka_version: Annotated[
        KafkaVersion, typer.Option("--kafka-version", help="Version of the brokers.")
    ] = KafkaVersion.V4_3,
    hold: Annotated[bool, typer.Option("--hold", help="Apply nothing, and keep the brokers until Ctrl-C.")] = False,
) -> None:
    """Start three real brokers, make transactions hang on them, sweep, notify of them and resolve them."""
    with errors_in_one_line():
        Location.of(tables)
        from txnscan.demo.story import run_demo

        run_demo(
            tables,
            kafka_version=kafka_version.value,
            base_port=port,
            hold=hold,
            console=stdout_console(),
            progress=progress_bar,
        )
