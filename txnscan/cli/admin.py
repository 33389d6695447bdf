"""`list`, `describe`, `describe-producers`, `coordinator`: commands that only show answers of brokers."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from txnscan.cli.app import app, warn
from txnscan.cli.command import OneCommand
from txnscan.cli.errors import complain, complain_of, errors_in_one_line, note
from txnscan.cli.given import Given, takes
from txnscan.cli.options import QUESTION_TIMEOUT, SERVER, RowFormat, RowsFormat, StateName
from txnscan.config import ConfigError, ScanConfig, check_number, printable
from txnscan.config.settings import BOOTSTRAP_SERVER, COMMAND_CONFIG
from txnscan.errors import ExitStatus
from txnscan.kafka.failure import Unobserved
from txnscan.kafka.units import INT_MAX, LONG_MAX
from txnscan.report.help import examples
from txnscan.report.rows import CsvRows, JsonRows, LineRows, Rows, TableRows

if TYPE_CHECKING:
    from txnscan.coordinators.cluster import Cluster
    from txnscan.coordinators.transactions import Transaction
    from txnscan.sweeps.names import Absent


def say_errors(errors: Collection[Mapping[str, Any]], format: RowFormat) -> None:
    """Prints them on stderr; not with JSON, where the object has them."""
    if format is not RowFormat.JSON:
        complain_of(errors)


def end_by(errors: Collection[Mapping[str, Any]], shown: int) -> None:
    """Ends the command with a status other than 0 where something that was asked for could not be read."""
    if errors:
        raise typer.Exit(ExitStatus.INCOMPLETE if shown else ExitStatus.FAILED)


@app.command(
    "list",
    cls=OneCommand,
    epilog=examples(
        "txnscan list --bootstrap-server localhost:9092",
        "txnscan list --bootstrap-server localhost:9092 --duration-filter 900000 --transactional-id-pattern 'a.*'",
        "txnscan list --bootstrap-server localhost:9092 --state Ongoing --state PrepareCommit --format csv",
    ),
)
@takes(SERVER, COMMAND_CONFIG, QUESTION_TIMEOUT)
def list_transactions(
    given: Given,
    duration_filter: Annotated[
        int,
        typer.Option(
            "--duration-filter",
            metavar="MILLISECONDS",
            help="Only transactions that began longer ago, by their coordinator (Kafka 3.8). Below 0: all.",
            show_default=False,
        ),
    ] = -1,
    transactional_id_pattern: Annotated[
        str | None,
        typer.Option("--transactional-id-pattern", metavar="REGEX", help="Only ids that match as a whole (Kafka 4.1)."),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help=f"Only ids in this state: {', '.join(StateName)}. May be repeated.",
            autocompletion=lambda: list(StateName),
        ),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="ID", help="Only the id that has this producer id now. May be repeated."),
    ] = None,
    broker_id: Annotated[
        list[int] | None,
        typer.Option("--broker-id", metavar="ID", help="Only ids of this coordinator. May be repeated."),
    ] = None,
    format: RowsFormat = RowFormat.TABLE,
) -> None:
    """List the transactional ids of all coordinators, a line each, as they answer. Shows age and timeout too.

    Exit status: 0 if every broker answered, 4 if some did not, 1 if no broker did.
    """
    with errors_in_one_line():
        from txnscan.coordinators.cluster import opened_cluster
        from txnscan.kafka.clock import wall_clock_ms
        from txnscan.kafka.protocol.list_transactions import ListingFilter
        from txnscan.report.admin_output import LIST_TABLE, LISTED, write_listed
        from txnscan.sweeps.scope import chosen_brokers

        check_number("--duration-filter", duration_filter, LONG_MAX, least=-LONG_MAX)
        for one in producer_id or ():
            check_number("--producer-id", one, LONG_MAX)
        config = given.config(broker_ids=tuple(broker_id or ()))
        wanted = ListingFilter(
            states=tuple(_state(one) for one in state or ()),
            producer_ids=tuple(producer_id or ()),
            longer_than_ms=duration_filter,
            pattern=transactional_id_pattern or None,
        )
        warn(config)
        rows = rows_in(format, "transactions", LISTED, TableRows(LIST_TABLE))
        with opened_cluster(config) as cluster:
            brokers = chosen_brokers(cluster.newest([]), config.broker_ids)
            errors = write_listed(rows, cluster, brokers, wanted, wall_clock_ms)
            answered = len(brokers) - sum(one["stage"] == "list" for one in errors)
        say_errors(errors, format)
    end_by(errors, answered)


def _state(written: str) -> str:
    """A state as Kafka spells it, however it is written. Raises ConfigError."""
    named = {one.lower(): one.value for one in StateName}
    if written.lower() not in named:
        raise ConfigError("--state", f"'{printable(written)}' is no state; use {', '.join(named.values())}")
    return named[written.lower()]


def rows_in(format: RowFormat, name: str, columns: Collection[str], table: Rows) -> Rows:
    """Rows in this format. table: how they are written where it is a table."""
    if format is RowFormat.TABLE:
        return table
    return JsonRows(name) if format is RowFormat.JSON else CsvRows(tuple(columns))


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan describe --bootstrap-server localhost:9092 --transactional-id my-txn-id",
        "txnscan describe --bootstrap-server localhost:9092 --transactional-id a --transactional-id b --format json",
    ),
)
@takes(SERVER, COMMAND_CONFIG, QUESTION_TIMEOUT)
def describe(
    given: Given,
    transactional_id: Annotated[
        list[str],
        typer.Option(
            "--transactional-id", metavar="ID", help="A transactional id. May be repeated.", show_default=False
        ),
    ],
    format: RowsFormat = RowFormat.TABLE,
) -> None:
    """Describe the transaction of one or many ids: state, age, timeout, coordinator, and where its partitions stand.

    Exit status: 0 if every id was described, 2 if one does not exist, 4 if some were not described, 1 if no id was.
    """
    with errors_in_one_line():
        from txnscan.coordinators.cluster import opened_cluster
        from txnscan.kafka.clock import wall_clock_ms
        from txnscan.kafka.errors import ErrorCode
        from txnscan.report.admin_output import DESCRIBED, described_csv, described_lines, described_row, read_described

        config = given.config()
        if not all(transactional_id):
            raise ConfigError("--transactional-id", "is empty; give an id")
        warn(config)
        with opened_cluster(config) as cluster:
            found, errors = read_described(cluster, transactional_id, wall_clock_ms, time.sleep)
            unknown = [one for one in errors if one["code"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.name]
            # A usage error only if nothing else is wrong.
            absent = _absent_ids(cluster, transactional_id, found) if errors and len(unknown) == len(errors) else []
        shown = [described_row(one) for one in found]
        rows = rows_in(format, "transactions", DESCRIBED, LineRows(described_lines))
        rows.write(shown if format is not RowFormat.CSV else [described_csv(one) for one in shown])
        rows.end(errors)
        for one in absent:
            # It says what the errors say, with a similar name.
            complain(f"txnscan: {one.error(cluster.format_failure)}")
        say_errors(errors if not absent else (), format)
    if absent:
        raise typer.Exit(ExitStatus.USAGE)
    end_by(errors, len(found))


def _absent_ids(cluster: Cluster, wanted: Collection[str], found: Collection[Transaction]) -> list[Absent]:
    """The ids that do not exist, if that was observed."""
    from txnscan.sweeps.names import absent_id

    known = {one.transactional_id for one in found}
    absent = [absent_id(cluster, name) for name in dict.fromkeys(wanted) if name not in known]
    return absent if all(one.unseen is None for one in absent) else []


@app.command(
    "describe-producers",
    cls=OneCommand,
    epilog=examples(
        "txnscan describe-producers --bootstrap-server localhost:9092 --topic orders --partition 0",
        "txnscan describe-producers --bootstrap-server localhost:9092 --topic orders --open",
        "txnscan describe-producers --bootstrap-server localhost:9092 --broker-id 2 --topic orders --partition 0",
    ),
)
@takes(SERVER, COMMAND_CONFIG, QUESTION_TIMEOUT)
def describe_producers(
    given: Given,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="NAME", help="Only this topic. Default: all. May be repeated."),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", metavar="NUMBER", help="Only this partition of --topic. May be repeated."),
    ] = None,
    broker_id: Annotated[
        int | None,
        typer.Option("--broker-id", metavar="ID", help="Ask this replica. Default: the leader of each."),
    ] = None,
    only_open: Annotated[bool, typer.Option("--open", help="Only producers with an open transaction.")] = False,
    format: RowsFormat = RowFormat.TABLE,
) -> None:
    """Show the producers of a partition, a topic or everything; for open transactions, their owner and blocked records.

    For many partitions, the default of --timeout is 10 times the predicted time of a sweep of them, if that is longer.

    Exit status: 0 if every partition and its owners were read, 4 if some were not, 1 if no partition was.
    """
    with errors_in_one_line():
        from txnscan.coordinators.cluster import opened_cluster

        if broker_id is not None:
            check_number("--broker-id", broker_id, INT_MAX)
        config = given.config(topic_names=tuple(topic or ()), partitions=tuple(partition or ()))
        warn(config)
        with opened_cluster(config) as cluster:
            errors, answered = _show_producers(cluster, config, broker_id, only_open, format)
        say_errors(errors, format)
    end_by(errors, answered)


def _show_producers(
    cluster: Any, config: ScanConfig, broker_id: int | None, only_open: bool, format: RowFormat
) -> tuple[list[dict[str, Any]], int]:
    """Prints the producers. Gives what could not be read, and how many partitions were read."""
    from txnscan.coordinators.producers import read_producers
    from txnscan.kafka.client.deadline import longer_ms
    from txnscan.kafka.clock import wall_clock_ms
    from txnscan.report.admin_output import PRODUCERS, no_proof, producer_rows, producers_lines
    from txnscan.report.plain import error_object
    from txnscan.sweeps.capacity import longest_expected_s
    from txnscan.sweeps.scope import check_scope, chosen_brokers, in_scope

    view = cluster.newest(config.topic_names or None)
    topics = in_scope(config, view)
    check_scope(config, view, topics, cluster)
    chosen_brokers(view, () if broker_id is None else (broker_id,))
    cluster.deadline.allow(longer_ms(longest_expected_s(replace(view, topics=tuple(topics)))))
    rows = rows_in(format, "producers", PRODUCERS, LineRows(lambda group: producers_lines(group["rows"])))
    if broker_id is not None:
        note(no_proof(broker_id))
    errors: list[dict[str, Any]] = []
    answered, unowned = 0, False
    for one in read_producers(cluster, topics, view, broker_id):
        if isinstance(one, Unobserved):
            errors.append(error_object(one, cluster.principal))
            continue
        answered += 1
        unowned |= one.lacks_owner
        made = producer_rows(one, wall_clock_ms(), only_open=only_open)
        if made:
            rows.write([{"rows": made}] if format is RowFormat.TABLE else made)
    hidden = [
        cluster.hidden_topics(view.answered_by) if config.scope == "all" else None,
        cluster.hidden_ids(cluster.broker_ids) if unowned else None,
    ]
    errors += [error_object(Unobserved("plan", one), cluster.principal) for one in hidden if one is not None]
    rows.end(errors)
    return errors, answered


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan coordinator --bootstrap-server localhost:9092 --transactional-id my-txn-id",
        "txnscan coordinator --bootstrap-server localhost:9092 --group billing",
        "txnscan coordinator --partitions 50 --transactional-id my-txn-id",
    ),
)
@takes(BOOTSTRAP_SERVER, COMMAND_CONFIG, QUESTION_TIMEOUT)
def coordinator(
    given: Given,
    transactional_id: Annotated[
        list[str] | None,
        typer.Option("--transactional-id", metavar="ID", help="A transactional id. May be repeated."),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="GROUP", help="A consumer group. May be repeated.")
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            metavar="NUMBER",
            min=1,
            max=INT_MAX,
            help="Ask no broker: show the partition alone, of a topic with this many.",
        ),
    ] = None,
    format: RowsFormat = RowFormat.TABLE,
) -> None:
    """Show which partition and which broker serve a transactional id or a consumer group. Creates no topic.

    Exit status: 0 if all are known, 4 if some are not, 1 if all are unknown.
    """
    with errors_in_one_line():
        from txnscan.coordinators.cluster import opened_cluster
        from txnscan.coordinators.locate import coordinator_among, coordinator_of, topic_of
        from txnscan.report.admin_output import COORDINATORS, coordinator_lines, coordinator_row
        from txnscan.report.plain import error_object

        asks = given.text(BOOTSTRAP_SERVER) is not None
        if asks == (partitions is not None):
            raise ConfigError("--bootstrap-server", "give brokers to ask, or --partitions: one of the two")
        names = [("transactional_id", name) for name in transactional_id or ()]
        names += [("group", name) for name in group or ()]
        if not names or not all(name for _, name in names):
            raise ConfigError("--transactional-id", "give an id, or a group with --group")
        if not asks:
            behind: list[dict[str, Any]] = []
            shown = [coordinator_row(coordinator_among(kind, name, partitions or 1), None) for kind, name in names]
        else:
            config = given.config()
            warn(config)
            with opened_cluster(config) as cluster:
                topics = {topic_of(kind) for kind, _ in names}
                agreed = cluster.newest_leaders(topics)
                behind = [error_object(one, cluster.principal) for one in cluster.behind()]
            found = [coordinator_of(kind, name, agreed) for kind, name in names]
            shown = [
                coordinator_row(one, cluster.format_failure(one.failure) if one.failure else None) for one in found
            ]
        rows = rows_in(format, "coordinators", COORDINATORS, LineRows(coordinator_lines))
        rows.write(shown)
        rows.end(())
        say_errors(behind, format)
    known = sum(row["error"] is None for row in shown)
    if known < len(shown):
        raise typer.Exit(ExitStatus.INCOMPLETE if known else ExitStatus.FAILED)
