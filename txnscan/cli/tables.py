"""`show`, `history`, `report`, `maintain`: commands about the tables."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from txnscan.cli.app import app, need_report, opened_tables, print_object, progress_bar, started_spark, write_json
from txnscan.cli.command import OneCommand
from txnscan.cli.errors import complain, errors_in_one_line, fail_on_findings, note
from txnscan.cli.given import takes
from txnscan.cli.options import (
    ClusterId,
    FailOnOption,
    Format,
    MaxAge,
    OutputFormat,
    OutputOptions,
    SparkMaster,
    SweepId,
    TablesLocation,
)
from txnscan.config import ConfigError, Location, parse_duration_ms, printable
from txnscan.errors import ExitStatus
from txnscan.report.files import check_writable, write_whole
from txnscan.report.findings import Findings
from txnscan.report.help import examples
from txnscan.report.output import stdout_console, write_line

_HOUR_MS = 3_600_000


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan show --tables /data/txnscan",
        "txnscan show --tables /data/txnscan --all --format json",
    ),
)
@takes()
def show(
    tables: TablesLocation,
    *,
    sweep_id: SweepId = None,
    cluster_id: ClusterId = None,
    max_age: MaxAge = None,
    master: SparkMaster = None,
    output: OutputOptions,
    fail_on: FailOnOption = None,
) -> None:
    """Show the last sweep of the whole cluster from the tables.

    A sweep of some topics alone is shown with --sweep-id, or where there is no other.
    """
    with errors_in_one_line():
        location = Location.of(tables)
        max_age_ms = None if max_age is None else parse_duration_ms(max_age, "--max-age")
        from txnscan.kafka.clock import wall_clock_ms
        from txnscan.report.json import stored_object
        from txnscan.report.sweep import print_stored
        from txnscan.tables.selection import find_sweep, stale

        with progress_bar() as progress:
            from txnscan.tables.schema import OPEN_TRANSACTIONS, SCAN_ERRORS

            stored = opened_tables(location, master, progress)
            progress("read tables", 0, 1)
            chosen = find_sweep(stored, cluster_id, sweep_id)
            last = chosen.sweep
            shown = [column.name for column in OPEN_TRANSACTIONS.columns if column.name != "evidence"]
            transactions = stored.read(OPEN_TRANSACTIONS, last["sweep_id"], shown)
            found = stored_object(
                last,
                sorted(transactions, key=lambda row: (row["topic"], row["partition"], row["start_offset"])),
                stored.read(SCAN_ERRORS, last["sweep_id"]),
            )
        for sentence in chosen.notes:
            note(sentence)
        if output.format is Format.TABLE:
            print_stored(stdout_console(), found["sweep"], wall_clock_ms())
        print_object(found, output)
        too_old = stale(last, max_age_ms, wall_clock_ms())
        if too_old is not None:
            complain(f"txnscan: {too_old}")
    fail_on_findings(Findings.of_object(found), fail_on)
    if too_old is not None:
        raise typer.Exit(ExitStatus.INCOMPLETE)


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan history --tables /data/txnscan",
        "txnscan history --tables /data/txnscan --incident 3f9a --format json",
    ),
)
def history(
    tables: TablesLocation,
    incident: Annotated[
        str | None,
        typer.Option("--incident", metavar="ID", help="The life of this incident; the beginning of its id will do."),
    ] = None,
    cluster_id: ClusterId = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="NUMBER", min=1, max=100_000, help="Show at most this many of each.")
    ] = 20,
    master: SparkMaster = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Show the history in the tables: the last sweeps, the incidents, the journal of apply; or one incident's life."""
    with errors_in_one_line():
        location = Location.of(tables)
        if incident is not None and not incident.isalnum():
            raise ConfigError("--incident", f"'{printable(incident)}' is no id of an incident")
        from txnscan.report.history import print_history, print_life

        with progress_bar() as progress:
            from txnscan.tables.history import life, remembered

            stored = opened_tables(location, master, progress)
            progress("read tables", 0, 1)
            found: dict[str, Any] = (
                asdict(remembered(stored, cluster_id, limit)) if incident is None else asdict(life(stored, incident))
            )
        if format is Format.JSON:
            write_json(found)
        else:
            (print_history if incident is None else print_life)(stdout_console(), **found)


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan report --tables /data/txnscan --out report.html",
        "txnscan report --tables /data/txnscan --sweep-id ID --out report.html",
    ),
)
def report(
    tables: TablesLocation,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File of the page.", show_default=False)],
    sweep_id: SweepId = None,
    cluster_id: ClusterId = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="NUMBER", min=1, max=100_000, help="Show at most this many sweeps.")
    ] = 2_000,
    master: SparkMaster = None,
) -> None:
    """Write the last sweep and its history as one HTML page, readable without scripts."""
    with errors_in_one_line():
        location = Location.of(tables)
        check_writable(out, "--out")
        need_report()
        from txnscan.kafka.clock import wall_clock_ms
        from txnscan.report.html import PageContent, report_html

        with progress_bar() as progress:
            from txnscan.tables.history import remembered
            from txnscan.tables.schema import OPEN_TRANSACTIONS, SCAN_ERRORS
            from txnscan.tables.selection import find_sweep

            stored = opened_tables(location, master, progress)
            progress("read tables", 0, 1)
            chosen = find_sweep(stored, cluster_id, sweep_id)
            of = chosen.sweep["sweep_id"]
            shown = [column.name for column in OPEN_TRANSACTIONS.columns if column.name != "evidence"]
            history = remembered(stored, chosen.sweep["cluster_id"], limit)
            page = report_html(
                PageContent(
                    sweep=chosen.sweep,
                    notes=chosen.notes,
                    transactions=stored.read(OPEN_TRANSACTIONS, of, shown),
                    errors=stored.read(SCAN_ERRORS, of),
                    sweeps=history.sweeps,
                    incidents=history.incidents,
                    journal=history.journal,
                ),
                tables,
                wall_clock_ms(),
            )
        write_whole(out, page, "--out")
        note(f"{out} shows sweep {printable(of)}; open it in a browser")


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan views --tables main.txnscan",
        "txnscan views --tables main.txnscan --create",
    ),
)
def views(
    tables: TablesLocation,
    create: Annotated[
        bool, typer.Option("--create", help="Create them in the catalog of the tables, through Spark.")
    ] = False,
    master: SparkMaster = None,
) -> None:
    """Print the SQL of views for dashboards over the tables, or create them in a catalog.

    Of tables at a path they are temporary: run the statements in the session that queries them.
    """
    with errors_in_one_line():
        location = Location.of(tables)
        if create and not location.in_catalog:
            raise ConfigError("--create", "is for tables in a catalog; at a path, run what this prints in your session")
        if not create:
            from txnscan.tables.views import view_statements

            write_line(";\n\n".join(view_statements(location)) + ";")
            return
        from txnscan.api import create_views

        with progress_bar() as progress:
            made = create_views(started_spark(master, progress), tables)
        note(f"{len(made)} views are in {printable(tables)}")


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan maintain --tables /data/txnscan",
        "txnscan maintain --tables /data/txnscan --keep 30d --format json",
    ),
)
def maintain(
    tables: TablesLocation,
    keep: Annotated[str, typer.Option("--keep", metavar="DURATION", help="For how long sweeps are kept.")] = "90d",
    vacuum_after: Annotated[
        str,
        typer.Option("--vacuum-after", metavar="DURATION", help="Remove files that are unused for longer than this."),
    ] = "7d",
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="First change tables of an earlier version, where a sweep does not.")
    ] = False,
    master: SparkMaster = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Keep the tables small: delete old sweeps, make few files of many, remove files that are not used any more.

    Incidents and the journal of apply are never deleted. If a cluster has an open incident, no sweep of that cluster
    since the first that saw it is deleted.
    """
    with errors_in_one_line():
        location = Location.of(tables)
        keep_ms = parse_duration_ms(keep, "--keep")
        vacuum_after_ms = parse_duration_ms(vacuum_after, "--vacuum-after")
        if vacuum_after_ms < _HOUR_MS:
            raise ConfigError("--vacuum-after", f"'{printable(vacuum_after)}' is below 1h, and somebody may be reading")
        from txnscan.kafka.clock import wall_clock_ms
        from txnscan.report.history import print_maintained

        with progress_bar() as progress:
            from txnscan.tables.maintain import kept
            from txnscan.tables.maintain import maintain as run_maintain

            stored = opened_tables(location, master, progress, to_maintain=True)
            upgraded = stored.upgrade(note) if upgrade else []
            stored.check_writable()
            keeping = kept(stored, keep_ms, wall_clock_ms())
            done = run_maintain(
                stored,
                keeping,
                vacuum_after_hours=-(-vacuum_after_ms // _HOUR_MS),
                on_table=lambda done, total: progress("tidy tables", done, total),
            )
        if format is Format.JSON:
            write_json({"upgraded": upgraded, "kept": asdict(keeping), "tables": [asdict(one) for one in done]})
        else:
            print_maintained(stdout_console(), keeping, done)
