"""`transaction-log`: what `__transaction_state` holds of ids, asked of the brokers or read from files."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, Any

import typer

from txnscan.cli.admin import end_by, rows_in, say_errors
from txnscan.cli.app import app, warn
from txnscan.cli.command import OneCommand, where_from
from txnscan.cli.errors import errors_in_one_line, fail_on_findings, note
from txnscan.cli.given import Given, takes
from txnscan.cli.offline import PATHS, show_logged
from txnscan.cli.options import (
    OFFLINE_LATE_AFTER,
    QUESTION_TIMEOUT,
    FailOnOption,
    FilesOptions,
    Format,
    RowFormat,
    RowsFormat,
)
from txnscan.config import ConfigError, ScanConfig, check_number
from txnscan.config.settings import BOOTSTRAP_SERVER, COMMAND_CONFIG
from txnscan.kafka.failure import Unobserved
from txnscan.kafka.units import LONG_MAX, SHORT_MAX
from txnscan.report.findings import Findings
from txnscan.report.help import examples
from txnscan.report.rows import LineRows


@app.command(
    "transaction-log",
    cls=OneCommand,
    epilog=examples(
        "txnscan transaction-log --bootstrap-server localhost:9092 --transactional-id my-txn-id",
        "txnscan transaction-log --bootstrap-server localhost:9092 --producer-id 134132 --format json",
        "txnscan transaction-log /var/lib/kafka/data",
        "txnscan transaction-log /var/lib/kafka/data --transactional-id my-txn-id",
    ),
)
@takes(
    replace(BOOTSTRAP_SERVER, help="Ask these brokers, instead of files."),
    COMMAND_CONFIG,
    OFFLINE_LATE_AFTER,
    QUESTION_TIMEOUT,
)
def transaction_log(
    given: Given,
    *,
    paths: Annotated[list[str] | None, typer.Argument(metavar="PATH", help=PATHS, show_default=False)] = None,
    transactional_id: Annotated[
        list[str] | None,
        typer.Option("--transactional-id", metavar="ID", help="Every record of this id. May be repeated."),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option(
            "--producer-id", metavar="ID", help="Every record of ids that had this one. From brokers, may be repeated."
        ),
    ] = None,
    producer_epoch: Annotated[
        int | None,
        typer.Option(
            "--producer-epoch",
            metavar="NUMBER",
            min=0,
            max=SHORT_MAX,
            help="From files, with --producer-id: show what was decided about data at this epoch.",
        ),
    ] = None,
    files: FilesOptions,
    format: RowsFormat = RowFormat.TABLE,
    every: Annotated[bool, typer.Option("--all", help="From files, show ids at rest too.")] = False,
    fail_on: FailOnOption = None,
) -> None:
    """Show __transaction_state, record by record; steps that no coordinator takes are marked.

    From brokers: the records of ids or producer ids. Exit status: 0 if the log was read, 4 if only a part was, 1 if no
    part was, 2 if there is no such id. From files (PATH): also the latest state of each id. If directories of data
    partitions are among the files, their open transactions are judged too.
    """
    names, producer_ids = tuple(transactional_id or ()), tuple(producer_id or ())
    with errors_in_one_line():
        asks, late_after = given.text(BOOTSTRAP_SERVER) is not None, given.text(OFFLINE_LATE_AFTER)
        if bool(paths) == asks:
            raise ConfigError("--bootstrap-server", "give brokers to ask, or files to read as PATH: one of the two")
        for one in producer_ids:
            check_number("--producer-id", one, LONG_MAX)
        if asks:
            if not names and not producer_ids:
                raise ConfigError("--transactional-id", "give an id, or a producer id with --producer-id")
            for option, value in (("--producer-epoch", producer_epoch), ("--late-after", late_after)):
                if value is not None and where_from(option) is None:
                    raise ConfigError(option, "is for files; leave it out with --bootstrap-server")
            config = given.config(late_after_ms=None)
            warn(config)
            errors, read = _live_log(config, names, producer_ids, format)
            say_errors(errors, format)
        else:
            if given.text(QUESTION_TIMEOUT) is not None:
                raise ConfigError("--timeout", "limits requests to brokers; leave it out with files")
            found = _of_files(
                paths or [],
                names,
                producer_ids,
                producer_epoch,
                late_after=late_after,
                files=files,
                format=format,
                every=every,
            )
    if asks:
        end_by(errors, read)
    else:
        fail_on_findings(Findings.of_object(found), fail_on)


def _of_files(
    paths: list[str],
    names: tuple[str, ...],
    producer_ids: tuple[int, ...],
    producer_epoch: int | None,
    *,
    late_after: str | None,
    files: FilesOptions,
    format: RowFormat,
    every: bool,
) -> dict[str, Any]:
    if format is RowFormat.CSV:
        raise ConfigError("--format", "csv is for what brokers are asked; use table or json with files")
    if len(producer_ids) > 1:
        raise ConfigError("--producer-id", "give one, where files are read")
    if producer_epoch is not None and not producer_ids:
        raise ConfigError("--producer-epoch", "is an epoch of --producer-id; name that, too")
    return show_logged(
        paths,
        names,
        (producer_ids[0], producer_epoch) if producer_ids else None,
        late_after=late_after,
        files=files,
        format=Format(format.value),
        every=every,
    )


def _live_log(
    config: ScanConfig, names: Collection[str], producer_ids: Collection[int], format: RowFormat
) -> tuple[list[dict[str, Any]], int]:
    """Prints the records. Gives what of the brokers' log could not be read, and how many of its partitions were."""
    from txnscan.coordinators.cluster import opened_cluster
    from txnscan.coordinators.streamed import streamed
    from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
    from txnscan.report.admin_output import STEPS, STEPS_TABLE, step_lines
    from txnscan.report.plain import error_object, step_row
    from txnscan.report.rows import headers
    from txnscan.sweeps.names import absent_id
    from txnscan.txnlog.expired import dated
    from txnscan.txnlog.timeline import timeline, to_read

    rows = rows_in(format, "records", STEPS, LineRows(step_lines, headers(STEPS_TABLE)))
    with opened_cluster(config) as cluster:
        wanted, failed = to_read(cluster.newest([TRANSACTION_STATE_TOPIC]), names, producer_ids)
        errors = [error_object(one, cluster.principal) for one in (*failed, *cluster.behind())]
        found = 0
        for one in streamed(
            lambda each: dated(
                cluster.send,
                each.partition,
                timeline(cluster.send, each.partition, names=each.names, producer_ids=producer_ids),
            ),
            wanted,
        ):
            if isinstance(one, Unobserved):
                errors.append(error_object(one, cluster.principal))
            else:
                found += 1
                rows.write([step_row(one)])
        # Only ids have names that may be misspelt; all of them must be without records.
        absent = None
        if names and not producer_ids and not found and not errors:
            absent = absent_id(cluster, next(iter(names))).error(cluster.format_failure)
    rows.end(errors)
    read = len(wanted) - sum(error["stage"] == "log" for error in errors)
    if absent is not None:
        raise absent
    if read and not found and not errors:
        note("the log holds nothing of it: it never was, or it expired and was compacted away")
    return errors, read
