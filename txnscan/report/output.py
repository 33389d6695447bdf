"""stdout, as a command writes to it. No error of stdout prints a stack trace.

A reader that closes the pipe (`| head -1`) is no failure: the rest is not written, and the command goes on to its own
exit status. A full disk is a failure: a part of an answer must not look like a whole answer.
"""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING, Any, cast

from txnscan.errors import TxnscanError, system_reason

if TYPE_CHECKING:
    from rich.console import Console


class OutputFailed(TxnscanError):
    """stdout cannot be written; the message gives the reason in one sentence."""


class _Stdout:
    """sys.stdout, as it is when it is written to. Raises OutputFailed, and ignores a closed pipe."""

    def write(self, text: str) -> int:
        return cast(int, self._do("write", text) or len(text))

    def flush(self) -> None:
        self._do("flush")

    def _do(self, what: str, *arguments: Any) -> Any:
        if sys.stdout is None:
            raise OutputFailed("stdout is closed")
        try:
            return getattr(sys.stdout, what)(*arguments)
        except BrokenPipeError:
            discard_stdout()
            return None
        except OSError as error:
            discard_stdout()
            raise OutputFailed(f"stdout cannot be written: {system_reason(error).lower()}") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stdout, name)


def stdout_console() -> Console:
    """The console for output to people."""
    # Not every command needs it, and loading it takes as long as many a command takes to answer.
    from rich.console import Console

    return Console(file=cast(IO[str], _Stdout()), highlight=False)


def write_line(text: str, end: str = "\n") -> None:
    """A line, or several, to stdout, at once. Raises OutputFailed."""
    stdout = _Stdout()
    stdout.write(f"{text}{end}")
    stdout.flush()


def discard_stdout() -> None:
    """Discards later output, and the output in Python's buffers."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        # Not a file, as in tests and notebooks.
        pass
    finally:
        os.close(nowhere)
