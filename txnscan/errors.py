"""The base class of every error that is reported to users, and the exit statuses of the commands; errors of the
operating system in words.
"""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """The exit status of a command, for schedulers.

    HANGING: with --fail-on hanging, the sweep has candidates. INCOMPLETE: with --fail-on incomplete, the sweep did not
    observe everything; from `check`, a sweep could not observe everything; with --max-age, the stored sweep is too old;
    from `gate`, a topic could not be observed; from `check --before-stop`, it is not known whether the brokers may
    stop. BLOCKED: from `gate`, a topic is not complete up to the time. UNSAFE: from `check --before-stop`, the stop
    would harm transactions. PARTLY_DONE: some actions of a plan are not done. REFUSED: a plan was refused as a whole.
    BUSY: another apply is running. INTERRUPTED: 128 + SIGINT.
    """

    DONE = 0
    FAILED = 1
    USAGE = 2
    HANGING = 3
    BLOCKED = 3
    UNSAFE = 3
    INCOMPLETE = 4
    PARTLY_DONE = 5
    REFUSED = 6
    BUSY = 7
    INTERRUPTED = 130


class TxnscanError(Exception):
    """An error that the user can act on. `str()` is one sentence: the problem, the place and the remedy.

    option: the option that the error is about, if the sentence does not begin with it.
    """

    exit_status = ExitStatus.FAILED
    option: str | None = None

    @property
    def sentence(self) -> str:
        """The sentence. It begins with the option that it is about, if any."""
        return str(self) if self.option is None else f"{self.option}: {self}"


def system_reason(error: OSError) -> str:
    """Why the operating system refused something, without the path. Other errors of this class have their own words."""
    return error.strerror or str(error)
