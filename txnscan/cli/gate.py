"""`gate`: whether topics are complete up to a time, for schedulers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from txnscan.cli.app import app, opened_tables, progress_bar, warn, write_json
from txnscan.cli.command import OneCommand
from txnscan.cli.errors import complain_of, errors_in_one_line
from txnscan.cli.given import Given, takes
from txnscan.cli.options import QUESTION_TIMEOUT, ClusterId, Format, OutputFormat, SparkMaster
from txnscan.config import (
    ConfigError,
    check_topic_name,
    parse_duration_ms,
    parse_time_ms,
    printable,
)
from txnscan.config.settings import BOOTSTRAP_SERVER, COMMAND_CONFIG, TABLES
from txnscan.errors import ExitStatus
from txnscan.kafka.security.acls import UNKNOWN_PRINCIPAL
from txnscan.report.help import examples

if TYPE_CHECKING:
    from txnscan.sweeps.gate import Gate
    from txnscan.tables.tables import Tables


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan gate --bootstrap-server localhost:9092 --topic orders",
        "txnscan gate --bootstrap-server localhost:9092 --topic orders --topic refunds --until 2026-01-31T06:00:00Z",
        "txnscan gate --tables /data/txnscan --topic orders --until 2026-01-31T06:00:00Z --format json",
    ),
)
@takes(
    replace(BOOTSTRAP_SERVER, help="Brokers to start from. Reads the cluster."),
    COMMAND_CONFIG,
    replace(TABLES, help="Tables with reads of sweep --complete-up-to. Alone, they are the only source."),
    QUESTION_TIMEOUT,
)
def gate(
    topic: Annotated[
        list[str], typer.Option("--topic", metavar="NAME", help="This topic. May be repeated.", show_default=False)
    ],
    given: Given,
    cluster_id: ClusterId = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="TIME", help="ISO 8601 with an offset, such as 2026-01-31T06:00:00Z. Default: now."
        ),
    ] = None,
    wait: Annotated[
        str,
        typer.Option(
            "--wait", metavar="DURATION", help="With --bootstrap-server: read again for this long; 0s reads once."
        ),
    ] = "30s",
    master: SparkMaster = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Check that read_committed consumers can read everything of topics up to a time. Read-only.

    A topic is complete up to a time if every record that was acknowledged (acks=all) before it is readable or aborted.
    Open transactions since then do not matter.

    Exit status: 0 complete, 3 not complete, 4 a partition could not be observed, 2 if there is no such topic, 1 when
    no broker answers.
    """
    with errors_in_one_line():
        tables, asks = given.text(TABLES), given.text(BOOTSTRAP_SERVER) is not None
        if not asks and (tables is None or until is None):
            raise ConfigError("--bootstrap-server", "give brokers, or --tables with --until")
        for name in topic:
            check_topic_name("--topic", name)
        from txnscan.api import gate_of_cluster
        from txnscan.kafka.clock import wall_clock_ms
        from txnscan.report.gate import gate_object, print_gate
        from txnscan.waiting.complete_up_to import GateState

        until_ms = wall_clock_ms() if until is None else parse_time_ms(until, "--until")
        wait_ms = 0 if wait == "0s" else parse_duration_ms(wait, "--wait")
        location = given.location()
        config = None
        if asks:
            config = given.config(tables=None, engine="threads")
            warn(config)
        with progress_bar() as progress:
            stored = None if location is None else opened_tables(location, master, progress)
            if config is not None:
                found, principal = gate_of_cluster(
                    config, stored, topic, cluster_id=cluster_id, until_ms=until_ms, wait_ms=wait_ms, progress=progress
                )
            elif stored is not None:
                progress("read tables", 0, 1)
                found, principal = _of_tables(stored, topic, cluster_id, until_ms), UNKNOWN_PRINCIPAL
        shown = gate_object(found, principal)
        if format is Format.JSON:
            write_json(shown)
        else:
            if config is None:
                print_gate(shown)
            else:
                print_gate(shown, config.connection_options())
            complain_of(shown["errors"])
    if found.state is GateState.NOT_OBSERVED:
        raise typer.Exit(ExitStatus.INCOMPLETE)
    if found.state is not GateState.COMPLETE:
        raise typer.Exit(ExitStatus.BLOCKED)


def _of_tables(tables: Tables, topics: list[str], cluster_id: str | None, until_ms: int) -> Gate:
    """By the stored reads alone. Raises ConfigError if they are of several clusters."""
    from txnscan.sweeps.gate import stored_gate

    reads = tables.last_topic_reads(topics, cluster_id)
    clusters = sorted({one for one, _ in reads})
    if len(clusters) > 1:
        names = ", ".join(map(printable, clusters))
        raise ConfigError("--cluster-id", f"the tables have these topics of several clusters: {names}")
    return stored_gate(reads, topics, until_ms)
