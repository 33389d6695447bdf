"""How a command ends: errors in one line, Ctrl-C, and the exit status."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import typer

from txnscan.cli.command import where_from
from txnscan.cli.logs import stderr_lines
from txnscan.config import printable
from txnscan.errors import ExitStatus, TxnscanError
from txnscan.report.findings import FailOn, Findings

# Messages of the operating system and of Python.
_OPTION = re.compile(r"(--[a-z-]+): ")
_NO_MEMORY = re.compile("Cannot allocate memory|failed to map segment|can't start new thread").search


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Every failure that a user can do something about is one line on stderr."""
    with _interruptible() as interrupted:
        try:
            yield
            if interrupted:
                # The interrupted code has swallowed the KeyboardInterrupt.
                raise KeyboardInterrupt
        except TxnscanError as error:
            fail(_by_source(error.sentence), error.exit_status)
        except KeyboardInterrupt:
            fail("interrupted", ExitStatus.INTERRUPTED)
        except Exception as error:
            # Work that is torn down by Ctrl-C may fail with an error of its own.
            if interrupted:
                fail("interrupted", ExitStatus.INTERRUPTED)
            lacking = _lacking(error)
            if lacking is not None:
                fail(lacking, ExitStatus.FAILED)
            from txnscan.engine.spark.errors import in_one_line, is_of_spark

            if not is_of_spark(error):
                raise
            fail(in_one_line(error), ExitStatus.FAILED)


def _by_source(message: str) -> str:
    """The message about an option. If its value is from a variable or a file, that has the place of the option."""
    option = _OPTION.match(message)
    source = where_from(option[1]) if option is not None else None
    return message if source is None or option is None else f"{source}: {message[option.end() :]}"


def _lacking(error: Exception) -> str | None:
    """The resource that this machine lacks, with advice, for errors that show it."""
    said = str(error)
    if isinstance(error, MemoryError) or (isinstance(error, OSError | RuntimeError | ImportError) and _NO_MEMORY(said)):
        return (
            "there is too little memory, or a limit on memory or threads; raise ulimit -v, ulimit -u or the container's"
        )
    if isinstance(error, RuntimeError) and "home directory" in said:
        return "this user has no home directory; set HOME, or write paths without ~"
    if isinstance(error, FileNotFoundError) and "temporary directory" in said:
        return "there is no directory for temporary files; set TMPDIR to one that this user can write"
    return None


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """In here the first Ctrl-C raises KeyboardInterrupt, and the second ends the process; afterwards the former handler
    is back. Gives a list that is empty until the first.
    """
    happened: list[int] = []

    def interrupt(number: int, _: object) -> None:
        if happened:
            os._exit(ExitStatus.INTERRUPTED)
        happened.append(number)
        raise KeyboardInterrupt

    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored or threading.current_thread() is not threading.main_thread():
        yield happened
        return
    former = signal.signal(signal.SIGINT, interrupt)
    try:
        yield happened
    finally:
        signal.signal(signal.SIGINT, former)


def fail_on_findings(findings: Findings, fail_on: list[FailOn] | None) -> None:
    """Ends the command with the status of `--fail-on`, unless that is 0."""
    status = findings.status(fail_on or [])
    if status:
        raise typer.Exit(status)


def fail(message: str, status: int) -> NoReturn:
    """Ends the command with this line on stderr."""
    complain(f"txnscan: {message}")
    raise typer.Exit(status)


def complain_of(errors: Iterable[Mapping[str, Any]]) -> None:
    """A line on stderr for each sentence among these errors of an object."""
    from txnscan.report.plain import error_lines

    for line, _ in error_lines(errors):
        complain(f"txnscan: {printable(line)}")


def note(sentence: str) -> None:
    """A line on stderr that is for information."""
    complain(f"note: {sentence}")


def complain(message: str) -> None:
    """A line on stderr."""
    # If stderr cannot be written, the exit status remains.
    with suppress(OSError):
        typer.echo(stderr_lines.line(message), err=True)
