"""`abort`, `force-terminate`: the expert's commands. Each shows what it is about to do, and asks."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from txnscan.cli.app import WATCH_APPLY, app, progress_bar, reported_so_far, spark_for, warn, write_json
from txnscan.cli.command import OneCommand
from txnscan.cli.errors import complain, errors_in_one_line, note
from txnscan.cli.given import Given, takes
from txnscan.cli.options import SERVER, Format, OutputFormat, SparkMaster
from txnscan.config import ConfigError, ScanConfig, check_number, printable
from txnscan.config.settings import COMMAND_CONFIG, TABLES
from txnscan.errors import ExitStatus
from txnscan.kafka.units import INT_MAX, LONG_MAX, SHORT_MAX
from txnscan.report.help import examples
from txnscan.report.output import stdout_console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnscan.report.progress import TerminalProgress
    from txnscan.resolve.abort import NamedTransaction
    from txnscan.resolve.apply import Result
    from txnscan.resolve.brokers import LiveBrokers

_NOT_JOURNALED = "without --tables nothing of this is journaled, and what earlier sweeps know of it does not count"

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask. Needed where there is no terminal to ask at.")]
Force = Annotated[
    str | None,
    typer.Option("--force", metavar="REASON", help="Do what is refused otherwise, for this reason. It is journaled."),
]
JOURNAL_TABLES = replace(TABLES, help="Tables of sweeps: keep the journal and the lock of apply there.")


@dataclass(frozen=True, slots=True)
class TransactionOptions:
    """The transaction to abort, by its start offset or by its producer."""

    topic: Annotated[str, typer.Option("--topic", metavar="NAME", help="The topic.", show_default=False)]
    partition: Annotated[int, typer.Option("--partition", metavar="NUMBER", help="The partition.", show_default=False)]
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", metavar="OFFSET", help="Offset of the first record of the transaction."),
    ] = None
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", metavar="ID", help="Its producer, in the place of --start-offset.")
    ] = None
    producer_epoch: Annotated[
        int | None, typer.Option("--producer-epoch", metavar="EPOCH", help="With --producer-id.")
    ] = None
    coordinator_epoch: Annotated[
        int | None, typer.Option("--coordinator-epoch", metavar="EPOCH", help="With --producer-id.")
    ] = None

    def checked(self) -> NamedTransaction:
        """The transaction. Raises ConfigError if options are missing, contradict each other or are out of range."""
        from txnscan.resolve.abort import NamedTransaction

        by_producer = (self.producer_id, self.producer_epoch, self.coordinator_epoch)
        if self.start_offset is None and by_producer == (None, None, None):
            raise ConfigError(
                "--start-offset",
                "is needed, or --producer-id, --producer-epoch and --coordinator-epoch for old brokers",
            )
        if self.start_offset is not None and by_producer != (None, None, None):
            raise ConfigError("--start-offset", "says which transaction; leave out --producer-id and the epochs")
        if self.start_offset is None:
            for option, value in zip(
                ("--producer-id", "--producer-epoch", "--coordinator-epoch"), by_producer, strict=True
            ):
                if value is None:
                    raise ConfigError(option, "is needed without --start-offset")
        for option, value, least, most in (
            ("--partition", self.partition, 0, INT_MAX),
            ("--start-offset", self.start_offset, 0, LONG_MAX),
            ("--producer-id", self.producer_id, 0, LONG_MAX),
            ("--producer-epoch", self.producer_epoch, 0, SHORT_MAX),
            ("--coordinator-epoch", self.coordinator_epoch, -1, INT_MAX),
        ):
            if value is not None:
                check_number(option, value, most, least=least)
        return NamedTransaction(**asdict(self))


def _agreed(question: str, yes: bool) -> None:
    """Returns when the user agrees, and ends the command when not. Raises ConfigError where there is no terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("--yes", "is needed where there is no terminal to ask at; nothing was sent")
    typer.echo(f"{question} Type yes to go on: ", nl=False, err=True)
    if sys.stdin.readline().strip() != "yes":
        complain("txnscan: nothing was sent")
        raise typer.Exit(ExitStatus.REFUSED)


def _reason(force: str | None) -> str | None:
    if force is not None and not force.strip():
        raise ConfigError("--force", "is empty; say why, for the journal")
    return None if force is None else printable(force.strip())


def _spark(config: ScanConfig, master: str | None, progress: TerminalProgress) -> SparkSession | None:
    """A session where the tables need one."""
    return None if config.location is None else spark_for(config.location, master, progress)


def _note_journal(config: ScanConfig) -> None:
    if config.tables is None:
        note(_NOT_JOURNALED)


def _status(result: Result) -> None:
    from txnscan.resolve.apply import DONE, Status

    if result.status in DONE:
        return
    raise typer.Exit(ExitStatus.REFUSED if result.status is Status.REFUSED else ExitStatus.PARTLY_DONE)


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan abort --bootstrap-server localhost:9092 --topic orders --partition 0 --start-offset 550",
        "txnscan abort --bootstrap-server localhost:9092 --topic orders --partition 0 --producer-id 134132 "
        "--producer-epoch 23 --coordinator-epoch 15",
    ),
)
@takes(SERVER, COMMAND_CONFIG, JOURNAL_TABLES)
def abort(
    given: Given,
    *,
    transaction: TransactionOptions,
    yes: Yes = False,
    accept_unknown_outcome: Annotated[
        bool, typer.Option("--accept-unknown-outcome", help="Also where nothing shows a commit or an abort.")
    ] = False,
    force: Force = None,
    master: SparkMaster = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Abort one open transaction on one partition, after the proof of a sweep: shows verdict and outcome, and asks.

    Partition-scoped: one marker, for this partition alone. A transaction that committed, committed in part, may have
    committed, is alive or is not proven to hang is refused without --force. Exit status: 0 done, 1 no such transaction,
    2 usage, 5 sent and not known to be done, 6 refused, 7 another apply is under way.
    """
    with errors_in_one_line():
        from txnscan.resolve.abort import ReadAnyway
        from txnscan.resolve.brokers import LiveBrokers
        from txnscan.resolve.run import opened

        target = transaction.checked()
        forced = _reason(force)
        config = given.config(engine="threads", topic_names=(target.topic,), partitions=(target.partition,))
        warn(config)
        with progress_bar() as progress:
            spark = _spark(config, master, progress)
            brokers = LiveBrokers(config, ReadAnyway(target.topic, target.partition, opened(spark, config)))
            result = _abort(config, target, brokers, progress, forced, accept_unknown_outcome, yes, spark, format)
    _status(result)


def _abort(
    config: ScanConfig,
    target: NamedTransaction,
    brokers: LiveBrokers,
    progress: TerminalProgress,
    forced: str | None,
    accept_unknown: bool,
    yes: bool,
    spark: SparkSession | None,
    format: Format,
) -> Result:
    from txnscan.kafka.clock import wall_clock_ms
    from txnscan.report.json import scan_object
    from txnscan.report.paragraphs import print_one
    from txnscan.report.resolution import LiveReport, applied_object
    from txnscan.resolve import abort as expert
    from txnscan.resolve.run import abort_now

    progress("prove", 0, 1)
    found = brokers.proven(target.topic, target.partition)
    console = stdout_console() if format is Format.TABLE else None
    unread = expert.cannot_be_asked(found)
    if unread is not None:
        if forced is None or target.producer_id is None:
            raise expert.AbortRefused("abort", expert.unread_needs(unread))
        brokers = expert.BrokersWithoutDescribeProducers(brokers)
        action = expert.unread_action(target, found.cluster_id)
        _note_journal(config)
        why_not: str | None = unread
    else:
        judged = expert.target_in(target, found)
        _note_journal(config)
        action = expert.action_for(found.cluster_id, judged)
        why_not = expert.refusal(judged, accept_unknown)
        if console is not None:
            with progress.paused():
                print_one(console, scan_object(expert.only(found, judged)))
    if why_not is not None and forced is None:
        raise expert.AbortRefused("abort", f"{printable(action.topic_partition)}: {why_not}")
    with progress.paused():
        if why_not is not None:
            note(f"forced ({forced}): {why_not}")
        _agreed(expert.question(action), yes)
    plan = expert.plan_of(action, found, wall_clock_ms())
    report = LiveReport(1, progress, console)
    with reported_so_far(report, progress, console, executed=True):
        applied = abort_now(
            spark,
            config,
            plan,
            brokers,
            forced=forced if why_not is not None else None,
            on_step=report.on_step,
            on_result=report.on_result,
            on_settled=report.on_settled,
            on_wait=partial(progress, WATCH_APPLY),
        )
    if console is None:
        write_json(applied_object(applied))
    return applied.results[0]


@app.command(
    "force-terminate",
    cls=OneCommand,
    epilog=examples(
        "txnscan force-terminate --bootstrap-server localhost:9092 --transactional-id my-txn-id",
        "txnscan forceTerminateTransaction --bootstrap-server localhost:9092 --transactionalId my-txn-id",
    ),
)
@takes(SERVER, COMMAND_CONFIG, JOURNAL_TABLES)
def force_terminate(
    given: Given,
    transactional_id: Annotated[
        str,
        typer.Option("--transactional-id", "--transactionalId", metavar="ID", help="The id.", show_default=False),
    ],
    yes: Yes = False,
    force: Force = None,
    master: SparkMaster = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Fence a transactional id and end its whole transaction, with an abort: shows it, and asks.

    Coordinator-scoped: it aborts what the id has open on all partitions, and a live producer of the id fails. A
    hanging transaction is known to no coordinator and stays open: sweep again. Kafka's tool calls it
    forceTerminateTransaction. Exit status: 0 done, 1 failed, 2 usage or no such id, 4 not observed whether there is
    one, 5 not known to be done, 6 refused, 7 another apply is under way.
    """
    with errors_in_one_line():
        from txnscan.kafka.clock import wall_clock_ms
        from txnscan.kafka.errors import RequestFailed
        from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
        from txnscan.report.admin_output import described_lines, described_row
        from txnscan.report.output import write_line
        from txnscan.report.resolution import print_fenced, result_object
        from txnscan.resolve import terminate as fencing
        from txnscan.resolve.brokers import LiveBrokers
        from txnscan.resolve.run import terminate_now

        if not transactional_id:
            raise ConfigError("--transactional-id", "is empty; give an id")
        forced = _reason(force)
        config = given.config(engine="threads")
        warn(config)
        brokers = LiveBrokers(config)
        with progress_bar() as progress:
            cluster_id = brokers.cluster_id()
            try:
                before = brokers.describe(transactional_id)
            except RequestFailed as failed:
                raise brokers.absent(transactional_id) or fencing.Undescribed(failed.error) from None
            k = before.coordinator_partition
            epoch = -1 if k is None else brokers.leader_epoch_of(TRANSACTION_STATE_TOPIC, k)
            why_not = fencing.refusal(before, brokers.looked_at(fencing.aborted_keys(before)))
            with progress.paused():
                if format is Format.TABLE:
                    write_line("\n".join(described_lines(described_row(before))))
                for sentence in fencing.warnings(before):
                    note(sentence)
                if why_not is not None and forced is None:
                    raise fencing.TerminateRefused("force-terminate", f"'{printable(transactional_id)}': {why_not}")
                if why_not is not None:
                    note(f"forced ({forced}): {why_not}")
                _agreed(f"Fence '{printable(transactional_id)}'?", yes)
            _note_journal(config)
            spark = _spark(config, master, progress)
            action = fencing.action_for(before, epoch)
            plan = fencing.plan_of(action, cluster_id, wall_clock_ms())
            on_wait = partial(progress, WATCH_APPLY)
            done = terminate_now(spark, config, plan, before, brokers, forced=forced, on_wait=on_wait)
        if format is Format.TABLE:
            print_fenced(stdout_console(), done.result)
        else:
            write_json({"executed": True, "results": [result_object(done.result)], "settled": []})
    _status(done.result)


# As Kafka's tool calls it (KAFKA-19003).
app.command("forceTerminateTransaction", cls=OneCommand, hidden=True)(force_terminate)
