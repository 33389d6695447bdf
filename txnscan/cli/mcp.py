"""`mcp`: answer an assistant, read-only."""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import replace
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from txnscan.cli.app import app, progress_bar, spark_for, started_spark, warn
from txnscan.cli.command import OneCommand
from txnscan.cli.errors import complain, errors_in_one_line, note
from txnscan.cli.given import Given, takes
from txnscan.cli.options import SERVER
from txnscan.config import ConfigError, Location, ScanConfig
from txnscan.config.settings import COMMAND_CONFIG, LATE_AFTER, OWNER_PATTERN, TABLES, TIMEOUT
from txnscan.errors import ExitStatus
from txnscan.report.help import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnscan.mcp.tools import Source
    from txnscan.tables.tables import Tables


@app.command(
    cls=OneCommand,
    epilog=examples(
        "txnscan mcp --bootstrap-server localhost:9092",
        "txnscan mcp --bootstrap-server localhost:9092 --command-config client.properties --tables /data/txnscan",
    ),
)
@takes(
    SERVER,
    COMMAND_CONFIG,
    replace(TABLES, help="Also answer from these Delta tables: history, plan."),
    LATE_AFTER,
    replace(
        TIMEOUT,
        help="Time limit of the requests of an answer. What was not read by then is reported as not observed.",
        default="50s",
    ),
    OWNER_PATTERN,
)
def mcp(given: Given) -> None:
    """Answer an assistant over the Model Context Protocol, on stdin and stdout. Read-only: it can resolve nothing.

    An MCP client starts this command. Ends with 0 when the client closes stdin.
    """
    with errors_in_one_line():
        if find_spec("mcp") is None:
            raise ConfigError("mcp", "needs the MCP SDK; install txnscan[mcp]")
        config = given.config(engine="threads")
        warn(config)
        if sys.stdin.isatty():
            note("this speaks the Model Context Protocol on stdin and stdout; let an MCP client start it")
        import anyio

        from txnscan.mcp.server import serve

        _end_at_once_on_ctrl_c()
        try:
            anyio.run(serve, _source(config))
        except* BrokenPipeError:
            # The client is gone.
            pass
        # Calls under way end with this process.
        sys.stderr.flush()
        os._exit(ExitStatus.DONE)


def _source(config: ScanConfig) -> Source:
    from txnscan.mcp.tools import Source

    opening = threading.Lock()

    @cache
    def session_for(tables: Location) -> SparkSession | None:
        with progress_bar() as progress:
            return spark_for(tables, None, progress)

    def spark() -> SparkSession:
        with opening, progress_bar() as progress:
            return started_spark(None, progress)

    def opened(location: Location) -> Tables:
        from txnscan.tables.open import open_tables

        with opening:
            return open_tables(location, session_for(location))

    return Source(config, spark, None if config.location is None else partial(opened, config.location))


def _end_at_once_on_ctrl_c() -> None:
    """Otherwise the thread that waits for stdin would go on."""

    def end(*_: object) -> None:
        complain("txnscan: interrupted")
        os._exit(ExitStatus.INTERRUPTED)

    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, end)
