"""`capacity`: predict what a sweep of a cluster takes."""

from __future__ import annotations

from typing import Annotated

import typer

from txnscan.cli.app import app
from txnscan.cli.command import OneCommand
from txnscan.cli.errors import errors_in_one_line
from txnscan.report.help import examples
from txnscan.report.output import write_line


@app.command(cls=OneCommand, epilog=examples("txnscan capacity --brokers 200 --partitions 1000000 --latency-ms 5"))
def capacity(
    brokers: Annotated[int, typer.Option("--brokers", metavar="NUMBER", min=1, help="Brokers of the cluster.")],
    partitions: Annotated[int, typer.Option("--partitions", metavar="NUMBER", min=1, help="Partitions of all topics.")],
    producers: Annotated[
        int, typer.Option("--producers", metavar="NUMBER", min=0, help="Producers on each partition.")
    ] = 10,
    open_partitions: Annotated[
        int, typer.Option("--open", metavar="NUMBER", min=0, help="Partitions with hanging transactions.")
    ] = 10,
    latency_ms: Annotated[
        float, typer.Option("--latency-ms", metavar="MILLISECONDS", min=0, help="From a request to its answer.")
    ] = 1.0,
) -> None:
    """Predict what a sweep takes: time, requests, bytes and memory. Asks no broker."""
    with errors_in_one_line():
        from txnscan.sweeps.capacity import predicted_lines

        for line in predicted_lines(brokers, partitions, producers, open_partitions, latency_ms):
            write_line(line)
