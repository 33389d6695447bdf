"""The base class of every error that is reported to users, and the exit statuses of the commands."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """The exit status of a command; schedulers read it.

    HANGING: with --fail-on hanging, there are candidates. INCOMPLETE: with --fail-on incomplete, not everything was
    observed; from `check`, not everything could be; with --max-age, the stored sweep is too old. PARTLY_DONE: something
    of a plan is left to do. REFUSED: a plan was refused as a whole. BUSY: another apply is under way.
    INTERRUPTED: 128 + SIGINT.
    """

    DONE = 0
    FAILED = 1
    USAGE = 2
    HANGING = 3
    INCOMPLETE = 4
    PARTLY_DONE = 5
    REFUSED = 6
    BUSY = 7
    INTERRUPTED = 130


class TxnscanError(Exception):
    """An error that a user can do something about. `str()` is one sentence: what, where, what to do.

    option: the option that it is about, where the sentence does not begin with it.
    """

    exit_status = ExitStatus.FAILED
    option: str | None = None
