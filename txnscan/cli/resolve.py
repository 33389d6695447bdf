"""`plan`, `apply`: commands that resolve what hangs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from txnscan.cli.app import WATCH_APPLY, app, progress_bar, reported_so_far, spark_for, warn, write_json
from txnscan.cli.command import OneCommand
from txnscan.cli.errors import errors_in_one_line, note
from txnscan.cli.given import Given, takes
from txnscan.cli.options import (
    APPLY_TIMEOUT,
    SERVER,
    ClusterId,
    Format,
    MaxAge,
    OutputFormat,
    SparkMaster,
    SweepId,
    TablesLocation,
)
from txnscan.config import Location, check_topic_pattern, parse_duration_ms
from txnscan.config.settings import COMMAND_CONFIG, TABLES, TOPIC
from txnscan.errors import ExitStatus
from txnscan.report.files import check_writable, read_text, write_whole
from txnscan.report.help import examples
from txnscan.report.output import stdout_console, write_line

# A plan names every transaction that is refused.
_PLAN_BYTES_MAX = 1 << 26


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan plan --tables /data/txnscan --out plan.json",
        "txnscan plan --tables /data/txnscan --out plan.json --topic 'orders-.*' --limit 5",
    ),
)
@takes(TOPIC)
def plan(
    given: Given,
    tables: TablesLocation,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File of the plan.", show_default=False)],
    sweep_id: SweepId = None,
    cluster_id: ClusterId = None,
    include_consumer_offsets: Annotated[
        bool, typer.Option("--include-consumer-offsets", help="Also __consumer_offsets and __share_group_state.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", metavar="NUMBER", min=1, max=1_000, help="Markers in one plan, at most.")
    ] = 20,
    max_age: MaxAge = None,
    master: SparkMaster = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Plan the end of hanging transactions: a file with the markers to write, and the refusals with their reasons."""
    with errors_in_one_line():
        patterns = given.parsed(TOPIC) or ()
        for pattern in patterns:
            check_topic_pattern(pattern)
        max_age_ms = None if max_age is None else parse_duration_ms(max_age, "--max-age")
        location = Location.of(tables)
        check_writable(out, "--out")
        from txnscan.report.resolution import print_plan
        from txnscan.resolve.guard import Limits
        from txnscan.resolve.plan import to_json
        from txnscan.resolve.run import plan_sweep

        with progress_bar() as progress:
            spark = spark_for(location, master, progress)
            progress("plan", 0, 1)
            limits = Limits(consumer_offsets=include_consumer_offsets, actions_max=limit)
            made = plan_sweep(
                spark,
                location,
                limits,
                topic=patterns,
                sweep_id=sweep_id,
                cluster_id=cluster_id,
                max_age_ms=max_age_ms,
                say=note,
            )
        write_whole(out, to_json(made), "--out")
        if format is Format.JSON:
            # The exact values that `apply` takes.
            write_line(to_json(made).rstrip("\n"))
        else:
            print_plan(stdout_console(), made, str(out))


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan apply plan.json --bootstrap-server localhost:9092 --tables /data/txnscan",
        "txnscan apply plan.json --bootstrap-server localhost:9092 --tables /data/txnscan --complete-commits --execute",
    ),
)
@takes(
    SERVER,
    replace(TABLES, help="The tables that the plan was made from.", is_required=True),
    COMMAND_CONFIG,
    APPLY_TIMEOUT,
)
def apply(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="A file of `txnscan plan`.", show_default=False)],
    given: Given,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Send the markers, or do everything up to that.")
    ] = False,
    complete_commits: Annotated[
        bool, typer.Option("--complete-commits", help="Write COMMIT markers where the commit is proven.")
    ] = False,
    accept_unknown_outcome: Annotated[
        bool,
        typer.Option("--accept-unknown-outcome", help="Write ABORT markers where nothing shows a commit or an abort."),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="TOPIC-PARTITION", help="Only the markers of this partition. May be repeated."),
    ] = None,
    max_plan_age: Annotated[
        str, typer.Option("--max-plan-age", metavar="DURATION", help="An older plan is refused.")
    ] = "1h",
    master: SparkMaster = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Execute exactly a plan: prove each transaction again, write its marker, check. By default, sends no marker.

    Exit status: 0 done, 1 failed, 2 usage, 5 when actions of the plan remain, 6 when the plan is refused as a
    whole (expired, edited, of another cluster or other tables), 7 when another apply is under way.
    """
    with errors_in_one_line():
        from txnscan.report.resolution import LiveReport, applied_object, print_count
        from txnscan.resolve.apply import chosen
        from txnscan.resolve.guard import ACCEPT_UNKNOWN, COMPLETE_COMMITS
        from txnscan.resolve.plan import PlanRefused, from_json
        from txnscan.resolve.run import apply_to, check_before_spark

        config = given.config(engine="threads")
        max_age_ms = parse_duration_ms(max_plan_age, "--max-plan-age")
        text = read_text(plan_file, "PLAN", _PLAN_BYTES_MAX)
        try:
            made = from_json(text)
        except PlanRefused as refused:
            raise refused.of(str(plan_file)) from None
        warn(config)
        accepted = {COMPLETE_COMMITS: complete_commits, ACCEPT_UNKNOWN: accept_unknown_outcome}
        wanted = tuple(only or ())
        check_before_spark(config, made, max_age_ms=max_age_ms, only=wanted)

        with progress_bar() as progress:
            spark = None if config.location is None else spark_for(config.location, master, progress)
            progress("apply" if execute else "rehearse", 0, 1)
            console = stdout_console() if format is Format.TABLE else None
            report = LiveReport(len(chosen(made, wanted)), progress, console)
            with reported_so_far(report, progress, console, executed=execute):
                applied = apply_to(
                    spark,
                    config,
                    made,
                    execute=execute,
                    options=[option for option, is_accepted in accepted.items() if is_accepted],
                    max_age_ms=max_age_ms,
                    only=wanted,
                    on_step=report.on_step,
                    on_result=report.on_result,
                    on_settled=report.on_settled,
                    on_wait=partial(progress, WATCH_APPLY),
                )
        if console is None:
            write_json(applied_object(applied))
        else:
            print_count(console, applied)
    if execute and not applied.complete:
        raise typer.Exit(ExitStatus.PARTLY_DONE)
