"""`explain`: from a symptom to its cause, read-only."""

from __future__ import annotations

from typing import Annotated

import typer

from txnscan.cli.app import app, progress_bar, warn, write_json
from txnscan.cli.command import OneCommand
from txnscan.cli.errors import errors_in_one_line
from txnscan.cli.options import (
    CommandConfig,
    Format,
    LateAfter,
    OutputFormat,
    QuestionTimeout,
)
from txnscan.config import ScanConfig, parse_optional_duration_ms
from txnscan.errors import ExitStatus
from txnscan.report.help import examples


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan explain --bootstrap-server localhost:9092 --group billing",
        "txnscan explain --bootstrap-server localhost:9092 --topic orders --partition 3",
        "txnscan explain --bootstrap-server localhost:9092 --transactional-id my-txn-id --error PRODUCER_FENCED",
    ),
)
def explain(
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            metavar="HOST:PORT[,...]",
            help="Brokers to start from. --error alone is answered without brokers too, as far as its text shows.",
        ),
    ] = None,
    command_config: CommandConfig = None,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="GROUP", help="A consumer group that makes no progress, or has lag."),
    ] = None,
    spark_checkpoint: Annotated[
        str | None,
        typer.Option(
            "--spark-checkpoint",
            metavar="PATH",
            help="checkpointLocation of a Spark streaming query that gets no data.",
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="NAME", help="A topic whose readers or compaction make no progress."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", metavar="NUMBER", min=0, help="Only this partition of --topic.")
    ] = None,
    transactional_id: Annotated[
        str | None, typer.Option("--transactional-id", metavar="ID", help="A transactional id that makes no progress.")
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", metavar="ID", help="A producer id, as logs and brokers show it.")
    ] = None,
    error: Annotated[
        str | None,
        typer.Option(
            "--error",
            metavar="TEXT",
            help="Lines of a client's or a broker's log. Alone, or beside --transactional-id or --producer-id.",
        ),
    ] = None,
    late_after: LateAfter = None,
    timeout: QuestionTimeout = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Explain a symptom: a stuck group or query, a topic, an id or an error in a log. Read-only.

    Give one of --group, --spark-checkpoint, --topic, --transactional-id, --producer-id and --error. The answer is a
    sentence, the evidence, and the next command. A hanging transaction is proven by a sweep of these partitions.

    Exit status: 0 when the cause is explained, 4 when it could not be observed or the error is not known, 1 when no
    broker answers, 2 when the options are no symptom.
    """
    with errors_in_one_line():
        from txnscan.api import explain_symptom
        from txnscan.explain.cause import CauseCode
        from txnscan.explain.symptom import symptom
        from txnscan.report.explain import explained_object, print_explained

        asked = symptom(
            group=group,
            topic=topic,
            partition=partition,
            transactional_id=transactional_id,
            producer_id=producer_id,
            error=error,
            spark_checkpoint=spark_checkpoint,
        )
        config = None
        if bootstrap_server is not None:
            config = ScanConfig(
                bootstrap_server,
                command_config=command_config,
                late_after_ms=parse_optional_duration_ms(late_after, "--late-after"),
                timeout_ms=parse_optional_duration_ms(timeout, "--timeout"),
                engine="threads",
                topic_names=() if asked.topic is None else (asked.topic,),
            )
            warn(config)
        with progress_bar() as progress:
            cause = explain_symptom(config, asked, progress=progress)
        if format is Format.JSON:
            write_json(explained_object(cause))
        else:
            print_explained(cause)
    if cause.code in (CauseCode.NOT_OBSERVED, CauseCode.UNRECOGNISED):
        raise typer.Exit(ExitStatus.INCOMPLETE)
