"""The shared part of all commands: the application, progress, and output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from txnscan.cli.errors import complain, note
from txnscan.cli.given import Given
from txnscan.cli.logs import FORMAT_VARIABLE, LEVEL_VARIABLE, LogFormat, LogLevel, log_to_stderr, stderr_lines
from txnscan.cli.options import Format, OutputOptions
from txnscan.config import ConfigError, EngineName, Location, ScanConfig
from txnscan.config.settings import BOOTSTRAP_SERVER, TABLES
from txnscan.report.files import check_writable, write_whole
from txnscan.report.help import HELP_OPTIONS, OneGroup, examples
from txnscan.report.output import stdout_console, write_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from txnscan.report.progress import TerminalProgress
    from txnscan.report.resolution import LiveReport
    from txnscan.sweeps.result import Scan
    from txnscan.tables.tables import Tables
    from txnscan.watch.clusters import ToWatch

app = typer.Typer(
    name="txnscan",
    help="Find the hanging transactions of an Apache Kafka cluster, and prove that they hang (KIP-664).",
    cls=OneGroup,
    context_settings=HELP_OPTIONS,
    epilog=examples(
        "txnscan check --bootstrap-server localhost:9092", "txnscan find-hanging --bootstrap-server localhost:9092"
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# The stage in which an apply checks whether another apply, which has the lock, is alive.
WATCH_APPLY = "watch another apply"


def _version(wanted: bool) -> None:
    if wanted:
        from txnscan.version import __version__

        typer.echo(f"txnscan {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", "-v", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(
            "--log-level",
            envvar=LEVEL_VARIABLE,
            help="Log to stderr: at debug each request, with its broker, size and time. Give it before the command.",
            show_default=False,
        ),
    ] = None,
    log_format: Annotated[
        LogFormat,
        typer.Option(
            "--log-format",
            envvar=FORMAT_VARIABLE,
            help="How lines on stderr are written: with json, each is an object with time, level, logger and message. "
            "Give it before the command.",
        ),
    ] = LogFormat.TEXT,
) -> None:
    stderr_lines.format = log_format
    if log_level is not None:
        log_to_stderr(log_level)


def _stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False)


@contextmanager
def progress_bar() -> Iterator[TerminalProgress]:
    """A line on stderr with the present step, at a terminal."""
    from txnscan.report.progress import TerminalProgress

    with TerminalProgress(_stderr()) as progress:
        yield progress


def started_spark(master: str | None, progress: TerminalProgress) -> SparkSession:
    """A session. The output of Spark's own process goes above the line of progress."""
    from txnscan.engine.spark.session import spark_session

    progress("start Spark", 0, 1)

    def say(line: str) -> None:
        progress.say(stderr_lines.line(line))

    return spark_session(master, say=say, heard=say)


def names_session(master: str | None) -> bool:
    """Whether the user names a Spark session: with --master or in the environment, or because there is one already,
    as under spark-submit and on Databricks.
    """
    named = ("MASTER", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "DATABRICKS_RUNTIME_VERSION")
    if master is not None or any(os.environ.get(name) for name in named):
        return True
    # A session in this process has imported PySpark.
    if sys.modules.get("pyspark") is None:
        return False
    from txnscan.engine.spark.session import runs_session

    return runs_session()


def wants_session(engine: EngineName, tables: Location | None, master: str | None) -> bool:
    """Whether a sweep with these options runs in a Spark session: its engine or its tables need one, or there is one
    for `auto`. Raises ConfigError.
    """
    if engine is EngineName.SPARK or (engine is EngineName.AUTO and names_session(master)):
        return True
    return tables is not None and _need_session(tables, master)


# Whether this process ends with its only command, so that its imports affect no other code.
_ours = False


def process_is_ours() -> None:
    """Says that this process ends with the command that it runs."""
    global _ours
    _ours = True
    sys.meta_path.insert(0, _RoomForArrow())


class _RoomForArrow(MetaPathFinder):
    """Checks that there is room for Arrow before it is imported."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pyarrow":
            from txnscan.tables.open import check_address_space

            check_address_space()


class _WithoutPandas(MetaPathFinder):
    """Keeps Arrow from importing pandas.

    If pandas is installed, Arrow imports it to check whether a value is a data frame. This import takes as long as the
    rest of a command, and no value is a data frame. Afterwards the process cannot import pandas, and Arrow does not try
    again. So this is only for a process that ends with its only command.
    """

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("this command does not use pandas", name=fullname)


def _need_session(tables: Location, master: str | None) -> bool:
    """Whether a session opens these tables."""
    from txnscan.tables.open import needs_spark

    return master is not None or needs_spark(tables)


def spark_for(tables: Location, master: str | None, progress: TerminalProgress) -> SparkSession | None:
    """A session, if these tables or a given master need it. None if delta-rs opens the tables."""
    if _need_session(tables, master):
        return started_spark(master, progress)
    if _ours:
        sys.meta_path.insert(0, _WithoutPandas())
    return None


def opened_tables(
    tables: Location, master: str | None, progress: TerminalProgress, *, to_maintain: bool = False
) -> Tables:
    """The tables at a location."""
    from txnscan.tables.open import open_tables

    return open_tables(tables, spark_for(tables, master, progress), to_maintain=to_maintain)


@contextmanager
def reported_so_far(
    report: LiveReport, progress: TerminalProgress, console: Console | None, *, executed: bool
) -> Iterator[None]:
    """Reports the steps of an apply even if it ends early: by Ctrl-C, or a lost journal.

    console: for results as they come; None if the output is a JSON object.
    """
    from txnscan.report.resolution import applied_object
    from txnscan.resolve.run import Applied

    try:
        yield
    except BaseException:
        if report.has_begun:
            with progress.paused():
                note(report.so_far(executed=executed))
                if console is None:
                    write_json(applied_object(Applied(executed, tuple(report.results), tuple(report.settled))))
        raise


def write_json(found: dict[str, Any]) -> None:
    """One object on stdout."""
    from txnscan.report.json import dumps

    write_line(dumps(found))


def print_scan(found: Scan, output: OutputOptions) -> None:
    """A finished sweep on stdout."""
    from txnscan.report.json import scan_object

    print_object(scan_object(found), output)


def print_object(found: dict[str, Any], output: OutputOptions) -> None:
    """A sweep on stdout, its warnings on stderr. found: as `scan_object` and `stored_object` give it."""
    if output.format is Format.JSON:
        write_json(found)
        for warning in found["sweep"]["warnings"]:
            complain(f"warning: {warning}")
    else:
        from txnscan.report.sweep import print_sweep

        print_sweep(stdout_console(), found, every=output.every, verbose=output.verbose)


def warn(config: ScanConfig) -> None:
    """Prints the warnings about the settings. Raises ConfigError where something in them is wrong, before that."""
    config.connection()
    for warning in config.warnings():
        complain(f"warning: {warning}")


_EITHER = "give either a file with clusters, or one cluster's --bootstrap-server"


def config_of_one(given: Given, **others: Any) -> ScanConfig:
    """The config of one cluster, where a file of clusters could have been given. Raises ConfigError."""
    if given.text(BOOTSTRAP_SERVER) is None:
        raise ConfigError("--config", _EITHER)
    return given.config(**others)


def clusters_of(file: Path, given: Given, *, notifies: bool = True) -> ToWatch:
    """The clusters of a file, after the warnings about their settings. given: may have tables alone, because the other
    settings belong in the file. notifies: see `read_clusters`.

    Raises ConfigError, and ends the command with a line for each thing that is wrong in the file.
    """
    from txnscan.watch.clusters import ClustersError, read_clusters

    for setting in given.settings():
        if setting.option == BOOTSTRAP_SERVER.option:
            raise ConfigError("--config", _EITHER)
        if setting.option != TABLES.option:
            raise ConfigError(setting.option, f"stands in the file of --config, as {setting.key} of each cluster")
    try:
        found = read_clusters(file, os.environ, notifies=notifies)
    except ClustersError as error:
        for complaint in error.complaints:
            complain(f"txnscan: {complaint}")
        raise typer.Exit(error.exit_status) from None
    for path in found.secrets:
        warn_of_file("--config", path)
    for name, one in found.clusters.items():
        for warning in one.warnings():
            complain(f"warning: {name}: {warning}")
    return found


def warn_of_file(option: str, path: Path) -> None:
    """Warns if others can read this file of secrets."""
    from txnscan.kafka.security.safe_files import exposed

    said = exposed(path)
    if said is not None:
        complain(f"warning: {option}: {said}")


def check_metrics_file(path: Path | None) -> None:
    """Checks that metrics can be written there, before anything else is done. Raises ConfigError."""
    if path is None:
        return
    check_writable(path, "--metrics-file")
    need_watch("--metrics-file")


def need_watch(option: str) -> None:
    """Checks that the packages of the extra `watch` are installed. Raises ConfigError."""
    if find_spec("prometheus_client") is None or find_spec("jinja2") is None:
        raise ConfigError(option, "needs prometheus-client and jinja2; install txnscan[watch]")


def need_report() -> None:
    """Checks that the packages of the extra `report` are installed. Raises ConfigError."""
    if any(find_spec(name) is None for name in ("altair", "jinja2", "vl_convert")):
        raise ConfigError("report", "needs jinja2, altair and vl-convert; install txnscan[report]")


def write_metrics(path: Path | None, found: Mapping[str, Scan | None]) -> None:
    """Finished sweeps as metrics by their clusters, whole or not at all. None: not swept. Raises ConfigError."""
    if path is None:
        return
    from txnscan.report.metrics import metrics_text, watched_once

    watched = [watched_once(name, scan) for name, scan in found.items()]
    write_whole(path, metrics_text(watched), "--metrics-file")


def advise(found: Scan) -> None:
    """Says at a terminal which engine would have been quicker. A scheduler has made its choice."""
    from txnscan.engine import advice

    said = advice(found.engine.name, found.partitions_planned)
    if said is not None:
        note_at_terminal(said)


def note_at_terminal(sentence: str) -> None:
    """A line on stderr for a person. Cron would mail it."""
    if _stderr().is_terminal:
        note(sentence)
