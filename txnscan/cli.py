"""The command line: parse, call, exit status.

0 done; 1 failed; 2 usage; with --fail-on hanging 3 when there are candidates; with --fail-on incomplete, and of
`check`, 4 when not everything was or could be observed, and with --max-age when the stored sweep is too old; 5 when an
apply was only partly done; 6 when a plan is refused as a whole; 7 when another apply is under way; 130 when
interrupted.
A sweep that was found and could not be stored is 1, unless --fail-on hanging makes it 3: what hangs is what somebody
has to act on, and the line on stderr says that it was not stored.
JSON goes to stdout alone; progress, warnings and errors go to stderr. A reader of stdout that goes away (`| head -1`)
changes nothing about the status; a stdout that cannot be written (a full disk) is a failure.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from txnscan import __version__
from txnscan.config import ConfigError, ScanConfig, parse_duration_ms, parse_location, parse_pattern, printable
from txnscan.evidence.cluster import ClusterUnreachable
from txnscan.files import check_writable, read_text, write_whole
from txnscan.findings import Scan
from txnscan.report.help import EXIT_USAGE, HELP_OPTIONS, OneCommand, OneGroup, examples
from txnscan.report.output import OutputFailed, discard_stdout, stdout_console, write_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnscan.report.progress import TerminalProgress

EXIT_FAILED = 1
EXIT_HANGING = 3
EXIT_INCOMPLETE = 4
EXIT_PARTLY_DONE = 5
EXIT_REFUSED = 6
EXIT_BUSY = 7
# 128 + SIGINT, as shells have it.
EXIT_INTERRUPTED = 130
# What writing fails with where there is no room.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
# Kafka's own tool takes an int.
_MINUTES_MAX = 2**31 - 1

app = typer.Typer(
    name="txnscan",
    help="Find the hanging transactions of an Apache Kafka cluster, and prove that they hang (KIP-664).",
    cls=OneGroup,
    context_settings=HELP_OPTIONS,
    epilog=examples(
        "txnscan check --bootstrap-server localhost:9092", "txnscan find-hanging --bootstrap-server localhost:9092"
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Format(StrEnum):
    """What a sweep is printed as."""

    TABLE = "table"
    JSON = "json"


class FailOn(StrEnum):
    """What turns into an exit status of its own."""

    HANGING = "hanging"
    INCOMPLETE = "incomplete"


class EngineName(StrEnum):
    """Where partitions are read from."""

    SPARK = "spark"
    THREADS = "threads"


BootstrapServer = Annotated[
    str,
    typer.Option("--bootstrap-server", metavar="HOST:PORT[,...]", help="Brokers to start from.", show_default=False),
]
CommandConfig = Annotated[
    str | None,
    typer.Option("--command-config", metavar="FILE", help="Kafka's client.properties: security and timeouts."),
]
LateAfter = Annotated[
    str | None,
    typer.Option(
        "--late-after",
        metavar="DURATION",
        help="Age from which a transaction is late, such as 20m. "
        "Default: the brokers' transaction.max.timeout.ms and 5 minutes.",
    ),
]
OutputFormat = Annotated[Format, typer.Option("--format", metavar="table|json", help="What to print on stdout.")]
FailOnOption = Annotated[
    list[FailOn] | None,
    typer.Option(
        "--fail-on",
        metavar="hanging|incomplete",
        help="Exit with 3 when transactions hang and are late, with 4 when not everything was observed. "
        "May be repeated.",
    ),
]
MaxAge = Annotated[
    str | None,
    typer.Option("--max-age", metavar="DURATION", help="Exit with 4 when the stored sweep began longer ago."),
]
SparkMaster = Annotated[str | None, typer.Option("--master", metavar="MASTER", help="Spark master; default local[*].")]
EveryTransaction = Annotated[bool, typer.Option("--all", help="Show healthy transactions too.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"txnscan {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


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
            "--tables", metavar="LOCATION", help="Where the Delta tables are: a path (with a slash), or catalog.schema."
        ),
    ] = None,
    command_config: CommandConfig = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="REGEX", help="Only topics whose whole name matches. May be repeated."),
    ] = None,
    late_after: LateAfter = None,
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
    fail_on: FailOnOption = None,
) -> None:
    """Sweep the whole cluster through Spark, and keep the result in Delta tables.

    Exit status: 0 done, 1 failed, and the --fail-on statuses. Where the tables cannot be written, what was found is
    printed all the same, a line on stderr says why, and the status is 1, or 3 by --fail-on hanging.
    """
    with _errors_in_one_line():
        config = ScanConfig(
            bootstrap_servers=bootstrap_server,
            command_config=command_config,
            tables=tables,
            topic=tuple(topic or ()),
            late_after=late_after,
            engine=engine.value,
            batch_size=batch_size,
            lanes_per_leader=in_flight,
            store_all=store_all,
        )
        _warn(config)
        from txnscan.api import NotStored
        from txnscan.api import sweep as run_sweep

        not_stored: str | None = None
        with _progress() as progress:
            spark = _started_spark(master, progress)
            try:
                found = run_sweep(spark, config, progress=progress, say=_note).scan
            except NotStored as error:
                found, not_stored = error.result.scan, str(error)
        try:
            _print(found, format, every)
        finally:
            if not_stored is not None:
                _complain(f"txnscan: {not_stored}")
        _advise(config.engine, found)
    if not_stored is not None:
        raise typer.Exit(EXIT_HANGING if FailOn.HANGING in (fail_on or ()) and found.candidates else EXIT_FAILED)
    _exit(found, fail_on)


@app.command(
    "find-hanging",
    cls=OneCommand,
    epilog=examples(
        "txnscan find-hanging --bootstrap-server localhost:9092",
        "txnscan find-hanging --bootstrap-server localhost:9092 --topic orders --partition 3 --all",
        "txnscan find-hanging --bootstrap-server localhost:9092 --format json --fail-on hanging --fail-on incomplete",
    ),
)
def find_hanging(
    bootstrap_server: BootstrapServer,
    command_config: CommandConfig = None,
    broker_id: Annotated[
        list[int] | None,
        typer.Option("--broker-id", metavar="ID", help="Only partitions that this broker leads. May be repeated."),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME", help="Only this topic. May be repeated.")
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", metavar="NUMBER", help="Only this partition of --topic. May be repeated."),
    ] = None,
    max_transaction_timeout: Annotated[
        int | None,
        typer.Option(
            "--max-transaction-timeout",
            metavar="MINUTES",
            help="Age in minutes from which a transaction is late, as in Kafka's tool.",
        ),
    ] = None,
    late_after: LateAfter = None,
    format: OutputFormat = Format.TABLE,
    every: EveryTransaction = False,
    fail_on: FailOnOption = None,
) -> None:
    """Find hanging transactions with the same proof, without Spark, Java or tables."""
    with _errors_in_one_line():
        if max_transaction_timeout is not None:
            if late_after is not None:
                raise ConfigError("--max-transaction-timeout", "is the same as --late-after; give one of them")
            if not 1 <= max_transaction_timeout <= _MINUTES_MAX:
                raise ConfigError(
                    "--max-transaction-timeout",
                    f"{max_transaction_timeout} is out of range; use 1 to {_MINUTES_MAX} minutes",
                )
            late_after = f"{max_transaction_timeout}m"
        config = ScanConfig(
            bootstrap_servers=bootstrap_server,
            command_config=command_config,
            late_after=late_after,
            engine="threads",
            broker_ids=tuple(broker_id or ()),
            topic_names=tuple(topic or ()),
            partitions=tuple(partition or ()),
        )
        _warn(config)
        from txnscan.api import find_hanging as run_find_hanging

        with _progress() as progress:
            found = run_find_hanging(config, progress=progress)
        _print(found, format, every)
    _exit(found, fail_on)


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan check --bootstrap-server localhost:9092",
        "txnscan check --bootstrap-server localhost:9092 --command-config client.properties --tables /data/txnscan",
    ),
)
def check(
    bootstrap_server: BootstrapServer,
    command_config: CommandConfig = None,
    tables: Annotated[
        str | None,
        typer.Option("--tables", metavar="LOCATION", help="Also whether the tables can be there, and Spark run."),
    ] = None,
    master: SparkMaster = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Check what a sweep needs: connection, security, ACLs, APIs, coordinators, clock, Java, tables. Changes nothing.

    Exit status: 0 when a sweep can observe everything, 4 when not everything, 1 when it is not possible.
    """
    with _errors_in_one_line():
        config = ScanConfig(bootstrap_server, command_config=command_config, tables=tables, engine="threads")
        _warn(config)
        from txnscan.api import new_sweep_id
        from txnscan.check import Level
        from txnscan.check import check as run_check
        from txnscan.evidence.tasks import wall_clock_ms
        from txnscan.report.check import check_object, print_check

        with _progress() as progress:
            progress("check", 0, 1)

            checked = run_check(
                config,
                now_ms=wall_clock_ms,
                sweep_id=new_sweep_id(wall_clock_ms),
                spark=lambda: _started_spark(master, progress),
            )
        if format is Format.JSON:
            _write_json(check_object(checked))
        else:
            print_check(stdout_console(), checked)
    statuses = {Level.FAILED: EXIT_FAILED, Level.INCOMPLETE: EXIT_INCOMPLETE}
    if checked.level in statuses:
        raise typer.Exit(statuses[checked.level])


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan show --tables /data/txnscan",
        "txnscan show --tables /data/txnscan --all --format json",
    ),
)
def show(
    tables: Annotated[
        str,
        typer.Option("--tables", metavar="LOCATION", help="Where the Delta tables are.", show_default=False),
    ],
    sweep_id: Annotated[
        str | None,
        typer.Option("--sweep-id", metavar="ID", help="This sweep. Default: the last one of the whole cluster."),
    ] = None,
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", metavar="ID", help="The last sweep of this cluster.")
    ] = None,
    max_age: MaxAge = None,
    master: SparkMaster = None,
    format: OutputFormat = Format.TABLE,
    every: EveryTransaction = False,
    fail_on: FailOnOption = None,
) -> None:
    """Show what the last sweep of the whole cluster left in the tables.

    A sweep of some topics is shown where it is named, or where there is no other.
    """
    with _errors_in_one_line():
        parse_location(tables)
        max_age_ms = None if max_age is None else parse_duration_ms(max_age, "--max-age")
        from txnscan.evidence.tasks import wall_clock_ms
        from txnscan.report.json import stored_object
        from txnscan.report.table import print_stored
        from txnscan.store.selection import find_sweep, stale

        with _progress() as progress:
            spark = _started_spark(master, progress)
            from txnscan.store.schema import OPEN_TRANSACTIONS, SCAN_ERRORS
            from txnscan.store.tables import Tables

            progress("read tables", 0, 1)
            stored = Tables(spark, tables)
            chosen = find_sweep(stored, cluster_id, sweep_id)
            last = chosen.sweep
            transactions = stored.read(OPEN_TRANSACTIONS, last["sweep_id"]).drop("evidence")
            found = stored_object(
                last,
                [row.asDict() for row in transactions.orderBy("topic", "partition", "start_offset").collect()],
                [row.asDict() for row in stored.read(SCAN_ERRORS, last["sweep_id"]).collect()],
            )
        for note in chosen.notes:
            _note(note)
        if format is Format.TABLE:
            print_stored(stdout_console(), found["sweep"], wall_clock_ms())
        _print_object(found, format, every)
        too_old = stale(last, max_age_ms, wall_clock_ms())
        if too_old is not None:
            _complain(f"txnscan: {too_old}")
    # What tables of an earlier version call complete may have errors beside it.
    complete = found["sweep"]["complete"] and not found["errors"]
    _exit_status(found["sweep"]["candidates"], complete, fail_on)
    if too_old is not None:
        raise typer.Exit(EXIT_INCOMPLETE)


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan history --tables /data/txnscan",
        "txnscan history --tables /data/txnscan --incident 3f9a --format json",
    ),
)
def history(
    tables: Annotated[
        str,
        typer.Option("--tables", metavar="LOCATION", help="Where the Delta tables are.", show_default=False),
    ],
    incident: Annotated[
        str | None,
        typer.Option("--incident", metavar="ID", help="The life of this incident; the beginning of its id will do."),
    ] = None,
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", metavar="ID", help="Of this cluster alone. Default: of all.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="NUMBER", min=1, max=100_000, help="Of each, show so many at most.")
    ] = 20,
    master: SparkMaster = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Show what the tables remember: the last sweeps, the incidents, the journal of apply; or one incident's life."""
    with _errors_in_one_line():
        parse_location(tables)
        if incident is not None and not incident.isalnum():
            raise ConfigError("--incident", f"'{printable(incident)}' is no id of an incident")
        from txnscan.report.history import print_history, print_life

        with _progress() as progress:
            spark = _started_spark(master, progress)
            progress("read tables", 0, 1)
            from txnscan.store.history import life, remembered
            from txnscan.store.tables import Tables

            stored = Tables(spark, tables)
            found: dict[str, Any] = (
                asdict(remembered(stored, cluster_id, limit)) if incident is None else asdict(life(stored, incident))
            )
        if format is Format.JSON:
            _write_json(found)
        else:
            (print_history if incident is None else print_life)(stdout_console(), **found)


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan plan --tables /data/txnscan --out plan.json",
        "txnscan plan --tables /data/txnscan --out plan.json --topic 'orders-.*' --limit 5",
    ),
)
def plan(
    tables: Annotated[
        str, typer.Option("--tables", metavar="LOCATION", help="Where the Delta tables are.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write the plan.", show_default=False)],
    sweep_id: Annotated[
        str | None,
        typer.Option("--sweep-id", metavar="ID", help="Of this sweep. Default: the last one of the whole cluster."),
    ] = None,
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", metavar="ID", help="Of this cluster's last sweep.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="REGEX", help="Only topics whose whole name matches. May be repeated."),
    ] = None,
    include_consumer_offsets: Annotated[
        bool, typer.Option("--include-consumer-offsets", help="Also partitions of __consumer_offsets.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", metavar="NUMBER", min=1, max=1_000, help="Markers in one plan, at most.")
    ] = 20,
    max_age: MaxAge = None,
    master: SparkMaster = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Plan what to do about what hangs: a file of markers to write, and of what is refused and why."""
    with _errors_in_one_line():
        patterns = tuple(topic or ())
        for pattern in patterns:
            parse_pattern(pattern)
        max_age_ms = None if max_age is None else parse_duration_ms(max_age, "--max-age")
        parse_location(tables)
        check_writable(out, "--out")
        from txnscan.report.resolution import print_plan
        from txnscan.resolve.guard import Limits
        from txnscan.resolve.plan import to_json
        from txnscan.resolve.run import plan_sweep

        with _progress() as progress:
            spark = _started_spark(master, progress)
            progress("plan", 0, 1)
            limits = Limits(topics=patterns, consumer_offsets=include_consumer_offsets, actions_max=limit)
            made = plan_sweep(
                spark, tables, limits, sweep_id=sweep_id, cluster_id=cluster_id, max_age_ms=max_age_ms, say=_note
            )
        write_whole(out, to_json(made), "--out")
        if format is Format.JSON:
            # What `apply` takes, to the letter.
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
def apply(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="A file of `txnscan plan`.", show_default=False)],
    bootstrap_server: BootstrapServer,
    tables: Annotated[
        str,
        typer.Option(
            "--tables", metavar="LOCATION", help="The tables that the plan was made from.", show_default=False
        ),
    ],
    command_config: CommandConfig = None,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Send the markers, or do everything up to that.")
    ] = False,
    complete_commits: Annotated[
        bool, typer.Option("--complete-commits", help="Write COMMIT markers where the commit is proven.")
    ] = False,
    accept_unknown_outcome: Annotated[
        bool,
        typer.Option("--accept-unknown-outcome", help="Write ABORT markers where nothing tells of a commit or abort."),
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
    """Do a plan and nothing else: prove each transaction again, write its marker, look. Sends nothing by default.

    Exit status: 0 done, 1 failed, 2 usage, 5 when something of the plan is left to do, 6 when the plan is refused as a
    whole (expired, edited, of another cluster or other tables), 7 when another apply is under way.
    """
    with _errors_in_one_line():
        from txnscan.report.resolution import LiveReport, applied_object, print_count
        from txnscan.resolve.apply import chosen
        from txnscan.resolve.guard import ACCEPT_UNKNOWN, COMPLETE_COMMITS
        from txnscan.resolve.plan import from_json
        from txnscan.resolve.run import Applied, apply_to, check_before_spark

        config = ScanConfig(bootstrap_server, command_config=command_config, tables=tables, engine="threads")
        max_age_ms = parse_duration_ms(max_plan_age, "--max-plan-age")
        made = from_json(read_text(plan_file, "PLAN"))
        _warn(config)
        given = {COMPLETE_COMMITS: complete_commits, ACCEPT_UNKNOWN: accept_unknown_outcome}
        wanted = tuple(only or ())
        check_before_spark(config, made, max_age_ms=max_age_ms, only=wanted)

        with _progress() as progress:
            spark = _started_spark(master, progress)
            progress("apply" if execute else "rehearse", 0, 1)
            console = stdout_console() if format is Format.TABLE else None
            report = LiveReport(len(chosen(made, wanted)), progress, console)
            try:
                applied = apply_to(
                    spark,
                    config,
                    made,
                    execute=execute,
                    options=[option for option, given_now in given.items() if given_now],
                    max_age_ms=max_age_ms,
                    only=wanted,
                    on_step=report.on_step,
                    on_result=report.on_result,
                    on_settled=report.on_settled,
                )
            except BaseException:
                if report.has_begun:
                    with progress.paused():
                        _note(report.so_far(executed=execute))
                        if console is None:
                            _write_json(applied_object(Applied(execute, tuple(report.results), tuple(report.settled))))
                raise
        if console is None:
            _write_json(applied_object(applied))
        else:
            print_count(console, applied)
    if execute and not applied.complete:
        raise typer.Exit(EXIT_PARTLY_DONE)


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
        str | None, typer.Option("--without", metavar="NAME", help="Sweep without this obligation, and be wrong.")
    ] = None,
    list_names: Annotated[bool, typer.Option("--list", help="List the stories, worlds and obligations.")] = False,
    transitions: Annotated[
        bool, typer.Option("--transitions", help="Show all that can happen, and what of Kafka it models.")
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
    with _errors_in_one_line():
        from txnscan.sim.predict import predicted_lines
        from txnscan.sim.show import listed, named_history, named_protocol, table_lines, told

        if cluster is not None:
            lines = predicted_lines(cluster, producers, open_partitions, latency_ms)
        elif list_names:
            lines = listed()
        elif transitions:
            lines = table_lines()
        else:
            lines = told(named_history(story, world, seed), named_protocol(without))
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
    hold: Annotated[bool, typer.Option("--hold", help="Keep the brokers running until Ctrl-C.")] = False,
) -> None:
    """Start three real brokers, make transactions hang on them, and sweep."""
    with _errors_in_one_line():
        parse_location(tables)
        from txnscan.demo.story import run_demo

        run_demo(tables, base_port=port, hold=hold, console=stdout_console(), progress=_progress)


def _stderr() -> Console:
    return Console(stderr=True, highlight=False)


@contextmanager
def _progress() -> Iterator[TerminalProgress]:
    from txnscan.report.progress import TerminalProgress

    with TerminalProgress(_stderr()) as progress:
        yield progress


def _started_spark(master: str | None, progress: TerminalProgress) -> SparkSession:
    """A session; what Spark's own process says goes above the line of progress."""
    from txnscan.engine.session import spark_session

    progress("start Spark", 0, 1)
    return spark_session(master, say=progress.say, heard=progress.say)


def _write_json(found: dict[str, Any]) -> None:
    from txnscan.report.json import dumps

    write_line(dumps(found))


def _note(sentence: str) -> None:
    _complain(f"note: {sentence}")


def _print(found: Scan, format: Format, every: bool) -> None:
    from txnscan.report.json import scan_object

    _print_object(scan_object(found), format, every)


def _print_object(found: dict[str, Any], format: Format, every: bool) -> None:
    if format is Format.JSON:
        _write_json(found)
        for warning in found["sweep"]["warnings"]:
            _complain(f"warning: {warning}")
    else:
        from txnscan.report.table import print_sweep

        print_sweep(stdout_console(), found, every=every)


def _exit(found: Scan, fail_on: list[FailOn] | None) -> None:
    _exit_status(len(found.candidates), found.complete, fail_on)


def _exit_status(candidates: int, complete: bool, fail_on: list[FailOn] | None) -> None:
    """Hanging outranks incomplete: it is what somebody has to act on."""
    wanted = fail_on or []
    if FailOn.HANGING in wanted and candidates:
        raise typer.Exit(EXIT_HANGING)
    if FailOn.INCOMPLETE in wanted and not complete:
        raise typer.Exit(EXIT_INCOMPLETE)


def _warn(config: ScanConfig) -> None:
    """Of what the settings hold; their errors first. Raises ConfigError."""
    config.connection()
    for warning in config.warnings():
        _complain(f"warning: {warning}")


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Every failure that a user can do something about is one line on stderr."""
    from txnscan.demo.errors import DemoError
    from txnscan.engine.session import SparkUnavailable, in_one_line, is_of_spark
    from txnscan.resolve.apply import ApplyRunning, JournalLost
    from txnscan.resolve.plan import PlanRefused
    from txnscan.store.selection import Stale

    with _interruptible() as interrupted:
        try:
            yield
            if interrupted:
                # What was interrupted has swallowed it.
                raise KeyboardInterrupt
        except PlanRefused as error:
            _fail(str(error), EXIT_REFUSED)
        except ApplyRunning as error:
            _fail(str(error), EXIT_BUSY)
        except ConfigError as error:
            _fail(str(error), EXIT_USAGE)
        except Stale as error:
            _fail(str(error), EXIT_INCOMPLETE)
        except ClusterUnreachable as error:
            _fail(f"--bootstrap-server: {error}", EXIT_FAILED)
        except (SparkUnavailable, DemoError, JournalLost, OutputFailed) as error:
            _fail(str(error), EXIT_FAILED)
        except KeyboardInterrupt:
            _fail("interrupted", EXIT_INTERRUPTED)
        except Exception as error:
            # What is torn down while it works may fail in its own way.
            if interrupted:
                _fail("interrupted", EXIT_INTERRUPTED)
            if not is_of_spark(error):
                raise
            _fail(f"Spark failed: {in_one_line(error)}", EXIT_FAILED)


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """Ctrl-C is a KeyboardInterrupt in here, once; the second ends the process. Outside of it the handler of before
    counts. Gives what becomes true with the first.
    """
    happened: list[int] = []

    def interrupt(number: int, _: object) -> None:
        if happened:
            os._exit(EXIT_INTERRUPTED)
        happened.append(number)
        raise KeyboardInterrupt

    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored or threading.current_thread() is not threading.main_thread():
        yield happened
        return
    former = signal.signal(signal.SIGINT, interrupt)
    try:
        yield happened
    finally:
        signal.signal(signal.SIGINT, former)


def _advise(engine: str, found: Scan) -> None:
    """To somebody at a terminal; a scheduler has chosen."""
    from txnscan.engine import advice

    said = advice(engine, found.partitions_planned)
    if said is not None and _stderr().is_terminal:
        _complain(f"note: {said}")


def _fail(message: str, status: int) -> NoReturn:
    _complain(f"txnscan: {message}")
    raise typer.Exit(status)


def _complain(message: str) -> None:
    # Where nobody can be told, the exit status still tells.
    with suppress(OSError):
        typer.echo(printable(message), err=True)


def main(arguments: list[str] | None = None) -> None:
    """The `txnscan` command, with the arguments of the command line or these."""
    # Libraries log what they retry and what fails, PySpark with whole traces; what comes of it is in the command's own
    # words.
    logging.disable(logging.CRITICAL)
    # A name from outside that this terminal has no characters for is escaped.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(arguments, prog_name="txnscan")
    except OSError as error:
        if error.errno not in _FULL:
            raise
        # Help and version are printed by the library.
        discard_stdout()
        _complain(f"txnscan: stdout cannot be written: {os.strerror(error.errno).lower()}")
        sys.exit(EXIT_FAILED)
    except SystemExit as ended:
        if ended.code == EXIT_INTERRUPTED:
            # Threads that still wait for an answer, and Spark, end with this process; nobody waits for them.
            sys.stderr.flush()
            os._exit(EXIT_INTERRUPTED)
        raise


if __name__ == "__main__":
    main()
