"""The options of several commands, each declared once. `config/settings.py` declares the settings of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from txnscan.config import EngineName
from txnscan.config.settings import BOOTSTRAP_SERVER, LATE_AFTER, TABLES, TIMEOUT
from txnscan.kafka.units import INT_MAX
from txnscan.report.findings import FailOn


class Format(StrEnum):
    """The output format of a sweep."""

    TABLE = "table"
    JSON = "json"


class RowFormat(StrEnum):
    """The output format of rows."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class StateName(StrEnum):
    """The states of a transactional id that coordinators list."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


# Commands ask for the settings of `config/settings.py` in their own words.
SERVER = replace(BOOTSTRAP_SERVER, is_required=True)
ONE_SERVER = replace(BOOTSTRAP_SERVER, help="One cluster, without a file.")
# `deadline.QUESTION_MS`, as the option shows it.
QUESTION = "60s"
QUESTION_TIMEOUT = replace(
    TIMEOUT,
    help="Time limit of the requests, such as 20s. Data that was not read by then is reported as not observed. "
    f"Default: {QUESTION}.",
)
APPLY_TIMEOUT = replace(
    TIMEOUT,
    help="Time limit of all markers together, such as 30m. The remaining markers are refused then. A marker that "
    "was sent is read and reported after it. Default: none; each proof and each read has 5 minutes.",
)
OFFLINE_LATE_AFTER = replace(
    LATE_AFTER,
    help="Age from which a transaction is late, such as 20m, which is the default: the brokers' "
    "transaction.max.timeout.ms is in no file.",
)
OutputFormat = Annotated[Format, typer.Option("--format", metavar="table|json", help="Format of the output on stdout.")]
RowsFormat = Annotated[
    RowFormat, typer.Option("--format", metavar="table|json|csv", help="Format of the output on stdout.")
]
FailOnOption = Annotated[
    list[FailOn] | None,
    typer.Option(
        "--fail-on",
        metavar="proven|hanging|incomplete",
        help="proven: exit with 3 when a transaction hangs. hanging: only when it is late, too. Both also when one "
        "endangers a commit (joined_commit). incomplete: exit with 4 when not everything was observed. May be "
        "repeated.",
    ),
]
MaxAge = Annotated[
    str | None,
    typer.Option("--max-age", metavar="DURATION", help="Exit with 4 when the stored sweep began longer ago."),
]
Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        metavar="auto|spark|threads",
        help="Read on Spark's executors, or in threads of the driver. auto: on executors if there is a Spark "
        "session or a master, and they can connect to the brokers.",
    ),
]
SparkMaster = Annotated[str | None, typer.Option("--master", metavar="MASTER", help="Spark master; default local[*].")]
TablesLocation = Annotated[
    str,
    typer.Option(TABLES.option, metavar=TABLES.metavar, help=TABLES.help, show_default=False),
]
SweepId = Annotated[
    str | None,
    typer.Option("--sweep-id", metavar="ID", help="This sweep. Default: the last one of the whole cluster."),
]
ClusterId = Annotated[str | None, typer.Option("--cluster-id", metavar="ID", help="Only this cluster. Default: all.")]
MetricsFile = Annotated[
    Path | None,
    typer.Option(
        "--metrics-file",
        metavar="FILE",
        help="Also write the sweep as metrics, for node_exporter's textfile collector, which reads *.prom.",
    ),
]


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """How a command prints the transactions of a sweep."""

    format: OutputFormat = Format.TABLE
    every: Annotated[bool, typer.Option("--all", help="Show healthy transactions too.")] = False
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Explain each transaction, instead of a table for each event.")
    ] = False


@dataclass(frozen=True, slots=True)
class FilesOptions:
    """How a command reads files of brokers, and what the user asserts about them."""

    check_crc: Annotated[bool, typer.Option("--check-crc", help="Check the checksum of every batch.")] = False
    stopped: Annotated[
        bool,
        typer.Option(
            "--stopped",
            help="Assert that these are the files of all brokers, and that all brokers were stopped when they were "
            "copied.",
        ),
    ] = False
    log_partitions: Annotated[
        int | None,
        typer.Option(
            "--transaction-log-partitions",
            metavar="NUMBER",
            min=1,
            max=INT_MAX,
            help="The number of partitions of __transaction_state (transaction.state.log.num.partitions), if no "
            "__cluster_metadata is among the files.",
        ),
    ] = None
