"""`sweep`: a cluster, or the clusters of a file, through Spark or threads, into tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from txnscan.cli.app import (
    advise,
    app,
    check_metrics_file,
    clusters_of,
    config_of_one,
    note_at_terminal,
    print_scan,
    progress_bar,
    spark_for,
    started_spark,
    wants_session,
    warn,
    write_json,
    write_metrics,
)
from txnscan.cli.command import OneCommand, cluster_name
from txnscan.cli.errors import complain, errors_in_one_line, fail_on_findings, note
from txnscan.cli.given import Given, takes
from txnscan.cli.options import (
    ONE_SERVER,
    Engine,
    FailOnOption,
    Format,
    MetricsFile,
    OutputOptions,
)
from txnscan.config import ConfigError, EngineName, Location, ScanConfig, shown_location
from txnscan.config.settings import BOOTSTRAP_SERVER, SETTINGS, TABLES
from txnscan.errors import ExitStatus, TxnscanError
from txnscan.report.findings import FailOn, Findings
from txnscan.report.help import examples
from txnscan.report.output import stdout_console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnscan.api import ClusterSweep
    from txnscan.report.progress import TerminalProgress

_WORST_FIRST = (ExitStatus.HANGING, ExitStatus.FAILED, ExitStatus.USAGE, ExitStatus.INCOMPLETE)


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan sweep --bootstrap-server localhost:9092 --tables /data/txnscan --fail-on hanging",
        "txnscan sweep --bootstrap-server localhost:9092 --command-config client.properties --topic 'orders-.*'",
        "txnscan sweep --config clusters.toml --engine threads --tables /data/txnscan --format json",
        "MASTER=spark://host:7077 txnscan sweep --bootstrap-server localhost:9092 --tables s3a://bucket/txnscan",
    ),
)
@takes(ONE_SERVER, *(one for one in SETTINGS.values() if one is not BOOTSTRAP_SERVER))
def sweep(
    given: Given,
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="TOML, as of watch: each [clusters.NAME] is swept, up to ten at once. One that fails stops no other.",
        ),
    ] = None,
    engine: Engine = EngineName.AUTO,
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="MASTER",
            help="Spark master, or sc://HOST:PORT. Default: MASTER or SPARK_REMOTE of the environment; with --engine "
            "spark, else local[*].",
        ),
    ] = None,
    store_all: Annotated[
        bool, typer.Option("--store-all", help="Store a row for each healthy transaction too, not counts alone.")
    ] = False,
    new_history: Annotated[
        bool,
        typer.Option(
            "--new-history",
            help="Say that all earlier histories of the cluster are over, after a restore: no fact that was stored "
            "before this sweep forbids an ABORT any more. The sweep reports how many. Not with --config.",
        ),
    ] = False,
    output: OutputOptions,
    metrics_file: MetricsFile = None,
    fail_on: FailOnOption = None,
) -> None:
    """Sweep the whole cluster, on Spark or in threads, and keep the result in Delta tables.

    Exit status: 0 done, 1 failed, and the --fail-on statuses. If the tables cannot be written, the result is
    still printed, a line on stderr has the reason, and the status is 1, or 3 by --fail-on hanging. With
    --config the status is the worst of all clusters, in the order 3, 1, 2, 4, 0.
    """
    with errors_in_one_line():
        tables = given.location()
        if config is not None:
            if new_history:
                raise ConfigError("--new-history", "is about one cluster; give --bootstrap-server, not --config")
            found_in_file = clusters_of(config, given, notifies=False)
            clusters = {
                name: replace(one, tables=given.text(TABLES), engine=engine.value, store_all=store_all)
                for name, one in found_in_file.clusters.items()
            }
            check_metrics_file(metrics_file)
            all_swept = _sweep_clusters(clusters, engine, tables, master)
            write_metrics(metrics_file, {one.name: one.scan for one in all_swept})
            _print_clusters(all_swept, output)
            raise typer.Exit(worst_status([_status(one, fail_on or []) for one in all_swept]))
        one_config = config_of_one(given, engine=engine.value, store_all=store_all, new_history=new_history)
        warn(one_config)
        check_metrics_file(metrics_file)
        from txnscan.api import NotStored
        from txnscan.api import sweep as run_sweep

        not_stored: str | None = None
        with progress_bar() as progress:
            spark = _session(engine, tables, master, progress)
            try:
                found = run_sweep(spark, one_config, progress=progress, say=note).scan
            except NotStored as error:
                found, not_stored = error.result.scan, str(error)
        try:
            write_metrics(metrics_file, {cluster_name(one_config): found})
            print_scan(found, output)
        finally:
            if not_stored is not None:
                complain(f"txnscan: {not_stored}")
        if tables is None:
            note_at_terminal("the sweep was not stored; --tables LOCATION stores it, for history and plan")
        elif not_stored is None:
            note_at_terminal(f"stored in {shown_location(str(given.text(TABLES)))} (sweep {found.sweep_id})")
        advise(found)
    if not_stored is not None:
        hangs = Findings.of(found).status(fail_on or []) is ExitStatus.HANGING
        raise typer.Exit(ExitStatus.HANGING if hangs else ExitStatus.FAILED)
    fail_on_findings(Findings.of(found), fail_on)


def _sweep_clusters(
    clusters: Mapping[str, ScanConfig], engine: EngineName, tables: Location | None, master: str | None
) -> tuple[ClusterSweep, ...]:
    from txnscan.api import sweep_clusters

    with progress_bar() as progress:
        spark = _session(engine, tables, master, progress)
        return sweep_clusters(spark, clusters, progress=progress, say=note)


def _session(
    engine: EngineName, tables: Location | None, master: str | None, progress: TerminalProgress
) -> SparkSession | None:
    """A session, if the sweep needs one."""
    if wants_session(engine, tables, master):
        return started_spark(master, progress)
    return spark_for(tables, master, progress) if tables is not None else None


def _print_clusters(clusters: Sequence[ClusterSweep], output: OutputOptions) -> None:
    """The sweeps on stdout, and what failed on stderr."""
    from txnscan.report.clusters import cluster_object, print_clusters

    found = [cluster_object(one.name, one.scan, one.failure) for one in clusters]
    try:
        if output.format is Format.JSON:
            write_json({"sweeps": found})
            for one in found:
                for warning in one["sweep"]["warnings"] if one["sweep"] is not None else ():
                    complain(f"warning: {one['cluster']}: {warning}")
        else:
            print_clusters(stdout_console(), found, every=output.every, verbose=output.verbose)
    finally:
        for cluster in clusters:
            if cluster.failure is not None:
                complain(f"txnscan: {cluster.name}: {cluster.failure}")


def _status(cluster: ClusterSweep, fail_on: Sequence[FailOn]) -> ExitStatus:
    status = Findings.of(cluster.scan).status(fail_on) if cluster.scan is not None else ExitStatus.DONE
    if cluster.error is not None and status is not ExitStatus.HANGING:
        return cluster.error.exit_status if isinstance(cluster.error, TxnscanError) else ExitStatus.FAILED
    return status


def worst_status(statuses: Sequence[ExitStatus]) -> ExitStatus:
    """The status of a command that did several things: what hangs outranks a failure, which may go away by itself, and
    that a mistake in the options.
    """
    return next((one for one in _WORST_FIRST if one in statuses), ExitStatus.DONE)
