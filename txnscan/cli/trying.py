"""`simulate`, `demo`: commands to try it with."""

from __future__ import annotations

from typing import Annotated

import typer

from txnscan.cli.base import app, progress_bar
from txnscan.cli.ending import errors_in_one_line
from txnscan.config import parse_location
from txnscan.report.help import OneCommand, examples
from txnscan.report.output import stdout_console, write_line


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan simulate --list",
        "txnscan simulate --story NAME --without NAME",
        "txnscan simulate --cluster 50x100000 --latency-ms 5",
    ),
)
def simulate(
    story: Annotated[
        str | None,
        typer.Option("--story", metavar="NAME", help="A history in which a sweep without one obligation is wrong."),
    ] = None,
    world: Annotated[
        str | None, typer.Option("--world", metavar="NAME", help="A random history of this world, by its --seed.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="NUMBER", help="The same seed gives the same history.")] = 0,
    without: Annotated[
        str | None, typer.Option("--without", metavar="NAME", help="Sweep without this obligation, to see it go wrong.")
    ] = None,
    list_names: Annotated[bool, typer.Option("--list", help="List the stories, worlds and obligations.")] = False,
    transitions: Annotated[
        bool, typer.Option("--transitions", help="Show all that can happen, and the behaviour of Kafka that it models.")
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="BROKERSxPARTITIONS", help="Predict what a sweep of such a cluster takes."),
    ] = None,
    producers: Annotated[
        int, typer.Option("--producers", metavar="NUMBER", help="With --cluster: producers on each partition.")
    ] = 10,
    open_partitions: Annotated[
        int, typer.Option("--open", metavar="NUMBER", help="With --cluster: partitions with hanging transactions.")
    ] = 10,
    latency_ms: Annotated[
        float,
        typer.Option("--latency-ms", metavar="MILLISECONDS", help="With --cluster: from a request to its answer."),
    ] = 1.0,
) -> None:
    """Show a history of a simulated cluster step by step: what happens, what a sweep says, and the truth."""
    with errors_in_one_line():
        from tests.sim.show import lines_of, listed, named_history, named_protocol, table_lines
        from txnscan.sweeps.capacity import predicted_lines

        if cluster is not None:
            lines = predicted_lines(cluster, producers, open_partitions, latency_ms)
        elif list_names:
            lines = listed()
        elif transitions:
            lines = table_lines()
        else:
            lines = lines_of(named_history(story, world, seed), named_protocol(without))
        for line in lines:
            write_line(line)


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan demo",
        "txnscan demo --hold --tables /tmp/tables",
    ),
)
def demo(
    tables: Annotated[
        str, typer.Option("--tables", metavar="LOCATION", help="Where to leave the Delta tables.")
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
