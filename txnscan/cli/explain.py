"""`explain`: from a symptom to its cause, read-only."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from txnscan.cli.app import app, progress_bar, warn, write_json
from txnscan.cli.command import OneCommand
from txnscan.cli.errors import errors_in_one_line
from txnscan.cli.given import Given, takes
from txnscan.cli.options import QUESTION_TIMEOUT, Format, OutputFormat
from txnscan.config.settings import BOOTSTRAP_SERVER, COMMAND_CONFIG, LATE_AFTER
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
@takes(
    replace(
        BOOTSTRAP_SERVER,
        help="Brokers to start from. --error alone is answered without brokers too, as far as its text shows.",
    ),
    COMMAND_CONFIG,
    LATE_AFTER,
    QUESTION_TIMEOUT,
)
def explain(
    given: Given,
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
        int | None, typer.Option("--partition", metavar="NUMBER", help="Only this partition of --topic.")
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
        if given.text(BOOTSTRAP_SERVER) is not None:
            config = given.config(engine="threads", topic_names=() if asked.topic is None else (asked.topic,))
            warn(config)
        with progress_bar() as progress:
            cause = explain_symptom(config, asked, progress=progress)
        if format is Format.JSON:
            write_json(explained_object(cause))
        else:
            print_explained(cause)
    if cause.code in (CauseCode.NOT_OBSERVED, CauseCode.UNRECOGNISED):
        raise typer.Exit(ExitStatus.INCOMPLETE)
