"""`find-hanging`: a sweep without Spark and tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from txnscan.cli.app import app, check_metrics_file, note_at_terminal, print_scan, progress_bar, warn, write_metrics
from txnscan.cli.command import OneCommand, cluster_name
from txnscan.cli.errors import errors_in_one_line, fail_on_findings
from txnscan.cli.given import Given, takes
from txnscan.cli.options import SERVER, FailOnOption, Format, MetricsFile, OutputOptions
from txnscan.config import ConfigError, check_number
from txnscan.config.settings import BLOCKING_AFTER, COMMAND_CONFIG, LATE_AFTER, OWNER_PATTERN, SPARK_CHECKPOINT, TIMEOUT
from txnscan.kafka.units import INT_MAX, plural
from txnscan.report.findings import Findings
from txnscan.report.help import examples
from txnscan.report.output import stdout_console

if TYPE_CHECKING:
    from txnscan.verdict.evidence import Judged


@app.command(
    "find-hanging",
    cls=OneCommand,
    epilog=examples(
        "txnscan find-hanging --bootstrap-server localhost:9092",
        "txnscan find-hanging --bootstrap-server localhost:9092 --topic orders --partition 3 --all",
        "txnscan find-hanging --bootstrap-server localhost:9092 --format json --fail-on hanging --fail-on incomplete",
    ),
)
@takes(SERVER, COMMAND_CONFIG, LATE_AFTER, BLOCKING_AFTER, TIMEOUT, OWNER_PATTERN, SPARK_CHECKPOINT)
def find_hanging(
    given: Given,
    *,
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
    output: OutputOptions,
    metrics_file: MetricsFile = None,
    fail_on: FailOnOption = None,
) -> None:
    """Find hanging transactions with the same proof, without Spark, Java or tables."""
    with errors_in_one_line():
        fields: dict[str, Any] = {}
        if max_transaction_timeout is not None:
            if given.text(LATE_AFTER) is not None:
                raise ConfigError("--max-transaction-timeout", "is the same as --late-after; give one of them")
            # Kafka's own tool takes an int.
            check_number("--max-transaction-timeout", max_transaction_timeout, INT_MAX, least=1)
            fields["late_after_ms"] = max_transaction_timeout * 60_000
        config = given.config(
            engine="threads",
            broker_ids=tuple(broker_id or ()),
            topic_names=tuple(topic or ()),
            partitions=tuple(partition or ()),
            **fields,
        )
        warn(config)
        check_metrics_file(metrics_file)
        from txnscan.api import find_hanging as run_find_hanging
        from txnscan.report.paragraphs import print_line

        with progress_bar() as progress:
            found = run_find_hanging(config, progress=progress)
        write_metrics(metrics_file, {cluster_name(config): found})
        print_scan(found, output)
        findings = Findings.of(found)
        if output.format is Format.TABLE and (exits := findings.sentence()) is not None:
            # After paragraphs, it is one of its own.
            print_line(stdout_console(), f"\n{exits}" if output.verbose else exits)
        if ageless := _without_age(found.transactions):
            note_at_terminal(
                f"{plural(ageless, 'hanging transaction')} cannot become late here: record timestamps give no age, and "
                "find-hanging does not remember earlier runs; use sweep --tables, or watch"
            )
    fail_on_findings(findings, fail_on)


def _without_age(transactions: Iterable[Judged]) -> int:
    """The number of hanging transactions whose age counts from this run (`predicates.age_ms`): their record timestamps
    are missing, or ahead of the clock.
    """
    return sum(
        one.judgement.verdict == "hanging"
        and not one.judgement.late
        and not 0 < one.observation.last_timestamp_ms < one.observation.first_seen_ms
        for one in transactions
    )
