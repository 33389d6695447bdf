"""The command line: parse, call, exit status.

Each module holds a group of commands. `config/settings.py` declares the settings of a cluster, and `options` the other
options of several commands.
`ExitStatus` has the exit statuses. A sweep whose result could not be stored ends with FAILED, or with HANGING if
--fail-on hanging applies, because a hanging transaction needs action. A line on stderr then reports the failed write.
JSON goes to stdout alone; progress, warnings and errors go to stderr. If a reader closes stdout (`| head -1`), the
status does not change. A stdout that cannot be written (a full disk) is a failure.
"""

from __future__ import annotations

import errno
import io
import os
import sys

# Importing a module declares its commands; `report/help.py` has their order.
from txnscan.cli import sweep, find_hanging, explain, gate, check, watch, mcp, admin, tables, resolve, abort, offline
from txnscan.cli import transaction_log, config, prepare, capacity, demo
from txnscan.cli.app import app as commands
from txnscan.cli.errors import complain
from txnscan.cli.logs import silence
from txnscan.errors import ExitStatus
from txnscan.report.output import discard_stdout

__all__ = ["main"]

# The errors of a write where there is no room.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main(arguments: list[str] | None = None) -> None:
    """The `txnscan` command, with the arguments of the command line or these."""
    silence()
    # A name from outside that this terminal has no characters for is escaped.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        commands(arguments, prog_name="txnscan")
    except OSError as error:
        if error.errno not in _FULL:
            raise
        # Help and version are printed by the library.
        discard_stdout()
        complain(f"txnscan: stdout cannot be written: {os.strerror(error.errno).lower()}")
        sys.exit(ExitStatus.FAILED)
    except SystemExit as ended:
        if ended.code == ExitStatus.INTERRUPTED:
            # Threads that still wait for an answer, and Spark, end with this process.
            sys.stderr.flush()
            os._exit(ExitStatus.INTERRUPTED)
        raise
