"""`segments`: what a broker's disk holds, read without brokers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from txnscan.cli.app import app, progress_bar, started_spark, write_json
from txnscan.cli.command import OneCommand
from txnscan.cli.errors import complain, errors_in_one_line, fail_on_findings
from txnscan.cli.given import Given, takes
from txnscan.cli.options import OFFLINE_LATE_AFTER, FailOnOption, FilesOptions, Format, OutputFormat
from txnscan.config import LATE_BUFFER_MS, ConfigError, parse_duration_ms
from txnscan.report.findings import Findings
from txnscan.report.help import examples
from txnscan.report.output import stdout_console

if TYPE_CHECKING:
    from txnscan.offline.paths import FileContents, Spread

# Kafka's default of `transaction.max.timeout.ms`: what the brokers have set is in no file of a data directory.
_MAX_TIMEOUT_MS = 900_000
PATHS = "Files, directories of partitions, or log directories of brokers."


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan segments /var/lib/kafka/data",
        "txnscan segments broker-1/data broker-2/data broker-3/data --format json",
        "txnscan segments my-topic-9/00000000000912375285.log",
        "txnscan segments /mnt/tarballs --master 'local[*]' --format json",
    ),
)
@takes(OFFLINE_LATE_AFTER)
def segments(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help=PATHS, show_default=False)],
    given: Given,
    *,
    files: FilesOptions,
    format: OutputFormat = Format.TABLE,
    every: Annotated[bool, typer.Option("--all", help="Show partitions in which nothing is open, too.")] = False,
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="MASTER",
            help="Read on the executors of this Spark master, such as local[*], which find the files at the same "
            "paths. Default: on this machine's cores.",
        ),
    ] = None,
    fail_on: FailOnOption = None,
) -> None:
    """Read log segments from disk: open transactions, the producers of a broker, and the ends of transactions.

    With the log directories of all brokers, verdicts and outcomes equal the results of a sweep. If files are missing,
    the verdict is indeterminate.
    """
    with errors_in_one_line():
        read = _read(paths, given.text(OFFLINE_LATE_AFTER), files, master=master)
        from txnscan.report.offline import print_segments, segments_object

        found = segments_object(read, _id())
        if format is Format.JSON:
            write_json(found)
            _warn(found)
        else:
            print_segments(stdout_console(), read, found, every=every)
    fail_on_findings(Findings.of_object(found), fail_on)


def show_logged(
    paths: Sequence[str],
    names: Sequence[str],
    producer: tuple[int, int | None] | None,
    *,
    late_after: str | None,
    files: FilesOptions,
    format: Format,
    every: bool,
) -> dict[str, Any]:
    """Prints what the files hold of `__transaction_state`, and gives it as an object. Raises ConfigError."""
    read = _read(paths, late_after, files, names, producer)
    from txnscan.report.offline import print_transaction_log, transaction_log_object

    _check_ids(read, names, producer[0] if producer is not None else None)
    found = transaction_log_object(read, _id())
    if format is Format.JSON:
        write_json(found)
        _warn(found)
    else:
        print_transaction_log(stdout_console(), read, found, every=every)
    return found


def _read(
    paths: Sequence[str],
    late_after: str | None,
    files: FilesOptions,
    names: Sequence[str] = (),
    producer: tuple[int, int | None] | None = None,
    master: str | None = None,
) -> FileContents:
    late_after_ms = (
        _MAX_TIMEOUT_MS + LATE_BUFFER_MS if late_after is None else parse_duration_ms(late_after, "--late-after")
    )
    from txnscan.offline.paths import read_paths

    # The progress library takes longer to load than most files take to read, and a pipe does not show progress.
    with progress_bar() if sys.stderr.isatty() or master is not None else nullcontext(_quiet) as progress:
        return read_paths(
            paths,
            late_after_ms=late_after_ms,
            vouched=files.stopped,
            log_partitions=files.log_partitions,
            check_crc=files.check_crc,
            names=names,
            producer=producer,
            progress=progress,
            spread=_on_spark(master, progress) if master is not None else None,
        )


def _on_spark(master: str, progress: Any) -> Spread:
    """The reader of replicas on executors. Raises SparkUnavailable."""
    spark = started_spark(master, progress)
    from txnscan.engine.spark.executors import spread_files
    from txnscan.engine.spark.nodes import send_packages

    send_packages(spark)
    return spread_files(spark, lambda done, total: progress("read files", done, total))


def _quiet(stage: str, done: int, total: int) -> None:
    pass


def _check_ids(read: FileContents, names: Sequence[str], producer_id: int | None) -> None:
    """Reports ids that are not in the files. Raises ConfigError if all are missing."""
    if producer_id is not None and not any(step.record.producer_id == producer_id for step in read.steps):
        raise ConfigError("--producer-id", f"no record with producer id {producer_id} is in these files")
    there = {step.record.transactional_id for step in read.steps}
    absent = [name for name in names if name not in there]
    if absent and len(absent) == len(names):
        raise ConfigError("--transactional-id", f"no record of '{absent[0]}' is in these files")
    for name in absent:
        complain(f"warning: no record of '{name}' is in these files")


def _warn(found: dict[str, Any]) -> None:
    for warning in found["sweep"]["warnings"]:
        complain(f"warning: {warning}")


def _id() -> str:
    import uuid

    return str(uuid.uuid4())
