"""`demo`: real brokers with real hanging transactions."""

from __future__ import annotations

from typing import Annotated

import typer

from txnscan.cli.app import app, progress_bar
from txnscan.cli.errors import errors_in_one_line
from txnscan.config import parse_location
from txnscan.report.help import OneCommand, examples
from txnscan.report.output import stdout_console


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan demo",
        "txnscan demo --hold --tables /tmp/tables",
    ),
)
def demo(
    tables: Annotated[
        str, typer.Option("--tables", metavar="LOCATION", help="Location for the Delta tables.")
    ] = "txnscan-demo/tables",
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="PORT", min=1024, max=65_000, help="First port of the brokers. Default: free ones."
        ),
    ] = None,
    hold: Annotated[bool, typer.Option("--hold", help="Apply nothing, and keep the brokers until Ctrl-C.")] = False,
) -> None:
    """Start three real brokers, make transactions hang on them, sweep, notify of them and resolve them."""
    with errors_in_one_line():
        parse_location(tables)
        from txnscan.demo.story import run_demo

        run_demo(tables, base_port=port, hold=hold, console=stdout_console(), progress=progress_bar)
