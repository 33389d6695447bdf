"""Interrupt the Spark jobs of a sweep: by Ctrl-C, or by Spark's own means from another thread.

Jobs of a sweep have the job group and the tags of the caller (`jobs.py`). So `cancelJobGroup` and `cancelJobsWithTag`
reach them, in Spark Connect also `interruptTag`. `SparkSession.interruptAll` finds jobs by a tag that each session has.
The sweep's own session has another one, so its jobs get the tag of the user's session, too.

Spark reports the end of such a job as an error. PySpark reports it also after Ctrl-C, in place of KeyboardInterrupt.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from txnscan.engine.spark.jobs import context_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# How long to wait until Spark has taken the request to cancel.
_CANCEL_S = 2.0
# The error classes of a cancelled job in classic sessions, and of an interrupted operation in Spark Connect.
_CANCELLED = ("SPARK_JOB_CANCELLED", "OPERATION_CANCELED")


@contextmanager
def interruptible(spark: SparkSession | None, unless: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Raises KeyboardInterrupt if the user interrupts the jobs in here. After Ctrl-C, jobs of other threads end, too.

    unless: an error that already reports an interruption, and is raised unchanged.
    """
    if spark is None:
        yield
        return
    with _tagged(spark) as cancel:
        try:
            yield
        except KeyboardInterrupt:
            cancel()
            raise
        except Exception as error:
            if isinstance(error, unless) or not is_interrupt(error):
                raise
            cancel()
            raise KeyboardInterrupt from error


def is_interrupt(error: BaseException) -> bool:
    """Whether the user's interruption is the cause of an error."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, KeyboardInterrupt) or any(name in str(seen) for name in _CANCELLED):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


@contextmanager
def _tagged(spark: SparkSession) -> Iterator[Callable[[], None]]:
    """Gives a tag of its own to each job in here. Yields a function that cancels those jobs."""
    tag = f"txnscan-{uuid.uuid4()}"
    context = context_of(spark)
    add, remove, cancel = _of_session(spark, tag) if context is None else _of_context(spark, context, tag)
    # The session may have been stopped, and some sessions refuse tags. A sweep works without them.
    with suppress(Exception):
        add()
    try:
        yield partial(_within, _CANCEL_S, cancel)
    finally:
        with suppress(Exception):
            remove()


def _within(longest_s: float, call: Callable[[], object]) -> None:
    """Makes the call in a thread of its own. An interrupt may have cut off a call to Java on this thread's connection,
    which then has the answer to come, and not the answer to the next call.
    """

    def quietly() -> None:
        with suppress(Exception):
            call()

    calling = threading.Thread(target=quietly, name="txnscan-cancel", daemon=True)
    calling.start()
    calling.join(longest_s)


_Tagging = tuple[Callable[[], object], Callable[[], object], Callable[[], object]]


def _of_context(spark: SparkSession, context: SparkContext, tag: str) -> _Tagging:
    """How to add the tag, how to remove it, and how to cancel its jobs."""
    added = {tag, *_tag_of(spark)}.difference(context.getJobTags())

    def each(call: Callable[[str], None]) -> None:
        for one in added:
            call(one)

    return (
        partial(each, context.addJobTag),
        partial(each, context.removeJobTag),
        partial(context.cancelJobsWithTag, tag),
    )


def _tag_of(spark: SparkSession) -> set[str]:
    """The tag by which the session's `interruptAll` finds jobs, if it has one."""
    with suppress(Exception):
        return {str(spark._jsparkSession.sessionJobTag())}
    return set()


def _of_session(spark: SparkSession, tag: str) -> _Tagging:
    """The same in Spark Connect, and on clusters that users share, where only the session has tags."""
    return partial(spark.addTag, tag), partial(spark.removeTag, tag), partial(spark.interruptTag, tag)
